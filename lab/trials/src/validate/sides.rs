//! The two sides of a load that is held back: generators on the first CPU and servers on the
//! last one, each in a control group of its own.

use anyhow::{Context, bail};
use jostle_sys::ledger::Ledger;
use jostle_sys::limits::cpu_group::{CpuGroup, NO_QUOTA_CPUS};
use serde::{Deserialize, Serialize};

/// Who is held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    #[default]
    Generator,
    Server,
}

impl Side {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Side::Generator => "generator",
            Side::Server => "server",
        }
    }
}

/// Their CPUs and groups. The groups are removed with the value, after all that is in them.
pub(super) struct Sides {
    cpus: [usize; 2],
    groups: [CpuGroup; 2],
    ledger: Ledger,
}

impl Sides {
    pub(super) fn make() -> anyhow::Result<Sides> {
        let cpus = jostle_sys::cpu::allowed();
        let [first, .., last] = cpus[..] else {
            bail!("generators and servers need a CPU each");
        };
        let _ = jostle_sys::ledger::sweep_dead();
        let ledger = Ledger::create().context("cannot make a ledger")?;
        let group = || CpuGroup::create(&ledger, NO_QUOTA_CPUS).map_err(anyhow::Error::msg);
        Ok(Sides {
            cpus: [first, last],
            groups: [group()?, group()?],
            ledger,
        })
    }

    pub(super) fn cpu(&self, side: Side) -> usize {
        self.cpus[side as usize]
    }

    pub(super) fn group(&self, side: Side) -> &CpuGroup {
        &self.groups[side as usize]
    }

    /// Gives a side so many CPUs.
    pub(super) fn limit(&self, side: Side, cpus: f64) -> anyhow::Result<()> {
        let set = self.group(side).limit(cpus);
        set.context("cannot set a CPU quota")
    }

    /// Gives both sides all that they can use.
    pub(super) fn lift(&self) -> anyhow::Result<()> {
        self.limit(Side::Generator, NO_QUOTA_CPUS)?;
        self.limit(Side::Server, NO_QUOTA_CPUS)
    }

    /// How often the quotas stopped either side so far.
    pub(super) fn stopped(&self) -> u64 {
        let each = self.groups.iter().map(CpuGroup::throttled);
        each.map(|throttled| throttled.throttled_periods).sum()
    }
}

impl Drop for Sides {
    fn drop(&mut self) {
        if let Err(left) = self.ledger.sweep() {
            eprintln!("left behind: {}", left.join("; "));
        }
    }
}
