//! `--html`: the page in a real browser (headless Chromium), and where it is
//! written to. It loads from disk without a complaint, its switch changes the
//! axes, keys and pointer reach every figure, and the figures are those of the
//! result file.

use crate::common::browser::{Browser, load_and_do};
use crate::common::{Place, Signal, beside, flat, rows};
use jostle_model::record::Record;
use std::fs;

/// The record behind the README's table: two locks, 10 and 1000 workers.
const RECORD: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../lab/record/default.jsonl"
);

/// The page of the README's record.
fn page(place: &Place) -> std::path::PathBuf {
    let line = format!("report {RECORD} --html page.html");
    place.jostle(&line).exits(0).says_nothing();
    place.file("page.html")
}

/// Of the record, by target and workers: a figure of each run.
fn figures(figure: fn(&jostle_model::record::Run) -> f64) -> Vec<(String, Vec<f64>)> {
    let text = fs::read_to_string(RECORD).unwrap();
    let mut found: Vec<(String, Vec<f64>)> = Vec::new();
    for line in text.lines() {
        let Record::Run(run) = serde_json::from_str(line).unwrap() else {
            continue;
        };
        let workers = run.at.workers.unwrap();
        let workers = if workers == 1000 {
            "1,000".to_owned()
        } else {
            workers.to_string()
        };
        let whose = format!("{}, {workers} workers", run.target);
        match found.iter_mut().find(|(known, _)| *known == whose) {
            Some((_, values)) => values.push(figure(&run)),
            None => found.push((whose, vec![figure(&run)])),
        }
    }
    found
}

/// A list of texts.
fn texts(list: &serde_json::Value) -> Vec<&str> {
    let list = list.as_array().unwrap().iter();
    list.map(|text| text.as_str().unwrap()).collect()
}

/// Of five runs, as the record has.
fn median(mut values: Vec<f64>) -> f64 {
    assert_eq!(values.len() % 2, 1);
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn it_opens_from_disk_without_a_complaint_and_shows_the_figures_of_the_file() {
    let place = Place::beside_others();
    let script = "
        const chart = [...document.querySelectorAll('figure')]
            .find(f => f.querySelector('strong').textContent === 'Throughput');
        found.rows = [...chart.querySelectorAll('.pt')].flatMap(m => m.dataset.say.split('|'));
        found.data = [...chart.querySelectorAll('table.data tbody tr')]
            .map(r => [...r.cells].map(c => c.textContent.replace(',', '')));
        found.table = [...document.querySelectorAll('table.points tbody tr:not(.why)')].map(r => r.innerText);
        found.text = document.body.innerText;
        found.requests = performance.getEntriesByType('resource').length;
    ";
    let (found, console) = load_and_do(&place, &page(&place), script);
    assert_eq!(console, [""; 0]);
    assert_eq!(found["requests"], 0);
    let expected = figures(|point| point.throughput_per_s);
    assert_eq!(expected.len(), 4);
    // Each point has a mark, which refers to its row.
    let mut marks = texts(&found["rows"]);
    marks.sort_unstable();
    assert_eq!(marks, ["0", "1", "2", "3"]);
    let data = found["data"].as_array().unwrap();
    assert_eq!(data.len(), 4);
    for row in data {
        let cells = texts(row);
        let known = expected.iter().find(|(whose, _)| {
            whose.replace(',', "") == format!("{} {} workers", cells[0], cells[1])
        });
        let values = &known.unwrap().1;
        let ends = [
            median(values.clone()),
            values.iter().copied().fold(f64::INFINITY, f64::min),
            values.iter().copied().fold(0.0, f64::max),
        ];
        for (cell, value) in cells[2..].iter().zip(ends) {
            // Six significant digits.
            let shown: f64 = cell.parse().unwrap();
            assert!((shown / value - 1.0).abs() < 1e-5, "{shown} {value}");
        }
    }
    // The console's table, cell by cell.
    let console = place
        .jostle(&format!("report {RECORD} -v"))
        .under("env COLUMNS=200")
        .exits(0)
        .stdout;
    let rows: Vec<&str> = console
        .lines()
        .filter(|line| line.contains("VALID") || line.contains("SUSPECT"))
        .filter(|line| !line.starts_with("Trust"))
        .collect();
    let table = found["table"].as_array().unwrap();
    assert_eq!((rows.len(), table.len()), (4, 4));
    for (row, shown) in rows.iter().zip(table) {
        assert_eq!(flat(row), flat(shown.as_str().unwrap()));
    }
    let shown = flat(found["text"].as_str().unwrap());
    let said = flat(&console);
    let (_, lines) = said.split_once(" Fairness ").unwrap();
    let (fairness, _) = lines.split_once(" Wait ").unwrap();
    assert!(shown.contains(fairness), "{fairness}");
}

#[test]
fn the_switch_changes_both_axes_by_pointer_key_and_address() {
    let _beside = beside();
    let place = Place::new();
    let page = page(&place);
    let script = "
        const chart = [...document.querySelectorAll('figure')]
            .find(f => f.querySelector('strong').textContent.startsWith('CPU time of the workers'));
        const look = () => ({
            x: [...chart.querySelectorAll('.x text')].filter(t => t.getClientRects().length).map(t => t.textContent),
            y: [...chart.querySelectorAll('.y text')].filter(t => t.getClientRects().length).map(t => t.textContent),
            marks: [...chart.querySelectorAll('.pt')].flatMap(m => {
                const says = m.dataset.say.split('|');
                const vertices = [...m.getAttribute('d').matchAll(/M([\\d.]+) ([\\d.]+)/g)];
                return vertices.map(([, x, y], n) => [+says[n], +x, +y]);
            }).sort((a, b) => a[0] - b[0]).map(([, x, y]) => [x, y]),
            line: chart.querySelector('.line').getAttribute('d'),
        });
        const key = k => document.dispatchEvent(new KeyboardEvent('keydown', { key: k }));
        found.log = look();
        document.getElementById('y-linear').click();
        found.y = look();
        document.getElementById('x-linear').click();
        found.both = look();
        found.hash = location.hash;
        key('x'); key('y');
        found.back = look();
    ";
    let (found, console) = load_and_do(&place, &page, script);
    assert_eq!(console, [""; 0]);
    let at =
        |view: &str, mark: usize, axis: usize| found[view]["marks"][mark][axis].as_f64().unwrap();
    let labels = |view: &str, axis: &str| texts(&found[view][axis]);
    assert_eq!(labels("log", "x"), ["10", "1000"]);
    assert!(labels("log", "y").contains(&"100 us"), "{found}");
    assert_eq!(labels("y", "x"), labels("log", "x"));
    assert_eq!(labels("y", "y")[0], "0");
    assert_eq!(labels("both", "x")[0], "0");
    assert!(labels("both", "x").len() > 2);
    // Marks move along the axis that was switched, and along no other.
    assert_eq!(at("log", 0, 0), at("y", 0, 0));
    assert!((at("log", 0, 1) - at("y", 0, 1)).abs() > 5.0);
    assert!((at("y", 0, 0) - at("both", 0, 0)).abs() > 2.0);
    assert_eq!(at("y", 0, 1), at("both", 0, 1));
    assert_ne!(found["log"]["line"], found["y"]["line"]);
    assert_eq!(found["hash"], "#x=linear&y=linear");
    assert_eq!(found["log"], found["back"]);
    // Where marks of flock stand on the linear axis is in proportion to their
    // figures; the axis begins at 0.
    let cpu = figures(|point| point.cpu.cpu_us_per_operation.unwrap());
    let of = |whose: &str| {
        median(
            cpu.iter()
                .find(|(known, _)| known == whose)
                .unwrap()
                .1
                .clone(),
        )
    };
    let (few, many) = (of("flock, 10 workers"), of("flock, 1,000 workers"));
    let foot = found["both"]["marks"].as_array().unwrap().len();
    assert_eq!(foot, 4);
    let zero = 330.0 - 50.0;
    let (low, high) = (zero - at("both", 0, 1), zero - at("both", 1, 1));
    assert!(
        (high / low - many / few).abs() < 0.05 * many / few + 5.0,
        "{low} {high}"
    );

    let mut browser = Browser::open(&place);
    browser.go(&page, "#x=linear&y=log");
    let asked = browser.run("found.scales = {...document.documentElement.dataset};");
    assert_eq!(browser.console, [""; 0]);
    assert_eq!(
        (&asked["scales"]["x"], &asked["scales"]["y"]),
        (&"linear".into(), &"log".into())
    );
}

#[test]
fn pointer_and_keys_reach_the_exact_figures() {
    let place = Place::beside_others();
    let script = "
        const chart = document.querySelector('figure svg.chart');
        const tip = document.getElementById('tip');
        const point = (x, y) => chart.dispatchEvent(new PointerEvent('pointermove', { clientX: x, clientY: y }));
        const mark = [...chart.querySelectorAll('.pt')].find(m => m.dataset.say.split('|').includes('1'));
        const nth = mark.dataset.say.split('|').indexOf('1');
        const [, x, y] = [...mark.getAttribute('d').matchAll(/M([\\d.]+) ([\\d.]+)/g)][nth];
        const at = new DOMPoint(+x, +y).matrixTransform(mark.getScreenCTM());
        const box = { left: at.x, top: at.y };
        point(at.x - 3, at.y + 2);
        found.pointed = tip.hidden ? null : tip.innerText;
        point(box.left - 150, box.top + 100);
        found.away = tip.hidden;
        chart.focus();
        found.focused = document.activeElement === chart;
        const key = k => chart.dispatchEvent(new KeyboardEvent('keydown', { key: k, bubbles: true }));
        found.keyed = [];
        for (let n = 0; n < 5; n++) { key('ArrowRight'); found.keyed.push(tip.innerText.split('\\n')[0]); }
        key('Escape');
        found.escaped = tip.hidden;
        found.named = [...document.querySelectorAll('svg.chart')].every(c => c.getAttribute('aria-label'));
    ";
    let (found, console) = load_and_do(&place, &page(&place), script);
    assert_eq!(console, [""; 0]);
    let pointed = found["pointed"].as_str().unwrap();
    let of_flock = figures(|point| point.throughput_per_s);
    let values = &of_flock
        .iter()
        .find(|(whose, _)| whose == "flock, 1,000 workers")
        .unwrap()
        .1;
    let expected = format!("locks/s: {:.3}", median(values.clone()));
    assert!(pointed.starts_with("flock, 1,000 workers"), "{pointed}");
    assert!(pointed.contains(&expected), "{pointed} has no {expected}");
    assert!(
        pointed.contains("range of 5 runs") && pointed.contains("SUSPECT"),
        "{pointed}"
    );
    assert_eq!(found["away"], true);
    assert_eq!(found["focused"], true);
    // Around, and again from the first.
    let keyed = found["keyed"].as_array().unwrap();
    assert_eq!(keyed[0], "flock, 10 workers");
    assert_eq!(keyed[3], "sysv, 1,000 workers");
    assert_eq!(keyed[4], keyed[0]);
    assert_eq!(found["escaped"], true);
    assert_eq!(found["named"], true);
}

#[test]
fn a_mistake_in_a_script_would_be_heard() {
    let place = Place::beside_others();
    let page = place.file("wrong.html");
    fs::write(&page, "<!DOCTYPE html><script>nothing.is()</script>").unwrap();
    let (_, console) = load_and_do(&place, &page, "");
    assert!(console[0].contains("nothing is not defined"), "{console:?}");
}

#[test]
fn every_workload_and_every_ending_makes_a_page_without_a_complaint() {
    let place = Place::beside_others();
    let table = "
        stream flock -n 100:1000 -w 1:2 --runs 2 => Time for one operation
        hold chained --keys 100:1000 --runs 2 => Mean time to release
        contend flock futex -w 2 -t 50ms --runs 2 --measure counts => Throughput";
    for [line, title] in rows(table) {
        let line = format!("{line} --quiet --html page.html -o page.jsonl --overwrite");
        let done = place.jostle(&line).run();
        assert!(matches!(done.code(), 0 | 3), "{line}: {}", done.stderr);
        // Other programs may leave it no figure to draw, or none of its times.
        let drawn = place.read("page.html").contains(title);
        let without = flat(&done.stdout).contains("times and shares are not shown");
        assert!(
            drawn || without || done.is_disturbed(),
            "{}",
            done.transcript()
        );
    }
    // Overlaid with another file, of which a crash has left a part.
    let whole = fs::read_to_string(RECORD).unwrap();
    fs::write(place.file("cut.jsonl"), &whole[..whole.len() / 2]).unwrap();
    let line = format!("report page.jsonl {RECORD} cut.jsonl --html page.html");
    place.jostle(&line).exits(0);
    let script = "found.text = document.body.textContent;";
    let (found, console) = load_and_do(&place, &place.file("page.html"), script);
    assert_eq!(console, [""; 0]);
    assert!(
        found["text"]
            .as_str()
            .unwrap()
            .contains("was torn by a crash")
    );
}

#[test]
fn an_interrupted_run_still_writes_the_page_of_its_finished_points() {
    let place = Place::beside_others();
    let line = "contend null -w 2 -t 100ms --runs 500 -o x.jsonl --html page.html";
    let mut run = place.jostle(line).in_background();
    run.until_runs("x.jsonl", 2);
    run.signal(Signal::INT);
    run.end().exits(130);
    let page = place.read("page.html");
    assert!(page.contains("This experiment ended early: interrupted"));
    // Two short runs that other programs spoilt have no figure to draw.
    let disturbed = page.contains("other programs");
    assert!(disturbed || page.contains("class=\"pt mark c0 s0\""));
    // Without a finished point there is no page, and no empty file.
    let mut run = place
        .jostle("contend null -w 2 -t 10m --html none.html")
        .in_background();
    run.until_workers(2);
    run.signal(Signal::INT);
    run.end().exits(130);
    assert!(!place.file("none.html").exists());
}

#[test]
fn only_pages_of_jostle_s_are_replaced() {
    let place = Place::beside_others();
    fs::write(place.file("notes.html"), "<p>my notes").unwrap();
    fs::write(place.file("empty.html"), "").unwrap();
    let report = |file: &str| {
        place
            .jostle(&format!("report {RECORD} --html {file}"))
            .run()
    };
    report("notes.html")
        .exits(1)
        .says("jostle did not write notes.html and does not replace it");
    assert_eq!(place.read("notes.html"), "<p>my notes");
    report("empty.html").exits(0);
    let first = place.read("empty.html");
    report("empty.html").exits(0);
    assert_eq!(place.read("empty.html"), first);
    report("no/where.html")
        .exits(1)
        .says("cannot open no/where.html");
    report("/dev/full").exits(1).says("cannot write /dev/full");
    // Nothing is measured for a page that could not be written.
    let line = "contend null -w 2 -t 50ms --runs 1 --html notes.html -o x.jsonl";
    place.jostle(line).exits(1).says("did not write");
    assert!(!place.file("x.jsonl").exists());
}
