//! The limits that control groups put on this process: tasks, memory and CPU
//! time, in version 1, version 2, and both mounted side by side.
//!
//! A limit binds everything below it, so what counts is the tightest over the
//! group of this process and all its ancestors that the mounted hierarchies
//! show. An ancestor outside a container's view cannot be seen; its effect (a
//! failed fork, a throttled period) can.

use super::text::field;
use std::path::{Component, Path, PathBuf};

/// The version of a hierarchy's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy for each controller.
    V1,
    /// The unified one.
    V2,
}

/// A line of /proc/self/cgroup: this process's group in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    /// Which interface.
    pub version: Version,
    /// Controllers of a version 1 hierarchy; empty for version 2.
    pub controllers: Vec<String>,
    /// The group, from the root of the hierarchy.
    pub path: String,
}

/// A mounted hierarchy, from /proc/self/mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Which interface.
    pub version: Version,
    /// Its options, which name the controllers in version 1.
    pub options: Vec<String>,
    /// The group that the mount shows as its top.
    pub root: String,
    /// Where it is mounted.
    pub point: PathBuf,
}

/// A limit and how much of it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The file that sets it, such as `pids.max`.
    pub name: &'static str,
    /// The limit.
    pub max: u64,
    /// Used by the whole group that it binds.
    pub used: u64,
    /// The directory of that group.
    pub group: PathBuf,
}

impl Bound {
    /// What is left.
    pub fn room(&self) -> u64 {
        self.max.saturating_sub(self.used)
    }
}

/// A limit on CPU time.
#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    /// Quota over period: so many CPUs' worth of time.
    pub cpus: f64,
    /// The period after which the quota is filled up.
    pub period_us: u64,
    /// The directory of the group that it binds.
    pub group: PathBuf,
}

/// How often quotas have stopped this process's groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    /// Periods in which anything ran under a quota.
    pub periods: u64,
    /// Periods in which the quota ran out.
    pub throttled_periods: u64,
}

/// What the control groups allow; a limit that nothing sets is None.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cgroup {
    /// `v1` or `v2` and the path; absent without control groups.
    pub name: Option<String>,
    /// Tasks: the least room of all groups above.
    pub tasks: Option<Bound>,
    /// Memory in bytes, file cache that can be dropped not counted as used.
    pub memory: Option<Bound>,
    /// CPU time: the tightest of all groups above.
    pub cpu: Option<Quota>,
    /// The cpu.stat of each group with a quota; [`throttled`] sums them.
    pub cpu_stats: Vec<PathBuf>,
}

impl Cgroup {
    /// Reads the files below `root`, which is `/` except in tests.
    pub fn read(root: &Path) -> Cgroup {
        let text = |path| std::fs::read_to_string(root.join(path)).unwrap_or_default();
        let memberships = memberships(&text("proc/self/cgroup"));
        let mounts = mounts(&text("proc/self/mountinfo"));
        let groups = |controller: &str| groups(root, &memberships, &mounts, controller);
        let (cpu_version, cpu_groups) = groups("cpu");
        let (_, tasks_groups) = groups("pids");
        let (memory_version, memory_groups) = groups("memory");
        Cgroup {
            name: name(&memberships),
            tasks: tightest(&tasks_groups, tasks),
            memory: tightest(&memory_groups, |group| memory(memory_version, group)),
            cpu: cpu_groups
                .iter()
                .filter_map(|group| quota(cpu_version, group))
                .min_by(|a, b| a.cpus.total_cmp(&b.cpus)),
            cpu_stats: cpu_groups
                .iter()
                .filter(|group| quota(cpu_version, group).is_some())
                .map(|group| group.join("cpu.stat"))
                .collect(),
        }
    }
}

/// The groups below which a group that limits CPU time may be made, the best first, and the
/// version of their interface: this process's own group and those above, up to the first
/// that limits CPU time itself. A process that moved from there to a group beside or above
/// that one would escape its limit.
///
/// In version 2 only the root and groups without processes of their own qualify. Below a
/// group with processes, a group can be made and limited, but not entered (EOPNOTSUPP;
/// cgroups(7), "domain invalid").
pub fn cpu_places() -> (Version, Vec<PathBuf>) {
    cpu_places_of(Path::new("/"))
}

fn cpu_places_of(root: &Path) -> (Version, Vec<PathBuf>) {
    let (version, mut places) = groups_of(root, "self", "cpu");
    let limited = places
        .iter()
        .position(|group| quota(version, group).is_some());
    places.truncate(limited.map_or(usize::MAX, |at| at + 1));
    // The root has no type.
    let has_processes = |group: &Path| {
        group.join("cgroup.type").exists()
            && slurp(group, "cgroup.procs").is_none_or(|text| !text.trim().is_empty())
    };
    places.retain(|group| version == Version::V1 || !has_processes(group));
    (version, places)
}

/// The tightest limit on the CPU time of another process; None without any.
pub fn cpu_quota_of(pid: u32) -> Option<Quota> {
    let (version, groups) = groups_of(Path::new("/"), &pid.to_string(), "cpu");
    let quotas = groups.iter().filter_map(|group| quota(version, group));
    quotas.min_by(|a, b| a.cpus.total_cmp(&b.cpus))
}

fn groups_of(root: &Path, process: &str, controller: &str) -> (Version, Vec<PathBuf>) {
    let text = |path: String| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    groups(
        root,
        &memberships(&text(format!("proc/{process}/cgroup"))),
        &mounts(&text("proc/self/mountinfo".to_owned())),
        controller,
    )
}

/// How often the quotas behind these files have run out so far.
pub fn throttled(cpu_stats: &[PathBuf]) -> Throttled {
    let mut sum = Throttled::default();
    for text in cpu_stats
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
    {
        sum.periods += keyed(&text, "nr_periods").unwrap_or(0);
        sum.throttled_periods += keyed(&text, "nr_throttled").unwrap_or(0);
    }
    sum
}

/// The cpu.stat of each group of another process that has a quota, its parents included.
pub fn cpu_stats_of(pid: u32) -> Vec<PathBuf> {
    let (version, groups) = groups_of(Path::new("/"), &pid.to_string(), "cpu");
    let limited = groups
        .iter()
        .filter(|group| quota(version, group).is_some());
    limited.map(|group| group.join("cpu.stat")).collect()
}

/// For how long the quota behind such a file has kept its group from running so far, in
/// nanoseconds, summed over CPUs.
pub fn throttled_ns(cpu_stat: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(cpu_stat).ok()?;
    keyed(&text, "throttled_time").or_else(|| keyed(&text, "throttled_usec").map(|us| us * 1_000))
}

/// Reads /proc/self/cgroup: `4:memory:/a/b` or `0::/a/b`.
pub(crate) fn memberships(text: &str) -> Vec<Membership> {
    let parse = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let version = match (number, controllers) {
            ("0", "") => Version::V2,
            _ => Version::V1,
        };
        Some(Membership {
            version,
            controllers: controllers
                .split(',')
                .filter(|c| !c.is_empty())
                .map(str::to_owned)
                .collect(),
            path: path.to_owned(),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Reads the control group mounts of /proc/self/mountinfo (proc(5)).
pub(crate) fn mounts(text: &str) -> Vec<Mount> {
    let parse = |line: &str| {
        let (mount, system) = line.split_once(" - ")?;
        let mut system = system.split_whitespace();
        let version = match system.next()? {
            "cgroup" => Version::V1,
            "cgroup2" => Version::V2,
            _ => return None,
        };
        let options = system.nth(1).unwrap_or_default();
        let mut mount = mount.split_whitespace().skip(3);
        Some(Mount {
            version,
            options: options.split(',').map(str::to_owned).collect(),
            root: unescape(mount.next()?),
            point: PathBuf::from(unescape(mount.next()?)),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// mountinfo writes space, tab, newline and backslash as `\040` and so on.
fn unescape(text: &str) -> String {
    let mut plain = text.to_owned();
    for (code, character) in [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ] {
        plain = plain.replace(code, character);
    }
    plain
}

/// Where a group of `path` is found under a mount: the path from the mount's
/// top. A path outside of what the mount shows (a container that sees the
/// host's names, or `/..` of a foreign cgroup namespace) gives the top itself,
/// whose limits bind us in any case.
fn below(mount: &Mount, path: &str) -> PathBuf {
    let inside = Path::new(path)
        .strip_prefix(&mount.root)
        .ok()
        .filter(|rest| rest.components().all(|c| matches!(c, Component::Normal(_))));
    inside.map(Path::to_path_buf).unwrap_or_default()
}

/// The directories from this process's group up to the top of the mount, for
/// one controller: in its own hierarchy where version 1 has it, else in the
/// unified one.
fn groups(
    root: &Path,
    memberships: &[Membership],
    mounts: &[Mount],
    controller: &str,
) -> (Version, Vec<PathBuf>) {
    let of_v1 = |m: &&Membership| m.controllers.iter().any(|c| c == controller);
    let v1 = memberships.iter().find(of_v1);
    let version = if v1.is_some() {
        Version::V1
    } else {
        Version::V2
    };
    let membership = v1.or_else(|| memberships.iter().find(|m| m.version == Version::V2));
    let mount = mounts.iter().find(|mount| {
        mount.version == version
            && (version == Version::V2 || mount.options.iter().any(|o| o == controller))
    });
    let (Some(membership), Some(mount)) = (membership, mount) else {
        return (version, Vec::new());
    };
    let top = root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
    let own = top.join(below(mount, &membership.path));
    let levels = own.ancestors().take_while(|level| level.starts_with(&top));
    (version, levels.map(Path::to_path_buf).collect())
}

/// `v2 /user.slice`, or `v1 memory:/a` with each controller that can limit a
/// measurement.
fn name(memberships: &[Membership]) -> Option<String> {
    let limiting = ["cpu", "memory", "pids"];
    let v1: Vec<String> = memberships
        .iter()
        .flat_map(|m| m.controllers.iter().map(|c| (c.as_str(), m.path.as_str())))
        .filter(|(controller, _)| limiting.contains(controller))
        .map(|(controller, path)| format!("{controller}:{path}"))
        .collect();
    if !v1.is_empty() {
        return Some(format!("v1 {}", v1.join(" ")));
    }
    let v2 = memberships.iter().find(|m| m.version == Version::V2)?;
    Some(format!("v2 {}", v2.path))
}

fn tightest(groups: &[PathBuf], read: impl Fn(&Path) -> Option<Bound>) -> Option<Bound> {
    groups
        .iter()
        .filter_map(|group| read(group))
        .min_by_key(Bound::room)
}

fn slurp(group: &Path, file: &str) -> Option<String> {
    std::fs::read_to_string(group.join(file)).ok()
}

/// A number, or None for `max`, `-1`, nonsense, and for the page-rounded
/// largest number that version 1 writes for "no limit".
fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|n| *n < 1 << 62)
}

/// The number behind a key in a file of `key number` lines.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .find(|line| line.split_whitespace().next() == Some(key))
        .and_then(|line| field(line, 1))
}

fn tasks(group: &Path) -> Option<Bound> {
    Some(Bound {
        name: "pids.max",
        max: limit(&slurp(group, "pids.max")?)?,
        used: slurp(group, "pids.current")
            .and_then(|t| field(&t, 0))
            .unwrap_or(0),
        group: group.to_path_buf(),
    })
}

fn memory(version: Version, group: &Path) -> Option<Bound> {
    // Above memory.high the kernel stalls the group to reclaim: for a
    // measurement as much of an end as the limit itself.
    let (limits, usage, cache): (&[&'static str], _, _) = match version {
        Version::V1 => (
            &["memory.limit_in_bytes"],
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
        Version::V2 => (
            &["memory.max", "memory.high"],
            "memory.current",
            "inactive_file",
        ),
    };
    let (max, name) = limits
        .iter()
        .filter_map(|name| Some((limit(&slurp(group, name)?)?, *name)))
        .min()?;
    let used = slurp(group, usage)
        .and_then(|t| field(&t, 0))
        .unwrap_or(0u64);
    let droppable = slurp(group, "memory.stat")
        .and_then(|t| keyed(&t, cache))
        .unwrap_or(0);
    Some(Bound {
        name,
        max,
        used: used.saturating_sub(droppable),
        group: group.to_path_buf(),
    })
}

pub(super) fn quota(version: Version, group: &Path) -> Option<Quota> {
    let (quota_us, period_us) = match version {
        Version::V1 => (
            limit(&slurp(group, "cpu.cfs_quota_us")?)?,
            limit(&slurp(group, "cpu.cfs_period_us")?)?,
        ),
        Version::V2 => {
            let text = slurp(group, "cpu.max")?;
            (field(&text, 0)?, field(&text, 1)?)
        }
    };
    (period_us > 0).then(|| Quota {
        cpus: quota_us as f64 / period_us as f64,
        period_us,
        group: group.to_path_buf(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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

    fn read(files: &[(&str, &str)]) -> Cgroup {
        let root = machine(files);
        let mut found = Cgroup::read(root.path());
        // So that the expected paths below are those of the machine.
        let plain = |path: &mut PathBuf| {
            *path = Path::new("/").join(path.strip_prefix(root.path()).unwrap());
        };
        found
            .tasks
            .iter_mut()
            .for_each(|bound| plain(&mut bound.group));
        found
            .memory
            .iter_mut()
            .for_each(|bound| plain(&mut bound.group));
        found
            .cpu
            .iter_mut()
            .for_each(|quota| plain(&mut quota.group));
        found
    }

    const V2_MOUNT: &str = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn memberships_of_both_versions_are_told_apart() {
        let text = "9:name=systemd:/\n3:cpu,cpuacct:/docker/ab\n0::/user.slice/x:y\nnonsense\n";
        let found = memberships(text);
        let expected = [
            (Version::V1, vec!["name=systemd"], "/"),
            (Version::V1, vec!["cpu", "cpuacct"], "/docker/ab"),
            (Version::V2, vec![], "/user.slice/x:y"), // a path may hold colons
        ];
        assert_eq!(found.len(), expected.len());
        for (found, (version, controllers, path)) in found.iter().zip(expected) {
            assert_eq!((found.version, found.path.as_str()), (version, path));
            assert_eq!(found.controllers, controllers);
        }
    }

    #[test]
    fn only_control_group_mounts_are_taken_and_their_names_unescaped() {
        let text = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                    32 31 0:29 /docker/ab /sys/fs/c\\040g rw,relatime shared:7 - cgroup cgroup rw,cpu,cpuacct\n";
        let found = mounts(text);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].root, "/docker/ab");
        assert_eq!(found[0].point, Path::new("/sys/fs/c g"));
        assert!(found[0].options.iter().any(|o| o == "cpuacct"));
    }

    #[test]
    fn the_group_is_found_below_the_mount_s_top() {
        let table = [
            // top of the mount, path of the process, below the mount point
            ("/", "/a/b", "a/b"),
            ("/docker/ab", "/docker/ab", ""), // a container that sees itself
            ("/docker/ab", "/docker/ab/child", "child"),
            ("/docker/ab", "/elsewhere", ""), // names of another view
            ("/", "/../../sibling", ""),      // outside of our namespace
            ("/a", "/ab", ""),                // whole components only
        ];
        for (top, path, expected) in table {
            let mount = Mount {
                version: Version::V2,
                options: Vec::new(),
                root: top.to_owned(),
                point: PathBuf::new(),
            };
            assert_eq!(below(&mount, path), Path::new(expected), "{top} {path}");
        }
    }

    #[test]
    fn v2_takes_the_tightest_of_all_ancestors() {
        let found = read(&[
            ("proc/self/cgroup", "0::/pod/app\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/pod/pids.max", "500\n"),
            ("sys/fs/cgroup/pod/pids.current", "12\n"),
            ("sys/fs/cgroup/pod/app/pids.max", "max\n"),
            ("sys/fs/cgroup/pod/app/pids.current", "3\n"),
            ("sys/fs/cgroup/pod/memory.max", "1000000\n"),
            ("sys/fs/cgroup/pod/memory.current", "900000\n"),
            (
                "sys/fs/cgroup/pod/memory.stat",
                "anon 1\ninactive_file 100000\n",
            ),
            ("sys/fs/cgroup/pod/app/memory.max", "800000\n"),
            ("sys/fs/cgroup/pod/app/memory.high", "700000\n"),
            ("sys/fs/cgroup/pod/app/memory.current", "100000\n"),
            ("sys/fs/cgroup/pod/cpu.max", "50000 100000\n"),
            (
                "sys/fs/cgroup/pod/cpu.stat",
                "usage_usec 5\nnr_periods 7\nnr_throttled 4\n",
            ),
            ("sys/fs/cgroup/pod/app/cpu.max", "max 100000\n"),
        ]);
        assert_eq!(found.name.as_deref(), Some("v2 /pod/app"));
        let tasks = found.tasks.unwrap();
        assert_eq!((tasks.max, tasks.used, tasks.room()), (500, 12, 488));
        assert_eq!(tasks.group, Path::new("/sys/fs/cgroup/pod"));
        // The pod has less room left than its part, though the larger limit.
        let memory = found.memory.unwrap();
        assert_eq!(
            (memory.name, memory.max, memory.used),
            ("memory.max", 1_000_000, 800_000)
        );
        assert_eq!(found.cpu.unwrap().cpus, 0.5);
        assert_eq!(found.cpu_stats.len(), 1);
    }

    /// Under version 2 the groups of weak generators were made below that of jostle
    /// itself, where nobody can enter (Linux 6.1); beside it they would have escaped the
    /// limit of their host.
    #[test]
    fn a_place_for_a_group_can_be_entered_and_is_within_every_limit_on_cpu_time() {
        type Files = &'static [(&'static str, &'static str)];
        const V1_MOUNT: &str = "32 31 0:29 / /sys/fs/cgroup rw - cgroup cgroup rw,cpu\n";
        const LIMIT: &str = "50000 100000\n";
        // A service: jostle is in it, and so are no others above.
        const FREE: Files = &[
            ("a/b/cgroup.type", "domain\n"),
            ("a/b/cgroup.procs", "7\n"),
            ("a/cgroup.type", "domain\n"),
            ("a/cgroup.procs", ""),
            ("cgroup.procs", "1\n"),
        ];
        const V1_LIMIT: Files = &[
            ("a/cpu.cfs_quota_us", "50000\n"),
            ("a/cpu.cfs_period_us", "100000\n"),
            ("a/b/cgroup.procs", "7\n"),
        ];
        let table: [(&str, &str, Files, Files, &[&str]); 4] = [
            // own group, mount, files of groups, limits -> places
            ("0::/a/b\n", V2_MOUNT, FREE, &[], &["a", ""]),
            ("0::/a/b\n", V2_MOUNT, FREE, &[("a/cpu.max", LIMIT)], &["a"]),
            ("0::/a/b\n", V2_MOUNT, FREE, &[("a/b/cpu.max", LIMIT)], &[]),
            ("3:cpu:/a/b\n", V1_MOUNT, V1_LIMIT, &[], &["a/b", "a"]),
        ];
        for (own, mount, groups, limits, expected) in table {
            let inside: Vec<(String, &str)> = [groups, limits]
                .concat()
                .iter()
                .map(|(path, text)| (format!("sys/fs/cgroup/{path}"), *text))
                .collect();
            let mut files = vec![("proc/self/cgroup", own), ("proc/self/mountinfo", mount)];
            files.extend(inside.iter().map(|(path, text)| (path.as_str(), *text)));
            let root = machine(&files);
            let top = root.path().join("sys/fs/cgroup");
            let (_, places) = cpu_places_of(root.path());
            let expected: Vec<PathBuf> = expected.iter().map(|place| top.join(place)).collect();
            assert_eq!(places, expected, "{own} {limits:?}");
        }
    }

    #[test]
    fn v2_stalls_at_memory_high_before_memory_max() {
        let found = read(&[
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/memory.max", "800\n"),
            ("sys/fs/cgroup/memory.high", "700\n"),
            ("sys/fs/cgroup/memory.current", "100\n"),
        ]);
        let memory = found.memory.unwrap();
        assert_eq!((memory.name, memory.room()), ("memory.high", 600));
    }

    #[test]
    fn v1_has_a_hierarchy_for_each_controller_and_hybrid_prefers_it() {
        let found = read(&[
            (
                "proc/self/cgroup",
                "8:pids:/\n4:memory:/app/one\n3:cpuacct,cpu:/app\n0::/\n",
            ),
            (
                "proc/self/mountinfo",
                "32 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                 35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n\
                 39 31 0:36 / /cg/pids rw - cgroup cgroup rw,pids\n\
                 41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n",
            ),
            ("cg/unified/pids.max", "1\n"), // another hierarchy: binds nobody here
            ("cg/memory/app/memory.limit_in_bytes", "1000000\n"),
            ("cg/memory/app/memory.usage_in_bytes", "300000\n"),
            (
                "cg/memory/app/memory.stat",
                "inactive_file 1\ntotal_inactive_file 50000\n",
            ),
            (
                "cg/memory/app/one/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            ("cg/cpu/cpu.cfs_quota_us", "-1\n"),
            ("cg/cpu/cpu.cfs_period_us", "100000\n"),
            ("cg/cpu/app/cpu.cfs_quota_us", "150000\n"),
            ("cg/cpu/app/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(
            found.name.as_deref(),
            Some("v1 pids:/ memory:/app/one cpu:/app")
        );
        assert_eq!(found.tasks, None); // the root of a hierarchy has no limit
        let memory = found.memory.unwrap();
        assert_eq!(
            (memory.name, memory.room()),
            ("memory.limit_in_bytes", 750_000)
        );
        assert_eq!(memory.group, Path::new("/cg/memory/app"));
        let cpu = found.cpu.unwrap();
        assert_eq!((cpu.cpus, cpu.period_us), (1.5, 100_000));
    }

    #[test]
    fn where_there_are_no_control_groups_nothing_is_limited() {
        assert_eq!(read(&[]), Cgroup::default());
        let unmounted = read(&[("proc/self/cgroup", "0::/a\n")]);
        assert_eq!(unmounted.name.as_deref(), Some("v2 /a"));
        assert_eq!((unmounted.tasks, unmounted.cpu), (None, None));
    }

    #[test]
    fn throttled_periods_are_summed_over_the_groups_with_a_quota() {
        let root = machine(&[
            ("a", "nr_periods 10\nnr_throttled 4\nthrottled_time 99\n"),
            ("b", "usage_usec 5\nnr_periods 7\nnr_throttled 1\n"),
        ]);
        let files = ["a", "b", "gone"].map(|name| root.path().join(name));
        let expected = Throttled {
            periods: 17,
            throttled_periods: 5,
        };
        assert_eq!(throttled(&files), expected);
    }
}
