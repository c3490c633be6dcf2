//! Searches beside OpenLDAP's own clients, on a slapd that has a CPU of its own: a
//! C program on libldap, ldapsearch with many filters, ldapsearch for each one.

use super::figures::Requirement::{RatioAtLeast, RatioAtMost, Shown};
use super::{Answer, Bench, Metric, Side, Trial, compile, read_answer};
use anyhow::{Context, bail};
use jostle_testbed::slapd::{BASE, Slapd, Wanted};
use jostle_testbed::{packages, shell};
use std::cell::OnceCell;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;

/// Searches of one side in one repeat; under a second.
const SEARCHES: u32 = 20_000;
/// Processes of ldapsearch in one repeat.
const PROCESSES: u32 = 200;
const USERS: u32 = 10_000;

/// The server, and what its clients need; made by the first trial that runs.
struct Ground {
    slapd: Slapd,
    /// The clients' CPU.
    cpu: usize,
    program: PathBuf,
    /// A filter's value in each line.
    values: PathBuf,
}

type Shared = Rc<OnceCell<Ground>>;

/// The trials.
pub(super) fn trials() -> Vec<Trial> {
    let ground = Shared::default();
    let metric = |what: &str, requirement| Metric {
        what: what.to_owned(),
        requirement,
    };
    vec![
        Trial {
            name: "ldap libldap".to_owned(),
            metrics: vec![
                metric("searches/s on one connection : libldap", RatioAtLeast(1.0)),
                metric("  client CPU, us a search", Shown),
            ],
            jostle: stream(&ground, "keep", SEARCHES),
            peer: Some(library(&ground)),
        },
        Trial {
            name: "ldap ldapsearch -f".to_owned(),
            metrics: vec![
                metric(
                    "searches/s on one connection : ldapsearch -f",
                    RatioAtLeast(1.0),
                ),
                metric("  client CPU, us a search", Shown),
            ],
            jostle: stream(&ground, "keep", SEARCHES),
            peer: Some(many_filters(&ground)),
        },
        Trial {
            name: "ldap ldapsearch".to_owned(),
            metrics: vec![
                metric("requests/s, a connection each : a process each", Shown),
                metric("  client CPU, us a request", RatioAtMost(0.1)),
            ],
            jostle: stream(&ground, "each", SEARCHES / 10),
            peer: Some(processes(&ground)),
        },
    ]
}

impl Ground {
    fn of<'a>(shared: &'a Shared, bench: &Bench) -> anyhow::Result<&'a Ground> {
        if shared.get().is_none() {
            let _ = shared.set(Ground::make(bench)?);
        }
        shared.get().context("no slapd")
    }

    fn make(bench: &Bench) -> anyhow::Result<Ground> {
        packages::ensure(&["slapd", "ldap-utils", "libldap-dev", "util-linux"])?;
        let cpus = jostle_sys::cpu::allowed();
        let [cpu, .., server] = cpus[..] else {
            bail!("this needs two CPUs, one for the server and one for its clients");
        };
        let program = bench.peers.join("ldap");
        compile("ldap", &program, &["-lldap", "-llber"])?;
        let values = bench.peers.join("users");
        let mut lines = String::new();
        for n in 0..SEARCHES {
            writeln!(lines, "user{}", n % USERS)?;
        }
        std::fs::write(&values, lines)?;
        let wanted = Wanted {
            entries: USERS,
            cpu: Some(server),
            ..Wanted::default()
        };
        Ok(Ground {
            slapd: Slapd::start(&wanted).map_err(anyhow::Error::msg)?,
            cpu,
            program,
            values,
        })
    }

    fn uri(&self) -> String {
        format!("ldap://127.0.0.1:{}", self.slapd.port)
    }

    fn place(&self) -> String {
        format!("cpus:{}", self.cpu)
    }
}

/// Requests of one worker of jostle: their rate, and CPU for each.
fn stream(ground: &Shared, connection: &'static str, searches: u32) -> Side {
    let ground = Rc::clone(ground);
    Box::new(move |bench| {
        let ground = Ground::of(&ground, bench)?;
        let url = ground.slapd.url("(uid=user{n})");
        let mut command = bench.measure("stream", &[&url, "--connection", connection]);
        command
            .args(["-w", "1", "-n", &searches.to_string()])
            .args(["--numbers", &USERS.to_string(), "--place", &ground.place()]);
        let answer = read_answer(&mut command)?;
        let wrong: Vec<&String> = answer.point.errors.keys().collect();
        if !wrong.is_empty() {
            bail!("searches failed: {wrong:?}");
        }
        let cpu_us = answer.point.cpu_us_per_operation.context("no CPU time")?;
        Ok(vec![answer.point.throughput_per_s, cpu_us])
    })
}

fn library(ground: &Shared) -> Side {
    let ground = Rc::clone(ground);
    Box::new(move |bench| {
        let ground = Ground::of(&ground, bench)?;
        let mut command = Command::new("taskset");
        command
            .args(["-c", &ground.cpu.to_string()])
            .arg(&ground.program)
            .args([&ground.uri(), BASE])
            .args([SEARCHES, USERS].map(|number| number.to_string()));
        let text = shell::output(&mut command)?;
        let numbers: Result<Vec<f64>, _> = text.split_whitespace().map(str::parse).collect();
        match numbers.as_deref() {
            Ok([searches, nanos, cpu_us]) => Ok(vec![searches / nanos * 1e9, cpu_us / searches]),
            _ => bail!("ldap printed {text}"),
        }
    })
}

/// A command as jostle times it, and the CPU time of its processes.
fn called(bench: &Bench, ground: &Ground, command: &str, calls: u32) -> anyhow::Result<Answer> {
    let mut call = bench.measure("call", &[command, "--null", "none", "-w", "1"]);
    call.args(["-n", &calls.to_string(), "--place", &ground.place()])
        .args(["--numbers", &USERS.to_string()]);
    let answer = read_answer(&mut call)?;
    match answer.point.operations == u64::from(calls) {
        true => Ok(answer),
        false => bail!("`{command}` failed: {:?}", answer.point.codes),
    }
}

/// CPU time of the started processes for each of so many searches, in microseconds.
fn children_us(answer: &Answer, searches: u32) -> anyhow::Result<f64> {
    let point = &answer.point;
    let user_s = point.children_user_s.context("no CPU time")?;
    let system_s = point.children_system_s.context("no CPU time")?;
    Ok((user_s + system_s) * 1e6 / f64::from(searches))
}

fn many_filters(ground: &Shared) -> Side {
    let ground = Rc::clone(ground);
    Box::new(move |bench| {
        let ground = Ground::of(&ground, bench)?;
        let values = ground.values.display();
        let uri = ground.uri();
        let command = format!("ldapsearch -x -LLL -H {uri} -b {BASE} -f {values} (uid=%s)");
        let answer = called(bench, ground, &command, 1)?;
        let service = answer.point.service_ns.as_ref().context("no time")?;
        Ok(vec![
            f64::from(SEARCHES) / service.mean * 1e9,
            children_us(&answer, SEARCHES)?,
        ])
    })
}

fn processes(ground: &Shared) -> Side {
    let ground = Rc::clone(ground);
    Box::new(move |bench| {
        let ground = Ground::of(&ground, bench)?;
        let uri = ground.uri();
        let command = format!("ldapsearch -x -LLL -H {uri} -b {BASE} (uid=user{{n}})");
        let answer = called(bench, ground, &command, PROCESSES)?;
        let cpu_us = children_us(&answer, PROCESSES)?;
        Ok(vec![answer.point.throughput_per_s, cpu_us])
    })
}
