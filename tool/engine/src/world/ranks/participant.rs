//! The life of every rank but the first: it carries out rank 0's orders with its own
//! keeper, and ends when it is told to, or when rank 0 is silent for too long.

use super::link::{Link, LinkError};
use super::local_keeper::{LocalKeeper, Port};
use super::words::{FromHost, Hello, Tick, ToHost};
use super::{Limits, Rank};
use crate::order::Request;
use jostle_sys::clock;
use jostle_sys::waited::{self, Waited};
use std::time::{Duration, Instant};

/// After a question of the clock the next one is waited for without sleeping.
const SPIN_NS: u64 = 2_000_000;

/// How long after the last word naps stay short, as another may follow.
const LIVELY: Duration = Duration::from_secs(1);

/// How long the last word may take to leave.
const FLUSH: Duration = Duration::from_secs(2);

/// Serves rank 0 until the end. False if rank 0 was silent for too long, or the link
/// failed: the link is then cut, and the job with it.
pub(super) fn serve<L: Link, P: Port>(
    link: L,
    port: P,
    hello: &Hello,
    limits: Limits,
    rank: Rank<'_>,
) -> bool {
    let mut participant = Participant {
        link,
        local: LocalKeeper::new(port, limits),
        limits,
        heard: Waited::begin(),
        patience: limits.first_silence,
        told: Some(Instant::now()),
        said: Instant::now(),
        working: false,
        ending: false,
    };
    let served = participant.serve(hello, rank.ended);
    participant.local.end();
    let served = served.and_then(|()| participant.part());
    let link = Box::new(participant.link);
    match &served {
        Ok(()) => link.leave(),
        Err(error) => {
            (rank.complain)(&format!("{}: {error}", hello.name));
            link.abort(1);
        }
    }
    served.is_ok()
}

struct Participant<L, P> {
    link: L,
    local: LocalKeeper<P>,
    limits: Limits,
    /// When rank 0 was last heard, and how long it may be silent.
    heard: Waited,
    patience: Duration,
    /// When rank 0 last sent more than a sign of life; None: others work, and this host
    /// sleeps. A host that wakes often takes CPU time from others of its machine.
    told: Option<Instant>,
    /// When this host last sent a message to rank 0.
    said: Instant,
    /// Workers work: nobody must be disturbed.
    working: bool,
    ending: bool,
}

impl<L: Link, P: Port> Participant<L, P> {
    fn serve(
        &mut self,
        hello: &Hello,
        ended: &mut dyn FnMut() -> Option<u8>,
    ) -> Result<(), LinkError> {
        let words = serde_json::to_vec(hello).map_err(|error| LinkError(error.to_string()))?;
        self.link.send(0, words)?;
        loop {
            while let Some((_, bytes)) = self.link.try_receive()? {
                if self.hear(&bytes)? {
                    return Ok(());
                }
            }
            if let Some(word) = self.local.look(self.nap()) {
                self.working = false;
                self.say(&word)?;
            }
            if self.said.elapsed() >= self.limits.beat {
                self.say(&FromHost::Beat)?;
            }
            if let (Some(code), false) = (ended(), self.ending) {
                self.ending = true;
                self.say(&FromHost::Ending {
                    text: format!("it was told to end (signal {})", code.saturating_sub(128)),
                })?;
            }
            let silent = self.heard.so_far();
            if silent > self.patience {
                return Err(LinkError(format!(
                    "rank 0 was not heard for {} s; this rank ends",
                    silent.as_secs()
                )));
            }
        }
    }

    /// Says that nothing is left here.
    fn part(&mut self) -> Result<(), LinkError> {
        self.say(&FromHost::Bye)?;
        let is_flushed = || self.link.is_flushed().then_some(());
        waited::within(FLUSH, self.limits.nap, is_flushed);
        Ok(())
    }

    fn nap(&self) -> Duration {
        let recent = self.told.is_some_and(|told| told.elapsed() <= LIVELY);
        let quiet = !recent && !self.local.is_busy();
        match self.working || quiet {
            true => self.limits.long_nap,
            false => self.limits.nap,
        }
    }

    /// True if it was the last word.
    fn hear(&mut self, bytes: &[u8]) -> Result<bool, LinkError> {
        self.heard = Waited::begin();
        self.patience = self.limits.first_silence;
        if let Some(Tick::Ping(nth)) = Tick::read(bytes) {
            return self.answer(nth);
        }
        let word = serde_json::from_slice(bytes);
        self.told = match word {
            Ok(ToHost::Beat) => self.told,
            Ok(ToHost::Sleep) => None,
            _ => Some(Instant::now()),
        };
        match word {
            Ok(ToHost::Rest) => self.patience = self.limits.rest,
            // A message that cannot be read comes from another version, which refuses us.
            Ok(ToHost::Farewell) | Err(_) => return Ok(true),
            Ok(word) => {
                self.working = match &word {
                    ToHost::Ask { request, .. } => matches!(request, Request::Go { .. }),
                    ToHost::Beat => self.working,
                    _ => false,
                };
                if let Some(reply) = self.local.hear(word) {
                    self.say(&reply)?;
                }
            }
        }
        Ok(false)
    }

    /// Answers questions of the clock while they come one after the other.
    fn answer(&mut self, mut nth: u32) -> Result<bool, LinkError> {
        loop {
            let now = clock::monotonic();
            self.link.send(0, Tick::Pong(nth, now).bytes())?;
            let next = loop {
                match self.link.try_receive()? {
                    Some((_, bytes)) => break bytes,
                    None if clock::monotonic() > now + SPIN_NS => return Ok(false),
                    None => std::thread::yield_now(),
                }
            };
            match Tick::read(&next) {
                Some(Tick::Ping(asked)) => nth = asked,
                _ => return self.hear(&next),
            }
        }
    }

    fn say(&mut self, word: &FromHost) -> Result<(), LinkError> {
        self.said = Instant::now();
        let bytes = serde_json::to_vec(word).map_err(|error| LinkError(error.to_string()))?;
        self.link.send(0, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::link::channels::{Wired, wired};
    use super::*;
    use crate::keeper::KeeperError;
    use crate::order::Reply;

    /// A keeper that is never asked for anything.
    struct Nobody;

    impl Port for Nobody {
        fn ask(&mut self, _: &Request) -> Result<(), KeeperError> {
            unreachable!("no word of the table is for the keeper")
        }

        fn look(&mut self, _: Duration) -> Result<Option<Reply>, KeeperError> {
            Ok(None)
        }

        fn is_halted(&self) -> bool {
            false
        }

        fn end(&mut self) {}
    }

    /// A participant that was told something so long ago.
    fn told(ago: Option<Duration>) -> Participant<Wired, Nobody> {
        let limits = Limits::default();
        let now = Instant::now();
        Participant {
            link: wired(2).remove(1),
            local: LocalKeeper::new(Nobody, limits),
            limits,
            heard: Waited::begin(),
            patience: limits.first_silence,
            told: ago.map(|ago| now.checked_sub(ago).unwrap()),
            said: now,
            working: false,
            ending: false,
        }
    }

    /// Rank 0's signs of life, one a second, once kept a host without an order awake: it
    /// looked 850 times in each second in which others were measured.
    #[test]
    fn a_host_without_an_order_sleeps_until_it_is_told_more_than_that_rank_0_is_there() {
        let (just_now, long_ago) = (Some(Duration::ZERO), Some(LIVELY * 2));
        let table = [
            // told something before, told now -> naps are short
            (just_now, ToHost::Beat, true), // between two runs
            (long_ago, ToHost::Beat, false),
            (None, ToHost::Beat, false),
            (just_now, ToHost::Sleep, false),
            (None, ToHost::Wake, true),
            (None, ToHost::Rest, true),
        ];
        for (before, word, is_short) in table {
            let mut participant = told(before);
            let was_last = participant
                .hear(&serde_json::to_vec(&word).unwrap())
                .unwrap();
            assert!(!was_last);
            let expected = match is_short {
                true => participant.limits.nap,
                false => participant.limits.long_nap,
            };
            assert_eq!(participant.nap(), expected, "{before:?} {word:?}");
        }
    }
}
