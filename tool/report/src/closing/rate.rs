//! The closing sentences of `rate`: up to which rate a target holds, and the bottleneck
//! beyond it.
//!
//! A rate holds if at least 99 % of its plan was done and the response's p99 is at most
//! four times the least of this and all lower rates. Four times is where a queue with
//! random arrivals and services (M/M/1) stands at three quarters of its capacity: its
//! response time, and with it every percentile, is the service time by 1 - load (Kleinrock,
//! Queueing Systems 1, 1975, section 3.2). The knee is the highest rate that holds. Beyond
//! it the bottleneck is the generator if its lag shows this, otherwise the target.

use super::{Values, View, shared};
use crate::format::each_once;
use jostle_model::record::LimitedBy;
use jostle_stats::numbers::{grouped, time};
use jostle_stats::open_loop::{self, Response};
use jostle_stats::summary::PointSummary;

/// Share of the plan that must be done.
const DONE: f64 = 0.99;

/// Growth of the response's p99 that still holds.
const HOLDS: f64 = 4.0;

/// More are not suggested.
const MOST_SLOTS: u64 = 10_000;

/// For each target, and number of workers where several were tried, up to which rate it holds. An
/// INVALID rate does not.
pub(super) fn knees(view: &View<'_, '_>) -> Vec<Values> {
    let points = view.all;
    if view.points.is_empty() || view.plan().find.is_some() {
        return Vec::new();
    }
    let groups = each_once(points.iter().map(|point| (point.target, point.at.workers)));
    let several = |target: &str| groups.iter().filter(|(t, _)| *t == target).count() > 1;
    let said = groups.iter().filter_map(|(target, workers)| {
        let of_group =
            |point: &&PointSummary<'_>| point.target == *target && point.at.workers == *workers;
        let mut rates: Vec<&PointSummary<'_>> = points.iter().filter(of_group).collect();
        rates.sort_by_key(|point| point.at.rate);
        let text = sentence(&rates)?;
        let text = match workers.filter(|_| several(target)) {
            Some(workers) => format!("with {workers} in flight at most: {text}"),
            None => text,
        };
        Some(((*target).to_owned(), text))
    });
    shared(
        said.collect(),
        super::beside::targets(&view.points).len() > 1,
    )
}

/// The highest rate that holds, as the number of its point. INVALID points do not hold.
pub(crate) fn knee(rates: &[&PointSummary<'_>]) -> Option<usize> {
    let mut least = f64::INFINITY;
    let holds = rates.iter().map(|point| {
        let usable = !point.verdict.is_invalid();
        let done = open_loop::share_done(&point.runs).is_some_and(|done| done >= DONE);
        let in_time = match open_loop::response(&point.timed, "p99") {
            // Too few requests for a percentile: only what was done decides.
            None => true,
            Some(p99) if p99.at_least || !usable => false,
            Some(p99) => {
                least = least.min(p99.ns);
                p99.ns <= HOLDS * least
            }
        };
        usable && done && in_time
    });
    let holds: Vec<bool> = holds.collect();
    holds.iter().rposition(|holds| *holds)
}

fn sentence(rates: &[&PointSummary<'_>]) -> Option<String> {
    let Some(at) = knee(rates) else {
        return bent(rates.first()?);
    };
    let held = holds(rates[at])?;
    Some(match rates.get(at + 1) {
        None if rates.len() == 1 => format!("holds {held}"),
        None => format!("holds up to {held}, the highest rate tried"),
        Some(next) => {
            let bent = bent(next)?;
            let at_least = match next.limited_by() {
                Some(LimitedBy::Generator | LimitedBy::Machine) => {
                    ": the target does at least that"
                }
                _ => "",
            };
            format!("holds up to {held}{at_least}; {bent}")
        }
    })
}

/// `1,000/s (p99 response 180 us)`.
fn holds(point: &PointSummary<'_>) -> Option<String> {
    let rate = grouped(point.at.rate?);
    Some(match open_loop::response(&point.timed, "p99") {
        Some(p99) => format!("{rate}/s (p99 response {})", span(p99)),
        None => format!("{rate}/s"),
    })
}

/// The bottleneck at this rate, and the evidence.
fn bent(point: &PointSummary<'_>) -> Option<String> {
    let rate = grouped(point.at.rate?);
    let who = match point.verdict.limited_by {
        Some(LimitedBy::Generator) => "the generator is the limit",
        Some(LimitedBy::Machine) => "the machine is the limit",
        // Whether more slots would have done more was not tried.
        _ => match point.at.workers.map(|slots| 4 * slots) {
            Some(more) if more <= MOST_SLOTS => {
                &format!("it does not keep up, or wants more slots (-w {more})")
            }
            _ => "it does not keep up, or wants more slots (-w)",
        },
    };
    if let Some(why) = point.verdict.why_invalid() {
        return Some(format!("INVALID at {rate}/s: {}", why.text));
    }
    let done = open_loop::share_done(&point.runs)?;
    let mut parts = vec![format!("{:.0} % answered", 100.0 * done)];
    if let Some(p99) = open_loop::response(&point.timed, "p99") {
        parts.push(format!("p99 response {}", span(p99)));
    }
    let late = open_loop::generator_lag_p99(&point.runs);
    let sent = late.map_or(String::new(), |late| {
        format!(", sender {} late (p99)", time(late))
    });
    Some(format!("at {rate}/s {who}: {}{sent}", parts.join(", ")))
}

fn span(response: Response) -> String {
    match response.at_least {
        true => format!("at least {}", time(response.ns)),
        false => time(response.ns),
    }
}

#[cfg(test)]
mod tests {
    use crate::closing::tests::planned;
    use jostle_model::plan::{Plan, Workload};
    use jostle_model::record::Run;
    use jostle_stats::fixtures::Rated;

    fn said(runs: &[Rated]) -> String {
        let points: Vec<Run> = runs.iter().map(|run| run.run()).collect();
        planned(Plan::of(Workload::Rate), &points, "Knee")
    }

    #[test]
    fn the_knee_is_the_highest_rate_that_holds_and_beyond_it_somebody_saturates() {
        let slow = Rated {
            response_us: 1_700,
            ..Rated::at(10_000)
        };
        let table: [(&[Rated], &str); 6] = [
            (
                &[Rated::at(100), Rated::at(1_000)],
                "Holds up to 1,000/s (p99 response 400 us), the highest rate tried.",
            ),
            (&[Rated::at(100)], "Holds 100/s (p99 response 400 us)."),
            (
                &[Rated::at(100), Rated::at(1_000), slow],
                "Holds up to 1,000/s (p99 response 400 us); at 10,000/s it \
                 does not keep up, or wants more slots (-w 256): 100 % answered, p99 response 1.7 ms, sender 20 us late (p99).",
            ),
            (
                &[
                    Rated::at(1_000),
                    Rated {
                        done: 300,
                        response_us: 900_000,
                        ..Rated::at(10_000)
                    },
                ],
                // A p99 of 300 requests has three beyond it.
                "Holds up to 1,000/s (p99 response 400 us); at 10,000/s it \
                 does not keep up, or wants more slots (-w 256): 30 % answered, p99 response at least 1.0 s.",
            ),
            (
                &[
                    Rated::at(1_000),
                    Rated {
                        generator_lag_us: 900,
                        response_us: 1_300,
                        ..Rated::at(10_000)
                    },
                ],
                "Holds up to 1,000/s (p99 response 400 us); INVALID at 10,000/s: \
                 requests were sent",
            ),
            (
                &[Rated {
                    done: 500,
                    ..Rated::at(100)
                }],
                "At 100/s it does not keep up, or wants more slots (-w 256): 50 % answered",
            ),
        ];
        for (runs, text) in table {
            let said = said(runs);
            assert!(said.starts_with(text), "{said}\n{text}");
        }
    }

    #[test]
    fn four_times_the_least_of_the_lower_rates_still_holds() {
        let with = |first_us, response_us| {
            said(&[
                Rated {
                    response_us: first_us,
                    ..Rated::at(100)
                },
                Rated {
                    response_us,
                    ..Rated::at(200)
                },
            ])
        };
        assert!(with(1_000, 3_950).starts_with("Holds up to 200/s"));
        assert!(with(1_000, 4_100).starts_with("Holds up to 100/s"));
        // A server that warms up at higher rates has not bent at the lower one.
        assert!(with(9_000, 1_000).starts_with("Holds up to 200/s"));
    }
}
