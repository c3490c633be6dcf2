//! `--live` and `--metrics`: a run is watched while it is made, by those who may, and
//! whatever they do it measures on.

use crate::common::browser::Browser;
use crate::common::{Place, Running, Signal, beside, flat, jostle, must_have, rows, until};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// How long a read waits: events come once a second.
const PATIENCE: Duration = LIMIT;

/// Where a run in progress serves something: address and path, once it has printed that.
fn served(run: &mut Running, before: &str) -> (String, String) {
    let url = run.until("its address", |run| {
        let said = run.said();
        let line = said.lines().find_map(|line| line.split_once(before))?.1;
        // A line that is still being written has no end yet.
        said.contains(&format!("{line}\n")).then(|| line.to_owned())
    });
    let (address, path) = url.split_once('/').unwrap();
    (address.to_owned(), format!("/{path}"))
}

fn page_of(run: &mut Running) -> (String, String) {
    served(run, "watch it at http://")
}

/// A request as typed, and everything that is answered until the connection ends.
fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(address: &str, path: &str) -> String {
    ask(
        address,
        &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"),
    )
}

fn status(answer: &str) -> u16 {
    let status = answer.split(' ').nth(1);
    status
        .and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("{answer}"))
}

/// A browser's side of the events.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(address: &str, path: &str) -> Events {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("GET {path}events HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut events = Events(BufReader::new(stream));
        let head = events.line().unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        while events.line().is_some_and(|line| !line.is_empty()) {}
        events
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let length = self.0.read_line(&mut line).unwrap();
        (length > 0).then(|| line.trim_end().to_owned())
    }

    /// The next event; None once the connection has ended.
    fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(name) = self.line()?.strip_prefix("event: ") {
                let data = self.line()?;
                let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
                return Some((name.to_owned(), data));
            }
        }
    }

    /// All until the end.
    fn rest(&mut self) -> Vec<(String, Value)> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

/// The last table.
fn table(events: &[(String, Value)]) -> &str {
    let mut tables = events.iter().rev().filter(|(name, _)| name == "results");
    tables
        .next()
        .map_or("", |(_, table)| table.as_str().unwrap())
}

/// The looks at runs in progress.
fn looks(events: &[(String, Value)]) -> impl Iterator<Item = &Value> {
    let states = events.iter().filter(|(name, _)| name == "state");
    let runs = states.map(|(_, state)| &state["run"]);
    runs.filter(|run| run["look"].is_object())
}

fn is_end((name, state): &(String, Value)) -> bool {
    name == "state" && state["ended"].is_string()
}

#[test]
fn the_page_comes_with_the_token_only() {
    let _beside = beside();
    let mut run = Place::new()
        .jostle("contend flock -w 2 -t 10m --runs 1 --live")
        .in_background();
    let (address, path) = page_of(&mut run);
    let page = get(&address, &path);
    assert_eq!(status(&page), 200);
    assert!(
        page.contains("Content-Security-Policy: default-src 'none'"),
        "{page}"
    );
    assert!(
        address.starts_with("127.0.0.1:") && path.len() == 34,
        "{path}"
    );
    let wrong = format!("/{}/", "0".repeat(32));
    for path in ["/", "/events", "/favicon.ico", wrong.as_str()] {
        assert_eq!(status(&get(&address, path)), 403, "{path}");
    }
    let of = |method: &str, host: &str| {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        status(&ask(&address, &request))
    };
    assert_eq!(of("POST", &address), 405);
    assert_eq!(of("DELETE", &address), 405);
    assert_eq!(of("GET", "rebound.example"), 403);
    assert_eq!(of("GET", "localhost"), 200);
    assert_eq!(
        status(&ask(&address, "\x16\x03\x01 no request\r\n\r\n")),
        400
    );
    run.signal(Signal::INT);
    run.end().exits(130).leaves_nothing();
}

#[test]
fn events_carry_what_the_record_says_later() {
    let place = Place::beside_others();
    let line =
        "contend flock -w 3 -b 1ms -t 4 --runs 2 --warmup 0.2s -o r.jsonl --html p.html --live";
    let mut run = place.jostle(line).in_background();
    let (address, path) = page_of(&mut run);
    let mut events = Events::open(&address, &path);
    let (first, state) = events.next().unwrap();
    assert_eq!((first.as_str(), &state["ended"]), ("state", &Value::Null));
    let all: Vec<_> = [(first, state)].into_iter().chain(events.rest()).collect();
    assert!(is_end(all.last().unwrap()));
    run.end().measures().leaves_nothing();
    let points = place.runs("r.jsonl");
    assert_eq!(points.len(), 2);
    let most = points.iter().map(|point| point.operations).max();
    let mut seen = 0;
    for run in looks(&all) {
        let look = &run["look"];
        assert_eq!(
            (&run["point"], &look["workers"]),
            (&"flock -w 3".into(), &3.into())
        );
        let shares = look["shares"].as_array().unwrap().iter();
        let sum: u64 = shares.map(|share| share.as_u64().unwrap()).sum();
        assert_eq!(look["operations"], sum);
        assert_eq!(look["overlaps"], 0);
        // A part of what a record has.
        assert!(Some(sum) <= most, "{look}");
        seen += sum;
    }
    assert!(seen > 0, "{all:?}");
    // The last table is that of the page that is written at the end.
    let rows = |html: &str| {
        let table = html
            .split_once("<table class=\"headline cards points\"")
            .unwrap()
            .1;
        table.split_once("</table>").unwrap().0.to_owned()
    };
    assert_eq!(rows(table(&all)), rows(&place.read("p.html")));
}

#[test]
fn browsers_that_leave_and_one_that_never_reads_disturb_nobody() {
    let place = Place::beside_others();
    let line = "contend flock -w 2 -t 1 --runs 400 --warmup 0 -o r.jsonl --live";
    let mut run = place.jostle(line).in_background();
    let (address, path) = page_of(&mut run);
    // It asks, and then reads nothing.
    let mut deaf = TcpStream::connect(&address).unwrap();
    let request = format!("GET {path}events HTTP/1.1\r\nHost: {address}\r\n\r\n");
    deaf.write_all(request.as_bytes()).unwrap();
    // It says nothing at all.
    let mute = TcpStream::connect(&address).unwrap();
    drop(Events::open(&address, &path));
    let mut both = [Events::open(&address, &path), Events::open(&address, &path)];
    let crowd: Vec<_> = (0..100).map(|_| TcpStream::connect(&address)).collect();
    // It goes on until all of them have come, however late.
    run.until_runs("r.jsonl", 4);
    run.signal(Signal::INT);
    let heard = both.each_mut().map(|events| events.rest());
    for events in &heard {
        assert!(events.last().is_some_and(is_end), "{events:?}");
        assert!(table(events).contains("flock"));
    }
    run.end().exits(130).leaves_nothing();
    assert!(place.runs("r.jsonl").len() >= 4);
    drop((deaf, mute, crowd));
}

#[test]
fn an_address_that_is_taken_is_an_error_before_anything_is_measured() {
    let _beside = beside();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    for option in [format!("--live={at}"), format!("--metrics {at}")] {
        let place = Place::new();
        let done = place
            .jostle(&format!("contend flock -o r.jsonl {option}"))
            .run();
        done.exits(1)
            .says("cannot listen at")
            .says("Address already in use")
            .does_not_say("runs, about")
            .prints_nothing()
            .leaves_nothing();
        assert!(!place.file("r.jsonl").exists());
    }
}

#[test]
fn connections_and_requests_are_watched_too() {
    let _beside = beside();
    let lines = "
        connect --open 1000:3000 --rate 800 => connect_ns
        rate lockd --rate 200 -t 3 -w 8 => response_ns
        spread lockd --in-flight 4 --generators 1 -t 3 => service_ns
        stream delay:5ms -n 500 => acquire_ns";
    for [line, timed] in rows(lines) {
        let mut run = jostle(&format!("{line} --runs 100 --live")).in_background();
        let (address, path) = page_of(&mut run);
        let (mut events, mut heard) = (Events::open(&address, &path), Vec::new());
        // As many runs as that takes.
        loop {
            let event = events.next();
            heard.push(event.unwrap_or_else(|| panic!("{line}: {heard:?}")));
            let is_timed = looks(&heard).any(|look| look["timed"] == timed);
            if is_timed && table(&heard).contains("<table") {
                break;
            }
        }
        run.signal(Signal::INT);
        run.end().exits(130).leaves_nothing();
    }
}

/// A program that is ended with the test.
struct Beside(Child);

impl Drop for Beside {
    fn drop(&mut self) {
        // With what it has started: its group is its own.
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

#[test]
fn chromium_shows_a_run_in_progress_without_a_complaint() {
    let place = Place::beside_others();
    let line = "contend null flock -w 2 -t 3 --runs 40 --warmup 0 --live";
    let mut run = place.jostle(line).in_background();
    let (address, path) = page_of(&mut run);
    let mut browser = Browser::open(&place);
    browser.visit(&format!("http://{address}{path}"));
    let shown = [
        "<title>jostle contend null, flock</title>",
        "id=\"link\" role=\"status\" class=\"on\"",
        "/s</dd>",
        ">acquire time</dt>",
        ">p50 ",
        ">workers ",
        "null -w 2: workers ",
        "<table class=\"headline cards points\"",
        // One row of the first table, and one that a later event added.
        "<tr class=\"first\"><td class=\"left\">null</td>",
        "<tr class=\"first\"><td class=\"left\">flock</td>",
        "Operations of each worker, ascending",
    ];
    let mut missing = Vec::new();
    let start = Instant::now();
    until("everything to be shown", LIMIT, || {
        let document = browser.document();
        missing = shown
            .iter()
            .filter(|text| !document.contains(**text))
            .collect();
        assert!(
            start.elapsed() < LIMIT - Duration::from_secs(5),
            "no {missing:?} in {document}"
        );
        std::thread::sleep(Duration::from_millis(100));
        missing.is_empty().then_some(())
    });
    assert_eq!(browser.console, [""; 0]);
    run.signal(Signal::INT);
    run.end().exits(130);
    until("the page to tell that it is over", LIMIT, || {
        browser.document().contains("interrupted").then_some(())
    });
    assert_eq!(browser.console, [""; 0]);
}

/// The queries of the dashboard, with a range where Grafana would choose one.
fn queries() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../grafana/jostle.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries = targets.map(|target| target["expr"].as_str().unwrap());
    queries
        .map(|query| query.replace("$__rate_interval", "30s"))
        .collect()
}

/// The answer of Prometheus: the values, or none.
fn answered(prometheus: &str, query: &str) -> Vec<Value> {
    let output = Command::new("curl")
        .args(["--silent", "--max-time", "10", "--get", "--data-urlencode"])
        .arg(format!("query={query}"))
        .arg(format!("http://{prometheus}/api/v1/query"))
        .output()
        .unwrap();
    let Ok(answer) = serde_json::from_slice::<Value>(&output.stdout) else {
        // It is not up yet.
        return Vec::new();
    };
    let found = answer["data"]["result"].as_array();
    assert!(answer["status"] == "success", "{query}: {answer}");
    found.unwrap().clone()
}

#[test]
fn prometheus_scrapes_a_run_and_answers_every_query_of_the_dashboard() {
    must_have("prometheus", "prometheus");
    must_have("curl", "curl");
    let place = Place::beside_others();
    let line = "contend flock -w 2 -t 8 --runs 100 --warmup 0 --metrics 0";
    let mut run = place.jostle(line).in_background();
    let (address, path) = served(&mut run, "metrics are at http://");
    assert_eq!(path, "/metrics");
    let text = get(&address, &path);
    assert!(
        text.contains("application/openmetrics-text; version=1.0.0"),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n\
         - {{job_name: jostle, static_configs: [{{targets: ['{address}']}}]}}\n"
    );
    fs::write(place.file("prometheus.yml"), config).unwrap();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let _prometheus = Beside(
        Command::new("prometheus")
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address={port}"))
            .current_dir(place.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap(),
    );
    let mut open = queries();
    assert!(open.len() > 10);
    let start = Instant::now();
    until("an answer to each query", LIMIT, || {
        open.retain(|query| answered(&port.to_string(), query).is_empty());
        // Beside busy programs the point may be INVALID, and then has no figures.
        if get(&address, &path).contains("verdict=\"INVALID\"} 1.0") {
            let figures = ["operations_per_second", "latency_seconds", "cpu_seconds"];
            let withheld = |query: &str| figures.iter().any(|name| query.contains(name));
            open.retain(|query| !(query.contains("jostle_point_") && withheld(query)));
        }
        std::thread::sleep(Duration::from_millis(500));
        let waited = start.elapsed() > LIMIT - Duration::from_secs(5);
        assert!(
            !waited,
            "Prometheus has no answer to {open:?}: {}",
            get(&address, &path)
        );
        open.is_empty().then_some(())
    });
    // After a scrape that failed there are none until the next.
    let verdicts = until("the three verdicts", LIMIT, || {
        let verdicts = answered(&port.to_string(), "jostle_point_verdict");
        (verdicts.len() == 3).then_some(verdicts)
    });
    assert_eq!(verdicts[0]["metric"]["target"], "flock");
    run.signal(Signal::INT);
    run.end().exits(130).leaves_nothing();
}

#[test]
fn on_a_terminal_the_points_with_finished_runs_stand_above_the_line() {
    must_have("script", "bsdutils");
    let _beside = beside();
    let jostle = env!("CARGO_BIN_EXE_jostle");
    let line = "contend null -w 1:2 -t 0.4 --runs 3 --warmup 0";
    let output = Command::new("timeout")
        .args(["--kill-after=5", "600", "script", "--quiet", "--return"])
        .args([
            "--command",
            &format!("{jostle} {line} >result"),
            "/dev/null",
        ])
        .current_dir(Place::new().path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let drawn = String::from_utf8_lossy(&output.stdout);
    // Behind the last run nothing may be drawn.
    for (workers, nth) in [(1, 1), (2, 1), (1, 2)] {
        let row = format!("null -w {workers} so far, {nth} of 3 runs:");
        assert!(flat(&drawn).contains(&row), "{row}: {drawn}");
    }
    assert!(drawn.contains("point 2 of 2, run 3 of 3"), "{drawn}");
    // A verdict takes all runs; the table, which has them, goes to a file here. That others are
    // busy is said before.
    let drawn = drawn.replace("this may be INVALID", "");
    assert!(!drawn.contains("VALID"), "{drawn}");
}
