//! The list of what jostled must reach.

use super::Ground;
use super::cells::{Figures, Load, hold, redis_benchmark};
use super::servers::Kind;
use super::table::Bound::{AtLeast, AtMost, Shown};
use super::table::Figure::{self, Bytes, ClientCpu, Rate, ServerCpu, Stall};
use super::table::{Bound, Cell, Claim, Trial};

/// Every trial, in the order in which they run.
pub fn all() -> Vec<Trial> {
    let mut trials = vec![one_at_a_time()];
    for (connections, depth, least) in DEEP {
        trials.push(pipelined(connections, depth, least));
    }
    for (connections, depth, _) in DEEP {
        trials.push(in_use(connections, depth));
    }
    trials.push(held());
    trials.push(many_waiters());
    for how in HAND_OFFS {
        trials.push(hand_off(how));
    }
    for (connections, depth, least) in DEEP {
        trials.push(confirmed(connections, depth, least));
    }
    for (connections, depth) in [(1, 1), (50, 1), (1, 100), (50, 16), (50, 100)] {
        trials.push(generators(connections, depth));
    }
    trials
}

/// Connections, commands in flight on each, and how many times Redis at least.
const DEEP: [(usize, usize, f64); 3] = [(50, 100, 5.0), (50, 16, 3.0), (1, 100, 5.0)];

const CLIENTS: usize = 50;

/// A name, what it means, the shape, commands in flight, pieces.
type HandOff = (&'static str, &'static str, &'static str, usize, usize);

const HAND_OFFS: [HandOff; 3] = [
    ("single", "one command at a time", "handoff", 1, 1),
    (
        "together",
        "release and next request in one write",
        "handoff-together",
        2,
        1,
    ),
    ("pipelined", "16 pairs in flight each", "handoff", 32, 2),
];

/// One connection's window is sent in halves, else the server would wait for the
/// client's next commands; more pieces cost the client more than the server.
/// With many connections there is always another that has sent.
fn pieces(connections: usize, depth: usize) -> usize {
    if connections == 1 && depth > 1 { 2 } else { 1 }
}

fn pairs(server: Kind, connections: usize, depth: usize) -> Load {
    Load {
        server,
        dialect: dialect(server),
        shape: "pairs",
        connections,
        depth,
        pieces: pieces(connections, depth),
        waiters: 0,
        scrape: false,
        commands: 1.0,
    }
}

fn dialect(server: Kind) -> &'static str {
    match server {
        Kind::Redis => "redis",
        Kind::Jostled | Kind::Answers | Kind::Relays => "owned",
    }
}

fn cell(row: &str, load: Load) -> Cell {
    measured(row, move |ground| load.run(ground))
}

fn measured(row: &str, measure: impl Fn(&Ground) -> anyhow::Result<Figures> + 'static) -> Cell {
    Cell {
        rows: vec![row.to_owned()],
        measure: Box::new(move |ground| Ok(vec![measure(ground)?])),
    }
}

/// The three servers under the same load.
fn three(load: impl Fn(Kind) -> Load) -> Vec<Cell> {
    vec![
        cell("jostled", load(Kind::Jostled)),
        cell("Redis", load(Kind::Redis)),
        cell("answers only", load(Kind::Answers)),
    ]
}

/// A claim about the ratio of two rows.
fn ratio(figure: Figure, row: usize, by: usize, bound: Bound) -> Claim {
    Claim {
        figure,
        row,
        by: Some(by),
        bound,
    }
}

/// A claim about one row.
fn single(figure: Figure, row: usize, bound: Bound) -> Claim {
    Claim {
        figure,
        row,
        by: None,
        bound,
    }
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
        cells: three(|server| Load {
            commands: 2.0,
            ..pairs(server, 1, 1)
        }),
        claims: vec![
            ratio(Rate, 0, 2, AtLeast(0.85)),
            ratio(Rate, 0, 1, AtLeast(1.0)),
        ],
    }
}

fn pipelined(connections: usize, depth: usize, least: f64) -> Trial {
    Trial {
        name: format!("{connections}x{depth}"),
        title: format!(
            "{connections} connection(s), {depth} commands in flight on each; an operation is a command"
        ),
        cells: three(|server| pairs(server, connections, depth)),
        claims: Vec::from_iter(faster(0, 1, least).into_iter().chain([bound()])),
    }
}

/// What costs nothing on an empty bench may cost in a house.
fn in_use(connections: usize, depth: usize) -> Trial {
    let plain = move || pairs(Kind::Jostled, connections, depth);
    let with = |row: &str, leases: bool, waiters: bool, metrics: bool| {
        let row = row.to_owned();
        measured(&row, move |ground| {
            Load {
                dialect: if leases { "leased" } else { "owned" },
                waiters: if waiters { ground.scale.beside } else { 0 },
                scrape: metrics,
                ..plain()
            }
            .run(ground)
        })
    };
    Trial {
        name: format!("in use {connections}x{depth}"),
        title: "the same with leases, 1000 waiters of other locks, metrics read every 100 ms"
            .to_owned(),
        cells: vec![
            with("plain", false, false, false),
            with("leases", true, false, false),
            with("waiters", false, true, false),
            with("metrics", false, false, true),
            with("all three", true, true, true),
        ],
        claims: (1..5).flat_map(|row| faster(row, 0, 0.8)).collect(),
    }
}

fn held() -> Trial {
    let cells = [
        ("jostled", Kind::Jostled, "owned"),
        ("leases", Kind::Jostled, "leased"),
        ("Redis", Kind::Redis, "redis"),
        ("answers only", Kind::Answers, "owned"),
    ]
    .into_iter()
    .flat_map(|(who, kind, dialect)| {
        [(0, "1000"), (1, "1M")].map(|(size, label)| Cell {
            rows: vec![
                format!("{who}, acquire {label}"),
                format!("{who}, release {label}"),
            ],
            measure: Box::new(move |ground| {
                let figures = hold(ground, kind, dialect, ground.scale.locks[size])?;
                Ok(figures.into())
            }),
        })
    });
    // Rows of each server: acquire and release of few, of many.
    let claims = [0, 4].into_iter().flat_map(|at| {
        [
            ratio(ServerCpu, at + 2, at, AtMost(3.0)),
            ratio(ServerCpu, at + 3, at + 1, AtMost(3.0)),
            single(Stall, at + 2, AtMost(2.0)),
            single(Stall, at + 3, AtMost(2.0)),
            single(Bytes, at + 2, AtMost(96.0)),
        ]
    });
    Trial {
        name: "held".to_owned(),
        title: "locks acquired by random names of 20 bytes, 100 in flight, all held, then released"
            .to_owned(),
        cells: cells.collect(),
        claims: claims.collect(),
    }
}

fn handed(server: Kind, (_, _, shape, depth, pieces): HandOff) -> Load {
    Load {
        shape,
        depth,
        pieces,
        commands: 2.0,
        ..pairs(server, CLIENTS, depth)
    }
}

/// Who waits for 10,000 others is silent for longer than TCP delays an
/// acknowledgement: each hand-off then takes a packet and a timer more, and all
/// sockets are out of the caches. That is none of the daemon's doing, so beside
/// it stands what the same costs a server that does nothing else.
fn many_waiters() -> Trial {
    let servers = [
        ("jostled", Kind::Jostled),
        ("Redis", Kind::Redis),
        ("relays only", Kind::Relays),
    ];
    let cells = servers.into_iter().flat_map(|(who, kind)| {
        [(0, "10 waiters"), (1, "10000 waiters")].map(|(size, label)| {
            measured(&format!("{who}, {label}"), move |ground| {
                Load {
                    connections: ground.scale.waiters[size] + 1,
                    ..handed(kind, HAND_OFFS[1])
                }
                .run(ground)
            })
        })
    });
    Trial {
        name: "waiters".to_owned(),
        title: "one lock handed on; release and next request in one write".to_owned(),
        cells: cells.collect(),
        claims: Vec::from_iter(faster(1, 0, 1.0 / 1.5).into_iter().chain([
            ratio(Rate, 5, 4, Shown),
            ratio(ServerCpu, 4, 5, Shown),
            ratio(Rate, 1, 5, AtLeast(0.85)),
        ])),
    }
}

fn hand_off(how: HandOff) -> Trial {
    let (name, meaning, _, depth, pieces) = how;
    // Who hands on with one write waits for it: one command is under way at a
    // time, whoever sends it.
    let connections = if name == "together" { 1 } else { CLIENTS };
    let answers = Load {
        pieces,
        commands: 2.0,
        ..pairs(Kind::Answers, connections, depth)
    };
    Trial {
        name: format!("hand-off {name}"),
        title: format!("{CLIENTS} clients want one lock (Redis: BLPOP, LPUSH), {meaning}"),
        cells: vec![
            cell("jostled", handed(Kind::Jostled, how)),
            cell("Redis", handed(Kind::Redis, how)),
            cell(&format!("answers only, {connections}x{depth}"), answers),
        ],
        claims: vec![ratio(Rate, 0, 1, AtLeast(2.0)), bound()],
    }
}

/// The same ratios, found by the client that Redis is measured with.
fn confirmed(connections: usize, depth: usize, least: f64) -> Trial {
    let cell = |row, kind| {
        measured(row, move |ground| {
            redis_benchmark(ground, kind, connections, depth)
        })
    };
    Trial {
        name: format!("redis-benchmark {connections}x{depth}"),
        title: "LOCK name TTL 60000 WAIT 0 against SET name x NX PX 60000, names new each time"
            .to_owned(),
        cells: vec![cell("jostled", Kind::Jostled), cell("Redis", Kind::Redis)],
        claims: faster(0, 1, least).into(),
    }
}

/// Who asks for least CPU to ask. All ask jostled for leases by new names; the
/// generator that comes next is one more cell and one more claim.
fn generators(connections: usize, depth: usize) -> Trial {
    let ours = Load {
        dialect: "leased",
        shape: "fresh",
        ..pairs(Kind::Jostled, connections, depth)
    };
    Trial {
        name: format!("generators {connections}x{depth}"),
        title: "CPU of the client: LOCK name TTL 60000 WAIT 0, names new each time".to_owned(),
        cells: vec![
            cell("xtask load", ours),
            measured("redis-benchmark", move |ground| {
                redis_benchmark(ground, Kind::Jostled, connections, depth)
            }),
        ],
        claims: vec![ratio(ClientCpu, 1, 0, AtLeast(1.0))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trial_has_a_name_of_its_own_and_claims_about_rows_that_it_has() {
        let trials = all();
        for (at, trial) in trials.iter().enumerate() {
            let rows: usize = trial.cells.iter().map(|cell| cell.rows.len()).sum();
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
