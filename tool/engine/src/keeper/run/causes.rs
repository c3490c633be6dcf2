//! What else may have made a run go wrong: looked for while nothing is granted, and when all
//! workers have ended. Where nothing was found, a verdict can say what was looked at.

use super::{Children, Run};
use crate::order::{RunData, WorkloadOrder};
use jostle_model::record::Causes;
use jostle_sys::process;
use jostle_targets::signs;
use jostle_worker::page::Word;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// After so long without a grant it is looked who holds the lock, and who is stopped.
const STILL_NS: u64 = 1_000_000_000;

/// Whether anything is granted.
#[derive(Default)]
pub(super) struct Still(RefCell<Progress>);

#[derive(Default)]
struct Progress {
    operations: u64,
    since_ns: u64,
    /// What was seen while nothing was granted, the first time.
    seen: Option<Box<Causes>>,
}

impl Still {
    /// The window has opened, or goes on.
    pub(super) fn look(&self, run: &Run<'_>, children: &Children) {
        let mut progress = self.0.borrow_mut();
        if progress.seen.is_some() || !matches!(run.order.workload, WorkloadOrder::Contend(_)) {
            return;
        }
        let pages = (0..run.order.workers).map(|worker| run.shared.page(worker));
        let operations = pages.map(|page| page.get(Word::Total)).sum();
        let now_ns = run.now();
        if progress.since_ns == 0 || operations != progress.operations {
            (progress.operations, progress.since_ns) = (operations, now_ns);
        } else if now_ns - progress.since_ns >= STILL_NS {
            progress.seen = Some(Box::new(run.look_while_still(children)));
        }
    }

    pub(super) fn taken(&self) -> Option<Box<Causes>> {
        self.0.borrow_mut().seen.take()
    }
}

/// Clients that are named; more are counted.
const NAMED: usize = 3;

impl Run<'_> {
    /// Looks while nothing is granted. Nobody is asked over a network, so that the end of the
    /// window is not missed.
    fn look_while_still(&self, children: &Children) -> Causes {
        let mut causes = Causes::default();
        let ours: BTreeSet<u32> = children.alive.keys().copied().collect();
        if let Some(owners) = self.work.owners() {
            let others = owners.into_iter().filter(|(pid, _)| !ours.contains(pid));
            let named = |(pid, name): (u32, String)| match pid {
                0 => name,
                _ => format!("{name} ({pid})"),
            };
            let named: Vec<String> = others.map(named).collect();
            let verb = if named.len() == 1 { "holds" } else { "hold" };
            let found = (!named.is_empty()).then(|| format!("{} {verb} it", named.join(", ")));
            causes.look("who else holds it", found);
        }
        let halted = |pids: &[u32]| -> Vec<String> {
            let halted = pids.iter().filter(|pid| process::is_halted(**pid));
            halted.map(u32::to_string).collect()
        };
        let server = self.books.server.family();
        for (whose, pids) in [
            ("the server", server),
            ("a worker", ours.into_iter().collect()),
        ] {
            if !pids.is_empty() {
                let halted = halted(&pids);
                let found = (!halted.is_empty()).then(|| {
                    let list = halted.join(", ");
                    format!("{whose} was stopped (process {list}, by a signal or a tracer)")
                });
                causes.look(&format!("whether {whose} was stopped"), found);
            }
        }
        causes
    }

    /// Adds to a run that went wrong what its server says about itself, against what it said
    /// before. Of several hosts, the workers of another may still be there.
    pub(super) fn look_afterwards(&self, data: &mut RunData) {
        let lapsed = data.kept.as_ref().is_some_and(|kept| kept.lapsed > 0);
        let amiss = data.exclusion.violations > 0 || !data.around.errors.is_empty() || lapsed;
        if !amiss && data.around.causes.is_none() {
            return;
        }
        let causes = data.around.causes.get_or_insert_default();
        for (at, found) in signs::compare(&self.signs, &self.work.signs()) {
            causes.look(at, found);
        }
        if amiss && causes.found.is_empty() && self.order.share.is_none() {
            causes.found.extend(other_clients(&self.work.strangers()));
        }
    }
}

fn other_clients(clients: &[String]) -> Option<String> {
    let more = match clients.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = clients[..clients.len().min(NAMED)].join(", ");
    let said = format!("the server has other clients, which may be the cause: {named}{more}");
    (!clients.is_empty()).then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_clients_are_named_or_counted() {
        assert_eq!(other_clients(&[]), None);
        let said = other_clients(&["a", "b", "c", "d"].map(str::to_owned));
        let expected = "the server has other clients, which may be the cause: a, b, c and 1 more";
        assert_eq!(said.as_deref(), Some(expected));
    }
}
