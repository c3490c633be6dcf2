//! The cost of many ranks: how close together they begin, how well their clocks are known, what a
//! run takes beside its window, and what memory and CPU time the ranks of this machine take.
//!
//! ```text
//! cargo build --release -p jostle-mpi --example ranks
//! mpirun --oversubscribe -n 3 target/release/examples/ranks [RUNS [WORKERS [WINDOW_MS]]]
//! ```
//!
//! Each rank's workers take a lock of its own that always grants, so that nothing
//! but the start and the gathering is shared. After the runs all ranks but the first
//! sleep for a few seconds, in which their threads are watched from outside. With no
//! runs at all the ranks join, and nothing else.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people, whose result is what it prints"
)]

mod local;

use jostle_engine::experiment;
use jostle_engine::keeper::Keeper;
use jostle_engine::order::{ContendOrder, RunOrder, WorkloadOrder};
use jostle_engine::{
    hosts::HostData,
    world::{self, Hosts, Joined, Rank},
};
use jostle_model::plan::{Plan, Workload};
use jostle_model::record::At;
use jostle_model::time::{Busy, Nanos};
use jostle_sys::clock::Clock;
use local::{Ranks, Thread};
use std::error::Error;
use std::time::{Duration, Instant};

/// So long the others sleep; they are watched from `SETTLED` on, when naps are long.
const ASLEEP: Duration = Duration::from_secs(7);
const SETTLED: Duration = Duration::from_millis(1500);

fn main() -> Result<(), Box<dyn Error>> {
    let mut keeper = Keeper::start(Clock::monotonic())?;
    let rank = Rank {
        version: env!("CARGO_PKG_VERSION"),
        commit: None,
        ended: &mut || None,
        complain: &|text| eprintln!("{text}"),
    };
    let link = jostle_mpi::join().ok_or("MPI has been joined before")?;
    match world::join(link, &mut keeper, rank) {
        Joined::Participant(code) => std::process::exit(code.into()),
        Joined::Coordinator(mut hosts) => measure(&mut keeper, &mut *hosts),
    }
}

fn measure(keeper: &mut Keeper, hosts: &mut dyn Hosts) -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let runs = numbers.next().unwrap_or(Ok(10))?;
    let workers = numbers.next().unwrap_or(Ok(5))?;
    let window_ms = numbers.next().unwrap_or(Ok(200))?;
    let ranks = Ranks::find()?;
    println!("{} ranks, {workers} workers each", hosts.all().len());
    tell_memory("joined", &ranks)?;
    if runs == 0 {
        return Ok(());
    }
    println!(
        "   late ms min..max  in a host ms  clocks us  prepare ms  gather ms      bytes  clocks ms"
    );
    for run in 0..runs {
        let order = order(workers as usize, window_ms, run);
        let orders = vec![Some(order); hosts.all().len()];
        let yields = hosts.run(keeper, &orders, &mut || false)?;
        tell(&yields, hosts);
        if run + 1 == runs {
            tell_clocks(&yields, hosts);
        }
    }
    tell_memory("after the runs", &ranks)?;
    watch_asleep(keeper, hosts, &ranks)
}

/// The most that rank 0 and the others of this machine have had so far.
fn tell_memory(when: &str, ranks: &Ranks) -> Result<(), Box<dyn Error>> {
    let peaks = ranks.peaks_kb()?;
    let (first, others) = (peaks[0], &peaks[1..]);
    match (others.iter().min(), others.iter().max()) {
        (Some(least), Some(most)) => {
            println!("memory, {when}: rank 0 {first} KB, each other {least}..{most} KB");
        }
        _ => println!("memory, {when}: rank 0 {first} KB"),
    }
    Ok(())
}

/// A run that only rank 0 takes part in, and what the others' threads do meanwhile.
fn watch_asleep(
    keeper: &mut Keeper,
    hosts: &mut dyn Hosts,
    ranks: &Ranks,
) -> Result<(), Box<dyn Error>> {
    let mut orders = vec![None; hosts.all().len()];
    orders[0] = Some(order(1, ASLEEP.as_millis() as u64, 0));
    let start = Instant::now();
    let mut seen = Vec::new();
    hosts.run(keeper, &orders, &mut || {
        if (SETTLED..ASLEEP).contains(&start.elapsed()) {
            seen.push((Instant::now(), ranks.threads()));
        }
        false
    })?;
    let mut seen = seen.into_iter();
    let (Some(first), Some(last)) = (seen.next(), seen.next_back()) else {
        return Err("too few looks at the sleeping ranks".into());
    };
    let seconds = (last.0 - first.0).as_secs_f64();
    let (before, after) = (first.1?, last.1?);
    let others = before.iter().zip(&after).skip(1);
    let mut used: Vec<_> = others.map(|(b, a)| used_us(b, a, seconds)).collect();
    used.sort_by_key(|threads| threads.iter().map(|(_, us)| us).sum::<u64>());
    println!("asleep for {seconds:.1} s, CPU time of each thread, us a second:");
    let last = used.len().saturating_sub(1);
    for (which, nth) in [("least", 0), ("median", last / 2), ("most", last)] {
        let threads = used.get(nth).into_iter().flatten();
        let threads: Vec<_> = threads.map(|(name, us)| format!("{name} {us}")).collect();
        println!("  {which:>6}: {}", threads.join(", "));
    }
    Ok(())
}

/// The name of each thread of a rank, and its CPU time a second.
fn used_us(before: &[Thread], after: &[Thread], seconds: f64) -> Vec<(String, u64)> {
    let so_far = |tid| before.iter().find(|thread| thread.tid == tid);
    let used = |thread: &Thread| {
        let ran_ns = thread.ran_ns - so_far(thread.tid).map_or(0, |before| before.ran_ns);
        (ran_ns as f64 / 1e3 / seconds).round() as u64
    };
    let each = after.iter();
    each.map(|thread| (thread.name.clone(), used(thread)))
        .collect()
}

fn tell(yields: &[HostData], hosts: &dyn Hosts) {
    let late = yields.iter().map(|host| host.late_ns as f64 / 1e6);
    let (least, most) = late.fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(x), b.max(x)));
    let within = yields.iter().map(|host| host.clock.within_ns).max();
    let apart = yields
        .iter()
        .map(|host| host.data.window.start_spread_ns)
        .max();
    let spent = hosts.spent();
    println!(
        "{:>16}  {:>12.3}  {:>9.1}  {:>10.1}  {:>9.1}  {:>9}  {:>9.1}",
        format!("{least:.3}..{most:.3}"),
        apart.unwrap_or(0) as f64 / 1e6,
        within.unwrap_or(0) as f64 / 1e3,
        spent.prepare.as_secs_f64() * 1e3,
        spent.gather.as_secs_f64() * 1e3,
        spent.bytes,
        spent.clocks.as_secs_f64() * 1e3,
    );
}

/// Each clock less that of rank 0.
fn tell_clocks(yields: &[HostData], hosts: &dyn Hosts) {
    for host in yields {
        let name = &hosts.all()[host.rank].name;
        let (ahead, within) = (host.clock.ahead_ns, host.clock.within_ns);
        println!("clock {name} {ahead} ns, within {within}");
    }
}

fn order(workers: usize, window_ms: u64, seed: u64) -> RunOrder {
    RunOrder {
        window: Nanos::from_millis(window_ms),
        workload: WorkloadOrder::Contend(ContendOrder {
            hold: Busy::Sleep(Nanos::from_millis(1)),
            idle: Busy::Sleep(Nanos::from_millis(1)),
            ..ContendOrder::bare()
        }),
        ..experiment::order(
            &Plan::of(Workload::Contend),
            "null",
            At::default(),
            workers,
            seed,
        )
    }
}
