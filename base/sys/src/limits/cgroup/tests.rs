use super::*;
use std::fs;

/// A file tree that stands for a machine.
fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn read(files: &[(&str, &str)]) -> Cgroup {
    let root = machine(files);
    let mut found = Cgroup::read(root.path());
    // So that the expected paths below are those of the machine.
    let plain = |path: &mut PathBuf| {
        *path = Path::new("/").join(path.strip_prefix(root.path()).unwrap());
    };
    found
        .tasks
        .iter_mut()
        .for_each(|bound| plain(&mut bound.group));
    found
        .memory
        .iter_mut()
        .for_each(|bound| plain(&mut bound.group));
    found
        .cpu
        .iter_mut()
        .for_each(|quota| plain(&mut quota.group));
    found
}

const V2_MOUNT: &str = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";

#[test]
fn memberships_of_both_versions_are_told_apart() {
    let text = "9:name=systemd:/\n3:cpu,cpuacct:/docker/ab\n0::/user.slice/x:y\nnonsense\n";
    let found = memberships(text);
    let expected = [
        (Version::V1, vec!["name=systemd"], "/"),
        (Version::V1, vec!["cpu", "cpuacct"], "/docker/ab"),
        (Version::V2, vec![], "/user.slice/x:y"), // a path may hold colons
    ];
    assert_eq!(found.len(), expected.len());
    for (found, (version, controllers, path)) in found.iter().zip(expected) {
        assert_eq!((found.version, found.path.as_str()), (version, path));
        assert_eq!(found.controllers, controllers);
    }
}

#[test]
fn only_control_group_mounts_are_taken_and_their_names_unescaped() {
    let text = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                32 31 0:29 /docker/ab /sys/fs/c\\040g rw,relatime shared:7 - cgroup cgroup rw,cpu,cpuacct\n";
    let found = mounts(text);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].root, "/docker/ab");
    assert_eq!(found[0].point, Path::new("/sys/fs/c g"));
    assert!(found[0].options.iter().any(|o| o == "cpuacct"));
}

#[test]
fn the_group_is_found_below_the_mount_s_top() {
    let table = [
        // top of the mount, path of the process, below the mount point
        ("/", "/a/b", "a/b"),
        ("/docker/ab", "/docker/ab", ""), // a container that sees itself
        ("/docker/ab", "/docker/ab/child", "child"),
        ("/docker/ab", "/elsewhere", ""), // names of another view
        ("/", "/../../sibling", ""),      // outside of our namespace
        ("/a", "/ab", ""),                // whole components only
    ];
    for (top, path, expected) in table {
        let mount = Mount {
            version: Version::V2,
            options: Vec::new(),
            root: top.to_owned(),
            point: PathBuf::new(),
        };
        assert_eq!(below(&mount, path), Path::new(expected), "{top} {path}");
    }
}

#[test]
fn v2_takes_the_tightest_of_all_ancestors() {
    let found = read(&[
        ("proc/self/cgroup", "0::/pod/app\n"),
        ("proc/self/mountinfo", V2_MOUNT),
        ("sys/fs/cgroup/pod/pids.max", "500\n"),
        ("sys/fs/cgroup/pod/pids.current", "12\n"),
        ("sys/fs/cgroup/pod/app/pids.max", "max\n"),
        ("sys/fs/cgroup/pod/app/pids.current", "3\n"),
        ("sys/fs/cgroup/pod/memory.max", "1000000\n"),
        ("sys/fs/cgroup/pod/memory.current", "900000\n"),
        (
            "sys/fs/cgroup/pod/memory.stat",
            "anon 1\ninactive_file 100000\n",
        ),
        ("sys/fs/cgroup/pod/app/memory.max", "800000\n"),
        ("sys/fs/cgroup/pod/app/memory.high", "700000\n"),
        ("sys/fs/cgroup/pod/app/memory.current", "100000\n"),
        ("sys/fs/cgroup/pod/cpu.max", "50000 100000\n"),
        (
            "sys/fs/cgroup/pod/cpu.stat",
            "usage_usec 5\nnr_periods 7\nnr_throttled 4\n",
        ),
        ("sys/fs/cgroup/pod/app/cpu.max", "max 100000\n"),
    ]);
    assert_eq!(found.name.as_deref(), Some("v2 /pod/app"));
    let tasks = found.tasks.unwrap();
    assert_eq!((tasks.max, tasks.used, tasks.room()), (500, 12, 488));
    assert_eq!(tasks.group, Path::new("/sys/fs/cgroup/pod"));
    // The pod has less room left than its part, though the larger limit.
    let memory = found.memory.unwrap();
    assert_eq!(
        (memory.name, memory.max, memory.used),
        ("memory.max", 1_000_000, 800_000)
    );
    assert_eq!(found.cpu.unwrap().cpus, 0.5);
    assert_eq!(found.cpu_stats.len(), 1);
}

/// Under version 2 the groups of weak generators were made below that of jostle
/// itself, where nobody can enter (Linux 6.1); beside it they would have escaped the
/// limit of their host.
#[test]
fn a_place_for_a_group_can_be_entered_and_is_within_every_limit_on_cpu_time() {
    type Files = &'static [(&'static str, &'static str)];
    const V1_MOUNT: &str = "32 31 0:29 / /sys/fs/cgroup rw - cgroup cgroup rw,cpu\n";
    const LIMIT: &str = "50000 100000\n";
    // A service: jostle is in it, and so are no others above.
    const FREE: Files = &[
        ("a/b/cgroup.type", "domain\n"),
        ("a/b/cgroup.procs", "7\n"),
        ("a/cgroup.type", "domain\n"),
        ("a/cgroup.procs", ""),
        ("cgroup.procs", "1\n"),
    ];
    const V1_LIMIT: Files = &[
        ("a/cpu.cfs_quota_us", "50000\n"),
        ("a/cpu.cfs_period_us", "100000\n"),
        ("a/b/cgroup.procs", "7\n"),
    ];
    let table: [(&str, &str, Files, Files, &[&str]); 4] = [
        // own group, mount, files of groups, limits -> places
        ("0::/a/b\n", V2_MOUNT, FREE, &[], &["a", ""]),
        ("0::/a/b\n", V2_MOUNT, FREE, &[("a/cpu.max", LIMIT)], &["a"]),
        ("0::/a/b\n", V2_MOUNT, FREE, &[("a/b/cpu.max", LIMIT)], &[]),
        ("3:cpu:/a/b\n", V1_MOUNT, V1_LIMIT, &[], &["a/b", "a"]),
    ];
    for (own, mount, groups, limits, expected) in table {
        let inside: Vec<(String, &str)> = [groups, limits]
            .concat()
            .iter()
            .map(|(path, text)| (format!("sys/fs/cgroup/{path}"), *text))
            .collect();
        let mut files = vec![("proc/self/cgroup", own), ("proc/self/mountinfo", mount)];
        files.extend(inside.iter().map(|(path, text)| (path.as_str(), *text)));
        let root = machine(&files);
        let top = root.path().join("sys/fs/cgroup");
        let (_, places) = cpu_places_of(root.path());
        let expected: Vec<PathBuf> = expected.iter().map(|place| top.join(place)).collect();
        assert_eq!(places, expected, "{own} {limits:?}");
    }
}

#[test]
fn v2_stalls_at_memory_high_before_memory_max() {
    let found = read(&[
        ("proc/self/cgroup", "0::/\n"),
        ("proc/self/mountinfo", V2_MOUNT),
        ("sys/fs/cgroup/memory.max", "800\n"),
        ("sys/fs/cgroup/memory.high", "700\n"),
        ("sys/fs/cgroup/memory.current", "100\n"),
    ]);
    let memory = found.memory.unwrap();
    assert_eq!((memory.name, memory.room()), ("memory.high", 600));
}

#[test]
fn v1_has_a_hierarchy_for_each_controller_and_hybrid_prefers_it() {
    let found = read(&[
        (
            "proc/self/cgroup",
            "8:pids:/\n4:memory:/app/one\n3:cpuacct,cpu:/app\n0::/\n",
        ),
        (
            "proc/self/mountinfo",
            "32 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
             35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n\
             39 31 0:36 / /cg/pids rw - cgroup cgroup rw,pids\n\
             41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n",
        ),
        ("cg/unified/pids.max", "1\n"), // another hierarchy: binds nobody here
        ("cg/memory/app/memory.limit_in_bytes", "1000000\n"),
        ("cg/memory/app/memory.usage_in_bytes", "300000\n"),
        (
            "cg/memory/app/memory.stat",
            "inactive_file 1\ntotal_inactive_file 50000\n",
        ),
        (
            "cg/memory/app/one/memory.limit_in_bytes",
            "9223372036854771712\n",
        ),
        ("cg/cpu/cpu.cfs_quota_us", "-1\n"),
        ("cg/cpu/cpu.cfs_period_us", "100000\n"),
        ("cg/cpu/app/cpu.cfs_quota_us", "150000\n"),
        ("cg/cpu/app/cpu.cfs_period_us", "100000\n"),
    ]);
    assert_eq!(
        found.name.as_deref(),
        Some("v1 pids:/ memory:/app/one cpu:/app")
    );
    assert_eq!(found.tasks, None); // the root of a hierarchy has no limit
    let memory = found.memory.unwrap();
    assert_eq!(
        (memory.name, memory.room()),
        ("memory.limit_in_bytes", 750_000)
    );
    assert_eq!(memory.group, Path::new("/cg/memory/app"));
    let cpu = found.cpu.unwrap();
    assert_eq!((cpu.cpus, cpu.period_us), (1.5, 100_000));
}

#[test]
fn where_there_are_no_control_groups_nothing_is_limited() {
    assert_eq!(read(&[]), Cgroup::default());
    let unmounted = read(&[("proc/self/cgroup", "0::/a\n")]);
    assert_eq!(unmounted.name.as_deref(), Some("v2 /a"));
    assert_eq!((unmounted.tasks, unmounted.cpu), (None, None));
}

#[test]
fn throttled_periods_are_summed_over_the_groups_with_a_quota() {
    let root = machine(&[
        ("a", "nr_periods 10\nnr_throttled 4\nthrottled_time 99\n"),
        ("b", "usage_usec 5\nnr_periods 7\nnr_throttled 1\n"),
    ]);
    let files = ["a", "b", "gone"].map(|name| root.path().join(name));
    let expected = Throttled {
        periods: 17,
        throttled_periods: 5,
    };
    assert_eq!(throttled(&files), expected);
}

/// A worker that its control group had frozen once stood still without a cause.
#[test]
fn a_group_that_is_frozen_keeps_its_processes_from_running() {
    let v1 = "32 31 0:29 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n";
    let frozen = |files: &[(&str, &str)]| is_frozen_below(machine(files).path(), "7");
    for (state, is) in [
        ("FROZEN\n", true),
        ("FREEZING\n", true),
        ("THAWED\n", false),
    ] {
        let found = frozen(&[
            ("proc/7/cgroup", "6:freezer:/a\n0::/\n"),
            ("proc/self/mountinfo", v1),
            ("sys/fs/cgroup/freezer/a/freezer.state", state),
        ]);
        assert_eq!(found, is, "{state}");
    }
    for (frozen_is, is) in [("1", true), ("0", false)] {
        let found = frozen(&[
            ("proc/7/cgroup", "0::/pod\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            (
                "sys/fs/cgroup/pod/cgroup.events",
                &format!("populated 1\nfrozen {frozen_is}\n"),
            ),
        ]);
        assert_eq!(found, is, "{frozen_is}");
    }
    assert!(!frozen(&[]));
}

#[test]
fn processes_that_the_kernel_killed_for_want_of_memory_are_counted_by_their_group() {
    let v1 = "32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    let killed = |files: &[(&str, &str)]| {
        let root = machine(files);
        oom_killed(&oom_events(root.path(), "7")?)
    };
    let found = killed(&[
        ("proc/7/cgroup", "4:memory:/a\n0::/\n"),
        ("proc/self/mountinfo", v1),
        (
            "sys/fs/cgroup/memory/a/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        ),
    ]);
    assert_eq!(found, Some(3));
    let found = killed(&[
        ("proc/7/cgroup", "0::/pod\n"),
        ("proc/self/mountinfo", V2_MOUNT),
        (
            "sys/fs/cgroup/pod/memory.events",
            "low 0\noom 2\noom_kill 1\n",
        ),
    ]);
    assert_eq!(found, Some(1));
    assert_eq!(killed(&[]), None);
}
