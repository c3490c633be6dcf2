//! `jostle recover` against an observer of the same run that is not jostle: the service's own
//! client, which asks who owns the lock, or the log of a server or a `pipe:` program. Both sides stamp
//! by `CLOCK_MONOTONIC`, so that what disturbs the run disturbs both. A trial keeps what both
//! have seen, and the verdict is a pure function of that.

use super::{Required, Row, Series};
use crate::program;
use anyhow::{Context, ensure};
use jostle_model::record::{Event, Recovery, What};
use jostle_stats::intervals::median;
use jostle_sys::census::{self, Identity};
use jostle_sys::clock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

/// How far the two may be apart.
const APART_NS: u64 = 20_000_000;
/// Between two looks of an observer, at most.
const LONGEST_GAP_NS: u64 = 60_000_000;
/// Trials of a cell.
const TRIALS: usize = 3;
/// Each comes 20 ms after the one before, and the fault after the last: the observer has time
/// to connect.
const WAITERS: u32 = 15;

/// The measured cell, and who observes it: lab/trials/validate/recover.toml says what each is.
#[derive(Deserialize)]
struct Cell {
    name: String,
    target: Option<String>,
    #[serde(default = "every_fault")]
    faults: Vec<String>,
    #[serde(default = "yes")]
    lease: bool,
    server: Option<Server>,
    script: String,
    #[serde(default = "yes")]
    looks: bool,
    release: Option<String>,
    #[serde(default)]
    owners: Owners,
}

/// How a server that jostle launched is found, and what its clients must know.
#[derive(Deserialize)]
struct Server {
    program: String,
    secret: Option<(String, String)>,
}

/// How owners are read, in the order in which they came.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Owners {
    /// Behind an `O`.
    #[default]
    Looks,
    /// By jostled's tokens.
    Tokens,
    /// By etcd's oldest key.
    Keys,
    /// By a program's own log.
    Log,
}

/// A line of the observer, and when it came.
type Line = (u64, String);

static CELLS: LazyLock<Vec<Cell>> = LazyLock::new(|| {
    let text = include_str!("../../validate/recover.toml");
    let read = toml::from_str::<BTreeMap<String, Vec<Cell>>>(text);
    read.expect("a table that tests read")
        .remove("cell")
        .unwrap_or_default()
});

fn every_fault() -> Vec<String> {
    ["kill", "stop", "cut", "server-kill"]
        .map(str::to_owned)
        .to_vec()
}

fn yes() -> bool {
    true
}

impl Owners {
    /// Each with the time at which it was first seen.
    fn read(self, lines: &[Line]) -> Vec<Line> {
        match self {
            Owners::Looks => changes(lines, "O "),
            Owners::Tokens => changes(lines, "token\\r\\n:"),
            Owners::Keys => oldest_keys(lines),
            Owners::Log => logged(lines),
        }
    }
}

/// One run, as both have seen it.
#[derive(Serialize, Deserialize)]
pub(super) struct Trial {
    cell: String,
    fault: String,
    jostle: Recovery,
    observer: Vec<Line>,
}

/// The word or number behind a mark.
fn after<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    let rest = &text[text.find(mark)? + mark.len()..];
    let end = rest.find([',', '"', '\\', ' ']).unwrap_or(rest.len());
    Some(&rest[..end]).filter(|owner| !owner.is_empty())
}

/// Where each look sees the owner, behind this mark.
fn changes(lines: &[Line], mark: &str) -> Vec<Line> {
    let each = lines
        .iter()
        .filter_map(|(at, text)| Some((*at, after(text, mark)?.to_owned())));
    let mut all: Vec<Line> = each.collect();
    all.dedup_by(|next, before| next.1 == before.1);
    all
}

/// etcd's events: the owner is whose key is the oldest. An event that comes again, after the
/// observer has connected anew, counts once.
fn oldest_keys(lines: &[Line]) -> Vec<Line> {
    let (mut keys, mut seen) = (BTreeMap::new(), 0);
    let mut found: Vec<Line> = Vec::new();
    for (at, text) in lines {
        let read: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
        for event in read["result"]["events"].as_array().into_iter().flatten() {
            let number = |name: &str| event["kv"][name].as_str()?.parse::<u64>().ok();
            let revision = number("mod_revision").unwrap_or(0);
            if revision <= seen {
                continue;
            }
            seen = revision;
            let key = event["kv"]["key"].to_string();
            match event["type"] == "DELETE" {
                true => drop(keys.remove(&key)),
                false => drop(keys.insert(key, number("create_revision").unwrap_or(revision))),
            }
            let oldest = keys.iter().min_by_key(|(_, revision)| **revision);
            if let Some((key, _)) = oldest
                && found.last().is_none_or(|last| last.1 != *key)
            {
                found.push((*at, key.clone()));
            }
        }
    }
    found
}

/// `WORKER granted TIME` of the peer's own log, by its own stamp.
fn logged(lines: &[Line]) -> Vec<Line> {
    let granted = |text: &str| {
        let (worker, at) = text.split_once(" granted ")?;
        Some((at.parse().ok()?, worker.to_owned()))
    };
    lines.iter().filter_map(|(_, text)| granted(text)).collect()
}

/// When an old owner was told by its release, if the observer can know: a service's client by
/// the request that has its name, a peer by its own log.
fn told(trial: &Trial, release: Option<&str>, owners: &[Line]) -> Option<u64> {
    let (old, next) = (owners.first()?, owners.get(1)?);
    let release = |(_, text): &&Line| {
        release.is_some_and(|mark| text.contains(mark)) && text.contains(&old.1)
    };
    let by_log = |(_, text): &Line| {
        let (worker, at) = text.split_once(" refused ")?;
        at.parse().ok().filter(|_| worker == old.1)
    };
    let mut later = trial.observer.iter().filter(|(at, _)| *at > next.0);
    let released = later.find(release).map(|(at, _)| *at);
    released.or_else(|| trial.observer.iter().find_map(by_log))
}

/// By how much jostle's time of something is behind the observer's.
struct Apart {
    what: &'static str,
    ns: i64,
}

/// None where the observer saw too little.
fn apart(trial: &Trial) -> Option<Vec<Apart>> {
    let cell = CELLS.iter().find(|cell| cell.name == trial.cell)?;
    let owners = cell.owners.read(&trial.observer);
    let release = cell.release.as_deref();
    let first = |is_owner: bool, what: &[What]| {
        let mut own = trial.jostle.history.iter();
        let is = |event: &&Event| {
            event
                .process
                .is_some_and(|process| (process == 0) == is_owner)
                && what.contains(&event.what)
        };
        own.find(is).map(|event| event.at_ns)
    };
    let next = first(false, &[What::Granted, What::GrantedFromDead])?;
    if owners.len() < 2 || owners[0].0 > trial.jostle.struck_at_ns {
        return None;
    }
    let seen = owners[1].0;
    let from = match cell.looks {
        true => {
            // Until then the old owner was still seen.
            let mut looks = trial.observer.iter().take_while(|(at, _)| *at < seen);
            let old = looks.find(|(at, _)| *at == owners[0].0)?;
            let still = looks.filter(|(_, text)| *text == old.1).last();
            let from = still.unwrap_or(old).0;
            look_before(
                &trial.observer,
                release,
                (from.max(trial.jostle.struck_at_ns), seen),
            )?
        }
        false => seen,
    };
    let mut all = vec![Apart {
        what: "next grant",
        ns: beside(next, (from, seen)),
    }];
    if trial.jostle.told == Some(true)
        && let Some(seen) = told(trial, release, &owners)
    {
        let at = first(true, &[What::NotReleased, What::Lost])?;
        all.push(Apart {
            what: "told",
            ns: beside(at, (seen, seen)),
        });
        all.extend(trial.jostle.two_believed_ns.map(|believed| Apart {
            what: "two believed",
            ns: beside(believed, (seen - owners[1].0, seen.saturating_sub(from))),
        }));
    }
    Some(all)
}

/// The look before the one at this time: what was seen then happened in between. None if that
/// was too long ago, or any look from this time on, as where the observer found no CPU or had to
/// connect anew.
fn look_before(lines: &[Line], release: Option<&str>, (from, at_ns): (u64, u64)) -> Option<u64> {
    let is_release = |text: &str| release.is_some_and(|mark| text.contains(mark));
    let looks = lines.iter().filter(|(_, text)| !is_release(text));
    let looks: Vec<&Line> = looks.take_while(|(at, _)| *at <= at_ns).collect();
    // Only the ends of equal looks are kept.
    let is_dense = |pair: &[&Line]| {
        pair[1].0 <= from || pair[0].1 == pair[1].1 || pair[1].0 - pair[0].0 <= LONGEST_GAP_NS
    };
    let before = looks.iter().rev().find(|(at, _)| *at < at_ns)?.0;
    looks.windows(2).all(is_dense).then_some(before)
}

/// By how much a time lies before or after a span.
fn beside(at_ns: u64, (from_ns, to_ns): (u64, u64)) -> i64 {
    at_ns as i64 - at_ns.clamp(from_ns, to_ns) as i64
}

/// A row for each cell, fault and figure.
fn judge(trials: &[Trial]) -> Vec<Row> {
    let mut cells = BTreeMap::<String, Vec<i64>>::new();
    for trial in trials {
        for apart in apart(trial).into_iter().flatten() {
            let what = format!("{} after {}: {}", trial.cell, trial.fault, apart.what);
            cells.entry(what).or_default().push(apart.ns);
        }
    }
    let row = |(what, ns): (String, Vec<i64>)| {
        let ms: Vec<f64> = ns.iter().map(|ns| *ns as f64 / 1e6).collect();
        let is_near = |ns: &i64| ns.unsigned_abs() <= APART_NS;
        let row = Row::counting(what, ns, is_near, Required::AtLeast(1.0));
        row.noting(format!(
            "{:+.1} ms (median)",
            median(&ms).unwrap_or(f64::NAN)
        ))
    };
    cells.into_iter().map(row).collect()
}

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(series: &Series) -> anyhow::Result<Vec<Row>> {
    let (mut store, until) = series.collect.begin::<Trial>()?;
    if Instant::now() >= until {
        return Ok(judge(&store.lines));
    }
    let jostle = series.jostle()?;
    let each = CELLS.iter().filter(|cell| series.has(&cell.name));
    for (cell, fault) in each.flat_map(|cell| cell.faults.iter().map(move |fault| (cell, fault))) {
        let is_of = |trial: &&Trial| trial.cell == cell.name && trial.fault == *fault;
        // One that the observer came too late for is made again, with fewer that log in again.
        for attempt in 0..3 * TRIALS {
            let done = store.lines.iter().filter(is_of).count();
            if done >= TRIALS || Instant::now() >= until {
                break;
            }
            let trial = observed(&jostle, cell, fault, WAITERS >> (attempt / TRIALS))?;
            if apart(&trial).is_some() {
                store.add(trial)?;
            }
        }
    }
    Ok(judge(&store.lines))
}

/// One run, and what its observer printed.
fn observed(jostle: &Path, cell: &Cell, fault: &str, waiters: u32) -> anyhow::Result<Trial> {
    let place = tempfile::tempdir()?;
    let here = |text: &str| text.replace("{place}", &place.path().display().to_string());
    let part = place.path().join("result.jsonl");
    let lines = Arc::new(Mutex::new(Vec::new()));
    let known = place.path().join("server");
    let wait = format!(
        "until [ -s {0} ]; do sleep 0.005; done; . {0}",
        known.display()
    );
    let look = "/usr/bin/python3 lab/trials/validate/look.py {place}/server";
    let script = cell.script.replace("{look}", look).replace("{wait}", &wait);
    let script = here(&script);
    let observer = Observer::start(&script, &lines)?;
    let mut command = program::call(jostle);
    command.args([
        "recover",
        &here(cell.target.as_ref().unwrap_or(&cell.name)),
        "--fault",
        fault,
    ]);
    command.args(["--runs", "1", "--waiters", &waiters.to_string()]);
    // Longer than a lease that jostle does not know.
    let pause = if cell.server.is_some() { "500ms" } else { "3s" };
    command.args(["--pause", pause]);
    if cell.lease {
        command.args(["--lease", "2s"]);
    }
    command.args(["--quiet", "-o"]).arg(&part);
    let mut run = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let status = loop {
        if let Some(status) = run.try_wait()? {
            break status;
        }
        // It returns at the same address.
        if !known.exists()
            && let Some(server) = &cell.server
            && let Some((port, secret)) = place_of(run.id(), server)
        {
            // Whole at once.
            let new = place.path().join("new");
            std::fs::write(&new, format!("PORT={port} SECRET={secret}\n"))?;
            std::fs::rename(&new, &known)?;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    drop(observer);
    ensure!(
        matches!(status.code(), Some(0 | 3)),
        "{} failed: {status}",
        cell.name
    );
    let sets = jostle_report::read(&part)?;
    let points = sets.iter().flat_map(|set| &set.runs);
    let recovery = points.filter_map(|point| point.recovery.as_deref()).next();
    let mut observer: Vec<Line> = std::mem::take(&mut lines.lock().expect("no panic"));
    observer.sort();
    Ok(Trial {
        cell: cell.name.clone(),
        fault: fault.to_owned(),
        jostle: recovery.context("no run of recover in the result")?.clone(),
        observer: ends_of_equals(&observer),
    })
}

/// The first and the last of lines that repeat each other: the last one shows when a look
/// still saw this.
fn ends_of_equals(lines: &[Line]) -> Vec<Line> {
    let is = |at: Option<usize>, text: &str| {
        at.and_then(|at| lines.get(at))
            .is_some_and(|line| line.1 == text)
    };
    let amid = |at: usize, text: &str| is(at.checked_sub(1), text) && is(Some(at + 1), text);
    let each = lines.iter().enumerate();
    let ends = each.filter(|(at, (_, text))| !amid(*at, text));
    ends.map(|(_, line)| line.clone()).collect()
}

/// The port and the password of this server that jostle launched.
fn place_of(jostle: u32, server: &Server) -> Option<(String, String)> {
    let is_ours = |pid: u32| {
        let keeper = Identity::of(pid)
            .filter(|own| own.name == server.program)?
            .parent;
        let parent = Identity::of(keeper)?.parent;
        (keeper == jostle || parent == jostle).then_some(pid)
    };
    let pid = census::processes().into_iter().find_map(is_ours)?;
    let behind = |file: &str, mark: &str| {
        let bytes = std::fs::read(format!("/proc/{pid}/{file}")).ok()?;
        let text = String::from_utf8_lossy(&bytes).replace('\0', "\n");
        let mut lines = text.lines().filter_map(|line| line.split_once(mark));
        let rest = lines.next()?.1;
        Some(rest.split(['"', ',']).next()?.trim().to_owned())
    };
    // It may listen for other members, too.
    let told = behind("cmdline", "--listen-client-urls=http://127.0.0.1:");
    let secret = match &server.secret {
        Some((file, mark)) => behind(file, mark)?,
        None => String::new(),
    };
    Some((told.or_else(|| listening(pid))?, secret))
}

/// The port at which a process listens, by ss(8).
fn listening(pid: u32) -> Option<String> {
    let said = Command::new("ss").arg("-ltnpH").output().ok()?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let line = text
        .lines()
        .find(|line| line.contains(&format!("pid={pid},")))?;
    let place = line.split_whitespace().nth(3)?;
    Some(place.rsplit_once(':')?.1.to_owned())
}

/// A script that runs again and again, in a process group of its own.
struct Observer(Child);

impl Observer {
    fn start(script: &str, lines: &Arc<Mutex<Vec<Line>>>) -> anyhow::Result<Observer> {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("setpriv");
        // A server that is started anew is asked anew.
        let script = format!("while :; do {script}; sleep 0.002; done");
        // `timeout` ends its whole group, also when this program is killed.
        command.args(["--pdeathsig", "TERM", "timeout", "600", "sh", "-c", &script]);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.process_group(0).spawn()?;
        let output = child.stdout.take().context("no output")?;
        let lines = Arc::clone(lines);
        std::thread::spawn(move || {
            for text in BufReader::new(output).lines().map_while(Result::ok) {
                let at = clock::monotonic();
                lines.lock().expect("no panic").push((at, text));
            }
        });
        Ok(Observer(child))
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests;
