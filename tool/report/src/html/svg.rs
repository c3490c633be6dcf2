//! Every figure of the page as an SVG that stands by itself: the page's drawing on a white
//! ground, below its title, with the rules of the page's style that it needs.

use super::chapter::chapters;
use super::figures::{Drawing, Panel, answer, groups};
use super::scale::Scale;
use super::{STYLE, ratios};
use crate::ResultSet;
use crate::judged::Judgements;
use maud::{PreEscaped, html};
use std::collections::BTreeMap;

/// Pixels around a drawing, and above it for its title.
const AROUND: f64 = 16.0;
const TITLE: f64 = 44.0;

/// One drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SvgFile {
    /// For the name of a file: `01-contend-throughput`.
    pub name: String,
    /// The document.
    pub svg: String,
}

/// All figures, in the order of the page.
pub fn svg_files(sets: &[ResultSet]) -> Vec<SvgFile> {
    let mut all = Vec::new();
    for chapter in &chapters(sets) {
        let (_, answers) = answer(chapter).unwrap_or_default();
        let groups = groups(chapter, &answers);
        let ratios = ratios::of_chapter(chapter, sets);
        let detail = groups.into_iter().flat_map(|group| group.figures);
        let figures: Vec<Drawing> = answers.into_iter().chain(ratios).chain(detail).collect();
        add(&mut all, chapter.workload.as_str(), Scale::Log, &figures);
    }
    all
}

/// Those of results of `judge`, on the linear scale that their page opens with.
pub fn svg_files_of_judged(found: &[Judgements]) -> Vec<SvgFile> {
    let mut all = Vec::new();
    for watched in found.iter().flat_map(|file| &file.watched) {
        add(
            &mut all,
            "judge",
            Scale::Linear,
            &super::judged::figures(watched),
        );
    }
    all
}

/// Each drawing of these figures, numbered on.
fn add(all: &mut Vec<SvgFile>, of: &str, scale: Scale, figures: &[Drawing]) {
    let style = style(scale);
    for figure in figures {
        for panel in &figure.charts {
            let number = all.len() + 1;
            all.push(SvgFile {
                name: format!("{number:02}-{of}-{}", slug(&figure.title)),
                svg: svg(figure, panel, &style),
            });
        }
    }
}

fn svg(figure: &Drawing, panel: &Panel, style: &str) -> String {
    let (width, height) = drawn_size(panel);
    let (whole, high) = (width + 2.0 * AROUND, height + TITLE + 2.0 * AROUND);
    let title = match &panel.label {
        Some(label) => format!("{}: {label}", figure.title),
        None => figure.title.clone(),
    };
    let document = html! {
        svg xmlns="http://www.w3.org/2000/svg" data-made-by="jostle" width=(whole) height=(high)
            viewBox=(format!("0 0 {whole} {high}")) {
            style { (PreEscaped(style)) }
            rect width="100%" height="100%" fill="#fff" {}
            text.title x=(AROUND) y="30" { (title) }
            text.note x=(AROUND) y="48" { (super::scale::cut(&figure.note, (width / 5.6) as usize)) }
            g transform=(format!("translate({AROUND} {})", TITLE + AROUND)) { (panel.drawing) }
        }
    };
    document.into_string() + "\n"
}

/// As its own `viewBox` has it: the height of some depends on their rows.
pub(super) fn drawn_size(panel: &Panel) -> (f64, f64) {
    let text = &panel.drawing.0;
    let numbers = text.split("viewBox=\"0 0 ").nth(1);
    let numbers = numbers.and_then(|rest| rest.split('"').next());
    let parse = |numbers: &str| -> Option<(f64, f64)> {
        let (width, height) = numbers.split_once(' ')?;
        Some((width.parse().ok()?, height.parse().ok()?))
    };
    numbers.and_then(parse).unwrap_or(panel.size)
}

/// The page's rules for drawings, with the light colours in place of their names: other
/// programs than browsers know no variables.
pub(super) fn style(scale: Scale) -> String {
    let colours: BTreeMap<&str, &str> = STYLE
        .lines()
        .take_while(|line| !line.starts_with('}'))
        .flat_map(|line| line.split(';'))
        .filter_map(|rule| rule.trim().split_once(": "))
        .filter(|(name, _)| name.starts_with("--"))
        .collect();
    let (_, rest) = STYLE.split_once("/* drawings */").unwrap_or_default();
    let (rules, _) = rest.split_once("/* end of drawings */").unwrap_or_default();
    let hidden = match scale {
        Scale::Log => ".x.lin, .y.lin",
        Scale::Linear => ".x.log, .y.log",
    };
    let mut rules = rules.replace("[data-x=log] .x.lin, [data-y=log] .y.lin", hidden);
    for (name, colour) in colours {
        rules = rules.replace(&format!("var({name})"), colour);
    }
    format!(
        "text {{ font-family: system-ui, \"DejaVu Sans\", Helvetica, sans-serif; }}\n\
         text.title {{ font-size: 15px; font-weight: 600; fill: #1b1f24; }}\n\
         text.note {{ font-size: 11px; fill: #59626c; }}{rules}"
    )
}

/// Letters and digits, others as single dashes.
fn slug(title: &str) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    words.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;
    use std::collections::BTreeSet;

    #[test]
    fn every_drawing_has_a_name_of_its_own_and_needs_nothing_else() {
        let all = svg_files(&[made::set()]);
        assert!(all.len() > 5);
        let names: BTreeSet<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        assert_eq!(
            all[0].name,
            "01-contend-cpu-time-of-the-workers-for-one-lock"
        );
        for one in &all {
            assert!(!one.svg.contains("var(--"), "{}", one.svg);
            assert!(one.svg.starts_with("<svg xmlns"), "{}", one.svg);
            // Of both scales the logarithmic one shows.
            assert!(one.svg.contains(".x.lin, .y.lin { display: none; }"));
        }
    }

    /// Judge's figures open linear: on logarithmic ticks they would lie.
    #[test]
    fn the_figures_of_judge_are_files_with_linear_ticks() {
        let file = Judgements {
            watched: vec![crate::judged::tests::made()],
            ..Judgements::default()
        };
        let all = svg_files_of_judged(&[file]);
        assert_eq!(all[0].name, "01-judge-busiest-threads");
        assert!(all.len() > 2);
        for one in &all {
            assert!(one.svg.contains(".x.log, .y.log { display: none; }"));
        }
    }

    #[test]
    fn a_name_is_letters_digits_and_dashes() {
        assert_eq!(slug("Jain's index (of 5)"), "jain-s-index-of-5");
    }
}
