//! The list of what jostled must reach.

use super::cells::{Asked, Load, Work};
use super::servers::Kind;
use crate::peers::table::Bound::{AtLeast, AtMost, Shown};
use crate::peers::table::Figure::{Batch, Bytes, Rate, ServerCpu};
use crate::peers::table::{Bound, Cell, Claim, Trial, ratio};

/// Every trial, in the order in which they run.
pub(in crate::peers) fn all() -> Vec<Trial> {
    let mut trials = vec![one_at_a_time()];
    for (connections, depth, least, of_bound) in DEEP {
        trials.push(pipelined(connections, depth, least, of_bound));
    }
    for (connections, depth, ..) in DEEP {
        trials.push(in_use(connections, depth));
    }
    for (connections, depth) in [(1, 1), (50, 16), (50, 100)] {
        trials.push(governed(connections, depth));
    }
    trials.push(held());
    trials.push(many_waiters());
    trials.push(hand_off());
    trials.push(hand_off_pipelined());
    trials
}

/// Connections, commands in flight on each, how many times Redis at least, and what share of the
/// server that only answers.
const DEEP: [(usize, usize, f64, Bound); 3] = [
    (50, 100, 5.0, AtLeast(0.8)),
    (50, 16, 3.0, AtLeast(0.95)),
    (1, 100, 5.0, Shown),
];

const CLIENTS: usize = 50;

const JOSTLED: Asked = Asked::Lockd(Kind::Jostled);
const RELAYS: Asked = Asked::Lockd(Kind::Relays);

fn load(asked: Asked, work: Work) -> Load {
    Load {
        asked,
        work,
        waiters: 0,
        scrape: false,
    }
}

/// Locks of each connection's own, with so many commands in flight on each.
fn pairs(connections: usize, depth: usize) -> Work {
    Work::Pairs {
        workers: connections,
        pipeline: (depth / 2).max(1),
        names: "own",
    }
}

fn cell(row: &str, load: Load) -> Cell {
    Cell::new(row, move |ground| load.run(ground))
}

/// The three servers under the same load.
fn three(work: Work) -> Vec<Cell> {
    vec![
        cell("jostled", load(JOSTLED, work)),
        cell("Redis", load(Asked::Redis("redis"), work)),
        cell("answers only", load(Asked::Echo, work)),
    ]
}

/// `by` times the rate of a row, and the CPU of that row `by` times.
fn faster(row: usize, than: usize, by: f64) -> [Claim; 2] {
    [
        ratio(Rate, row, than, AtLeast(by)),
        ratio(ServerCpu, than, row, AtLeast(by)),
    ]
}

/// What no server can exceed here and now: the third row by the second. Where
/// system calls are slow, it may be less than what is required.
fn bound() -> Claim {
    ratio(Rate, 2, 1, Shown)
}

fn one_at_a_time() -> Trial {
    Trial {
        name: "1x1".to_owned(),
        title: "1 connection, one request at a time; an operation is a lock and an unlock"
            .to_owned(),
        cells: three(pairs(1, 1)),
        claims: vec![
            ratio(Rate, 0, 2, AtLeast(0.85)),
            ratio(Rate, 0, 1, AtLeast(1.0)),
        ],
    }
}

/// `least` times Redis, and this share of what the server that only answers does with
/// the same CPU time.
fn pipelined(connections: usize, depth: usize, least: f64, of_bound: Bound) -> Trial {
    let of_bound = ratio(ServerCpu, 2, 0, of_bound);
    Trial {
        name: format!("{connections}x{depth}"),
        title: format!(
            "{connections} connection(s), {depth} commands in flight on each; an operation is a \
             lock and an unlock"
        ),
        cells: three(pairs(connections, depth)),
        claims: Vec::from_iter(faster(0, 1, least).into_iter().chain([bound(), of_bound])),
    }
}

/// What costs nothing on an empty bench may cost in a house.
fn in_use(connections: usize, depth: usize) -> Trial {
    let with = |row: &str, waiters: bool, scrape: bool| {
        Cell::new(row, move |ground| {
            Load {
                waiters: if waiters { ground.scale.beside } else { 0 },
                scrape,
                ..load(JOSTLED, pairs(connections, depth))
            }
            .run(ground)
        })
    };
    Trial {
        name: format!("in use {connections}x{depth}"),
        title: "the same with 1000 waiters of other locks, metrics read every 100 ms".to_owned(),
        cells: vec![
            with("plain", false, false),
            with("waiters", true, false),
            with("metrics", false, true),
            with("both", true, true),
        ],
        claims: (1..4).flat_map(|row| faster(row, 0, 0.8)).collect(),
    }
}

/// What a platform team turns on.
fn governed(connections: usize, depth: usize) -> Trial {
    let work = pairs(connections, depth);
    let governed = Load {
        scrape: true,
        ..load(Asked::Lockd(Kind::Governed), work)
    };
    Trial {
        name: format!("governed {connections}x{depth}"),
        title: "users with name patterns, quotas, a log of connections, and metrics read every \
                100 ms, beside none of it"
            .to_owned(),
        cells: vec![cell("without", load(JOSTLED, work)), cell("with", governed)],
        claims: faster(1, 0, 0.95).into(),
    }
}

fn held() -> Trial {
    let servers = [
        ("jostled", JOSTLED),
        ("Redis", Asked::Redis("redis")),
        ("answers only", Asked::Echo),
    ];
    let cells = servers.into_iter().flat_map(|(who, asked)| {
        [(0, "1000"), (1, "1M")]
            .map(|(size, label)| cell(&format!("{who}, {label}"), load(asked, Work::Hold { size })))
    });
    Trial {
        name: "held".to_owned(),
        title: "locks acquired, 100 in flight, all held, then released; an operation is both"
            .to_owned(),
        cells: cells.collect(),
        claims: vec![
            ratio(ServerCpu, 1, 0, AtMost(3.0)),
            // The server that only answers stalls as often as the machine lets it.
            ratio(Batch, 1, 5, AtMost(1.0)),
            Claim {
                figure: Bytes,
                row: 1,
                by: None,
                bound: AtMost(80.0),
            },
        ],
    }
}

/// Who waits for 10,000 others is silent for longer than TCP delays an
/// acknowledgement: each hand-off then takes a packet and a timer more, and all
/// sockets are out of the caches. That is none of the daemon's doing, so beside
/// it stands what the same costs a server that does nothing else.
fn many_waiters() -> Trial {
    let servers = [("jostled", JOSTLED), ("relays only", RELAYS)];
    let cells = servers.into_iter().flat_map(|(who, asked)| {
        [(0, "10 waiters"), (1, "10000 waiters")].map(|(size, label)| {
            Cell::new(&format!("{who}, {label}"), move |ground| {
                let workers = ground.scale.waiters[size] + 1;
                load(asked, Work::HandOff { workers }).run(ground)
            })
        })
    });
    Trial {
        name: "waiters".to_owned(),
        title: "one lock handed on, one command at a time".to_owned(),
        cells: cells.collect(),
        claims: Vec::from_iter(faster(1, 0, 1.0 / 1.5).into_iter().chain([
            ratio(Rate, 3, 2, Shown),
            ratio(ServerCpu, 2, 3, Shown),
            ratio(Rate, 1, 3, AtLeast(0.95)),
        ])),
    }
}

/// Redis by the recipe of those of its users whose waiters are woken.
fn hand_off() -> Trial {
    let work = Work::HandOff { workers: CLIENTS };
    Trial {
        name: "hand-off single".to_owned(),
        title: format!("{CLIENTS} clients want one lock, one command at a time"),
        cells: vec![
            cell("jostled", load(JOSTLED, work)),
            cell("Redis (Redisson)", load(Asked::Redis("redisson"), work)),
            cell("relays only", load(RELAYS, work)),
        ],
        claims: vec![
            ratio(Rate, 0, 1, AtLeast(2.0)),
            ratio(Rate, 0, 2, AtLeast(0.9)),
        ],
    }
}

fn hand_off_pipelined() -> Trial {
    let work = Work::Pairs {
        workers: CLIENTS,
        pipeline: 16,
        names: "one",
    };
    Trial {
        name: "hand-off pipelined".to_owned(),
        title: format!("{CLIENTS} clients want one lock, 16 pairs in flight each"),
        cells: vec![
            cell("jostled", load(JOSTLED, work)),
            cell("answers only", load(Asked::Echo, work)),
        ],
        claims: vec![ratio(Rate, 0, 1, Shown)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trial_has_a_name_of_its_own_and_claims_about_rows_that_it_has() {
        let trials = all();
        for (at, trial) in trials.iter().enumerate() {
            let rows = trial.cells.len();
            assert!(!trial.claims.is_empty(), "{}", trial.name);
            for claim in &trial.claims {
                assert!(claim.row < rows && claim.by.is_none_or(|by| by < rows));
            }
            assert!(
                trials[at + 1..]
                    .iter()
                    .all(|other| other.name != trial.name)
            );
        }
    }
}
