//! The machine as it stands in a result: from one reading of its limits to the
//! record's `environment`.
//!
//! Not for judging: [`crate::preflight`] says what bends a measurement, the
//! verdicts say what did.

use jostle_harness::steal_share;
use jostle_model::record::Environment;
use jostle_sys::limits::{Machine, Rlimit};
use std::collections::BTreeMap;

/// The record of `machine`. `version` and `commit` are jostle's own; the file
/// systems of the targets' paths are added by whoever knows the targets.
pub fn environment(machine: &Machine, version: &str, commit: Option<&str>) -> Environment {
    let memory = machine.memory.unwrap_or_default();
    Environment {
        host: machine.host.clone(),
        kernel: machine.kernel_release.clone(),
        cpu_model: machine.cpus.model.clone(),
        cores: machine.cpus.allowed.len() as u64,
        governor: machine.cpus.governor.clone(),
        kernel_clock_source: machine.cpus.clock_source.clone(),
        cpu_accounting: machine.cpus.accounting.clone(),
        memory_bytes: memory.total_bytes,
        memory_available_bytes: memory.available_bytes,
        steal_share_since_boot: machine
            .ticks
            .as_ref()
            .and_then(|t| steal_share(t.busy, t.stolen)),
        limits: limits(machine),
        settings: machine.settings.clone(),
        cgroup: machine.cgroup.name.clone(),
        file_systems: BTreeMap::new(),
        programs: BTreeMap::new(),
        hash_sizes: machine.net.hash_sizes.clone(),
        hosts: Vec::new(),
        jostle: match commit {
            Some(commit) => format!("{version} ({commit})"),
            None => version.to_owned(),
        },
        libc: machine.libc.clone(),
    }
}

/// The limits by the names under which their manuals know them.
fn limits(machine: &Machine) -> BTreeMap<String, String> {
    let mut limits = BTreeMap::new();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            limits.insert(name.to_owned(), value);
        }
    };
    let rlimits = &machine.rlimits;
    for (name, limit) in [
        ("RLIMIT_NOFILE", rlimits.descriptors),
        ("RLIMIT_NPROC", rlimits.tasks),
        ("RLIMIT_FSIZE", rlimits.file_bytes),
        ("RLIMIT_AS", rlimits.address_space_bytes),
        ("RLIMIT_CPU", rlimits.cpu_s),
    ] {
        let Rlimit { soft, hard } = limit;
        put(&format!("{name} soft"), Some(or_unlimited(soft)));
        put(&format!("{name} hard"), Some(or_unlimited(hard)));
    }
    let kernel = &machine.kernel;
    for (name, value) in [
        ("kernel.pid_max", kernel.pid_max),
        ("kernel.threads-max", kernel.threads_max),
        ("fs.file-max", kernel.file_max),
        ("fs.nr_open", kernel.nr_open),
        ("timer slack ns", machine.timer_slack_ns),
        ("/dev/shm bytes", machine.shm_bytes),
    ] {
        put(name, value.map(|n| n.to_string()));
    }
    let semaphores = kernel.semaphores.as_ref();
    put(
        "kernel.sem SEMMSL",
        semaphores.map(|s| s.per_set.to_string()),
    );
    put(
        "kernel.sem SEMMNS",
        semaphores.map(|s| s.in_all.to_string()),
    );
    put("kernel.sem SEMMNI", semaphores.map(|s| s.sets.to_string()));
    let bounds = [&machine.cgroup.tasks, &machine.cgroup.memory];
    for bound in bounds.into_iter().flatten() {
        put(
            bound.name,
            Some(format!("{} ({} in use)", bound.max, bound.used)),
        );
    }
    let quota = machine.cgroup.cpu.as_ref();
    put(
        "cgroup CPU quota",
        quota.map(|q| format!("{:.2} CPUs", q.cpus)),
    );
    limits
}

fn or_unlimited(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_sys::limits::cgroup::{Bound, Quota};

    #[test]
    fn every_limit_stands_under_its_own_name() {
        let mut machine = Machine::default();
        machine.rlimits.descriptors.soft = Some(1024);
        machine.kernel.pid_max = Some(32_768);
        machine.cgroup.name = Some("v2 /pod".to_owned());
        machine.cgroup.tasks = Some(Bound {
            name: "pids.max",
            max: 500,
            used: 12,
            group: "/pod".into(),
        });
        machine.cgroup.cpu = Some(Quota {
            cpus: 1.5,
            period_us: 100_000,
            group: "/pod".into(),
        });
        let found = environment(&machine, "0.1.0", Some("98b78a2"));
        assert_eq!(found.jostle, "0.1.0 (98b78a2)");
        assert_eq!(found.cgroup.as_deref(), Some("v2 /pod"));
        for (name, value) in [
            ("RLIMIT_NOFILE soft", "1024"),
            ("RLIMIT_NOFILE hard", "unlimited"),
            ("kernel.pid_max", "32768"),
            ("pids.max", "500 (12 in use)"),
            ("cgroup CPU quota", "1.50 CPUs"),
        ] {
            assert_eq!(
                found.limits.get(name).map(String::as_str),
                Some(value),
                "{name}"
            );
        }
        assert!(
            !found.limits.contains_key("fs.file-max"),
            "unknown is absent"
        );
    }

    #[test]
    fn this_machine_has_an_environment_without_holes() {
        let found = environment(&Machine::read(), "0.1.0", None);
        assert_eq!(found.jostle, "0.1.0");
        assert!(found.cores > 0 && found.memory_bytes > 0);
        for text in [
            &found.kernel,
            &found.cpu_model,
            &found.cpu_accounting,
            &found.libc,
        ] {
            assert!(!text.is_empty());
        }
    }
}
