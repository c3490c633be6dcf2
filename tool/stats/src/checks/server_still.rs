//! Did the server stand still while it was measured?

use super::{EVERYTHING, Evidence, Found, percent, seen};
use jostle_model::Remedy;
use jostle_model::record::{Run, Status, Stood};

/// Share of the looks, or of the window.
const MOST: f64 = 0.01;
/// Looks of a run at which it stood still.
const LEAST_LOOKS: u64 = 2;

check! {
    "server_still" in "share": "Did the server stand still while it was measured?";
    threshold: text!(
        "all its processes stopped, traced or frozen at {LEAST_LOOKS} looks and more than {} \
         of them: INVALID; its control group throttled for more than {} of the window: SUSPECT",
        percent(MOST),
        percent(MOST)
    ),
    source: "a server that is kept from running looks saturated, with CPUs idle; jostle looks every \
             20 ms, and reads the group's throttled time before and after",
    fooled_by: "a server on another host; a stop between two looks; throttled time is summed over \
                CPUs, and is that of all programs of the group",
    advice: "let it run: kill -CONT, thaw its control group, end the tracer, or raise its CPU quota \
             (docker update --cpus)",
    words: seen,
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let found = |of: fn(&Stood, &Run) -> Option<f64>| {
        let each = evidence.each(|run| of(run.around.server_stood.as_ref()?, run));
        each.filter(|share| *share > MOST).max_by(f64::total_cmp)
    };
    let still = found(|stood, _| {
        (stood.still >= LEAST_LOOKS).then_some(stood.still as f64 / stood.looks as f64)
    });
    let throttled = found(|stood, run| Some(stood.throttled_s? / run.window.window_s));
    let (is, share, how) = match (still, throttled) {
        (Some(still), _) => (Status::Invalid, still, "the server stood still at"),
        (None, throttled) => (
            Status::Suspect,
            throttled?,
            "the CPU quota of the server's control group held it for",
        ),
    };
    let of = match is {
        Status::Invalid => "the looks at it",
        _ => "the window, summed over CPUs",
    };
    let seen = format!("{how} {} of {of}", percent(share));
    let found = Found::new(is, EVERYTHING, share, MOST).seen(seen);
    Some(found.remedy(Remedy::Again))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{judge, point};
    use jostle_model::record::{Status, Stood};

    /// A server that was stopped for 80 of each 100 ms was "the target saturates", VALID.
    #[test]
    fn a_server_that_is_kept_from_running_is_told() {
        let with = |looks, still, throttled_s| {
            let mut run = point();
            run.around.server_stood = Some(Stood {
                looks,
                still,
                throttled_s,
                ..Stood::default()
            });
            judge(&CHECK, &[point(), run]).map(|reason| (reason.is, reason.text))
        };
        for (looks, still, throttled_s) in [(250, 0, None), (50, 1, None), (250, 2, Some(0.05))] {
            assert_eq!(with(looks, still, throttled_s), None);
        }
        let text = "the server stood still at 80.0 % of the looks at it (run it again)".to_owned();
        assert_eq!(with(250, 200, None), Some((Status::Invalid, text)));
        let text = "the CPU quota of the server's control group held it for 40.0 % of the window, \
                    summed over CPUs (run it again)";
        assert_eq!(
            with(250, 0, Some(2.0)),
            Some((Status::Suspect, text.to_owned()))
        );
    }
}
