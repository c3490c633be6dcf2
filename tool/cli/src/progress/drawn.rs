//! A few lines at the bottom of the terminal, drawn again in place: rows, and below them a
//! line with the time so far. Each drawing is one message.

use crate::messages;
use jostle_report::format::wrap;
use rustix::termios::{Winsize, tcgetwinsize};
use std::io::stderr;
use std::time::{Duration, Instant};

/// Drawings that follow each other faster are left out; [`super::BEAT`] makes up for the last.
const SHORTEST: Duration = Duration::from_millis(100);

/// Where the terminal does not tell its width.
const WIDTH: usize = 80;

/// The drawing, and the lines on the terminal.
pub(super) struct Drawn {
    is_shown: bool,
    began: Instant,
    rows: Vec<String>,
    text: String,
    /// Lines on the terminal, the cursor at the end of the last.
    lines: usize,
    drawn_at: Option<Instant>,
}

impl Drawn {
    pub(super) fn new(is_terminal: bool) -> Drawn {
        Drawn {
            // Such a terminal cannot move its cursor.
            is_shown: is_terminal && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
            began: Instant::now(),
            rows: Vec::new(),
            text: String::new(),
            lines: 0,
            drawn_at: None,
        }
    }

    pub(super) fn is_shown(&self) -> bool {
        self.is_shown
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn set_text(&mut self, text: String) {
        self.text = text;
        self.draw();
    }

    pub(super) fn set_rows(&mut self, rows: impl Iterator<Item = String>) {
        self.rows = rows.collect();
        self.draw();
    }

    /// Draws all of it, unless it was drawn just now.
    pub(super) fn draw(&mut self) {
        let is_new = self.drawn_at.is_none_or(|at| at.elapsed() >= SHORTEST);
        if self.is_shown && is_new {
            self.write("");
        }
    }

    /// Prints a line that stays, above what is drawn. A terminal gets it broken between its
    /// words.
    pub(super) fn note(&mut self, text: &str) {
        let text = match size().map_or(0, |size| usize::from(size.ws_col)) {
            0 => format!("{text}\n"),
            width => text.lines().map(|line| wrap("", line, width)).collect(),
        };
        if self.is_shown && self.lines > 0 {
            self.write(&text);
        } else {
            messages::say(text);
        }
    }

    fn write(&mut self, above: &str) {
        let width = size().map_or(0, |size| usize::from(size.ws_col));
        let width = if width == 0 { WIDTH } else { width };
        let last = format!("{:>4} {}", elapsed(self.began.elapsed()), self.text);
        let drawing = drawing(self.lines, above, &self.rows, &last, width);
        // A drawing that is dropped leaves the terminal as it is.
        if messages::say(drawing) {
            self.lines = self.rows.len() + 1;
        }
        self.drawn_at = Some(Instant::now());
    }
}

impl Drop for Drawn {
    fn drop(&mut self) {
        messages::say(erased(self.lines));
    }
}

/// Rows and columns of the terminal.
pub(super) fn size() -> Option<Winsize> {
    tcgetwinsize(stderr()).ok()
}

/// The text that replaces so many lines on the terminal. No line is longer than the terminal is
/// wide, or it would take two.
fn drawing(lines: usize, above: &str, rows: &[String], last: &str, width: usize) -> String {
    let cut = |line: &str| line.chars().take(width).collect::<String>();
    let mut drawing = erased(lines);
    drawing.push_str(above);
    for row in rows {
        drawing.push_str(&cut(row));
        drawing.push('\n');
    }
    drawing + &cut(last)
}

/// Moves the cursor to the first of so many lines, and clears from there.
fn erased(lines: usize) -> String {
    match lines {
        0 => String::new(),
        1 => "\r\x1b[J".to_owned(),
        lines => format!("\r\x1b[{}A\x1b[J", lines - 1),
    }
}

/// `42s`, `12m`, `3h`: the unit changes at one and a half of the next.
fn elapsed(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        _ if seconds < 90.0 => format!("{seconds:.0}s"),
        _ if seconds < 5_400.0 => format!("{:.0}m", seconds / 60.0),
        _ => format!("{:.0}h", seconds / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_replaces_the_one_before_and_no_line_is_too_wide() {
        let rows = ["flock 10".to_owned(), "flock 1000 and more".to_owned()];
        assert_eq!(drawing(0, "", &[], "  3s run", 12), "  3s run");
        assert_eq!(
            drawing(1, "", &rows, "  4s run", 12),
            "\r\x1b[Jflock 10\nflock 1000 a\n  4s run"
        );
        assert_eq!(
            drawing(3, "noted\n", &rows[..1], "  5s run", 12),
            "\r\x1b[2A\x1b[Jnoted\nflock 10\n  5s run"
        );
    }

    #[test]
    fn nothing_is_drawn_where_nobody_sees_it() {
        let mut drawn = Drawn::new(false);
        drawn.set_text("flock: pilot".to_owned());
        drawn.set_rows(["flock 10".to_owned()].into_iter());
        assert_eq!((drawn.lines, drawn.text()), (0, "flock: pilot"));
    }

    #[test]
    fn the_time_so_far_has_one_unit() {
        for (seconds, text) in [(0, "0s"), (89, "89s"), (90, "2m"), (5_400, "2h")] {
            assert_eq!(elapsed(Duration::from_secs(seconds)), text);
        }
    }
}
