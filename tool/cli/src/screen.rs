//! The terminal: its width, and whether verdicts and two owners at a time have colours.
//!
//! The width is that of `COLUMNS`, else the terminal's, else 80. Colours are for terminals;
//! NO_COLOR, CLICOLOR, CLICOLOR_FORCE and TERM decide as everywhere (`anstream`).

use anstream::{AutoStream, ColorChoice};
use jostle_report::format::two_owners;
use std::io::stdout;

/// Without a terminal, and the least that a table is laid out for.
const USUAL: usize = 80;
const LEAST: usize = 40;
const MOST: usize = 1_000;

/// Standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Screen {
    /// Columns.
    pub width: usize,
    /// Whether verdicts, and the time with two owners, have colours.
    pub colours: bool,
}

impl Screen {
    /// This process's standard output.
    pub(crate) fn here() -> Screen {
        let terminal = terminal_size::terminal_size_of(stdout());
        let terminal = terminal.map(|(width, _)| usize::from(width.0));
        let choice = AutoStream::choice(&stdout());
        Screen {
            width: width(std::env::var("COLUMNS").ok().as_deref(), terminal),
            colours: choice != ColorChoice::Never,
        }
    }

    /// The text with its verdicts in colours, where there are any.
    pub(crate) fn paint(self, text: &str) -> String {
        match self.colours {
            true => owners(&verdicts(text)),
            false => text.to_owned(),
        }
    }
}

fn width(variable: Option<&str>, terminal: Option<usize>) -> usize {
    let variable = variable.and_then(|text| text.trim().parse().ok());
    let width = variable.filter(|width| *width > 0).or(terminal);
    width.unwrap_or(USUAL).clamp(LEAST, MOST)
}

/// For how long two owned a lock at a time, in red.
fn owners(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(two) = two_owners(rest) {
        out += &rest[..two.start];
        out += &format!("\u{1b}[31m{}\u{1b}[0m", &rest[two.clone()]);
        rest = &rest[two.end..];
    }
    out + rest
}

/// VALID green, SUSPECT yellow, INVALID red, wherever the word stands by itself.
fn verdicts(text: &str) -> String {
    const COLOURS: [(&str, u8); 3] = [("INVALID", 31), ("SUSPECT", 33), ("VALID", 32)];
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut out = String::with_capacity(text.len() + 256);
    let mut before = None;
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let starts = before.is_none_or(|before| !is_letter(before));
        let found = COLOURS.iter().filter(|_| starts).find(|(word, _)| {
            rest.strip_prefix(word)
                .is_some_and(|after| !after.starts_with(is_letter))
        });
        let length = match found {
            Some((word, colour)) => {
                out += &format!("\u{1b}[{colour}m{word}\u{1b}[0m");
                word.len()
            }
            None => {
                out.push(letter);
                letter.len_utf8()
            }
        };
        before = rest[..length].chars().next_back();
        rest = &rest[length..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_width_is_the_variable_s_then_the_terminal_s_then_80() {
        let table = [
            (Some("120"), Some(100), 120),
            (None, Some(100), 100),
            (Some("wide"), Some(100), 100),
            (Some("0"), None, 80),
            (None, None, 80),
            (None, Some(3), 40),
            (Some("99999"), None, 1_000),
        ];
        for (variable, terminal, expected) in table {
            assert_eq!(width(variable, terminal), expected, "{variable:?}");
        }
    }

    #[test]
    fn the_time_with_two_owners_is_red_across_lines() {
        let text =
            "redis: 2 s; two\n  owners for up to 6.10 s, told;\netcd: two owners for up to 3 ms.";
        let coloured = Screen {
            width: 80,
            colours: true,
        }
        .paint(text);
        assert_eq!(
            coloured,
            "redis: 2 s; \u{1b}[31mtwo\n  owners for up to 6.10 s\u{1b}[0m, told;\netcd: \
             \u{1b}[31mtwo owners for up to 3 ms\u{1b}[0m."
        );
    }

    #[test]
    fn verdicts_have_colours_and_nothing_else_has() {
        let text = "a  VALID\nb  SUSPECT[1]\nINVALID with 3: REVALID, INVALIDATED, VALID_x é VALID";
        let painted = "a  \u{1b}[32mVALID\u{1b}[0m\nb  \u{1b}[33mSUSPECT\u{1b}[0m[1]\n\
                       \u{1b}[31mINVALID\u{1b}[0m with 3: REVALID, INVALIDATED, VALID_x é \
                       \u{1b}[32mVALID\u{1b}[0m";
        let [plain, colours] = [false, true].map(|colours| Screen { width: 80, colours });
        assert_eq!(colours.paint(text), painted);
        assert_eq!(plain.paint(text), text);
    }
}
