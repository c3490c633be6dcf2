//! Limits of the machine that a plan exceeds are named before anything starts, with what lifts
//! them and what would fit.

use crate::common::cgroup::Cgroup;
use crate::common::{Place, beside, jostle, must_be_root, rows};
use crate::refusals::refuses;

#[test]
fn too_few_processes_for_this_user_are_said_before_the_start() {
    let place = Place::of_a_plain_user();
    let with = |workers: u64| {
        let line = format!("contend null -w {workers} -b 1ms -t 50ms --runs 1");
        place.jostle(&line).under("prlimit --nproc=20:20").run()
    };
    let says = "RLIMIT_NPROC of this user is 20 | prlimit --pid $$ --nproc=104 | or -w at most 16";
    refuses(with(100), 1, &says.split(" | ").collect::<Vec<_>>());
    // What it promises holds.
    with(16).measures().leaves_nothing();
}

#[test]
fn too_few_processes_for_the_control_group_are_said_before_the_start() {
    let _beside = beside();
    let group = Cgroup::with("pids");
    group.set(&[("pids.max", "30")], &[("pids.max", "30")]);
    let with = |workers: u64, carrier: &str| {
        // What the run before has left to the kernel would count as in use.
        group.until_empty();
        let line = format!("contend null -w {workers} --as {carrier} -b 1ms -t 50ms --runs 1");
        jostle(&line).after(&group.enter()).run()
    };
    let remedy = format!("{}/pids.max", group.path().display());
    // The first thread of a process of threads is no worker.
    for (carrier, most) in [("processes", 26), ("threads", 25)] {
        let fewer = format!("or -w at most {most}");
        refuses(
            with(100, carrier),
            1,
            &["the cgroup's pids.max is 30", &remedy, &fewer],
        );
        with(most, carrier).measures().leaves_nothing();
    }
}

#[test]
fn too_little_memory_of_the_control_group_is_said_before_the_start() {
    let _beside = beside();
    let group = Cgroup::with("memory");
    group.set(
        &[("memory.limit_in_bytes", "64M")],
        &[("memory.max", "64M")],
    );
    let done = jostle("contend null -w 2000 -t 50ms --runs 1")
        .after(&group.enter())
        .run();
    refuses(
        done,
        1,
        &[
            "2000 worker processes need",
            "MiB of memory, the cgroup's memory.",
            "is 64.0 MiB",
            "or -w at most",
        ],
    );
}

#[test]
fn limits_of_the_process_are_said_before_the_start() {
    let table = "
        --nofile=40:40 => contend flock --keys 100 -w 2 => need 132 descriptors each, RLIMIT_NOFILE is 40 | prlimit --pid $$ --nofile=132
        --fsize=100000 => contend null -w 300 => RLIMIT_FSIZE | ulimit -f unlimited
        --as=100000000 => contend null -w 5000 => RLIMIT_AS | ulimit -v | or -w at most";
    for [limit, line, says] in rows(table) {
        let run = jostle(&format!("{line} -t 50ms --runs 1"));
        let done = run.under(&format!("prlimit {limit}")).run();
        refuses(done, 1, &says.split(" | ").collect::<Vec<_>>());
    }
}

#[test]
fn semaphores_that_cannot_be_had_are_said_before_the_start() {
    // SEMMSL, SEMMNS, SEMOPM, SEMMNI
    let table = "
        32000 0 500 32000 => sysv => kernel.sem allows 0 in all (SEMMNS, 0 in use) | sysctl -w kernel.sem=
        32000 32000 500 0 => sysv => kernel.sem allows 0 sets (SEMMNI, 0 in use) | sysctl -w kernel.sem=
        100 32000 500 32000 => sysv --keys 4 => kernel.sem allows 100 in a set (SEMMSL) | --slots at most 100
        32000 32000 500 0 => sysv-undo => kernel.sem allows 0 sets";
    for [sem, target, says] in rows(table) {
        let line = format!("contend {target} -w 2 -t 50ms --runs 1");
        // The limits are those of a namespace; who may make one takes a fresh one.
        let jostle = Place::of_a_plain_user().jostle(&line);
        let done = jostle
            .after(&format!("echo '{sem}' > /proc/sys/kernel/sem"))
            .under("unshare --ipc")
            .run();
        refuses(done, 1, &says.split(" | ").collect::<Vec<_>>());
    }
    // All of them in somebody's hands.
    let jostle = Place::of_a_plain_user().jostle("contend sysv -w 2 -t 50ms --runs 1");
    let taken = "echo '32000 32000 500 1' > /proc/sys/kernel/sem && ipcmk -S 1 > /dev/null";
    let done = jostle.after(taken).under("unshare --ipc").run();
    let says = "remove sets that nobody uses (`ipcs -s`, `ipcrm`)";
    refuses(done, 1, &["(SEMMNI, 1 in use)", says]);
    // Root has a namespace of its own, and needs nobody's.
    let line = "contend sysv -w 2 -b 1ms -t 50ms --runs 1";
    let none = "echo '32000 0 500 0' > /proc/sys/kernel/sem";
    must_be_root("use up semaphores");
    Place::new()
        .jostle(line)
        .after(none)
        .under("unshare --ipc")
        .measures()
        .leaves_nothing();
}
