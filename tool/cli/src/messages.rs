//! Messages on standard error, and results that wait for their reader. A pipe that nobody
//! reads, or a stopped terminal, blocks whoever writes to it: a measurement must not wait for
//! that, and SIGTERM must end it all the same.
//!
//! A measuring verb calls [`hold`], and [`start`] after its last fork: then a thread writes
//! what is said. Other verbs write directly, as any program does.

use crate::signals;
use jostle_sys::waited::Waited;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write, stderr};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// Bytes that may wait for the thread. What comes after them is dropped, and counted.
const MOST_BYTES: usize = 64 << 10;
/// How long the end of the program waits for a reader that takes nothing.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks whether a signal has come, and the bytes of one write.
const LOOK: Duration = Duration::from_millis(50);
const CHUNK: usize = 4 << 10;

static QUEUE: LazyLock<Queue> = LazyLock::new(Queue::default);

/// From now on messages are kept for the thread, which [`start`] starts.
pub(crate) fn hold() {
    QUEUE.state().is_held = true;
}

/// Starts the thread. Call it after the last fork.
pub(crate) fn start() {
    let mut state = QUEUE.state();
    if !state.is_held || state.is_served {
        return;
    }
    state.is_served = Builder::new().spawn(|| QUEUE.serve(stderr())).is_ok();
    if !state.is_served {
        // No threads are left, and a message is about to say so.
        state.is_held = false;
        let texts: String = std::mem::take(&mut state.texts).into_iter().collect();
        drop(state);
        say(texts);
    }
}

/// Writes this to standard error, or gives it to the thread. Returns false if it was dropped.
/// Errors are ignored: if stderr is closed, they cannot be reported.
pub(crate) fn say(text: String) -> bool {
    let mut state = QUEUE.state();
    if !state.is_held {
        drop(state);
        return stderr().write_all(text.as_bytes()).is_ok();
    }
    let taken = state.take(text);
    QUEUE.moved.notify_all();
    taken
}

/// Writes this to standard error if that takes it at once, for a verb that still forks.
pub(crate) fn say_if_taken(text: &str) {
    let mut polled = [PollFd::from_borrowed_fd(
        rustix::stdio::stderr(),
        PollFlags::OUT,
    )];
    if poll(&mut polled, Some(&Timespec::default())) == Ok(1) {
        let _ = stderr().write_all(text.as_bytes());
    }
}

/// Waits until all messages are written, or their reader has taken nothing for [`PATIENCE`].
/// No fork may follow.
pub(crate) fn settle() {
    start();
    QUEUE.settle(PATIENCE);
}

/// Writes a result, after all messages. Where signals are heard, they do not end this
/// program; so if one has come, a reader that takes nothing for [`PATIENCE`] is given up.
///
/// # Errors
/// The system's, and [`ErrorKind::TimedOut`].
pub(crate) fn write_result(mut out: impl Write + Send + 'static, text: &str) -> io::Result<()> {
    settle();
    match signals::are_heard() {
        true => write_until(|| signals::came().is_some(), PATIENCE, out, text.to_owned()),
        false => out.write_all(text.as_bytes()).and_then(|()| out.flush()),
    }
}

fn write_until(
    ended: impl Fn() -> bool,
    patience: Duration,
    mut out: impl Write + Send + 'static,
    text: String,
) -> io::Result<()> {
    let (moved, moves) = channel();
    let writer = Builder::new().spawn(move || {
        for chunk in text.as_bytes().chunks(CHUNK) {
            out.write_all(chunk)?;
            let _ = moved.send(());
        }
        out.flush()
    })?;
    let mut taken = Waited::begin();
    loop {
        match moves.recv_timeout(LOOK) {
            Ok(()) => taken = Waited::begin(),
            Err(RecvTimeoutError::Timeout) if taken.so_far() >= patience && ended() => {
                return Err(io::Error::new(ErrorKind::TimedOut, "nobody reads it"));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return writer.join().unwrap_or(Err(ErrorKind::Other.into()));
            }
        }
    }
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    /// Something was said, or written.
    moved: Condvar,
}

#[derive(Default)]
struct State {
    is_held: bool,
    is_served: bool,
    /// The first of them is being written.
    texts: VecDeque<String>,
    bytes: usize,
    /// Messages that were dropped since the last one that was taken.
    dropped: usize,
}

impl State {
    fn take(&mut self, mut text: String) -> bool {
        if self.bytes + text.len() > MOST_BYTES {
            self.dropped += 1;
            return false;
        }
        if self.dropped > 0 {
            let dropped = std::mem::take(&mut self.dropped);
            text = format!(
                "jostle: {dropped} messages are left out, since nobody read standard error\n{text}"
            );
        }
        self.bytes += text.len();
        self.texts.push_back(text);
        true
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is said, for ever.
    fn serve(&self, mut out: impl Write) {
        let mut state = self.state();
        loop {
            let Some(text) = state.texts.front().cloned() else {
                let waited = self.moved.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let _ = out.write_all(text.as_bytes());
            state = self.state();
            state.texts.pop_front();
            state.bytes -= text.len();
            self.moved.notify_all();
        }
    }

    fn settle(&self, patience: Duration) {
        let mut state = self.state();
        while state.is_served && !state.texts.is_empty() {
            let before = state.bytes;
            let waited = self.moved.wait_timeout(state, patience);
            let (next, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            if waited.timed_out() && next.bytes == before {
                return;
            }
            state = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::Receiver;

    /// Writes nothing before the sender is gone.
    struct Blocked(Receiver<()>, Arc<Mutex<String>>);

    impl Write for Blocked {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            let text = String::from_utf8_lossy(bytes);
            self.1.lock().unwrap().push_str(&text);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_takes_nothing_costs_lines_and_no_time() {
        let queue: &'static Queue = Box::leak(Box::default());
        queue.state().is_served = true;
        let (go, may) = channel();
        let written: Arc<Mutex<String>> = Arc::default();
        let out = Blocked(may, Arc::clone(&written));
        std::thread::spawn(|| queue.serve(out));
        let say = |text: String| {
            let taken = queue.state().take(text);
            queue.moved.notify_all();
            taken
        };
        let taken = (0..10_000)
            .filter(|nth| say(format!("{nth:>99}\n")))
            .count();
        assert_eq!(taken, MOST_BYTES / 100);
        queue.settle(Duration::ZERO);
        assert_eq!(*written.lock().unwrap(), "");
        drop(go);
        queue.settle(Duration::from_secs(600));
        assert!(say("more\n".to_owned()));
        queue.settle(Duration::from_secs(600));
        let written = written.lock().unwrap();
        let lines: Vec<&str> = written.lines().collect();
        let left_out = format!("jostle: {} messages are left out", 10_000 - taken);
        assert!(lines[taken].starts_with(&left_out), "{}", lines[taken]);
        assert_eq!(lines[taken + 1..], ["more"]);
    }

    #[test]
    fn a_result_that_nobody_reads_is_given_up_when_the_user_wants_to_stop() {
        let (go, may) = channel();
        let out = Blocked(may, Arc::default());
        let result = write_until(|| true, Duration::ZERO, out, "a row\n".to_owned());
        assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
        drop(go);
        let patience = Duration::from_secs(600);
        assert!(write_until(|| true, patience, Vec::new(), "a row\n".to_owned()).is_ok());
    }
}
