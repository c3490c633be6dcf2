//! One line on the terminal while runs are made. Nothing where stderr is no
//! terminal: logs need no animation.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jostle_engine::experiment::Progress;
use jostle_model::record::At;
use std::io::{IsTerminal, Write, stderr};

/// The line.
pub struct Line {
    bar: ProgressBar,
    notes: bool,
}

impl Line {
    /// A line, unless progress is unwanted or nobody watches.
    pub fn new(shown: bool, notes: bool) -> Line {
        let target = match shown && stderr().is_terminal() {
            true => ProgressDrawTarget::stderr_with_hz(10),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template("{elapsed:>4} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Line { bar, notes }
    }

    /// Shows what is going on.
    pub fn show(&self, progress: Progress<'_>) {
        match progress {
            Progress::Cost(target) => self
                .bar
                .set_message(format!("{target}: the tool's own cost")),
            Progress::Alone(target, host) => {
                self.bar.set_message(format!("{target}: {host} alone"))
            }
            Progress::Pilot(target, at) => self
                .bar
                .set_message(format!("{target}{}: pilot", place(at))),
            Progress::Planned {
                runs,
                takes,
                concessions,
            } => self.planned(runs, takes.as_secs_f64(), concessions),
            Progress::Run(target, at, run) => {
                let (done, all) = (self.bar.position() + 1, self.bar.length().unwrap_or(0));
                self.bar.set_message(format!(
                    "run {done}/{}: {target}{}, repeat {run}",
                    all.max(done),
                    place(at)
                ));
                self.bar.tick();
            }
            Progress::Done(_) => self.bar.inc(1),
        }
    }

    fn planned(&self, runs: usize, seconds: f64, concessions: &[String]) {
        self.bar.set_length(runs as u64);
        let given_up = match concessions {
            [] => String::new(),
            some => format!("; to fit the budget: {}", some.join(", ")),
        };
        let noun = if runs == 1 { "run" } else { "runs" };
        self.note(&format!("{runs} {noun}, about {seconds:.0} s{given_up}"));
    }

    /// Says this until something else is shown.
    pub fn say(&self, text: &str) {
        self.bar.set_message(text.to_owned());
        self.bar.tick();
    }

    /// Prints a note above the line.
    pub fn note(&self, text: &str) {
        if self.notes {
            self.bar.suspend(|| {
                // A note that cannot be written has nobody to read it.
                let _ = writeln!(stderr(), "{text}");
            });
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn place(at: At) -> String {
    let parts = [
        ("-w", at.workers),
        ("-n", at.operations),
        ("--keys", at.keys),
        ("--open", at.open),
        ("--listeners", at.listeners),
        ("--sources", at.sources),
        ("--rate", at.rate),
        ("--generators", at.generators),
    ];
    parts
        .iter()
        .filter_map(|(option, value)| Some(format!(" {option} {}", (*value)?)))
        .collect()
}
