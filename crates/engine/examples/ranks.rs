//! What many ranks cost: how close together they begin, how well their clocks are
//! known, and what a run takes beside its window.
//!
//! ```text
//! cargo build --release -p jostle-engine --features mpi --example ranks
//! mpirun --oversubscribe -n 3 target/release/examples/ranks [RUNS [WORKERS [WINDOW_MS]]]
//! ```
//!
//! Each rank's workers take a lock of its own that always grants, so that nothing
//! but the start and the gathering is shared.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people, whose result is what it prints"
)]

use jostle_engine::keeper::Keeper;
use jostle_engine::order::RunOrder;
use jostle_engine::world::{self, HostYield, Hosts, Joined, Rank};
use jostle_model::plan::{Carrier, Measure, Names, Place, Range, Workload};
use jostle_model::time::{Busy, Nanos};
use jostle_sys::clock::Clock;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut keeper = Keeper::start(Clock::monotonic())?;
    let rank = Rank {
        version: env!("CARGO_PKG_VERSION"),
        commit: None,
        ended: &mut || None,
        complain: &|text| eprintln!("{text}"),
    };
    match world::join(&mut keeper, rank)? {
        Joined::Other(code) => std::process::exit(code.into()),
        Joined::First(mut hosts) => measure(&mut keeper, &mut *hosts),
    }
}

fn measure(keeper: &mut Keeper, hosts: &mut dyn Hosts) -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let runs = numbers.next().unwrap_or(Ok(10))?;
    let workers = numbers.next().unwrap_or(Ok(5))?;
    let window_ms = numbers.next().unwrap_or(Ok(200))?;
    println!("{} ranks, {workers} workers each", hosts.all().len());
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
    Ok(())
}

fn tell(yields: &[HostYield], hosts: &dyn Hosts) {
    let late = yields.iter().map(|host| host.late_ns as f64 / 1e6);
    let (least, most) = late.fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(x), b.max(x)));
    let within = yields.iter().map(|host| host.clock.within_ns).max();
    let apart = yields.iter().map(|host| host.data.start_spread_ns).max();
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
fn tell_clocks(yields: &[HostYield], hosts: &dyn Hosts) {
    for host in yields {
        let name = &hosts.all()[host.rank].name;
        let (ahead, within) = (host.clock.ahead_ns, host.clock.within_ns);
        println!("clock {name} {ahead} ns, within {within}");
    }
}

fn order(workers: usize, window_ms: u64, seed: u64) -> RunOrder {
    RunOrder {
        target: "null".to_owned(),
        workload: Workload::Contend,
        workers,
        operations: 1,
        names: Names::One,
        pipeline: 1,
        carrier: Carrier::Processes,
        generators: 1,
        generator_cpu: None,
        cpus: Vec::new(),
        server_cpus: Vec::new(),
        hold: Busy::Sleep(Nanos::from_millis(1)),
        idle: Busy::Sleep(Nanos::from_millis(1)),
        warmup: Nanos::from_millis(50),
        window: Nanos::from_millis(window_ms),
        measure: Measure::Full,
        stamp_every: 1,
        keys: 1,
        shared: 0.0,
        range: Range::Same,
        try_only: false,
        acquire_timeout: None,
        open_each: false,
        slots: 1,
        timer_slack: Nanos(1),
        log_grants: 0,
        during: None,
        clock_uncertainty: Nanos::ZERO,
        requests: None,
        together: None,
        place: Place::None,
        share: None,
        seed,
    }
}
