//! Servers of their own, a control group, and jostle in it.

use super::kinds::{Figure, Kind, Means, Planted};
use crate::disturbance::Disturbance;
use crate::program;
use crate::validate::sides::{Side, Sides};
use anyhow::Context;
use jostle_report::ResultSet;
use jostle_testbed::servers::{Placed, Running, Server};
use std::path::{Path, PathBuf};
use std::process::Command;

const SERVERS: [Server; 3] = [Server::Lockd, Server::Slow, Server::Nginx];

/// Where runs are made.
pub(super) struct Bench {
    jostle: PathBuf,
    servers: Vec<Running>,
    /// Runs of two fifths of the usual length.
    short: bool,
    /// Servers are in no group.
    sides: Sides,
    directory: tempfile::TempDir,
}

impl Bench {
    pub(super) fn set_up(jostle: &Path, short: bool) -> anyhow::Result<Bench> {
        let sides = Sides::make()?;
        jostle_testbed::packages::ensure(&SERVERS.map(Server::packages).concat())?;
        let started = SERVERS.map(|server| server.start(jostle, Some(sides.cpu(Side::Server))));
        Ok(Bench {
            jostle: jostle.to_owned(),
            servers: started.into_iter().collect::<anyhow::Result<_>>()?,
            short,
            sides,
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
        self.sides.lift()?;
        let (cpu, group) = (
            self.sides.cpu(Side::Generator),
            self.sides.group(Side::Generator),
        );
        let mut servers = self.servers.iter();
        let server = servers.find(|running| running.server == kind.server);
        let target = server.context("the server is not there")?.target();
        let part = self.directory.path().join("part.jsonl");
        let name = self.jostle.display().to_string();
        let means = planted.map(|planted| {
            planted.means(&name, cpu, used, |cpus| {
                let (file, text) = group.quota(cpus);
                (file.display().to_string(), text)
            })
        });
        let (options, beside) = match means {
            Some(Means::Options(options)) => (Some(options), None),
            Some(Means::Beside(how)) => {
                let started = Disturbance::start(&self.jostle, &how, Some(group.path()))?;
                (None, Some(started))
            }
            None => (None, None),
        };
        let place = Placed {
            cpu: None,
            group: Some(group.path()),
        };
        let words = place.words();
        let mut run = Command::new(&words[0]);
        run.args(&words[1..])
            .arg(&self.jostle)
            .args(kind.line(&target, cpu, self.short))
            .args(options.iter().flatten());
        let before = self.sides.stopped();
        let mut sets = program::run(&mut run, &part)?;
        beside.map_or(Ok(()), Disturbance::end)?;
        let stopped = self.sides.stopped() - before;
        let set = sets.pop().context("jostle wrote nothing")?;
        Ok((set, stopped))
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
