use super::*;

macro_rules! samples {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("samples/", $name, ".txt")))),*]
    };
}

/// Outputs of real runs; docs/judge.md has the versions.
const SAMPLES: &[(&str, &str)] = &samples!(
    "ab" "ab-errors" "ab-length" "autocannon" "autocannon-closed" "autocannon-drop" "autocannon-errors"
    "autocannon-r" "bombardier" "bombardier-closed" "bombardier-drop" "bombardier-errors" "bombardier-r"
    "ghz" "ghz-errors" "ghz-r" "mysqlslap" "mysqlslap-e" "redis-benchmark-valkey"
    "redis-benchmark-valkey-csv" "redis-benchmark-valkey-q" "wrk-to-close" "hey" "hey-errors" "hey-closed" "k6" "k6-dropped" "k6-errors" "locust" "oha" "oha-errors" "oha-closed" "oha-z"
    "pgbench" "pgbench-t" "pgbench-r" "redis-benchmark" "redis-benchmark-q" "redis-benchmark-csv"
    "sysbench-oltp" "vegeta" "vegeta-errors" "vegeta-rate" "wrk" "wrk-errors" "wrk-close" "wrk-stopped"
);

fn sample(name: &str) -> &'static str {
    SAMPLES.iter().find(|(there, _)| *there == name).unwrap().1
}

/// A sample, the number of the result in it, and its figures.
const PRINTED: &str = include_str!("samples.txt");

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
    for &(name, text) in SAMPLES {
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
    for &(name, text) in SAMPLES {
        let whole = read(text);
        for (newline, _) in text.match_indices('\n') {
            let end = newline + 1;
            // autocannon writes its result at once, and last of all the errors, if any.
            if name == "autocannon-closed" && text[..end].contains(" read\n") {
                continue;
            }
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
                ) || *tool == "autocannon",
                "{tool}"
            );
            for pair in steps.windows(2).filter(|pair| pair[0] == Step::Any) {
                assert!(matches!(pair[1], Step::Once(_)), "{tool}: {pair:?}");
            }
            for place in format.split('{').skip(1) {
                let names = place.split(['}', ':', '*']).next().unwrap();
                for name in names.split('+') {
                    let figure = FIGURES.iter().any(|(figure, _)| *figure == name);
                    let other = ["_", "test", "code", "codes", TOTAL, EACH].contains(&name);
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
fn thousands_have_commas_or_a_letter_and_no_points() {
    for (text, number) in [("500", 500.0), ("41,200.5", 41_200.5), ("82k", 82_000.0)] {
        assert_eq!(grouped(text), Some(number));
    }
    for other in ["41.200", "847,5", "1.200,5", "x"] {
        assert_eq!(grouped(other), None, "{other}");
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
