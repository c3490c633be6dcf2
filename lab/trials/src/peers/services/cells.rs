//! How one cell is measured: a fresh server, one load, its figures.

use super::Ground;
use super::{Scale, beside, servers};
use crate::peers::table::Figure::*;
use crate::peers::table::Figures;
use anyhow::{Context, bail, ensure};
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
    Ok(Figures::only(&[
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

/// The load that jostle puts on a server.
#[derive(Clone, Copy)]
pub(super) struct Load {
    server: &'static str,
    /// The work of each worker, which is a connection.
    work: &'static str,
    /// Whether connections wait for other locks meanwhile.
    waits: bool,
    /// Whether the metrics are read meanwhile.
    reads: bool,
}

impl Load {
    /// By the words of a row in the table, for a trial of this work.
    pub(super) fn read(row: &'static str, work: &'static str) -> Load {
        let (server, rest) = row.split_once(' ').unwrap_or((row, ""));
        let [waits, reads] = ["waiting", "read"].map(|word| rest.contains(word));
        let is_other = !rest.is_empty() && !waits && !reads;
        Load {
            server,
            work: if is_other { rest } else { work },
            waits,
            reads,
        }
    }

    fn words(self, scale: &Scale) -> anyhow::Result<String> {
        let size = |word: &str| usize::from(word == "MANY");
        let words: Vec<&str> = self.work.split(' ').collect();
        let workers = match words[..] {
            ["pairs", workers, depth, names] => {
                let (workers, depth) = (workers.parse::<u64>()?, depth.parse::<u64>()?);
                let pipeline = (depth / 2).max(1);
                let each = scale.pairs[usize::from(pipeline > 1)].div_ceil(workers);
                return Ok(format!(
                    "stream -w {workers} --pipeline {pipeline} --names {names} -n {each}"
                ));
            }
            ["hold", keys] => {
                let keys = scale.locks[size(keys)];
                return Ok(format!("hold -w 1 --keys {keys} --pipeline 100"));
            }
            ["waiters", many] => scale.waiters[size(many)] + 1,
            ["hand-off", workers] => workers.parse()?,
            _ => bail!("no work `{}`", self.work),
        };
        let seconds = scale.seconds;
        Ok(format!(
            "contend -w {workers} --hold 0 --idle 0 --warmup 50ms -t {seconds}"
        ))
    }

    pub(super) fn run(self, ground: &Ground) -> anyhow::Result<Figures> {
        let server = (self.server != "echo").then(|| servers::start(self.server, ground));
        let started = server.transpose()?;
        let target = match &started {
            Some((server, _)) if self.server.starts_with("redis") => {
                format!("{}://{}", self.server, server.address)
            }
            Some((server, _)) => format!("lockd://{}", server.address),
            None => "echo".to_owned(),
        };
        let waiters = if self.waits { ground.scale.beside } else { 0 };
        let waiting = started
            .iter()
            .map(|(server, _)| beside::wait(server.address, waiters));
        let _waiting: Vec<_> = waiting.collect::<anyhow::Result<_>>()?;
        let read = started.iter().filter(|_| self.reads);
        let _readers = read.map(|(_, metrics)| beside::Reader::start(*metrics));
        let _readers: Vec<_> = _readers.collect();
        let words = self.words(&ground.scale)?;
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
