//! What befalls daemons and etcd, what ends it, and what administrators do about it.

use std::rc::Rc;

use super::super::{Due, Head, Init, Over};
use super::node::{Node, Role};
use super::witness::ensure;
use super::{MS, RULES, Violation, WITHIN_MS, World};
use crate::table::Time;

impl World {
    /// What an administrator does with a new etcd.
    pub(super) fn initialise(&mut self) {
        let cluster = format!("cluster {}", self.number());
        let first = self.nodes.iter().map(|node| node.tokens).max().unwrap_or(1);
        let mut init = Init::new(&self.keys, RULES, &cluster, first, Time(0));
        if let Due::Send(call) = init.due(Time(0)) {
            let answer = self.etcd.answer(&call.request, 0);
            assert!(init.answered(answer, Time(0)).is_some());
        }
    }

    /// Faults, and their end.
    pub(super) fn meddle(&mut self) -> Result<(), Violation> {
        let node = self.some_node();
        self.administer();
        if let Role::Down = self.nodes[node].role
            && self.dice.percent(20)
        {
            self.start(node, false);
        }
        let loads = |node: &Node| match &node.role {
            Role::Active(active) => node.clock < active.loading,
            _ => false,
        };
        if self.is_calm() && self.nodes.iter().any(loads) {
            self.postpone();
        }
        if let Some(by) = self.probe {
            ensure!(self.now < by, "S4: no free name is granted");
            return Ok(());
        }
        self.now += self.dice.below(4 * MS);
        let most = 1 + self.dice.below(8_000);
        let until = self.now + self.dice.below(most) * MS;
        let now = self.now;
        let found = &mut self.nodes[node];
        match self.dice.below(1_000) {
            0..12 => {
                found.runs(now);
                // Half of them long enough for a takeover.
                let until = match self.dice.percent(50) {
                    true => now + (2_000 + self.dice.below(2_000)) * MS,
                    false => until,
                };
                found.frozen = Some((until, self.dice.percent(60)));
                *self.counts.entry("freezes").or_default() += 1;
            }
            12..14 => found.hangs = until,
            14..18 => found.cut[self.dice.below(2) as usize] = until,
            18..24 => {
                *self.counts.entry("kills").or_default() += 1;
                self.kill(node);
            }
            24..32 => {
                if let Role::Active(active) = &mut found.role {
                    *self.counts.entry("failovers").or_default() += 1;
                    active.drains = true;
                }
            }
            32..42 => {
                let pairs = Rc::clone(&self.etcd.pairs);
                self.backups.push((self.etcd.revision, pairs));
                if self.backups.len() > 3 {
                    self.backups.remove(0);
                }
            }
            42 if self.dice.percent(25) => self.restore(),
            43 if self.dice.percent(3) => self.wipe(),
            // All is quiet for a while.
            44 => self.now = until,
            45..49 => self.end_faults(),
            _ => {}
        }
        self.witness.forget(self.now);
        Ok(())
    }

    fn end_faults(&mut self) {
        for node in 0..3 {
            let found = &mut self.nodes[node];
            if let Some((until, _)) = &mut found.frozen {
                *until = 0;
            }
            found.runs(self.now);
            (found.hangs, found.cut) = (0, [0; 2]);
            if let Role::Down = found.role {
                self.start(node, false);
            }
        }
        self.probes += 1;
        self.probe = Some(self.now + WITHIN_MS * MS);
    }

    /// Whether each member knows of the last write, or of one shortly before it: what none
    /// of them remembers when etcd loses it, cannot be missed.
    fn is_known(&self) -> bool {
        let head = self.etcd.pairs.get(&self.keys.head());
        let Some(Ok(head)) = head.map(|value| Head::read(value)) else {
            return false;
        };
        self.nodes.iter().all(|node| {
            node.disk.cluster == head.cluster && node.disk.tokens + (1 << 39) > head.tokens
        })
    }

    /// A backup of which each member knows more takes the place of what there is.
    fn restore(&mut self) {
        let Some((revision, pairs)) = self.backups.first().cloned() else {
            return;
        };
        let head = pairs.get(&self.keys.head());
        let Some(Ok(head)) = head.map(|value| Head::read(value)) else {
            return;
        };
        let mut nodes = self.nodes.iter();
        if self.is_known() && nodes.all(|node| node.disk.sequence > head.sequence) {
            *self.counts.entry("restores").or_default() += 1;
            self.etcd.become_that_of(revision, pairs);
            self.backups.clear();
        }
    }

    fn wipe(&mut self) {
        if self.is_known() {
            *self.counts.entry("wipes").or_default() += 1;
            self.etcd.become_that_of(1, Rc::default());
            self.backups.clear();
        }
    }

    /// An administrator sees to what daemons report.
    fn administer(&mut self) {
        if self
            .nodes
            .iter()
            .any(|node| matches!(node.role, Role::Active(_)))
        {
            return;
        }
        let node = self.dice.below(3) as usize;
        let Role::Standby(standby) = &self.nodes[node].role else {
            return;
        };
        match standby.trouble() {
            Some(Over::Uninitialised(_)) if self.etcd.pairs.is_empty() => self.initialise(),
            Some(Over::Foreign { .. } | Over::Behind { .. }) => {
                // A stale read may look like it.
                let head = self.etcd.pairs.get(&self.keys.head());
                let seen = standby.head().map(Head::text);
                if head == seen.as_ref() {
                    self.start(node, true);
                    self.postpone();
                }
            }
            _ => {}
        }
    }

    /// The time for a grant begins later.
    fn postpone(&mut self) {
        if let Some(by) = &mut self.probe {
            *by = self.now + WITHIN_MS * MS;
        }
    }
}
