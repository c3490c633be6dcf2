//! The worth of a lock when what it rests on goes: an eviction, a connection that a proxy drops, a
//! file that is unlinked, a descriptor that is closed. In each case a second owner comes in, or the
//! first one is told, as tool/docs/services-limits.md states.

use crate::looks::{ask, causes};
use jostle_model::record::{Causes, When};
use jostle_sys::clock::monotonic;
use jostle_sys::ledger::Ledger;
use jostle_targets::address::Address;
use jostle_targets::program::Launched;
use jostle_targets::remote::Client;
use jostle_targets::{
    CallError, Launcher, Lock, Mode, Outcome, Setup, Target, Wait, flock, lockd, lockfile,
    memcached, posix, postgres, redis, redisson,
};
use jostle_testbed::lock_servers as servers;
use jostle_testbed::ports::free_port;
use jostle_testbed::running::Running;
use jostle_testbed::set_clock::SetClock;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const GRANTED: Result<Outcome, CallError> = Ok(Outcome::Granted);
const REFUSED: Result<Outcome, CallError> = Ok(Outcome::Refused);

/// A target with this argument, for three workers; `check` gets it.
fn with<T: Target>(argument: &str, check: impl FnOnce(T)) {
    leased(argument, None, check);
}

/// A target with this argument and a lease of so long, where the target has one.
fn leased<T: Target>(argument: &str, lease: Option<Duration>, check: impl FnOnce(T)) {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let setup = Setup {
        argument: Some(argument),
        lease,
        ..servers::setup(&ledger, 3)
    };
    check(T::prepare(&setup).unwrap());
    ledger.sweep().unwrap();
}

fn is_nothing(causes: &Causes) -> bool {
    causes.found.is_empty() && causes.possible.is_empty()
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
    let Launched {
        address, secret, ..
    } = launched.unwrap();
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let file = place.path().join("credentials");
    std::fs::write(&file, format!("jostle\n{secret}\n")).unwrap();
    let setup = Setup {
        argument: Some(&format!("//{address}")),
        credentials: Some(&file),
        // Only an eviction ends it.
        lease: Some(Duration::from_secs(600)),
        ..servers::setup(&ledger, 3)
    };
    let check = |target: memcached::Memcached| {
        let (mut first, mut second) = (target.join(0).unwrap(), target.join(1).unwrap());
        assert_eq!(try_for(&mut first), GRANTED);
        assert_eq!(try_for(&mut second), REFUSED);
        let before = ask(&target, When::Before);
        assert!(is_nothing(&causes(&before, &target)));
        // Other users of the cache, whose items are of the lock's size.
        let mut others = TcpStream::connect(&address).unwrap();
        let login = format!("jostle {secret}");
        write!(others, "set x 0 0 {}\r\n{login}\r\n", login.len()).unwrap();
        let mut answer = [0; 8];
        others.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"STORED\r\n");
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
        assert!(told.contains("no longer ours"), "{told}");
        let causes = causes(&before, &target);
        let all = [causes.found, causes.possible].concat();
        assert!(all[0].contains("memcached evicted"), "{all:?}");
        assert_eq!(release(&mut second), Ok(()));
    };
    check(Target::prepare(&setup).unwrap());
    ledger.sweep().unwrap();
}

#[test]
fn clients_of_others_are_listed_and_our_own_are_not() {
    fn check<T: Target>(place: &str) {
        with(place, |target: T| {
            assert_eq!(target.strangers().unwrap(), [""; 0]);
            let other = TcpStream::connect(place.trim_start_matches('/')).unwrap();
            let address = other.local_addr().unwrap().to_string();
            wait_for("the other client", || {
                let listed = target.strangers().unwrap();
                listed.len() == 1 && listed[0].starts_with(&address)
            });
        });
    }
    check::<redis::Redis>(servers::argument("redis").unwrap());
    let address = servers::InProcess.launch("lockd").unwrap();
    check::<lockd::Lockd>(&format!("//{address}"));
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
        let wait = Wait::Until(monotonic() + 120_000_000_000);
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

/// Asks until it is so.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// An administrator's connection to a Redis with the password of tests.
fn administrator(server: &Launched) -> Client {
    let mut client = Client::connect(&Address::Tcp(server.address.clone())).unwrap();
    client
        .command(&[b"AUTH", server.secret.as_bytes()])
        .unwrap();
    client
}

/// Two owners of one lock, one on each server, whatever the recipe; `fail_over` comes between.
fn two_own_after<T: Target>(servers: &[Launched; 2], fail_over: impl FnOnce()) {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let file = place.path().join("credentials");
    std::fs::write(&file, format!("\n{}\n", servers[0].secret)).unwrap();
    let [old, new] = servers.each_ref().map(|server| {
        let argument = format!("//{}", server.address);
        let setup = Setup {
            argument: Some(&argument),
            credentials: Some(&file),
            common_name: Some(7),
            ..servers::setup(&ledger, 2)
        };
        T::prepare(&setup).unwrap()
    });
    let mut first = old.join(0).unwrap();
    assert_eq!(try_for(&mut first), GRANTED);
    fail_over();
    let mut second = new.join(1).unwrap();
    assert_eq!(try_for(&mut second), GRANTED, "two own");
    assert_eq!(release(&mut first), Ok(()), "nobody tells the first one");
    assert_eq!(release(&mut second), Ok(()));
    ledger.sweep().unwrap();
}

#[test]
fn a_replica_of_redis_that_is_promoted_does_not_know_the_last_owners_and_lets_second_ones_in() {
    let launched = [10_001, 10_002].map(|connections| {
        servers::InProcess
            .follow(&redis::Launch::alone(connections))
            .unwrap()
    });
    let [mut primary, mut replica] = launched.each_ref().map(administrator);
    let (host, port) = launched[0].address.split_once(':').unwrap();
    let secret = launched[0].secret.as_bytes();
    let follow = |replica: &mut Client| {
        replica
            .command(&[b"CONFIG", b"SET", b"masterauth", secret])
            .unwrap();
        replica
            .command(&[b"REPLICAOF", host.as_bytes(), port.as_bytes()])
            .unwrap();
        wait_for("the replica follows", || {
            let told = replica.ask(&[b"INFO", b"replication"]).unwrap();
            String::from_utf8(told)
                .unwrap()
                .contains("master_link_status:up")
        });
    };
    // What the primary has granted and not sent yet is lost: here, since the link is cut and
    // the replica finds no way back.
    let cut = |primary: &mut Client, replica: &mut Client| {
        let wrong: [&[u8]; 4] = [b"CONFIG", b"SET", b"masterauth", b"wrong"];
        replica.command(&wrong).unwrap();
        primary
            .command(&[b"CLIENT", b"KILL", b"TYPE", b"replica"])
            .unwrap();
    };
    let promote = |replica: &mut Client| {
        replica.command(&[b"REPLICAOF", b"NO", b"ONE"]).unwrap();
    };
    follow(&mut replica);
    cut(&mut primary, &mut replica);
    two_own_after::<redis::Redis>(&launched, || promote(&mut replica));
    follow(&mut replica);
    cut(&mut primary, &mut replica);
    two_own_after::<redisson::Redisson>(&launched, || promote(&mut replica));
}

#[test]
fn a_user_without_rights_on_a_database_or_on_its_locks_is_told() {
    let launched = servers::InProcess
        .follow(&postgres::Launch {
            connections: 18,
            locks_each: 64,
        })
        .unwrap();
    let (host, port) = launched.address.split_once(':').unwrap();
    let sql = "create role guest login password 'guest'; \
               revoke connect on database postgres from public; \
               create role reader login password 'reader'; \
               grant connect on database postgres to reader; \
               revoke execute on function pg_advisory_lock(bigint) from public";
    let output = Command::new("psql")
        .args([
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            host,
            "-p",
            port,
            "-U",
            "jostle",
        ])
        .args(["-c", sql, "postgres"])
        .env("PGPASSWORD", &launched.secret)
        .output()
        .expect("is the Debian package postgresql installed?");
    assert!(output.status.success(), "{output:?}");
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let prepared = |user: &str| {
        let argument = format!("//{user}:{user}@{}/postgres", launched.address);
        let setup = Setup {
            argument: Some(&argument),
            ..servers::setup(&ledger, 2)
        };
        postgres::Postgres::prepare(&setup)
    };
    let said = prepared("guest").unwrap_err().0;
    assert!(said.contains("permission denied for database"), "{said}");
    // Let in, and not to the locks: the server tells when one is asked for.
    let mut lock = prepared("reader").unwrap().join(0).unwrap();
    let wait = Wait::Until(monotonic() + 120_000_000_000);
    let refused = lock.acquire(0, Mode::Exclusive, wait).unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("permission denied for function"), "{said}");
}

/// A Redis that runs by a clock of the test's own.
fn redis_by(clock: &SetClock) -> (Running, String) {
    let port = free_port().unwrap();
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--save", "", "--port"]);
    let command = clock.give(command.arg(port.to_string()));
    let server = command.stdout(Stdio::null()).spawn();
    let server = Running(server.expect("is the Debian package redis-server installed?"));
    let address = format!("127.0.0.1:{port}");
    wait_for("Redis accepts connections", || {
        TcpStream::connect(&address).is_ok()
    });
    (server, format!("//{address}"))
}

#[test]
fn keys_of_redis_that_another_client_flushes_are_named_as_the_cause() {
    let (_server, argument) = redis_by(&SetClock::new());
    with(&argument, |target: redis::Redis| {
        let (mut first, mut second) = (target.join(0).unwrap(), target.join(1).unwrap());
        assert_eq!(try_for(&mut first), GRANTED);
        let before = ask(&target, When::Before);
        assert!(is_nothing(&causes(&before, &target)));
        let place = argument.trim_start_matches("//");
        let mut other = TcpStream::connect(place).unwrap();
        other.write_all(b"FLUSHALL\r\n").unwrap();
        other.read_exact(&mut [0; 5]).unwrap();
        assert_eq!(try_for(&mut second), GRANTED);
        let causes = causes(&before, &target);
        let said = "another client removed all keys, ours among them (FLUSHALL or FLUSHDB: 1)";
        assert_eq!(causes.found, [said]);
        assert_eq!(causes.possible, [""; 0]);
        release(&mut second).unwrap();
    });
}

#[test]
fn a_clock_set_forward_ends_a_lease_of_redis_and_set_back_prolongs_it() {
    let clock = SetClock::new();
    let (_server, argument) = redis_by(&clock);
    with(&argument, |target: redis::Redis| {
        let (mut first, mut second) = (target.join(0).unwrap(), target.join(1).unwrap());
        assert_eq!(try_for(&mut first), GRANTED);
        assert_eq!(try_for(&mut second), REFUSED);
        let before = ask(&target, When::Before);
        assert!(is_nothing(&causes(&before, &target)));
        clock.set(3_600);
        let causes = causes(&before, &target);
        // How long the lock was held is not known here.
        let is_said = |text: &String| text.contains("clock was set by +3");
        assert!(causes.possible.iter().any(is_said), "{causes:?}");
        assert_eq!(try_for(&mut second), GRANTED);
        let told = release(&mut first).unwrap_err().to_string();
        assert!(told.contains("no longer ours"), "{told}");
        release(&mut second).unwrap();
    });
    let is_prolonged = |lease: Duration| {
        let mut in_time = false;
        leased(&argument, Some(lease), |target: redis::Redis| {
            let (mut first, mut second) = (target.join(0).unwrap(), target.join(1).unwrap());
            clock.set(3_600);
            let start = Instant::now();
            assert_eq!(try_for(&mut first), GRANTED);
            clock.set(0);
            // A machine that stands still here lets the lease end before.
            in_time = start.elapsed() < lease / 2;
            if in_time {
                // Longer than the lease, which lasts for an hour now.
                std::thread::sleep(lease * 6 / 5);
                assert_eq!(try_for(&mut second), REFUSED);
            }
            assert!(release(&mut first).is_ok() || !in_time);
        });
        in_time
    };
    let mut leases = [1, 5, 15].map(Duration::from_secs).into_iter();
    assert!(leases.any(is_prolonged), "the clock was set too late");
}
