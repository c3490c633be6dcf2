//! What `jostle judge` costs the generator that it watches: the generator's own rate with
//! and without it, in interleaved pairs of which every second is reversed; and the CPU
//! time that jostle used during the run, which noise of the machine moves less.

use super::generators::Generator;
use super::{Amount, Wanted, amount, pilot};
use crate::validate::store::Store;
use crate::validate::{Required, Row};
use jostle_model::judged::Watched;
use jostle_stats::intervals::median;
use jostle_stats::ratio;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Pairs of each generator: the median of so many ratios has an interval.
const PAIRS: usize = 12;

/// How many times as long a run is as those of `validate judge`: what watching takes at the
/// start is a part of short runs, and a smaller one of those that users make.
const LONGER: u64 = 3;

/// What watching may cost, of the rate and of the CPUs.
const MOST: f64 = 0.01;

/// A line of the file: one pair.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pair {
    generator: String,
    /// Rates that the generator printed.
    bare_per_s: f64,
    watched_per_s: f64,
    /// CPU time of jostle during the watched run, in CPUs' worth of time.
    tool_cpus: f64,
    /// CPUs of the machine.
    cpus: u64,
    looks: u64,
}

/// Collects what is missing, as far as time allows, and judges all there is.
pub fn rows(wanted: &Wanted<'_>) -> anyhow::Result<Vec<Row>> {
    if let Some(path) = wanted.judge {
        return Ok(report(&Store::read(path)?.lines));
    }
    let mut store: Store<Pair> = Store::open(wanted.save)?;
    let until = Instant::now() + Duration::from_secs(wanted.seconds);
    let generators = wanted.generators()?;
    let bench = wanted.bench(&generators)?;
    let mut amounts = Vec::new();
    for generator in &generators {
        let run_s = wanted.run_s() * LONGER;
        let per_s = pilot(&bench, *generator, run_s)?;
        amounts.push((*generator, amount(per_s, run_s)));
    }
    // One pair of each in turn, so that a series that is cut off has all of them.
    for nth in 0..PAIRS {
        for (generator, amount) in &amounts {
            let so_far = of(&store.lines, *generator).count();
            if so_far > nth || Instant::now() >= until {
                continue;
            }
            let pair = pair(&bench, *generator, *amount, nth % 2 == 1)?;
            store.add(pair)?;
        }
    }
    Ok(report(&store.lines))
}

fn of(pairs: &[Pair], generator: Generator) -> impl Iterator<Item = &Pair> {
    let name = generator.name();
    pairs.iter().filter(move |pair| pair.generator == name)
}

fn pair(
    bench: &super::Bench,
    generator: Generator,
    amount: Amount,
    reversed: bool,
) -> anyhow::Result<Pair> {
    let bare = || bench.bare(generator, amount);
    let watched = || bench.run(generator, amount, None);
    let (bare_per_s, ran) = match reversed {
        false => (bare()?, watched()?),
        true => {
            let ran = watched()?;
            (bare()?, ran)
        }
    };
    Ok(Pair {
        generator: generator.name().to_owned(),
        bare_per_s,
        watched_per_s: ran.per_s,
        tool_cpus: tool_cpus(&ran.watched),
        cpus: ran.watched.machine.cpus,
        looks: ran.watched.end_s.len() as u64,
    })
}

fn tool_cpus(watched: &Watched) -> f64 {
    let used_s: f64 = watched.machine.tool_s.iter().sum();
    let wall_s: f64 = watched.span_s.iter().sum();
    used_s / wall_s.max(f64::MIN_POSITIVE)
}

/// Of all CPUs.
fn share(pair: &Pair) -> f64 {
    pair.tool_cpus / pair.cpus.max(1) as f64
}

fn report(pairs: &[Pair]) -> Vec<Row> {
    println!(
        "{:<16} {:>5}  {:>24}  {:>15}  {:>18}",
        "", "pairs", "rate watched / bare", "CPU ms a second", "share of all CPUs"
    );
    let mut slower = 0;
    let mut measured = 0;
    for generator in Generator::ALL {
        let rates: Vec<(f64, f64)> = of(pairs, generator)
            .map(|pair| (pair.bare_per_s, pair.watched_per_s))
            .collect();
        let Some(ratio) = ratio::paired(&rates) else {
            continue;
        };
        let over = |figure: fn(&Pair) -> f64| {
            let each: Vec<f64> = of(pairs, generator).map(figure).collect();
            median(&each).unwrap_or(f64::NAN)
        };
        measured += 1;
        slower += u64::from(ratio.ratio < 1.0 - MOST);
        println!(
            "{:<16} {:>5}  {:>24}  {:>15.2}  {:>16.2} %",
            generator.name(),
            rates.len(),
            format!("{:.3} ({:.3} .. {:.3})", ratio.ratio, ratio.low, ratio.high),
            1e3 * over(|pair| pair.tool_cpus),
            100.0 * over(share)
        );
    }
    println!(
        "\nrate: Hodges-Lehmann estimate over the pairs, and its 95 % interval (the range under \
         six pairs); CPU: jostle itself during the run, median of the runs\n"
    );
    vec![
        Row {
            what: "generators that are slower by 1 % when watched".to_owned(),
            count: slower,
            trials: measured,
            required: Required::AtMost(0.0),
            note: String::new(),
        },
        Row {
            what: "runs in which jostle used 1 % of the CPUs".to_owned(),
            count: pairs.iter().filter(|pair| share(pair) >= MOST).count() as u64,
            trials: pairs.len() as u64,
            required: Required::AtMost(0.0),
            note: String::new(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(ratio: f64, tool_cpus: f64) -> Vec<Pair> {
        let pair = |nth: u32| Pair {
            generator: "ab".to_owned(),
            bare_per_s: 1_000.0 + f64::from(nth),
            watched_per_s: (1_000.0 + f64::from(nth)) * ratio,
            tool_cpus,
            cpus: 2,
            looks: 20,
        };
        (0..8).map(pair).collect()
    }

    #[test]
    fn a_rate_that_falls_and_cpu_time_above_one_per_cent_are_counted() {
        for (ratio, tool_cpus, slower, much) in [
            (0.995, 0.01, 0, 0),
            (0.985, 0.01, 1, 0),
            (1.02, 0.019, 0, 0),
            (1.0, 0.021, 0, 8),
        ] {
            let rows = report(&pairs(ratio, tool_cpus));
            let counts: Vec<(u64, u64)> = rows.iter().map(|row| (row.count, row.trials)).collect();
            assert_eq!(counts, [(slower, 1), (much, 8)], "{ratio} {tool_cpus}");
        }
    }
}
