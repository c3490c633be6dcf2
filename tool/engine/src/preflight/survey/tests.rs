use super::super::busy::Program;
use super::*;
use jostle_sys::limits::cgroup::{Bound, Quota};
use jostle_sys::limits::net::Net;
use jostle_sys::limits::text::{Memory, Semaphores};
use jostle_sys::stat::MachineTicks;

/// One program that uses this share of four CPUs.
fn busy(share: f64) -> BusyPrograms {
    let cpus = 4.0 * share;
    BusyPrograms {
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
        ports: Some((32_768, 60_999)),
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
            m.net.ports = Some((60_000, 60_099));
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

/// A finding has a command where a shell of root could run it; the rest needs a person who decides.
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
    let hidden = BusyPrograms {
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
    let findings = survey(&Machine::default(), &BusyPrograms::default());
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
    for finding in survey(&Machine::default(), &BusyPrograms::default()) {
        let fine = finding.matters == Severity::Fine;
        assert_eq!(fine, finding.remedy.is_none(), "{finding:?}");
    }
}
