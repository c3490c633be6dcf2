//! The owner's client at work while the owner works: it renews the lease of what is held, looks for
//! a new connection when the old one fails, and tells the owner when the lock is lost.

use crate::process::{AGAIN_NS, LOOK_NS, Process};
use jostle_model::record::What;
use jostle_sys::{clock, signal};
use jostle_targets::{Keeping, Lock};

/// The upkeep of the owner's lease, beside the owner.
pub(crate) struct Keepalive<'a> {
    process: &'a Process<'a>,
    /// None: nothing has to be renewed, or this client does not.
    keeping: Option<Keeping>,
    /// When the last renewal that succeeded was asked for.
    asked_ns: u64,
    /// When the next renewal or the next attempt to reach the service is due.
    due_ns: u64,
    is_cut_off: bool,
    /// It has told the owner that the lock is lost.
    pub(crate) is_told: bool,
}

impl<'a> Keepalive<'a> {
    /// The client of an owner that has just been granted the lock.
    pub(crate) fn start(process: &'a Process<'a>, lock: &dyn Lock) -> Keepalive<'a> {
        let keeping = lock.keeping().filter(|_| process.renews);
        let asked_ns = lock.leased_at_ns().unwrap_or_else(clock::monotonic);
        Keepalive {
            process,
            keeping,
            asked_ns,
            due_ns: asked_ns + keeping.map_or(0, |keeping| keeping.every_ns),
            is_cut_off: false,
            is_told: false,
        }
    }

    /// Whether nothing has to be renewed, or not any more.
    pub(crate) fn has_nothing_to_do(&self) -> bool {
        self.keeping.is_none() || self.is_told
    }

    /// Does what is due.
    pub(crate) fn look(&mut self, lock: &mut dyn Lock) {
        let Some(keeping) = self.keeping.filter(|_| !self.is_told) else {
            return;
        };
        if !self.is_cut_off && lock.is_cut_off() {
            self.cut_off("the server has ended the connection");
        }
        let now_ns = clock::monotonic();
        if now_ns < self.due_ns {
            return;
        }
        match self.is_cut_off {
            true => self.reach(lock, keeping, now_ns),
            false => self.renew(lock, keeping, now_ns),
        }
    }

    /// Before a release: a library whose connection is lost takes up its session first. It ends
    /// when a server was reached, or the lease is over.
    pub(crate) fn reach_again(&mut self, lock: &mut dyn Lock) {
        while self.is_cut_off && !self.has_nothing_to_do() && !signal::interrupted() {
            clock::sleep(LOOK_NS, signal::interrupted);
            self.look(lock);
        }
    }

    fn renew(&mut self, lock: &mut dyn Lock, keeping: Keeping, now_ns: u64) {
        let mut lapsed = Vec::new();
        match lock.renew(&[0], &mut lapsed) {
            Ok(true) if lapsed.is_empty() => {
                self.asked_ns = now_ns;
                self.due_ns = now_ns + keeping.every_ns;
                self.process
                    .board
                    .set_leased_at(self.process.number, now_ns);
            }
            Ok(_) => self.tell("the server has taken the lock away"),
            Err(error) => self.cut_off(&error.to_string()),
        }
    }

    /// Looks for a server that takes up the session. Where none answers for as long as the
    /// lease lives, the lock counts as lost.
    fn reach(&mut self, lock: &mut dyn Lock, keeping: Keeping, now_ns: u64) {
        if now_ns > self.asked_ns + keeping.lease_ns {
            return self.tell("no renewal was answered for as long as the lease lives");
        }
        match lock.resume() {
            Ok(true) => {
                self.is_cut_off = false;
                self.due_ns = now_ns;
                self.process.log(What::JoinedAgain, None, None);
            }
            Ok(false) => self.tell("the session has ended"),
            Err(_) => self.due_ns = now_ns + AGAIN_NS,
        }
    }

    fn cut_off(&mut self, said: &str) {
        self.is_cut_off = true;
        self.due_ns = 0;
        self.process.log(What::CutOff, None, Some(said));
    }

    fn tell(&mut self, said: &str) {
        self.is_told = true;
        self.process.log(What::Lost, None, Some(said));
    }
}
