//! A control group that limits the CPU time of its processes, to stand for a weaker
//! machine. It is made below one of this process's own groups, in version 1 or 2, whichever
//! has the controller here, and never outside a limit that this process has.
//!
//! The ledger records each group before it is made, and removes it when its processes have
//! ended. The limits that others have set are read by `cgroup`.

use super::cgroup::{self, Throttled, Version};
use crate::ledger::Ledger;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// After so long the quota is filled up: the kernel's default.
const PERIOD_US: f64 = 100_000.0;

/// The kernel refuses less (CFS bandwidth control, min_cfs_quota_period).
pub const LEAST_CPUS: f64 = 0.01;

/// More than any machine has: a quota of so many CPUs is accounted and never reached.
pub const NO_QUOTA_CPUS: f64 = 10_000.0;

/// The beginning of the names of such groups.
pub const PREFIX: &str = "jostle-cpu-";

/// A group, made.
#[derive(Debug)]
pub struct CpuGroup {
    path: PathBuf,
    version: Version,
}

impl CpuGroup {
    /// Makes a group whose processes get `cpus` CPUs' worth of time together.
    ///
    /// # Errors
    /// In words for the user, with the remedy.
    pub fn create(ledger: &Ledger, cpus: f64) -> Result<CpuGroup, String> {
        let (version, places) = cgroup::cpu_places();
        let mut why = match version {
            Version::V1 => "no hierarchy with the cpu controller is mounted".to_owned(),
            Version::V2 => {
                "no hierarchy is mounted, or each group up to the first with a limit on \
                            CPU time, which holds for all that jostle starts, has processes of \
                            its own; start jostle in a group below that one then"
                    .to_owned()
            }
        };
        for place in places {
            match create_in(ledger, version, &place, cpus) {
                Ok(path) => return Ok(CpuGroup { path, version }),
                Err(error) => why = format!("{}: {error}", place.display()),
            }
        }
        Err(format!(
            "no control group with a limit on CPU time can be made ({why}); run as root, or have \
             the cpu controller delegated (systemd-run --user --scope -p Delegate=yes)"
        ))
    }

    /// Moves this process into it, and with it all that it will start.
    ///
    /// # Errors
    /// The system's.
    pub fn enter(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), "0")
    }

    /// The result of `act`, which this process does in the group; then it returns to where it was.
    ///
    /// # Errors
    /// The system's, also if this process's own group cannot be found.
    pub fn within<T>(&self, act: impl FnOnce() -> T) -> io::Result<T> {
        let home = cgroup::own_cpu_group().ok_or(io::ErrorKind::NotFound)?;
        self.enter()?;
        let done = act();
        fs::write(home.join("cgroup.procs"), "0")?;
        Ok(done)
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file that holds its quota, and the text that sets the quota to this many CPUs.
    pub fn quota(&self, cpus: f64) -> (PathBuf, String) {
        quota(self.version, &self.path, cpus)
    }

    /// Sets its quota to this many CPUs.
    ///
    /// # Errors
    /// The system's, with the file.
    pub fn limit(&self, cpus: f64) -> io::Result<()> {
        let (file, text) = self.quota(cpus);
        fs::write(&file, text)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
    }

    /// How often its quota has run out so far.
    pub fn throttled(&self) -> Throttled {
        cgroup::throttled(&[self.path.join("cpu.stat")])
    }
}

fn create_in(ledger: &Ledger, version: Version, level: &Path, cpus: f64) -> io::Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if version == Version::V2 {
        // The parent group gives the controller to the groups below it. Errors are ignored:
        // without the controller, writing the quota below fails.
        let _ = fs::write(level.join("cgroup.subtree_control"), "+cpu");
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = level.join(format!("{PREFIX}{}-{number}", std::process::id()));
    ledger.record_group(&path)?;
    fs::create_dir(&path)?;
    let (file, text) = quota(version, &path, cpus);
    let set = match version {
        Version::V1 => fs::write(path.join("cpu.cfs_period_us"), PERIOD_US.to_string()),
        Version::V2 => Ok(()),
    };
    if let Err(error) = set.and_then(|()| fs::write(file, text)) {
        let _ = fs::remove_dir(&path);
        return Err(error);
    }
    Ok(path)
}

fn quota(version: Version, group: &Path, cpus: f64) -> (PathBuf, String) {
    let quota = (cpus.max(LEAST_CPUS) * PERIOD_US).round();
    match version {
        Version::V1 => (group.join("cpu.cfs_quota_us"), quota.to_string()),
        Version::V2 => (group.join("cpu.max"), format!("{quota} {PERIOD_US}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn only_groups_of_ours_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let ledger = Ledger::create_in(place.path()).unwrap();
        let other = place.path().join("somebody-else-s");
        fs::create_dir(&other).unwrap();
        ledger.record_group(&other).unwrap();
        let left = ledger.sweep().unwrap_err();
        assert!(left[0].contains("somebody-else-s"), "{left:?}");
        assert!(other.exists());
    }

    mod live_tests {
        use super::*;

        #[test]
        fn a_group_limits_whoever_enters_and_goes_with_the_ledger() {
            let place = tempfile::tempdir().unwrap();
            let ledger = Ledger::create_in(place.path()).unwrap();
            let group = CpuGroup::create(&ledger, 0.1).unwrap();
            let spin = format!(
                "echo 0 > {}/cgroup.procs && timeout 0.6 sh -c 'while :; do :; done'",
                group.path.display()
            );
            // Where others are busy too, it may not get what it is limited to for a while.
            let mut throttled = 0;
            for _ in 0..20 {
                let ended = Command::new("sh").args(["-c", &spin]).status().unwrap();
                assert_eq!(ended.code(), Some(124)); // timeout's
                throttled = group.throttled().throttled_periods;
                if throttled >= 2 {
                    break;
                }
            }
            ledger.sweep().unwrap();
            assert!(!group.path.exists());
            assert!(throttled >= 2, "{throttled}");
        }
    }
}
