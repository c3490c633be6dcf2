//! The headline table: one row for each point, and the notes at its foot.

use crate::columns::{
    Column, HALF_INTERVAL, NETWORK, PLUS_MINUS, ROUND_TRIPS, Shown, TARGET, UNDISTURBED, WORKERS,
    WORKERS_AND_NAMES, always, cpu, figure, half_interval, longest_wait, measured_by, median,
    micros, once, one_bound, server_cpu, three, throughput, two,
};
use crate::footnotes::Footnotes;
use crate::format::{grouped, percent, significant};
use crate::grid::{Grid, Heading};
use crate::requests::{self, named_once};
use crate::workloads::shown;
use jostle_stats::figures;
use jostle_stats::summary::PointSummary;

/// The table and what its notes say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Headline {
    /// All columns, of which a terminal shows some. The verdicts refer to `notes` as `[1,2]`.
    pub(crate) grid: Grid,
    /// Reasons of the verdicts, grouped by their rows.
    pub(crate) notes: Vec<String>,
}

/// The least share of the time in which a lock is free while it is waited for that the table
/// prints: hand-offs alone reach a twentieth with holds of a millisecond. The csv has each.
const WORTH_A_CELL: f64 = 0.1;

/// The columns of `contend`.
pub(crate) static COLUMNS: &[Column] = &[
    TARGET,
    WORKERS,
    once(["alone", "ns"], |point| {
        Some(significant(point.own_cost?.pair_ns, 2))
    })
    .detail(),
    throughput(["", "locks/s"]),
    HALF_INTERVAL,
    UNDISTURBED,
    median(["", "of max"], figures::OF_IDEAL, percent).rank(8),
    figure(["idle though", "wanted"], |point| {
        let share = point.median(figures::FREE)?;
        (share >= WORTH_A_CELL).then(|| percent(share))
    })
    .detail(),
    figure(["longest", "wait"], longest_wait).rank(3),
    figure(["turns per", "worker"], |point| {
        let turns = point.per_worker.as_ref()?;
        let (min, max) = (grouped(turns.min), grouped(turns.max));
        Some(match turns.min == turns.max {
            true => min,
            false => format!("{min}..{max}"),
        })
    })
    .rank(1),
    figure(["got", "none"], |point| {
        point.per_worker.as_ref().map(|turns| grouped(turns.none))
    })
    .rank(6),
    cpu(["CPU us", "/lock"]),
    server_cpu(["server", "us/lock"]),
    ROUND_TRIPS,
    NETWORK,
];

/// The columns of workloads whose runs end with their operations.
pub(crate) static COUNTED: &[Column] = &[
    TARGET,
    WORKERS_AND_NAMES,
    always(["", "n"], |point| {
        point.at.operations.or(point.at.keys).map(grouped)
    }),
    throughput(["", "ops/s"]),
    HALF_INTERVAL,
    UNDISTURBED,
    // The Open Lock Daemon's notes have the average of their runs.
    figure(["mean", "ops/s"], |point| {
        let mean = point.throughput_mean_per_s.map(three);
        mean.filter(|_| point.runs.len() > 1)
    })
    .detail(),
    figure(["of", "echo"], |point| Some(percent(point.of_echo?.ratio))).rank(3),
    median(["", "waited"], figures::BLOCKED, percent).rank(7),
    median(["hand-off", "us"], figures::HANDOFF_P50, micros).rank(8),
    median(["acquire", "p50 us"], figures::ACQUIRE_P50, micros).rank(1),
    median(["", "p99 us"], figures::ACQUIRE_P99, micros).rank(2),
    median(["release", "us"], figures::RELEASE_P50, micros).rank(6),
    median(["batch", "p50 us"], figures::BATCH_P50, micros).rank(1),
    median(["", "p99 us"], figures::BATCH_P99, micros).rank(2),
    cpu(["CPU us", "/op"]),
    server_cpu(["server", "us/op"]),
    ROUND_TRIPS,
    NETWORK,
    median(["bytes", "/lock"], figures::HELD_BYTES, two).rank(1),
];

/// Columns that belong to the one before them stand close to it, since lines
/// are long enough.
const CLOSE: [&str; 6] = ["workers", PLUS_MINUS, "none", "open", "addrs", "server"];

/// Columns that tell one row from the others, under their lower titles.
const KEYS: [&str; 7] = [
    "target", "workers", "n", "addrs", "open", "listen", "rators",
];

/// One row for each summary. None without any.
pub(crate) fn headline(points: &[PointSummary<'_>]) -> Option<Headline> {
    if points.is_empty() {
        return None;
    }
    let measured = |column: &&Column| points.iter().any(|point| column.of(point).is_some());
    let all = (shown(points[0].workload).columns)(points);
    let none_listen = points.iter().all(|p| p.at.listeners.unwrap_or(0) == 0);
    let columns: Vec<&Column> = all
        .iter()
        .filter(measured)
        .filter(|column| column.title[1] != "listen" || !none_listen)
        .collect();
    let is_key =
        |column: &&&Column| KEYS.contains(&column.title[1]) || column.title[0] == "offered";
    let keys = columns.iter().take_while(is_key).count();
    let headings = columns.iter().map(|column| heading(column, points));
    let mut headings: Vec<Heading> = headings
        .enumerate()
        .map(|(at, heading)| Heading {
            key: at < keys,
            ..heading
        })
        .collect();
    headings.push(Heading::left("verdict"));
    let notes = Footnotes::number(points);
    let mut rows = Vec::new();
    for (at, (name, point)) in named_once(points).enumerate() {
        let first = !name.is_empty();
        let mut row: Vec<String> = columns.iter().map(|c| cell(c, point, first)).collect();
        row.push(format!("{}{}", point.verdict.is, notes.marks(at)));
        rows.push(row);
    }
    Some(Headline {
        grid: Grid {
            columns: headings,
            rows,
        },
        notes: notes.texts(),
    })
}

fn heading(column: &Column, points: &[PointSummary<'_>]) -> Heading {
    let [upper, lower] = column.title;
    let titles = match requests::are(points) {
        true => [upper, lower].map(|typed| requests::title(typed, points)),
        false => [upper, lower].map(str::to_owned),
    };
    Heading {
        left: ["target", "fault"].contains(&lower),
        close: CLOSE.contains(&lower),
        rank: column.rank,
        ..match lower {
            PLUS_MINUS => Heading::right(upper, of_what(points)),
            _ => Heading::right(&titles[0], &titles[1]),
        }
    }
}

fn cell(column: &Column, point: &PointSummary<'_>, first: bool) -> String {
    let text = match column.shown {
        Shown::Once if !first => return String::new(),
        Shown::UnlessInvalid if !point.is_usable() => None,
        Shown::OrOneBound if !point.is_usable() => one_bound(point),
        _ => column.of(point),
    };
    text.unwrap_or_else(|| "-".to_owned())
}

/// What `±` is half of: the median's interval of 95 %, the range over the runs where there are
/// under six, or one or the other.
fn of_what(points: &[PointSummary<'_>]) -> &'static str {
    let shown = |point: &&PointSummary<'_>| point.is_usable() && half_interval(point).is_some();
    let intervals = points.iter().filter(shown);
    let mut intervals = intervals.filter_map(|point| Some(measured_by(point)?.interval));
    let Some(first) = intervals.next() else {
        return PLUS_MINUS;
    };
    match (first, intervals.all(|other| other == first)) {
        (true, true) => "±95%",
        (false, true) => "±range",
        _ => PLUS_MINUS,
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::ResultSet;
    use crate::made;
    use jostle_model::record::{Server, ServerTraffic};
    use jostle_stats::summary::summarize;

    fn headline_of(set: &ResultSet) -> Headline {
        headline(&summarize(&set.experiment, &set.runs)).unwrap()
    }

    fn column<'a>(headline: &'a Headline, lower: &str) -> Vec<&'a str> {
        let mut headings = headline.grid.columns.iter();
        let at = headings.position(|h| h.title[1] == lower).unwrap();
        headline
            .grid
            .rows
            .iter()
            .map(|row| row[at].as_str())
            .collect()
    }

    #[test]
    fn columns_that_were_not_measured_are_left_out() {
        let titles = |set: &ResultSet| -> Vec<String> {
            let columns = headline_of(set).grid.columns;
            columns.into_iter().map(|c| c.title[1].clone()).collect()
        };
        let mut served = made::set();
        served.runs.iter_mut().for_each(|run| {
            run.server = Some(Server {
                cpu_us_per_operation: Some(13.0),
                ..Server::default()
            });
            run.traffic = Some(ServerTraffic {
                grants: 100,
                round_trips: 200,
                bytes: 6_400,
                failovers: None,
            });
        });
        let all = titles(&served);
        // Nobody disturbed it, and it was not polled.
        assert_eq!(all.len(), COLUMNS.len() - 1);
        let counts = titles(&made::counts_only());
        let gone: Vec<_> = all.iter().filter(|t| !counts.contains(t)).collect();
        // A single run has no spread either.
        let without = ["±95%", "of max", "wait", "us/lock", "trips", "B/lock"];
        assert_eq!(gone, without);
    }

    #[test]
    fn the_time_for_which_a_polled_lock_is_free_has_a_column() {
        let mut set = made::set();
        let polled = set.runs[0].target.clone();
        for run in set.runs.iter_mut().filter(|run| run.target == polled) {
            // Found free after as long as it is held.
            run.times.handoff_ns = run.times.hold_ns.clone();
            run.throughput_per_s = 500.0;
        }
        let rows = headline_of(&set);
        let cells = column(&rows, "wanted");
        let targets: Vec<String> = summarize(&set.experiment, &set.runs)
            .iter()
            .map(|point| point.target.to_owned())
            .collect();
        for (cell, target) in cells.iter().zip(targets) {
            // That of a queue is left out: 5 us.
            let expected = if target == polled { "50 %" } else { "-" };
            assert_eq!(*cell, expected, "{target}: {cells:?}");
        }
    }

    #[test]
    fn equal_reasons_share_a_note() {
        let headline = headline_of(&made::set());
        assert_eq!(
            column(&headline, "verdict"),
            ["VALID", "SUSPECT[1]", "VALID", "SUSPECT[1]"]
        );
        let mut set = made::set();
        for run in &mut set.runs {
            if run.at.workers == Some(1000) {
                made::share_out(run, &[4; 1000]);
            }
        }
        assert_eq!(headline_of(&set).notes.len(), 1);
        assert_eq!(
            column(&headline_of(&set), "verdict"),
            ["VALID", "SUSPECT[1]", "VALID", "SUSPECT[1]"]
        );
    }

    #[test]
    fn no_figure_of_an_invalid_point_can_be_copied() {
        let headline = headline_of(&made::broken());
        for (column, heading) in headline.grid.columns.iter().enumerate() {
            let cell = headline.grid.rows[0][column].as_str();
            match heading.title[1].as_str() {
                "target" => assert_eq!(cell, "busted"),
                "workers" => assert_eq!(cell, "10"),
                "verdict" => assert_eq!(cell, "INVALID[1]"),
                // Measured by itself, before.
                "ns" => assert_eq!(cell, "508"),
                _ => assert_eq!(cell, "-"),
            }
        }
    }

    #[test]
    fn the_spread_is_an_interval_from_six_runs_on() {
        let runs = |least: u32| {
            let mut set = made::set();
            set.runs.retain(|run| run.run <= least);
            headline_of(&set)
        };
        let spread = |table: &Headline| {
            let titles = table.grid.columns.iter().map(|c| c.title[1].clone());
            titles
                .filter(|title| title.starts_with(PLUS_MINUS))
                .collect::<Vec<_>>()
        };
        assert_eq!(spread(&runs(6)), ["±95%"]);
        assert_eq!(spread(&runs(5)), ["±range"]);
        assert!(spread(&runs(1)).is_empty());
    }
}
