//! The text of the progress line: the current run, the point's figures so far, and the
//! remaining time; and the provisional rows above it, which have neither verdict nor order,
//! since both need all runs. Pure; the caller passes the time in.

use jostle_model::Nanos;
use jostle_model::record::{At, Distribution, Run, Status};
use jostle_model::swept::SWEPT;
use jostle_stats::intervals::median;
use jostle_stats::numbers::{grouped, time};
use std::collections::BTreeMap;
use std::time::Duration;

/// The runs of one experiment, as far as they were made. Times are counted from its
/// beginning.
#[derive(Debug, Default)]
pub(super) struct RunProgress {
    /// None before it is known.
    planned: Option<Planned>,
    /// When the first run began.
    began: Option<Duration>,
    /// Runs that were made, and when the last of them ended.
    done: usize,
    ended: Duration,
    /// The point that is measured now.
    now: Option<Now>,
    /// The figures of each point's runs.
    seen: BTreeMap<String, Seen>,
    /// The points with a finished run, in the order of their first ones.
    points: Vec<String>,
}

/// The plan of the measurement.
#[derive(Clone, Copy, Debug)]
struct Planned {
    /// Points of a round.
    points: usize,
    /// Rounds of one run of each point.
    rounds: usize,
    /// The time that all of it should take.
    takes: Nanos,
}

/// A run in progress.
#[derive(Debug)]
struct Now {
    point: String,
    run: u32,
}

/// The figures of a point's runs.
#[derive(Debug, Default)]
struct Seen {
    /// All that were made.
    runs: usize,
    /// The headline figure of those that are not INVALID, and its words.
    figures: Vec<f64>,
    reads: Option<Reads>,
    overlaps: Option<u64>,
    /// Share of the CPUs that other programs used in the last run.
    neighbours: Option<f64>,
}

/// How a figure is written: `968/s`, `connect() in 41 us`.
type Reads = fn(f64) -> String;

impl RunProgress {
    /// So many rounds of so many points are to be made, which should take so long. A
    /// sweep plans after its first round, which counts.
    pub(super) fn planned(&mut self, points: usize, rounds: usize, takes: Nanos, now: Duration) {
        self.planned = Some(Planned {
            points,
            rounds,
            takes,
        });
        self.ended = now;
    }

    /// A run begins.
    pub(super) fn begins(&mut self, target: &str, at: At, run: u32, now: Duration) {
        self.began.get_or_insert(now);
        let point = format!("{target}{}", place(at));
        self.now = Some(Now { point, run });
    }

    /// It is done.
    pub(super) fn done(&mut self, run: &Run, now: Duration) {
        self.done += 1;
        self.ended = now;
        let Some(current) = &self.now else { return };
        if !self.seen.contains_key(&current.point) {
            self.points.push(current.point.clone());
        }
        let seen = self.seen.entry(current.point.clone()).or_default();
        seen.runs += 1;
        if let Some((figure, reads)) = figure(run).filter(|_| run.verdict.is != Status::Invalid) {
            seen.figures.push(figure);
            seen.reads = Some(reads);
        }
        if let Some(exclusion) = &run.exclusion {
            *seen.overlaps.get_or_insert(0) += exclusion.violations;
        }
        seen.neighbours = run.around.accounts.as_deref().and_then(|accounts| {
            let span_s = accounts.between_s * accounts.cpus as f64;
            Some(accounts.others_s? / span_s).filter(|share| share.is_finite())
        });
    }

    /// `point 3 of 14, run 2 of 6, 1 min 20 s left: flock -w 100`. None before the first
    /// run. What was measured stands in the rows.
    pub(super) fn words(&self, now: Duration) -> Option<String> {
        let run = self.now.as_ref()?;
        let place = match self.planned {
            Some(planned) if run.run as usize <= planned.rounds => format!(
                "point {} of {}, run {} of {}",
                self.done % planned.points.max(1) + 1,
                planned.points,
                run.run,
                planned.rounds
            ),
            // Rounds are added where a figure is not precise yet.
            _ => format!("run {}", run.run),
        };
        Some(format!("{place}, {}: {}", self.left(now), run.point))
    }

    /// A row for each point with a finished run, in the order of their first ones: `flock -w
    /// 10  so far, 2 of 6 runs: 968/s ±2 %, 0 overlaps`.
    pub(super) fn rows(&self) -> Vec<String> {
        let name = |point: &String| point.chars().count();
        let width = self.points.iter().map(name).max().unwrap_or(0);
        let row = |point: &String| {
            let seen = self.seen.get(point)?;
            let runs = match self.planned {
                Some(planned) if seen.runs <= planned.rounds => {
                    format!("{} of {}", seen.runs, counted(planned.rounds))
                }
                _ => counted(seen.runs),
            };
            Some(format!("{point:<width$}  so far, {runs}: {}", seen.words()))
        };
        self.points.iter().filter_map(row).collect()
    }

    /// The remaining time, estimated from the runs so far, or before the first run from the
    /// plan.
    fn left(&self, now: Duration) -> String {
        let Some(planned) = self.planned else {
            return "time left unknown".to_owned();
        };
        let runs = planned.points * planned.rounds;
        if self.done >= runs {
            return "until the figures are precise".to_owned();
        }
        let expected = Duration::from_nanos(planned.takes.0) / runs as u32;
        let made = self.ended.saturating_sub(self.began.unwrap_or_default());
        let each = match self.done {
            0 => expected,
            done => {
                let mean = made / done as u32;
                // Points differ: those of half a round do not stand for the others.
                let is_whole = done >= planned.points;
                if is_whole { mean } else { mean.max(expected) }
            }
        };
        let ends = self.ended + each * (runs - self.done) as u32;
        match ends.checked_sub(now) {
            Some(left) => format!("{} left", span(left)),
            None => "longer than expected".to_owned(),
        }
    }
}

impl Seen {
    /// `968/s ±2 %, 0 overlaps, neighbours 4 %`; of a single run `about 968/s`.
    fn words(&self) -> String {
        let figure = median(&self.figures).zip(self.reads);
        let figure = figure.map(|(median, reads)| match self.figures[..] {
            [_] => format!("about {}", reads(median)),
            _ => format!("{}{}", reads(median), self.spread(median)),
        });
        let overlaps = self.overlaps.map(|overlaps| {
            let noun = if overlaps == 1 { "overlap" } else { "overlaps" };
            format!("{} {noun}", grouped(overlaps))
        });
        let neighbours = self
            .neighbours
            .map(|share| format!("neighbours {:.0} %", 100.0 * share));
        let figure = figure.unwrap_or_else(|| "no figure yet".to_owned());
        let parts = [Some(figure), overlaps, neighbours];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Half the range of the runs, as a share of their median.
    fn spread(&self, median: f64) -> String {
        let ends = |(low, high): (f64, f64), value: &f64| (low.min(*value), high.max(*value));
        let (low, high) = self.figures.iter().fold((f64::INFINITY, 0.0), ends);
        match median > 0.0 {
            true => format!(" ±{:.0} %", 50.0 * (high - low) / median),
            false => String::new(),
        }
    }
}

/// A run's main figure, as `figures::headline` has it for a plan.
fn figure(run: &Run) -> Option<(f64, Reads)> {
    let p50 = |times: &Option<Distribution>| Some(*times.as_ref()?.percentiles.get("p50")? as f64);
    if let Some(recovery) = &run.recovery {
        let grant = recovery.next_grant_ns? as f64;
        return Some((grant, |ns| format!("next grant after {}", time(ns))));
    }
    if let Some(verified) = &run.verified {
        return Some((verified.violations() as f64, |n| match n {
            0.0 => "no violation".to_owned(),
            n => format!("{n} violations"),
        }));
    }
    if let Some(ns) = p50(&run.times.connect_ns) {
        return Some((ns, |ns| format!("connect() in {}", time(ns))));
    }
    if let Some(ns) = p50(&run.times.bind_ns) {
        return Some((ns, |ns| format!("bind() in {}", time(ns))));
    }
    match (run.at.rate, p50(&run.times.response_ns)) {
        (Some(_), Some(ns)) => Some((ns, |ns| format!("answered in {}", time(ns)))),
        _ => Some((run.throughput_per_s, |per_s| {
            format!("{}/s", grouped(per_s.round() as u64))
        })),
    }
}

/// `1 run`, `6 runs`.
fn counted(runs: usize) -> String {
    format!("{runs} {}", if runs == 1 { "run" } else { "runs" })
}

/// `45 s`, `1 min 20 s`, `2 h 5 min`.
fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds < 60 => format!("{seconds} s"),
        seconds if seconds < 3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// The swept values of a point, as options.
pub(crate) fn place(at: At) -> String {
    let parts = SWEPT.iter();
    parts
        .filter_map(|swept| Some(format!(" {} {}", swept.option, (swept.text)(&at)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::plan::Fault;
    use jostle_model::record::{Accounts, Circumstances, Exclusion, Times};

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn at(workers: u64) -> At {
        At {
            workers: Some(workers),
            ..At::default()
        }
    }

    fn point(per_s: f64, violations: u64) -> Run {
        Run {
            throughput_per_s: per_s,
            exclusion: Some(Exclusion {
                violations,
                ..Exclusion::default()
            }),
            around: Circumstances {
                accounts: Some(Box::new(Accounts {
                    between_s: 1.0,
                    cpus: 2,
                    others_s: Some(0.08),
                    ..Accounts::default()
                })),
                ..Circumstances::default()
            },
            ..Run::default()
        }
    }

    #[test]
    fn the_line_shows_where_it_is_and_what_is_left() {
        let mut runs = RunProgress::default();
        assert_eq!(runs.words(S(0)), None);
        runs.planned(2, 2, Nanos(40_000_000_000), S(5));
        runs.begins("flock", at(100), 1, S(5));
        assert_eq!(
            runs.words(S(6)).unwrap(),
            "point 1 of 2, run 1 of 2, 39 s left: flock -w 100"
        );
        // Runs take longer than was planned.
        runs.done(&point(950.0, 0), S(35));
        runs.begins("flock", at(100), 2, S(35));
        assert_eq!(
            runs.words(S(45)).unwrap(),
            "point 2 of 2, run 2 of 2, 1 min 20 s left: flock -w 100"
        );
        runs.done(&point(1_050.0, 1), S(65));
        runs.begins("sysv", at(100), 1, S(65));
        assert_eq!(
            runs.words(S(65)).unwrap(),
            "point 1 of 2, run 1 of 2, 1 min 0 s left: sysv -w 100"
        );
        let words = runs.words(S(130)).unwrap();
        assert!(words.contains(", longer than expected: "), "{words}");
    }

    /// Until the first round is over, runs that are over sooner say nothing of those to come:
    /// a fault of 0.2 s stood for ones of 6 s, and the line said `0 s left`.
    #[test]
    fn short_runs_of_the_first_round_do_not_stand_for_the_others() {
        let mut runs = RunProgress::default();
        runs.planned(2, 3, Nanos(60_000_000_000), S(0));
        runs.begins("flock", at(1), 1, S(0));
        runs.done(&point(36.0, 0), S(1));
        runs.begins("redis", at(1), 1, S(1));
        let words = runs.words(S(1)).unwrap();
        assert!(words.contains(" 50 s left: redis"), "{words}");
        runs.done(&point(2.0, 0), S(3));
        let words = runs.words(S(3)).unwrap();
        assert!(words.contains(", 6 s left: "), "{words}");
    }

    #[test]
    fn rows_are_provisional_and_become_firmer() {
        let mut runs = RunProgress::default();
        runs.planned(2, 2, Nanos(40_000_000_000), S(5));
        assert!(runs.rows().is_empty());
        let mut run = |made: &Run, target: &str, workers: u64, run: u32| {
            runs.begins(target, at(workers), run, S(5));
            runs.done(made, S(6));
            runs.rows()
        };
        let verdict = |is: Status, mut run: Run| {
            run.verdict.is = is;
            run
        };
        let rest = "0 overlaps, neighbours 4 %";
        assert_eq!(
            run(&point(950.0, 0), "flock", 100, 1),
            [format!(
                "flock -w 100  so far, 1 of 2 runs: about 950/s, {rest}"
            )]
        );
        // As in the table, a figure of an INVALID run is not printed; and there is no verdict
        // before all runs are made.
        run(&verdict(Status::Invalid, point(7.0, 3)), "sysv", 2, 1);
        run(
            &verdict(Status::Suspect, point(1_050.0, 0)),
            "flock",
            100,
            2,
        );
        assert_eq!(
            run(&point(500.0, 0), "sysv", 2, 2),
            [
                format!("flock -w 100  so far, 2 of 2 runs: 1,000/s ±5 %, {rest}"),
                "sysv -w 2     so far, 2 of 2 runs: about 500/s, 3 overlaps, neighbours 4 %"
                    .to_owned(),
            ]
        );
        assert_eq!(
            run(&verdict(Status::Invalid, point(7.0, 0)), "sysv", 9, 1)[2],
            format!("sysv -w 9     so far, 1 of 2 runs: no figure yet, {rest}")
        );
    }

    #[test]
    fn a_row_shows_what_its_workload_is_known_by() {
        let median = |ns| {
            Some(Distribution {
                percentiles: [("p50".to_owned(), ns)].into(),
                ..Distribution::default()
            })
        };
        let of = |run: Run| figure(&run).map(|(figure, reads)| reads(figure));
        let (plain, ns) = (Run::default(), 41_000);
        let opened = |connect_ns, bind_ns| Run {
            times: Times {
                connect_ns,
                bind_ns,
                ..Times::default()
            },
            ..plain.clone()
        };
        assert_eq!(
            of(opened(median(ns), median(5))).unwrap(),
            "connect() in 41 us"
        );
        assert_eq!(of(opened(None, median(ns))).unwrap(), "bind() in 41 us");
        let mut answered = Run {
            times: Times {
                response_ns: median(ns),
                ..Times::default()
            },
            ..plain.clone()
        };
        assert_eq!(of(answered.clone()).unwrap(), "0/s");
        answered.at.rate = Some(1_000);
        assert_eq!(of(answered).unwrap(), "answered in 41 us");
        // Where a lock stays its owner's there is no next grant.
        let struck = |next_grant_ns: Option<u64>| Run {
            recovery: serde_json::from_value(serde_json::json!({
                "fault": "kill", "waiters": 1, "within_ns": 0, "struck_at_ns": 0,
                "struck_by_ns": 0, "served": 0, "next_grant_ns": next_grant_ns, "history": [],
            }))
            .unwrap(),
            ..plain.clone()
        };
        assert_eq!(
            of(struck(Some(1_900_000_000))).unwrap(),
            "next grant after 1.9 s"
        );
        assert_eq!(of(struck(None)), None);
    }

    #[test]
    fn what_cannot_be_known_is_not_made_up() {
        let mut runs = RunProgress::default();
        runs.begins("tcp", at(1), 1, S(0));
        assert_eq!(
            runs.words(S(1)).unwrap(),
            "run 1, time left unknown: tcp -w 1"
        );
        runs.planned(1, 1, Nanos(1_000_000_000), S(2));
        runs.done(&point(0.0, 0), S(3));
        runs.begins("tcp", at(1), 2, S(3));
        assert_eq!(
            runs.words(S(4)).unwrap(),
            "run 2, until the figures are precise: tcp -w 1"
        );
    }

    #[test]
    fn faults_are_told_apart() {
        let struck = At {
            fault: Some(Fault::Kill),
            ..At::default()
        };
        assert_eq!(place(struck), " --fault kill");
        assert_eq!(place(at(2)), " -w 2");
    }

    #[test]
    fn spans_have_two_units_at_most() {
        assert_eq!(span(S(59)), "59 s");
        assert_eq!(span(S(3_599)), "59 min 59 s");
        assert_eq!(span(S(7_500)), "2 h 5 min");
    }
}
