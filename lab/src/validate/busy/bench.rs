//! Servers, hogs, and jostle between them.

use super::Planted;
use super::kinds::{Beside, Kind};
use crate::hog::Hog;
use crate::program;
use anyhow::{Context, anyhow};
use jostle_report::ResultSet;
use jostle_testbed::servers::{Running, Server};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(super) struct Bench {
    jostle: PathBuf,
    /// The workers', and the servers'.
    cpus: [usize; 2],
    servers: Vec<Running>,
    /// Operations of a run, by kind.
    counts: BTreeMap<String, u64>,
    directory: tempfile::TempDir,
}

impl Bench {
    pub(super) fn set_up(jostle: &Path) -> anyhow::Result<Bench> {
        let cpus = jostle_sys::cpu::allowed();
        let (Some(first), Some(last), true) = (cpus.first(), cpus.last(), cpus.len() > 1) else {
            return Err(anyhow!("workers and hogs need a CPU each"));
        };
        let servers = [Server::Lockd, Server::Nginx];
        jostle_testbed::packages::ensure(&servers.map(Server::packages).concat())?;
        let started = servers.map(|server| server.start(jostle, Some(*last)));
        Ok(Bench {
            jostle: jostle.to_owned(),
            cpus: [*first, *last],
            servers: started.into_iter().collect::<anyhow::Result<_>>()?,
            counts: BTreeMap::new(),
            directory: tempfile::tempdir()?,
        })
    }

    pub(super) fn cpu_of(&self, beside: Beside) -> usize {
        match beside {
            Beside::Workers => self.cpus[0],
            Beside::Other => self.cpus[1],
        }
    }

    /// One run, with the hog beside it from before its start until after its end.
    pub(super) fn run(
        &mut self,
        kind: &Kind,
        hog: Option<Hog>,
    ) -> anyhow::Result<(Option<Planted>, ResultSet)> {
        let count = self.count(kind)?;
        let hog = hog.map(|hog| Ok::<_, anyhow::Error>((hog, hog.start()?)));
        let hog = hog.transpose()?;
        let planted = hog.as_ref().map(|(hog, running)| Planted {
            percent: hog.percent,
            cpu: hog.cpu,
            niceness: hog.niceness,
            pid: running.pid(),
        });
        Ok((planted, self.measure(kind, count)?))
    }

    /// How many operations take the span, by two runs that are thrown away.
    fn count(&mut self, kind: &Kind) -> anyhow::Result<u64> {
        if let Some(count) = self.counts.get(&kind.name) {
            return Ok(*count);
        }
        let mut count = kind.first_count().unwrap_or(0);
        if count > 0 {
            for _ in 0..2 {
                let set = self.measure(kind, count)?;
                let point = set.points.first().context("a pilot without a run")?;
                count = kind.next_count(count, point.window_s);
            }
        }
        self.counts.insert(kind.name.clone(), count);
        Ok(count)
    }

    fn measure(&self, kind: &Kind, count: u64) -> anyhow::Result<ResultSet> {
        let mut servers = self.servers.iter();
        let server = kind
            .server
            .and_then(|wanted| servers.find(|s| s.server == wanted));
        let target = server.map(Running::target).unwrap_or_default();
        let mut run = program::call(&self.jostle);
        run.args(kind.line(&target, self.cpus[0], count));
        let part = self.directory.path().join("part.jsonl");
        let mut sets = program::run(&mut run, &part)?;
        sets.pop().context("jostle wrote nothing")
    }
}
