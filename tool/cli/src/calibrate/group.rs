//! A control group with a CPU quota, and a keeper in it, which throttles a measurement as a
//! container does.
//!
//! It is made below the root of the hierarchy, version 1 or 2, which requires root. The
//! parent enters the group only to fork the keeper, so that the keeper and its children are
//! inside.

use jostle_engine::keeper::Keeper;
use jostle_engine::world::World;
use jostle_sys::clock::Clock;
use jostle_sys::ledger::Ledger;
use jostle_sys::limits::{cgroup, cpu_group};
use std::path::{Path, PathBuf};
use std::{fs, io};

const TOP: &str = "/sys/fs/cgroup";
const PERIOD_US: f64 = 100_000.0;

/// More CPUs than any machine has: the quota is accounted, but never reached.
const NO_QUOTA_CPUS: f64 = 10_000.0;

/// The group and its keeper. Fields are dropped in this order: the keeper ends
/// all that is in the group, and then its directory can go.
pub(super) struct Group {
    world: World,
    place: Place,
}

/// The group's directory. It is removed when dropped. If this process is killed, the next
/// start of jostle removes it, because the ledger lists it before it is made.
struct Place {
    path: PathBuf,
    first_version: bool,
    ledger: Ledger,
}

impl Group {
    /// Makes both, or says why there is none. Call it before anything that
    /// starts threads.
    pub(super) fn make(clock: Clock) -> Result<Group, String> {
        let place = Place::make().map_err(|error| {
            format!("no control group with a CPU quota can be made (root, and the controller `cpu`): {error}")
        })?;
        let home =
            home(place.first_version).ok_or("this process's own control group cannot be found")?;
        // Before the keeper looks for quotas that bind it.
        place
            .set_quota(NO_QUOTA_CPUS)
            .map_err(|error| format!("no CPU quota can be set: {error}"))?;
        enter(&place.path)
            .map_err(|error| format!("the control group cannot be entered: {error}"))?;
        let keeper = Keeper::start(clock).map_err(|error| error.to_string());
        enter(&home).map_err(|error| format!("the control group cannot be left: {error}"))?;
        Ok(Group {
            world: World::alone(keeper?),
            place,
        })
    }

    /// Who measures under the quota.
    pub(super) fn world(&mut self) -> &mut World {
        &mut self.world
    }

    /// So many CPUs; None: as many as there are.
    pub(super) fn set_quota(&self, cpus: Option<f64>) -> io::Result<()> {
        self.place.set_quota(cpus.unwrap_or(NO_QUOTA_CPUS))
    }

    /// Periods in which the quota stopped the group, as the kernel counts them.
    pub(super) fn throttled_periods(&self) -> u64 {
        cgroup::throttled(&[self.place.path.join("cpu.stat")]).throttled_periods
    }
}

impl Place {
    fn make() -> io::Result<Place> {
        let first = Path::new(TOP).join("cpu");
        let first_version = first.join("cpu.cfs_quota_us").exists() || first.join("tasks").exists();
        let top = if first_version {
            first
        } else {
            PathBuf::from(TOP)
        };
        if !first_version {
            // Given to the groups below it by their parent; it may be already.
            let _ = fs::write(top.join("cgroup.subtree_control"), "+cpu");
        }
        let name = format!("{}{}-calibrate", cpu_group::PREFIX, std::process::id());
        let path = top.join(name);
        let ledger = Ledger::create()?;
        let made = ledger
            .record_group(&path)
            .and_then(|()| fs::create_dir(&path));
        if let Err(error) = made {
            let _ = ledger.sweep();
            return Err(error);
        }
        Ok(Place {
            path,
            first_version,
            ledger,
        })
    }

    fn set_quota(&self, cpus: f64) -> io::Result<()> {
        let quota_us = (cpus * PERIOD_US).round();
        match self.first_version {
            true => {
                fs::write(self.path.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
                fs::write(self.path.join("cpu.cfs_quota_us"), quota_us.to_string())
            }
            false => fs::write(self.path.join("cpu.max"), format!("{quota_us} {PERIOD_US}")),
        }
    }
}

impl Drop for Place {
    /// The keeper has ended all that was in the group.
    fn drop(&mut self) {
        let _ = self.ledger.sweep();
    }
}

fn enter(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), std::process::id().to_string())
}

/// The group that this process is in now.
fn home(first_version: bool) -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    home_in(&text, first_version)
}

fn home_in(text: &str, first_version: bool) -> Option<PathBuf> {
    let mut lines = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?))
    });
    let (_, path) = lines.find(|(controllers, _)| match first_version {
        true => controllers.split(',').any(|name| name == "cpu"),
        false => controllers.is_empty(),
    })?;
    let top = Path::new(TOP);
    let top = if first_version {
        top.join("cpu")
    } else {
        top.to_owned()
    };
    Some(top.join(path.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::home_in;
    use std::path::PathBuf;

    #[test]
    fn the_own_group_is_found_in_both_versions() {
        let first = "4:memory:/a\n2:cpu,cpuacct:/box/one\n0::/unified\n";
        let table = [
            (first, true, Some("/sys/fs/cgroup/cpu/box/one")),
            (first, false, Some("/sys/fs/cgroup/unified")),
            ("1:cpu:/\n", true, Some("/sys/fs/cgroup/cpu/")),
            ("4:cpuset:/\n", true, None),
        ];
        for (text, version, path) in table {
            assert_eq!(home_in(text, version), path.map(PathBuf::from), "{text}");
        }
    }
}
