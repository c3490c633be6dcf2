//! Did every lock stay its owner's while it was held?

use super::{EVERYTHING, Evidence, Found, seen};
use crate::numbers::grouped;
use crate::numbers::time;
use jostle_model::Remedy;
use jostle_model::record::{Claim, Kept};

/// Leases that may end while their locks are held, and renewals that may come when the
/// lease is over.
const MOST: u64 = 0;

/// Fewer locks by this factor are worth a try.
const FEWER: u64 = 10;

check! {
    "leases" in "leases": "Did every lock keep its lease for as long as it was held?";
    threshold: text!(
        "more than {MOST} locks whose lease ended while they were held: INVALID; more than \
         {MOST} renewals that the server confirmed when the lease was over by the owner's \
         clock: SUSPECT for `absolute`"
    ),
    source: "a lock that is lost is not held: what it costs is not what holding costs. An owner \
             knows that it has a lock until the lease is over that it asked for last, and no longer",
    fooled_by: "a server whose clock stands still with its leases; a renewal that is refused for \
                another reason is an error",
    advice: "fewer locks (--keys), more of them at once where the target takes it (--pipeline), one \
             session for all, a longer --lease, or a server that is not busy otherwise",
    words: seen,
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let runs = || evidence.each(|run| run.kept.as_deref());
    let sum = |figure: fn(&Kept) -> u64| runs().map(figure).sum::<u64>();
    let latest = runs().filter_map(Kept::latest_ns).max();
    let latest = latest.map_or_else(String::new, |ns| {
        format!("; renewals came up to {} late", time(ns as f64))
    });
    let (lapsed, late) = (sum(|kept| kept.lapsed), sum(|kept| kept.late));
    let found = if lapsed > MOST {
        let locks = grouped(sum(|kept| kept.locks));
        let said = format!(
            "the leases of {} of {locks} locks ended while they were held{latest}",
            grouped(lapsed)
        );
        Found::invalid(EVERYTHING, lapsed as f64, MOST as f64).seen(said)
    } else if late > MOST {
        let said = format!(
            "{} renewals were confirmed when the lease was over by the owner's clock{latest}",
            grouped(late)
        );
        Found::suspect(&[Claim::Absolute], late as f64, MOST as f64).seen(said)
    } else {
        return None;
    };
    Some(found.remedy(fewer(evidence)))
}

/// Where there is one lock only, what came between may be gone another time.
fn fewer(evidence: &Evidence<'_>) -> Remedy {
    let keys = evidence.runs.first().and_then(|run| run.at.keys);
    match keys.filter(|keys| *keys > 1) {
        Some(keys) => Remedy::with("--keys", (keys / FEWER).max(1)),
        None => Remedy::Again,
    }
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{distribution, judge, point};
    use jostle_model::record::{Kept, Run, Status};

    fn run(keys: u64, lapsed: u64, late: u64) -> Run {
        let mut point = point();
        point.at.keys = Some(keys);
        point.kept = Some(Box::new(Kept {
            kept_s: 60.0,
            locks: keys,
            renewals: 100,
            late,
            lapsed,
            renewal_late_ns: Some(distribution(100, 4_200_000_000)),
            ..Kept::default()
        }));
        point
    }

    #[test]
    fn one_lease_that_ended_is_too_many_and_one_late_renewal_is_suspect() {
        for (lapsed, late, is) in [
            (0, 0, Status::Valid),
            (1, 0, Status::Invalid),
            (1, 9, Status::Invalid),
            (0, 1, Status::Suspect),
        ] {
            let found = judge(&CHECK, &[run(100, 0, 0), run(100, lapsed, late)]);
            assert_eq!(found.map_or(Status::Valid, |reason| reason.is), is);
        }
        assert_eq!(judge(&CHECK, &[point()]), None, "nothing was kept");
    }

    #[test]
    fn what_was_lost_is_said_with_how_late_renewals_came_and_what_to_try() {
        let reason = judge(&CHECK, &[run(10_000, 312, 0)]).unwrap();
        assert_eq!(
            reason.text,
            "the leases of 312 of 10,000 locks ended while they were held; renewals came up to \
             4.2 s late (--keys 1000)"
        );
        let reason = judge(&CHECK, &[run(1, 0, 2)]).unwrap();
        assert_eq!(
            reason.text,
            "2 renewals were confirmed when the lease was over by the owner's clock; renewals \
             came up to 4.2 s late (run it again)"
        );
    }
}
