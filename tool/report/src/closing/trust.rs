//! Whether the result can be trusted: what was checked, and the verdicts.

use super::{Values, View, capital, contend};
use crate::checked;
use crate::format::range;
use jostle_model::record::Status;

fn said(text: Option<String>) -> Vec<Values> {
    text.map(|text| vec![("said", text)]).into_iter().collect()
}

/// Whether owners overlapped; a lock that did not exclude has its own clause.
pub(super) fn safety(view: &View<'_, '_>) -> Vec<Values> {
    let is_told = !contend::broken(view).is_empty() || view.all.is_empty();
    let is_lock = !super::are_requests(view);
    let text = (is_lock && !is_told).then(|| checked::safety(view.set, view.all));
    said(text.map(|text| capital(&text)))
}

/// What was checked of runs that measure no lock.
pub(super) fn checked(view: &View<'_, '_>) -> Vec<Values> {
    said(checked::checked(view.set).filter(|_| !view.all.is_empty()))
}

/// The verdicts, and from what part of the time the rates are.
pub(super) fn trust(view: &View<'_, '_>) -> Vec<Values> {
    let all = view.all.len();
    let of = |is: Status| {
        let points = view.all.iter();
        points.filter(|point| point.verdict.is == is).count()
    };
    let statuses = [Status::Valid, Status::Suspect, Status::Invalid];
    let counted_of = statuses.map(|is| (of(is), is)).into_iter();
    let known: Vec<(usize, Status)> = counted_of.filter(|(count, _)| *count > 0).collect();
    let mut parts = match known[..] {
        [] => return Vec::new(),
        [(1, is)] => vec![format!("The only point is {is}")],
        [(2, is)] => vec![format!("Both points are {is}")],
        [(all, is)] => vec![format!("All {all} points are {is}")],
        [(first, best), ref others @ ..] => {
            let others = others.iter().map(|(count, is)| format!("{count} {is}"));
            let others = others.collect::<Vec<_>>().join(", ");
            let are = if first == 1 { "is" } else { "are" };
            vec![format!(
                "{first} of {all} points {are} {best}, {others}: the notes have the reasons"
            )]
        }
    };
    let shares = view.points.iter().filter_map(|point| point.clean_share);
    let shares: Vec<f64> = shares.collect();
    let ends = shares.iter().copied().reduce(f64::min);
    if let Some((least, most)) = ends.zip(shares.iter().copied().reduce(f64::max)) {
        let [least, most] = [least, most].map(|share| format!("{:.0}", 100.0 * share));
        parts.push(format!(
            "rates use only the {} % of the time in which no other program ran",
            range(least, &most)
        ));
    }
    vec![vec![("said", parts.join("; "))]]
}
