//! The part about several hosts in the formats for people: a table with each host's own
//! figures, and the spread of their starts.
//!
//! This module judges nothing: the records have the hosts' verdicts, and
//! `jostle_stats::tail` finds the owners of the tail.

use crate::columns::Shown;
use crate::format::{each_once, grouped, percent, range, significant, time};
use crate::grid::{Heading, Titled};
use crate::recover::signed;
use crate::requests::{named_once, short};
use jostle_model::hosts::{HostCeiling, HostPart};
use jostle_model::record::{Experiment, Run, Status};
use jostle_model::swept::{SWEPT, Swept};
use jostle_stats::summary::PointSummary;
use jostle_stats::tail;
use std::collections::BTreeSet;

/// Up to this many hosts, each host of a point has a line.
const IN_FULL: usize = 8;

const TITLE: &str = "Each host in the run of median rate, by its own clock and window, and its \
                     verdict over all runs (late: first worker after the agreed start, in rank \
                     0's time, ± what is not known of the clocks";
const STAR: &str = "; * owns the tail: at least twice its share of the requests beyond everybody's \
                    99th percentile";

/// None where no point has hosts. Notes go on after those of the headline.
pub(crate) fn table(
    experiment: &Experiment,
    points: &[PointSummary<'_>],
    headline: &[String],
) -> Option<Titled> {
    let points: Vec<Lines<'_>> = points.iter().filter_map(Lines::by_host).collect();
    let swept = swept(&points);
    let is_known = |column: &&Column| column.of_any(&points, experiment);
    let columns: Vec<&Column> = COLUMNS.iter().filter(is_known).collect();
    let mut headings = vec![Heading::left("target").key()];
    let heading = |swept: &&Swept| Heading::right(swept.heading[0], swept.heading[1]).key();
    headings.extend(swept.iter().map(heading));
    headings.push(Heading::left("host").key());
    headings.extend(columns.iter().map(|column| column.heading()));
    headings.push(Heading::left("verdict"));
    let mut rows = Vec::new();
    let mut notes = Notes {
        headline,
        own: Vec::new(),
    };
    let mut introduced = BTreeSet::new();
    let names = named_once(points.iter().map(|lines| lines.point));
    for (lines, (name, _)) in points.iter().zip(names) {
        let mut point = vec![short(name)];
        let values = swept.iter().map(|swept| (swept.of)(&lines.point.at));
        point.extend(values.map(|value| value.map_or("-".to_owned(), grouped)));
        let shown = lines.shown();
        for part in &shown {
            let line = Line {
                experiment,
                point: lines.point,
                part,
                first: introduced.insert((lines.point.target, part.rank)),
            };
            let mut row = std::mem::replace(&mut point, vec![String::new(); swept.len() + 1]);
            row.push(lines.name(part));
            row.extend(columns.iter().map(|column| column.cell(&line)));
            row.push(verdict(lines, part, &mut notes));
            rows.push(row);
        }
        rows.extend(rest(lines, &shown, &columns, swept.len() + 1, &mut notes));
    }
    let starred = points.iter().any(|lines| !lines.owners.is_empty());
    let star = if starred { STAR } else { "" };
    (!rows.is_empty()).then(|| Titled {
        notes: notes.own,
        ..Titled::new(&format!("{TITLE}{star}):"), headings, rows)
    })
}

/// A point, and what is asked of it for its lines.
struct Lines<'a> {
    point: &'a PointSummary<'a>,
    /// The hosts' parts in the run of median rate.
    parts: &'a [HostPart],
    /// Ranks that own the tail.
    owners: Vec<u64>,
}

impl<'a> Lines<'a> {
    fn by_host(point: &'a PointSummary<'a>) -> Option<Lines<'a>> {
        let parts = &point.median_run()?.hosts;
        let (hosts, tails) = tail::pooled(&point.timed);
        let owners = tail::owners(&tails).into_iter();
        (!parts.is_empty()).then(|| Lines {
            point,
            parts,
            owners: owners.map(|at| hosts[at].0).collect(),
        })
    }

    /// The hosts that get a line. Of few hosts, all. Of many, the owners of the tail, the
    /// slowest, the fastest and all that were INVALID in any run, and then SUSPECT ones
    /// while there is room.
    fn shown(&self) -> Vec<&'a HostPart> {
        if self.parts.len() <= IN_FULL {
            return self.parts.iter().collect();
        }
        let rate = |a: &&HostPart, b: &&HostPart| a.throughput_per_s.total_cmp(&b.throughput_per_s);
        let slowest = self.parts.iter().min_by(rate);
        let fastest = self.parts.iter().max_by(rate);
        let mut ranks: BTreeSet<u64> = self.owners.iter().copied().collect();
        ranks.extend(slowest.into_iter().chain(fastest).map(|part| part.rank));
        let of = |is: Status| {
            let parts = self.parts.iter().map(|part| part.rank);
            parts.filter(move |rank| self.worst(*rank).0 == is)
        };
        ranks.extend(of(Status::Invalid));
        for rank in of(Status::Suspect) {
            if ranks.len() < IN_FULL {
                ranks.insert(rank);
            }
        }
        let shown = self.parts.iter();
        shown.filter(|part| ranks.contains(&part.rank)).collect()
    }

    /// The host's name, with its rank if several ranks have the same name.
    fn name(&self, part: &HostPart) -> String {
        let alike = self.parts.iter().filter(|other| other.host == part.host);
        let name = match alike.count() {
            1 => part.host.clone(),
            _ => format!("{} rank {}", part.host, part.rank),
        };
        match self.owners.contains(&part.rank) {
            true => name + "*",
            false => name,
        }
    }

    /// Its gravest verdict, and in how many of the runs in which it took part.
    fn worst(&self, rank: u64) -> (Status, usize, usize) {
        let verdicts: Vec<Status> = self.runs_of(rank).map(|part| part.verdict.is).collect();
        let worst = verdicts.iter().copied().max().unwrap_or_default();
        let count = verdicts.iter().filter(|is| **is == worst).count();
        (worst, count, verdicts.len())
    }

    fn runs_of(&self, rank: u64) -> impl Iterator<Item = &'a HostPart> {
        let rows = self.point.runs.iter().flat_map(|run| &run.hosts);
        rows.filter(move |part| part.rank == rank)
    }
}

/// The values of a point that tell it from others.
fn swept(points: &[Lines<'_>]) -> Vec<&'static Swept> {
    let differs = |swept: &&Swept| {
        let values = points.iter().map(|lines| (swept.of)(&lines.point.at));
        values.collect::<BTreeSet<_>>().len() > 1
    };
    SWEPT.iter().copied().filter(differs).collect()
}

/// One host in one point.
struct Line<'a> {
    experiment: &'a Experiment,
    point: &'a PointSummary<'a>,
    part: &'a HostPart,
    /// The host has had no line before with this target.
    first: bool,
}

impl Line<'_> {
    fn ceiling(&self) -> Option<&HostCeiling> {
        let mut all = self.experiment.calibration.host_ceilings.iter();
        all.find(|one| one.target == self.point.target && one.rank == self.part.rank)
    }
}

struct Column {
    title: [&'static str; 2],
    shown: Shown,
    cell: fn(&Line<'_>) -> Option<String>,
}

const fn column(
    title: [&'static str; 2],
    shown: Shown,
    cell: fn(&Line<'_>) -> Option<String>,
) -> Column {
    Column { title, shown, cell }
}

/// Counts and start times are printed whatever the verdict, because they are facts. Columns
/// printed once hardly change between points.
static COLUMNS: &[Column] = &[
    column(["", "workers"], Shown::Always, |line| {
        Some(grouped(line.part.workers))
    }),
    column(["alone", "ops/s"], Shown::Once, |line| {
        Some(significant(line.ceiling()?.throughput_per_s, 3))
    }),
    column(["", "ops/s"], Shown::Always, |line| {
        Some(significant(line.part.throughput_per_s, 3))
    }),
    column(["", "p50"], Shown::UnlessInvalid, |line| {
        percentile(line, "p50")
    }),
    column(["", "p99"], Shown::UnlessInvalid, |line| {
        percentile(line, "p99")
    }),
    column(["CPU us", "/op"], Shown::UnlessInvalid, |line| {
        Some(significant(line.part.cpu_us_per_operation?, 2))
    }),
    column(["", "busy"], Shown::Always, |line| {
        Some(percent(line.part.busy_share?.min(1.0)))
    }),
    column(["", "late"], Shown::Always, |line| {
        Some(signed(line.part.late_ns))
    }),
    column(["", "± clock"], Shown::Always, |line| {
        Some(uncertainty(line.part.clock_within_ns))
    }),
    column(["clock", "ahead"], Shown::Once, |line| {
        Some(signed(line.part.clock_ahead_ns))
    }),
];

impl Column {
    fn heading(&self) -> Heading {
        let [upper, lower] = self.title;
        Heading {
            close: lower == "± clock",
            ..Heading::right(upper, lower)
        }
    }

    /// A column that no host has a value for is left out.
    fn of_any(&self, points: &[Lines<'_>], experiment: &Experiment) -> bool {
        let mut lines = points.iter().flat_map(|lines| {
            lines.parts.iter().map(|part| Line {
                experiment,
                point: lines.point,
                part,
                first: true,
            })
        });
        lines.any(|line| (self.cell)(&line).is_some())
    }

    fn cell(&self, line: &Line<'_>) -> String {
        let text = match self.shown {
            Shown::Once if !line.first => return String::new(),
            Shown::UnlessInvalid if line.part.verdict.is == Status::Invalid => None,
            _ => (self.cell)(line),
        };
        text.unwrap_or_else(|| "-".to_owned())
    }
}

fn percentile(line: &Line<'_>, name: &str) -> Option<String> {
    let timed = !line.point.timed.is_empty();
    let latency = line.part.latency_ns.as_ref().filter(|_| timed);
    let nanos = latency?.percentiles.get(name)?;
    Some(time(*nanos as f64))
}

/// Rounded up to two digits: it must not look smaller than it is. Rank 0's own clock
/// has none.
fn uncertainty(nanos: u64) -> String {
    let magnitude = nanos.checked_ilog10().unwrap_or(0);
    let step = 10u64.pow(magnitude.saturating_sub(1));
    match nanos {
        0 => String::new(),
        n => format!("±{}", time(n.next_multiple_of(step) as f64)),
    }
}

/// The reasons of verdicts by their numbers.
struct Notes<'a> {
    headline: &'a [String],
    own: Vec<(String, String)>,
}

impl Notes<'_> {
    /// The mark of the note about a check. Hosts whose reasons differ only in figures share
    /// one note: the headline's if it has one, otherwise the first of the worst.
    fn mark(&mut self, lines: &Lines<'_>, check: &str) -> Option<String> {
        let rows = lines.point.runs.iter().flat_map(|run| &run.hosts);
        let said = rows.flat_map(|part| {
            let of_check = part.verdict.reasons.iter().filter(|r| r.check == check);
            of_check.map(|reason| (reason.is, format!("{}: {}", part.host, reason.text)))
        });
        let said: Vec<(Status, String)> = said.collect();
        let gravest = said.iter().map(|(is, _)| *is).max()?;
        let told = said.iter().find(|(_, text)| {
            let mut notes = self.headline.iter();
            notes.any(|note| note.contains(text.as_str()))
        });
        let (_, text) = told.or(said.iter().find(|(is, _)| *is == gravest))?;
        let mut headline = self.headline.iter();
        if let Some(at) = headline.position(|note| note.contains(text.as_str())) {
            return Some(format!("[{}]", at + 1));
        }
        if let Some((mark, _)) = self.own.iter().find(|(_, note)| note == text) {
            return Some(mark.clone());
        }
        let mark = format!("[{}]", self.headline.len() + self.own.len() + 1);
        self.own.push((mark.clone(), text.clone()));
        Some(mark)
    }

    fn marks<'a>(
        &mut self,
        lines: &Lines<'_>,
        parts: impl Iterator<Item = &'a HostPart>,
    ) -> String {
        let reasons = parts.flat_map(|part| &part.verdict.reasons);
        let checks = each_once(reasons.map(|reason| &reason.check)).into_iter();
        let marks = checks.filter_map(|check| self.mark(lines, check));
        marks.collect()
    }
}

/// Such as `INVALID (3 of 6)[2]`.
fn verdict(lines: &Lines<'_>, part: &HostPart, notes: &mut Notes<'_>) -> String {
    let often = match lines.worst(part.rank) {
        (is, count, all) if is == Status::Valid || count == all => is.to_string(),
        (is, count, all) => format!("{is} ({count} of {all})"),
    };
    often + &notes.marks(lines, lines.runs_of(part.rank))
}

/// One line for all that have none of their own.
fn rest(
    lines: &Lines<'_>,
    shown: &[&HostPart],
    columns: &[&Column],
    before: usize,
    notes: &mut Notes<'_>,
) -> Option<Vec<String>> {
    let has_line = |part: &&HostPart| shown.iter().any(|other| other.rank == part.rank);
    let others: Vec<&HostPart> = lines.parts.iter().filter(|part| !has_line(part)).collect();
    let range = |figure: fn(&HostPart) -> f64, digits| {
        let each = || others.iter().map(|part| figure(part));
        let (least, most) = (each().reduce(f64::min)?, each().reduce(f64::max)?);
        let (least, most) = (significant(least, digits), significant(most, digits));
        Some(match least == most {
            true => least,
            false => format!("{least}..{most}"),
        })
    };
    let workers = range(|part| part.workers as f64, 1)?;
    let rates = range(|part| part.throughput_per_s, 3)?;
    let mut row = vec![String::new(); before];
    row.push(match others.len() {
        1 => "1 other".to_owned(),
        n => format!("{n} others"),
    });
    row.extend(columns.iter().map(|column| match column.title {
        ["", "workers"] => workers.clone(),
        ["", "ops/s"] => rates.clone(),
        _ => String::new(),
    }));
    let ranks = others.iter().map(|part| part.rank);
    let suspect = ranks.filter(|rank| lines.worst(*rank).0 == Status::Suspect);
    row.push(match suspect.count() {
        0 => Status::Valid.to_string(),
        n => {
            let of_all = others.iter().flat_map(|part| lines.runs_of(part.rank));
            format!("{n} {}{}", Status::Suspect, notes.marks(lines, of_all))
        }
    });
    Some(row)
}

/// The spread of the hosts' starts in the run where it was largest, with its uncertainty.
/// The uncertainty is the largest spread that the clocks allow minus the measured one, so
/// that it bounds the error for any two hosts.
pub(crate) fn began(runs: &[Run]) -> Option<String> {
    let several = || runs.iter().filter(|run| run.hosts.len() > 1);
    let furthest = several()
        .map(apart)
        .max_by_key(|(said, unknown)| said + unknown)?;
    let counts = || several().map(|run| run.hosts.len() as u64);
    let (fewest, most) = (counts().min()?, counts().max()?);
    let hosts = range(grouped(fewest), &grouped(most));
    let (said, unknown) = furthest;
    let unknown = uncertainty(unknown).replace('±', ", ± ");
    Some(format!(
        "{hosts} hosts began within {} of each other{unknown}.",
        time(said as f64)
    ))
}

/// Time from the first host's start to the last one's, and its uncertainty, in ns.
fn apart(run: &Run) -> (u64, u64) {
    let span = |sign: i64| {
        let began = |part: &HostPart, sign: i64| part.late_ns + sign * part.clock_within_ns as i64;
        let first = run.hosts.iter().map(|part| began(part, -sign)).min();
        let last = run.hosts.iter().map(|part| began(part, sign)).max();
        first
            .zip(last)
            .map_or(0, |(first, last)| last.abs_diff(first))
    };
    (span(0), span(1) - span(0))
}

#[cfg(test)]
mod tests;
