//! A progress line on the terminal during the runs, and above it the points with finished
//! runs. Not shown if stderr is no terminal, because logs need no animation.

mod drawn;
mod run_progress;

use crate::shown;
pub(crate) use run_progress::place;

use drawn::Drawn;
use jostle_engine::experiment::{Limits, Progress};
use jostle_model::Nanos;
use jostle_model::text::one_line;
use run_progress::RunProgress;
use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

/// The line is redrawn at least this often, so that a long run does not look like a hang.
/// Redrawing more often would take CPU time from the measurement.
const BEAT: Duration = Duration::from_millis(900);

/// Lines of a terminal that the table leaves free: the line itself, and what was typed.
const FREE: usize = 4;
/// Rows of the table where the terminal does not tell its height.
const ROWS: usize = 20;

pub(crate) struct Line {
    /// All that is drawn: the rows of the table, and the line below them.
    drawn: RefCell<Drawn>,
    notes: bool,
    /// When it moved last.
    moved: Cell<Instant>,
    /// Whether the last text stays until another is pinned.
    pinned: Cell<bool>,
    /// The start of `runs`'s times.
    began: Instant,
    runs: RefCell<RunProgress>,
}

impl Line {
    /// A line; hidden if progress is not wanted or stderr is no terminal.
    pub(crate) fn new(shown: bool, notes: bool) -> Line {
        Line {
            drawn: RefCell::new(Drawn::new(shown && stderr().is_terminal())),
            notes,
            moved: Cell::new(Instant::now()),
            pinned: Cell::new(false),
            began: Instant::now(),
            runs: RefCell::default(),
        }
    }

    /// Shows this text, which runs do not replace, because they are part of a larger task.
    pub(crate) fn pin(&self, text: &str) {
        self.pinned.set(true);
        self.say(text);
    }

    /// Redraws the line if it is older than [`BEAT`]. Call it several times a second during
    /// waits. There is no thread for this, because the parent may still have to fork.
    pub(crate) fn beat(&self) {
        if self.moved.get().elapsed() >= BEAT {
            match self.pinned.get() {
                true => self.drawn.borrow_mut().draw(),
                false => self.runs(),
            }
            self.moved.set(Instant::now());
        }
    }

    /// Shows what is going on.
    pub(crate) fn show(&self, progress: Progress<'_>) {
        if self.pinned.get() {
            return;
        }
        match progress {
            Progress::Cost(target) => self.say(&format!("{target}: the tool's own cost")),
            Progress::Alone(target, host) => self.say(&format!("{target}: {host} alone")),
            Progress::Pilot(target, at) => self.say(&format!("{target}{}: pilot", place(at))),
            Progress::Planned {
                points,
                rounds,
                takes,
                limits,
            } => {
                let now = self.began.elapsed();
                self.runs.borrow_mut().planned(points, rounds, takes, now);
                self.note(&plan_in_words(points * rounds, takes, &limits));
            }
            Progress::Run(target, at, run) => {
                let now = self.began.elapsed();
                self.runs.borrow_mut().begins(target, at, run, now);
                self.runs();
            }
            Progress::Running(_) => {}
            Progress::Done(point) => {
                let now = self.began.elapsed();
                self.runs.borrow_mut().done(point, now);
                self.table();
            }
            Progress::Slower { block, all } => self.note(&slower_in_words(block, all)),
        }
    }

    /// Another experiment begins.
    pub(crate) fn restart(&self) {
        self.runs.replace(RunProgress::default());
        self.clear_table();
    }

    /// Shows the points with finished runs above the line; only the latest ones if the
    /// terminal has too few rows.
    fn table(&self) {
        let mut drawn = self.drawn.borrow_mut();
        if !drawn.is_shown() {
            return;
        }
        let height = drawn::size().map(|size| usize::from(size.ws_row));
        let height = height.filter(|rows| *rows > 0);
        let most = height.map_or(ROWS, |height| height.saturating_sub(FREE));
        let texts = self.runs.borrow().rows();
        let shown = &texts[texts.len().saturating_sub(most)..];
        let rows = shown.iter();
        drawn.set_rows(rows.map(|text| one_line(&crate::shown(text)).into_owned()));
    }

    fn clear_table(&self) {
        self.drawn.borrow_mut().set_rows(std::iter::empty());
    }

    /// Shows which run is in progress and the remaining time. Before the first run the last
    /// text stays.
    fn runs(&self) {
        match self.runs.borrow().words(self.began.elapsed()) {
            Some(words) => self.say(&words),
            None => self.drawn.borrow_mut().draw(),
        }
    }

    /// The line's text, whether anybody sees it or not.
    pub(crate) fn text(&self) -> String {
        self.drawn.borrow().text().to_owned()
    }

    /// Says this until something else is shown.
    pub(crate) fn say(&self, text: &str) {
        let text = one_line(&shown(text)).into_owned();
        self.drawn.borrow_mut().set_text(text);
        self.moved.set(Instant::now());
    }

    /// Prints a note above the line.
    pub(crate) fn note(&self, text: &str) {
        if self.notes {
            self.drawn.borrow_mut().note(&shown(text));
        }
    }
}

/// The first round's time, where it took longer than was expected.
fn slower_in_words(block: Nanos, all: Nanos) -> String {
    format!(
        "a round of all points takes {}, longer than short trials let expect: about {} in all",
        span(block),
        span(all)
    )
}

/// The expected duration, printed before the first run, with the effect of the budget: the
/// concessions made to keep it, or why it cannot be kept.
fn plan_in_words(runs: usize, takes: Nanos, limits: &Limits<'_>) -> String {
    let noun = if runs == 1 { "run" } else { "runs" };
    let given_up = limits.concessions.join(", ");
    let head = format!("{runs} {noun}, about {}", span(takes));
    match (limits.over, given_up.as_str()) {
        (None, "") => head,
        (None, _) => format!("{head}; to fit the budget: {given_up}"),
        (Some(over), _) => {
            let spared = match given_up.as_str() {
                "" => String::new(),
                _ => format!(" (already {given_up})"),
            };
            let budget = span(over.budget);
            match over.because {
                [] => format!(
                    "{head}, more than is left of the budget of {budget}: fewer would say nothing{spared}"
                ),
                options => format!(
                    "{head}, more than is left of the budget of {budget}, since {} {} given{spared}",
                    options.join(" and "),
                    if options.len() == 1 { "is" } else { "are" }
                ),
            }
        }
    }
}

/// `48 s`, `12 minutes`, `20 hours`.
pub(crate) fn span(time: Nanos) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 600.0 => format!("{seconds:.0} s"),
        seconds if seconds < 36_000.0 => format!("{:.0} minutes", seconds / 60.0),
        seconds => format!("{:.0} hours", seconds / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_engine::experiment::Over;

    #[test]
    fn how_long_it_takes_is_said_beforehand_and_a_budget_that_is_not_kept_is_no_fit() {
        let words = |runs, seconds: u64, over: Option<Over<'_>>, concessions: &[&str]| {
            let concessions: Vec<String> = concessions.iter().map(|c| (*c).to_owned()).collect();
            let limits = Limits {
                concessions: &concessions,
                over,
            };
            plan_in_words(runs, Nanos(seconds * 1_000_000_000), &limits)
        };
        let (window, both) = (["-t".to_owned()], ["-t", "--runs"].map(str::to_owned));
        let over = |because| {
            Some(Over {
                budget: Nanos(50_000_000_000),
                because,
            })
        };
        let spared = ["left out -w 20:50", "3 runs of each point instead of 6"];
        assert_eq!(words(1, 4, None, &[]), "1 run, about 4 s");
        assert_eq!(
            words(36, 47, None, &["shortened windows"]),
            "36 runs, about 47 s; to fit the budget: shortened windows"
        );
        // It took an hour and said "to fit the budget".
        assert_eq!(
            words(6, 3_612, over(&window), &spared),
            "6 runs, about 60 minutes, more than is left of the budget of 50 s, since -t is given (already \
             left out -w 20:50, 3 runs of each point instead of 6)"
        );
        assert_eq!(
            words(6, 72_000, over(&both), &[]),
            "6 runs, about 20 hours, more than is left of the budget of 50 s, since -t and --runs are given"
        );
        assert_eq!(
            words(6, 80, over(&[]), &[]),
            "6 runs, about 80 s, more than is left of the budget of 50 s: fewer would say nothing"
        );
    }

    #[test]
    fn a_round_that_took_longer_is_told_with_what_all_of_them_take() {
        let seconds = |seconds: u64| Nanos(seconds * 1_000_000_000);
        assert_eq!(
            slower_in_words(seconds(12), seconds(36)),
            "a round of all points takes 12 s, longer than short trials let expect: about 36 s in \
             all"
        );
    }
}
