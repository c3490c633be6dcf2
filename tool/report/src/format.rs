//! Numbers for people: the same digits on every machine, and no more digits than are
//! significant.
//!
//! For tables and sentences only; csv and json hold the figures themselves.

pub use jostle_stats::numbers::{counted, grouped, significant, time};

use jostle_model::Nanos;
use jostle_model::text::one_line;
use std::ops::Range;

/// Each of them once, in the order in which they come first.
pub(crate) fn each_once<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

/// `2 to 5`, or `2` where both are the same.
pub(crate) fn range(least: String, most: &str) -> String {
    match least == most {
        true => least,
        false => format!("{least} to {most}"),
    }
}

/// A share as `94 %`, two significant digits.
pub fn percent(share: f64) -> String {
    format!("{} %", significant(100.0 * share, 2))
}

/// Half an interval relative to its middle, in whole per cent: `±1 %`. Rounded
/// up, since an interval must not look narrower than it is. What is not finite is `-`.
pub(crate) fn plus_minus(share: f64) -> String {
    if !share.is_finite() {
        return "-".to_owned();
    }
    format!("±{:.0} %", (100.0 * share).ceil())
}

/// A time of the plan, exactly: `1 ms`, `1500 us`.
pub fn exact(time: Nanos) -> String {
    let text = time.to_string();
    let unit = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    format!("{} {}", &text[..unit], &text[unit..])
}

/// A share in per cent, as it was typed: `5`, `2.5`.
pub(crate) fn percent_typed(share: f64) -> String {
    // Without what the division by 100 added at the far end.
    ((100.0 * share * 1e9).round() / 1e9).to_string()
}

/// So many significant digits at most, whole numbers never cut, no idle zeros: `0.25`, `5`.
pub(crate) fn trimmed(value: f64, digits: usize) -> String {
    let text = significant(value, digits);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Pads the text with spaces to `width` characters, after it with `left`, otherwise before
/// it. The formatter's own padding panics above 65,535.
pub(crate) fn padded(text: &str, width: usize, left: bool) -> String {
    let spaces = " ".repeat(width.saturating_sub(text.chars().count()));
    match left {
        true => text.to_owned() + &spaces,
        false => spaces + text,
    }
}

/// Breaks the text at spaces, but not between a number and its unit, into lines of at most
/// `width` if its words allow. The first line begins with `first`, the others with as many
/// spaces. Line breaks within the text are escaped, so that a server's answer cannot
/// imitate our own lines.
pub fn wrap(first: &str, text: &str, width: usize) -> String {
    let (first, text) = (one_line(first), one_line(text));
    let indent = first.chars().count();
    let mut out = first.into_owned();
    let mut column = indent;
    for word in unbreakable(&text) {
        let length = word.chars().count();
        if column > indent && column + 1 + length > width {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(&word);
        column += length;
    }
    out.push('\n');
    out
}

/// The lines of a text that is broken so; an empty text has one.
pub fn lines(text: &str, width: usize) -> Vec<String> {
    wrap("", text, width).lines().map(str::to_owned).collect()
}

/// How wide the longest part of a text is that is not broken.
pub(crate) fn longest_word(text: &str) -> usize {
    let words = unbreakable(text).into_iter();
    words.map(|word| word.chars().count()).max().unwrap_or(0)
}

/// Words, each with the unit that follows it.
fn unbreakable(text: &str) -> Vec<String> {
    const UNITS: [&str; 5] = ["ns", "us", "ms", "s", "%"];
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let bare = word.trim_end_matches([',', ';', '.', ')', ':']);
        match words.last_mut().filter(|_| UNITS.contains(&bare)) {
            Some(number) => *number = format!("{number} {word}"),
            None => words.push(word.to_owned()),
        }
    }
    words
}

/// Where a text says for how long two owned a lock at a time, which a lock is there to
/// prevent: from `two owners for` to the unit of the time. The text may be broken anywhere
/// between its words.
pub fn two_owners(text: &str) -> Option<Range<usize>> {
    // A word is a part of `text`.
    let place = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    let words: Vec<&str> = text.split_whitespace().collect();
    let from = words
        .windows(3)
        .position(|three| three == ["two", "owners", "for"])?;
    let bare = |word: &&str| word.trim_end_matches([',', ';', '.']).to_owned();
    let is_unit = |word: &&&str| matches!(bare(word).as_str(), "ns" | "us" | "ms" | "s");
    let unit = words[from..].iter().find(is_unit)?;
    Some(place(words[from])..place(unit) + bare(unit).len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_with_two_owners_is_found_however_its_line_is_broken() {
        let found = |text: &'static str| Some(&text[two_owners(text)?]);
        assert_eq!(
            found("kept; two\n     owners for up to 6.10 s, told; two"),
            Some("two\n     owners for up to 6.10 s")
        );
        // Above a column.
        assert_eq!(
            found("worst two owners old owner\nfor up to was told\n3 s"),
            None
        );
        assert_eq!(found("one of two was stopped for 3 s"), None);
        assert_eq!(found("two owners for some time"), None);
    }

    #[test]
    fn thousands_are_set_apart() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (28_215, "28,215"),
            (1_234_567_890, "1,234,567,890"),
        ] {
            assert_eq!(grouped(number), text);
        }
        let overlaps = [0, 1, 1200].map(|n| counted(n, "overlap"));
        assert_eq!(overlaps, ["0 overlaps", "1 overlap", "1,200 overlaps"]);
    }

    #[test]
    fn figures_keep_their_significant_digits_and_whole_numbers() {
        let table = [
            (0.0214, 2, "0.021"),
            (4.31, 2, "4.3"),
            (9.96, 2, "10"), // not 10.0
            (0.0996, 2, "0.10"),
            (39.7, 2, "40"),
            (213.4, 2, "213"),
            (94.52, 3, "94.5"),
            (29_684.4, 3, "29,684"),
            (999.6, 3, "1,000"),
            (1234.5, 5, "1,234.5"),
            (-4.31, 2, "-4.3"),
            (0.0, 2, "0"),
            (f64::NAN, 2, "-"),
        ];
        for (value, digits, text) in table {
            assert_eq!(significant(value, digits), text, "{value}");
        }
    }

    #[test]
    fn shares_are_percentages() {
        for (share, text) in [
            (0.9434, "94 %"),
            (0.9999, "100 %"),
            (0.05, "5.0 %"),
            (0.00431, "0.43 %"),
            (0.0, "0 %"),
        ] {
            assert_eq!(percent(share), text);
        }
        for (share, text) in [
            (0.0123, "±2 %"),
            (0.126, "±13 %"),
            (0.004, "±1 %"),
            (0.0, "±0 %"),
            (f64::INFINITY, "-"),
        ] {
            assert_eq!(plus_minus(share), text);
        }
    }

    #[test]
    fn times_take_the_unit_that_keeps_them_short() {
        for (nanos, text) in [
            (0.0, "0 ns"),
            (5.0, "5 ns"),
            (508.0, "508 ns"),
            (21.4, "21 ns"),
            (999.6, "1.0 us"), // not 1000 ns
            (4_700.0, "4.7 us"),
            (12_345_678.0, "12 ms"),
            (999_700_000.0, "1.0 s"),
            (1_120_000_000.0, "1.1 s"),
            (86_400e9, "86,400 s"),
        ] {
            assert_eq!(time(nanos), text);
        }
    }

    #[test]
    fn times_of_the_plan_are_exact() {
        for (nanos, text) in [
            (Nanos::from_millis(1), "1 ms"),
            (Nanos(1_500_000), "1500 us"),
            (Nanos::ZERO, "0 s"),
        ] {
            assert_eq!(exact(nanos), text);
        }
        for (value, text) in [
            (0.25, "0.25"),
            (5.0, "5"),
            (5.0003, "5"),
            (120.0, "120"),
            (1.5, "1.5"),
        ] {
            assert_eq!(trimmed(value, 3), text);
        }
    }

    #[test]
    fn per_cents_are_printed_as_typed() {
        for (typed, text) in [(5.0, "5"), (2.5, "2.5"), (7.0, "7"), (0.07, "0.07")] {
            assert_eq!(percent_typed(typed / 100.0), text);
        }
    }

    #[test]
    fn long_lines_are_broken_under_their_beginning() {
        assert_eq!(
            wrap("[1] ", "a bb ccc dddd", 10),
            "[1] a bb\n    ccc\n    dddd\n"
        );
        assert_eq!(wrap("", "short", 10), "short\n");
        assert_eq!(wrap("", "a\nVALID", 20), "a\\u000aVALID\n");
        assert_eq!(wrap("", "idle 10 us, no", 9), "idle\n10 us, no\n");
        assert_eq!(
            wrap("x  ", "unbreakable-word y", 8),
            "x  unbreakable-word\n   y\n"
        );
    }
}
