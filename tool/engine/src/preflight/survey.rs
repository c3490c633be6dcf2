//! The findings of `jostle doctor`: one small function for each thing that can
//! bend or refuse a measurement, and one list of them.

mod processors;
mod sockets;

use super::busy::BusyPrograms;
use jostle_harness::bytes;
use jostle_harness::limits::{self, SetBy};
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
    /// The subject, in a few words.
    pub what: String,
    /// The state found.
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

    /// This finding, flagged, with its remedy.
    fn but(mut self, matters: Severity, remedy: impl Into<String>) -> Finding {
        self.matters = matters;
        self.remedy = Some(remedy.into());
        self
    }

    fn note(self, remedy: impl Into<String>) -> Finding {
        self.but(Severity::Note, remedy)
    }

    fn bends(self, remedy: impl Into<String>) -> Finding {
        self.but(Severity::Bends, remedy)
    }

    fn blocks(self, remedy: impl Into<String>) -> Finding {
        self.but(Severity::Blocks, remedy)
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
pub fn survey(machine: &Machine, others: &BusyPrograms) -> Vec<Finding> {
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
            .blocks("`mount -t proc proc /proc` as root, or start the container or chroot with it")
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

fn other_programs(machine: &Machine, others: &BusyPrograms) -> Finding {
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
        Severity::Fine => finding.note(
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
    let limit = limits::tasks(machine)?;
    let (name, room) = (limit.name, limit.room());
    let (label, raised, mend) = match limit.set_by {
        SetBy::Group(group) => {
            let label = format!("{name} of {}", group.display());
            let raised = format!(
                "raise {label} (`docker update --pids-limit -1 CONTAINER`, `systemctl \
                 set-property UNIT TasksMax=infinity`)"
            );
            (label, raised, write_to("max", group, name))
        }
        SetBy::Sysctl => {
            let command = format!("sysctl -w {name}=4194304");
            (name.to_owned(), format!("`{command}` as root"), command)
        }
        SetBy::Shell(rlimit) => {
            let wanted = (limit.used + 2 * MOST_WORKERS).to_string();
            let mend = prlimit("nproc", &wanted, rlimit);
            (name.to_owned(), format!("`ulimit -u {wanted}`"), mend)
        }
    };
    let finding = Finding::fine("processes", format!("room for {room} more, by {label}"));
    Some(for_workers(finding, room, &raised).mended_by(mend))
}

/// Fine if there is room for the most workers, blocking if not even for those
/// of the default comparison.
fn for_workers(finding: Finding, room: u64, remedy: &str) -> Finding {
    let fewer = format!("or fewer of them, such as `-w {}`", (room / 2).max(1));
    match room {
        MOST_WORKERS.. => finding,
        USUAL_WORKERS.. => finding.note(format!("for {MOST_WORKERS} workers, {remedy}")),
        _ => finding.blocks(format!("for {USUAL_WORKERS} workers, {remedy}; {fewer}")),
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
        64.. => finding.note(format!(
            "for more than {soft} threads on file locks: `ulimit -n {wanted}`"
        )),
        _ => finding.blocks("a worker needs up to 64: `ulimit -n 1024`"),
    };
    Some(finding.mended_by(prlimit("nofile", &wanted, limit)))
}

fn file_size(machine: &Machine) -> Option<Finding> {
    let max = machine.rlimits.file_bytes.soft?;
    let finding = Finding::fine("size of a file", format!("at most {}", bytes(max))).note(
        "it also limits the memory that workers share, and the result file: `ulimit -f unlimited`",
    );
    Some(finding.mended_by(prlimit("fsize", "unlimited", machine.rlimits.file_bytes)))
}

fn cpu_time(machine: &Machine) -> Option<Finding> {
    let max = machine.rlimits.cpu_s.soft?;
    Some(
        Finding::fine("CPU time of a process", format!("at most {max} s"))
            .note("a worker that spins longer is killed: `ulimit -t unlimited`")
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
    let finding = Finding::fine("swap", format!("{} in use", bytes(used))).note(
        "a page that comes back from swap looks like a slow lock: free memory, then `swapoff -a \
         && swapon -a` as root",
    );
    Some(finding.mended_by("swapoff -a && swapon -a"))
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
        return Some(finding.note("leave out sysv targets: `jostle contend flock posix-sem`"));
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
        _ if room == 0 || sets >= limits.sets => finding.blocks(REMEDY).mended_by(MEND),
        _ if room < SLOTS => finding.note(REMEDY).mended_by(MEND),
        _ => finding,
    })
}

fn shm(machine: &Machine) -> Option<Finding> {
    /// The size that containers get by default; files of the locks are empty, so that even this is
    /// plenty.
    const LEAST: u64 = 1 << 20;
    let what = "/dev/shm";
    Some(match machine.shm_bytes {
        Some(size) if size >= LEAST => Finding::fine(what, format!("tmpfs of {}", bytes(size))),
        Some(size) => Finding::fine(what, format!("only {}", bytes(size)))
            .note("file locks lie there: `mount -o remount,size=64M /dev/shm` as root")
            .mended_by("mount -o remount,size=64M /dev/shm"),
        None => Finding::fine(what, "not mounted")
            .note(
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
    Finding::fine(what, "not permitted").note(
        "after kill -9 semaphores stay until the next start removes them; to prevent it: `unshare \
         --user --map-root-user --ipc jostle ...`",
    )
}

#[cfg(test)]
mod tests;
