//! The sweep over the holds of one lock, in the order of their grants: overlaps, releases of
//! what another owns, tokens, and when the lock was granted again after a fault.

use super::check::{First, Found, Window};
use super::ends::{Class, Ends, Judge};
use super::history::Struck;
use super::holds::Hold;
use jostle_model::record::Violation;

/// One that may still be owned at the place of the sweep.
struct Active<'h> {
    hold: &'h Hold,
    ends: Ends,
}

/// All holds of one lock, in the order of their grants.
pub(super) fn sweep(judge: &Judge<'_>, holds: &[Hold], found: &mut Found) {
    let mut active: Vec<Active<'_>> = Vec::new();
    // Confirmed releases of what had ended before, which are still to come.
    let mut late: Vec<&Hold> = Vec::new();
    let mut faults = 0;
    // Faults that struck the owner, and after which nobody has been granted the lock.
    let mut struck = Vec::new();
    for hold in holds {
        faults += note_owners(judge, faults, hold.granted, &active, &mut struck, found);
        late.retain(|release| {
            let due = release.sent <= hold.granted;
            if due {
                foreign(judge, release, &active, found);
            }
            !due
        });
        active.retain(|other| other.ends.hard > hold.granted);
        if !hold.resumed {
            for nth in struck.drain(..) {
                let fault: &Struck = judge.struck[nth];
                let after = hold.granted - fault.from_ns;
                found
                    .next_grants
                    .entry(fault.fault)
                    .or_default()
                    .push(after as f64);
            }
        }
        let ends = judge.ends(hold);
        overlap(hold, ends, &active, judge, found);
        if hold.confirmed && judge.unreleased(hold) <= hold.sent {
            late.push(hold);
        }
        active.push(Active { hold, ends });
    }
    note_owners(judge, faults, u64::MAX, &active, &mut struck, found);
    for release in late {
        foreign(judge, release, &active, found);
    }
    if judge.facts.promise.tokens {
        tokens(judge, holds, found);
    }
}

/// Counts the faults from number `nth` on that struck an owner before this time; returns how
/// many faults there were.
fn note_owners(
    judge: &Judge<'_>,
    nth: usize,
    before: u64,
    active: &[Active<'_>],
    struck: &mut Vec<usize>,
    found: &mut Found,
) -> usize {
    let faults = judge.struck[nth..].iter();
    let faults = faults.take_while(|fault| fault.from_ns < before);
    let mut passed = 0;
    for fault in faults {
        let is_owner = |active: &Active<'_>| {
            let hold = active.hold;
            fault.client.is_none_or(|client| client == hold.ask.client)
                && hold.granted <= fault.from_ns
                && judge.undisturbed(hold) > fault.from_ns
        };
        if active.iter().any(is_owner) {
            found.struck_owners[nth + passed] = true;
            struck.push(nth + passed);
        }
        passed += 1;
    }
    passed
}

fn overlap(later: &Hold, ends: Ends, active: &[Active<'_>], judge: &Judge<'_>, found: &mut Found) {
    let at = later.granted;
    let Some(own) = ends.class(at) else {
        return;
    };
    let classes = active.iter().filter_map(|earlier| {
        let class = earlier.ends.class(at)?;
        Some((class.min(own), earlier))
    });
    match classes.max_by_key(|(class, earlier)| (*class, earlier.ends.sure)) {
        None => {}
        Some((Class::Undecided, _)) => found.verified.undecided += 1,
        Some((Class::Outside, _)) => found.verified.outside += 1,
        Some((Class::Violation, earlier)) => {
            found.verified.overlaps += 1;
            found.first(at, || First {
                kind: Violation::Overlap,
                key: later.ask.key,
                from_ns: at,
                until_ns: earlier.ends.sure.min(ends.sure).min(judge.facts.ended_ns),
                windows: [earlier.hold, later]
                    .map(|hold| Window::of(judge, hold))
                    .into(),
            });
        }
    }
}

/// Whether one of those that were granted before this release was sent certainly owned until after
/// it was confirmed.
fn foreign(judge: &Judge<'_>, release: &Hold, active: &[Active<'_>], found: &mut Found) {
    let owner = active.iter().find(|other| {
        other.hold.ask.client != release.ask.client && other.ends.sure > release.over
    });
    if let Some(owner) = owner {
        found.verified.foreign_releases += 1;
        found.first(release.over, || First {
            kind: Violation::ForeignRelease,
            key: release.ask.key,
            from_ns: release.sent,
            until_ns: release.over,
            windows: [release, owner.hold]
                .map(|hold| Window::of(judge, hold))
                .into(),
        });
    }
}

/// A grant that had returned before another was asked for has the lesser token.
fn tokens(judge: &Judge<'_>, holds: &[Hold], found: &mut Found) {
    let granted = |hold: &&Hold| hold.token > 0 && !hold.resumed;
    let mut by_request: Vec<&Hold> = holds.iter().filter(granted).collect();
    by_request.sort_by_key(|hold| (hold.tried(), hold.granted));
    let mut earlier = holds.iter().filter(granted).peekable();
    // The greatest token since the last fault that may have ended them.
    let mut greatest: Option<(usize, &Hold)> = None;
    for later in by_request {
        while let Some(hold) = earlier.next_if(|hold| hold.granted < later.tried()) {
            let this = (judge.faults_over(hold.tried()), hold);
            let key = |(epoch, hold): &(usize, &Hold)| (*epoch, hold.token);
            greatest = greatest.into_iter().chain([this]).max_by_key(key);
        }
        let Some((epoch, hold)) = greatest else {
            continue;
        };
        if epoch == judge.faults_begun(later.granted) && later.token <= hold.token {
            found.verified.tokens_fell += 1;
            found.first(later.granted, || First {
                kind: Violation::TokenFell,
                key: later.ask.key,
                from_ns: hold.granted,
                until_ns: later.granted,
                windows: [hold, later].map(|hold| Window::of(judge, hold)).into(),
            });
        }
    }
}
