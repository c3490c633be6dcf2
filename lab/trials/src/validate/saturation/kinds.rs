//! What is run: one line for each kind of networked workload, and what is planted.
//!
//! Generators have the first CPU for themselves, servers the last one.

use jostle_testbed::servers::Server;
use serde::{Deserialize, Serialize};

/// The figure that a reader takes home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// Operations a second, a claim that is `absolute`.
    Throughput,
    /// The response's 99th percentile, a claim that is `distribution`.
    P99,
}

/// A command line.
pub(super) struct Kind {
    /// As it stands in the record.
    pub name: &'static str,
    /// Whose row it is counted in.
    pub group: &'static str,
    pub server: Server,
    /// The words that follow `jostle`: TARGET; COUNT operations, or a WINDOW; PLACE where the
    /// generators keep to their CPU, and do not go where the scheduler puts them.
    pub words: &'static str,
    /// Operations of a run of the usual length; 0: it has a window.
    pub count: u64,
    pub headline: &'static [Figure],
}

/// A closed loop over a connection, which makes so many operations, or has a window.
const fn closed(name: &'static str, words: &'static str, server: Server, count: u64) -> Kind {
    Kind {
        name,
        group: "closed",
        server,
        words,
        count,
        headline: &[Figure::Throughput],
    }
}

const fn open(name: &'static str, words: &'static str, server: Server) -> Kind {
    Kind {
        group: "open",
        headline: &[Figure::P99],
        ..closed(name, words, server, 0)
    }
}

const fn spread(name: &'static str, words: &'static str) -> Kind {
    Kind {
        group: "spread",
        headline: &[Figure::Throughput, Figure::P99],
        ..closed(name, words, Server::Slow, 0)
    }
}

/// None of them has its generators at their limit by itself.
pub(super) static KINDS: &[Kind] = &[
    closed(
        "stream, tasks",
        "stream TARGET -n COUNT -w 1 --as tasks PLACE",
        Server::Lockd,
        50_000,
    ),
    closed(
        "stream, processes",
        "stream TARGET -n COUNT -w 1 --as processes PLACE",
        Server::Lockd,
        50_000,
    ),
    closed(
        "stream, unplaced",
        "stream TARGET -n COUNT -w 1 --as tasks",
        Server::Lockd,
        50_000,
    ),
    closed(
        "contend, tasks",
        "contend TARGET -w 4 -b 100us -i 0 --as tasks WINDOW PLACE",
        Server::Lockd,
        0,
    ),
    closed(
        "contend, processes",
        "contend TARGET -w 4 -b 100us -i 0 --as processes WINDOW PLACE",
        Server::Lockd,
        0,
    ),
    open(
        "rate",
        "rate TARGET --rate 5000 -w 16 WINDOW PLACE",
        Server::Lockd,
    ),
    // At more than a fifth of what it can do, its p99 is what the machine's own
    // hiccups make it, from run to run by a factor of ten.
    open(
        "rate, slow server",
        "rate TARGET --rate 2000 -w 16 WINDOW PLACE",
        Server::Slow,
    ),
    closed(
        "stream, http",
        "stream TARGET -n COUNT -w 1 --connection keep PLACE",
        Server::Nginx,
        8_000,
    ),
    open(
        "rate, http",
        "rate TARGET --rate 2000 -w 16 --connection keep WINDOW PLACE",
        Server::Nginx,
    ),
    spread(
        "spread, one each",
        "spread TARGET --in-flight 2 --generators 2 WINDOW PLACE",
    ),
    spread(
        "spread, queue",
        "spread TARGET --in-flight 8 --generators 2 WINDOW PLACE",
    ),
];

impl Kind {
    pub(super) fn of(name: &str) -> Option<&'static Kind> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// The words that follow `jostle`.
    pub(super) fn line(&self, target: &str, cpu: usize, short: bool) -> Vec<String> {
        // A second or a little more: checks of the machine's ticks want 200 of them, and two
        // CPUs have as many in a second. Many users have two fifths of that.
        let (seconds, count) = match short {
            false => (1.05, self.count),
            true => (0.4, self.count * 2 / 5),
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

    /// What can be planted in it.
    pub(super) fn plants(&self) -> impl Iterator<Item = Planted> {
        let own_quota = self.group == "spread";
        Plant::ALL
            .into_iter()
            .filter(move |plant| own_quota || *plant != Plant::Quota)
            .flat_map(|plant| DOSES.map(|dose| Planted { plant, dose }))
    }
}

/// How generators are kept from working.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Plant {
    /// A CPU quota on jostle's control group; the server is in another.
    Throttle,
    /// A quota on each generator of `spread`, by its own option.
    Quota,
    /// A program that never sleeps on the generators' CPU, of such a weight.
    Starve,
    /// SIGSTOP and SIGCONT, in turn.
    Pause,
}

impl Plant {
    const ALL: [Plant; 4] = [Plant::Throttle, Plant::Quota, Plant::Starve, Plant::Pause];

    pub(super) fn name(self) -> &'static str {
        match self {
            Plant::Throttle => "throttled",
            Plant::Quota => "generators throttled",
            Plant::Starve => "starved",
            Plant::Pause => "paused",
        }
    }
}

/// Shares of what the generators would use that are taken from them.
pub(super) const DOSES: [u32; 6] = [5, 10, 20, 40, 60, 80];

/// What is planted in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Planted {
    pub plant: Plant,
    /// In per cent.
    pub dose: u32,
}

/// In which a generator is stopped once.
const CYCLE_MS: u32 = 40;

/// Longer than any run.
const LIFE_S: u32 = 60;

impl Planted {
    fn share(self) -> f64 {
        f64::from(self.dose) / 100.0
    }

    /// What plants it: `jostle` is the program, `used` the CPUs' worth of time that it
    /// used when left alone, `quota` says which file limits it and what says so.
    pub(super) fn means(
        self,
        jostle: &str,
        cpu: usize,
        used: f64,
        quota: impl Fn(f64) -> (String, String),
    ) -> Means {
        let left = used * (1.0 - self.share());
        let during = match self.plant {
            Plant::Quota => {
                // Each of the two.
                let each = (left / 2.0).max(0.01);
                return Means::Options(["--generator-cpu".to_owned(), format!("{each:.4}")]);
            }
            Plant::Throttle => {
                let (file, text) = quota(left);
                format!("sh -c 'echo {text} > {file}; exec sleep {LIFE_S}'")
            }
            Plant::Starve => {
                return Means::Beside(format!("burn 1 {cpu} 100 {}", niceness(self.share())));
            }
            Plant::Pause => {
                let stopped = CYCLE_MS * self.dose / 100;
                let running = CYCLE_MS - stopped;
                format!("{jostle} disturb pause {stopped} {running} {{pids}}")
            }
        };
        Means::Options(["--during".to_owned(), during])
    }
}

/// What plants a fault.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Means {
    /// Options of jostle.
    Options([String; 2]),
    /// A disturbance that jostle knows nothing of: what `--during` starts is booked to
    /// jostle itself.
    Beside(String),
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
    }

    #[test]
    fn kinds_have_names_of_their_own_and_known_groups() {
        let names: BTreeSet<_> = KINDS.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), KINDS.len());
        for kind in KINDS {
            assert!(["closed", "open", "spread"].contains(&kind.group));
            let plants = if kind.group == "spread" { 4 } else { 3 };
            assert_eq!(kind.plants().count(), plants * DOSES.len());
        }
    }

    #[test]
    fn a_short_run_has_two_fifths_of_the_operations_or_of_the_window() {
        let line = |nth: usize, short| KINDS[nth].line("TO", 1, short).join(" ");
        let stream = "stream TO -n 20000 -w 1 --as tasks --place cpus:1 --runs 1";
        assert_eq!(line(0, true), stream);
        assert!(line(0, false).contains("-n 50000 "));
        assert!(line(3, true).contains("-t 0.4 "));
        for kind in KINDS {
            let words = kind.words;
            assert!(words.contains(" TARGET "));
            assert_ne!(words.contains("COUNT"), words.contains("WINDOW"));
            assert_eq!(words.contains("COUNT"), kind.count > 0, "{}", kind.name);
        }
    }

    #[test]
    fn every_plant_takes_its_dose_of_what_was_used() {
        let text = |plant, dose| {
            let quota = |cpus: f64| ("FILE".to_owned(), format!("{:.0}", cpus * 100_000.0));
            match (Planted { plant, dose }).means("jostle", 3, 0.5, quota) {
                Means::Options(options) => options.join(" "),
                Means::Beside(how) => how,
            }
        };
        let throttled = "--during sh -c 'echo 30000 > FILE; exec sleep 60'";
        assert_eq!(text(Plant::Throttle, 40), throttled);
        assert_eq!(text(Plant::Quota, 40), "--generator-cpu 0.1500");
        let paused = "--during jostle disturb pause 16 24 {pids}";
        assert_eq!(text(Plant::Pause, 40), paused);
        assert_eq!(text(Plant::Starve, 40), "burn 1 3 100 2");
    }
}
