//! `jostle stream ldap://...` on a real slapd: what a search is split into, whose
//! counts agree, and what is no fast success.

use crate::common::{Jostle, Place, Signal, beside, in_some_try, jostle, must_have, reason, rows};
use jostle_model::record::{Run, Status};
use jostle_testbed::slapd::{ADMIN, ADMIN_PASSWORD, BASE, Slapd, Wanted};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLockReadGuard};

const USERS: u32 = 500;

/// The server of all tests here: it counts what it is asked, so that each takes a turn.
fn slapd() -> &'static Slapd {
    static SLAPD: OnceLock<Slapd> = OnceLock::new();
    SLAPD.get_or_init(|| {
        let wanted = Wanted {
            entries: USERS,
            tls: true,
            ..Wanted::default()
        };
        Slapd::start(&wanted).unwrap()
    })
}

/// Searches for users by number, one run, as records; `options` come first.
fn searches(options: &str) -> Jostle {
    stream(&slapd().url("(uid=user{n})"), options)
}

fn turn() -> (MutexGuard<'static, ()>, RwLockReadGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    (turn, beside())
}

fn stream(target: &str, options: &str) -> Jostle {
    jostle(&format!(
        "stream --runs 1 --quiet --format json --numbers {USERS} {options}"
    ))
    .word(target)
}

fn phases(run: &Run) -> Vec<&str> {
    run.phases.iter().map(|p| p.phase.as_str()).collect()
}

#[test]
fn every_bind_search_and_unbind_is_counted_by_the_server_too() {
    let _turn = turn();
    let each: &[&str] = &["connect", "bind", "search", "unbind"];
    let table = [
        // connection, carrier, phases, binds
        ("each", "processes", each, 600),
        ("each", "threads", each, 600),
        ("keep", "processes", &["search"][..], 3),
        ("keep", "threads", &["search"][..], 3),
    ];
    for (connection, carrier, names, binds) in table {
        let options = format!("-n 200 -w 3 --connection {connection} --as {carrier}");
        let run = searches(&options).run_cleanly().measures().only_run();
        assert_eq!(run.operations, 600, "{options}");
        assert_eq!(run.codes, [("0 success".to_owned(), 600)].into());
        assert_eq!(phases(&run), names, "{options}");
        let server = run.server.unwrap();
        assert_eq!((server.counted, server.difference), (Some(600), Some(0)));
        assert_eq!((server.binds, server.unbinds), (Some(binds), Some(binds)));
        assert!(server.cpu_s.unwrap() > 0.0, "{options}");
        assert_eq!(reason(&run, "server_counts"), None);
    }
}

#[test]
fn a_server_that_somebody_else_uses_counts_too_much() {
    let _turn = turn();
    let mut other = searches("-n 1000000 -w 1 --connection keep").in_background();
    other.until_workers(1);
    // The other one may get no CPU for as long as a run takes.
    let reason = in_some_try("a server that counts too much", || {
        let point = searches("-n 500 -w 1").run_cleanly().only_run();
        reason(&point, "server_counts").cloned()
    });
    other.signal(Signal::TERM);
    other.end();
    assert_eq!(reason.is, Status::Invalid);
    assert!(
        reason.text.contains("more than the workers did"),
        "{}",
        reason.text
    );
}

#[test]
fn a_search_that_finds_nothing_is_no_fast_success() {
    let _turn = turn();
    let beyond = slapd().url("(uid=user{n}{n})");
    let nothing = "900 success without an entry";
    let point = stream(&beyond, "-n 10 -w 1").run_cleanly().only_run();
    // user00 is nobody, user11 to user99 are somebody.
    let counted = [("0 success".to_owned(), 9), (nothing.to_owned(), 1)];
    assert_eq!(point.codes, counted.into());
    assert_eq!(point.operations, 9);
    assert_eq!(point.around.errors[&format!("code {nothing}")], 1);
    assert_eq!(reason(&point, "errors").unwrap().is, Status::Invalid);
    let expected = stream(&beyond, "-n 10 -w 1 --expect 0:900").run_cleanly();
    let run = expected.measures().only_run();
    assert_eq!(run.operations, 10);
    assert_eq!(reason(&run, "errors"), None);
}

#[test]
fn who_asks_is_in_a_file_or_the_environment_and_the_password_in_no_result() {
    let _turn = turn();
    let place = Place::new();
    let run = |password: &str, in_file: bool| {
        let line = format!("stream --runs 1 --quiet --format json --numbers {USERS} -n 20 -w 1");
        let jostle = place.jostle(&line).word(&slapd().url("(uid=user{n})"));
        let jostle = match in_file {
            true => {
                let file = place.file("who");
                std::fs::write(&file, format!("{ADMIN}\n{password}\n")).unwrap();
                jostle.word("--credentials").word(file.to_str().unwrap())
            }
            false => jostle.under(&format!(
                "env JOSTLE_BIND_DN={ADMIN} JOSTLE_BIND_PASSWORD={password}"
            )),
        };
        let done = jostle.run_cleanly();
        let transcript = done.transcript();
        // Behind the command line, which holds what `env` sets.
        let (_, output) = transcript.split_once("--- stdout").unwrap();
        assert!(!output.contains(password), "{output}");
        done.only_run()
    };
    for in_file in [true, false] {
        let point = run(ADMIN_PASSWORD, in_file);
        assert_eq!(point.codes, [("0 success".to_owned(), 20)].into());
        let run = run("not-the-one", in_file);
        assert_eq!(run.codes, [("49 invalidCredentials".to_owned(), 20)].into());
        assert_eq!(run.verdict.is, Status::Invalid);
    }
}

#[test]
fn ldaps_shakes_hands_with_a_server_that_is_vouched_for() {
    let _turn = turn();
    let target = format!(
        "ldaps://localhost:{}/{BASE}?(uid=user{{n}})",
        slapd().tls_port.unwrap()
    );
    let trusting = format!("env SSL_CERT_FILE={}", slapd().certificate().display());
    for (connection, names) in [
        ("each", &["connect", "tls", "bind", "search", "unbind"][..]),
        ("keep", &["search"][..]),
    ] {
        let options = format!("-n 50 -w 2 --connection {connection}");
        let done = stream(&target, &options).under(&trusting).run_cleanly();
        let run = done.measures().only_run();
        assert_eq!(run.codes, [("0 success".to_owned(), 100)].into());
        assert_eq!(phases(&run), names);
        assert_eq!(run.server.unwrap().difference, Some(0));
    }
    let elsewhere = target.replace("localhost", "127.0.0.1");
    let wrong_name = stream(&elsewhere, "-n 1").under(&trusting).run_cleanly();
    wrong_name.exits(1).says("not valid for name");
    let unknown = stream(&target, "-n 1").run_cleanly();
    unknown.exits(1).says("UnknownIssuer");
}

/// The origin's way: a process of ldapsearch for each request.
#[test]
fn ldapsearch_can_be_started_for_each_request() {
    must_have("ldapsearch", "ldap-utils");
    let _turn = turn();
    let command = format!(
        "ldapsearch -x -H ldap://127.0.0.1:{} -b {BASE} (uid=user{{n}})",
        slapd().port
    );
    let call = jostle("call --runs 1 --quiet --format json -n 20 -w 2");
    let run = call.word(&command).run_cleanly().measures().only_run();
    assert_eq!(run.codes, [("0".to_owned(), 40)].into());
}

#[test]
fn what_cannot_be_searched_is_said_before_anything_starts() {
    let table = "
        ldap://127.0.0.1:1/dc=x?(a=1) => => 1 => is the server running there?
        ldap://127.0.0.1/dc=x?(a=1 => => 2 => `)` is missing
        ldap:127.0.0.1 => => 2 => write //HOST:PORT/BASE?FILTER
        ldap://127.0.0.1:1/dc=x => --connection one => 2 => each, keep";
    for [target, options, code, part] in rows(table) {
        let done = stream(target, &format!("-n 1 {options}")).run_cleanly();
        done.exits(code.parse().unwrap()).says(part);
    }
    let _turn = turn();
    for option in ["--server-log /no/such/log", "--credentials /no/such/file"] {
        let missing = searches(&format!("-n 1 {option}")).run_cleanly();
        missing.exits(1).says(&format!("cannot read {option}"));
    }
}
