//! The vocabulary of requests to etcd, and how a request is repeated until it is answered.

use std::sync::Arc;

use super::{Over, Rules};
use crate::table::Time;

/// So many milliseconds after a time.
pub(super) fn later(time: Time, ms: u64) -> Time {
    Time(time.after_ms(ms))
}

/// A request to etcd. It may be sent any number of times, at any endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A conditional write.
    Txn(Txn),
    /// A read of many keys.
    Range(Range),
}

/// The only write: *if value(`key`) = `compare` then put and delete, else get `key`*.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Txn {
    /// The head's key.
    pub key: Vec<u8>,
    /// The head's value (compare the VALUE); `None`: there is no head (compare CREATE with
    /// revision 0).
    pub compare: Option<Vec<u8>>,
    /// Keys and their values. The head is among them, unless only the comparison matters:
    /// then the one delete is that of a key which never exists.
    pub puts: Vec<(Vec<u8>, Vec<u8>)>,
    /// Keys that are deleted: one, or those from the first up to and without the second.
    pub deletes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// A read of the keys from `from` up to and without `to`, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first key.
    pub from: Vec<u8>,
    /// The end; `None`: only `from` is read.
    pub to: Option<Vec<u8>>,
    /// The state of this revision; 0: the newest one.
    pub revision: i64,
    /// Keys at most.
    pub limit: i64,
}

/// An answer of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The comparison held, and the transaction is done.
    Committed,
    /// The comparison did not hold: the head's value.
    Refused(Option<Vec<u8>>),
    /// Pairs of a range.
    Page {
        /// Keys and values.
        pairs: Vec<(Vec<u8>, Vec<u8>)>,
        /// Whether more follow.
        more: bool,
        /// The revision of etcd's newest state (of the answer's header).
        revision: i64,
    },
    /// An error, such as "no space" or "compacted", or no answer in time: whether a
    /// transaction is done is not known.
    Unknown,
}

/// A request to send now.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its number: the answers of all of its copies have it.
    pub number: u64,
    /// How often it was sent before: another time, another endpoint.
    pub attempt: u32,
    /// The request.
    pub request: Arc<Request>,
}

/// What is to be done next.
#[derive(Clone, Debug)]
pub enum Due {
    /// Send this, and ask again.
    Send(Call),
    /// Nothing before this time, an answer, or a call of a method.
    Wait(Time),
    /// End the process.
    Over(Over),
}

/// A request that is under way. The same bytes are sent until one copy is answered, each
/// time at another endpoint.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) call: Call,
    pub(super) begun: Time,
    again: Time,
}

/// The outcome of a transaction.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is done, by this copy or an earlier one.
    Done,
    /// It is not done, and never will be: the head is this.
    Replaced(Option<Vec<u8>>),
    /// It may be done, or may still be.
    Open,
}

impl Pending {
    /// A request with a number of its own.
    pub(super) fn new(numbers: &mut u64, request: Request, now: Time) -> Self {
        *numbers += 1;
        Self {
            call: Call {
                number: *numbers,
                attempt: 0,
                request: Arc::new(request),
            },
            begun: now,
            again: now,
        }
    }

    pub(super) fn is(&self, number: u64) -> bool {
        self.call.number == number
    }

    /// Whether it was sent more than once.
    pub(super) fn is_late(&self) -> bool {
        self.call.attempt > 1
    }

    pub(super) fn due(&mut self, rules: &Rules, now: Time) -> Due {
        if now < self.again {
            return Due::Wait(self.again);
        }
        let call = self.call.clone();
        self.call.attempt += 1;
        self.again = later(now, rules.copy_ms);
        Due::Send(call)
    }

    /// Notes that a copy has failed.
    pub(super) fn fail(&mut self, rules: &Rules, now: Time) {
        self.again = self.again.min(later(now, rules.again_ms));
    }

    /// Takes the answer to a transaction that would put this head.
    pub(super) fn settle(
        &mut self,
        answer: Answer,
        head: &[u8],
        rules: &Rules,
        now: Time,
    ) -> Outcome {
        match answer {
            Answer::Committed => Outcome::Done,
            // An earlier copy was committed. Nobody else writes this run's head.
            Answer::Refused(Some(found)) if found == head => Outcome::Done,
            Answer::Refused(found) => Outcome::Replaced(found),
            _ => {
                self.fail(rules, now);
                Outcome::Open
            }
        }
    }
}
