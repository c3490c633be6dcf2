//! Did a fault strike while one owned the lock and the others waited for it?

use super::{EVERYTHING, Evidence, Found, measured, seen};
use crate::numbers::time;
use jostle_model::Remedy;
use jostle_model::record::{Claim, Event, Recovery, Status, What};

/// The moment of the fault may be off by this share of the time until the next grant.
const MOST: f64 = 0.1;

check! {
    "struck" in "share":
        "Did the fault strike while one owned the lock and all others waited, at a known moment?";
    threshold: text!(
        "a run in which it did not: INVALID; the call that struck took more than {:.0} % of \
         the time until the next grant in half of the runs: SUSPECT for `absolute`",
        100.0 * MOST
    ),
    source: "times until the next grant count from just before the call that strikes; it has \
             struck at the latest when the call returns",
    fooled_by: "a signal that is delivered late, to a process that waits for a CPU",
    advice: "a quieter machine (--wait-quiet 60s); longer --within where nobody came to wait; longer \
             --lease where it was over before",
    words: |reason| match reason.is {
        Status::Invalid => seen(reason),
        _ => format!(
            "the moment of the fault is known to {:.0} % of the time until the next grant",
            100.0 * measured(reason)
        ),
    },
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let runs = || evidence.each(|run| run.recovery.as_deref());
    let amiss: Vec<String> = runs().filter_map(amiss).collect();
    if let Some(first) = amiss.first() {
        return Some(
            Found::invalid(EVERYTHING, amiss.len() as f64, 0.0)
                .seen(format!(
                    "in {} of {} runs {first}",
                    amiss.len(),
                    runs().count()
                ))
                .remedy(Remedy::Again),
        );
    }
    let mut shares: Vec<f64> = runs().filter_map(unsure).collect();
    shares.sort_by(f64::total_cmp);
    let half = shares.get(shares.len() / 2).copied()?;
    (half > MOST)
        .then(|| Found::suspect(&[Claim::Absolute], half, MOST).remedy(Remedy::wait_quiet()))
}

/// A condition that was not met when the fault struck.
fn amiss(run: &Recovery) -> Option<String> {
    let before = |event: &&Event| event.at_ns < run.struck_at_ns;
    let when = |process: u64, what: What| {
        let mut events = run.history.iter().filter(before);
        let first = events.find(|event| event.process == Some(process) && event.what == what);
        first.map(|event| event.at_ns)
    };
    let did = |process: u64, what: What| when(process, what).is_some();
    let owns = did(0, What::Granted) || did(0, What::GrantedFromDead);
    if !owns || did(0, What::Release) {
        return Some("the owner did not hold the lock when the fault struck".to_owned());
    }
    let waiters = || 1..=run.waiters;
    if let Some(late) = waiters().find(|waiter| !did(*waiter, What::Acquire)) {
        return Some(format!(
            "waiter {late} did not wait yet when the fault struck"
        ));
    }
    // Without a lease it is a violation, which the history shows. With one, it may have been over,
    // or the lock was removed.
    let (early, at_ns) = waiters().find_map(|one| Some((one, when(one, What::Granted)?)))?;
    let leased_ns = run.leased_at_ns.or(when(0, What::Granted));
    Some(format!(
        "waiter {early} was granted the lock before the fault struck, {} after the owner asked for \
         its lease of {}",
        time(at_ns.saturating_sub(leased_ns?) as f64),
        time(run.lease_ns? as f64)
    ))
}

/// A call that returned after the next grant was preempted by the processes that it woke.
fn unsure(run: &Recovery) -> Option<f64> {
    let (took, next) = (
        run.struck_by_ns.saturating_sub(run.struck_at_ns),
        run.next_grant_ns?,
    );
    Some(if took < next {
        took as f64 / next as f64
    } else {
        0.0
    })
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{judge, point};
    use jostle_model::plan::Fault;
    use jostle_model::record::{Event, Recovery, Run, Status, What};

    fn run(struck_by_ns: u64, events: &[(u64, u64, What)]) -> Run {
        let event = |(at_ns, process, what): &(u64, u64, What)| Event {
            at_ns: *at_ns,
            process: Some(*process),
            what: *what,
            token: None,
            said: None,
            times: None,
        };
        let recovery = Recovery {
            fault: Fault::Kill,
            waiters: 1,
            within_ns: 1_000,
            lease_ns: None,
            lease_step_ns: None,
            leased_at_ns: None,
            struck: None,
            promised: None,
            keepalive_s: None,
            struck_at_ns: 100,
            struck_by_ns,
            returned_at_ns: None,
            next_grant_ns: Some(100),
            delays: None,
            after_release_ns: None,
            after_lease_ns: None,
            after_return_ns: None,
            two_believed_ns: None,
            two_ran_ns: None,
            told: None,
            told_by: None,
            told_after_ns: None,
            write_refused: None,
            in_order: None,
            served: 1,
            history: events.iter().map(event).collect(),
        };
        Run {
            recovery: Some(Box::new(recovery)),
            ..point()
        }
    }

    #[test]
    fn the_owner_holds_and_the_others_wait() {
        let granted = (10, 0, What::Granted);
        let asked = (20, 1, What::Acquire);
        type Events<'a> = &'a [(u64, u64, What)];
        let table: [(u64, Events<'_>, Status); 6] = [
            (105, &[granted, asked], Status::Valid),
            (111, &[granted, asked], Status::Suspect),
            (105, &[asked], Status::Invalid),
            (105, &[granted], Status::Invalid),
            (105, &[granted, (120, 1, What::Acquire)], Status::Invalid),
            (
                105,
                &[granted, asked, (90, 0, What::Release)],
                Status::Invalid,
            ),
        ];
        for (by, events, is) in table {
            let found = judge(&CHECK, &[run(by, events)]).map_or(Status::Valid, |reason| reason.is);
            assert_eq!(found, is, "{by} {events:?}");
        }
    }

    #[test]
    fn a_lease_that_ended_before_leaves_nothing_to_strike() {
        let early = [
            (10, 0, What::Granted),
            (20, 1, What::Acquire),
            (90, 1, What::Granted),
        ];
        let mut run = run(105, &early);
        assert_eq!(judge(&CHECK, std::slice::from_ref(&run)), None);
        run.recovery.as_mut().unwrap().lease_ns = Some(70);
        let reason = judge(&CHECK, &[run]).unwrap();
        assert_eq!(reason.is, Status::Invalid);
        let told = "waiter 1 was granted the lock before the fault struck, 80 ns after the owner \
                    asked for its lease of 70 ns";
        assert!(reason.text.contains(told), "{}", reason.text);
    }

    #[test]
    fn what_was_amiss_is_said() {
        let reason = judge(&CHECK, &[run(105, &[])]).unwrap();
        assert_eq!(
            reason.text,
            "in 1 of 1 runs the owner did not hold the lock when the fault struck (run it again)"
        );
    }
}
