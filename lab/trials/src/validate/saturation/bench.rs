//! Servers of their own, a control group, and jostle in it.

use super::kinds::{Figure, Kind, Length, Means, Planted};
use crate::program;
use anyhow::{Context, anyhow};
use jostle_report::ResultSet;
use jostle_sys::ledger::Ledger;
use jostle_sys::limits::cpu_group::CpuGroup;
use jostle_testbed::servers::{Running, Server};
use std::path::{Path, PathBuf};
use std::process::Command;

const SERVERS: [Server; 3] = [Server::Lockd, Server::Slow, Server::Nginx];

/// A quota that is accounted and never reached.
const NO_QUOTA_CPUS: f64 = 10_000.0;

/// Where runs are made.
pub(super) struct Bench {
    jostle: PathBuf,
    /// The CPU of the generators.
    cpu: usize,
    servers: Vec<Running>,
    length: Length,
    group: CpuGroup,
    ledger: Ledger,
    directory: tempfile::TempDir,
}

impl Bench {
    pub(super) fn set_up(jostle: &Path, length: Length) -> anyhow::Result<Bench> {
        let cpus = jostle_sys::cpu::allowed();
        let (Some(cpu), Some(server_cpu), true) = (cpus.first(), cpus.last(), cpus.len() > 1)
        else {
            return Err(anyhow!("generators and servers need a CPU each"));
        };
        let _ = jostle_sys::ledger::sweep_dead();
        let ledger = Ledger::create().context("cannot make a ledger")?;
        let group = CpuGroup::create(&ledger, NO_QUOTA_CPUS).map_err(anyhow::Error::msg)?;
        jostle_testbed::packages::ensure(&SERVERS.map(Server::packages).concat())?;
        let started = SERVERS.map(|server| server.start(jostle, Some(*server_cpu)));
        Ok(Bench {
            jostle: jostle.to_owned(),
            cpu: *cpu,
            servers: started.into_iter().collect::<anyhow::Result<_>>()?,
            length,
            group,
            ledger,
            directory: tempfile::tempdir()?,
        })
    }

    /// One run, and how often the group's quota stopped it; `used` is the CPUs' worth
    /// of time that jostle used when left alone.
    pub(super) fn run(
        &self,
        kind: &Kind,
        planted: Option<Planted>,
        used: f64,
    ) -> anyhow::Result<(ResultSet, u64)> {
        let (file, unlimited) = self.group.quota(NO_QUOTA_CPUS);
        std::fs::write(&file, unlimited).context("cannot set a CPU quota")?;
        let mut servers = self.servers.iter();
        let server = servers.find(|running| running.server == kind.server);
        let target = server.context("the server is not there")?.target();
        let part = self.directory.path().join("part.jsonl");
        let name = self.jostle.display().to_string();
        let means = planted.map(|planted| {
            planted.means(&name, self.cpu, used, |cpus| {
                let (file, text) = self.group.quota(cpus);
                (file.display().to_string(), text)
            })
        });
        let (options, hog) = match means {
            Some(Means::Options(options)) => (Some(options), None),
            Some(Means::Beside(hog)) => (None, Some(hog.start_in(self.group.path())?)),
            None => (None, None),
        };
        // The shell enters the group and becomes jostle.
        let enter = format!(
            "echo 0 > {}/cgroup.procs && exec \"$0\" \"$@\"",
            self.group.path().display()
        );
        let mut run = Command::new("sh");
        run.args(["-c", &enter])
            .arg(&self.jostle)
            .args(kind.line(&target, self.cpu, self.length))
            .args(options.iter().flatten());
        let stopped = || self.group.throttled().throttled_periods;
        let before = stopped();
        let mut sets = program::run(&mut run, &part)?;
        drop(hog);
        let stopped = stopped() - before;
        let set = sets.pop().context("jostle wrote nothing")?;
        Ok((set, stopped))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // The group goes with the ledger.
        if let Err(left) = self.ledger.sweep() {
            eprintln!("left behind: {}", left.join("; "));
        }
    }
}

/// The headline's value in a run; None where the run is too short for it.
pub(super) fn value(figure: Figure, run: &jostle_model::record::Run) -> Option<f64> {
    match figure {
        Figure::Throughput => Some(run.throughput_per_s),
        Figure::P99 => match &run.spread {
            None => jostle_stats::open_loop::response(&[run], "p99").map(|p99| p99.ns),
            Some(spread) => {
                let waits = spread.response_ns.as_ref()?;
                let known = waits.kaplan_meier.get("p99").or(waits.at_least.get("p99"));
                known.map(|ns| *ns as f64)
            }
        },
    }
}
