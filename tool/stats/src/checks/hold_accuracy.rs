//! Was the lock held for as long as was asked?

use super::{BUT_RATIO, Evidence, Found, percent, seen};
use crate::figures::p50;
use crate::sleeping;
use jostle_model::Remedy;
use jostle_model::record::Status;

/// Shares of the hold that was asked for.
const SUSPECT: f64 = 0.05;
const INVALID: f64 = 0.20;

/// Every sleep ends with a wake-up, which costs some microseconds and which no option
/// removes. A short hold is off by a large share, but by a small time.
const LEAST_NS: f64 = 20_000.0;

check! {
    "hold_accuracy" in "us": "Was the lock held for as long as was asked?";
    threshold: || {
        let us = LEAST_NS / 1e3;
        format!(
            "median hold off by more than {} and {us} us: SUSPECT, by more than {} and {us} us: \
             INVALID, both for `absolute` and `distribution`; what sleeps are late by on this machine itself (median, at most 200 us) does \
             not count; a hold of 0 is not judged",
            percent(SUSPECT),
            percent(INVALID)
        )
    },
    source: "time(7) and prctl(2), PR_SET_TIMERSLACK: the default slack alone adds 50 us, \
             5 % of a hold of 1 ms",
    fooled_by: "a median in place with a bad tail; `hold_ns` has its percentiles",
    advice: "see what makes sleeps end late here, or spin (a negative -b)",
    words: text!(|reason| "the lock was held for {} (median)", seen(reason)),
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let hold = evidence.experiment.plan.hold?;
    let asked_ns = hold.span().0 as f64;
    let latencies = evidence.experiment.calibration.latencies.as_ref();
    let longest_ns = sleeping::longest(hold, latencies).0 as f64;
    let held_ns = evidence.median(|run| p50(&run.times.hold_ns))?;
    let off_ns = (asked_ns - held_ns).max(held_ns - longest_ns);
    let limit_ns = |share: f64| LEAST_NS.max(share * asked_ns);
    let by_waiters = held_ns > asked_ns && have_queued(evidence, off_ns);
    let is = match off_ns {
        _ if asked_ns == 0.0 => return None,
        off if off > limit_ns(INVALID) && !by_waiters => Status::Invalid,
        off if off > limit_ns(SUSPECT) => Status::Suspect,
        _ => return None,
    };
    let share = if is == Status::Invalid {
        INVALID
    } else {
        SUSPECT
    };
    let whose = match by_waiters {
        true => ", while the workers queued for CPUs, its owner among them",
        false => "",
    };
    Some(
        Found::new(is, BUT_RATIO, off_ns / 1e3, limit_ns(share) / 1e3)
            .seen(format!(
                "{:.0} us instead of {:.0} us{whose}",
                held_ns / 1e3,
                asked_ns / 1e3
            ))
            .remedy((!by_waiters).then(Remedy::doctor)),
    )
}

/// Whether the workers' time in run queues is at least the total excess of all holds.
/// Waiters that poll or spin keep the owner from its CPU: that is a property of such a
/// lock, and no fault of the measurement. The check `neighbours` reports the effect of
/// other programs.
fn have_queued(evidence: &Evidence<'_>, off_ns: f64) -> bool {
    let each = evidence.runs.iter();
    let waited_s: f64 = each
        .filter_map(|run| run.around.accounts.as_ref()?.waited_s)
        .sum();
    waited_s * 1e9 >= off_ns * evidence.sum(|run| run.operations) as f64
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{after, distribution, experiment, judge, judge_in, late, point};
    use jostle_model::record::{Accounts, Run, Status};
    use jostle_model::{Busy, Nanos};

    fn held(hold_us: u64) -> Run {
        let mut run = point();
        run.times.hold_ns = Some(distribution(4725, hold_us * 1000));
        run
    }

    fn asked(asked_us: u64, held_us: u64) -> Status {
        let mut experiment = experiment();
        experiment.plan.hold = Some(Busy::Spin(Nanos::from_micros(asked_us)));
        judge_in(&CHECK, &experiment, &[held(held_us)]).map_or(Status::Valid, |r| r.is)
    }

    #[test]
    fn five_and_twenty_percent_are_the_limits_but_never_under_20_us() {
        let table = [
            // asked for and held, us
            (1000, 1050, Status::Valid),
            (1000, 1051, Status::Suspect),
            (1000, 949, Status::Suspect), // too short is as wrong
            (1000, 1200, Status::Suspect),
            (1000, 1201, Status::Invalid),
            (50, 70, Status::Valid), // 40 %, but 20 us
            (50, 71, Status::Invalid),
            (200, 220, Status::Valid),
            (200, 221, Status::Suspect),
            (0, 500, Status::Valid),
        ];
        for (asked_us, held_us, is) in table {
            assert_eq!(asked(asked_us, held_us), is, "{asked_us} {held_us}");
        }
    }

    /// A clean hold of 1 ms, and one of 200 us, were flagged on a machine whose sleeps
    /// end 40 us late.
    #[test]
    fn what_the_machine_itself_is_late_by_is_no_fault() {
        let table = [
            // asked for, the machine's lateness, held, us
            (200, 40, 242, Status::Valid),
            (200, 40, 260, Status::Valid),
            (200, 40, 261, Status::Suspect),
            (200, 40, 281, Status::Invalid),
            (200, 40, 179, Status::Suspect), // too short is as wrong as ever
            (1_000, 60, 1_110, Status::Valid),
            (1_000, 60, 1_111, Status::Suspect),
            (1_000, 5_000, 1_250, Status::Valid), // the rest is a neighbour's
            (1_000, 5_000, 1_251, Status::Suspect),
        ];
        for (asked_us, late_us, held_us, is) in table {
            let hold = Nanos::from_micros(asked_us);
            let found = |hold| {
                let mut experiment = late(late_us as f64);
                experiment.plan.hold = Some(hold);
                judge_in(&CHECK, &experiment, &[held(held_us)]).map_or(Status::Valid, |r| r.is)
            };
            assert_eq!(
                found(Busy::Sleep(hold)),
                is,
                "{asked_us} {late_us} {held_us}"
            );
            let spinning = asked(asked_us, held_us);
            assert_eq!(
                found(Busy::Spin(hold)),
                spinning,
                "who spins does not sleep"
            );
        }
    }

    /// `lockfile` and `spin` with many workers, on an idle machine.
    #[test]
    fn an_owner_behind_its_own_waiters_is_what_such_a_lock_does() {
        let queued = |held_us: u64, waited_s: f64| {
            let mut run = held(held_us);
            run.operations = 1_000;
            let accounts = Accounts {
                waited_s: Some(waited_s),
                ..Accounts::default()
            };
            run.around.accounts = Some(Box::new(accounts));
            judge(&CHECK, &[run]).unwrap()
        };
        // Half a millisecond too long, a thousand times.
        assert_eq!(queued(1_500, 0.49).is, Status::Invalid);
        let reason = queued(1_500, 0.5);
        assert_eq!(reason.is, Status::Suspect);
        assert!(reason.text.contains("queued for CPUs"), "{}", reason.text);
        assert_eq!(
            queued(500, 5.0).is,
            Status::Invalid,
            "too short by no queue"
        );
    }

    #[test]
    fn the_median_run_decides() {
        assert_eq!(judge(&CHECK, &[held(1000), held(1000), held(1300)]), None);
        let reason = judge(&CHECK, &[held(1300), held(1000), held(1260)]).unwrap();
        assert_eq!(
            reason.text,
            "the lock was held for 1260 us instead of 1000 us (median) (jostle doctor)"
        );
    }

    #[test]
    fn a_hold_that_was_not_measured_is_not_judged() {
        assert_eq!(after(&CHECK, |run| run.times.hold_ns = None), Status::Valid);
    }
}
