//! The order of service: a queue, a lottery, two to one, and a starved worker.

use crate::calibrate::bench::{Bench, Stop};
use crate::calibrate::trial::{Agreement, Trial, cannot_tell, differs, noted, percent, runs_of};
use jostle_model::record::Run;
use jostle_stats::fairness::{DispersionTest, dispersion_test};

/// Grants of one worker that the log has and the window does not.
const AT_THE_EDGES: u64 = 3;

/// A right verdict on a lottery is missed once in so many trials.
const P: f64 = 0.001;

/// Points, of the share of the favoured half.
const WITHIN: f64 = 0.02;

/// A judge of a run: the grants of each worker, and how they compare with a lottery's.
type Judge = fn(&Run, &[u64], &DispersionTest) -> Trial;

pub(super) fn trial(
    bench: &mut Bench,
    policy: &str,
    workers: u64,
    judge: Judge,
) -> Result<Trial, Stop> {
    let target = format!("unfair:{policy}");
    // 0.1 s before the window, in which each worker has come to the lock.
    let set = bench.measure(&format!(
        "contend {target} -w {workers} -b 200us -i 10us -t 0.5 --warmup 0.1 --runs 1"
    ))?;
    match runs_of(&set, &target).first() {
        Some(run) => Ok(judged(judge, run)),
        None => Err(Stop::CannotTell("nothing was measured".to_owned())),
    }
}

fn judged(judge: Judge, run: &Run) -> Trial {
    match shares(run) {
        Some((counts, test)) => judge(run, counts, &test),
        None => Trial {
            truth: log(run),
            said: differs("the grants of each worker are missing"),
            ..Trial::default()
        },
    }
}

/// Grants of each worker, and how they compare with a lottery's.
fn shares(run: &Run) -> Option<(&[u64], DispersionTest)> {
    let counts = &run.workers.as_ref()?.operations;
    let dispersion = run.per_worker.as_ref()?.dispersion;
    Some((
        counts,
        dispersion_test(&[(counts.len() as u64, dispersion)])?,
    ))
}

fn log(run: &Run) -> String {
    format!(
        "{} to {} each",
        noted(run, "granted_min"),
        noted(run, "granted_max")
    )
}

fn figures(counts: &[u64], test: &DispersionTest) -> String {
    let (min, max) = (counts.iter().min().copied(), counts.iter().max().copied());
    format!(
        "{} to {} each, D = {:.2}",
        min.unwrap_or(0),
        max.unwrap_or(0),
        test.dispersion
    )
}

pub(super) fn queue(run: &Run, counts: &[u64], test: &DispersionTest) -> Trial {
    let spread = counts.iter().max().zip(counts.iter().min());
    let spread = spread.map_or(0, |(max, min)| max - min);
    let truth = noted(run, "granted_max") - noted(run, "granted_min");
    let said = if truth > AT_THE_EDGES as f64 {
        cannot_tell("workers came to the lock too late for a queue to serve them evenly")
    } else if test.lower_p >= P || spread > truth as u64 + AT_THE_EDGES {
        differs("a queue was not seen to be one")
    } else {
        Agreement::Agrees
    };
    Trial {
        truth: log(run),
        found: figures(counts, test),
        control: "a lottery has D = 1".to_owned(),
        said,
    }
}

pub(super) fn lottery(run: &Run, counts: &[u64], test: &DispersionTest) -> Trial {
    let said = match (test.lower_p < P, test.upper_p < P) {
        (false, false) => Agreement::Agrees,
        (true, _) => differs("a lottery was taken for a queue"),
        (_, true) => differs("a lottery was taken for favouritism"),
    };
    Trial {
        truth: log(run),
        found: figures(counts, test),
        control: "a queue has D = 0".to_owned(),
        said,
    }
}

pub(super) fn two_to_one(run: &Run, counts: &[u64], test: &DispersionTest) -> Trial {
    let all: u64 = counts.iter().sum();
    let even: u64 = counts.iter().step_by(2).sum();
    let share = even as f64 / all.max(1) as f64;
    let truth = noted(run, "even_share");
    let said = if truth < 0.6 {
        cannot_tell("too few waited for the favour to tell")
    } else if (share - truth).abs() > WITHIN {
        differs(format!(
            "off by {:.1} points, more than 2",
            100.0 * (share - truth)
        ))
    } else if test.upper_p >= P {
        differs("favouritism was not seen to be more than chance")
    } else {
        Agreement::Agrees
    };
    Trial {
        truth: format!("even workers got {}", percent(truth)),
        found: format!("{}, D = {:.1}", percent(share), test.dispersion),
        control: "a lottery has D = 1".to_owned(),
        said,
    }
}

pub(super) fn starved(run: &Run, counts: &[u64], test: &DispersionTest) -> Trial {
    let (first, others) = (counts[0], counts.iter().skip(1).min().copied().unwrap_or(0));
    let truth = noted(run, "granted_worker_0");
    let shares = run.per_worker.unwrap_or_default();
    let censored = run.acquire_ns.as_ref().map_or(0, |waits| waits.censored);
    let window_ns = run.window.window_s * 1e9;
    let longest = shares.longest_wait_ns.unwrap_or(0) as f64;
    let named = shares.none == 1 && shares.longest_wait_worker == Some(0) && longest >= window_ns;
    let said = if first as f64 > truth {
        differs("worker 0 got more by the tool's count than by the lock's")
    } else if first > 0 || others == 0 {
        cannot_tell("the scheduler kept the others from waiting, so that worker 0 was served")
    } else if !named {
        differs("the starved worker was not named")
    } else if censored == 0 {
        differs("its attempt was not counted as one that did not end")
    } else {
        Agreement::Agrees
    };
    Trial {
        truth: format!("worker 0: {truth}, the most: {}", noted(run, "granted_max")),
        found: format!(
            "worker {} waits {:.2} s, {} got none, {censored} censored",
            shares
                .longest_wait_worker
                .map_or("?".to_owned(), |worker| worker.to_string()),
            longest / 1e9,
            shares.none,
        ),
        control: format!("others {others} and more, D = {:.0}", test.dispersion),
        said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::trial::planted::noting;
    use jostle_model::record::{Waits, Window, Workers};

    fn run(counts: &[u64], truth: &[(&str, f64)]) -> Run {
        Run {
            window: Window {
                window_s: 0.7,
                ..Window::default()
            },
            per_worker: jostle_stats::fairness::per_worker(counts),
            workers: Some(Workers {
                operations: counts.to_vec(),
                ..Workers::default()
            }),
            around: noting(truth),
            ..Run::default()
        }
    }

    fn even(counts: u64) -> Vec<u64> {
        (0..50).map(|n| counts + n % 2).collect()
    }

    /// As if drawn: mean 40, variance about 40.
    fn drawn() -> Vec<u64> {
        (0..50).map(|n| [30, 34, 38, 42, 46, 50][n % 6]).collect()
    }

    fn favoured() -> Vec<u64> {
        (0..50).map(|n| if n % 2 == 0 { 80 } else { 40 }).collect()
    }

    const QUEUED: [(&str, f64); 2] = [("granted_min", 40.0), ("granted_max", 42.0)];

    #[test]
    fn each_policy_is_told_from_the_others() {
        let differs = |trial: Trial| trial.said.is_wrong();
        assert_eq!(
            judged(queue, &run(&even(40), &QUEUED)).said,
            Agreement::Agrees
        );
        assert!(differs(judged(queue, &run(&drawn(), &QUEUED))));
        assert_eq!(judged(lottery, &run(&drawn(), &[])).said, Agreement::Agrees);
        assert!(differs(judged(lottery, &run(&even(40), &[]))));
        assert!(differs(judged(lottery, &run(&favoured(), &[]))));
        let two_thirds = [("even_share", 0.667)];
        assert_eq!(
            judged(two_to_one, &run(&favoured(), &two_thirds)).said,
            Agreement::Agrees
        );
        assert!(differs(judged(two_to_one, &run(&even(40), &two_thirds))));
        assert!(differs(judged(
            two_to_one,
            &run(&favoured(), &[("even_share", 0.7)])
        )));
        assert!(
            differs(judged(queue, &Run::default())) && differs(judged(lottery, &Run::default()))
        );
    }

    fn starving(first: u64, change: impl FnOnce(&mut Run)) -> Agreement {
        let mut counts = vec![50; 10];
        counts[0] = first;
        let mut run = run(&counts, &[("granted_worker_0", 1.0), ("granted_max", 52.0)]);
        if let Some(shares) = &mut run.per_worker {
            (shares.longest_wait_ns, shares.longest_wait_worker) = (Some(800_000_000), Some(0));
        }
        run.acquire_ns = Some(Waits {
            censored: 3,
            ..Waits::default()
        });
        change(&mut run);
        judged(starved, &run).said
    }

    #[test]
    fn the_starved_worker_must_be_named_and_its_attempt_censored() {
        assert_eq!(starving(0, |_| {}), Agreement::Agrees);
        let differs = |said: Agreement| said.is_wrong();
        assert!(differs(starving(0, |run| {
            run.per_worker.as_mut().unwrap().longest_wait_worker = Some(3);
        })));
        assert!(differs(starving(0, |run| {
            run.acquire_ns.as_mut().unwrap().censored = 0;
        })));
        assert!(differs(starving(5, |_| {})), "more than the log has");
        assert!(starving(1, |_| {}).is_open());
    }
}
