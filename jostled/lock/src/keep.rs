//! The wrapper: takes the lock, runs the command, renews the lock, gives it back.

use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use jostle_resp::Value;
use jostle_sys::process::{Forker, adopt_orphans, leave_group};
use jostle_sys::signal::hold_back;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgrp, getpid, getppid, kill_process,
    kill_process_group, set_parent_process_death_signal, setpgid, test_kill_process_group, wait,
    waitpid,
};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGTSTP, SIGTTOU};

use crate::args::{OnLoss, Options};
use crate::line::{Granted, Waiter, as_slices};
use crate::link::{Link, readable};
use crate::server::Server;
use crate::signals::Signals;
use crate::term::{Page, Timer, Times, now};
use crate::{Failure, code, guard, say};

/// For the answer to the release.
const RELEASE: Duration = Duration::from_secs(2);

pub(crate) fn run(options: &Options) -> Result<u8, Failure> {
    let server = Server::from_options(options)?;
    let failed = |error| Failure::system("cannot prepare", error);
    let times = Times::new(options.ttl(), options.grace());
    let signals = Signals::listen().map_err(failed)?;
    let begun = now();
    let granted = Waiter::new(options, &server, &signals, times).wait()?;
    if options.verbose {
        let took = Duration::from_nanos(now() - begun).as_secs_f64();
        say(&format!("getting the lock took {took:.6} seconds"));
        say(&format!("executing {}", options.words()[0].display()));
    }
    let page = Page::new(granted.sent + times.ttl).map_err(failed)?;
    let mut keeper = Keeper {
        options,
        server: &server,
        signals: &signals,
        times,
        page,
        timer: Timer::new().map_err(failed)?,
        forker: Forker::new().map_err(failed)?,
        terminal: std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .ok(),
        next: granted.sent + times.every,
        awaited: None,
        guard: None,
        command: None,
        ended: None,
        lost: None,
    };
    let done = keeper.run(granted);
    keeper.take_terminal();
    done
}

struct Keeper<'o> {
    options: &'o Options,
    server: &'o Server,
    signals: &'o Signals,
    times: Times,
    page: Page,
    timer: Timer,
    forker: Forker,
    terminal: Option<std::fs::File>,
    /// When the next renewal is sent.
    next: u64,
    /// When the renewal that is not answered yet was sent.
    awaited: Option<u64>,
    guard: Option<Pid>,
    command: Option<Pid>,
    /// How the command itself ended.
    ended: Option<u8>,
    /// The lock is lost; what is left of the command has until then.
    lost: Option<u64>,
}

impl Keeper<'_> {
    fn run(&mut self, granted: Granted) -> Result<u8, Failure> {
        let Granted {
            link,
            session,
            tokens,
            ..
        } = granted;
        let mut link = Some(link);
        if let Err(error) = self.start(&tokens) {
            self.release(&mut link, &session, &tokens);
            return Err(Failure::system("cannot start a process", error));
        }
        while !self.is_done() {
            self.turn(&mut link, &session)
                .map_err(|error| Failure::system("cannot wait", error))?;
        }
        let held = self.release(&mut link, &session, &tokens);
        let ended = self.ended.unwrap_or(code::OS);
        Ok(match held && self.lost.is_none() {
            false if self.options.on_loss == OnLoss::End => code::LOST,
            _ => ended,
        })
    }

    /// Whether the command has ended, and with it those of its group that the lock is for.
    fn is_done(&self) -> bool {
        let others = || {
            self.command
                .is_some_and(|group| test_kill_process_group(group) != Err(rustix::io::Errno::SRCH))
        };
        self.ended.is_some() && (self.options.close && self.lost.is_none() || !others())
    }

    // The command.

    fn start(&mut self, tokens: &[u64]) -> std::io::Result<()> {
        // Those of its group that outlive it come to this process, which then sees their end.
        adopt_orphans()?;
        self.start_guard()?;
        let words = self.options.words();
        let tokens: Vec<String> = tokens.iter().map(u64::to_string).collect();
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .env("JOSTLE_LOCK_TOKEN", tokens.join(" "));
        let (wrapper, page, on_loss) = (getpid(), &self.page, self.options.on_loss);
        let terminal = self.terminal.as_ref();
        let terminal = terminal.filter(|it| tcgetpgrp(it) == Ok(getpgrp()));
        let child = self.forker.fork(|| {
            let _ = leave_group();
            let own = getpid();
            page.group()
                .store(own.as_raw_nonzero().get() as u64, SeqCst);
            if let Some(terminal) = terminal {
                give_terminal(terminal, own);
            }
            // From here on its end is the guard's business; before, it is over. The signal
            // stays set in the command.
            if on_loss == OnLoss::End {
                let _ = set_parent_process_death_signal(Some(Signal::TERM));
            }
            if getppid() != Some(wrapper) {
                return 1;
            }
            let error = command.exec();
            say(&format!("{}: {error}", words[0].display()));
            match error.kind() {
                std::io::ErrorKind::NotFound => code::NOT_FOUND.into(),
                _ => code::NOT_EXECUTABLE.into(),
            }
        })?;
        // Both do, so that the next signal finds the group.
        let _ = setpgid(Some(child), Some(child));
        self.page
            .group()
            .store(child.as_raw_nonzero().get() as u64, SeqCst);
        self.command = Some(child);
        Ok(())
    }

    fn start_guard(&mut self) -> std::io::Result<()> {
        let end = self.page.end().load(SeqCst);
        if self.options.on_loss == OnLoss::End && self.guard.is_none() && end != 0 {
            let (wrapper, page, times) = (getpid(), &self.page, &self.times);
            let watch = || guard::watch(page, times, wrapper, end);
            self.guard = Some(self.forker.fork(watch)?);
        }
        Ok(())
    }

    /// Looks which processes have ended or stopped.
    fn reap(&mut self) -> std::io::Result<()> {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            let over = status.exited() || status.signaled();
            if Some(pid) == self.command {
                if over {
                    self.ended = Some(exit_code(status));
                } else if status.stopping_signal() == Some(SIGTSTP) {
                    say("the command goes on: a job that is stopped would lose the lock");
                    let _ = kill_process_group(pid, Signal::CONT);
                }
            } else if Some(pid) == self.guard && over {
                self.guard = None;
                // Somebody has killed it. If there is no process left, each renewal tries again.
                if self.lost.is_none() {
                    let _ = self.start_guard();
                }
            }
        }
        Ok(())
    }

    fn pass_on(&mut self) -> std::io::Result<()> {
        for signal in self.signals.take() {
            let group = self.command;
            match (signal, group) {
                (SIGCHLD, _) => {}
                (SIGCONT, Some(group)) => {
                    // The shell has put this job into the foreground.
                    if let Some(terminal) = &self.terminal
                        && tcgetpgrp(terminal) == Ok(getpgrp())
                    {
                        give_terminal(terminal, group);
                    }
                    let _ = kill_process_group(group, Signal::CONT);
                }
                (signal, Some(group)) => {
                    if let Some(signal) = Signal::from_named_raw(signal) {
                        let _ = kill_process_group(group, signal);
                    }
                }
                _ => {}
            }
        }
        // A child's signal may have been that of an earlier one.
        self.reap()
    }

    fn take_terminal(&self) {
        if let (Some(terminal), Some(group)) = (&self.terminal, self.command)
            && tcgetpgrp(terminal) == Ok(group)
        {
            give_terminal(terminal, getpgrp());
        }
    }

    // The lock.

    fn turn(&mut self, link: &mut Option<Link>, session: &str) -> std::io::Result<()> {
        self.timer.set(self.next_deadline())?;
        let timer = self.timer.as_fd();
        let signals = self.signals.as_fd();
        // Nobody reads it any more once the lock is lost.
        let heard = link.as_ref().filter(|_| self.lost.is_none());
        let heard = heard.map_or(signals, |link| link.as_fd());
        readable([signals, timer, heard], None)?;
        self.pass_on()?;
        if self.is_done() {
            return Ok(());
        }
        if let Some(by) = self.lost {
            if now() >= by
                && let Some(group) = self.command
            {
                let _ = kill_process_group(group, Signal::KILL);
                self.lost = Some(now() + 10_000_000);
            }
            return Ok(());
        }
        if let Some(held) = link {
            match held.take() {
                Ok(Some(reply)) => self.answered(&reply),
                Ok(None) => {}
                Err(_) => self.disconnect(link),
            }
        }
        let late = self
            .awaited
            .is_some_and(|sent| now() > sent + self.times.every);
        if late {
            self.disconnect(link);
        }
        if self.lost.is_none() && self.awaited.is_none() && now() >= self.next {
            self.renew(link, session);
        }
        // The guard may have given up first.
        let over = self.page.end().load(SeqCst) == 0;
        if let Some(end) = self.page.give_up(&self.times, now()) {
            self.lose(
                self.times.gone_by(end),
                "the lock could not be renewed in time",
            );
        } else if over && self.lost.is_none() {
            // The guard has said why.
            self.lost = Some(now() + self.times.grace);
        }
        Ok(())
    }

    fn next_deadline(&self) -> u64 {
        if let Some(by) = self.lost {
            return by;
        }
        let renewal = match self.awaited {
            Some(sent) => sent + self.times.every + 1,
            None => self.next,
        };
        renewal.min(self.times.last_call(self.page.end().load(SeqCst)))
    }

    fn disconnect(&mut self, link: &mut Option<Link>) {
        *link = None;
        self.awaited = None;
        self.next = now() + self.times.every / 10;
    }

    fn renew(&mut self, link: &mut Option<Link>, session: &str) {
        let _ = self.start_guard();
        let patience = Duration::from_nanos(self.times.every / 2).min(Duration::from_secs(1));
        if link.is_none() {
            *link = Link::open(self.server, patience).ok();
        }
        let sent = now();
        let words: &[&[u8]] = &[b"SESSION", b"RENEW", session.as_bytes()];
        match link.as_mut().map(|link| link.send(&[words])) {
            Some(Ok(())) => self.awaited = Some(sent),
            _ => self.disconnect(link),
        }
    }

    fn answered(&mut self, reply: &Value) {
        let Some(sent) = self.awaited.take() else {
            return;
        };
        match reply {
            Value::Integer(1) if self.page.extend(sent + self.times.ttl) => {
                self.next = sent + self.times.every;
            }
            Value::Error(text) if text.starts_with("NOSESSION") => {
                // It is over, but a start after a crash grants nothing before this time.
                let end = self.page.end().swap(0, SeqCst);
                let by = self.times.gone_by(end).min(now() + self.times.grace);
                self.lose(by, "jostled has ended the lock's session");
            }
            _ => self.next = now() + self.times.every / 10,
        }
    }

    fn lose(&mut self, by: u64, why: &str) {
        let Some(group) = self.command else { return };
        let title = self.options.title();
        if self.options.on_loss == OnLoss::Warn {
            say(&format!(
                "lost {title}: {why}. The command goes on, and another one can run beside it \
                 from now on (--on-loss warn)"
            ));
            self.lost = Some(u64::MAX >> 1);
            return;
        }
        say(&format!("lost {title}: {why}; ends the command"));
        guard::ask(group);
        self.lost = Some(by);
    }

    /// Gives the lock back; whether it was held until now, as far as that is known.
    fn release(&mut self, link: &mut Option<Link>, session: &str, tokens: &[u64]) -> bool {
        if let Some(guard) = self.guard.take() {
            let _ = kill_process(guard, Signal::KILL);
            let _ = waitpid(Some(guard), WaitOptions::empty());
        }
        let end = self.page.end().load(SeqCst);
        let mut words: Vec<Vec<Vec<u8>>> = Vec::new();
        for (name, token) in self.options.names.iter().zip(tokens) {
            let token = token.to_string().into_bytes();
            words.push(vec![b"UNLOCK".to_vec(), name.as_bytes().to_vec(), token]);
        }
        let id = session.as_bytes().to_vec();
        words.push(vec![b"SESSION".to_vec(), b"CLOSE".to_vec(), id]);
        let expected = usize::from(self.awaited.is_some()) + words.len();
        let mut told = link
            .as_mut()
            .and_then(|link| exchange(link, &words, expected).ok());
        let repeated = told.is_none() && link.is_some();
        if told.is_none() {
            let again = Link::open(self.server, RELEASE / 2).ok();
            told = again.and_then(|mut link| exchange(&mut link, &words, words.len()).ok());
        }
        let Some(replies) = told else {
            if self.lost.is_none() {
                let left = end.saturating_sub(now()).div_ceil(1_000_000_000);
                say(&format!(
                    "jostled does not answer: {} ends by itself within {left} s",
                    self.options.title()
                ));
            }
            return true;
        };
        let refused = |reply: &Value| matches!(reply, Value::Error(_));
        // What was executed before the connection broke is refused when it is repeated.
        let taken = !repeated && replies.iter().rev().take(words.len()).any(refused);
        if taken && self.lost.is_none() {
            say(&format!(
                "lost {}: it was taken away while the command ran (FORCEUNLOCK, SESSION CLOSE USER, or its time was over)",
                self.options.title()
            ));
        }
        !taken
    }
}

fn exchange(
    link: &mut Link,
    words: &[Vec<Vec<u8>>],
    expected: usize,
) -> std::io::Result<Vec<Value>> {
    let slices: Vec<Vec<&[u8]>> = words.iter().map(|words| as_slices(words)).collect();
    let requests: Vec<&[&[u8]]> = slices.iter().map(Vec::as_slice).collect();
    link.send(&requests)?;
    (0..expected).map(|_| link.await_reply(RELEASE)).collect()
}

/// Puts a group into the terminal's foreground.
fn give_terminal(terminal: &std::fs::File, group: Pid) {
    // From the background it would stop this process.
    if let Ok(_held) = hold_back(&[SIGTTOU]) {
        let _ = tcsetpgrp(terminal, group);
    }
}

fn exit_code(status: WaitStatus) -> u8 {
    let signal = status.terminating_signal().map(|signal| 128 + signal);
    status.exit_status().or(signal).unwrap_or(0) as u8
}
