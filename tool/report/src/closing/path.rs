//! The closing sentence about a service beside a server that only answers.

use super::{Values, View, each};
use crate::format::counted;
use jostle_model::record::LimitedBy;
use jostle_stats::numbers::workers;
use jostle_stats::summary::PointSummary;

/// How much of what a server that only answers does, each target does.
pub(super) fn limit(view: &View<'_, '_>) -> Vec<Values> {
    each(&view.points, clause)
}

/// About the point with the most workers that has its answering target beside it.
fn clause(points: &[&PointSummary<'_>]) -> Option<String> {
    let beside = points.iter().filter(|point| point.of_echo.is_some());
    let point =
        beside.max_by_key(|point| (point.at.workers, point.at.operations, point.at.keys))?;
    let ratio = point.of_echo?;
    let workers = workers(point.at.workers.unwrap_or(1));
    let reached = format!("{:.0} % of a server that only answers", 100.0 * ratio.ratio);
    let untested = match ratio.interval {
        true => String::new(),
        false => format!(
            " ({}, not tested)",
            counted(ratio.blocks as u64, "usable run")
        ),
    };
    Some(match point.verdict.limited_by? {
        LimitedBy::Path => format!(
            "path-bound with {workers}: {reached}{untested}, so that connection and client are \
             what was measured"
        ),
        LimitedBy::Target => {
            format!("{reached} with {workers}{untested}: the rest is what it does itself")
        }
        LimitedBy::Generator => {
            format!("{reached} with {workers}{untested}, at least: the generator was at its limit")
        }
        LimitedBy::Machine | LimitedBy::Undecided => format!(
            "{reached} with {workers} ({:.2} to {:.2}): whether the path bounds it is undecided",
            ratio.low, ratio.high
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::plan::{Plan, Workload};
    use jostle_model::record::{At, Experiment, Run, Server, TargetFacts, ThreadLoad};
    use jostle_stats::fixtures;
    use jostle_stats::summary::summarize;

    const ECHO: &str = "echo";

    fn experiment() -> Experiment {
        let mut experiment = fixtures::experiment();
        experiment.plan = Plan {
            targets: vec!["lockd".to_owned(), ECHO.to_owned()],
            ..Plan::of(Workload::Stream)
        };
        experiment
    }

    /// Blocks of a service that reaches these shares of the answering server.
    fn runs(shares: &[f64]) -> Vec<Run> {
        let run = |target: &str, block: usize, rate: f64| Run {
            target: target.to_owned(),
            workload: "stream".to_owned(),
            at: At {
                workers: Some(50),
                operations: Some(1_000),
                ..At::default()
            },
            run: block as u32 + 1,
            block: block as u32 + 1,
            throughput_per_s: rate,
            server: Some(Server::default()),
            ..fixtures::point()
        };
        let each = shares.iter().enumerate().flat_map(|(block, share)| {
            // The machine drifts by more than they differ.
            let path = 70_000.0 * (1.0 + 0.2 * block as f64);
            [run(ECHO, block, path), run("lockd", block, path * share)]
        });
        each.collect()
    }

    fn said(runs: &[Run]) -> (Option<LimitedBy>, Option<String>) {
        let experiment = experiment();
        let summaries = summarize(&experiment, runs);
        let of_lockd: Vec<_> = summaries.iter().filter(|p| p.target == "lockd").collect();
        (of_lockd[0].verdict.limited_by, clause(&of_lockd))
    }

    #[test]
    fn nine_tenths_of_a_server_that_only_answers_are_the_path() {
        let table: [(&[f64], LimitedBy, &str); 6] = [
            (
                &[0.97, 0.96, 0.98, 0.97, 0.95, 0.97],
                LimitedBy::Path,
                "path-bound with 50 workers: 97 % of a server that only answers, so",
            ),
            (&[0.9; 6], LimitedBy::Path, "path-bound"),
            (
                &[0.89; 6],
                LimitedBy::Target,
                "89 % of a server that only answers with 50 workers: the rest",
            ),
            (
                &[0.55; 6],
                LimitedBy::Target,
                "the rest is what it does itself",
            ),
            (
                &[0.8, 1.0, 0.85, 0.95, 0.88, 0.92],
                LimitedBy::Undecided,
                "whether the path bounds it is undecided",
            ),
            (
                &[0.97, 0.96],
                LimitedBy::Path,
                "(2 usable runs, not tested)",
            ),
        ];
        for (shares, limit, text) in table {
            let (limited_by, clause) = said(&runs(shares));
            assert_eq!(limited_by, Some(limit), "{shares:?}");
            let clause = clause.unwrap();
            assert!(clause.contains(text), "{clause}");
        }
    }

    #[test]
    fn a_generator_at_its_limit_is_the_limit() {
        let mut runs = runs(&[0.97; 6]);
        for run in &mut runs {
            run.thread_loads = vec![ThreadLoad {
                busy_share: 0.97,
                runqueue_share: 0.0,
                ..ThreadLoad::default()
            }];
        }
        let (limit, clause) = said(&runs);
        assert_eq!(limit, Some(LimitedBy::Generator));
        assert!(clause.unwrap().contains("at least"));
    }

    #[test]
    fn nothing_is_said_without_the_same_point_of_the_answering_server() {
        let mut none = runs(&[0.97; 6]);
        none.retain(|run| run.target != ECHO);
        assert_eq!(said(&none), (None, None));
        let changes: [fn(&mut Run); 3] = [
            |run| run.at.workers = Some(2),
            // The answering target on TCP does not bound a service on a Unix socket.
            |run| run.target = "echo+unix".to_owned(),
            // It did not exclude, so that its workers did not wait as for a lock.
            |run| run.exclusion.as_mut().unwrap().violations = 1,
        ];
        for change in changes {
            let mut runs = runs(&[0.97; 6]);
            let echo = runs.iter_mut().filter(|run| run.target == ECHO);
            echo.for_each(change);
            assert_eq!(said(&runs), (None, None));
        }
        // The file states that nothing answers on its path.
        let mut stated = experiment();
        let facts = TargetFacts {
            descriptor_each: true,
            ..TargetFacts::default()
        };
        stated.target_facts = [("lockd".to_owned(), facts)].into();
        let runs_beside = runs(&[0.97; 6]);
        let summaries = summarize(&stated, &runs_beside);
        assert!(summaries.iter().all(|point| point.of_echo.is_none()));
    }
}
