//! The findings of `jostle doctor`: one small function for each thing that can
//! bend or refuse a measurement, and one list of them.

mod processors;
mod sockets;

use super::bytes;
use super::neighbours::Neighbours;
use jostle_model::text::quoted;
use jostle_sys::limits::{Machine, Rlimit};
use std::path::Path;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be.
    Fine,
    /// Good to know; some measurements are not possible or need an option.
    Note,
    /// Figures will differ from what they could be.
    Bends,
    /// A default measurement will be refused or fail.
    Blocks,
}

/// One thing about this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at, in a few words.
    pub what: String,
    /// What was found.
    pub found: String,
    /// How much that matters.
    pub matters: Severity,
    /// A command or a change; present unless it is fine.
    pub remedy: Option<String>,
    /// A command for root that mends it, of a whole machine or of the shell whose
    /// process [`SHELL`] stands for. None where no command does.
    pub mend: Option<String>,
}

/// In [`Finding::mend`]: the process id of the shell that runs jostle.
pub const SHELL: &str = "{shell}";

impl Finding {
    fn fine(what: &str, found: impl Into<String>) -> Finding {
        Finding {
            what: what.to_owned(),
            found: found.into(),
            matters: Severity::Fine,
            remedy: None,
            mend: None,
        }
    }

    /// The same thing found wanting.
    fn but(self, matters: Severity, remedy: impl Into<String>) -> Finding {
        Finding {
            matters,
            remedy: Some(remedy.into()),
            ..self
        }
    }

    /// Mended by this command; what is fine needs none.
    fn mended_by(self, command: impl Into<String>) -> Finding {
        let is_fine = self.matters == Severity::Fine;
        Finding {
            mend: (!is_fine).then(|| command.into()),
            ..self
        }
    }
}

/// Raises a limit of the calling shell, which what it starts inherits: `option` is that of
/// prlimit(1). A hard limit is never lowered.
fn prlimit(option: &str, wanted: &str, limit: Rlimit) -> String {
    let most = match (limit.hard, wanted.parse::<u64>()) {
        (Some(hard), Ok(wanted)) => hard.max(wanted).to_string(),
        _ => "unlimited".to_owned(),
    };
    format!("prlimit --pid {SHELL} --{option}={wanted}:{most}")
}

/// Writes a value to a file of a control group.
fn write_to(value: &str, group: &Path, file: &str) -> String {
    let path = group.join(file);
    format!("echo {value} > {}", quoted(&path.to_string_lossy()))
}

/// Workers of the default comparison's last point.
const USUAL_WORKERS: u64 = 1000;

/// The most workers that one host is made for.
const MOST_WORKERS: u64 = 10_000;

/// Memory of one worker process, above what is measured (under 200 KiB).
const WORKER_BYTES: u64 = 200 << 10;

/// Share of CPU time that others may take before figures can become SUSPECT, and before
/// blocks of runs are repeated, as in the check `neighbours` and in `stats::spoilt`.
const FOREIGN: [f64; 2] = [0.03, 0.10];

/// Likewise for time stolen by the hypervisor.
const STOLEN: [f64; 2] = [0.02, 0.10];

/// Everything that is worth saying about `machine`. `others` is what other programs
/// use right now.
pub fn survey(machine: &Machine, others: &Neighbours) -> Vec<Finding> {
    let checks: [fn(&Machine) -> Option<Finding>; 22] = [
        without_proc,
        processors::cpus,
        processors::siblings,
        processors::clock_source,
        processors::counter,
        processors::governor,
        processors::quota,
        processors::steal,
        timer_slack,
        tasks,
        descriptors,
        file_size,
        cpu_time,
        memory,
        swap,
        semaphores,
        shm,
        sockets::connections,
        sockets::ports,
        sockets::backlog,
        sockets::time_wait,
        sockets::conntrack,
    ];
    let mut findings: Vec<Finding> = checks.iter().filter_map(|check| check(machine)).collect();
    if !is_blind(machine) {
        findings.push(other_programs(machine, others));
    }
    findings.push(private_ipc(machine));
    findings
}

/// Whether nothing can be read of the machine. If nothing was found because nothing could
/// be read, the report must not state that nothing bends a measurement.
fn is_blind(machine: &Machine) -> bool {
    machine.memory.is_none() && machine.ticks.is_none()
}

fn without_proc(machine: &Machine) -> Option<Finding> {
    let found = "cannot be read: most of what bends a measurement could not be looked at";
    is_blind(machine).then(|| {
        Finding::fine("/proc", found)
            .but(
                Severity::Blocks,
                "`mount -t proc proc /proc` as root, or start the container or chroot with it",
            )
            .mended_by("mount -t proc proc /proc")
    })
}

/// The worse of two thresholds that `share` is above: a note, or bent figures.
fn above(share: f64, [note, bends]: [f64; 2]) -> Severity {
    match share {
        _ if share > bends => Severity::Bends,
        _ if share > note => Severity::Note,
        _ => Severity::Fine,
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn other_programs(machine: &Machine, others: &Neighbours) -> Finding {
    let names = others.names().map(|names| format!(": {names}"));
    let load = machine.load.map(|load| format!("; load average {load:.2}"));
    let found = format!(
        "{:.2} of {} CPUs in use{}{}",
        others.cpus,
        others.of,
        names.unwrap_or_default(),
        load.unwrap_or_default()
    );
    let finding = Finding::fine("other programs right now", found);
    match above(others.share(), FOREIGN) {
        Severity::Fine if others.sees_all => finding,
        Severity::Fine => finding.but(
            Severity::Note,
            "a container or hidepid hides those of others: run `jostle doctor` on the host; what \
             they cost a run shows in how long workers waited for a CPU",
        ),
        matters => finding.but(
            matters,
            "stop them, or let `jostle contend --wait-quiet 60s` wait for them; runs beside them \
             name them, and give figures with bounds",
        ),
    }
}

fn timer_slack(machine: &Machine) -> Option<Finding> {
    // Fine whatever it is: workers set their own.
    let slack = machine.timer_slack_ns?;
    Some(Finding::fine(
        "timer slack",
        format!("{slack} ns here, 1 ns in workers"),
    ))
}

fn tasks(machine: &Machine) -> Option<Finding> {
    let kernel = &machine.kernel;
    let used = kernel.tasks.unwrap_or(0);
    let bound = machine.cgroup.tasks.as_ref();
    let of_kernel = |max: Option<u64>, name: &str| {
        let raised = format!("`sysctl -w {name}=4194304` as root");
        let mend = format!("sysctl -w {name}=4194304");
        max.map(|max| (max.saturating_sub(used), name.to_owned(), raised, mend))
    };
    let of_group = bound.map(|b| {
        let limit = format!("pids.max of {}", b.group.display());
        let raised = format!(
            "raise {limit} (`docker update --pids-limit -1 CONTAINER`, `systemctl set-property \
             UNIT TasksMax=infinity`)"
        );
        (b.room(), limit, raised, write_to("max", &b.group, b.name))
    });
    let of_user = machine.user_tasks.zip(machine.rlimits.tasks.soft);
    let of_user = of_user.map(|(used, max)| {
        let wanted = (used + 2 * MOST_WORKERS).to_string();
        let raised = format!("`ulimit -u {wanted}`");
        let mend = prlimit("nproc", &wanted, machine.rlimits.tasks);
        let limit = "RLIMIT_NPROC".to_owned();
        (max.saturating_sub(used), limit, raised, mend)
    });
    let limits = [
        of_group,
        of_kernel(kernel.pid_max, "kernel.pid_max"),
        of_kernel(kernel.threads_max, "kernel.threads-max"),
        of_user,
    ];
    let (room, limit, raised, mend) = limits.into_iter().flatten().min()?;
    let finding = Finding::fine("processes", format!("room for {room} more, by {limit}"));
    Some(for_workers(finding, room, &raised).mended_by(mend))
}

/// Fine if there is room for the most workers, blocking if not even for those
/// of the default comparison.
fn for_workers(finding: Finding, room: u64, remedy: &str) -> Finding {
    let fewer = format!("or fewer of them, such as `-w {}`", (room / 2).max(1));
    match room {
        MOST_WORKERS.. => finding,
        USUAL_WORKERS.. => finding.but(
            Severity::Note,
            format!("for {MOST_WORKERS} workers, {remedy}"),
        ),
        _ => finding.but(
            Severity::Blocks,
            format!("for {USUAL_WORKERS} workers, {remedy}; {fewer}"),
        ),
    }
}

fn descriptors(machine: &Machine) -> Option<Finding> {
    let what = "descriptors of a process";
    let Some(soft) = machine.rlimits.descriptors.soft else {
        return Some(Finding::fine(what, "unlimited"));
    };
    let finding = Finding::fine(what, format!("at most {soft}"));
    let limit = machine.rlimits.descriptors;
    let wanted = (MOST_WORKERS * 2).to_string();
    let finding = match soft {
        MOST_WORKERS.. => finding,
        // Processes need a few dozen each; only threads share one table.
        64.. => finding.but(
            Severity::Note,
            format!("for more than {soft} threads on file locks: `ulimit -n {wanted}`"),
        ),
        _ => finding.but(
            Severity::Blocks,
            "a worker needs up to 64: `ulimit -n 1024`",
        ),
    };
    Some(finding.mended_by(prlimit("nofile", &wanted, limit)))
}

fn file_size(machine: &Machine) -> Option<Finding> {
    let max = machine.rlimits.file_bytes.soft?;
    Some(Finding::fine("size of a file", format!("at most {}", bytes(max))).but(
        Severity::Note,
        "it also limits the memory that workers share, and the result file: `ulimit -f unlimited`",
    )
    .mended_by(prlimit("fsize", "unlimited", machine.rlimits.file_bytes)))
}

fn cpu_time(machine: &Machine) -> Option<Finding> {
    let max = machine.rlimits.cpu_s.soft?;
    Some(
        Finding::fine("CPU time of a process", format!("at most {max} s"))
            .but(
                Severity::Note,
                "a worker that spins longer is killed: `ulimit -t unlimited`",
            )
            .mended_by(prlimit("cpu", "unlimited", machine.rlimits.cpu_s)),
    )
}

fn memory(machine: &Machine) -> Option<Finding> {
    let memory = machine.memory?;
    let bound = machine.cgroup.memory.as_ref();
    let in_group = bound.map(|b| {
        let limit = format!("{} of {}", b.name, b.group.display());
        let raised = format!(
            "raise {limit} (`docker update --memory 4g --memory-swap 4g CONTAINER`, `systemctl \
             set-property UNIT MemoryMax=4G`)"
        );
        let none = if b.name == "memory.max" { "max" } else { "-1" };
        (
            b.room(),
            limit,
            raised,
            Some(write_to(none, &b.group, b.name)),
        )
    });
    let freed = "free some memory (`ps -e -o rss,pid,comm --sort -rss | head` shows who has it)";
    let free = (
        memory.available_bytes,
        "what is free".to_owned(),
        freed.to_owned(),
        None,
    );
    let (room, limit, remedy, mend) = in_group.into_iter().chain([free]).min()?;
    let found = format!(
        "{} of {} can be had, by {limit}",
        bytes(room),
        bytes(memory.total_bytes)
    );
    let finding = Finding::fine("memory", found);
    let finding = for_workers(finding, room / WORKER_BYTES, &remedy);
    Some(match mend {
        Some(mend) => finding.mended_by(mend),
        None => finding,
    })
}

fn swap(machine: &Machine) -> Option<Finding> {
    let used = machine.memory?.swap_used_bytes;
    if used == 0 {
        return Some(Finding::fine("swap", "not in use"));
    }
    Some(Finding::fine("swap", format!("{} in use", bytes(used))).but(
        Severity::Note,
        "a page that comes back from swap looks like a slow lock: free memory, then `swapoff -a \
         && swapon -a` as root",
    )
    .mended_by("swapoff -a && swapon -a"))
}

fn semaphores(machine: &Machine) -> Option<Finding> {
    /// Semaphores of `--slots` as it stands by default.
    const SLOTS: u64 = 16_384;
    const REMEDY: &str = "for sysv targets: `sysctl -w kernel.sem=\"32000 1024000000 500 32000\"` \
                          as root, or fewer `--slots`";
    const MEND: &str = "sysctl -w kernel.sem=\"32000 1024000000 500 32000\"";
    let what = "System V semaphores";
    let Some(limits) = machine.kernel.semaphores else {
        let finding = Finding::fine(what, "not offered by this kernel or container");
        return Some(finding.but(
            Severity::Note,
            "leave out sysv targets: `jostle contend flock posix-sem`",
        ));
    };
    let (sets, used) = (
        machine.kernel.semaphore_sets_used,
        machine.kernel.semaphores_used,
    );
    let finding = Finding::fine(
        what,
        format!(
            "{} in a set, {sets} of {} sets in use",
            limits.per_set, limits.sets
        ),
    );
    let room = limits.per_set.min(limits.in_all.saturating_sub(used));
    Some(match () {
        // A namespace of our own begins empty, with the kernel's defaults.
        _ if machine.private_ipc => finding,
        _ if room == 0 || sets >= limits.sets => {
            finding.but(Severity::Blocks, REMEDY).mended_by(MEND)
        }
        _ if room < SLOTS => finding.but(Severity::Note, REMEDY).mended_by(MEND),
        _ => finding,
    })
}

fn shm(machine: &Machine) -> Option<Finding> {
    /// What containers get by default; files of the locks are empty, so that
    /// even this is plenty.
    const LEAST: u64 = 1 << 20;
    let what = "/dev/shm";
    Some(match machine.shm_bytes {
        Some(size) if size >= LEAST => Finding::fine(what, format!("tmpfs of {}", bytes(size))),
        Some(size) => Finding::fine(what, format!("only {}", bytes(size)))
            .but(
                Severity::Note,
                "file locks lie there: `mount -o remount,size=64M /dev/shm` as root",
            )
            .mended_by("mount -o remount,size=64M /dev/shm"),
        None => Finding::fine(what, "not mounted")
            .but(
                Severity::Note,
                "file locks would lie on a disk's file system: name a path on tmpfs \
                 (`flock:PATH`), or `mount -t tmpfs tmpfs /dev/shm` as root",
            )
            .mended_by("mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm"),
    })
}

fn private_ipc(machine: &Machine) -> Finding {
    let what = "own IPC namespace";
    if machine.private_ipc {
        return Finding::fine(what, "possible: semaphores vanish with the last process");
    }
    Finding::fine(what, "not permitted").but(
        Severity::Note,
        "after kill -9 semaphores stay until the next start removes them; to prevent it: `unshare \
         --user --map-root-user --ipc jostle ...`",
    )
}

#[cfg(test)]
mod tests {
    use super::super::neighbours::Program;
    use super::*;
    use jostle_sys::limits::cgroup::{Bound, Quota};
    use jostle_sys::limits::net::Net;
    use jostle_sys::limits::text::{Memory, Semaphores};
    use jostle_sys::stat::MachineTicks;

    /// One program that uses this share of four CPUs.
    fn busy(share: f64) -> Neighbours {
        let cpus = 4.0 * share;
        Neighbours {
            cpus,
            of: 4,
            programs: vec![Program {
                name: "make".to_owned(),
                pid: 812,
                cpus,
            }],
            sees_all: true,
        }
    }

    /// A machine on which there is nothing to complain about.
    fn good() -> Machine {
        let mut machine = Machine {
            memory: Some(Memory {
                total_bytes: 24 << 30,
                available_bytes: 20 << 30,
                swap_used_bytes: 0,
            }),
            ticks: Some(MachineTicks {
                busy: 100_000,
                ..MachineTicks::default()
            }),
            load: Some(0.1),
            timer_slack_ns: Some(50_000),
            shm_bytes: Some(64 << 20),
            private_ipc: true,
            ..Machine::default()
        };
        machine.cpus.online = vec![0, 1, 2, 3];
        machine.cpus.allowed = vec![0, 1, 2, 3];
        machine.cpus.clock_source = Some("tsc".to_owned());
        machine.cpus.clock_sources = vec!["tsc".to_owned(), "hpet".to_owned()];
        machine.cpus.invariant_tsc = Some(true);
        machine.kernel.pid_max = Some(4_194_304);
        machine.net = Net {
            ports: "32768-60999".parse().ok(),
            somaxconn: Some(4_096),
            max_time_wait: Some(131_072),
            time_wait: Some(3),
            conntrack: Some((262_144, 0)),
            ..Net::default()
        };
        machine.kernel.semaphores = Some(Semaphores {
            per_set: 32_000,
            in_all: 1_024_000_000,
            sets: 32_000,
        });
        machine
    }

    fn group(name: &'static str, max: u64) -> Option<Bound> {
        Some(Bound {
            name,
            max,
            used: 0,
            group: "/pod".into(),
        })
    }

    #[test]
    fn a_good_machine_is_fine_in_every_respect() {
        let findings = survey(&good(), &busy(0.01));
        for finding in &findings {
            assert_eq!(finding.matters, Severity::Fine, "{finding:?}");
            assert_eq!(finding.remedy, None);
        }
        for what in [
            "CPUs",
            "CPU quota",
            "memory",
            "other programs right now",
            "/dev/shm",
        ] {
            assert!(findings.iter().any(|f| f.what == what), "{what}");
        }
    }

    #[test]
    fn each_flaw_is_found_with_its_severity_and_a_remedy_and_nothing_else() {
        use Severity::{Bends, Blocks, Note};
        type Flaw = fn(&mut Machine);
        let table: &[(&str, Severity, &str, Flaw)] = &[
            ("CPUs", Bends, "taskset", |m| m.cpus.allowed = vec![2]),
            ("CPUs", Note, "taskset -c 0-3", |m| {
                m.cpus.allowed = vec![0, 1]
            }),
            ("hardware threads", Note, "--place cpus:0,1", |m| {
                m.cpus.siblings = vec![2, 3]
            }),
            ("clock source", Bends, "echo tsc", |m| {
                m.cpus.clock_source = Some("hpet".into())
            }),
            ("clock source", Bends, "dmesg", |m| {
                m.cpus.clock_source = Some("hpet".into());
                m.cpus.clock_sources.clear();
            }),
            ("clock source", Note, "echo tsc", |m| {
                m.cpus.clock_source = Some("kvm-clock".into());
            }),
            ("time stamp counter", Note, "--measure counts", |m| {
                m.cpus.invariant_tsc = Some(false);
            }),
            ("frequency governor", Bends, "scaling_governor", |m| {
                m.cpus.governor = Some("powersave".into());
            }),
            ("CPU quota", Bends, "--cpus", |m| {
                m.cgroup.cpu = Some(Quota {
                    cpus: 1.5,
                    period_us: 100_000,
                    group: "/pod".into(),
                });
            }),
            ("steal since boot", Note, "within one run", |m| {
                m.ticks.as_mut().unwrap().stolen = 5_000;
            }),
            ("steal since boot", Bends, "within one run", |m| {
                m.ticks.as_mut().unwrap().stolen = 20_000;
            }),
            ("processes", Note, "raise pids.max of /pod", |m| {
                m.cgroup.tasks = group("pids.max", 5_000);
            }),
            ("processes", Blocks, "`sysctl -w kernel.pid_max=", |m| {
                m.kernel.pid_max = Some(900)
            }),
            ("processes", Blocks, "ulimit -u", |m| {
                m.rlimits.tasks.soft = Some(100);
                m.user_tasks = Some(90);
            }),
            ("descriptors of a process", Note, "ulimit -n", |m| {
                m.rlimits.descriptors.soft = Some(1024);
            }),
            ("descriptors of a process", Blocks, "ulimit -n", |m| {
                m.rlimits.descriptors.soft = Some(16);
            }),
            ("size of a file", Note, "ulimit -f", |m| {
                m.rlimits.file_bytes.soft = Some(4096)
            }),
            ("CPU time of a process", Note, "ulimit -t", |m| {
                m.rlimits.cpu_s.soft = Some(60)
            }),
            ("memory", Blocks, "-w ", |m| {
                m.memory.as_mut().unwrap().available_bytes = 100 << 20;
            }),
            ("memory", Note, "raise memory.max of /pod", |m| {
                m.cgroup.memory = group("memory.max", 1 << 30);
            }),
            ("swap", Note, "swapoff", |m| {
                m.memory.as_mut().unwrap().swap_used_bytes = 4096
            }),
            ("System V semaphores", Note, "posix-sem", |m| {
                m.kernel.semaphores = None
            }),
            ("/dev/shm", Note, "mount -t tmpfs", |m| m.shm_bytes = None),
            ("/dev/shm", Note, "remount", |m| m.shm_bytes = Some(4096)),
            ("ports of clients", Note, "ip_local_port_range", |m| {
                m.net.ports = "60000-60099".parse().ok();
            }),
            (
                "backlog of a listening socket",
                Bends,
                "somaxconn=4096",
                |m| {
                    m.net.somaxconn = Some(8);
                },
            ),
            ("ports in TIME_WAIT", Note, "--close rst", |m| {
                m.net.time_wait = Some(100_000);
            }),
            ("connection tracking", Note, "NOTRACK", |m| {
                m.net.conntrack = Some((262_144, 40));
            }),
            ("own IPC namespace", Note, "unshare", |m| {
                m.private_ipc = false
            }),
        ];
        for (what, matters, remedy, flaw) in table {
            let mut machine = good();
            flaw(&mut machine);
            let findings = survey(&machine, &busy(0.0));
            let mut bad = findings.iter().filter(|f| f.matters > Severity::Fine);
            let finding = bad.next().expect("a finding");
            assert_eq!(
                (finding.what.as_str(), finding.matters),
                (*what, *matters),
                "{finding:?}"
            );
            assert!(
                finding.remedy.as_ref().unwrap().contains(remedy),
                "{finding:?}"
            );
            // No dead end: a command to type, or an option.
            assert!(finding.remedy.as_ref().unwrap().contains('`'), "{what}");
            assert_eq!(bad.next(), None, "{what}");
        }
    }

    /// What a shell of root would run; the rest needs a person who decides.
    #[test]
    fn what_a_command_mends_comes_with_it() {
        type Flaw = fn(&mut Machine);
        let table: &[(&str, Flaw)] = &[
            ("taskset --cpu-list --pid 0-3 {shell}", |m| {
                m.cpus.allowed = vec![2]
            }),
            (
                "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
                |m| m.cpus.clock_source = Some("hpet".into()),
            ),
            (
                "echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
                |m| m.cpus.governor = Some("powersave".into()),
            ),
            ("echo max > '/a group/cpu.max'", |m| {
                m.cgroup.cpu = Some(Quota {
                    cpus: 1.5,
                    period_us: 100_000,
                    group: "/a group".into(),
                });
            }),
            ("echo max > /pod/pids.max", |m| {
                m.cgroup.tasks = group("pids.max", 5_000);
            }),
            ("sysctl -w kernel.pid_max=4194304", |m| {
                m.kernel.pid_max = Some(900)
            }),
            ("prlimit --pid {shell} --nproc=20090:20090", |m| {
                m.user_tasks = Some(90);
                m.rlimits.tasks = Rlimit {
                    soft: Some(100),
                    hard: Some(100),
                };
            }),
            // A hard limit that is higher stays, and one that is not there.
            ("prlimit --pid {shell} --nofile=20000:50000", |m| {
                m.rlimits.descriptors = Rlimit {
                    soft: Some(1024),
                    hard: Some(50_000),
                };
            }),
            ("prlimit --pid {shell} --nofile=20000:unlimited", |m| {
                m.rlimits.descriptors.soft = Some(1024)
            }),
            ("prlimit --pid {shell} --fsize=unlimited:unlimited", |m| {
                m.rlimits.file_bytes.soft = Some(4096)
            }),
            ("echo -1 > /pod/memory.limit_in_bytes", |m| {
                m.cgroup.memory = group("memory.limit_in_bytes", 1 << 30);
            }),
            ("swapoff -a && swapon -a", |m| {
                m.memory.as_mut().unwrap().swap_used_bytes = 4096
            }),
            ("sysctl -w net.core.somaxconn=4096", |m| {
                m.net.somaxconn = Some(8)
            }),
        ];
        let mends = |flaw: Flaw| -> Vec<String> {
            let mut machine = good();
            flaw(&mut machine);
            let findings = survey(&machine, &busy(0.0)).into_iter();
            findings.filter_map(|finding| finding.mend).collect()
        };
        assert_eq!(mends(|_| {}), [""; 0]);
        for (command, flaw) in table {
            assert_eq!(mends(*flaw), [*command]);
        }
        // A person decides on these.
        assert_eq!(mends(|m| m.cpus.siblings = vec![2, 3]), [""; 0]);
        assert_eq!(mends(|m| m.private_ipc = false), [""; 0]);
    }

    #[test]
    fn a_quota_of_all_cpus_can_never_run_out() {
        let mut machine = good();
        machine.cgroup.cpu = Some(Quota {
            cpus: 4.0,
            period_us: 100_000,
            group: "/pod".into(),
        });
        assert!(
            survey(&machine, &busy(0.0))
                .iter()
                .all(|f| f.matters == Severity::Fine)
        );
    }

    #[test]
    fn other_work_is_judged_by_the_thresholds_of_the_verdicts() {
        for (busy, matters) in [
            (0.0, Severity::Fine),
            (0.03, Severity::Fine),
            (0.05, Severity::Note),
            (0.5, Severity::Bends),
        ] {
            let finding = other_programs(&good(), &super::tests::busy(busy));
            assert_eq!(finding.matters, matters, "{busy}");
        }
    }

    #[test]
    fn other_programs_are_named_and_waited_for() {
        let finding = other_programs(&good(), &busy(0.2));
        let found = "0.80 of 4 CPUs in use: make (812) 80 % of a CPU; load average 0.10";
        assert_eq!(finding.found, found);
        assert!(finding.remedy.unwrap().contains("--wait-quiet"));
        let hidden = Neighbours {
            sees_all: false,
            ..busy(0.0)
        };
        assert_eq!(other_programs(&good(), &hidden).matters, Severity::Note);
    }

    #[test]
    fn semaphores_that_are_used_up_block_only_without_a_namespace_of_our_own() {
        let mut machine = good();
        machine.kernel.semaphore_sets_used = 32_000;
        assert_eq!(semaphores(&machine).unwrap().matters, Severity::Fine);
        machine.private_ipc = false;
        assert_eq!(semaphores(&machine).unwrap().matters, Severity::Blocks);
        machine.kernel.semaphore_sets_used = 0;
        assert_eq!(semaphores(&machine).unwrap().matters, Severity::Fine);
        machine.kernel.semaphores.as_mut().unwrap().per_set = 250;
        assert_eq!(semaphores(&machine).unwrap().matters, Severity::Note);
    }

    #[test]
    fn a_machine_that_tells_nothing_is_not_called_fine() {
        let findings = survey(&Machine::default(), &Neighbours::default());
        let blind = findings.iter().find(|f| f.what == "/proc").unwrap();
        assert_eq!(blind.matters, Severity::Blocks);
        assert!(
            findings
                .iter()
                .all(|f| f.what != "other programs right now")
        );
        assert!(
            survey(&good(), &busy(0.0))
                .iter()
                .all(|f| f.what != "/proc")
        );
    }

    #[test]
    fn a_machine_that_tells_nothing_is_surveyed_too() {
        for finding in survey(&Machine::default(), &Neighbours::default()) {
            let fine = finding.matters == Severity::Fine;
            assert_eq!(fine, finding.remedy.is_none(), "{finding:?}");
        }
    }
}
