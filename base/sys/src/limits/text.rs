//! Parsers of the kernel's texts: pure functions from the text of files in
//! /proc and /sys to figures. A line that is missing or has another form gives
//! None (or the empty value), never an error: kernels and containers differ.

/// A field of a text in columns, by its number.
pub fn field<T: std::str::FromStr>(text: &str, at: usize) -> Option<T> {
    text.split_whitespace().nth(at)?.parse().ok()
}

/// The text after `name:` in a file of such lines (/proc/cpuinfo, status,
/// meminfo), from the first line that has it.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    })
}

/// The kernel's list of CPUs, such as `0-3,8`. None if it is empty or wrong.
pub fn cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || last > 65_535 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// A process by its /proc/PID/status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Real user, whom RLIMIT_NPROC counts.
    pub uid: u32,
    /// Effective user.
    pub euid: u32,
    /// Threads.
    pub threads: u64,
    /// CAP_SYS_ADMIN is effective.
    pub sys_admin: bool,
    /// CAP_SYS_RESOURCE is effective.
    pub sys_resource: bool,
}

impl Status {
    /// Whether fork(2) looks past RLIMIT_NPROC: for root, and for holders of
    /// CAP_SYS_RESOURCE or CAP_SYS_ADMIN (copy_process() in kernel/fork.c).
    pub(crate) fn exempt_from_nproc(&self) -> bool {
        self.uid == 0 || self.sys_resource || self.sys_admin
    }
}

/// Reads /proc/PID/status.
pub fn status(text: &str) -> Status {
    // Bits of capabilities(7).
    const SYS_ADMIN: u64 = 1 << 21;
    const SYS_RESOURCE: u64 = 1 << 24;
    let uid = value(text, "Uid").unwrap_or_default();
    let rights = value(text, "CapEff").and_then(|v| u64::from_str_radix(v, 16).ok());
    let rights = rights.unwrap_or(0);
    Status {
        uid: field(uid, 0).unwrap_or(u32::MAX),
        euid: field(uid, 1).unwrap_or(u32::MAX),
        threads: value(text, "Threads")
            .and_then(|v| v.parse().ok())
            .unwrap_or(0),
        sys_admin: rights & SYS_ADMIN != 0,
        sys_resource: rights & SYS_RESOURCE != 0,
    }
}

/// The memory by /proc/meminfo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// MemTotal.
    pub total_bytes: u64,
    /// MemAvailable: what can be had without swapping.
    pub available_bytes: u64,
    /// SwapTotal - SwapFree.
    pub swap_used_bytes: u64,
}

/// The size that a line of /proc/meminfo, /proc/PID/status or /proc/PID/smaps_rollup gives
/// in KiB.
pub(crate) fn bytes(text: &str, name: &str) -> Option<u64> {
    Some(field::<u64>(value(text, name)?, 0)? * 1024)
}

/// Reads /proc/meminfo.
pub fn memory(text: &str) -> Option<Memory> {
    let bytes = |name| bytes(text, name);
    let total_bytes = bytes("MemTotal")?;
    Some(Memory {
        total_bytes,
        available_bytes: bytes("MemAvailable")?,
        swap_used_bytes: bytes("SwapTotal")
            .unwrap_or(0)
            .saturating_sub(bytes("SwapFree").unwrap_or(0)),
    })
}

/// The four figures of kernel.sem (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Semaphores {
    /// SEMMSL: most semaphores of one set.
    pub per_set: u64,
    /// SEMMNS: most semaphores in all.
    pub in_all: u64,
    /// SEMMNI: most sets.
    pub sets: u64,
}

/// Reads /proc/sys/kernel/sem.
pub fn semaphores(text: &str) -> Option<Semaphores> {
    Some(Semaphores {
        per_set: field(text, 0)?,
        in_all: field(text, 1)?,
        sets: field(text, 3)?,
    })
}

/// Sets, and semaphores in them, from /proc/sysvipc/sem.
pub fn semaphores_used(text: &str) -> (u64, u64) {
    // key semid perms nsems ...
    let lines = text.lines();
    let in_sets: Vec<u64> = lines.skip(1).filter_map(|line| field(line, 3)).collect();
    (in_sets.len() as u64, in_sets.iter().sum())
}

/// Tasks of the whole machine: the second half of `1/86` in /proc/loadavg.
pub fn tasks(loadavg: &str) -> Option<u64> {
    let (_, all) = loadavg.split_whitespace().nth(3)?.split_once('/')?;
    all.parse().ok()
}

/// Open files from /proc/sys/fs/file-nr: allocated less free.
pub(crate) fn files_open(text: &str) -> Option<u64> {
    Some(field::<u64>(text, 0)?.saturating_sub(field(text, 1)?))
}

/// The processor's name in /proc/cpuinfo; the key differs by architecture.
pub fn cpu_model(info: &str) -> Option<String> {
    [
        "model name",
        "Model",
        "cpu model",
        "cpu",
        "Hardware",
        "Processor",
    ]
    .into_iter()
    .filter_map(|key| value(info, key))
    .find(|name| !name.is_empty())
    .map(str::to_owned)
}

/// Whether /proc/cpuinfo lists a flag for the first processor.
pub(crate) fn cpu_flag(info: &str, flag: &str) -> bool {
    value(info, "flags").is_some_and(|flags| flags.split_whitespace().any(|f| f == flag))
}

/// Whether the time stamp counter keeps one rate in all power states; None
/// where the processor has none. The kernel's `nonstop_tsc` is set from the
/// invariant bit (CPUID 80000007H:EDX\[8\]), as `constant_tsc` then is.
pub fn invariant_tsc(info: &str) -> Option<bool> {
    cpu_flag(info, "tsc").then(|| cpu_flag(info, "constant_tsc") && cpu_flag(info, "nonstop_tsc"))
}

/// Those of the `allowed` CPUs that share a core with an earlier one; `cores` lists the
/// hardware threads of each CPU's core.
pub fn siblings(allowed: &[usize], cores: &[Vec<usize>]) -> Vec<usize> {
    let shares = |cpu: usize| {
        cores.iter().any(|core| {
            let mut mates = allowed.iter().filter(|mate| core.contains(mate));
            core.contains(&cpu) && mates.next().is_some_and(|first| *first != cpu)
        })
    };
    allowed.iter().copied().filter(|cpu| shares(*cpu)).collect()
}

/// How the kernel accounts CPU time to user and system: `exact` where it
/// stamps every entry (architectures that always do, and CPUs in nohz_full
/// mode), else the ticks that sample it. `config` is the kernel's configuration
/// where that is readable; `tick_ns` is the length of a tick.
pub fn accounting(config: &str, nohz_full: &str, tick_ns: u64) -> String {
    let native = config
        .lines()
        .any(|line| line.trim() == "CONFIG_VIRT_CPU_ACCOUNTING_NATIVE=y");
    if native || cpu_list(nohz_full).is_some() {
        return "exact".to_owned();
    }
    let per_s = 1e9 / tick_ns.max(1) as f64;
    format!("sampled, {per_s:.0} ticks/s")
}

/// Whether something is mounted exactly at `point` (/proc/self/mountinfo).
pub(crate) fn is_mount_point(mountinfo: &str, point: &str) -> bool {
    mountinfo
        .lines()
        .any(|line| line.split_whitespace().nth(4) == Some(point))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_s_status_gives_user_threads_and_rights() {
        let root = "Name:\tbash\nUid:\t0\t0\t0\t0\nThreads:\t1\nCapEff:\t000001fffeffffff\n";
        let docker_root = "Uid:\t0\t0\t0\t0\nThreads:\t3\nCapEff:\t00000000a80425fb\n";
        let user = "Uid:\t1000\t1001\t1000\t1000\nThreads:\t4\nCapEff:\t0000000000000000\n";
        let manager = "Uid:\t1000\t1000\t1000\t1000\nThreads:\t1\nCapEff:\t0000000001000000\n";
        let table = [
            // text, (uid, euid, threads), (sys_admin, sys_resource), exempt
            (root, (0, 0, 1), (true, false), true),
            (docker_root, (0, 0, 3), (false, false), true),
            (user, (1000, 1001, 4), (false, false), false),
            (manager, (1000, 1000, 1), (false, true), true),
            ("", (u32::MAX, u32::MAX, 0), (false, false), false),
        ];
        for (text, (uid, euid, threads), (sys_admin, sys_resource), exempt) in table {
            let found = status(text);
            let expected = Status {
                uid,
                euid,
                threads,
                sys_admin,
                sys_resource,
            };
            assert_eq!(found, expected, "{text}");
            assert_eq!(found.exempt_from_nproc(), exempt, "{text}");
        }
    }

    #[test]
    fn memory_is_read_in_bytes_and_swap_as_used() {
        let text = "MemTotal:       24683988 kB\nMemFree:  1 kB\nMemAvailable:   24348000 kB\n\
                    SwapTotal:  2000 kB\nSwapFree: 1500 kB\n";
        let expected = Memory {
            total_bytes: 24_683_988 * 1024,
            available_bytes: 24_348_000 * 1024,
            swap_used_bytes: 500 * 1024,
        };
        assert_eq!(memory(text), Some(expected));
        assert_eq!(memory("MemTotal: 5 kB\n"), None); // before Linux 3.14
        assert_eq!(memory("MemTotal: lots\nMemAvailable: 1 kB\n"), None);
    }

    #[test]
    fn semaphores_are_limited_and_counted() {
        let limits = semaphores("32000\t1024000000\t500\t32000");
        let expected = Semaphores {
            per_set: 32_000,
            in_all: 1_024_000_000,
            sets: 32_000,
        };
        assert_eq!(limits, Some(expected));
        assert_eq!(semaphores("1 2 3"), None);
        let header = "       key      semid perms      nsems   uid   gid\n";
        let two = "         0          0   600         10     0     0\n  5  3   600   7  0  0\n";
        assert_eq!(semaphores_used(header), (0, 0));
        assert_eq!(semaphores_used(&format!("{header}{two}")), (2, 17));
        assert_eq!(semaphores_used(""), (0, 0));
    }

    #[test]
    fn tasks_and_open_files_come_from_their_columns() {
        assert_eq!(tasks("0.00 0.02 0.00 1/86 5504"), Some(86));
        assert_eq!(tasks("0.00 0.02"), None);
        assert_eq!(files_open("448\t8\t2466183"), Some(440));
        assert_eq!(files_open(""), None);
        assert_eq!(field::<f64>("0.25 0.02 0.00 1/86 5504", 0), Some(0.25));
    }

    #[test]
    fn the_processor_is_named_whatever_the_architecture_calls_it() {
        let x86 = "processor\t: 0\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n\
                   flags\t\t: fpu tsc constant_tsc nonstop_tsc hypervisor\n";
        let old = "model name : Pentium 4\nflags : fpu tsc constant_tsc\n";
        let pi = "processor\t: 0\nBogoMIPS\t: 108.00\n\nModel\t\t: Raspberry Pi 4\n";
        let power = "processor\t: 0\ncpu\t\t: POWER9\n";
        let table = [
            (x86, Some("AMD EPYC"), Some(true), true),
            (old, Some("Pentium 4"), Some(false), false), // stops in deep sleep
            (pi, Some("Raspberry Pi 4"), None, false),
            (power, Some("POWER9"), None, false),
            ("", None, None, false),
        ];
        for (text, model, invariant, hypervisor) in table {
            assert_eq!(cpu_model(text).as_deref(), model, "{text}");
            assert_eq!(invariant_tsc(text), invariant, "{text}");
            assert_eq!(cpu_flag(text, "hypervisor"), hypervisor, "{text}");
        }
    }

    #[test]
    fn siblings_are_all_but_the_first_thread_of_each_core() {
        let table = [
            // allowed, hardware threads of each CPU's core, expected
            (vec![0, 1], vec![vec![0], vec![1]], vec![]),
            (vec![0, 1], vec![vec![0, 1], vec![0, 1]], vec![1]),
            (vec![0, 1, 2, 3], vec![vec![0, 2], vec![1, 3]], vec![2, 3]),
            (vec![2, 3], vec![vec![0, 2], vec![1, 3]], vec![]), // mates not allowed
            (vec![0, 1], vec![], vec![]),                       // no topology shown
        ];
        for (allowed, cores, expected) in table {
            assert_eq!(
                siblings(&allowed, &cores),
                expected,
                "{allowed:?} {cores:?}"
            );
        }
    }

    #[test]
    fn accounting_is_exact_only_where_entries_are_stamped() {
        let table = [
            ("CONFIG_TICK_CPU_ACCOUNTING=y", "", "sampled, 250 ticks/s"),
            ("", "(null)", "sampled, 250 ticks/s"), // nohz_full built, not used
            ("", "2-7", "exact"),
            ("CONFIG_VIRT_CPU_ACCOUNTING_NATIVE=y", "", "exact"),
        ];
        for (config, nohz, expected) in table {
            assert_eq!(
                accounting(config, nohz, 4_000_000),
                expected,
                "{config} {nohz}"
            );
        }
    }

    #[test]
    fn lists_of_cpus_read_as_the_kernel_writes_them() {
        assert_eq!(cpu_list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(cpu_list("5"), Some(vec![5]));
        for sad in ["", "(null)", "3-1", "0-99999999"] {
            assert_eq!(cpu_list(sad), None, "{sad}");
        }
    }

    #[test]
    fn only_the_exact_mount_point_counts() {
        let mounts =
            "24 23 0:20 / /dev/shm rw - tmpfs tmpfs rw\n25 23 0:21 / /dev rw - devtmpfs d rw";
        assert!(is_mount_point(mounts, "/dev/shm"));
        assert!(!is_mount_point(mounts, "/dev/sh"));
    }
}
