//! The page of `jostle judge --html`: each run as time series, below its text.

use super::chart::{Chart, Style, frame};
use super::document;
use super::figures::{Data, Drawing, Panel};
use super::headline::grid;
use super::scale::{Axis, Scale};
use super::units::Unit;
use crate::grid::{Grid, Heading};
use crate::judged::{Judgements, SIDES, doubled, ended, machine, sides};
use jostle_model::judged::{Limit, Side, Watched};
use jostle_stats::judge::of_server;
use maud::{Markup, html};

/// Width and height of a drawing.
const SIZE: (f64, f64) = (576.0, 260.0);

/// Points of a line, at most: beyond, neighbours are averaged.
const POINTS: usize = 600;

/// One line of a drawing: its name and its values.
type Line = (&'static str, Vec<f64>);

/// The page.
pub fn judged(found: &[Judgements]) -> String {
    let body = html! { @for file in found {
        @for pair in &file.doubled { section.chapter { pre { (doubled(pair)) } } }
        @for watched in &file.watched { (run(watched)) }
    } };
    document("jostle judge", Scale::Linear, &body)
}

fn run(watched: &Watched) -> Markup {
    html! {
        section.conclusion aria-label="Conclusion" {
            p.kicker { "jostle judge: " (watched.command.join(" ")) }
            h1 { (title(watched)) }
            (bars(watched))
            @for reason in &watched.finding.reasons { p { (reason) "." } }
            p { (watched.finding.meaning) }
            @for note in of_server(watched) { p.warning { (note) "." } }
            @if let Some(ended) = ended(watched) { p.warning { (ended) } }
            (table(watched))
            p.note { (machine(watched)) "." }
            @if let Some(next) = &watched.finding.next { p.next { "Next: " code { (next) } } }
        }
        section.chapter {
            h2 { "When was which side busy?" }
            div.figures { @for figure in figures(watched) { figure.large {
                figcaption { strong { (figure.title) } }
                @for panel in &figure.charts { (panel.drawing) }
            } } }
        }
    }
}

/// The figures watched over the time of the run, in the order of the page.
pub(super) fn figures(watched: &Watched) -> Vec<Drawing> {
    let figures = [
        ("Busiest threads", Unit::Share, busy(watched)),
        ("Kept from running", Unit::Share, kept(watched)),
        ("CPUs in use", Unit::Number("CPUs"), cpus(watched)),
        ("Bytes carried", Unit::PerSecond("MB/s"), carried(watched)),
        (
            "Connections opened",
            Unit::PerSecond("opened/s"),
            opened(watched),
        ),
        ("Unread bytes", Unit::Bytes, unread(watched)),
    ];
    let figures = figures.into_iter();
    let drawn = figures.filter_map(|(title, unit, lines)| figure(watched, title, unit, &lines));
    drawn.collect()
}

/// The finding.
fn title(watched: &Watched) -> String {
    let finding = &watched.finding;
    let limit = match finding.limit {
        Limit::Generator => "The generator was the limit",
        Limit::Server => "The server was the limit",
        Limit::Machine => "The machine was the limit",
        Limit::Downstream => "What the server waits for was the limit",
        Limit::Ports => "The ports of this machine were the limit",
        Limit::Timer => "A timer of TCP was the limit",
        Limit::Nothing => "There was nothing to judge",
        Limit::Path => "Neither side was the limit: each connection waited for its answer",
        Limit::Undecided => "It is undecided which side was the limit",
    };
    match (finding.since_s, finding.until_s) {
        (Some(since), Some(until)) => format!("{limit} from {since:.1} to {until:.1} s"),
        (Some(since), None) if since > finding.from_s => format!("{limit} from {since:.1} s on"),
        _ => limit.to_owned(),
    }
}

/// How busy either side was, as a bar each; one side alone where the other was not seen.
fn bars(watched: &Watched) -> Markup {
    const LONG: f64 = 320.0;
    let finding = &watched.finding;
    let sides = [
        ("generator", finding.generator_busy_share),
        ("server", finding.server_busy_share),
    ];
    let known = sides.into_iter().enumerate();
    let known = known.filter_map(|(at, (name, share))| Some((at, name, share?.clamp(0.0, 1.0))));
    html! {
        dl.busy { @for (at, name, share) in known {
            dt { (name) }
            dd {
                svg.(Style::numbered(at, at, at).colour()) width=(LONG) height="14" aria-hidden="true" {
                    rect.whole width=(LONG) height="14" {}
                    rect.share width=(format!("{:.1}", LONG * share)) height="14" {}
                }
                " " (format!("{:.0} % busy", 100.0 * share))
            }
        } }
    }
}

fn table(watched: &Watched) -> Markup {
    let columns = SIDES.iter().enumerate().map(|(at, title)| match at {
        0 => Heading::left("side"),
        _ => Heading::right("", title),
    });
    grid(&Grid {
        columns: columns.collect(),
        rows: sides(watched).into_iter().map(Vec::from).collect(),
    })
}

/// The lines of these columns that were measured, each value times `scale` for a second of its
/// interval.
fn rates(
    watched: &Watched,
    scale: f64,
    columns: &[(&'static str, Option<&Vec<f64>>)],
) -> Vec<Line> {
    let known = columns.iter().filter_map(|(name, column)| {
        let each = (*column)?.iter().zip(&watched.span_s);
        let values = each.map(|(value, span)| scale * value / span.max(f64::MIN_POSITIVE));
        Some((*name, values.collect()))
    });
    known.collect()
}

/// CPU time and time in the queue of the thread that was busiest over the whole run.
fn busy(watched: &Watched) -> Vec<Line> {
    let of = |side: &Side| -> Option<Vec<f64>> {
        let thread = side.busiest.first()?;
        let both = thread.cpu_s.iter().zip(&thread.queued_s);
        Some(both.map(|(cpu, queued)| cpu + queued).collect())
    };
    let (generator, server) = (of(&watched.generator), watched.server.as_ref().and_then(of));
    let sides = [
        ("generator", generator.as_ref()),
        ("server", server.as_ref()),
    ];
    let mut lines = rates(watched, 1.0, &sides);
    let shares = lines.iter_mut().flat_map(|(_, values)| values);
    shares.for_each(|share| *share = share.min(1.0));
    lines
}

fn kept(watched: &Watched) -> Vec<Line> {
    let (generator, server) = (&watched.generator, watched.server.as_ref());
    let columns = [
        ("generator stopped", Some(&generator.stopped_s)),
        ("generator throttled", generator.throttled_s.as_ref()),
        ("server stopped", server.map(|side| &side.stopped_s)),
        (
            "server throttled",
            server.and_then(|side| side.throttled_s.as_ref()),
        ),
        ("stolen", Some(&watched.machine.stolen_s)),
    ];
    let mut lines = rates(watched, 1.0, &columns);
    lines.retain(|(_, values)| values.iter().any(|value| *value > 0.0));
    lines
}

fn cpus(watched: &Watched) -> Vec<Line> {
    let machine = &watched.machine;
    let columns = [
        ("generator", Some(&watched.generator.cpu_s)),
        ("server", watched.server.as_ref().map(|side| &side.cpu_s)),
        ("what the server asks", machine.behind_s.as_ref()),
        ("other programs", machine.others_s.as_ref()),
        ("jostle", Some(&machine.tool_s)),
    ];
    rates(watched, 1.0, &columns)
}

fn carried(watched: &Watched) -> Vec<Line> {
    let bytes = watched.traffic.as_ref().map(|traffic| &traffic.bytes);
    rates(watched, 1e-6, &[("both directions", bytes)])
}

fn opened(watched: &Watched) -> Vec<Line> {
    let opened = watched.traffic.as_ref().map(|traffic| &traffic.opened);
    rates(watched, 1.0, &[("connections", opened)])
}

fn unread(watched: &Watched) -> Vec<Line> {
    let Some(traffic) = &watched.traffic else {
        return Vec::new();
    };
    let server = traffic.server_unread_bytes.clone();
    let generator = ("generator", traffic.generator_unread_bytes.clone());
    let server = server.map(|values| ("server", values));
    std::iter::once(generator).chain(server).collect()
}

/// None where all lines are empty.
fn figure(watched: &Watched, title: &str, unit: Unit, lines: &[Line]) -> Option<Drawing> {
    let all = lines.iter().flat_map(|(_, values)| values);
    let all: Vec<f64> = all.copied().collect();
    if all.iter().all(|value| *value <= 0.0) {
        return None;
    }
    let longest = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let (across, up) = frame(SIZE, longest);
    let x = (
        Axis::of_values(Unit::Number("s"), &watched.end_s, across),
        "s".to_owned(),
    );
    let y = (Axis::of_values(unit, &all, up), unit.title().to_owned());
    let mut chart = Chart::new(SIZE, longest, x, y).opening(Scale::Linear);
    for (at, (name, values)) in lines.iter().enumerate() {
        let style = Style::numbered(at, at, at);
        let points = watched.end_s.iter().copied().zip(values.iter().copied());
        let points = thinned(&points.collect::<Vec<_>>());
        chart.line(&style.colour(), style.dashes(), &points);
        if let Some(last) = points.last() {
            chart.label(&style.colour(), *last, name);
        }
    }
    Some(Drawing {
        title: title.to_owned(),
        note: String::new(),
        charts: vec![Panel::alone(
            SIZE,
            chart.draw(&format!("{title} over the time since the command's start")),
        )],
        data: Data::default(),
    })
}

fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let together = points.len().div_ceil(POINTS).max(1);
    let mean = |part: &[(f64, f64)]| {
        let n = part.len().max(1) as f64;
        let sum = part
            .iter()
            .fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / n, sum.1 / n)
    };
    points.chunks(together).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MARK;
    use crate::judged::tests::made;

    #[test]
    fn the_page_draws_what_was_seen_and_escapes_what_was_typed() {
        let mut watched = made();
        watched.command.push("<script>alert(1)</script>".to_owned());
        let file = Judgements {
            watched: vec![watched],
            ..Judgements::default()
        };
        let page = judged(&[file]);
        assert!(page.starts_with(MARK), "{}", &page[..80]);
        for title in ["Busiest threads", "CPUs in use", "Bytes carried"] {
            assert!(page.contains(title), "{title}");
        }
        // Nothing was stopped, opened or left unread.
        for title in ["Kept from running", "Connections opened", "Unread bytes"] {
            assert!(!page.contains(title), "{title}");
        }
        assert!(!page.contains("<script>alert"));
        // The title is the finding, and each side has a bar.
        assert!(page.contains("<h1>The generator was the limit"), "{page}");
        assert_eq!(page.matches("class=\"share\"").count(), 2);
        assert!(!page.contains("<pre>"));
    }

    #[test]
    fn of_many_points_neighbours_are_averaged() {
        let points: Vec<(f64, f64)> = (0..1200)
            .map(|n| (f64::from(n), f64::from(n % 2)))
            .collect();
        let thinned = thinned(&points);
        assert_eq!(thinned.len(), POINTS);
        assert!(thinned.iter().all(|(_, value)| *value == 0.5));
    }
}
