//! The page of `jostle judge --html`: each run as time series, below its text.

use super::chart::{Chart, Style, frame};
use super::document;
use super::scale::Axis;
use super::units::Unit;
use crate::judged::{Judgements, doubled, one};
use jostle_model::judged::{Side, Watched};
use maud::{Markup, html};

/// Width and height of a drawing.
const SIZE: (f64, f64) = (576.0, 260.0);

/// Points of a line, at most: beyond, neighbours are averaged.
const POINTS: usize = 600;

/// One line of a drawing.
struct Line {
    name: &'static str,
    values: Vec<f64>,
}

/// The page.
pub fn judged(found: &[Judgements]) -> String {
    let body = html! { @for file in found {
        @for pair in &file.doubled { section.chapter { pre { (doubled(pair)) } } }
        @for watched in &file.watched { (run(watched)) }
    } };
    document("jostle judge", "linear", &body)
}

fn run(watched: &Watched) -> Markup {
    html! {
        section.conclusion aria-label="Conclusion" {
            p.kicker { "jostle judge" }
            h1 { (watched.command.join(" ")) }
            pre { (one(watched)) }
        }
        section.chapter {
            h2 { "When was which side busy?" }
            div.figures {
                (figure(watched, "Busiest threads", Unit::Share, busy(watched)))
                (figure(watched, "Kept from running", Unit::Share, kept(watched)))
                (figure(watched, "CPUs in use", Unit::Number("CPUs"), cpus(watched)))
                (figure(watched, "Bytes carried", Unit::PerSecond("MB/s"), carried(watched)))
                (figure(watched, "Connections opened", Unit::PerSecond("opened/s"), opened(watched)))
                (figure(watched, "Unread bytes", Unit::Bytes, unread(watched)))
            }
        }
    }
}

/// Each value for a second of its interval, times `scale`.
fn rate(watched: &Watched, column: &[f64], scale: f64) -> Vec<f64> {
    let each = column.iter().zip(&watched.span_s);
    each.map(|(value, span)| scale * value / span.max(f64::MIN_POSITIVE))
        .collect()
}

/// CPU time and time in the queue of the thread that was busiest over the whole run.
fn busy(watched: &Watched) -> Vec<Line> {
    let of = |side: &Side| {
        let thread = side.busiest.first()?;
        let both = thread
            .cpu_s
            .iter()
            .zip(&thread.queued_s)
            .map(|(cpu, queued)| cpu + queued);
        let shares = rate(watched, &both.collect::<Vec<_>>(), 1.0);
        Some(shares.into_iter().map(|share| share.min(1.0)).collect())
    };
    let generator = of(&watched.generator).map(|values| Line {
        name: "generator",
        values,
    });
    let server = watched.server.as_ref().and_then(of);
    generator
        .into_iter()
        .chain(server.map(|values| Line {
            name: "server",
            values,
        }))
        .collect()
}

fn kept(watched: &Watched) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut add = |name, column: &[f64]| {
        if column.iter().any(|value| *value > 0.0) {
            lines.push(Line {
                name,
                values: rate(watched, column, 1.0),
            });
        }
    };
    add("generator stopped", &watched.generator.stopped_s);
    add(
        "generator throttled",
        watched.generator.throttled_s.as_deref().unwrap_or_default(),
    );
    if let Some(server) = &watched.server {
        add("server stopped", &server.stopped_s);
        add(
            "server throttled",
            server.throttled_s.as_deref().unwrap_or_default(),
        );
    }
    add("stolen", &watched.machine.stolen_s);
    lines
}

fn cpus(watched: &Watched) -> Vec<Line> {
    let server = watched.server.as_ref().map(|side| &side.cpu_s);
    let columns = [
        ("generator", Some(&watched.generator.cpu_s)),
        ("server", server),
        ("other programs", watched.machine.others_s.as_ref()),
        ("jostle", Some(&watched.machine.tool_s)),
    ];
    let lines = columns.into_iter();
    lines
        .filter_map(|(name, column)| {
            Some(Line {
                name,
                values: rate(watched, column?, 1.0),
            })
        })
        .collect()
}

fn carried(watched: &Watched) -> Vec<Line> {
    let traffic = watched.traffic.as_ref();
    let line = traffic.map(|traffic| Line {
        name: "both directions",
        values: rate(watched, &traffic.bytes, 1e-6),
    });
    line.into_iter().collect()
}

fn opened(watched: &Watched) -> Vec<Line> {
    let traffic = watched.traffic.as_ref();
    let line = traffic.map(|traffic| Line {
        name: "connections",
        values: rate(watched, &traffic.opened, 1.0),
    });
    line.into_iter().collect()
}

fn unread(watched: &Watched) -> Vec<Line> {
    let Some(traffic) = &watched.traffic else {
        return Vec::new();
    };
    let generator = Line {
        name: "generator",
        values: traffic.generator_unread_bytes.clone(),
    };
    let server = traffic.server_unread_bytes.clone();
    let server = server.map(|values| Line {
        name: "server",
        values,
    });
    std::iter::once(generator).chain(server).collect()
}

/// Nothing where all lines are empty.
fn figure(watched: &Watched, title: &str, unit: Unit, lines: Vec<Line>) -> Markup {
    let all: Vec<f64> = lines
        .iter()
        .flat_map(|line| line.values.iter().copied())
        .collect();
    if all.iter().all(|value| *value <= 0.0) {
        return html! {};
    }
    let longest = lines.iter().map(|line| line.name.len()).max().unwrap_or(0);
    let (across, up) = frame(SIZE, longest);
    let x = (
        Axis::of_values(Unit::Number("s"), &watched.end_s, across),
        "s".to_owned(),
    );
    let y = (Axis::of_values(unit, &all, up), unit.title().to_owned());
    let mut chart = Chart::new(SIZE, longest, x, y);
    for (at, line) in lines.iter().enumerate() {
        let style = Style::of(at, at, at);
        let points: Vec<(f64, f64)> = watched
            .end_s
            .iter()
            .copied()
            .zip(line.values.iter().copied())
            .collect();
        let points = thinned(&points);
        chart.line(&style.colour(), style.dashes(), &points);
        if let Some((_, last)) = points.last() {
            chart.label(&style.colour(), *last, line.name);
        }
    }
    html! {
        figure.large {
            figcaption { strong { (title) } }
            (chart.draw(&format!("{title} over the time since the command's start")))
        }
    }
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
