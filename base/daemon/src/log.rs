//! Lines of a log: a thread writes them to standard error, so that nobody else waits
//! for whoever reads them. If the reader stops, [`LINES`] lines wait; further lines are
//! dropped, counted, and reported in their place.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Lines that wait for the reader at most.
pub const LINES: usize = 1024;
/// How long the end of a program waits for the reader.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Without line ends and other control characters: names and messages of others must
/// not steer a terminal or look like another line.
#[must_use]
pub fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect()
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<String>,
    /// Lines dropped since the last one that was queued.
    unreported: u64,
    /// Lines dropped so far.
    dropped: u64,
    /// The thread writes a line that it has taken.
    writes: bool,
}

/// A log whose lines a thread of its own writes.
pub struct Log {
    queue: Mutex<Queue>,
    /// A line was queued, or one was written.
    changed: Condvar,
    /// The line that reports a number of dropped lines.
    gap: fn(u64) -> String,
}

impl Log {
    /// A log that `to` receives; `gap` is the line that reports dropped ones. Without
    /// a thread (none can be started) its lines are dropped.
    pub fn start(mut to: impl Write + Send + 'static, gap: fn(u64) -> String) -> Arc<Self> {
        let log = Arc::new(Self {
            queue: Mutex::default(),
            changed: Condvar::new(),
            gap,
        });
        let own = Arc::clone(&log);
        let writes = move || {
            // Signals are for the thread that acts on them.
            let _held =
                jostle_sys::signal::hold_back(&std::array::from_fn::<i32, 31, _>(|number| {
                    number as i32 + 1
                }));
            loop {
                // In one piece, so that lines of several processes do not mix.
                let _ = to.write_all(own.take().as_bytes());
            }
        };
        let _ = std::thread::Builder::new().name("log".into()).spawn(writes);
        log
    }

    /// The log of this process, on standard error. `gap` counts for the first call.
    pub fn stderr(gap: fn(u64) -> String) -> &'static Self {
        static LOG: OnceLock<Arc<Log>> = OnceLock::new();
        LOG.get_or_init(|| Self::start(std::io::stderr(), gap))
    }

    /// Queues a line, which ends with a line feed, or drops it if too many wait. Never
    /// waits for the reader.
    pub fn put(&self, line: String) {
        let mut queue = self.lock();
        if queue.lines.len() >= LINES {
            queue.unreported += 1;
            queue.dropped += 1;
            return;
        }
        if queue.unreported > 0 {
            let gap = (self.gap)(std::mem::take(&mut queue.unreported));
            queue.lines.push_back(gap);
        }
        queue.lines.push_back(line);
        drop(queue);
        self.changed.notify_all();
    }

    /// Lines dropped so far.
    pub fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Waits until all lines are written, for a second at most: before the end of the
    /// program, or before it becomes another one.
    pub fn flush(&self) {
        let busy = |queue: &mut Queue| queue.writes || !queue.lines.is_empty();
        drop(
            self.changed
                .wait_timeout_while(self.lock(), LAST_WORDS, busy),
        );
    }

    /// The thread's next line, once there is one.
    fn take(&self) -> String {
        let mut queue = self.lock();
        queue.writes = false;
        self.changed.notify_all();
        let idle = |queue: &mut Queue| queue.lines.is_empty();
        let woken = self.changed.wait_while(queue, idle);
        queue = woken.unwrap_or_else(PoisonError::into_inner);
        queue.writes = true;
        queue.lines.pop_front().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{SyncSender, sync_channel};

    #[test]
    fn control_characters_are_blanks() {
        assert_eq!(one_line("a\nb\x1b[2J\té"), "a b [2J é");
    }

    /// Takes a line when the test does.
    struct Reader(SyncSender<String>);

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_beyond_a_bound_are_dropped_and_counted_and_nobody_waits() {
        let (to, from) = sync_channel(0);
        let log = Log::start(Reader(to), |lines| format!("{lines} dropped\n"));
        log.put("first\n".to_owned());
        while !log.lock().writes {
            std::thread::yield_now();
        }
        // The thread waits for the reader now.
        for line in 0..LINES + 7 {
            log.put(format!("{line}\n"));
        }
        assert_eq!(log.dropped(), 7);
        for line in ["first\n", "0\n", "1\n"] {
            assert_eq!(from.recv().unwrap(), line);
        }
        log.put("after\n".to_owned());
        let rest: Vec<String> = from.iter().take(LINES).collect();
        let last = format!("{}\n", LINES - 1);
        assert_eq!(
            rest[rest.len() - 3..],
            [last, "7 dropped\n".into(), "after\n".into()]
        );
        log.flush();
        assert!(log.lock().lines.is_empty());
    }
}
