//! The worth of the figures that the command printed, beside the verdict: failures among them, and
//! what the kernel saw of the same.

use super::planned::impossible;
use super::words::{percent, seconds};
use crate::fairness::is_uneven;
use crate::numbers::grouped;
use crate::printed::{ERRORS, NOT_2XX};
use jostle_model::judged::{Lookups, Output, Printed, StartedBy, Traffic, Watched};

/// Failures for each request from which the figures are those of other work.
const FAILED: f64 = 0.01;

/// Share of the planned connections that the kernel has to see, and most connections for each
/// request that may be somebody else's or a second try.
pub(super) const SEEN: f64 = 0.95;
const MORE: f64 = 1.25;

/// Share of the run for which the command may wait until its output is taken.
const STALLED: f64 = 0.05;

/// Warnings to a reader of the figures, one sentence each.
pub fn notes(output: &Output, watched: &Watched) -> Vec<String> {
    let results = output.results.iter();
    let failed = results.flat_map(|of| [failed(of), impossible(of, &watched.command)]);
    let failed = failed.flatten();
    let traffic = watched.traffic.as_ref();
    let kernel =
        traffic.and_then(|traffic| fewer(output, traffic).or_else(|| more(output, traffic)));
    let failed = failed.chain(kernel);
    failed.chain(stalled(output, watched)).collect()
}

/// Warnings about the server, whatever was printed, one sentence each.
pub fn of_server(watched: &Watched) -> Vec<String> {
    let traffic = watched.traffic.as_ref();
    let traffic = traffic.into_iter();
    let of_traffic = traffic.flat_map(|of| [chosen(of), shared_out(of), not_started(watched)]);
    let missed = watched.lookups.as_ref().and_then(missed);
    of_traffic.flatten().chain(missed).collect()
}

/// Share of the reads that find nothing from which they are those of an empty store, and
/// fewest reads that show it.
const MISSED: f64 = 0.5;
const READS: u64 = 100;

fn missed(lookups: &Lookups) -> Option<String> {
    let reads = lookups.hits + lookups.misses;
    let share = lookups.misses as f64 / reads.max(1) as f64;
    (reads >= READS && share >= MISSED).then(|| {
        format!(
            "{} of the {} reads that the server counted were misses: the figures are those of \
             keys that are not there",
            percent(share),
            grouped(reads)
        )
    })
}

/// A sentence naming the server that is judged, where the command has several.
fn chosen(traffic: &Traffic) -> Option<String> {
    let other = traffic.others.iter().max_by_key(|peer| peer.bytes)?;
    let open = traffic.connections.iter().copied().fold(0.0, f64::max);
    let bytes: f64 = traffic.bytes.iter().sum();
    let rest: u64 = traffic.others.iter().map(|peer| peer.connections).sum();
    let more = match other.bytes as f64 > bytes.max(1.0) {
        true => format!(
            "; {} carried {:.1} times as many bytes: --server :{} judges it",
            other.at,
            other.bytes as f64 / bytes.max(1.0),
            other.at.rsplit(':').next().unwrap_or_default()
        ),
        false => String::new(),
    };
    Some(format!(
        "the server at port {} is judged, to which {} of the command's {} connections led{more}",
        traffic.port,
        whole(open),
        whole(open + rest as f64)
    ))
}

/// That another server was judged than `--start-server` started.
fn not_started(watched: &Watched) -> Option<String> {
    let by = watched.server.as_ref().map(|server| server.started_by);
    (watched.start_server.is_some() && by? != Some(StartedBy::Judge)).then(|| {
        "the server that is judged is none of the processes that --start-server has started"
            .to_owned()
    })
}

/// How the connections are shared out among the server's processes, if it is less even than
/// by chance.
fn shared_out(traffic: &Traffic) -> Option<String> {
    let counts = &traffic.at_processes;
    let all: u64 = counts.iter().sum();
    is_uneven(counts).then(|| {
        let idle = counts.iter().filter(|count| **count == 0).count();
        let idle = match idle {
            0 => String::new(),
            _ => format!("; {idle} of these had none"),
        };
        format!(
            "{} of {} connections were at one of the server's {} processes, less even than by \
             chance{idle}",
            grouped(counts.iter().copied().max().unwrap_or(0)),
            grouped(all),
            counts.len()
        )
    })
}

pub(super) fn figure(result: &Printed, name: &str) -> f64 {
    result.figures.get(name).copied().unwrap_or(0.0)
}

pub(super) fn whole(number: f64) -> String {
    grouped(number as u64)
}

fn failed(result: &Printed) -> Option<String> {
    let [errors, not_2xx, requests] =
        [ERRORS, NOT_2XX, "requests"].map(|name| figure(result, name));
    if each_ends(result) && not_2xx < FAILED * requests {
        return Some(format!(
            "wrk printed as many errors as requests ({}): an answer that ends with its connection \
             counts as both, so these may be no failures",
            whole(errors)
        ));
    }
    let failures = [(errors, "errors"), (not_2xx, "answers not 2xx")];
    let failures = failures.iter().filter(|(number, _)| *number > 0.0);
    let failures: Vec<String> = failures
        .map(|(number, what)| format!("{} {what}", whole(*number)))
        .collect();
    (errors + not_2xx > 0.0 && errors + not_2xx >= FAILED * requests).then(|| {
        format!(
            "{} printed {} at {} requests: its figures are those of other work",
            result.tool,
            failures.join(" and "),
            whole(requests)
        )
    })
}

/// Whether wrk printed an error for each request, but for those that were under way at the end:
/// where an answer has no length, it counts the end of the connection both as the end of the
/// answer and as a read error, and connects twice.
fn each_ends(result: &Printed) -> bool {
    let [errors, requests, connections] =
        [ERRORS, "requests", "connections"].map(|name| figure(result, name));
    let under_way = connections.min((1.0 - SEEN) * requests);
    result.tool == "wrk" && requests > 0.0 && (errors - requests).abs() <= under_way
}

/// Connections that were planned and never opened. Not where each request has its own: then
/// few are open at a look.
fn fewer(output: &Output, traffic: &Traffic) -> Option<String> {
    let planned = output
        .results
        .iter()
        .map(|result| figure(result, "connections"))
        .fold(0.0, f64::max);
    let open = traffic.connections.iter().copied().fold(0.0, f64::max);
    let opened: f64 = traffic.opened.iter().sum();
    let kept = opened < 2.0 * planned;
    (kept && open > 0.0 && open < SEEN * planned).then(|| {
        format!(
            "the command planned {} connections, and the kernel saw at most {} open",
            whole(planned),
            whole(open)
        )
    })
}

/// More connections than requests, where each request has its own.
fn more(output: &Output, traffic: &Traffic) -> Option<String> {
    let results = output.results.iter().filter(|of| !each_ends(of));
    let requests: f64 = results.map(|result| figure(result, "requests")).sum();
    let opened: f64 = traffic.opened.iter().sum();
    (requests >= 100.0 && opened > MORE * requests).then(|| {
        format!(
            "the command printed {} requests, and the kernel counted some {} connections to its \
             server, by the share of new ones that looks met",
            whole(requests),
            whole(opened)
        )
    })
}

fn stalled(output: &Output, watched: &Watched) -> Option<String> {
    (output.stalled_s >= STALLED * watched.elapsed_s.max(f64::MIN_POSITIVE)).then(|| {
        format!(
            "the command may have waited for {} until its output was taken",
            seconds(output.stalled_s)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::judged::Peer;

    fn traffic(open: f64, opened: f64, at_processes: &[u64]) -> Traffic {
        Traffic {
            connections: vec![0.0, open],
            opened: vec![opened, 0.0],
            at_processes: at_processes.to_vec(),
            ..Traffic::default()
        }
    }

    /// The notes on figures such as `requests=5 errors=1`, and on waits of these seconds.
    fn notes_on(figures: &str, stalled_s: f64, [open, opened]: [f64; 2]) -> String {
        let figures = figures.split_whitespace().map(|figure| {
            let (name, value) = figure.split_once('=').unwrap();
            (name.to_owned(), value.parse().unwrap())
        });
        let result = Printed {
            tool: "wrk".to_owned(),
            test: None,
            figures: figures.collect(),
        };
        let output = Output {
            results: vec![result],
            stalled_s,
            ..Output::default()
        };
        let watched = Watched {
            elapsed_s: 10.0,
            traffic: Some(traffic(open, opened, &[])),
            ..Watched::default()
        };
        notes(&output, &watched).join("; ")
    }

    #[test]
    fn figures_of_other_work_and_what_the_kernel_saw_otherwise_are_told() {
        let planned = "connections=1000 requests=5000";
        for (figures, stalled_s, kernel, note) in [
            ("requests=1000 errors=0 not_2xx=0", 0.4, [20.0, 20.0], ""),
            ("requests=1000 errors=4 not_2xx=5", 0.0, [20.0, 20.0], ""),
            (
                "requests=1000 errors=4 not_2xx=6",
                0.0,
                [20.0, 20.0],
                "wrk printed 4 errors and 6 answers not 2xx at 1,000 requests: ",
            ),
            (
                "requests=1000 errors=999 connections=20",
                0.0,
                [20.0, 20.0],
                "wrk printed as many errors as requests (999): an ",
            ),
            // No request was answered.
            (
                "requests=0 errors=9",
                0.0,
                [1.0, 1.0],
                "wrk printed 9 errors at 0 requests: ",
            ),
            (planned, 0.0, [960.0, 1000.0], ""),
            (
                planned,
                0.0,
                [755.0, 800.0],
                "the command planned 1,000 connections, and ",
            ),
            // A connection for each request: few are open at a look.
            (planned, 0.0, [20.0, 5000.0], ""),
            (
                planned,
                0.0,
                [20.0, 6990.0],
                "the command printed 5,000 requests, and the kernel ",
            ),
            // The server is elsewhere.
            (planned, 0.0, [0.0, 0.0], ""),
            (
                "",
                1.5,
                [1.0, 1.0],
                "the command may have waited for 1.5 s until ",
            ),
        ] {
            let told = notes_on(figures, stalled_s, kernel);
            assert!(
                told.starts_with(note) && told.is_empty() == note.is_empty(),
                "{told}"
            );
        }
    }

    #[test]
    fn reads_of_a_store_that_is_empty_are_told() {
        let told = |hits, misses| {
            let lookups = Some(Lookups { hits, misses });
            let watched = Watched {
                lookups,
                ..Watched::default()
            };
            of_server(&watched).join("; ")
        };
        assert_eq!(
            told(30_000, 970_000),
            "97 % of the 1,000,000 reads that the server counted were misses: the figures are \
             those of keys that are not there"
        );
        assert_eq!((told(600, 500), told(0, 99)), Default::default());
    }

    #[test]
    fn which_of_several_servers_is_judged_is_told() {
        let told = |bytes: u64| {
            let mut traffic = traffic(50.0, 50.0, &[]);
            (traffic.port, traffic.bytes) = (6379, vec![500.0, 500.0]);
            traffic.others = vec![Peer {
                at: "127.0.0.1:6380".to_owned(),
                connections: 20,
                bytes,
                ..Peer::default()
            }];
            chosen(&traffic).unwrap()
        };
        let judged =
            "the server at port 6379 is judged, to which 50 of the command's 70 connections led";
        assert_eq!(told(900), judged);
        let more = "; 127.0.0.1:6380 carried 3.0 times as many bytes: --server :6380 judges it";
        assert_eq!(told(3_000), format!("{judged}{more}"));
        assert_eq!(chosen(&traffic(50.0, 50.0, &[])), None);
    }

    #[test]
    fn connections_at_one_of_several_processes_are_told() {
        let told = shared_out(&traffic(1.0, 1.0, &[80, 755, 83, 82])).unwrap();
        assert!(
            told.starts_with("755 of 1,000 connections were at one of the server's 4 processes")
        );
        assert_eq!(shared_out(&traffic(1.0, 1.0, &[250, 240, 262, 248])), None);
        let told = shared_out(&traffic(1.0, 1.0, &[6, 0, 94, 0])).unwrap();
        let rest = "one of the server's 4 processes, less even than by chance; 2 of these had none";
        assert_eq!(told, format!("94 of 100 connections were at {rest}"));
    }
}
