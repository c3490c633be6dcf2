//! Requests spread over generators in the formats for people: the columns of `spread`, and its
//! tables: operations as CERN's study of OpenLDAP printed them, slow answers, and response against
//! time.

use crate::closing::spread::rival;
use crate::columns::{
    Column, HALF_INTERVAL, TARGET, UNDISTURBED, always, cpu, figure, one_bound, server_cpu,
};
use crate::format::{grouped, percent, significant};
use crate::grid::{Heading, Titled};
use crate::over::{over_time, pooled};
use crate::requests::{named_once, short};
use jostle_model::Nanos;
use jostle_model::plan::Workload;
use jostle_model::record::{LimitedBy, Run};
use jostle_stats::bursts;
use jostle_stats::figures;
use jostle_stats::spread::busy;
use jostle_stats::summary::PointSummary;

/// The columns of `spread`.
pub(crate) static COLUMNS: &[Column] = &[
    TARGET,
    always(["gene-", "rators"], |point| {
        point.at.generators.map(grouped)
    }),
    always(["requests", "/s"], |point| {
        rate(point).or(Some("-".to_owned()))
    }),
    HALF_INTERVAL,
    UNDISTURBED,
    always(["in", "flight"], |point| {
        Some(significant(point.median(figures::IN_FLIGHT)?, 3))
    })
    .rank(6),
    always(["at the", "server"], |point| {
        Some(significant(point.median(figures::AT_SERVER)?, 2))
    })
    .rank(7),
    always(["gen.", "busy"], |point| {
        Some(percent(busy(point)?.min(1.0)))
    })
    .rank(1),
    figure(["response", "p50 ms"], |point| {
        millis(point, point.median(figures::RESPONSE_P50)?)
    })
    .rank(2),
    figure(["", "p99 ms"], |point| {
        millis(point, point.median(figures::RESPONSE_P99)?)
    })
    .rank(2),
    cpu(["CPU us", "/req."]).rank(5),
    server_cpu(["server", "us/req."]),
    always(["", "limit"], |point| {
        Some(match point.limited_by()? {
            LimitedBy::Generator if rival(point).is_some() => "?".to_owned(),
            LimitedBy::Generator => "generator".to_owned(),
            LimitedBy::Target => "server".to_owned(),
            LimitedBy::Path => "path".to_owned(),
            LimitedBy::Machine => "machine".to_owned(),
            LimitedBy::Undecided => "?".to_owned(),
        })
    }),
];

/// The rate. It is a lower bound if the generators are the bottleneck.
fn rate(point: &PointSummary<'_>) -> Option<String> {
    match point.is_usable() && !point.is_of_generators() {
        true => Some(significant(point.median(figures::THROUGHPUT)?, 3)),
        false => one_bound(point),
    }
}

/// A latency; none if the generator is the bottleneck, because the latency is then the
/// generator's own.
fn millis(point: &PointSummary<'_>, nanos: f64) -> Option<String> {
    point
        .times_are_usable()
        .then(|| significant(nanos / 1e6, 2))
}

/// Tables below the headline, each under its title.
pub(crate) fn tables(times: &[Nanos], points: &[PointSummary<'_>]) -> Vec<Titled> {
    let points = points.iter();
    let points = points.filter(|point| point.workload == Workload::Spread);
    let points: Vec<&PointSummary<'_>> = points.collect();
    if points.is_empty() {
        return Vec::new();
    }
    let mut tables = vec![operations(
        "Operations within the window, of the run of median rate, with the total's difference to \
         the line before; what the server counted in the whole run, and the difference to the \
         generators' count:",
        &points,
    )];
    if !times.is_empty() {
        tables.push(slow(times, &points));
    }
    let title = format!(
        "Mean response in ms, in each tenth of the window (* a burst: over {} times the median \
         tenth; same run):",
        bursts::TIMES
    );
    tables.push(along(&title, &points));
    tables.retain(|table| table.grid.has_figures());
    tables
}

/// CERN's table; an INVALID point has a row without counts.
fn operations(title: &str, points: &[&PointSummary<'_>]) -> Titled {
    let names = names(points);
    let mut columns = columns(names.iter().map(|name| Heading::right("", name)));
    columns.push(Heading::right("", "total"));
    columns.push(Heading::right("", "(difference)"));
    let mut runs = points.iter().flat_map(|point| &point.runs);
    let binds = runs.any(|run| run.server.is_some_and(|server| server.binds.is_some()));
    if binds {
        columns.push(Heading::right("server", "binds"));
    }
    columns.push(Heading::right("server", "counted"));
    columns.push(Heading::right("not ac-", "counted for"));
    let mut rows = Vec::new();
    let mut before: Option<u64> = None;
    for (name, point) in named_once(points.iter().copied()) {
        let Some(run) = point.median_run() else {
            continue;
        };
        let counts: Vec<Option<u64>> = names.iter().map(|name| count(run, name)).collect();
        let total: u64 = counts.iter().flatten().sum();
        let last = before.filter(|_| name.is_empty());
        let mut row = keys(name, point);
        if !point.is_usable() {
            row.resize(columns.len(), "-".to_owned());
            rows.push(row);
            before = None;
            continue;
        }
        row.extend(counts.iter().map(|n| n.map_or("-".to_owned(), grouped)));
        row.push(grouped(total));
        row.push(last.map_or(String::new(), |last| {
            format!("({})", signed(total as i64 - last as i64))
        }));
        if binds {
            let binds = run.server.and_then(|server| server.binds);
            row.push(binds.map_or("-".to_owned(), grouped));
        }
        row.push(counted(run).map_or("-".to_owned(), grouped));
        row.push(apart(run).map_or("-".to_owned(), signed));
        rows.push(row);
        before = Some(total);
    }
    Titled::new(title, columns, rows).detail()
}

/// Phases that are separate operations for a server. Others, such as opening a connection,
/// are parts of an operation.
const OPERATIONS: [&str; 5] = ["acquire", "release", "bind", "search", "unbind"];

/// Where no phase is one.
const REQUESTS: &str = "requests";

/// The operations of all targets, each once.
fn names(points: &[&PointSummary<'_>]) -> Vec<&'static str> {
    let of = |name: &str| {
        let mut runs = points.iter().flat_map(|point| &point.runs);
        runs.any(|run| run.phases.iter().any(|phase| phase.phase == name))
    };
    let names: Vec<&str> = OPERATIONS.into_iter().filter(|name| of(name)).collect();
    match names.is_empty() {
        true => vec![REQUESTS],
        false => names,
    }
}

fn count(run: &Run, name: &str) -> Option<u64> {
    if name == REQUESTS {
        return Some(run.operations);
    }
    let phase = run.phases.iter().find(|phase| phase.phase == name)?;
    Some(phase.span.count)
}

fn counted(run: &Run) -> Option<u64> {
    run.server?.counted
}

fn apart(run: &Run) -> Option<i64> {
    run.server?.difference
}

fn signed(number: i64) -> String {
    match number {
        n if n < 0 => format!("-{}", grouped(n.unsigned_abs())),
        n => grouped(n.unsigned_abs()),
    }
}

/// The first columns of each table, and those that follow.
fn columns(others: impl IntoIterator<Item = Heading>) -> Vec<Heading> {
    let keys = [
        Heading::left("target").key(),
        Heading::right("gene-", "rators").key(),
    ];
    keys.into_iter().chain(others).collect()
}

/// The first cells of a row.
fn keys(name: &str, point: &PointSummary<'_>) -> Vec<String> {
    let generators = point.at.generators.map_or("-".to_owned(), grouped);
    vec![short(name), generators]
}

fn labelled<'a>(
    points: &[&PointSummary<'a>],
    cells: impl Fn(&PointSummary<'a>) -> Vec<String>,
) -> Vec<Vec<String>> {
    let rows = named_once(points.iter().copied());
    rows.map(|(name, point)| [keys(name, point), cells(point)].concat())
        .collect()
}

fn slow(times: &[Nanos], points: &[&PointSummary<'_>]) -> Titled {
    let columns = columns(times.iter().map(over_time));
    let rows = labelled(points, |point| {
        let share = |time: &Nanos| {
            let share = pooled(point, *time, |run| {
                Some(&run.spread.as_ref()?.response_ns.as_ref()?.granted)
            });
            let share = share.filter(|_| point.times_are_usable());
            share.map_or("-".to_owned(), percent)
        };
        times.iter().map(share).collect()
    });
    Titled::new("Share of the requests that took longer:", columns, rows)
}

fn along(title: &str, points: &[&PointSummary<'_>]) -> Titled {
    let most = points.iter().flat_map(|point| &point.runs);
    let slices = most.map(|run| run.series.len()).max().unwrap_or(0);
    let mut columns = columns((1..=slices).map(|nth| Heading::right("", &nth.to_string())));
    columns.push(Heading::right("runs with", "bursts"));
    let rows = labelled(points, |point| {
        let hidden = !point.times_are_usable();
        let run = point.median_run().filter(|_| !hidden);
        let course = run.map(bursts::along).unwrap_or_default();
        let mut cells: Vec<String> = (0..slices)
            .map(|slice| match course.get(slice).copied().flatten() {
                Some((mean, true)) => format!("{}*", significant(mean / 1e6, 2)),
                Some((mean, false)) => significant(mean / 1e6, 2),
                None => "-".to_owned(),
            })
            .collect();
        let bursting = point.timed.iter().filter(|run| {
            let course = bursts::along(run);
            course.iter().flatten().any(|(_, burst)| *burst)
        });
        cells.push(match hidden {
            true => "-".to_owned(),
            false => format!("{} of {}", bursting.count(), point.timed.len()),
        });
        cells
    });
    Titled::new(title, columns, rows).detail()
}

#[cfg(test)]
mod tests {
    use super::tables;
    use crate::{made, markdown, table};
    use jostle_stats::summary::summarize;

    #[test]
    fn weak_generators_and_strong_ones_as_people_see_them() {
        insta::assert_snapshot!(table::render(&[made::spread()]));
    }

    /// Two tables of dashes stood below.
    #[test]
    fn without_a_figure_there_is_no_table_below() {
        let mut set = made::spread();
        let of = |set: &crate::ResultSet| tables(&[], &summarize(&set.experiment, &set.runs));
        assert_eq!(of(&set).len(), 2);
        for run in &mut set.runs {
            run.around.machine.stolen_ticks = 1000;
        }
        assert_eq!(of(&set), []);
    }

    #[test]
    fn the_same_for_a_page() {
        insta::assert_snapshot!(markdown::render(&[made::spread()]));
    }
}
