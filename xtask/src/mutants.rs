//! `cargo xtask mutants`: plants faults into a copy of jostled's lock table, one at a time,
//! and requires that the simulator sees each of them. So the table itself has no code of
//! its tests.
//!
//! The copy is compiled once, with every fault behind a switch that a variable of the
//! environment chooses.

use anyhow::{Context, ensure};
use jostle_testbed::shell;
use std::path::Path;
use std::process::Command;

/// A fault: its name, a file of the table, a text that stands there once, and what takes
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
];

/// The switch, which the copy of the table gets.
const SWITCH: &str = "
/// Whether a planted fault is chosen.
fn mutant(number: usize) -> bool {
    static CHOSEN: std::sync::LazyLock<usize> = std::sync::LazyLock::new(|| {
        std::env::var(\"MUTANT\").ok().and_then(|text| text.parse().ok()).unwrap_or(usize::MAX)
    });
    *CHOSEN == number
}
";

/// The tests that must see each fault.
const TESTS: [&str; 2] = ["no_random_world_sees_a_rule_broken", "served_in_parts"];

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
    Ok(tests.output()?.status.success())
}
