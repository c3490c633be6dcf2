//! Servers of their own, a control group, and jostle in it.

use super::kinds::{Figure, Kind, Planted, Server};
use crate::shell;
use anyhow::{Context, anyhow, ensure};
use jostle_report::ResultSet;
use jostle_sys::ledger::Ledger;
use jostle_sys::limits::cpu_group::CpuGroup;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A quota that is accounted and never reached.
const NO_QUOTA_CPUS: f64 = 10_000.0;

/// Where runs are made.
pub struct Bench {
    jostle: PathBuf,
    /// Of the generators.
    cpu: usize,
    servers: Vec<(Server, String, Running)>,
    group: CpuGroup,
    ledger: Ledger,
    directory: tempfile::TempDir,
}

impl Bench {
    pub fn set_up(jostle: &Path) -> anyhow::Result<Bench> {
        let cpus = jostle_sys::cpu::allowed();
        let (Some(cpu), Some(server_cpu), true) = (cpus.first(), cpus.last(), cpus.len() > 1)
        else {
            return Err(anyhow!("generators and servers need a CPU each"));
        };
        let _ = jostle_sys::ledger::sweep_dead();
        let ledger = Ledger::create().context("cannot make a ledger")?;
        let group = CpuGroup::create(&ledger, NO_QUOTA_CPUS).map_err(anyhow::Error::msg)?;
        let started = Server::ALL.map(|server| {
            let (running, address) = start(jostle, server, *server_cpu)?;
            Ok((server, format!("lockd://{address}"), running))
        });
        Ok(Bench {
            jostle: jostle.to_owned(),
            cpu: *cpu,
            servers: started.into_iter().collect::<anyhow::Result<_>>()?,
            group,
            ledger,
            directory: tempfile::tempdir()?,
        })
    }

    /// One run, and how often the group's quota stopped it; `used` is the CPUs' worth
    /// of time that jostle used when left alone.
    pub fn run(
        &self,
        kind: &Kind,
        planted: Option<Planted>,
        used: f64,
    ) -> anyhow::Result<(ResultSet, u64)> {
        let (file, unlimited) = self.group.quota(NO_QUOTA_CPUS);
        std::fs::write(&file, unlimited).context("cannot set a CPU quota")?;
        let mut servers = self.servers.iter();
        let target = servers.find(|(server, ..)| *server == kind.server);
        let target = &target.context("the server is not there")?.1;
        let part = self.directory.path().join("part.jsonl");
        let name = self.jostle.display().to_string();
        let planted = planted.map(|planted| {
            planted.options(&name, self.cpu, used, |cpus| {
                let (file, text) = self.group.quota(cpus);
                (file.display().to_string(), text)
            })
        });
        // The shell enters the group and becomes jostle.
        let enter = format!(
            "echo 0 > {}/cgroup.procs && exec \"$0\" \"$@\"",
            self.group.path().display()
        );
        let mut run = Command::new("sh");
        run.args(["-c", &enter])
            .arg(&self.jostle)
            .args(kind.line(target, self.cpu))
            .args(planted.unwrap_or_default())
            .args(["--quiet", "--overwrite", "-o"])
            .arg(&part)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let stopped = || self.group.throttled().throttled_periods;
        let before = stopped();
        let status = run.status().context("cannot run jostle")?;
        let stopped = stopped() - before;
        // 3: the point is INVALID.
        ensure!(
            matches!(status.code(), Some(0 | 3)),
            "`{}` failed: {status}",
            shell::typed(&run)
        );
        let mut sets = jostle_report::read(&part)?;
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

/// A server; ends with its standard input.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn start(jostle: &Path, server: Server, cpu: usize) -> anyhow::Result<(Running, String)> {
    let mut child = Command::new("taskset")
        .args(["-c", &cpu.to_string()])
        .arg(jostle)
        .args(["serve", server.name()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run taskset")?;
    let stdout = child.stdout.take().context("a server without output")?;
    let running = Running(child);
    let mut address = String::new();
    BufReader::new(stdout).read_line(&mut address)?;
    ensure!(!address.is_empty(), "{} does not start", server.name());
    Ok((running, address.trim().to_owned()))
}

/// The headline's value in a run; None where the run is too short for it.
pub fn value(figure: Figure, point: &jostle_model::record::Point) -> Option<f64> {
    match figure {
        Figure::Throughput => Some(point.throughput_per_s),
        Figure::P99 => match &point.spread {
            None => jostle_stats::open_loop::response(&[point], "p99").map(|p99| p99.ns),
            Some(spread) => {
                let waits = spread.response_ns.as_ref()?;
                let known = waits.kaplan_meier.get("p99").or(waits.at_least.get("p99"));
                known.map(|ns| *ns as f64)
            }
        },
    }
}
