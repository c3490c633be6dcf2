//! Did other programs use the machine?

use super::{Check, Evidence, Limits, percent};
use jostle_model::record::{Point, Reason};

const LIMITS: Limits = Limits {
    suspect: 0.03,
    invalid: 0.10,
};

/// Standard deviations of the tick's sampling that an excess must exceed.
///
/// Where the machine's busy time is sampled, a tick counts as a whole where the CPU
/// happens to be busy when it strikes. N busy ticks are thus a count with a
/// standard deviation of at most sqrt(N), while the workers' CPU time is exact.
const DEVIATIONS: f64 = 3.0;

/// Ticks of the machine under which nothing is said: fewer allow an excess of no
/// less than four tenths of them.
const LEAST_TICKS: f64 = 50.0;

/// The check.
pub static CHECK: Check = Check {
    name: "foreign_cpu",
    asks: "How much of the machine did other programs use?",
    threshold: "(busy - workers - what they started - server - jostle itself - soft interrupts) / all ticks of the machine above 3 %: \
                SUSPECT, above 10 %: INVALID; judged from 50 ticks on, pooled over the runs, \
                and only above three standard deviations of the tick's sampling; busy is the time \
                between the readings that was neither idle nor stolen",
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
    let foreign: f64 = judged().map(foreign_ticks).sum();
    if foreign <= DEVIATIONS * busy.sqrt() {
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

fn foreign_ticks(run: &Point) -> f64 {
    let machine = &run.machine;
    let server_s = run.server.and_then(|server| server.cpu_s).unwrap_or(0.0);
    let children_s = [run.children_user_s, run.children_system_s];
    let children_s: f64 = children_s.into_iter().flatten().sum();
    let ours_s = run.cpu_s.unwrap_or(0.0) + children_s + machine.harness_cpu_s + server_s;
    let ours = ours_s * machine.ticks_per_s as f64;
    // Sampled too, and part of our own time where the kernel does not take theirs
    // by the clock: what we send and receive takes no more than we do.
    busy_ticks(run) - ours - (machine.softirq_ticks as f64).min(ours)
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{after, judge, point};
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
                point.cpu_s = Some(0.05);
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

    #[test]
    fn runs_too_short_for_the_tick_are_judged_together() {
        let mut short = point();
        short.window_s = 0.2;
        short.cpu_s = Some(0.0);
        short.machine.ticks = 40;
        short.machine.busy_ticks = 30;
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
