//! The head of a page: the closing sentences of the console, the verdict in a word, and what was
//! compared, when and where.

use super::chapter::Chapter;
use crate::ResultSet;
use crate::format::{each_once, grouped, two_owners};
use crate::page::Page;
use crate::requests::short;
use jostle_model::record::Status;
use jostle_stats::summary::{PointSummary, summarize};
use maud::{Markup, html};

/// Targets of a title, at most; beyond, they are counted.
const NAMED: usize = 6;

/// The first section of a page.
pub(super) fn conclusion(chapters: &[Chapter<'_>], sets: &[ResultSet], pages: &[Page]) -> Markup {
    let workloads: Vec<&str> = chapters.iter().map(|c| c.workload.as_str()).collect();
    html! {
        section.conclusion #conclusion aria-label="Conclusion" {
            // The title of one experiment is what was found.
            @match finding(sets, pages) {
                Some(finding) => {
                    p.kicker { "jostle " (workloads.join(", ")) ": " (subject(chapters, sets)) }
                    h1 { (told(&finding)) }
                }
                None => {
                    p.kicker { "jostle " (workloads.join(", ")) }
                    h1 { (subject(chapters, sets)) }
                }
            }
            div.sets.several[sets.len() > 1] { @for chapter in chapters {
                @for (set, label) in chapter.sets.iter().zip(&chapter.labels) {
                    @let of = heading(chapter, label, chapters.len() > 1);
                    (of_set(&of, &sets[*set], &pages[*set]))
                }
            } }
        }
    }
}

/// The finding of one experiment: the answer that tells most, or why there is none. None of several
/// experiments, and where nothing was found.
pub(super) fn finding(sets: &[ResultSet], pages: &[Page]) -> Option<String> {
    let ([set], [page]) = (sets, pages) else {
        return None;
    };
    let lead = page.lead.as_ref().map(|(text, _)| text.clone());
    lead.or_else(|| {
        let points = summarize(&set.experiment, &set.runs);
        // The one that the notes below the table quote.
        let beside = |point: &&PointSummary<'_>| point.harm.map_or(0.0, |harm| harm.share);
        let worst = points
            .iter()
            .max_by(|one, other| beside(one).total_cmp(&beside(other)));
        let worst = worst.filter(|_| is_all_invalid(set))?;
        let why = worst.verdict.why_invalid()?;
        Some(format!("{}: {}", why.is, why.text))
    })
}

/// Above the sentences of one experiment; empty of one alone.
fn heading(chapter: &Chapter<'_>, label: &str, several: bool) -> String {
    match (several, label.is_empty()) {
        (false, _) => label.to_owned(),
        (true, true) => chapter.workload.to_string(),
        (true, false) => format!("{}, {label}", chapter.workload),
    }
}

/// `flock, sysv with 10 to 1,000 workers`.
pub(super) fn subject(chapters: &[Chapter<'_>], sets: &[ResultSet]) -> String {
    let of_chapter = |chapter: &Chapter<'_>| {
        let plans = chapter.sets.iter().map(|set| &sets[*set].experiment.plan);
        let targets = plans.flat_map(|plan| &plan.targets);
        let targets = each_once(targets.map(|target| short(target)));
        let named = match targets.len() > NAMED {
            true => format!("{} targets", targets.len()),
            false => targets.join(", "),
        };
        let faults = faults(chapter);
        if !faults.is_empty() {
            return format!("{named} after {}", faults.join(", "));
        }
        match chapter.xs()[..] {
            [] => named,
            [only] => format!("{named} with {}", chapter.place(only)),
            [first, .., last] => {
                let ends = [first, last].map(|x| grouped(x as u64));
                let words = chapter.swept_words();
                format!("{named} with {} to {} {words}", ends[0], ends[1])
            }
        }
    };
    let parts = each_once(chapters.iter().map(of_chapter));
    match parts.is_empty() {
        true => "No results".to_owned(),
        false => parts.join("; "),
    }
}

/// The faults, in the order of the points.
fn faults(chapter: &Chapter<'_>) -> Vec<String> {
    let spots = chapter.series.iter().flat_map(|series| &series.spots);
    let faults = spots.filter_map(|spot| spot.point.at.fault);
    each_once(faults.map(|fault| fault.to_string()))
}

/// The lines that the console prints below its table, in its order.
fn of_set(of: &str, set: &ResultSet, page: &Page) -> Markup {
    let invalid = is_all_invalid(set);
    html! {
        div.of {
            @if !of.is_empty() { h2 { (of) } }
            // Without a figure, what to do is all that there is to take away.
            @if invalid { (next(page)) }
            (verdict(set))
            p.note.what { (prose(&page.what)) }
            @if let Some(ended) = &page.ended { p.warning { (ended) } }
            @for note in &set.notes { p.warning { (prose(note)) "." } }
            (sentences(page))
            (facts(set, page))
            @if !invalid { (next(page)) }
        }
    }
}

fn next(page: &Page) -> Markup {
    html! { p.next { "Next: " code { (words(&page.next)) } } }
}

/// Each question and its answer.
fn sentences(page: &Page) -> Markup {
    html! {
        @if !page.lines.is_empty() {
            dl.sentences { @for line in &page.lines {
                dt { (line.question) }
                dd { p { (told(&line.text())) } }
            } }
        }
    }
}

/// Whether there are points and none has a figure.
pub(super) fn is_all_invalid(set: &ResultSet) -> bool {
    let points = summarize(&set.experiment, &set.runs);
    !points.is_empty() && points.iter().all(|point| point.verdict.is_invalid())
}

/// The worst verdict of the points, how many have it, and of how many; None without a point.
pub(super) fn worst(sets: &[ResultSet]) -> Option<(Status, usize, usize)> {
    let points = sets
        .iter()
        .flat_map(|set| summarize(&set.experiment, &set.runs));
    let all: Vec<Status> = points.map(|point| point.verdict.is).collect();
    let worst = *all.iter().max()?;
    let of = all.iter().filter(|is| **is == worst).count();
    Some((worst, of, all.len()))
}

fn verdict(set: &ResultSet) -> Markup {
    html! {
        @if let Some((worst, of, all)) = worst(std::slice::from_ref(set)) {
            p.badge {
                span.word.(worst.to_string().to_lowercase()) { (worst) }
                " "
                @match (of, all) {
                    (1, 1) => { "the only point" }
                    (n, all) if n == all => { "all " (all) " points" }
                    (n, all) => { (n) " of " (all) " points; the reasons stand below their rows" }
                }
            }
        }
    }
}

fn facts(set: &ResultSet, page: &Page) -> Markup {
    let environment = &set.experiment.environment;
    html! {
        dl.facts {
            div { dt { "When" } dd { (when(&set.experiment.started_at)) } }
            div { dt { "Where" } dd {
                (environment.host)
                @if !environment.cpu_model.is_empty() { " (" (environment.cpu_model) ")" }
            } }
            div { dt { "How" } dd.intro { (prose(&page.measured)) "." } }
            @if !page.details.is_empty() { div { dt { "Details" } dd { (prose(&page.details)) } } }
        }
    }
}

/// `2026-11-21 14:28 UTC` of `2026-11-21T14:28:27Z`; other texts as they are.
fn when(stamp: &str) -> String {
    let minutes = || {
        let (day, time) = stamp.strip_suffix('Z')?.split_once('T')?;
        let (minutes, _) = time.rsplit_once(':')?;
        Some(format!("{day} {minutes} UTC"))
    };
    minutes().unwrap_or_else(|| stamp.to_owned())
}

/// A command that breaks between its words, and not behind a hyphen of an option.
fn words(command: &str) -> Markup {
    broken_between_words(command, |_| true)
}

/// A sentence that breaks only before its options and between words.
fn prose(sentence: &str) -> Markup {
    broken_between_words(sentence, |word| {
        word.trim_start_matches(['(', '`']).starts_with('-')
    })
}

/// A sentence, with two owners at a time in red.
fn told(sentence: &str) -> Markup {
    let Some(two) = two_owners(sentence) else {
        return prose(sentence);
    };
    let (before, after) = (&sentence[..two.start], &sentence[two.end..]);
    html! { (prose(before)) span.worse { (sentence[two]) } (prose(after)) }
}

fn broken_between_words(text: &str, is_whole: fn(&str) -> bool) -> Markup {
    html! {
        @for (nth, word) in text.split(' ').enumerate() {
            @if nth > 0 { " " }
            @if is_whole(word) { span.whole { (word) } } @else { (word) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::chapter::chapters;
    use crate::made;

    #[test]
    fn the_subject_names_targets_and_range() {
        let sets = [made::set()];
        let subject = subject(&chapters(&sets), &sets);
        assert_eq!(subject, "flock, sysv with 10 to 1,000 workers");
        let sets = [made::recovered()];
        let subject = super::subject(&chapters(&sets), &sets);
        assert_eq!(subject, "flock, redis after kill, stop");
        assert_eq!(super::subject(&[], &[]), "No results");
    }

    /// The title of one target's page was its parameters.
    #[test]
    fn the_title_of_a_single_target_is_its_finding() {
        let titled = |set: ResultSet| {
            let sets = [set];
            finding(&sets, &crate::page::pages(&sets))
        };
        let found = titled(made::connections()).unwrap();
        assert!(
            found.starts_with("tcp from 1 source: connect() takes"),
            "{found}"
        );
        assert!(
            !found.contains("even ports") && found.ends_with('.'),
            "{found}"
        );
        assert!(titled(made::broken()).unwrap().starts_with("busted: 6 of "));
        let both = [made::set(), made::set()];
        assert_eq!(finding(&both, &crate::page::pages(&both)), None);
    }

    #[test]
    fn the_verdict_is_the_worst_and_counts() {
        let text = verdict(&made::broken()).into_string();
        assert!(
            text.contains("invalid") && text.contains("INVALID"),
            "{text}"
        );
    }

    #[test]
    fn two_owners_at_a_time_stand_in_red() {
        let text = told("kept, two owners for up to 4 ms, and more").into_string();
        let red = "<span class=\"worse\">two owners for up to 4 ms</span>";
        assert_eq!(text, format!("kept, {red}, and more"));
    }

    #[test]
    fn options_in_a_sentence_are_not_broken() {
        let text = prose("as measured (--runs 6 would do)").into_string();
        let whole = "<span class=\"whole\">(--runs</span>";
        assert_eq!(text, format!("as measured {whole} 6 would do)"));
    }

    #[test]
    fn a_stamp_is_cut_to_its_minute_and_other_text_is_kept() {
        assert_eq!(when("2026-11-21T14:28:27Z"), "2026-11-21 14:28 UTC");
        assert_eq!(when("yesterday"), "yesterday");
    }
}
