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

/// How long runs last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// A second or a little more: checks of the machine's ticks want 200 of them, and
    /// two CPUs have as many in a second.
    Usual,
    /// Two fifths of that, as many users have them.
    Short,
}

impl Length {
    fn window(self) -> &'static str {
        match self {
            Length::Usual => "-t 1.05 --warmup 0.1",
            Length::Short => "-t 0.4 --warmup 0.1",
        }
    }

    /// Operations that take as long, of so many that take the usual time.
    fn count(self, usual: u64) -> u64 {
        match self {
            Length::Usual => usual,
            Length::Short => usual * 2 / 5,
        }
    }
}

/// A command line.
pub(super) struct Kind {
    /// As it stands in the record.
    pub name: &'static str,
    /// Whose row it is counted in.
    pub group: &'static str,
    pub server: Server,
    /// The verb, and what follows the target.
    pub words: (&'static str, &'static str),
    /// Operations of a run of the usual length; 0: it has a window.
    pub count: u64,
    /// Whether the generators keep to their CPU, or go where the scheduler puts them.
    pub is_placed: bool,
    pub headline: &'static [Figure],
}

/// None of them has its generators at their limit by itself.
pub(super) static KINDS: &[Kind] = &[
    Kind {
        name: "stream, tasks",
        group: "closed",
        server: Server::Lockd,
        words: ("stream", "-n COUNT -w 1 --as tasks"),
        count: 50_000,
        is_placed: true,
        headline: &[Figure::Throughput],
    },
    Kind {
        name: "stream, processes",
        group: "closed",
        server: Server::Lockd,
        words: ("stream", "-n COUNT -w 1 --as processes"),
        count: 50_000,
        is_placed: true,
        headline: &[Figure::Throughput],
    },
    Kind {
        name: "stream, unplaced",
        group: "closed",
        server: Server::Lockd,
        words: ("stream", "-n COUNT -w 1 --as tasks"),
        count: 50_000,
        is_placed: false,
        headline: &[Figure::Throughput],
    },
    Kind {
        name: "contend, tasks",
        group: "closed",
        server: Server::Lockd,
        words: ("contend", "-w 4 -b 100us -i 0 --as tasks WINDOW"),
        count: 0,
        is_placed: true,
        headline: &[Figure::Throughput],
    },
    Kind {
        name: "contend, processes",
        group: "closed",
        server: Server::Lockd,
        words: ("contend", "-w 4 -b 100us -i 0 --as processes WINDOW"),
        count: 0,
        is_placed: true,
        headline: &[Figure::Throughput],
    },
    Kind {
        name: "rate",
        group: "open",
        server: Server::Lockd,
        words: ("rate", "--rate 5000 -w 16 WINDOW"),
        count: 0,
        is_placed: true,
        headline: &[Figure::P99],
    },
    // At more than a fifth of what it can do, its p99 is what the machine's own
    // hiccups make it, from run to run by a factor of ten.
    Kind {
        name: "rate, slow server",
        group: "open",
        server: Server::Slow,
        words: ("rate", "--rate 2000 -w 16 WINDOW"),
        count: 0,
        is_placed: true,
        headline: &[Figure::P99],
    },
    Kind {
        name: "stream, http",
        group: "closed",
        server: Server::Nginx,
        words: ("stream", "-n COUNT -w 1 --connection keep"),
        count: 8_000,
        is_placed: true,
        headline: &[Figure::Throughput],
    },
    Kind {
        name: "rate, http",
        group: "open",
        server: Server::Nginx,
        words: ("rate", "--rate 2000 -w 16 --connection keep WINDOW"),
        count: 0,
        is_placed: true,
        headline: &[Figure::P99],
    },
    Kind {
        name: "spread, one each",
        group: "spread",
        server: Server::Slow,
        words: ("spread", "--in-flight 2 --generators 2 WINDOW"),
        count: 0,
        is_placed: true,
        headline: &[Figure::Throughput, Figure::P99],
    },
    Kind {
        name: "spread, queue",
        group: "spread",
        server: Server::Slow,
        words: ("spread", "--in-flight 8 --generators 2 WINDOW"),
        count: 0,
        is_placed: true,
        headline: &[Figure::Throughput, Figure::P99],
    },
];

impl Kind {
    pub(super) fn of(name: &str) -> Option<&'static Kind> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// The words that follow `jostle`.
    pub(super) fn line(&self, target: &str, cpu: usize, length: Length) -> Vec<String> {
        let (verb, options) = self.words;
        let count = length.count(self.count).to_string();
        let options = options
            .replace("WINDOW", length.window())
            .replace("COUNT", &count);
        let place = match self.is_placed {
            true => format!("--place cpus:{cpu}"),
            false => String::new(),
        };
        format!("{verb} {target} {options} {place} --runs 1")
            .split_whitespace()
            .map(str::to_owned)
            .collect()
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
        let line = |nth: usize, length| KINDS[nth].line("TARGET", 1, length).join(" ");
        let stream = "stream TARGET -n 20000 -w 1 --as tasks --place cpus:1 --runs 1";
        assert_eq!(line(0, Length::Short), stream);
        assert!(line(0, Length::Usual).contains("-n 50000 "));
        assert!(line(3, Length::Short).contains("-t 0.4 "));
        for kind in KINDS {
            let options = kind.words.1;
            assert_ne!(options.contains("COUNT"), options.contains("WINDOW"));
            assert_eq!(options.contains("COUNT"), kind.count > 0, "{}", kind.name);
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
