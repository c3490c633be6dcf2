//! Latency over the sweep, all series in one drawing: the median with its interval,
//! and a percentile of the tail beside it. Above it stands where it rises: the knee
//! of an open loop, the cliff of connections.

use super::{
    BySpot, Cell, Chapter, Data, Drawing, LARGE, beside, chart, cross, draw_stretch, known, look,
    mark, overlaid, stretches,
};
use crate::closing::rate::knee;
use crate::connect::measured;
use crate::format::grouped;
use crate::html::chapter::{Series, Spot};
use crate::html::chart::{Chart, Look, Mark, Size};
use crate::html::units::Unit;
use jostle_model::record::Status;
use jostle_stats::figures;
use jostle_stats::open_loop;
use jostle_stats::summary::{Estimate, PointSummary};

const NANOS: Unit = Unit::Time(1.0);

/// Where a cliff begins: the factor from one swept value to the next.
const CLIFF: f64 = 3.0;

/// Rows of words above a drawing, at most.
const ROWS: usize = 4;

/// One line of a series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    /// `p50`
    pub name: &'static str,
    /// Of one point; None where it was not measured.
    pub of: fn(&PointSummary<'_>) -> Option<Reading>,
}

/// A percentile over the runs of a point, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    median: f64,
    /// Its interval; None where only the value is known.
    ends: Option<(f64, f64)>,
    /// Whether the true value lies above.
    at_least: bool,
}

impl Reading {
    fn from_estimate(estimate: Estimate) -> Reading {
        Reading {
            median: estimate.median,
            ends: (estimate.runs > 1).then_some((estimate.low, estimate.high)),
            at_least: false,
        }
    }

    /// The ends of its bar, which the axis has to have room for.
    fn reach(&self) -> impl Iterator<Item = f64> {
        self.ends.into_iter().flat_map(|(low, high)| [low, high])
    }

    fn words(&self) -> String {
        let at_least = if self.at_least { "at least " } else { "" };
        format!("{at_least}{}", NANOS.exact(self.median))
    }
}

/// A latency to draw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    /// Of the figure.
    pub title: &'static str,
    /// Below the title.
    pub note: &'static str,
    /// The first with marks and intervals, the others as thin lines.
    pub levels: &'static [Level],
    /// Of one series, where it rises: a word, and the swept values around it.
    pub rise: fn(&Series<'_>) -> Option<Rise>,
}

/// Where a latency rises.
#[derive(Clone, Debug)]
pub(crate) struct Rise {
    words: String,
    after: f64,
    /// As `after` where the rise begins at one value.
    before: f64,
}

/// Of operations of `stream`.
pub(crate) static OPERATION: Latency = Latency {
    title: "Time for one operation",
    note: "median and 99th percentile; lower is better",
    levels: &[
        Level {
            name: "p50",
            of: |point| {
                let known = point
                    .of(figures::ACQUIRE_P50)
                    .or(point.of(figures::BATCH_P50))
                    .or(point.of(figures::SERVICE_P50))?;
                Some(Reading::from_estimate(known))
            },
        },
        Level {
            name: "p99",
            of: |point| {
                let known = match point.of(figures::ACQUIRE_P50) {
                    Some(_) => point.of(figures::ACQUIRE_P99),
                    None => point
                        .of(figures::BATCH_P99)
                        .or(point.of(figures::SERVICE_P99)),
                };
                known.map(Reading::from_estimate)
            },
        },
    ],
    rise: |_| None,
};

/// Of locks that are taken while others are held.
pub(crate) static HOLDING: Latency = Latency {
    title: "Time to acquire and to release",
    note: "medians; lower is better",
    levels: &[
        Level {
            name: "acquire",
            of: |point| point.of(figures::ACQUIRE_P50).map(Reading::from_estimate),
        },
        Level {
            name: "release",
            of: |point| point.of(figures::RELEASE_P50).map(Reading::from_estimate),
        },
    ],
    rise: |_| None,
};

/// Of connect(), or of bind() where sockets are bound alone.
pub(crate) static CONNECTING: Latency = Latency {
    title: "Time to open one connection",
    note: "median and 99th percentile; lower is better",
    levels: &[
        Level {
            name: "p50",
            of: |point| measured(point).map(Reading::from_estimate),
        },
        Level {
            name: "p99",
            of: |point| point.of(figures::CONNECT_P99).map(Reading::from_estimate),
        },
    ],
    rise: cliff,
};

/// Of requests that come at a rate.
pub(crate) static RESPONDING: Latency = Latency {
    title: "Response time",
    note: "median and 99th percentile from the intended start; the knee is the highest rate \
           that holds",
    levels: &[
        Level {
            name: "p50",
            of: |point| response(point, "p50"),
        },
        Level {
            name: "p99",
            of: |point| response(point, "p99"),
        },
    ],
    rise: |series| {
        if let Some(limit) = series.found {
            let x = limit?;
            return Some(Rise {
                words: format!("limit {}/s", grouped(x as u64)),
                after: x,
                before: x,
            });
        }
        let points: Vec<&PointSummary<'_>> = series.spots.iter().map(|spot| &spot.point).collect();
        let spot = &series.spots[knee(&points)?];
        // A line says nothing of the doubts about its point.
        if spot.point.verdict.is != Status::Valid {
            return None;
        }
        let x = spot.x;
        // Where the last rate holds, the knee lies beyond what was tried.
        (x < series.spots.last()?.x).then(|| Rise {
            words: format!("knee {}/s", grouped(x as u64)),
            after: x,
            before: x,
        })
    },
};

fn response(point: &PointSummary<'_>, name: &str) -> Option<Reading> {
    let found = open_loop::response(&point.timed, name)?;
    Some(Reading {
        median: found.ns,
        ends: None,
        at_least: found.at_least,
    })
}

/// The greatest step of the median between neighbours, if it is one.
fn cliff(series: &Series<'_>) -> Option<Rise> {
    let level = |spot: &Spot<'_>| {
        let known = measured(&spot.point)?;
        spot.usable().then_some((spot.x, known.median))
    };
    let known: Vec<(f64, f64)> = series.spots.iter().filter_map(level).collect();
    let steps = known.windows(2).map(|pair| (pair[1].1 / pair[0].1, pair));
    let (factor, pair) = steps.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (factor >= CLIFF).then(|| Rise {
        words: format!("{}x", crate::format::significant(factor, 2)),
        after: pair[0].0,
        before: pair[1].0,
    })
}

/// The figure; None where nothing of it was measured.
pub(crate) fn figure(chapter: &Chapter<'_>, of: &Latency) -> Option<Drawing> {
    let all = known(chapter, |spot| {
        let levels = of.levels.iter().map(|level| (level.of)(&spot.point));
        spot.point
            .times_are_usable()
            .then(|| levels.collect::<Vec<_>>())
    });
    let measured = all.values().any(|levels| levels[0].is_some());
    measured.then(|| Drawing {
        title: of.title.to_owned(),
        note: of.note.to_owned(),
        charts: overlaid(chapter, LARGE, |size, shown| {
            draw(chapter, of, (&all, size), shown)
        }),
        data: table(chapter, of, &all),
    })
}

fn draw(
    chapter: &Chapter<'_>,
    of: &Latency,
    (all, size): (&BySpot<Vec<Option<Reading>>>, Size),
    shown: &[&Series<'_>],
) -> maud::Markup {
    let several = shown.len() > 1;
    let longest_level = of
        .levels
        .iter()
        .map(|level| level.name.len())
        .max()
        .unwrap_or(0);
    let longest = match (chapter.sweeps(), several) {
        (false, _) => 0,
        (true, false) => longest_level,
        (true, true) => chapter.longest_label() + 1 + longest_level,
    };
    let is_shown = |series: &Series<'_>| shown.iter().any(|one| one.index == series.index);
    let rises: Vec<(&Series<'_>, Rise)> = chapter
        .series
        .iter()
        .filter_map(|series| Some((series, (of.rise)(series)?)))
        .filter(|(series, _)| chapter.sweeps() && is_shown(series))
        .take(ROWS)
        .collect();
    let readings = all.values().flatten().flatten();
    let values = readings.flat_map(|reading| [reading.median].into_iter().chain(reading.reach()));
    let values: Vec<f64> = values.collect();
    let mut chart = chart(chapter, size, (longest, rises.len()), NANOS, &values);
    for (row, (series, rise)) in rises.iter().enumerate() {
        let class = series.style.colour();
        match rise.after == rise.before {
            true => chart.upright(&format!("rise {class}"), rise.after),
            false => chart.strip(&format!("area bend {class}"), rise.after, rise.before),
        }
        chart.tag(&class, row, rise.before, &rise.words);
    }
    for series in shown {
        for (at, level) in of.levels.iter().enumerate() {
            draw_level(&mut chart, chapter, series, all, (at, level, several));
        }
    }
    chart.draw(&format!("{}, by {}", of.title, chapter.swept_words()))
}

fn draw_level(
    chart: &mut Chart,
    chapter: &Chapter<'_>,
    series: &Series<'_>,
    all: &BySpot<Vec<Option<Reading>>>,
    (at, level, several): (usize, &Level, bool),
) {
    let class = series.style.colour();
    let by = beside(chapter, series);
    let reading = |spot: &Spot<'_>| all.get(&spot.number)?[at];
    let line = if at == 0 {
        class.clone()
    } else {
        format!("{class} p99")
    };
    // Side by side each is one mark.
    for stretch in stretches(series).into_iter().filter(|_| chapter.sweeps()) {
        let kind = (series.style.dashes(), at == 0);
        let value = |spot: &Spot<'_>| Some(reading(spot)?.median);
        draw_stretch(chart, (chapter, series, stretch), &line, kind, value);
    }
    let mut last = None;
    for spot in &series.spots {
        let x = chapter.x_of(series, spot.x);
        let Some(reading) = reading(spot) else {
            if at == 0 && !spot.usable() {
                chart.marks(series.style, by, &[cross(spot, x)]);
            }
            continue;
        };
        if let Some(ends) = reading.ends.filter(|_| at == 0) {
            chart.bar(&class, x, ends, by);
        }
        let look = match (reading.at_least, at, chapter.sweeps()) {
            (true, ..) => Some(Look::AtLeast),
            (_, 0, _) => Some(look(spot)),
            (_, _, true) => None,
            (_, _, false) => Some(Look::Suspect),
        };
        let mark = look.map(|look| Mark {
            look,
            ..mark(spot, (x, reading.median))
        });
        chart.marks(series.style, by, mark.as_slice());
        last = Some((x, reading.median));
    }
    if let Some(last) = last.filter(|_| chapter.sweeps()) {
        let text = match several {
            true => format!("{} {}", series.short, level.name),
            false => level.name.to_owned(),
        };
        chart.label(&class, last, &text);
    }
}

fn table(chapter: &Chapter<'_>, of: &Latency, all: &BySpot<Vec<Option<Reading>>>) -> Data {
    let columns = of.levels.iter().map(|level| level.name.to_owned());
    super::data(chapter, columns.collect(), |_, spot| {
        let cell = |level: &Option<Reading>| match level {
            Some(reading) => Cell::Figure(reading.words()),
            None => Cell::None,
        };
        Some(all.get(&spot.number)?.iter().map(cell).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::chapter::chapters;
    use crate::{ResultSet, made};
    use jostle_model::open_loop::OpenLoop;
    use jostle_model::plan::Workload;
    use jostle_model::record::At;

    /// One run at each rate, with its p99 in nanoseconds and how many of 1000 were done.
    fn rates(points: &[(u64, u64, u64)]) -> ResultSet {
        let mut set = made::set();
        set.experiment.plan.workload = Workload::Rate;
        let first = set.runs[0].clone();
        let point = |(rate, p99, done): &(u64, u64, u64)| {
            let mut run = first.clone();
            run.at = At {
                rate: Some(*rate),
                ..At::default()
            };
            let percentiles = [("p50", p99 / 4), ("p99", *p99)];
            run.open_loop = Some(Box::new(OpenLoop {
                planned: 1000,
                done: *done,
                dropped: 1000 - done,
                response_kaplan_meier: percentiles.map(|(name, ns)| (name.to_owned(), ns)).into(),
                ..OpenLoop::default()
            }));
            run
        };
        set.runs = points.iter().map(point).collect();
        set
    }

    fn rise(set: ResultSet) -> Option<Rise> {
        let sets = [set];
        let chapters = chapters(&sets);
        let series = &chapters[0].series[0];
        assert!(series.spots.iter().all(Spot::usable), "{series:?}");
        (RESPONDING.rise)(series)
    }

    #[test]
    fn the_knee_is_marked_where_a_rate_beyond_it_was_tried() {
        let holds = [(1000, 1_000_000, 1000), (2000, 1_500_000, 1000)];
        let bends = [holds[0], holds[1], (4000, 90_000_000, 700)];
        assert_eq!(rise(rates(&bends)).unwrap().words, "knee 2,000/s");
        assert!(rise(rates(&holds)).is_none());
    }

    #[test]
    fn a_knee_at_a_point_that_is_not_valid_is_not_drawn() {
        let sets = [rates(&[(1000, 1_000_000, 1000), (4000, 90_000_000, 700)])];
        let mut chapters = chapters(&sets);
        let series = &mut chapters[0].series[0];
        assert!((RESPONDING.rise)(series).is_some());
        series.spots[0].point.verdict.is = Status::Suspect;
        assert!((RESPONDING.rise)(series).is_none());
    }

    #[test]
    fn a_cliff_is_a_step_to_three_times_or_more() {
        let sets = [made::connections()];
        let chapters = chapters(&sets);
        let rises: Vec<Option<Rise>> = chapters[0].series.iter().map(cliff).collect();
        let marked: Vec<&Rise> = rises.iter().flatten().collect();
        assert!(!marked.is_empty());
        assert!(
            marked.iter().all(|rise| rise.after < rise.before),
            "{marked:?}"
        );
    }
}
