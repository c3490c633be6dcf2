//! The result of interleaved pairs of a load and its double: if the work of a closed loop
//! grows with its connections, the load itself was the limit.
//!
//! Work is the rate that the command printed. Where it printed none that is known, it is what
//! connections carried: bytes in both directions where connections are kept, connections opened
//! where each request has its own. Both are in proportion to the requests as long as they are of one
//! kind; of the bytes of connections that come and go looks meet some by chance.

use super::held::may_be_held;
use super::{BUSY, ROOM, window};
use crate::intervals::median;
use crate::judge::window::Window;
use crate::ratio::{self, EQUAL_WITHIN, Outcome, Ratio};
use jostle_model::judged::{Doubled, Limit, Output, Traffic, Watched};

/// One run of a pair, with the figures that settle it.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Work for each second, in bytes and in connections; None where none was seen.
    carried_per_s: Option<[f64; 2]>,
    /// Printed by the command; None where it printed no rate.
    printed_per_s: Option<f64>,
    /// Rates that each copy of it printed.
    rates_each: f64,
    /// Whether connections were opened for requests.
    reopens: bool,
    busy: Option<f64>,
    /// Whether one lock may hold the generator to a CPU.
    held: bool,
    limit: Limit,
    block: u64,
    load: u64,
    doubled: bool,
    copies: bool,
}

impl Run {
    /// None where its work is unknown, or where the run is none of a pair.
    pub fn from_watched(watched: &Watched) -> Option<Run> {
        let turn = watched.pair.as_ref()?;
        let traffic = watched.traffic.as_ref();
        let window = Window::new(watched, window::range(watched));
        let carried = |traffic: &Traffic| {
            let columns = [&traffic.bytes, &traffic.opened];
            columns.map(|column| window.share(column))
        };
        // Others open a few in the meantime.
        let reopens = |traffic: &Traffic| {
            let open = traffic.connections.iter().copied().fold(0.0, f64::max);
            window.sum(&traffic.opened) >= 4.0 * open + FEW
        };
        let rates = watched.output.as_ref().map_or(Vec::new(), rates_of);
        let printed_per_s = (!rates.is_empty()).then(|| rates.iter().sum());
        let copies = if turn.copies { turn.load.max(1) } else { 1 };
        let is_known = traffic.is_some() || printed_per_s.is_some();
        (window.wall_s > 0.0 && is_known).then(|| Run {
            carried_per_s: traffic.map(carried),
            printed_per_s,
            rates_each: rates.len() as f64 / copies as f64,
            reopens: traffic.is_some_and(reopens),
            busy: watched.finding.generator_busy_share,
            held: !turn.copies
                && watched.finding.limit != Limit::Server
                && may_be_held(&window).is_some(),
            limit: watched.finding.limit,
            block: turn.block,
            load: turn.load,
            doubled: turn.doubled,
            copies: turn.copies,
        })
    }
}

/// Connections that others may open in the meantime.
const FEW: f64 = 20.0;

/// Operations for each second that the command printed, in each of its results.
fn rates_of(output: &Output) -> Vec<f64> {
    let results = output.results.iter();
    let rates = results.filter_map(|result| result.figures.get("rate_per_s").copied());
    rates.collect()
}

/// Pairs after which `--double` without `--repeat` looks whether they decide.
pub fn looks() -> impl Iterator<Item = usize> {
    ratio::LOOKS.into_iter().map(|(pairs, _)| pairs)
}

/// Whether more pairs would decide.
pub fn is_open(doubled: &Doubled) -> bool {
    let (least, most) = (1.0 - EQUAL_WITHIN, 1.0 + EQUAL_WITHIN);
    let (low, high) = (doubled.low, doubled.high);
    low <= most && high >= least && (low < least || high > most)
}

/// The result of the pairs. None without one whole pair. `at_looks`: whether more pairs follow if
/// these do not decide.
pub fn settle(command: &[String], runs: &[Run], at_looks: bool) -> Option<Doubled> {
    let reopens = runs.iter().filter(|run| run.reopens).count() * 2 > runs.len();
    let is_seen = runs.iter().all(|run| run.carried_per_s.is_some());
    // The output of copies may be cut or mixed.
    let each = runs.first().map_or(0.0, |run| run.rates_each);
    let is_printed = each >= 1.0 && runs.iter().all(|run| run.rates_each == each);
    let measure = match (is_printed || !is_seen, reopens) {
        (true, _) => "printed",
        (false, true) => "connections",
        (false, false) => "bytes",
    };
    let rate = |run: &Run| match measure {
        "printed" => run.printed_per_s,
        _ => run.carried_per_s.map(|of| of[usize::from(reopens)]),
    };
    let of = |block: u64, doubled: bool| {
        runs.iter()
            .find(|run| run.block == block && run.doubled == doubled)
    };
    let singles = runs.iter().filter(|run| !run.doubled);
    let pairs: Vec<[f64; 2]> = singles
        .filter_map(|single| Some([rate(single)?, rate(of(single.block, true)?)?]))
        .collect();
    let each = pairs.iter();
    let each: Vec<(f64, f64)> = each.map(|[single, doubled]| (*single, *doubled)).collect();
    let found = match at_looks {
        true => ratio::paired_at_look(&each)?,
        false => ratio::paired(&each)?,
    };
    let busy = |doubled: bool| {
        let each = runs.iter().filter(|run| run.doubled == doubled);
        median(each.filter_map(|run| run.busy))
    };
    let mostly = |limits: &[Limit]| {
        let of_it = runs.iter().filter(|run| limits.contains(&run.limit));
        of_it.count() * 2 > runs.len()
    };
    let seen = Seen {
        busy: [busy(false), busy(true)],
        is_machine: mostly(&[Limit::Machine, Limit::Ports]),
        is_timer: mostly(&[Limit::Timer]),
        is_generator: mostly(&[Limit::Generator]),
        is_held: runs.iter().any(|run| run.held),
        what: match runs.iter().find(|run| run.copies && run.doubled) {
            Some(run) => format!("{} copies", run.load),
            None => "twice the load".to_owned(),
        },
    };
    let (limit, reason) = decide(&found, &seen);
    let load = |doubled: bool| {
        runs.iter()
            .find(|run| run.doubled == doubled)
            .map(|run| run.load)
    };
    Some(Doubled {
        command: command.to_vec(),
        copies: runs.iter().any(|run| run.copies),
        loads: [load(false)?, load(true)?],
        measure: measure.to_owned(),
        rates_per_s: pairs,
        ratio: found.ratio,
        low: found.low,
        high: found.high,
        limit,
        reason,
        meaning: meaning(limit).to_owned(),
    })
}

/// Figures of the runs of all pairs.
struct Seen {
    /// The generator's busiest thread, in runs with the load and with the doubled one.
    busy: [Option<f64>; 2],
    is_machine: bool,
    is_timer: bool,
    is_generator: bool,
    is_held: bool,
    /// The part of the load that was doubled.
    what: String,
}

fn decide(found: &Ratio, of_runs: &Seen) -> (Limit, String) {
    let (least, most) = (1.0 - EQUAL_WITHIN, 1.0 + EQUAL_WITHIN);
    let seen = format!("{} did {:.2} times the work", of_runs.what, found.ratio);
    let [single, doubled] = of_runs.busy;
    let busiest = [single, doubled].into_iter().flatten().fold(0.0, f64::max);
    if !found.interval {
        let reason = format!("{seen} over {} pairs; an interval needs 6", found.blocks);
        return (Limit::Undecided, reason);
    }
    if found.low > most && of_runs.is_timer {
        return (
            Limit::Timer,
            format!("{seen}, because each connection waits for the same timer"),
        );
    }
    if found.low > most {
        return (
            Limit::Generator,
            format!("{seen}, and surely more than {most:.2} times"),
        );
    }
    let same = found.low >= least && found.high <= most;
    let less = found.outcome == Outcome::Differs && found.high < least;
    if !same && !less {
        let reason = format!(
            "{seen}, by {:.2} to {:.2}: more pairs would decide",
            found.low, found.high
        );
        return (Limit::Undecided, reason);
    }
    let busy = format!(
        "its busiest thread was busy for {:.0} % of the time",
        100.0 * busiest
    );
    if busiest >= BUSY {
        return (
            Limit::Generator,
            format!("{seen}, but the generator could not offer it: {busy}"),
        );
    }
    if of_runs.is_generator {
        let reason = format!("{seen}, but most runs were at the generator's limit");
        return (Limit::Generator, reason);
    }
    if of_runs.is_held {
        let reason = format!(
            "{seen}, but one lock may hold the generator's threads to one CPU: compare with \
             --copies 2"
        );
        return (Limit::Undecided, reason);
    }
    if of_runs.is_machine {
        return (
            Limit::Machine,
            format!("{seen}, and most runs were at a limit of the machine"),
        );
    }
    match single.is_some() && busiest <= ROOM {
        true => (
            Limit::Server,
            format!("{seen}, and the generator had room: {busy}"),
        ),
        false => (
            Limit::Undecided,
            format!("{seen}, but whether the generator had room is unclear: {busy}"),
        ),
    }
}

fn meaning(limit: Limit) -> &'static str {
    match limit {
        Limit::Generator => {
            "The server does at least as much as the command printed: with more load it does more, \
             or its generator is at its own limit."
        }
        Limit::Server => "The figures that the command printed are the server's own.",
        Limit::Machine => {
            "The figures that the command printed are those of this machine, not of the server alone."
        }
        Limit::Timer => {
            "The figures that the command printed are those of a timer: neither more load on each \
             connection nor a faster server shortens it."
        }
        _ => "Whether the figures that the command printed are the server's is not settled.",
    }
}
