//! The text of the progress line: the current run, the point's figures so far, and the
//! remaining time. Pure; the caller passes the time in.

use jostle_model::Nanos;
use jostle_model::record::{At, Is, Point};
use jostle_stats::intervals::median;
use jostle_stats::numbers::grouped;
use std::collections::BTreeMap;
use std::time::Duration;

/// The runs of one experiment, as far as they were made. Times are counted from its
/// beginning.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// None before it is known.
    planned: Option<Planned>,
    /// When the first run began.
    began: Option<Duration>,
    /// Runs that were made, and when the last of them ended.
    done: usize,
    ended: Duration,
    /// The point that is measured now.
    now: Option<Now>,
    /// What each point's runs measured.
    seen: BTreeMap<String, Seen>,
    /// The points with a finished run, in the order of their first ones.
    points: Vec<String>,
}

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
struct Planned {
    /// Points of a round.
    points: usize,
    /// Rounds of one run of each point.
    rounds: usize,
    /// What all of it should take.
    takes: Nanos,
}

/// A run in progress.
#[derive(Debug)]
struct Now {
    point: String,
    run: u32,
}

/// What the runs of a point measured.
#[derive(Debug, Default)]
struct Seen {
    per_s: Vec<f64>,
    overlaps: Option<u64>,
    /// Share of the CPUs that other programs used in the last run.
    neighbours: Option<f64>,
    /// The gravest verdict of a run.
    verdict: Is,
}

impl Course {
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
    pub(super) fn done(&mut self, point: &Point, now: Duration) {
        self.done += 1;
        self.ended = now;
        let Some(run) = &self.now else { return };
        if !self.seen.contains_key(&run.point) {
            self.points.push(run.point.clone());
        }
        let seen = self.seen.entry(run.point.clone()).or_default();
        seen.verdict = graver(seen.verdict, point.verdict.is);
        seen.per_s.push(point.throughput_per_s);
        if let Some(exclusion) = &point.exclusion {
            *seen.overlaps.get_or_insert(0) += exclusion.violations;
        }
        seen.neighbours = point.accounts.as_deref().and_then(|accounts| {
            let span_s = accounts.between_s * accounts.cpus as f64;
            Some(accounts.others_s? / span_s).filter(|share| share.is_finite())
        });
    }

    /// `point 3 of 14, run 2 of 6, 1 min 20 s left: flock -w 100; so far 968/s ±2 %, 0
    /// overlaps, neighbours 4 %`. None before the first run.
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
        // A narrow terminal cuts the end off.
        let mut words = format!("{place}, {}: {}", self.left(now), run.point);
        let usable = |seen: &&Seen| seen.verdict != Is::Invalid;
        let seen = self.seen.get(&run.point).filter(usable);
        if let Some(seen) = seen.and_then(Seen::words) {
            words += "; so far ";
            words += &seen;
        }
        Some(words)
    }

    /// A row for each point with a finished run: `flock -w 10   2 of 6 runs  968/s ±2 %, 0
    /// overlaps  VALID`. The verdict is the gravest of its runs; that of the point, over
    /// all its runs, is known at the end.
    pub(super) fn rows(&self) -> Vec<String> {
        let name = |point: &String| point.chars().count();
        let width = self.points.iter().map(name).max().unwrap_or(0);
        let row = |point: &String| {
            let seen = self.seen.get(point)?;
            let runs = match self.planned {
                Some(planned) if seen.per_s.len() <= planned.rounds => {
                    format!("{} of {} runs", seen.per_s.len(), planned.rounds)
                }
                _ => format!("{} runs", seen.per_s.len()),
            };
            let verdict = match seen.verdict {
                Is::Valid => "VALID",
                Is::Suspect => "SUSPECT",
                Is::Invalid => "INVALID",
            };
            // As in the table, an INVALID figure is not printed.
            let figures = match seen.verdict {
                Is::Invalid => String::new(),
                _ => seen.words()?,
            };
            Some(format!(
                "{point:<width$}  {runs:>12}  {verdict:<7}  {figures}"
            ))
        };
        let rows = self.points.iter().filter_map(row);
        rows.map(|row| row.trim_end().to_owned()).collect()
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
        let each = match self.done {
            0 => Duration::from_nanos(planned.takes.0) / runs as u32,
            done => self.ended.saturating_sub(self.began.unwrap_or_default()) / done as u32,
        };
        let ends = self.ended + each * (runs - self.done) as u32;
        match ends.checked_sub(now) {
            Some(left) => format!("{} left", span(left)),
            None => "longer than expected".to_owned(),
        }
    }
}

impl Seen {
    /// `968/s ±2 %, 0 overlaps, neighbours 4 %`.
    fn words(&self) -> Option<String> {
        let rate = median(&self.per_s)?;
        let (low, high) = self
            .per_s
            .iter()
            .fold((f64::INFINITY, 0.0_f64), |(low, high), rate| {
                (low.min(*rate), high.max(*rate))
            });
        let mut words = format!("{}/s", grouped(rate.round() as u64));
        if self.per_s.len() > 1 && rate > 0.0 {
            words += &format!(" ±{:.0} %", 50.0 * (high - low) / rate);
        }
        if let Some(overlaps) = self.overlaps {
            let noun = if overlaps == 1 { "overlap" } else { "overlaps" };
            words += &format!(", {} {noun}", grouped(overlaps));
        }
        if let Some(share) = self.neighbours {
            words += &format!(", neighbours {:.0} %", 100.0 * share);
        }
        Some(words)
    }
}

fn graver(one: Is, other: Is) -> Is {
    match (one, other) {
        (Is::Invalid, _) | (_, Is::Invalid) => Is::Invalid,
        (Is::Suspect, _) | (_, Is::Suspect) => Is::Suspect,
        (Is::Valid, Is::Valid) => Is::Valid,
    }
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
    let parts = [
        ("-w", at.workers),
        ("-n", at.operations),
        ("--keys", at.keys),
        ("--open", at.open),
        ("--listeners", at.listeners),
        ("--sources", at.sources),
        ("--rate", at.rate),
        ("--generators", at.generators),
    ];
    let parts = parts
        .iter()
        .filter_map(|(option, value)| Some(format!(" {option} {}", (*value)?)));
    let fault = at.fault.map(|fault| format!(" --fault {fault}"));
    parts.chain(fault).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::plan::Fault;
    use jostle_model::record::{Accounts, Exclusion};

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn at(workers: u64) -> At {
        At {
            workers: Some(workers),
            ..At::default()
        }
    }

    fn point(per_s: f64, violations: u64) -> Point {
        Point {
            throughput_per_s: per_s,
            exclusion: Some(Exclusion {
                violations,
                ..Exclusion::default()
            }),
            accounts: Some(Box::new(Accounts {
                between_s: 1.0,
                cpus: 2,
                others_s: Some(0.08),
                ..Accounts::default()
            })),
            ..Point::default()
        }
    }

    #[test]
    fn the_line_says_where_it_is_what_was_measured_and_what_is_left() {
        let mut course = Course::default();
        assert_eq!(course.words(S(0)), None);
        course.planned(2, 2, Nanos(40_000_000_000), S(5));
        course.begins("flock", at(100), 1, S(5));
        assert_eq!(
            course.words(S(6)).unwrap(),
            "point 1 of 2, run 1 of 2, 39 s left: flock -w 100"
        );
        // Runs take longer than was planned.
        course.done(&point(950.0, 0), S(35));
        course.begins("flock", at(100), 2, S(35));
        assert_eq!(
            course.words(S(45)).unwrap(),
            "point 2 of 2, run 2 of 2, 1 min 20 s left: flock -w 100; so far 950/s, 0 overlaps, \
             neighbours 4 %"
        );
        course.done(&point(1_050.0, 1), S(65));
        course.begins("sysv", at(100), 1, S(65));
        assert_eq!(
            course.words(S(65)).unwrap(),
            "point 1 of 2, run 1 of 2, 1 min 0 s left: sysv -w 100"
        );
        course.begins("flock", at(100), 3, S(66));
        let words = course.words(S(130)).unwrap();
        assert!(words.contains("so far 1,000/s ±5 %, 1 overlap,"), "{words}");
        assert!(words.contains(", longer than expected: "), "{words}");
        // As in the table, an INVALID figure is not printed.
        let mut invalid = point(7.0, 3);
        invalid.verdict.is = Is::Invalid;
        course.done(&invalid, S(131));
        let words = course.words(S(132)).unwrap();
        assert!(words.ends_with(": flock -w 100"), "{words}");
    }

    #[test]
    fn the_table_has_a_row_for_each_point_and_grows() {
        let mut course = Course::default();
        course.planned(2, 2, Nanos(40_000_000_000), S(5));
        assert!(course.rows().is_empty());
        let mut run = |point: &Point, target: &str, workers: u64, run: u32| {
            course.begins(target, at(workers), run, S(5));
            course.done(point, S(6));
            course.rows()
        };
        let mut invalid = point(7.0, 3);
        invalid.verdict.is = Is::Invalid;
        run(&point(950.0, 0), "flock", 100, 1);
        run(&point(1_050.0, 0), "flock", 100, 2);
        assert_eq!(
            run(&invalid, "sysv", 2, 1),
            [
                "flock -w 100   2 of 2 runs  VALID    1,000/s ±5 %, 0 overlaps, neighbours 4 %",
                "sysv -w 2      1 of 2 runs  INVALID",
            ]
        );
    }

    #[test]
    fn what_cannot_be_known_is_not_made_up() {
        let mut course = Course::default();
        course.begins("tcp", at(1), 1, S(0));
        assert_eq!(
            course.words(S(1)).unwrap(),
            "run 1, time left unknown: tcp -w 1"
        );
        course.planned(1, 1, Nanos(1_000_000_000), S(2));
        course.done(&point(0.0, 0), S(3));
        course.begins("tcp", at(1), 2, S(3));
        assert_eq!(
            course.words(S(4)).unwrap(),
            "run 2, until the figures are precise: tcp -w 1; so far 0/s, 0 overlaps, neighbours 4 %"
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
