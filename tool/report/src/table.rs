//! `--format table`: for people at a terminal.

use crate::ResultSet;
use crate::failures::FAILURES;
use crate::format::{padded, wrap};
use crate::headline::Headline;
use crate::names::named;
use crate::next::next;
use crate::page::{Page, pages};
use jostle_model::text::one_line;
use jostle_stats::summary::summarize;

/// As wide as a terminal is at least, and paper.
pub(crate) const WIDTH: usize = 80;

/// Prose in longer lines is hard to read, however wide the terminal is.
const WIDEST_PROSE: usize = 100;

/// One page after the other, an empty line between them.
pub(crate) fn render(sets: &[ResultSet]) -> String {
    render_within(sets, WIDTH, false)
}

/// The pages in lines of at most this many columns, except for words that are longer themselves;
/// with `all` every column and table, and how it was measured in full.
pub fn render_within(sets: &[ResultSet], width: usize, all: bool) -> String {
    let named = named(sets);
    let mut pages = pages(&named.sets);
    let mut texts = Vec::new();
    for ((one, set), names) in pages.iter_mut().zip(sets).zip(&named.notes) {
        if !names.is_empty() {
            // It is typed, and needs the whole names.
            one.next = next(set, &summarize(&set.experiment, &set.runs));
        }
        texts.push(page(one, width, all, names));
    }
    texts.join("\n")
}

fn page(page: &Page, width: usize, all: bool, names: &[(String, String)]) -> String {
    let prose = |first: &str, text: &str| wrap(first, text, width.min(WIDEST_PROSE));
    let mut text = prose("", &page.what);
    if let Some(headline) = &page.headline {
        text.push('\n');
        text += &match all {
            true => headline.grid.fitted(width),
            false => headline.grid.chosen(width).fitted(width),
        };
        for (at, note) in headline.notes.iter().enumerate() {
            text += &prose(&format!("[{}] ", at + 1), note);
        }
        for (short, whole) in names {
            text += &prose("", &format!("{short} is {whole}"));
        }
    }
    if !page.failures.is_empty() {
        text = text + "\n" + FAILURES + "\n";
    }
    for said in &page.failures {
        text += &prose("  ", said);
    }
    for table in page.tables.iter().filter(|table| all || !table.is_detail) {
        text.push('\n');
        text += &prose("", &table.title);
        text += &table.grid.fitted(width);
        for (mark, note) in &table.notes {
            text += &prose(&format!("{mark} "), note);
        }
    }
    if !page.lines.is_empty() {
        text.push('\n');
    }
    let widest = page.lines.iter().map(|line| line.question.chars().count());
    let wide = widest.max().unwrap_or(0);
    for line in &page.lines {
        text += &prose(&(padded(line.question, wide, true) + "  "), &line.text());
    }
    text.push('\n');
    if let Some(ended) = &page.ended {
        text += &prose("", ended);
    }
    text += &prose("", &format!("{}.", page.measured));
    let is_hidden = |headline: &Headline| {
        headline.grid.chosen(width).columns.len() < headline.grid.columns.len()
    };
    let is_more = !page.details.is_empty() || page.headline.as_ref().is_some_and(is_hidden);
    text += &match (all, is_more) {
        (true, true) if !page.details.is_empty() => prose("", &page.details),
        (false, true) => "More: -v\n".to_owned(),
        _ => String::new(),
    };
    text + &typed("Next: ", &page.next, width)
}

/// A command in lines that a shell takes for one, so that it can be copied.
fn typed(first: &str, command: &str, width: usize) -> String {
    let command = one_line(command);
    let mut lines = vec![first.to_owned()];
    let mut words = 0;
    for word in words_of(&command) {
        let line = lines.last().map_or(0, |line| line.chars().count());
        // Behind the last word of a line stands the sign that it goes on.
        if words > 0 && line + 1 + word.chars().count() + CONTINUES.len() > width {
            if let Some(line) = lines.last_mut() {
                *line += CONTINUES;
            }
            lines.push(" ".repeat(first.chars().count()));
            words = 0;
        }
        if let Some(line) = lines.last_mut() {
            if words > 0 {
                line.push(' ');
            }
            line.push_str(word);
        }
        words += 1;
    }
    lines.join("\n") + "\n"
}

const CONTINUES: &str = " \\";

/// The words of a command as a shell parts them, each as it is typed.
fn words_of(command: &str) -> Vec<&str> {
    let (mut words, mut from, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, letter) in command.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if !quoted => escaped = true,
            '\'' => quoted = !quoted,
            ' ' if !quoted => {
                words.push(&command[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    words.push(&command[from..]);
    words
}

#[cfg(test)]
mod tests {
    use super::{WIDTH, render, render_within, typed, words_of};
    use crate::ResultSet;
    use crate::format::longest_word;
    use crate::made;
    use jostle_model::Nanos;

    #[test]
    fn results_as_people_see_them() {
        for (name, set) in [
            ("a_comparison_of_two_locks", made::set()),
            ("a_lock_that_does_not_exclude", made::broken()),
            ("counts_alone", made::counts_only()),
            ("locks_after_a_fault", made::recovered()),
            ("locks_through_many_faults", made::verified()),
        ] {
            insta::assert_snapshot!(name, render(&[set]));
        }
    }

    #[test]
    fn a_lease_that_is_not_the_one_that_was_asked_for_is_stated() {
        let mut set = made::recovered();
        let stated = |set: &ResultSet| {
            let text = render(std::slice::from_ref(set));
            let words: Vec<&str> = text.split_whitespace().collect();
            words.join(" ")
        };
        assert!(!stated(&set).contains("it lasted"));
        set.experiment.plan.lease = Some(Nanos::from_millis(1_000));
        let text = stated(&set);
        // flock has none.
        assert_eq!(text.matches("it lasted").count(), 1, "{text}");
        assert!(
            text.contains("redis: it lasted 2.00 s, and 1.00 s were asked for."),
            "{text}"
        );
    }

    #[test]
    fn several_experiments_one_of_them_cut_short() {
        let mut cut = made::set();
        cut.runs.truncate(4);
        cut.end = None;
        insta::assert_snapshot!(render(&[made::counts_only(), cut]));
    }

    #[test]
    fn shares_above_the_times_asked_for() {
        let mut set = made::set();
        set.experiment.plan.over = Some(vec![Nanos::from_millis(100), Nanos::from_millis(1000)]);
        for run in &mut set.runs {
            let granted = &mut run.acquire_ns.as_mut().unwrap().granted;
            let crowd = run.at.workers == Some(1000);
            let (tenth, second) = if crowd { (0.91, 0.0432) } else { (0.0, 0.0) };
            granted.over = [("100ms".to_owned(), tenth), ("1s".to_owned(), second)].into();
        }
        insta::assert_snapshot!(render(&[set]));
    }

    #[test]
    fn what_was_said_of_failures_stands_under_the_table() {
        let mut set = made::broken();
        set.runs[0].around.messages = vec!["flock: No locks available (os error 37)".to_owned()];
        let text = render(&[set]);
        let said = "\nThe first failure of each kind:\n  \
                    busted: flock: No locks available (os error 37)\n";
        assert!(text.contains(said), "{text}");
        assert!(!render(&[made::broken()]).contains("first failure"));
    }

    #[test]
    fn without_a_finished_run_there_is_no_table() {
        let mut set = made::set();
        set.runs.clear();
        set.end = None;
        insta::assert_snapshot!(render(&[set]), @r"
        jostle contend flock sysv: 10 and 1,000 processes compete for one lock; each
        holds it for 1 ms, then pauses for 10 us.

        This experiment has no end: jostle or the machine was stopped; 0 runs were
        finished.
        2 cores, Linux 6.18, tmpfs; seed 42.
        Next: jostle contend flock sysv -w 10:1000 -t 5 --runs 6
        ");
    }

    #[test]
    fn a_command_is_broken_where_a_shell_takes_it_for_one() {
        let command = r"jostle call 'exec:perl -e '\''exit 3'\'' x' -n 100:1000 --runs 6";
        let words = [
            "jostle",
            "call",
            r"'exec:perl -e '\''exit 3'\'' x'",
            "-n",
            "100:1000",
            "--runs",
            "6",
        ];
        assert_eq!(words_of(command), words);
        let text = typed("Next: ", command, 40);
        assert!(
            text.lines().all(|line| line.chars().count() <= 40),
            "{text}"
        );
        let joined = text.trim_start_matches("Next: ").replace("\\\n", " ");
        assert_eq!(words_of_lines(&joined), words);
        assert_eq!(
            typed("Next: ", "jostle doctor", 40),
            "Next: jostle doctor\n"
        );
    }

    fn words_of_lines(text: &str) -> Vec<&str> {
        let words = words_of(text.trim_end()).into_iter();
        words.filter(|word| !word.is_empty()).collect()
    }

    /// Every record of the repository, at three widths of a terminal.
    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_cell_is_broken() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/record");
        let mut lines = 0;
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let Ok(sets) = crate::read(&path) else {
                continue;
            };
            for (width, all) in [(80, false), (80, true), (120, true), (200, true)] {
                let text = render_within(&sets, width, all);
                for line in text.lines() {
                    let long = line.chars().count();
                    let indent = long - line.trim_start().chars().count();
                    let first = line.trim_start().trim_start_matches("Next: ");
                    let word = longest_word(line.trim_start().trim_end_matches(" \\"));
                    assert!(
                        long <= width || indent + word + 2 >= long || !first.contains(' '),
                        "{} at {width}: {line}",
                        path.display()
                    );
                    lines += 1;
                }
                for (set, page) in sets.iter().zip(crate::page::pages(&sets)) {
                    if all {
                        cells_are_whole(&text, &page);
                    }
                    marks_have_notes(&page);
                    is_one_table(&page);
                    assert!(!set.runs.is_empty());
                }
            }
        }
        assert!(lines > 1_000, "{lines}");
    }

    /// Each cell of each table stands in one line.
    fn cells_are_whole(text: &str, page: &crate::page::Page) {
        let headline = page.headline.iter().map(|headline| &headline.grid);
        let tables = page.tables.iter().map(|table| &table.grid);
        for grid in headline.chain(tables) {
            for cell in grid.rows.iter().flatten() {
                assert!(
                    text.lines().any(|line| line.contains(cell.as_str())),
                    "{cell}"
                );
            }
        }
    }

    /// Without `-v` the table fits a terminal: it was printed in up to three parts.
    fn is_one_table(page: &crate::page::Page) {
        let Some(headline) = &page.headline else {
            return;
        };
        let table = headline.grid.chosen(WIDTH).fitted(WIDTH);
        assert!(!table.contains("\n\n"), "{table}");
    }

    /// Each footnote is referred to, and each reference has a footnote.
    fn marks_have_notes(page: &crate::page::Page) {
        let Some(headline) = &page.headline else {
            return;
        };
        let marks = headline.grid.rows.iter().filter_map(|row| row.last());
        let marks = marks.flat_map(|cell| cell.split(['[', ',', ']']).skip(1));
        let marks = marks.filter_map(|mark| mark.parse::<usize>().ok());
        let marks: std::collections::BTreeSet<usize> = marks.collect();
        assert_eq!(marks, (1..=headline.notes.len()).collect());
    }

    #[test]
    fn requests_at_three_widths() {
        for width in [80, 120, 200] {
            insta::assert_snapshot!(
                format!("spread_at_{width}"),
                render_within(&[made::spread()], width, true)
            );
        }
    }
}
