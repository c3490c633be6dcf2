//! Was the lock tried, so that silence means something?

use super::{EVERYTHING, Evidence, Found, seen};
use crate::numbers::counted;
use jostle_model::Remedy;
use jostle_model::record::Verified;

/// Calls that may be missing.
const MOST: u64 = 0;

check! {
    "tried" in "count": "Did faults strike, and is each call in the history that was judged?";
    threshold: text!("no fault struck, or more than {MOST} calls are missing: SUSPECT"),
    source: "a lock to which nothing happened kept its promise in ordinary use alone; nothing is \
             judged around calls that are missing",
    fooled_by: "faults that struck while nobody owned a lock",
    advice: "longer --for; where calls are missing, a machine with a faster disk, or fewer -w",
    words: seen,
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let runs = || evidence.each(|run| run.verified.as_deref());
    let sum = |of: fn(&Verified) -> u64| runs().map(of).sum::<u64>();
    let found = |count: u64, words: String| {
        Found::suspect(EVERYTHING, count as f64, MOST as f64).seen(words)
    };
    let dropped = sum(|run| run.dropped);
    if dropped > MOST {
        let calls = counted(dropped, "call");
        let words = format!(
            "{calls} could not be written to the history, and nothing around them was judged"
        );
        return Some(found(dropped, words).remedy(Remedy::Again));
    }
    let longest_s = runs().map(|run| run.ran_ns as f64 / 1e9).reduce(f64::max)?;
    let twice = Remedy::with("--for", format!("{}s", (2.0 * longest_s).ceil().max(1.0)));
    let none = "no fault struck in this time".to_owned();
    (sum(Verified::struck) == 0).then(|| found(0, none).remedy(twice))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{judge, point};
    use jostle_model::plan::Fault;
    use jostle_model::record::{FaultSeen, Run, Status, Verified};

    fn text(struck: u64, dropped: u64) -> Option<String> {
        let seen = FaultSeen {
            struck,
            ..FaultSeen::default()
        };
        let verified = Verified {
            ran_ns: 5_000_000_000,
            dropped,
            faults: [(Fault::Kill, seen)].into(),
            ..Verified::default()
        };
        let run = Run {
            verified: Some(Box::new(verified)),
            ..point()
        };
        let reason = judge(&CHECK, &[run])?;
        assert_eq!(reason.is, Status::Suspect);
        Some(reason.text)
    }

    #[test]
    fn silence_without_faults_or_with_holes_is_no_certificate() {
        assert_eq!(judge(&CHECK, &[point()]), None);
        assert_eq!(text(1, 0), None);
        assert_eq!(
            text(0, 0).unwrap(),
            "no fault struck in this time (--for 10s)"
        );
        assert!(text(1, 2).unwrap().starts_with("2 calls could not be"));
    }
}
