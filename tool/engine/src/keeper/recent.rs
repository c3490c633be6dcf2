//! Measurements before the first run, kept for experiments that follow one another: a series of
//! short experiments would spend a third of its time on them.

use std::time::{Duration, Instant};

/// Experiments that begin within this time of a measurement share it. The machine's
/// wake-ups and its clock's frequency change over minutes.
const FRESH: Duration = Duration::from_secs(10);

/// Questions that were answered a moment ago, with their answers.
#[derive(Debug)]
pub(super) struct Recent<Q, A>(Vec<(Instant, Q, A)>);

impl<Q: PartialEq, A: Clone> Recent<Q, A> {
    /// Without any.
    pub(super) fn new() -> Recent<Q, A> {
        Recent(Vec::new())
    }

    /// The answer to exactly this question, if it is fresh at `now`.
    pub(super) fn answer(&self, question: &Q, now: Instant) -> Option<A> {
        let known = self
            .0
            .iter()
            .find(|(at, of, _)| of == question && is_fresh(*at, now));
        known.map(|(.., answer)| answer.clone())
    }

    /// Keeps an answer that was found at `now`, and forgets old ones.
    pub(super) fn keep(&mut self, question: Q, answer: A, now: Instant) {
        self.0.retain(|(at, ..)| is_fresh(*at, now));
        self.0.push((now, question, answer));
    }
}

fn is_fresh(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < FRESH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_shared_for_a_moment_by_those_who_ask_the_same() {
        let start = Instant::now();
        let mut recent = Recent::new();
        recent.keep("flock", 230, start);
        recent.keep("sysv", 179, start);
        let just = start + FRESH - Duration::from_nanos(1);
        assert_eq!(recent.answer(&"flock", just), Some(230));
        assert_eq!(recent.answer(&"sysv", just), Some(179));
        assert_eq!(recent.answer(&"ofd", start), None);
        assert_eq!(recent.answer(&"flock", start + FRESH), None);
        recent.keep("flock", 240, start + FRESH);
        assert_eq!(recent.answer(&"flock", start + FRESH), Some(240));
        assert_eq!(recent.0.len(), 1, "old answers are forgotten");
    }
}
