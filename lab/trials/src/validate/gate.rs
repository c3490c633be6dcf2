//! `tool/ci-gate/gate` from end to end, as a job would call it: two libraries that are equal, and
//! two of which the new one's lock takes a tenth longer.

use super::compare::compared;
use super::store::Store;
use super::{Collect, Required, Row};
use crate::program;
use anyhow::{Context, ensure};
use jostle_stats::intervals::median;
use jostle_testbed::shell;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

/// Compiles the libraries of lab/trials/validate/gate.c into $0: the owner of a
/// lock takes so many steps, of the slower one with what it takes without steps a tenth more.
const COMPILE: &str = "set -e; mkdir -p \"$0\"
for library in base=100 equal=100 slower=111; do
    cc -O2 -shared -fPIC -fvisibility=hidden -I tool/own-locks -DSTEPS=${library#*=} \
        -o \"$0/${library%=*}.so\" lab/trials/validate/gate.c
done";

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

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(wanted: &Collect, contended: bool) -> anyhow::Result<Vec<Row>> {
    let (mut store, until) = wanted.begin()?;
    if Instant::now() < until {
        collect(&mut store, until, contended)?;
    }
    let trials = store.lines.iter();
    let trials: Vec<&Trial> = trials.filter(|t| t.contended == contended).collect();
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
    let is_decided = |said: &String| said == "worse" || said == "better";
    let undecided = equal.iter().filter(|trial| trial.exit == 3).count();
    rows! {
        "a tenth slower: exit code 4", planted, |trial| trial.exit == 4, Required::AtLeast(0.95)
            => estimates(planted);
        "equal: called worse or better", equal, |trial| trial.said.iter().any(is_decided),
            Required::AtMost(0.0) => estimates(equal);
        "equal: called the same", equal, |trial| trial.said.iter().all(|said| said == "same"),
            Required::AtLeast(50.0 / 60.0) => format!("exit code 3 of {undecided}");
    }
}

fn collect(store: &mut Store<Trial>, until: Instant, contended: bool) -> anyhow::Result<()> {
    let bench = Bench::new(contended)?;
    // A planted one, then three equal ones, so that a series that is cut off has both.
    for nth in 0..PLANTED + EQUAL {
        let planted = nth % 4 == 0;
        let is_it = |trial: &&Trial| trial.contended == contended && trial.planted == planted;
        let due = if planted { nth / 4 + 1 } else { nth - nth / 4 };
        if store.lines.iter().filter(is_it).count() >= due {
            continue;
        }
        if Instant::now() >= until {
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
        let mut compile = shell::outside("sh");
        shell::run(compile.args(["-c", COMPILE]).arg(&place))?;
        Ok(Bench {
            jostle,
            place,
            contended,
        })
    }

    fn trial(&self, planted: bool) -> anyhow::Result<Trial> {
        let new = ["lib:./equal.so", "lib:./slower.so"][usize::from(planted)];
        let pair = ["lib:./base.so", new];
        let mut gate = program::call(&shell::root().join("tool/ci-gate/gate"));
        gate.arg("--jostle").arg(&self.jostle);
        // Without the anchor, which changes no finding, and makes each call half as long again.
        gate.args(["--out", "out", "--anchor", "none"]);
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
        let compared = compared(&sets, None, pair)?;
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
