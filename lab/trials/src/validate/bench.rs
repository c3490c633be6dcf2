//! Where runs are made: jostle, and servers that stay for a whole series, on CPUs and in control
//! groups of their own where sides of a load are held back.

use super::plants::{Plant, Planted};
use super::sides::{Side, Sides};
use crate::disturbance::Disturbance;
use crate::program;
use anyhow::{Context, Result, bail, ensure};
use jostle_model::judged::Watched;
use jostle_model::record::Record;
use jostle_report::ResultSet;
use jostle_testbed::servers::{Placed, Running, Server};
use jostle_testbed::{packages, shell};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A hog's niceness: it gets its share at once, however many threads of its side want the
/// CPU.
const NICENESS: i32 = -20;

/// One turn of pauses: as long as a quota's period.
const TURN_MS: u64 = 100;

/// jostle, servers and sides.
pub(super) struct Bench {
    pub jostle: PathBuf,
    // Before the groups that they are in.
    servers: Vec<Running>,
    /// None: all of it runs anywhere.
    sides: Option<Sides>,
    directory: tempfile::TempDir,
}

impl Bench {
    /// With these packages beside those of the servers.
    pub(super) fn set_up(jostle: &Path, wanted: &[&str], sides: Option<Sides>) -> Result<Bench> {
        packages::ensure(wanted)?;
        Ok(Bench {
            jostle: std::path::absolute(jostle)?,
            servers: Vec::new(),
            sides,
            directory: tempfile::tempdir()?,
        })
    }

    /// Those that are held back.
    pub(super) fn sides(&self) -> Result<&Sides> {
        self.sides.as_ref().context("nothing is held back here")
    }

    /// A side's CPU and group.
    pub(super) fn placed(&self, side: Side) -> Placed<'_> {
        let sides = self.sides.as_ref();
        Placed {
            cpu: sides.map(|sides| sides.cpu(side)),
            group: sides.map(|sides| sides.group(side).path()),
            ..Placed::default()
        }
    }

    /// A server that stays, started by the first who asks for it.
    pub(super) fn serve(&mut self, server: Server, in_group: bool) -> Result<&Running> {
        if self.servers.iter().all(|running| running.server != server) {
            packages::ensure(server.packages())?;
            let mut placed = self.placed(Side::Server);
            placed.group = placed.group.filter(|_| in_group);
            let running = server.start_at(&self.jostle, placed)?;
            self.servers.push(running);
        }
        self.server(server)
    }

    /// One that was started.
    pub(super) fn server(&self, server: Server) -> Result<&Running> {
        let mut servers = self.servers.iter();
        let running = servers.find(|running| running.server == server);
        running.context("the server is not there")
    }

    /// Where commands are run and results are written.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn part(&self) -> PathBuf {
        self.directory().join("part.jsonl")
    }

    /// A measurement of jostle's own: the words that follow its name.
    pub(super) fn measure(&self, placed: Placed<'_>, words: &[String]) -> Result<ResultSet> {
        let begin = placed.words();
        let mut run = program::call(Path::new(&begin[0]));
        run.args(&begin[1..]).arg(&self.jostle).args(words);
        let set = program::run(&mut run, &self.part())?.pop();
        set.context("jostle wrote nothing")
    }

    /// `jostle judge` over a command: what the command printed, and what jostle watched.
    pub(super) fn judge(
        &self,
        command: &[String],
        longest_s: u32,
        codes: &[i32],
    ) -> Result<(String, Watched)> {
        self.judge_in(&[], command, longest_s, codes)
    }

    /// The same in other namespaces, which these words enter.
    pub(super) fn judge_in(
        &self,
        enter: &[String],
        command: &[String],
        longest_s: u32,
        codes: &[i32],
    ) -> Result<(String, Watched)> {
        let part = self.part();
        let mut judge = program::call(Path::new("timeout"));
        judge
            .current_dir(self.directory())
            .args(["-s", "INT", &longest_s.to_string()])
            .args(enter)
            .arg(&self.jostle)
            .args(["judge", "--quiet", "--overwrite", "-o"])
            .arg(&part)
            .arg("--")
            .args(command);
        let printed = printed(&mut judge, codes)?;
        let text = std::fs::read_to_string(part).context("jostle wrote no record")?;
        let mut lines = text.lines();
        let line = lines.next().context("jostle wrote no record")?;
        ensure!(lines.next().is_none(), "jostle wrote more than one record");
        match serde_json::from_str(line)? {
            Record::Judged(watched) => Ok((printed, *watched)),
            other => bail!("jostle wrote another record: {other:?}"),
        }
    }

    /// Holds a side back that uses so many CPUs' worth of time when left alone; what runs beside
    /// the run is to be ended with it.
    pub(super) fn plant(&self, planted: Planted, used: f64) -> Result<Option<Disturbance>> {
        let Planted { side, plant, dose } = planted;
        let sides = self.sides()?;
        let group = sides.group(side).path();
        let start = |how: &str, place| Disturbance::start(&self.jostle, how, place).map(Some);
        match plant {
            Plant::Hog => {
                let cpu = sides.cpu(side);
                start(&format!("burn 1 {cpu} {dose} {NICENESS}"), Some(group))
            }
            Plant::Pause => {
                let [stopped, running] = planted.turn_ms(TURN_MS);
                let how = format!("pause {stopped} {running} {}", group.display());
                start(&how, None)
            }
            _ => {
                sides.limit(side, used * planted.left())?;
                Ok(None)
            }
        }
    }
}

/// The output of a command, of both streams.
pub(super) fn printed(command: &mut Command, codes: &[i32]) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run `{}`", shell::typed(command)))?;
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let code = output.status.code();
    if !code.is_some_and(|code| codes.contains(&code)) {
        let typed = shell::typed(command);
        bail!("`{typed}` failed: {}: {out}{err}", output.status);
    }
    Ok(format!("{out}{err}"))
}
