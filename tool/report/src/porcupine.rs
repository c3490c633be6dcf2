//! `--format porcupine`: the histories of `recover` as operations with a call and a
//! return, a JSON object a line, for a checker of linearizability such as Porcupine.
//!
//! Fields: `history` (a number for each run), `target`, `fault`, `client` (the owner is 0),
//! `op` (`acquire`, `release`, `expire`), `call_ns`, `return_ns` (null: it never returned,
//! and may take effect at any time or not at all), `ok` (absent where that is unknown),
//! `token`. `expire` is an action of the service: it may take the lock from a struck owner,
//! from the end of its lease or from the fault on. Acquisitions without a grant are left
//! out, because they can only have delayed others.

use crate::ResultSet;
use jostle_model::plan::Fault;
use jostle_model::record::{Event, Recovery, Run, What};
use jostle_stats::recover::history::kills_owner;
use serde::Serialize;

/// One operation.
#[derive(Serialize)]
struct Operation<'a> {
    history: usize,
    target: &'a str,
    fault: &'a str,
    client: u64,
    op: &'a str,
    call_ns: u64,
    return_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
}

/// All runs.
pub(crate) fn render(sets: &[ResultSet]) -> String {
    let points = sets.iter().flat_map(|set| &set.runs);
    let runs = points.filter_map(|run| Some((run, run.recovery.as_deref()?)));
    let operations = runs
        .enumerate()
        .flat_map(|(nth, (point, recovery))| of_run(nth + 1, point, recovery));
    operations
        .filter_map(|operation| serde_json::to_string(&operation).ok())
        .map(|line| line + "\n")
        .collect()
}

fn of_run<'a>(history: usize, run: &'a Run, recovery: &'a Recovery) -> Vec<Operation<'a>> {
    let operation = |client: u64, op: &'a str, call_ns: u64| Operation {
        history,
        target: &run.target,
        fault: recovery.fault.as_str(),
        client,
        op,
        call_ns,
        return_ns: None,
        ok: None,
        token: None,
    };
    let mut operations = Vec::new();
    for (at, event) in recovery.history.iter().enumerate() {
        let Some(client) = event.process else {
            continue;
        };
        let ended = |ends: fn(What) -> bool| {
            let mut later = recovery.history[at..].iter();
            later.find(|other| other.process == Some(client) && ends(other.what))
        };
        match event.what {
            What::Acquire => {
                if let Some(grant) = ended(ends_acquire).filter(|end| is_grant(end)) {
                    operations.push(Operation {
                        return_ns: Some(grant.at_ns),
                        ok: Some(true),
                        token: grant.token,
                        ..operation(client, "acquire", event.at_ns)
                    });
                    operations.extend(
                        expiry(recovery, client, event.at_ns)
                            .map(|from| operation(client, "expire", from.max(event.at_ns))),
                    );
                }
            }
            What::Release => {
                let end =
                    ended(|what| matches!(what, What::Released | What::NotReleased | What::GaveUp));
                // A failed release may or may not have taken effect.
                let done = end.filter(|end| end.what == What::Released);
                operations.push(Operation {
                    return_ns: done.map(|end| end.at_ns),
                    ok: done.map(|_| true),
                    ..operation(client, "release", event.at_ns)
                });
            }
            _ => {}
        }
    }
    operations
}

fn ends_acquire(what: What) -> bool {
    matches!(
        what,
        What::Granted | What::GrantedFromDead | What::NotGranted
    )
}

fn is_grant(event: &Event) -> bool {
    event.what != What::NotGranted
}

/// The time from which the service may take the lock from this client; None: never.
fn expiry(recovery: &Recovery, client: u64, asked_ns: u64) -> Option<u64> {
    const OWNER: u64 = 0;
    let struck = recovery.struck_at_ns;
    let lease = recovery.lease_ns.map(|lease| {
        let from = match client {
            OWNER => recovery.leased_at_ns.unwrap_or(asked_ns),
            _ => asked_ns,
        };
        from + lease.saturating_sub(recovery.lease_step_ns.unwrap_or(0))
    });
    let is_dead = client == OWNER && kills_owner(recovery.fault, recovery.struck);
    // The restarted service, or the one whose leader is lost, has lost its memory.
    let has_lost = recovery.fault == Fault::ServerKill || recovery.promised == Some(false);
    match (client, recovery.fault) {
        _ if is_dead || has_lost => Some(lease.map_or(struck, |lease| lease.min(struck))),
        // For the service the cut connection may look like one that has ended.
        (OWNER, Fault::Cut | Fault::IdleCut) => Some(lease.unwrap_or(struck)),
        _ => lease,
    }
}

#[cfg(test)]
mod tests {
    use crate::{made, render};

    #[test]
    fn a_history_as_porcupine_reads_it() {
        insta::assert_snapshot!(render("porcupine", &[made::recovered()]));
        assert_eq!(render("porcupine", &[made::set()]), "");
    }
}
