//! The effects of time: leases lapse, waits end.

use super::entries::{ClaimState, EntryKind, Ref};
use super::slab::NIL;
use super::timers::Place;
use super::{Cause, Outcome, Step, TIMERS_PER_STEP, Table};

impl Table {
    #[cold]
    pub(super) fn run_timers(&mut self, step: &mut Step<'_>) {
        self.behind = !self.work_off_timers(step);
        if self.behind {
            self.timers.hurry();
        } else {
            self.timers.settle();
        }
    }

    /// Handles deadlines that are due, a bounded number at a time; false: there are more.
    fn work_off_timers(&mut self, step: &mut Step<'_>) -> bool {
        let mut budget = TIMERS_PER_STEP;
        loop {
            while budget > 0
                && let Some((deadline, entry)) = self.timers.pop_due(step.now.0)
            {
                if *self.deadline_of(entry) == deadline {
                    self.expire(entry, deadline, step);
                }
                budget -= 1;
                if !self.closing.is_empty() {
                    // A session's locks go to others as of its end, before later
                    // deadlines are handled.
                    self.reap_some(&mut budget, step);
                }
            }
            if self.cascading == NIL {
                match self.timers.advance(step.now.0) {
                    Some(list) => self.cascading = list,
                    None => return budget > 0,
                }
            }
            self.cascade(&mut budget);
            if budget == 0 {
                return false;
            }
        }
    }

    /// Moves the entries of the list that time has reached to lists nearer to now.
    fn cascade(&mut self, budget: &mut usize) {
        let head = Ref::new(EntryKind::Wheel, self.cascading);
        while *budget > 0 {
            let entry = self.wheel[self.cascading as usize].next;
            if entry == head {
                self.cascading = NIL;
                return;
            }
            let deadline = *self.deadline_of(entry);
            self.unlink(entry);
            self.set_deadline_link(entry, deadline);
            *budget -= 1;
        }
    }

    /// Looks up a lock while timers are behind. Holds of this lock that are due end
    /// first, so that nobody can use a lapsed lease however late its timer comes.
    #[cold]
    pub(super) fn look_up_behind(
        &mut self,
        hash: u32,
        name: &[u8],
        step: &mut Step<'_>,
    ) -> Option<u32> {
        loop {
            let id = self.find(hash, name)?;
            let lock = &self.locks[id];
            let due = |entry: &Ref| *self.deadline_of(*entry) <= step.now.0;
            let lapsed = if lock.is_exclusive() {
                Some(Ref::new(EntryKind::Lock, id)).filter(due)
            } else {
                let sharers = self.line(self.queues[lock.queue].sharing.head);
                let mut sharers = sharers.map(|(at, _)| Ref::new(EntryKind::Claim, at));
                sharers.find(due)
            };
            let Some(entry) = lapsed else {
                return Some(id);
            };
            let deadline = *self.deadline_of(entry);
            self.expire(entry, deadline, step);
        }
    }

    /// Handles a deadline that has passed. Waiters are served as of that instant: a waiter whose
    /// time ended just after it still gets the lock, however late the step comes.
    fn expire(&mut self, entry: Ref, deadline: u64, step: &mut Step<'_>) {
        let state = match entry.kind() {
            EntryKind::Claim => self.claims[entry.index()].state,
            _ => ClaimState::Sharing,
        };
        if state == ClaimState::Heartbeat {
            return self.end_session(self.claims[entry.index()].session, deadline);
        }
        let lock = if state == ClaimState::Waiting {
            let lock = self.claims[entry.index()].lock;
            self.time_out(entry.index(), step);
            lock
        } else {
            self.counters.expired += 1;
            self.end_entry(entry, Cause::Expired, step.now)
        };
        self.serve(lock, deadline, step);
    }

    pub(super) fn time_out(&mut self, claim: u32, step: &mut Step<'_>) {
        let session = self.claims[claim].session;
        let deadline = self.wait_deadline(&self.claims[claim]);
        if session != NIL && self.session_is_over(session, deadline) {
            return self.turn_away(claim, step);
        }
        let client = self.claims[claim].client;
        self.counters.wait_timeouts += self.give_up(claim, step.now);
        step.tell(client, Outcome::TimedOut);
    }

    pub(super) fn deadline_of(&self, entry: Ref) -> &u64 {
        match entry.kind() {
            EntryKind::Lock => &self.locks[entry.index()].deadline,
            _ => &self.claims[entry.index()].deadline,
        }
    }

    #[inline]
    pub(super) fn set_deadline(&mut self, entry: Ref, deadline: u64) {
        match entry.kind() {
            EntryKind::Lock => self.locks[entry.index()].deadline = deadline,
            _ => self.claims[entry.index()].deadline = deadline,
        }
        self.set_deadline_link(entry, deadline);
    }

    #[inline]
    fn set_deadline_link(&mut self, entry: Ref, deadline: u64) {
        if let Place::List(list) = self.timers.place(entry, deadline) {
            self.link(Ref::new(EntryKind::Wheel, list), entry);
        }
    }
}
