//! One reading of every limit and setting that can make a measurement fail or
//! distort it: what this process may use, and on which machine.
//!
//! [`Machine::read`] gathers it from /proc, /sys and a few system calls, and
//! never fails: what a kernel does not offer, or a container hides, is absent.
//! Pure functions in [`text`] parse the texts; [`cgroup`] reads the control
//! groups. This module does not judge: its callers decide which of these
//! figures matter, and what to do about them.

pub mod cgroup;
pub mod cpu_group;
pub mod net;
pub mod other_group;
pub mod settings;
pub mod text;

use crate::stat::MachineTicks;
use cgroup::Cgroup;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::path::Path;
use text::{Memory, Semaphores, Status};

/// One resource limit of this process; None means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rlimit {
    /// The limit that binds now.
    pub soft: Option<u64>,
    /// How far the process may raise it by itself.
    pub hard: Option<u64>,
}

impl Rlimit {
    fn read(resource: Resource) -> Rlimit {
        let limit = getrlimit(resource);
        Rlimit {
            soft: limit.current,
            hard: limit.maximum,
        }
    }
}

/// The resource limits that workers can run into (getrlimit(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rlimits {
    /// RLIMIT_NOFILE: descriptors of one process.
    pub descriptors: Rlimit,
    /// RLIMIT_NPROC: tasks of this user, threads included.
    pub tasks: Rlimit,
    /// RLIMIT_FSIZE: bytes of one file; shared memory is a file to the kernel.
    pub file_bytes: Rlimit,
    /// RLIMIT_AS: address space of one process.
    pub address_space_bytes: Rlimit,
    /// RLIMIT_CPU: seconds of CPU time, after which the kernel kills.
    pub cpu_s: Rlimit,
}

/// The kernel's own limits, and how much of each is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// kernel.pid_max: process and thread numbers.
    pub pid_max: Option<u64>,
    /// kernel.threads-max: tasks of the whole machine.
    pub threads_max: Option<u64>,
    /// Tasks that exist on the whole machine.
    pub tasks: Option<u64>,
    /// fs.file-max: open files of the whole machine.
    pub file_max: Option<u64>,
    /// Files open on the whole machine.
    pub files: Option<u64>,
    /// fs.nr_open: how far RLIMIT_NOFILE can be raised at all.
    pub nr_open: Option<u64>,
    /// kernel.sem: limits on System V semaphores in this IPC namespace.
    pub semaphores: Option<Semaphores>,
    /// Sets of semaphores in this IPC namespace.
    pub semaphore_sets_used: u64,
    /// Semaphores in those sets.
    pub semaphores_used: u64,
}

/// The processors, their clock and their speed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cpus {
    /// As the kernel names it; the machine type where it does not.
    pub model: String,
    /// CPUs that are online.
    pub online: Vec<usize>,
    /// CPUs that this process may use.
    pub allowed: Vec<usize>,
    /// All hardware threads but the first of each core: without them each core has one.
    pub siblings: Vec<usize>,
    /// Whether the time stamp counter runs at one rate in every state; None on
    /// a processor that has none.
    pub invariant_tsc: Option<bool>,
    /// Whether a hypervisor announces itself.
    pub hypervisor: bool,
    /// Frequency governor of the first allowed CPU.
    pub governor: Option<String>,
    /// The kernel's clock source.
    pub clock_source: Option<String>,
    /// Clock sources that it could use instead.
    pub clock_sources: Vec<String>,
    /// How CPU time is accounted: `exact`, or the ticks that sample it.
    pub accounting: String,
}

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// `uname -sr`.
    pub kernel_release: String,
    /// The C library in use, such as `glibc 2.36`.
    pub libc: String,
    /// The user that runs this, and its rights.
    pub status: Status,
    /// Tasks of this user; absent where RLIMIT_NPROC does not bind it.
    pub user_tasks: Option<u64>,
    /// Resource limits.
    pub rlimits: Rlimits,
    /// The kernel's limits.
    pub kernel: Kernel,
    /// Limits of the control group.
    pub cgroup: Cgroup,
    /// The processors.
    pub cpus: Cpus,
    /// Settings that move what locks and wake-ups cost, by name.
    pub settings: BTreeMap<String, String>,
    /// Memory; absent without /proc.
    pub memory: Option<Memory>,
    /// CPU time since boot.
    pub ticks: Option<MachineTicks>,
    /// Mean number of runnable tasks over the last minute.
    pub load: Option<f64>,
    /// Since boot, in seconds.
    pub uptime_s: Option<f64>,
    /// How late the kernel may end this thread's sleeps.
    pub timer_slack_ns: Option<u64>,
    /// Size of /dev/shm; absent if nothing is mounted there.
    pub shm_bytes: Option<u64>,
    /// Whether this process may make an IPC namespace of its own.
    pub private_ipc: bool,
    /// The limits of sockets.
    pub net: net::Net,
}

impl Machine {
    /// Reads it all. Takes a few milliseconds; for a user whom RLIMIT_NPROC
    /// binds also a look at every process.
    pub fn read() -> Machine {
        let uname = rustix::system::uname();
        let status = slurp("/proc/self/status").map_or_else(Status::default, |t| text::status(&t));
        let rlimits = rlimits();
        let counted = rlimits.tasks.soft.is_some() && !status.exempt_from_nproc();
        let loadavg = slurp("/proc/loadavg");
        let cpus = cpus(
            &uname.machine().to_string_lossy(),
            &uname.release().to_string_lossy(),
        );
        Machine {
            host: uname.nodename().to_string_lossy().into_owned(),
            kernel_release: format!(
                "{} {}",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy()
            ),
            libc: libc_version(),
            user_tasks: counted.then(|| tasks_of(status.uid)),
            rlimits,
            kernel: kernel(loadavg.as_deref()),
            cgroup: Cgroup::read(Path::new("/")),
            settings: settings::read(&uname.version().to_string_lossy(), cpus.hypervisor),
            cpus,
            memory: slurp("/proc/meminfo").and_then(|t| text::memory(&t)),
            ticks: crate::stat::machine_ticks().ok(),
            load: loadavg.as_deref().and_then(|t| text::field(t, 0)),
            uptime_s: slurp("/proc/uptime").and_then(|t| text::field(&t, 0)),
            timer_slack_ns: rustix::thread::current_timer_slack().ok(),
            shm_bytes: shm_bytes(),
            private_ipc: status.sys_admin && Path::new("/proc/self/ns/ipc").exists(),
            net: net::Net::read(),
            status,
        }
    }
}

/// The text of a small file of the kernel, without the newline at its end.
fn slurp(path: impl AsRef<Path>) -> Option<String> {
    let text = read_to_string(path).ok()?;
    Some(text.trim_end().to_owned())
}

fn number(path: &str) -> Option<u64> {
    text::field(&slurp(path)?, 0)
}

fn rlimits() -> Rlimits {
    Rlimits {
        descriptors: Rlimit::read(Resource::Nofile),
        tasks: Rlimit::read(Resource::Nproc),
        file_bytes: Rlimit::read(Resource::Fsize),
        address_space_bytes: Rlimit::read(Resource::As),
        cpu_s: Rlimit::read(Resource::Cpu),
    }
}

fn kernel(loadavg: Option<&str>) -> Kernel {
    let sets = slurp("/proc/sysvipc/sem").map(|t| text::semaphores_used(&t));
    let (semaphore_sets_used, semaphores_used) = sets.unwrap_or_default();
    Kernel {
        pid_max: number("/proc/sys/kernel/pid_max"),
        threads_max: number("/proc/sys/kernel/threads-max"),
        tasks: loadavg.and_then(text::tasks),
        file_max: number("/proc/sys/fs/file-max"),
        files: slurp("/proc/sys/fs/file-nr").and_then(|t| text::files_open(&t)),
        nr_open: number("/proc/sys/fs/nr_open"),
        semaphores: slurp("/proc/sys/kernel/sem").and_then(|t| text::semaphores(&t)),
        semaphore_sets_used,
        semaphores_used,
    }
}

fn cpus(machine: &str, release: &str) -> Cpus {
    const SYS: &str = "/sys/devices/system";
    let info = slurp("/proc/cpuinfo").unwrap_or_default();
    let allowed = crate::cpu::allowed();
    let online = slurp(format!("{SYS}/cpu/online")).and_then(|t| text::cpu_list(&t));
    let cores: Vec<Vec<usize>> = allowed
        .iter()
        .filter_map(|cpu| slurp(format!("{SYS}/cpu/cpu{cpu}/topology/thread_siblings_list")))
        .filter_map(|t| text::cpu_list(&t))
        .collect();
    let first = allowed.first().copied().unwrap_or(0);
    let sources = slurp(format!(
        "{SYS}/clocksource/clocksource0/available_clocksource"
    ));
    Cpus {
        model: text::cpu_model(&info).unwrap_or_else(|| machine.to_owned()),
        siblings: text::siblings(&allowed, &cores),
        online: online.unwrap_or_else(|| allowed.clone()),
        invariant_tsc: text::invariant_tsc(&info),
        hypervisor: text::cpu_flag(&info, "hypervisor"),
        governor: slurp(format!("{SYS}/cpu/cpu{first}/cpufreq/scaling_governor")),
        clock_source: slurp(format!(
            "{SYS}/clocksource/clocksource0/current_clocksource"
        )),
        clock_sources: sources
            .map(|t| t.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default(),
        accounting: text::accounting(
            &slurp(format!("/boot/config-{release}")).unwrap_or_default(),
            &slurp(format!("{SYS}/cpu/nohz_full")).unwrap_or_default(),
            tick_ns(),
        ),
        allowed,
    }
}

/// Length of a tick: the coarse clock moves once with each.
pub fn tick_ns() -> u64 {
    let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    tick.tv_sec as u64 * 1_000_000_000 + tick.tv_nsec as u64
}

/// Tasks of user `uid` that this process can see. Processes that end during
/// the count are missed, others may have come: an estimate by nature.
fn tasks_of(uid: u32) -> u64 {
    crate::census::processes()
        .into_iter()
        .filter_map(|pid| slurp(format!("/proc/{pid}/status")))
        .map(|t| text::status(&t))
        .filter(|status| status.uid == uid)
        .map(|status| status.threads)
        .sum()
}

fn shm_bytes() -> Option<u64> {
    let mounts = slurp("/proc/self/mountinfo")?;
    if !text::is_mount_point(&mounts, "/dev/shm") {
        return None;
    }
    let shm = rustix::fs::statvfs("/dev/shm").ok()?;
    Some(shm.f_blocks.saturating_mul(shm.f_frsize))
}

#[cfg(target_env = "gnu")]
pub(crate) fn libc_version() -> String {
    // SAFETY: the function returns a static string with a zero at its end.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

#[cfg(not(target_env = "gnu"))]
pub(crate) fn libc_version() -> String {
    if cfg!(target_env = "musl") {
        "musl".to_owned()
    } else {
        "unknown".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_read_and_makes_sense() {
        let machine = Machine::read();
        assert!(machine.kernel_release.starts_with("Linux "));
        assert!(!machine.cpus.model.is_empty());
        assert!(!machine.cpus.allowed.is_empty());
        assert!(machine.cpus.siblings.len() < machine.cpus.allowed.len());
        assert!(
            machine
                .cpus
                .allowed
                .iter()
                .all(|c| machine.cpus.online.contains(c))
        );
        let memory = machine.memory.expect("/proc/meminfo");
        assert!(memory.available_bytes <= memory.total_bytes && memory.available_bytes > 0);
        assert!(machine.uptime_s.expect("/proc/uptime") > 0.0);
        assert!(machine.kernel.tasks.expect("/proc/loadavg") > 0);
        assert!(machine.timer_slack_ns.is_some());
        assert_eq!(machine.status.uid, rustix::process::getuid().as_raw());
        if let Some(room) = machine.cgroup.tasks.as_ref().map(cgroup::Bound::room) {
            assert!(room > 0, "this test itself runs");
        }
    }

    #[test]
    fn a_user_s_tasks_include_this_process_and_its_threads() {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let helper = std::thread::spawn(move || wait.recv());
        assert!(tasks_of(rustix::process::getuid().as_raw()) >= 2);
        drop(go);
        let _ = helper.join();
    }
}
