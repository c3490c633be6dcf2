//! Where clients wait: the names with the greatest sum of waiting, in this minute and this hour
//! and in those before.
//!
//! A minute is a weighted space-saving sketch: it has room for so many names, and one that
//! comes when it is full takes the place of the name with the least waiting, whose sum it
//! inherits as its error. So no sum is too small, none is too large by more than its error, and
//! each name is there whose sum is larger than the least one. An hour is fed with its minutes,
//! whose errors add up.
//! Only contended locks cost anything: what a lock refuses is counted in it, and taken into the
//! sketch when its hold ends, or 255 at a time.

use std::collections::HashMap;

use super::entries::{Block, ClaimState, EntryKind, Lock, Ref};
use super::slab::Slab;
use super::{Table, Time};

const MINUTE: u64 = 60_000_000_000;
const HOUR: u64 = 60 * MINUTE;
/// Slots that a report searches for waits that go on.
const SEARCHED: u32 = 1 << 18;
/// Names without a place that a report adds to a window: as many as a reply lists.
const ADDED: usize = 1000;
/// Four for each power of two, up to 2^34 us: each is at most a quarter wide.
const BUCKETS: usize = 136;

/// How long waits or holds were, in buckets of us.
#[derive(Clone, Debug)]
pub(crate) struct Spread([u32; BUCKETS]);

impl Default for Spread {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Spread {
    fn add(&mut self, ns: u64) {
        let us = ns / 1000;
        let bucket = match us {
            0..4 => us as usize,
            _ => {
                let octave = us.ilog2();
                4 * (octave as usize - 1) + (us >> (octave - 2) & 3) as usize
            }
        };
        let count = &mut self.0[bucket.min(BUCKETS - 1)];
        *count = count.saturating_add(1);
    }

    /// Microseconds within which so many per cent were: the upper end of a bucket. 0: none was.
    pub(crate) fn percentile(&self, percent: u64) -> u64 {
        let all: u64 = self.0.iter().map(|count| u64::from(*count)).sum();
        let mut left = (all * percent).div_ceil(100);
        for (bucket, count) in self.0.iter().enumerate() {
            if left <= u64::from(*count) && all > 0 {
                return match bucket as u64 {
                    low @ 0..4 => low + 1,
                    high => (5 + high % 4) << (high / 4 - 1),
                };
            }
            left = left.saturating_sub((*count).into());
        }
        0
    }

    fn join(&mut self, other: &Self) {
        let both = self.0.iter_mut().zip(&other.0);
        both.for_each(|(own, other)| *own = own.saturating_add(*other));
    }
}

/// A name's waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) name: Vec<u8>,
    /// The sum of its waits, at most by `error_ns` too large.
    pub(crate) waited_ns: u64,
    pub(crate) error_ns: u64,
    /// Since it has its place: waits that have ended, those of them that got the lock, requests
    /// that did not want to wait, and the longest line.
    pub(crate) waits: u64,
    pub(crate) grants: u64,
    pub(crate) refusals: u64,
    pub(crate) longest: u32,
    /// Waits that go on.
    pub(crate) waiting: u32,
    pub(crate) wait: Spread,
    /// Of holds that others waited for when they ended.
    pub(crate) hold: Spread,
}

#[derive(Clone, Debug, Default)]
struct Sketch {
    hashes: Vec<u32>,
    rows: Vec<Row>,
}

impl Sketch {
    /// The row of a name. `None`: it has no place, and gets none, as it has not waited.
    #[inline]
    fn row(
        &mut self,
        hash: u32,
        most: usize,
        waited_ns: u64,
        is_it: impl Fn(&[u8]) -> bool,
        name_into: impl FnOnce(&mut Vec<u8>),
    ) -> Option<&mut Row> {
        let at = self.find(0, hash, is_it);
        let at = at.or_else(|| self.admit(hash, most, waited_ns, name_into))?;
        let row = &mut self.rows[at];
        row.waited_ns = row.waited_ns.saturating_add(waited_ns);
        Some(row)
    }

    /// Where a name is, at this place or behind it.
    #[inline]
    fn find(&self, from: usize, hash: u32, is_it: impl Fn(&[u8]) -> bool) -> Option<usize> {
        let rows = self.rows.get(from..)?;
        let mut found = self.hashes[from..].iter().zip(rows);
        let at = found.position(|(own, row)| *own == hash && is_it(&row.name))?;
        Some(from + at)
    }

    #[cold]
    fn admit(
        &mut self,
        hash: u32,
        most: usize,
        waited_ns: u64,
        name_into: impl FnOnce(&mut Vec<u8>),
    ) -> Option<usize> {
        let full = self.rows.len() >= most;
        if full && waited_ns == 0 {
            return None;
        }
        let mut row = Row::default();
        name_into(&mut row.name);
        row.name.shrink_to_fit();
        if !full {
            if self.rows.len() == self.rows.capacity() {
                // Twice as many, as a vector would, but not more than have a place.
                let more = self.rows.len().max(4).min(most - self.rows.len());
                self.rows.reserve_exact(more);
                self.hashes.reserve_exact(more);
            }
            self.rows.push(row);
            self.hashes.push(hash);
            return Some(self.rows.len() - 1);
        }
        let least = (0..self.rows.len()).min_by_key(|at| self.rows[*at].waited_ns)?;
        row.waited_ns = self.rows[least].waited_ns;
        row.error_ns = row.waited_ns;
        (self.rows[least], self.hashes[least]) = (row, hash);
        Some(least)
    }

    /// The most by which a sum can be too large, and what a name without a place has at most.
    fn error_ns(&self, most: usize) -> u64 {
        let least = self.rows.iter().map(|row| row.waited_ns).min();
        least.filter(|_| self.rows.len() >= most).unwrap_or(0)
    }

    fn join(&mut self, other: &Self, most: usize) {
        for (hash, from) in other.hashes.iter().zip(&other.rows) {
            let copy = |name: &mut Vec<u8>| name.extend_from_slice(&from.name);
            let is_it = |name: &[u8]| name == from.name;
            if let Some(row) = self.row(*hash, most, from.waited_ns, is_it, copy) {
                row.error_ns = row.error_ns.saturating_add(from.error_ns);
                row.waits += from.waits;
                row.grants += from.grants;
                row.refusals += from.refusals;
                row.longest = row.longest.max(from.longest);
                row.wait.join(&from.wait);
                row.hold.join(&from.hold);
            }
        }
    }
}

/// A stretch of time; `begun` is 0 before there is one.
#[derive(Clone, Debug, Default)]
struct Window {
    begun: u64,
    sketch: Sketch,
    /// The errors of sketches that were joined to this one.
    joined_ns: u64,
}

/// The sketches kept; see the module's head.
#[derive(Debug)]
pub(super) struct Contention {
    /// Names in a sketch.
    most: usize,
    /// This one and the one before.
    minute: [Window; 2],
    hour: [Window; 2],
}

/// A window as it is shown: the greatest sums first.
#[derive(Debug)]
pub(crate) struct Shown {
    /// `minute`, `hour`, and those before them.
    pub(crate) title: &'static str,
    /// How long ago it began and ended.
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
    pub(crate) error_ns: u64,
    pub(crate) rows: Vec<Row>,
}

impl Contention {
    /// One that takes at most so many bytes; `None`: not even one name fits.
    pub(super) fn new(bytes: usize, name_bytes: usize) -> Option<Box<Self>> {
        let most = bytes / (4 * (size_of::<Row>() + size_of::<u32>() + name_bytes));
        (most > 0).then(|| {
            Box::new(Self {
                most,
                minute: Default::default(),
                hour: Default::default(),
            })
        })
    }

    /// Begins new windows where the time of the old ones is over.
    fn turn(&mut self, now: u64) {
        if self.minute[0].begun == 0 {
            (self.minute[0].begun, self.hour[0].begun) = (now.max(1), now.max(1));
        }
        if now < self.minute[0].begun + MINUTE {
            return;
        }
        let (most, minute) = (self.most, &self.minute[0]);
        self.hour[0].joined_ns += minute.sketch.error_ns(most);
        self.hour[0].sketch.join(&minute.sketch, most);
        for (length, windows) in [(MINUTE, &mut self.minute), (HOUR, &mut self.hour)] {
            let passed = (now - windows[0].begun) / length;
            if passed > 0 {
                let begun = windows[0].begun + passed * length;
                let before = std::mem::take(&mut windows[0]);
                windows[0].begun = begun;
                windows[1] = match passed {
                    1 => before,
                    // Nothing happened in the one before this one.
                    _ => Window {
                        begun: begun - length,
                        ..Window::default()
                    },
                };
            }
        }
    }
}

impl Table {
    /// The row of a lock's name in this minute, to which so much waiting is added.
    fn contended(&mut self, id: u32, waited_ns: u64, now: Time) -> Option<&mut Row> {
        let contention = self.contention.as_mut()?;
        contention.turn(now.0);
        let (lock, blocks): (&Lock, &Slab<Block>) = (&self.locks[id], &self.blocks);
        contention.minute[0].sketch.row(
            lock.hash,
            contention.most,
            waited_ns,
            |name| lock.has_name(blocks, name),
            |name| lock.name_into(blocks, name),
        )
    }

    /// Notes that a wait ends, while its claim still stands in line.
    pub(super) fn note_wait(&mut self, claim_id: u32, now: Time, granted: bool) {
        let claim = &self.claims[claim_id];
        let (id, waited_ns) = (claim.lock, now.0.saturating_sub(claim.since));
        let line = self.queue(&self.locks[id]).waiting.len;
        if let Some(row) = self.contended(id, waited_ns, now) {
            row.waits += 1;
            row.grants += u64::from(granted);
            row.longest = row.longest.max(line);
            row.wait.add(waited_ns);
        }
    }

    /// Notes that a lock is refused to one who does not wait.
    #[inline]
    pub(super) fn note_refusal(&mut self, id: u32, now: Time) {
        let refused = &mut self.locks[id].refused;
        *refused += 1;
        if *refused == u8::MAX {
            self.note_refused(id, now);
        }
    }

    /// Takes in what was counted in a lock.
    #[cold]
    fn note_refused(&mut self, id: u32, now: Time) {
        let refused = std::mem::take(&mut self.locks[id].refused);
        if refused > 0
            && let Some(row) = self.contended(id, 0, now)
        {
            row.refusals += u64::from(refused);
        }
    }

    /// Notes that a hold ends which others may have waited for.
    #[inline(never)]
    pub(super) fn note_hold(&mut self, id: u32, entry: Ref, now: Time) {
        let since = match entry.kind() {
            EntryKind::Lock => self.locks.beside(id).since,
            _ => self.claims[entry.index()].since,
        };
        let awaited = self.queue(&self.locks[id]).waiting.len > 0;
        if awaited && let Some(row) = self.contended(id, 0, now) {
            row.hold.add(now.0.saturating_sub(since));
        }
        self.note_refused(id, now);
    }

    /// The windows, with the waits that go on in the two that do; empty: nothing is kept.
    pub(crate) fn contention(&mut self, now: Time) -> Vec<Shown> {
        let Some(contention) = self.contention.as_mut() else {
            return Vec::new();
        };
        contention.turn(now.0);
        let most = contention.most;
        let (minute, mut hour) = (contention.minute.clone(), contention.hour.clone());
        hour[0].joined_ns += minute[0].sketch.error_ns(most);
        hour[0].sketch.join(&minute[0].sketch, most);
        let going_on = self.going_on(now);
        let titles = ["minute", "last-minute", "hour", "last-hour"];
        let lengths = [MINUTE, MINUTE, HOUR, HOUR];
        let all = minute.into_iter().chain(hour).zip(titles).zip(lengths);
        let shown = all.map(|((window, title), length)| {
            let runs = !title.starts_with("last");
            let mut sketch = window.sketch;
            let error_ns = sketch.error_ns(most) + window.joined_ns;
            if runs {
                self.add_waits(&mut sketch, &going_on);
            }
            let mut rows = sketch.rows;
            rows.sort_by_key(|row| std::cmp::Reverse((row.waited_ns, row.refusals)));
            let end = if runs { now.0 } else { window.begun + length };
            Shown {
                title,
                from_ms: Time(window.begun).ms_until(now),
                to_ms: Time(end).ms_until(now),
                error_ns,
                rows: if window.begun == 0 { Vec::new() } else { rows },
            }
        });
        shown.collect()
    }

    /// Adds waits that go on to the rows of their names, and names without a place as long as
    /// there is room.
    fn add_waits(&self, sketch: &mut Sketch, going_on: &[(u32, (u64, u32))]) {
        let room = sketch.rows.len() + ADDED;
        // Where the first name of a hash is; a search of all rows for each lock could take the
        // only thread for minutes.
        let mut first = HashMap::new();
        for (at, hash) in sketch.hashes.iter().enumerate() {
            first.entry(*hash).or_insert(at);
        }
        for (id, (waited_ns, count)) in going_on {
            let (lock, blocks) = (&self.locks[*id], &self.blocks);
            let is_it = |name: &[u8]| lock.has_name(blocks, name);
            let at = first.get(&lock.hash);
            let at = at.and_then(|at| sketch.find(*at, lock.hash, is_it));
            let full = sketch.rows.len() >= room;
            let at = at.or_else(|| {
                let into = |name: &mut Vec<u8>| lock.name_into(blocks, name);
                let admit = || sketch.admit(lock.hash, room, *waited_ns, into);
                (!full).then(admit).flatten()
            });
            if let Some(row) = at.map(|at| &mut sketch.rows[at]) {
                row.waited_ns = row.waited_ns.saturating_add(*waited_ns);
                row.waiting = *count;
                row.longest = row.longest.max(*count);
            }
        }
    }

    /// The waits that go on, by lock: their sum, and how many they are; the greatest sums first.
    fn going_on(&self, now: Time) -> Vec<(u32, (u64, u32))> {
        let mut found = HashMap::<u32, (u64, u32)>::new();
        for id in 0..self.claims.touched().min(SEARCHED) {
            let claim = &self.claims[id];
            if claim.state == ClaimState::Waiting {
                let (sum, count) = found.entry(claim.lock).or_default();
                *sum = sum.saturating_add(now.0.saturating_sub(claim.since));
                *count += 1;
            }
        }
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_unstable_by_key(|(_, (sum, _))| std::cmp::Reverse(*sum));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn add(sketch: &mut Sketch, name: u8, most: usize, waited_ns: u64) {
        let is_it = |own: &[u8]| own == [name];
        // Two names have each hash.
        let row = sketch.row(u32::from(name / 2), most, waited_ns, is_it, |own| {
            own.push(name)
        });
        row.unwrap().waits += 1;
    }

    proptest! {
        #[test]
        fn no_sum_is_too_small_and_none_too_large_by_more_than_its_error(
            events in proptest::collection::vec((0..12u8, 1..1000u64), 1..300),
            split in 0..300usize,
        ) {
            const MOST: usize = 5;
            let (mut whole, mut parts) = (Sketch::default(), [Sketch::default(), Sketch::default()]);
            let mut truth = HashMap::<u8, u64>::new();
            for (at, (name, waited)) in events.iter().enumerate() {
                *truth.entry(*name).or_default() += waited;
                add(&mut whole, *name, MOST, *waited);
                add(&mut parts[usize::from(at > split)], *name, MOST, *waited);
            }
            let errors: u64 = parts.iter().map(|part| part.error_ns(MOST)).sum();
            let mut joined = Sketch::default();
            parts.iter().for_each(|part| joined.join(part, MOST));
            for (sketch, error) in [(&whole, 0), (&joined, errors)] {
                prop_assert!(sketch.rows.capacity() <= MOST && sketch.hashes.capacity() <= MOST);
                for row in &sketch.rows {
                    let sum = truth[&row.name[0]];
                    prop_assert!(row.waited_ns + error >= sum, "{row:?}: {sum}");
                    prop_assert!(row.waited_ns - row.error_ns <= sum, "{row:?}: {sum}");
                }
                let most = sketch.error_ns(MOST) + error;
                for (name, sum) in &truth {
                    let there = sketch.rows.iter().any(|row| row.name == [*name]);
                    prop_assert!(there || *sum <= most, "{name} has {sum}, error {most}");
                }
            }
        }

        #[test]
        fn a_percentile_is_at_most_a_quarter_too_large(times in proptest::collection::vec(0..1u64 << 40, 1..200)) {
            let mut spread = Spread::default();
            times.iter().for_each(|ns| spread.add(*ns));
            let mut sorted = times.clone();
            sorted.sort_unstable();
            for percent in [50, 99] {
                let at = (sorted.len() * percent).div_ceil(100) - 1;
                let (shown, true_us) = (spread.percentile(percent as u64), sorted[at] / 1000);
                prop_assert!(shown > true_us && shown <= true_us * 5 / 4 + 1, "{shown}, {true_us}");
            }
        }
    }

    #[test]
    fn nothing_was_measured_is_not_a_time() {
        assert_eq!(Spread::default().percentile(99), 0);
    }
}
