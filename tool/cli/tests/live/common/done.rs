//! A run that has ended: what it printed, how it ended, and what it left.

use super::left::{self, Before};
use super::processes::{self, Process};
use super::{Place, flat, runs};
use jostle_model::record::Run;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// The words that each reason of the check `neighbours` has.
const DISTURBED: &str = "kept it from its CPUs";

pub(super) fn transcript(
    line: &str,
    status: Option<ExitStatus>,
    stdout: &str,
    stderr: &str,
) -> String {
    let status = status.map_or_else(|| "it runs".to_owned(), |status| status.to_string());
    format!("\n$ {line}\n--- stdout\n{stdout}--- stderr\n{stderr}--- {status}")
}

/// A run that has ended.
#[derive(Clone)]
pub(crate) struct Done {
    pub(super) line: String,
    pub place: Place,
    pub(super) mark: String,
    pub(super) status: Option<ExitStatus>,
    pub stdout: String,
    pub stderr: String,
    pub(super) pids: Vec<u32>,
    pub(super) before: Before,
    pub took: Duration,
}

impl Done {
    /// As a shell counts: 128 and the number of the signal that ended it.
    pub(crate) fn code(&self) -> i32 {
        let status = self.status.unwrap();
        status
            .code()
            .or(status.signal().map(|signal| 128 + signal))
            .unwrap()
    }

    pub(crate) fn transcript(&self) -> String {
        transcript(&self.line, self.status, &self.stdout, &self.stderr)
    }

    /// Whether other programs or the hypervisor took so much of the machine that a
    /// point is INVALID for it.
    pub(crate) fn is_disturbed(&self) -> bool {
        // However the lines are broken.
        self.code() == 3 && flat(&self.stdout).contains(DISTURBED)
    }

    /// With this exit code. Other programs and the hypervisor may make a point of any
    /// run INVALID, whatever the test is about: then it says so, and 3 stands for 0.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Done {
        let disturbed = code == 0 && self.is_disturbed();
        assert!(
            disturbed || self.code() == code,
            "exit code {} expected of {}",
            code,
            self.transcript()
        );
        self
    }

    /// Exit code 0, or 3 where something in the results is INVALID.
    #[track_caller]
    pub(crate) fn measures(self) -> Done {
        assert!(
            [0, 3].contains(&self.code()),
            "exit code of {}",
            self.transcript()
        );
        self
    }

    /// On stderr.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Done {
        assert!(
            self.stderr.contains(text),
            "stderr does not say {text:?}: {}",
            self.transcript()
        );
        self
    }

    /// On stderr.
    #[track_caller]
    pub(crate) fn does_not_say(self, text: &str) -> Done {
        assert!(
            !self.stderr.contains(text),
            "stderr says {text:?}: {}",
            self.transcript()
        );
        self
    }

    /// On stdout, wherever its lines are broken.
    #[track_caller]
    pub(crate) fn prints(self, text: &str) -> Done {
        assert!(
            self.stdout.contains(text) || flat(&self.stdout).contains(text),
            "stdout has no {text:?}: {}",
            self.transcript()
        );
        self
    }

    #[track_caller]
    pub(crate) fn prints_nothing(self) -> Done {
        assert!(self.stdout.is_empty(), "stdout: {}", self.transcript());
        self
    }

    #[track_caller]
    pub(crate) fn says_nothing(self) -> Done {
        assert!(self.stderr.is_empty(), "stderr: {}", self.transcript());
        self
    }

    /// A run that ends at once or after a while ends within a minute on any machine. What it must
    /// not wait for lasts longer.
    #[track_caller]
    pub(crate) fn ends_within_a_minute(self) -> Done {
        self.ends_within(Duration::from_secs(60))
    }

    /// The bound of a figure.
    #[track_caller]
    pub(crate) fn ends_within(self, limit: Duration) -> Done {
        assert!(
            self.took < limit,
            "it took {:?}: {}",
            self.took,
            self.transcript()
        );
        self
    }

    /// Looks for processes, directories, files and semaphores. Those of a
    /// killed parent may need a moment to be cleared away.
    #[track_caller]
    pub(crate) fn leaves_nothing(self) -> Done {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let left = self.what_is_left();
            if left.is_empty() {
                return self;
            }
            assert!(
                Instant::now() < deadline,
                "left behind: {left:#?} by {}",
                self.transcript()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// In words.
    pub(crate) fn what_is_left(&self) -> Vec<String> {
        let mut left: Vec<String> = processes::marked(&self.mark)
            .iter()
            .map(Process::to_string)
            .collect();
        left.extend(self.before.new_ledgers_of(&self.pids));
        left.extend(left::entries(&self.place.file("tmp")));
        left.extend(self.before.new_semaphores());
        left.extend(left::groups_of_the_dead());
        left
    }

    /// The runs on stdout, printed with `--format json`.
    pub(crate) fn runs(&self) -> Vec<Run> {
        runs(&self.stdout)
    }

    /// The only one.
    #[track_caller]
    pub(crate) fn only_run(&self) -> Run {
        let runs = self.runs();
        assert_eq!(runs.len(), 1, "runs of {}", self.transcript());
        runs.into_iter().next().unwrap()
    }
}
