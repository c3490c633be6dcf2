//! `--card FILE`: one picture that says what was found, for a post or a chat: the finding, one
//! figure, the verdict and the command. 1200 by 630 pixels, as links are shown.

use super::chapter::chapters;
use super::conclusion::{finding, subject};
use super::drawn::{drawn_size, style};
use super::figures::answer;
use super::scale::{Scale, cut};
use crate::ResultSet;
use crate::command::command;
use crate::format::{counted, lines};
use crate::page::pages;
use jostle_model::record::Is;
use jostle_model::text::printable;
use jostle_stats::summary::summarize;
use maud::{Markup, PreEscaped, html};

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 630.0;
const LEFT: f64 = 48.0;
/// Where the figure begins, below three lines of the title, and its height at most.
const TOP: f64 = 226.0;
const ROOM: f64 = 336.0;
/// Letters of a line of the title, of the column beside the figure, and of the command.
const TITLE: usize = 54;
const BESIDE: usize = 34;
const COMMAND: usize = 96;

/// The picture; None without results.
pub fn card(sets: &[ResultSet]) -> Option<String> {
    let chapters = chapters(sets);
    let chapter = chapters.first()?;
    let pages = pages(sets);
    let findings: Vec<&String> = match &pages[..] {
        [page] => page.findings.iter().collect(),
        _ => Vec::new(),
    };
    let subject = subject(&chapters, sets);
    let title = finding(sets, &pages);
    let title = lines(title.as_ref().unwrap_or(&subject), TITLE);
    let figures = answer(chapter).map_or(Vec::new(), |(_, figures)| figures);
    let figure = figures
        .first()
        .and_then(|figure| Some((figure, figure.charts.first()?)));
    let verdict = verdict(sets);
    let beside: Vec<String> = findings
        .iter()
        .skip(1)
        .flat_map(|more| lines(more, BESIDE))
        .collect();
    let right = if figure.is_some() { 720.0 } else { LEFT };
    let document = html! {
        svg xmlns="http://www.w3.org/2000/svg" data-made-by="jostle" width=(WIDTH) height=(HEIGHT)
            viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) {
            style { (PreEscaped(style(Scale::Log))) }
            rect width="100%" height="100%" fill="#fff" {}
            (text(LEFT, 44.0, 20, "#59626c", &format!("jostle {}: {}", chapter.workload, cut(&subject, 90))))
            @for (nth, line) in title.iter().take(3).enumerate() {
                (text(LEFT, 92.0 + 46.0 * nth as f64, 36, "#1b1f24", line))
            }
            @if let Some((figure, panel)) = figure {
                @let (_, height) = drawn_size(panel);
                @let scale = (ROOM / (height + 20.0)).min(1.1);
                g transform=(format!("translate({LEFT} {TOP}) scale({scale:.3})")) {
                    text.title x="0" y="0" { (figure.title) }
                    g transform="translate(0 16)" { (panel.drawing) }
                }
            }
            @for (nth, line) in verdict.iter().chain(&beside).enumerate() {
                (text(right, TOP + 40.0 + 32.0 * nth as f64, 24, if nth == 0 { "#1b1f24" } else { "#59626c" }, line))
            }
            (text(LEFT, HEIGHT - 24.0, 19, "#59626c", &cut(&command(&sets[0].experiment.plan), COMMAND)))
        }
    };
    Some(printable(&document.into_string()).into_owned() + "\n")
}

fn text(x: f64, y: f64, size: u32, colour: &str, words: &str) -> Markup {
    html! {
        text x=(x) y=(y) style=(format!("font-size: {size}px; font-weight: {}; fill: {colour}", if size > 30 { 700 } else { 400 })) {
            (words)
        }
    }
}

/// The worst verdict, and of how many points.
fn verdict(sets: &[ResultSet]) -> Vec<String> {
    let all = sets
        .iter()
        .flat_map(|set| summarize(&set.experiment, &set.points));
    let all: Vec<Is> = all.map(|point| point.verdict.is).collect();
    let Some(worst) = all.iter().max() else {
        return vec!["no point was measured".to_owned()];
    };
    let of = all.iter().filter(|is| *is == worst).count();
    let points = counted(all.len() as u64, "point");
    vec![match of == all.len() {
        true => format!("{worst}: {points}"),
        false => format!("{worst}: {of} of {points}"),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;

    #[test]
    fn a_card_has_the_finding_a_figure_the_verdict_and_the_command() {
        let card = card(&[made::set()]).unwrap();
        for part in [
            "width=\"1200\" height=\"630\"",
            "sysv is the cheapest in CPU with 45 us per lock,",
            "<svg class=\"chart large\"",
            "SUSPECT: 2 of 4 points",
            "jostle contend",
        ] {
            assert!(card.contains(part), "{part}: {card}");
        }
        assert!(
            !card.contains("var(--"),
            "other programs than browsers know no variables"
        );
    }

    #[test]
    fn results_without_a_figure_have_a_card_and_no_results_have_none() {
        let card = card(&[made::broken()]).unwrap();
        assert!(card.contains("INVALID: 1 point") && !card.contains("svg class"));
        assert!(super::card(&[]).is_none());
    }
}
