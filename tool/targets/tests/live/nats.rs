//! The recipe of `nats`: on a real server how many requests it takes, what ends a lease and
//! what is left; on one that this file plays, what a real one cannot be made to say.

use crate::common::{GRANTED, REFUSED, block};
use jostle_sys::ledger::Ledger;
use jostle_targets::nats::{Launch, Nats};
use jostle_targets::program::Launched;
use jostle_targets::remote::RemoteLock;
use jostle_targets::signs::sign;
use jostle_targets::wire::Wire;
use jostle_targets::{Launcher, Lock, Mode, Setup, SetupError, Target, Wait};
use jostle_testbed::lock_servers as servers;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// On the server at this place, where one is named; with a lease of so many milliseconds.
fn prepared(ledger: &Ledger, argument: Option<&str>, lease_ms: u64) -> Result<Nats, SetupError> {
    Nats::prepare(&Setup {
        argument,
        lease: Some(Duration::from_millis(lease_ms)),
        ..servers::setup(ledger, 3)
    })
}

fn with(lease_ms: u64, check: impl FnOnce(&Nats)) {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let target = prepared(&ledger, None, lease_ms).unwrap();
    check(&target);
    target.remove_leftovers().unwrap();
    ledger.sweep().unwrap();
}

/// The requests that this took.
fn requests<W: Wire>(lock: &mut RemoteLock<W>, work: impl FnOnce(&mut RemoteLock<W>)) -> u64 {
    let before = lock.traffic().unwrap().round_trips;
    work(lock);
    lock.traffic().unwrap().round_trips - before
}

fn pair<W: Wire>(lock: &mut RemoteLock<W>) {
    assert_eq!(lock.acquire(0, Mode::Exclusive, block()), GRANTED);
    assert_eq!(lock.release(0, Mode::Exclusive), Ok(()));
}

fn try_for<W: Wire>(
    lock: &mut RemoteLock<W>,
) -> Result<jostle_targets::Outcome, jostle_targets::CallError> {
    lock.acquire(0, Mode::Exclusive, Wait::Try)
}

#[test]
fn a_server_says_which_life_of_it_it_is() {
    let life = |target: &Nats| target.signs().unwrap()[sign::LIFE].clone();
    with(30_000, |one| {
        assert_eq!(life(one), life(one));
        on_a_server(&[None; 3], |_, others| {
            let other = others.next().unwrap();
            assert_ne!(life(one), life(&other));
        });
    });
}

#[test]
fn each_acquisition_takes_as_many_requests_as_the_recipe_says() {
    with(30_000, |target| {
        let [mut owner, mut other] = [0, 1].map(|worker| target.join(worker).unwrap());
        // Never locked before: create; delete.
        assert_eq!(requests(&mut owner, pair), 2);
        // In place of the marker, whoever left it: create, get, create; delete.
        assert_eq!(requests(&mut owner, pair), 4);
        assert_eq!(requests(&mut other, pair), 4);
        assert_eq!(try_for(&mut owner), GRANTED);
        let tried = requests(&mut other, |other| assert_eq!(try_for(other), REFUSED));
        assert_eq!(tried, 2);
        let (mut begun, mut waited) = (Instant::now(), 0);
        for held_s in [1, 15] {
            begun = Instant::now();
            waited = std::thread::scope(|scope| {
                let waits = scope.spawn(|| requests(&mut other, pair));
                std::thread::sleep(Duration::from_secs(held_s));
                assert_eq!(owner.release(0, Mode::Exclusive), Ok(()));
                waits.join().unwrap()
            });
            if waited != 4 {
                break;
            }
            // On a busy machine it came so late that it found the lock free.
            assert_eq!(try_for(&mut owner), GRANTED);
        }
        // Create, get, subscribe and get; after the message create; delete. And a look after
        // 125 ms at least.
        let most = 5 + begun.elapsed().as_millis() as u64 / 125;
        assert!((5..=most).contains(&waited), "{waited} of {most}");
        assert!(owner.token() < other.token(), "{owner:?} {other:?}");
        for lock in [owner, other].iter_mut() {
            assert_eq!(lock.part(), Ok(()));
        }
    });
}

#[test]
fn a_lease_that_ended_is_another_s_and_its_old_owner_is_told() {
    with(2_000, |target| {
        let begun = Instant::now();
        let [mut first, mut second] = [0, 1].map(|worker| target.join(worker).unwrap());
        assert_eq!(try_for(&mut first), GRANTED);
        // No message tells of the end of a lease.
        assert_eq!(second.acquire(0, Mode::Exclusive, block()), GRANTED);
        let told = first.release(0, Mode::Exclusive).unwrap_err().to_string();
        assert!(told.contains("no longer ours"), "{told}");
        assert!(first.token() < second.token(), "{first:?} {second:?}");
        let released = second.release(0, Mode::Exclusive);
        // On a machine that stood still its own lease may be over, too.
        let is_over = begun.elapsed() >= Duration::from_secs(4);
        assert!(is_over || released == Ok(()), "{released:?}");
    });
}

/// A client of its own, which asks JetStream one thing.
fn ask(server: &Launched, request: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let (secret, length) = (&server.secret, body.len());
    let said = format!(
        "CONNECT {{\"verbose\":false,\"user\":\"jostle\",\"pass\":\"{secret}\"}}\r\n\
         SUB mine 1\r\nPUB $JS.API.{request} mine {length}\r\n{body}\r\n"
    );
    stream.write_all(said.as_bytes()).unwrap();
    let lines = BufReader::new(stream).lines();
    let answer = lines.map(Result::unwrap).find(|line| line.starts_with('{'));
    answer.unwrap()
}

/// A server of the user's with a file of its name and password, for this seed of names.
fn on_a_server(
    names: &[Option<u64>],
    check: impl FnOnce(&Launched, &mut dyn Iterator<Item = Nats>),
) {
    let server = servers::InProcess.follow(&Launch {
        // Another for each test.
        connections: 50 + names.len(),
    });
    let server = server.unwrap();
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let file = place.path().join("credentials");
    std::fs::write(&file, format!("jostle\n{}\n", server.secret)).unwrap();
    let argument = format!("//{}", server.address);
    let setup = |name: &Option<u64>| Setup {
        argument: Some(&argument),
        credentials: Some(&file),
        common_name: *name,
        ..servers::setup(&ledger, 2)
    };
    let mut targets = names
        .iter()
        .map(|name| Nats::prepare(&setup(name)).unwrap());
    check(&server, &mut targets);
    ledger.sweep().unwrap();
}

#[test]
fn a_bucket_is_there_for_its_run_and_gone_with_it() {
    // Two hosts, one run: the second finds the bucket made, and later finds it gone.
    on_a_server(&[Some(77), Some(77)], |server, hosts| {
        let hosts: Vec<Nats> = hosts.collect();
        let [mut one, mut other] = [0, 1].map(|host| hosts[host].join(host).unwrap());
        assert_eq!(try_for(&mut one), GRANTED);
        assert_eq!(try_for(&mut other), REFUSED);
        let names = || ask(server, "STREAM.NAMES", "");
        assert_eq!(names().matches("KV_jostle_").count(), 1, "{}", names());
        hosts.iter().for_each(|host| host.finish().unwrap());
        assert_eq!(names().matches("KV_").count(), 0, "{}", names());
        let told = one.release(0, Mode::Exclusive).unwrap_err().to_string();
        assert!(told.contains("nobody answers"), "{told}");
    });
}

/// Killed with all that would have cleared away after it.
#[test]
fn a_bucket_whose_keeper_is_gone_is_removed_by_the_next_run() {
    on_a_server(&[None; 3], |server, runs| {
        let first = runs.next().unwrap();
        let names = || ask(server, "STREAM.NAMES", "");
        let listed = ask(server, "STREAM.LIST", "");
        let (_, rest) = listed.split_once("\"description\":\"").unwrap();
        let (own, _) = rest.split_once('"').unwrap();
        let (here, pid) = own.rsplit_once(' ').unwrap();
        assert_eq!(pid, std::process::id().to_string(), "{own}");
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let gone = gone.id();
        for (name, made_for) in [
            ("KV_jostle_gone", format!("{here} {gone}")),
            // Another machine's, whose processes have other numbers.
            (
                "KV_jostle_other",
                format!("{} {gone}", here.replace(" on ", " on x")),
            ),
            ("KV_mine", format!("{here} {gone}")),
        ] {
            let wanted =
                format!(r#"{{"name":"{name}","subjects":["{name}"],"description":"{made_for}"}}"#);
            let made = ask(server, &format!("STREAM.CREATE.{name}"), &wanted);
            assert!(made.contains("did_create"), "{made}");
        }
        let second = runs.next().unwrap();
        let left = names();
        for (name, count) in [("KV_jostle_gone", 0), ("KV_jostle_", 3), ("KV_mine", 1)] {
            assert_eq!(left.matches(name).count(), count, "{left}");
        }
        first.finish().unwrap();
        second.finish().unwrap();
        assert_eq!(names().matches("KV_").count(), 2, "{}", names());
    });
}

/// An answer to a publication: its subject, and where the answer goes.
type Script = Arc<dyn Fn(&str, &str) -> String + Send + Sync>;

/// A server of this version, which answers by a script.
fn played(version: &str, script: impl Fn(&str, &str) -> String + Send + Sync + 'static) -> String {
    let info = format!("INFO {{\"version\":\"{version}\",\"headers\":true}}\r\n");
    greeting(info, script)
}

/// A server with these first words, which answers by a script.
fn greeting(info: String, script: impl Fn(&str, &str) -> String + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let place = listener.local_addr().unwrap();
    let script: Script = Arc::new(script);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (info, script) = (info.clone(), Arc::clone(&script));
            std::thread::spawn(move || {
                // A client that is gone is no fault of the test.
                let _ = serve(stream.unwrap(), &info, &script);
            });
        }
    });
    format!("//{place}")
}

fn serve(mut stream: TcpStream, info: &str, script: &Script) -> std::io::Result<()> {
    stream.write_all(info.as_bytes())?;
    let mut input = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    while input.read_line(&mut line)? > 0 {
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words[0] {
            "PING" => "PONG\r\n".to_owned(),
            "PUB" | "HPUB" => {
                let length: usize = words.last().unwrap().parse().unwrap();
                input.read_exact(&mut vec![0; length + 2])?;
                script(words[1], words[2])
            }
            _ => String::new(),
        };
        stream.write_all(answer.as_bytes())?;
        line.clear();
    }
    Ok(())
}

fn message(reply: &str, body: &str) -> String {
    format!("MSG {reply} 1 {}\r\n{body}\r\n", body.len())
}

/// A message of a head alone.
fn status(reply: &str, line: &str) -> String {
    let head = format!("{line}\r\n\r\n");
    let length = head.len();
    format!("HMSG {reply} 1 {length} {length}\r\n{head}\r\n")
}

/// A bucket's answers whose keys are free.
fn is_free(subject: &str, reply: &str) -> String {
    match subject.starts_with("$JS.API.") {
        true => message(reply, "{}"),
        false => message(reply, r#"{"stream":"KV_x", "seq":5}"#),
    }
}

fn refused(argument: &str) -> String {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let said = prepared(&ledger, Some(argument), 1_000).unwrap_err().0;
    ledger.sweep().unwrap();
    let place = argument.trim_start_matches("//").trim_end_matches("?tls");
    assert!(said.contains(place), "{said}");
    said
}

#[test]
fn a_server_that_cannot_do_it_is_told_before_the_start() {
    let json = |text: &'static str| move |_: &str, reply: &str| message(reply, text);
    let off = |_: &str, reply: &str| status(reply, "NATS/1.0 503");
    let no_account = r#"{"error":{"code":503,"err_code":10039,"description":"JetStream not enabled for account"}}"#;
    for (argument, says) in [
        (played("2.8.4", is_free), "version 2.8.4, and 2.9 or later"),
        (
            played("2.9.10", off),
            "JetStream is off; start the server with -js",
        ),
        (
            played("2.9.10", json(no_account)),
            "INFO: JetStream not enabled for account (10039)",
        ),
        (played("2.9.10", json("?")), "its answer to INFO is no JSON"),
        (
            played("2.9.10", |_, _| {
                "-ERR 'Permissions Violation for Publish to \"$JS.API.INFO\"'\r\n".to_owned()
            }),
            "Permissions Violation for Publish",
        ),
    ] {
        let said = refused(&argument);
        assert!(said.contains(says), "{said}");
    }
    // It says so beside its greeting.
    let full = "INFO {}\r\n-ERR 'maximum connections exceeded'\r\n";
    let full = greeting(full.to_owned(), is_free);
    let said = refused(&full);
    assert!(said.contains("exceeded; fewer workers (-w)"), "{said}");
    let said = refused(&format!("{}?tls", played("2.9.10", is_free)));
    assert!(said.contains("it offers no TLS"), "{said}");
}

#[test]
fn what_a_server_should_not_answer_ends_the_worker_with_its_own_words() {
    fn said(script: impl Fn(&str, &str) -> String + Send + Sync + 'static) -> String {
        let place = tempfile::tempdir().unwrap();
        let ledger = Ledger::create_in(place.path()).unwrap();
        let argument = played("2.10.1", move |subject, reply| {
            match subject.contains("STREAM") || subject.ends_with("INFO") {
                true => is_free(subject, reply),
                false => script(subject, reply),
            }
        });
        let target = prepared(&ledger, Some(&argument), 1_000).unwrap();
        let said = try_for(&mut target.join(0).unwrap())
            .unwrap_err()
            .to_string();
        ledger.sweep().unwrap();
        said
    }
    let full = r#"{"error":{"code":400,"err_code":10047,"description":"insufficient storage resources available"},"stream":"KV_x","seq":0}"#;
    let told = said(move |_, reply| message(reply, full));
    assert!(told.contains("insufficient storage"), "{told}");
    let told = said(|_, reply| status(reply, "NATS/1.0 503"));
    assert!(told.contains("nobody answers"), "{told}");
    let told = said(|_, _| "-ERR 'Slow Consumer'\r\n".to_owned());
    assert_eq!(told, "create: Slow Consumer");
    let twice = |reply: &str| message(reply, r#"{"stream":"KV_x", "seq":5}"#).repeat(2);
    let told = said(move |_, reply| twice(reply));
    assert!(told.contains("no request had asked for"), "{told}");
    let told = said(|_, reply| message(&format!("{reply}9"), r#"{"stream":"KV_x", "seq":5}"#));
    assert!(told.contains("no request had asked for"), "{told}");
    let told = said(|_, _| "HTTP/1.1 400 Bad Request\r\n\r\n".to_owned());
    assert!(told.contains("of another kind"), "{told}");
    // In a cluster the key's place is taken by another code; what has it then says nothing.
    let told = said(|subject, reply| match subject.starts_with("$KV") {
        true => message(
            reply,
            r#"{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"},"stream":"KV_x","seq":0}"#,
        ),
        false => status(reply, "NATS/1.0 408 Empty Request"),
    });
    assert_eq!(told, "get: NATS/1.0 408 Empty Request");
}

#[test]
fn a_server_that_asks_whether_we_are_there_is_answered_and_disturbs_nothing() {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let argument = played("2.9.10", |subject, reply| {
        let answer = is_free(subject, reply);
        format!("PING\r\n{answer}INFO {{}}\r\n")
    });
    let target = prepared(&ledger, Some(&argument), 1_000).unwrap();
    let mut lock = target.join(0).unwrap();
    for _ in 0..3 {
        pair(&mut lock);
    }
    assert_eq!(lock.token(), Some(5));
    assert_eq!(lock.part(), Ok(()));
    ledger.sweep().unwrap();
}

/// Tests that judge figures of this machine.
mod figures {
    use super::*;

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn a_connection_ends_without_a_wait_for_its_server() {
        with(2_000, |target| {
            let mut lock = target.join(0).unwrap();
            let begun = Instant::now();
            assert_eq!(lock.part(), Ok(()));
            // Its server ends its side when we have ended ours.
            assert!(begun.elapsed() < Duration::from_millis(400));
        });
    }
}
