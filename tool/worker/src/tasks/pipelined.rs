//! A task of `stream` or `hold` that keeps many requests on their way, and sends
//! more as replies come.

use super::steps::Finish;
use super::{Job, Next};
use crate::crew::Crew;
use crate::page::{Page, Word};
use crate::recording::tally::{Counted, Tally};
use jostle_targets::remote::granted_at_once;
use jostle_targets::wire::{Asking, Wire};
use jostle_targets::{BatchKind, CallError, Mode, surplus};
use std::collections::VecDeque;

/// Bytes that stand ready of a stream's requests, which are always the same.
const READY: usize = 16 * 1024;

/// One worker.
pub(super) struct Pipelined<'a> {
    notes: Tally<'a>,
    wire: Box<dyn Wire>,
    end: Finish<'a>,
    kind: BatchKind,
    first: usize,
    /// Operations that may be on their way, and how many are sent together.
    depth: u64,
    together: u64,
    sent: u64,
    done: u64,
    /// Whether a pair has its grant, and its release is still to come.
    half: bool,
    batches: VecDeque<Batch>,
    /// When the last batch was answered.
    answered: u64,
    pairs: Vec<u8>,
    pair_bytes: usize,
}

/// Requests that were sent together.
#[derive(Clone, Copy, Debug)]
struct Batch {
    sent: u64,
    nth: u64,
    count: u64,
    left: u64,
}

impl<'a> Pipelined<'a> {
    /// Worker number `worker` of a thread whose first is `first`.
    pub(super) fn new(
        crew: &'a Crew<'a>,
        counted: Counted<'a>,
        worker: usize,
        first: usize,
        wire: Box<dyn Wire>,
    ) -> Pipelined<'a> {
        let notes = crew.tally(counted, worker, first);
        let mut task = Pipelined {
            first: notes.first_key(),
            kind: counted.first_kind(),
            notes,
            wire,
            end: Finish(crew),
            depth: counted.pipeline() as u64,
            together: crew.order.sent_together(),
            sent: 0,
            done: 0,
            half: false,
            batches: VecDeque::new(),
            answered: 0,
            pairs: Vec::new(),
            pair_bytes: 1,
        };
        if task.kind == BatchKind::Pairs {
            task.prepare_pairs();
        }
        task
    }

    fn prepare_pairs(&mut self) {
        let mut pair = Vec::new();
        self.put_acquire(self.first, &mut pair);
        self.wire.release(self.first, Mode::Exclusive, &mut pair);
        self.pair_bytes = pair.len();
        self.pairs = pair.repeat((READY / pair.len()).clamp(1, self.together as usize));
    }

    fn put_acquire(&mut self, key: usize, out: &mut Vec<u8>) {
        self.wire.acquire(key, Mode::Exclusive, Asking::Block, out);
    }

    /// How many can be sent now: not in dribs and drabs, since each sending costs
    /// as much as many requests do. Zero for none.
    fn sendable(&self) -> u64 {
        let count = self.together.min(self.notes.operations - self.sent);
        let room = self.depth - (self.sent - self.done);
        if room < count { 0 } else { count }
    }

    /// Each batch is sent by itself: two in one would stay together for ever, as
    /// the server reads and answers them as one.
    fn send(&mut self, out: &mut Vec<u8>) -> Next {
        let count = self.sendable();
        if count == 0 {
            return Next::Reply;
        }
        let now = self.notes.clock.now();
        self.put(count, out);
        self.batches.push_back(Batch {
            sent: now,
            nth: self.sent,
            count,
            left: count,
        });
        self.sent += count;
        match self.sendable() {
            0 => Next::Reply,
            _ => Next::Sent,
        }
    }

    fn put(&mut self, count: u64, out: &mut Vec<u8>) {
        let first = self.first;
        let keys = (self.sent..self.sent + count).map(|nth| first + nth as usize);
        match self.kind {
            BatchKind::Acquires => keys.for_each(|key| self.put_acquire(key, out)),
            BatchKind::Releases => {
                keys.for_each(|key| self.wire.release(key, Mode::Exclusive, out));
            }
            BatchKind::Pairs => {
                let mut left = count as usize * self.pair_bytes;
                while left > 0 {
                    let bytes = left.min(self.pairs.len());
                    out.extend_from_slice(&self.pairs[..bytes]);
                    left -= bytes;
                }
            }
        }
    }

    /// Checks every reply at the head of `bytes`: how many bytes, and how many
    /// operations are done by them.
    fn check(&mut self, bytes: &[u8]) -> Result<(usize, u64), CallError> {
        let (mut used, mut done) = (0, 0);
        let mut awaited = self.awaited();
        let wire = &mut *self.wire;
        let name = wire.names()[0];
        while awaited > 0
            && let Some((reply, length)) = wire.decode(&bytes[used..], name)?
        {
            let key = match self.kind {
                BatchKind::Pairs => self.first,
                BatchKind::Acquires | BatchKind::Releases => {
                    self.first + (self.done + done) as usize
                }
            };
            used += length;
            awaited -= 1;
            match (self.kind, self.half) {
                (BatchKind::Pairs, false) => {
                    granted_at_once(wire, key, reply)?;
                    self.half = true;
                    continue;
                }
                (BatchKind::Acquires, _) => granted_at_once(wire, key, reply)?,
                (BatchKind::Pairs, true) | (BatchKind::Releases, _) => wire.released(reply)?,
            }
            self.half = false;
            done += 1;
        }
        match awaited == 0 && used < bytes.len() {
            true => Err(surplus::error(self.name())),
            false => Ok((used, done)),
        }
    }

    /// Replies that are still to come to what was sent.
    fn awaited(&self) -> u64 {
        let operations = self.sent - self.done;
        match self.kind {
            BatchKind::Pairs => 2 * operations - u64::from(self.half),
            BatchKind::Acquires | BatchKind::Releases => operations,
        }
    }

    fn account(&mut self, mut done: u64) {
        self.notes.count(self.kind, done);
        self.done += done;
        let now = self.notes.clock.now();
        while let Some(batch) = self.batches.front_mut().filter(|_| done > 0) {
            let part = done.min(batch.left);
            batch.left -= part;
            done -= part;
            if batch.left > 0 {
                break;
            }
            let alone = now - batch.sent.max(self.answered);
            self.notes
                .batch(self.kind, batch.nth, batch.count, now - batch.sent, alone);
            self.answered = now;
            self.batches.pop_front();
        }
    }

    fn go_on(&mut self, out: &mut Vec<u8>) -> Next {
        if self.done < self.notes.operations {
            return self.send(out);
        }
        match self.kind {
            BatchKind::Acquires => {
                self.end.held(&self.notes);
                (self.kind, self.sent, self.done) = (BatchKind::Releases, 0, 0);
                Next::Others
            }
            BatchKind::Pairs | BatchKind::Releases => Next::Done,
        }
    }
}

impl Job for Pipelined<'_> {
    fn start(&mut self, out: &mut Vec<u8>) -> Next {
        self.notes
            .page
            .set(Word::PendingSince, self.notes.clock.now());
        self.go_on(out)
    }

    fn heard(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(usize, Next), CallError> {
        let (used, done) = self.check(bytes)?;
        if done == 0 {
            return Ok((used, Next::Same));
        }
        self.account(done);
        Ok((used, self.go_on(out)))
    }

    fn is_answered(&self) -> bool {
        self.awaited() == 0
    }

    /// All have acquired their locks.
    fn due(&mut self, out: &mut Vec<u8>) -> Result<Next, CallError> {
        Ok(self.go_on(out))
    }

    fn wind_up(&mut self, _out: &mut Vec<u8>) -> Next {
        Next::Done
    }

    fn ended(&mut self, well: bool) {
        let all = self.done == self.notes.operations && self.kind != BatchKind::Acquires;
        self.end.ended(&self.notes, well && all);
    }

    fn name(&self) -> &'static str {
        let [acquire, release] = self.wire.names();
        match self.kind {
            BatchKind::Releases => release,
            BatchKind::Pairs | BatchKind::Acquires => acquire,
        }
    }

    fn page(&self) -> Page<'_> {
        self.notes.page
    }
}
