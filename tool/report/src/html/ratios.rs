//! Two results beside each other: for each point the ratio of its figures with
//! its interval, and the finding. A row of the drawing is a point.

use super::chapter::Chapter;
use super::figures::{Cell, Data, Drawing, LARGE, Panel};
use super::scale::cut;
use super::units::trimmed;
use crate::ResultSet;
use crate::compare::{Comparison, Input, compare, place};
use crate::format::{percent_typed, significant};
use jostle_stats::comparison::{Change, Compared};
use maud::{Markup, html};

/// Rows of a drawing, at most; the table has all.
const ROWS: usize = 40;

/// Heights and widths in pixels.
const ROW: f64 = 27.0;
const TOP: f64 = 30.0;
const FOOT: f64 = 50.0;
const NAMES: f64 = 216.0;
const FINDINGS: f64 = 152.0;
/// Letters that fit beside a row.
const LETTERS: usize = 23;
/// Pixels between two ticks, at least.
const APART: f64 = 46.0;

/// The labels that a figure of ratios may have, from 1 outwards.
const TICKS: [f64; 17] = [
    1.0, 0.5, 2.0, 0.2, 5.0, 0.1, 10.0, 0.8, 1.25, 0.9, 1.1, 0.95, 1.05, 0.01, 100.0, 0.7, 1.5,
];

/// Experiments of a chapter that are compared with its first one.
pub(super) fn of_chapter(chapter: &Chapter<'_>, sets: &[ResultSet]) -> Vec<Drawing> {
    let members: Vec<&ResultSet> = chapter.sets.iter().map(|at| &sets[*at]).collect();
    against_first(&members, &chapter.labels)
}

fn against_first(sets: &[&ResultSet], labels: &[String]) -> Vec<Drawing> {
    // Ratios of many would be no longer read.
    const EXPERIMENTS: usize = 4;
    if sets.len() > EXPERIMENTS {
        return Vec::new();
    }
    let Some((base, others)) = sets.split_first() else {
        return Vec::new();
    };
    let others = others.iter().zip(labels.iter().skip(1));
    let against = |(new, label): (&&ResultSet, &String)| {
        let input = Input {
            base_name: &labels[0],
            base: std::slice::from_ref(*base),
            new_name: label,
            new: Some(std::slice::from_ref(*new)),
            targets: None,
            within: WITHIN,
            all: false,
            strict: false,
        };
        let comparison = compare(&input).ok()?;
        let [new, base] = distinct(label, &labels[0]);
        figure(&comparison, &format!("{new} against {base}"))
    };
    others.filter_map(against).collect()
}

/// Two labels without the parts that both begin with.
fn distinct<'l>(new: &'l str, base: &'l str) -> [&'l str; 2] {
    let [mut new, mut base] = [new, base];
    while let (Some((one, rest)), Some((other, others))) =
        (new.split_once(", "), base.split_once(", "))
        && one == other
    {
        (new, base) = (rest, others);
    }
    [new, base]
}

/// The threshold of `compare` where none is given.
const WITHIN: f64 = 0.05;

/// None where no point can be compared.
pub(super) fn figure(comparison: &Comparison, title: &str) -> Option<Drawing> {
    let rows: Vec<&Compared> = comparison.rows.iter().map(|(_, row)| row).collect();
    if rows.is_empty() {
        return None;
    }
    let shown = &rows[..rows.len().min(ROWS)];
    let left_out = match rows.len() - shown.len() {
        0 => String::new(),
        n => format!("; {n} more rows are in the data"),
    };
    let drawing = draw(shown, comparison.within, title);
    Some(Drawing {
        title: title.to_owned(),
        note: format!(
            "ratio of each figure and its 95 % interval, the machine's own change taken out; \
             within the grey band ({} %) it is the same{left_out}",
            percent_typed(comparison.within)
        ),
        charts: vec![Panel::alone(LARGE, drawing)],
        data: data(&rows),
    })
}

/// A logarithmic axis around 1.
struct Across {
    low: f64,
    high: f64,
}

impl Across {
    fn spanning(rows: &[&Compared], within: f64) -> Across {
        let mut most = (1.0 + within).ln() * 2.0;
        for ratio in rows.iter().filter_map(|row| row.ratio_told()) {
            for end in [ratio.ratio, ratio.low, ratio.high] {
                if end.is_finite() && end > 0.0 {
                    most = most.max(end.ln().abs());
                }
            }
        }
        let most = (most * 1.08).min(100f64.ln());
        Across {
            low: -most,
            high: most,
        }
    }

    fn at(&self, ratio: f64) -> f64 {
        let share = (ratio.max(f64::MIN_POSITIVE).ln() - self.low) / (self.high - self.low);
        NAMES + (LARGE.0 - NAMES - FINDINGS) * share.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        let mut ticks: Vec<f64> = Vec::new();
        for tick in TICKS {
            let inside = (self.low..=self.high).contains(&f64::ln(tick));
            let free = ticks
                .iter()
                .all(|other| (self.at(*other) - self.at(tick)).abs() >= APART);
            if inside && free {
                ticks.push(tick);
            }
        }
        ticks
    }
}

fn draw(rows: &[&Compared], within: f64, title: &str) -> Markup {
    let across = Across::spanning(rows, within);
    let foot = TOP + ROW * rows.len() as f64;
    let height = foot + FOOT;
    let band = (across.at(1.0 / (1.0 + within)), across.at(1.0 + within));
    let first = rows[0];
    let one_target = rows.iter().all(|row| row.base_target == first.base_target);
    let one_figure = rows.iter().all(|row| row.figure.name == first.figure.name);
    html! {
        svg.chart.large viewBox=(format!("0 0 {} {height}", LARGE.0)) width=(LARGE.0) height=(height)
            role="img" tabindex="0" aria-label=(format!("ratios of {title}")) {
            text.unit x="0" y="17" {
                @if one_figure { (first.figure.compared) ", " } "new / base"
            }
            path.same d=(format!("M{:.1} {TOP}H{:.1}V{foot}H{:.1}Z", band.0, band.1, band.0)) {}
            @for tick in across.ticks() {
                path.grid.one[tick == 1.0] d=(format!("M{:.1} {TOP}V{foot}", across.at(tick))) {}
                text.tick x=(format!("{:.1}", across.at(tick))) y=(foot + 21.0) text-anchor="middle" {
                    (trimmed(tick, 3))
                }
            }
            @for (at, row) in rows.iter().enumerate() {
                (draw_row(row, TOP + ROW * (at as f64 + 0.5), &across, (one_target, one_figure)))
            }
        }
    }
}

/// The class and the shape of a finding: never told by colour alone.
fn look(said: Change) -> (&'static str, &'static str) {
    match said {
        Change::Worse => ("worse", "m0 6l5.5-10.5h-11z"),
        Change::Better => ("better", "m0-6l5.5 10.5h-11z"),
        Change::Same => ("alike", "m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z"),
        Change::Undecided => ("open", "m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z"),
    }
}

/// The name of a row: its targets, where they stand, and the figure.
pub(super) fn name(row: &Compared, one_target: bool, one_figure: bool) -> String {
    let mut parts = Vec::new();
    if !one_target || place(row.at).is_empty() {
        parts.push(row.base_target.clone());
    }
    if row.new_target != row.base_target && !one_target {
        parts.push(row.new_target.clone());
    }
    parts.push(place(row.at));
    if !one_figure {
        parts.push(row.figure.compared.to_owned());
    }
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

fn draw_row(
    row: &Compared,
    y: f64,
    across: &Across,
    (one_target, one_figure): (bool, bool),
) -> Markup {
    let name = name(row, one_target, one_figure);
    let (class, shape) = look(row.said);
    let ratio = row.ratio_told();
    let interval = ratio.filter(|ratio| ratio.interval);
    let says = match ratio {
        Some(ratio) => format!("{name}\n{:.3}: {}", ratio.ratio, row.said.name()),
        None => row.said.name().to_owned(),
    };
    let says = [Some(says.as_str()), row.why.as_deref()];
    let says = says.into_iter().flatten().collect::<Vec<_>>().join("\n");
    html! {
        text.name x="0" y=(y + 5.0) { (cut(&name, LETTERS)) }
        @if let Some(ratio) = ratio {
            @let x = across.at(ratio.ratio);
            @if let Some(known) = interval {
                path.bar.(class) d=(format!("M{:.1} {y}H{:.1}", across.at(known.low), across.at(known.high))) {}
            }
            path class=(format!("pt mark {class}")) d=(format!("M{x:.1} {y}{shape}"))
                data-say=(says.replace('|', "/")) {}
        }
        text.finding.(class) x=(LARGE.0 - FINDINGS + 12.0) y=(y + 5.0) {
            @match ratio {
                Some(ratio) => { (format!("{:.2} ", ratio.ratio)) (row.said.name()) }
                None => { (row.said.name()) }
            }
        }
    }
}

fn data(rows: &[&Compared]) -> Data {
    let headings = [
        "series", "figure", "base", "new", "new/base", "from", "to", "finding",
    ];
    let row = |row: &&Compared| {
        let figure = |value: f64| match row.invalid {
            true => Cell::None,
            false => Cell::Figure(significant(value, 3)),
        };
        let ratio = row.ratio_told();
        let part = |value: Option<f64>| {
            value.map_or(Cell::None, |value| Cell::Figure(format!("{value:.3}")))
        };
        let interval = ratio.filter(|ratio| ratio.interval);
        vec![
            Cell::Text(name(row, false, true)),
            Cell::Text(row.figure.compared.to_owned()),
            figure(row.base),
            figure(row.new),
            part(ratio.map(|ratio| ratio.ratio)),
            part(interval.map(|ratio| ratio.low)),
            part(interval.map(|ratio| ratio.high)),
            Cell::Text(row.said.name().to_owned()),
        ]
    };
    Data {
        headings: headings.map(str::to_owned).to_vec(),
        rows: rows.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::set;
    use crate::made;

    #[test]
    fn each_point_has_a_row_with_its_ratio_and_finding() {
        let (base, new) = (set(1000.0, 1.0), set(500.0, 1.0));
        let labels = ["old".to_owned(), "new".to_owned()];
        let found = against_first(&[&base, &new], &labels);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].title, "new against old");
        assert_eq!(found[0].data.rows.len(), 2);
        let drawn = found[0].charts[0].drawing.0.as_str();
        assert_eq!(drawn.matches("class=\"pt mark ").count(), 2, "{drawn}");
        assert_eq!(drawn.matches("0.50 worse").count(), 2, "{drawn}");
    }

    #[test]
    fn a_point_without_an_anchor_has_a_row_without_a_mark() {
        let (base, new) = (made::set(), made::set());
        let labels = ["old".to_owned(), "new".to_owned()];
        let found = against_first(&[&base, &new], &labels);
        let drawn = found[0].charts[0].drawing.0.as_str();
        assert!(!drawn.contains("pt mark"), "{drawn}");
        assert_eq!(drawn.matches(">undecided<").count(), 4, "{drawn}");
    }

    #[test]
    fn ticks_are_apart_and_one_is_among_them() {
        for most in [0.05f64, 0.4, 3.0] {
            let across = Across {
                low: -most,
                high: most,
            };
            let mut ticks = across.ticks();
            assert!(ticks.contains(&1.0));
            ticks.sort_by(f64::total_cmp);
            for pair in ticks.windows(2) {
                assert!(
                    across.at(pair[1]) - across.at(pair[0]) >= APART,
                    "{ticks:?}"
                );
            }
        }
    }

    #[test]
    fn labels_lose_what_both_begin_with() {
        assert_eq!(distinct("a 1, b 2, c", "a 1, b 3, c"), ["b 2, c", "b 3, c"]);
        assert_eq!(distinct("new", "old"), ["new", "old"]);
        assert_eq!(distinct("a, b", "a"), ["a, b", "a"]);
    }

    #[test]
    fn one_experiment_and_many_have_no_ratios() {
        let set = made::set();
        assert!(against_first(&[&set], &[String::new()]).is_empty());
        let labels = vec![String::new(); 5];
        assert!(against_first(&[&set; 5], &labels).is_empty());
    }
}
