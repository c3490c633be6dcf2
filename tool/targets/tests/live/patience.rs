//! Who loses patience with a server or a program counts the looks that this process had, not the
//! time that passed: here the clock leaps by an hour between two of them.

use crate::requests;
use jostle_sys::clock::Clock;
use jostle_sys::waited::{LOOK, leaping};
use jostle_targets::{Phases, Spec};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// A place that takes connections and says nothing; `is_full`: and one that takes none.
fn silent(is_full: bool) -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, mut held) = (listener.local_addr().unwrap(), Vec::new());
    if is_full {
        rustix::net::listen(&listener, 0).unwrap();
        let connected = || TcpStream::connect_timeout(&at, Duration::from_millis(300));
        held.extend(std::iter::from_fn(|| connected().ok()));
    }
    (listener, held)
}

/// It is given up after all looks of its patience, and not before.
fn gives_up(what: &str, patience: Duration, words: &str, act: impl FnOnce() -> String) {
    let (said, looks) = leaping(act);
    assert!(said.contains(words), "{what}: {said}");
    let least = (patience.as_millis() / LOOK.as_millis()) as u64;
    assert!((least..least + 5).contains(&looks), "{what}: {looks}");
}

#[test]
fn a_server_is_given_up_by_looks() {
    let (no_answer, nobody) = ("no answer within 10 s", "is the server running there?");
    let table = [
        ("redis", false, 10, no_answer),
        ("mariadb", false, 10, no_answer),
        ("zookeeper", false, 10, "no answer in time"),
        ("etcd", false, 10, "does not answer within 10 s"),
        ("redis", true, 5, nobody),
        ("http", true, 5, nobody),
    ];
    std::thread::scope(|scope| {
        for (target, is_full, seconds, words) in table {
            scope.spawn(move || {
                let (listener, _held) = silent(is_full);
                let typed = format!("{target}://{}", listener.local_addr().unwrap());
                let act = || {
                    Spec::parse(&typed)
                        .unwrap()
                        .reach(None)
                        .unwrap_err()
                        .to_string()
                };
                gives_up(&typed, Duration::from_secs(seconds), words, act);
            });
        }
    });
}

#[test]
fn a_request_is_given_up_by_looks() {
    let table = [
        ("exec:sleep 600", false, "did not end within --call-timeout"),
        (
            "procd://AT/x",
            false,
            "did not answer within --call-timeout",
        ),
        ("ldap://AT/dc=x?(a=1)", false, "did not answer within"),
        ("ldap://AT/dc=x?(a=1)", true, "did not answer within"),
    ];
    let patience = Duration::from_secs(1);
    for (typed, is_full, words) in table {
        let (listener, _held) = silent(is_full);
        let typed = typed.replace("AT", &listener.local_addr().unwrap().to_string());
        requests::with(&typed, patience, None, |target| {
            let mut caller = target.join(0).unwrap();
            let mut phases = Phases::begin(Clock::new());
            let act = || caller.call(0, &mut phases).unwrap_err().to_string();
            gives_up(&typed, patience, words, act);
        });
    }
}
