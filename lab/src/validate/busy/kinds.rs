//! What is measured beside a hog, and which hogs there are.

use jostle_model::record::Point;
use jostle_testbed::servers::Server;
use serde::{Deserialize, Serialize};

/// What each run should measure. Shorter ones would not see eight turns of a hog.
pub(super) const SPAN_S: f64 = 0.25;

/// The figure that a neighbour may have moved, as a rate: a bound speaks of rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speed {
    /// Operations a second.
    Throughput,
    /// One over the mean service: an open loop's throughput is what was planned.
    Service,
}

impl Speed {
    pub(super) fn of(self, point: &Point) -> Option<f64> {
        let speed = match self {
            Speed::Throughput => point.throughput_per_s,
            Speed::Service => 1e9 / point.service_ns.as_ref()?.mean,
        };
        (speed.is_finite() && speed > 0.0).then_some(speed)
    }
}

/// A command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// As it stands in the file.
    pub name: String,
    /// Verb and target: a cell of what is required is one of these at one dose.
    pub workload: String,
    /// Who answers; None: a lock, or what jostle starts itself.
    pub server: Option<Server>,
    /// The words that follow `jostle`; TARGET, CPU (the workers'), COUNT (operations
    /// that take [`SPAN_S`]) and WINDOW are filled in.
    words: String,
    pub speed: Speed,
}

/// All of them.
pub(super) fn kinds() -> Vec<Kind> {
    contended().chain(others()).collect()
}

fn contended() -> impl Iterator<Item = Kind> {
    let each = ["flock", "futex", "sysv"].into_iter().flat_map(|lock| {
        let holds = [2, 10].into_iter().flat_map(|w| [(w, "0"), (w, "1ms")]);
        holds.flat_map(move |(w, hold)| ["none", "same"].map(|place| (lock, w, hold, place)))
    });
    each.map(|(lock, workers, hold, place)| Kind {
        name: format!("contend {lock}, {workers} workers, hold {hold}, placed {place}"),
        workload: format!("contend {lock}"),
        server: None,
        words: format!("contend {lock} -w {workers} -b {hold} -i 0 --place {place} WINDOW"),
        speed: Speed::Throughput,
    })
}

fn others() -> impl Iterator<Item = Kind> {
    use Server::{Lockd, Nginx};
    use Speed::{Service, Throughput};
    const PLACE: &str = "--place cpus:CPU";
    let table = [
        (
            "stream lockd",
            Some(Lockd),
            Throughput,
            "stream TARGET -n COUNT -w 1 --as tasks",
        ),
        (
            "stream http",
            Some(Nginx),
            Throughput,
            "stream TARGET -n COUNT -w 1 --connection keep",
        ),
        (
            "rate lockd",
            Some(Lockd),
            Service,
            "rate TARGET --rate 1000 -w 16 WINDOW",
        ),
        (
            "spread lockd",
            Some(Lockd),
            Throughput,
            "spread TARGET --in-flight 8 --generators 2 WINDOW",
        ),
        (
            "hold lockd",
            Some(Lockd),
            Throughput,
            "hold TARGET --keys COUNT -w 1",
        ),
        (
            "call",
            None,
            Throughput,
            "call true -n COUNT -w 1 --null none",
        ),
    ];
    let placed = table.map(|(name, server, speed, words)| Kind {
        name: name.to_owned(),
        workload: name.to_owned(),
        server,
        words: format!("{words} {PLACE}"),
        speed,
    });
    // Its clients have the first CPU by default. Ports that wait for their end would
    // run out after a few sweeps.
    let connect = Kind {
        name: "connect".to_owned(),
        workload: "connect".to_owned(),
        server: None,
        words: "connect tcp --open COUNT --sources 1 --close rst".to_owned(),
        speed: Throughput,
    };
    placed.into_iter().chain([connect])
}

impl Kind {
    /// Operations of the first run of a kind that ends with its operations; None: it
    /// ends with its window.
    pub(super) fn first_count(&self) -> Option<u64> {
        self.words.contains("COUNT").then_some(200)
    }

    /// How many take [`SPAN_S`], after a run of `count`. Sweeps of connections keep
    /// far from the ephemeral ports' end.
    pub(super) fn next_count(&self, count: u64, took_s: f64) -> u64 {
        let most = if self.workload == "connect" {
            10_000
        } else {
            1_000_000
        };
        let next = count as f64 * SPAN_S / took_s.max(1e-4);
        (next as u64).clamp(20, most)
    }

    /// The words that follow `jostle`.
    pub(super) fn line(&self, target: &str, cpu: usize, count: u64) -> Vec<String> {
        let fill = |word: &str| match word {
            "TARGET" => target.to_owned(),
            "COUNT" => count.to_string(),
            word => word.replace("CPU", &cpu.to_string()),
        };
        let window = format!("-t {SPAN_S} --warmup 0.03");
        let words = self.words.replace("WINDOW", &window) + " --runs 1";
        words.split_whitespace().map(fill).collect()
    }
}

/// Where a hog runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Beside {
    /// On the first CPU, which the workers have where they are placed.
    Workers,
    /// On the last CPU, which the server has where there is one.
    Other,
}

impl Beside {
    pub(crate) const ALL: [Beside; 2] = [Beside::Workers, Beside::Other];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Beside::Workers => "workers' CPU",
            Beside::Other => "other CPU",
        }
    }
}

/// Per cent of one CPU that a hog uses.
pub(super) const DOSES: [u64; 5] = [5, 10, 20, 40, 80];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn three_hundred_trials_and_a_few_with_names_of_their_own() {
        let kinds = kinds();
        let names: BTreeSet<_> = kinds.iter().map(|kind| &kind.name).collect();
        assert_eq!(names.len(), kinds.len());
        assert!(kinds.len() * Beside::ALL.len() * DOSES.len() >= 300);
    }

    #[test]
    fn words_are_filled_in() {
        let line = |nth: usize| kinds()[nth].line("lockd://x", 3, 70).join(" ");
        assert_eq!(
            line(0),
            "contend flock -w 2 -b 0 -i 0 --place none -t 0.25 --warmup 0.03 --runs 1"
        );
        assert_eq!(
            line(24),
            "stream lockd://x -n 70 -w 1 --as tasks --place cpus:3 --runs 1"
        );
        let all = kinds();
        let blanks = |kind: &Kind| kind.line("x", 0, 1).join(" ").contains(char::is_uppercase);
        assert!(!all.iter().any(blanks));
    }

    #[test]
    fn counts_are_those_that_take_the_span() {
        let all = kinds();
        let counted: Vec<&Kind> = all
            .iter()
            .filter(|kind| kind.first_count().is_some())
            .collect();
        assert_eq!(counted.len(), 5);
        assert_eq!(counted[0].next_count(200, 0.01), 5_000);
        assert_eq!(counted[0].next_count(200, 100.0), 20);
        let connect = counted.iter().find(|kind| kind.name == "connect").unwrap();
        assert_eq!(connect.next_count(200, 0.0001), 10_000);
    }

    #[test]
    fn an_open_loop_s_speed_is_that_of_its_service() {
        use jostle_model::record::Distribution;
        let mut point = Point {
            throughput_per_s: 50.0,
            ..Point::default()
        };
        assert_eq!(Speed::Throughput.of(&point), Some(50.0));
        assert_eq!(Speed::Service.of(&point), None);
        point.service_ns = Some(Distribution {
            mean: 1e6,
            ..Distribution::default()
        });
        assert_eq!(Speed::Service.of(&point), Some(1_000.0));
    }
}
