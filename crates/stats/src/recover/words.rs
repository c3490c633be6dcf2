//! The closing sentences of `recover`: for each target, what becomes of its lock.

use super::{Of, Summary};
use crate::closing::targets;
use crate::summary::PointSummary;
use jostle_model::plan::Fault;

/// One sentence for each target.
pub fn sentences(points: &[PointSummary<'_>]) -> Vec<(String, String)> {
    let said = targets(points).into_iter().filter_map(|target| {
        let of_target = points.iter().filter(|point| point.target == target);
        let parts: Vec<String> = of_target.filter_map(part).collect();
        (!parts.is_empty()).then(|| (target.to_owned(), format!("{}.", parts.join("; "))))
    });
    said.collect()
}

fn part(point: &PointSummary<'_>) -> Option<String> {
    let summary = Summary::of(point)?;
    let fault = after(summary.fault);
    if point.verdict.is_invalid() {
        return Some(format!("{fault}: INVALID"));
    }
    Some(format!("{fault} {}", became(&summary)))
}

fn after(fault: Fault) -> &'static str {
    match fault {
        Fault::Kill => "after its owner was killed",
        Fault::Stop => "while its owner was stopped",
        Fault::Cut => "while its owner's connection was cut",
        Fault::ServerKill => "after the service was killed and started again",
        Fault::ServerStop => "after the service was stopped for a while",
    }
}

fn became(summary: &Summary) -> String {
    let runs = summary.runs;
    if summary.never == runs {
        return format!(
            "nobody was granted it within {}",
            time(summary.within_ns as f64)
        );
    }
    if summary.kept == runs {
        let handed = summary.after_release_ns.map_or(String::new(), |ns| {
            format!(", whose release handed it on within {} (median)", time(ns))
        });
        return format!("it stayed its owner's{handed}");
    }
    let Some((median, worst)) = summary.median_ns.zip(summary.worst_ns) else {
        return format!(
            "the next grant came in {} of {runs} runs, its owner released it in {}, and it never \
             came in {}",
            summary.granted_ns.len(),
            summary.kept,
            summary.never
        );
    };
    let mut text = format!(
        "the next grant came within {} (median; {} at most)",
        time(median),
        time(worst)
    );
    if let Some(two) = summary.two_believed_ns {
        text += &format!(
            ", two believed that they owned for up to {}{}{}",
            time(two as f64),
            of(
                summary.told,
                ", the old owner was told by its release",
                ", the old owner was never told"
            ),
            of(
                summary.refused,
                ", and its write was refused by its token",
                ", and its write was taken"
            ),
        );
    }
    text
}

fn of(of: Of, all: &str, none: &str) -> String {
    match of.all() {
        Some(true) => all.to_owned(),
        Some(false) => none.to_owned(),
        None if of.of == 0 => String::new(),
        None => format!("{all} in {} of {} runs", of.count, of.of),
    }
}

/// Three digits, in the unit in which it reads best.
fn time(nanos: f64) -> String {
    let (value, unit) = match nanos {
        n if n < 1e6 => (n / 1e3, "us"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    match value {
        v if v < 10.0 => format!("{v:.2} {unit}"),
        v if v < 100.0 => format!("{v:.1} {unit}"),
        v => format!("{v:.0} {unit}"),
    }
}
