//! The causes that the table finds from a server's own reports.

use jostle_model::record::{Came, Causes, Look, LookedAt, When};
use jostle_sys::clock::monotonic;
use jostle_targets::Target;

/// Asks a server that answers.
#[track_caller]
pub(crate) fn ask(target: &impl Target, when: When) -> Look {
    let asked_ns = monotonic();
    let signs = target.signs().unwrap();
    Look {
        at: LookedAt::Server,
        when,
        asked_ns,
        answered_ns: Some(monotonic()),
        came: Came::Answered,
        words: None,
        signs,
        host: None,
    }
}

/// The causes of a failed call, by what the server said before and says now.
#[track_caller]
pub(crate) fn causes(before: &Look, target: &impl Target) -> Causes {
    let looks = [before.clone(), ask(target, When::After)];
    let causes = jostle_stats::causes::judge("errors", &looks);
    assert!(!causes.looked_at.is_empty(), "the server says nothing");
    causes
}
