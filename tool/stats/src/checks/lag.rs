//! Did the generator send its requests when they were due?

use super::{EVERYTHING, Evidence, Found, measured, percent, seen};
use crate::harm::{BEARABLE, foreign_share};
use crate::histogram::Histogram;
use crate::intervals::median;
use crate::open_loop::{self, pooled};
use crate::sleeping;
use jostle_model::Remedy;
use jostle_model::record::{Claim, LimitedBy, Run, Status};

/// Lateness of the generator that is flagged: as a share of the response's p99, and in
/// nanoseconds.
const SUSPECT: (f64, f64) = (0.10, 50_000.0);
const INVALID: (f64, f64) = (0.25, 200_000.0);

/// Share of the plan that was not sent although a slot was free.
const UNSENT: f64 = 0.01;

/// How late one sleep in a hundred ends, in terms of one in ten: 100 to 110 us where
/// that is 50 to 60, on an idle virtual machine whose CPUs halt at once.
const RARELY: f64 = 2.0;

/// Share of the generator's lag from which on a canary shares it.
const SHARED: f64 = 0.5;

/// Share of the plan under which a rate is not reached.
const REACHED: f64 = 0.99;

check! {
    "lag" in "us": "Did the generator of an open loop send its requests when they were due?";
    threshold,
    source: "the response is counted from the intended start and holds this time in full: at \
             10 % it moves the figure by as much as a difference that matters; 50 us is a wake-up \
             on a busy virtual machine, and one whose idle CPUs halt at once takes longer",
    fooled_by: "a kernel without schedstat, on which answers that are read late look like a slow \
                target; steal, which no task's waiting holds",
    advice: "a quiet moment where other programs run, a lower rate, more CPUs for the generators (--place), or a quieter hour",
    words: |reason| match reason.unit.as_str() {
        SHARE => format!(
            "{} of the planned requests were not sent although a slot was free{}",
            percent(measured(reason)),
            seen(reason)
        ),
        _ => seen(reason),
    },
}

/// The unit of requests that were not sent.
const SHARE: &str = "share";

fn threshold() -> String {
    let us = |(share, ns): (f64, f64)| (percent(share), ns / 1e3);
    let ((suspect, suspect_us), (invalid, invalid_us)) = (us(SUSPECT), us(INVALID));
    format!(
        "p99 of the time from the intended start, or from a slot's coming free if that is later, \
         to the sending, the median of the runs as the response's is: above {suspect_us} us, twice what one sleep in ten is late \
         by on this machine, and {suspect} of the response's p99: SUSPECT, above {invalid_us} us, \
         four times that lateness, and {invalid}, or over {} of the plan not sent although a slot \
         was free: INVALID; where a run has under 1000 requests, the p99 of all runs together, or the \
         highest percentile that has ten beyond it. The mean time that the generator's threads waited for a CPU for each \
         request of a server: above {suspect_us} us, two wake-ups on this machine, and {suspect} \
         of the mean time from sending to answer: SUSPECT, above {invalid_us} us, four wake-ups, \
         and {invalid}: INVALID. A canary that is half as late beyond twice the lateness of sleeps \
         makes it the machine's. Where all that was planned was done, only `distribution` is in doubt",
        percent(UNSENT)
    )
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let fault = fault(evidence)?;
    let canary = match fault.who {
        LimitedBy::Machine => format!(
            "; a canary beside them woke {:.0} us late ({}), so that the machine is the limit",
            canary_late(evidence) / 1e3,
            percentile(tail(evidence)),
        ),
        _ => String::new(),
    };
    // A machine that wakes late does so at a lower rate, too.
    let remedy = match beside_others(evidence) || fault.who == LimitedBy::Machine {
        true => Some(Remedy::wait_quiet()),
        false => slower(evidence),
    };
    // What was planned and done was done at that rate, however late.
    let did_all = open_loop::ledger(evidence.runs).is_some_and(|all| all.done >= all.planned);
    let claims: &[Claim] = match did_all {
        true => &[Claim::Distribution],
        false => EVERYTHING,
    };
    let found = Found::new(fault.is, claims, fault.measured, fault.limit).unit(fault.unit);
    Some(found.seen(fault.text + &canary).remedy(remedy))
}

/// Whether other programs ran for so much of the window that the generator may be late
/// because of them. A lower rate is then the answer to another question.
fn beside_others(evidence: &Evidence<'_>) -> bool {
    evidence
        .median(foreign_share)
        .is_some_and(|share| share >= BEARABLE)
}

/// The listed rates below this one; a tenth of it where it is the lowest.
fn slower(evidence: &Evidence<'_>) -> Option<Remedy> {
    let rate = evidence.runs.first()?.at.rate?;
    let listed = evidence.experiment.plan.rate.as_ref();
    let lower = listed.map_or(Vec::new(), |list| {
        let lower = list.0.iter().filter(|other| **other < rate);
        lower.map(u64::to_string).collect()
    });
    match lower.is_empty() {
        false => Some(Remedy::with("--rate", lower.join(":"))),
        true => (rate >= 10).then(|| Remedy::with("--rate", rate / 10)),
    }
}

/// One kind of lateness, and its cause.
struct Fault {
    is: Status,
    who: LimitedBy,
    /// In `unit`.
    measured: f64,
    /// The least that would be flagged as badly, in `unit`.
    limit: f64,
    unit: &'static str,
    text: String,
}

/// The gravest of the three ways to be late.
fn fault(evidence: &Evidence<'_>) -> Option<Fault> {
    let found = [unsent(evidence), late(evidence), queued(evidence)];
    let found = found.into_iter();
    found.flatten().rev().max_by_key(|fault| fault.is)
}

/// Not sent at all.
fn unsent(evidence: &Evidence<'_>) -> Option<Fault> {
    let ledger = open_loop::ledger(evidence.runs)?;
    let unsent = ledger.dropped_with_slot as f64 / ledger.planned.max(1) as f64;
    (unsent > UNSENT).then(|| Fault {
        is: Status::Invalid,
        who: who(evidence, sent_late(evidence).unwrap_or(f64::INFINITY)),
        measured: unsent,
        limit: UNSENT,
        unit: SHARE,
        // The words have the share.
        text: String::new(),
    })
}

/// The percentile that is judged; with fewer than 1000 requests it is lower than p99.
fn tail(evidence: &Evidence<'_>) -> f64 {
    open_loop::tail(pooled(evidence.runs, "generator_lag_ns").count())
}

/// That percentile of a histogram, taken as the response's figure is: the median of the runs,
/// or that of all their requests where a single run has too few. Pooled, a stall in one of six
/// runs would flag a figure that it does not move.
fn at_tail(evidence: &Evidence<'_>, of: fn(&[&Run]) -> Histogram) -> Option<f64> {
    let tail = tail(evidence);
    let each = || evidence.runs.iter().map(std::slice::from_ref);
    let sent = |run| pooled(run, "generator_lag_ns").count();
    if each().any(|run| open_loop::tail(sent(run)) < tail) {
        return of(evidence.runs).quantile(tail).map(|ns| ns as f64);
    }
    let found = each().filter_map(|run| of(run).quantile(tail));
    let found: Vec<f64> = found.map(|ns| ns as f64).collect();
    median(&found)
}

/// `p99`.
fn percentile(tail: f64) -> String {
    format!("p{:.0}", 100.0 * tail)
}

/// How late requests were sent, in nanoseconds; None where none was sent.
fn sent_late(evidence: &Evidence<'_>) -> Option<f64> {
    at_tail(evidence, |runs| pooled(runs, "generator_lag_ns"))
}

/// The canary's lateness in nanoseconds.
fn canary_late(evidence: &Evidence<'_>) -> f64 {
    at_tail(evidence, |runs| pooled(runs, "canary_lag_ns")).unwrap_or(0.0)
}

/// Sent late.
fn late(evidence: &Evidence<'_>) -> Option<Fault> {
    let late_ns = sent_late(evidence)?;
    let response_ns = response(evidence);
    let own_ns = own_lateness(evidence);
    let (is, limit_ns) = beyond(late_ns, response_ns, own_ns)?;
    Some(Fault {
        is,
        who: who(evidence, late_ns),
        measured: late_ns / 1e3,
        limit: limit_ns / 1e3,
        unit: CHECK.unit,
        text: format!(
            "requests were sent {:.0} us late although a slot was free ({}; the response's is \
             {:.0} us)",
            late_ns / 1e3,
            percentile(tail(evidence)),
            response_ns / 1e3
        ),
    })
}

/// Requests may be sent in time, but a worker that waits for a CPU reads their answers
/// late, so that these look slow. Only for targets with a server: otherwise that wait is
/// part of the result.
///
/// The wait is compared with the time from sending to answer. The response time would not
/// do: it includes the wait for a slot, which such a generator makes arbitrarily long.
fn queued(evidence: &Evidence<'_>) -> Option<Fault> {
    let served = |run: &&&Run| run.server.is_some() && run.open_loop.is_some();
    let runs = || evidence.runs.iter().filter(served);
    let waited_s: Option<f64> = runs().map(|run| run.cpu.runqueue_wait_s).sum();
    let answered: u64 = runs().map(|run| run.operations).sum();
    let queued_ns = waited_s? * 1e9 / answered.max(1) as f64;
    let service_ns = pooled(evidence.runs, "service_ns").mean()?;
    let (is, limit_ns) = beyond(queued_ns, service_ns, own_waking(evidence))?;
    Some(Fault {
        is,
        who: who(evidence, queued_ns),
        measured: queued_ns / 1e3,
        limit: limit_ns / 1e3,
        unit: CHECK.unit,
        text: format!(
            "the workers waited {:.0} us for a CPU for each request (mean; from sending to \
             answer {:.0} us)",
            queued_ns / 1e3,
            service_ns / 1e3
        ),
    })
}

/// The severity and the limit that was exceeded. Lateness up to `own_ns`, or twice that for
/// INVALID, is the machine's own, and no fault.
fn beyond(ns: f64, response_ns: f64, own_ns: f64) -> Option<(Status, f64)> {
    let limit_ns =
        |(share, least): (f64, f64), own_ns: f64| least.max(own_ns).max(share * response_ns);
    let limits = [
        (Status::Invalid, limit_ns(INVALID, 2.0 * own_ns)),
        (Status::Suspect, limit_ns(SUSPECT, own_ns)),
    ];
    limits.into_iter().find(|(_, limit_ns)| ns > *limit_ns)
}

/// The machine's own lateness of one sleep in a hundred.
fn own_lateness(evidence: &Evidence<'_>) -> f64 {
    let latencies = evidence.experiment.calibration.latencies.as_ref();
    RARELY * sleeping::seldom_later(latencies).0 as f64
}

/// The machine's own time for the two wake-ups of a request, when it is due and when its
/// answer arrives. A kernel counts much of it as waiting for a CPU.
fn own_waking(evidence: &Evidence<'_>) -> f64 {
    let latencies = evidence.experiment.calibration.latencies.as_ref();
    2.0 * sleeping::wake_up(latencies).0 as f64
}

/// The tail of the response time. An unanswered request counts with the time that it waited.
fn response(evidence: &Evidence<'_>) -> f64 {
    let all = |runs: &[&Run]| {
        let mut all = pooled(runs, "response_ns");
        all.merge(&pooled(runs, "unanswered_ns"));
        all
    };
    at_tail(evidence, all).unwrap_or(0.0)
}

/// The cause of this lateness. Lateness that the canary shares is the machine's. The usual
/// lateness of sleeps is subtracted from both first.
fn who(evidence: &Evidence<'_>, late_ns: f64) -> LimitedBy {
    let canary = canary_late(evidence);
    let own_ns = own_lateness(evidence);
    let beyond = |ns: f64| (ns - own_ns).max(0.0);
    match beyond(canary) >= SHARED * beyond(late_ns) && beyond(canary) > 0.0 {
        true => LimitedBy::Machine,
        false => LimitedBy::Generator,
    }
}

/// The bottleneck of an open loop, if there is one: the cause of lateness, or the target if
/// it answers less than the plan.
pub fn limit(evidence: &Evidence<'_>) -> Option<LimitedBy> {
    let done = open_loop::share_done(evidence.runs)?;
    match fault(evidence) {
        Some(fault) => Some(fault.who),
        None => (done < REACHED).then_some(LimitedBy::Target),
    }
}

#[cfg(test)]
mod tests {
    use super::{CHECK, EVERYTHING, limit};
    use crate::checks::Evidence;
    use crate::fixtures::Rated;
    use crate::fixtures::{experiment, judge, judge_in, late};
    use crate::histogram::Histogram;
    use jostle_model::Remedy;
    use jostle_model::record::{Accounts, Claim, LimitedBy, Run, Status};

    fn found(run: Rated) -> Status {
        judge(&CHECK, &[run.run()]).map_or(Status::Valid, |reason| reason.is)
    }

    fn limited(run: &Run) -> Option<LimitedBy> {
        limit(&Evidence {
            experiment: &experiment(),
            runs: &[run],
        })
    }

    #[test]
    fn a_tenth_and_a_quarter_of_the_response_are_the_limits_but_never_under_50_and_200_us() {
        let table = [
            // lag and response, us
            (49, 100, Status::Valid),
            (52, 100, Status::Suspect),
            (190, 300, Status::Suspect), // well over a quarter, and under 200 us
            (205, 300, Status::Invalid),
            (95, 1_000, Status::Valid),
            (105, 1_000, Status::Suspect),
            (240, 1_000, Status::Suspect),
            (260, 1_000, Status::Invalid),
            (4_500, 50_000, Status::Valid),
        ];
        for (generator_lag_us, response_us, is) in table {
            let run = Rated {
                generator_lag_us,
                response_us,
                ..Rated::at(100)
            };
            assert_eq!(found(run), is, "{generator_lag_us} {response_us}");
        }
    }

    #[test]
    fn late_requests_that_were_all_done_are_late_in_their_distribution_alone() {
        let claims = |done| {
            let run = Rated {
                generator_lag_us: 105,
                response_us: 1_000,
                done,
                ..Rated::at(100)
            };
            judge(&CHECK, &[run.run()]).unwrap().claims
        };
        assert_eq!(claims(Rated::at(100).done), [Claim::Distribution]);
        assert_eq!(claims(999), EVERYTHING);
    }

    /// Beside programs that took 83 % the remedy was a twentieth of the rate.
    #[test]
    fn beside_other_programs_the_remedy_is_a_quiet_moment() {
        let remedy = |others_s: f64| {
            let mut run = Rated {
                generator_lag_us: 900,
                response_us: 1_000,
                ..Rated::at(100)
            }
            .run();
            run.around.accounts = Some(Box::new(Accounts {
                between_s: 2.0,
                cpus: 1,
                others_s: Some(others_s),
                ..Accounts::default()
            }));
            judge(&CHECK, &[run]).unwrap().remedy.unwrap()
        };
        assert_eq!(remedy(0.09), Remedy::with("--rate", 10));
        assert_eq!(remedy(1.66), Remedy::wait_quiet());
        let machine = Rated {
            generator_lag_us: 900,
            canary_lag_us: 900,
            ..Rated::at(100)
        };
        let reason = judge(&CHECK, &[machine.run()]).unwrap();
        assert_eq!(reason.remedy, Some(Remedy::wait_quiet()));
    }

    /// Sends 91 us late, and a canary 108 us late, were called a fault on an idle
    /// machine where one sleep in ten ends 60 us late.
    #[test]
    fn what_every_sleep_here_is_late_by_is_no_fault() {
        let table = [
            // lag and response, us
            (91, 200, Status::Valid),
            (118, 200, Status::Valid),
            (122, 200, Status::Suspect),
            (235, 500, Status::Suspect),
            (245, 500, Status::Invalid),
            (122, 2_000, Status::Valid),
        ];
        for (generator_lag_us, response_us, is) in table {
            let run = Rated {
                generator_lag_us,
                response_us,
                ..Rated::at(100)
            };
            let found = judge_in(&CHECK, &late(40.0), &[run.run()]);
            let found = found.map_or(Status::Valid, |reason| reason.is);
            assert_eq!(found, is, "{generator_lag_us} {response_us}");
        }
    }

    #[test]
    fn a_canary_shares_only_what_goes_beyond_the_machine_s_own() {
        let who = |canary_lag_us| {
            let run = Rated {
                generator_lag_us: 1_000,
                canary_lag_us,
                ..Rated::at(100)
            };
            limit(&Evidence {
                experiment: &late(40.0),
                runs: &[&run.run()],
            })
        };
        // Half of what lies beyond 120 us.
        assert_eq!(who(510), Some(LimitedBy::Generator));
        assert_eq!(who(570), Some(LimitedBy::Machine));
    }

    /// `rate lockd --rate 1000 -t 1` was SUSPECT on a quiet machine for stalls in one or two of its
    /// runs, beside a table that had half of that lateness.
    #[test]
    fn a_stall_in_two_of_six_runs_is_no_more_the_generator_s_than_the_response_s() {
        let found = |late: usize, requests: u64| {
            let run = |nth| {
                let lag_us = if nth < late { 600 } else { 20 };
                let mut run = Rated {
                    generator_lag_us: lag_us,
                    response_us: 300,
                    ..Rated::at(100)
                }
                .run();
                let mut lag = Histogram::new();
                lag.record_n(lag_us * 1_000, requests);
                let lag = lag.to_buckets();
                run.histograms.insert("generator_lag_ns".to_owned(), lag);
                run
            };
            let runs: Vec<Run> = (0..6).map(run).collect();
            judge(&CHECK, &runs).map(|reason| reason.is)
        };
        assert_eq!(found(2, 1_000), None);
        assert_eq!(found(4, 1_000), Some(Status::Invalid));
        // Here the response's figure is of all requests together, too.
        assert_eq!(found(2, 999), Some(Status::Invalid));
    }

    /// At 2/s for 10 s a p99 is the latest of 20 requests.
    #[test]
    fn of_few_requests_a_percentile_with_ten_beyond_it_is_judged() {
        let with = |late: u64, of: u64| {
            let mut run = Rated::at(2).run();
            let mut lag = Histogram::new();
            lag.record_n(10_000_000, late);
            lag.record_n(20_000, of - late);
            let lag = lag.to_buckets();
            run.histograms.insert("generator_lag_ns".to_owned(), lag);
            judge(&CHECK, &[run])
        };
        assert!(with(1, 20).is_none());
        assert!(with(9, 100).is_none());
        let found = with(11, 100).unwrap();
        assert_eq!(found.is, Status::Invalid);
        assert!(found.text.contains("(p90; "), "{}", found.text);
        // From 1000 on it is p99.
        assert!(with(9, 1_000).is_none());
        assert!(with(11, 1_000).is_some());
    }

    #[test]
    fn one_in_a_hundred_that_a_free_slot_could_have_sent_flags_the_generator() {
        let with = |dropped_with_slot| {
            let mut run = Rated::at(100).run();
            let open = run.open_loop.as_mut().unwrap();
            open.dropped_with_slot = dropped_with_slot;
            judge(&CHECK, &[run]).map_or(Status::Valid, |reason| reason.is)
        };
        assert_eq!(with(10), Status::Valid);
        assert_eq!(with(11), Status::Invalid);
    }

    #[test]
    fn a_target_that_keeps_all_slots_busy_is_not_the_generator_s_fault() {
        let run = Rated {
            done: 300,
            response_us: 900_000,
            target_lag_us: 800_000,
            ..Rated::at(100)
        };
        assert_eq!(found(run), Status::Valid);
        assert_eq!(limited(&run.run()), Some(LimitedBy::Target));
        assert_eq!(limited(&Rated::at(100).run()), None);
    }

    #[test]
    fn a_generator_that_reads_its_answers_late_is_flagged_too() {
        use jostle_model::record::Server;
        let with = |queued_us: f64, served: bool| {
            let mut run = Rated::at(100).run();
            run.cpu.runqueue_wait_s = Some(queued_us * 1e-6 * run.operations as f64);
            run.server = served.then(Server::default);
            judge(&CHECK, &[run]).map_or(Status::Valid, |reason| reason.is)
        };
        // From sending to answer it takes 400 us.
        assert_eq!(with(49.0, true), Status::Valid);
        assert_eq!(with(60.0, true), Status::Suspect);
        assert_eq!(with(210.0, true), Status::Invalid);
        // What waits long for a slot because of that is no excuse.
        let mut crowded = Rated {
            response_us: 500_000,
            target_lag_us: 499_600,
            ..Rated::at(100)
        }
        .run();
        crowded.cpu.runqueue_wait_s = Some(300e-6 * crowded.operations as f64);
        crowded.server = Some(Server::default());
        assert_eq!(
            judge(&CHECK, &[crowded]).map(|reason| reason.is),
            Some(Status::Invalid)
        );
        // What runs in the worker's own process waits for its own CPU.
        assert_eq!(with(210.0, false), Status::Valid);
    }

    /// 76 us for each request were called a fault where a wake-up on another CPU takes
    /// 66 us and the machine was idle otherwise.
    #[test]
    fn what_two_wake_ups_take_here_is_no_fault() {
        use jostle_model::record::{Latencies, Server};
        let mut experiment = experiment();
        experiment.calibration.latencies = Some(Latencies {
            wake_same_cpu_ns: 3e3,
            wake_other_cpu_ns: Some(66e3),
            ..Latencies::default()
        });
        let with = |queued_us: f64| {
            let mut run = Rated::at(100).run();
            run.cpu.runqueue_wait_s = Some(queued_us * 1e-6 * run.operations as f64);
            run.server = Some(Server::default());
            judge_in(&CHECK, &experiment, &[run]).map_or(Status::Valid, |reason| reason.is)
        };
        assert_eq!(with(131.0), Status::Valid);
        assert_eq!(with(133.0), Status::Suspect);
        assert_eq!(with(263.0), Status::Suspect);
        assert_eq!(with(265.0), Status::Invalid);
    }

    #[test]
    fn what_a_canary_shares_is_the_machine_s() {
        let late = |canary_lag_us| Rated {
            generator_lag_us: 1_000,
            canary_lag_us,
            ..Rated::at(100)
        };
        assert_eq!(limited(&late(20).run()), Some(LimitedBy::Generator));
        assert_eq!(limited(&late(490).run()), Some(LimitedBy::Generator));
        assert_eq!(limited(&late(510).run()), Some(LimitedBy::Machine));
        let text = judge(&CHECK, &[late(900).run()]).unwrap().text;
        assert!(text.contains("the machine is the limit"), "{text}");
    }
}
