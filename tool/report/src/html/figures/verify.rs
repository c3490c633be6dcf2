//! The excerpt of a history that shows a broken promise: a row for each client with a bar while it
//! owned the lock, a line where a fault struck, and the time in which two were entitled.

use super::{Cell, Chapter, Data, Drawing, LARGE, Panel};
use crate::format::each_once;
use crate::verify::{at, shows, who};
use jostle_model::record::{Excerpt, ExcerptLine};
use maud::html;

const ROW: f64 = 40.0;
/// Above the first row: the names of faults, one below the other.
const FAULT: f64 = 16.0;
const BOTTOM: f64 = 34.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 552.0;

/// The first violation of each target; None without any.
pub(crate) fn excerpt(chapter: &Chapter<'_>) -> Option<Drawing> {
    let spots = chapter.series.iter().flat_map(|series| {
        let of = move |run: &jostle_model::record::Run| {
            let found = run.verified.as_deref()?.excerpt.clone()?;
            Some((series.label.clone(), found))
        };
        let mut spots = series.spots.iter().flat_map(|spot| &spot.point.runs);
        spots.find_map(|run| of(run))
    });
    let found: Vec<(String, Excerpt)> = spots.collect();
    let data = found.iter().flat_map(|(label, excerpt)| {
        excerpt.lines.iter().map(move |line| {
            vec![
                Cell::Text(label.clone()),
                Cell::Figure(at(line.at_ns)),
                Cell::Text(who(line)),
                Cell::Text(line.what.clone()),
                line.token
                    .map_or(Cell::None, |token| Cell::Figure(token.to_string())),
            ]
        })
    });
    let headings = ["series", "seconds", "who", "what", "token"];
    let data = Data {
        headings: headings.map(str::to_owned).to_vec(),
        rows: data.collect(),
    };
    let charts = found.iter().map(|(label, excerpt)| draw(label, excerpt));
    (!found.is_empty()).then(|| Drawing {
        title: "Where the promise was broken".to_owned(),
        note: "a bar: the client owned the lock; shaded: two were entitled to it; a line: a fault"
            .to_owned(),
        charts: charts.collect(),
        data,
    })
}

fn draw(label: &str, excerpt: &Excerpt) -> Panel {
    let lines = &excerpt.lines;
    let clients: Vec<u64> = each_once(lines.iter().filter_map(|line| line.client));
    let faults: Vec<&ExcerptLine> = lines.iter().filter(|line| line.client.is_none()).collect();
    let each = || lines.iter().map(|line| line.at_ns);
    let times = || each().chain([excerpt.from_ns, excerpt.until_ns]);
    let ends = (times().min().unwrap_or(0), times().max().unwrap_or(0));
    let x = |ns: u64| across(ns, ends);
    let top = FAULT * faults.len() as f64;
    let foot = top + ROW * clients.len() as f64;
    let size = (LARGE.0, foot + BOTTOM);
    let (from, until) = (x(excerpt.from_ns), x(excerpt.until_ns));
    let drawing = html! {
        svg.chart.large viewBox=(format!("0 0 {} {}", size.0, size.1)) width=(size.0) height=(size.1)
            role="img" tabindex="0" aria-label=(format!("{label}: {}", shows(excerpt))) {
            g.worse {
                path.run d=(format!("M{from} {top}V{foot}H{until}V{top}Z")) {}
            }
            @for (nth, line) in faults.iter().enumerate() {
                @let y = FAULT * (nth as f64 + 0.8);
                path.track d=(format!("M{} {y}V{foot}", x(line.at_ns))) {}
                text.quiet x=(x(line.at_ns)) y=(y - 3.0) text-anchor=(anchor(x(line.at_ns))) { (line.what) }
            }
            @for (nth, client) in clients.iter().enumerate() {
                @let y = top + ROW * (nth as f64 + 0.6);
                text.tag x="0" y=(y + 4.0) { "client " (client) }
                path.track d=(format!("M{LEFT} {y}H{RIGHT}")) {}
                @for (begin, end) in owned(excerpt, *client) {
                    path.bar.to-p90 d=(format!("M{} {y}H{}", x(begin), x(end))) {}
                }
                @for line in lines.iter().filter(|line| line.client == Some(*client)) {
                    circle.run cx=(x(line.at_ns)) cy=(y) r="4" {
                        title { (at(line.at_ns)) " s: " (line.what) }
                    }
                }
            }
            path.axis d=(format!("M{LEFT} {foot}H{RIGHT}")) {}
            @for ns in [ends.0, ends.1] {
                text x=(x(ns)) y=(foot + 20.0) text-anchor=(anchor(x(ns))) { (at(ns)) " s" }
            }
        }
    };
    Panel::alone(size, drawing)
}

fn across(ns: u64, (from, until): (u64, u64)) -> f64 {
    let share = (ns - from) as f64 / (until - from).max(1) as f64;
    ((LEFT + share * (RIGHT - LEFT)) * 10.0).round() / 10.0
}

/// Within the drawing.
fn anchor(x: f64) -> &'static str {
    match x {
        ..180.0 => "start",
        448.0.. => "end",
        _ => "middle",
    }
}

/// When a client owned the lock: from a grant until its next event that ends a hold.
fn owned(excerpt: &Excerpt, client: u64) -> Vec<(u64, u64)> {
    let lapse = format!("lease of client {client} ");
    let of = |line: &&ExcerptLine| line.client == Some(client) || line.what.contains(&lapse);
    let lines: Vec<&ExcerptLine> = excerpt.lines.iter().filter(of).collect();
    let ends = |what: &str| {
        let words = ["releases", "killed", "told", "entitlement", "lease"];
        words.iter().any(|word| what.contains(word))
    };
    let grants = lines.iter().enumerate();
    let grants = grants.filter(|(_, line)| line.what.starts_with("granted"));
    let until = |from: usize| {
        let mut later = lines[from + 1..].iter();
        let end = later.find(|line| ends(&line.what)).map(|line| line.at_ns);
        end.unwrap_or(excerpt.until_ns)
    };
    grants
        .map(|(nth, line)| (line.at_ns, until(nth).max(line.at_ns)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::chapter::chapters;
    use crate::made;

    #[test]
    fn two_owners_are_two_bars_and_a_fault_is_a_line() {
        let sets = [made::verified()];
        let found = excerpt(&chapters(&sets)[0]).unwrap();
        assert_eq!(found.charts.len(), 1);
        let svg = found.charts[0].drawing.clone().into_string();
        assert_eq!(svg.matches("to-p90").count(), 2, "{svg}");
        assert!(
            svg.contains("clock set") && svg.contains("client 4"),
            "{svg}"
        );
        assert_eq!(found.data.rows.len(), 6);
        assert!(excerpt(&chapters(&[made::recovered()])[0]).is_none());
    }
}
