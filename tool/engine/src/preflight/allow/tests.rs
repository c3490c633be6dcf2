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

/// The need of a point with `workers` processes.
fn need(workers: u64) -> Need {
    Need {
        workers,
        option: "-w",
        hosts: 1,
        ranks: 1,
        carrier: Carrier::Processes,
        generator_threads: 1,
        started_each: 0,
        descriptors_each: 1,
        ports: 0,
        resting_ports: 0,
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
        "10000 worker processes need 10003 pids, the cgroup's pids.max is 500 (12 in use): \
         raise it (`echo 10015 > /sys/fs/cgroup/pod/pids.max` as root), or -w at most 485"
    );
    let mut machine = roomy();
    machine.cgroup.tasks = bound("pids.max", 500, 12);
    assert_eq!(fits(&need(485), &machine), Ok(()));
    assert!(fits(&need(486), &machine).is_err());
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
        ("kernel.pid_max", "kernel.pid_max=1389", |m| {
            m.kernel.pid_max = Some(1000)
        }),
        ("kernel.threads-max", "kernel.threads-max=1089", |m| {
            m.kernel.threads_max = Some(900)
        }),
        ("pids.max", "or -w at most 7", |m| {
            m.cgroup.tasks = bound("pids.max", 20, 10)
        }),
        ("RLIMIT_NPROC", "`ulimit -u 1053`, or -w at most 147", |m| {
            nproc(m, None)
        }),
        ("RLIMIT_NPROC", "prlimit --pid $$ --nproc=1053", |m| {
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
fn what_workers_start_counts_among_their_tasks() {
    let short = |m: &mut Machine| m.cgroup.tasks = bound("pids.max", 1000, 100);
    let programs = Need {
        started_each: 2,
        ..need(400)
    };
    let (limit, text) = refusal(&programs, short);
    assert_eq!(limit, "pids.max");
    assert!(
        text.starts_with("400 worker processes need 1203 pids"),
        "{text}"
    );
    // 900 are free, of which two are jostle's own.
    assert!(text.ends_with("or -w at most 299"), "{text}");
    let mut machine = roomy();
    short(&mut machine);
    assert_eq!(fits(&need(400), &machine), Ok(()));
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
fn ports_are_short_for_connections_that_are_open_and_for_those_that_rest() {
    let with = |ports, resting_ports, ranks| {
        let need = Need {
            ports,
            resting_ports,
            ranks,
            ..need(10)
        };
        let mut machine = roomy();
        machine.net.ports = Some((32_768, 60_999));
        machine.net.reserved = 2;
        fits(&need, &machine).map_err(|refusal| (refusal.limit, refusal.text))
    };
    const RANGE: &str = "net.ipv4.ip_local_port_range";
    assert_eq!(with(28_230, 14_116, 1), Ok(()));
    let (limit, text) = with(28_231, 0, 1).unwrap_err();
    assert_eq!(limit, RANGE);
    assert!(
        text.contains("28231 ports towards the server, net.ipv4.ip_local_port_range has 28230"),
        "{text}"
    );
    let (limit, text) = with(2, 14_117, 1).unwrap_err();
    assert_eq!(limit, RANGE);
    assert!(
        text.contains("14117 connections") && text.contains("tcp_tw_reuse=1"),
        "{text}"
    );
    // Ranks of one machine share its ports.
    assert!(with(2, 7_059, 2).is_err());
    // A machine that does not tell is believed.
    let mut silent = roomy();
    silent.net.ports = None;
    let many = Need {
        ports: 1_000_000,
        ..need(10)
    };
    assert_eq!(fits(&many, &silent), Ok(()));
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
        text.starts_with("100 worker processes need 103 pids"),
        "{text}"
    );
    assert!(text.ends_with(", or --in-flight at most 846"), "{text}"); // 47 each
    // Ranks of one machine share what is the machine's, and no process's own limits.
    type Change = fn(&mut Machine);
    let table: [(Change, &str, &str); 3] = [
        (
            |m| m.kernel.pid_max = Some(86 + 300 + 305),
            "3 ranks with 100 worker processes each need 309 pids",
            "or --in-flight at most 1764", // 101 - 3 each
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
    assert!(text.starts_with("1 worker process needs 4 pids"), "{text}");
    assert!(!text.contains("at most"), "{text}");
}
