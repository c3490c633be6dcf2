//! The renewals of the leases on which a worker's locks rest while it holds them.
//!
//! Our own clock (`CLOCK_MONOTONIC`) decides when a renewal is due. A lease counts from the
//! sending of the request that was granted or that last renewed it: the server's lease
//! cannot have begun before that. Where nothing has to be renewed, nothing is done, at no
//! cost. The keeper decides how long locks are kept.

use crate::page::{Page, PageHistogram, Word};
use jostle_sys::clock;
use jostle_sys::files::Errno;
use jostle_targets::{CallError, Keeping, Lock};
use std::collections::VecDeque;
use std::ops::Range;

/// A lease that lasts, by the lock that rests on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    /// Its lock; of a session any.
    key: usize,
    /// When it was asked for last.
    asked_ns: u64,
}

/// Leases in the order in which they are due. All are renewed after the same time, so that
/// those that were renewed last are due last.
#[derive(Debug)]
struct Agenda {
    keeping: Keeping,
    leases: VecDeque<Lease>,
}

impl Agenda {
    /// When the next one is due.
    fn next_due_ns(&self) -> Option<u64> {
        let first = self.leases.front()?;
        Some(first.asked_ns.saturating_add(self.keeping.every_ns))
    }

    /// Takes at most so many that are due by now. Leases of locks below `from` are given
    /// up: those have been released.
    fn take_due(&mut self, now_ns: u64, most: usize, from: usize, into: &mut Vec<Lease>) {
        into.clear();
        while into.len() < most && self.next_due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            let next = self.leases.pop_front();
            into.extend(next.filter(|lease| self.keeping.is_session || lease.key >= from));
        }
    }

    /// From when a renewal was due until it was answered at this time.
    fn late_ns(&self, lease: Lease, answered_ns: u64) -> u64 {
        let since_ns = answered_ns.saturating_sub(lease.asked_ns);
        since_ns.saturating_sub(self.keeping.every_ns)
    }

    /// Whether a lease is over by our clock, so that its owner cannot know any more that
    /// it still has the lock.
    fn is_over(&self, lease: Lease, now_ns: u64) -> bool {
        now_ns.saturating_sub(lease.asked_ns) > self.keeping.lease_ns
    }
}

/// A worker's leases, and what became of its locks.
#[derive(Debug)]
pub(crate) struct Renewals<'a> {
    page: Page<'a>,
    agenda: Option<Agenda>,
    /// Renewals that are sent at once.
    depth: usize,
    /// The first lock of the worker.
    first: usize,
    /// By lock from the first on: the lease ended while it was held.
    lapsed: Vec<bool>,
    /// The locks that it has now.
    held: Range<usize>,
    batch: Vec<Lease>,
    keys: Vec<usize>,
    gone: Vec<usize>,
}

impl<'a> Renewals<'a> {
    /// The renewals of so many locks from the first one on, as the handle says that they are
    /// kept. `kept`: whether the run keeps them at all.
    pub(crate) fn new(
        page: Page<'a>,
        lock: &dyn Lock,
        kept: bool,
        (first, count): (usize, usize),
        depth: usize,
    ) -> Renewals<'a> {
        let keeping = lock.keeping().filter(|_| kept);
        if let Some(keeping) = keeping {
            page.set(Word::Lease, keeping.lease_ns);
            page.set(Word::RenewedEvery, keeping.every_ns);
            page.set(Word::OneSession, u64::from(keeping.is_session));
        }
        let agenda = keeping.map(|keeping| {
            let mut leases = VecDeque::new();
            match keeping.is_session {
                true => leases.push_back(Lease {
                    key: first,
                    asked_ns: lock.leased_at_ns().unwrap_or_else(clock::monotonic),
                }),
                false => leases.reserve(count),
            }
            Agenda { keeping, leases }
        });
        let depth = depth.max(1);
        Renewals {
            page,
            agenda,
            depth,
            first,
            lapsed: vec![false; count],
            held: first..first,
            batch: Vec::with_capacity(depth),
            keys: Vec::with_capacity(depth),
            gone: Vec::with_capacity(depth),
        }
    }

    /// The stamp of a request for a lease; zero where there is none, or it is the
    /// session's.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        let each = self.agenda.as_ref();
        let each = each.is_some_and(|agenda| !agenda.keeping.is_session);
        if each { clock::monotonic() } else { 0 }
    }

    /// Lock number `key` was granted by a request with this stamp.
    #[inline]
    pub(crate) fn granted(&mut self, key: usize, asked_ns: u64) {
        self.held.end = key + 1;
        if let Some(agenda) = self.agenda.as_mut().filter(|_| asked_ns > 0) {
            agenda.leases.push_back(Lease { key, asked_ns });
        }
    }

    /// Locks below this one have been released.
    pub(crate) fn released_below(&mut self, key: usize) {
        self.held.start = key;
    }

    /// Whether the lease of a lock has ended while it was held.
    pub(crate) fn has_lapsed(&self, key: usize) -> bool {
        self.lapsed[key - self.first]
    }

    /// Whether any has.
    pub(crate) fn some_lapsed(&self) -> bool {
        self.page.get(Word::Lapsed) > 0
    }

    /// When the next renewal is due; None: never.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.agenda.as_ref()?.next_due_ns()
    }

    /// A session was renewed by a request for a lock, as libraries do it.
    pub(crate) fn refresh(&mut self, lock: &dyn Lock) {
        let agenda = self.agenda.as_mut();
        let session = agenda.filter(|agenda| agenda.keeping.is_session);
        let lease = session.and_then(|agenda| agenda.leases.front_mut());
        if let (Some(lease), Some(at_ns)) = (lease, lock.leased_at_ns()) {
            lease.asked_ns = lease.asked_ns.max(at_ns);
        }
    }

    /// Renews the leases that are due, at most as many as are sent at once: a caller with
    /// more to do calls it again.
    ///
    /// # Errors
    /// The call that failed. Locks whose lease is over by then have lapsed.
    #[inline]
    pub(crate) fn renew_due(&mut self, lock: &mut dyn Lock) -> Result<(), CallError> {
        match self.agenda {
            Some(_) => self.renew(lock),
            None => Ok(()),
        }
    }

    fn renew(&mut self, lock: &mut dyn Lock) -> Result<(), CallError> {
        let Some(agenda) = &mut self.agenda else {
            return Ok(());
        };
        let asked_ns = clock::monotonic();
        agenda.take_due(asked_ns, self.depth, self.held.start, &mut self.batch);
        if self.batch.is_empty() {
            return Ok(());
        }
        self.keys.clear();
        self.keys.extend(self.batch.iter().map(|lease| lease.key));
        self.gone.clear();
        let renewed = lock.renew(&self.keys, &mut self.gone);
        let answered_ns = clock::monotonic();
        if let Some(traffic) = lock.traffic() {
            self.page.note_traffic(traffic);
        }
        match renewed {
            Ok(true) => {
                self.note(asked_ns, answered_ns);
                Ok(())
            }
            Ok(false) => {
                self.lose_all();
                Ok(())
            }
            Err(error) => {
                self.lose_late(answered_ns);
                Err(error)
            }
        }
    }

    /// Records the result of a batch that was answered.
    fn note(&mut self, asked_ns: u64, answered_ns: u64) {
        let Some(agenda) = &mut self.agenda else {
            return;
        };
        let mut gone = self.gone.iter().peekable();
        for lease in self.batch.drain(..) {
            if gone.next_if_eq(&&lease.key).is_some() {
                lose(&self.page, &mut self.lapsed, lease.key - self.first);
                continue;
            }
            let is_over = agenda.is_over(lease, answered_ns);
            let late_ns = agenda.late_ns(lease, answered_ns);
            self.page.fold(PageHistogram::Renewal, late_ns);
            self.page.add(Word::Renewals, 1);
            self.page.add(Word::RenewedLate, u64::from(is_over));
            agenda.leases.push_back(Lease { asked_ns, ..lease });
        }
    }

    /// The server's state is not known any more: leases that are over by our clock count as
    /// lost.
    fn lose_late(&mut self, now_ns: u64) {
        let Some(agenda) = &self.agenda else {
            return;
        };
        let all = self.batch.iter().chain(&agenda.leases);
        let over = all.filter(|lease| agenda.is_over(**lease, now_ns));
        let over: Vec<usize> = over.map(|lease| lease.key).collect();
        if agenda.keeping.is_session && !over.is_empty() {
            return self.lose_all();
        }
        for key in over {
            lose(&self.page, &mut self.lapsed, key - self.first);
        }
    }

    /// The session has ended, and with it all that has not been released.
    fn lose_all(&mut self) {
        for key in self.held.clone() {
            lose(&self.page, &mut self.lapsed, key - self.first);
        }
        if let Some(agenda) = &mut self.agenda {
            agenda.leases.clear();
        }
    }

    /// Whether a release failed because the lease had ended, which is then counted.
    pub(crate) fn lapsed_at_release(&mut self, key: usize, error: &CallError) -> bool {
        let lapsed = self.agenda.is_some() && error.errno == Errno::TIMEDOUT.raw_os_error();
        if lapsed {
            lose(&self.page, &mut self.lapsed, key - self.first);
        }
        lapsed
    }
}

fn lose(page: &Page<'_>, lapsed: &mut [bool], nth: usize) {
    if !std::mem::replace(&mut lapsed[nth], true) {
        page.add(Word::Lapsed, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Shared;
    use jostle_targets::{Mode, Outcome, Wait};

    const SECOND: u64 = 1_000_000_000;

    fn agenda(keeping: Keeping, asked: &[(usize, u64)]) -> Agenda {
        let leases = asked.iter().map(|(key, at_s)| Lease {
            key: *key,
            asked_ns: at_s * SECOND,
        });
        Agenda {
            keeping,
            leases: leases.collect(),
        }
    }

    fn due(agenda: &mut Agenda, now_s: u64, most: usize, from: usize) -> Vec<usize> {
        let mut taken = Vec::new();
        agenda.take_due(now_s * SECOND, most, from, &mut taken);
        taken.into_iter().map(|lease| lease.key).collect()
    }

    #[test]
    fn a_lease_is_due_at_a_third_of_it_and_the_longest_due_come_first() {
        let mut agenda = agenda(
            Keeping::each("RENEW", 30 * SECOND),
            &[(0, 100), (1, 101), (2, 101), (3, 105)],
        );
        assert_eq!(agenda.next_due_ns(), Some(110 * SECOND));
        assert_eq!(due(&mut agenda, 109, 10, 0), [0; 0]);
        // No more at once than may be sent.
        assert_eq!(due(&mut agenda, 112, 2, 0), [0, 1]);
        // What has been released is not renewed.
        assert_eq!(due(&mut agenda, 112, 2, 3), [0; 0]);
        assert_eq!(agenda.next_due_ns(), Some(115 * SECOND));
        assert_eq!(due(&mut agenda, 200, 2, 3), [3]);
        assert_eq!(agenda.next_due_ns(), None);
    }

    #[test]
    fn a_session_is_due_whichever_locks_were_released() {
        let mut agenda = agenda(Keeping::session("ping", 3 * SECOND), &[(7, 0)]);
        assert_eq!(due(&mut agenda, 1, 1, 9), [7]);
    }

    #[test]
    fn a_renewal_is_late_from_when_it_was_due_and_too_late_when_the_lease_is_over() {
        let agenda = agenda(Keeping::each("RENEW", 30 * SECOND), &[]);
        let lease = Lease {
            key: 0,
            asked_ns: 100 * SECOND,
        };
        for (answered_s, late_s, is_over) in [
            (110, 0, false),
            (111, 1, false),
            (130, 20, false),
            (131, 21, true),
        ] {
            let answered_ns = answered_s * SECOND;
            assert_eq!(agenda.late_ns(lease, answered_ns), late_s * SECOND);
            assert_eq!(agenda.is_over(lease, answered_ns), is_over, "{answered_s}");
        }
    }

    /// A handle whose server does what a test says.
    struct Server {
        keeping: Option<Keeping>,
        asked: Vec<Vec<usize>>,
        gone: Vec<usize>,
        answers: Result<bool, CallError>,
    }

    impl Server {
        fn keeping(keeping: Option<Keeping>) -> Server {
            Server {
                keeping,
                asked: Vec::new(),
                gone: Vec::new(),
                answers: Ok(true),
            }
        }
    }

    impl Lock for Server {
        fn acquire(&mut self, _: usize, _: Mode, _: Wait) -> Result<Outcome, CallError> {
            Ok(Outcome::Granted)
        }

        fn release(&mut self, _: usize, _: Mode) -> Result<(), CallError> {
            Ok(())
        }

        fn keeping(&self) -> Option<Keeping> {
            self.keeping
        }

        fn renew(&mut self, keys: &[usize], lapsed: &mut Vec<usize>) -> Result<bool, CallError> {
            self.asked.push(keys.to_vec());
            lapsed.extend(keys.iter().filter(|key| self.gone.contains(key)));
            self.answers
        }
    }

    /// Holds locks 5 to 8, all of whose renewals are due.
    fn holding<'a>(shared: &'a Shared, server: &Server, depth: usize) -> Renewals<'a> {
        let mut renewals = Renewals::new(shared.page(0), server, true, (5, 4), depth);
        (5..9).for_each(|key| renewals.granted(key, renewals.stamp()));
        renewals
    }

    /// A lease that outlives every test, renewed without a pause.
    const LONG: Keeping = Keeping {
        every_ns: 0,
        ..Keeping::each("RENEW", 1_000 * SECOND)
    };

    #[test]
    fn what_needs_no_renewal_is_asked_for_nothing() {
        let shared = Shared::new(1).unwrap();
        for (keeping, kept) in [(None, true), (Some(LONG), false)] {
            let mut server = Server::keeping(keeping);
            let mut renewals = Renewals::new(shared.page(0), &server, kept, (5, 4), 1);
            assert_eq!(renewals.stamp(), 0);
            renewals.granted(5, 0);
            assert_eq!(renewals.next_due_ns(), None);
            renewals.renew_due(&mut server).unwrap();
            assert_eq!(server.asked, Vec::<Vec<usize>>::new());
        }
    }

    #[test]
    fn locks_are_renewed_in_turn_and_one_that_is_gone_is_counted_once() {
        let shared = Shared::new(1).unwrap();
        let mut server = Server::keeping(Some(LONG));
        let mut renewals = holding(&shared, &server, 3);
        server.gone = vec![6];
        for _ in 0..3 {
            renewals.renew_due(&mut server).unwrap();
        }
        assert_eq!(server.asked, [vec![5, 6, 7], vec![8, 5, 7], vec![8, 5, 7]]);
        let page = shared.page(0);
        let words = [Word::Renewals, Word::Lapsed, Word::RenewedLate];
        assert_eq!(words.map(|word| page.get(word)), [8, 1, 0]);
        let lapsed: Vec<bool> = (5..9).map(|key| renewals.has_lapsed(key)).collect();
        assert_eq!(lapsed, [false, true, false, false]);
        // Those that have been released are left alone.
        renewals.released_below(8);
        renewals.renew_due(&mut server).unwrap();
        assert_eq!(server.asked[3], [8]);
    }

    #[test]
    fn with_its_session_all_that_is_still_held_is_lost() {
        let shared = Shared::new(1).unwrap();
        let session = Keeping {
            is_session: true,
            ..LONG
        };
        let mut server = Server::keeping(Some(session));
        let mut renewals = holding(&shared, &server, 1);
        renewals.released_below(6);
        server.answers = Ok(false);
        renewals.renew_due(&mut server).unwrap();
        assert_eq!(shared.page(0).get(Word::Lapsed), 3);
        assert!(!renewals.has_lapsed(5) && renewals.has_lapsed(8));
        assert_eq!(renewals.next_due_ns(), None);
    }

    #[test]
    fn only_a_lease_that_was_to_be_renewed_can_be_over_at_the_release() {
        let shared = Shared::new(1).unwrap();
        let over = CallError::new("UNLOCK", Errno::TIMEDOUT);
        let other = CallError::new("UNLOCK", Errno::PROTO);
        let mut leased = holding(&shared, &Server::keeping(Some(LONG)), 1);
        assert!(!leased.lapsed_at_release(5, &other));
        assert!(leased.lapsed_at_release(5, &over));
        assert_eq!(shared.page(0).get(Word::Lapsed), 1);
        let mut owned = holding(&shared, &Server::keeping(None), 1);
        assert!(!owned.lapsed_at_release(5, &over));
    }

    mod live_tests {
        use super::*;

        #[test]
        fn a_call_that_fails_is_an_error_and_loses_only_what_is_over() {
            let failed = CallError::new("RENEW", Errno::CONNRESET);
            let short = Keeping {
                lease_ns: 0,
                ..LONG
            };
            for (keeping, lapsed) in [(LONG, 0), (short, 4)] {
                let shared = Shared::new(1).unwrap();
                let mut server = Server::keeping(Some(keeping));
                let mut renewals = holding(&shared, &server, 1);
                server.answers = Err(failed);
                std::thread::sleep(std::time::Duration::from_millis(1));
                assert_eq!(renewals.renew_due(&mut server), Err(failed));
                assert_eq!(shared.page(0).get(Word::Lapsed), lapsed);
            }
        }

        #[test]
        fn a_renewal_that_comes_when_the_lease_is_over_is_counted_as_late() {
            let shared = Shared::new(1).unwrap();
            let short = Keeping {
                lease_ns: 0,
                ..LONG
            };
            let mut server = Server::keeping(Some(short));
            let mut renewals = holding(&shared, &server, 4);
            std::thread::sleep(std::time::Duration::from_millis(1));
            renewals.renew_due(&mut server).unwrap();
            let page = shared.page(0);
            assert_eq!(page.get(Word::RenewedLate), 4);
            assert!(crate::page::merged([page], &[PageHistogram::Renewal]).max >= 1_000_000);
        }
    }
}
