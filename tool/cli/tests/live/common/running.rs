//! A run in progress: what it has printed, its processes, and their end.

use super::done::{Done, transcript};
use super::left::Before;
use super::processes::{self, Process, Signal};
use super::{LOOK, Place};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// A run in progress. Dropped, it is killed with all that belongs to it.
pub(crate) struct Running {
    pub(super) line: String,
    pub place: Place,
    pub(super) mark: String,
    pub(super) limit: Duration,
    pub(super) child: Child,
    pub(super) keeper: Option<u32>,
    pub(super) stdout: PathBuf,
    pub(super) stderr: PathBuf,
    pub(super) before: Before,
    pub(super) started: Instant,
    pub(super) status: Option<ExitStatus>,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// By which its processes are known.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// Time since it was started.
    pub(crate) fn so_far(&self) -> Duration {
        self.started.elapsed()
    }

    fn text(path: &Path) -> String {
        String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
    }

    /// The text so far on stderr.
    pub(crate) fn said(&self) -> String {
        Running::text(&self.stderr)
    }

    /// The text so far on stdout.
    pub(crate) fn printed(&self) -> String {
        Running::text(&self.stdout)
    }

    /// Waits until there is something to see; fails if the run ends before.
    pub(crate) fn until<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&mut Running) -> Option<T>,
    ) -> T {
        loop {
            if let Some(seen) = look(self) {
                return seen;
            }
            assert!(
                !self.has_ended(),
                "it ended before {what}: {}",
                self.transcript()
            );
            assert!(
                self.started.elapsed() < self.limit,
                "no {what}: {}",
                self.transcript()
            );
            std::thread::sleep(LOOK);
        }
    }

    /// Waits as `until` does; None if the run ends before. For runs that end by themselves soon.
    fn until_or_over<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&mut Running) -> Option<T>,
    ) -> Option<T> {
        self.until(what, |run| {
            let seen = look(run);
            (seen.is_some() || run.has_ended()).then_some(seen)
        })
    }

    fn has_ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().unwrap();
        }
        self.status.is_some()
    }

    fn transcript(&self) -> String {
        transcript(
            &self.line,
            self.status,
            &Running::text(&self.stdout),
            &Running::text(&self.stderr),
        )
    }

    fn child_named(&self, name: &str) -> Option<u32> {
        processes::children(self.pid())
            .into_iter()
            .find(|child| child.name == name)
            .map(|child| child.pid)
    }

    /// The keeper's process; waits until it is there.
    pub(crate) fn keeper(&mut self) -> u32 {
        if self.keeper.is_none() {
            self.keeper = Some(self.until("a keeper", |run| run.child_named("jostle-keeper")));
        }
        self.keeper.unwrap()
    }

    /// Waits until an interrupt no longer kills it at once: when it begins to listen
    /// takes long on a busy machine.
    pub(crate) fn until_it_listens(&mut self) {
        self.until("a handler of SIGINT", |run| {
            processes::catches(run.pid(), Signal::INT).then_some(())
        });
    }

    /// The worker processes that exist now.
    pub(crate) fn workers(&mut self) -> Vec<Process> {
        self.keeper();
        self.workers_so_far()
    }

    /// The worker processes of a keeper that may not be there yet, or any more.
    fn workers_so_far(&mut self) -> Vec<Process> {
        self.keeper = self.keeper.or_else(|| self.child_named("jostle-keeper"));
        let workers = self.keeper.into_iter().flat_map(processes::children);
        workers
            .filter(|child| {
                ["jostle-worker", "jostle-threads", "jostle-tasks"].contains(&child.name.as_str())
            })
            .collect()
    }

    /// Waits until so many worker processes exist.
    pub(crate) fn until_workers(&mut self, count: usize) -> Vec<Process> {
        self.until(&format!("{count} workers"), |run| {
            Some(run.workers()).filter(|w| w.len() >= count)
        })
    }

    /// Waits until so many worker processes exist; None if it ends before.
    pub(crate) fn workers_unless_over(&mut self, count: usize) -> Option<Vec<Process>> {
        self.until_or_over(&format!("{count} workers"), |run| {
            Some(run.workers_so_far()).filter(|w| w.len() >= count)
        })
    }

    /// Waits until a worker sleeps out its hold, and finds it by that. For
    /// locks whose waiters do not sleep on a timer.
    pub(crate) fn holder(&mut self) -> u32 {
        self.until("a holder", Running::holder_so_far)
    }

    /// Waits until a worker sleeps out its hold, and finds it by that; None if it ends before.
    pub(crate) fn holder_unless_over(&mut self) -> Option<u32> {
        self.until_or_over("a holder", Running::holder_so_far)
    }

    fn holder_so_far(&mut self) -> Option<u32> {
        let workers = self.workers_so_far().into_iter();
        let mut holders = workers.filter(Process::sleeps_on_a_timer);
        holders.next().map(|worker| worker.pid)
    }

    /// The server that its keeper has launched, by the program's name, once workers work.
    pub(crate) fn server(&mut self, program: &str) -> u32 {
        self.until_workers(1);
        let keeper = self.keeper();
        self.until("the server", |_| {
            let children = processes::children(keeper).into_iter();
            let mut named = children.filter(|process| process.name == program);
            named.next().map(|process| process.pid)
        })
    }

    /// Once workers work, kills the servers of this program that its keeper has launched,
    /// until it ends: the first may be that of a pilot, which needs it no more.
    pub(crate) fn kill_servers(&mut self, program: &str) {
        self.until_workers(1);
        let keeper = self.keeper();
        while !self.has_ended() && self.started.elapsed() < self.limit {
            let children = processes::children(keeper).into_iter();
            for server in children.filter(|process| process.name == program) {
                self.kill(server.pid);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the tool measures its own cost, in a child of the keeper.
    pub(crate) fn until_own_cost(&mut self) -> u32 {
        let keeper = self.keeper();
        self.until("the own cost", |_| {
            processes::children(keeper)
                .into_iter()
                .find(|child| child.name == "jostle-cost")
                .map(|child| child.pid)
        })
    }

    /// Waits until so many runs stand in the result file.
    pub(crate) fn until_runs(&mut self, file: &str, count: usize) {
        let place = self.place.clone();
        self.until(&format!("{count} runs in {file}"), |_| {
            (place.read(file).matches("{\"record\":\"run\"").count() >= count).then_some(())
        });
    }

    /// Lets time pass.
    pub(crate) fn after(&self, time: Duration) -> &Running {
        std::thread::sleep(time);
        self
    }

    /// To the process that the user started.
    pub(crate) fn signal(&self, signal: Signal) -> &Running {
        processes::signal(self.pid(), signal);
        self
    }

    /// As the terminal sends it: to the whole process group.
    pub(crate) fn signal_group(&self, signal: Signal) -> &Running {
        processes::signal_group(self.pid(), signal);
        self
    }

    /// At once, to any of its processes.
    pub(crate) fn kill(&self, pid: u32) -> &Running {
        processes::signal(pid, Signal::KILL);
        self
    }

    /// The user's process, the keeper, the cleaner and every worker, as one blow.
    pub(crate) fn kill_all_at_once(&mut self) {
        let cleaner = self.child_named("jostle-cleaner");
        let cleaner = cleaner.expect("a cleaner");
        self.kill_at_once(&[cleaner]);
    }

    /// The user's process, the keeper and every worker, as one blow; the process that clears away
    /// then is spared.
    pub(crate) fn kill_all_but_the_cleaner(&mut self) {
        self.kill_at_once(&[]);
    }

    fn kill_at_once(&mut self, others: &[u32]) {
        let keeper = self.keeper();
        let workers = self.workers();
        let victims = workers.iter().map(|w| w.pid).chain(others.iter().copied());
        let victims: Vec<u32> = [keeper, self.pid()].into_iter().chain(victims).collect();
        // Stopped first, so that none of them sees another one die.
        for pid in &victims {
            processes::signal(*pid, Signal::STOP);
        }
        for pid in &victims {
            processes::signal(*pid, Signal::KILL);
        }
        processes::until_gone(&victims);
    }

    /// Waits for the end of the process that the user started.
    pub(crate) fn end(mut self) -> Done {
        let left = self.limit.saturating_sub(self.started.elapsed());
        let deadline = Instant::now() + left;
        while !self.has_ended() {
            assert!(
                Instant::now() < deadline,
                "it does not end: {}",
                self.transcript()
            );
            std::thread::sleep(LOOK);
        }
        Done {
            line: self.line.clone(),
            place: self.place.clone(),
            mark: self.mark.clone(),
            status: self.status,
            stdout: Running::text(&self.stdout),
            stderr: Running::text(&self.stderr),
            pids: [Some(self.pid()), self.keeper]
                .into_iter()
                .flatten()
                .collect(),
            before: self.before.clone(),
            took: self.started.elapsed(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended() {
            processes::marked(&self.mark)
                .iter()
                .for_each(|p| processes::signal(p.pid, Signal::KILL));
            let _ = self.child.wait();
        }
    }
}
