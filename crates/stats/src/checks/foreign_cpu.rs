//! Did other programs use the machine?

use super::{Check, Evidence, Limits, percent};
use jostle_model::record::{Point, Reason};

const LIMITS: Limits = Limits {
    suspect: 0.03,
    invalid: 0.10,
};

/// Standard deviations of the tick's sampling that an excess must exceed.
///
/// Where idle time is sampled, a tick counts as a whole where the CPU happens to be
/// busy when it strikes. N busy ticks are thus a count with a standard deviation of
/// at most sqrt(N), while the workers' CPU time is exact.
const DEVIATIONS: f64 = 3.0;

/// Ticks by which their sum differs from the time that passed only where idle time
/// is taken by the clock: each of eight sums of times is cut off to a tick.
const ROUNDED: f64 = 8.0;

/// What an excess must exceed then.
const EXACT: f64 = 4.0;

/// Of our own CPU time: what interrupts of idle CPUs, and entering and leaving idle,
/// take of the machine while no task is charged with it. Of 189 streams over the
/// loopback that were left alone 95 % had at most 16 %, with the soft interrupts that
/// strike tasks in the tasks' time; a larger share would hide a program that takes what
/// one worker leaves of its CPU.
const UNCHARGED: f64 = 0.16;

/// Ticks of the machine under which nothing is said: of 100, [`EXACT`] are more
/// than the finest threshold.
const LEAST_TICKS: f64 = 100.0;

/// The check.
pub static CHECK: Check = Check {
    name: "foreign_cpu",
    asks: "How much of the machine did other programs use?",
    threshold: "(busy - workers - what they started - server - jostle itself - soft interrupts) / all ticks of the machine above 3 %: \
                SUSPECT, above 10 %: INVALID; judged from 100 ticks on, pooled over the runs, \
                and only above three standard deviations of the tick's sampling, or 4 ticks where \
                the kernel takes idle time by the clock; busy is the time between the readings \
                that was neither idle nor stolen; where soft interrupts count as the task's that \
                they strike, 16 % of our own time is taken off for them",
    source: "proc_stat(5); a throughput that is bound by CPU loses about the share that others \
             take, and the checks of steal begin near there too",
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let runs = || evidence.runs.iter().copied();
    let judged = || runs().filter(|run| run.cpu_s.is_some());
    let total: f64 = judged().map(ticks).sum();
    if total < LEAST_TICKS {
        return None;
    }
    let busy: f64 = judged().map(busy_ticks).sum();
    let in_tasks = evidence.experiment.environment.softirq_in_tasks == Some(true);
    let foreign: f64 = judged().map(|run| foreign_ticks(run, in_tasks)).sum();
    let by_the_clock = evidence.experiment.environment.idle_by_clock == Some(true);
    let is_exact = |run| by_the_clock || ticks_do_not_add_up(run);
    let least = match judged().all(|run| run.machine.between_s.is_some() && is_exact(run)) {
        true => EXACT,
        false => DEVIATIONS * busy.sqrt(),
    };
    if foreign <= least {
        return None;
    }
    let share = foreign / total;
    let text = format!(
        "other programs used {} of the machine; stop them, or run it again without them",
        percent(share)
    );
    CHECK.disturbance(share, LIMITS, text)
}

/// Of all CPUs between the readings.
fn ticks(run: &Point) -> f64 {
    let machine = &run.machine;
    let elapsed = |s: f64| s * (machine.cores * machine.ticks_per_s) as f64;
    machine.between_s.map_or(machine.ticks as f64, elapsed)
}

/// Neither idle nor stolen. The kernel takes idle time by the clock wherever an idle
/// CPU has no tick (NO_HZ), but busy time by the ticks: who wakes in step with them
/// seems to take all of it, or none.
fn busy_ticks(run: &Point) -> f64 {
    let machine = &run.machine;
    let idle = machine.ticks as f64 - machine.busy_ticks as f64 - machine.stolen_ticks as f64;
    (ticks(run) - idle - machine.stolen_ticks as f64).max(0.0)
}

/// To the time that passed: where idle time is sampled, they do.
fn ticks_do_not_add_up(run: &Point) -> bool {
    (ticks(run) - run.machine.ticks as f64).abs() > ROUNDED
}

/// What neither we nor soft interrupts used; those may be part of our own time.
fn foreign_ticks(run: &Point, in_tasks: bool) -> f64 {
    let machine = &run.machine;
    let server_s = run.server.and_then(|server| server.cpu_s).unwrap_or(0.0);
    let children_s = [run.children_user_s, run.children_system_s];
    let children_s: f64 = children_s.into_iter().flatten().sum();
    let ours_s = run.cpu_s.unwrap_or(0.0) + children_s + machine.harness_cpu_s + server_s;
    let ours = ours_s * machine.ticks_per_s as f64;
    // They are sampled: who wakes in step with the tick seems to spend all of its
    // time in them. What we send and receive takes no more than we do.
    let most = if in_tasks { UNCHARGED * ours } else { ours };
    let softirq = match (in_tasks, machine.between_s) {
        (true, Some(_)) => most,
        (_, Some(_)) => most.min(machine.softirq_ticks as f64),
        (_, None) => machine.softirq_ticks as f64,
    };
    busy_ticks(run) - ours - softirq
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::checks::Evidence;
    use crate::fixtures::{after, experiment, judge, point};
    use jostle_model::record::{Is, Point};

    /// A run of 50 s: 10,000 ticks of two CPUs.
    fn long(point: &mut Point, ours_s: f64, busy: u64) {
        point.window_s = 50.0;
        point.cpu_s = Some(ours_s - 1.0);
        point.machine.harness_cpu_s = 1.0;
        point.machine.softirq_ticks = 100;
        point.machine.ticks = 10_000;
        point.machine.busy_ticks = busy;
    }

    #[test]
    fn three_and_ten_percent_are_the_limits() {
        // 10 s of our own (1000 ticks) and 100 ticks of soft interrupts.
        let table = [
            (1100, Is::Valid),
            (1400, Is::Valid), // 3.0 %
            (1401, Is::Suspect),
            (2100, Is::Suspect), // 10.0 %
            (2101, Is::Invalid),
        ];
        for (busy, is) in table {
            let found = after(&CHECK, |point| long(point, 10.0, busy));
            assert_eq!(found, is, "{busy} busy ticks");
        }
    }

    #[test]
    fn what_the_sampling_of_ticks_explains_accuses_nobody() {
        // 5 s: 1000 ticks. 40 in excess are 4 %, but 3 sqrt(445) is 63.
        let with = |ours_s: f64, busy| {
            after(&CHECK, |point| {
                point.cpu_s = Some(ours_s);
                point.machine.harness_cpu_s = 0.0;
                point.machine.softirq_ticks = 5;
                point.machine.busy_ticks = busy;
            })
        };
        assert_eq!(with(4.0, 445), Is::Valid);
        assert_eq!(with(4.0, 480), Is::Suspect); // 75 > 65.7
        // Of few busy ticks the same excess is significant.
        assert_eq!(with(0.1, 55), Is::Suspect); // 40 > 22
    }

    /// What `jostle rate lockd --rate 5000` read, and nobody else was there: its
    /// requests came every 200 us, and the tick struck while one was served.
    #[test]
    fn who_wakes_in_step_with_the_tick_accuses_nobody() {
        let with = |between_s| {
            after(&CHECK, |point| {
                point.window_s = 1.05;
                // The server's with it.
                point.cpu_s = Some(0.1);
                point.machine.harness_cpu_s = 0.003;
                point.machine.ticks = 305;
                point.machine.busy_ticks = 108;
                point.machine.stolen_ticks = 0;
                point.machine.softirq_ticks = 0;
                point.machine.between_s = between_s;
            })
        };
        assert_eq!(with(None), Is::Invalid);
        // 197 of 210 ticks were idle by the clock.
        assert_eq!(with(Some(1.05)), Is::Valid);
    }

    #[test]
    fn a_program_that_the_ticks_miss_is_missing_from_the_idle_time() {
        let with = |idle: u64| {
            after(&CHECK, |point| {
                point.window_s = 1.05;
                point.cpu_s = Some(0.05);
                point.machine.harness_cpu_s = 0.0;
                point.machine.ticks = 1 + idle;
                point.machine.busy_ticks = 1;
                point.machine.stolen_ticks = 0;
                // In step as well; at most our own time is taken for theirs.
                point.machine.softirq_ticks = 98;
                point.machine.between_s = Some(1.05);
            })
        };
        assert_eq!(with(200), Is::Valid);
        assert_eq!(with(140), Is::Invalid);
    }

    /// `jostle stream lockd -w 1 --as processes` beside a program of niceness 10 on
    /// its worker's CPU, and left alone.
    #[test]
    fn soft_interrupts_within_our_own_time_excuse_nobody() {
        let with = |in_tasks, idle: u64, busy, softirq, ours_s, between_s| {
            let mut experiment = experiment();
            experiment.environment.softirq_in_tasks = in_tasks;
            let mut run = point();
            run.cpu_s = Some(ours_s);
            run.machine.harness_cpu_s = 0.0;
            run.machine.ticks = idle + busy;
            run.machine.busy_ticks = busy;
            run.machine.stolen_ticks = 0;
            run.machine.softirq_ticks = softirq;
            run.machine.between_s = Some(between_s);
            let evidence = Evidence {
                experiment: &experiment,
                runs: &[&run],
            };
            (CHECK.judge)(&evidence).map_or(Is::Valid, |reason| reason.is)
        };
        assert_eq!(with(Some(true), 83, 256, 79, 1.986, 1.783), Is::Invalid);
        assert_eq!(with(Some(true), 151, 136, 69, 1.494, 1.601), Is::Valid);
        // Of niceness 13: it has little of the CPU, and costs the stream a seventh.
        assert_eq!(with(Some(true), 31, 114, 39, 1.004, 0.776), Is::Suspect);
        assert_eq!(with(Some(true), 49, 69, 36, 0.767, 0.667), Is::Valid);
        // Where the kernel takes them by the clock they are nobody's.
        assert_eq!(with(Some(false), 83, 256, 79, 1.986, 1.783), Is::Valid);
        assert_eq!(with(None, 83, 256, 79, 1.986, 1.783), Is::Valid);
    }

    /// The same stream beside a program of niceness 6: by chance the ticks added up.
    #[test]
    fn a_kernel_that_takes_idle_time_by_the_clock_does_so_in_each_run() {
        let with = |idle_by_clock| {
            let mut experiment = experiment();
            experiment.environment.softirq_in_tasks = Some(true);
            experiment.environment.idle_by_clock = idle_by_clock;
            let mut run = point();
            run.cpu_s = Some(0.973);
            run.machine.harness_cpu_s = 0.0;
            run.machine.ticks = 169;
            run.machine.busy_ticks = 125;
            run.machine.stolen_ticks = 0;
            run.machine.between_s = Some(0.8785);
            let evidence = Evidence {
                experiment: &experiment,
                runs: &[&run],
            };
            (CHECK.judge)(&evidence).map(|reason| reason.is)
        };
        assert_eq!(with(Some(true)), Some(Is::Invalid));
        assert_eq!(with(None), None);
        assert_eq!(with(Some(false)), None);
    }

    #[test]
    fn runs_too_short_for_the_tick_are_judged_together() {
        let mut short = point();
        short.window_s = 0.3;
        short.cpu_s = Some(0.0);
        short.machine.ticks = 60;
        short.machine.busy_ticks = 40;
        short.machine.harness_cpu_s = 0.0;
        assert_eq!(judge(&CHECK, std::slice::from_ref(&short)), None);
        assert_eq!(
            judge(&CHECK, &[short.clone(), short]).unwrap().is,
            Is::Invalid
        );
    }

    #[test]
    fn what_workers_have_started_is_not_foreign() {
        let with = |children_s: Option<f64>| {
            after(&CHECK, |point| {
                long(point, 10.0, 3100);
                (point.children_user_s, point.children_system_s) = (children_s, children_s);
            })
        };
        assert_eq!(with(None), Is::Invalid);
        assert_eq!(with(Some(10.0)), Is::Valid);
    }

    #[test]
    fn without_the_workers_cpu_time_nothing_is_said() {
        let found = after(&CHECK, |point| {
            point.cpu_s = None;
            point.machine.busy_ticks = 1000;
        });
        assert_eq!(found, Is::Valid);
    }
}
