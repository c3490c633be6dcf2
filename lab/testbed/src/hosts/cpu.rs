//! How much CPU time a host has: a control group for each, in version 1 or 2,
//! whichever has the controller here, and in it one that all that runs on the host
//! is in. Below a group of version 2 that has processes of its own nobody can enter
//! another: so the groups that jostle makes on the host are made beside the inner one.

use super::{Hosts, NONE};
use anyhow::{Context, bail};
use jostle_sys::limits::cgroup::cpu_places;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// After so long the quota is filled up: the kernel's default.
const PERIOD_US: f64 = 100_000.0;
/// The kernel refuses less (CFS bandwidth control, min_cfs_quota_period).
const LEAST_CPUS: f64 = 0.01;
/// The inner group; the hosts' scripts know the name too.
const INNER: &str = "all";

/// Where groups may be made, the best place first; none without the controller.
pub(super) fn levels() -> Vec<PathBuf> {
    cpu_places().1
}

/// Makes these groups, without a limit so far, or none of them.
pub(super) fn create(groups: &[PathBuf]) -> std::io::Result<()> {
    if let Some(level) = groups.first().and_then(|group| group.parent()) {
        // In version 2, given to the groups below by their parent; where there is no
        // such file, or it must not, a missing file below tells.
        let control = level.join("cgroup.subtree_control");
        if control.exists() {
            let _ = fs::write(control, "+cpu");
        }
    }
    let each = |group: &PathBuf| {
        fs::create_dir(group)?;
        limit(group, None)?;
        fs::create_dir(group.join(INNER))
    };
    let made = groups.iter().try_for_each(each);
    if made.is_err() {
        for group in groups {
            let _ = remove_tree(group);
        }
    }
    made
}

fn limit(group: &Path, cpus: Option<f64>) -> std::io::Result<()> {
    let quota_us = cpus.map(|cpus| (cpus * PERIOD_US).round());
    let v2 = group.join("cpu.max");
    if v2.exists() {
        let quota = quota_us.map_or("max".to_owned(), |quota| quota.to_string());
        return fs::write(v2, format!("{quota} {PERIOD_US}"));
    }
    fs::write(group.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
    fs::write(
        group.join("cpu.cfs_quota_us"),
        quota_us.unwrap_or(-1.0).to_string(),
    )
}

/// Removes a group and those that were made below it, once they are empty.
pub(super) fn remove(group: &str, patience: Duration) -> anyhow::Result<()> {
    if group == NONE {
        return Ok(());
    }
    let start = Instant::now();
    loop {
        match remove_tree(Path::new(group)) {
            Err(error) if start.elapsed() > patience => {
                return Err(error).with_context(|| format!("cannot remove {group}"));
            }
            // Busy as long as what ended is not wholly gone.
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
            Ok(()) => return Ok(()),
        }
    }
}

fn remove_tree(group: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(group) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

impl Hosts {
    /// Gives all that runs on a host together so many CPUs' worth of time; None
    /// lifts the limit.
    ///
    /// # Errors
    /// Where there is no control group for it, or too little is asked for.
    pub fn cpu(&self, host: &str, cpus: Option<f64>) -> anyhow::Result<()> {
        if cpus.is_some_and(|cpus| !(LEAST_CPUS..1e6).contains(&cpus)) {
            bail!("the kernel gives {LEAST_CPUS} CPUs or more");
        }
        let host = self.member(host)?;
        if host.group == NONE {
            bail!("no control group with a limit on CPU time could be made for the hosts here");
        }
        limit(Path::new(&host.group), cpus).with_context(|| format!("cannot limit {}", host.group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_written_in_the_words_of_either_version() {
        // files that a group has, limit -> what they say then
        type Files = &'static [(&'static str, &'static str)];
        let table: [(&[&str], Option<f64>, Files); 4] = [
            (&["cpu.max"], Some(0.2), &[("cpu.max", "20000 100000")]),
            (&["cpu.max"], None, &[("cpu.max", "max 100000")]),
            (
                &["cpu.cfs_period_us", "cpu.cfs_quota_us"],
                Some(1.5),
                &[
                    ("cpu.cfs_period_us", "100000"),
                    ("cpu.cfs_quota_us", "150000"),
                ],
            ),
            (
                &["cpu.cfs_period_us", "cpu.cfs_quota_us"],
                None,
                &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "-1")],
            ),
        ];
        for (files, cpus, expected) in table {
            let group = tempfile::tempdir().unwrap();
            for file in files {
                fs::write(group.path().join(file), "").unwrap();
            }
            limit(group.path(), cpus).unwrap();
            for (file, text) in expected {
                let said = fs::read_to_string(group.path().join(file)).unwrap();
                assert_eq!(said, *text, "{file} {cpus:?}");
            }
            let count = fs::read_dir(group.path()).unwrap().count();
            assert_eq!(count, files.len(), "{files:?} {cpus:?}");
        }
    }

    #[test]
    fn in_version_2_the_groups_above_hand_the_controller_down() {
        let level = tempfile::tempdir().unwrap();
        let control = level.path().join("cgroup.subtree_control");
        let groups = || ["h1", "h2"].map(|name| level.path().join(name));
        // In version 1 there is no such file, and none is made.
        create(&groups()).unwrap();
        assert!(!control.exists());
        assert!(groups().iter().all(|group| group.join(INNER).is_dir()));
        groups()
            .iter()
            .for_each(|group| fs::remove_dir_all(group).unwrap());
        fs::write(&control, "").unwrap();
        create(&groups()).unwrap();
        assert_eq!(fs::read_to_string(&control).unwrap(), "+cpu");
    }
}
