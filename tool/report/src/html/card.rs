//! `--card FILE`: one picture that says what was found, for a post or a chat: the finding, one
//! figure, the verdict and the command. 1200 by 630 pixels, as links are shown.

use super::chapter::chapters;
use super::conclusion::{finding, first_clause, subject};
use super::figures::{Drawing, answer};
use super::scale::{Scale, cut};
use super::svg::{drawn_size, style};
use crate::ResultSet;
use crate::command::command;
use crate::format::{counted, lines};
use crate::page::{Page, pages};
use crate::requests::short;
use jostle_model::Plan;
use jostle_model::record::Status;
use jostle_model::text::printable;
use jostle_stats::summary::summarize;
use maud::{Markup, PreEscaped, html};

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 630.0;
const LEFT: f64 = 48.0;
/// Where the figure begins, below three lines of the title, and its height at most, above two
/// lines of the command.
const TOP: f64 = 226.0;
const ROOM: f64 = 330.0;
/// Letters of a line of the column beside the figure, and of the command.
const BESIDE: usize = 34;
const COMMAND: usize = 96;

/// A size of the title: so many lines of so many letters.
struct Title {
    pixels: u32,
    letters: usize,
    lines: usize,
}

static TITLES: [Title; 2] = [
    Title {
        pixels: 36,
        letters: 54,
        lines: 3,
    },
    Title {
        pixels: 26,
        letters: 75,
        lines: 4,
    },
];

/// The scale and the distance of drawings beside each other.
const SMALLER: f64 = 0.94;
const GAP: f64 = 16.0;
/// Below it nobody reads a drawing.
const READABLE: f64 = 0.5;

/// The picture; None without results. Of several experiments of a file it is the first that
/// decides something; results of several files are drawn over each other.
pub fn card(sets: &[ResultSet]) -> Option<String> {
    let (sets, nth) = shown(sets);
    let chapters = chapters(sets);
    let chapter = chapters.first()?;
    let pages = pages(sets);
    let subject = subject(&chapters, sets);
    let found = finding(sets, &pages);
    let title = found.as_ref().unwrap_or(&subject);
    let sizes = TITLES.iter().map(|size| (lines(title, size.letters), size));
    // The first in which all of it fits.
    let sizes: Vec<_> = sizes.collect();
    let fits = sizes.iter().find(|(lines, size)| lines.len() <= size.lines);
    let (title, size) = fits.or(sizes.last())?;
    let above = match found {
        Some(_) => format!("jostle {}{nth}: {}", chapter.workload, cut(&subject, 80)),
        None => format!("jostle {}{nth}", chapter.workload),
    };
    let figures = answer(chapter).map_or(Vec::new(), |(_, figures)| figures);
    let drawn = figures.first().and_then(drawn);
    let mut beside = vec![verdict(sets)];
    beside.extend(drawn.as_ref().and_then(|drawn| drawn.left_out.clone()));
    beside.extend(more(found.as_deref().unwrap_or_default(), &pages));
    let (x, y, letters) = match &drawn {
        Some(drawn) => drawn.text,
        None => (LEFT, TOP + 40.0, TITLES[0].letters),
    };
    // The command begins below them.
    let room = ((HEIGHT - 72.0 - y) / 32.0) as usize + 1;
    let mut below: Vec<String> = Vec::new();
    // No sentence ends in its middle.
    for text in beside.iter().map(|text| lines(text, letters)) {
        if below.len() + text.len() > room {
            break;
        }
        below.extend(text.iter().map(|line| cut(line, letters)));
    }
    let plan = Plan {
        seed: None,
        ..sets[0].experiment.plan.clone()
    };
    let mut typed = lines(&command(&plan), COMMAND);
    if typed.len() > 2 {
        typed.truncate(2);
        typed[1] += " …";
    }
    let document = html! {
        svg xmlns="http://www.w3.org/2000/svg" data-made-by="jostle" width=(WIDTH) height=(HEIGHT)
            viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) {
            style { (PreEscaped(style(Scale::Log))) }
            rect width="100%" height="100%" fill="#fff" {}
            (text(LEFT, 44.0, 20, "#59626c", &above))
            @for (nth, line) in title.iter().take(size.lines).enumerate() {
                (text(LEFT, 92.0 + 1.28 * f64::from(size.pixels) * nth as f64, size.pixels, "#1b1f24", line))
            }
            @if let Some(drawn) = &drawn { (drawn.markup) }
            @for (nth, line) in below.iter().enumerate() {
                (text(x, y + 32.0 * nth as f64, 24, if nth == 0 { "#1b1f24" } else { "#59626c" }, line))
            }
            @for (nth, line) in typed.iter().rev().enumerate() {
                (text(LEFT, HEIGHT - 22.0 - 24.0 * nth as f64, 18, "#59626c", line))
            }
        }
    };
    Some(printable(&document.into_string()).into_owned() + "\n")
}

/// What of them the card is about, and which one that is, in words.
fn shown(sets: &[ResultSet]) -> (&[ResultSet], String) {
    let all = sets.len();
    let is_one_file = sets.windows(2).all(|two| two[0].file == two[1].file);
    if !is_one_file || all < 2 {
        return (sets, String::new());
    }
    let decides = |set: &[ResultSet]| pages(set)[0].is_decided;
    let at = sets.chunks(1).position(decides).unwrap_or(0);
    let nth = format!(", experiment {} of {all}", at + 1);
    (&sets[at..=at], nth)
}

/// A figure as the card shows it.
struct Drawn {
    markup: Markup,
    /// Where the text begins that has room beside or below it, and the letters of a line.
    text: (f64, f64, usize),
    /// How many small multiples have no room, in words.
    left_out: Option<String>,
}

/// Its drawing, or as many of its small multiples as stand beside each other.
fn drawn(figure: &Drawing) -> Option<Drawn> {
    let all = &figure.charts;
    let (width, height) = drawn_size(all.first()?);
    let several = all.len() > 1;
    let most = if several { SMALLER } else { 1.1 };
    let scale = (ROOM / (height + 20.0)).min(most);
    let room = WIDTH - 2.0 * LEFT + GAP;
    let beside = ((room / (width * scale + GAP)) as usize).clamp(1, all.len());
    let text = match several {
        false => (720.0, TOP + 40.0, BESIDE),
        true => (LEFT, TOP + (height + 40.0) * scale + 36.0, 2 * BESIDE + 10),
    };
    let panels = all.iter().take(beside).enumerate();
    let markup = html! {
        text.title x=(LEFT) y=(TOP) { (figure.title) }
        @for (nth, panel) in panels {
            g transform=(format!("translate({} {}) scale({scale:.3})", LEFT + nth as f64 * (width * scale + GAP), TOP + 8.0)) {
                @if let Some(label) = &panel.label { text x="0" y="14" { (label) } }
                g transform="translate(0 16)" { (panel.drawing) }
            }
        }
    };
    (scale >= READABLE).then(|| Drawn {
        markup,
        text,
        left_out: (beside < all.len()).then(|| format!("{beside} of {} are drawn.", all.len())),
    })
}

/// What else was found, else what is said of each target that is not the title.
fn more(title: &str, pages: &[Page]) -> Vec<String> {
    let [page] = pages else { return Vec::new() };
    let others: Vec<String> = page.findings.iter().skip(1).cloned().collect();
    if !others.is_empty() {
        return others;
    }
    let clauses = page.sentences.iter();
    let clauses = clauses.map(|(target, sentence)| (target, first_clause(sentence)));
    let others = clauses.filter(|(_, clause)| {
        let start: String = clause.chars().skip(1).take(30).collect();
        !title.contains(&start)
    });
    others
        .map(|(target, clause)| format!("{}: {clause}", short(target)))
        .collect()
}

fn text(x: f64, y: f64, size: u32, colour: &str, words: &str) -> Markup {
    html! {
        text x=(x) y=(y) style=(format!("font-size: {size}px; font-weight: {}; fill: {colour}", if size > 25 { 700 } else { 400 })) {
            (words)
        }
    }
}

/// The worst verdict, and of how many points.
fn verdict(sets: &[ResultSet]) -> String {
    let all = sets
        .iter()
        .flat_map(|set| summarize(&set.experiment, &set.runs));
    let all: Vec<Status> = all.map(|point| point.verdict.is).collect();
    let Some(worst) = all.iter().max() else {
        return "no point was measured".to_owned();
    };
    let of = all.iter().filter(|is| *is == worst).count();
    let points = counted(all.len() as u64, "point");
    match of == all.len() {
        true => format!("{worst}: {points}"),
        false => format!("{worst}: {of} of {points}"),
    }
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

    /// It showed the first of 14 targets, without its name, and half of the command.
    #[test]
    fn a_card_of_many_targets_tells_which_it_shows() {
        let card = card(&[made::wide(14, 12)]).unwrap();
        assert_eq!(card.matches("<svg class=\"chart").count(), 3);
        for target in ["lock01", "lock02", "lock03"] {
            assert!(
                card.contains(&format!(">{target}</text>")),
                "{target}: {card}"
            );
        }
        assert!(card.contains("3 of 14 are drawn."));
        assert!(!card.contains("--seed"));
        let places = card.split(" y=\"").skip(1);
        let lowest = places.filter_map(|at| at.split('"').next()?.parse::<f64>().ok());
        assert!(lowest.fold(0.0, f64::max) < HEIGHT);
    }

    /// A title was cut in its middle, and a name of 50 letters ran out of the picture.
    #[test]
    fn long_names_and_findings_stay_in_the_picture() {
        let mut set = made::set();
        let name = "lib:/home/someone/projects/locks/build/release/a_very_long_name_of_a_lock.so";
        for run in set.runs.iter_mut().filter(|run| run.target == "sysv") {
            run.target = name.to_owned();
        }
        set.experiment.plan.targets[1] = name.to_owned();
        let card = card(&[set]).unwrap();
        for text in card.split("<text x=\"").skip(1) {
            let (head, rest) = text.split_once('>').unwrap();
            let Some((_, size)) = head.split_once("font-size: ") else {
                continue;
            };
            let number = |text: &str| text.split(['p', '"']).next().unwrap().parse::<f64>();
            let (x, size) = (number(head).unwrap(), number(size).unwrap());
            let letters = rest.split('<').next().unwrap().chars().count() as f64;
            assert!(x + 0.6 * size * letters < WIDTH + 40.0, "{text}");
        }
        assert!(card.contains("(1,000 workers)."), "{card}");
    }

    /// The card of a plan had the names of its targets for a title.
    #[test]
    fn of_a_plan_the_card_shows_the_first_experiment_that_decides_something() {
        let mut few = made::set();
        few.runs.retain(|run| run.block < 3);
        let card = card(&[few, made::set()]).unwrap();
        assert!(card.contains("jostle contend, experiment 2 of 2: flock, sysv"));
        assert!(card.contains("sysv is the cheapest in CPU"), "{card}");
    }

    #[test]
    fn results_without_a_figure_have_a_card_and_no_results_have_none() {
        let card = card(&[made::broken()]).unwrap();
        assert!(card.contains("INVALID: 1 point") && !card.contains("svg class"));
        assert!(super::card(&[]).is_none());
    }
}
