//! Every figure of the page as an SVG that stands by itself: the page's drawing on a white
//! ground, below its title, with the rules of the page's style that it needs.

use super::chapter::chapters;
use super::conclusion::{finding, subject, worst};
use super::figures::{Drawing, Panel, answer, groups};
use super::scale::Scale;
use super::{STYLE, ratios};
use crate::ResultSet;
use crate::format::{counted, lines};
use crate::judged::Judgements;
use crate::page::pages;
use jostle_model::text::printable;
use maud::{PreEscaped, html};
use std::collections::BTreeMap;

/// Pixels around a drawing, and above it for its title.
const AROUND: f64 = 16.0;
const TITLE: f64 = 44.0;
/// Of `--card`: the height of a line above the title, and its letters.
const LINE: f64 = 20.0;
const LETTERS: usize = 70;

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

/// The picture of `--card`: of these figures the first, below what was found and the verdict;
/// None where nothing was measured. Of several experiments of one file it shows the first that
/// decides something.
pub fn card(sets: &[ResultSet]) -> Option<String> {
    let is_one_file = sets.windows(2).all(|two| two[0].file == two[1].file);
    let decides = |set: &&[ResultSet]| {
        pages(set)[0]
            .lead
            .as_ref()
            .is_some_and(|(_, is_finding)| *is_finding)
    };
    let mut each = sets.chunks(1);
    let shown = match is_one_file {
        true => each.clone().find(decides).or(each.next())?,
        false => sets,
    };
    let chapters = chapters(shown);
    let chapter = chapters.first()?;
    let (_, figures) = answer(chapter)?;
    let figure = figures.iter().find(|figure| !figure.charts.is_empty())?;
    let found = finding(shown, &pages(shown));
    let found = found.unwrap_or_else(|| subject(&chapters, shown));
    let mut above = lines(&found, LETTERS);
    let (worst, of, all) = worst(shown)?;
    let points = counted(all as u64, "point");
    above.push(match of == all {
        true => format!("{worst}: {points}"),
        false => format!("{worst}: {of} of {points}"),
    });
    let picture = svg(figure, &figure.charts[0], &style(Scale::Log), &above);
    Some(printable(&picture).into_owned())
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
                svg: svg(figure, panel, &style, &[]),
            });
        }
    }
}

/// The drawing and its title, below lines of text.
fn svg(figure: &Drawing, panel: &Panel, style: &str, above: &[String]) -> String {
    let (width, height) = drawn_size(panel);
    let top = LINE * above.len() as f64;
    let (whole, high) = (width + 2.0 * AROUND, top + height + TITLE + 2.0 * AROUND);
    let title = match &panel.label {
        Some(label) => format!("{}: {label}", figure.title),
        None => figure.title.clone(),
    };
    let document = html! {
        svg xmlns="http://www.w3.org/2000/svg" data-made-by="jostle" width=(whole) height=(high)
            viewBox=(format!("0 0 {whole} {high}")) {
            style { (PreEscaped(style)) }
            rect width="100%" height="100%" fill="#fff" {}
            @for (nth, line) in above.iter().enumerate() {
                text.title x=(AROUND) y=(24.0 + LINE * nth as f64) { (line) }
            }
            text.title x=(AROUND) y=(top + 30.0) { (title) }
            text.note x=(AROUND) y=(top + 48.0) { (super::scale::cut(&figure.note, (width / 5.6) as usize)) }
            g transform=(format!("translate({AROUND} {})", top + TITLE + AROUND)) { (panel.drawing) }
        }
    };
    document.into_string() + "\n"
}

/// As its own `viewBox` has it: the height of some depends on their rows.
fn drawn_size(panel: &Panel) -> (f64, f64) {
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
fn style(scale: Scale) -> String {
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
    fn a_card_is_the_first_figure_below_the_finding_and_the_verdict() {
        let set = made::set();
        let card = card(std::slice::from_ref(&set)).unwrap();
        for part in ["flock uses 4.7 times as much", "SUSPECT: 2 of 4 points"] {
            assert!(card.contains(part), "{part}: {card}");
        }
        let first = &svg_files(&[set])[0].svg;
        let drawing = first.split("<g transform").nth(1).unwrap();
        assert!(card.contains(drawing.split_once('>').unwrap().1));
        assert_eq!(super::card(&[made::broken()]), None);
        assert_eq!(super::card(&[]), None);
    }

    /// The card of a plan had the names of its targets for a title.
    #[test]
    fn of_a_plan_the_card_shows_the_first_experiment_that_decides_something() {
        let mut few = made::set();
        few.runs
            .retain(|run| run.block < 3 && run.at.workers == Some(10));
        let card = card(&[few, made::set()]).unwrap();
        assert!(card.contains("flock uses 4.7 times as much"), "{card}");
    }

    #[test]
    fn a_name_is_letters_digits_and_dashes() {
        assert_eq!(slug("Jain's index (of 5)"), "jain-s-index-of-5");
    }
}
