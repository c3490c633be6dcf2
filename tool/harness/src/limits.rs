//! The machine's limits on tasks, open files and memory: one table with three views. A point
//! that does not fit is refused (`engine/preflight/allow`), `jostle doctor` advises
//! (`engine/preflight/survey`), and `connect` forecasts where it ends (`connections/limits`).

use crate::bytes;
use jostle_sys::limits::cgroup::Bound;
use jostle_sys::limits::{Machine, Rlimit};
use std::path::Path;

/// Numbers that the kernel skips once it has counted to pid_max and starts
/// again (RESERVED_PIDS in kernel/pid.c).
const RESERVED_PIDS: u64 = 300;

/// A limit, and how much of it is used.
#[derive(Clone, Copy, Debug)]
pub struct Limit<'m> {
    /// Its name, such as `pids.max`.
    pub name: &'static str,
    /// The unit that it counts, such as `pids`.
    pub unit: &'static str,
    /// The limit.
    pub max: u64,
    /// The part that can never be used.
    pub reserved: u64,
    /// Used by all whom it binds.
    pub used: u64,
    /// Who sets it.
    pub set_by: SetBy<'m>,
}

/// Who sets a limit.
#[derive(Clone, Copy, Debug)]
pub enum SetBy<'m> {
    /// A control group, by a file of its name.
    Group(&'m Path),
    /// The kernel.
    Sysctl,
    /// The shell, up to its hard limit.
    Shell(Rlimit),
}

impl<'m> Limit<'m> {
    fn of_group(bound: &'m Bound, unit: &'static str) -> Limit<'m> {
        let set_by = SetBy::Group(&bound.group);
        Limit::new((bound.name, unit), bound.max, bound.used, set_by)
    }

    fn new(
        (name, unit): (&'static str, &'static str),
        max: u64,
        used: u64,
        set_by: SetBy<'m>,
    ) -> Limit<'m> {
        Limit {
            name,
            unit,
            max,
            reserved: 0,
            used,
            set_by,
        }
    }

    /// The rest before it is reached.
    pub fn room(&self) -> u64 {
        let used = self.used.saturating_add(self.reserved);
        self.max.saturating_sub(used)
    }

    /// With its owner.
    pub fn owned(&self) -> String {
        match self.set_by {
            SetBy::Group(_) => format!("the cgroup's {}", self.name),
            SetBy::Sysctl => self.name.to_owned(),
            SetBy::Shell(_) => format!("{} of this user", self.name),
        }
    }

    /// So many, as people read them.
    pub fn amount(&self, n: u64) -> String {
        match self.unit {
            "of memory" => bytes(n),
            _ => n.to_string(),
        }
    }

    /// How to make room for `more`.
    pub fn remedy(&self, more: u64) -> String {
        let to = self.used.saturating_add(more).saturating_add(self.reserved);
        let raise = |command: String| format!("raise it (`{command}` as root)");
        match self.set_by {
            SetBy::Group(group) => raise(format!("echo {to} > {}/{}", group.display(), self.name)),
            SetBy::Sysctl => raise(format!("sysctl -w {}={to}", self.name)),
            SetBy::Shell(limit) => raise_rlimit("-u", "--nproc", limit.hard, to),
        }
    }
}

/// How to raise a resource limit: by oneself up to the hard limit, beyond it
/// only as root.
pub fn raise_rlimit(flag: &str, option: &str, hard: Option<u64>, to: u64) -> String {
    match hard {
        Some(hard) if hard < to => {
            format!("its hard limit is {hard}: raise it as root (`prlimit --pid $$ {option}={to}`)")
        }
        _ => format!("`ulimit {flag} {to}`"),
    }
}

/// The tightest limit on tasks: what fits it fits them all.
pub fn tasks(machine: &Machine) -> Option<Limit<'_>> {
    let (kernel, own) = (&machine.kernel, machine.rlimits.tasks);
    let sysctl = |of, max: u64| Limit::new(of, max, kernel.tasks.unwrap_or(0), SetBy::Sysctl);
    let all = [
        (machine.cgroup.tasks.as_ref()).map(|bound| Limit::of_group(bound, "pids")),
        kernel.pid_max.map(|max| Limit {
            reserved: RESERVED_PIDS,
            ..sysctl(("kernel.pid_max", "pids"), max)
        }),
        (kernel.threads_max).map(|max| sysctl(("kernel.threads-max", "tasks"), max)),
        (machine.user_tasks.zip(own.soft))
            .map(|(used, max)| Limit::new(("RLIMIT_NPROC", "tasks"), max, used, SetBy::Shell(own))),
    ];
    all.into_iter().flatten().min_by_key(Limit::room)
}

/// Open files of the whole machine; holders of CAP_SYS_ADMIN are not bound
/// (alloc_empty_file() in fs/file_table.c).
pub fn files(machine: &Machine) -> Option<Limit<'_>> {
    let max = machine.kernel.file_max;
    let max = max.filter(|_| !machine.status.sys_admin)?;
    let used = machine.kernel.files.unwrap_or(0);
    let of = ("fs.file-max", "open files");
    Some(Limit::new(of, max, used, SetBy::Sysctl))
}

/// Memory of the control group.
pub fn memory(machine: &Machine) -> Option<Limit<'_>> {
    let bound = machine.cgroup.memory.as_ref();
    bound.map(|bound| Limit::of_group(bound, "of memory"))
}
