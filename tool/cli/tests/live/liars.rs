//! Servers that lie: that close what they have accepted, answer twice, before they
//! are asked, by halves, wrongly, or for another request. Each makes its point
//! INVALID with a message that names the cause; the same server, honest, does not.

use crate::common::liar::{Fate, Lie, Speech, accepting, answering};
use crate::common::{Done, beside, in_some_try, jostle, reason};
use jostle_model::record::{Run, Status};
use std::time::Duration;

const KIND: &str = "the server's answer is of another kind than this request has";
const UNASKED: &str = "the server sent an answer that no request had asked for";

/// The points of one sweep of connections to this port.
fn connect(port: u16, options: &str) -> Vec<Run> {
    let line = format!("connect tcp://127.0.0.1:{port} {options} --runs 1 --quiet --format json");
    jostle(&line).run_cleanly().measures().runs()
}

/// How many connections were lost, the first of them, and the verdict on that.
fn lost(run: &Run) -> (u64, Option<u64>, Option<Status>) {
    let connections = run.connections.as_ref().unwrap();
    let reason = reason(run, "lost");
    (
        connections.lost.unwrap(),
        connections.first_lost,
        reason.map(|reason| reason.is),
    )
}

#[test]
fn connections_that_the_server_keeps_are_open_whatever_it_says_on_them() {
    let _beside = beside();
    for fate in [Fate::Kept, Fate::Greeted] {
        for point in connect(accepting(move |_| fate), "--open 100:600") {
            assert_eq!(lost(&point), (0, None, None), "{fate:?}");
        }
    }
}

/// `connect tcp://...` to such servers once was VALID, at 14 us a connection, with 100
/// of 1,500 open, or none.
#[test]
fn connections_that_the_server_closes_or_resets_are_not_open() {
    let _beside = beside();
    for fate in [Fate::Closed, Fate::Reset] {
        // A server that is not scheduled closes them too late.
        let points = in_some_try("lost connections at every point", || {
            let some = accepting(move |nth| if nth > 100 { fate } else { Fate::Kept });
            let points = connect(some, "--open 100:500:1500");
            let closed = |point: &Run| lost(point).0 > 0;
            points.iter().skip(1).all(closed).then_some(points)
        });
        assert_eq!(lost(&points[0]), (0, None, None));
        // A reset that comes while connect() returns is its error, and ends the sweep.
        assert!(points.len() > 1, "{points:?}");
        for (point, most) in points.iter().skip(1).zip([400, 1_400]) {
            let (count, first, is) = lost(point);
            assert!((1..=most).contains(&count), "{count}");
            assert_eq!((first, is), (Some(101), Some(Status::Invalid)));
            let text = &point.verdict.reasons[0].text;
            let (begins, ends) = (
                "the server, or something before it, had closed or reset ",
                "(--open 100)",
            );
            assert!(text.starts_with(begins) && text.ends_with(ends), "{text}");
        }
        let (_, first, is) = in_some_try("a lost connection", || {
            let all = connect(accepting(move |_| fate), "--open 300");
            Some(lost(&all[0])).filter(|found| found.0 > 0)
        });
        assert_eq!((first, is), (Some(1), Some(Status::Invalid)));
    }
}

#[test]
fn connections_are_looked_at_in_every_client_process() {
    let _beside = beside();
    let found = in_some_try("both lost connections", || {
        let port = accepting(|nth| match nth {
            150 | 400 => Fate::Closed,
            _ => Fate::Kept,
        });
        let line = format!("connect tcp://127.0.0.1:{port} --open 500 --runs 1 -q --format json");
        let done = jostle(&line)
            .under("prlimit --nofile=200:200")
            .run_cleanly();
        let run = done.measures().only_run();
        let connections = run.connections.as_ref().unwrap();
        assert!(connections.client.processes >= 3, "{connections:?}");
        // A server that is not scheduled closes the second one too late.
        let found = lost(&run);
        (found.0 == 2).then_some(found)
    });
    assert_eq!(found, (2, Some(150), Some(Status::Invalid)));
}

#[test]
fn one_lost_connection_in_two_thousand_is_suspect() {
    let _beside = beside();
    // A server that is not scheduled closes it too late.
    let found = in_some_try("the lost connection", || {
        let port = accepting(|nth| if nth == 700 { Fate::Closed } else { Fate::Kept });
        let points = connect(port, "--open 2000");
        Some(lost(&points[0])).filter(|found| found.0 > 0)
    });
    assert_eq!(found, (1, Some(700), Some(Status::Suspect)));
}

/// The sweep takes 3 s, and each connection lives for one.
#[test]
fn connections_that_are_closed_after_a_second_are_lost_when_the_sweep_lasts_longer() {
    let _beside = beside();
    let (_, first, is) = in_some_try("a hundred lost connections", || {
        let port = accepting(|_| Fate::ClosedAfter(Duration::from_secs(1)));
        let points = connect(port, "--open 600 --rate 200");
        Some(lost(&points[0])).filter(|found| found.0 >= 100)
    });
    assert_eq!((first, is), (Some(1), Some(Status::Invalid)));
}

#[test]
fn our_own_servers_lose_nothing() {
    let _beside = beside();
    for target in ["tcp", "unix"] {
        let line = format!("connect {target} --open 300:1000 --runs 1 --quiet --format json");
        for run in jostle(&line).run_cleanly().measures().runs() {
            assert_eq!(lost(&run), (0, None, None), "{target}");
        }
    }
}

/// One run of requests to a server that speaks and lies so.
fn asked(speech: Speech, lie: Lie, options: &str) -> Done {
    let port = answering(speech, lie);
    let (verb, options) = match options.split_once(' ') {
        Some((verb @ ("rate" | "spread" | "hold" | "contend"), options)) => (verb, options),
        _ => ("stream", options),
    };
    let target = match speech {
        Speech::Http => format!("http://127.0.0.1:{port}/"),
        Speech::Procd => format!("procd://127.0.0.1:{port}/any"),
        Speech::Ldap => format!("ldap://127.0.0.1:{port}/dc=x?(cn=a)"),
        Speech::Lockd => format!("lockd://127.0.0.1:{port}"),
        Speech::Redis => format!("redis://127.0.0.1:{port}"),
    };
    let line = format!("{verb} {target} --runs 1 --quiet --format json {options}");
    jostle(&line).run_cleanly()
}

/// Requests for a window's time, in which a machine that stands still may make no tenth one.
fn asked_ten_times(speech: Speech, lie: Lie, options: &str) -> Done {
    in_some_try("an error", || {
        let done = asked(speech, lie, options);
        let is_told = |done: &Done| reason(&done.only_run(), "errors").is_some();
        (done.code() == 1 || is_told(&done)).then_some(done)
    })
}

/// Ways to ask each of them; a lock is asked twice for each operation.
const WAYS: &[(Speech, &str)] = &[
    (Speech::Http, "-n 25 -w 2 --connection keep"),
    (Speech::Http, "-n 25 -w 2 --connection keep --as threads"),
    (Speech::Procd, "-n 25 -w 2"),
    (Speech::Ldap, "-n 25 -w 2 --connection keep"),
    (Speech::Lockd, "-n 25 -w 2 --names own"),
    (Speech::Lockd, "-n 25 -w 2 --names own --as tasks"),
    (Speech::Lockd, "-n 64 -w 2 --names own --pipeline 8"),
    (
        Speech::Lockd,
        "-n 64 -w 2 --names own --pipeline 8 --as tasks",
    ),
    (Speech::Lockd, "hold --keys 20"),
    (Speech::Redis, "-n 25 -w 2 --names own"),
    (Speech::Redis, "-n 25 -w 2 --names own --as tasks"),
];

/// With a connection for each request.
const EACH: &[(Speech, &str)] = &[
    (Speech::Http, "-n 25 -w 2 --connection each"),
    (Speech::Ldap, "-n 25 -w 2 --connection each"),
];

fn is_unasked(run: &Run) -> bool {
    run.around
        .messages
        .iter()
        .any(|said| said.contains(UNASKED))
}

#[track_caller]
fn is_an_error(done: Done, says: &[&str]) {
    // A lock is looked at before the first run, which then does not begin.
    if done.code() == 1 {
        let said = |say: &&str| done.stderr.contains(*say);
        assert!(says.iter().any(said), "{}", done.transcript());
        return;
    }
    let done = done.exits(3);
    let run = done.only_run();
    let errors = reason(&run, "errors");
    assert!(errors.is_some(), "no error in {:?}", run.verdict);
    let all = format!("{:?} {:?}", run.around.errors, run.around.messages);
    assert!(says.iter().any(|say| all.contains(say)), "{all}");
}

#[test]
fn an_honest_server_is_not_flagged() {
    let _beside = beside();
    for (speech, way) in WAYS.iter().chain(EACH) {
        let run = asked(*speech, Lie::None, way).measures().only_run();
        assert_eq!(reason(&run, "errors"), None, "{speech:?} {way}");
        assert!(run.around.errors.is_empty(), "{:?}", run.around.errors);
    }
}

/// `stream http://... --connection keep` once said of such a server "300 requests, all
/// as expected", although from the tenth on each answer was that to the request before.
#[test]
fn a_server_that_answers_every_tenth_request_twice_is_found_out() {
    let _beside = beside();
    for late in [false, true] {
        for (speech, way) in WAYS {
            eprintln!("{speech:?} {way}, late: {late}");
            // An answer that comes later may also be one to another request, or a
            // token where UNLOCK was asked.
            let says: &[&str] = match (speech, late) {
                (Speech::Ldap, true) => &[UNASKED, "answered another request"],
                (Speech::Lockd | Speech::Redis, true) => &[UNASKED, KIND],
                _ => &[UNASKED],
            };
            is_an_error(asked(*speech, Lie::Twice { late }, way), says);
        }
    }
    for (speech, way) in EACH {
        is_an_error(asked(*speech, Lie::Twice { late: false }, way), &[UNASKED]);
    }
}

#[test]
fn a_server_that_answers_the_next_request_before_it_is_sent_is_found_out() {
    let _beside = beside();
    for (speech, way) in WAYS {
        eprintln!("{speech:?} {way}");
        let says: &[&str] = match speech {
            Speech::Ldap => &[UNASKED, "answered another request"],
            Speech::Lockd | Speech::Redis => &[UNASKED, KIND],
            _ => &[UNASKED],
        };
        is_an_error(asked(*speech, Lie::Ahead, way), says);
    }
}

/// Requests still on the way when the last one has its answer show only then.
#[test]
fn an_answer_that_comes_after_the_last_request_is_found_when_the_connection_ends() {
    let _beside = beside();
    for (speech, way) in WAYS {
        eprintln!("{speech:?} {way}");
        is_an_error(asked(*speech, Lie::AtEnd, way), &[UNASKED]);
    }
}

#[test]
fn a_server_that_speaks_first_is_refused_before_anything_starts() {
    let _beside = beside();
    for (speech, says) in [
        (Speech::Http, "answers before it is asked"),
        (Speech::Ldap, "answers before it is asked"),
        (Speech::Procd, "this is not procd"),
        (Speech::Lockd, "INFO"),
        (Speech::Redis, UNASKED),
    ] {
        // Bytes that come with the answer to the first question, or instead of it. HTTP and
        // LDAP are not asked before the run: on a busy machine they may come only in it.
        let done = in_some_try("a server that is refused", || {
            let done = asked(speech, Lie::First, "-n 25 -w 2");
            let in_the_run = matches!(speech, Speech::Http | Speech::Ldap) && done.code() == 3;
            if in_the_run {
                is_an_error(done, &[UNASKED]);
                return None;
            }
            Some(done.exits(1))
        });
        let said = [says, "answer to PING", UNASKED, "of another kind"];
        let found = said.iter().any(|said| done.stderr.contains(said));
        assert!(found, "{}", done.transcript());
    }
}

#[test]
fn half_an_answer_is_an_error_by_its_end_or_by_the_timeout() {
    let _beside = beside();
    for (speech, way) in WAYS.iter().chain(EACH) {
        eprintln!("{speech:?} {way}");
        is_an_error(
            asked(*speech, Lie::HalfThenEnd, way),
            &["ECONNRESET", "ended too early", "reset by peer"],
        );
        // Nobody knows how long a lock service may take to grant.
        if matches!(speech, Speech::Http | Speech::Procd | Speech::Ldap) {
            let mut timeout_ms = 300;
            // A server that gets no CPU is late with the whole answers before it too.
            let done = in_some_try("a server that is asked", || {
                let way = format!("{way} --call-timeout {timeout_ms}ms");
                timeout_ms *= 3;
                let done = asked(*speech, Lie::HalfThenSilence, &way);
                (done.code() != 1 || done.stderr.contains("ETIMEDOUT")).then_some(done)
            });
            is_an_error(done, &["ETIMEDOUT"]);
        }
    }
}

#[test]
fn half_an_answer_of_a_lock_service_is_an_error_when_the_wait_for_the_rest_is_over() {
    let _beside = beside();
    for speech in [Speech::Lockd, Speech::Redis] {
        let way = "spread --in-flight 1 --generators 1 -t 300ms";
        let done = asked_ten_times(speech, Lie::HalfThenSilence, way);
        // What Redis has granted stays granted, so that its answer is waited for.
        is_an_error(
            done,
            &["half an answer came, and not the rest", "stuck_at_end"],
        );
    }
}

#[test]
fn an_answer_of_the_wrong_kind_is_an_error() {
    let _beside = beside();
    for (speech, way) in WAYS.iter().chain(EACH) {
        eprintln!("{speech:?} {way}");
        is_an_error(
            asked(*speech, Lie::Wrong, way),
            &[KIND, "the server's answer is no HTTP", "code HTTP 200"],
        );
    }
}

#[test]
fn an_answer_to_another_request_is_an_error_where_requests_have_numbers() {
    let _beside = beside();
    for way in ["--connection keep", "--connection each"] {
        let done = asked(Speech::Ldap, Lie::Other, &format!("-n 25 -w 2 {way}"));
        is_an_error(done, &["the server answered another request"]);
    }
}

#[test]
fn schedules_of_every_kind_find_it_out() {
    let _beside = beside();
    for way in [
        "rate --rate 200 -t 500ms -w 4",
        "spread --in-flight 2 --generators 2 -t 500ms",
    ] {
        let honest = asked(Speech::Http, Lie::None, way).measures().only_run();
        assert!(!is_unasked(&honest), "{way}: {:?}", honest.around.messages);
        let lie = Lie::Twice { late: true };
        is_an_error(asked_ten_times(Speech::Http, lie, way), &[UNASKED]);
    }
    let way = "contend -w 1 -b 0 -i 0 -t 300ms";
    for carrier in ["processes", "tasks"] {
        let way = format!("{way} --as {carrier}");
        let honest = asked(Speech::Lockd, Lie::None, &way).measures().only_run();
        assert_eq!(reason(&honest, "errors"), None, "{way}");
        let lie = Lie::Twice { late: true };
        let done = asked_ten_times(Speech::Lockd, lie, &way);
        is_an_error(done, &[UNASKED, KIND]);
    }
}

/// `rate` once counted such a request as done: a server that was stopped between LOCK and
/// UNLOCK left 7 of 8 requests in flight, in one run of 24.
#[test]
fn a_request_whose_release_is_never_answered_is_in_flight() {
    let _beside = beside();
    let way = "rate --rate 100 -t 500ms -w 4 --warmup 10ms";
    in_some_try("four requests, one of which was due in the warm-up", || {
        let run = asked(Speech::Lockd, Lie::ReleasesUnanswered, way).only_run();
        let open = run.open_loop.as_ref().unwrap();
        assert_eq!((open.done, open.failed), (0, 0));
        assert_eq!(run.times.response_ns, None);
        (open.in_flight == 3).then_some(())
    });
}
