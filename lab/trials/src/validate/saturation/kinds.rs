//! The lines run, one of lab/trials/validate/saturation.tsv for each kind of networked workload,
//! and what is planted.
//!
//! Generators have the first CPU for themselves, servers the last one.

use crate::validate::columns;
use crate::validate::plants::{Plant, Planted};
use crate::validate::sides::Side;
use anyhow::Context;
use jostle_testbed::servers::Server;

const TABLE: &str = include_str!("../../../validate/saturation.tsv");

/// The figure that a reader takes home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// Operations a second, a claim that is `absolute`.
    Throughput,
    /// The response's 99th percentile, a claim that is `distribution`.
    P99,
}

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kind {
    pub name: &'static str,
    /// Whose row it is counted in.
    pub group: &'static str,
    server: &'static str,
    /// Operations of a run of the usual length; 0: it has a window.
    count: &'static str,
    words: &'static str,
}

/// All of the table.
pub(super) fn kinds() -> impl Iterator<Item = Kind> {
    columns(TABLE).map(|[name, group, server, count, words]| Kind {
        name,
        group,
        server,
        count,
        words,
    })
}

impl Kind {
    pub(super) fn named(name: &str) -> Option<Kind> {
        kinds().find(|kind| kind.name == name)
    }

    pub(super) fn server(self) -> anyhow::Result<Server> {
        Server::named(self.server).with_context(|| format!("no server {}", self.server))
    }

    pub(super) fn headline(self) -> &'static [Figure] {
        match self.group {
            "closed" => &[Figure::Throughput],
            "open" => &[Figure::P99],
            _ => &[Figure::Throughput, Figure::P99],
        }
    }

    /// The words that follow `jostle`.
    pub(super) fn line(self, target: &str, cpu: usize, short: bool) -> Vec<String> {
        // A second or a little more: checks of the machine's ticks want 200 of them, and two
        // CPUs have as many in a second. Many users have two fifths of that.
        let count = self.count.parse::<u64>().unwrap_or(0);
        let (seconds, count) = match short {
            false => (1.05, count),
            true => (0.4, count * 2 / 5),
        };
        let line = self
            .words
            .replace("WINDOW", &format!("-t {seconds} --warmup 0.1"))
            .replace("COUNT", &count.to_string())
            .replace("PLACE", &format!("--place cpus:{cpu}"))
            .replace("TARGET", target);
        let words = line.split(' ').chain(["--runs", "1"]);
        words.map(str::to_owned).collect()
    }

    /// The plants possible in it.
    pub(super) fn plants(self) -> Vec<Planted> {
        let mut plants = vec![Plant::Throttle, Plant::Starve, Plant::Pause];
        // `spread` limits its generators by an option of its own.
        plants.extend((self.group == "spread").then_some(Plant::Quota));
        Planted::all(&[Side::Generator], &plants, &DOSES)
    }
}

/// Shares of what the generators would use that are taken from them.
pub(super) const DOSES: [u32; 6] = [5, 10, 20, 40, 60, 80];

/// In which a generator is stopped once.
const CYCLE_MS: u64 = 40;

/// Longer than any run.
const LIFE_S: u32 = 60;

/// The means to plant it, as options of jostle, and as a disturbance that jostle knows nothing of:
/// what `--during` starts is booked to jostle itself. `jostle` is the program, `used` the CPUs'
/// worth of time that it used when left alone, `quota` says which file limits it and what says so.
pub(super) fn means(
    planted: Planted,
    jostle: &str,
    cpu: usize,
    used: f64,
    quota: impl Fn(f64) -> (String, String),
) -> (Vec<String>, Option<String>) {
    let left = used * planted.left();
    let during = match planted.plant {
        Plant::Throttle => {
            let (file, text) = quota(left);
            format!("sh -c 'echo {text} > {file}; exec sleep {LIFE_S}'")
        }
        Plant::Pause => {
            let [stopped, running] = planted.turn_ms(CYCLE_MS);
            format!("{jostle} disturb pause {stopped} {running} {{pids}}")
        }
        Plant::Starve | Plant::Hog => {
            let how = format!("burn 1 {cpu} 100 {}", niceness(1.0 - planted.left()));
            return (Vec::new(), Some(how));
        }
        Plant::Quota => {
            // Each of the two.
            let each = (left / 2.0).max(0.01);
            return (
                vec!["--generator-cpu".to_owned(), format!("{each:.4}")],
                None,
            );
        }
    };
    (vec!["--during".to_owned(), during], None)
}

/// With which a program gets this share of a CPU beside one of niceness 0: each
/// step is a weight of 1.25 times less (sched(7)).
fn niceness(share: f64) -> i32 {
    -((share / (1.0 - share)).ln() / 1.25_f64.ln()).round() as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn niceness_gives_the_share_by_weight() {
        let of = [0.05, 0.1, 0.2, 0.4, 0.5, 0.6, 0.8].map(niceness);
        assert_eq!(of, [13, 10, 6, 2, 0, -2, -6]);
        // As it is planted.
        let of = DOSES.map(|dose| {
            let planted = Planted::all(&[Side::Generator], &[Plant::Starve], &[dose]);
            niceness(1.0 - planted[0].left())
        });
        assert_eq!(of, [13, 10, 6, 2, -2, -6]);
    }

    #[test]
    fn kinds_have_names_of_their_own_and_known_groups() {
        let names: BTreeSet<_> = kinds().map(|kind| kind.name).collect();
        assert_eq!(names.len(), kinds().count());
        for kind in kinds() {
            assert!(["closed", "open", "spread"].contains(&kind.group));
            assert!(kind.server().is_ok());
            let plants = if kind.group == "spread" { 4 } else { 3 };
            assert_eq!(kind.plants().len(), plants * DOSES.len());
        }
    }

    #[test]
    fn a_short_run_has_two_fifths_of_the_operations_or_of_the_window() {
        let kinds: Vec<Kind> = kinds().collect();
        let line = |nth: usize, short| kinds[nth].line("TO", 1, short).join(" ");
        let stream = "stream TO -n 20000 -w 1 --as tasks --place cpus:1 --runs 1";
        assert_eq!(line(0, true), stream);
        assert!(line(0, false).contains("-n 50000 "));
        assert!(line(3, true).contains("-t 0.4 "));
        for kind in kinds {
            let words = kind.words;
            assert!(words.contains(" TARGET "));
            assert_ne!(words.contains("COUNT"), words.contains("WINDOW"));
            assert_eq!(words.contains("COUNT"), kind.count != "0", "{}", kind.name);
        }
    }

    #[test]
    fn every_plant_takes_its_dose_of_what_was_used() {
        let text = |plant, dose| {
            let quota = |cpus: f64| ("FILE".to_owned(), format!("{:.0}", cpus * 100_000.0));
            let planted = Planted::all(&[Side::Generator], &[plant], &[dose])[0];
            let (options, beside) = means(planted, "jostle", 3, 0.5, quota);
            beside.unwrap_or(options.join(" "))
        };
        let throttled = "--during sh -c 'echo 30000 > FILE; exec sleep 60'";
        assert_eq!(text(Plant::Throttle, 40), throttled);
        assert_eq!(text(Plant::Quota, 40), "--generator-cpu 0.1500");
        let paused = "--during jostle disturb pause 16 24 {pids}";
        assert_eq!(text(Plant::Pause, 40), paused);
        assert_eq!(text(Plant::Starve, 40), "burn 1 3 100 2");
    }
}
