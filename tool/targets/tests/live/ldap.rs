//! `ldap` on a real slapd, and on servers that misbehave.

use crate::common::{Bench, settles, with_ledger};
use jostle_model::plan::Connection;
use jostle_sys::clock::Clock;
use jostle_sys::files::Errno;
use jostle_targets::{
    CallError, Phases, RequestSetup, Requests, ServerFigures, Setup, Spec, prepare_requests,
};
use jostle_testbed::slapd::{ADMIN, ADMIN_PASSWORD, BASE, Slapd, Wanted};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

const USERS: u32 = 1_000;
const CONNECT: usize = 0;
const TLS: usize = 1;
const BIND: usize = 2;
const SEARCH: usize = 3;
const UNBIND: usize = 4;

/// The server of all tests here, for one of them at a time: it is counted what is
/// done to it.
fn slapd() -> MutexGuard<'static, Slapd> {
    static SLAPD: OnceLock<Mutex<Slapd>> = OnceLock::new();
    let slapd = SLAPD.get_or_init(|| {
        let wanted = Wanted {
            entries: USERS,
            ..Wanted::default()
        };
        Mutex::new(Slapd::start(&wanted).unwrap())
    });
    slapd.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The choices of a test beside the place.
#[derive(Default)]
struct Choice<'a> {
    connection: Option<Connection>,
    /// Name and password.
    who: Option<(&'a str, &'a str)>,
    log: Option<&'a std::path::Path>,
    timeout: Option<Duration>,
}

fn with<R>(typed: &str, choice: &Choice<'_>, test: impl FnOnce(&dyn Requests) -> R) -> R {
    let spec = Spec::parse(typed).unwrap();
    with_ledger(|ledger, place| {
        let file = place.join("credentials");
        if let Some((name, password)) = choice.who {
            std::fs::write(&file, format!("{name}\n{password}\n")).unwrap();
        }
        let bench = Bench {
            argument: spec.argument.as_deref(),
            ..Bench::new(ledger)
        };
        let base = Setup {
            credentials: choice.who.map(|_| file.as_path()),
            ..bench.setup(spec.entry.name)
        };
        let setup = RequestSetup {
            base: &base,
            timeout: choice.timeout.unwrap_or(Duration::from_secs(20)),
            output: None,
            connection: choice.connection,
            server_log: choice.log,
        };
        let target = prepare_requests(spec.entry, &setup);
        test(&*target.unwrap_or_else(|error| panic!("{typed}: {error}")))
    })
}

/// Requests one after the other: the names of their codes, and the last one's stamps.
fn made(target: &dyn Requests, numbers: std::ops::Range<u64>) -> (Vec<String>, Phases) {
    let mut caller = target.join(3).unwrap();
    let mut last = Phases::begin(Clock::new());
    let codes = numbers.map(|nth| {
        last = Phases::begin(Clock::new());
        let answer = caller.call(nth, &mut last).unwrap();
        target.code_name(answer.code)
    });
    (codes.collect(), last)
}

/// Searches, binds and unbinds since a look.
fn since(before: ServerFigures, target: &dyn Requests) -> [Option<u64>; 3] {
    let after = target.server().unwrap().unwrap();
    let of = |field: fn(&ServerFigures) -> Option<u64>| Some(field(&after)? - field(&before)?);
    [of(|f| f.grants), of(|f| f.binds), of(|f| f.unbinds)]
}

#[test]
fn each_request_connects_binds_searches_and_unbinds_and_the_monitor_counts_it() {
    let slapd = slapd();
    with(&slapd.url("(uid=user{n})"), &Choice::default(), |target| {
        let before = target.server().unwrap().unwrap();
        let (codes, phases) = made(target, 0..20);
        assert_eq!(codes, ["0 success"; 20]);
        settles(&[Some(20); 3], &|| since(before, target));
        assert_eq!(before.pid, slapd.pid());
        let spans = [CONNECT, BIND, SEARCH, UNBIND].map(|phase| phases.span(phase).unwrap());
        assert_eq!(phases.span(TLS), None);
        assert_eq!(spans.iter().sum::<u64>(), phases.ended() - phases.began());
    });
}

#[test]
fn a_kept_connection_binds_once_before_the_first_request() {
    let slapd = slapd();
    let keep = Choice {
        connection: Some(Connection::Keep),
        ..Choice::default()
    };
    with(&slapd.url("(uid=user{n})"), &keep, |target| {
        let before = target.server().unwrap().unwrap();
        let (codes, phases) = made(target, 0..20);
        assert_eq!(codes, ["0 success"; 20]);
        settles(&[Some(20), Some(1), Some(1)], &|| since(before, target));
        let only = phases.ended() - phases.began();
        assert_eq!(phases.span(SEARCH), Some(only));
    });
}

#[test]
fn codes_are_the_server_s_and_an_empty_answer_has_its_own() {
    let slapd = slapd();
    let at = |base: &str, filter: &str| format!("ldap://127.0.0.1:{}/{base}?{filter}", slapd.port);
    let admin = (ADMIN, ADMIN_PASSWORD);
    let user = ("uid=user7,ou=people,dc=example,dc=org", "user7");
    let table = [
        (at(BASE, "(uid=user{n})"), None, "0 success"),
        (at(BASE, "(uid=user{n})"), Some(user), "0 success"),
        (
            at(BASE, "(uid=nobody{n})"),
            None,
            "900 success without an entry",
        ),
        (at("dc=elsewhere", "(uid=a)"), None, "32 noSuchObject"),
        (at("not a name", "(uid=a)"), None, "34 invalidDNSyntax"),
        // Over the 500 entries that slapd gives to others than its administrator,
        // whose answer is far longer than the buffer.
        (at(BASE, "(mail=*)"), None, "4 sizeLimitExceeded"),
        (at(BASE, "(mail=*)"), Some(admin), "0 success"),
        (
            at(BASE, "(uid=user1)"),
            Some((ADMIN, "wrong")),
            "49 invalidCredentials",
        ),
        // One user by every kind of filter.
        (at(BASE, "(&(uid=user7)(!(uid=user8)))"), None, "0 success"),
        (at(BASE, r"(uid=\75ser7)"), None, "0 success"),
        (at(BASE, "(|(uid=user7)(uid=user8))"), None, "0 success"),
        (at(BASE, "(mail=*.7@example*)"), None, "0 success"),
        (at(BASE, "(uid:caseIgnoreMatch:=USER7)"), None, "0 success"),
        (
            at(BASE, "mail?base?(uid=user7)"),
            None,
            "900 success without an entry",
        ),
        (
            at(&format!("uid=user7,ou=people,{BASE}"), "mail?base?"),
            None,
            "0 success",
        ),
    ];
    for (typed, who, code) in table {
        let choice = Choice {
            who,
            ..Choice::default()
        };
        let (codes, _) = with(&typed, &choice, |target| made(target, 1..2));
        assert_eq!(codes, [code], "{typed}");
    }
}

#[test]
fn a_number_beyond_the_last_user_finds_nothing() {
    let slapd = slapd();
    with(&slapd.url("(uid=user{n})"), &Choice::default(), |target| {
        let last = u64::from(USERS) - 1;
        let (codes, _) = made(target, last..last + 2);
        assert_eq!(codes, ["0 success", "900 success without an entry"]);
        assert!(target.is_success(0) && !target.is_success(900));
    });
}

#[test]
fn a_kept_connection_that_is_refused_fails_before_the_first_request() {
    let slapd = slapd();
    let choice = Choice {
        connection: Some(Connection::Keep),
        who: Some((ADMIN, "wrong")),
        ..Choice::default()
    };
    with(&slapd.url("(uid=a)"), &choice, |target| {
        let error = target.join(0).err().unwrap().to_string();
        assert_eq!(error, "cannot bind: 49 invalidCredentials");
    });
}

#[test]
fn the_log_of_the_server_counts_what_the_monitor_counts() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("log");
    let logging = Slapd::start(&Wanted {
        entries: 10,
        log: Some(log.clone()),
        ..Wanted::default()
    });
    let logging = logging.unwrap();
    let choice = Choice {
        log: Some(&log),
        who: Some((ADMIN, ADMIN_PASSWORD)),
        ..Choice::default()
    };
    with(&logging.url("(uid=user{n})"), &choice, |target| {
        let before = target.server().unwrap().unwrap();
        made(target, 0..7);
        settles(&[Some(7); 3], &|| since(before, target));
    });
    // Whoever is refused takes leave all the same, and searches nothing.
    let refused = Choice {
        who: Some((ADMIN, "wrong")),
        ..choice
    };
    with(&logging.url("(uid=user{n})"), &refused, |target| {
        let before = target.server().unwrap().unwrap();
        let (codes, _) = made(target, 0..3);
        assert_eq!(codes, ["49 invalidCredentials"; 3]);
        settles(&[Some(0), Some(3), Some(3)], &|| since(before, target));
    });
}

/// The error of one request on a server that does with each connection as told.
fn on(serve: fn(TcpStream), timeout: Duration) -> CallError {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let typed = format!("ldap://{}/dc=x?(a=1)", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || serve(listener.accept().unwrap().0));
    let choice = Choice {
        timeout: Some(timeout),
        ..Choice::default()
    };
    let error = with(&typed, &choice, |target| {
        let mut caller = target.join(0).unwrap();
        caller
            .call(0, &mut Phases::begin(Clock::new()))
            .unwrap_err()
    });
    server.join().unwrap();
    error
}

/// The anonymous bind that every connection begins with is 14 bytes.
fn bound(stream: &mut TcpStream) {
    stream.read_exact(&mut [0; 14]).unwrap();
    let success = b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00\x04\x00";
    stream.write_all(success).unwrap();
}

/// Until a search has come, or its beginning.
fn searched(stream: &mut TcpStream) {
    stream.read_exact(&mut [0; 1]).unwrap();
}

/// Until the other side has gone.
fn drain(stream: &mut TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn servers_that_misbehave_end_the_request_and_are_named() {
    type Case = (&'static str, fn(TcpStream), Errno, &'static str);
    let table: [Case; 7] = [
        (
            "says nothing",
            |mut s| drain(&mut s),
            Errno::TIMEDOUT,
            "bind",
        ),
        (
            "goes away",
            |s| s.shutdown(Shutdown::Both).unwrap(),
            Errno::CONNRESET,
            "bind",
        ),
        (
            "speaks HTTP",
            |mut s| {
                s.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
                drain(&mut s);
            },
            Errno::PROTO,
            "not LDAP",
        ),
        (
            "answers another's request",
            |mut s| {
                s.write_all(b"\x30\x0c\x02\x01\x09\x61\x07\x0a\x01\x00\x04\x00\x04\x00")
                    .unwrap();
                drain(&mut s);
            },
            Errno::PROTO,
            "bind",
        ),
        (
            "disconnects with a word",
            |mut s| {
                s.write_all(b"\x30\x0f\x02\x01\x00\x78\x0a\x0a\x01\x34\x04\x00\x04\x03bye")
                    .unwrap();
                drain(&mut s);
            },
            Errno::PROTO,
            "the server disconnects: bye",
        ),
        (
            "ends within an answer",
            |mut s| {
                bound(&mut s);
                searched(&mut s);
                s.write_all(b"\x30\x0c\x02\x01\x02").unwrap();
                s.shutdown(Shutdown::Write).unwrap();
                drain(&mut s);
            },
            Errno::CONNRESET,
            "search",
        ),
        (
            "sends entries for ever",
            |mut s| {
                bound(&mut s);
                searched(&mut s);
                let entry = b"\x30\x0e\x02\x01\x02\x64\x09\x04\x03o=x\x30\x02\x30\x00";
                while s.write_all(entry).is_ok() {
                    std::thread::sleep(Duration::from_millis(50));
                }
            },
            Errno::TIMEDOUT,
            "--call-timeout",
        ),
    ];
    for (what, serve, errno, part) in table {
        let start = Instant::now();
        let waits_for_ever = errno == Errno::TIMEDOUT;
        // What comes late on a busy machine is no timeout.
        let timeout = Duration::from_millis(if waits_for_ever { 400 } else { 60_000 });
        let error = on(serve, timeout);
        assert_eq!(error.errno, errno.raw_os_error(), "{what}: {error}");
        assert!(
            error.call.contains(part) || error.to_string().contains(part),
            "{what}: {error}"
        );
        assert!(start.elapsed() < Duration::from_secs(120), "{what}");
    }
}

#[test]
fn a_server_that_is_not_there_is_said_before_and_within() {
    let port = TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let typed = format!("ldap://127.0.0.1:{port}/dc=x?(a=1)");
    let error = Spec::parse(&typed)
        .unwrap()
        .reach(None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("is the server running there?"), "{error}");
    with(&typed, &Choice::default(), |target| {
        let mut caller = target.join(0).unwrap();
        let error = caller
            .call(0, &mut Phases::begin(Clock::new()))
            .unwrap_err();
        assert_eq!(
            (error.call, error.errno),
            ("connect", Errno::CONNREFUSED.raw_os_error())
        );
    });
}
