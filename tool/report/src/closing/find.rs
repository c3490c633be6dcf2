//! The result of `rate --find`: a finding for the title, the sentence that says on what it rests,
//! the steps as a table, and the command that follows.

use super::{Values, View};
use crate::ResultSet;
use crate::command::command;
use crate::format::{grouped, percent, time};
use crate::grid::{Heading, Titled};
use crate::next::Step;
use crate::requests::short;
use jostle_model::objective::{Goal, Objective};
use jostle_model::plan::Plan;
use jostle_model::record::{Interval, Run};
use jostle_model::{List, Nanos, Remedy};
use jostle_stats::find::{self, Conclusion, Limit, Outcome, Searched};
use jostle_stats::summary::PointSummary;

/// The searches of an experiment, by its points.
fn searched<'a>(plan: &'a Plan, points: &[PointSummary<'a>]) -> Vec<Searched<'a>> {
    let runs: Vec<&Run> = points.iter().flat_map(|point| point.runs.clone()).collect();
    let mut all = find::searched(plan, &runs);
    all.retain(|one| !one.steps.is_empty());
    all
}

/// For each search its target and slots, and the limit that was found.
pub(crate) fn limits<'a>(
    plan: &'a Plan,
    points: &[PointSummary<'a>],
) -> Vec<(&'a str, u64, Option<f64>)> {
    let limit = |one: Searched<'a>| {
        let found = match one.found {
            Conclusion::Found { per_s, .. } => Some(per_s.estimate),
            _ => None,
        };
        (one.target, one.workers, found)
    };
    searched(plan, points).into_iter().map(limit).collect()
}

/// For each search what was found, and on what that rests.
pub(super) fn found(view: &View<'_, '_>) -> Vec<Values> {
    let plan = view.plan();
    let Some(objective) = &plan.find else {
        return Vec::new();
    };
    let each = searched(plan, view.all).into_iter().flat_map(|one| {
        let found = format!("{} {}", named(plan, &one), finding(objective, &one.found));
        [found, super::capital(&sentence(plan, &one))].map(|said| vec![("said", said)])
    });
    each.collect()
}

/// The target, with its slots where several numbers were tried.
fn named(plan: &Plan, one: &Searched<'_>) -> String {
    let several = plan.workers.as_ref().is_some_and(|list| list.0.len() > 1);
    match several {
        true => format!("{} -w {}", short(one.target), one.workers),
        false => short(one.target),
    }
}

fn finding(objective: &Objective, found: &Conclusion) -> String {
    match found {
        Conclusion::Found { per_s, .. } => {
            format!("meets {objective} up to {} requests/s", about(per_s))
        }
        Conclusion::Unconfirmed { .. } => {
            format!("has no load that surely meets {objective}")
        }
        Conclusion::Each(to) => format!(
            "meets {objective} at each load that was tried, up to {} requests/s",
            grouped(*to)
        ),
        Conclusion::None(from) => format!(
            "meets {objective} at no load that was tried, from {} requests/s on",
            grouped(*from)
        ),
        Conclusion::Limited { by, at, held } => {
            let whose = match by {
                Limit::Generator => "the generator was",
                Limit::Machine => "the machine was",
                Limit::Slots => "the slots (-w) were",
            };
            let held = held.map_or(String::new(), |held| {
                format!(
                    "; the target meets {objective} at least up to {}",
                    grouped(held)
                )
            });
            format!(
                "was not searched to its limit: {whose} at the limit at {} requests/s{held}",
                grouped(*at)
            )
        }
        Conclusion::Turns { missed, met } => format!(
            "has no single limit: {} requests/s miss {objective}, and {} meet it",
            grouped(*missed),
            grouped(*met)
        ),
        Conclusion::NotRecovered { after, base } => format!(
            "did not recover after {} requests/s: {} still missed {objective}",
            grouped(*after),
            grouped(*base)
        ),
        Conclusion::Unfinished { held, .. } => match held {
            Some(held) => format!(
                "meets {objective} at {} requests/s; the search ended before its limit was found",
                grouped(*held)
            ),
            None => format!("was not searched to the end for {objective}"),
        },
    }
}

/// `3,140 (3,060 to 3,200, 95 %)`.
fn about(per_s: &Interval) -> String {
    let Interval {
        estimate,
        low,
        high,
    } = per_s;
    let [estimate, low, high] = [estimate, low, high].map(|rate| grouped(rate.round() as u64));
    format!("{estimate} ({low} to {high}, 95 %)")
}

/// On what the finding of a search rests.
fn sentence(plan: &Plan, one: &Searched<'_>) -> String {
    let steps = format!("{} steps", one.steps.len());
    match &one.found {
        Conclusion::Found {
            confirmed, met, of, ..
        } => format!(
            "{met} of {of} steps met it at {}/s, the load that can be relied on; {steps}",
            grouped(*confirmed)
        ),
        Conclusion::Unconfirmed { per_s, missed } => format!(
            "half of the steps meet it at {}/s, but {}/s missed it when it was tried last: the \
             server may change with time, or remember its load; {steps}",
            about(per_s),
            grouped(*missed)
        ),
        Conclusion::Each(_) => format!("--rate FROM:TO searches beyond; {steps}"),
        Conclusion::None(_) => format!("--rate FROM:TO searches below; {steps}"),
        Conclusion::Limited { by, at, .. } => match by {
            Limit::Generator => format!(
                "requests were sent late there, or their answers read late, which decided whether \
                 they were in time; {steps}"
            ),
            Limit::Machine => format!(
                "a process that only sleeps woke up late there, too, so that the lateness is not the \
                 target's; {steps}"
            ),
            Limit::Slots => format!(
                "requests waited for one of {} slots while each that was sent was answered in time; \
                 {} slots are enough there; {steps}",
                one.workers,
                grouped(slots(plan, *at))
            ),
        },
        Conclusion::Turns { .. } => format!(
            "the lower load missed it three times, the higher one met it twice: what a search for \
             one limit finds would depend on where it begins; {steps}"
        ),
        Conclusion::NotRecovered { .. } => {
            format!("nothing beyond was tried; the server may need a restart; {steps}")
        }
        Conclusion::Unfinished { missed, per_s, .. } => {
            let missed = missed.map_or("nothing missed it yet".to_owned(), |missed| {
                format!("{}/s missed it", grouped(missed))
            });
            let so_far = per_s.map_or(String::new(), |per_s| {
                format!(", so far the limit is {}/s", about(&per_s))
            });
            format!(
                "{missed}{so_far}; {steps} were made in the budget of {}",
                plan.budget()
            )
        }
    }
}

/// As many as are in flight at this load if all take the longest time that is allowed, twice.
fn slots(plan: &Plan, rate: u64) -> u64 {
    let goals = plan.find.iter().flat_map(|objective| &objective.0);
    let longest = goals.filter_map(|goal| goal.within).max();
    let longest = longest.unwrap_or(Nanos::from_millis(1_000)).as_secs_f64();
    (2.0 * rate as f64 * longest).ceil() as u64
}

/// The steps, in their order.
pub(crate) fn table(plan: &Plan, points: &[PointSummary<'_>]) -> Option<Titled> {
    let objective = plan.find.as_ref()?;
    let mut columns = vec![
        Heading::left("target").key(),
        Heading::right("", "step").key(),
        Heading::left("for"),
        Heading::right("offered", "/s"),
        Heading::right("", "requests"),
    ];
    let goals = objective.0.iter();
    columns.extend(goals.map(|goal| Heading::right("", &goal.to_string())));
    columns.push(Heading::left("outcome"));
    let searched = searched(plan, points);
    let rows = searched.iter().flat_map(|one| {
        let named = named(plan, one);
        let steps = one.steps.iter().enumerate();
        steps.map(move |(nth, (run, role, outcome))| {
            let planned = run.open_loop.as_ref().map_or(0, |open| open.planned);
            let mut row = vec![
                if nth == 0 {
                    named.clone()
                } else {
                    String::new()
                },
                (nth + 1).to_string(),
                role.word().to_owned(),
                run.at.rate.map_or_else(String::new, grouped),
                grouped(planned),
            ];
            row.extend(objective.0.iter().map(|goal| cell(*goal, run)));
            row.push(outcome_words(*outcome).to_owned());
            row
        })
    });
    let rows: Vec<Vec<String>> = rows.collect();
    (!rows.is_empty()).then(|| Titled::new("Steps of the search, in their order:", columns, rows))
}

fn outcome_words(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Met => "met",
        Outcome::Missed => "missed",
        Outcome::Void(Limit::Generator) => "generator late",
        Outcome::Void(Limit::Machine) => "machine late",
        Outcome::Void(Limit::Slots) => "no slot",
    }
}

/// The measured value of a goal; `none` of a percentile that no answer reaches.
fn cell(goal: Goal, run: &Run) -> String {
    match (find::tail(goal, run), goal.within) {
        (Some(share), None) => percent(share),
        (Some(ns), Some(_)) => time(ns),
        (None, _) => "no answer".to_owned(),
    }
}

/// After a limit, a long look at the load that was confirmed; otherwise the search that finds it.
pub(crate) fn question(set: &ResultSet, next: Plan) -> Step {
    asked(set, next.clone()).unwrap_or_else(|| Step::Measure(Box::new(next)))
}

fn asked(set: &ResultSet, mut next: Plan) -> Option<Step> {
    let plan = &set.experiment.plan;
    let runs: Vec<&Run> = set.runs.iter().collect();
    let searched = find::searched(plan, &runs);
    // The first that is not answered, if there is one.
    let open = searched.iter().find(|one| !one.found.is_answer());
    let one = open.or(searched.first())?;
    let List(rates) = plan.rate.clone()?;
    let (from, to) = (*rates.iter().min()?, *rates.iter().max()?);
    match &one.found {
        Conclusion::Found { confirmed, .. } => {
            (next.find, next.runs) = (None, None);
            next.rate = Some(List(vec![*confirmed]));
            next.duration = Some(Nanos::from_millis(60_000));
        }
        Conclusion::Each(to) => {
            next.rate = Some(List(vec![*to, to.saturating_mul(100).min(10_000_000)]));
        }
        Conclusion::None(_) => next.rate = Some(List(vec![(from / 100).max(1), from.max(2)])),
        Conclusion::Limited {
            by: Limit::Slots,
            at,
            ..
        } => next.workers = Some(List(vec![slots(plan, *at).max(2 * one.workers)])),
        Conclusion::Turns { missed, met } => {
            (next.find, next.runs) = (None, None);
            let rates = [from.min(*missed), *missed, *met, (2 * met).min(to)];
            let mut rates = rates.to_vec();
            rates.dedup();
            next.rate = Some(List(rates));
        }
        Conclusion::Unfinished { .. } => next.budget = Some(Nanos(4 * plan.budget().0)),
        // In a quiet moment, or from another machine.
        Conclusion::Limited { .. }
        | Conclusion::NotRecovered { .. }
        | Conclusion::Unconfirmed { .. } => {
            let wait = Remedy::wait_quiet();
            return Some(Step::Type(format!("{} {wait}", command(&next))));
        }
    }
    Some(Step::Measure(Box::new(next)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;
    use crate::page::pages;
    use jostle_stats::fixtures::{Rated, experiment};

    /// A search with these steps.
    fn search(find: &str, steps: &[Rated]) -> ResultSet {
        let runs = steps.iter().zip(1..).map(|(step, block)| Run {
            block,
            run: block,
            ..step.run()
        });
        let mut experiment = experiment();
        experiment.plan = Plan {
            targets: vec!["lockd".to_owned()],
            workers: Some(List(vec![64])),
            rate: Some(List(vec![1_000, 4_000])),
            find: Some(find.parse().unwrap()),
            budget: Some(Nanos::from_millis(50_000)),
            ..Plan::of(jostle_model::plan::Workload::Rate)
        };
        ResultSet::new(experiment, runs.collect(), made::set().end)
    }

    fn at(rate: u64, response_us: u64) -> Rated {
        Rated {
            response_us,
            ..Rated::at(rate)
        }
    }

    #[test]
    fn what_was_found_is_a_finding_a_sentence_a_table_and_a_command() {
        let slow = |rate| at(rate, 9_000);
        let twice = [
            slow(1_000),
            slow(500),
            slow(500),
            slow(500),
            slow(500),
            slow(500),
            slow(500),
        ];
        let each = [1_000, 2_000, 4_000, 4_000].map(|rate| at(rate, 400));
        let table: [(&[Rated], &str, &str, &str); 3] = [
            (
                &twice,
                "lockd meets p99<5ms at no load that was tried, from 1,000 requests/s on.",
                "--rate FROM:TO searches below; 7 steps.",
                "--rate 10:1000",
            ),
            (
                &each,
                "lockd meets p99<5ms at each load that was tried, up to 4,000 requests/s.",
                "--rate FROM:TO searches beyond; 4 steps.",
                "--rate 4000:400000",
            ),
            (
                &each[..2],
                "lockd meets p99<5ms at 2,000 requests/s; the search ended before its limit was found.",
                "Nothing missed it yet; 2 steps were made in the budget of 50s.",
                "--budget 200s",
            ),
        ];
        for (steps, finding, sentence, next) in table {
            let page = pages(&[search("p99<5ms", steps)]).remove(0);
            let mut lines = page.lines.iter();
            let found = lines.find(|line| line.question == "Found").unwrap();
            assert_eq!(found.text(), format!("{finding} {sentence}"));
            assert_eq!(page.lead.unwrap().0, finding);
            assert!(page.next.contains(next), "{}", page.next);
            assert_eq!(page.tables.last().unwrap().grid.rows.len(), steps.len());
        }
    }
}
