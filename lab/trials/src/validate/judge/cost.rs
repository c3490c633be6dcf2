//! What `jostle judge` costs the generator that it watches. Within one long run jostle is
//! stopped (SIGSTOP) and goes on, in short turns, while the generator and its server work:
//! what the loopback carries a second with jostle and without it is compared between
//! neighbouring turns. Whole runs with and without jostle differ by some 5 % for no reason,
//! which hides a percent.
//!
//! What jostle does at the start of a run, once, is told by its CPU time.

use super::generators::Generator;
use super::{Amount, Bench, amount, generators, pilot};
use crate::validate::{Required, Row, Series};
use anyhow::{Context, ensure};
use jostle_stats::intervals::median;
use jostle_stats::ratio;
use jostle_sys::process;
use jostle_sys::stat::CpuClock;
use jostle_testbed::running::Running;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Runs of each generator.
const RUNS: usize = 6;

/// Pairs of turns in a run.
const PAIRS: usize = 100;

/// About as long as the shortest time between two looks.
const TURN: Duration = Duration::from_millis(100);

/// Before the first turn: the generator has connected, and its server was found.
const BEGIN: Duration = Duration::from_secs(2);

/// How long the generator has to run, and some seconds more.
const RUN_S: u64 = BEGIN.as_secs() + 2 * PAIRS as u64 * TURN.as_millis() as u64 / 1_000 + 5;

/// What watching may cost, of the rate and of the CPUs.
const MOST: f64 = 0.01;

/// A line of the file: one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Turns {
    generator: String,
    /// Bytes that the loopback carried a second while jostle was stopped.
    bare_per_s: Vec<f64>,
    /// While it was not, in the turn before or after.
    watched_per_s: Vec<f64>,
    /// CPU time of jostle in the first two seconds.
    begin_cpu_s: f64,
    /// CPU time of jostle in the turns in which it was not stopped, in CPUs' worth of time.
    tool_cpus: f64,
    /// CPUs of the machine.
    cpus: u64,
}

/// Collects what is missing, as far as time allows, and judges all there is.
pub(crate) fn rows(series: &Series) -> anyhow::Result<Vec<Row>> {
    let (mut store, until) = series.collect.begin::<Turns>()?;
    if Instant::now() >= until {
        return Ok(report(&store.lines));
    }
    let generators = generators(series)?;
    let bench = Bench::set_up(&series.jostle()?, &generators)?;
    let mut amounts = Vec::new();
    for generator in &generators {
        // Long enough to tell the rate, and so the amount of the long run.
        const PILOT_S: u64 = 2;
        let per_s = pilot(&bench, *generator, PILOT_S)?;
        amounts.push((*generator, amount(per_s, RUN_S)));
    }
    // One run of each in turn, so that a series that is cut off has all of them.
    for nth in 0..RUNS {
        for (generator, amount) in &amounts {
            let so_far = of(&store.lines, *generator).count();
            if so_far <= nth && Instant::now() < until {
                store.add(turns(&bench, *generator, *amount)?)?;
            }
        }
    }
    Ok(report(&store.lines))
}

fn of(runs: &[Turns], generator: Generator) -> impl Iterator<Item = &Turns> {
    let name = generator.name();
    runs.iter().filter(move |run| run.generator == name)
}

fn turns(bench: &Bench, generator: Generator, amount: Amount) -> anyhow::Result<Turns> {
    let mut run = bench.begin(generator, amount)?;
    let pid = run.0.id();
    let clock = CpuClock::of(pid).context("jostle is not there")?;
    let used_s = || clock.read().map(|ns| ns as f64 / 1e9);
    let gone = "jostle ended before its time";
    std::thread::sleep(BEGIN);
    let begin_cpu_s = used_s().context(gone)?;
    let (mut bare_per_s, mut watched_per_s) = (Vec::new(), Vec::new());
    let mut tool_s = 0.0;
    for nth in 0..PAIRS {
        for watched in [nth % 2 == 0, nth % 2 == 1] {
            let before_s = used_s().context(gone)?;
            match watched {
                true => process::go_on(pid),
                false => process::stop(pid),
            }
            let per_s = carried_per_s()?;
            if watched {
                watched_per_s.push(per_s);
                tool_s += used_s().context(gone)? - before_s;
            } else {
                bare_per_s.push(per_s);
            }
        }
    }
    process::go_on(pid);
    ensure!(run.0.try_wait()?.is_none(), gone);
    end(&mut run)?;
    Ok(Turns {
        generator: generator.name().to_owned(),
        bare_per_s,
        watched_per_s,
        begin_cpu_s,
        tool_cpus: tool_s / (PAIRS as f64 * TURN.as_secs_f64()),
        cpus: jostle_sys::cpu::allowed().len() as u64,
    })
}

/// Lets jostle end its command, and itself.
fn end(run: &mut Running) -> anyhow::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(20);
    let pid = rustix::process::Pid::from_child(&run.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
    let deadline = Instant::now() + PATIENCE;
    while run.0.try_wait()?.is_none() {
        ensure!(Instant::now() < deadline, "jostle does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Over one turn, which begins now.
fn carried_per_s() -> anyhow::Result<f64> {
    let (since, before) = (Instant::now(), carried()?);
    std::thread::sleep(TURN);
    Ok((carried()? - before) as f64 / since.elapsed().as_secs_f64())
}

/// Bytes that the loopback has received since the machine was started.
fn carried() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/net/dev").context("cannot read /proc/net/dev")?;
    let mut lines = text.lines();
    let loopback = lines.find_map(|line| line.trim_start().strip_prefix("lo:"));
    let first = loopback.and_then(|line| line.split_whitespace().next());
    first
        .context("this network namespace has no loopback")?
        .parse()
        .context("/proc/net/dev has no number for the loopback")
}

fn report(runs: &[Turns]) -> Vec<Row> {
    println!(
        "{:<16} {:>5}  {:>24}  {:>15}  {:>18}  {:>13}",
        "", "pairs", "rate watched / bare", "CPU ms a second", "share of all CPUs", "ms at start"
    );
    let (mut measured, mut dear) = (0, 0);
    for generator in Generator::ALL {
        let rates: Vec<(f64, f64)> = of(runs, generator)
            .flat_map(|run| {
                let bare = run.bare_per_s.iter().copied();
                bare.zip(run.watched_per_s.iter().copied())
            })
            .collect();
        let Some(ratio) = ratio::paired(&rates) else {
            continue;
        };
        let over = |figure: fn(&Turns) -> f64| {
            let each: Vec<f64> = of(runs, generator).map(figure).collect();
            median(&each).unwrap_or(f64::NAN)
        };
        measured += 1;
        dear += u64::from(ratio.low < 1.0 - MOST);
        println!(
            "{:<16} {:>5}  {:>24}  {:>15.2}  {:>16.2} %  {:>13.1}",
            generator.name(),
            rates.len(),
            format!("{:.4} ({:.4} .. {:.4})", ratio.ratio, ratio.low, ratio.high),
            1e3 * over(|run| run.tool_cpus),
            100.0 * over(share),
            1e3 * over(|run| run.begin_cpu_s)
        );
    }
    println!(
        "\nrate: Hodges-Lehmann estimate over pairs of turns, and its 95 % interval; CPU: jostle \
         itself, median of the runs, in turns with it and in the first two seconds\n"
    );
    vec![
        Row::counted(
            "generators that may lose 1 % when watched",
            dear,
            measured,
            Required::AtMost(0.0),
        ),
        Row::of(
            "runs in which jostle used 1 % of the CPUs",
            runs,
            |run| share(run) >= MOST,
            Required::AtMost(0.0),
        ),
    ]
}

/// The share of all CPUs that jostle used.
fn share(run: &Turns) -> f64 {
    run.tool_cpus / run.cpus.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(ratio: f64, spread: f64, tool_cpus: f64) -> Vec<Turns> {
        let bare = |nth: usize| 1e9 + nth as f64;
        let watched = |nth: usize| bare(nth) * (ratio + spread * (nth % 9) as f64 - 4.0 * spread);
        let run = |_| Turns {
            generator: "ab".to_owned(),
            bare_per_s: (0..90).map(bare).collect(),
            watched_per_s: (0..90).map(watched).collect(),
            begin_cpu_s: 0.02,
            tool_cpus,
            cpus: 2,
        };
        (0..2).map(run).collect()
    }

    #[test]
    fn a_cost_that_is_not_shown_to_be_below_one_per_cent_counts() {
        for (ratio, spread, tool_cpus, dear, much) in [
            (0.995, 0.001, 0.01, 0, 0),
            (0.985, 0.001, 0.01, 1, 0),
            (1.02, 0.001, 0.019, 0, 0),
            (1.0, 0.001, 0.021, 0, 2),
            // Not dear on the average, but too little is known.
            (0.995, 0.02, 0.01, 1, 0),
        ] {
            let rows = report(&runs(ratio, spread, tool_cpus));
            let counts: Vec<(u64, u64)> = rows.iter().map(|row| (row.count, row.trials)).collect();
            assert_eq!(
                counts,
                [(dear, 1), (much, 2)],
                "{ratio} {spread} {tool_cpus}"
            );
        }
    }

    mod live_tests {
        use super::*;

        #[test]
        fn the_loopback_counts_what_it_carries() {
            let before = carried().unwrap();
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let sent = socket.send_to(&[0; 1000], socket.local_addr().unwrap());
            assert_eq!(sent.unwrap(), 1000);
            assert!(carried().unwrap() >= before + 1000);
        }
    }
}
