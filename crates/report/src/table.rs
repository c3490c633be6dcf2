//! `--format table`: for people at a terminal.

use crate::ResultSet;
use crate::failures::FAILURES;
use crate::format::{padded, wrap};
use crate::page::{Page, pages};
use crate::requests::ACCOUNTS;

/// As wide as a terminal is at least.
const WIDTH: usize = 80;

/// A name that is longer, such as an address, has a line of its own, so that room
/// is left for what is said of it.
const WIDEST_NAME: usize = 40;

/// One page after the other, an empty line between them.
pub fn render(sets: &[ResultSet]) -> String {
    let pages: Vec<String> = pages(sets).iter().map(page).collect();
    pages.join("\n")
}

fn page(page: &Page) -> String {
    let mut text = wrap("", &page.intro, WIDTH);
    if let Some(headline) = &page.headline {
        text += &headline.grid.text();
        if let Some(meaning) = headline.plus_minus {
            text += &wrap("", meaning, WIDTH);
        }
        for (at, note) in headline.notes.iter().enumerate() {
            text += &wrap(&format!("[{}] ", at + 1), note, WIDTH);
        }
    }
    if !page.failures.is_empty() {
        text = text + "\n" + FAILURES + "\n";
    }
    for said in &page.failures {
        text += &wrap("  ", said, WIDTH);
    }
    for table in &page.tables {
        text.push('\n');
        text += &wrap("", &table.title, WIDTH);
        text += &table.grid.text();
        for (mark, note) in &table.notes {
            text += &wrap(&format!("{mark} "), note, WIDTH);
        }
    }
    if let Some(accounts) = &page.accounts {
        text.push('\n');
        text += &wrap("", ACCOUNTS, WIDTH);
        text += &accounts.text();
    }
    if let Some(over) = &page.over {
        text += "\nShare of the acquisitions that waited longer:\n";
        text += &over.text();
    }
    let conclusions = conclusions(page);
    if !conclusions.is_empty() {
        text.push('\n');
        text += &conclusions;
    }
    if let Some(ended) = &page.ended {
        text += &wrap("", ended, WIDTH);
    }
    if let Some(checked) = &page.checked {
        text += &wrap("", checked, WIDTH);
    }
    // Not wrapped, so that it can be copied.
    text + "Next: " + &page.next + "\n"
}

fn conclusions(page: &Page) -> String {
    let names = page
        .sentences
        .iter()
        .chain(&page.growth)
        .map(|(target, _)| target.chars().count());
    let width = names.max().unwrap_or(0);
    let mut text = String::new();
    for (target, sentence) in &page.sentences {
        text += &match width > WIDEST_NAME {
            true => format!("{target}\n{}", wrap("  ", sentence, WIDTH)),
            false => wrap(&(padded(target, width, true) + "  "), sentence, WIDTH),
        };
    }
    for (target, sentence) in &page.growth {
        let first = match target.is_empty() {
            true => String::new(),
            false => padded(target, width, true) + "  ",
        };
        text += &wrap(&first, sentence, WIDTH);
    }
    for comparison in &page.comparisons {
        text += &wrap("", comparison, WIDTH);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::made;
    use jostle_model::Nanos;

    #[test]
    fn a_comparison_of_two_locks() {
        insta::assert_snapshot!(render(&[made::set()]));
    }

    #[test]
    fn locks_after_a_fault() {
        insta::assert_snapshot!(render(&[made::recovered()]));
    }

    #[test]
    fn a_lock_that_does_not_exclude() {
        insta::assert_snapshot!(render(&[made::broken()]));
    }

    #[test]
    fn counts_alone() {
        insta::assert_snapshot!(render(&[made::counts_only()]));
    }

    #[test]
    fn several_experiments_one_of_them_cut_short() {
        let mut cut = made::set();
        cut.points.truncate(4);
        cut.end = None;
        insta::assert_snapshot!(render(&[made::counts_only(), cut]));
    }

    #[test]
    fn shares_above_the_times_asked_for() {
        let mut set = made::set();
        set.experiment.plan.over = Some(vec![Nanos::from_millis(100), Nanos::from_millis(1000)]);
        for point in &mut set.points {
            let granted = &mut point.acquire_ns.as_mut().unwrap().granted;
            let crowd = point.at.workers == Some(1000);
            let (tenth, second) = if crowd { (0.91, 0.0432) } else { (0.0, 0.0) };
            granted.over = [("100ms".to_owned(), tenth), ("1s".to_owned(), second)].into();
        }
        insta::assert_snapshot!(render(&[set]));
    }

    #[test]
    fn what_was_said_of_failures_stands_under_the_table() {
        let mut set = made::broken();
        set.points[0].messages = vec!["flock: No locks available (os error 37)".to_owned()];
        let text = render(&[set]);
        let said = "\nThe first failure of each kind:\n  \
                    busted: flock: No locks available (os error 37)\n";
        assert!(text.contains(said), "{text}");
        assert!(!render(&[made::broken()]).contains("first failure"));
    }

    #[test]
    fn without_a_finished_run_there_is_no_table() {
        let mut set = made::set();
        set.points.clear();
        set.end = None;
        insta::assert_snapshot!(render(&[set]), @r"
        2 cores, Linux 6.18, tmpfs; hold 1 ms, idle 10 us, placement: none
        This experiment has no end: jostle or the machine was stopped; 0 runs were
        finished.
        Next: jostle contend flock sysv -w 10:1000 -t 5 --runs 6
        ");
    }
}
