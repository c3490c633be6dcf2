//! Who has a lock, by the account of the server that keeps it: ours are not named, and others are.

use jostle_model::record::{Process, Sign, sign};
use jostle_sys::ledger::Ledger;
use jostle_targets::program::Launched;
use jostle_targets::remote::Client;
use jostle_targets::{Lock, Mode, Outcome, Setup, Target, Wait, postgres, redis};
use jostle_testbed::lock_servers as servers;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn with<T: Target>(user: &str, server: &Launched, database: &str, check: impl FnOnce(T)) {
    let place = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(place.path()).unwrap();
    let file = place.path().join("credentials");
    std::fs::write(&file, format!("{user}\n{}\n", server.secret)).unwrap();
    let setup = Setup {
        argument: Some(&format!("//{}{database}", server.address)),
        credentials: Some(&file),
        ..servers::setup(&ledger, 3)
    };
    check(T::prepare(&setup).unwrap());
    ledger.sweep().unwrap();
}

/// Asks until so many have it. A machine that is late has no answer in time.
#[track_caller]
fn holders(target: &impl Target, connection: &mut Option<Client>, count: usize) -> Vec<Process> {
    let begun = Instant::now();
    loop {
        let told = target.holders(connection);
        let found = told
            .as_ref()
            .ok()
            .and_then(|signs| signs.get(sign::HOLDERS));
        match found {
            Some(Sign::Processes(found)) if found.len() == count => return found.clone(),
            _ => assert!(begun.elapsed() < Duration::from_secs(120), "{told:?}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn try_for(lock: &mut impl Lock) -> Outcome {
    lock.acquire(0, Mode::Exclusive, Wait::Try).unwrap()
}

#[test]
fn a_value_of_another_client_holds_a_lock_of_redis_and_ours_is_not_named() {
    // Its own: all keys are written.
    let server = servers::followed(&redis::Launch::alone(100)).unwrap();
    // Whoever reads the lock's key may write it.
    const WRITE: &str = "for _, k in ipairs(redis.call('keys', 'jostle:*')) do \
                         redis.call('set', k, 'job-7\\nhost3', 'ex', 600) end return 1";
    with("", &server, "", |target: redis::Redis| {
        let (mut lock, mut connection) = (target.join(0).unwrap(), None);
        holders(&target, &mut connection, 0);
        assert_eq!(try_for(&mut lock), Outcome::Granted);
        holders(&target, &mut connection, 0);
        assert!(connection.is_some());
        let mut other = target.join(1).unwrap();
        assert_eq!(try_for(&mut other), Outcome::Refused);
        let (host, port) = server.address.rsplit_once(':').unwrap();
        let wrote = Command::new("redis-cli")
            .args(["-h", host, "-p", port, "eval", WRITE, "0"])
            .env("REDISCLI_AUTH", &server.secret)
            .stdout(Stdio::null())
            .status();
        assert!(wrote.unwrap().success());
        let found = holders(&target, &mut connection, 1);
        let name = "a value that no worker wrote (job-7?host3, for ";
        assert!(found[0].name.starts_with(name), "{found:?}");
        lock.release(0, Mode::Exclusive).unwrap_err();
    });
}

/// A session of psql that has begun, whose commands are written to it.
struct Psql(Child);

fn psql(server: &Launched) -> Command {
    let (host, port) = server.address.rsplit_once(':').unwrap();
    let mut psql = Command::new("psql");
    psql.args(["-h", host, "-p", port, "-U", "jostle", "-Atq", "postgres"]);
    psql.envs([
        ("PGPASSWORD", server.secret.as_str()),
        ("PGAPPNAME", "nightly-job"),
    ]);
    psql
}

/// Whether a session waits for a lock.
fn waits(server: &Launched) -> bool {
    const WAITING: &str =
        "select count(*) from pg_locks where locktype = 'advisory' and not granted";
    let told = psql(server).args(["-c", WAITING]).output().unwrap();
    told.stdout == b"1\n"
}

impl Psql {
    fn begin(server: &Launched) -> Psql {
        let session = psql(server)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        Psql(session.expect("is the Debian package postgresql installed?"))
    }

    fn write(&mut self, text: &str) {
        self.0
            .stdin
            .as_mut()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[test]
fn a_session_of_postgres_that_has_the_lock_is_named_and_ours_is_not() {
    // Its own: the lock that somebody has is the only one.
    let server = servers::followed(&postgres::Launch {
        connections: 20,
        locks_each: 64,
    });
    let server = server.unwrap();
    // The numbers of the locks that somebody has.
    const TAKE: &str = "begin; select (classid::bigint << 32) | objid::bigint as n from pg_locks \
                        where locktype = 'advisory' limit 1 \\gset\nselect \
                        pg_advisory_lock(:n);\n";
    with(
        "jostle",
        &server,
        "/postgres",
        |target: postgres::Postgres| {
            let (mut lock, mut connection) = (target.join(0).unwrap(), None);
            assert_eq!(try_for(&mut lock), Outcome::Granted);
            holders(&target, &mut connection, 0);
            let mut psql = Psql::begin(&server);
            psql.write(TAKE);
            // It waits, which is no hold.
            jostle_testbed::running::eventually("psql waits", || waits(&server));
            holders(&target, &mut connection, 0);
            lock.release(0, Mode::Exclusive).unwrap();
            let found = holders(&target, &mut connection, 1);
            let (name, state) = (&found[0].name, found[0].state.as_ref().unwrap());
            assert_eq!(name, "nightly-job of jostle from 127.0.0.1");
            assert!(
                found[0].pid > 1 && found[0].shared == Some(false),
                "{found:?}"
            );
            assert!(
                state.starts_with("active for") || state.starts_with("idle in"),
                "{state}"
            );
            assert_eq!(try_for(&mut lock), Outcome::Refused);
            drop(psql);
            holders(&target, &mut connection, 0);
        },
    );
}
