//! The control group in which another program runs: the CPU time that it uses, and its
//! limits. It makes it possible to watch a server that consists of many processes, or whose
//! processes are not visible (in a container beside ours).
//!
//! In version 1 the same path stands for a group in each hierarchy that has it. Limits are
//! set by `cpu_group`, not here.

use super::cgroup::{self, Quota, Version};
use super::text::cpu_list;
use crate::cpu;
use std::fs;
use std::path::{Path, PathBuf};

/// Such a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherGroup {
    /// Its directory in each hierarchy, and which interface that speaks.
    directories: Vec<(Version, PathBuf)>,
    /// The CPU time that it has used.
    usage: (Version, PathBuf),
    /// The file that lists the machine's CPUs, for a group without a set of its own.
    online: PathBuf,
}

impl OtherGroup {
    /// Finds it by its directory (`/sys/fs/cgroup/system.slice/slapd.service`), or by
    /// its path within the hierarchies (`/system.slice/slapd.service`).
    ///
    /// # Errors
    /// In words for the user: there is no such group, nothing counts its CPU time,
    /// nothing has ever run in it, or we do.
    pub fn find(place: &str) -> Result<OtherGroup, String> {
        OtherGroup::find_in(Path::new("/"), place)
    }

    fn find_in(root: &Path, place: &str) -> Result<OtherGroup, String> {
        let text = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
        let mounts = cgroup::mounts(&text);
        let within = mounts.iter().find_map(|mount| {
            let rest = Path::new(place).strip_prefix(&mount.point).ok()?;
            Some(rest.to_path_buf())
        });
        let path = within.unwrap_or_else(|| PathBuf::from(place.trim_matches('/')));
        if path.as_os_str().is_empty() {
            return Err(format!(
                "{place} is the whole machine; name the server's own"
            ));
        }
        let directories: Vec<(Version, PathBuf)> = mounts
            .iter()
            .map(|mount| {
                let top = root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
                (mount.version, top.join(&path))
            })
            .filter(|(_, directory)| directory.is_dir())
            .collect();
        if directories.is_empty() {
            return Err(format!("there is no control group {place} here"));
        }
        let usage = directories
            .iter()
            .map(|(version, directory)| (*version, directory.join(usage_file(*version))))
            .find(|(_, file)| file.exists())
            .ok_or(format!("nothing counts the CPU time of {place}"))?;
        let group = OtherGroup {
            directories,
            usage,
            online: root.join("sys/devices/system/cpu/online"),
        };
        let processes = group.processes();
        if processes.is_empty() && group.cpu_ns() == Some(0) {
            return Err(format!("nothing has ever run in {place}"));
        }
        if processes.contains(&std::process::id()) {
            return Err(format!(
                "{place} has jostle itself in it; name the server's own"
            ));
        }
        Ok(group)
    }

    /// CPU time used by all processes that are or were in it, in nanoseconds.
    pub fn cpu_ns(&self) -> Option<u64> {
        let text = fs::read_to_string(&self.usage.1).ok()?;
        match self.usage.0 {
            Version::V1 => text.trim().parse().ok(),
            Version::V2 => cgroup::keyed(&text, "usage_usec").map(|us| us * 1_000),
        }
    }

    /// The CPUs that its processes may use, in order: by their affinity where all of
    /// them are visible, else by the group's own set, else all.
    pub fn cpus(&self) -> Option<Vec<usize>> {
        let each: Option<Vec<Vec<usize>>> = self.processes().into_iter().map(affinity).collect();
        if let Some(each) = each.filter(|each| !each.is_empty()) {
            let mut cpus = each.concat();
            cpus.sort_unstable();
            cpus.dedup();
            return Some(cpus);
        }
        let files = [
            "cpuset.effective_cpus",
            "cpuset.cpus.effective",
            "cpuset.cpus",
        ];
        let sets = self.directories.iter().flat_map(|(_, directory)| {
            let texts = files.iter().map(|file| directory.join(file));
            texts.filter_map(|path| listed(&path))
        });
        sets.min_by_key(Vec::len).or_else(|| listed(&self.online))
    }

    /// The tightest limit on its CPU time, its parents' included; None without any.
    pub fn quota(&self) -> Option<Quota> {
        let levels = self.directories.iter().flat_map(|(version, directory)| {
            let levels = directory.ancestors();
            levels.filter_map(|level| cgroup::quota(*version, level))
        });
        levels.min_by(|a, b| a.cpus.total_cmp(&b.cpus))
    }

    /// Their numbers. Those that cannot be seen from here are 0 in version 2
    /// (cgroups(7)), and missing in version 1.
    pub fn processes(&self) -> Vec<u32> {
        let (_, usage) = &self.usage;
        usage.parent().map(processes).unwrap_or_default()
    }
}

/// Processes of a group and of those below it, which its CPU time contains too.
fn processes(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let lines = text.lines();
    let mut found: Vec<u32> = lines.filter_map(|line| line.trim().parse().ok()).collect();
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(processes(&entry.path()));
        }
    }
    found
}

fn usage_file(version: Version) -> &'static str {
    match version {
        Version::V1 => "cpuacct.usage",
        Version::V2 => "cpu.stat",
    }
}

fn affinity(pid: u32) -> Option<Vec<usize>> {
    (pid != 0).then(|| cpu::allowed_of(pid)).flatten()
}

fn listed(path: &Path) -> Option<Vec<usize>> {
    let cpus = cpu_list(fs::read_to_string(path).ok()?.trim())?;
    (!cpus.is_empty()).then_some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file tree that stands for a machine.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const V1: &[(&str, &str)] = &[
        (
            "proc/self/mountinfo",
            "33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
             34 31 0:31 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n\
             35 31 0:32 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
        ),
        ("sys/devices/system/cpu/online", "0-3\n"),
        ("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "150000\n"),
        ("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/cpu/a/slapd/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/cpu/a/slapd/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/cpuacct/a/slapd/cpuacct.usage", "1234567\n"),
        ("sys/fs/cgroup/cpuacct/a/slapd/cgroup.procs", ""),
        ("sys/fs/cgroup/cpuset/a/slapd/cpuset.cpus", "1-2\n"),
    ];

    #[test]
    fn a_group_of_version_1_is_one_in_all_hierarchies() {
        let root = machine(V1);
        for place in ["/sys/fs/cgroup/cpu/a/slapd", "/a/slapd", "a/slapd"] {
            let group = OtherGroup::find_in(root.path(), place).unwrap();
            assert_eq!(group.cpu_ns(), Some(1_234_567), "{place}");
            // Its process is in another namespace.
            assert_eq!(group.cpus(), Some(vec![1, 2]));
            assert_eq!(group.quota().map(|quota| quota.cpus), Some(1.5));
        }
    }

    #[test]
    fn a_group_of_version_2_has_all_in_one_place() {
        let parent = std::os::unix::process::parent_id();
        let shown = parent.to_string();
        let mut files = vec![
            (
                "proc/self/mountinfo",
                "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            ),
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/fs/cgroup/x/cpu.stat", "usage_usec 77\nuser_usec 70\n"),
            ("sys/fs/cgroup/x/cpu.max", "50000 100000\n"),
            ("sys/fs/cgroup/x/cgroup.procs", "0\n"),
        ];
        let root = machine(&files);
        let group = OtherGroup::find_in(root.path(), "/x").unwrap();
        assert_eq!(group.cpu_ns(), Some(77_000));
        assert_eq!(group.cpus(), Some(vec![0, 1, 2, 3]));
        assert_eq!(group.quota().map(|quota| quota.cpus), Some(0.5));
        // One that can be looked at has the CPUs that it may use.
        files.pop();
        files.push(("sys/fs/cgroup/x/below/cgroup.procs", &shown));
        let root = machine(&files);
        let group = OtherGroup::find_in(root.path(), "/x").unwrap();
        assert_eq!(group.cpus(), cpu::allowed_of(parent));
    }

    #[test]
    fn what_is_no_group_of_a_server_is_said() {
        let root = machine(V1);
        let with = |place| OtherGroup::find_in(root.path(), place).unwrap_err();
        assert!(with("/b").contains("there is no control group /b"));
        assert!(with("/sys/fs/cgroup/cpu").contains("whole machine"));
        assert!(with("/a").contains("nothing counts"));
        let usage = root
            .path()
            .join("sys/fs/cgroup/cpuacct/a/slapd/cpuacct.usage");
        fs::write(usage, "0\n").unwrap();
        assert!(with("/a/slapd").contains("nothing has ever run in /a/slapd"));
    }
}
