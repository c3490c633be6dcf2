//! The guard: a process between jostle and the command, forked before any thread. It
//! starts the command, reports how it is stopped, continued and ended, and on its own
//! end, or jostle's, ends every descendant of the command.
//!
//! The command keeps jostle's process group, so that it may read the terminal and ^C
//! reaches it; the guard has a session of its own, so that ^C does not reach the guard. A
//! group of its own in the same session is not enough: then the guard may be all that keeps
//! the command's group from being orphaned (setpgid(2)), as in a script without job control
//! (cron, CI). The kernel sends SIGHUP to a group that the command's end orphans, if any
//! process in it is stopped.

use super::output::{Copies, Ends};
use jostle_sys::census::Identity;
use jostle_sys::clock;
use jostle_sys::process::{self, Forker};
use jostle_sys::waited;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, setsid, waitid};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// How long processes that were killed may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The guard's reports, one line of JSON each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum News {
    /// The command runs.
    Started {
        /// Its process.
        pid: u32,
    },
    /// It could not be started.
    Failed {
        /// The system's number.
        errno: i32,
    },
    /// A signal stopped the command, or let it go on.
    Stopped {
        /// Whether it stands still from now on.
        stopped: bool,
        /// When, on the monotonic clock.
        at_ns: u64,
    },
    /// It has ended, and its clocks can still be read: until [`Guard::let_go`].
    Over {
        /// When, on the monotonic clock.
        at_ns: u64,
    },
    /// It is gone.
    Ended {
        /// Its exit code, or
        code: Option<i32>,
        /// the signal that ended it.
        signal: Option<i32>,
        /// CPU time of the command and of all children that it waited for.
        cpu_ns: u64,
    },
}

/// Jostle's end.
#[derive(Debug)]
pub(super) struct Guard {
    news: BufReader<UnixStream>,
    /// The guard's own process.
    pub pid: u32,
    /// The command's process.
    pub command: u32,
}

impl Guard {
    /// Forks the guard, which starts the command, with these as its output;
    /// the other ends of them are jostle's. `apart`: in a session of its own, where it reads nothing
    /// and only its standard error is jostle's.
    ///
    /// # Errors
    /// Why the command cannot be started, with the system's message.
    pub(super) fn start(
        words: &[String],
        mut ends: Option<Ends>,
        copies: &mut Option<Copies>,
        apart: bool,
    ) -> io::Result<Guard> {
        let forker = Forker::new()?;
        // Should the guard be killed, what the command has started comes to us.
        process::adopt_orphans()?;
        let (ours, theirs) = UnixStream::pair()?;
        let mut ours = Some(ours);
        let pid = forker.fork(|| {
            // A guard that holds our end would never see us go, and a command whose output
            // nobody takes would not be told.
            drop((ours.take(), copies.take()));
            match live(&theirs, words, ends.take(), apart) {
                Ok(()) => 0,
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(0);
                    let _ = report(&theirs, &News::Failed { errno });
                    1
                }
            }
        })?;
        drop((theirs, ends));
        let stream = ours.ok_or_else(|| io::Error::other("no socket to the guard"))?;
        let mut guard = Guard {
            news: BufReader::new(stream),
            pid: pid.as_raw_nonzero().get() as u32,
            command: 0,
        };
        match guard.wait()? {
            Some(News::Started { pid }) => guard.command = pid,
            Some(News::Failed { errno }) => return Err(io::Error::from_raw_os_error(errno)),
            _ => return Err(io::Error::other("the guard process ended at its start")),
        }
        Ok(guard)
    }

    /// The next report; None where the guard is gone.
    fn wait(&mut self) -> io::Result<Option<News>> {
        let mut line = String::new();
        self.news.read_line(&mut line)?;
        Ok(serde_json::from_str(&line).ok())
    }

    /// The next report, if it comes by then, on the monotonic clock. A signal to jostle
    /// ends the wait too.
    ///
    /// # Errors
    /// That the guard is gone.
    pub(super) fn news(&mut self, until_ns: u64) -> io::Result<Option<News>> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let left = Duration::from_nanos(until_ns.saturating_sub(clock::monotonic()));
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        if self.news.buffer().is_empty() {
            let mut polled = [PollFd::new(self.news.get_ref(), PollFlags::IN)];
            match poll(&mut polled, Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => return Ok(None),
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let gone = || io::Error::other("the guard process was killed, and the command with it");
        self.wait()?.map(Some).ok_or_else(gone)
    }

    /// The command's clocks were read.
    ///
    /// # Errors
    /// That the guard is gone.
    pub(super) fn let_go(&self) -> io::Result<()> {
        self.news.get_ref().write_all(&[0])
    }

    /// Asks the command, and those that it has left to the guard, to end (SIGTERM), and kills what
    /// takes longer than some seconds.
    pub(super) fn end(self) {
        let mut own = process::with_descendants(self.pid);
        let is_next = |pid: &u32| Identity::of(*pid).is_some_and(|of| of.parent == self.pid);
        own.retain(is_next);
        for pid in own.iter().filter_map(|pid| Pid::from_raw(*pid as i32)) {
            let _ = [Signal::TERM, Signal::CONT].map(|signal| kill_process(pid, signal));
        }
        let has_ended = || own.iter().all(|pid| process::is_over(*pid)).then_some(());
        let grace = Duration::from_nanos(super::GRACE_NS);
        waited::within(grace, Duration::from_millis(5), has_ended);
    }

    /// Sends the command a signal; one that has ended is no error.
    pub(super) fn signal(&self, signal: i32) {
        let signal = Signal::from_named_raw(signal);
        if let (Some(pid), Some(signal)) = (Pid::from_raw(self.command as i32), signal) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Guard {
    /// Closing our end tells the guard to end whatever is left.
    fn drop(&mut self) {
        let _ = self.news.get_ref().shutdown(std::net::Shutdown::Both);
        let is_gone = || process::is_gone(self.pid).then_some(());
        waited::within(PATIENCE, Duration::from_millis(1), is_gone);
        // The children of a guard that was killed are ours now.
        process::end_children(PATIENCE);
    }
}

fn report(mut to: &UnixStream, news: &News) -> io::Result<()> {
    let line = serde_json::to_string(news)? + "\n";
    to.write_all(line.as_bytes())
}

/// The guard's life.
fn live(parent: &UnixStream, words: &[String], ends: Option<Ends>, apart: bool) -> io::Result<()> {
    process::set_name("jostle-guard");
    process::adopt_orphans()?;
    let pid = start(words, ends.as_ref(), apart)?;
    // Whoever reads them waits for the last one that holds them.
    drop(ends);
    let command = pid.as_raw_nonzero().get() as u32;
    report(parent, &News::Started { pid: command })?;
    let (let_go, may_go) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| watch(parent, pid, may_go));
        // What ends this is jostle's end, or that it has seen enough.
        while matches!({ parent }.read(&mut [0]), Ok(1)) {
            let _ = let_go.send(());
        }
        drop(let_go);
        process::kill(command);
        process::end_children(PATIENCE);
    });
    Ok(())
}

/// Starts the command in our process group, or apart, and leaves that group; the system's own number
/// tells why the command could not be started.
fn start(words: &[String], ends: Option<&Ends>, apart: bool) -> io::Result<Pid> {
    let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let (mut ours, theirs) = UnixStream::pair()?;
    let guard = getpid();
    let mut command = Command::new(program);
    command.args(arguments);
    if apart {
        command.stdin(Stdio::null()).stdout(Stdio::null());
    }
    let pid = Forker::new()?.fork(|| {
        // It waits until the guard has left the session: a process that is forked after that
        // cannot join this group.
        let prepared =
            process::die_with(guard).and_then(|()| (&mut { &theirs }).read_exact(&mut [0]));
        let prepared = prepared.and_then(|()| match apart {
            true => Ok(setsid().map(|_| ())?),
            false => Ok(()),
        });
        let error = match prepared {
            Ok(()) => execute(&mut command, ends),
            Err(error) => error,
        };
        let errno = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
        let _ = { &theirs }.write_all(&errno.to_ne_bytes());
        127
    })?;
    drop(theirs);
    setsid()?;
    ours.write_all(&[0])?;
    let mut errno = [0; 4];
    match ours.read_exact(&mut errno) {
        Ok(()) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))),
        // Closed by the execution.
        Err(_) => Ok(pid),
    }
}

/// Does not return, unless it fails.
fn execute(command: &mut Command, ends: Option<&Ends>) -> io::Error {
    match ends.map(Ends::given).transpose() {
        Ok(None) => command.exec(),
        Ok(Some((out, err))) => command.stdout(out).stderr(err).exec(),
        Err(error) => error,
    }
}

/// Reports what happens to the command until it has ended.
fn watch(parent: &UnixStream, pid: Pid, may_go: Receiver<()>) {
    let command = pid.as_raw_nonzero().get() as u32;
    let all = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED;
    let stops = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED;
    while let Ok(status) =
        rustix::io::retry_on_intr(|| waitid(WaitId::Pid(pid), all | WaitIdOptions::NOWAIT))
    {
        let at_ns = clock::monotonic();
        let Some(status) = status else { continue };
        let sent = if status.stopped() || status.continued() {
            // Taken, so that the next one can be seen.
            let _ = waitid(WaitId::Pid(pid), stops | WaitIdOptions::NOHANG);
            let stopped = status.stopped();
            report(parent, &News::Stopped { stopped, at_ns })
        } else {
            if report(parent, &News::Over { at_ns }).is_err() {
                return;
            }
            let _ = may_go.recv();
            if let Some(ended) = process::reap_one(command) {
                let news = News::Ended {
                    code: ended.code,
                    signal: ended.signal,
                    cpu_ns: ended.usage.user_ns + ended.usage.system_ns,
                };
                let _ = report(parent, &news);
            }
            return;
        };
        if sent.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod live_tests {
    use super::*;

    #[test]
    fn a_guard_is_not_forked_from_a_process_with_threads() {
        // Tests run in threads; what starts commands is tested through the program.
        let error = Guard::start(&["true".to_owned()], None, &mut None, false).unwrap_err();
        assert!(error.to_string().contains("threads"), "{error}");
    }
}
