//! Could everything be looked at that the figure's verdict rests on?

use super::{Check, Evidence};
use crate::harm;
use jostle_model::record::{Accounts, Claim, Is, Reason};

/// The check.
pub static CHECK: Check = Check {
    name: "unchecked",
    asks: "Could everything be looked at that the verdict rests on?",
    threshold: "how long our threads waited for a CPU was not counted, or other processes could \
                not be seen while our own waited for each other: SUSPECT for `absolute`",
    source: "silence is no consent: a sweep beside three busy loops was once VALID at +-256 %, \
             since what would have told was absent",
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let accounts = || {
        evidence
            .runs
            .iter()
            .filter_map(|run| run.accounts.as_deref())
    };
    let any = |misses: fn(&Accounts) -> bool| accounts().any(misses);
    if accounts().next().is_none() || harm::bound(evidence.experiment, evidence.runs).is_some() {
        return None;
    }
    let why = match any(|accounts| accounts.waited_s.is_none()) {
        true => {
            "unchecked: the kernel does not count how long threads wait for a CPU \
             (/proc/PID/schedstat), so that nobody can say what other programs cost; use a kernel \
             with CONFIG_SCHED_INFO"
        }
        false => {
            "unchecked: other processes cannot be seen (a container, or hidepid), and the workers \
             outnumber the CPUs, so that they may have waited for each other; use fewer workers \
             (-w), or the host's own PID namespace"
        }
    };
    Some(CHECK.reason(Is::Suspect, &[Claim::Absolute], why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{after, judge, point};
    use jostle_model::record::{Accounts, Is, Point};

    fn with(others_s: Option<f64>, waited_s: Option<f64>) -> Point {
        let mut point = point();
        point.accounts = Some(Box::new(Accounts {
            between_s: 5.0,
            cpus: 2,
            others_s,
            waited_s,
            ..Accounts::default()
        }));
        point
    }

    #[test]
    fn what_could_not_be_looked_at_is_suspect_and_never_valid() {
        let text = |point: Point| judge(&CHECK, &[point]).unwrap().text;
        assert!(text(with(Some(0.0), None)).contains("CONFIG_SCHED_INFO"));
        assert!(text(with(None, Some(3.0))).contains("cannot be seen"));
    }

    #[test]
    fn a_quiet_machine_needs_no_sight_of_others() {
        // A container, hidepid.
        assert_eq!(judge(&CHECK, &[with(None, Some(0.1))]), None);
        assert_eq!(judge(&CHECK, &[with(Some(0.0), Some(9.0))]), None);
        // Result files of before.
        assert_eq!(after(&CHECK, |point| point.accounts = None), Is::Valid);
    }
}
