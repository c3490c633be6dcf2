//! Many ranks in one process: threads stand for hosts, channels for the network,
//! and an actor for each keeper, who does nothing but note what it was asked and when.

mod hosts;

use super::coordinator::Coordinator;
use super::link::channels::{Wired, wired};
use super::link::{Link, LinkError};
use super::local_keeper::Port;
use super::words::{Tick, ToHost};
use super::{Rank, participant};
use crate::hosts::Offset;
use crate::keeper::KeeperError;
use crate::order::{Reply, Request, SweepOrder};
use crate::world::Hosts;
use crate::world::sweeps::tests::order as sweep_order;
use hosts::*;
use jostle_sys::clock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[test]
fn nobody_begins_before_all_are_prepared_and_nobody_concludes_before_all_have_drained() {
    let (done, job) = run(&[Fault::None; 4]);
    let gathered = done.unwrap();
    let ranks: Vec<(usize, u64)> = gathered.iter().map(|y| (y.rank, y.data.received)).collect();
    assert_eq!(ranks, [(0, 0), (1, 1), (2, 2), (3, 3)]);
    assert!(job.is_before("asked first", "ordered"));
    assert!(job.is_before("ordered", "go"));
    assert!(job.is_before("go", "concluded"));
    for host in &gathered {
        // All clocks are one here, and each began a microsecond late.
        let off = host.clock.ahead_ns.unsigned_abs();
        assert!(off <= host.clock.within_ns, "{:?}", host.clock);
        let wrong = (host.late_ns - 1_000).unsigned_abs();
        assert!(wrong <= host.clock.within_ns, "{host:?}");
    }
    for end in job.all_end() {
        assert_eq!(end, Ok(()));
    }
}

#[test]
fn hosts_without_an_order_sleep_and_serve_in_the_next_run() {
    let (job, link) = Job::start(&[Fault::None; 3]);
    let mut first = gather(link);
    for taking in [
        [false, true, false],
        [true, false, false],
        [true, true, true],
    ] {
        let own = Actor::new(0, Fault::None, &job.log);
        let gathered = first
            .run_with(own, &orders(&taking), &mut || false)
            .unwrap();
        let ranks: Vec<usize> = gathered.iter().map(|host| host.rank).collect();
        let expected: Vec<usize> = (0..3).filter(|rank| taking[*rank]).collect();
        assert_eq!(ranks, expected);
    }
    assert_eq!((job.count("asked first"), job.count("go")), (3, 5));
    assert_eq!(first.all()[2].name, "h2");
    drop(first);
    assert_eq!(job.all_end(), [Ok(()), Ok(())]);
}

/// A link that notes what its host is told, signs of life left out.
struct Overheard {
    link: Wired,
    words: Arc<Mutex<Vec<ToHost>>>,
}

impl Link for Overheard {
    fn rank(&self) -> usize {
        self.link.rank()
    }

    fn size(&self) -> usize {
        self.link.size()
    }

    fn send(&mut self, to: usize, bytes: Vec<u8>) -> Result<(), LinkError> {
        self.link.send(to, bytes)
    }

    fn try_receive(&mut self) -> Result<Option<(usize, Vec<u8>)>, LinkError> {
        let message = self.link.try_receive()?;
        let word = message
            .as_ref()
            .and_then(|(_, bytes)| serde_json::from_slice(bytes).ok());
        let word = word.filter(|word| *word != ToHost::Beat);
        self.words.lock().unwrap().extend(word);
        Ok(message)
    }

    fn is_flushed(&mut self) -> bool {
        self.link.is_flushed()
    }

    fn leave(self: Box<Self>) {}

    fn abort(self: Box<Self>, _code: u8) {}
}

#[test]
fn a_host_without_an_order_is_told_to_sleep_while_others_work_and_woken_for_its_clock() {
    let mut ends = wired(2);
    let log = Log::default();
    let words = Arc::default();
    let link = Overheard {
        link: ends.remove(1),
        words: Arc::clone(&words),
    };
    let actor = Actor::new(1, Fault::None, &log);
    let other = std::thread::spawn(move || serve(link, actor, &hello(1)));
    let mut first = gather(ends.remove(0));
    let own = Actor::new(0, Fault::None, &log);
    let done = first.run_with(own, &orders(&[true, false]), &mut || false);
    assert_eq!(done.unwrap().len(), 1);
    drop(first);
    assert_eq!(other.join().unwrap(), Ok(()));
    let expected = [
        ToHost::Wake, // its clock before the run
        ToHost::Sleep,
        ToHost::Wake, // and after it
        ToHost::Rest,
        ToHost::Farewell,
    ];
    assert_eq!(*words.lock().unwrap(), expected);
}

#[test]
fn a_host_that_fails_is_named_and_the_others_are_told() {
    for (fault, says) in [
        (Fault::Fails, "h2: no such server"),
        (Fault::Dies, "h2: its keeper has gone"),
        (Fault::Halts, "h2: its keeper process has stood still for"),
    ] {
        let (done, job) = run(&[Fault::None, Fault::Endless, fault, Fault::None]);
        let said = text(done.unwrap_err());
        assert!(said.starts_with(says), "{said}");
        assert_eq!(job.count("concluded"), 0, "{fault:?}");
        // Each host that was at work was told to end.
        assert!(job.count("aborted") >= 2, "{fault:?}");
        assert_eq!(job.all_end(), [Ok(()), Ok(()), Ok(())], "{fault:?}");
    }
}

#[test]
fn the_first_host_is_named_like_any_other() {
    let (done, job) = run(&[Fault::Fails, Fault::None]);
    assert_eq!(text(done.unwrap_err()), "h0: no such server");
    assert_eq!(job.count("ordered"), 0, "nobody else was asked yet");
}

#[test]
fn one_host_alone_has_no_name() {
    let (done, _) = run(&[Fault::None]);
    assert_eq!(done.unwrap()[0].clock, Offset::default());
    let (done, _) = run(&[Fault::Fails]);
    assert_eq!(text(done.unwrap_err()), "no such server");
}

#[test]
fn a_host_of_another_version_is_refused_by_name() {
    let mut ends = wired(3);
    let others: Vec<_> = ends
        .drain(1..)
        .map(|link| {
            let rank = link.rank();
            let mut hello = hello(rank);
            if rank == 2 {
                hello.version = "0.2.0".into();
            }
            let actor = Actor::new(rank, Fault::None, &Log::default());
            std::thread::spawn(move || serve(link, actor, &hello))
        })
        .collect();
    let (first, greeted) = Coordinator::gather(ends.remove(0), hello(0), QUICK);
    let refused = greeted.unwrap_err();
    drop(first);
    assert_eq!(
        text(refused),
        "h2 has jostle 0.2.0 (jostle/3), and h0 has jostle 0.1.0 (jostle/3): give all hosts the same"
    );
    for other in others {
        assert_eq!(other.join().unwrap(), Ok(()));
    }
}

/// A rank that says who it is, answers so many questions of the clock (or as many as
/// come, where a busy machine makes the first rank give up sooner), and then says
/// nothing any more.
fn silent_after(mut link: Wired, questions: usize) -> JoinHandle<Wired> {
    std::thread::spawn(move || {
        let words = serde_json::to_vec(&hello(link.rank())).unwrap();
        link.send(0, words).unwrap();
        let (mut answered, mut heard) = (0, Instant::now());
        while answered < questions && heard.elapsed() < 4 * QUICK.silence {
            let Some((_, bytes)) = link.try_receive().unwrap() else {
                std::thread::yield_now();
                continue;
            };
            if let Some(Tick::Ping(nth)) = Tick::read(&bytes) {
                let now = clock::monotonic();
                link.send(0, Tick::Pong(nth, now).bytes()).unwrap();
                (answered, heard) = (answered + 1, Instant::now());
            }
        }
        link
    })
}

#[test]
fn a_host_that_goes_silent_is_given_up_after_a_while_and_named() {
    // It falls silent while its clock is asked, or when it should prepare.
    for questions in [0, 100] {
        let mut ends = wired(3);
        let silent = silent_after(ends.remove(1), questions);
        let log = Log::default();
        let link = ends.remove(1);
        let actor = Actor::new(2, Fault::None, &log);
        let other = std::thread::spawn(move || serve(link, actor, &hello(2)));
        let mut first = gather(ends.remove(0));
        let own = Actor::new(0, Fault::None, &log);
        let start = Instant::now();
        let done = first.run_with(own, &orders(&[true; 3]), &mut || false);
        let said = text(done.unwrap_err());
        assert!(
            said.starts_with("h1: nothing was heard of it for"),
            "{said}"
        );
        assert!(start.elapsed() >= QUICK.silence);
        drop(first);
        assert_eq!(
            other.join().unwrap(),
            Ok(()),
            "the others end in good order"
        );
        drop(silent.join());
    }
}

#[test]
fn a_host_that_hears_nothing_of_the_first_ends_itself_and_its_keeper() {
    let mut ends = wired(2);
    let log = Log::default();
    let actor = Actor::new(1, Fault::None, &log);
    let start = Instant::now();
    let said = serve(ends.remove(1), actor, &hello(1));
    assert!(start.elapsed() >= QUICK.first_silence);
    let said = said.unwrap_err();
    assert!(said.starts_with("h1: rank 0 was not heard for"), "{said}");
    assert_eq!(*log.lock().unwrap(), [(1, "ended")]);
}

#[test]
fn the_user_ends_a_run_on_all_hosts() {
    let (job, link) = Job::start(&[Fault::None, Fault::Endless, Fault::Endless]);
    let mut first = gather(link);
    let own = Actor::new(0, Fault::Endless, &job.log);
    let log = Arc::clone(&job.log);
    // Once all have begun.
    let mut ended = || {
        log.lock()
            .unwrap()
            .iter()
            .filter(|(_, w)| *w == "go")
            .count()
            == 3
    };
    let done = first.run_with(own, &orders(&[true; 3]), &mut ended);
    assert!(matches!(done, Err(KeeperError::Interrupted)), "{done:?}");
    assert_eq!(job.count("aborted"), 3);
    drop(first);
    assert_eq!(job.all_end(), [Ok(()), Ok(())]);
}

#[test]
fn a_host_that_does_not_answer_when_the_user_ends_a_run_is_named() {
    let mut ends = wired(2);
    // One answer: how many more are asked for depends on how fast they come.
    let silent = silent_after(ends.remove(1), 1);
    let mut first = gather(ends.remove(0));
    let own = Actor::new(0, Fault::None, &Log::default());
    let mut ended = || silent.is_finished();
    let done = first.run_with(own, &orders(&[true; 2]), &mut ended);
    let said = text(done.unwrap_err());
    assert!(
        said.starts_with("h1: it does not answer any more"),
        "{said}"
    );
}

/// An actor that the user's end finds at its work: rank 0's own does not get to run for
/// longer than all have to answer, and the other host answers only after that.
struct Starved {
    actor: Actor,
    looks: usize,
    ran_again: Arc<AtomicBool>,
}

impl Port for Starved {
    fn ask(&mut self, request: &Request) -> Result<(), KeeperError> {
        let start = Instant::now();
        let waits = matches!(request, Request::Abort) && self.actor.rank > 0;
        while waits && !self.ran_again.load(Ordering::Relaxed) && start.elapsed() < QUICK.stage {
            std::thread::sleep(QUICK.nap);
        }
        self.actor.ask(request)
    }

    fn look(&mut self, patience: Duration) -> Result<Option<Reply>, KeeperError> {
        let aborted = matches!(self.actor.answers.front(), Some(Reply::Failed(_)));
        if self.actor.rank > 0 || !aborted {
            return self.actor.look(patience);
        }
        self.looks += 1;
        match self.looks {
            1 => std::thread::sleep(QUICK.interrupt * 3 / 2),
            // Longer looks than usual, so that the other has time enough to answer.
            2..20 => {
                self.ran_again.store(true, Ordering::Relaxed);
                std::thread::sleep(QUICK.interrupt / 20);
            }
            _ => return self.actor.look(patience),
        }
        Ok(None)
    }

    fn is_halted(&self) -> bool {
        false
    }

    fn end(&mut self) {
        self.actor.end();
    }
}

#[test]
fn a_first_host_that_is_kept_from_running_blames_nobody_when_the_user_ends_a_run() {
    let (log, ran_again) = (Log::default(), Arc::new(AtomicBool::new(false)));
    let starved = |rank| Starved {
        actor: Actor::new(rank, Fault::Endless, &log),
        looks: 0,
        ran_again: Arc::clone(&ran_again),
    };
    let mut ends = wired(2);
    let (link, port) = (ends.remove(1), starved(1));
    let other = std::thread::spawn(move || {
        let rank = Rank {
            version: "",
            commit: None,
            ended: &mut || None,
            complain: &|_| {},
        };
        participant::serve(link, port, &hello(1), QUICK, rank)
    });
    let mut first = gather(ends.remove(0));
    let begun = |log: &Log| log.lock().unwrap().iter().any(|(_, what)| *what == "go");
    let done = first.run_with(starved(0), &orders(&[true; 2]), &mut || begun(&log));
    assert!(matches!(done, Err(KeeperError::Interrupted)), "{done:?}");
    drop(first);
    assert!(other.join().unwrap());
}

#[test]
fn a_host_that_is_told_to_end_by_somebody_else_says_so() {
    let mut ends = wired(2);
    let log = Log::default();
    let (link, actor) = (ends.remove(1), Actor::new(1, Fault::None, &log));
    let other = std::thread::spawn(move || serve_until(link, actor, &hello(1), &mut || Some(143)));
    let mut first = gather(ends.remove(0));
    std::thread::sleep(QUICK.beat);
    let own = Actor::new(0, Fault::None, &log);
    let done = first.run_with(own, &orders(&[true; 2]), &mut || false);
    assert_eq!(
        text(done.unwrap_err()),
        "h1: it was told to end (signal 15)"
    );
    drop(first);
    assert_eq!(other.join().unwrap(), Ok(()));
}

/// A link whose messages take their time, and whose other end has another clock.
struct Distant {
    link: Wired,
    ahead: u64,
}

impl Link for Distant {
    fn rank(&self) -> usize {
        self.link.rank()
    }

    fn size(&self) -> usize {
        self.link.size()
    }

    fn send(&mut self, to: usize, bytes: Vec<u8>) -> Result<(), LinkError> {
        // The time that this host shows is told as its own clock would.
        let bytes = match Tick::read(&bytes) {
            Some(Tick::Pong(nth, at)) => Tick::Pong(nth, at + self.ahead).bytes(),
            _ => bytes,
        };
        self.link.send(to, bytes)
    }

    fn try_receive(&mut self) -> Result<Option<(usize, Vec<u8>)>, LinkError> {
        self.link.try_receive()
    }

    fn is_flushed(&mut self) -> bool {
        true
    }

    fn leave(self: Box<Self>) {}

    fn abort(self: Box<Self>, _code: u8) {}
}

#[test]
fn each_host_begins_by_its_own_clock() {
    const AHEAD: u64 = 777_000_000_000;
    let mut ends = wired(2);
    let log = Log::default();
    let actor = Actor::new(1, Fault::None, &log);
    let link = Distant {
        link: ends.remove(1),
        ahead: AHEAD,
    };
    let other = std::thread::spawn(move || serve(link, actor, &hello(1)));
    let mut first = gather(ends.remove(0));
    let own = Actor::new(0, Fault::None, &log);
    let gathered = first
        .run_with(own, &orders(&[true; 2]), &mut || false)
        .unwrap();
    let far = &gathered[1];
    assert!(far.clock.ahead_ns.abs_diff(AHEAD as i64) <= far.clock.within_ns);
    let apart = far.data.began_ns - gathered[0].data.began_ns;
    assert!(apart.abs_diff(AHEAD) <= far.clock.within_ns, "{apart}");
    drop(first);
    assert_eq!(other.join().unwrap(), Ok(()));
}

#[test]
fn a_run_that_was_called_off_leaves_the_next_alone() {
    let (job, link) = Job::start(&[Fault::None; 2]);
    let mut first = gather(link);
    let own = Actor::new(0, Fault::None, &job.log);
    let log = Arc::clone(&job.log);
    // Its answers are on their way.
    let mut ended = || {
        log.lock()
            .unwrap()
            .iter()
            .any(|(_, what)| *what == "ordered")
    };
    let done = first.run_with(own, &orders(&[true; 2]), &mut ended);
    assert!(matches!(done, Err(KeeperError::Interrupted)));
    let own = Actor::new(0, Fault::None, &job.log);
    let gathered = first
        .run_with(own, &orders(&[true; 2]), &mut || false)
        .unwrap();
    assert_eq!(gathered.len(), 2);
    drop(first);
    assert_eq!(job.all_end(), [Ok(())]);
}

fn sweep(faults: &[Fault], open: &[u64]) -> (Vec<Vec<u64>>, Result<usize, KeeperError>, Job) {
    let (job, link) = Job::start(faults);
    let mut first = gather(link);
    let own = Actor::new(0, faults[0], &job.log);
    let orders: Vec<Option<SweepOrder>> = vec![Some(sweep_order(open)); faults.len()];
    let mut steps = Vec::new();
    let closed = first.sweep_with(own, &orders, &mut || false, &mut |step| {
        for host in &step {
            let wrong = (host.late_ns - 1_000).unsigned_abs();
            assert!(wrong <= host.clock.within_ns, "{host:?}");
        }
        steps.push(step.iter().map(|host| host.data.opened).collect());
    });
    let ranks = closed.map(|closed| {
        let each = closed.iter().map(|host| host.data.time_wait_left);
        assert!(each.eq((0..faults.len() as u64).map(Some)));
        closed.len()
    });
    (steps, ranks, job)
}

#[test]
fn no_host_of_a_sweep_goes_on_before_all_have_reached_a_listed_number() {
    let (steps, closed, job) = sweep(&[Fault::None; 3], &[10, 20]);
    assert_eq!(steps, [[10; 3], [20; 3]]);
    assert_eq!(closed.unwrap(), 3);
    assert!(job.is_before("ordered", "go"));
    let log = job.log.lock().unwrap().clone();
    let before = log.iter().take_while(|(_, what)| *what != "go on");
    assert_eq!(before.filter(|(_, what)| *what == "reached").count(), 3);
    assert!(job.is_before("reached", "concluded"));
    assert_eq!(job.all_end(), [Ok(()), Ok(())]);
}

#[test]
fn where_one_host_can_open_no_more_all_close() {
    let faults = [Fault::None, Fault::Stops, Fault::None];
    let (steps, closed, job) = sweep(&faults, &[10, 20, 30]);
    assert_eq!(steps, [[10; 3]]);
    assert_eq!(closed.unwrap(), 3);
    assert_eq!((job.count("go on"), job.count("concluded")), (0, 3));
    assert_eq!(job.all_end(), [Ok(()), Ok(())]);
}

#[test]
fn a_host_that_fails_in_a_sweep_is_named() {
    let faults = [Fault::Endless, Fault::None, Fault::Dies];
    let (steps, closed, job) = sweep(&faults, &[10, 20]);
    assert!(steps.is_empty());
    assert_eq!(text(closed.unwrap_err()), "h2: its keeper has gone");
    assert_eq!(job.all_end(), [Ok(()), Ok(())]);
}
