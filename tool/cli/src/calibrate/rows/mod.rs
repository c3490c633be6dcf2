//! The rows of `jostle calibrate`: one list of what is planted, and a file for each question that
//! measures and judges. tool/docs/calibrate.md has their numbers.

mod comparing;
mod contended;
mod cost;
mod delay;
mod exclusion;
mod fairness;
mod generator;
mod growth;
mod handoff;
mod server;
mod stalls;

use super::bench::Attempt;
use comparing::{A, B};
use handoff::Place;

/// A question about the tool, and what is planted to answer it. Its number is its place.
pub(super) struct Row {
    /// The question to the tool.
    pub name: &'static str,
    /// The planted faults, and what measures and judges each.
    pub cases: &'static [(&'static str, Attempt)],
}

/// Every row, in the order in which they are tried and printed.
pub(super) static ROWS: &[Row] = &[
    Row {
        name: "the tool's own cost",
        cases: &[("null", cost::trial)],
    },
    Row {
        name: "a known wait",
        cases: &[
            ("delay:20us", |bench| delay::trial(bench, "20us", 0.1)),
            ("delay:200us", |bench| delay::trial(bench, "200us", 0.1)),
            ("delay:5ms", |bench| delay::trial(bench, "5ms", 0.2)),
        ],
    },
    Row {
        name: "a known hand-off",
        cases: &[
            ("hand-offs on one CPU", |bench| {
                handoff::trial(bench, Place::Same)
            }),
            ("hand-offs between CPUs", |bench| {
                handoff::trial(bench, Place::Cross)
            }),
        ],
    },
    Row {
        name: "the share of grants that were waited for",
        cases: &[
            ("about 0 % contended", |bench| {
                contended::trial(bench, 10_000)
            }),
            ("about 10 % contended", |bench| contended::trial(bench, 10)),
            ("about 50 % contended", |bench| contended::trial(bench, 2)),
            ("100 % contended", |bench| contended::trial(bench, 1)),
        ],
    },
    Row {
        name: "who is served",
        cases: &[
            ("unfair:queue", |bench| {
                fairness::trial(bench, "queue", 20, fairness::queue)
            }),
            ("unfair:lottery", |bench| {
                fairness::trial(bench, "lottery", 50, fairness::lottery)
            }),
            ("unfair:2to1", |bench| {
                fairness::trial(bench, "2to1", 50, fairness::two_to_one)
            }),
            ("unfair:starve", |bench| {
                fairness::trial(bench, "starve", 10, fairness::starved)
            }),
        ],
    },
    Row {
        name: "whether the lock excludes",
        cases: &[
            ("busted:1e-3", |bench| {
                exclusion::broken(bench, "busted:1e-3", "-w 10 -b 20us -i 0", 1.0)
            }),
            // A refused worker tries again at once, so that a second has enough attempts. With
            // short holds the owner may release before an intruder is marked as inside: this
            // happened in 3 to 17 % of holds of 5 us.
            ("busted:1e-5", |bench| {
                exclusion::broken(bench, "busted:1e-5", "-w 2 -b -50us -i 0 --try", 1.0)
            }),
            ("busted:1e-2, half readers", |bench| {
                exclusion::broken(bench, "busted:1e-2", "-w 10 -b 20us -i 0 --shared 0.5", 0.5)
            }),
            ("owners of flock killed", exclusion::killed),
        ],
    },
    Row {
        name: "stalls under open and closed loop",
        cases: &[("stall:200ms/300ms", stalls::trial)],
    },
    Row {
        name: "a generator that is kept from working",
        cases: &[
            ("starved by 2 programs", generator::starved),
            ("paused: 20 of every 40 ms", generator::paused),
            ("throttled to 0.4 CPUs", generator::throttled),
        ],
    },
    Row {
        name: "a server that is slow",
        cases: &[("echo:slow=200us", server::slow)],
    },
    Row {
        name: "a server that counts wrongly",
        cases: &[
            ("echo:lose=100", |bench| {
                server::miscounting(bench, "echo:lose=100")
            }),
            ("echo:double=100", |bench| {
                server::miscounting(bench, "echo:double=100")
            }),
        ],
    },
    Row {
        name: "what compare says of two sessions",
        cases: &[
            ("delay:100us twice", |bench| comparing::trial(bench, [A, A])),
            ("delay:100us, then delay:110us", |bench| {
                comparing::trial(bench, [A, B])
            }),
        ],
    },
    Row {
        name: "how a cost grows",
        cases: &[
            ("chained:3000", growth::chains),
            ("cliff:3000", growth::cliff),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::ROWS;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_says_what_it_plants() {
        let cases = || ROWS.iter().flat_map(|row| row.cases);
        let planted: BTreeSet<_> = cases().map(|(planted, _)| planted).collect();
        assert_eq!(planted.len(), cases().count());
        assert!(cases().all(|(planted, _)| !planted.is_empty()));
        assert!(ROWS.iter().all(|row| !row.name.is_empty()));
    }
}
