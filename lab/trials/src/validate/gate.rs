//! `tool/ci-gate/gate` from end to end, as a job would call it: two libraries that are equal, and
//! two of which the new one's lock takes a tenth longer.

use super::store::Store;
use super::{Required, Row};
use crate::program;
use anyhow::{Context, ensure};
use jostle_report::compare::{Input, compare};
use jostle_stats::intervals::median;
use jostle_testbed::shell;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The lock, whose owner takes so many steps.
const SOURCE: &str = "lab/trials/validate/gate.c";
const STEPS: u32 = 100;
/// With what the lock takes without steps, a tenth more.
const SLOWER_STEPS: u32 = 111;

/// How many trials of each kind are required; three equal pairs for each planted one.
const PLANTED: usize = 20;
const EQUAL: usize = 60;

/// The gate's options for a lock between two workers; without them it measures one.
const CONTENDED: &str = "contend -w 2 -b 0 -i 0 --measure counts -t 20ms --warmup 10ms --runs 60";

/// One call of the gate.
#[derive(Serialize, Deserialize)]
pub(super) struct Trial {
    /// Whether NEW was slower.
    planted: bool,
    /// Whether it ran with [`CONTENDED`].
    contended: bool,
    exit: i32,
    /// The finding of each point.
    said: Vec<String>,
    /// Throughput of NEW over that of BASE at the first point that has one: estimate, low,
    /// high.
    ratio: Option<[f64; 3]>,
    took_s: f64,
}

pub(super) struct Wanted<'a> {
    pub seconds: u64,
    pub save: Option<&'a Path>,
    pub judge: Option<&'a Path>,
    pub contended: bool,
}

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(wanted: &Wanted<'_>) -> anyhow::Result<Vec<Row>> {
    let mut store: Store<Trial> = match wanted.judge {
        Some(path) => Store::read(path)?,
        None => Store::open(wanted.save)?,
    };
    if wanted.judge.is_none() {
        collect(&mut store, wanted)?;
    }
    let trials = store.lines.iter();
    let trials: Vec<&Trial> = trials.filter(|t| t.contended == wanted.contended).collect();
    let took: Vec<f64> = trials.iter().map(|trial| trial.took_s).collect();
    println!(
        "{} calls of tool/ci-gate/gate, {:.1} s each (median)",
        trials.len(),
        median(&took).unwrap_or(f64::NAN)
    );
    let (planted, equal): (Vec<&Trial>, Vec<&Trial>) = trials.into_iter().partition(|t| t.planted);
    Ok(judge(&planted, &equal))
}

fn judge(planted: &[&Trial], equal: &[&Trial]) -> Vec<Row> {
    let count = |trials: &[&Trial], is: fn(&Trial) -> bool| {
        trials.iter().filter(|trial| is(trial)).count() as u64
    };
    let estimates = |trials: &[&Trial]| -> String {
        let ratios: Vec<f64> = trials.iter().filter_map(|t| Some(t.ratio?[0])).collect();
        let ends = ratios.iter().copied();
        format!(
            "NEW/BASE {:.3} (median), {:.3} to {:.3}",
            median(&ratios).unwrap_or(f64::NAN),
            ends.clone().fold(f64::INFINITY, f64::min),
            ends.fold(0.0, f64::max),
        )
    };
    let (equals, planteds) = (equal.len() as u64, planted.len() as u64);
    vec![
        Row {
            what: "a tenth slower: exit code 4".to_owned(),
            count: count(planted, |trial| trial.exit == 4),
            trials: planteds,
            required: Required::AtLeast(0.95),
            note: estimates(planted),
        },
        Row {
            what: "equal: called worse or better".to_owned(),
            count: count(equal, |t| {
                t.said.iter().any(|s| s == "worse" || s == "better")
            }),
            trials: equals,
            required: Required::AtMost(0.0),
            note: estimates(equal),
        },
        Row {
            what: "equal: called the same".to_owned(),
            count: count(equal, |t| t.said.iter().all(|s| s == "same")),
            trials: equals,
            required: Required::AtLeast(50.0 / 60.0),
            note: format!("exit code 3 of {}", count(equal, |trial| trial.exit == 3)),
        },
    ]
}

fn collect(store: &mut Store<Trial>, wanted: &Wanted<'_>) -> anyhow::Result<()> {
    let bench = Bench::new(wanted.contended)?;
    let started = Instant::now();
    // A planted one, then three equal ones, so that a series that is cut off has both.
    for nth in 0..PLANTED + EQUAL {
        let planted = nth % 4 == 0;
        let is_it =
            |trial: &&Trial| trial.contended == wanted.contended && trial.planted == planted;
        let due = if planted { nth / 4 + 1 } else { nth - nth / 4 };
        if store.lines.iter().filter(is_it).count() >= due {
            continue;
        }
        if started.elapsed().as_secs() >= wanted.seconds {
            break;
        }
        store.add(bench.trial(planted)?)?;
    }
    Ok(())
}

/// The libraries, and where the gate writes.
struct Bench {
    jostle: PathBuf,
    place: PathBuf,
    contended: bool,
}

impl Bench {
    fn new(contended: bool) -> anyhow::Result<Bench> {
        let jostle = program::build()?;
        let place = shell::target_directory().join("validate/gate");
        std::fs::create_dir_all(&place)?;
        for (library, steps) in [
            ("base.so", STEPS),
            ("equal.so", STEPS),
            ("slower.so", SLOWER_STEPS),
        ] {
            let mut compile = Command::new("cc");
            compile.args("-O2 -shared -fPIC -fvisibility=hidden -I".split(' '));
            compile.arg(shell::root().join("tool/own-locks"));
            compile
                .arg(format!("-DSTEPS={steps}"))
                .arg("-o")
                .arg(place.join(library));
            shell::run(compile.arg(shell::root().join(SOURCE)))?;
        }
        Ok(Bench {
            jostle,
            place,
            contended,
        })
    }

    fn trial(&self, planted: bool) -> anyhow::Result<Trial> {
        let new = if planted {
            "lib:./slower.so"
        } else {
            "lib:./equal.so"
        };
        let pair = ["lib:./base.so", new];
        let mut gate = Command::new("setpriv");
        gate.args(["--pdeathsig", "INT"])
            .arg(shell::root().join("tool/ci-gate/gate"));
        gate.arg("--jostle")
            .arg(&self.jostle)
            .args(["--out", "out"]);
        // It changes no finding, and makes each call half as long again.
        gate.args(["--anchor", "none"]);
        if self.contended {
            gate.args(["--measure", CONTENDED]);
        }
        let started = Instant::now();
        let status = gate
            .args(pair)
            .current_dir(&self.place)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .context("cannot run tool/ci-gate/gate")?;
        let exit = status.code().context("tool/ci-gate/gate was killed")?;
        ensure!(
            [0, 3, 4].contains(&exit),
            "tool/ci-gate/gate failed: {status}"
        );
        let sets = jostle_report::read(self.place.join("out/gate.jsonl"))?;
        let compared = compare(&Input {
            base_name: "BASE",
            base: &sets,
            new_name: "NEW",
            new: None,
            targets: Some(pair),
            within: 0.05,
            all: false,
            strict: false,
        })?;
        let rows = || compared.rows.iter().map(|(_, row)| row);
        let ratio = rows().find_map(|row| row.ratio);
        let ratio = ratio.map(|ratio| [ratio.ratio, ratio.low, ratio.high]);
        Ok(Trial {
            planted,
            contended: self.contended,
            exit,
            said: rows().map(|row| row.said.name().to_owned()).collect(),
            ratio,
            took_s: started.elapsed().as_secs_f64(),
        })
    }
}
