//! Standard error and standard output that nobody reads.

use crate::common::Place;
use rustix::process::Signal;

/// For a shell: descriptor 9 is a pipe that is full, and that nobody reads.
const FULL: &str = "mkfifo full && exec 9<>full \
                    && { dd if=/dev/zero of=full bs=64k count=2 oflag=nonblock 2>dd || :; }";

fn with(redirection: &str) -> String {
    format!("{FULL} && exec {redirection}")
}

/// It made no point in 12 s, and only SIGKILL ended it.
#[test]
fn an_error_stream_that_nobody_reads_costs_no_point() {
    let place = Place::new();
    let line = "contend flock -w 1 -b 0 -i 0 -t 100ms --runs 2 -o points.jsonl";
    place
        .jostle(line)
        .after(&with("2>&9"))
        .run_cleanly()
        .measures()
        .prints("flock");
    assert_eq!(place.runs("points.jsonl").len(), 2);
}

#[test]
fn an_error_stream_that_nobody_reads_keeps_no_signal_away() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let line = "contend flock -w 2 -t 10min --runs 1";
        let run = Place::new().jostle(line).after(&with("2>&9"));
        let mut run = run.in_background();
        run.until_workers(2);
        run.signal(signal);
        run.end().exits(code).ends_within_a_minute();
    }
}

#[test]
fn results_that_nobody_reads_are_in_the_file_and_a_signal_ends_the_wait() {
    let line = "contend flock -w 1 -b 0 -i 0 -t 100ms --runs 2 -o points.jsonl";
    let run = Place::new().jostle(line).after(&with("1>&9"));
    let mut run = run.in_background();
    run.until("the end of the file", |run| {
        let text = run.place.read("points.jsonl");
        text.contains("\"record\":\"end\"").then_some(())
    });
    run.signal(Signal::TERM);
    let done = run.end();
    assert_eq!(done.place.runs("points.jsonl").len(), 2);
    done.exits(143)
        .says("finished points are kept in points.jsonl");
}
