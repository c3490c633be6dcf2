//! The drawings of a page, read back from a real browser: each position from a path and its matrix,
//! each axis from its ticks. They are compared with the records, as `jostle report --format json`
//! prints them.

mod expected;

use crate::common::Place;
use crate::common::browser::Browser;
use expected::{Wanted, wanted, wanted_of_judge};
use jostle_report::judged;
use jostle_report::{ResultSet, read_from};
use jostle_stats::summary::{PointSummary, summarize};
use serde::Deserialize;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

const RECORDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/record");
const PAGES_OF_TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pages");
const READ: &str = include_str!("drawn/read.js");

/// How far a position may be off, and a tick from the axis that all ticks make, in pixels.
const OFF: f64 = 2.0;
const RESIDUAL: f64 = 1.0;
/// Marks of several series stand beside their swept value, so that they do not hide each
/// other; lines do not.
const BESIDE: f64 = 8.0;

/// A record for each workload: its file, and which of the file's experiments.
const PAGES: &[(&str, usize)] = &[
    ("locks", 0),        // contend
    ("scope-lan", 0),    // stream
    ("old", 3),          // hold
    ("churn", 0),        // churn
    ("connect-unix", 0), // connect
    ("rate", 0),         // rate
    ("cern", 2),         // spread
    ("services", 3),     // recover
];

/// A drawing as the browser shows it.
#[derive(Debug, Deserialize)]
struct Drawing {
    title: String,
    series: String,
    x: Vec<(String, f64)>,
    y: Vec<(String, f64)>,
    parts: Vec<Part>,
    labels: Vec<(String, [f64; 2], Vec<[f64; 2]>)>,
}

#[derive(Debug, Deserialize)]
struct Part {
    kind: String,
    at: Vec<[f64; 2]>,
}

/// Where values stand on an axis.
#[derive(Debug)]
enum Axis {
    /// Names, or two ticks: what stands at a tick.
    Places(Vec<(f64, f64)>),
    /// Offset and slope of pixels, over the value or its logarithm, and where 0 stands.
    Scaled {
        log: bool,
        line: [f64; 2],
        zero: Option<f64>,
    },
}

impl Axis {
    /// From the text and place of three ticks or more; of fewer it is not known between them.
    fn read(ticks: &[(String, f64)]) -> Result<Axis, String> {
        let known: Vec<(f64, f64)> = ticks
            .iter()
            .filter_map(|(text, at)| Some((value(text)?, *at)))
            .collect();
        if known.len() < 3 {
            let numbered = ticks
                .iter()
                .zip(1..)
                .map(|((text, at), n)| (value(text).unwrap_or(f64::from(n)), *at));
            return Ok(Axis::Places(numbered.collect()));
        }
        let zero = known
            .iter()
            .find(|(value, _)| *value == 0.0)
            .map(|(_, at)| *at);
        for log in [false, true] {
            let scaled = |v: f64| if log { v.ln() } else { v };
            let ticks: Vec<(f64, f64)> = known
                .iter()
                .filter(|(v, _)| !log || *v > 0.0)
                .map(|(v, at)| (scaled(*v), *at))
                .collect();
            let line = fitted(&ticks);
            let worst = ticks
                .iter()
                .map(|(v, at)| (line[0] + line[1] * v - at).abs())
                .fold(0.0, f64::max);
            if ticks.len() > 2 && worst <= RESIDUAL {
                return Ok(Axis::Scaled { log, line, zero });
            }
        }
        Err(format!("ticks of neither scale: {ticks:?}"))
    }

    fn at(&self, value: f64) -> f64 {
        match self {
            Axis::Places(ticks) => {
                let tick = ticks
                    .iter()
                    .find(|(tick, _)| (tick / value - 1.0).abs() < 1e-3);
                tick.map_or(f64::NAN, |(_, at)| *at)
            }
            Axis::Scaled {
                log: true, zero, ..
            } if value <= 0.0 => zero.unwrap_or(f64::NAN),
            Axis::Scaled { log, line, .. } => {
                line[0] + line[1] * if *log { value.ln() } else { value }
            }
        }
    }

    fn is_log(&self) -> Option<bool> {
        match self {
            Axis::Scaled { log, .. } => Some(*log),
            Axis::Places(_) => None,
        }
    }
}

/// Least squares: offset and slope.
fn fitted(points: &[(f64, f64)]) -> [f64; 2] {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let cross: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let square: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let slope = cross / square;
    [y - slope * x, slope]
}

/// A tick's text as a number: times in nanoseconds, shares of one; None of a name.
fn value(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 12] = [
        ("ns", 1.0),
        ("us", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("%", 0.01),
        ("", 1.0),
        ("k", 1e3),
        ("M", 1e6),
        ("B", 1.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
    ];
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let unit = text[end..].trim();
    let (_, scale) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    text[..end].parse::<f64>().ok().map(|number| number * scale)
}

/// Everything of a drawing that is not where the record has it, in words.
fn faults(drawing: &Drawing, wanted: &Wanted) -> Vec<String> {
    let axes = (Axis::read(&drawing.x), Axis::read(&drawing.y));
    let (x, y) = match axes {
        (Ok(x), Ok(y)) => (x, y),
        (x, y) => return x.err().into_iter().chain(y.err()).collect(),
    };
    let place = |(of, value): (f64, f64)| {
        // Without an upright axis only the position across is read.
        let up = if drawing.y.is_empty() {
            f64::NAN
        } else {
            y.at(value)
        };
        [x.at(of), up]
    };
    let near = |[ax, ay]: [f64; 2], [bx, by]: [f64; 2], beside: f64| {
        (ax - bx).abs() <= beside && (by.is_nan() || (ay - by).abs() <= OFF)
    };
    let places: Vec<[f64; 2]> = wanted.points.iter().map(|point| place(point.at)).collect();
    let curves = wanted.curves(|of, value| place((of, value)));
    let mut faults = Vec::new();
    let mut shown = vec![false; places.len()];
    for part in drawing
        .parts
        .iter()
        .filter(|part| !wanted.passes_over(&part.kind))
    {
        let beside = if part.kind.starts_with("line") || part.kind.starts_with("area") {
            OFF
        } else {
            BESIDE
        };
        for at in &part.at {
            let mut found = false;
            for (known, place) in shown.iter_mut().zip(&places) {
                if near(*at, *place, beside) {
                    (found, *known) = (true, true);
                }
            }
            let is_law = part.kind.contains("law");
            found |= is_law && curves.iter().any(|place| near(*at, *place, OFF));
            if !found {
                faults.push(format!(
                    "{} at {at:?} is no figure of the record",
                    part.kind
                ));
            }
        }
    }
    for (point, shown) in wanted.points.iter().zip(shown) {
        if !shown && wanted.must_show(point) {
            faults.push(format!("{point:?} is not drawn at {:?}", place(point.at)));
        }
    }
    for (text, middle, leader) in &drawing.labels {
        let [from, to] = leader[..] else {
            panic!("{text}: {leader:?}")
        };
        let named = wanted.points.iter().zip(&places);
        let named = named.filter(|(point, _)| {
            point.name.is_empty() || text.split(' ').any(|word| word == point.name)
        });
        if !named.into_iter().any(|(_, place)| near(from, *place, OFF)) {
            faults.push(format!("the label {text} points to {from:?}"));
        }
        if (to[1] - middle[1]).abs() > 3.0 * OFF {
            faults.push(format!(
                "the leader of {text} ends at {to:?}, the text is at {middle:?}"
            ));
        }
    }
    faults
        .into_iter()
        .map(|fault| format!("{}, {}: {fault}", drawing.title, drawing.series))
        .collect()
}

/// The experiment alone, and its page.
fn page(place: &Place, file: &str, nth: usize) -> (Vec<ResultSet>, String) {
    let folder = match Path::new(&format!("{RECORDS}/{file}.jsonl")).exists() {
        true => RECORDS,
        false => PAGES_OF_TESTS,
    };
    let line = format!("report {folder}/{file}.jsonl --format json");
    let all = place.jostle(&line).exits(0).stdout;
    let experiments: Vec<&str> = all.split("{\"record\":\"experiment\"").skip(1).collect();
    let one = format!("{{\"record\":\"experiment\"{}", experiments[nth]);
    fs::write(place.file("one.jsonl"), &one).unwrap();
    place.jostle("report one.jsonl --html page.html").exits(0);
    let sets = read_from(&mut one.as_bytes(), "one.jsonl").unwrap();
    (sets, place.read("page.html"))
}

/// On a screen, on a phone and on paper: pixels between its margins.
const VIEWS: [(&str, u32); 3] = [("screen", 1280), ("screen", 390), ("print", 703)];

/// The drawings that the browser shows.
fn read(browser: &mut Browser) -> Vec<Drawing> {
    let found = browser.run(&format!("{READ} found.view = read(document);"));
    let mut all: Vec<Drawing> = serde_json::from_value(found["view"].clone()).unwrap();
    // Bars have no axes.
    all.retain(|drawing| !drawing.title.ends_with("relative to the best"));
    all
}

/// The drawings of a page in all views, before and after its switches are used.
fn looked_at(browser: &mut Browser, place: &Place, page: &str) -> Vec<Vec<Drawing>> {
    fs::write(place.file("page.html"), page).unwrap();
    browser.go(&place.file("page.html"), "");
    let mut drawings = Vec::new();
    for before in [true, false] {
        for (media, width) in VIEWS {
            browser.width(width);
            browser.media(media);
            drawings.push(read(browser));
        }
        if before {
            browser.run(
                "const kind = document.documentElement.dataset.y === 'log' ? 'linear' : 'log';
                 for (const axis of ['x', 'y']) document.getElementById(`${axis}-${kind}`)?.click();",
            );
        }
    }
    assert_eq!(browser.console, [""; 0]);
    drawings
}

/// The drawings that an experiment must have, by title and series: the same in each view.
struct Record<'a> {
    set: &'a ResultSet,
    summaries: Vec<PointSummary<'a>>,
    wanted: HashMap<(String, String), Wanted>,
}

impl<'a> Record<'a> {
    fn new(set: &'a ResultSet) -> Record<'a> {
        Record {
            set,
            summaries: summarize(&set.experiment, &set.runs),
            wanted: HashMap::new(),
        }
    }

    /// Everything that is off in these drawings, and how many figures there were.
    fn compared(&mut self, drawings: &[Drawing]) -> (Vec<String>, usize) {
        let mut all = Vec::new();
        let mut shown = 0;
        for drawing in drawings {
            let of = (drawing.title.clone(), drawing.series.clone());
            let entry = self.wanted.entry(of);
            let wanted = entry.or_insert_with_key(|(title, series)| {
                wanted(self.set, &self.summaries, title, series)
            });
            shown += wanted.points.len();
            all.extend(faults(drawing, wanted));
        }
        (all, shown)
    }
}

#[test]
fn every_drawing_of_every_workload_shows_the_figures_of_the_record() {
    let place = Place::beside_others();
    let mut browser = Browser::open(&place);
    for (file, nth) in PAGES {
        let (sets, page) = page(&place, file, *nth);
        let mut record = Record::new(&sets[0]);
        for (view, drawings) in looked_at(&mut browser, &place, &page).iter().enumerate() {
            let (faults, shown) = record.compared(drawings);
            assert_eq!(faults, [""; 0], "{file}, view {view}");
            assert!(shown > 8, "{file}: {shown}");
        }
    }
}

#[test]
fn a_page_whose_scales_were_swapped_is_found_out() {
    let place = Place::beside_others();
    let (sets, page) = page(&place, "locks", 0);
    let mut record = Record::new(&sets[0]);
    let swapped = page.replacen("data-y=\"log\"", "data-y=\"linear\"", 1);
    assert_ne!(page, swapped);
    let looks = looked_at(&mut Browser::open(&place), &place, &swapped);
    for drawings in &looks[..VIEWS.len()] {
        assert!(record.compared(drawings).0.len() > 20);
    }
}

/// The drawings of the page `page.html` at a fragment.
fn at(browser: &mut Browser, place: &Place, fragment: &str) -> Vec<Drawing> {
    browser.go(&place.file("page.html"), fragment);
    let drawings = read(browser);
    assert_eq!(browser.console, [""; 0]);
    drawings
}

#[test]
fn the_drawings_of_judge_show_its_record_on_the_scale_that_the_address_asks_for() {
    let place = Place::beside_others();
    let line = format!("report {PAGES_OF_TESTS}/judge.jsonl --format json");
    let json = place.jostle(&line).exits(0).stdout;
    let found = judged::read_from(&mut json.as_bytes(), "judge.jsonl").unwrap();
    let line = format!("report {PAGES_OF_TESTS}/judge.jsonl --html page.html");
    place.jostle(&line).exits(0);
    let mut browser = Browser::open(&place);
    for (fragment, log) in [("", false), ("#y=log", true), ("#x=log&y=linear", false)] {
        let drawings = at(&mut browser, &place, fragment);
        assert!(drawings.len() >= 3, "{fragment}");
        for drawing in drawings {
            let wanted = wanted_of_judge(&found.watched[0], &drawing.title);
            assert_eq!(faults(&drawing, &wanted), [""; 0], "{fragment}");
            let is_log = Axis::read(&drawing.y).unwrap().is_log();
            // Neither shares nor what varies little have a logarithmic axis.
            let share = drawing.y[0].0.contains('%');
            let values = || {
                wanted
                    .points
                    .iter()
                    .map(|point| point.at.1)
                    .filter(|y| *y > 0.0)
            };
            let wide = values().fold(0.0, f64::max) >= 10.0 * values().fold(f64::MAX, f64::min);
            assert_eq!(
                is_log,
                Some(log && wide && !share),
                "{fragment} {}",
                drawing.title
            );
        }
    }
}

#[test]
fn a_page_follows_its_address_to_either_scale() {
    let place = Place::beside_others();
    let (sets, _) = page(&place, "locks", 0);
    let mut record = Record::new(&sets[0]);
    let mut browser = Browser::open(&place);
    for (fragment, log) in [("#y=log", true), ("#y=linear", false)] {
        let drawings = at(&mut browser, &place, fragment);
        assert_eq!(record.compared(&drawings).0, [""; 0], "{fragment}");
        // Holds of 1 ms make all rates alike.
        for (title, log) in [("CPU time of the workers", log), ("Throughput", false)] {
            let mut drawings = drawings.iter();
            let drawing = drawings.find(|drawing| drawing.title.starts_with(title));
            let is_log = Axis::read(&drawing.unwrap().y).unwrap().is_log();
            assert_eq!(is_log, Some(log), "{fragment}");
        }
    }
}
