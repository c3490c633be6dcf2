//! Stalls: an open loop sees them in its percentiles; in a closed loop each is one slow
//! operation.

use crate::calibrate::bench::{Bench, Stop};
use crate::calibrate::trial::{Trial, all_of, cannot_tell, differs, noted, span};
use jostle_model::record::{Distribution, LimitedBy, Run};

/// The planted rate of stalls.
const STALLS: f64 = 5.0;
const STALL_NS: f64 = 200e6;

/// A request that is due within a stall waits for the rest of it. In the open loop these
/// are two thirds of the requests, and the slowest hundredth of all waits 197 ms or more.
/// In the closed loop each stall delays one operation, from its beginning.
const SEEN_NS: f64 = 150e6;

/// The control's p99 must stay below this, because it has no stalls.
const FREE_NS: f64 = 20e6;

/// A p99 that this separates from its control has moved: far less than a stall,
/// far more than the wake-up of a sleeper.
const MOVED_NS: f64 = 1e6;

pub(super) fn trial(bench: &mut Bench) -> Result<Trial, Stop> {
    // Over 1000 requests, of which ten lie beyond the p99.
    let rate = |target: &str, seconds: f64| {
        format!("rate {target} --rate 700 -w 64 -t {seconds} --warmup 10ms --runs 1")
    };
    let open = bench.measure(&rate("stall:200ms/300ms", 1.7))?;
    // Enough of them for a p99, too.
    let open_control = bench.measure(&rate("null", 1.6))?;
    // About 600 acquisitions between two stalls, so that stalled ones are fewer than one in
    // a hundred.
    let closed = |target: &str, seconds: f64| {
        format!("contend {target} -w 1 -b 0 -i 100us -t {seconds} --warmup 0 --runs 1")
    };
    let stalled = bench.measure(&closed("stall:200ms/300ms", 1.7))?;
    let free = bench.measure(&closed("null", 0.3))?;
    Ok(judge(&Found {
        open: open.runs.first(),
        open_control: open_control.runs.first(),
        closed: stalled.runs.first(),
        closed_control: free.runs.first(),
    }))
}

/// Values that a p99 needs: ten beyond it.
const LEAST: u64 = 1_000;

/// One target under both loops, and one that never stalls.
#[derive(Clone, Copy)]
struct Found<'a> {
    open: Option<&'a Run>,
    open_control: Option<&'a Run>,
    closed: Option<&'a Run>,
    closed_control: Option<&'a Run>,
}

fn responses(run: &Run) -> Option<&Distribution> {
    run.times.response_ns.as_ref()
}

fn waits(run: &Run) -> Option<&Distribution> {
    Some(&run.acquire_ns.as_ref()?.granted)
}

/// NaN if it is missing, which fails every comparison.
fn p99(found: Option<&Distribution>) -> f64 {
    let p99 = found.and_then(|found| found.percentiles.get("p99"));
    p99.map_or(f64::NAN, |ns| *ns as f64)
}

fn judge(found: &Found<'_>) -> Trial {
    let open_both = [found.open, found.open_control].map(|run| run.and_then(responses));
    let closed_both = [found.closed, found.closed_control].map(|run| run.and_then(waits));
    let [open, open_control] = open_both.map(p99);
    let [closed, closed_control] = closed_both.map(p99);
    let longest = closed_both[0].map_or(f64::NAN, |waits| waits.max as f64);
    let mut all = open_both.into_iter().chain(closed_both).flatten();
    let any_is_short = all.any(|found| found.count < LEAST);
    let log = |name| [found.open, found.closed].map(|run| run.map_or(0.0, |run| noted(run, name)));
    let (stalls, shortest) = (log("stalls"), log("stall_min_ns"));
    let limited_by = found.open.and_then(|run| run.verdict.limited_by);
    let said = if stalls.contains(&0.0) {
        differs("the specimen's log is missing")
    } else if stalls.iter().any(|stalls| *stalls < STALLS) {
        cannot_tell(format!("fewer than {STALLS} stalls came to pass"))
    } else if any_is_short {
        cannot_tell(format!("a p99 needs {LEAST} waits, and fewer came to pass"))
    } else {
        all_of([
            (
                shortest.iter().all(|ns| *ns >= STALL_NS),
                "a stall was shorter than planted",
            ),
            (open >= SEEN_NS, "the open loop did not see the stalls"),
            (
                limited_by != Some(LimitedBy::Generator),
                "the generator was flagged for what the target did",
            ),
            (
                open_control < FREE_NS,
                "the open loop sees stalls where there are none",
            ),
            (longest >= SEEN_NS, "the closed loop met no stall"),
            (
                closed - closed_control <= MOVED_NS,
                "the p99 of the closed loop has moved",
            ),
        ])
    };
    let log = |at: usize| format!("{} of {}", stalls[at], span(shortest[at]));
    Trial {
        truth: format!("open {}, closed {}", log(0), log(1)),
        found: format!(
            "p99 open {}, closed {} (longest {})",
            span(open),
            span(closed),
            span(longest)
        ),
        control: format!(
            "null p99 open {}, closed {}",
            span(open_control),
            span(closed_control)
        ),
        said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::trial::Agreement;
    use crate::calibrate::trial::planted::noting;
    use jostle_model::record::Percentiles;
    use jostle_model::record::{Circumstances, Times, Verdict, Waits};

    const MS: f64 = 1e6;

    fn distribution(p99_ns: f64, max_ns: f64) -> Distribution {
        Distribution {
            count: 1_000,
            max: max_ns as u64,
            percentiles: [("p99".to_owned(), p99_ns as u64)].into(),
            ..Distribution::default()
        }
    }

    fn log(stalls: f64, each_ns: f64) -> Circumstances {
        noting(&[("stalls", stalls), ("stall_min_ns", each_ns)])
    }

    fn open(p99_ns: f64) -> Run {
        Run {
            around: log(5.0, 200.0 * MS),
            times: Times {
                response_ns: Some(distribution(p99_ns, p99_ns)),
                ..Times::default()
            },
            ..Run::default()
        }
    }

    fn closed(p99_ns: f64, longest_ns: f64) -> Run {
        Run {
            around: log(6.0, 200.1 * MS),
            acquire_ns: Some(Waits {
                granted: distribution(p99_ns, longest_ns),
                ..Waits::default()
            }),
            ..Run::default()
        }
    }

    fn said(points: &[Run; 4]) -> Agreement {
        let [open, open_control, closed, closed_control] = points.each_ref().map(Some);
        judge(&Found {
            open,
            open_control,
            closed,
            closed_control,
        })
        .said
    }

    fn right() -> [Run; 4] {
        [
            open(197.0 * MS),
            open(0.2 * MS),
            closed(300.0, 199.9 * MS),
            closed(40.0, 0.1 * MS),
        ]
    }

    fn with(at: usize, point: Run) -> [Run; 4] {
        let mut points = right();
        points[at] = point;
        points
    }

    #[test]
    fn the_open_loop_must_see_the_stalls_and_the_closed_one_must_not() {
        assert_eq!(said(&right()), Agreement::Agrees);
        assert_eq!(said(&with(0, open(150.0 * MS))), Agreement::Agrees);
        let flagged = Run {
            verdict: Verdict {
                limited_by: Some(LimitedBy::Generator),
                ..Verdict::default()
            },
            ..open(197.0 * MS)
        };
        for (at, point, part) in [
            (0, open(149.0 * MS), "did not see"),
            (0, flagged, "flagged"),
            (1, open(20.0 * MS), "where there are none"),
            (2, closed(300.0, 100.0 * MS), "met no stall"),
            (2, closed(1.1 * MS, 199.0 * MS), "has moved"),
            // What is missing is not zero.
            (
                0,
                Run {
                    times: Times {
                        response_ns: None,
                        ..Times::default()
                    },
                    ..right()[0].clone()
                },
                "did not see",
            ),
            (1, Run::default(), "where there are none"),
            (3, Run::default(), "has moved"),
        ] {
            let Agreement::Differs(why) = said(&with(at, point)) else {
                panic!("{at}: {part}");
            };
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn it_is_judged_by_the_stalls_that_the_specimen_noted() {
        let noted = |stalls, each_ns| Run {
            around: log(stalls, each_ns),
            ..open(197.0 * MS)
        };
        let few = said(&with(0, noted(4.0, 200.0 * MS)));
        assert!(few.is_open(), "{few:?}");
        for point in [noted(0.0, 0.0), noted(5.0, 199.0 * MS)] {
            let wrong = said(&with(0, point));
            assert!(wrong.is_wrong(), "{wrong:?}");
        }
    }

    #[test]
    fn fewer_waits_than_a_p99_needs_cannot_tell() {
        let mut slow = closed(40.0, 0.1 * MS);
        let waits = slow.acquire_ns.as_mut().unwrap();
        waits.granted.count = LEAST - 1;
        waits.granted.percentiles = Percentiles::default();
        let few = said(&with(3, slow));
        assert!(few.is_open(), "{few:?}");
    }
}
