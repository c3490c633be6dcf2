//! `--format markdown`: the table and its sentences for a page or an issue.
//!
//! Names of targets, hosts and programs and the words of servers come from outside. None of
//! them can begin a line, an element of HTML, a link or a picture of its own.

use crate::ResultSet;
use crate::failures::FAILURES;
use crate::page::{Page, pages};
use jostle_model::text::one_line;

/// One page after the other, a rule between them.
pub(crate) fn render(sets: &[ResultSet]) -> String {
    let pages: Vec<String> = pages(sets).iter().map(page).collect();
    pages.join("\n---\n\n")
}

fn page(page: &Page) -> String {
    let mut blocks = vec![escaped(&page.what) + "\n"];
    if let Some(headline) = &page.headline {
        blocks.push(headline.grid.chosen(usize::MAX).markdown());
        let notes = headline.notes.iter().enumerate();
        blocks.push(items(
            notes.map(|(at, note)| format!("[{}] {note}", at + 1)),
        ));
    }
    if !page.failures.is_empty() {
        blocks.push(format!("{FAILURES}\n"));
        blocks.push(items(page.failures.iter().cloned()));
    }
    for table in page.tables.iter().filter(|table| !table.is_detail) {
        blocks.push(format!("{}\n", escaped(&table.title)));
        blocks.push(table.grid.markdown());
        let notes = table.notes.iter();
        blocks.push(items(notes.map(|(mark, note)| format!("{mark} {note}"))));
    }
    let lines = page.lines.iter();
    let lines = lines.map(|line| format!("- **{}** {}\n", line.question, escaped(&line.text())));
    blocks.push(lines.collect());
    blocks.extend(page.ended.iter().map(|text| escaped(text) + "\n"));
    blocks.push(escaped(&page.measured) + ".\n");
    blocks.push(format!("Next: {}\n", code(&page.next)));
    blocks.retain(|block| !block.is_empty());
    blocks.join("\n")
}

fn items(texts: impl Iterator<Item = String>) -> String {
    texts.map(|text| item(&text)).collect()
}

/// A line of a list.
pub(crate) fn item(text: &str) -> String {
    format!("- {}\n", escaped(text))
}

/// A text in one line, as a reader of Markdown shows it.
pub(crate) fn escaped(text: &str) -> String {
    let text = one_line(text);
    let mut out = String::with_capacity(text.len());
    let mut before = None;
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '\\' | '`' | '|' => out.extend(['\\', c]),
            // Where a link, its definition or a picture begins; `[1]` refers to a note.
            '(' | ':' if before == Some(']') => out.extend(['\\', c]),
            '[' if before == Some('!') => out += "\\[",
            _ => out.push(c),
        }
        before = Some(c);
    }
    out
}

/// Code within a line, its marks longer than any within.
fn code(text: &str) -> String {
    let text = one_line(text);
    let mark = "`".repeat(1 + longest(&text, '`'));
    match mark.len() {
        1 => format!("`{text}`"),
        _ => format!("{mark} {text} {mark}"),
    }
}

/// A block of lines as they are, its marks longer than any within.
pub(crate) fn fenced(text: &str) -> String {
    let mark = "`".repeat(3.max(1 + longest(text, '`')));
    format!("{mark}text\n{text}{mark}\n")
}

/// The longest run of a character.
fn longest(text: &str, wanted: char) -> usize {
    let runs = text.split(|c| c != wanted);
    runs.map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{fenced, render};
    use crate::made;

    #[test]
    fn a_comparison_of_two_locks() {
        insta::assert_snapshot!(render(&[made::set()]));
    }

    /// Raw newlines and elements of HTML once went through.
    #[test]
    fn a_hostile_name_stays_a_name() {
        let hostile =
            "x`y|z\n# VALID <script>alert(1)</script> ![](http://e/p.png) \\| ``` \u{202e}&lt;";
        let mut set = made::set();
        set.experiment.environment.host = hostile.to_owned();
        set.experiment.environment.kernel = hostile.to_owned();
        set.experiment.plan.targets[0] = hostile.to_owned();
        for run in set.runs.iter_mut().filter(|run| run.target == "flock") {
            run.target = hostile.to_owned();
            run.around.messages = vec![hostile.to_owned()];
            run.around.errors.insert(hostile.to_owned(), 3);
        }
        // The next command is this plan again.
        set.end = None;
        let other = made::set();
        let text = render(&[set, other.clone()]);
        let usual = render(&[other]);
        let cells = |line: &str| {
            line.replace("\\\\", "")
                .replace("\\|", "")
                .matches('|')
                .count()
        };
        let columns = usual.lines().find(|line| line.starts_with('|')).map(cells);
        for line in text.lines() {
            // Within code only its own mark has a meaning.
            if let Some(code) = line.strip_prefix("Next: ") {
                let mark = if code.contains("script") { "````" } else { "`" };
                assert!(code.starts_with(mark) && code.ends_with(mark), "{line}");
                assert_eq!(code.matches(mark).count(), 2, "{line}");
                continue;
            }
            for part in ["<", "](", "![", "\u{202e}", " `", "&lt;script>alert(1)</"] {
                assert!(!line.contains(part), "{part}: {line}");
            }
            assert!(!line.starts_with('#'), "{line}");
            assert!(
                !line.starts_with('|') || Some(cells(line)) == columns,
                "{line}"
            );
        }
        assert!(text.contains("&lt;script>alert(1)&lt;/script>"), "{text}");
        assert_eq!(text.matches("Next: ````").count(), 1, "{text}");
        assert_eq!(fenced("a\n````\n"), "`````text\na\n````\n`````\n");
    }

    #[test]
    fn several_experiments() {
        let text = render(&[made::counts_only(), made::broken()]);
        assert_eq!(text.matches("\n\n---\n\n").count(), 1);
        assert_eq!(text.matches("| target |").count(), 2);
    }
}
