//! The end of something that should not end: a worker, an owner, the keeper, the user's process,
//! all at once; and interrupts by the user, in every phase. Each time the exit code is right, the
//! message says what happened, finished points are kept, and nothing is left behind.

use crate::common::{
    Done, Place, Running, Signal, alone, beside, in_some_try, left, processes, reason,
};
use jostle_model::record::Run;
use std::time::Duration;

/// A run's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    OwnCost,
    Pilot,
    Ramp,
    WarmUp,
    Window,
    Drain,
}

const PHASES: [Phase; 6] = [
    Phase::OwnCost,
    Phase::Pilot,
    Phase::Ramp,
    Phase::WarmUp,
    Phase::Window,
    Phase::Drain,
];

/// Far more than the machine starts while a test looks twice.
const MANY: usize = 3_000;

impl Phase {
    /// A run in which this phase lasts long enough to be hit, with its lock
    /// file in the directory `locks`.
    fn line(self) -> String {
        let options = match self {
            // One pair takes 400 ms, and it makes some forty.
            Phase::OwnCost => "delay:400ms -w 2 -t 10m".to_owned(),
            // None is made if the window is given; its owner finishes its hold.
            Phase::Pilot => "-w 2 -b 500ms".to_owned(),
            Phase::Ramp => format!("-w {MANY} -t 10m"),
            Phase::WarmUp => "-w 2 --warmup 10m -t 1".to_owned(),
            Phase::Window => "-w 2 --warmup 50ms -t 10m".to_owned(),
            // The owner finishes its hold.
            Phase::Drain => "-w 2 --warmup 50ms -t 200ms -b 10m".to_owned(),
        };
        format!("contend {options} flock:locks --runs 2 -o result.jsonl")
    }

    /// A run that is in this phase now. A test that gets no CPU for a while may miss it.
    fn reach(self) -> Running {
        in_some_try("a run in the phase", || {
            let place = place_with_locks(Place::new());
            self.seen_by(place.jostle(&self.line()).in_background())
        })
    }

    fn seen_by(self, mut run: Running) -> Option<Running> {
        match self {
            Phase::OwnCost => drop(run.until_own_cost()),
            Phase::Pilot => {
                run.until_workers(2);
                run.place.read("result.jsonl").is_empty().then_some(())?;
            }
            Phase::Ramp => (run.until_workers(100).len() < MANY).then_some(())?,
            Phase::WarmUp | Phase::Window => {
                run.until_workers(2);
                run.after(Duration::from_millis(400));
            }
            Phase::Drain => {
                run.holder();
                run.after(Duration::from_millis(1_000));
            }
        }
        Some(run)
    }
}

fn place_with_locks(place: Place) -> Place {
    place.make_directory("locks");
    place
}

/// Nothing in memory, nothing in the directory of the lock files.
#[track_caller]
fn is_clean(done: Done) -> Done {
    let done = done.leaves_nothing();
    assert_eq!(done.place.list("locks"), [""; 0], "{}", done.transcript());
    done
}

/// The time within which an end at once comes on any machine; far below the ten minutes of window
/// and hold.
const SOON: Duration = Duration::from_secs(240);

/// A drain once went on for the rest of the owner's hold, 7 s of 8 s.
#[test]
fn an_interrupt_in_any_phase_ends_the_run_at_once() {
    let _beside = beside();
    for phase in PHASES {
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
            let run = phase.reach();
            let so_far = run.so_far();
            run.signal(signal);
            let done = run.end();
            assert!(
                done.took - so_far < SOON,
                "{phase:?}: {:?} after the signal",
                done.took - so_far
            );
            is_clean(done.exits(code).says("interrupted"));
        }
    }
}

#[test]
fn an_interrupt_at_any_time_ends_the_run_with_its_code() {
    let _beside = beside();
    // From before the program runs until its first window.
    for delay_ms in [0, 2, 5, 10, 20, 40, 80, 160, 320, 640] {
        let place = place_with_locks(Place::new());
        let run = place
            .jostle("contend flock:locks -w 20 -b 1ms -t 10m --runs 1")
            .in_background();
        run.after(Duration::from_millis(delay_ms))
            .signal(Signal::INT);
        is_clean(
            run.end()
                .ends_within(SOON + Duration::from_millis(delay_ms))
                .exits(130),
        );
    }
}

#[test]
fn a_second_interrupt_does_not_wait_for_good_order() {
    let _beside = beside();
    let run = Phase::Window.reach();
    run.signal(Signal::INT).signal(Signal::INT);
    is_clean(run.end().exits(130));
}

#[test]
fn an_interrupt_from_the_terminal_is_heard_by_the_parent_alone() {
    let _beside = beside();
    for phase in PHASES {
        let run = phase.reach();
        run.signal_group(Signal::INT);
        // A keeper that heard it would be missed, or an owner.
        is_clean(
            run.end()
                .exits(130)
                .says("interrupted")
                .does_not_say("the keeper"),
        );
    }
}

#[test]
fn a_hangup_is_an_interrupt_too() {
    let _beside = beside();
    let run = Phase::Window.reach();
    run.signal(Signal::HUP);
    is_clean(run.end().exits(129).says("interrupted"));
}

#[test]
fn a_killed_keeper_in_any_phase_is_a_failure_that_says_so() {
    let _beside = beside();
    for phase in PHASES {
        let mut run = phase.reach();
        let keeper = run.keeper();
        run.kill(keeper);
        let message = format!("the keeper process (pid {keeper}) ended unexpectedly (SIGKILL)");
        is_clean(run.end().exits(1).says(&message));
    }
}

#[test]
fn a_killed_parent_in_any_phase_leaves_nothing() {
    let _beside = beside();
    for phase in PHASES {
        let mut run = phase.reach();
        run.keeper();
        run.signal(Signal::KILL);
        is_clean(run.end().exits(137));
    }
}

/// A long series of short runs, some of which are done.
fn with_finished_points(place: &Place) -> Running {
    let line = "contend flock:locks -w 4 -b 1ms -t 250ms --warmup 50ms --runs 100 -o result.jsonl";
    let mut run = place.jostle(line).in_background();
    run.until_runs("result.jsonl", 2);
    run.until_workers(4);
    run
}

/// The points in the file can be printed, and are those that the run itself printed.
fn finished_points_are_kept(done: &Done) {
    let report = done.place.jostle("report result.jsonl").exits(0);
    assert!(done.place.runs("result.jsonl").len() >= 2);
    if !done.stdout.is_empty() {
        assert_eq!(report.stdout, done.stdout);
    }
    assert!(
        report.stdout.contains("flock:locks"),
        "{}",
        report.transcript()
    );
}

#[test]
fn finished_points_are_kept_and_printed_whatever_ends_the_run() {
    type End = fn(&mut Running);
    let interrupt: End = |run| {
        run.signal(Signal::INT);
    };
    let terminate: End = |run| {
        run.signal(Signal::TERM);
    };
    let kill_keeper: End = |run| {
        let keeper = run.keeper();
        run.kill(keeper);
    };
    let kept = "finished points are kept in result.jsonl";
    let printed = "finished points are printed above";
    let _beside = beside();
    for (end, code, says) in [
        (interrupt, 130, kept),
        (terminate, 143, kept),
        (kill_keeper, 1, printed),
    ] {
        let place = place_with_locks(Place::new());
        let mut run = with_finished_points(&place);
        end(&mut run);
        let done = is_clean(run.end().exits(code).prints("flock:locks").says(says));
        finished_points_are_kept(&done);
        let last = place
            .read("result.jsonl")
            .lines()
            .last()
            .unwrap()
            .to_owned();
        assert!(
            last.starts_with("{\"record\":\"end\"") && last.contains(&format!("\"exit\":{code}")),
            "{last}"
        );
    }
}

#[test]
fn finished_points_are_kept_when_the_parent_is_killed() {
    let _beside = beside();
    let place = place_with_locks(Place::new());
    let run = with_finished_points(&place);
    run.signal(Signal::KILL);
    finished_points_are_kept(&is_clean(run.end().exits(137)));
}

/// One of several tries in which this process was killed at work, and not too early or when all
/// was over, and which is not `unfit` otherwise.
fn struck_at_work(mut attempt: impl FnMut(u32) -> Option<(Done, u32, bool)>) -> (Done, u32) {
    let mut window_s = 1;
    in_some_try("a process that is killed at work", || {
        let attempted = attempt(window_s);
        window_s *= 2;
        let (done, pid, unfit) = attempted?;
        let early = done.stderr.contains("lost before the start");
        let over = !done.stdout.contains("killed by SIGKILL");
        (!early && !over && !unfit).then(|| (done.exits(3), pid))
    })
}

/// The keeper once panicked here: with nobody left, its drain began before the
/// window's end, and the difference was taken unsigned.
#[test]
fn a_killed_worker_makes_its_run_invalid_and_the_others_go_on() {
    let _beside = beside();
    let (done, worker) = struck_at_work(|window_s| {
        let line = format!(
            "contend flock:locks -w 1 -b 10ms -t {window_s} --warmup 50ms --runs 2 --format json"
        );
        let mut run = place_with_locks(Place::new()).jostle(&line).in_background();
        let worker = run.holder_unless_over()?;
        // Past the common start.
        run.after(Duration::from_millis(100)).kill(worker);
        let done = is_clean(run.end());
        // It may be that of the second run, or nobody had a CPU in that one.
        let fit = matches!(&done.runs()[..], [killed, well]
            if !killed.around.deaths.is_empty() && well.operations > 0);
        Some((done, worker, !fit))
    });
    let runs = done.runs();
    assert_eq!(runs.len(), 2, "{}", done.transcript());
    let [killed, well] = &runs[..] else { panic!() };
    let text = format!("worker 0 (pid {worker}): killed by SIGKILL");
    assert_eq!(killed.around.deaths, std::slice::from_ref(&text));
    assert!(
        reason(killed, "deaths").unwrap().text.contains(&text),
        "{:?}",
        killed.verdict
    );
    assert!(well.around.deaths.is_empty() && well.operations > 0);
}

#[test]
fn a_killed_process_of_threads_makes_its_run_invalid() {
    let _beside = beside();
    let (done, process) = struck_at_work(|window_s| {
        let line = format!(
            "contend flock:locks --as threads -w 4 -b 10ms -t {window_s} --warmup 50ms --runs 1 --format json"
        );
        let mut run = place_with_locks(Place::new()).jostle(&line).in_background();
        let process = run.workers_unless_over(1)?[0].pid;
        run.after(Duration::from_millis(300)).kill(process);
        Some((is_clean(run.end()), process, false))
    });
    let point = done.only_run();
    assert_eq!(
        point.around.deaths,
        [format!(
            "the process of all 4 workers (pid {process}): killed by SIGKILL"
        )]
    );
}

#[test]
fn a_killed_owner_is_no_overlap() {
    let _beside = beside();
    let (done, _) = struck_at_work(|window_s| {
        let line = format!(
            "contend flock:locks -w 3 -b 100ms -i 0 -t {} --warmup 50ms --runs 1 --format json",
            2 * window_s
        );
        let mut run = place_with_locks(Place::new()).jostle(&line).in_background();
        run.workers_unless_over(3)?;
        run.after(Duration::from_millis(300));
        let owner = run.holder_unless_over()?;
        run.kill(owner);
        let done = is_clean(run.end());
        // It may have released meanwhile, or nobody was let in after it.
        let met = |run: &Run| run.exclusion.as_ref().is_some_and(|e| e.holder_died > 0);
        let unmet = !done.runs().iter().any(met);
        Some((done, owner, unmet))
    });
    let point = done.only_run();
    let exclusion = point.exclusion.as_ref().unwrap();
    assert_eq!(
        (exclusion.violations, exclusion.lost_updates),
        (0, 0),
        "{exclusion:?}"
    );
    assert!(exclusion.holder_died > 0, "{exclusion:?}");
    assert!(
        reason(&point, "exclusion").is_none() && reason(&point, "deaths").is_some(),
        "{:?}",
        point.verdict
    );
}

#[test]
fn a_worker_lost_before_the_start_ends_the_run() {
    let _beside = beside();
    let (run, worker) = in_some_try("a worker before the start", || {
        let mut run = Phase::Ramp.reach();
        let keeper = run.keeper();
        // The ramp must not end meanwhile.
        processes::signal(keeper, Signal::STOP);
        run.until("a keeper that stands still", |_| {
            processes::is_stopped(keeper).then_some(())
        });
        let workers = run.workers();
        run.kill(workers[0].pid);
        processes::signal(keeper, Signal::CONT);
        (workers.len() < MANY).then(|| (run, workers[0].pid))
    });
    let message = format!("(pid {worker}) was lost before the start: killed by SIGKILL");
    is_clean(run.end().exits(1).says(&message));
}

#[test]
fn a_lost_measurement_of_the_own_cost_ends_the_run() {
    let _beside = beside();
    let place = place_with_locks(Place::new());
    let mut run = place.jostle(&Phase::OwnCost.line()).in_background();
    let worker = run.until_own_cost();
    run.kill(worker);
    is_clean(
        run.end()
            .exits(1)
            .says("own cost ended early: killed by SIGKILL"),
    );
}

/// Tests that have the machine to themselves.
mod alone {
    use super::*;

    /// Without a namespace of its own the keeper's semaphores are everybody's to
    /// see, and outlive it.
    #[test]
    fn a_plain_user_s_semaphores_do_not_outlive_parent_or_keeper() {
        let _alone = alone();
        for kill_keeper in [true, false] {
            let place = place_with_locks(Place::of_a_plain_user());
            let before = left::semaphores();
            let mut run = place
                .jostle("contend sysv -w 3 -b 10ms -t 10m --runs 1")
                .in_background();
            run.holder();
            assert!(
                left::semaphores().len() > before.len(),
                "there is no semaphore to be left behind"
            );
            let victim = if kill_keeper { run.keeper() } else { run.pid() };
            run.kill(victim);
            is_clean(run.end().exits(if kill_keeper { 1 } else { 137 }));
        }
    }

    #[test]
    fn what_a_run_left_that_was_killed_with_all_its_processes_is_swept_by_the_next() {
        let _alone = alone();
        for target in ["sysv", "flock:locks", "flock"] {
            let place = place_with_locks(Place::of_a_plain_user());
            let mut run = place
                .jostle(&format!("contend {target} -w 3 -b 10ms -t 10m --runs 1"))
                .in_background();
            run.holder();
            run.kill_all_at_once();
            let done = run.end().exits(137);
            assert!(
                !done.what_is_left().is_empty(),
                "{target}: nothing was left to be swept"
            );
            let locks = place.list("locks").len();
            assert_eq!(locks, usize::from(target == "flock:locks"), "{target}");
            place
                .jostle("contend null -w 1 -b 0 -t 50ms --runs 1")
                .run_cleanly()
                .measures();
            is_clean(done);
        }
    }

    #[test]
    fn a_run_that_lives_is_not_swept() {
        let _alone = alone();
        let place = place_with_locks(Place::of_a_plain_user());
        let mut run = place
            .jostle("contend flock:locks -w 3 -b 10ms -t 10m --runs 1")
            .in_background();
        let workers = run.until_workers(3);
        run.holder();
        place
            .jostle("contend null -w 1 -b 0 -t 50ms --runs 1")
            .measures();
        assert_eq!(place.list("locks").len(), 1, "its lock file is gone");
        assert!(workers.iter().all(processes::Process::lives));
        run.signal(Signal::TERM);
        is_clean(run.end().exits(143));
    }
}

/// After an interrupt, and after a crash that cut the last line: each run is in the file once,
/// those of the experiment that had not begun, too.
#[test]
fn an_interrupted_plan_is_resumed_to_its_end() {
    let _beside = beside();
    let plan = "[[experiment]]\nworkload = \"contend\"\ntargets = [\"flock:locks\"]\nworkers = [1, 2]\n\
                hold = \"1ms\"\nduration = \"1s\"\nwarmup = \"50ms\"\nruns = 4\n\n\
                [[experiment]]\nworkload = \"connect\"\ntargets = [\"unix\"]\nopen = [50, 100]\n\
                sources = [1]\nruns = 2\n";
    let resume = "run result.jsonl --resume";
    let next = format!("Next: jostle {resume}");
    // A test that gets no CPU for a while may come when all is over.
    let place = in_some_try("a plan that is interrupted twice", || {
        let place = place_with_locks(Place::new());
        std::fs::write(place.file("plan.toml"), plan).unwrap();
        let begun = place.jostle("run plan.toml -o result.jsonl");
        let mut run = begun.in_background();
        run.until_runs("result.jsonl", 3);
        run.signal(Signal::INT);
        let done = is_clean(run.end());
        let is_over = |done: &Done| [0, 3].contains(&done.code());
        (!is_over(&done)).then(|| done.exits(130).prints(&next))?;
        let mut run = place.jostle(resume).in_background();
        run.until_runs("result.jsonl", 5);
        run.signal(Signal::KILL);
        let done = is_clean(run.end());
        (!is_over(&done)).then(|| done.exits(137).place)
    });
    let cut = place.read("result.jsonl") + "{\"record\":\"run\",\"tar";
    std::fs::write(place.file("result.jsonl"), cut).unwrap();
    let done = is_clean(place.jostle(resume).run());
    assert!([0, 3].contains(&done.code()), "{}", done.transcript());
    let done = done
        .prints("flock:locks")
        .prints("resumed with")
        .prints("unix");
    let points = done.place.runs("result.jsonl");
    let runs: std::collections::BTreeSet<_> =
        points.iter().map(|p| (&p.target, p.at, p.run)).collect();
    assert_eq!(
        (points.len(), runs.len()),
        (12, 12),
        "{}",
        done.transcript()
    );
    let report = done.place.jostle("report result.jsonl").exits(0);
    assert_eq!(report.stdout, done.stdout);
    let says = "result.jsonl is complete, and nothing was measured";
    report
        .place
        .jostle(resume)
        .exits(0)
        .says(says)
        .prints_nothing();
}
