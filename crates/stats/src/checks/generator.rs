//! Were the workers themselves the limit?

use super::{Check, Evidence, percent};
use crate::intervals::median;
use jostle_model::plan::{Carrier, Workload};
use jostle_model::record::{Claim, Is, Reason};

const BUSY: f64 = 0.9;

/// The check.
pub static CHECK: Check = Check {
    name: "generator",
    asks: "Was the busiest thread that asked a server at its own limit?",
    threshold: "(CPU time + time runnable but not running) / wall time of the busiest generator \
                thread, or of the busiest worker that has its own, median over the runs, at 0.9 \
                and above: SUSPECT, and the rate is a lower bound; judged for closed loops over \
                a network, and of generators with a CPU quota also by the share of it that they \
                used",
    source: "a worker that never waits for the server cannot ask for more (utilisation law: \
             Denning & Buzen, Computing Surveys 10, 1978)",
    judge,
};

/// Where the lock is a call of the worker's own, its CPU time is the lock's.
fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    if evidence.experiment.plan.workload == Workload::Rate {
        // Those who are due at a time are judged by how late they are.
        return None;
    }
    // A generator of `spread` is judged whatever it asks.
    let of_services = evidence
        .runs
        .iter()
        .filter(|run| run.server.is_some() || run.spread.is_some());
    let busiest: Vec<f64> = of_services
        .filter_map(|run| {
            let shares = run.generators.iter().map(|generator| generator.busy_share);
            shares.reduce(f64::max)
        })
        .collect();
    let busy = median(&busiest).filter(|busy| *busy >= BUSY)?;
    let (who, remedy) = match evidence.experiment.plan.carrier {
        _ if evidence.runs.iter().any(|run| run.spread.is_some()) => {
            ("generator", "more of them (--generators)")
        }
        Some(Carrier::Tasks) => ("generator thread", "more of them (--generator-threads)"),
        _ => ("worker", "more workers (-w)"),
    };
    let text = format!(
        "the busiest {who} was busy for {} of its time: the server does at least this much; \
         {remedy}, or give them more CPUs",
        percent(busy.min(1.0))
    );
    Some(CHECK.reason(Is::Suspect, &[Claim::Absolute, Claim::Ratio], text))
}

#[cfg(test)]
mod tests {
    use super::{CHECK, Carrier};
    use crate::checks::{Evidence, verdict};
    use crate::fixtures::{experiment, judge, point};
    use jostle_model::record::{Generator, Is, LimitedBy, Point, Server};

    fn run(busy_share: f64) -> Point {
        let mut point = point();
        point.server = Some(Server::default());
        point.generators = vec![Generator {
            busy_share,
            runqueue_share: 0.1,
            ..Generator::default()
        }];
        point
    }

    #[test]
    fn nine_tenths_of_its_time_are_the_limit_and_the_median_run_decides() {
        let found = |shares: &[f64]| {
            let runs: Vec<Point> = shares.iter().map(|share| run(*share)).collect();
            judge(&CHECK, &runs).map_or(Is::Valid, |reason| reason.is)
        };
        assert_eq!(found(&[0.899]), Is::Valid);
        assert_eq!(found(&[0.9]), Is::Suspect);
        assert_eq!(found(&[0.5, 0.95, 0.95]), Is::Suspect);
        assert_eq!(found(&[0.5, 0.6, 1.2]), Is::Valid);
    }

    #[test]
    fn the_text_says_at_least() {
        let text = judge(&CHECK, &[run(0.956)]).unwrap().text;
        assert!(text.contains("95.6 % of its time"), "{text}");
        assert!(text.contains("at least this much"), "{text}");
    }

    #[test]
    fn the_remedy_is_that_of_the_carrier() {
        let mut experiment = experiment();
        experiment.plan.carrier = Some(Carrier::Tasks);
        let run = run(0.95);
        let verdict = verdict(&Evidence {
            experiment: &experiment,
            runs: &[&run],
        });
        assert!(verdict.reasons[0].text.contains("--generator-threads"));
    }

    #[test]
    fn a_lock_that_is_a_call_of_the_worker_s_own_may_keep_it_busy() {
        let mut local = run(1.0);
        local.server = None;
        assert_eq!(judge(&CHECK, &[local]), None);
        let mut unknown = run(1.0);
        unknown.generators.clear();
        assert_eq!(judge(&CHECK, &[unknown]), None);
    }

    #[test]
    fn the_verdict_names_who_was_the_limit() {
        let experiment = experiment();
        let limit = |share| {
            verdict(&Evidence {
                experiment: &experiment,
                runs: &[&run(share)],
            })
            .limited_by
        };
        assert_eq!(limit(0.95), Some(LimitedBy::Generator));
        assert_eq!(limit(0.5), None);
    }
}
