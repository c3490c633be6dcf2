//! How one cell is measured: a fresh server, one load, its figures.

use super::Ground;
use super::servers::{self, Kind};
use super::{Scale, beside};
use crate::peers::table::Figure::*;
use crate::peers::table::Figures;
use anyhow::{Context, ensure};
use jostle_model::record::Run;

/// From a run of jostle.
fn figures(point: &Run) -> anyhow::Result<Figures> {
    ensure!(point.operations > 0, "nothing was done in the window");
    let server = point.server.as_ref().context("no figures of the server")?;
    let server_s = server.cpu_s.context("no CPU time of the server")?;
    let client_s = point.cpu.cpu_s.context("no CPU time of the client")?;
    let accounts = point.around.accounts.as_deref().context("no accounts")?;
    let elsewhere_s = accounts.others_s.unwrap_or(0.0) + accounts.stolen_s.unwrap_or(0.0);
    let all_s = accounts.between_s * accounts.cpus.max(1) as f64;
    let each_us = 1e6 / point.operations as f64;
    let batches = [&point.times.batch_ns, &point.times.release_batch_ns];
    let longest = batches.into_iter().flatten().map(|batch| batch.max).max();
    Ok(Figures::of(&[
        (Rate, point.throughput_per_s),
        (ServerCpu, server_s * each_us),
        (ClientCpu, client_s * each_us),
        (ServerBusy, server_s / point.window.window_s),
        (ClientBusy, client_s / point.window.window_s),
        (Elsewhere, elsewhere_s / all_s),
        (Batch, longest.map_or(f64::NAN, |ns| ns as f64 * 1e-6)),
        (Bytes, server.bytes_per_held_lock.unwrap_or(f64::NAN)),
    ]))
}

/// What jostle does to a server.
#[derive(Clone)]
pub(super) struct Load {
    /// What it asks.
    pub asked: Asked,
    pub work: Work,
    /// Connections that wait for other locks meanwhile.
    pub waiters: usize,
    /// Whether the metrics are read meanwhile.
    pub scrape: bool,
}

/// A server, by the recipe of a target.
#[derive(Clone, Copy)]
pub(super) enum Asked {
    /// A server of ours, as a jostled is asked.
    Lockd(Kind),
    /// A Redis, by the recipe of this target.
    Redis(&'static str),
    /// The specimen that only answers, which jostle launches itself.
    Echo,
}

/// What each worker does, which is a connection.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// Acquires and releases, so many pairs on their way at once.
    Pairs {
        workers: usize,
        pipeline: usize,
        /// As in `--names`: one lock for all, or each its own.
        names: &'static str,
    },
    /// All want the same lock for a time.
    HandOff { workers: usize },
    /// One connection acquires few or many locks, 100 on their way, holds them all and releases
    /// them.
    Hold { size: usize },
}

impl Work {
    fn words(self, scale: &Scale) -> String {
        match self {
            Work::Pairs {
                workers,
                pipeline,
                names,
            } => {
                let pairs = scale.pairs[usize::from(pipeline > 1)];
                let each = pairs.div_ceil(workers as u64);
                format!("stream -w {workers} --pipeline {pipeline} --names {names} -n {each}")
            }
            Work::HandOff { workers } => {
                let seconds = scale.seconds;
                format!("contend -w {workers} --hold 0 --idle 0 --warmup 50ms -t {seconds}")
            }
            Work::Hold { size } => format!("hold -w 1 --keys {} --pipeline 100", scale.locks[size]),
        }
    }
}

impl Load {
    pub(super) fn run(&self, ground: &Ground) -> anyhow::Result<Figures> {
        let started = match self.asked {
            Asked::Lockd(kind) => Some(servers::start(kind, ground)?),
            Asked::Redis(_) => Some(servers::start(Kind::Redis, ground)?),
            Asked::Echo => None,
        };
        let target = match (self.asked, &started) {
            (Asked::Lockd(_), Some((server, _))) => format!("lockd://{}", server.address),
            (Asked::Redis(recipe), Some((server, _))) => format!("{recipe}://{}", server.address),
            _ => "echo".to_owned(),
        };
        let waiting = started
            .iter()
            .map(|(server, _)| beside::wait(server.address, self.waiters));
        let _waiting: Vec<_> = waiting.collect::<anyhow::Result<_>>()?;
        let scraped = started.iter().filter(|_| self.scrape);
        let _readers: Vec<_> = scraped
            .map(|(_, metrics)| beside::Reader::start(*metrics))
            .collect();
        let words = self.work.words(&ground.scale);
        let mut words = format!("{words} {target} --as tasks --generator-threads 1");
        if started.is_none() {
            words += &format!(" --server-place cpus:{}", ground.server_cpu);
        }
        figures(&ground.measure(&words)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_for_each_operation() {
        use jostle_model::record::{Accounts, Circumstances, Cpu, Server, Window};
        let point = Run {
            operations: 1000,
            throughput_per_s: 2000.0,
            window: Window {
                window_s: 0.5,
                ..Window::default()
            },
            cpu: Cpu {
                cpu_s: Some(0.125),
                ..Cpu::default()
            },
            server: Some(Server {
                cpu_s: Some(0.25),
                ..Server::default()
            }),
            around: Circumstances {
                accounts: Some(Box::new(Accounts {
                    between_s: 0.5,
                    cpus: 2,
                    others_s: Some(0.1),
                    stolen_s: Some(0.1),
                    ..Accounts::default()
                })),
                ..Circumstances::default()
            },
            ..Run::default()
        };
        let found = figures(&point).unwrap();
        assert_eq!((found[Rate], found[Elsewhere]), (2000.0, 0.2));
        assert_eq!((found[ServerCpu], found[ClientCpu]), (250.0, 125.0));
        assert_eq!((found[ServerBusy], found[ClientBusy]), (0.5, 0.25));
        assert!(found[Batch].is_nan() && found[Bytes].is_nan());
        // A run without the server's CPU time has no row, nor one that did nothing.
        let idle = Run {
            operations: 0,
            ..point.clone()
        };
        let unknown = Run {
            server: None,
            ..point
        };
        assert!(figures(&idle).is_err() && figures(&unknown).is_err());
    }
}
