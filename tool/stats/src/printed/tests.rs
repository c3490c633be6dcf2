use super::*;

macro_rules! samples {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("samples/", $name, ".txt")))),*]
    };
}

/// Outputs of real runs; docs/judge.md has the versions.
const SAMPLES: [(&str, &str); 24] = samples!(
    "ab" "ab-errors" "hey" "hey-errors" "hey-closed" "k6" "k6-errors" "locust" "oha" "oha-errors" "oha-closed" "oha-z"
    "pgbench" "pgbench-t" "pgbench-r" "redis-benchmark" "redis-benchmark-q" "redis-benchmark-csv"
    "sysbench-oltp" "vegeta" "vegeta-errors" "wrk" "wrk-errors" "wrk-close"
);

fn sample(name: &str) -> &'static str {
    SAMPLES.iter().find(|(there, _)| *there == name).unwrap().1
}

/// A sample, the number of the result in it, and its figures.
const PRINTED: &str = "\
ab 0 rate_per_s=4790.62 requests=5000 connections=20 mean_ms=4.175 p50_ms=4 p99_ms=11 max_ms=14 errors=0 not_2xx=0
ab-errors 0 rate_per_s=16724.59 errors=0 not_2xx=1252
hey 0 rate_per_s=8219.3955 requests=2000 mean_ms=2.3 p50_ms=1.3 p99_ms=13.9 max_ms=15.3 errors=0 not_2xx=0
hey-errors 0 requests=2000 not_2xx=501 errors=0
hey-closed 0 requests=400 errors=400 not_2xx=0
wrk 0 rate_per_s=50029.16 requests=100119 connections=20 mean_ms=0.48025 max_ms=10.02 errors=0
wrk-errors 0 p50_ms=0.346 p99_ms=3.51 not_2xx=24559
k6 0 rate_per_s=12952.380592 requests=26026 connections=5 mean_ms=0.33422 p50_ms=0.20515 max_ms=12.76 errors=0
k6-errors 0 requests=26166 errors=6489
locust 0 rate_per_s=221.03 requests=796 mean_ms=18 p50_ms=16 p99_ms=58 max_ms=277 errors=95
oha 0 rate_per_s=18558.9333 requests=2000 mean_ms=0.991 p50_ms=0.1833 p99_ms=13.0248 max_ms=13.722 errors=0
oha-errors 0 requests=2000 errors=0 not_2xx=487
oha-closed 0 requests=50 errors=50
oha-z 0 requests=17985 errors=5 not_2xx=0
pgbench 0 rate_per_s=8593.848188 requests=15727 connections=10 mean_ms=1.164 errors=0
pgbench-t 0 rate_per_s=221.926936 requests=400 connections=4 mean_ms=17.635
pgbench-r 0 rate_per_s=74.732718 requests=400 mean_ms=53.524
redis-benchmark 0 rate_per_s=23364.49 requests=20000 connections=20 mean_ms=0.626 p50_ms=0.287 p99_ms=5.679 max_ms=11.991
redis-benchmark 1 rate_per_s=16736.40 p99_ms=8.271
redis-benchmark-q 1 rate_per_s=12292.56 p50_ms=0.351
redis-benchmark-csv 0 rate_per_s=13821.70 mean_ms=1.261 p50_ms=0.303 p99_ms=9.495 max_ms=13.839
redis-benchmark-csv 1 rate_per_s=13596.19 max_ms=16.063
sysbench-oltp 0 rate_per_s=1355.77 requests=2721 connections=4 mean_ms=2.94 max_ms=14.12 errors=0
vegeta 0 rate_per_s=200.43 requests=400 mean_ms=0.302967 p50_ms=0.265646 p99_ms=1.058 max_ms=4.362 errors=0 not_2xx=0
vegeta-errors 0 errors=200 not_2xx=47
wrk-close 0 rate_per_s=0 requests=0 errors=9981";

#[test]
fn figures_are_those_that_were_printed() {
    for line in PRINTED.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let found = read(sample(words[0])).swap_remove(words[1].parse().unwrap());
        for word in &words[2..] {
            let (figure, value) = word.split_once('=').unwrap();
            let printed = value.parse::<f64>().unwrap();
            assert_eq!(
                found.figures.get(figure),
                Some(&printed),
                "{line}: {figure}"
            );
        }
    }
}

#[test]
fn every_tool_is_known_by_its_own_output_alone() {
    for (name, text) in SAMPLES {
        let tool = tools().find(|tool| name.starts_with(tool)).unwrap();
        let found = read(text);
        assert!(!found.is_empty(), "{name}");
        assert!(
            found.iter().all(|result| result.tool == tool),
            "{name}: {found:?}"
        );
    }
    for tool in tools() {
        assert!(
            SAMPLES.iter().any(|(name, _)| name.starts_with(tool)),
            "{tool}"
        );
    }
}

/// Wherever an output ends, its results are those that were whole by then, and what follows
/// adds nothing to one that was cut.
#[test]
fn a_result_that_was_cut_has_no_figures() {
    for (name, text) in SAMPLES {
        let whole = read(text);
        for (newline, _) in text.match_indices('\n') {
            let end = newline + 1;
            let cut = read(&text[..end]);
            assert!(whole.starts_with(&cut), "{name} cut at {end}: {cut:?}");
            let within = read(&text[..newline]);
            assert!(
                cut.starts_with(&within),
                "{name} cut at {newline}: {within:?}"
            );
            // An empty line is the end of some, and the beginning of hey's.
            let anew = text.trim_start_matches('\n');
            let both = read(&format!("{}{anew}", &text[..end]));
            let wanted: Vec<Printed> = cut.into_iter().chain(whole.clone()).collect();
            assert_eq!(both, wanted, "{name} cut at {end}, and begun anew");
        }
    }
}

#[test]
fn every_format_says_where_it_begins_and_ends_and_names_known_figures() {
    for (tool, text) in TOOLS {
        for format in text.split("----\n") {
            let steps = steps(format);
            let first = steps.iter().find(|step| !matches!(step, Step::Before(_)));
            assert!(matches!(first, Some(Step::Once(_))), "{tool}");
            assert!(
                matches!(
                    steps.last(),
                    Some(Step::Once(_) | Step::Empty | Step::Whole)
                ),
                "{tool}"
            );
            for pair in steps.windows(2).filter(|pair| pair[0] == Step::Any) {
                assert!(matches!(pair[1], Step::Once(_)), "{tool}: {pair:?}");
            }
            for place in format.split('{').skip(1) {
                let names = place.split(['}', ':', '*']).next().unwrap();
                for name in names.split('+') {
                    let figure = FIGURES.iter().any(|(figure, _)| *figure == name);
                    let other = ["_", "test", "code", "codes", TOTAL].contains(&name);
                    assert!(figure || other, "{tool}: {name}");
                }
            }
        }
    }
}

#[test]
fn colours_progress_and_other_text_are_passed_over() {
    let wrk = sample("wrk");
    let coloured = wrk.replace("Requests/sec:", "\u{1b}[1mRequests/sec:\u{1b}[0m");
    let late = format!("progress 1 %\rprogress 2 %\r{coloured}bye\n").replace('\n', "\r\n");
    assert_eq!(read(&late), read(wrk));
    assert_eq!(read("Requests/sec: 1\nTransfer/sec: 1\n"), []);
    // Another version: a line more, or another word.
    for (line, other) in [
        ("  2 threads", "  1 process\n  2 threads"),
        ("Requests/sec", "Answers/sec"),
    ] {
        assert_eq!(read(&wrk.replace(line, other)), [], "{other}");
    }
}

#[test]
fn times_have_the_unit_that_stands_behind_them() {
    for (text, ms) in [
        ("1.5ms", Some(1.5)),
        ("450.00us", Some(0.45)),
        ("365µs", Some(0.365)),
        ("1m2.5s", Some(62_500.0)),
        ("2h", Some(7.2e6)),
        ("0s", Some(0.0)),
        ("3", None),
        ("ms", None),
        ("", None),
        ("1.2.3s", None),
    ] {
        assert_eq!(duration_ms(text), ms, "{text}");
    }
}

#[test]
fn a_line_about_ports_is_found_in_each_language_s_words() {
    for line in [
        "Could not connect to Redis at 127.0.0.1:6379: Cannot assign requested address",
        "dial tcp 127.0.0.1:80: connect: cannot assign requested address",
        "Error: connect EADDRNOTAVAIL 127.0.0.1:80 - Local (0.0.0.0:0)",
        "java.net.NoRouteToHostException: Address not available",
        "OSError: [Errno 99] Die angeforderte Adresse kann nicht zugewiesen werden",
        "Os { code: 99, kind: AddrNotAvailable, message: \"\" } (os error 99)",
    ] {
        let text = format!("Running\n{line}\nend\n");
        assert_eq!(no_port(&text).as_deref(), Some(line));
    }
    assert_eq!(no_port("Connection refused\n"), None);
    assert_eq!(no_port("job failed with errno 990\n"), None);
}
