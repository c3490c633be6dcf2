//! `cargo xtask peers --clients`: the targets of lock services measured side by side with
//! the client that each service's users have, on one and the same server.
//!
//! Server and clients each have a CPU of their own. A trial's server and its reference
//! client run until the trials of that service are over; while jostle is measured, the
//! reference client waits for its next span. CPU time is that of a client's whole process,
//! of jostle that of its workers. Round trips stand beside them, so that a ratio that comes
//! from another number of them is seen as that: the server counts those of the reference
//! client, and jostle its own, since it makes more pairs than it reports (calibration).
//!
//! Not a test: on a busy machine a requirement may be missed without a fault.

mod counted;
mod pgbench;
mod reference;

use super::figures::Requirement::{self, RatioAtMost, RatioWithin, Shown};
use super::{Bench, Metric, Side, Trial, read_answer};
use anyhow::{Context, bail};
use jostle_testbed::databases::MARIADB_USER;
use jostle_testbed::servers::{Running, Server};
use jostle_testbed::{etcd, packages};
use reference::{Program, Reference, Span};
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// The time that each side runs in each repeat; pgbench accepts only whole seconds.
const SPAN: Duration = Duration::from_secs(2);

/// Our client is not the story: nobody is to wonder about a rate within these, of the
/// reference client's.
const SAME: Requirement = RatioWithin(0.95, 1.3);

/// Who asks the server for the reference.
#[derive(Clone, Copy)]
enum Client {
    /// A program of ours around the library, and what it is told beside the address.
    Program(Program, &'static str),
    Pgbench,
}

/// A target, and the client that it is compared with.
struct Service {
    target: &'static str,
    /// What the rows call it.
    reference: &'static str,
    server: Server,
    client: Client,
    /// Whether what both send is the same, so that a requirement makes sense.
    alike: bool,
    /// Workers: alone, and contended where waiting is the service's business.
    workers: &'static [usize],
}

const SERVICES: &[Service] = &[
    Service {
        target: "etcd",
        reference: "Go Mutex",
        server: Server::Etcd,
        client: Client::Program(Program::Etcd, ""),
        alike: true,
        workers: &[1, 4],
    },
    Service {
        target: "etcd",
        reference: "Go Mutex",
        server: Server::CurrentEtcd,
        client: Client::Program(Program::Etcd, ""),
        alike: true,
        workers: &[1, 4],
    },
    Service {
        target: "zookeeper",
        reference: "Curator",
        server: Server::Zookeeper,
        client: Client::Program(Program::Java("CuratorPairs"), ""),
        alike: true,
        workers: &[1, 4],
    },
    Service {
        target: "redisson",
        reference: "RLock",
        server: Server::Redis,
        client: Client::Program(Program::Java("RedissonPairs"), ""),
        alike: true,
        workers: &[1, 4],
    },
    Service {
        target: "postgres",
        reference: "pgbench",
        server: Server::Postgres,
        client: Client::Pgbench,
        alike: true,
        workers: &[1, 4],
    },
    Service {
        target: "mariadb",
        reference: "libmariadb",
        server: Server::Mariadb,
        client: Client::Program(
            Program::C("mariadb", &["-I/usr/include/mariadb", "-lmariadb"]),
            MARIADB_USER,
        ),
        alike: true,
        workers: &[1, 4],
    },
    Service {
        target: "memcached",
        reference: "add+delete",
        server: Server::Memcached,
        client: Client::Program(Program::C("memcached", &["-lmemcached"]), "delete"),
        alike: true,
        workers: &[1],
    },
    Service {
        target: "memcached",
        reference: "gets+cas",
        server: Server::Memcached,
        client: Client::Program(Program::C("memcached", &["-lmemcached"]), "cas"),
        alike: false,
        workers: &[1],
    },
    Service {
        target: "redis",
        reference: "hiredis",
        server: Server::Redis,
        client: Client::Program(Program::C("redis", &["-lhiredis"]), ""),
        alike: true,
        workers: &[1],
    },
];

/// A server with its clients; made by the first trial of the service that runs.
struct Ground {
    /// Before the server, which may wait for them to go.
    clients: RefCell<Vec<Reference>>,
    server: Running,
    /// The clients' CPU.
    cpu: usize,
    /// What starts a reference client; empty for pgbench.
    words: Vec<String>,
    warmup: Duration,
}

type Shared = Rc<OnceCell<Ground>>;

/// In the order in which they run.
pub(super) fn trials() -> Vec<Trial> {
    SERVICES.iter().flat_map(Service::trials).collect()
}

impl Service {
    /// As rows call it: with its version, where it is measured in two.
    fn title(&self) -> String {
        let version = match self.server {
            Server::Etcd => etcd::version_in_path(),
            Server::CurrentEtcd => etcd::current_version(),
            _ => return self.target.to_owned(),
        };
        // Debian's is installed only when its turn has come.
        let version = version.unwrap_or_else(|_| "Debian".to_owned());
        format!("{} {version}", self.target)
    }

    fn trials(&'static self) -> Vec<Trial> {
        let ground = Shared::default();
        let trial = |workers: &usize| self.trial(&ground, *workers);
        self.workers.iter().map(trial).collect()
    }

    fn trial(&'static self, ground: &Shared, workers: usize) -> Trial {
        let name = format!("{} -w {workers} : {}", self.title(), self.reference);
        let only_if_alike = |requirement| if self.alike { requirement } else { Shown };
        let metric = |what: String, requirement| Metric { what, requirement };
        Trial {
            metrics: vec![
                metric(format!("{name}, pairs/s"), only_if_alike(SAME)),
                metric(
                    "  client CPU, us a pair".to_owned(),
                    only_if_alike(RatioAtMost(1.0)),
                ),
                metric("  round trips a pair".to_owned(), Shown),
            ],
            name,
            jostle: self.jostle(ground, workers),
            peer: Some(self.peer(ground, workers)),
        }
    }

    /// Uncontended or contended pairs of the target.
    fn jostle(&'static self, ground: &Shared, workers: usize) -> Side {
        let ground = Rc::clone(ground);
        Box::new(move |bench| {
            let ground = Ground::of(&ground, self, bench)?;
            let target = match self.target {
                "redisson" => format!("redisson://{}", ground.server.address),
                _ => ground.server.target(),
            };
            let mut command = bench.measure("contend", &[&target, "-b", "0", "-i", "0"]);
            command
                .args(["-w", &workers.to_string()])
                .args(["-t", &SPAN.as_secs().to_string()])
                .args(["--place", &format!("cpus:{}", ground.cpu)]);
            let point = read_answer(&mut command)?;
            if !point.around.errors.is_empty() {
                bail!("calls failed: {:?}", point.around.messages);
            }
            let traffic = point.traffic.context("no count of round trips")?;
            let cpu_us = point.cpu.cpu_us_per_operation.context("no CPU time")?;
            let each = traffic.round_trips as f64 / traffic.grants as f64;
            Ok(vec![point.throughput_per_s, cpu_us, each])
        })
    }

    /// The same of the reference client.
    fn peer(&'static self, ground: &Shared, workers: usize) -> Side {
        let ground = Rc::clone(ground);
        Box::new(move |bench| {
            let ground = Ground::of(&ground, self, bench)?;
            ground.ready(workers)?;
            let before = counted::requests(&ground.server)?;
            let spans = match self.client {
                Client::Pgbench => {
                    let at = ground.server.address;
                    vec![pgbench::span(at, ground.cpu, workers, SPAN)?]
                }
                Client::Program(..) => {
                    reference::span(&mut ground.clients.borrow_mut()[..workers], SPAN)?
                }
            };
            let asked = counted::requests(&ground.server)? - before;
            let (rate, cpu_us, pairs) = Span::together(&spans);
            Ok(vec![rate, cpu_us, asked as f64 / pairs as f64])
        })
    }
}

impl Ground {
    fn of<'a>(shared: &'a Shared, service: &Service, bench: &Bench) -> anyhow::Result<&'a Ground> {
        if shared.get().is_none() {
            let _ = shared.set(Ground::make(service, bench)?);
        }
        shared.get().context("no server")
    }

    fn make(service: &Service, bench: &Bench) -> anyhow::Result<Ground> {
        packages::ensure(&["util-linux"])?;
        packages::ensure(service.server.packages())?;
        let cpus = jostle_sys::cpu::allowed();
        let [cpu, .., apart] = cpus[..] else {
            bail!("this needs two CPUs, one for the server and one for its clients");
        };
        let server = service.server.start(&bench.jostle, Some(apart))?;
        counted::ready(&server)?;
        let (words, warmup) = match service.client {
            Client::Pgbench => (Vec::new(), Duration::ZERO),
            Client::Program(program, more) => {
                let built = program.build(&bench.peers.join("reference"))?;
                (words(program, built, cpu, &server, more), program.warmup())
            }
        };
        let ground = Ground {
            clients: RefCell::default(),
            server,
            cpu,
            words,
            warmup,
        };
        // Before jostle is measured: the server, too, has to become warm.
        ground.ready(1)?;
        Ok(ground)
    }

    /// Starts reference clients until there are so many, and warms up all of them.
    fn ready(&self, workers: usize) -> anyhow::Result<()> {
        let mut clients = self.clients.borrow_mut();
        if self.words.is_empty() || clients.len() >= workers {
            return Ok(());
        }
        while clients.len() < workers {
            clients.push(Reference::start(&self.words)?);
        }
        // They share a CPU while they warm up.
        reference::span(&mut clients, self.warmup * workers as u32).map(drop)
    }
}

/// The command of a reference client that keeps to its CPU.
fn words(
    program: Program,
    built: Vec<String>,
    cpu: usize,
    server: &Running,
    more: &str,
) -> Vec<String> {
    let at = server.address;
    let place = match program {
        Program::C(..) => format!("{} {}", at.ip(), at.port()),
        Program::Etcd | Program::Java(_) => at.to_string(),
    };
    let first = format!("taskset -c {cpu}");
    let owned = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    [owned(&first), built, owned(&place), owned(more)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_alike_is_judged_and_the_rest_is_shown() {
        for trial in trials() {
            let judged = trial
                .metrics
                .iter()
                .filter(|metric| metric.requirement != Shown);
            let expected = if trial.name.contains("cas") { 0 } else { 2 };
            assert_eq!(judged.count(), expected, "{}", trial.name);
        }
    }

    #[test]
    fn every_trial_has_a_name_of_its_own_that_fits_its_column() {
        let trials = trials();
        for (at, trial) in trials.iter().enumerate() {
            let others = &trials[at + 1..];
            assert!(others.iter().all(|other| other.name != trial.name));
            assert!(trial.metrics[0].what.len() <= 36, "{}", trial.name);
        }
    }
}
