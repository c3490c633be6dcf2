//! By how much may other programs and the hypervisor have moved the figure?

use super::{BUT_RATIO, Evidence, Found, percent, seen};
use crate::clean::clean;
use crate::harm::{self, BEARABLE, BRIEF, CLEAN, Harm};
use jostle_model::Remedy;
use jostle_model::record::{Accounts, Bound, Claim, Run, Status};
use std::collections::BTreeMap;

/// From here on a figure with its bound says too little. SUSPECT begins at [`BEARABLE`].
pub(crate) const INVALID: f64 = 0.25;

/// Neighbours that are named.
const NAMED: usize = 3;

check! {
    "neighbours" in "share":
        "By how much may other programs and the hypervisor have moved the figure?";
    threshold: text!(
        "the undisturbed figure lies between (X - f C) / (1 - f) and X / (1 - max(d, f)), which is at \
         most the ideal (METHOD.md). X is the measured figure; f the share of the window in \
         which other programs, kernel threads, soft interrupts or the hypervisor ran on CPUs \
         that ours may use; C the greatest rate that was seen; d the share in which one of \
         ours waited meanwhile. The lower end is X where f is at most {1}. Either end is {0} \
         off or more: SUSPECT, with both ends; more than {2} off: INVALID, printed as \
         `>=` or `<=` and the end that is not, unless `interference` was seen. Both are for `absolute` and `distribution`. \
         Times, shares and CPU time are taken from the runs whose own bound is less than {0} \
         off, and in which f is below {3} (without kernel threads that may work for a server; \
         one worker that does not sleep may have more). They are not shown without any: \
         SUSPECT for `distribution`",
        percent(BEARABLE),
        percent(CLEAN),
        percent(INVALID),
        percent(BRIEF)
    ),
    source: "a neighbour takes nothing while ours sleep, and ours wait for each other without it; \
             beside one busy loop two workers were up to 12 times as quick, at the rate of one \
             worker alone",
    fooled_by: "a neighbour that takes caches or memory bandwidth instead of CPU time, disk or \
                network; a service that waits for a disk; percentiles, which a short disturbance \
                can move by more than the mean; work that is in another state after a disturbance; \
                hard interrupts, which the kernel counts and does not time",
    advice: "stop the programs that are named, or wait for a quiet moment",
    words: |reason| {
        let Some(bound) = reason.bound else {
            return seen(reason);
        };
        format!("{}: {}", seen(reason), bound_in_words(bound))
    },
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let harm = harm::bound_of_all(evidence.experiment, evidence.runs)?;
    let clean = clean(evidence.runs);
    let whole = harm::undisturbed(evidence.experiment, evidence.runs).contains(&true);
    // The figure is that of the slices, and the rest that of the runs which nothing disturbed.
    if clean.is_some() && whole {
        return None;
    }
    let (is, limit) = match harm.off() {
        off if off >= BEARABLE && clean.is_some() => (Status::Suspect, BEARABLE),
        off if off < BEARABLE && whole => return None,
        off if off <= INVALID || perhaps_own(evidence.runs) => (Status::Suspect, BEARABLE),
        _ => (Status::Invalid, INVALID),
    };
    // What fixes a throughput fixes no times.
    let is_figure = harm.off() >= BEARABLE;
    let beside = harm::least_beside(evidence.runs).filter(|_| !is_figure && clean.is_none());
    if let Some(beside) = beside {
        let seen = format!(
            "{} ran for {} of the time or longer in every run, so that times, shares and CPU time \
             are not shown",
            others(&named(evidence.runs), evidence.runs),
            percent(beside)
        );
        let found = Found::suspect(&[Claim::Distribution], beside, BRIEF).seen(seen);
        return Some(found.remedy(Remedy::wait_quiet()));
    }
    let bound = Bound {
        low: harm.low,
        high: Some(harm.high).filter(|high| high.is_finite()),
    };
    let mut seen = who(evidence.runs, &harm, is == Status::Suspect && !whole);
    if let Some(clean) = &clean {
        seen += &format!(
            ": the throughput is from {:.0} % of the window, in which nothing else ran",
            100.0 * clean.share
        );
    }
    let claims: &[Claim] = match clean.is_none() && is_figure {
        true => BUT_RATIO,
        false => &[Claim::Distribution],
    };
    let found = Found::new(is, claims, harm.off(), limit);
    Some(Found {
        measured: found.measured.filter(|off| is_figure && off.is_finite()),
        bound: (is_figure && clean.is_none()).then_some(bound),
        ..found.seen(seen).remedy(Remedy::wait_quiet())
    })
}

/// Words for the bound on the undisturbed figure.
fn bound_in_words(bound: Bound) -> String {
    const NO_LOWER: &str = "no lower bound, since other programs can also make it faster";
    let times = match (bound.low > 0.0, bound.high) {
        (false, None) => return "nothing bounds the undisturbed figure".to_owned(),
        (false, Some(high)) if high - 1.0 < BEARABLE => return NO_LOWER.to_owned(),
        (false, Some(high)) => {
            return format!("{NO_LOWER}; undisturbed it would be at most {high:.2} times as much");
        }
        (true, None) => format!("at least {:.2}", bound.low),
        (true, Some(high)) => format!("{:.2} to {high:.2}", bound.low),
    };
    format!("undisturbed it would be {times} times as much")
}

/// Whether most of what ran beside ours are kernel threads that may have worked for a
/// server under test: they send and write for it.
fn perhaps_own(runs: &[&Run]) -> bool {
    let served = runs.iter().filter(|run| run.server.is_some());
    let accounts = served.filter_map(|run| run.around.accounts.as_deref());
    let accounts: Vec<_> = accounts.collect();
    let sum = |of: fn(&Accounts) -> f64| accounts.iter().map(|a| of(a)).sum::<f64>();
    sum(harm::for_server_s) > sum(|a| a.others_s.unwrap_or(0.0) + a.stolen_s.unwrap_or(0.0))
}

/// The neighbours' names, and how long they kept our threads from running. `every`: no run
/// is left that could stand for times and shares.
fn who(runs: &[&Run], harm: &Harm, every: bool) -> String {
    let named = match (perhaps_own(runs), named(runs)) {
        (true, named) if named.is_empty() => {
            "kernel threads that may work for the server".to_owned()
        }
        (true, named) => format!("{named}; kernel threads perhaps work for the server"),
        (false, named) => named,
    };
    let share = percent(harm.share);
    let kept = match every {
        true => format!(
            "kept it from its CPUs in every run, for up to {share} of the time, so that times and \
             shares are not shown"
        ),
        false => format!("kept it from its CPUs for up to {share} of the time"),
    };
    format!("{} {kept}", others(&named, runs))
}

fn others(named: &str, runs: &[&Run]) -> String {
    match (named.is_empty(), stole(runs)) {
        (true, true) => "the hypervisor".to_owned(),
        (true, false) => "other programs".to_owned(),
        (false, true) => format!("other programs ({named}) and the hypervisor"),
        (false, false) => format!("other programs ({named})"),
    }
}

fn stole(runs: &[&Run]) -> bool {
    let accounts = runs.iter().filter_map(|run| run.around.accounts.as_deref());
    accounts.filter_map(|a| a.stolen_s).sum::<f64>() > 0.0
}

/// The largest over all runs, with their share of a CPU: names add up to what the bound rests
/// on.
fn named(runs: &[&Run]) -> String {
    let accounts = || runs.iter().filter_map(|run| run.around.accounts.as_deref());
    let between_s: f64 = accounts().map(|a| a.between_s).sum();
    let mut each = BTreeMap::<(&str, u64), f64>::new();
    for accounts in accounts() {
        for one in accounts.others.iter().chain(&accounts.kernel_threads) {
            *each.entry((&*one.name, one.pid)).or_default() += harm::counted_s(accounts, one);
        }
    }
    let mut each: Vec<_> = each.into_iter().collect();
    each.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let each = each.into_iter().take(NAMED).map(|(who, cpu_s)| {
        let share = 100.0 * cpu_s / between_s.max(f64::MIN_POSITIVE);
        (who, share)
    });
    let words = each
        .filter(|(_, share)| *share >= 0.5)
        .map(|((name, pid), share)| match pid {
            0 => format!("{name} {share:.0} %"),
            pid => format!("{name} ({pid}) {share:.0} %"),
        });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::figures;
    use crate::fixtures::{after, judge, judge_in, point};
    use crate::harm::Harm;
    use jostle_model::record::{Accounts, Neighbour, Readings, Reason, Run, Status};

    fn beside(others_s: f64, waited_s: f64) -> Run {
        let mut run = point();
        run.of_ideal = None;
        run.around.accounts = Some(Box::new(Accounts {
            between_s: 5.0,
            cpus: 2,
            others_s: Some(others_s),
            others: vec![Neighbour {
                name: "cargo".to_owned(),
                pid: 812,
                cpu_s: others_s,
            }],
            waited_s: Some(waited_s),
            stolen_s: Some(0.0),
            ..Accounts::default()
        }));
        run
    }

    /// One worker that does not sleep: its lower end is the figure.
    fn alone(waited_s: f64) -> Option<Reason> {
        let mut run = beside(4.0, waited_s);
        run.at.workers = Some(1);
        let mut experiment = crate::fixtures::experiment();
        (experiment.plan.hold, experiment.plan.idle) = (None, None);
        judge_in(&CHECK, &experiment, &[run])
    }

    fn found(share: f64) -> Status {
        alone(5.0 * share).map_or(Status::Valid, |reason| reason.is)
    }

    #[test]
    fn five_and_twenty_five_percent_are_the_limits() {
        // 1 / (1 - x) - 1.
        assert_eq!(found(0.0475), Status::Valid);
        assert_eq!(found(0.0477), Status::Suspect);
        assert_eq!(found(0.1999), Status::Suspect);
        assert_eq!(found(0.2001), Status::Invalid);
    }

    #[test]
    fn either_end_counts() {
        let off = |low, high| {
            Harm {
                share: 0.0,
                low,
                high,
            }
            .off()
        };
        assert!((off(0.97, 1.2) - 0.2).abs() < 1e-9);
        assert!((off(0.80, 1.01) - 0.2).abs() < 1e-9);
        assert_eq!(off(0.0, 1.0), 1.0);
    }

    #[test]
    fn kernel_threads_beside_a_server_may_be_its_own_and_are_suspect() {
        let mut run = beside(0.0, 5.0);
        let accounts = run.around.accounts.as_deref_mut().unwrap();
        (accounts.machine_s, accounts.others_s) = (2.5, Some(0.0));
        accounts.kernel_threads = vec![Neighbour {
            name: "ksmd".to_owned(),
            pid: 31,
            cpu_s: 2.5,
        }];
        let mut found = |name: &str, server| {
            run.around.accounts.as_deref_mut().unwrap().kernel_threads[0].name = name.to_owned();
            run.server = server;
            let reason = judge(&CHECK, std::slice::from_ref(&run)).unwrap();
            assert!(
                reason.text.contains(&format!("({name} (31) 50 %")),
                "{}",
                reason.text
            );
            let perhaps_own = reason.text.contains("perhaps work for the server");
            (reason.is, perhaps_own)
        };
        let server = Some(jostle_model::record::Server::default());
        assert_eq!(found("kworker/0:1", None), (Status::Invalid, false));
        assert_eq!(found("kworker/0:1", server), (Status::Suspect, true));
        assert_eq!(found("ksmd", server), (Status::Invalid, false));
    }

    #[test]
    fn the_programs_are_named_with_their_share_of_a_cpu_and_the_figure_with_its_bound() {
        let mut run = beside(1.55, 0.5);
        // Started by a program that started a thousand of them.
        run.around
            .accounts
            .as_deref_mut()
            .unwrap()
            .others
            .push(Neighbour {
                name: "programs that ended".to_owned(),
                pid: 0,
                cpu_s: 0.5,
            });
        let reason = judge(&CHECK, std::slice::from_ref(&run)).unwrap();
        assert_eq!(
            reason.text,
            "other programs (cargo (812) 31 %, programs that ended 10 %) kept it from its CPUs for \
             up to 10.0 % of the time: no lower bound, since other programs can also make it faster; \
             undisturbed it would be at most 1.45 times as much (--wait-quiet 60s)"
        );
        run.at.workers = Some(1);
        let reason = judge(&CHECK, &[run]).unwrap();
        assert!(
            reason
                .text
                .contains("it would be 1.00 to 1.11 times as much")
        );
    }

    /// Percentiles of the whole window stood beside the throughput of its clean slices.
    #[test]
    fn beside_clean_slices_times_are_those_of_undisturbed_runs_or_not_shown() {
        let run = |foreign_us: u64| {
            let mut run = beside(0.0, 5.0);
            let readings = Readings {
                length_us: vec![20_000; 250],
                operations: vec![1_000; 250],
                foreign_us: (0..250)
                    .map(|at| if at < 100 { foreign_us } else { 0 })
                    .collect(),
                idle_us: vec![0; 250],
                stolen_ticks: vec![0; 250],
                packets: vec![0; 250],
            };
            let accounts = run.around.accounts.as_deref_mut().unwrap();
            accounts.foreign_s = Some(1e-4 * foreign_us as f64);
            accounts.readings = Some(readings);
            run
        };
        let experiment = crate::fixtures::experiment();
        let found = |runs: [Run; 4]| {
            let point = crate::summary::summarize(&experiment, &runs).remove(0);
            let reasons = point.verdict.reasons.iter();
            let reason = reasons.clone().find(|reason| reason.check == CHECK.name);
            let shown = [
                point.of(figures::HANDOFF_P50).is_some(),
                point.per_worker.is_some(),
            ];
            (
                point.clean_share.is_some(),
                point.timed.len(),
                shown,
                reason.map(|reason| (reason.is, reason.text.contains("are not shown"))),
            )
        };
        let [busy, quiet] = [run(10_000), run(0)];
        assert_eq!(
            found([busy.clone(), quiet, busy.clone(), busy.clone()]),
            (true, 1, [true; 2], None)
        );
        let runs = [busy.clone(), busy.clone(), busy.clone(), busy];
        assert_eq!(
            found(runs.clone()),
            (true, 0, [false; 2], Some((Status::Suspect, true)))
        );
        // 1,000 in 20 ms, in laws of growth too.
        let point = crate::summary::summarize(&experiment, &runs).remove(0);
        assert!((point.of(figures::THROUGHPUT).unwrap().median - 50_000.0).abs() < 1e-6);
        let whole = runs[0].throughput_per_s * runs[0].window.window_s / runs[0].operations as f64;
        let per_operation = crate::fit::sweeps::fitted().next().unwrap();
        let cost_ns = crate::fit::sweeps::cost(per_operation, &point, &runs[0]);
        assert!((cost_ns.unwrap() / whole - 20_000.0).abs() < 1e-6);
    }

    #[test]
    fn an_open_loop_that_did_what_was_offered_beside_others_is_suspect_for_its_times_alone() {
        let mut experiment = crate::fixtures::experiment();
        experiment.plan.workload = jostle_model::plan::Workload::Rate;
        let mut run = beside(1.0, 1.0);
        run.server = Some(jostle_model::record::Server::default());
        run.times.service_ns = Some(jostle_model::record::Distribution::default());
        run.open_loop = Some(Box::new(jostle_model::open_loop::OpenLoop {
            planned: 1_000,
            done: 1_000,
            ..Default::default()
        }));
        let of = |run: &Run| {
            let evidence = super::Evidence {
                experiment: &experiment,
                runs: &[run],
            };
            CHECK.look(&evidence)
        };
        let reason = of(&run).unwrap();
        assert_eq!(reason.is, Status::Suspect);
        assert_eq!(reason.claims, [jostle_model::record::Claim::Distribution]);
        assert!(reason.text.contains("are not shown"), "{}", reason.text);
        assert_eq!(reason.bound, None);
        run.around.accounts.as_deref_mut().unwrap().others_s = Some(0.1);
        assert_eq!(of(&run), None);
    }

    /// Under `taskset -c 0` a loop that was pinned to CPU 1 stood beside a bound of CPU 0.
    #[test]
    fn names_add_up_to_what_ran_on_our_cpus() {
        let mut run = beside(5.0, 1.0);
        run.at.workers = Some(1);
        let accounts = run.around.accounts.as_deref_mut().unwrap();
        (accounts.cpus, accounts.foreign_s) = (1, Some(0.5));
        let text = judge(&CHECK, &[run]).unwrap().text;
        assert!(text.contains("(cargo (812) 10 %) kept it"), "{text}");
    }

    #[test]
    fn what_nobody_waited_for_and_what_was_not_looked_at_is_nobody_s_harm() {
        assert_eq!(alone(0.0), None);
        assert_eq!(judge(&CHECK, &[beside(0.0, 9.0)]), None);
        // Result files of before.
        assert_eq!(
            after(&CHECK, |run| run.around.accounts = None),
            Status::Valid
        );
    }
}
