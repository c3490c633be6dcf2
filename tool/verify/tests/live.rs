//! Runs with real clients: a lock that is sound is clean whoever is struck, and one that is not is
//! found. A program of its own, because clients are forked from a process with one thread.

#![allow(clippy::unwrap_used, reason = "every function here is of a test")]
#![allow(clippy::print_stdout, reason = "it reports as the usual harness does")]

use jostle_harness::{Context, send};
use jostle_model::plan::Fault;
use jostle_model::time::Nanos;
use jostle_recover::Service;
use jostle_sys::clock::{self, Clock};
use jostle_sys::ledger::Ledger;
use jostle_sys::process;
use jostle_targets::program::{LaunchRecipe, Launched};
use jostle_targets::{Launcher, SetupError, Spec};
use jostle_verify::verified;
use jostle_worker::order::{Request, VerifyData, VerifyOrder};
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;

fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        println!("clients_and_faults: test");
        return;
    }
    let (mut parent, keeper) = UnixStream::pair().unwrap();
    let context = Context::set_up(&keeper, Clock::new()).unwrap();
    a_sound_lock_is_clean_and_killed_clients_are_in_the_history(&context);
    one_that_lets_two_in_is_found(&context);
    a_program_of_the_user_s_is_struck_with_what_it_started(&context);
    the_user_ends_a_run_early_and_gets_its_findings(&context, &mut parent);
    assert!(process::end_children(std::time::Duration::from_secs(5)));
    println!("test clients_and_faults ... ok");
}

fn a_sound_lock_is_clean_and_killed_clients_are_in_the_history(context: &Context) {
    let history = std::env::temp_dir().join(format!("jostle-history-{}", std::process::id()));
    let data = ran(
        context,
        VerifyOrder {
            history: Some(history.display().to_string()),
            ..order("flock", 3_000)
        },
    );
    let found = &data.verified;
    assert_eq!(
        (found.violations(), found.undecided, found.dropped),
        (0, 0, 0),
        "{found:?}"
    );
    assert!(found.grants > 200, "{found:?}");
    let struck = |fault| found.faults.get(&fault).map_or(0, |seen| seen.struck);
    assert!(
        struck(Fault::Kill) >= 3 && struck(Fault::Stop) >= 3,
        "{found:?}"
    );
    // By client, the number of entries.
    let mut entries: BTreeMap<u32, u32> = BTreeMap::new();
    let bytes = std::fs::read(&history).unwrap();
    let mut rest = &bytes[..];
    while let [a, b, c, d, e, f, g, h, entries_and_more @ ..] = rest {
        let count = u32::from_le_bytes([*e, *f, *g, *h]);
        *entries
            .entry(u32::from_le_bytes([*a, *b, *c, *d]))
            .or_default() += count;
        rest = &entries_and_more[16 * count as usize..];
    }
    let clients = order("flock", 0).clients as u32 + struck(Fault::Kill) as u32;
    assert_eq!(
        entries.keys().copied().collect::<Vec<u32>>(),
        (0..clients).collect::<Vec<u32>>()
    );
    assert!(entries.values().all(|count| *count > 0), "{entries:?}");
    std::fs::remove_file(history).unwrap();
}

fn one_that_lets_two_in_is_found(context: &Context) {
    let data = ran(
        context,
        VerifyOrder {
            faults: Vec::new(),
            ..order("busted:0.05", 2_000)
        },
    );
    assert!(
        data.verified.overlaps > 0 && data.found_ns.is_some(),
        "{data:?}"
    );
    assert!(data.verified.excerpt.is_some());
}

fn a_program_of_the_user_s_is_struck_with_what_it_started(context: &Context) {
    let script = "read a; echo READY; while read a b c; do echo G; read a; echo K; done";
    let data = ran(context, order(&format!("pipe:sh -c '{script}'"), 2_000));
    assert!(data.verified.grants > 50, "{data:?}");
    // Nothing is known of it after a fault, and it excludes nobody before.
    assert!(
        data.verified.overlaps + data.verified.undecided > 0,
        "{data:?}"
    );
}

fn the_user_ends_a_run_early_and_gets_its_findings(context: &Context, parent: &mut UnixStream) {
    let began = clock::monotonic();
    send(parent, &Request::Abort).unwrap();
    let aborted = run(context, &order("flock", 60_000));
    assert!(clock::monotonic() - began < 30_000_000_000);
    // Before any client was ready there is nothing to judge.
    match aborted {
        Ok(data) => assert_eq!(data.cut_short.as_deref(), Some("interrupted")),
        Err(said) => assert_eq!(said, "interrupted"),
    }
}

fn order(target: &str, lasts_ms: u64) -> VerifyOrder {
    VerifyOrder {
        target: target.to_owned(),
        clients: 4,
        keys: 2,
        lasts: Nanos::from_millis(lasts_ms),
        until: None,
        lease: Nanos::from_millis(1_000),
        faults: vec![Fault::Kill, Fault::Stop],
        promise: None,
        with: None,
        history: None,
        members: 1,
        wait_replicas: 0,
        credentials: None,
        seed: 7,
    }
}

fn ran(context: &Context, order: VerifyOrder) -> VerifyData {
    let data = run(context, &order).unwrap();
    assert_eq!((&data.cut_short, data.deaths.len()), (&None, 0), "{data:?}");
    data
}

fn run(context: &Context, order: &VerifyOrder) -> Result<VerifyData, String> {
    let ledger = Ledger::create().unwrap();
    let spec = Spec::parse(&order.target).unwrap();
    let done = verified(context, &ledger, &NoServers, order, &spec);
    ledger.sweep().unwrap();
    done.map_err(|error| error.0)
}

/// No lock here has a server.
#[derive(Debug)]
struct NoServers;

const NONE: &str = "there are no servers here";

impl Launcher for NoServers {
    fn launch(&self, _: &str) -> Result<String, SetupError> {
        Err(SetupError(NONE.to_owned()))
    }

    fn follow(&self, _: &dyn LaunchRecipe) -> Result<Launched, SetupError> {
        Err(SetupError(NONE.to_owned()))
    }

    fn answering_program(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Service for NoServers {
    fn start_again(&self) -> Result<(), String> {
        Err(NONE.to_owned())
    }

    fn start_empty(&self) -> Result<(), String> {
        Err(NONE.to_owned())
    }

    fn places(&self) -> Vec<(String, Option<String>)> {
        Vec::new()
    }

    fn set_clock(&self, _: i64) -> Result<(), String> {
        Err(NONE.to_owned())
    }
}
