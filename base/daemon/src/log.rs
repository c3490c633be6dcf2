//! Lines of a log: a thread writes them to standard error, so that nobody else waits
//! for whoever reads them. If the reader stops, a number of lines wait; further lines are
//! dropped, counted, and reported in their place. So are lines that cannot be written, such
//! as on a full disk: they are reported as soon as there is room.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Lines that wait for the reader at most; each `SHORT` bytes of a longer one count as one.
pub const LINES: usize = 1024;
/// Bytes of a short line.
const SHORT: usize = 512;
/// How long the end of a program waits for the reader.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often lost lines are reported, until that succeeds.
const AGAIN: Duration = Duration::from_secs(1);
/// Why lines were dropped that nobody could write in time.
const UNREAD: &str = "nobody read them in time";

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
    /// The sum of their lengths, in short lines.
    length: usize,
    /// Lines dropped since the last one that was queued.
    unreported: u64,
    /// Lines dropped so far.
    dropped: u64,
    /// The thread writes a line that it has taken.
    writes: bool,
}

/// The number of lines that a line counts as.
fn length(line: &str) -> usize {
    line.len().div_ceil(SHORT)
}

/// A log whose lines a thread of its own writes.
pub struct Log {
    queue: Mutex<Queue>,
    /// A line was queued, or one was written.
    changed: Condvar,
    /// The greatest sum of lengths.
    most: usize,
    /// The line that reports a number of dropped lines, and why they were.
    gap: fn(u64, &str) -> String,
}

/// The thread's account of the lines that it has written.
#[derive(Default)]
struct Pen {
    /// The last one is there in part.
    torn: bool,
    /// Lines that could not be written since the last report, and why.
    lost: (u64, String),
}

impl Pen {
    /// Writes a line in one piece, so that lines of several processes do not mix, and ends
    /// the one before if only a part of it could be written.
    fn write(&mut self, to: &mut impl Write, line: &str) -> io::Result<()> {
        let text = format!("{}{line}", if self.torn { "\n" } else { "" });
        let mut left = text.as_bytes();
        while !left.is_empty() {
            match to.write(left) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => {
                    self.torn = left[length - 1] != b'\n';
                    left = &left[length..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reports the lines that were lost before, and writes one, if there is one. False: it
    /// is lost.
    fn go_on(
        &mut self,
        to: &mut impl Write,
        line: Option<&str>,
        gap: fn(u64, &str) -> String,
    ) -> bool {
        let (lines, why) = &self.lost;
        if *lines > 0 && self.write(to, &gap(*lines, why)).is_ok() {
            self.lost.0 = 0;
        }
        let Some(Err(error)) = line.map(|line| self.write(to, line)) else {
            return true;
        };
        self.lost = (self.lost.0 + 1, error.to_string());
        false
    }
}

impl Log {
    /// A log that `to` receives, and of which `most` lines wait, as [`LINES`] has it; `gap` is
    /// the line that reports dropped ones. Without a thread (none can be started) its lines are
    /// dropped.
    pub fn start(
        mut to: impl Write + Send + 'static,
        most: usize,
        gap: fn(lines: u64, why: &str) -> String,
    ) -> Arc<Self> {
        let log = Arc::new(Self {
            queue: Mutex::default(),
            changed: Condvar::new(),
            most,
            gap,
        });
        let own = Arc::clone(&log);
        let writes = move || {
            // Signals are for the thread that acts on them.
            let _held =
                jostle_sys::signal::hold_back(&std::array::from_fn::<i32, 31, _>(|number| {
                    number as i32 + 1
                }));
            let mut pen = Pen::default();
            loop {
                let line = own.take(pen.lost.0 > 0);
                if !pen.go_on(&mut to, line.as_deref(), gap) {
                    own.lock().dropped += 1;
                }
            }
        };
        let _ = std::thread::Builder::new().name("log".into()).spawn(writes);
        log
    }

    /// The log of this process, on standard error. `gap` counts for the first call.
    pub fn stderr(gap: fn(lines: u64, why: &str) -> String) -> &'static Self {
        static LOG: OnceLock<Arc<Log>> = OnceLock::new();
        LOG.get_or_init(|| Self::start(std::io::stderr(), LINES, gap))
    }

    /// Queues a line, which ends with a line feed, or drops it if too many wait. Never
    /// waits for the reader.
    pub fn put(&self, line: String) {
        self.put_all([line]);
    }

    /// [`Log::put`] for several lines at once.
    pub fn put_all(&self, lines: impl IntoIterator<Item = String>) {
        let mut queue = self.lock();
        for line in lines {
            if queue.length + length(&line) > self.most {
                queue.unreported += 1;
                queue.dropped += 1;
                continue;
            }
            if queue.unreported > 0 {
                let gap = (self.gap)(std::mem::take(&mut queue.unreported), UNREAD);
                queue.length += length(&gap);
                queue.lines.push_back(gap);
            }
            queue.length += length(&line);
            queue.lines.push_back(line);
        }
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

    /// The thread's next line, once there is one; `None`: it is time to report lost lines.
    fn take(&self, reports: bool) -> Option<String> {
        let mut queue = self.lock();
        queue.writes = false;
        self.changed.notify_all();
        let idle = |queue: &mut Queue| queue.lines.is_empty();
        if reports {
            let woken = self.changed.wait_timeout_while(queue, AGAIN, idle);
            queue = woken.unwrap_or_else(PoisonError::into_inner).0;
        } else {
            let woken = self.changed.wait_while(queue, idle);
            queue = woken.unwrap_or_else(PoisonError::into_inner);
        }
        queue.writes = true;
        let line = queue.lines.pop_front()?;
        queue.length -= length(&line);
        Some(line)
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

    /// 36 of 100 lines of an audit were on a disk that was full for a time, one of them in
    /// part, and none was counted.
    #[test]
    fn lines_that_cannot_be_written_are_counted_and_reported_once_there_is_room() {
        let gap = |lines, why: &str| format!("{lines} lost: {why}\n");
        let (mut pen, mut written) = (Pen::default(), Vec::new());
        // The room for each line, and whether it is written.
        for (room, line, whole) in [
            (6, Some("first\n"), true),
            (3, Some("second\n"), false),
            // The end of the torn line, and a part of the report.
            (4, Some("third\n"), false),
            (0, None, true),
            (1, None, true),
            (100, None, true),
            (100, Some("fourth\n"), true),
        ] {
            let mut disk = vec![0; room];
            let mut to = &mut disk[..];
            assert_eq!(pen.go_on(&mut to, line, gap), whole, "{line:?}");
            let left = to.len();
            written.extend_from_slice(&disk[..room - left]);
        }
        let full = io::Error::from(ErrorKind::WriteZero);
        let expected = format!("first\nsec\n1 l\n2 lost: {full}\nfourth\n");
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }

    #[test]
    fn lines_beyond_a_bound_are_dropped_and_counted_and_nobody_waits() {
        let (to, from) = sync_channel(0);
        let log = Log::start(Reader(to), LINES, |lines, _| format!("{lines} dropped\n"));
        log.put("first\n".to_owned());
        while !log.lock().writes {
            std::thread::yield_now();
        }
        // The thread waits for the reader now.
        log.put("x".repeat((LINES + 1) * SHORT));
        for line in 1..LINES + 7 {
            log.put(format!("{line}\n"));
        }
        assert_eq!(log.dropped(), 8);
        for line in ["first\n", "1 dropped\n", "1\n"] {
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
