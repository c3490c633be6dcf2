//! Before the first run: a note that names busy programs on this machine, with `--wait-quiet` a
//! wait until there are none, and after the pilots a warning where they use much of the CPUs.
//!
//! The CPU time of other programs during a run is recorded with the run, and checked there.

use crate::progress::Line;
use crate::signals::Signals;
use jostle_engine::preflight::busy::{BusyPrograms, Look, Quiet, SPAN, between};
use jostle_model::Nanos;
use std::time::{Duration, Instant};

/// The programs beside this one, from a look on.
pub(crate) struct Beside {
    /// The first look, made before the plans were read, so that the interval between the
    /// looks costs no extra time.
    pub first: Look,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Processes that are no neighbours, nor what they start: this one, and servers
    /// under test.
    pub ours: Vec<u32>,
}

/// Share of the CPUs from which on figures are likely to have one bound or none.
const HEAVY: f64 = 0.25;

impl Beside {
    fn between(&self, before: &Look, after: &Look) -> BusyPrograms {
        between(before, after, &self.ours, self.cpus)
    }

    /// After the pilots, where what follows may be of no use.
    pub(crate) fn warning(&self) -> Option<String> {
        heavy(&self.between(&self.first, &Look::now()))
    }
}

fn heavy(busy: &BusyPrograms) -> Option<String> {
    (busy.share() >= HEAVY).then(|| {
        format!(
            "other programs use {:.0} % of the CPUs: this may be INVALID; end it with ^C, or wait \
             with --wait-quiet 60s",
            100.0 * busy.share()
        )
    })
}

/// Looks for busy programs before the first run.
pub(crate) struct Looker<'a> {
    /// Since when.
    pub beside: &'a Beside,
    /// `--wait-quiet`.
    pub wait: Option<Nanos>,
    pub signals: &'a Signals,
    pub line: Option<&'a Line>,
}

impl Looker<'_> {
    /// Names the busy programs, or waits until there are none. Returns the exit code if the
    /// user ended the wait.
    pub(crate) fn settle(self) -> Option<u8> {
        let next = self.beside.first.after(SPAN);
        let busy = self.beside.between(&self.beside.first, &next);
        match (self.wait, busy.names()) {
            (Some(wait), _) => return self.wait(wait, next, busy),
            (None, Some(names)) => self.note(&format!(
                "busy now: {names}; they can take up to {:.0} % of a figure, so figures have \
                 bounds (--wait-quiet 60s waits)",
                100.0 * busy.cost()
            )),
            (None, None) => {}
        }
        None
    }

    fn wait(&self, most: Nanos, mut last: Look, mut busy: BusyPrograms) -> Option<u8> {
        let most = Duration::from_nanos(most.0);
        let began = Instant::now();
        let mut quiet = Quiet::default();
        if !busy.sees_all {
            self.note(
                "jostle sees only programs of this container or user, and waits for these \
                 (--wait-quiet)",
            );
        }
        while !quiet.is_after(busy.share()) {
            if began.elapsed() >= most {
                self.note(&gone_on(&busy, most));
                return None;
            }
            if let Some(line) = self.line {
                let left = most.saturating_sub(began.elapsed()).as_secs_f64();
                line.say(&format!("{}, {left:.0} s at most", waits_for(&busy)));
            }
            let next = last.after(SPAN);
            if let Some(code) = self.signals.exit_code() {
                return Some(code);
            }
            busy = self.beside.between(&last, &next);
            last = next;
        }
        None
    }

    fn note(&self, text: &str) {
        if let Some(line) = self.line {
            line.note(text);
        }
    }
}

fn waits_for(busy: &BusyPrograms) -> String {
    match busy.names() {
        Some(names) => format!("waiting for {names}"),
        None => "waiting for a quiet second".to_owned(),
    }
}

/// The time is over.
fn gone_on(busy: &BusyPrograms, most: Duration) -> String {
    let waited = format!("not quiet after {:.0} s", most.as_secs_f64());
    let names = match busy.names() {
        Some(names) => names,
        None => format!(
            "{} small programs use {:.0} % of a CPU together",
            busy.programs.len(),
            100.0 * busy.cpus
        ),
    };
    format!("{waited}, goes on beside: {names}; figures have bounds")
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_engine::preflight::busy::Program;

    fn busy(each: &[f64]) -> BusyPrograms {
        let programs = each.iter().enumerate().map(|(nth, cpus)| Program {
            name: "make".to_owned(),
            pid: 812 + nth as u32,
            cpus: *cpus,
        });
        BusyPrograms {
            cpus: each.iter().sum(),
            of: 2,
            programs: programs.collect(),
            sees_all: true,
        }
    }

    #[test]
    fn who_keeps_the_machine_busy_is_named() {
        let loud = busy(&[0.31, 0.2]);
        assert_eq!(
            waits_for(&loud),
            "waiting for make (812) 31 % of a CPU, make (813) 20 %"
        );
        assert_eq!(
            gone_on(&loud, Duration::from_secs(60)),
            "not quiet after 60 s, goes on beside: make (812) 31 % of a CPU, make (813) 20 %; \
             figures have bounds"
        );
        // Half of one CPU of two.
        assert_eq!(
            heavy(&loud).unwrap(),
            "other programs use 26 % of the CPUs: this may be INVALID; end it with ^C, or wait with \
             --wait-quiet 60s"
        );
        let many = busy(&[0.025; 4]);
        assert_eq!(heavy(&many), None);
        assert_eq!(waits_for(&many), "waiting for a quiet second");
        let text = gone_on(&many, Duration::from_secs(1));
        assert!(
            text.contains("4 small programs use 10 % of a CPU together"),
            "{text}"
        );
    }
}
