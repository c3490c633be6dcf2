use super::*;
use jostle_model::judged::{Finding, Machine, Thread, Traffic};

/// Three seconds of a busy generator.
pub(crate) fn made() -> Watched {
    let thread = |name: &str, cpu: f64| Thread {
        name: name.to_owned(),
        pid: 7,
        tid: 8,
        cpu_s: vec![cpu; 3],
        queued_s: vec![0.02; 3],
    };
    let side = |name: &str, cpu: f64| Side {
        processes: 1,
        threads: 1,
        cpu_s: vec![cpu; 3],
        queued_s: Some(vec![0.02; 3]),
        stopped_s: vec![0.0; 3],
        busiest: vec![thread(name, cpu)],
        ..Side::default()
    };
    Watched {
        schema: jostle_model::record::SCHEMA.to_owned(),
        command: ["redis-benchmark", "-c", "50", "-t", "a b"]
            .map(str::to_owned)
            .to_vec(),
        server_at: Some(":6379".to_owned()),
        elapsed_s: 3.0,
        exit: Some(0),
        end_s: vec![1.0, 2.0, 3.0],
        span_s: vec![1.0; 3],
        generator: side("redis-benchmark", 0.95),
        server: Some(side("redis-server", 0.5)),
        traffic: Some(Traffic {
            port: 6379,
            bytes: vec![2e6; 3],
            segments: vec![1e4; 3],
            retransmitted: vec![0.0; 3],
            connections: vec![50.0; 3],
            opened: vec![0.0; 3],
            generator_unread_bytes: vec![0.0; 3],
            time_wait: vec![0.0; 3],
            ports_left: vec![28_000.0; 3],
            ports: 28_232,
            ..Traffic::default()
        }),
        machine: Machine {
            cpus: 2,
            stolen_s: vec![0.0; 3],
            others_s: Some(vec![0.01; 3]),
            tool_s: vec![0.004; 3],
            behind_s: None,
            neighbours: Vec::new(),
        },
        finding: Finding {
            limit: Limit::Generator,
            since_s: Some(0.0),
            to_s: 3.0,
            generator_busy_share: Some(0.97),
            server_busy_share: Some(0.52),
            reasons: vec!["the generator was busy".to_owned()],
            meaning: "The server does at least as much.".to_owned(),
            ..Finding::default()
        },
        ..Watched::default()
    }
}

fn pairs() -> Doubled {
    Doubled {
        command: vec!["wrk".to_owned(), "-c{50}".to_owned()],
        copies: false,
        loads: [50, 100],
        measure: "bytes".to_owned(),
        rates_per_s: vec![[2e6, 3e6]],
        ratio: 1.5,
        low: 1.4,
        high: 1.6,
        limit: Limit::Generator,
        reason: "twice the load did 1.50 times the work".to_owned(),
        meaning: "The server does at least as much.".to_owned(),
    }
}

#[test]
fn the_text_names_the_limit_the_reasons_and_what_they_mean() {
    let text = one(&made());
    for part in [
        "jostle judge: redis-benchmark -c 50 -t 'a b'",
        "limit: generator (0.0 to 3.0 s judged)",
        "  - the generator was busy.",
        "server :6379  52 %    50 %",
        "port 6379: 50 connections, 2.00 MB/s",
        "jostle itself 0.004 CPUs",
        "The server does at least as much.",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let mut changed = made();
    changed.finding.seconds = "GG.".to_owned();
    (changed.finding.since_s, changed.finding.until_s) = (Some(0.0), Some(2.0));
    let others = &mut changed.traffic.as_mut().unwrap().others;
    others.push(Peer {
        at: "127.0.0.1:81".to_owned(),
        connections: 3,
        ..Peer::default()
    });
    let text = one(&changed);
    for part in [
        "limit: generator from 0.0 to 2.0 s",
        "GG.  1.0 s each: G generator, . no traffic",
        "the command also to\n  127.0.0.1:81 (3 connections)",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let mut failed = made();
    failed.exit = Some(7);
    assert!(one(&failed).contains("exit code 7"));
    failed.exit = None;
    failed.signal = Some("SIGSEGV".to_owned());
    assert!(one(&failed).contains("ended by SIGSEGV"));
    assert!(doubled(&pairs()).contains("      2.00       3.00   x 1.50"));
}

#[test]
fn what_is_written_is_read_again_and_a_torn_end_is_left_out() {
    let found = Judgements {
        watched: vec![made()],
        doubled: vec![pairs()],
        notes: Vec::new(),
    };
    let written = render("json", &found);
    assert!(is_judged(&mut written.as_bytes()));
    assert_eq!(read_from(&mut written.as_bytes(), "x").unwrap(), found);
    let torn = &written[..written.len() - 40];
    let read = read_from(&mut torn.as_bytes(), "x").unwrap();
    assert_eq!((read.watched.len(), read.doubled.len()), (1, 0));
    assert!(read.notes[0].starts_with("x, line 2, was torn"), "{read:?}");
    assert!(!is_judged(&mut &b"{\"record\":\"experiment\"}"[..]));
    assert!(read_from(&mut &b"{\"record\":\"judged\"}\n"[..], "x").is_err());
}

#[test]
fn a_torn_line_in_the_middle_is_named_and_one_alone_is_no_result() {
    let found = Judgements {
        watched: vec![made(); 2],
        ..Judgements::default()
    };
    let written = render("json", &found);
    let (first, second) = written.split_once('\n').unwrap();
    let torn = &first[..first.len() / 2];
    let said = |text: String| {
        let error = read_from(&mut text.as_bytes(), "x").unwrap_err();
        error.to_string()
    };
    let middle = said(format!("{torn}\n{second}"));
    assert!(
        middle.starts_with("x, line 1: not a whole record"),
        "{middle}"
    );
    let alone = said(torn.to_owned());
    assert!(alone.starts_with("x holds no results"), "{alone}");
}

#[test]
fn the_series_has_a_line_for_each_interval_and_leaves_out_what_was_not_measured() {
    let found = Judgements {
        watched: vec![made()],
        ..Judgements::default()
    };
    let csv = render("csv", &found);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 4);
    let cells: Vec<&str> = lines[1].split(',').collect();
    assert_eq!(cells.len(), lines[0].split(',').count());
    assert_eq!(&cells[..6], ["1", "1", "0.95", "0.02", "0", ""]);
    assert!(render("gnuplot", &found).starts_with("# end_s span_s"));
    assert!(render("markdown", &found).starts_with("```text\njostle judge"));
}

#[test]
fn shares_of_time_are_at_most_all_of_it_and_a_moment_has_none() {
    let mut watched = made();
    // Two threads that a quota stops together: the kernel adds up both.
    let other = watched.generator.busiest[0].clone();
    watched.generator.busiest.push(other);
    watched.generator.throttled_s = Some(vec![1.14; 3]);
    assert_eq!(sides(&watched)[0][5], "57 %");
    // As of `true`: the clocks' ticks are longer than the run.
    watched.span_s = vec![0.002; 3];
    watched.end_s = vec![0.002, 0.004, 0.006];
    assert!(!one(&watched).contains("CPUs"), "{}", one(&watched));
}
