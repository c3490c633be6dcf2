//! The result of interleaved pairs of a load and its double: if the work of a closed loop
//! grows with its connections, the load itself was the limit.
//!
//! Foreign output is not parsed. Work is what connections carried: bytes in both
//! directions where connections are kept, connections opened where each request has its
//! own. Both are in proportion to the requests as long as they are of one kind.

use super::{BUSY, ROOM, window};
use crate::intervals::median;
use crate::judge::window::Window;
use crate::ratio::{self, EQUAL_WITHIN, Outcome, Ratio};
use jostle_model::judged::{Doubled, Limit, Watched};

/// What pairs are settled by.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Work for each second, by bytes and by connections.
    bytes_per_s: f64,
    opened_per_s: f64,
    /// Whether connections were opened for requests.
    reopens: bool,
    busy: Option<f64>,
    limit: Limit,
    block: u64,
    load: u64,
    doubled: bool,
}

impl Run {
    /// None where no connections were seen, or where the run is none of a pair.
    pub fn of(watched: &Watched) -> Option<Run> {
        let traffic = watched.traffic.as_ref()?;
        let turn = watched.pair.as_ref()?;
        let window = Window::new(watched, window::of(watched));
        let open = traffic.connections.iter().copied().fold(0.0, f64::max);
        let opened = window.sum(&traffic.opened);
        (window.wall_s > 0.0).then(|| Run {
            bytes_per_s: window.share(&traffic.bytes),
            opened_per_s: window.share(&traffic.opened),
            // Others open a few in the meantime.
            reopens: opened >= 4.0 * open + 100.0,
            busy: watched.finding.generator_busy_share,
            limit: watched.finding.limit,
            block: turn.block,
            load: turn.load,
            doubled: turn.doubled,
        })
    }
}

/// What the pairs show. None without one whole pair.
pub fn settle(command: &[String], runs: &[Run]) -> Option<Doubled> {
    let reopens = runs.iter().filter(|run| run.reopens).count() * 2 > runs.len();
    let rate = |run: &Run| {
        if reopens {
            run.opened_per_s
        } else {
            run.bytes_per_s
        }
    };
    let of = |block: u64, doubled: bool| {
        runs.iter()
            .find(|run| run.block == block && run.doubled == doubled)
    };
    let singles = runs.iter().filter(|run| !run.doubled);
    let pairs: Vec<[f64; 2]> = singles
        .filter_map(|single| Some([rate(single), rate(of(single.block, true)?)]))
        .collect();
    let each: Vec<(f64, f64)> = pairs
        .iter()
        .map(|[single, doubled]| (*single, *doubled))
        .collect();
    let found = ratio::paired(&each)?;
    let busy = |doubled: bool| {
        let each = runs.iter().filter(|run| run.doubled == doubled);
        median(&each.filter_map(|run| run.busy).collect::<Vec<_>>())
    };
    let kept = runs
        .iter()
        .filter(|run| run.limit == Limit::Machine)
        .count()
        * 2
        > runs.len();
    let (limit, reason) = decide(&found, busy(false), busy(true), kept);
    let load = |doubled: bool| {
        runs.iter()
            .find(|run| run.doubled == doubled)
            .map(|run| run.load)
    };
    Some(Doubled {
        command: command.to_vec(),
        loads: [load(false)?, load(true)?],
        measure: if reopens { "connections" } else { "bytes" }.to_owned(),
        rates_per_s: pairs,
        ratio: found.ratio,
        low: found.low,
        high: found.high,
        limit,
        reason,
        meaning: meaning(limit).to_owned(),
    })
}

fn decide(found: &Ratio, single: Option<f64>, doubled: Option<f64>, kept: bool) -> (Limit, String) {
    let (least, most) = (1.0 - EQUAL_WITHIN, 1.0 + EQUAL_WITHIN);
    let seen = format!("twice the load did {:.2} times the work", found.ratio);
    let busiest = [single, doubled].into_iter().flatten().fold(0.0, f64::max);
    if !found.interval {
        let reason = format!("{seen} over {} pairs; an interval needs 6", found.blocks);
        return (Limit::Undecided, reason);
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
    if kept {
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
        Limit::Path | Limit::Undecided => {
            "Whether the figures that the command printed are the server's is not settled."
        }
    }
}
