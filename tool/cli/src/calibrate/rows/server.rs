//! A slow server is not attributed to the generator, and a server that counts wrongly is
//! detected.

use crate::calibrate::bench::{Bench, Stop};
use crate::calibrate::trial::{
    Agreement, Trial, cannot_tell, differs, noted, reason, runs_of, span, total,
};
use jostle_model::record::{LimitedBy, Run, Status};

/// How much longer than the server's own sleep an operation may take: request
/// and reply, and the release, which is not slowed.
const OVERHEAD_NS: f64 = 400_000.0;

pub(super) fn slow(bench: &mut Bench) -> Result<Trial, Stop> {
    let line = |target: &str, count: u64| {
        format!("stream {target} -n {count} -w 2 --names own --as tasks --runs 2")
    };
    let slow = bench.measure(&line("echo:slow=200us", 300))?;
    let quick = bench.measure(&line("echo", 1_500))?;
    Ok(judge_slow(
        &runs_of(&slow, "echo:slow=200us"),
        &runs_of(&quick, "echo"),
    ))
}

/// Nanoseconds an operation, all workers together.
fn each_ns(runs: &[&Run]) -> f64 {
    total(runs, |run| run.window.window_s * 1e9) / total(runs, |run| run.operations as f64)
}

fn judge_slow(slow: &[&Run], quick: &[&Run]) -> Trial {
    let slept = total(slow, |run| noted(run, "slowed_ns"));
    let truth = slept / total(slow, |run| noted(run, "answered"));
    let (found, control) = (each_ns(slow), each_ns(quick));
    let busy = slow.iter().flat_map(|run| &run.thread_loads);
    let busy = busy.map(|generator| generator.busy_share);
    let busy = busy.fold(0.0, f64::max);
    let blamed = slow.iter().any(|run| {
        reason(run, "generator").is_some() || run.verdict.limited_by == Some(LimitedBy::Generator)
    });
    let said = if !truth.is_finite() || !found.is_finite() {
        differs("the operations, or the server's log, are missing")
    } else if blamed {
        differs("the generator was flagged for what the server did")
    } else if found < truth || found > truth + OVERHEAD_NS {
        differs(format!("an operation reads as {}", span(found)))
    } else if control > truth {
        cannot_tell("the server is no quicker without its fault")
    } else {
        Agreement::Agrees
    };
    Trial {
        truth: format!("{} a grant", span(truth)),
        found: format!("{} each, generator busy {:.0} %", span(found), 100.0 * busy),
        control: format!("echo {}", span(control)),
        said,
    }
}

pub(super) fn miscounting(bench: &mut Bench, target: &str) -> Result<Trial, Stop> {
    let set = bench.measure(&format!(
        "stream {target} echo -n 1000 -w 2 --names own --runs 1"
    ))?;
    Ok(judge_counts(&runs_of(&set, target), &runs_of(&set, "echo")))
}

fn difference(runs: &[&Run]) -> f64 {
    total(runs, |run| {
        let server = run.server.and_then(|server| server.difference);
        server.map_or(f64::NAN, |difference| difference as f64)
    })
}

fn judge_counts(wrong: &[&Run], right: &[&Run]) -> Trial {
    let truth = total(wrong, |run| noted(run, "doubled") - noted(run, "lost"));
    let (found, control) = (difference(wrong), difference(right));
    let flagged = wrong
        .iter()
        .all(|run| reason(run, "server_counts").is_some_and(|reason| reason.is == Status::Invalid));
    let clean_flagged = right
        .iter()
        .any(|run| reason(run, "server_counts").is_some());
    let said = if truth == 0.0 || right.is_empty() {
        differs("the server's log is missing")
    } else if found != truth {
        differs(format!("a difference of {found} was found"))
    } else if !flagged {
        differs("the server that counts wrongly was not flagged")
    } else if control != 0.0 || clean_flagged {
        differs("a server that counts rightly was flagged")
    } else {
        Agreement::Agrees
    };
    Trial {
        truth: format!(
            "{truth:+} of {}",
            total(wrong, |run| noted(run, "answered"))
        ),
        found: format!("{found:+}"),
        control: format!("echo {control:+}"),
        said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::trial::planted::{flagged, noting};
    use jostle_model::record::{Server, ThreadLoad, Verdict, Window};

    fn timed(each_us: f64, slowed_us: f64) -> Run {
        Run {
            window: Window {
                window_s: each_us / 1e3,
                ..Window::default()
            },
            operations: 1_000,
            around: noting(&[("answered", 1_000.0), ("slowed_ns", 1e6 * slowed_us)]),
            thread_loads: vec![ThreadLoad {
                busy_share: 0.2,
                runqueue_share: 0.0,
                ..ThreadLoad::default()
            }],
            ..Run::default()
        }
    }

    #[test]
    fn a_slow_server_is_its_own_fault() {
        let quick = timed(20.0, 0.0);
        let said = |slow: &Run| judge_slow(&[slow], &[&quick]).said;
        assert_eq!(said(&timed(260.0, 210.0)), Agreement::Agrees);
        let blamed = Run {
            verdict: flagged("generator", Status::Invalid),
            ..timed(260.0, 210.0)
        };
        for wrong in [
            timed(200.0, 210.0),
            timed(700.0, 210.0),
            blamed,
            Run::default(),
        ] {
            assert!(said(&wrong).is_wrong(), "{wrong:?}");
        }
    }

    fn counted(difference: i64, truth: [f64; 2], verdict: Verdict) -> Run {
        Run {
            server: Some(Server {
                counted: Some(1_000),
                difference: Some(difference),
                ..Server::default()
            }),
            around: noting(&[("lost", truth[0]), ("doubled", truth[1])]),
            verdict,
            ..Run::default()
        }
    }

    #[test]
    fn the_difference_must_be_the_one_planted_and_be_flagged() {
        let right = counted(0, [0.0, 0.0], Verdict::default());
        let said = |wrong: &Run| judge_counts(&[wrong], &[&right]).said;
        let caught = || flagged("server_counts", Status::Invalid);
        assert_eq!(
            said(&counted(-20, [20.0, 0.0], caught())),
            Agreement::Agrees
        );
        assert_eq!(said(&counted(20, [0.0, 20.0], caught())), Agreement::Agrees);
        for wrong in [
            counted(-20, [0.0, 20.0], caught()),
            counted(0, [20.0, 0.0], caught()),
            counted(-20, [20.0, 0.0], Verdict::default()),
            counted(-20, [0.0, 0.0], caught()),
        ] {
            assert!(said(&wrong).is_wrong(), "{wrong:?}");
        }
        let clean = counted(0, [0.0, 0.0], caught());
        let wrong = counted(-20, [20.0, 0.0], caught());
        assert!(judge_counts(&[&wrong], &[&clean]).said.is_wrong());
    }
}
