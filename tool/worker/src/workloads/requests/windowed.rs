//! The closed loop against a window: the next request as soon as the one before was
//! answered, until the window has closed. So many workers keep so many requests in
//! flight.
//!
//! A request belongs to the window in which its answer came. One that the window's
//! end cuts off is finished all the same, and counts as censored.

use super::asking::{Asking, Made};
use super::standstill;
use crate::crew::Crew;
use crate::page::{Page, SLICES, Shared, Stage, Word};
use std::sync::atomic::Ordering::Acquire;

/// The life of a worker that has joined. The first worker of each generator also watches
/// whether their process runs at all. True if all went well.
pub(super) fn live(
    crew: &Crew<'_>,
    generators: usize,
    worker: usize,
    asking: &mut Asking<'_>,
) -> bool {
    let page = crew.shared.page(worker);
    let mut firsts = (0..generators).map(|nth| crew.order.dealt(nth, generators).start);
    let is_first = firsts.any(|first| first == worker);
    crew.wait_for_start(&page);
    page.set(Word::Stage, Stage::Working as u64);
    std::thread::scope(|scope| {
        if is_first {
            scope.spawn(|| standstill::attend(crew.clock, crew.shared, &page));
        }
        until_closed(asking, &page, crew.shared);
        // The clocks are read once all have been dismissed.
        crew.leave(&page, Ok(()))
    })
}

fn until_closed(asking: &mut Asking<'_>, page: &Page<'_>, shared: &Shared) {
    let mut nth = 0;
    loop {
        let Some(made) = asking.make(nth) else {
            cut_off(page, shared, page.get(Word::PendingSince), u64::MAX);
            return;
        };
        nth += 1;
        let (opens, closes) = window(shared);
        asking.record(&made, tenth_of(&made, opens, closes));
        if made.ended >= closes {
            cut_off(page, shared, made.sent, made.ended);
            return;
        }
        page.add(
            Word::InFlight,
            overlap(made.sent, made.ended, opens, closes),
        );
    }
}

/// The last request, which was in flight when the window closed.
fn cut_off(page: &Page<'_>, shared: &Shared, sent: u64, ended: u64) {
    let (opens, closes) = window(shared);
    page.add(Word::InFlight, overlap(sent, ended, opens, closes));
    if sent < closes {
        page.set(Word::CensoredAt, sent);
    }
}

/// Before the last worker has come there is no window, and both times are `u64::MAX`.
fn window(shared: &Shared) -> (u64, u64) {
    let opens = shared.opens().load(Acquire);
    (opens, shared.closes().load(Acquire).max(opens))
}

/// How much of a span lies within the window.
pub(super) fn overlap(from: u64, to: u64, opens: u64, closes: u64) -> u64 {
    to.min(closes).saturating_sub(from.max(opens))
}

/// The tenth of the window that an answer came in; None: outside.
fn tenth_of(made: &Made, opens: u64, closes: u64) -> Option<usize> {
    (opens..closes).contains(&made.ended).then(|| {
        let since = u128::from(made.ended - opens);
        (since * SLICES as u128 / u128::from(closes - opens)) as usize
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_within_the_window_is_in_flight_there() {
        for (from, to, expected) in [
            (10, 20, 10),
            (0, 5, 0),      // before
            (5, 15, 5),     // across its opening
            (95, 130, 5),   // across its end
            (0, 1_000, 90), // all of it
            (100, 120, 0),
        ] {
            assert_eq!(overlap(from, to, 10, 100), expected, "{from}..{to}");
        }
        // Nobody has opened it.
        assert_eq!(overlap(5, 10, u64::MAX, u64::MAX), 0);
    }
}
