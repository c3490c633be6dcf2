//! Looks at what lies outside the lock: before the first worker, while nothing is granted, and
//! when all workers have ended and something went wrong. The table of causes in `stats` judges
//! what they show.

use super::{Children, Run};
use crate::order::{RunData, WorkloadOrder};
use jostle_model::record::{Came, Look, LookedAt, Process, Sign, Signs, When, sign};
use jostle_sys::clock::Clock;
use jostle_sys::files::Errno;
use jostle_sys::{census, process};
use jostle_targets::LEASE_FACT;
use jostle_targets::signs::{NoSigns, Told, known};
use jostle_worker::page::Word;
use jostle_worker::work::Work;
use std::cell::RefCell;

/// After so long without a grant it is looked who holds the lock, and who stands still.
const STILL_NS: u64 = 1_000_000_000;
/// Between two such looks.
const AGAIN_NS: u64 = 500_000_000;

/// Stamps looks with the time of a run.
#[derive(Clone, Copy)]
pub(super) struct Looker {
    pub(super) clock: Clock,
    pub(super) began_ns: u64,
}

impl Looker {
    pub(super) fn now(self) -> u64 {
        self.clock.now().saturating_sub(self.began_ns)
    }

    /// The server's report about itself.
    pub(super) fn server(self, work: &dyn Work, when: When) -> Look {
        self.ask(LookedAt::Server, when, || {
            let locks = work.accounted().ok_or(NoSigns::NotAsked)?;
            locks.signs()
        })
    }

    pub(super) fn ask(self, at: LookedAt, when: When, ask: impl FnOnce() -> Told) -> Look {
        let asked_ns = self.now();
        let told = ask();
        let answered_ns = Some(self.now()).filter(|_| told.is_ok());
        let (came, words, signs) = match told {
            Ok(signs) => (Came::Answered, None, signs),
            Err(NoSigns::NotAsked) => (Came::NotAsked, None, Signs::new()),
            Err(NoSigns::Refused(words)) => (Came::Refused, Some(words), Signs::new()),
            Err(NoSigns::Silent(words)) => (Came::Silent, Some(words), Signs::new()),
        };
        Look {
            at,
            when,
            asked_ns,
            answered_ns,
            came,
            words,
            signs,
            host: None,
        }
    }
}

/// Whether anything is granted.
#[derive(Default)]
pub(super) struct Still(RefCell<Progress>);

#[derive(Default)]
struct Progress {
    operations: u64,
    since_ns: u64,
    looked_ns: u64,
    /// The first and the last looks of the latest standstill that was looked at, and whether
    /// that is the one of now.
    first: Vec<Look>,
    last: Vec<Look>,
    is_now: bool,
    /// When the first look at it was made, from the preparation of the run on.
    began_ns: Option<u64>,
    /// Whether the holders were asked for after the first failure.
    failed: bool,
}

impl Still {
    /// The window has opened, or goes on.
    pub(super) fn look(&self, run: &Run<'_>, children: &Children) {
        if !matches!(run.order.workload, WorkloadOrder::Contend(_)) {
            return;
        }
        let mut progress = self.0.borrow_mut();
        progress.look_for_failures(run);
        let pages = (0..run.order.workers).map(|worker| run.shared.page(worker));
        let operations = pages.map(|page| page.get(Word::Total)).sum();
        run.asker.hear(operations != progress.operations);
        let now_ns = run.now();
        if progress.since_ns == 0 || operations != progress.operations {
            (progress.operations, progress.since_ns) = (operations, now_ns);
            progress.is_now = false;
        } else if now_ns - progress.since_ns >= STILL_NS
            && (!progress.is_now || now_ns - progress.looked_ns >= AGAIN_NS)
        {
            progress.look(run, children);
        }
    }

    /// The window has closed, before any worker was told.
    pub(super) fn end(&self, run: &Run<'_>, children: &Children) {
        let mut progress = self.0.borrow_mut();
        progress.look_for_failures(run);
        if progress.is_now {
            progress.look(run, children);
        }
    }

    pub(super) fn has_looked(&self) -> bool {
        !self.0.borrow().first.is_empty()
    }

    /// The looks at it, and when the first of them was made.
    fn taken(&self) -> (impl Iterator<Item = Look>, Option<u64>) {
        let progress = self.0.take();
        let looks = progress.first.into_iter().chain(progress.last);
        (looks, progress.began_ns)
    }
}

impl Progress {
    fn look(&mut self, run: &Run<'_>, children: &Children) {
        if !self.is_now {
            self.began_ns = Some(run.looker().now());
        }
        run.asker.ask(When::Still);
        let stood_ns = run.now() - self.since_ns;
        self.take(run.look_while_still(children, stood_ns));
        self.looked_ns = run.now();
    }

    fn look_for_failures(&mut self, run: &Run<'_>) {
        let mut pages = (0..run.order.workers).map(|worker| run.shared.page(worker));
        if !self.failed && pages.any(|page| page.get(Word::FailedAt) > 0) {
            self.failed = run.asker.ask(When::Failed);
        }
    }

    fn take(&mut self, looks: Vec<Look>) {
        match std::mem::replace(&mut self.is_now, true) {
            true => self.last = looks,
            false => (self.first, self.last) = (looks, Vec::new()),
        }
    }
}

/// Whether a lock was lost, or a call failed.
pub(super) fn is_amiss(data: &RunData) -> bool {
    let lapsed = data.kept.as_ref().is_some_and(|kept| kept.lapsed > 0);
    data.exclusion.violations > 0 || !data.around.errors.is_empty() || lapsed
}

impl Run<'_> {
    pub(super) fn looker(&self) -> Looker {
        Looker {
            clock: self.context.clock,
            began_ns: self.began_ns,
        }
    }

    /// Looks while nothing is granted. Nobody is asked over a network, so that the end of the
    /// window is not missed.
    fn look_while_still(&self, children: &Children, stood_ns: u64) -> Vec<Look> {
        let looker = self.looker();
        let path = looker.ask(LookedAt::Path, When::Still, || {
            self.path(children, stood_ns).ok_or(NoSigns::NotAsked)
        });
        let owners = looker.ask(LookedAt::Owners, When::Still, || {
            self.owners(children).ok_or(NoSigns::NotAsked)
        });
        let halted = looker.ask(LookedAt::Halted, When::Still, || Ok(self.halted(children)));
        vec![owners, halted, path]
    }

    /// The counts of the server's control groups so far.
    pub(super) fn look_at_groups(&self, when: When) -> Option<Look> {
        let signs = self.server_groups.borrow().read()?;
        Some(self.looker().ask(LookedAt::Group, when, || Ok(signs)))
    }

    /// Who holds the lock and is no worker.
    fn owners(&self, children: &Children) -> Option<Signs> {
        let mut signs = self.work.accounted()?.owners()?;
        if let Some(Sign::Processes(owners)) = signs.get_mut(sign::OWNERS) {
            owners.retain(|owner| !children.alive.contains_key(&owner.pid));
        }
        if let WorkloadOrder::Contend(contend) = &self.order.workload {
            let all_share = Sign::Flag(contend.shared >= 1.0);
            signs.insert(sign::WANTED_SHARED.to_owned(), all_share);
        }
        Some(signs)
    }

    fn halted(&self, children: &Children) -> Signs {
        let still = |pids: &[u32]| -> Vec<Process> {
            let each = pids.iter().filter_map(|pid| {
                let state = process::stands_still(*pid)?.to_owned();
                Some(Process {
                    pid: *pid,
                    name: census::Identity::of(*pid).map_or_else(String::new, |of| of.name),
                    state: Some(state),
                    ..Process::default()
                })
            });
            each.collect()
        };
        let roots = self.books.server.roots();
        let mut forked = self.books.server.family();
        forked.retain(|pid| !roots.contains(pid));
        let workers: Vec<u32> = children.alive.keys().copied().collect();
        let halted_workers = still(&workers);
        let inside = self.witness.inside().into_iter();
        let inside = inside.map(|worker| self.shared.page(worker).get(Word::Pid));
        let inside: Vec<u64> = inside.collect();
        let is_inside = |worker: &Process| inside.contains(&u64::from(worker.pid));
        let owner_halted = halted_workers.iter().any(is_inside);
        // One of several sessions is not the server.
        let mut halted_roots = still(&roots);
        let mut halted_parts = still(&forked);
        if halted_roots.len() < roots.len() {
            halted_parts.append(&mut halted_roots);
        }
        let list = |pids: &[u32], list| (!pids.is_empty()).then_some(Sign::Processes(list));
        known([
            (sign::SERVER_HALTED, list(&roots, halted_roots)),
            (sign::PARTS_HALTED, list(&roots, halted_parts)),
            (sign::WORKERS_HALTED, list(&workers, halted_workers)),
            (sign::OWNER_HALTED, Some(owner_halted.into())),
        ])
    }

    /// The looks of a run that may have gone wrong, before anything is cleared away. Of several
    /// hosts, the workers of another may still be there, so that nobody is asked who else is.
    pub(super) fn look_afterwards(&self, children: &Children) -> Vec<Look> {
        let pages = || (0..self.order.workers).map(|worker| self.shared.page(worker));
        let lost = [Word::Overlaps, Word::Lapsed, Word::BeforeRelease];
        let is_lost = pages().any(|page| lost.iter().any(|word| page.get(*word) > 0));
        if !is_lost && !self.ended_badly(children) && !self.still.has_looked() {
            return Vec::new();
        }
        let looker = self.looker();
        let mut looks = self.before.borrow().clone();
        let asks = looks.iter().any(|look| look.at == LookedAt::Server);
        let (still, began_ns) = self.still.taken();
        looks.extend(still);
        looks.push(self.first_failure());
        looks.extend(self.asker.end(began_ns));
        looks.extend(self.look_at_groups(When::After));
        if asks {
            looks.push(looker.server(&*self.work, When::After));
            looks.push(looker.ask(LookedAt::Path, When::After, || {
                let listens = self.books.server.listens().ok_or(NoSigns::NotAsked)?;
                Ok(known([(sign::LISTENS, Some(listens.into()))]))
            }));
        }
        if self.order.share.is_none() && asks {
            looks.push(looker.ask(LookedAt::Clients, When::After, || {
                let locks = self.work.accounted().ok_or(NoSigns::NotAsked)?;
                let clients = Sign::Texts(locks.strangers()?);
                Ok(known([(sign::CLIENTS, Some(clients))]))
            }));
        }
        looks
    }

    /// The state of the worker whose call failed first.
    fn first_failure(&self) -> Look {
        let pages = || (0..self.order.workers).map(|worker| self.shared.page(worker));
        let failed = pages().filter(|page| page.get(Word::FailedAt) > 0);
        let first = failed.min_by_key(|page| page.get(Word::FailedAt));
        let ms = |ns: u64| Sign::from(ns / 1_000_000);
        let granted = pages().map(|page| page.get(Word::GrantedAt)).max();
        let later = first.map_or(0, |page| {
            let granted = granted.unwrap_or(0);
            granted.saturating_sub(page.get(Word::FailedAt))
        });
        // When two first met is not known: it may have been long before a call failed.
        let have_met = pages().any(|page| page.get(Word::Overlaps) > 0);
        let later = (!have_met).then_some(later);
        let of = |word: Word| first.map(|page| page.get(word)).filter(|value| *value > 0);
        let held = of(Word::HeldFor);
        let contend = match &self.order.workload {
            WorkloadOrder::Contend(contend) => Some(contend),
            _ => None,
        };
        // An acquisition follows an idle, a release a hold.
        let quiet = held.or_else(|| first.and(contend).map(|contend| contend.idle.span().0));
        let (_, facts) = self.work.known();
        let lease_ns = facts.get(LEASE_FACT).map(|ns| *ns as u64);
        const CUT_OFF: [i32; 2] = [Errno::CONNRESET.raw_os_error(), Errno::PIPE.raw_os_error()];
        let is_cut_off = |errno: u64| CUT_OFF.contains(&(errno as i32)).into();
        let asked_ns = of(Word::FailedAt).unwrap_or(self.began_ns);
        let at_ns = asked_ns.saturating_sub(self.began_ns);
        Look {
            at: LookedAt::Worker,
            when: When::Failed,
            asked_ns: at_ns,
            answered_ns: Some(at_ns),
            came: Came::Answered,
            words: None,
            signs: known([
                (sign::HELD_MS, held.map(ms)),
                (sign::QUIET_MS, quiet.map(ms)),
                (sign::GRANTED_LATER_MS, later.map(ms)),
                (sign::CUT_OFF, of(Word::Errno).map(is_cut_off)),
                (sign::LEASE_MS, lease_ns.map(ms)),
                (sign::RENEWS, contend.map(|contend| contend.renews.into())),
                (
                    sign::GRANTS,
                    Some(
                        pages()
                            .map(|page| page.get(Word::Total))
                            .sum::<u64>()
                            .into(),
                    ),
                ),
            ]),
            host: None,
        }
    }
}
