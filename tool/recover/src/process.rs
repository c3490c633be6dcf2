//! A process of `recover`: the owner, which the fault strikes, or one that waits. What it
//! sees goes to the board, stamped by `CLOCK_MONOTONIC`.

use crate::board::{Board, order};
use crate::keepalive::Keepalive;
use jostle_model::record::What;
use jostle_model::text::alike;
use jostle_sys::{clock, cpu, process, signal};
use jostle_targets::{CallError, Lock, Locks, Mode, Outcome, Wait};
use rustix::process::Pid;

/// The process that is the owner.
pub(crate) const OWNER: usize = 0;

/// Between two looks of the owner at its orders.
pub(crate) const LOOK_NS: u64 = 200_000;
/// Between two attempts to reach a service again.
pub(crate) const AGAIN_NS: u64 = 2_000_000;
/// A waiter that was granted holds for so long at least.
const HOLD_NS: u64 = 1_000_000;

/// So many attempts in a row that fail alike are listed, and the others counted: an error
/// that persists must not fill the board.
const LISTED: u32 = 3;

/// Where no signal ends a wait, nobody waits longer.
const LAST_RESORT_NS: u64 = 3_600_000_000_000;

/// Attempts in a row that failed alike.
#[derive(Debug, Default)]
struct Alike {
    said: Option<String>,
    count: u32,
}

impl Alike {
    /// Whether the next attempt is listed.
    fn is_listed(&self) -> bool {
        self.count < LISTED
    }

    /// Whether one that failed so is another of them; else it is the first of its kind.
    fn is_another(&mut self, said: &Option<String>) -> bool {
        let same = match (&self.said, said) {
            (Some(one), Some(other)) => alike(one, other),
            (one, other) => one == other,
        };
        let same = self.count > 0 && same;
        self.count = if same {
            self.count.saturating_add(1)
        } else {
            1
        };
        if !same {
            self.said.clone_from(said);
        }
        same
    }
}

/// One process.
pub(crate) struct Process<'a> {
    /// The lock.
    pub target: &'a dyn Locks,
    /// Where it tells what it sees.
    pub board: &'a Board,
    /// [`OWNER`], or a waiter from 1.
    pub number: usize,
    /// Its timer slack.
    pub timer_slack_ns: u64,
    /// Whether it renews what it holds, and takes up its session again when its connection
    /// fails, as the field's clients of this service do.
    pub renews: bool,
    /// It ends with the keeper.
    pub keeper: Pid,
}

impl Process<'_> {
    /// Its whole life. Returns the exit code.
    pub(crate) fn live(&self) -> i32 {
        process::set_name(match self.number {
            OWNER => "jostle-owner",
            _ => "jostle-waiter",
        });
        if process::die_with(self.keeper).is_err() {
            return 1;
        }
        let _ = process::leave_group();
        let settled = signal::end_waits_on_signal()
            .and_then(|()| cpu::set_timer_slack(self.timer_slack_ns))
            .map_err(|error| error.to_string());
        let joined = settled.and_then(|()| {
            self.target
                .join(self.number)
                .map_err(|error| error.to_string())
        });
        let mut lock = match joined {
            Ok(lock) => lock,
            Err(said) => {
                self.log(What::NotGranted, None, Some(&said));
                return 1;
            }
        };
        if let Some(group) = lock.owner_group() {
            self.board.set_program(self.number, group);
        }
        self.board.set_ready(self.number);
        self.board.await_order(self.number, order::ACQUIRE);
        if !self.acquire(&mut lock) {
            return 1;
        }
        match self.number {
            OWNER => self.hold(&mut lock),
            _ => {
                clock::sleep(HOLD_NS, signal::interrupted);
                self.wait_to_release(&mut *lock);
            }
        }
        self.release(&mut lock);
        0
    }

    pub(crate) fn log(&self, what: What, token: Option<u64>, said: Option<&str>) -> bool {
        self.log_at(clock::monotonic(), what, token, said)
    }

    fn log_at(&self, at_ns: u64, what: What, token: Option<u64>, said: Option<&str>) -> bool {
        self.board.log(self.number, at_ns, what, token, said)
    }

    /// Until it owns the lock. One whose connection is lost comes again.
    fn acquire(&self, lock: &mut Box<dyn Lock>) -> bool {
        let last_resort_ns = clock::monotonic() + LAST_RESORT_NS;
        let wait = Wait::Block { last_resort_ns };
        let mut alike = Alike::default();
        loop {
            let asked_ns = clock::monotonic();
            if alike.is_listed() && !self.log_at(asked_ns, What::Acquire, None, None) {
                return false;
            }
            let outcome = lock.acquire(0, Mode::Exclusive, wait);
            let at_ns = clock::monotonic();
            let granted = match &outcome {
                Ok(Outcome::Granted) => What::Granted,
                Ok(Outcome::GrantedFromDead) => What::GrantedFromDead,
                Ok(Outcome::Interrupted) => return false,
                // A queue that asks its clients to come again.
                Ok(Outcome::Refused) => {
                    self.failed(&mut alike, (asked_ns, at_ns), None);
                    clock::sleep(AGAIN_NS, signal::interrupted);
                    continue;
                }
                Err(error) => {
                    self.failed(&mut alike, (asked_ns, at_ns), Some(error.to_string()));
                    if self.number == OWNER {
                        return false;
                    }
                    self.come_again(lock);
                    if alike.is_listed() {
                        self.log(What::JoinedAgain, None, None);
                    }
                    continue;
                }
            };
            if !alike.is_listed() {
                self.log_at(asked_ns, What::Acquire, None, None);
            }
            self.granted(&**lock, at_ns, granted);
            return true;
        }
    }

    /// Logs an attempt that failed, or counts it with those before it that failed alike.
    fn failed(&self, alike: &mut Alike, (asked_ns, at_ns): (u64, u64), said: Option<String>) {
        let was_listed = alike.is_listed();
        if alike.is_another(&said) && !was_listed {
            return self.board.again(self.number);
        }
        if !was_listed {
            self.log_at(asked_ns, What::Acquire, None, None);
        }
        self.log_at(at_ns, What::NotGranted, None, said.as_deref());
    }

    /// In its session, where that outlives a connection, or in a new one.
    fn come_again(&self, lock: &mut Box<dyn Lock>) {
        let mut resumes = self.renews;
        loop {
            clock::sleep(AGAIN_NS, signal::interrupted);
            match resumes.then(|| lock.resume()) {
                Some(Ok(true)) => return,
                Some(Ok(false)) => resumes = false,
                Some(Err(_)) => continue,
                None => {}
            }
            if let Ok(joined) = self.target.join(self.number) {
                *lock = joined;
                return;
            }
        }
    }

    fn granted(&self, lock: &dyn Lock, at_ns: u64, what: What) {
        if let Some(leased_at) = lock.leased_at_ns() {
            self.board.set_leased_at(self.number, leased_at);
        }
        // Writes before the keeper learns of the grant: the keeper then lets the old owner
        // continue, whose write must come second.
        let written = self.write(lock);
        self.log_at(at_ns, what, lock.token(), None);
        self.log_write(written);
    }

    /// To the resource, where the lock gives tokens: the token, whether it was taken, and
    /// when.
    fn write(&self, lock: &dyn Lock) -> Option<(u64, bool, u64)> {
        let token = lock.token()?;
        let taken = self.board.write(token);
        Some((token, taken, clock::monotonic()))
    }

    /// With the time of the write: the old owner's may be logged before it.
    fn log_write(&self, written: Option<(u64, bool, u64)>) {
        if let Some((token, taken, at_ns)) = written {
            let what = match taken {
                true => What::Written,
                false => What::WriteRefused,
            };
            self.log_at(at_ns, what, Some(token), None);
        }
    }

    /// The owner works until it is told to release: it writes again and again, and logs a
    /// write that is refused after one that was taken, or the other way round, and its last.
    /// An owner whose client tells it that the lock is lost does not write any more.
    fn hold(&self, lock: &mut Box<dyn Lock>) {
        let mut taken = true;
        let mut keepalive = Keepalive::start(self, &**lock);
        loop {
            let woke = self.board.goes_on(self.number);
            if woke {
                self.log(What::Awake, None, None);
            }
            // One that stood still amid its work goes on with that, whatever it is told.
            let written = match keepalive.is_told && !woke {
                true => None,
                false => self.write(&**lock),
            };
            let ends = self.board.ordered(self.number) >= order::RELEASE;
            if written.is_some_and(|(_, now, _)| now != taken || (ends && now)) {
                self.log_write(written);
            }
            taken = written.is_none_or(|(_, now, _)| now);
            if ends {
                break keepalive.reach_again(&mut **lock);
            }
            keepalive.look(&mut **lock);
            clock::sleep(LOOK_NS, signal::interrupted);
        }
    }

    /// A new owner holds until it is told to release, and its client renews.
    fn wait_to_release(&self, lock: &mut dyn Lock) {
        let mut keepalive = Keepalive::start(self, lock);
        while !keepalive.has_nothing_to_do() && self.board.ordered(self.number) < order::RELEASE {
            keepalive.look(lock);
            clock::sleep(LOOK_NS, signal::interrupted);
        }
        self.board.await_order(self.number, order::RELEASE);
        keepalive.reach_again(lock);
    }

    fn release(&self, lock: &mut Box<dyn Lock>) {
        self.log(What::Release, None, None);
        let released: Result<(), CallError> = lock.release(0, Mode::Exclusive);
        let at_ns = clock::monotonic();
        match released {
            Ok(()) => {
                self.log_at(at_ns, What::Released, None, None);
                // An error now is no answer to the release.
                let _ = lock.part();
            }
            Err(error) => {
                let what = match error.is_out_of_patience() {
                    true => What::GaveUp,
                    false => What::NotReleased,
                };
                self.log_at(at_ns, what, None, Some(&error.to_string()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_that_fail_alike_are_listed_three_times() {
        let mut alike = Alike::default();
        let mut listed = |said: Option<&str>| {
            let is_listed = alike.is_listed();
            !alike.is_another(&said.map(str::to_owned)) || is_listed
        };
        let after_ms = |ms: u64| format!("no such lock, after {ms} ms");
        let all: Vec<bool> = (8..13).map(|ms| listed(Some(&after_ms(ms)))).collect();
        assert_eq!(all, [true, true, true, false, false]);
        // Another failure is listed again, and one without words is one, too.
        assert!(listed(Some("gone")));
        let refused: Vec<bool> = (0..4).map(|_| listed(None)).collect();
        assert_eq!(refused, [true, true, true, false]);
    }
}
