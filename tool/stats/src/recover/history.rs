//! From the history of one run to its figures and to what the witness of exclusion says.
//!
//! A process *believes* that it owns the lock from the return of its acquisition to the
//! start of its release, or to the release's failure if it fails. It certainly *owned* it
//! from the return of the acquisition to the start of the release (the inner interval). An
//! overlap of two inner intervals is a violation if both processes were entitled to own at
//! that time. A lease entitles until it ends. A fault ends its victim's entitlement unless
//! the lock promises to keep the ownership.

use jostle_model::plan::Fault;
use jostle_model::record::{Delays, Event, Exclusion, Recovery, Struck, ToldBy, What};

/// Clocks of two hosts may drift apart by so many millionths within a lease.
const DRIFT: f64 = 200e-6;
/// Violations that are told in words.
const EXAMPLES: usize = 3;
/// The process that the fault strikes, or whose service the fault strikes.
const OWNER: u64 = 0;

/// One run as the clients saw it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The fault that struck.
    pub fault: Fault,
    /// Processes that waited.
    pub waiters: u64,
    /// How long the next grant was waited for.
    pub within_ns: u64,
    /// The lock's lease.
    pub lease_ns: Option<u64>,
    /// By so much it may end early.
    pub lease_step_ns: Option<u64>,
    /// When the owner asked for it.
    pub leased_at_ns: Option<u64>,
    /// Who was struck.
    pub struck: Option<Struck>,
    /// Whether a hold shall survive the loss of one server; None: none was lost.
    pub promised: Option<bool>,
    /// Just before and just after the call that struck.
    pub struck_ns: (u64, u64),
    /// When what was struck went on.
    pub returned_ns: Option<u64>,
    /// The time taken from the next owner and the service until then.
    pub delays: Option<Delays>,
    /// Whether nobody knows if the lock has a lease.
    pub may_lapse: bool,
    /// In the order of time.
    pub history: &'a [Event],
}

/// A time for which a process owned, or believed that it did.
#[derive(Clone, Copy, Debug)]
struct Hold {
    process: u64,
    asked: u64,
    granted: u64,
    token: Option<u64>,
    /// The beginning of the release.
    releases: Option<u64>,
    /// Its end, and whether it succeeded.
    ended: Option<(u64, bool)>,
}

/// The record of a run, and what the witness says.
pub fn found(seen: &Seen<'_>) -> (Recovery, Exclusion) {
    let holds = holds(seen.history);
    let old = holds.iter().find(|hold| hold.process == OWNER);
    let next = holds.iter().find(|hold| hold.process != OWNER);
    let struck = seen.struck_ns.0;
    let release = old.and_then(|old| old.releases);
    // One that failed hands nothing on.
    let is_well = |hold: &&Hold| !matches!(hold.ended, Some((_, false)));
    let handed_on = old.filter(is_well).and_then(|old| old.releases);
    let at = next.map(|next| next.granted).filter(|at| *at >= struck);
    let by_itself = at.filter(|at| handed_on.is_none_or(|release| *at < release));
    let since = |from: Option<u64>| Some(at? as i64 - from? as i64);
    let lease_end = seen.leased_at_ns.zip(seen.lease_ns);
    let lease_end = lease_end.map(|(at, lease)| at + lease);
    let lost = by_itself.is_some();
    let (two_believed_ns, two_ran_ns) = believed(seen, &holds).unzip();
    let client = client_told(seen.history);
    let told_at = told_at(old, client);
    let mut recovery = Recovery {
        fault: seen.fault,
        waiters: seen.waiters,
        within_ns: seen.within_ns,
        lease_ns: seen.lease_ns,
        lease_step_ns: seen.lease_step_ns,
        leased_at_ns: seen.leased_at_ns,
        struck: seen.struck,
        promised: seen.promised,
        keepalive_s: None,
        struck_at_ns: struck,
        struck_by_ns: seen.struck_ns.1,
        returned_at_ns: seen.returned_ns,
        next_grant_ns: by_itself.map(|at| at - struck),
        delays: seen.delays.filter(|_| lost),
        after_release_ns: at
            .zip(release)
            .filter(|_| !lost)
            .map(|(at, release)| at - release),
        after_lease_ns: since(lease_end).filter(|_| lost),
        after_return_ns: since(seen.returned_ns),
        two_believed_ns,
        two_ran_ns,
        told: told(old, client, lost),
        told_by: told_at.map(|(_, by)| by),
        told_after_ns: told_at.map(|(at, _)| at.saturating_sub(struck)),
        write_refused: write_refused(seen.history, next),
        in_order: in_order(seen.history, &holds),
        served: holds.iter().filter(|hold| hold.process != OWNER).count() as u64,
        history: seen.history.to_vec(),
    };
    // The lease of a lock that was released before is of no interest.
    if let Some(end) = lease_end.filter(|end| release.is_none_or(|at| *end <= at)) {
        let at_ns = end - seen.lease_step_ns.unwrap_or(0).min(end);
        let place = recovery.history.partition_point(|e| e.at_ns <= at_ns);
        recovery.history.insert(
            place,
            Event {
                at_ns,
                process: None,
                what: What::LeaseEnd,
                token: None,
                said: None,
                times: None,
            },
        );
    }
    (recovery, exclusion(seen, &holds))
}

/// In the order of their grants.
fn holds(history: &[Event]) -> Vec<Hold> {
    let mut holds: Vec<Hold> = Vec::new();
    let mut asked = std::collections::BTreeMap::new();
    for event in history {
        let Some(process) = event.process else {
            continue;
        };
        let open = || move |hold: &&mut Hold| hold.process == process && hold.ended.is_none();
        match event.what {
            What::Acquire => {
                asked.insert(process, event.at_ns);
            }
            What::Granted | What::GrantedFromDead => holds.push(Hold {
                process,
                asked: asked.get(&process).copied().unwrap_or(event.at_ns),
                granted: event.at_ns,
                token: event.token,
                releases: None,
                ended: None,
            }),
            What::Release => {
                if let Some(hold) = holds.iter_mut().rev().find(open()) {
                    hold.releases = Some(event.at_ns);
                }
            }
            // Nobody knows what became of one that was given up.
            What::Released | What::NotReleased => {
                if let Some(hold) = holds.iter_mut().rev().find(open()) {
                    hold.ended = Some((event.at_ns, event.what == What::Released));
                }
            }
            _ => {}
        }
    }
    holds.sort_by_key(|hold| hold.granted);
    holds
}

/// Whether the fault ends the owner's process for good.
pub fn kills_owner(fault: Fault, struck: Option<Struck>) -> bool {
    fault == Fault::Kill || (fault == Fault::HostGone && struck == Some(Struck::Worker))
}

/// The time until which a process was certainly entitled to own, whatever it believed.
fn entitled_until(seen: &Seen<'_>, hold: &Hold) -> u64 {
    let released = hold.releases.unwrap_or(u64::MAX);
    let of_lease = |from: u64| match seen.lease_ns {
        None => u64::MAX,
        Some(lease) => {
            let least = lease.saturating_sub(seen.lease_step_ns.unwrap_or(0));
            from + (least as f64 * (1.0 - DRIFT)) as u64
        }
    };
    let struck = seen.struck_ns.0;
    let until = match (hold.process, seen.fault) {
        (OWNER, fault) if kills_owner(fault, seen.struck) => struck,
        // Who was granted it by a server whose loss the promise leaves out.
        _ if seen.promised == Some(false)
            && hold.granted <= seen.returned_ns.unwrap_or(seen.struck_ns.1) =>
        {
            struck.max(hold.granted)
        }
        (_, Fault::ServerKill) if hold.granted <= seen.returned_ns.unwrap_or(u64::MAX) => {
            struck.max(hold.granted)
        }
        (OWNER, _) if seen.may_lapse => struck,
        // No service can tell a cut connection from one that has ended.
        (OWNER, Fault::Cut | Fault::IdleCut) if seen.lease_ns.is_none() => struck,
        _ => u64::MAX,
    };
    // It may be over before the fault strikes, if the keeper stood still for that long.
    let lease_end = of_lease(match hold.process {
        OWNER => seen.leased_at_ns.unwrap_or(hold.asked),
        _ => hold.asked,
    });
    released.min(until).min(lease_end)
}

fn exclusion(seen: &Seen<'_>, holds: &[Hold]) -> Exclusion {
    let mut violations = 0;
    let mut examples = Vec::new();
    for (nth, later) in holds.iter().enumerate() {
        let earlier = holds[..nth].iter();
        let inside: Vec<&Hold> = earlier
            .filter(|earlier| later.granted < entitled_until(seen, earlier))
            .collect();
        violations += u64::from(!inside.is_empty());
        examples.extend(inside.first().map(|earlier| {
            format!(
                "{} was granted the lock {:.3} ms after {}, which had not released it",
                name(later.process),
                (later.granted - earlier.granted) as f64 / 1e6,
                name(earlier.process)
            )
        }));
    }
    examples.truncate(EXAMPLES);
    let inner = holds
        .iter()
        .filter_map(|hold| Some((hold.releases? - hold.granted) as f64));
    let inner: Vec<f64> = inner.collect();
    Exclusion {
        checked: holds.len() as u64,
        violations,
        inner_interval_ns: crate::intervals::median(&inner).map(|ns| ns as u64),
        examples,
        ..Exclusion::default()
    }
}

fn name(process: u64) -> String {
    match process {
        OWNER => "the owner".to_owned(),
        waiter => format!("waiter {waiter}"),
    }
}

/// For how long the old owner and others both believed that they owned, and for how much
/// of that the old owner ran.
fn believed(seen: &Seen<'_>, holds: &[Hold]) -> Option<(u64, u64)> {
    let old = holds.iter().find(|hold| hold.process == OWNER)?;
    let last = seen.history.last()?.at_ns;
    // A killed process believes nothing.
    let mut of_owner = seen.history.iter().filter(|e| e.process == Some(OWNER));
    let gave_up = of_owner.find(|e| e.what == What::GaveUp);
    let until = match seen.fault {
        fault if kills_owner(fault, seen.struck) => return None,
        // A process stops believing at the start of its release, unless the release fails.
        _ => match (old.ended, old.releases) {
            (Some((_, true)), Some(begins)) => begins,
            (Some((at, false)), _) => at,
            _ => gave_up.map_or(last, |event| event.at_ns),
        },
    };
    let until = until.min(client_told(seen.history).unwrap_or(until));
    let awake = seen.history.iter().find(|e| e.what == What::Awake);
    let runs_from = match seen.fault {
        Fault::Stop => awake.map_or(last, |event| event.at_ns),
        _ => 0,
    };
    // Others may believe it at the same time; a moment counts once.
    let overlap = |from: u64| -> u64 {
        let others = holds.iter().filter(|hold| hold.process != OWNER);
        let (sum, _) = others.fold((0, from.max(old.granted)), |(sum, from), hold| {
            let begins = hold.granted.max(from);
            let ends = hold.releases.unwrap_or(last).min(until).max(begins);
            (sum + ends - begins, ends.max(from))
        });
        sum
    };
    let whole = overlap(0);
    (whole > 0).then(|| (whole, overlap(runs_from)))
}

/// When the old owner's client told it that the lock is lost.
fn client_told(history: &[Event]) -> Option<u64> {
    let mut of_owner = history.iter().filter(|event| event.process == Some(OWNER));
    let told = of_owner.find(|event| event.what == What::Lost);
    told.map(|event| event.at_ns)
}

/// When the old owner was told, and by whom: by its client, or by its release that failed.
fn told_at(old: Option<&Hold>, client: Option<u64>) -> Option<(u64, ToldBy)> {
    let release = old.and_then(|old| old.ended);
    let release = release.filter(|(_, succeeded)| !succeeded);
    let release = release.map(|(at, _)| (at, ToldBy::Release));
    client.map(|at| (at, ToldBy::Client)).or(release)
}

/// Whether the owner of a lost lock was told, as it should be. One that was told although no
/// other process had the lock yet also counts.
fn told(old: Option<&Hold>, client: Option<u64>, lost: bool) -> Option<bool> {
    if client.is_some() {
        return Some(true);
    }
    let (_, succeeded) = old?.ended?;
    (lost || !succeeded).then_some(!succeeded)
}

/// Whether the old owner's last write was refused; None unless the next owner wrote
/// before it.
fn write_refused(history: &[Event], next: Option<&Hold>) -> Option<bool> {
    let next = next?.process;
    let wrote = |event: &&Event| matches!(event.what, What::Written | What::WriteRefused);
    let of_next = history
        .iter()
        .find(|event| event.process == Some(next) && wrote(event))?;
    let of_old = history
        .iter()
        .rfind(|event| event.process == Some(OWNER) && wrote(event))?;
    (of_next.at_ns < of_old.at_ns).then_some(of_old.what == What::WriteRefused)
}

/// None where fewer than two were served, or one had to come again.
fn in_order(history: &[Event], holds: &[Hold]) -> Option<bool> {
    let came_again = history.iter().any(|e| e.what == What::NotGranted);
    let waiters = holds.iter().filter(|hold| hold.process != OWNER);
    let served: Vec<u64> = waiters.map(|hold| hold.process).collect();
    (served.len() > 1 && !came_again).then(|| served.is_sorted())
}

/// Whether tokens only grew; None without any.
pub fn tokens_grow(recovery: &Recovery) -> Option<bool> {
    let holds = holds(&recovery.history);
    let tokens: Vec<u64> = holds.iter().filter_map(|hold| hold.token).collect();
    (!tokens.is_empty()).then(|| tokens.is_sorted_by(|one, other| one < other))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn event(at_ms: u64, process: u64, what: What) -> Event {
        Event {
            at_ns: at_ms * MS,
            process: Some(process),
            what,
            token: None,
            said: None,
            times: None,
        }
    }

    fn with_token(at_ms: u64, process: u64, what: What, token: u64) -> Event {
        Event {
            token: Some(token),
            ..event(at_ms, process, what)
        }
    }

    /// The fault strikes at 100 ms; the lease, where there is one, is of a second.
    fn seen(fault: Fault, lease: bool, history: &[Event]) -> Seen<'_> {
        Seen {
            fault,
            waiters: 2,
            within_ns: 30_000 * MS,
            lease_ns: lease.then_some(1_000 * MS),
            lease_step_ns: None,
            leased_at_ns: lease.then_some(0),
            struck: None,
            promised: None,
            struck_ns: (100 * MS, 100 * MS + 1),
            returned_ns: match fault {
                Fault::Kill | Fault::LeaderKill | Fault::HostGone => None,
                _ => Some(1_200 * MS),
            },
            delays: None,
            may_lapse: false,
            history,
        }
    }

    fn begun() -> Vec<Event> {
        vec![
            event(0, 0, What::Acquire),
            with_token(1, 0, What::Granted, 5),
            with_token(1, 0, What::Written, 5),
            event(20, 1, What::Acquire),
            event(40, 2, What::Acquire),
        ]
    }

    fn and(events: impl IntoIterator<Item = Event>) -> Vec<Event> {
        begun().into_iter().chain(events).collect()
    }

    #[test]
    fn the_dead_are_followed_at_once() {
        let history = and([
            event(103, 1, What::Granted),
            event(105, 1, What::Release),
            event(105, 1, What::Released),
            event(106, 2, What::Granted),
            event(107, 2, What::Release),
            event(107, 2, What::Released),
        ]);
        let (recovery, exclusion) = found(&seen(Fault::Kill, false, &history));
        assert_eq!(recovery.next_grant_ns, Some(3 * MS));
        assert_eq!(recovery.two_believed_ns, None);
        assert_eq!((recovery.told, recovery.served), (None, 2));
        assert_eq!(recovery.in_order, Some(true));
        assert_eq!((exclusion.checked, exclusion.violations), (3, 0));
        assert_eq!(tokens_grow(&recovery), Some(true));
    }

    #[test]
    fn an_owner_that_slept_through_its_lease_is_one_of_two() {
        let history = and([
            with_token(1_010, 2, What::Granted, 6),
            with_token(1_010, 2, What::Written, 6),
            event(1_210, 0, What::Awake),
            with_token(1_211, 0, What::WriteRefused, 5),
            event(1_212, 0, What::Release),
            event(1_213, 0, What::NotReleased),
            event(1_220, 2, What::Release),
            event(1_221, 2, What::Released),
            event(1_230, 1, What::Granted),
        ]);
        let (recovery, exclusion) = found(&seen(Fault::Stop, true, &history));
        assert_eq!(recovery.next_grant_ns, Some(910 * MS));
        assert_eq!(recovery.after_lease_ns, Some(10 * MS as i64));
        assert_eq!(recovery.after_return_ns, Some(-190 * MS as i64));
        assert_eq!(recovery.two_believed_ns, Some(203 * MS));
        assert_eq!(recovery.two_ran_ns, Some(3 * MS));
        assert_eq!(recovery.told, Some(true));
        assert_eq!(recovery.write_refused, Some(true));
        assert_eq!(recovery.in_order, Some(false));
        // The lease was over.
        assert_eq!(exclusion.violations, 0);
        let ends = recovery.history.iter().find(|e| e.what == What::LeaseEnd);
        assert_eq!(ends.unwrap().at_ns, 1_000 * MS);
    }

    #[test]
    fn a_lock_that_is_kept_is_handed_on_by_the_release() {
        let ended = |how| {
            let all = [(1_212, What::Release), (1_212, how), (1_215, What::Granted)];
            let each = all.map(|(at, what)| event(at, u64::from(what == What::Granted), what));
            found(&seen(Fault::Stop, false, &and(each)))
        };
        // A release that failed hands nothing on.
        let failed = ended(What::NotReleased).0;
        assert_eq!(failed.next_grant_ns, Some(1_115 * MS));
        let (recovery, exclusion) = ended(What::Released);
        assert_eq!(recovery.next_grant_ns, None);
        assert_eq!(recovery.after_release_ns, Some(3 * MS));
        assert_eq!((recovery.told, recovery.two_believed_ns), (None, None));
        assert_eq!(exclusion.violations, 0);
    }

    /// The keeper stood still for two seconds, and struck afterwards.
    #[test]
    fn who_owns_after_a_lease_that_ended_before_the_fault_is_no_intruder() {
        let violations = |fault, lease, granted_ms| {
            let history = and([event(granted_ms, 1, What::Granted)]);
            let late = Seen {
                struck_ns: (2_000 * MS, 2_000 * MS + 1),
                returned_ns: None,
                ..seen(fault, lease, &history)
            };
            found(&late).1.violations
        };
        for fault in [Fault::Kill, Fault::ServerKill, Fault::Stop] {
            assert_eq!(violations(fault, true, 1_001), 0, "{fault:?}");
            assert_eq!(violations(fault, true, 900), 1, "{fault:?}");
            assert_eq!(violations(fault, false, 1_001), 1, "{fault:?}");
        }
    }

    #[test]
    fn never_is_an_answer() {
        let history = begun();
        let (recovery, _) = found(&seen(Fault::Kill, false, &history));
        assert_eq!((recovery.next_grant_ns, recovery.served), (None, 0));
        assert_eq!(recovery.after_release_ns, None);
    }

    #[test]
    fn a_second_owner_before_the_lease_is_over_is_a_violation() {
        let twice = |at_ms: u64, fault, lease| {
            let history = and([
                event(at_ms, 1, What::Granted),
                event(2_000, 0, What::Release),
                event(2_000, 0, What::Released),
            ]);
            found(&seen(fault, lease, &history)).1.violations
        };
        // Before the fault, whatever it is.
        assert_eq!(twice(60, Fault::Kill, false), 1);
        assert_eq!(twice(60, Fault::ServerKill, false), 1);
        assert_eq!(twice(500, Fault::Stop, true), 1);
        assert_eq!(twice(500, Fault::Stop, false), 1);
        assert_eq!(twice(1_001, Fault::Stop, true), 0);
        assert_eq!(twice(500, Fault::Kill, false), 0);
        assert_eq!(twice(1_300, Fault::ServerKill, false), 0);
        assert_eq!(twice(1_300, Fault::ServerStop, false), 1);
        // A service may take a connection that is cut for one that has ended.
        assert_eq!(twice(60, Fault::Cut, false), 1);
        assert_eq!(twice(500, Fault::Cut, false), 0);
        assert_eq!(twice(500, Fault::Cut, true), 1);
        assert_eq!(twice(1_001, Fault::Cut, true), 0);
    }

    /// What one server of several lost is a violation where it was promised to survive.
    #[test]
    fn a_second_owner_after_the_loss_of_a_server_is_judged_by_the_promise() {
        use Fault::{HostGone, LeaderKill, LeaderStop, PartitionMinority};
        let of = |fault, promised, granted: [u64; 2]| {
            let history = and([
                event(granted[0], 1, What::Granted),
                event(granted[1], 2, What::Granted),
                event(2_000, 1, What::Release),
            ]);
            let struck = match promised {
                Some(_) => Some(Struck::Member),
                None => Some(Struck::Worker),
            };
            let (recovery, exclusion) = found(&Seen {
                promised,
                struck,
                ..seen(fault, true, &history)
            });
            (exclusion.violations, recovery.two_believed_ns.is_some())
        };
        for fault in [LeaderKill, PartitionMinority, LeaderStop, HostGone] {
            assert_eq!(of(fault, Some(true), [500, 2_100]).0, 1, "{fault}");
            assert_eq!(of(fault, Some(false), [500, 2_100]).0, 0, "{fault}");
            // The lease was over.
            assert_eq!(of(fault, Some(true), [1_001, 2_100]).0, 0, "{fault}");
        }
        // Nobody lost anything that was granted after the server was dead.
        assert_eq!(of(LeaderKill, Some(false), [500, 600]).0, 1);
        assert_eq!(of(PartitionMinority, Some(false), [500, 600]).0, 0);
        // An owner whose host has gone is dead.
        assert_eq!(of(HostGone, None, [500, 2_100]), (0, false));
    }

    #[test]
    fn an_owner_that_is_cut_off_goes_on_in_its_belief() {
        let history = and([
            event(1_100, 1, What::Granted),
            event(1_300, 0, What::Release),
            event(1_310, 0, What::NotReleased),
            event(1_400, 1, What::Release),
        ]);
        let (recovery, exclusion) = found(&seen(Fault::Cut, true, &history));
        assert_eq!(exclusion.violations, 0);
        assert_eq!(recovery.two_believed_ns, Some(210 * MS));
        assert_eq!(recovery.two_ran_ns, recovery.two_believed_ns);
        assert_eq!(recovery.told, Some(true));
    }

    /// The next owner's lease ends, too, before the old owner is told.
    #[test]
    fn a_moment_in_which_three_believe_counts_once() {
        let history = and([
            event(1_010, 1, What::Granted),
            event(2_020, 2, What::Granted),
            event(2_500, 0, What::Release),
            event(2_510, 0, What::NotReleased),
            event(2_600, 1, What::Release),
            event(2_600, 2, What::Release),
        ]);
        let (recovery, _) = found(&seen(Fault::Cut, true, &history));
        assert_eq!(recovery.two_believed_ns, Some(1_500 * MS));
    }

    /// A client that renews hears of the loss before the release.
    #[test]
    fn what_the_client_tells_ends_the_belief() {
        let history = and([
            event(1_010, 1, What::Granted),
            event(1_210, 0, What::Awake),
            event(1_213, 0, What::Lost),
            event(2_200, 0, What::Release),
            event(2_201, 0, What::NotReleased),
            event(2_210, 1, What::Release),
        ]);
        let (recovery, _) = found(&seen(Fault::Stop, true, &history));
        assert_eq!(recovery.two_believed_ns, Some(203 * MS));
        assert_eq!(recovery.two_ran_ns, Some(3 * MS));
        assert_eq!(recovery.told, Some(true));
        assert_eq!(recovery.told_by, Some(ToldBy::Client));
        assert_eq!(recovery.told_after_ns, Some(1_113 * MS));
    }

    /// The service may have granted the release all the same.
    #[test]
    fn a_release_that_was_given_up_tells_nothing() {
        let history = and([
            event(1_010, 1, What::Granted),
            event(1_300, 0, What::Release),
            event(1_400, 0, What::GaveUp),
            event(1_500, 1, What::Release),
        ]);
        let (recovery, _) = found(&seen(Fault::ServerStop, true, &history));
        assert_eq!((recovery.told, recovery.told_by), (None, None));
        assert_eq!(recovery.two_believed_ns, Some(390 * MS));
    }

    #[test]
    fn two_waiters_at_once_are_a_violation() {
        let history = and([
            event(103, 1, What::Granted),
            event(104, 2, What::Granted),
            event(110, 1, What::Release),
        ]);
        let (_, exclusion) = found(&seen(Fault::Kill, false, &history));
        assert_eq!(exclusion.violations, 1);
        assert_eq!(
            exclusion.examples,
            ["waiter 2 was granted the lock 1.000 ms after waiter 1, which had not released it"]
        );
    }

    #[test]
    fn nobody_is_accused_of_a_lease_that_is_unknown() {
        let history = and([event(500, 1, What::Granted), event(2_000, 0, What::Release)]);
        let unknown = Seen {
            may_lapse: true,
            ..seen(Fault::Stop, false, &history)
        };
        assert_eq!(found(&unknown).1.violations, 0);
    }

    #[test]
    fn tokens_that_begin_anew_are_seen() {
        let history = and([with_token(1_300, 1, What::Granted, 1)]);
        let (recovery, _) = found(&seen(Fault::ServerKill, false, &history));
        assert_eq!(tokens_grow(&recovery), Some(false));
    }
}
