//! The open loop: requests come at a rate, whatever became of those before.
//!
//! All intended starts are fixed before the run. The workers are slots: a free worker takes
//! the next request from the schedule, sleeps until it is due and sends it. A late request
//! therefore delays only itself, and the time before a request was sent counts in its
//! response time (coordinated omission: Tene, "How NOT to Measure Latency", 2013).
//!
//! A request is late for one of two reasons. Until a slot was free, the lag is the
//! target's: all other requests were still to be answered. After that it is the
//! generator's. If a slot came free late because its last request was sent late, that part
//! is the generator's too: each worker carries it along as its debt, as if the request
//! before had been sent in time and had taken as long (Lindley's recursion for the waiting
//! time, Proc. Camb. Phil. Soc. 48, 1952).

use super::arrivals;
use super::asking::Asking;
use super::page::{Fate, Part, Sheet, Sheets, Taken};
use crate::order::{OpenLoopData, OpenLoopOrder, RunOrder};
use crate::page::SLICES;
use jostle_model::open_loop::OpenLoop;
use jostle_sys::clock::{self, Clock};
use jostle_sys::shared::{LINE, Region};
use jostle_sys::signal;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The canary's sleep.
const CANARY_NS: u64 = 1_000_000;

/// A worker that waits for a request after a pause wakes so long before it is due. An
/// idle CPU wakes the later the longer it was idle: on a virtual machine whose CPUs halt
/// at once, 25 to 56 us late after 1 ms, and 75 to 112 us late after 20 ms. After these
/// two short sleeps it wakes as after 1 ms.
const EARLY_NS: [u64; 2] = [400_000, 200_000];

/// A pause: no request is due for so long.
const PAUSE_NS: u64 = 1_000_000;

/// The schedule of a run, and how far it has been taken.
#[derive(Debug)]
pub(super) struct Pool {
    /// From the common start on, up to the end of the window.
    due: Vec<u64>,
    /// Number of the next one to be taken.
    next: Region,
    warmup_ns: u64,
    window_ns: u64,
    drop_after_ns: u64,
}

/// A worker's knowledge of its slot.
struct Slot {
    /// Stamp at which it came free.
    free: u64,
    /// How much earlier it would have been, had the generator never been late.
    debt: u64,
}

impl Slot {
    /// The time from which a generator that is never late could have sent a request that is
    /// due at `due`.
    fn could(&self, due: u64) -> u64 {
        due.max(self.free - self.debt)
    }

    /// The target's lateness with it.
    fn target_lag(&self, due: u64) -> u64 {
        self.could(due) - due
    }

    /// Records that a request was sent and has ended; returns the generator's lag.
    fn served(&mut self, due: u64, sent: u64, ended: u64) -> u64 {
        self.debt = sent.saturating_sub(self.could(due));
        self.free = ended;
        self.debt
    }
}

/// The window, in stamps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// It opens.
    pub opens: u64,
    /// It closes.
    pub closes: u64,
}

impl Pool {
    /// Fixes the schedule.
    ///
    /// # Errors
    /// The system's, where there is no memory.
    pub(super) fn new(order: &RunOrder, open: &OpenLoopOrder) -> std::io::Result<Pool> {
        let span = order.warmup.0 + order.window.0;
        Ok(Pool {
            due: arrivals::due(open, span, order.seed),
            next: Region::new(LINE)?,
            warmup_ns: order.warmup.0,
            window_ns: order.window.0,
            drop_after_ns: open.drop_after.0,
        })
    }

    fn next(&self) -> &AtomicU64 {
        &self.next.words64(0, 1)[0]
    }

    /// When the worker that waits for a request is to wake, in nanoseconds from the
    /// start: when the request is due, and after a pause of the schedule also before.
    fn wakes(&self, nth: u64) -> impl Iterator<Item = u64> {
        let nth = nth as usize;
        let due = self.due[nth];
        let before = nth.checked_sub(1).map_or(0, |before| self.due[before]);
        let early = match due - before >= PAUSE_NS {
            true => &EARLY_NS[..],
            false => &[],
        };
        early.iter().map(move |early| due - early).chain([due])
    }

    /// Whether a request that is due then belongs to the window.
    fn is_planned(&self, due: u64) -> bool {
        due >= self.warmup_ns && due < self.warmup_ns + self.window_ns
    }

    /// How long a request without an answer was pending by the end of the window, from its
    /// due time.
    fn unanswered(&self, due: u64) -> u64 {
        (self.warmup_ns + self.window_ns).saturating_sub(due)
    }

    /// Takes requests from the schedule and makes them until there are none left,
    /// or until the keeper ends it.
    pub(super) fn work(&self, asking: &mut Asking<'_>, clock: Clock, window: Window) {
        let sheet = asking.sheet();
        let start = window.opens - self.warmup_ns;
        let mut slot = Slot {
            free: start,
            debt: 0,
        };
        loop {
            let nth = self.next().fetch_add(1, Relaxed);
            let Some(offset) = self.due.get(nth as usize).copied() else {
                return;
            };
            sheet.take(Taken::Waits(nth));
            let due = start + offset;
            if self.gives_up(&sheet, &slot, offset, due, clock.now(), window) {
                sheet.take(Taken::Nothing);
                continue;
            }
            if !self.wakes(nth).all(|wake| sleep_until(clock, start + wake)) {
                return;
            }
            sheet.take(Taken::Sent(nth));
            let Some(made) = asking.make(nth) else {
                return;
            };
            asking.count(&made);
            if made.is_success() && (window.opens..window.closes).contains(&made.ended) {
                asking.add_operation();
            }
            let target_lag = slot.target_lag(due);
            let generator_lag = slot.served(due, made.sent, made.ended);
            if self.is_planned(offset) {
                sheet.fold(Part::TargetLag, target_lag);
                sheet.fold(Part::GeneratorLag, generator_lag);
                asking.fold(&made, self.slice(offset), due);
                if made.is_success() {
                    sheet.fold(Part::Response, made.ended.saturating_sub(due));
                }
                sheet.count_fate(match made.is_success() {
                    true => Fate::Done,
                    false => Fate::Failed,
                });
            }
            sheet.take(Taken::Nothing);
        }
    }

    /// Whether a request that was just taken is not sent any more: it has waited
    /// for a slot for too long, or the window has closed.
    fn gives_up(
        &self,
        sheet: &Sheet<'_>,
        slot: &Slot,
        offset: u64,
        due: u64,
        now: u64,
        window: Window,
    ) -> bool {
        let waited = slot.target_lag(due);
        let ended = now >= window.closes;
        if !ended && waited <= self.drop_after_ns {
            return false;
        }
        if self.is_planned(offset) {
            sheet.count_fate(match waited {
                0 => Fate::DroppedWithSlot,
                _ => Fate::Dropped,
            });
            if ended {
                sheet.count_fate(Fate::DroppedAtEnd);
            }
            let until = now.min(window.closes);
            sheet.fold(Part::Unanswered, until.saturating_sub(due));
        }
        true
    }

    fn slice(&self, offset: u64) -> usize {
        let within = offset.saturating_sub(self.warmup_ns);
        (u128::from(within) * SLICES as u128 / u128::from(self.window_ns.max(1))) as usize
    }

    /// The outcomes of all planned requests, once the workers are gone. `spare` is a sheet that no
    /// worker writes.
    ///
    /// Plans are counted by the schedule and outcomes by the workers, so that the two can disagree.
    pub(super) fn settle(&self, sheets: &Sheets, spare: &Sheet<'_>) -> OpenLoopData {
        let mut all = OpenLoop {
            planned: self.due.iter().filter(|due| self.is_planned(**due)).count() as u64,
            ..OpenLoop::default()
        };
        for sheet in sheets.all() {
            all.done += sheet.fates(Fate::Done);
            all.failed += sheet.fates(Fate::Failed);
            let with_slot = sheet.fates(Fate::DroppedWithSlot);
            all.dropped += sheet.fates(Fate::Dropped) + with_slot;
            all.dropped_with_slot += with_slot;
            all.dropped_at_end += sheet.fates(Fate::DroppedAtEnd);
            self.settle_taken(sheet.taken(), spare, &mut all);
        }
        // Nobody was free to take these.
        let taken = (self.next().load(Relaxed) as usize).min(self.due.len());
        for due in self.due[taken..]
            .iter()
            .filter(|due| self.is_planned(**due))
        {
            all.dropped += 1;
            all.dropped_at_end += 1;
            spare.fold(Part::Unanswered, self.unanswered(*due));
        }
        OpenLoopData {
            counts: all,
            response: sheets.merged(Part::Response),
            unanswered: sheets.merged(Part::Unanswered),
            generator_lag: sheets.merged(Part::GeneratorLag),
            target_lag: sheets.merged(Part::TargetLag),
            canary_lag: sheets.merged(Part::CanaryLag),
        }
    }

    /// Counts the request that a worker had in hand when it was interrupted or died.
    fn settle_taken(&self, taken: Taken, spare: &Sheet<'_>, all: &mut OpenLoop) {
        let (nth, sent) = match taken {
            Taken::Nothing => return,
            Taken::Waits(nth) => (nth, false),
            Taken::Sent(nth) => (nth, true),
        };
        let due = self.due.get(nth as usize).copied();
        let Some(due) = due.filter(|due| self.is_planned(*due)) else {
            return;
        };
        match sent {
            true => all.in_flight += 1,
            false => {
                all.dropped += 1;
                all.dropped_with_slot += 1;
                all.dropped_at_end += 1;
            }
        }
        spare.fold(Part::Unanswered, self.unanswered(due));
    }
}

/// Sleeps until this stamp; false if the keeper ended the wait.
///
/// The timer is the kernel's, absolute, without slack. A stamp's scale may be off
/// by some millionths of it, so that what is left is asked again.
fn sleep_until(clock: Clock, stamp: u64) -> bool {
    loop {
        let now = clock.now();
        if now >= stamp {
            return true;
        }
        clock::sleep_until(clock::monotonic() + (stamp - now));
        if signal::interrupted() {
            return false;
        }
    }
}

/// Sleeps for a millisecond again and again while the window is open, and notes
/// how late it wakes: what it shares with the generators is the machine's doing.
pub(super) fn canary(sheet: &Sheet<'_>, clock: Clock, window: Window) {
    loop {
        let due = clock.now() + CANARY_NS;
        if due >= window.closes || !sleep_until(clock, due) {
            return;
        }
        if due >= window.opens {
            sheet.fold(Part::CanaryLag, clock.now() - due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::Nanos;
    use jostle_model::plan::Arrivals;

    const MS: u64 = 1_000_000;

    /// Stamp of the common start.
    const START: u64 = 5_000_000_000;

    /// Every 100 ms one request, the first of eleven in the warm-up; whoever waits for
    /// a slot for more than 300 ms is dropped.
    fn ten_a_second() -> Pool {
        let mut order = crate::order::tests::contend("null");
        (order.warmup, order.window) = (Nanos(100 * MS), Nanos(1_000 * MS));
        let open = OpenLoopOrder {
            per_s: 10,
            arrivals: Arrivals::Constant,
            drop_after: Nanos(300 * MS),
            first_after: Nanos::ZERO,
        };
        Pool::new(&order, &open).unwrap()
    }

    #[test]
    fn arrivals_are_those_of_the_order() {
        let mut order = crate::order::tests::contend("null");
        (order.warmup, order.window) = (Nanos(100 * MS), Nanos(1_000 * MS));
        let gaps = |arrivals| {
            let open = OpenLoopOrder {
                per_s: 100,
                arrivals,
                drop_after: Nanos(300 * MS),
                first_after: Nanos::ZERO,
            };
            let due = Pool::new(&order, &open).unwrap().due;
            let gaps = due.windows(2).map(|two| two[1] - two[0]);
            gaps.collect::<std::collections::BTreeSet<u64>>().len()
        };
        assert_eq!(gaps(Arrivals::Constant), 1);
        assert!(gaps(Arrivals::Poisson) > 10);
    }

    #[test]
    fn a_worker_wakes_early_for_a_request_that_follows_a_pause_of_the_whole_schedule() {
        let mut pool = ten_a_second();
        pool.due = vec![0, MS, 2 * MS - 1, 3 * MS - 1, 3 * MS - 1];
        let wakes = |nth| pool.wakes(nth).collect::<Vec<u64>>();
        assert_eq!(wakes(0), [0]);
        assert_eq!(wakes(1), [600_000, 800_000, MS]);
        assert_eq!(wakes(2), [2 * MS - 1], "a nanosecond less than a pause");
        assert_eq!(wakes(3), [2 * MS + 599_999, 2 * MS + 799_999, 3 * MS - 1]);
        assert_eq!(wakes(4), [3 * MS - 1], "due together with the one before");
    }

    #[test]
    fn what_is_not_sent_is_counted_by_whose_fault_it_is_and_how_long_it_waited() {
        use Fate::{Dropped, DroppedAtEnd, DroppedWithSlot};
        let window = Window {
            opens: START + 100 * MS,
            closes: START + 1_100 * MS,
        };
        // Due, slot free, now (ms from the start); given up and as what; waited.
        type Case = ([u64; 3], Option<&'static [Fate]>, u64);
        let table: [Case; 7] = [
            ([500, 0, 400], None, 0),
            ([500, 800, 800], None, 0),
            ([500, 801, 801], Some(&[Dropped]), 301),
            // Sent late, but within its time.
            ([500, 0, 1_099], None, 0),
            ([500, 0, 1_100], Some(&[DroppedWithSlot, DroppedAtEnd]), 600),
            ([900, 1_150, 1_150], Some(&[Dropped, DroppedAtEnd]), 200),
            // Requests of the warm-up are not counted.
            ([0, 1_150, 1_150], Some(&[]), 0),
        ];
        for ([due, free, now], expected, waited) in table {
            let (pool, sheets) = (ten_a_second(), Sheets::new(1, 0).unwrap());
            let slot = Slot {
                free: START + free * MS,
                debt: 0,
            };
            let sheet = sheets.sheet(0);
            let [offset, now] = [due, now].map(|ms| ms * MS);
            let given_up =
                pool.gives_up(&sheet, &slot, offset, START + offset, START + now, window);
            assert_eq!(given_up, expected.is_some(), "{due} {free}");
            for fate in [
                Fate::Done,
                Fate::Failed,
                Dropped,
                DroppedWithSlot,
                DroppedAtEnd,
            ] {
                let count = u64::from(expected.is_some_and(|fates| fates.contains(&fate)));
                assert_eq!(sheet.fates(fate), count, "{due} {free} {fate:?}");
            }
            let unanswered = sheets.merged(Part::Unanswered);
            assert_eq!(unanswered.sum, waited * MS, "{due} {free}");
        }
    }

    #[test]
    fn every_planned_request_is_settled_once_whatever_its_worker_was_doing() {
        let (pool, sheets) = (ten_a_second(), Sheets::new(4, 0).unwrap());
        // Number 0 was of the warm-up. 1, 2 and 5 have ended; 3 was sent and 4 was not
        // when their workers were ended; nobody took 6 to 10.
        sheets.sheet(0).count_fate(Fate::Done);
        sheets.sheet(1).count_fate(Fate::Done);
        sheets.sheet(0).count_fate(Fate::Failed);
        sheets.sheet(1).take(Taken::Sent(3));
        sheets.sheet(2).take(Taken::Waits(4));
        pool.next().store(6, Relaxed);
        let all = pool.settle(&sheets, &sheets.sheet(3));
        let counts = &all.counts;
        assert_eq!((counts.planned, counts.done, counts.failed), (10, 2, 1));
        assert_eq!((counts.in_flight, counts.dropped), (1, 6));
        assert_eq!((counts.dropped_with_slot, counts.dropped_at_end), (1, 6));
        // Each of the seven took at least until the window closed: 800 and 700 ms,
        // and 500 to 100.
        let counted: u64 = all
            .unanswered
            .buckets
            .0
            .iter()
            .map(|(_, count)| count)
            .sum();
        assert_eq!((counted, all.unanswered.sum), (7, 3_000 * MS));
    }

    #[test]
    fn the_canary_notes_by_how_much_it_wakes_too_late_while_the_window_is_open() {
        let watched = |seconds: u64| {
            let (sheets, clock) = (Sheets::new(1, 0).unwrap(), Clock::new());
            let now = clock.now();
            let window = Window {
                opens: now + 10 * MS,
                closes: now + (1_000 * seconds + 10) * MS,
            };
            canary(&sheets.sheet(0), clock, window);
            let lag = sheets.merged(Part::CanaryLag);
            let counted: u64 = lag.buckets.0.iter().map(|(_, count)| count).sum();
            assert!(counted <= 1_000 * seconds, "{counted} in {seconds} s");
            (counted > 0).then_some(lag)
        };
        // Longer where it stood still for the whole second.
        let lag = [1, 10, 30].into_iter().find_map(watched).unwrap();
        assert!(lag.sum > 0, "nobody wakes at once");
    }

    /// Requests due at these times, sent and ended then: what generator and target
    /// were late by.
    fn lags(served: &[(u64, u64, u64)]) -> Vec<(u64, u64)> {
        let mut slot = Slot { free: 0, debt: 0 };
        served
            .iter()
            .map(|(due, sent, ended)| {
                let target = slot.target_lag(*due);
                (slot.served(*due, *sent, *ended), target)
            })
            .collect()
    }

    #[test]
    fn who_was_late_is_who_could_have_been_in_time() {
        // In time, and the slot free again before the next is due.
        assert_eq!(lags(&[(10, 10, 12), (20, 21, 25)]), [(0, 0), (1, 0)]);
        // The target takes 30: the next one, due at 20, finds the slot free at 40.
        assert_eq!(lags(&[(10, 10, 40), (20, 41, 43)]), [(0, 0), (1, 20)]);
        // The generator pauses for 30: the next one, due at 20, is late by its fault.
        assert_eq!(lags(&[(10, 40, 42), (20, 42, 44)]), [(30, 0), (22, 0)]);
        // Both: in time, the first would have ended at 30, so that 10 of the 40 by
        // which the second is late are the target's.
        assert_eq!(lags(&[(10, 40, 60), (20, 60, 62)]), [(30, 0), (30, 10)]);
        // A slot that was idle in between owes nothing any more.
        assert_eq!(lags(&[(10, 40, 42), (90, 90, 92)]), [(30, 0), (0, 0)]);
    }
}
