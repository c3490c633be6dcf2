//! Could everything be checked that the verdict depends on?

use super::{Evidence, Found, seen};
use crate::harm;
use jostle_model::Remedy;
use jostle_model::record::{Accounts, Claim, Run};

/// Questions that may stay open.
const MOST: usize = 0;

/// Hard interrupts a second by which a run may exceed the point's quietest one: at 5 us each
/// they take 1 % of a CPU. The kernel counts them and does not time them.
const INTERRUPTS_PER_S: f64 = 2_000.0;

check! {
    "unchecked" in "questions": "Could everything be looked at that the verdict rests on?";
    threshold: text!(
        "more than {MOST} of four questions open: how long our threads waited for a CPU, what \
         other processes did while our own waited for each other, whether the accounts \
         can be true (no more CPU time than the CPUs had), and, without a server, whether \
         hard interrupts were as rare as in the quietest run (at most \
         {INTERRUPTS_PER_S:.0} a second more): SUSPECT for `absolute`"
    ),
    source: "what could not be looked at is no evidence: a sweep beside three busy loops was once \
             VALID at +-256 %, since what would have shown it was absent",
    fooled_by: "nothing known; result files of versions without accounts are not judged by it",
    advice: "use fewer workers than CPUs, the host's own PID namespace, or a kernel with \
             CONFIG_SCHED_INFO",
    words: seen,
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let accounts = || evidence.each(harm::accounts);
    let any = |misses: fn(&Accounts) -> bool| accounts().any(misses);
    let cpus = accounts().map(|accounts| accounts.cpus).min()?;
    let impossible = evidence.runs.iter().find_map(|run| impossible(run));
    let impossible = impossible.or_else(|| interrupted(evidence.runs));
    if impossible.is_none() && harm::bound(evidence.experiment, evidence.runs).is_some() {
        return None;
    }
    // The kernel counts nothing any more of a worker that died, and its death is the finding.
    if impossible.is_none()
        && evidence
            .runs
            .iter()
            .any(|run| !run.around.deaths.is_empty())
    {
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
    Some(
        Found::suspect(&[Claim::Absolute], (MOST + 1) as f64, MOST as f64)
            .seen(why)
            .remedy(remedy),
    )
}

/// Accounts that hold more CPU time than the machine's CPUs had: the keeper was kept from
/// reading its clocks at the window's edges.
fn impossible(run: &Run) -> Option<String> {
    /// The most that the clocks of one CPU may be off at both edges: a tick of 100 a second each.
    const STEPS_S: f64 = 0.02;
    let accounts = harm::accounts(run)?;
    // Programs that were started for calls have used a part of theirs before.
    let known_s = accounts.workers_s
        + accounts.server_s.unwrap_or(0.0)
        + accounts.tool_s
        + accounts.others_s.unwrap_or(0.0)
        + accounts.machine_s;
    let whole_s = known_s.max(accounts.whole_s.unwrap_or(0.0));
    let cores = run.around.machine.cores as f64;
    let (between_s, steps_s) = (accounts.between_s, STEPS_S * cores);
    (cores > 0.0 && whole_s > between_s * cores + steps_s).then(|| {
        format!(
            "unchecked: {whole_s:.2} s of CPU time were read in {between_s:.2} s on {cores} CPUs: \
             jostle itself was kept from its CPUs when it read the clocks"
        )
    })
}

/// More hard interrupts than the quietest run of the point had. Those of a server's disk and
/// of its network belong to the work.
fn interrupted(runs: &[&Run]) -> Option<String> {
    let rate = |run: &&Run| {
        let (count, accounts) = (run.around.machine.interrupts?, harm::accounts(run)?);
        let alone = run.server.is_none() && run.traffic.is_none();
        alone.then(|| count as f64 / accounts.between_s)
    };
    let rates = || runs.iter().filter_map(rate);
    let [least, most] = [
        rates().fold(f64::INFINITY, f64::min),
        rates().fold(0.0, f64::max),
    ];
    (most > least + INTERRUPTS_PER_S).then(|| {
        format!(
            "unchecked: devices interrupted one run {most:.0} times a second and another \
             {least:.0} times; what that took is in no account"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{after, judge, point};
    use jostle_model::record::{Accounts, Run, Status};

    fn with(others_s: Option<f64>, waited_s: Option<f64>) -> Run {
        let mut run = point();
        run.around.accounts = Some(Box::new(Accounts {
            between_s: 5.0,
            cpus: 2,
            others_s,
            waited_s,
            ..Accounts::default()
        }));
        run
    }

    #[test]
    fn what_could_not_be_looked_at_is_suspect_and_never_valid() {
        let text = |run: Run| judge(&CHECK, &[run]).unwrap().text;
        assert!(text(with(Some(0.0), None)).contains("CONFIG_SCHED_INFO"));
        assert!(text(with(None, Some(3.0))).contains("cannot be seen"));
    }

    /// Two programs of nice -20 kept the keeper from its clocks: 8.56 s in 3.01 s of two CPUs.
    #[test]
    fn accounts_that_cannot_be_are_suspect() {
        let mut run = with(Some(0.0), Some(0.0));
        let mut whole = |whole_s| {
            let accounts = run.around.accounts.as_deref_mut().unwrap();
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

    /// One that was reaped, for 200 % beside a loop of 100 % on two CPUs.
    #[test]
    fn parts_that_add_up_to_more_than_the_cpus_had_are_suspect() {
        let with = |others_s| judge(&CHECK, &[with(Some(others_s), Some(0.0))]);
        assert_eq!(with(9.9), None);
        assert!(with(15.0).unwrap().text.contains("15.00 s of CPU time"));
    }

    #[test]
    fn more_hard_interrupts_than_in_the_quietest_run_are_suspect() {
        let found = |counts: [u64; 3], served: bool| {
            let runs = counts.map(|count| {
                let mut run = with(Some(0.0), Some(0.0));
                run.around.machine.interrupts = Some(count);
                run.server = served.then(Default::default);
                run
            });
            judge(&CHECK, &runs).map(|reason| reason.text)
        };
        assert_eq!(found([100, 90, 10_000], false), None);
        let text = found([100, 100, 11_000], false).unwrap();
        assert!(
            text.contains("2200 times a second and another 20"),
            "{text}"
        );
        // Some devices are always at work, and a server has its own.
        assert_eq!(found([80_000, 81_000, 82_000], false), None);
        assert_eq!(found([100, 100, 11_000], true), None);
    }

    #[test]
    fn a_quiet_machine_needs_no_sight_of_others() {
        // A container, hidepid.
        assert_eq!(judge(&CHECK, &[with(None, Some(0.1))]), None);
        assert_eq!(judge(&CHECK, &[with(Some(0.0), Some(9.0))]), None);
        // Where the window never began, there is no figure to check.
        let mut dead = with(Some(0.0), None);
        dead.window.window_s = 0.0;
        assert_eq!(judge(&CHECK, &[dead]), None);
        // Result files of before.
        assert_eq!(
            after(&CHECK, |run| run.around.accounts = None),
            Status::Valid
        );
    }
}
