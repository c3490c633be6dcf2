//! A control group with a CPU quota, and a keeper in it, which throttles a measurement as a
//! container does.

use jostle_engine::keeper::Keeper;
use jostle_engine::world::World;
use jostle_sys::clock::Clock;
use jostle_sys::ledger::Ledger;
use jostle_sys::limits::cpu_group::{CpuGroup, NO_QUOTA_CPUS};
use std::io;

/// The group and its keeper. Fields are dropped in this order: the keeper ends
/// all that is in the group, and then the group can go.
pub(super) struct Group {
    world: World,
    group: CpuGroup,
    _swept: Swept,
}

/// Removes the group when dropped. If this process is killed, the next start of jostle does.
struct Swept(Ledger);

impl Drop for Swept {
    fn drop(&mut self) {
        let _ = self.0.sweep();
    }
}

impl Group {
    /// Makes both, or says why there is none. Call it before anything that
    /// starts threads.
    pub(super) fn make(clock: Clock) -> Result<Group, String> {
        let ledger = Ledger::create().map_err(|error| error.to_string())?;
        let swept = Swept(ledger);
        // With a quota before the keeper looks for those that bind it.
        let group = CpuGroup::create(&swept.0, NO_QUOTA_CPUS)?;
        // The keeper and its children are inside, and this process is not.
        let keeper = group
            .within(|| Keeper::start(clock))
            .map_err(|error| format!("the control group cannot be entered or left: {error}"))?;
        Ok(Group {
            world: World::alone(keeper.map_err(|error| error.to_string())?),
            group,
            _swept: swept,
        })
    }

    /// Who measures under the quota.
    pub(super) fn world(&mut self) -> &mut World {
        &mut self.world
    }

    /// So many CPUs.
    pub(super) fn set_quota(&self, cpus: f64) -> io::Result<()> {
        self.group.limit(cpus)
    }

    /// Periods in which the quota stopped the group, as the kernel counts them.
    pub(super) fn throttled_periods(&self) -> u64 {
        self.group.throttled().throttled_periods
    }
}
