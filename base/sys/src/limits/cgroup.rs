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
    /// The interface's version.
    pub version: Version,
    /// Controllers of a version 1 hierarchy; empty for version 2.
    pub controllers: Vec<String>,
    /// The group, from the root of the hierarchy.
    pub path: String,
}

/// A mounted hierarchy, from /proc/self/mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The interface's version.
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
    /// The rest before the limit.
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

/// The limits of control groups; one that nothing sets is None.
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
        let (_, tasks_groups) = groups_of(root, "self", "pids");
        let (memory_version, memory_groups) = groups_of(root, "self", "memory");
        Cgroup {
            name: name(&memberships(&text(root, "proc/self/cgroup"))),
            tasks: tightest(&tasks_groups, tasks),
            memory: tightest(&memory_groups, |group| memory(memory_version, group)),
            cpu: tightest_quota(root, "self"),
            cpu_stats: cpu_stats(root, "self"),
        }
    }
}

fn text(root: &Path, path: &str) -> String {
    std::fs::read_to_string(root.join(path)).unwrap_or_default()
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
    let mut limited = places.iter();
    let limited = limited.position(|group| quota(version, group).is_some());
    places.truncate(limited.map_or(usize::MAX, |at| at + 1));
    // The root has no type.
    let has_processes = |group: &Path| {
        group.join("cgroup.type").exists()
            && slurp(group, "cgroup.procs").is_none_or(|text| !text.trim().is_empty())
    };
    places.retain(|group| version == Version::V1 || !has_processes(group));
    (version, places)
}

/// This process's own group in the hierarchy that has the cpu controller.
pub(crate) fn own_cpu_group() -> Option<PathBuf> {
    let (_, groups) = groups_of(Path::new("/"), "self", "cpu");
    groups.into_iter().next()
}

/// The tightest limit on the CPU time of another process; None without any.
pub fn cpu_quota_of(pid: u32) -> Option<Quota> {
    tightest_quota(Path::new("/"), &pid.to_string())
}

fn tightest_quota(root: &Path, process: &str) -> Option<Quota> {
    let (version, groups) = groups_of(root, process, "cpu");
    let quotas = groups.iter().filter_map(|group| quota(version, group));
    quotas.min_by(|a, b| a.cpus.total_cmp(&b.cpus))
}

fn groups_of(root: &Path, process: &str, controller: &str) -> (Version, Vec<PathBuf>) {
    groups(
        root,
        &memberships(&text(root, &format!("proc/{process}/cgroup"))),
        &mounts(&text(root, "proc/self/mountinfo")),
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

/// Whether the freezer keeps another process from running, by its own group or one above.
pub fn is_frozen(pid: u32) -> bool {
    is_frozen_below(Path::new("/"), &pid.to_string())
}

fn is_frozen_below(root: &Path, process: &str) -> bool {
    let (version, groups) = groups_of(root, process, "freezer");
    // The state of a group is that of the groups above, too.
    let read = |file: &str| slurp(groups.first()?, file);
    match version {
        Version::V1 => read("freezer.state").is_some_and(|state| state.trim() != "THAWED"),
        Version::V2 => read("cgroup.events").is_some_and(|text| keyed(&text, "frozen") == Some(1)),
    }
}

/// The cpu.stat of each group of another process that has a quota, its parents included.
pub fn cpu_stats_of(pid: u32) -> Vec<PathBuf> {
    cpu_stats(Path::new("/"), &pid.to_string())
}

fn cpu_stats(root: &Path, process: &str) -> Vec<PathBuf> {
    let (version, mut groups) = groups_of(root, process, "cpu");
    groups.retain(|group| quota(version, group).is_some());
    groups.iter().map(|group| group.join("cpu.stat")).collect()
}

/// For how long the quota behind such a file has kept its group from running so far, in
/// nanoseconds, summed over CPUs.
pub fn throttled_ns(cpu_stat: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(cpu_stat).ok()?;
    keyed(&text, "throttled_time").or_else(|| keyed(&text, "throttled_usec").map(|us| us * 1_000))
}

/// The file with the count of [`oom_killed`] of another process's own group.
pub fn oom_events_of(pid: u32) -> Option<PathBuf> {
    oom_events(Path::new("/"), &pid.to_string())
}

fn oom_events(root: &Path, process: &str) -> Option<PathBuf> {
    let (version, groups) = groups_of(root, process, "memory");
    let file = match version {
        Version::V1 => "memory.oom_control",
        Version::V2 => "memory.events",
    };
    let file = groups.first()?.join(file);
    oom_killed(&file).map(|_| file)
}

/// How many processes of such a group the kernel has killed so far for want of memory.
pub fn oom_killed(events: &Path) -> Option<u64> {
    keyed(&std::fs::read_to_string(events).ok()?, "oom_kill")
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
    let groups = groups.iter().filter_map(|group| read(group));
    groups.min_by_key(Bound::room)
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
    let used = slurp(group, usage).and_then(|t| field(&t, 0));
    let used = used.unwrap_or(0u64);
    let droppable = slurp(group, "memory.stat").and_then(|t| keyed(&t, cache));
    let droppable = droppable.unwrap_or(0);
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
mod tests;
