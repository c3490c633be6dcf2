use super::*;

fn resolution(workload: Workload, change: impl FnOnce(&mut Plan)) -> Result<Resolved, UsageError> {
    let mut plan = Plan::of(workload);
    change(&mut plan);
    resolve(plan, 7, &[0, 1])
}

#[test]
fn streams_and_holds_sweep_the_ends_of_their_ancestor_s_lists() {
    let stream = resolution(Workload::Stream, |_| {}).unwrap();
    assert_eq!(stream.plan.targets, ["lockd", "flock"]);
    let ats: Vec<_> = stream.points()[..4]
        .iter()
        .map(|(_, at)| (at.workers.unwrap(), at.operations.unwrap()))
        .collect();
    assert_eq!(ats, [(1, 1_000), (1, 10_000), (2, 1_000), (2, 10_000)]);
    let hold = resolution(Workload::Hold, |_| {}).unwrap();
    assert_eq!(hold.points()[1].1.keys, Some(10_000));
    for once in [stream.plan, hold.plan] {
        assert_eq!(resolve(once.clone(), 99, &[0, 1]).unwrap().plan, once);
    }
}

#[test]
fn a_workload_refuses_what_it_cannot_do_with_what_would() {
    type Case = (Workload, fn(&mut Plan), &'static str);
    let table: &[Case] = &[
        (
            Workload::Stream,
            |p| p.hold = Some(Busy::Spin(Nanos(1))),
            "stream has no hold",
        ),
        (
            Workload::Stream,
            |p| p.keys = Some(List(vec![2])),
            "or use: contend, hold",
        ),
        (
            Workload::Hold,
            |p| p.names = Some(Names::Own),
            "hold has no names",
        ),
        (
            Workload::Stream,
            |p| p.carrier = Some(Carrier::Tasks),
            "flock --as tasks: a call that waits",
        ),
        (
            Workload::Stream,
            |p| p.generator_threads = Some(2),
            "works with --as tasks only",
        ),
        (
            Workload::Contend,
            |p| {
                p.targets = vec!["lockd".into()];
                p.carrier = Some(Carrier::Tasks);
                p.hold = Some(Busy::Spin(Nanos(1)));
            },
            "let hold and idle sleep",
        ),
        (
            Workload::Contend,
            |p| p.pipeline = Some(2),
            "contend has no pipeline",
        ),
        (
            Workload::Contend,
            |p| p.keys = Some(List(vec![1, 2])),
            "`jostle hold` takes several",
        ),
        (
            Workload::Stream,
            |p| p.operations = Some(List(vec![0])),
            "-n: 1 to",
        ),
        (
            Workload::Stream,
            |p| p.pipeline = Some(2_000),
            "--pipeline: 1 to 1000",
        ),
        (
            Workload::Stream,
            |p| p.pipeline = Some(10),
            "flock takes one request at a time; --pipeline works with: lockd, lockd+unix, redis",
        ),
        (
            Workload::Stream,
            |p| {
                p.targets = vec!["redis".into()];
                p.pipeline = Some(10);
            },
            "use --names own, -w 1, or one of: lockd, lockd+unix",
        ),
        (
            Workload::Hold,
            |p| {
                p.workers = Some(List(vec![2]));
                p.keys = Some(List(vec![1_000_000]));
            },
            "makes 2000000 locks",
        ),
    ];
    for (workload, change, says) in table {
        let text = resolution(*workload, change).map(|_| ()).unwrap_err().0;
        assert!(text.contains(says), "{text:?} does not say {says:?}");
    }
}

#[test]
fn tasks_leave_half_of_the_cpus_to_the_server() {
    for (cpus, threads) in [(1, 1), (2, 1), (3, 1), (8, 4)] {
        let mut plan = Plan::of(Workload::Stream);
        plan.targets = vec!["lockd".into()];
        plan.carrier = Some(Carrier::Tasks);
        let allowed: Vec<usize> = (0..cpus).collect();
        let resolved = resolve(plan, 7, &allowed).unwrap().plan;
        assert_eq!(resolved.generator_threads, Some(threads), "{cpus}");
        assert_eq!(resolve(resolved.clone(), 9, &[0]).unwrap().plan, resolved);
    }
}

fn plan(change: impl FnOnce(&mut Plan)) -> Result<Resolved, UsageError> {
    let mut plan = Plan::of(Workload::Contend);
    change(&mut plan);
    resolve(plan, 7, &[0, 1])
}

#[test]
fn nothing_said_is_lockscale_s_question_on_two_kernel_locks() {
    let resolved = plan(|_| {}).unwrap();
    assert_eq!(resolved.plan.targets, ["flock", "sysv"]);
    assert_eq!(resolved.plan.hold, Some(Busy::Sleep(Nanos::from_millis(1))));
    assert_eq!(resolved.plan.seed, Some(7));
    assert_eq!(resolved.points().len(), 4);
    assert!(resolved.may_drop);
}

#[test]
fn a_resolved_plan_resolves_to_itself() {
    let once = plan(|_| {}).unwrap().plan;
    assert_eq!(resolve(once.clone(), 99, &[0, 1]).unwrap().plan, once);
}

#[test]
fn what_makes_no_sense_is_refused_with_what_would() {
    type Case = (fn(&mut Plan), &'static str);
    let table: &[Case] = &[
        (|p| p.workers = Some(List(vec![0])), "at least one worker"),
        (|p| p.workers = Some(List(vec![200_000])), "at most 100000"),
        (|p| p.duration = Some(Nanos::ZERO), "a pilot decides"),
        (|p| p.runs = Some(0), "--runs: 1 to"),
        (|p| p.keys = Some(List(vec![0])), "--keys: 1 to"),
        (|p| p.timer_slack = Some(Nanos::ZERO), "type 50us"),
        (|p| p.shared = Some(1.5), "from 0 to 1"),
        (|p| p.shared = Some(f64::NAN), "from 0 to 1"),
        (
            |p| p.place = Some(Place::Cpus(vec![9])),
            "CPU 9 does not exist or is not allowed here; allowed: 0,1",
        ),
        (
            |p| p.server_place = Some(Place::Cpus(vec![9])),
            "--server-place cpus:9: CPU 9 does not exist",
        ),
        (|p| p.targets = vec!["flok".into()], "flock"),
        (
            |p| p.targets = vec!["flock".into(), "flock".into()],
            "named twice",
        ),
        (
            |p| {
                p.targets = vec!["posix".into()];
                p.carrier = Some(Carrier::Threads);
            },
            "--as processes",
        ),
        (
            |p| {
                p.targets = vec!["sysv".into()];
                p.shared = Some(0.5);
            },
            "flock",
        ),
        (|p| p.range = Some(Range::Overlap), "ofd"),
        (|p| p.acquire_timeout = Some(Nanos(1)), "sysv"),
        (
            |p| {
                p.targets = vec!["redis".into()];
                p.hold = Some(Busy::Sleep(Nanos::from_millis(30_000)));
            },
            "do not renew it while they hold; use --hold 15s",
        ),
        (
            |p| {
                p.try_only = Some(true);
                p.acquire_timeout = Some(Nanos(1));
            },
            "leave one out",
        ),
    ];
    for (change, says) in table {
        let text = plan(change).map(|_| ()).unwrap_err().0;
        assert!(text.contains(says), "{text:?} does not say {says:?}");
    }
}
