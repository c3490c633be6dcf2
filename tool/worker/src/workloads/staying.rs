//! A worker's handle that stays with its service when a server fails: where the service has
//! several, the session goes on at the next one, and the call that failed is made again
//! there, as the field's libraries do. `recover` looks at such failures itself and does not
//! use it.

use jostle_model::record::Promise;
use jostle_sys::files::Errno;
use jostle_sys::{clock, signal};
use jostle_targets::{CallError, Calls, Keeping, Lock, Mode, Outcome, SetupError, Traffic, Wait};

/// Between two attempts to find a server. An election takes a second or so.
const AGAIN_NS: u64 = 20_000_000;

/// The handle, and how often its session went on elsewhere.
pub(crate) struct Staying<L: ?Sized> {
    lock: Box<L>,
    failovers: u64,
}

/// Why a call was not made again.
enum Ended {
    /// The run ended.
    Interrupted,
    /// The time was up.
    Late,
}

impl<L: Lock + ?Sized> Staying<L> {
    /// A handle that stays.
    pub(crate) fn new(lock: Box<L>) -> Staying<L> {
        Staying { lock, failovers: 0 }
    }

    /// Makes a call, and after a failure again at other servers: for as long as the lease
    /// lives, and until a time of `CLOCK_MONOTONIC` at most.
    ///
    /// # Errors
    /// The failure, where no other server can help.
    #[inline]
    fn at_any<T>(
        &mut self,
        until_ns: u64,
        mut call: impl FnMut(&mut L) -> Result<T, CallError>,
    ) -> Result<Result<T, Ended>, CallError> {
        match call(&mut self.lock) {
            Ok(done) => Ok(Ok(done)),
            Err(failure) => self.elsewhere(failure, until_ns, call),
        }
    }

    #[cold]
    fn elsewhere<T>(
        &mut self,
        mut failure: CallError,
        until_ns: u64,
        mut call: impl FnMut(&mut L) -> Result<T, CallError>,
    ) -> Result<Result<T, Ended>, CallError> {
        let lease_ns = self.lock.keeping().map_or(0, |keeping| keeping.lease_ns);
        let over_ns = clock::monotonic().saturating_add(lease_ns);
        while failure.is_of_this_server() {
            if signal::interrupted() {
                return Ok(Err(Ended::Interrupted));
            }
            let resumed = self.lock.resume();
            self.failovers += u64::from(resumed == Ok(true));
            let now_ns = clock::monotonic();
            match resumed {
                Ok(false) => break,
                _ if now_ns >= until_ns => return Ok(Err(Ended::Late)),
                _ if now_ns >= over_ns => break,
                Ok(true) => match call(&mut self.lock) {
                    Ok(done) => return Ok(Ok(done)),
                    // A server that is reached and cannot serve yet.
                    Err(another) => failure = another,
                },
                Err(_) => {}
            }
            clock::sleep(AGAIN_NS, signal::interrupted);
        }
        Err(failure)
    }
}

/// A call that is not an attempt has no other end than the run's.
fn made<T>(ended: Result<T, Ended>, call: &'static str) -> Result<T, CallError> {
    ended.map_err(|_| CallError::new(call, Errno::INTR))
}

impl<L: Lock + ?Sized> Lock for Staying<L> {
    #[inline]
    fn acquire(&mut self, key: usize, mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        let until_ns = match wait {
            Wait::Try => 0,
            Wait::Until(until_ns) => until_ns,
            Wait::Block { last_resort_ns } => last_resort_ns,
        };
        let ended = self.at_any(until_ns, |lock| lock.acquire(key, mode, wait))?;
        Ok(ended.unwrap_or_else(|ended| match ended {
            // The attempt that failed may still stand in a queue.
            Ended::Late => {
                let last = self.lock.acquire(key, mode, Wait::Try);
                last.unwrap_or(Outcome::Refused)
            }
            Ended::Interrupted => Outcome::Interrupted,
        }))
    }

    #[inline]
    fn release(&mut self, key: usize, mode: Mode) -> Result<(), CallError> {
        made(
            self.at_any(u64::MAX, |lock| lock.release(key, mode))?,
            "release",
        )
    }

    fn renew(&mut self, keys: &[usize], lapsed: &mut Vec<usize>) -> Result<bool, CallError> {
        made(
            self.at_any(u64::MAX, |lock| lock.renew(keys, lapsed))?,
            "renew",
        )
    }

    #[inline]
    fn token(&self) -> Option<u64> {
        self.lock.token()
    }

    fn leased_at_ns(&self) -> Option<u64> {
        self.lock.leased_at_ns()
    }

    fn owner_group(&self) -> Option<u32> {
        self.lock.owner_group()
    }

    fn promise(&self) -> Option<Promise> {
        self.lock.promise()
    }

    fn keeping(&self) -> Option<Keeping> {
        self.lock.keeping()
    }

    fn is_cut_off(&self) -> bool {
        self.lock.is_cut_off()
    }

    fn resume(&mut self) -> Result<bool, SetupError> {
        self.lock.resume()
    }

    fn traffic(&self) -> Option<Traffic> {
        let failovers = self.failovers;
        self.lock.traffic().map(|traffic| Traffic {
            failovers,
            ..traffic
        })
    }

    fn part(&mut self) -> Result<(), CallError> {
        match self.lock.part() {
            Err(failure) if failure.is_of_this_server() && self.lock.resume() == Ok(true) => {
                self.lock.part()
            }
            parted => parted,
        }
    }

    fn batch(&mut self, calls: Calls, wait: Wait) -> Result<Outcome, CallError> {
        self.lock.batch(calls, wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session whose next calls and next searches end so.
    #[derive(Default)]
    struct Scripted {
        calls: Vec<Result<(), Errno>>,
        searches: Vec<Result<bool, ()>>,
        lease_ns: u64,
    }

    impl Scripted {
        fn next(&mut self) -> Result<(), CallError> {
            let next = self.calls.pop().unwrap();
            next.map_err(|errno| CallError::new("Txn", errno))
        }
    }

    impl Lock for Scripted {
        fn acquire(&mut self, _: usize, _: Mode, _: Wait) -> Result<Outcome, CallError> {
            self.next().map(|()| Outcome::Granted)
        }

        fn release(&mut self, _: usize, _: Mode) -> Result<(), CallError> {
            self.next()
        }

        fn keeping(&self) -> Option<Keeping> {
            Some(Keeping::session("ping", self.lease_ns))
        }

        fn resume(&mut self) -> Result<bool, SetupError> {
            let next = self.searches.pop().unwrap();
            next.map_err(|()| SetupError("nobody is there".to_owned()))
        }

        fn traffic(&self) -> Option<Traffic> {
            Some(Traffic::default())
        }
    }

    const RESET: Errno = Errno::CONNRESET;
    const BLOCK: Wait = Wait::Block {
        last_resort_ns: u64::MAX,
    };

    /// In the order in which they happen.
    fn staying(
        calls: &[Result<(), Errno>],
        searches: &[Result<bool, ()>],
        lease_ns: u64,
    ) -> Staying<Scripted> {
        let reversed = |all: &[_]| all.iter().copied().rev().collect();
        Staying::new(Box::new(Scripted {
            calls: reversed(calls),
            searches: searches.iter().copied().rev().collect(),
            lease_ns,
        }))
    }

    #[test]
    fn a_call_whose_server_failed_is_made_again_at_the_next_that_can_serve() {
        // The second has no leader yet, the third is gone too, and the fourth serves.
        let calls = [Err(RESET), Err(Errno::HOSTUNREACH), Ok(())];
        let searches = [Ok(true), Err(()), Ok(true)];
        let hour = 3_600_000_000_000;
        let mut lock = staying(&calls, &searches, hour);
        let granted = lock.acquire(0, Mode::Exclusive, BLOCK);
        assert_eq!(granted, Ok(Outcome::Granted));
        assert_eq!(lock.traffic().unwrap().failovers, 2);
        let mut lock = staying(&calls, &searches, hour);
        assert_eq!(lock.release(0, Mode::Exclusive), Ok(()));
        assert!(lock.lock.calls.is_empty() && lock.lock.searches.is_empty());
    }

    #[test]
    fn what_no_other_server_can_help_with_is_an_error_at_once() {
        let error = |errno| Err(CallError::new("Txn", errno));
        let hour = 3_600_000_000_000;
        for (calls, searches, lease_ns, errno) in [
            // The lease is over, and no server is to blame.
            (&[Err(Errno::TIMEDOUT)][..], &[][..], hour, Errno::TIMEDOUT),
            // A service of one server.
            (&[Err(RESET)], &[Ok(false)], hour, RESET),
            // Longer than the lease lives.
            (&[Err(RESET)], &[Err(())], 0, RESET),
        ] {
            let mut lock = staying(calls, searches, lease_ns);
            assert_eq!(lock.acquire(0, Mode::Exclusive, BLOCK), error(errno));
            assert_eq!(lock.failovers, 0);
        }
    }

    #[test]
    fn an_attempt_whose_time_is_up_is_tried_once_more_to_leave_its_queue() {
        for wait in [Wait::Try, Wait::Until(clock::monotonic())] {
            for search in [Ok(true), Err(())] {
                let mut lock = staying(&[Err(RESET), Err(RESET)], &[search], u64::MAX);
                let ended = lock.acquire(0, Mode::Exclusive, wait);
                assert_eq!(ended, Ok(Outcome::Refused));
                assert!(lock.lock.calls.is_empty());
            }
            let mut alone = staying(&[Err(RESET)], &[Ok(false)], u64::MAX);
            assert!(alone.acquire(0, Mode::Exclusive, wait).is_err());
        }
    }
}
