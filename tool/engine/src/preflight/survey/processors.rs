//! The CPUs in `jostle doctor`: how many there are, how they keep time, and who takes some of
//! theirs.

use super::{Finding, SHELL, STOLEN, Severity, above, percent, write_to};
use jostle_harness::steal_share;
use jostle_sys::limits::{Machine, cgroup};

/// How many may be used.
pub(super) fn cpus(machine: &Machine) -> Option<Finding> {
    let (allowed, online) = (machine.cpus.allowed.len(), machine.cpus.online.len());
    let found = format!("{allowed} of {online} may be used");
    let finding = Finding::fine("CPUs", found);
    let finding = match () {
        _ if online <= 1 => finding.bends(
            "two workers never run at the same time, and no hand-off crosses cores: results hold \
             for one CPU, and `jostle compare` knows only other machines with one",
        ),
        _ if allowed == 1 => finding.bends(format!(
            "two workers never run at the same time, and no hand-off crosses cores: {}",
            to_use_all(online)
        )),
        _ if allowed < online => finding.note(to_use_all(online)),
        _ => finding,
    };
    let last = online.saturating_sub(1);
    Some(match allowed < online {
        true => finding.mended_by(format!("taskset --cpu-list --pid 0-{last} {SHELL}")),
        false => finding,
    })
}

fn to_use_all(online: usize) -> String {
    let all = format!("0-{}", online - 1);
    format!(
        "to use all: `taskset -c {all} jostle contend`, in a container after `docker update \
         --cpuset-cpus {all} CONTAINER`"
    )
}

/// Those that share a core.
pub(super) fn siblings(machine: &Machine) -> Option<Finding> {
    let second = &machine.cpus.siblings;
    if second.is_empty() {
        return Some(Finding::fine(
            "hardware threads",
            "one for each core that is shown",
        ));
    }
    let first: Vec<String> = machine
        .cpus
        .allowed
        .iter()
        .filter(|cpu| !second.contains(cpu))
        .map(usize::to_string)
        .collect();
    let found = format!("{} CPUs share a core with another", second.len());
    Some(Finding::fine("hardware threads", found).note(format!(
        "for one worker on each core: `--place cpus:{}`",
        first.join(",")
    )))
}

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// The kernel's own clock.
pub(super) fn clock_source(machine: &Machine) -> Option<Finding> {
    let source = machine.cpus.clock_source.as_deref()?;
    let finding = Finding::fine("clock source", source);
    // Processors without a time stamp counter have one good source of their own.
    if machine.cpus.invariant_tsc.is_none() || source == "tsc" {
        return Some(finding);
    }
    let has_tsc = machine.cpus.clock_sources.iter().any(|s| s == "tsc");
    let remedy = if has_tsc {
        "stamps cost more than with tsc: `echo tsc > \
         /sys/devices/system/clocksource/clocksource0/current_clocksource` as root"
    } else {
        "stamps cost more than with tsc, which the kernel does not trust here (see `dmesg | grep \
         -i tsc`): use `--measure counts` for locks that are quicker than a stamp"
    };
    // These two are read without a system call; others (hpet, acpi_pm) cost
    // a microsecond and more for each stamp.
    let quick = ["kvm-clock", "hyperv_clocksource_tsc_page"].contains(&source);
    let matters = match quick {
        true => Severity::Note,
        false => Severity::Bends,
    };
    let finding = finding.but(matters, remedy);
    Some(match has_tsc {
        true => finding.mended_by(format!("echo tsc > {CLOCK_SOURCE}")),
        false => finding,
    })
}

/// The clock that stamps are read from.
pub(super) fn counter(machine: &Machine) -> Option<Finding> {
    let what = "time stamp counter";
    Some(match machine.cpus.invariant_tsc? {
        true => Finding::fine(what, "runs at one rate in every state"),
        false => Finding::fine(what, "changes its rate or stops with power states").note(
            "stamps come from CLOCK_MONOTONIC and cost more: use `--measure counts` for locks \
             that are quicker than a stamp",
        ),
    })
}

/// The governor that decides on frequency.
pub(super) fn governor(machine: &Machine) -> Option<Finding> {
    let what = "frequency governor";
    Some(match machine.cpus.governor.as_deref() {
        None => Finding::fine(what, "none (as in virtual machines)"),
        Some("performance") => Finding::fine(what, "performance"),
        Some(other) => Finding::fine(what, other)
            .bends(
                "clock rates change while measuring: `echo performance | tee \
                 /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor` as root",
            )
            .mended_by(
                "echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
            ),
    })
}

/// The quota that stops us for part of each period.
pub(super) fn quota(machine: &Machine) -> Option<Finding> {
    let what = "CPU quota";
    let Some(quota) = &machine.cgroup.cpu else {
        return Some(Finding::fine(what, "none"));
    };
    let throttled = cgroup::throttled(&machine.cgroup.cpu_stats);
    let found = format!(
        "{:.2} CPUs in every {} ms, used up in {} of {} periods so far",
        quota.cpus,
        quota.period_us / 1000,
        throttled.throttled_periods,
        throttled.periods,
    );
    let finding = Finding::fine(what, found);
    // A quota of at least all CPUs can never run out.
    if quota.cpus >= machine.cpus.allowed.len() as f64 {
        return Some(finding);
    }
    let (group, allowed) = (quota.group.display(), machine.cpus.allowed.len());
    let is_v1 = machine.cgroup.name.as_ref();
    let is_v1 = is_v1.is_some_and(|name| name.starts_with("v1"));
    let mend = match is_v1 {
        true => write_to("-1", &quota.group, "cpu.cfs_quota_us"),
        false => write_to("max", &quota.group, "cpu.max"),
    };
    let finding = finding.bends(format!(
        "a run that is throttled is INVALID: raise the limit of {group} (`docker update --cpus \
             {allowed} CONTAINER`, `systemctl set-property UNIT CPUQuota={}%`, Kubernetes: \
             `limits.cpu: {allowed}`)",
        100 * allowed
    ));
    Some(finding.mended_by(mend))
}

/// The time that the hypervisor gave to others.
pub(super) fn steal(machine: &Machine) -> Option<Finding> {
    let ticks = machine.ticks.as_ref()?;
    let share = steal_share(ticks.busy, ticks.stolen)?;
    let finding = Finding::fine("steal since boot", percent(share));
    Some(match above(share, STOLEN) {
        Severity::Fine => finding,
        matters => finding.but(
            matters,
            "the hypervisor gives this time to others: compare targets within one run, where they \
             take turns (`jostle contend flock sysv`), or use a machine with CPUs of its own",
        ),
    })
}
