//! Groups of jostleds on three hosts, to which something happens: no two owners, no token that
//! falls, no effect lost; and how soon a free name is granted again. A seed draws what happens,
//! and clients tell a witness of their locks, which is not jostle's.

mod clients;
mod ground;
mod witness;

use super::{Collect, Required, Row};
use anyhow::Context;
use clients::Seen;
use ground::{Ground, MEMBERS, address};
use jostle_stats::rng::Rng;
use jostle_testbed::hosts::SERVER;
use jostle_testbed::shell;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use witness::Found;

const SECRET: &str = "secret";
const WITNESS: u16 = 7100;
/// Seeds in all, after the control.
const SEEDS: u64 = 200;
/// The seed in which each jostled has a group of its own, so that owners overlap: the witness
/// must find it.
const CONTROL: u64 = 0;

/// What happens to the primary's host, or to its jostled or etcd, and for how many seconds. That
/// of which a share is required comes most often.
const KINDS: [(&str, u64); 15] = [
    ("kill", 4),
    ("gone", 10),
    ("stop", 20),
    ("gone", 10),
    ("stop-call", 20),
    ("delay-call", 20),
    ("in-cut", 10),
    ("out-cut", 10),
    ("gone", 10),
    ("split", 10),
    ("etcd-stop", 8),
    ("etcd-frozen", 6),
    ("full", 6),
    ("behind", 4),
    ("restored", 6),
];
/// What lasts no time; one of these may come before the rest, or during it.
const LIGHT: [&str; 3] = ["kill", "term", "failover"];
/// Beside [`KINDS`]: each member in turn is told to go, and starts again, with so many holds.
const UPGRADES: [&str; 2] = ["0", "10000"];
/// Between what happened and the next, or the end.
const REST: Duration = Duration::from_secs(6);
/// So old is what etcd is restored from: members have noted what they know since.
const OLD: Duration = Duration::from_secs(13);

#[derive(clap::Args)]
pub(crate) struct How {
    /// Hosts of so many seeds at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=16))]
    beside: u64,
    /// This jostled, as it was built already, with the features `services`
    #[arg(long, value_name = "FILE")]
    jostled: Option<PathBuf>,
    /// Only seeds whose main fault is this
    #[arg(long)]
    only: Option<String>,
    /// Keep the jostleds' logs of each seed here
    #[arg(long, value_name = "DIRECTORY")]
    logs: Option<PathBuf>,
}

/// The parts of a seed that run on the clients' host.
#[derive(clap::Subcommand)]
pub(crate) enum Part {
    /// Compares what owners tell
    Witness,
    /// Takes locks
    Clients {
        seed: u64,
        holds: u64,
        addresses: Vec<SocketAddr>,
    },
}

impl Part {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match self {
            Part::Witness => witness::run(WITNESS),
            Part::Clients {
                seed,
                holds,
                addresses,
            } => clients::run(addresses, WITNESS, *seed, *holds),
        }
    }
}

/// Something that happened.
#[derive(Serialize, Deserialize)]
struct Fault {
    kind: String,
    /// Whether etcd's leader was on the same host.
    leader: bool,
}

/// What came of a seed.
#[derive(Serialize, Deserialize)]
struct Trial {
    id: u64,
    faults: Vec<Fault>,
    found: Found,
    seen: Seen,
}

/// What a seed draws.
struct Drawn {
    main: &'static str,
    lasts: Duration,
    before: Option<&'static str>,
    /// Comes so long after the main one.
    during: Option<(&'static str, Duration)>,
    leader: bool,
    number: u64,
}

fn draw(seed: u64) -> Drawn {
    let mut rng = Rng::new(seed);
    let at = (seed.wrapping_sub(1) % (KINDS.len() as u64 + 1)) as usize;
    let (main, lasts) = match seed {
        CONTROL => ("apart", 0),
        _ => *KINDS.get(at).unwrap_or(&("upgrade", 0)),
    };
    let [one, two] = [rng.below(3), rng.below(3)].map(|at| LIGHT[at as usize]);
    let lasts = match main {
        // Shorter or longer than a primary goes on without a write.
        "etcd-frozen" | "full" => lasts + 7 * rng.below(2),
        _ => lasts,
    };
    let is_long = lasts >= 10 && !["gone", "full", "etcd-frozen"].contains(&main);
    let during = Duration::from_millis(2_000 + rng.below(6_000));
    Drawn {
        main,
        lasts: Duration::from_secs(lasts),
        before: (!["upgrade", "apart"].contains(&main) && rng.below(2) == 0).then_some(one),
        during: (is_long && rng.below(3) == 0).then_some((two, during)),
        leader: rng.below(2) == 0,
        number: rng.next_u64(),
    }
}

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(collect: &Collect, how: &How) -> anyhow::Result<Vec<Row>> {
    let (store, until) = collect.begin::<Trial>()?;
    let store = Mutex::new(store);
    if Instant::now() < until {
        let jostled = how.jostled.clone().map_or_else(build, Ok)?.canonicalize()?;
        let is_known = |seed: &u64| {
            store
                .lock()
                .is_ok_and(|store| store.lines.iter().any(|trial| trial.id == *seed))
        };
        let is_meant = |seed: &u64| {
            how.only
                .as_deref()
                .is_none_or(|only| draw(*seed).main == only)
        };
        let missing: Vec<u64> = (CONTROL..=SEEDS)
            .filter(is_meant)
            .filter(|seed| !is_known(seed))
            .collect();
        if let Some(directory) = &how.logs {
            std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        }
        let next = Mutex::new(missing.into_iter());
        std::thread::scope(|threads| {
            let all: Vec<_> = (0..how.beside)
                .map(|_| {
                    threads.spawn(|| -> anyhow::Result<()> {
                        while Instant::now() < until {
                            let Some(seed) = next.lock().ok().and_then(|mut next| next.next())
                            else {
                                break;
                            };
                            let trial = run(seed, &jostled, how.logs.as_deref())
                                .with_context(|| format!("seed {seed}"))?;
                            eprintln!("{}", line(&trial));
                            if let Ok(mut store) = store.lock() {
                                store.add(trial)?;
                            }
                        }
                        Ok(())
                    })
                })
                .collect();
            let ends: Vec<_> = all.into_iter().map(|thread| thread.join()).collect();
            ends.into_iter()
                .try_for_each(|end| end.unwrap_or_else(|_| anyhow::bail!("a thread panicked")))
        })?;
    }
    let store = store
        .into_inner()
        .map_err(|_| anyhow::anyhow!("a thread panicked"))?;
    let (text, rows) = judged(&store.lines);
    println!("{text}");
    Ok(rows)
}

fn build() -> anyhow::Result<PathBuf> {
    let words = [
        "build",
        "--release",
        "--package",
        "jostle-lockd",
        "--features",
        "services",
    ];
    shell::run(&mut shell::cargo(&words))?;
    Ok(shell::target_directory().join("release/jostled"))
}

/// A program on the clients' host, with its input and output.
struct Program(std::process::Child, BufReader<std::process::ChildStdout>);

impl Program {
    fn start(ground: &Ground, words: &[String]) -> anyhow::Result<Program> {
        let mut command = ground.hosts.on(SERVER, std::env::current_exe()?);
        command
            .arg("ha")
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let output = child.stdout.take().context("no output")?;
        Ok(Program(child, BufReader::new(output)))
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.1.read_line(&mut line)?;
        anyhow::ensure!(line.ends_with('\n'), "the program has ended");
        Ok(line)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(seed: u64, jostled: &Path, logs: Option<&Path>) -> anyhow::Result<Trial> {
    use std::io::Write as _;
    let drawn = draw(seed);
    let options = match drawn.main {
        // What is discarded may be relied on for so long.
        "restored" => vec!["--max-ttl", "20"],
        _ => vec![],
    };
    let quota = if drawn.main == "full" {
        24 << 20
    } else {
        1 << 30
    };
    let mut ground = Ground::new(jostled, options, quota, seed == CONTROL)?;
    let mut witness = Program::start(&ground, &["witness".to_owned()])?;
    let holds = UPGRADES[usize::from(drawn.main == "upgrade")];
    let mut words = vec!["clients".to_owned(), seed.to_string(), holds.to_owned()];
    words.extend((0..MEMBERS).map(|member| format!("{}:7000", address(member))));
    let mut clients = Program::start(&ground, &words)?;
    clients.line()?;
    let mut input = clients.0.stdin.take().context("no input")?;
    let mut faults = Vec::new();
    let mut strike =
        |ground: &mut Ground, kind: &str, leads: Option<bool>| -> anyhow::Result<usize> {
            let primary = ground.primary()?;
            if matches!(kind, "failover" | "upgrade") {
                ground.await_standby(primary)?;
            }
            if let Some(leads) = leads {
                ground.lead(if leads {
                    primary
                } else {
                    (primary + 1) % MEMBERS
                });
            }
            let leader = ground
                .leader()
                .is_ok_and(|(_, leader)| leader == Some(primary));
            faults.push(Fault {
                kind: kind.to_owned(),
                leader,
            });
            writeln!(input, "{kind}")?;
            ground.strike(kind, primary, drawn.number)?;
            Ok(primary)
        };
    ground.wait(Duration::from_secs(2))?;
    if drawn.main == "restored" {
        ground.save()?;
        ground.wait(OLD)?;
    }
    if let Some(kind) = drawn.before {
        strike(&mut ground, kind, None)?;
        ground.wait(REST)?;
    }
    let rounds = match drawn.main {
        "upgrade" => MEMBERS,
        "apart" => 0,
        _ => 1,
    };
    for _ in 0..rounds {
        let member = strike(&mut ground, drawn.main, Some(drawn.leader))?;
        let begun = Instant::now();
        if let Some((kind, after)) = drawn.during {
            ground.wait(after)?;
            strike(&mut ground, kind, None)?;
        }
        ground.wait(drawn.lasts.saturating_sub(begun.elapsed()))?;
        if drawn.main == "restored" {
            strike(&mut ground, "accepted", None)?;
        }
        ground.heal(drawn.main, member)?;
        ground.wait(REST)?;
    }
    if seed == CONTROL {
        ground.wait(REST)?;
    }
    if drawn.main == "restored" {
        // Nothing is granted for the longest TTL.
        ground.wait(Duration::from_secs(20))?;
    }
    drop(input);
    let seen = serde_json::from_str(&clients.line()?)?;
    let found = serde_json::from_str(&witness.line()?)?;
    if let Some(directory) = logs {
        std::fs::write(directory.join(format!("{seed}.log")), ground.log())?;
    }
    Ok(Trial {
        id: seed,
        faults,
        found,
        seen,
    })
}

/// One line for people.
fn line(trial: &Trial) -> String {
    let Trial {
        id,
        faults,
        found,
        seen,
    } = trial;
    let all = faults.iter().zip(&seen.gap_ms).map(|(fault, [any, one])| {
        let leader = if fault.leader { "+leader" } else { "" };
        format!("{}{leader} {any:.0}/{one:.0} ms", fault.kind)
    });
    let all = all.collect::<Vec<_>>().join(", ");
    let counts = [
        found.overlaps.len(),
        found.falls.len(),
        trial.lost().count(),
    ];
    let mut text = format!(
        "seed {id}: {all}; leases {:?} sessions {:?}; {} grants, {}/{} requests; {counts:?}",
        seen.leases, seen.sessions, found.grants, seen.answered, seen.unknown
    );
    let lost = trial.lost().map(|(_, text)| text);
    for what in found.overlaps.iter().chain(&found.falls).chain(lost) {
        text += &format!("\n  {what}");
    }
    text
}

impl Trial {
    fn main(&self) -> &'static str {
        draw(self.id).main
    }

    /// Effects that were lost. What `--restored` discards is none: that is stated.
    fn lost(&self) -> impl Iterator<Item = &(usize, String)> {
        let restored = self
            .faults
            .iter()
            .position(|fault| fault.kind == "restored");
        self.seen
            .lost
            .iter()
            .filter(move |(after, _)| restored.is_none_or(|at| *after <= at))
    }

    /// Whether leases of 20 s survive: not where etcd takes no write for most of that time.
    fn spares(&self) -> bool {
        !["restored", "full", "etcd-frozen"].contains(&self.main())
    }
}

/// The figure that this share of all does not pass.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted
        .get(at.saturating_sub(1))
        .copied()
        .unwrap_or(f64::NAN)
}

/// As Markdown, a line for each kind of fault; and what is required.
fn judged(trials: &[Trial]) -> (String, Vec<Row>) {
    let mut kinds: BTreeMap<(&str, bool), [Vec<f64>; 2]> = BTreeMap::new();
    for trial in trials {
        for (fault, gaps) in trial.faults.iter().zip(&trial.seen.gap_ms) {
            let all = kinds.entry((&fault.kind, fault.leader)).or_default();
            all.iter_mut()
                .zip(gaps)
                .for_each(|(all, gap)| all.push(*gap));
        }
    }
    let mut text = "| fault | etcd's leader there | times | no grant for, ms: p50 | p95 | longest | one client: p50 | p95 | longest |\n\
                    | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n".to_owned();
    for ((kind, leader), gaps) in &mut kinds {
        let mut figures = String::new();
        for gaps in gaps.iter_mut() {
            gaps.sort_by(f64::total_cmp);
            for share in [0.5, 0.95, 1.0] {
                figures += &format!(" {:.0} |", quantile(gaps, share));
            }
        }
        let leader = if *leader { "yes" } else { "no" };
        text += &format!("| {kind} | {leader} | {} |{figures}\n", gaps[0].len());
    }
    text += "\n| seeds of | leases kept, lapsed, lost | sessions | overlaps | falling tokens | lost effects |\n\
             | --- | --- | --- | --- | --- | --- |\n";
    type Sums = ([u64; 3], [u64; 3], [usize; 3]);
    let mut mains: BTreeMap<&str, Sums> = BTreeMap::new();
    for trial in trials {
        let (leases, sessions, found) = mains.entry(trial.main()).or_default();
        let more = [
            trial.found.overlaps.len(),
            trial.found.falls.len(),
            trial.lost().count(),
        ];
        for at in 0..3 {
            leases[at] += trial.seen.leases[at];
            sessions[at] += trial.seen.sessions[at];
            found[at] += more[at];
        }
    }
    for (kind, (leases, sessions, found)) in mains {
        let words = |all: [u64; 3]| all.map(|count| count.to_string()).join(", ");
        let [overlaps, falls, lost] = found;
        let (leases, sessions) = (words(leases), words(sessions));
        text += &format!("| {kind} | {leases} | {sessions} | {overlaps} | {falls} | {lost} |\n");
    }
    let (controls, trials): (Vec<_>, Vec<_>) = trials.iter().partition(|trial| trial.id == CONTROL);
    let gaps = |kind: &str, leader| {
        let gaps = kinds.get(&(kind, leader)).map(|[any, _]| any.clone());
        gaps.unwrap_or_default()
    };
    let upgrades = [gaps("upgrade", false), gaps("upgrade", true)].concat();
    let discarded = [gaps("accepted", false), gaps("accepted", true)].concat();
    let spared: Vec<_> = trials.iter().filter(|trial| trial.spares()).collect();
    let (none, all) = (Required::NONE, Required::AtLeast(1.0));
    let rows = rows! {
        "control, three groups: two owners at a time", controls, |trial| !trial.found.overlaps.is_empty(), all;
        "seeds with two owners at a time", &trials, |trial| !trial.found.overlaps.is_empty(), none;
        "seeds with tokens that fall", &trials, |trial| !trial.found.falls.is_empty(), none;
        "seeds with lost effects", &trials, |trial| trial.lost().count() > 0, none;
        "seeds in which owners relied on 20 grants and more", &trials, |trial| trial.found.grants >= 20, all;
        "host gone: a grant within 5 s", gaps("gone", false), |ms| *ms <= 5000.0, Required::AtLeast(0.95);
        "host gone, with etcd's leader: within 8 s", gaps("gone", true), |ms| *ms <= 8000.0, Required::AtLeast(0.95);
        "upgrades with 10,000 holds: within 1 s", upgrades, |ms| *ms <= 1000.0, all;
        "etcd restored, and accepted: no grant for the longest TTL", discarded, |ms| *ms >= 20_000.0, all;
        "seeds in which leases of 20 s and sessions survive", spared, |trial| {
            [trial.seen.leases, trial.seen.sessions].iter().all(|[kept, lapsed, lost]| *kept == 2 && lapsed + lost == 0)
        }, all;
    };
    (text, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::store::Store;

    #[test]
    fn what_is_recorded_holds() {
        let recorded = shell::root().join("lab/record/validate-ha.jsonl");
        let trials = Store::read(&recorded).unwrap().lines;
        let (_, rows) = judged(&trials);
        for row in rows {
            let share = row.count as f64 / row.trials as f64;
            assert!(
                row.required.holds(share),
                "{}: {} of {}",
                row.what,
                row.count,
                row.trials
            );
            assert!(
                row.required != Required::NONE || row.count == 0,
                "{}",
                row.what
            );
        }
    }
}
