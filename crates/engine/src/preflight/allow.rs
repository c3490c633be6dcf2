//! Whether a point fits this machine. A refusal names the limit, what is
//! needed, what is there, and what to do; it comes before anything has started,
//! since a fork that fails at worker 480 of 1000 leaves only a mess to explain.

use super::bytes;
use jostle_model::plan::Carrier;
use jostle_sys::limits::Machine;
use jostle_sys::limits::text::Semaphores;

/// What a point takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Workers that exist at the same time; of several hosts, one host's.
    pub workers: u64,
    /// The option that says how many there are in all.
    pub option: &'static str,
    /// Hosts among which they are dealt.
    pub hosts: u64,
    /// Of these, how many ranks this machine carries.
    pub ranks: u64,
    /// What carries them.
    pub carrier: Carrier,
    /// Threads that carry tasks.
    pub generator_threads: u64,
    /// Descriptors that each worker opens for itself.
    pub descriptors_each: u64,
    /// System V semaphores, in one set; 0 for targets that use none.
    pub semaphores: u64,
    /// Memory that each worker takes, its shared pages included.
    pub memory_each_bytes: u64,
    /// The largest block of memory shared by all; the kernel counts it as the
    /// size of a file.
    pub shared_bytes: u64,
}

/// Why a point cannot run here, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// The limit's name, such as `pids.max` or `RLIMIT_NOFILE`.
    pub limit: &'static str,
    /// The whole sentence.
    pub text: String,
}

/// Tasks of jostle itself beside the workers: the keeper, and a spare one.
const OWN_TASKS: u64 = 2;

/// Descriptors of a worker beside its target's: the three standard ones, pipes,
/// shared memory, and what a parent may have left open.
const OWN_DESCRIPTORS: u64 = 32;

/// Address space of a process beside the memory shared by all: a worker was
/// seen to have 16 MiB, stack and libraries included.
const OWN_ADDRESS_SPACE: u64 = 32 << 20;

/// Numbers that the kernel skips once it has counted to pid_max and starts
/// again (RESERVED_PIDS in kernel/pid.c).
const RESERVED_PIDS: u64 = 300;

/// What a fresh IPC namespace allows (SEMMSL, SEMMNS, SEMMNI in linux/sem.h).
const FRESH_NAMESPACE: Semaphores = Semaphores {
    per_set: 32_000,
    in_all: 1_024_000_000,
    sets: 32_000,
};

/// Whether a point with this need fits the machine as it is now.
///
/// # Errors
/// The first limit that it does not fit.
pub fn allow(need: &Need) -> Result<(), Refusal> {
    fits(need, &Machine::read())
}

/// The same for a machine that has been read already.
///
/// # Errors
/// As [`allow`].
pub fn fits(need: &Need, machine: &Machine) -> Result<(), Refusal> {
    let checks = [
        tasks,
        descriptors,
        files,
        semaphores,
        memory,
        shared_memory,
        address_space,
    ];
    checks.iter().try_for_each(|check| check(need, machine))
}

impl Need {
    /// `10000 worker processes`.
    fn carriers(&self) -> String {
        match (self.workers, self.carrier) {
            (1, Carrier::Processes) => "1 worker process".to_owned(),
            (1, Carrier::Threads) => "1 worker thread".to_owned(),
            (1, Carrier::Tasks) => "1 task".to_owned(),
            (n, Carrier::Tasks) => format!("{n} tasks"),
            (n, carrier) => format!("{n} worker {carrier}"),
        }
    }

    /// `10000 worker processes need`, of one rank.
    fn opening(&self) -> String {
        let needs = if self.workers == 1 { "needs" } else { "need" };
        format!("{} {needs}", self.carriers())
    }

    /// The same of all ranks of this machine.
    fn opening_of_all(&self) -> String {
        match self.ranks {
            1 => self.opening(),
            ranks => format!("{ranks} ranks with {} each need", self.carriers()),
        }
    }

    /// `, or -w at most 480`, unless not even one would fit. `at_most`: of one host.
    fn or_fewer(&self, at_most: u64) -> String {
        match at_most.min(self.workers.saturating_sub(1)) {
            0 => String::new(),
            n => format!(", or {} at most {}", self.option, n * self.hosts),
        }
    }
}

/// A limit on the number of tasks.
struct TaskLimit {
    limit: &'static str,
    owner: &'static str,
    unit: &'static str,
    max: u64,
    used: u64,
    /// Of `max`, what can never be used.
    reserved: u64,
    remedy: String,
}

impl TaskLimit {
    fn room(&self) -> u64 {
        self.max
            .saturating_sub(self.used)
            .saturating_sub(self.reserved)
    }
}

/// Every limit on tasks that binds this process; `more` is what is to come.
fn task_limits(machine: &Machine, more: u64) -> Vec<TaskLimit> {
    let used = machine.kernel.tasks.unwrap_or(0);
    let mut limits = Vec::new();
    if let Some(bound) = &machine.cgroup.tasks {
        let (group, to) = (bound.group.display(), bound.used + more);
        limits.push(TaskLimit {
            limit: bound.name,
            owner: "the cgroup's pids.max",
            unit: "pids",
            max: bound.max,
            used: bound.used,
            reserved: 0,
            remedy: format!("raise it (`echo {to} > {group}/pids.max` as root)"),
        });
    }
    if let Some(max) = machine.kernel.pid_max {
        limits.push(TaskLimit {
            limit: "kernel.pid_max",
            owner: "kernel.pid_max",
            unit: "pids",
            max,
            used,
            reserved: RESERVED_PIDS,
            remedy: format!(
                "raise it (`sysctl -w kernel.pid_max={}`)",
                used + more + RESERVED_PIDS
            ),
        });
    }
    if let Some(max) = machine.kernel.threads_max {
        limits.push(TaskLimit {
            limit: "kernel.threads-max",
            owner: "kernel.threads-max",
            unit: "tasks",
            max,
            used,
            reserved: 0,
            remedy: format!("raise it (`sysctl -w kernel.threads-max={}`)", used + more),
        });
    }
    if let (Some(used), Some(max)) = (machine.user_tasks, machine.rlimits.tasks.soft) {
        limits.push(TaskLimit {
            limit: "RLIMIT_NPROC",
            owner: "RLIMIT_NPROC of this user",
            unit: "tasks",
            max,
            used,
            reserved: 0,
            remedy: raise_rlimit("-u", "--nproc", machine.rlimits.tasks.hard, used + more),
        });
    }
    limits
}

/// How to raise a resource limit: by oneself up to the hard limit, beyond it
/// only as root.
fn raise_rlimit(flag: &str, option: &str, hard: Option<u64>, to: u64) -> String {
    match hard {
        Some(hard) if hard < to => {
            format!("its hard limit is {hard}: raise it as root (`prlimit --pid $$ {option}={to}`)")
        }
        _ => format!("`ulimit {flag} {to}`"),
    }
}

fn tasks(need: &Need, machine: &Machine) -> Result<(), Refusal> {
    let carriers = match need.carrier {
        Carrier::Processes | Carrier::Threads => need.workers,
        Carrier::Tasks => need.generator_threads,
    };
    let more = carriers
        .saturating_add(OWN_TASKS)
        .saturating_mul(need.ranks);
    // The tightest, so that what `at most` promises holds for all of them.
    let tightest = task_limits(machine, more)
        .into_iter()
        .min_by_key(TaskLimit::room);
    match tightest {
        Some(limit) if limit.room() < more => Err(Refusal {
            limit: limit.limit,
            text: format!(
                "{} {more} {}, {} is {} ({} in use): {}{}",
                need.opening_of_all(),
                limit.unit,
                limit.owner,
                limit.max,
                limit.used,
                limit.remedy,
                need.or_fewer((limit.room() / need.ranks).saturating_sub(OWN_TASKS)),
            ),
        }),
        _ => Ok(()),
    }
}

fn descriptors(need: &Need, machine: &Machine) -> Result<(), Refusal> {
    // The process of the tasks raises its own limit.
    let limit = match need.carrier {
        Carrier::Processes | Carrier::Threads => machine.rlimits.descriptors.soft,
        Carrier::Tasks => machine.rlimits.descriptors.hard,
    };
    let Some(soft) = limit else {
        return Ok(());
    };
    let (whose, needed, at_most) = match need.carrier {
        Carrier::Processes => (
            "each",
            need.descriptors_each.saturating_add(OWN_DESCRIPTORS),
            0,
        ),
        Carrier::Threads | Carrier::Tasks => (
            "in one process",
            need.workers
                .saturating_mul(need.descriptors_each)
                .saturating_add(OWN_DESCRIPTORS),
            soft.saturating_sub(OWN_DESCRIPTORS) / need.descriptors_each.max(1),
        ),
    };
    if needed <= soft {
        return Ok(());
    }
    let hard = machine.rlimits.descriptors.hard;
    let mut remedy = raise_rlimit("-n", "--nofile", hard, needed);
    if let Some(nr_open) = machine.kernel.nr_open.filter(|nr_open| *nr_open < needed) {
        remedy = format!("`sysctl -w fs.nr_open={needed}` (now {nr_open}), then {remedy}");
    }
    Err(Refusal {
        limit: "RLIMIT_NOFILE",
        text: format!(
            "{} {needed} descriptors {whose}, RLIMIT_NOFILE is {soft}: {remedy}{}",
            need.opening(),
            need.or_fewer(at_most),
        ),
    })
}

/// Open files of the whole machine; holders of CAP_SYS_ADMIN are not bound
/// (alloc_empty_file() in fs/file_table.c).
fn files(need: &Need, machine: &Machine) -> Result<(), Refusal> {
    let (Some(max), false) = (machine.kernel.file_max, machine.status.sys_admin) else {
        return Ok(());
    };
    let used = machine.kernel.files.unwrap_or(0);
    let each = need.descriptors_each.saturating_mul(need.ranks);
    let more = need.workers.saturating_mul(each);
    let room = max.saturating_sub(used);
    if more <= room {
        return Ok(());
    }
    Err(Refusal {
        limit: "fs.file-max",
        text: format!(
            "{} {more} open files, fs.file-max is {max} ({used} in use): raise it \
             (`sysctl -w fs.file-max={}` as root){}",
            need.opening_of_all(),
            used.saturating_add(more),
            need.or_fewer(room / each.max(1)),
        ),
    })
}

fn semaphores(need: &Need, machine: &Machine) -> Result<(), Refusal> {
    const DEFAULTS: &str = "`sysctl -w kernel.sem=\"32000 1024000000 500 32000\"` as root";
    let wanted = need.semaphores;
    if wanted == 0 {
        return Ok(());
    }
    let refuse = |text| {
        Err(Refusal {
            limit: "kernel.sem",
            text,
        })
    };
    let Some(here) = machine.kernel.semaphores else {
        return refuse(
            "this kernel or container offers no System V semaphores (no kernel.sem): \
             take another target, such as posix-sem"
                .to_owned(),
        );
    };
    // With the right to, the keeper makes a namespace of its own, empty and
    // with the kernel's defaults, whatever this one looks like.
    let (limits, sets_used, used) = match machine.private_ipc {
        true => (FRESH_NAMESPACE, 0, 0),
        false => (
            here,
            machine.kernel.semaphore_sets_used,
            machine.kernel.semaphores_used,
        ),
    };
    let fewer = |room: u64| match room {
        0 | 1 => String::new(),
        n => format!(", or --slots at most {n}"),
    };
    let needed = format!("a set of {wanted} semaphores is needed");
    if limits.per_set < wanted {
        let max = limits.per_set;
        return refuse(format!(
            "{needed}, kernel.sem allows {max} in a set (SEMMSL): {DEFAULTS}{}",
            fewer(max)
        ));
    }
    let room = limits.in_all.saturating_sub(used);
    if room < wanted {
        return refuse(format!(
            "{needed}, kernel.sem allows {} in all (SEMMNS, {used} in use): {DEFAULTS}, or remove \
             sets that nobody uses (`ipcs -s`, `ipcrm`){}",
            limits.in_all,
            fewer(room)
        ));
    }
    if limits.sets <= sets_used {
        return refuse(format!(
            "{needed}, kernel.sem allows {} sets (SEMMNI, {sets_used} in use): {DEFAULTS}, or \
             remove sets that nobody uses (`ipcs -s`, `ipcrm`)",
            limits.sets
        ));
    }
    Ok(())
}

fn memory(need: &Need, machine: &Machine) -> Result<(), Refusal> {
    let each = need.memory_each_bytes.saturating_mul(need.ranks);
    let needed = need.workers.saturating_mul(each);
    // MemAvailable is the kernel's estimate, and the last tenth of it is had
    // only by reclaiming, which would be measured too.
    let available = machine.memory.map(|m| m.available_bytes / 10 * 9);
    if let Some(room) = available.filter(|room| *room < needed) {
        return Err(Refusal {
            limit: "MemAvailable",
            text: format!(
                "{} {} of memory, {} are free to use (nine tenths of MemAvailable): free some{}",
                need.opening_of_all(),
                bytes(needed),
                bytes(room),
                need.or_fewer(room / each.max(1)),
            ),
        });
    }
    match &machine.cgroup.memory {
        Some(bound) if bound.room() < needed => Err(Refusal {
            limit: bound.name,
            text: format!(
                "{} {} of memory, the cgroup's {} is {} ({} in use): raise it (`echo {} > {}/{}` \
                 as root){}",
                need.opening_of_all(),
                bytes(needed),
                bound.name,
                bytes(bound.max),
                bytes(bound.used),
                bound.used.saturating_add(needed),
                bound.group.display(),
                bound.name,
                need.or_fewer(bound.room() / each.max(1)),
            ),
        }),
        _ => Ok(()),
    }
}

/// Growing a file beyond RLIMIT_FSIZE kills with SIGXFSZ, and anonymous shared
/// memory is a file.
fn shared_memory(need: &Need, machine: &Machine) -> Result<(), Refusal> {
    match machine.rlimits.file_bytes.soft {
        Some(max) if max < need.shared_bytes => Err(Refusal {
            limit: "RLIMIT_FSIZE",
            text: format!(
                "{} {} of shared memory, RLIMIT_FSIZE is {}: `ulimit -f unlimited`{}",
                need.opening(),
                bytes(need.shared_bytes),
                bytes(max),
                need.or_fewer(max / (need.shared_bytes / need.workers.max(1)).max(1)),
            ),
        }),
        _ => Ok(()),
    }
}

/// Every process sees all of the shared memory.
fn address_space(need: &Need, machine: &Machine) -> Result<(), Refusal> {
    let needed = need.shared_bytes.saturating_add(OWN_ADDRESS_SPACE);
    match machine.rlimits.address_space_bytes.soft {
        Some(max) if max < needed => Err(Refusal {
            limit: "RLIMIT_AS",
            text: format!(
                "{} {} of address space, RLIMIT_AS is {}: `ulimit -v unlimited`{}",
                need.opening(),
                bytes(needed),
                bytes(max),
                need.or_fewer(
                    max.saturating_sub(OWN_ADDRESS_SPACE)
                        / (need.shared_bytes / need.workers.max(1)).max(1)
                ),
            ),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_sys::limits::cgroup::Bound;
    use jostle_sys::limits::text::Memory;

    /// A machine on which nothing is short.
    fn roomy() -> Machine {
        let mut machine = Machine::default();
        machine.status.uid = 1000;
        machine.status.euid = 1000;
        machine.kernel.pid_max = Some(4_194_304);
        machine.kernel.threads_max = Some(192_731);
        machine.kernel.tasks = Some(86);
        machine.kernel.file_max = Some(2_466_183);
        machine.kernel.nr_open = Some(1_048_576);
        machine.kernel.semaphores = Some(FRESH_NAMESPACE);
        machine.rlimits.descriptors.soft = Some(20_000);
        machine.rlimits.descriptors.hard = Some(20_000);
        machine.memory = Some(Memory {
            total_bytes: 24 << 30,
            available_bytes: 20 << 30,
            swap_used_bytes: 0,
        });
        machine
    }

    fn bound(name: &'static str, max: u64, used: u64) -> Option<Bound> {
        Some(Bound {
            name,
            max,
            used,
            group: "/sys/fs/cgroup/pod".into(),
        })
    }

    /// What a point with `workers` processes takes.
    fn need(workers: u64) -> Need {
        Need {
            workers,
            option: "-w",
            hosts: 1,
            ranks: 1,
            carrier: Carrier::Processes,
            generator_threads: 1,
            descriptors_each: 1,
            semaphores: 16_384,
            memory_each_bytes: 200 << 10,
            shared_bytes: workers * 100_000,
        }
    }

    fn threads(workers: u64) -> Need {
        Need {
            carrier: Carrier::Threads,
            ..need(workers)
        }
    }

    fn refusal(need: &Need, change: impl FnOnce(&mut Machine)) -> (&'static str, String) {
        let mut machine = roomy();
        change(&mut machine);
        let refusal = fits(need, &machine).expect_err("a refusal");
        (refusal.limit, refusal.to_string())
    }

    #[test]
    fn a_roomy_machine_refuses_nothing() {
        assert_eq!(fits(&need(10_000), &roomy()), Ok(()));
        assert_eq!(fits(&threads(10_000), &roomy()), Ok(()));
        // A machine that tells nothing is given the benefit of the doubt.
        let silent = Need {
            semaphores: 0,
            ..need(10_000)
        };
        assert_eq!(fits(&silent, &Machine::default()), Ok(()));
    }

    #[test]
    fn too_few_pids_in_the_cgroup_name_the_most_workers_that_fit() {
        let (limit, text) = refusal(&need(10_000), |m| {
            m.cgroup.tasks = bound("pids.max", 500, 12)
        });
        assert_eq!(limit, "pids.max");
        assert_eq!(
            text,
            "10000 worker processes need 10002 pids, the cgroup's pids.max is 500 (12 in use): \
             raise it (`echo 10014 > /sys/fs/cgroup/pod/pids.max` as root), or -w at most 486"
        );
        let mut machine = roomy();
        machine.cgroup.tasks = bound("pids.max", 500, 12);
        assert_eq!(fits(&need(486), &machine), Ok(()));
        assert!(fits(&need(487), &machine).is_err());
    }

    #[test]
    fn each_limit_on_tasks_is_named_with_its_own_remedy() {
        type Change = fn(&mut Machine);
        fn nproc(machine: &mut Machine, hard: Option<u64>) {
            machine.user_tasks = Some(50);
            machine.rlimits.tasks.soft = Some(200);
            machine.rlimits.tasks.hard = hard;
        }
        let table: [(&str, &str, Change); 5] = [
            ("kernel.pid_max", "kernel.pid_max=1388", |m| {
                m.kernel.pid_max = Some(1000)
            }),
            ("kernel.threads-max", "kernel.threads-max=1088", |m| {
                m.kernel.threads_max = Some(900)
            }),
            ("pids.max", "or -w at most 8", |m| {
                m.cgroup.tasks = bound("pids.max", 20, 10)
            }),
            ("RLIMIT_NPROC", "`ulimit -u 1052`, or -w at most 148", |m| {
                nproc(m, None)
            }),
            ("RLIMIT_NPROC", "prlimit --pid $$ --nproc=1052", |m| {
                nproc(m, Some(300))
            }),
        ];
        for (name, remedy, change) in table {
            let (limit, text) = refusal(&need(1000), change);
            assert_eq!(limit, name);
            assert!(text.contains(remedy), "{text}");
        }
    }

    #[test]
    fn the_tightest_of_several_limits_is_named() {
        let (limit, _) = refusal(&need(1000), |m| {
            m.kernel.threads_max = Some(900);
            m.cgroup.tasks = bound("pids.max", 20, 10);
        });
        assert_eq!(limit, "pids.max");
    }

    #[test]
    fn rlimit_nproc_does_not_bind_root() {
        let mut machine = roomy();
        machine.rlimits.tasks.soft = Some(10);
        machine.user_tasks = None; // not counted for those whom it does not bind
        assert_eq!(fits(&need(1000), &machine), Ok(()));
    }

    #[test]
    fn threads_share_one_table_of_descriptors() {
        let short = |m: &mut Machine| {
            m.rlimits.descriptors.soft = Some(1024);
            m.rlimits.descriptors.hard = Some(20_000);
        };
        let (limit, text) = refusal(&threads(1000), short);
        assert_eq!(limit, "RLIMIT_NOFILE");
        assert_eq!(
            text,
            "1000 worker threads need 1032 descriptors in one process, RLIMIT_NOFILE is 1024: \
             `ulimit -n 1032`, or -w at most 992"
        );
        let mut machine = roomy();
        short(&mut machine);
        assert_eq!(
            fits(&need(1000), &machine),
            Ok(()),
            "processes have one each"
        );
        let many = Need {
            descriptors_each: 2_000_000,
            ..need(1)
        };
        let (_, text) = refusal(&many, |m| m.status.sys_admin = true);
        assert!(text.contains("sysctl -w fs.nr_open=2000032"), "{text}");
    }

    #[test]
    fn open_files_of_the_machine_bind_everybody_but_the_administrator() {
        let short = |m: &mut Machine| {
            m.kernel.file_max = Some(1500);
            m.kernel.files = Some(1000);
        };
        let (limit, text) = refusal(&need(1000), short);
        assert_eq!(limit, "fs.file-max");
        assert!(text.ends_with("or -w at most 500"), "{text}");
        let mut machine = roomy();
        short(&mut machine);
        machine.status.sys_admin = true;
        assert_eq!(fits(&need(1000), &machine), Ok(()));
    }

    #[test]
    fn semaphores_forbidden_or_used_up_are_told_apart() {
        let limits = |per_set, in_all, sets| {
            Some(Semaphores {
                per_set,
                in_all,
                sets,
            })
        };
        type Change<'a> = &'a dyn Fn(&mut Machine);
        let table: [(Change<'_>, &str); 5] = [
            (&|m| m.kernel.semaphores = None, "posix-sem"),
            (
                &|m| m.kernel.semaphores = limits(0, 0, 0),
                "allows 0 in a set (SEMMSL)",
            ),
            (
                &|m| m.kernel.semaphores = limits(250, 32_000, 128),
                "or --slots at most 250",
            ),
            (
                &|m| {
                    m.kernel.semaphores = limits(32_000, 32_000, 128);
                    m.kernel.semaphores_used = 31_000;
                },
                "(SEMMNS, 31000 in use)",
            ),
            (
                &|m| m.kernel.semaphore_sets_used = 32_000,
                "(SEMMNI, 32000 in use)",
            ),
        ];
        for (change, expected) in table {
            let (limit, text) = refusal(&need(10), change);
            assert_eq!(limit, "kernel.sem");
            assert!(text.contains(expected), "{text}");
        }
        let mut machine = roomy();
        machine.kernel.semaphores = limits(0, 0, 0);
        machine.private_ipc = true;
        assert_eq!(
            fits(&need(10), &machine),
            Ok(()),
            "a namespace of its own is not bound"
        );
        let none = Need {
            semaphores: 0,
            ..need(10)
        };
        machine.private_ipc = false;
        assert_eq!(fits(&none, &machine), Ok(()), "other targets need none");
    }

    #[test]
    fn memory_of_the_machine_and_of_the_cgroup_both_bind() {
        let (limit, text) = refusal(&need(10_000), |m| {
            m.memory = Some(Memory {
                available_bytes: 1 << 30,
                ..Memory::default()
            });
        });
        assert_eq!(limit, "MemAvailable");
        assert!(
            text.contains("need 1.9 GiB of memory, 921.6 MiB are free"),
            "{text}"
        );
        assert!(text.ends_with("or -w at most 4718"), "{text}");
        let (limit, text) = refusal(&need(10_000), |m| {
            m.cgroup.memory = bound("memory.max", 512 << 20, 100 << 20);
        });
        assert_eq!(limit, "memory.max");
        assert!(text.contains("is 512.0 MiB (100.0 MiB in use)"), "{text}");
        assert!(text.ends_with("or -w at most 2109"), "{text}");
    }

    #[test]
    fn shared_memory_counts_as_the_size_of_a_file() {
        let (limit, text) = refusal(&need(10), |m| m.rlimits.file_bytes.soft = Some(512_000));
        assert_eq!(limit, "RLIMIT_FSIZE");
        assert!(
            text.ends_with("`ulimit -f unlimited`, or -w at most 5"),
            "{text}"
        );
    }

    #[test]
    fn shared_memory_takes_address_space_in_every_process() {
        let (limit, text) = refusal(&need(10), |m| {
            m.rlimits.address_space_bytes.soft = Some((32 << 20) + 512_000);
        });
        assert_eq!(limit, "RLIMIT_AS");
        assert!(
            text.ends_with("`ulimit -v unlimited`, or -w at most 5"),
            "{text}"
        );
    }

    #[test]
    fn of_several_hosts_one_host_s_part_is_counted_and_all_of_them_are_told_to_be_fewer() {
        let part = |ranks| Need {
            option: "--in-flight",
            hosts: 18,
            ranks,
            ..need(100)
        };
        let (_, text) = refusal(&part(1), |m| m.cgroup.tasks = bound("pids.max", 50, 0));
        assert!(
            text.starts_with("100 worker processes need 102 pids"),
            "{text}"
        );
        assert!(text.ends_with(", or --in-flight at most 864"), "{text}"); // 48 each
        // Ranks of one machine share what is the machine's, and no process's own limits.
        type Change = fn(&mut Machine);
        let table: [(Change, &str, &str); 3] = [
            (
                |m| m.kernel.pid_max = Some(86 + 300 + 305),
                "3 ranks with 100 worker processes each need 306 pids",
                "or --in-flight at most 1782", // 101 - 2 each
            ),
            (
                |m| {
                    m.kernel.file_max = Some(1_298);
                    m.kernel.files = Some(1_000);
                },
                "3 ranks with 100 worker processes each need 300 open files",
                "or --in-flight at most 1782",
            ),
            (
                |m| m.cgroup.memory = bound("memory.max", 299 * (200 << 10), 0),
                "3 ranks with 100 worker processes each need 58.6 MiB of memory",
                "or --in-flight at most 1782",
            ),
        ];
        for (change, opening, end) in table {
            let (_, text) = refusal(&part(3), change);
            assert!(
                text.starts_with(opening) && text.ends_with(end),
                "{text}\n{end}"
            );
            let mut machine = roomy();
            change(&mut machine);
            assert_eq!(fits(&part(2), &machine), Ok(()));
        }
        let mut machine = roomy();
        machine.rlimits.address_space_bytes.soft = Some((32 << 20) + 10_000_000);
        assert_eq!(fits(&part(3), &machine), Ok(()));
    }

    #[test]
    fn one_worker_that_does_not_fit_is_not_told_to_be_fewer() {
        let (_, text) = refusal(&need(1), |m| m.cgroup.tasks = bound("pids.max", 12, 12));
        assert!(text.starts_with("1 worker process needs 3 pids"), "{text}");
        assert!(!text.contains("at most"), "{text}");
    }
}
