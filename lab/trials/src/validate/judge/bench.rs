//! The servers on one CPU, the generators on another, each side in a control group of its
//! own, and one run of `jostle judge` between them.

use super::generators::{Amount, Generator};
use super::plants::{Plant, Planted};
use crate::disturbance::Disturbance;
use crate::program;
use crate::validate::sides::{Side, Sides};
use anyhow::{Context, bail, ensure};
use jostle_model::judged::Watched;
use jostle_model::record::Record;
use jostle_testbed::servers::{self, Placed};
use jostle_testbed::{packages, shell};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A hog's niceness: it gets its share at once, however many threads of its side want the
/// CPU.
const NICENESS: i32 = -20;

/// No run takes longer, unless it stands still.
const LONGEST_S: u32 = 120;

/// Where runs are made.
pub(super) struct Bench {
    jostle: PathBuf,
    // Before the groups that they are in.
    servers: Vec<servers::Running>,
    sides: Sides,
    directory: tempfile::TempDir,
}

/// How fast a generator is, and what both sides use, left alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usual {
    pub per_s: f64,
    /// CPUs' worth of time.
    pub generator: f64,
    pub server: f64,
}

/// A run.
pub(super) struct Ran {
    pub per_s: f64,
    pub watched: Watched,
    /// The process of the hog.
    pub hog: Option<u32>,
    /// How often the quotas of both groups stopped them, by our own reading.
    pub stopped: u64,
}

impl Bench {
    pub(super) fn set_up(jostle: &Path, generators: &[Generator]) -> anyhow::Result<Bench> {
        let needed = generators.iter().flat_map(|each| {
            let server = each.server().packages().iter().copied();
            server.chain([each.package()])
        });
        packages::ensure(&needed.collect::<Vec<_>>())?;
        let mut bench = Bench {
            jostle: jostle.to_owned(),
            servers: Vec::new(),
            sides: Sides::make()?,
            directory: tempfile::tempdir()?,
        };
        for generator in generators {
            bench.serve(*generator)?;
        }
        Ok(bench)
    }

    fn serve(&mut self, generator: Generator) -> anyhow::Result<()> {
        let server = generator.server();
        if self.servers.iter().all(|running| running.server != server) {
            let running = server.start_at(&self.jostle, self.placed(Side::Server))?;
            self.servers.push(running);
        }
        generator.prepare(self.address(generator)?)
    }

    fn placed(&self, side: Side) -> Placed<'_> {
        Placed {
            cpu: Some(self.sides.cpu(side)),
            group: Some(self.sides.group(side).path()),
        }
    }

    fn address(&self, generator: Generator) -> anyhow::Result<SocketAddr> {
        let mut servers = self.servers.iter();
        let running = servers.find(|running| running.server == generator.server());
        Ok(running.context("the server is not there")?.address)
    }

    /// The generator's command in its place.
    fn line(&self, generator: Generator, amount: Amount) -> anyhow::Result<Vec<String>> {
        let command = generator.command(self.address(generator)?, amount)?;
        let begin = self.placed(Side::Generator).words();
        Ok(begin.into_iter().chain(command).collect())
    }

    /// Without jostle: the rate that the generator prints.
    pub(super) fn bare(&self, generator: Generator, amount: Amount) -> anyhow::Result<f64> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        command.args(self.line(generator, amount)?);
        let printed = printed(&mut command, &[0])?;
        generator.figure(&printed, amount)
    }

    /// Watched by jostle, with something planted or left alone.
    pub(super) fn run(
        &self,
        generator: Generator,
        amount: Amount,
        planted: Option<(Planted, Usual)>,
    ) -> anyhow::Result<Ran> {
        self.sides.lift()?;
        let before = self.sides.stopped();
        let beside = match planted {
            Some((planted, usual)) => self.plant(planted, usual)?,
            None => None,
        };
        let mut command = program::call(Path::new("timeout"));
        command
            .args(["-s", "INT", &LONGEST_S.to_string()])
            .arg(&self.jostle)
            .args(self.judge(generator, amount)?);
        // 3: the generator was the limit.
        let printed = printed(&mut command, &[0, 3])?;
        let is_hog = planted.is_some_and(|(planted, _)| planted.plant == Plant::Hog);
        let hog = beside.as_ref().filter(|_| is_hog).map(Disturbance::pid);
        beside.map_or(Ok(()), Disturbance::end)?;
        Ok(Ran {
            per_s: generator.figure(&printed, amount)?,
            watched: read(&self.part())?,
            hog,
            stopped: self.sides.stopped() - before,
        })
    }

    fn part(&self) -> PathBuf {
        self.directory.path().join("part.jsonl")
    }

    /// jostle's arguments.
    fn judge(&self, generator: Generator, amount: Amount) -> anyhow::Result<Vec<String>> {
        let mut words = ["judge", "--quiet", "--overwrite", "-o"]
            .map(str::to_owned)
            .to_vec();
        words.extend([self.part().display().to_string(), "--".to_owned()]);
        words.extend(self.line(generator, amount)?);
        Ok(words)
    }

    /// Plants it; what runs beside the run is to be ended with it.
    fn plant(&self, planted: Planted, usual: Usual) -> anyhow::Result<Option<Disturbance>> {
        let side = planted.side;
        let group = self.sides.group(side).path();
        let start = |how: &str, place| Disturbance::start(&self.jostle, how, place).map(Some);
        match planted.plant {
            Plant::Quota => {
                let used = match side {
                    Side::Generator => usual.generator,
                    Side::Server => usual.server,
                };
                self.sides.limit(side, used * planted.left())?;
                Ok(None)
            }
            Plant::Hog => {
                let (cpu, dose) = (self.sides.cpu(side), planted.dose);
                start(&format!("burn 1 {cpu} {dose} {NICENESS}"), Some(group))
            }
            Plant::Pause => {
                let [stopped, running] = planted.turn_ms();
                let how = format!("pause {stopped} {running} {}", group.display());
                start(&how, None)
            }
        }
    }
}

/// What a command prints, of both streams.
pub(super) fn printed(command: &mut Command, codes: &[i32]) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run `{}`", shell::typed(command)))?;
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    if !output
        .status
        .code()
        .is_some_and(|code| codes.contains(&code))
    {
        let typed = shell::typed(command);
        bail!("`{typed}` failed: {}: {out}{err}", output.status);
    }
    Ok(format!("{out}{err}"))
}

pub(super) fn read(part: &Path) -> anyhow::Result<Watched> {
    let text = std::fs::read_to_string(part).context("jostle wrote no record")?;
    let mut lines = text.lines();
    let line = lines.next().context("jostle wrote no record")?;
    ensure!(lines.next().is_none(), "jostle wrote more than one record");
    match serde_json::from_str(line)? {
        Record::Judged(watched) => Ok(*watched),
        other => bail!("jostle wrote another record: {other:?}"),
    }
}
