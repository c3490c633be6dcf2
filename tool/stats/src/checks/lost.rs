//! Were the connections still open at both ends?

use super::{EVERYTHING, Evidence, Found, measured, percent, seen};
use crate::numbers::grouped;
use jostle_model::Remedy;
use jostle_model::connect::Connections;
use jostle_model::record::Status;

/// Shares of the connections: beyond the second the number open is not the one named.
const SUSPECT: f64 = 0.0;
const INVALID: f64 = 0.001;

check! {
    "lost" in "share": "Did the server still hold the connections that its clients hold?";
    threshold: text!(
        "any that the server has closed or reset: SUSPECT; above {} of them: INVALID",
        percent(INVALID)
    ),
    source: "a connection is open while both sides hold it; one in a thousand moves no median, \
             and no number of open connections by more than its third digit",
    fooled_by: "a server that closes later than the look, and a peer that vanishes without a \
                packet (power, a firewall that forgets the connection): its kernel never sent that \
                it is gone",
    advice: "raise the server's limit on connections or its idle timeout, or open fewer",
    words: |reason| {
        let (share, what) = (percent(measured(reason)), seen(reason));
        format!(
            "the server, or something before it, had closed or reset {}",
            what.replacen("connections", &format!("connections ({share})"), 1)
        )
    },
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let connections = evidence.each(|run| run.connections.as_deref());
    let worst = connections.max_by(|one, other| share(one).total_cmp(&share(other)))?;
    let share = share(worst);
    let (is, limit) = match share {
        share if share > INVALID => (Status::Invalid, INVALID),
        share if share > SUSPECT => (Status::Suspect, SUSPECT),
        _ => return None,
    };
    let fewer = worst.first_lost.filter(|first| *first > 1);
    Some(
        Found::new(is, EVERYTHING, share, limit)
            .seen(which(worst))
            .remedy(fewer.map(|first| Remedy::with("--open", first - 1))),
    )
}

fn share(connections: &Connections) -> f64 {
    connections.lost.unwrap_or(0) as f64 / connections.opened.max(1) as f64
}

/// `47 of 1,000 connections, from number 954 on; the first loss was seen with 960 open`.
fn which(connections: &Connections) -> String {
    let first = connections.first_lost.map_or_else(String::new, |first| {
        format!(", from number {} on", grouped(first))
    });
    let seen_at = match connections.loss_seen_at {
        Some(at) if at < connections.opened => {
            format!("; the first loss was seen with {} open", grouped(at))
        }
        _ => String::new(),
    };
    format!(
        "{} of {} connections{first}{seen_at}",
        grouped(connections.lost.unwrap_or(0)),
        grouped(connections.opened)
    )
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{judge, point};
    use jostle_model::connect::Connections;
    use jostle_model::record::{Run, Status};

    fn with(opened: u64, lost: Option<u64>, first_lost: Option<u64>) -> Run {
        let mut run = point();
        run.connections = Some(Box::new(Connections {
            opened,
            lost,
            first_lost,
            loss_seen_at: first_lost.map(|_| 500),
            ..Connections::default()
        }));
        run
    }

    #[test]
    fn one_in_a_thousand_is_the_border_and_none_is_no_reason() {
        for (opened, lost, is) in [
            (1_000, Some(0), None),
            // Records without this figure: those of bind(), and older ones.
            (1_000, None, None),
            (1_000, Some(1), Some(Status::Suspect)),
            (1_000, Some(2), Some(Status::Invalid)),
            (100, Some(1), Some(Status::Invalid)),
            (1_000_000, Some(1_000), Some(Status::Suspect)),
        ] {
            let reason = judge(&CHECK, &[with(opened, lost, None)]);
            assert_eq!(reason.map(|reason| reason.is), is, "{lost:?} of {opened}");
        }
        assert_eq!(judge(&CHECK, &[point()]), None, "no connections at all");
    }

    #[test]
    fn the_worst_run_is_named_with_what_to_do() {
        let whole = with(1_500, Some(0), None);
        let reason = judge(&CHECK, &[whole, with(1_500, Some(1_400), Some(101))]).unwrap();
        assert_eq!(
            reason.text,
            "the server, or something before it, had closed or reset 1,400 of 1,500 connections \
             (93.3 %), from number 101 on; the first loss was seen with 500 open (--open \
             100)"
        );
        let idle = judge(&CHECK, &[with(500, Some(500), Some(1))]).unwrap();
        assert_eq!(
            idle.text,
            "the server, or something before it, had closed or reset 500 of 500 connections (100.0 \
             %), from number 1 on"
        );
    }
}
