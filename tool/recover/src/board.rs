//! The memory that keeper, owner and waiters of one run of `recover` share: orders, what
//! each process saw and when, and a resource that checks fencing tokens.

use jostle_model::record::{Event, What};
use jostle_sys::futex;
use jostle_sys::shared::{LINE, Region};
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A process's orders: a word, which only grows.
pub(crate) mod order {
    /// Acquire the lock.
    pub(crate) const ACQUIRE: u32 = 1;
    /// Give it up.
    pub(crate) const RELEASE: u32 = 2;
}

/// Events that a process can log: a waiter whose service is down tries again every few
/// milliseconds, and logs an attempt only if it had a connection.
const EVENTS: usize = 1_024;
/// At, what, token and text of each, and how often it happened.
const EVENT_WORDS: usize = 5;
/// Texts that a process can leave, and bytes of each, the first its length.
const TEXTS: usize = 16;
const TEXT_BYTES: usize = 128;

/// Lines at the beginning: the bell, and the resource.
const HEAD: usize = 2;
/// Lines of each process: its orders, and how many events it has logged.
const OWN_LINES: usize = 2;
const OWN: usize = OWN_LINES * LINE + EVENTS * EVENT_WORDS * 8 + TEXTS * TEXT_BYTES;

/// No token, or no text.
const NONE: u64 = 0;

/// In the order of their numbers.
const WHATS: [What; 17] = [
    What::Acquire,
    What::Granted,
    What::GrantedFromDead,
    What::NotGranted,
    What::JoinedAgain,
    What::Written,
    What::WriteRefused,
    What::Release,
    What::Released,
    What::NotReleased,
    What::Awake,
    What::Fault,
    What::Return,
    What::LeaseEnd,
    What::CutOff,
    What::Lost,
    What::GaveUp,
];

/// The board.
#[derive(Debug)]
pub(crate) struct Board {
    region: Region,
    processes: usize,
}

impl Board {
    /// For so many processes.
    ///
    /// # Errors
    /// The system's: no memory.
    pub(crate) fn new(processes: usize) -> io::Result<Board> {
        Ok(Board {
            region: Region::new(HEAD * LINE + processes * OWN.next_multiple_of(LINE))?,
            processes,
        })
    }

    fn own(&self, process: usize) -> usize {
        assert!(process < self.processes, "no such process");
        HEAD * LINE + process * OWN.next_multiple_of(LINE)
    }

    fn bell(&self) -> &AtomicU32 {
        &self.region.words32(0, 1)[0]
    }

    fn order_word(&self, process: usize) -> &AtomicU32 {
        &self.region.words32(self.own(process), 1)[0]
    }

    /// When its lease was asked for, whether it is ready, whether it was told that it had
    /// stood still, and the process group of its program.
    fn own_words(&self, process: usize) -> &[AtomicU64] {
        self.region.words64(self.own(process) + 8, 4)
    }

    fn logged(&self, process: usize) -> &AtomicU64 {
        &self.region.words64(self.own(process) + LINE, 1)[0]
    }

    /// Gives a process its order.
    pub(crate) fn order(&self, process: usize, order: u32) {
        let word = self.order_word(process);
        word.fetch_max(order, AcqRel);
        futex::wake(word, futex::ALL);
    }

    /// The latest order of a process.
    pub(crate) fn ordered(&self, process: usize) -> u32 {
        self.order_word(process).load(Acquire)
    }

    /// Sleeps until a process has been told this or more.
    pub(crate) fn await_order(&self, process: usize, order: u32) {
        loop {
            let now = self.ordered(process);
            if now >= order {
                return;
            }
            let _ = futex::wait(self.order_word(process), now, None);
        }
    }

    /// Tells the keeper that there is something to see.
    fn ring(&self) {
        self.bell().fetch_add(1, AcqRel);
        futex::wake(self.bell(), 1);
    }

    /// How often it was rung.
    pub(crate) fn rung(&self) -> u32 {
        self.bell().load(Acquire)
    }

    /// Sleeps until it has been rung since, or until a time of `CLOCK_MONOTONIC`.
    pub(crate) fn await_bell(&self, seen: u32, until: u64) {
        let _ = futex::wait(self.bell(), seen, Some(until));
    }

    pub(crate) fn set_ready(&self, process: usize) {
        self.own_words(process)[1].store(1, Release);
        self.ring();
    }

    /// Whether it is.
    pub(crate) fn is_ready(&self, process: usize) -> bool {
        self.own_words(process)[1].load(Acquire) == 1
    }

    /// When the owner asked for its lease, where not with its acquisition.
    pub(crate) fn set_leased_at(&self, process: usize, at_ns: u64) {
        self.own_words(process)[0].store(at_ns, Release);
    }

    /// See `Board::set_leased_at`.
    pub(crate) fn leased_at(&self, process: usize) -> Option<u64> {
        Some(self.own_words(process)[0].load(Acquire)).filter(|at| *at > 0)
    }

    /// The program with this process group owns what the process asks for.
    pub(crate) fn set_program(&self, process: usize, group: u32) {
        self.own_words(process)[3].store(u64::from(group), Release);
    }

    /// The process group of the program that owns; None if that is the process itself.
    pub(crate) fn program(&self, process: usize) -> Option<u32> {
        let group = self.own_words(process)[3].load(Acquire);
        u32::try_from(group).ok().filter(|group| *group > 0)
    }

    /// The owner had stood still, and goes on now.
    pub(crate) fn set_goes_on(&self, process: usize) {
        self.own_words(process)[2].store(1, Release);
    }

    /// See [`Board::set_goes_on`]; true once.
    pub(crate) fn goes_on(&self, process: usize) -> bool {
        self.own_words(process)[2].swap(0, AcqRel) == 1
    }

    /// Writes to the resource, which rejects tokens older than the newest that it has seen.
    /// Returns whether it accepted this one.
    pub(crate) fn write(&self, token: u64) -> bool {
        let newest = &self.region.words64(LINE, 1)[0];
        newest.fetch_max(token, AcqRel) <= token
    }

    /// Logs an event of a process, which is its only writer; false where there is no more
    /// room.
    pub(crate) fn log(
        &self,
        process: usize,
        at_ns: u64,
        what: What,
        token: Option<u64>,
        said: Option<&str>,
    ) -> bool {
        let nth = self.logged(process).load(Relaxed) as usize;
        if nth >= EVENTS {
            return false;
        }
        let text = said.map_or(NONE, |said| self.leave(process, said));
        let number = WHATS.iter().position(|other| *other == what).unwrap_or(0);
        let event = self.event(process, nth);
        event[0].store(at_ns, Relaxed);
        event[1].store(number as u64, Relaxed);
        event[2].store(token.map_or(NONE, |token| token.wrapping_add(1)), Relaxed);
        event[3].store(text, Relaxed);
        event[4].store(1, Relaxed);
        self.logged(process).store(nth as u64 + 1, Release);
        self.ring();
        true
    }

    /// Counts a repetition of the event that a process logged last.
    pub(crate) fn again(&self, process: usize) {
        let logged = self.logged(process).load(Relaxed) as usize;
        if let Some(last) = logged.checked_sub(1) {
            self.event(process, last)[4].fetch_add(1, Relaxed);
        }
    }

    fn event(&self, process: usize, nth: usize) -> &[AtomicU64] {
        let first = self.own(process) + OWN_LINES * LINE;
        self.region
            .words64(first + nth * EVENT_WORDS * 8, EVENT_WORDS)
    }

    fn text(&self, process: usize, nth: usize) -> &[AtomicU64] {
        let first = self.own(process) + OWN_LINES * LINE + EVENTS * EVENT_WORDS * 8;
        self.region
            .words64(first + nth * TEXT_BYTES, TEXT_BYTES / 8)
    }

    /// The number of a text, from 1; none where there is no more room.
    fn leave(&self, process: usize, said: &str) -> u64 {
        let known = (0..TEXTS).find(|nth| {
            let there = self.read(process, *nth);
            there.is_empty() || there == cut(said)
        });
        let Some(nth) = known else {
            return NONE;
        };
        let words = self.text(process, nth);
        let said = cut(said);
        for (word, bytes) in words[1..].iter().zip(said.as_bytes().chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(eight), Relaxed);
        }
        words[0].store(said.len() as u64, Release);
        nth as u64 + 1
    }

    fn read(&self, process: usize, nth: usize) -> String {
        let words = self.text(process, nth);
        let length = words[0].load(Acquire) as usize;
        let bytes = words[1..].iter();
        let bytes = bytes.flat_map(|word| word.load(Relaxed).to_le_bytes());
        let bytes: Vec<u8> = bytes.take(length).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The events that a process has logged from number `from` on.
    pub(crate) fn events(&self, process: usize, from: usize) -> Vec<Event> {
        let logged = self.logged(process).load(Acquire) as usize;
        let read = |nth: usize| {
            let event = self.event(process, nth);
            let word = |at: usize| event[at].load(Relaxed);
            Event {
                at_ns: word(0),
                process: Some(process as u64),
                what: WHATS[(word(1) as usize).min(WHATS.len() - 1)],
                token: Some(word(2))
                    .filter(|t| *t != NONE)
                    .map(|t| t.wrapping_sub(1)),
                said: Some(word(3))
                    .filter(|text| *text != NONE)
                    .map(|text| self.read(process, text as usize - 1)),
                times: Some(word(4)).filter(|times| *times > 1),
            }
        };
        (from..logged.min(EVENTS)).map(read).collect()
    }

    /// How many processes there are.
    pub(crate) fn processes(&self) -> usize {
        self.processes
    }
}

/// As much of it as has room.
fn cut(said: &str) -> &str {
    let most = TEXT_BYTES - 8;
    let mut end = (0..=said.len().min(most)).rev();
    let end = end.find(|end| said.is_char_boundary(*end));
    &said[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_logs_is_read_again() {
        let board = Board::new(2).unwrap();
        let long = "ä".repeat(200);
        assert!(board.log(1, 5, What::Granted, Some(u64::MAX - 1), None));
        assert!(board.log(1, 7, What::NotReleased, None, Some("the lease was over")));
        assert!(board.log(1, 9, What::NotReleased, Some(0), Some("the lease was over")));
        assert!(board.log(1, 11, What::NotGranted, None, Some(&long)));
        let events = board.events(1, 0);
        assert_eq!(events[0].token, Some(u64::MAX - 1));
        assert_eq!(events[1].said.as_deref(), Some("the lease was over"));
        assert_eq!(events[2].said, events[1].said);
        assert_eq!(events[2].token, Some(0));
        assert_eq!(events[3].said.as_deref(), Some(&long[..120]));
        assert_eq!(board.events(1, 3).len(), 1);
        assert_eq!(board.events(0, 0), []);
    }

    #[test]
    fn what_happens_again_is_listed_once_with_its_count() {
        let board = Board::new(1).unwrap();
        board.log(0, 5, What::Acquire, None, None);
        board.log(0, 7, What::NotGranted, None, Some("no such lock"));
        (0..5_000).for_each(|_| board.again(0));
        let times: Vec<Option<u64>> = board.events(0, 0).iter().map(|e| e.times).collect();
        assert_eq!(times, [None, Some(5_001)]);
    }

    #[test]
    fn a_log_that_is_full_takes_no_more() {
        let board = Board::new(1).unwrap();
        for at in 0..EVENTS as u64 {
            assert!(board.log(0, at, What::Acquire, None, None));
        }
        assert!(!board.log(0, 0, What::Acquire, None, None));
        assert_eq!(board.events(0, 0).len(), EVENTS);
    }

    #[test]
    fn the_resource_takes_no_older_token_than_it_has_seen() {
        let board = Board::new(1).unwrap();
        let taken: Vec<bool> = [1, 1, 4, 3, 4, 5].map(|token| board.write(token)).into();
        assert_eq!(taken, [true, true, true, false, true, true]);
    }
}
