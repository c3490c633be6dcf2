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

use super::Ground;
use super::table::Figure::{ClientCpu, Rate, RoundTrips};
use super::table::{Cell, Figures, Trial, ratio};
use crate::validate::Required::{AtLeast, AtMost, Nothing};
use crate::validate::columns;
use anyhow::{Context, bail};
use jostle_testbed::servers::{Running, Server};
use jostle_testbed::{etcd, packages};
use reference::{Reference, Span};
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::Duration;

/// The time that each side runs in each repeat; pgbench accepts only whole seconds.
const SPAN: Duration = Duration::from_secs(2);

/// The client that is no program of ours.
const PGBENCH: &str = "pgbench";

/// A target, and the client that it is compared with: a line of the table.
struct Service {
    target: &'static str,
    /// Its name in the rows.
    reference: &'static str,
    server: Server,
    /// The program that is built; `pgbench` is there.
    program: &'static str,
    /// Debian's, with which it is built.
    packages: &'static str,
    /// Its arguments beside the address.
    told: &'static str,
    workers: Vec<usize>,
}

/// In the order in which they run.
static SERVICES: LazyLock<Vec<Service>> = LazyLock::new(|| {
    let lines = columns(include_str!("../../reference/clients.tsv"));
    let service = |[target, reference, server, program, packages, told, workers]: [&'static str;
                       7]| Service {
        target,
        reference,
        server: match server {
            "current" => Server::CurrentEtcd,
            name => Server::named(name).expect("a server of the list"),
        },
        program,
        packages,
        told,
        workers: workers.split(' ').filter_map(|n| n.parse().ok()).collect(),
    };
    lines.map(service).collect()
});

/// A server with its clients; made by the first trial of the service that runs.
struct Place {
    /// Before the server, which may wait for them to go.
    clients: RefCell<Vec<Reference>>,
    server: Running,
    /// The words that start a reference client; empty for pgbench.
    words: Vec<String>,
    warmup: Duration,
}

type Shared = Rc<OnceCell<Place>>;

/// Those of all services.
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
        let is_alike = !self.told.ends_with("cas");
        // Our client is not the story: nobody is to wonder about a rate within these bounds.
        let [least, most, cpu] = match is_alike {
            true => [AtLeast(0.95), AtMost(1.3), AtMost(1.0)],
            false => [Nothing; 3],
        };
        let [ours, theirs] = [ground, ground].map(Rc::clone);
        Trial {
            name: format!("{} -w {workers} : {}", self.title(), self.reference),
            title: "pairs of acquire and release".to_owned(),
            cells: vec![
                Cell::new("jostle", move |bench| {
                    self.jostle(bench, Place::get_or_make(&ours, self, bench)?, workers)
                }),
                Cell::new(self.reference, move |bench| {
                    self.peer(bench, Place::get_or_make(&theirs, self, bench)?, workers)
                }),
            ],
            claims: vec![
                ratio(Rate, 0, 1, least),
                ratio(Rate, 0, 1, most),
                ratio(ClientCpu, 0, 1, cpu),
                ratio(RoundTrips, 0, 1, Nothing),
            ],
        }
    }

    /// Uncontended or contended pairs of the target.
    fn jostle(&self, bench: &Ground, place: &Place, workers: usize) -> anyhow::Result<Figures> {
        let target = match self.target {
            "redisson" => format!("redisson://{}", place.server.address),
            _ => place.server.target(),
        };
        let seconds = SPAN.as_secs();
        let words = format!("contend {target} -b 0 -i 0 -w {workers} -t {seconds}");
        let point = bench.measure(&words)?;
        if !point.around.errors.is_empty() {
            bail!("calls failed: {:?}", point.around.messages);
        }
        let traffic = point.traffic.context("no count of round trips")?;
        let cpu_us = point.cpu.cpu_us_per_operation.context("no CPU time")?;
        Ok(Figures::only(&[
            (Rate, point.throughput_per_s),
            (ClientCpu, cpu_us),
            (
                RoundTrips,
                traffic.round_trips as f64 / traffic.grants as f64,
            ),
        ]))
    }

    /// The figures of the reference client.
    fn peer(&self, bench: &Ground, place: &Place, workers: usize) -> anyhow::Result<Figures> {
        place.ready(workers)?;
        let before = counted::requests(&place.server)?;
        let spans = match self.program {
            PGBENCH => {
                let at = place.server.address;
                vec![pgbench::span(at, bench.client_cpu, workers, SPAN)?]
            }
            _ => reference::span(&mut place.clients.borrow_mut()[..workers], SPAN)?,
        };
        let asked = counted::requests(&place.server)? - before;
        let (rate, cpu_us, pairs) = Span::together(&spans);
        let round_trips = asked as f64 / pairs as f64;
        Ok(Figures::only(&[
            (Rate, rate),
            (ClientCpu, cpu_us),
            (RoundTrips, round_trips),
        ]))
    }
}

impl Place {
    fn get_or_make<'a>(
        shared: &'a Shared,
        service: &Service,
        bench: &Ground,
    ) -> anyhow::Result<&'a Place> {
        if shared.get().is_none() {
            let _ = shared.set(Place::make(service, bench)?);
        }
        shared.get().context("no server")
    }

    fn make(service: &Service, bench: &Ground) -> anyhow::Result<Place> {
        packages::ensure(service.server.packages())?;
        let server = service
            .server
            .start(&bench.jostle, Some(bench.server_cpu))?;
        counted::ready(&server)?;
        let mut words = Vec::new();
        if service.program != PGBENCH {
            packages::ensure(&service.packages.split(' ').collect::<Vec<_>>())?;
            let at = server.address;
            let told = service
                .told
                .replace("{address}", &at.to_string())
                .replace("{host}", &at.ip().to_string())
                .replace("{port}", &at.port().to_string());
            let cpu = bench.client_cpu.to_string();
            words = ["taskset", "-c", &cpu].map(str::to_owned).to_vec();
            words.extend(reference::build(service.program)?);
            words.extend(told.split(' ').map(str::to_owned));
        }
        let place = Place {
            clients: RefCell::default(),
            server,
            words,
            // How long it has to run before its speed is what it stays: Java compiles as it goes.
            warmup: match service.program.starts_with("java") {
                true => Duration::from_secs(10),
                false => Duration::from_millis(500),
            },
        };
        // Before jostle is measured: the server, too, has to become warm.
        place.ready(1)?;
        Ok(place)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_alike_is_judged_and_the_rest_is_shown() {
        for trial in trials() {
            let judged = trial
                .claims
                .iter()
                .filter(|claim| claim.required != Nothing);
            let expected = if trial.name.contains("cas") { 0 } else { 3 };
            assert_eq!(judged.count(), expected, "{}", trial.name);
        }
    }

    #[test]
    fn every_trial_has_a_name_of_its_own() {
        let trials = trials();
        for (at, trial) in trials.iter().enumerate() {
            let others = &trials[at + 1..];
            assert!(others.iter().all(|other| other.name != trial.name));
        }
    }
}
