//! Did the lock stand free while workers waited for it?

use super::not_contended::wants_contention;
use super::{EVERYTHING, Evidence, Found, errors, percent, seen};
use crate::causes;
use crate::intervals::median;
use crate::numbers::grouped;
use jostle_model::record::Run;
use jostle_model::{Busy, Plan};

/// Tenths of the window without any grant, at its end.
const LEAST_SLICES: usize = 2;

/// A longer standstill is not explained by a pause of the hypervisor or a busy machine.
const LEAST_STILL_S: f64 = 0.5;

/// Holds and idles of the plan, and waits as long as earlier ones, can explain a time
/// without grants. A time of more than these multiples is not explained by them.
const LEAST_TURNS_MISSED: f64 = 10.0;
const LEAST_WAITS_MISSED: f64 = 3.0;

/// A time without grants within the window in which a CPU was idle, so that nobody waited for
/// one; where that is not known, and in usual times between two grants.
const LEAST_PAUSE_S: f64 = 0.2;
const LEAST_BUSY_PAUSE_S: f64 = 1.0;
const LEAST_GAPS_MISSED: f64 = 100.0;
/// Share of a CPU that is idle then.
const LEAST_IDLE: f64 = 0.5;
/// The keeper looks every 20 ms; with many workers every 200 ms. In times of the usual slice,
/// a look that came later was not on time.
const LONGEST_SLICE_S: f64 = 0.5;
const LATE: f64 = 3.0;
/// Mean time that the lock stood free between two owners, in times that it takes to
/// wake a process on another CPU.
const LEAST_WAKE_UPS: f64 = 3.0;

/// Where that was not measured.
const USUAL_WAKE_UP_NS: f64 = 100_000.0;

/// Share of the window that the longest wait must have lasted.
const LEAST_WAITED: f64 = 0.5;

/// Turns that each worker could have had during the wait: in a lottery among all workers, a
/// worker misses that many rotations once in 10^13 waits.
const LEAST_TURNS: f64 = 30.0;

check! {
    "idle_lock" in "share": "Did the lock stand free while workers waited for it?";
    threshold: text!(
        "no grant in the last {LEAST_SLICES} tenths of the window or more, which are \
         {LEAST_STILL_S} s at least, {LEAST_TURNS_MISSED} times a hold and an idle, and \
         {LEAST_WAITS_MISSED} times the longest wait that ended in a grant: INVALID; no grant \
         for {LEAST_PAUSE_S} s within the window while the keeper was on time and {} of a CPU \
         idle ({LEAST_BUSY_PAUSE_S} s where that is not so), which are {LEAST_GAPS_MISSED} \
         usual times between two grants and {LEAST_TURNS_MISSED} times a hold and an idle: SUSPECT; on one \
         key of a lock that no server keeps, exclusive, a worker waits to the end for {} of the \
         window or longer, while the \
         lock is granted to others {LEAST_TURNS} times for each worker and stands free for \
         {LEAST_WAKE_UPS} wake-ups between two owners, median over the tenths: SUSPECT",
        percent(LEAST_IDLE),
        percent(LEAST_WAITED)
    ),
    source: "an owner holds the lock for as long as the plan says: once that time is over, the \
             lock is free or its release did not free it; a waiter that is woken gets a lock that \
             stays free for longer than its wake-up takes",
    fooled_by: "a machine that stands still for as long; a lock whose waiters poll less often \
                than it is free (SUSPECT)",
    advice: "look for a wake-up that is lost (a private futex among processes, a waiter that \
             sleeps after the release it should have seen), for waiters that look too seldom, for \
             a lock that is not freed by its release, or at what a busy server does instead",
    words: seen,
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    if !evidence.is_contention() || evidence.workers() < 2 {
        return None;
    }
    let workers = evidence.workers();
    let plan = &evidence.experiment.plan;
    let still = evidence.each(|run| still(run, plan, evidence));
    if let Some(worst) = still.max_by(f64::total_cmp) {
        let window_s = evidence.mean_window_s();
        return Some(
            Found::invalid(EVERYTHING, worst, LEAST_SLICES as f64 / 10.0).seen(
                taken_from_the_start(evidence).unwrap_or_else(|| {
                    format!(
                        "the lock stood still: none of {workers} workers was let in for the last \
                     {:.2} of {window_s:.2} s{}",
                        worst * window_s,
                        why_still(evidence)
                    )
                }),
            ),
        );
    }
    let paused = evidence.each(|run| pause(run, plan, evidence));
    if let Some(pause) = paused.max_by(|one, other| one.length_s().total_cmp(&other.length_s())) {
        return Some(
            Found::suspect(EVERYTHING, pause.length_s(), pause.least_s)
                .unit("s")
                .seen(pause.words()),
        );
    }
    let free = in_vain(evidence)?;
    let words = format!(
        "{} of {workers} workers waited to the end, one for {:.2} of {:.2} s, while the lock \
             went to others and stood free for {:.0} us between two owners",
        free.waiters,
        free.longest_s,
        evidence.mean_window_s(),
        free.us
    );
    Some(
        Found::suspect(EVERYTHING, free.wake_ups, LEAST_WAKE_UPS)
            .unit("wake-ups")
            .seen(words),
    )
}

/// A time within a window in which nothing was granted.
struct Pause {
    from_s: f64,
    to_s: f64,
    window_s: f64,
    /// The rate in the rest of the window.
    per_s: f64,
    /// The limit that it crossed.
    least_s: f64,
}

impl Pause {
    fn length_s(&self) -> f64 {
        self.to_s - self.from_s
    }

    fn words(&self) -> String {
        format!(
            "nothing was granted from {:.2} to {:.2} of {:.2} s while workers waited; in the rest \
             {} locks/s",
            self.from_s,
            self.to_s,
            self.window_s,
            grouped(self.per_s.round() as u64)
        )
    }
}

/// The longest time without a grant, by the short slices of the window, if neither the plan
/// nor the machine explains it.
fn pause(run: &Run, plan: &Plan, evidence: &Evidence<'_>) -> Option<Pause> {
    let slices = run.around.accounts.as_deref()?.readings.as_ref()?;
    let of = |column: &[u64], nth: usize| column.get(nth).copied();
    let usual_us = median(slices.length_us.iter().map(|us| *us as f64))?;
    // While the keeper is kept from its CPU, so may be everybody.
    let is_still = |nth: usize| {
        of(&slices.operations, nth) == Some(0)
            && of(&slices.stolen_ticks, nth) == Some(0)
            && (slices.length_us[nth] as f64) < 1e6 * LONGEST_SLICE_S
    };
    let is_idle = |nth: usize| {
        let length_us = slices.length_us[nth] as f64;
        let idle = of(&slices.idle_us, nth).is_some_and(|us| us as f64 >= LEAST_IDLE * length_us);
        is_still(nth) && idle && length_us <= LATE * usual_us
    };
    let failed = errors::failed_calls(run) >= run.at.workers.unwrap_or(u64::MAX);
    let died = !run.around.deaths.is_empty();
    let found = |(from_s, to_s): (f64, f64), least_s: f64| {
        let (length_s, window_s) = (to_s - from_s, run.window.window_s);
        let rest_s = window_s - length_s;
        let usual_s = rest_s / run.operations.max(1) as f64;
        let is_long = length_s >= least_s
            && length_s >= LEAST_GAPS_MISSED * usual_s
            && length_s >= LEAST_TURNS_MISSED * turn_s(plan);
        is_long.then(|| Pause {
            from_s,
            to_s,
            window_s,
            per_s: run.operations as f64 / rest_s,
            least_s,
        })
    };
    let idle = found(longest(&slices.length_us, is_idle), LEAST_PAUSE_S);
    let idle = idle.filter(|_| !failed && !died);
    idle.or_else(|| {
        let any = found(longest(&slices.length_us, is_still), LEAST_BUSY_PAUSE_S);
        any.filter(|pause| !is_elsewhere(run, pause.length_s(), evidence))
    })
}

/// From when to when the longest row of such slices lasted, in seconds of the window.
fn longest(length_us: &[u64], is: impl Fn(usize) -> bool) -> (f64, f64) {
    let (mut longest, mut from_s, mut at_s) = ((0.0, 0.0), 0.0, 0.0);
    for (nth, length) in length_us.iter().enumerate() {
        at_s += *length as f64 / 1e6;
        if !is(nth) {
            from_s = at_s;
        }
        if at_s - from_s > longest.1 - longest.0 {
            longest = (from_s, at_s);
        }
    }
    longest
}

/// Causes that have a check of their own: an owner that died, workers that all ended by errors,
/// or that waited for a CPU. Where something else stopped the lock for certain, that they waited
/// too explains nothing.
fn is_elsewhere(run: &Run, still_s: f64, evidence: &Evidence<'_>) -> bool {
    let waited = run
        .cpu
        .runqueue_wait_s
        .is_some_and(|wait| wait > still_s / 2.0);
    let failed = errors::failed_calls(run) >= run.at.workers.unwrap_or(u64::MAX);
    !run.around.deaths.is_empty() || failed || (waited && !is_explained(run, evidence))
}

/// An owner's time between two acquisitions, by the plan.
fn turn_s(plan: &Plan) -> f64 {
    let span_s = |busy: Option<Busy>| busy.map_or(0.0, |busy| busy.span().as_secs_f64());
    span_s(plan.hold) + span_s(plan.idle)
}

/// Whether the table of causes is certain of one.
fn is_explained(run: &Run, evidence: &Evidence<'_>) -> bool {
    let causes = causes::of_run(CHECK.name, run, evidence);
    !causes.found.is_empty()
}

/// The remaining explanation where nothing outside the lock explains a standstill for certain.
fn why_still(evidence: &Evidence<'_>) -> &'static str {
    match evidence.runs.iter().any(|run| is_explained(run, evidence)) {
        true => "",
        false => "; cause not known",
    }
}

/// A lock that was granted before this run, and to nobody from its first moment on. A lock that
/// stops within a run has granted something in it.
fn taken_from_the_start(evidence: &Evidence<'_>) -> Option<String> {
    let granted = |run: &Run| {
        run.operations > 0 || run.exclusion.as_ref().is_some_and(|seen| seen.checked > 0)
    };
    let mut runs = evidence.runs.iter();
    let never = runs.find(|run| !granted(run) && run.exclusion.is_some())?;
    let own_cost = &evidence.experiment.calibration.own_cost;
    let mut earlier = evidence.runs.iter().filter(|run| run.run < never.run);
    let before = own_cost.contains_key(&never.target) || earlier.any(|run| granted(run));
    (before && !is_explained(never, evidence)).then(|| {
        format!(
            "none of {} workers was let in from the first moment of run {} on, and the lock was \
             granted before it",
            evidence.workers(),
            never.run
        )
    })
}

/// The share of the window, at its end, without any grant. None if it is too short, or has
/// another cause than the lock.
fn still(run: &Run, plan: &Plan, evidence: &Evidence<'_>) -> Option<f64> {
    let slices = &run.series;
    let counted: u64 = slices.iter().map(|s| s.operations).sum();
    if counted == 0 && run.operations > 0 {
        // The tenths of this run were not recorded.
        return None;
    }
    let empty = slices.iter().rev().take_while(|s| s.operations == 0);
    let empty = empty.count();
    let share = empty as f64 / slices.len().max(1) as f64;
    let still_s = share * run.window.window_s;
    let waits = run.acquire_ns.as_ref();
    let longest_s = waits.map_or(0.0, |waits| waits.granted.max as f64 / 1e9);
    let long = empty >= LEAST_SLICES
        && still_s >= LEAST_STILL_S
        && still_s >= LEAST_TURNS_MISSED * turn_s(plan)
        && still_s >= LEAST_WAITS_MISSED * longest_s;
    (long && !is_elsewhere(run, still_s, evidence)).then_some(share)
}

/// Workers whose attempts had not ended at the window's end. The distribution of waits has
/// only those with stamped attempts; older records have only that number.
fn waiting(run: &Run) -> u64 {
    let pending = run.per_worker.as_ref().and_then(|shares| shares.pending);
    let censored = run.acquire_ns.as_ref().map_or(0, |waits| waits.censored);
    pending.unwrap_or(0).max(censored)
}

/// A lock that stood free while somebody waited.
#[derive(Clone, Copy, Debug)]
pub struct Free {
    waiters: u64,
    longest_s: f64,
    /// Between two owners.
    us: f64,
    /// That time in wake-ups.
    wake_ups: f64,
}

/// The run in which the lock stood free for longest. None if no worker waited long enough,
/// or the lock was seldom free.
pub(crate) fn in_vain(evidence: &Evidence<'_>) -> Option<Free> {
    if !evidence.is_contention() || !wants_contention(&evidence.experiment.plan) {
        return None;
    }
    let latencies = evidence.experiment.calibration.latencies.as_ref();
    let wake_up_ns = latencies.and_then(|latencies| latencies.wake_other_cpu_ns);
    let wake_up_ns = wake_up_ns.unwrap_or(USUAL_WAKE_UP_NS);
    let workers = evidence.workers();
    let found = evidence.each(|run| free(run, workers, wake_up_ns));
    found.max_by(|one, other| one.us.total_cmp(&other.us))
}

/// Whether a server keeps the lock. Such a lock is free for at least a round trip between
/// two owners, and its recipe determines how often waiters poll.
fn is_a_service(run: &Run) -> bool {
    let accounts = run.around.accounts.as_deref();
    run.server.is_some() || accounts.is_some_and(|accounts| accounts.server_s.is_some())
}

fn free(run: &Run, workers: u64, wake_up_ns: f64) -> Option<Free> {
    if is_a_service(run) {
        return None;
    }
    let waiters = Some(waiting(run)).filter(|n| *n > 0)?;
    let longest_s = run.per_worker.as_ref()?.longest_wait_ns? as f64 / 1e9;
    if longest_s < LEAST_WAITED * run.window.window_s {
        return None;
    }
    let slice_s = run.window.window_s / run.series.len().max(1) as f64;
    // Whole tenths of the wait; it began before the window, or ended with it.
    let whole = (longest_s / slice_s).floor() as usize;
    let meanwhile = run.series.iter().rev().take(whole).map(|s| s.operations);
    let granted: u64 = meanwhile.clone().sum();
    let hold_us = run.times.hold_ns.as_ref()?.mean / 1e3;
    let each = meanwhile.filter(|n| *n > 0);
    let each: Vec<f64> = each.map(|n| slice_s * 1e6 / n as f64 - hold_us).collect();
    let us = median(&each)?;
    let wake_ups = us * 1e3 / wake_up_ns;
    let turns = granted as f64 / workers as f64;
    (turns >= LEAST_TURNS && wake_ups >= LEAST_WAKE_UPS).then_some(Free {
        waiters,
        longest_s,
        us,
        wake_ups,
    })
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{distribution, experiment, judge, judge_in, point, slices};
    use jostle_model::record::{Accounts, Causes, Exclusion, Readings, Run, Status, Waits};
    use jostle_model::{Busy, List, Nanos, Plan};

    /// Ten workers, of which nobody is let in for the last tenths of 5 s.
    fn stopped(empty: usize) -> Run {
        let mut run = point();
        let mut counts = [400; 10];
        counts[10 - empty..].fill(0);
        run.series = slices(&counts);
        run.operations = counts.iter().sum();
        run
    }

    #[test]
    fn two_tenths_in_which_nobody_is_let_in_are_the_limit() {
        for (empty, is) in [
            (1, None),
            (2, Some(Status::Invalid)),
            (10, Some(Status::Invalid)),
        ] {
            let found = judge(&CHECK, &[point(), stopped(empty)]);
            assert_eq!(found.map(|reason| reason.is), is, "{empty}");
        }
        let text = judge(&CHECK, &[stopped(7)]).unwrap().text;
        let part = "none of 10 workers was let in for the last 3.50 of 5.00 s";
        assert!(text.contains(part), "{text}");
    }

    /// A lease that the peer of the run before left behind was "a wake-up was lost".
    #[test]
    fn a_lock_that_is_taken_from_the_first_moment_on_after_a_good_run_was_left_behind() {
        let never = || {
            let mut run = stopped(10);
            (run.run, run.operations) = (2, 0);
            run.exclusion = Some(Exclusion::default());
            run
        };
        let text = judge(&CHECK, &[point(), never()]).unwrap().text;
        let part = "none of 10 workers was let in from the first moment of run 2 on, and the lock \
                    was granted before it";
        assert!(text.contains(part) && !text.contains("wake-up"), "{text}");
        // Granted in the warm-up; granted never; held by somebody who was seen.
        let mut warm = never();
        warm.exclusion.as_mut().unwrap().checked = 1;
        let mut held = never();
        held.around.causes = Some(Box::new(Causes {
            found: vec!["sleep (812) holds it".to_owned()],
            ..Causes::default()
        }));
        for runs in [[point(), warm], [never(), never()], [point(), held]] {
            let text = judge(&CHECK, &runs).unwrap().text;
            assert!(text.starts_with("the lock stood still"), "{text}");
        }
    }

    /// Nobody asks any more, and the errors have a check of their own.
    #[test]
    fn workers_that_all_ended_by_errors_left_no_lock_that_stands_still() {
        for (failed, told) in [(9, true), (10, false)] {
            let mut run = stopped(7);
            run.around
                .errors
                .insert("ENOTRECOVERABLE".to_owned(), failed);
            assert_eq!(judge(&CHECK, &[run]).is_some(), told, "{failed}");
        }
    }

    /// 5 s in slices of 20 ms, of which so many from the hundredth on are empty.
    fn paused(empty: usize) -> Run {
        let mut run = point();
        let mut operations = vec![20; 250];
        operations[100..100 + empty].fill(0);
        run.operations = operations.iter().sum();
        run.around.accounts = Some(Box::new(Accounts {
            between_s: 5.0,
            readings: Some(Readings {
                length_us: vec![20_000; 250],
                operations,
                stolen_ticks: vec![0; 250],
                ..Readings::default()
            }),
            ..Accounts::default()
        }));
        run
    }

    #[test]
    fn a_second_without_a_grant_within_the_window_is_told() {
        assert_eq!(judge(&CHECK, &[paused(49)]), None);
        let found = judge(&CHECK, &[paused(50), paused(75)]).unwrap();
        assert_eq!(found.is, Status::Suspect);
        let text = "nothing was granted from 2.00 to 3.50 of 5.00 s while workers waited; in the \
                    rest 1,000 locks/s";
        assert_eq!(found.text, text);
        let passes: [fn(&mut Run); 4] = [
            |run| run.cpu.runqueue_wait_s = Some(0.8),
            |run| run.around.deaths = vec!["worker 3: killed by SIGKILL".to_owned()],
            // The hypervisor.
            |point| readings(point).stolen_ticks[130] = 2,
            // Nobody looked.
            |point| readings(point).length_us[100..150].fill(600_000),
        ];
        for pass in passes {
            let mut point = paused(50);
            pass(&mut point);
            assert_eq!(judge(&CHECK, &[point]), None);
        }
        let mut stopped = paused(50);
        stopped.cpu.runqueue_wait_s = Some(0.8);
        stopped.around.causes = Some(Box::new(Causes {
            found: vec!["the server was stopped".to_owned()],
            ..Causes::default()
        }));
        assert!(judge(&CHECK, &[stopped]).is_some());
        let mut experiment = experiment();
        experiment.plan.idle = Some(Busy::Sleep(Nanos::from_millis(110)));
        assert_eq!(judge_in(&CHECK, &experiment, &[paused(50)]), None);
    }

    /// Answers that were dropped for a moment, a wake-up that was lost: VALID once, where it
    /// was less than a second, or others of 200 workers had waited for a CPU at other times.
    #[test]
    fn a_fifth_of_a_second_is_told_where_a_cpu_was_idle() {
        let idle = |empty: usize, change: fn(&mut Run)| {
            let mut run = paused(empty);
            readings(&mut run).idle_us = vec![10_000; 250];
            run.cpu.runqueue_wait_s = Some(40.0);
            change(&mut run);
            judge(&CHECK, &[run])
        };
        assert_eq!(idle(9, |_| ()), None);
        let found = idle(10, |_| ()).unwrap();
        assert_eq!((found.is, found.limit), (Status::Suspect, Some(0.2)));
        let text = "nothing was granted from 2.00 to 2.20 of 5.00 s while workers waited; in the \
                    rest 1,000 locks/s";
        assert_eq!(found.text, text);
        let passes: [fn(&mut Run); 5] = [
            // Whoever had the lock may have waited for a CPU.
            |run| readings(run).idle_us[105] = 9_000,
            // The keeper was not on time, or the hypervisor took a tick.
            |run| readings(run).length_us[105] = 61_000,
            |run| readings(run).stolen_ticks[105] = 1,
            // 40 grants a second, of which 100 take 2.5 s.
            |run| run.operations = 190,
            |run| run.around.deaths = vec!["worker 3: killed by SIGKILL".to_owned()],
        ];
        for pass in passes {
            assert_eq!(idle(10, pass), None);
        }
    }

    fn readings(run: &mut Run) -> &mut Readings {
        let accounts = run.around.accounts.as_mut().unwrap();
        accounts.readings.as_mut().unwrap()
    }

    #[test]
    fn what_has_another_cause_is_no_standstill() {
        let passes: [fn(&mut Run); 4] = [
            |run| run.window.window_s = 0.5, // 0.45 s
            |run| run.around.deaths = vec!["worker 3: killed by SIGKILL".to_owned()],
            |run| run.cpu.runqueue_wait_s = Some(2.3),
            |run| {
                run.acquire_ns = Some(Waits {
                    granted: distribution(10, 1_600_000_000),
                    ..Waits::default()
                });
            },
        ];
        for pass in passes {
            let mut point = stopped(9);
            pass(&mut point);
            assert_eq!(judge(&CHECK, &[point]), None);
        }
        let mut experiment = experiment();
        let is = |experiment: &_| judge_in(&CHECK, experiment, &[stopped(9)]).is_some();
        assert!(is(&experiment));
        experiment.plan.idle = Some(Busy::Sleep(Nanos::from_millis(460)));
        assert!(!is(&experiment));
    }

    /// One worker of ten goes on alone: 100 us of each 1 ms the lock is free.
    fn alone(change: fn(&mut Run)) -> Run {
        let mut run = point();
        run.acquire_ns = Some(Waits {
            censored: 9,
            ..Waits::default()
        });
        run.series = slices(&[500; 10]);
        run.times.hold_ns = Some(distribution(5_000, 900_000));
        run.per_worker.as_mut().unwrap().longest_wait_ns = Some(4_900_000_000);
        change(&mut run);
        run
    }

    #[test]
    fn who_waits_for_a_free_lock_in_vain_is_counted() {
        let on = |change: fn(&mut Plan), run: Run| {
            // A wake-up on another CPU takes 30 us.
            let mut experiment = experiment();
            experiment.calibration.latencies = Some(jostle_model::record::Latencies {
                wake_other_cpu_ns: Some(30_000.0),
                ..Default::default()
            });
            change(&mut experiment.plan);
            judge_in(&CHECK, &experiment, &[run])
        };
        let found = on(|_| (), alone(|_| ())).unwrap();
        assert_eq!(found.is, Status::Suspect);
        let text = "9 of 10 workers waited to the end, one for 4.90 of 5.00 s, while the lock went \
                    to others and stood free for 100 us";
        assert!(found.text.contains(text), "{}", found.text);
        let passes: [fn(&mut Run); 5] = [
            |run| run.acquire_ns = None,
            |run| run.server = Some(jostle_model::record::Server::default()),
            |run| run.times.hold_ns = Some(distribution(5_000, 920_000)),
            |run| run.series = slices(&[30; 10]), // 27 turns
            |point| point.per_worker.as_mut().unwrap().longest_wait_ns = Some(2_400_000_000),
        ];
        for pass in passes {
            assert_eq!(on(|_| (), alone(pass)), None);
        }
        let keys = |plan: &mut Plan| plan.keys = Some(List(vec![2]));
        assert_eq!(on(keys, alone(|_| ())), None);
        // One attempt in a hundred is stamped, and none of those that were pending.
        let sampled = on(
            |_| (),
            alone(|run| {
                run.acquire_ns = Some(Waits::default());
                run.per_worker.as_mut().unwrap().pending = Some(9);
            }),
        );
        assert_eq!(sampled.map(|found| found.text), Some(found.text));
    }
}
