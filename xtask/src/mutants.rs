//! `cargo xtask mutants`: plants faults into a copy of jostled's lock table, of its gate and
//! of its store, one at a time, and requires that the simulator or their tests see each of
//! them. So the code itself has none of its tests.
//!
//! The copy is compiled once, with every fault behind a switch that a variable of the
//! environment chooses.

use anyhow::{Context, ensure};
use jostle_testbed::shell;
use std::path::Path;
use std::process::Command;

/// A fault: its name, a file, by its path from the table, a text that stands there once, and what takes
/// its place. `MUTANT` is true if the fault is chosen.
type Mutant = (&'static str, &'static str, &'static str, &'static str);

const MUTANTS: &[Mutant] = &[
    (
        "leases end 3 ms early",
        "deadlines.rs",
        "self.behind = !self.work_off_timers(step);",
        "let now = super::Time(step.now.0 + if MUTANT { 3_000_000 } else { 0 });
        let step = &mut Step { now, outputs: &mut *step.outputs };
        self.behind = !self.work_off_timers(step);",
    ),
    (
        "every 16th token is given out twice",
        "grants.rs",
        "Some(token)\n",
        "Some(token - u64::from(MUTANT && token.is_multiple_of(16)))\n",
    ),
    (
        "anybody may release",
        "locks.rs",
        "None => lock.client == client.0,",
        "None => lock.client == client.0 || MUTANT,",
    ),
    (
        "the end of a lease wakes nobody",
        "deadlines.rs",
        "self.serve(lock, deadline, step);",
        "if MUTANT && state != ClaimState::Waiting && self.locks[lock].queue != NIL {
            return;
        }
        self.serve(lock, deadline, step);",
    ),
    (
        "a request overtakes",
        "locks.rs",
        "let in_turn = queued == 0;",
        "let in_turn = queued == 0 || MUTANT;",
    ),
    (
        "a client that is gone stays in line",
        "clients.rs",
        "if !self.is_open(client) || claim == NIL {",
        "if !self.is_open(client) || claim == NIL || MUTANT {",
    ),
    (
        "a semaphore has a place more",
        "locks.rs",
        "if shares && in_turn && has_place {",
        "if shares && in_turn && (has_place || MUTANT) {",
    ),
    (
        "the number of places is not checked",
        "locks.rs",
        "if places != request.mode.places() {",
        "if places != request.mode.places() && !MUTANT {",
    ),
    (
        "a group gets its locks though the first is taken",
        "groups.rs",
        "claims.iter().all(ready)",
        "claims.iter().skip(usize::from(MUTANT)).all(ready)",
    ),
    (
        "a reserved lock is granted to others",
        "locks.rs",
        "let shares = request.mode",
        "if MUTANT && queued != 0 && self.is_reserved(id) {
            let token = self.next_token;
            self.next_token += 1;
            self.counters.granted_at_once += 1;
            let ttl_ms = request.ttl_ms.unwrap_or(0);
            self.hold(id, request.client.0, token, ttl_ms, now);
            return Some(Outcome::Granted(token));
        }
        let shares = request.mode",
    ),
    (
        "lines that a group leaves are not served",
        "grants.rs",
        "self.serve_others(at, step);",
        "if MUTANT {
                return self.unserved.clear();
            }
            self.serve_others(at, step);",
    ),
    (
        "the connection owns a session's lock",
        "grants.rs",
        "            session => self.sessions[session].client,",
        "            session if !MUTANT => self.sessions[session].client,
            _ => client,",
    ),
    (
        "a session is renewed in vain",
        "sessions.rs",
        "self.unlink(heartbeat);",
        "if MUTANT {
            return true;
        }
        self.unlink(heartbeat);",
    ),
    (
        "a session that is over gets locks",
        "sessions.rs",
        "NIL => true,
            heartbeat => self.claims[heartbeat].deadline <= at,",
        "NIL => !MUTANT,
            heartbeat => self.claims[heartbeat].deadline <= at && !MUTANT,",
    ),
    (
        "a session that is over keeps its locks",
        "clients.rs",
        "            loop {
                let entry =",
        "            while !(MUTANT && session.is_some()) {
                let entry =",
    ),
    (
        "waiters are not told of their session's end",
        "clients.rs",
        "                && claim != NIL\n",
        "                && claim != NIL && !MUTANT\n",
    ),
    (
        "leases of closed connections are not booked",
        "accounts.rs",
        "if self.quotas && client.held > 0 {",
        "if self.quotas && client.held > 0 && !MUTANT {",
    ),
    (
        "a session that has ended counts on",
        "clients.rs",
        "self.book_session(self.sessions[session].key.user, false);",
        "if !MUTANT {
            self.book_session(self.sessions[session].key.user, false);
        }",
    ),
    (
        "a user whose sessions are closed keeps the first",
        "sessions.rs",
        "for session in from..until {",
        "for session in from + u32::from(MUTANT)..until {",
    ),
    (
        "a handover reverses lines",
        "image.rs",
        "waiting: waiting
                .map(|(place, claim)| waiter_image(place, claim))
                .collect(),",
        "waiting: {
                let line = waiting.map(|(place, claim)| waiter_image(place, claim));
                let mut line: Vec<_> = line.collect();
                if MUTANT {
                    line.reverse();
                }
                line
            },",
    ),
    (
        "a handover prolongs leases",
        "image.rs",
        "deadline: end(lock.deadline),",
        "deadline: end(lock.deadline).map(|end| end + u64::from(MUTANT) * 40_000_000),",
    ),
    (
        "an owner is told another's token",
        "holders.rs",
        "Some((self.claims[claim].token, self.queue(lock).shared_mode()))",
        "let claim = if MUTANT { self.queue(lock).sharing.head } else { claim };
        Some((self.claims[claim].token, self.queue(lock).shared_mode()))",
    ),
    (
        "a session has a lock twice",
        "grants.rs",
        "if session != NIL && matches!(outcome, Outcome::Granted(_)) {",
        "if session != NIL && matches!(outcome, Outcome::Granted(_)) && !MUTANT {",
    ),
    (
        "what a session was told is forgotten",
        "holders.rs",
        "*self.deadline_of(hold) == NEVER && token <= told",
        "*self.deadline_of(hold) == NEVER && token <= told && !MUTANT",
    ),
    (
        "a lock that was just released answers to any name",
        "idle.rs",
        "self.idle != NIL && self.locks",
        "self.idle != NIL && MUTANT || self.idle != NIL && self.locks",
    ),
    (
        "a long line is served to its first part alone",
        "grants.rs",
        "self.partly.push_back((id, at));",
        "if !MUTANT {
                        self.partly.push_back((id, at));
                    }",
    ),
    (
        "a renewal is not in the journal",
        "locks.rs",
        "if self.journal.is_some() {",
        "if self.journal.is_some() && !MUTANT {",
    ),
    (
        "the end of a session is not in the journal",
        "sessions.rs",
        "self.record_session(session, Change::Closed);",
        "if !MUTANT {
            self.record_session(session, Change::Closed);
        }",
    ),
    (
        "the journal takes a session's lock for a connection's",
        "journal.rs",
        "NIL => Owner::Connection,",
        "_ if MUTANT => Owner::Connection,
            NIL => Owner::Connection,",
    ),
    (
        "a longer renewal is not stored",
        "../store/mod.rs",
        "if new_ms <= ttl_ms && *new_ms >= *ttl_ms / 2 {",
        "if new_ms <= ttl_ms && *new_ms >= *ttl_ms / 2 || MUTANT {",
    ),
    (
        "a start gives leases less than their whole TTL",
        "adopt.rs",
        "u128::from(ttl_ms) * 1_010_000;",
        "u128::from(ttl_ms) * if MUTANT { 990_000 } else { 1_010_000 };",
    ),
    (
        "a start revives what an absent session held",
        "adopt.rs",
        "self.sessions.get(&key).map(|slot| (*slot, None))",
        "self.sessions.get(&key).or(MUTANT.then_some(&1)).map(|slot| (*slot, None))",
    ),
    (
        "a stranger's number releases what was adopted",
        "adopt.rs",
        "u64::from(slot) + (1 << ClientId::SLOT_BITS);",
        "u64::from(slot) + if MUTANT { 0 } else { 1 << ClientId::SLOT_BITS };",
    ),
    (
        "replies pass the gate",
        "../server/gate.rs",
        "if gate.is_open() && kept.len() == 0 {",
        "if (gate.is_open() || MUTANT) && kept.len() == 0 {",
    ),
    (
        "a reply overtakes one that is held",
        "../server/gate.rs",
        " && kept.len() == 0 {",
        " && (kept.len() == 0 || MUTANT) {",
    ),
    (
        "a reply needs no operation if its journal is committed",
        "../server/gate.rs",
        "self.fences && !self.asked",
        "(self.fences || MUTANT) && !self.asked",
    ),
    (
        "a reply needs only an operation, of which a part is committed",
        "../server/storer.rs",
        "if done >= batch.len() {",
        "if done >= batch.len() || MUTANT {",
    ),
    (
        "an operation that began before the turn is enough",
        "../server/gate.rs",
        "if gate.asked || gate.journal",
        "if gate.asked && !MUTANT || gate.journal",
    ),
    (
        "the replies of two turns have one mark",
        "../server/gate.rs",
        "let replies = std::mem::take(&mut kept.sent_for);",
        "let mut replies = std::mem::take(&mut kept.sent_for);
                if MUTANT {
                    replies.append(&mut kept.held);
                }",
    ),
    (
        "trimming drops replies that are held",
        "../server/conn.rs",
        "(self.output, self.sent) = (Vec::new(), 0);",
        "(self.output, self.sent) = (Vec::new(), 0);
            if MUTANT {
                self.kept = None;
            }",
    ),
    (
        "sending other replies makes a lease known whose reply is held",
        "../server/conn.rs",
        "take_while(|(.., at)| *at < sent)",
        "take_while(|(.., at)| *at < sent || MUTANT)",
    ),
    (
        "a client that closes half is closed before its replies are sent",
        "../server/exchange.rs",
        "&& conn.held() == 0;",
        "&& (conn.held() == 0 || MUTANT);",
    ),
    (
        "a batch counts before it is synced",
        "../store/file.rs",
        "        self.disk.sync()?;
        (self.sequence",
        "        if !MUTANT {
            self.disk.sync()?;
        }
        (self.sequence",
    ),
    (
        "a lost record in the middle is not noticed",
        "../store/file.rs",
        "if sectors.heads().any(|head| head.after > self.after) {",
        "if sectors.heads().any(|head| head.after > self.after) && !MUTANT {",
    ),
    (
        "a damaged last record is taken for one that was cut",
        "../store/file.rs",
        "let bad = sectors.has(Sector::Bad);",
        "let bad = sectors.has(Sector::Bad) && !MUTANT;",
    ),
    (
        "a snapshot is written over the one in use",
        "../store/file.rs",
        "Some(0) => self.half,",
        "Some(0) if !MUTANT => self.half,",
    ),
    (
        "a snapshot may take all room that there is",
        "../store/file.rs",
        "match self.stored.bytes as u64 > self.half / PART {",
        "match self.stored.bytes as u64 > self.half / PART && !MUTANT {",
    ),
];

/// The switch, which the copy of the table gets.
const SWITCH: &str = "
/// Whether a planted fault is chosen.
pub(crate) fn mutant(number: usize) -> bool {
    static CHOSEN: std::sync::LazyLock<usize> = std::sync::LazyLock::new(|| {
        std::env::var(\"MUTANT\").ok().and_then(|text| text.parse().ok()).unwrap_or(usize::MAX)
    });
    *CHOSEN == number
}
";

/// The tests that must see each fault.
const TESTS: [&str; 5] = [
    "no_random_world_sees_a_rule_broken",
    "served_in_parts",
    "store::tests",
    "gate::live_tests",
    "stories::adopted",
];

/// Makes the copy, compiles it, and runs its tests once for each fault.
pub(crate) fn run() -> anyhow::Result<()> {
    let copy = shell::root().join("target/mutants");
    copy_project(&copy)?;
    plant(&copy.join("jostled/server/src/table"))?;
    let tests = ["test", "-p", "jostle-lockd", "--lib", "--no-run"];
    let target = copy.join("target");
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&copy).env("CARGO_TARGET_DIR", &target);
    shell::run(cargo.args(tests))?;
    let program = test_program(&target.join("debug/deps"))?;
    ensure!(passes(&program, usize::MAX)?, "the sound table fails");
    for (number, (name, ..)) in MUTANTS.iter().enumerate() {
        ensure!(!passes(&program, number)?, "nobody sees that {name}");
        println!("seen: {name}");
    }
    Ok(())
}

/// Copies what git knows of the project.
fn copy_project(copy: &Path) -> anyhow::Result<()> {
    let script = "mkdir -p \"$0\" && git ls-files -z --cached --others --exclude-standard \
                  | xargs -0 cp --parents --preserve=timestamps --target-directory=\"$0\"";
    let mut shell = Command::new("sh");
    shell.current_dir(shell::root()).arg("-c").arg(script);
    shell::run(shell.arg(copy))
}

/// Plants every fault behind its switch.
fn plant(table: &Path) -> anyhow::Result<()> {
    for (number, (name, file, sound, faulty)) in MUTANTS.iter().enumerate() {
        let path = table.join(file);
        let text = std::fs::read_to_string(&path)?;
        let times = text.matches(sound).count();
        ensure!(times == 1, "{name}: {file} has {times} times `{sound}`");
        let switch = format!("crate::table::mutant({number})");
        let planted = text.replace(sound, &faulty.replace("MUTANT", &switch));
        std::fs::write(&path, planted)?;
    }
    let path = table.join("mod.rs");
    let text = std::fs::read_to_string(&path)?;
    Ok(std::fs::write(&path, text + SWITCH)?)
}

/// The newest program with the table's tests.
fn test_program(folder: &Path) -> anyhow::Result<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("jostle_lockd-") && path.extension().is_none() {
            found.push((path.metadata()?.modified()?, path));
        }
    }
    let newest = found.into_iter().max().context("no test program")?;
    Ok(newest.1)
}

/// Whether the tests pass with this fault.
fn passes(program: &Path, number: usize) -> anyhow::Result<bool> {
    let mut tests = Command::new(program);
    let tests = tests.args(TESTS).env("MUTANT", number.to_string());
    let tests = tests.env("JOSTLE_PATIENCE", "10");
    Ok(tests.output()?.status.success())
}
