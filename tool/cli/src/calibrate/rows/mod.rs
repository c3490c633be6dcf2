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

/// From each question and what is planted for it, [`ROWS`]: a planted fault, and what measures and
/// judges it.
macro_rules! rows {
    ($($name:literal: { $($planted:literal => $($trial:ident)::+ $(($($how:expr),+))?;)+ })+) => {
        /// Every row, in the order in which they are tried and printed.
        pub(super) static ROWS: &[Row] = &[$(Row {
            name: $name,
            cases: &[$(($planted, |bench| $($trial)::+(bench $($(, $how)+)?))),+],
        }),+];
    };
}

rows! {
    "the tool's own cost": {
        "null" => cost::trial;
    }
    "a known wait": {
        "delay:20us" => delay::trial("20us", 0.1);
        "delay:200us" => delay::trial("200us", 0.1);
        "delay:5ms" => delay::trial("5ms", 0.2);
    }
    "a known hand-off": {
        "hand-offs on one CPU" => handoff::trial(Place::Same);
        "hand-offs between CPUs" => handoff::trial(Place::Cross);
    }
    "the share of grants that were waited for": {
        "about 0 % contended" => contended::trial(10_000);
        "about 10 % contended" => contended::trial(10);
        "about 50 % contended" => contended::trial(2);
        "100 % contended" => contended::trial(1);
    }
    "who is served": {
        "unfair:queue" => fairness::trial("queue", 20, fairness::queue);
        "unfair:lottery" => fairness::trial("lottery", 50, fairness::lottery);
        "unfair:2to1" => fairness::trial("2to1", 50, fairness::two_to_one);
        "unfair:starve" => fairness::trial("starve", 10, fairness::starved);
    }
    "whether the lock excludes": {
        "busted:1e-3" => exclusion::broken("busted:1e-3", "-w 10 -b 20us -i 0", 1.0);
        // A refused worker tries again at once, so that a second has enough attempts. With
        // short holds the owner may release before an intruder is marked as inside: this
        // happened in 3 to 17 % of holds of 5 us.
        "busted:1e-5" => exclusion::broken("busted:1e-5", "-w 2 -b -50us -i 0 --try", 1.0);
        "busted:1e-2, half readers" =>
            exclusion::broken("busted:1e-2", "-w 10 -b 20us -i 0 --shared 0.5", 0.5);
        "owners of flock killed" => exclusion::killed;
    }
    "stalls under open and closed loop": {
        "stall:200ms/300ms" => stalls::trial;
    }
    "a generator that is kept from working": {
        "starved by 2 programs" => generator::starved;
        "paused: 20 of every 40 ms" => generator::paused;
        "throttled to 0.4 CPUs" => generator::throttled;
    }
    "a server that is slow": {
        "echo:slow=200us" => server::slow;
    }
    "a server that counts wrongly": {
        "echo:lose=100" => server::miscounting("echo:lose=100");
        "echo:double=100" => server::miscounting("echo:double=100");
    }
    "what compare says of two sessions": {
        "delay:100us twice" => comparing::trial([A, A]);
        "delay:100us, then delay:110us" => comparing::trial([A, B]);
    }
    "how a cost grows": {
        "chained:3000" => growth::chains;
        "cliff:3000" => growth::cliff;
    }
}

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
