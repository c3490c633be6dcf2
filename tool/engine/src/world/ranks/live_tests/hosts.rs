//! The hosts of these tests: a thread for each, and in place of its keeper an actor.

use super::super::coordinator::Coordinator;
use super::super::link::Link;
use super::super::link::channels::{Wired, wired};
use super::super::local_keeper::Port;
use super::super::words::Hello;
use super::super::{Limits, Rank, participant};
use crate::experiment::tests::order;
use crate::hosts::HostData;
use crate::keeper::KeeperError;
use crate::order::{Closed, Reached, Reply, Request, RunData, RunOrder};
use jostle_model::connect::Stopped;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

pub(super) const QUICK: Limits = Limits {
    beat: Duration::from_millis(20),
    // Longer than machines stand still.
    silence: Duration::from_millis(1_500),
    first_silence: Duration::from_secs(3),
    rest: Duration::from_secs(5),
    ready: Duration::from_secs(5),
    stage: Duration::from_secs(5),
    interrupt: Duration::from_secs(1),
    farewell: Duration::from_secs(3),
    nap: Duration::from_micros(200),
    long_nap: Duration::from_millis(2),
};

/// Who did what, in order.
pub(super) type Log = Arc<Mutex<Vec<(usize, &'static str)>>>;

/// A planted fault of a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// It cannot prepare.
    Fails,
    /// It has gone by the time of the start.
    Dies,
    /// It never drains, until it is told to end.
    Endless,
    /// It stands still from the start on.
    Halts,
    /// It can open no more connections than the first listed number.
    Stops,
}

pub(super) struct Actor {
    pub(super) rank: usize,
    pub(super) fault: Fault,
    pub(super) log: Log,
    pub(super) answers: VecDeque<Reply>,
    pub(super) began_ns: u64,
    pub(super) halted: bool,
    /// Listed numbers of a sweep that it has reached so far.
    pub(super) reached: Option<u64>,
}

impl Actor {
    pub(super) fn new(rank: usize, fault: Fault, log: &Log) -> Actor {
        Actor {
            rank,
            fault,
            log: Arc::clone(log),
            answers: VecDeque::new(),
            began_ns: 0,
            halted: false,
            reached: None,
        }
    }

    pub(super) fn note(&self, what: &'static str) {
        self.log.lock().unwrap().push((self.rank, what));
    }

    pub(super) fn gone(&self) -> KeeperError {
        KeeperError::Failed("its keeper has gone".into())
    }
}

impl Port for Actor {
    fn ask(&mut self, request: &Request) -> Result<(), KeeperError> {
        match request {
            Request::Run(order) => {
                assert!(order.together.is_some());
                let asks = order.together.is_some_and(|t| t.asks_server);
                self.note(if asks { "asked first" } else { "ordered" });
                self.answers.push_back(match self.fault {
                    Fault::Fails => Reply::Failed("no such server".into()),
                    _ => Reply::Prepared,
                });
            }
            Request::Sweep(order) => {
                assert!(order.together.is_some());
                self.reached = Some(0);
                self.note("ordered");
                self.answers.push_back(Reply::Prepared);
            }
            Request::Go { at_ns } => {
                self.note(match self.reached {
                    Some(1..) => "go on",
                    _ => "go",
                });
                match self.fault {
                    Fault::Dies => return Err(self.gone()),
                    Fault::Halts => self.halted = true,
                    Fault::Endless => {}
                    fault if self.reached.is_some() => {
                        let step = self.reached.insert(self.reached.unwrap_or(0) + 1);
                        let stopped = (fault == Fault::Stops).then(Stopped::default);
                        let data = Reached {
                            began_ns: *at_ns + 1_000,
                            opened: *step * 10,
                            stopped,
                            ..Reached::default()
                        };
                        self.note("reached");
                        self.answers.push_back(Reply::Reached(Box::new(data)));
                    }
                    _ => {
                        self.began_ns = *at_ns + 1_000;
                        self.answers.push_back(Reply::Drained);
                    }
                }
            }
            Request::Conclude => {
                self.note("concluded");
                if self.reached.take().is_some() {
                    let closed = Closed {
                        time_wait_left: Some(self.rank as u64),
                        ..Closed::default()
                    };
                    self.answers.push_back(Reply::Closed(Box::new(closed)));
                    return Ok(());
                }
                self.answers.push_back(Reply::Ran(Box::new(RunData {
                    began_ns: self.began_ns,
                    received: self.rank as u64,
                    ..RunData::default()
                })));
            }
            Request::Abort => {
                self.note("aborted");
                self.answers.push_back(Reply::Failed("interrupted".into()));
            }
            _ => unreachable!("nothing else is asked"),
        }
        Ok(())
    }

    fn look(&mut self, patience: Duration) -> Result<Option<Reply>, KeeperError> {
        if self.halted || self.answers.is_empty() {
            std::thread::sleep(patience);
            return Ok(None);
        }
        Ok(self.answers.pop_front())
    }

    fn is_halted(&self) -> bool {
        self.halted
    }

    fn end(&mut self) {
        self.note("ended");
    }
}

pub(super) fn hello(rank: usize) -> Hello {
    Hello {
        name: format!("h{rank}"),
        ..Hello::new("0.1.0", None)
    }
}

/// The life of another rank, which nobody tells to end but rank 0.
pub(super) fn serve(link: impl Link, actor: Actor, hello: &Hello) -> Result<(), String> {
    serve_until(link, actor, hello, &mut || None)
}

/// The life of a rank that may be told to end; an error is its complaint.
pub(super) fn serve_until(
    link: impl Link,
    actor: Actor,
    hello: &Hello,
    ended: &mut dyn FnMut() -> Option<u8>,
) -> Result<(), String> {
    let said = Mutex::new(Ok(()));
    let rank = Rank {
        version: "",
        commit: None,
        ended,
        complain: &|text| *said.lock().unwrap() = Err(text.to_owned()),
    };
    let well = participant::serve(link, actor, hello, QUICK, rank);
    let said = said.into_inner().unwrap();
    assert_eq!(well, said.is_ok());
    said
}

/// Hosts from rank 1 on, each in a thread.
pub(super) struct Job {
    pub(super) log: Log,
    pub(super) others: Vec<JoinHandle<Result<(), String>>>,
}

impl Job {
    /// With this fault at each rank; returns rank 0's end too.
    pub(super) fn start(faults: &[Fault]) -> (Job, Wired) {
        let log = Log::default();
        let mut ends = wired(faults.len());
        let others = ends
            .drain(1..)
            .map(|link| {
                let rank = link.rank();
                let actor = Actor::new(rank, faults[rank], &log);
                std::thread::spawn(move || serve(link, actor, &hello(rank)))
            })
            .collect();
        let first = ends.remove(0);
        (Job { log, others }, first)
    }

    pub(super) fn all_end(self) -> Vec<Result<(), String>> {
        let each = self.others.into_iter();
        each.map(|other| other.join().unwrap()).collect()
    }

    /// The last of these came before the first of those.
    pub(super) fn is_before(&self, one: &str, other: &str) -> bool {
        let log = self.log.lock().unwrap();
        let last = log.iter().rposition(|(_, what)| *what == one);
        let first = log.iter().position(|(_, what)| *what == other);
        last.zip(first).is_some_and(|(last, first)| last < first)
    }

    pub(super) fn count(&self, what: &str) -> usize {
        let log = self.log.lock().unwrap();
        log.iter().filter(|(_, noted)| *noted == what).count()
    }
}

/// All hosts, of one version.
pub(super) fn gather(link: Wired) -> Coordinator<Wired> {
    let (first, greeted) = Coordinator::gather(link, hello(0), QUICK);
    greeted.unwrap();
    first
}

pub(super) fn orders(taking: &[bool]) -> Vec<Option<RunOrder>> {
    let each = taking.iter();
    each.map(|takes| takes.then(|| order("null"))).collect()
}

/// One run of all, with these faults.
pub(super) fn run(faults: &[Fault]) -> (Result<Vec<HostData>, KeeperError>, Job) {
    let (job, link) = Job::start(faults);
    let mut first = gather(link);
    let own = Actor::new(0, faults[0], &job.log);
    let taking = vec![true; faults.len()];
    let done = first.run_with(own, &orders(&taking), &mut || false);
    (done, job)
}

pub(super) fn text(error: KeeperError) -> String {
    error.to_string()
}
