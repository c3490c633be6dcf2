//! What a lock is worth when what it rests on goes: an eviction, a connection that a proxy
//! drops, a file that is unlinked, a descriptor that is closed. In each case a second
//! owner comes in, or the first one is told, as docs/services.md states.

#![allow(clippy::unwrap_used, reason = "every function here is of a test")]

use jostle_sys::clock::monotonic;
use jostle_sys::ledger::Ledger;
use jostle_targets::program::Launched;
use jostle_targets::{
    CallError, Launcher, Lock, Mode, Outcome, Setup, Target, Wait, flock, lockfile, memcached,
    posix, postgres,
};
use jostle_testbed::lock_servers as servers;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

const GRANTED: Result<Outcome, CallError> = Ok(Outcome::Granted);
const REFUSED: Result<Outcome, CallError> = Ok(Outcome::Refused);

/// A target with this argument, for three workers; `check` gets it.
fn with<T: Target>(argument: &str, check: impl FnOnce(T)) {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let setup = Setup {
        argument: Some(argument),
        ..servers::setup(&ledger, 3)
    };
    check(T::prepare(&setup).unwrap());
    ledger.sweep().unwrap();
}

fn try_for(lock: &mut impl Lock) -> Result<Outcome, CallError> {
    lock.acquire(0, Mode::Exclusive, Wait::Try)
}

fn release(lock: &mut impl Lock) -> Result<(), CallError> {
    lock.release(0, Mode::Exclusive)
}

/// A path in a directory that is removed with what is returned beside it.
fn path(name: &str) -> (tempfile::TempDir, String) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join(name).display().to_string();
    (place, path)
}

#[test]
fn memcached_evicts_a_lock_that_is_held_and_a_second_owner_comes_in() {
    let launched = servers::InProcess.follow(&memcached::Launch {
        connections: 200,
        mebibytes: 2,
    });
    let address = launched.unwrap().address;
    with(&format!("//{address}"), |target: memcached::Memcached| {
        let (mut first, mut second) = (target.join(0).unwrap(), target.join(1).unwrap());
        assert_eq!(try_for(&mut first), GRANTED);
        assert_eq!(try_for(&mut second), REFUSED);
        // Other users of the cache, whose items are of the lock's size.
        let mut others = TcpStream::connect(&address).unwrap();
        let item = |nth: usize| {
            let value = "x".repeat(24);
            format!("set other:{nth:014} 0 0 24 noreply\r\n{value}\r\n")
        };
        let evicted = (0..40).any(|round| {
            let many: String = (0..5_000).map(|nth| item(5_000 * round + nth)).collect();
            others.write_all(many.as_bytes()).unwrap();
            others.write_all(b"mn\r\n").unwrap();
            let mut answer = [0; 4];
            others.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"MN\r\n");
            try_for(&mut second) == GRANTED
        });
        assert!(evicted, "40 times 5000 items are more than its memory");
        // Two own now. The token orders them, and the first is told when it releases.
        assert!(first.token() < second.token(), "{first:?} {second:?}");
        let told = release(&mut first).unwrap_err().to_string();
        assert!(told.contains("the key was evicted"), "{told}");
        assert_eq!(release(&mut second), Ok(()));
    });
}

/// Forwards connections to a server until it is told to drop them.
struct Proxy {
    address: String,
    pairs: Arc<Mutex<Vec<[TcpStream; 2]>>>,
}

impl Proxy {
    fn to(server: &str) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let proxy = Proxy {
            address: listener.local_addr().unwrap().to_string(),
            pairs: Arc::default(),
        };
        let (server, pairs) = (server.to_owned(), Arc::clone(&proxy.pairs));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
                let both = || [client.try_clone().unwrap(), server.try_clone().unwrap()];
                pairs.lock().unwrap().push(both());
                let ([mut from, mut to], [mut back, mut forth]) = (both(), both());
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                std::thread::spawn(move || std::io::copy(&mut forth, &mut back));
            }
        });
        proxy
    }

    fn drop_all(&self) {
        for side in self.pairs.lock().unwrap().drain(..).flatten() {
            // One that has ended is no error.
            let _ = side.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn a_proxy_that_drops_a_connection_frees_postgres_s_lock_and_its_owner_does_not_notice() {
    let launched: Launched = servers::InProcess
        .follow(&postgres::Launch {
            connections: 17,
            locks_each: 64,
        })
        .unwrap();
    let proxy = Proxy::to(&launched.address);
    let secret = launched.secret;
    let argument = format!("//jostle:{secret}@{}/postgres", proxy.address);
    with(&argument, |target: postgres::Postgres| {
        let mut first = target.join(0).unwrap();
        assert_eq!(try_for(&mut first), GRANTED);
        let mut second = target.join(1).unwrap();
        assert_eq!(try_for(&mut second), REFUSED);
        proxy.drop_all();
        // The server sees the end of the connection in its own time.
        let mut second = target.join(1).unwrap();
        let wait = Wait::Until(monotonic() + 30_000_000_000);
        assert_eq!(second.acquire(0, Mode::Exclusive, wait), GRANTED);
        // Nothing has told the first one so far; its release fails.
        assert!(release(&mut first).is_err());
        assert_eq!(release(&mut second), Ok(()));
        proxy.drop_all();
    });
}

#[test]
fn a_lock_on_a_file_that_is_unlinked_and_made_anew_lets_a_second_owner_in() {
    let anew = |path: &str| {
        std::fs::remove_file(path).unwrap();
        std::fs::write(path, "").unwrap();
    };
    let (_place, file) = path("locked");
    std::fs::write(&file, "").unwrap();
    with(&file, |target: flock::Flock| {
        let (mut first, mut second) = (target.join(0).unwrap(), target.join(1).unwrap());
        assert_eq!(try_for(&mut first), GRANTED);
        assert_eq!(try_for(&mut second), REFUSED);
        anew(&file);
        // One who opened the old file keeps out; one who comes now is let in.
        assert_eq!(try_for(&mut second), REFUSED);
        let mut third = target.join(2).unwrap();
        assert_eq!(try_for(&mut third), GRANTED);
        // Nobody is told.
        assert_eq!(release(&mut first), Ok(()));
        assert_eq!(release(&mut third), Ok(()));
    });

    let (_place, file) = path("lock");
    with(&file, |target: lockfile::Lockfile| {
        let (mut first, mut second) = (target.join(0).unwrap(), target.join(1).unwrap());
        assert_eq!(try_for(&mut first), GRANTED);
        assert_eq!(try_for(&mut second), REFUSED);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(try_for(&mut second), GRANTED);
        // The first one takes the second one's file away, and a third comes in.
        assert_eq!(release(&mut first), Ok(()));
        assert_eq!(try_for(&mut first), GRANTED);
        assert_eq!(release(&mut first), Ok(()));
        assert!(release(&mut second).is_err(), "it is told at last");
    });
}

#[test]
fn a_posix_lock_goes_with_any_descriptor_of_the_file_that_its_owner_closes() {
    let (_place, file) = path("locked");
    std::fs::write(&file, "").unwrap();
    // Another process, which goes on believing that it owns.
    let script = "import fcntl, sys\n\
                  file = open(sys.argv[1], 'r+')\n\
                  fcntl.lockf(file, fcntl.LOCK_EX)\n\
                  print('owns', flush=True)\n\
                  sys.stdin.readline()\n\
                  open(sys.argv[1]).close()\n\
                  print('still believes', flush=True)\n\
                  sys.stdin.readline()\n";
    with(&file, |target: posix::Posix| {
        let mut owner = Command::new("python3")
            .args(["-c", script, &file])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut words = BufReader::new(owner.stdout.take().unwrap());
        let mut orders = owner.stdin.take().unwrap();
        let mut hear = |expected: &str| {
            let mut line = String::new();
            words.read_line(&mut line).unwrap();
            assert_eq!(line.trim(), expected);
        };
        hear("owns");
        let mut other = target.join(0).unwrap();
        assert_eq!(try_for(&mut other), REFUSED);
        orders.write_all(b"\n").unwrap();
        hear("still believes");
        assert_eq!(try_for(&mut other), GRANTED);
        assert_eq!(release(&mut other), Ok(()));
        // It ends with its input.
        drop(orders);
        owner.wait().unwrap();
    });
}
