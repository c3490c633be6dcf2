//! Could everything be checked that the verdict depends on?

use super::{Check, Evidence, Found, seen};
use crate::harm;
use jostle_model::Remedy;
use jostle_model::record::{Accounts, Claim, Is, Point, Reason};

/// Questions that may stay open.
const MOST: usize = 0;

/// The check.
pub static CHECK: Check = Check {
    name: "unchecked",
    asks: "Could everything be looked at that the verdict rests on?",
    unit: "questions",
    threshold: || {
        format!(
            "more than {MOST} of three questions open: how long our threads waited for a CPU, what \
             other processes did while our own waited for each other, and whether the accounts \
             can be true (no more CPU time than the CPUs had): SUSPECT for `absolute`"
        )
    },
    source: "what could not be looked at is no evidence: a sweep beside three busy loops was once \
             VALID at +-256 %, since what would have shown it was absent",
    fooled_by: "nothing known; result files of versions without accounts are not judged by it",
    advice: "use fewer workers than CPUs, the host's own PID namespace, or a kernel with \
             CONFIG_SCHED_INFO",
    words: seen,
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let accounts = || evidence.runs.iter().filter_map(|run| harm::accounts(run));
    let any = |misses: fn(&Accounts) -> bool| accounts().any(misses);
    let cpus = accounts().map(|accounts| accounts.cpus).min()?;
    let impossible = evidence.runs.iter().find_map(|run| impossible(run));
    if impossible.is_none() && harm::bound(evidence.experiment, evidence.runs).is_some() {
        return None;
    }
    let (why, remedy) = match (impossible, any(|accounts| accounts.waited_s.is_none())) {
        (Some(why), _) => (why, Some(Remedy::wait_quiet())),
        (None, true) => (
            "unchecked: the kernel does not count how long threads wait for a CPU \
             (/proc/PID/schedstat, CONFIG_SCHED_INFO), so that the cost of other programs is \
             unknown"
                .to_owned(),
            None,
        ),
        (None, false) => (
            "unchecked: other processes cannot be seen (a container, or hidepid), and the workers \
             outnumber the CPUs, so that they may have waited for each other"
                .to_owned(),
            Some(Remedy::with("-w", cpus)).filter(|_| evidence.workers() > cpus),
        ),
    };
    let found = Found {
        measured: Some((MOST + 1) as f64),
        limit: Some(MOST as f64),
        seen: Some(why),
        remedy,
        ..Found::default()
    };
    Some(CHECK.reason(Is::Suspect, &[Claim::Absolute], found))
}

/// Accounts that hold more CPU time than the machine's CPUs had: the keeper was kept from
/// reading its clocks at the window's edges.
fn impossible(run: &Point) -> Option<String> {
    /// What the clocks of one CPU may be off at both edges: a tick of 100 a second each.
    const STEPS_S: f64 = 0.02;
    let accounts = harm::accounts(run)?;
    let (whole_s, cores) = (accounts.whole_s?, run.machine.cores as f64);
    let (between_s, steps_s) = (accounts.between_s, STEPS_S * cores);
    (cores > 0.0 && whole_s > between_s * cores + steps_s).then(|| {
        format!(
            "unchecked: {whole_s:.2} s of CPU time were read in {between_s:.2} s on {cores} CPUs: \
             jostle itself was kept from its CPUs when it read the clocks"
        )
    })
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

    /// Two programs of nice -20 kept the keeper from its clocks: 8.56 s in 3.01 s of two CPUs.
    #[test]
    fn accounts_that_cannot_be_are_suspect() {
        let mut run = with(Some(0.0), Some(0.0));
        let mut whole = |whole_s| {
            let accounts = run.accounts.as_deref_mut().unwrap();
            (accounts.between_s, accounts.whole_s) = (3.01, Some(whole_s));
            judge(&CHECK, std::slice::from_ref(&run)).map(|reason| reason.text)
        };
        assert_eq!(whole(6.03), None);
        assert!(
            whole(8.56)
                .unwrap()
                .contains("8.56 s of CPU time were read in 3.01 s on 2 CPUs")
        );
    }

    #[test]
    fn a_quiet_machine_needs_no_sight_of_others() {
        // A container, hidepid.
        assert_eq!(judge(&CHECK, &[with(None, Some(0.1))]), None);
        assert_eq!(judge(&CHECK, &[with(Some(0.0), Some(9.0))]), None);
        // Where the window never began, there is no figure to check.
        let mut dead = with(Some(0.0), None);
        dead.window_s = 0.0;
        assert_eq!(judge(&CHECK, &[dead]), None);
        // Result files of before.
        assert_eq!(after(&CHECK, |point| point.accounts = None), Is::Valid);
    }
}
