//! `cargo xtask validate judge-cases`: `jostle judge` over the load generators and servers of
//! lab/trials/cases, whose limits were written down before any of them was run. Each case is
//! one short run, alone or beside a busy loop. Its series is kept, so that a changed rule
//! judges it anew.
//!
//! A verdict is *right* if it is a word of the case's truth. Beside a busy loop `machine` is
//! right too: the figure is then that of a machine that others use. Every third case is held
//! aside, and is reported only when asked for.

use super::Wanted;
use super::bench::{printed, read};
use super::truth::is_spoilt;
use crate::program;
use crate::validate::store::Store;
use crate::validate::{Required, Row};
use anyhow::{Context, bail, ensure};
use jostle_model::judged::{Limit, Watched};
use jostle_stats::judge::find;
use jostle_sys::ledger::Ledger;
use jostle_sys::limits::cpu_group::CpuGroup;
use jostle_sys::process;
use jostle_testbed::leash::Leash;
use jostle_testbed::ports::free_port;
use jostle_testbed::servers::{self, Placed, Server};
use jostle_testbed::{packages, shell};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TABLE: &str = include_str!("../../../cases/cases.tsv");
const SERVERS: &str = include_str!("../../../cases/servers.tsv");

/// Cases whose number is a multiple of this are held aside.
const ASIDE: u32 = 3;

/// The length of a run.
const SECONDS: u32 = 4;

/// A quota that is never reached, and the longest run unless it stands still.
const NO_QUOTA_CPUS: f64 = 10_000.0;
const LONGEST_S: u32 = 60;

const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// A line of the table.
struct Case {
    number: u32,
    server: &'static str,
    /// The server that this one asks.
    behind: Option<&'static str>,
    planted: Vec<Plant>,
    truth: Vec<Limit>,
    command: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Plant {
    /// Neither side has a CPU of its own.
    Free,
    /// The number of ports for new connections.
    Ports(u16),
    /// CPUs of the generator (0), or of the server (1).
    Quota(usize, f64),
    /// From when on and until when a side is stopped, in seconds.
    Stop(usize, f64, f64),
    /// When the server is killed.
    Kill(f64),
}

/// A line of the file: one run.
#[derive(Serialize, Deserialize)]
struct Run {
    case: u32,
    beside: bool,
    watched: Watched,
}

/// The lines of a table, without its comments.
fn lines(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split('\t').collect())
}

fn cases() -> anyhow::Result<Vec<Case>> {
    let each = lines(TABLE).zip(1..).map(|(words, number)| {
        let [servers, planted, truth, command, _why] = words[..] else {
            bail!("case {number}: a line has five columns");
        };
        let (server, behind) = match servers.split_once(' ') {
            Some((server, behind)) => (server, Some(behind)),
            None => (servers, None),
        };
        let planted = planted.split(' ').filter(|word| *word != "-");
        let truth = truth
            .split('|')
            .map(|word| serde_json::from_value(word.into()));
        Ok(Case {
            number,
            server,
            behind,
            planted: planted.map(plant).collect::<anyhow::Result<_>>()?,
            truth: truth.collect::<Result<_, _>>()?,
            command,
        })
    });
    each.collect()
}

fn plant(word: &str) -> anyhow::Result<Plant> {
    let (what, value) = word.split_once('=').unwrap_or((word, ""));
    let (side, what) = match what.split_once(':') {
        Some(("generator", what)) => (0, what),
        Some(("server", what)) => (1, what),
        _ => (0, what),
    };
    Ok(match what {
        "free" => Plant::Free,
        "ports" => Plant::Ports(value.parse()?),
        "quota" => Plant::Quota(side, value.parse()?),
        "kill" => Plant::Kill(value.parse()?),
        "stop" => {
            let (from, to) = value.split_once('-').context("stop=FROM-TO")?;
            Plant::Stop(side, from.parse()?, to.parse()?)
        }
        _ => bail!("nothing is planted by `{word}`"),
    })
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct How {
    /// Beside a busy loop
    #[arg(long)]
    beside: bool,
    /// Also report the third of the cases that is held aside
    #[arg(long)]
    open: bool,
    /// This program has a network namespace of its own
    #[arg(long, hide = true)]
    apart: bool,
}

/// Runs what is missing, as far as time allows, and reports.
pub(in crate::validate) fn rows(wanted: &Wanted<'_>, how: How) -> anyhow::Result<Vec<Row>> {
    let (beside, opened) = (how.beside, how.open);
    let cases = cases()?;
    if let Some(path) = wanted.judge {
        return report(&cases, &Store::read(path)?.lines, opened);
    }
    let mut store: Store<Run> = Store::open(wanted.save)?;
    let until = Instant::now() + Duration::from_secs(wanted.seconds);
    let is_there = |case: &Case, store: &Store<Run>| {
        let mut lines = store.lines.iter();
        lines.any(|line| line.case == case.number && line.beside == beside)
    };
    let is_wanted = |case: &&Case| {
        let text = format!("#{} {} {}", case.number, case.server, case.command);
        wanted.only.is_none_or(|only| text.contains(only)) && !is_there(case, &store)
    };
    let missing: Vec<&Case> = cases.iter().filter(is_wanted).collect();
    if !missing.is_empty() && wanted.seconds > 0 {
        let built = wanted.program.map(Path::to_owned);
        if !how.apart {
            enter_namespace()?;
        }
        let bench = Bench::set_up(&built.map_or_else(program::build, Ok)?)?;
        let _hog = if beside { Some(busy_loop()?) } else { None };
        for case in missing {
            if Instant::now() >= until {
                break;
            }
            let run = || {
                let watched = bench.run(case);
                watched.with_context(|| format!("case {}", case.number))
            };
            let mut watched = run()?;
            if !beside && is_spoilt(&watched, None) {
                watched = run()?;
            }
            store.add(Run {
                case: case.number,
                beside,
                watched,
            })?;
        }
    }
    report(&cases, &store.lines, opened)
}

/// A program that uses any CPU as long as it may.
fn busy_loop() -> anyhow::Result<Leash> {
    let mut shell = Command::new("sh");
    Leash::start(shell.args(["-c", "while :; do :; done & read -r never; kill $!"]))
}

/// Where cases are run: in a network namespace of their own.
struct Bench {
    jostle: PathBuf,
    cpus: [usize; 2],
    /// The generators', and the servers'.
    groups: [CpuGroup; 2],
    ledger: Ledger,
    /// Has what commands are named by.
    directory: tempfile::TempDir,
}

impl Bench {
    fn set_up(jostle: &Path) -> anyhow::Result<Bench> {
        let cpus = jostle_sys::cpu::allowed();
        let [Some(first), Some(last)] = [cpus.first(), cpus.last()] else {
            bail!("no CPU");
        };
        ensure!(first != last, "generators and servers need a CPU each");
        let _ = jostle_sys::ledger::sweep_dead();
        let ledger = Ledger::create().context("cannot make a ledger")?;
        let group = || CpuGroup::create(&ledger, NO_QUOTA_CPUS).map_err(anyhow::Error::msg);
        let bench = Bench {
            jostle: std::path::absolute(jostle)?,
            cpus: [*first, *last],
            groups: [group()?, group()?],
            ledger,
            directory: tempfile::tempdir()?,
        };
        let class = generators().join("Client.class");
        for file in [shell::root().join("lab/trials/cases"), class] {
            let name = file.file_name().context("a file without a name")?;
            std::os::unix::fs::symlink(&file, bench.directory.path().join(name))?;
        }
        Ok(bench)
    }

    fn placed(&self, case: &Case, side: usize) -> Placed<'_> {
        Placed {
            cpu: (!case.planted.contains(&Plant::Free)).then_some(self.cpus[side]),
            group: Some(self.groups[side].path()),
        }
    }

    /// Starts a server, which asks the one at this port.
    fn serve(&self, case: &Case, name: &str, behind: u16) -> anyhow::Result<servers::Running> {
        let placed = self.placed(case, 1);
        match name {
            "redis" => return Server::Redis.start_at(&self.jostle, placed),
            "jostled" => return Server::Lockd.start_at(&self.jostle, placed),
            "postgres" => {
                let running = Server::Postgres.start_at(&self.jostle, placed)?;
                let port = running.address.port().to_string();
                let ask = "until pg_isready -q -h 127.0.0.1 -p $0; do sleep 0.1; done";
                shell::run(Command::new("timeout").args(["60", "sh", "-c", ask, &port]))?;
                return Ok(running);
            }
            _ => {}
        }
        let line = lines(SERVERS).find(|words| words[0] == name);
        let line = *line
            .with_context(|| format!("no server {name}"))?
            .get(1)
            .context("a line")?;
        servers::launch(Server::Other, placed, |address, place| {
            let cases = format!("{}/", shell::root().join("lab/trials/cases").display());
            let line = line
                .replace("cases/", &cases)
                .replace("{port}", &address.port().to_string())
                .replace("{behind}", &behind.max(1).to_string())
                .replace("{place}", &place.display().to_string());
            Ok(["sh", "-c", &line].map(str::to_owned).to_vec())
        })
    }

    fn run(&self, case: &Case) -> anyhow::Result<Watched> {
        eprintln!("#{} {} {}", case.number, case.server, case.command);
        let quota = |side: usize, cpus: f64| {
            let (file, text) = self.groups[side].quota(cpus);
            std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
        };
        [0, 1]
            .into_iter()
            .try_for_each(|side| quota(side, NO_QUOTA_CPUS))?;
        let port = |running: &servers::Running| running.address.port();
        let behind = case
            .behind
            .map(|name| self.serve(case, name, 0))
            .transpose()?;
        let server = match case.server {
            "none" => None,
            name => Some(self.serve(case, name, behind.as_ref().map_or(0, port))?),
        };
        let port = server
            .as_ref()
            .map_or_else(free_port, |running| Ok(port(running)))?;
        let ports = std::fs::read_to_string(RANGE)?;
        for planted in &case.planted {
            match planted {
                Plant::Quota(side, cpus) => quota(*side, *cpus)?,
                Plant::Ports(number) => {
                    let last = 20_000 + number - 1;
                    std::fs::write(RANGE, format!("20000 {last}"))?;
                }
                Plant::Free | Plant::Stop(..) | Plant::Kill(_) => {}
            }
        }
        let watched = std::thread::scope(|scope| {
            scope.spawn(|| {
                case.planted
                    .iter()
                    .for_each(|planted| self.disturb(planted))
            });
            self.judge(case, port)
        });
        std::fs::write(RANGE, ports)?;
        watched
    }

    /// What is done to a side in mid-run.
    fn disturb(&self, planted: &Plant) {
        let wait = |seconds: f64| std::thread::sleep(Duration::from_secs_f64(seconds));
        let each = |side: usize, tell: fn(u32)| {
            let procs = std::fs::read_to_string(self.groups[side].path().join("cgroup.procs"));
            let procs = procs.unwrap_or_default();
            procs
                .lines()
                .filter_map(|line| line.parse().ok())
                .for_each(tell);
        };
        match *planted {
            Plant::Stop(side, from_s, to_s) => {
                wait(from_s);
                each(side, process::stop);
                wait(to_s - from_s);
                each(side, process::go_on);
            }
            Plant::Kill(at_s) => {
                wait(at_s);
                each(1, process::kill);
            }
            Plant::Free | Plant::Ports(_) | Plant::Quota(..) => {}
        }
    }

    fn judge(&self, case: &Case, port: u16) -> anyhow::Result<Watched> {
        let line = case
            .command
            .replace("{url}", &format!("http://127.0.0.1:{port}/"))
            .replace("{port}", &port.to_string())
            .replace("{s}", &SECONDS.to_string());
        let part = self.directory.path().join("part.jsonl");
        let mut command = program::call(Path::new("timeout"));
        command
            .current_dir(self.directory.path())
            .args(["-s", "INT", &LONGEST_S.to_string()])
            .arg(&self.jostle)
            .args(["judge", "--quiet", "--overwrite", "-o"])
            .arg(&part)
            .arg("--")
            .args(self.placed(case, 0).words())
            .args(["sh", "-c", &line]);
        // 1: nothing to judge; 3: the generator was the limit.
        printed(&mut command, &[0, 1, 3])?;
        read(&part)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Err(left) = self.ledger.sweep() {
            eprintln!("left behind: {}", left.join("; "));
        }
    }
}

fn generators() -> PathBuf {
    shell::target_directory().join("generators")
}

/// Installs the generators and starts this program again: in a network namespace of its own,
/// whose ports and counters nobody else uses, and with the generators in its PATH.
fn enter_namespace() -> anyhow::Result<()> {
    packages::ensure(&[
        "wrk",
        "hey",
        "apache2-utils",
        "redis-server",
        "redis-tools",
        "postgresql",
        "sysbench",
        "nginx-light",
        "npm",
        "golang-go",
        "default-jdk-headless",
        "iproute2",
        "python3-venv",
    ])?;
    shell::run(&mut Command::new(
        shell::root().join("lab/trials/cases/install.sh"),
    ))?;
    let places = ["bin", "node_modules/.bin", "python/bin"].map(|place| generators().join(place));
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let usual = std::env::split_paths(&usual).chain([PathBuf::from("/usr/sbin")]);
    let status = Command::new("unshare")
        .args([
            "--net",
            "sh",
            "-c",
            "ip link set lo up && exec \"$@\"",
            "sh",
        ])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg("--apart")
        .env(
            "PATH",
            std::env::join_paths(places.into_iter().chain(usual))?,
        )
        .stdin(Stdio::null())
        .status()
        .context("cannot run unshare")?;
    std::process::exit(status.code().unwrap_or(1));
}

fn report(cases: &[Case], runs: &[Run], opened: bool) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (aside, beside) in [(false, false), (false, true), (true, false), (true, true)] {
        let of_it = |case: &Case| case.number.is_multiple_of(ASIDE) == aside;
        let runs = runs.iter().filter(|run| run.beside == beside);
        let judged = runs.filter_map(|run| {
            let case = cases.iter().find(|case| case.number == run.case)?;
            of_it(case).then(|| (case, Verdict::of(case, run)))
        });
        let judged: Vec<(&Case, Verdict)> = judged.collect();
        if (aside && !opened) || judged.is_empty() {
            continue;
        }
        let which = if aside { "held aside" } else { "made" };
        let where_ = if beside { "beside a busy loop" } else { "idle" };
        println!("{which}, {where_}:\n");
        matrix(&judged);
        rows.extend(summary(&format!("{which}, {where_}"), &judged, aside));
    }
    ensure!(!rows.is_empty(), "no run of any case");
    Ok(rows)
}

/// What judge says of a run by the rules of today.
struct Verdict {
    limit: Limit,
    is_right: bool,
    why: String,
}

impl Verdict {
    fn of(case: &Case, run: &Run) -> Verdict {
        let finding = find(&run.watched);
        Verdict {
            limit: finding.limit,
            is_right: is_right(case, run.beside, finding.limit),
            why: finding.reasons.into_iter().next().unwrap_or_default(),
        }
    }

    fn is_decided(&self) -> bool {
        self.limit != Limit::Undecided
    }
}

fn is_right(case: &Case, beside: bool, limit: Limit) -> bool {
    case.truth.contains(&limit) || (beside && limit == Limit::Machine)
}

/// Rows are truths, columns are verdicts; then what was wrong or undecided.
fn matrix(judged: &[(&Case, Verdict)]) {
    let name = |truth: &[Limit]| {
        truth
            .iter()
            .map(|limit| limit.name())
            .collect::<Vec<_>>()
            .join(" or ")
    };
    let mut cells: BTreeMap<String, BTreeMap<&str, usize>> = BTreeMap::new();
    for (case, verdict) in judged {
        let row = cells.entry(name(&case.truth)).or_default();
        *row.entry(verdict.limit.name()).or_default() += 1;
    }
    let mut columns: Vec<&str> = cells.values().flat_map(BTreeMap::keys).copied().collect();
    columns.sort_unstable();
    columns.dedup();
    println!("| truth | {} |", columns.join(" | "));
    println!("| --- {}|", "| --- ".repeat(columns.len()));
    for (truth, row) in &cells {
        let row = columns
            .iter()
            .map(|column| row.get(column).map_or(String::new(), usize::to_string));
        println!("| {truth} | {} |", row.collect::<Vec<_>>().join(" | "));
    }
    println!();
    for (case, verdict) in judged.iter().filter(|(_, verdict)| !verdict.is_right) {
        let (truth, limit) = (name(&case.truth), verdict.limit.name());
        println!(
            "#{} {}, `{}`: {limit}, not {truth}: {}",
            case.number, case.server, case.command, verdict.why
        );
    }
    println!();
}

fn summary(what: &str, judged: &[(&Case, Verdict)], aside: bool) -> Vec<Row> {
    let required = |wanted: Required| if aside { wanted } else { Required::Nothing };
    let row = |of: &str,
               is: &dyn Fn(&(&Case, Verdict)) -> bool,
               among: &dyn Fn(&(&Case, Verdict)) -> bool,
               wanted| {
        let among: Vec<_> = judged.iter().filter(|one| among(one)).collect();
        Row {
            what: format!("{what}: {of}"),
            count: among.iter().filter(|one| is(one)).count() as u64,
            trials: among.len() as u64,
            required: required(wanted),
            note: String::new(),
        }
    };
    let is_decided = |one: &(&Case, Verdict)| one.1.is_decided();
    let of_generator = |one: &(&Case, Verdict)| one.0.truth.contains(&Limit::Generator);
    vec![
        row(
            "right of the decided",
            &|one| one.1.is_right,
            &is_decided,
            Required::AtLeast(0.95),
        ),
        row(
            "undecided",
            &|one| !is_decided(one),
            &|_| true,
            Required::AtMost(0.1),
        ),
        row(
            "generator, called server",
            &|one| one.1.limit == Limit::Server,
            &of_generator,
            Required::AtMost(0.0),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recorded cases by the rules of today: no fewer verdicts are right than when they were
    /// recorded, in any of the four parts.
    #[test]
    fn recorded_cases_are_judged_as_they_were() {
        let path = format!(
            "{}/../record/validate-judge-cases.jsonl",
            env!("CARGO_MANIFEST_DIR")
        );
        let runs = Store::<Run>::read(path.as_ref()).unwrap().lines;
        let cases = cases().unwrap();
        let mut right: BTreeMap<(bool, bool), [u32; 2]> = BTreeMap::new();
        for run in &runs {
            let case = &cases[run.case as usize - 1];
            let verdict = Verdict::of(case, run);
            let then = is_right(case, run.beside, run.watched.finding.limit);
            let part = (case.number.is_multiple_of(ASIDE), run.beside);
            let [now, before] = right.entry(part).or_default();
            *now += u32::from(verdict.is_right);
            *before += u32::from(then);
        }
        let worse: Vec<_> = right.iter().filter(|(_, [now, then])| now < then).collect();
        assert!(worse.is_empty() && runs.len() >= 60, "{worse:?}");
    }

    #[test]
    fn the_table_has_sixty_cases_and_every_truth_and_a_third_is_held_aside() {
        let cases = cases().unwrap();
        assert!(cases.len() >= 60);
        for limit in [
            Limit::Generator,
            Limit::Server,
            Limit::Machine,
            Limit::Downstream,
            Limit::Ports,
            Limit::Timer,
            Limit::Path,
            Limit::Nothing,
        ] {
            assert!(
                cases.iter().any(|case| case.truth.contains(&limit)),
                "{limit:?}"
            );
        }
        let known = ["redis", "jostled", "postgres", "none"];
        let is_known =
            |name: &str| known.contains(&name) || lines(SERVERS).any(|words| words[0] == name);
        for case in &cases {
            let mut servers = [Some(case.server), case.behind].into_iter().flatten();
            assert!(servers.all(is_known), "case {}", case.number);
        }
    }

    #[test]
    fn what_is_planted_is_a_word_with_its_numbers() {
        assert_eq!(plant("server:quota=0.2").unwrap(), Plant::Quota(1, 0.2));
        assert_eq!(
            plant("generator:stop=1.5-3").unwrap(),
            Plant::Stop(0, 1.5, 3.0)
        );
        assert_eq!(plant("server:kill=2").unwrap(), Plant::Kill(2.0));
        assert_eq!(plant("ports=300").unwrap(), Plant::Ports(300));
        assert!(plant("server:quota=much").is_err() && plant("slower").is_err());
    }

    #[test]
    fn machine_is_right_beside_a_busy_loop_only() {
        let case = &cases().unwrap()[0];
        let mut run = Run {
            case: 1,
            beside: true,
            watched: Watched::default(),
        };
        assert!(!Verdict::of(case, &run).is_right);
        run.watched = crate::validate::judge::truth::tests::run(0, 100.0, 0.5, 0.5).watched;
        run.watched.machine.stolen_s.fill(0.05);
        assert!(Verdict::of(case, &run).is_right);
        run.beside = false;
        assert!(!Verdict::of(case, &run).is_right);
    }
}
