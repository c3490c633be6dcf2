//! Along the run: its ten slices, a drawing for each series with a line for
//! each point, and whether they drift.

use super::{Cell, Chapter, Data, Drawing, panels};
use crate::html::chapter::{Series, Spot};
use crate::html::chart::{Chart, Look, Mark, Size, frame};
use crate::html::scale::Axis;
use crate::html::units::{Unit, compact};
use jostle_model::plan::Workload;
use jostle_model::record::Slice;
use jostle_stats::bursts;
use jostle_stats::intervals::median;
use jostle_stats::trend::{self, Drift};

/// Lines of a drawing, from the palest to the full colour.
const SHADES: usize = 5;

/// Lines of a drawing, at most.
const LINES: usize = 9;

/// One figure of each slice.
struct Track {
    title: &'static str,
    note: &'static str,
    unit: fn(&Chapter<'_>) -> Unit,
    of: fn(&Slice) -> Option<f64>,
    /// Whether slices are tenths of the operations as well, not of the window
    /// alone.
    counted: bool,
}

static TRACKS: &[Track] = &[
    Track {
        title: "Mean time to acquire",
        note: "over ten slices of the run; medians over the runs",
        unit: |_| Unit::Time(1.0),
        of: |slice| slice.mean_wait_ns,
        counted: true,
    },
    Track {
        title: "Mean response",
        note: "over ten slices of the run; medians over the runs; a dot: a burst, more than twice \
               the median slice",
        unit: |_| Unit::Time(1.0),
        of: |slice| slice.mean_wait_ns,
        counted: false,
    },
    Track {
        title: "Mean time to release",
        note: "over ten slices of the run; medians over the runs",
        unit: |_| Unit::Time(1.0),
        of: |slice| slice.mean_release_ns,
        counted: true,
    },
    Track {
        title: "Acquisitions",
        note: "in each tenth of the window; medians over the runs",
        unit: |_| Unit::Number("acquisitions"),
        of: |slice| Some(slice.operations as f64),
        counted: false,
    },
];

/// Of one point: the slices over all runs, and the drift if there is one.
struct RunCurve<'s, 'a> {
    spot: &'s Spot<'a>,
    slices: Vec<(f64, f64)>,
    drift: Option<f64>,
}

impl RunCurve<'_, '_> {
    /// The label at the end of its line: the series or the swept value, and the drift.
    fn name(&self, chapter: &Chapter<'_>, series: &Series<'_>) -> String {
        let name = match chapter.sweeps() {
            true => compact(self.spot.x),
            false => series.label.clone(),
        };
        match self.drift {
            Some(drift) => format!("{name} {}", percent(drift)),
            None => name,
        }
    }

    /// Whether a drawing would be a level line.
    fn is_steady(&self) -> bool {
        let usual = bursts::usual(self.slices.iter().map(|slice| slice.1));
        let is_burst = |slice: &(f64, f64)| bursts::is_one(slice.1, usual);
        self.drift.is_none() && !self.slices.iter().any(is_burst)
    }
}

/// Those that were recorded.
pub(super) fn figures(chapter: &Chapter<'_>) -> Vec<Drawing> {
    let counted = !chapter.workload.has_window();
    let requests = matches!(chapter.workload, Workload::Rate | Workload::Spread);
    let tracks = TRACKS.iter().filter(|track| match track.title {
        "Mean time to acquire" => !requests,
        "Mean response" => requests,
        _ => track.counted || !counted,
    });
    tracks.filter_map(|track| figure(chapter, track)).collect()
}

fn figure(chapter: &Chapter<'_>, track: &Track) -> Option<Drawing> {
    let all = chapter.series.iter();
    let all = all.map(|series| (series, courses(track, series)));
    let all: Vec<OfSeries<'_, '_>> = all.filter(|(_, courses)| !courses.is_empty()).collect();
    if all.is_empty() {
        return None;
    }
    let unit = (track.unit)(chapter);
    let mut each = all.iter().flat_map(|(_, courses)| courses);
    let steady = each.all(RunCurve::is_steady);
    let series: Vec<&Series<'_>> = all.iter().map(|(series, _)| *series).collect();
    let charts = match steady {
        true => Vec::new(),
        false => panels(chapter, &series, |size, shown| {
            draw(chapter, track, size, &all, shown)
        }),
    };
    Some(Drawing {
        title: track.title.to_owned(),
        note: match steady {
            true => "steady along the run at every point: no drift, and no burst".to_owned(),
            false => track.note.to_owned(),
        },
        charts,
        data: table(chapter, unit, &all),
    })
}

fn courses<'s, 'a>(track: &Track, series: &'s Series<'a>) -> Vec<RunCurve<'s, 'a>> {
    let course = |spot: &'s Spot<'a>| {
        let slices = |run: &[Slice]| -> Vec<Option<f64>> { run.iter().map(track.of).collect() };
        let timed = spot.point.timed.iter();
        let runs: Vec<Vec<Option<f64>>> = timed.map(|run| slices(&run.series)).collect();
        let count = runs.iter().map(Vec::len).max()?;
        let over_runs = |slice: usize| {
            let known: Vec<f64> = runs.iter().filter_map(|run| *run.get(slice)?).collect();
            Some((slice as f64 + 1.0, median(&known)?))
        };
        let slices: Vec<(f64, f64)> = (0..count).filter_map(over_runs).collect();
        let told = slices.iter().any(|(_, value)| *value > 0.0);
        told.then(|| RunCurve {
            spot,
            slices,
            drift: drift(&runs),
        })
    };
    let usable = series.spots.iter().filter(|spot| spot.usable());
    usable.filter_map(course).collect()
}

/// From beginning to end, as a share of the mean, where runs agree on it.
fn drift(runs: &[Vec<Option<f64>>]) -> Option<f64> {
    let of_run = |run: &Vec<Option<f64>>| {
        let values: Vec<f64> = run.iter().copied().collect::<Option<_>>()?;
        trend::drift(&values)
    };
    let judged: Vec<Drift> = runs.iter().filter_map(of_run).collect();
    trend::agreed(&judged).map(|agreed| agreed.share)
}

fn percent(drift: f64) -> String {
    format!("{:+.0} %", 100.0 * drift)
}

/// As many lines as can be told apart, the first and the last among them; the
/// table has all.
fn thinned<'c, 's, 'a>(courses: &'c [RunCurve<'s, 'a>]) -> Vec<&'c RunCurve<'s, 'a>> {
    let last = courses.len().saturating_sub(1);
    match courses.len() > LINES {
        true => (0..LINES)
            .map(|n| &courses[n * last / (LINES - 1)])
            .collect(),
        false => courses.iter().collect(),
    }
}

type OfSeries<'s, 'a> = (&'s Series<'a>, Vec<RunCurve<'s, 'a>>);

fn draw(
    chapter: &Chapter<'_>,
    track: &Track,
    size: Size,
    all: &[OfSeries<'_, '_>],
    shown: &[&Series<'_>],
) -> maud::Markup {
    let unit = (track.unit)(chapter);
    let names = all
        .iter()
        .flat_map(|(series, courses)| courses.iter().map(|course| course.name(chapter, series)));
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
    let (across, up) = frame(size, longest);
    let known = all.iter().flat_map(|(_, courses)| courses);
    let values: Vec<f64> = known.flat_map(|c| c.slices.iter().map(|s| s.1)).collect();
    let tenths: Vec<String> = (1..=10).map(|n| n.to_string()).collect();
    let x = (
        Axis::of_names(&tenths, across),
        "tenth of the run".to_owned(),
    );
    let y = (Axis::of_values(unit, &values, up), unit.title().to_owned());
    let mut chart = Chart::new(size, longest, x, y);
    let is_shown = |(series, _): &&OfSeries<'_, '_>| shown.iter().any(|s| s.index == series.index);
    for (series, courses) in all.iter().filter(is_shown) {
        let courses = thinned(courses);
        for (at, course) in courses.iter().enumerate() {
            let shade = match courses.len() {
                1 => SHADES,
                several => 1 + at * (SHADES - 1) / (several - 1),
            };
            let class = format!("{} shade{shade}", series.style.colour());
            // Series and swept value stand before the tenths.
            let say = |slice: &(f64, f64)| format!("{}.{}", course.spot.number, slice.0 + 1.0);
            let says: Vec<String> = course.slices.iter().map(say).collect();
            chart.telling(&class, series.style.dashes(), &course.slices, &says);
            let usual = bursts::usual(course.slices.iter().map(|slice| slice.1));
            let bursts = course
                .slices
                .iter()
                .filter(|slice| track.title == "Mean response" && bursts::is_one(slice.1, usual));
            let mark = |slice: &(f64, f64)| Mark {
                look: Look::Valid,
                at: *slice,
                says: say(slice),
            };
            let marks: Vec<Mark> = bursts.map(mark).collect();
            chart.marks(series.style, 0.0, &marks);
            if let Some(last) = course.slices.last() {
                let class = if course.drift.is_some() {
                    "drift"
                } else {
                    "quiet"
                };
                chart.label(class, *last, &course.name(chapter, series));
            }
        }
    }
    let whose = match shown {
        [series] => format!(" of {}", series.label),
        _ => String::new(),
    };
    chart.draw(&format!("{}{whose}, along the run", track.title))
}

fn table(chapter: &Chapter<'_>, unit: Unit, all: &[OfSeries<'_, '_>]) -> Data {
    let tenths = (1..=10).map(|slice| slice.to_string());
    let columns = tenths.chain(["drift".to_owned()]).collect();
    super::data(chapter, columns, |_, spot| {
        let mut courses = all.iter().flat_map(|(_, courses)| courses);
        let course = courses.find(|course| course.spot.number == spot.number)?;
        let cell = |slice: i32| {
            let mut slices = course.slices.iter();
            let known = slices.find(|(at, _)| *at == f64::from(slice));
            known.map_or(Cell::None, |(_, v)| Cell::Figure(unit.cell(*v)))
        };
        let mut cells: Vec<Cell> = (1..=10).map(cell).collect();
        let drift = course.drift.map(|drift| Cell::Figure(percent(drift)));
        cells.push(drift.unwrap_or_else(|| Cell::text("none")));
        Some(cells)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(values: [u32; 10]) -> Vec<Option<f64>> {
        values.map(|value| Some(f64::from(value))).to_vec()
    }

    const RISING: [u32; 10] = [90, 92, 95, 97, 99, 101, 103, 105, 108, 110];
    const LEVEL: [u32; 10] = [99, 101, 100, 98, 102, 97, 103, 99, 101, 100];

    #[test]
    fn a_drift_is_flagged_where_two_thirds_of_the_runs_agree() {
        let rises = drift(&[run(RISING), run(RISING), run(LEVEL)]).unwrap();
        assert!((rises - 0.22).abs() < 0.02, "{rises}");
        let mut falling = RISING;
        falling.reverse();
        assert!(drift(&[run(falling)]).unwrap() < -0.2);
        for steady in [
            vec![run(LEVEL), run(LEVEL), run(LEVEL)],
            vec![run(RISING), run(LEVEL), run(LEVEL)],
            vec![run(RISING), run(falling)],
            // By 5 %, however surely.
            vec![run([975, 980, 985, 990, 995, 1000, 1005, 1010, 1015, 1020])],
            vec![vec![None; 10]],
            vec![],
        ] {
            assert_eq!(drift(&steady), None, "{steady:?}");
        }
    }

    #[test]
    fn of_many_lines_some_are_drawn_the_ends_among_them() {
        let mut set = crate::made::set();
        set.runs
            .retain(|point| point.target == "flock" && point.at.workers == Some(10));
        for (n, point) in (1..).zip(&mut set.runs) {
            point.at.workers = Some(n);
        }
        let mut runs = set.runs.clone();
        for n in 7..=40 {
            runs.extend(set.runs.first().cloned().map(|mut point| {
                point.at.workers = Some(n);
                point
            }));
        }
        for slice in runs.iter_mut().flat_map(|run| &mut run.series) {
            slice.operations = 94;
        }
        set.runs = runs;
        let sets = [set];
        let chapter = &crate::html::chapter::chapters(&sets)[0];
        let found = courses(&TRACKS[3], &chapter.series[0]);
        let drawn: Vec<f64> = thinned(&found).iter().map(|course| course.spot.x).collect();
        assert_eq!((found.len(), drawn.len()), (40, LINES));
        assert_eq!((drawn[0], drawn[LINES - 1]), (1.0, 40.0));
    }

    #[test]
    fn level_lines_are_told_and_not_drawn() {
        let mut set = crate::made::set();
        let of = |set: &crate::ResultSet| {
            let sets = [set.clone()];
            let chapter = &crate::html::chapter::chapters(&sets)[0];
            let found = figure(chapter, &TRACKS[3]).unwrap();
            (found.charts.len(), found.note, found.data.rows.len())
        };
        for run in &mut set.runs {
            run.series = vec![
                Slice {
                    operations: 94,
                    ..Slice::default()
                };
                10
            ];
        }
        let (charts, note, rows) = of(&set);
        assert_eq!((charts, rows), (0, 4));
        assert!(note.starts_with("steady along the run"), "{note}");
        let rising = set.runs.iter_mut().filter(|point| point.target == "flock");
        for (slice, value) in rising.flat_map(|run| run.series.iter_mut().zip(RISING)) {
            slice.operations = u64::from(value);
        }
        assert_eq!(of(&set).0, 2);
    }

    #[test]
    fn what_a_slice_did_not_measure_is_no_drift() {
        let mut gap = run(RISING);
        gap[3] = None;
        assert_eq!(drift(&[gap]), None);
    }
}
