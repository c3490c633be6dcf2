//! A thread beside each worker that watches the worker's program. It reads the program's
//! standard error, so that the program never blocks on writing to it, and it kills a
//! program that does not answer a request.
//!
//! A deadline by poll(2) would take one more system call per request. Instead a worker
//! notes with two stores to memory which answer it waits for, and then makes a blocking
//! read.

use jostle_sys::process;
use jostle_sys::waited::Waited;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How much of standard error is kept.
const KEPT: usize = 4096;

/// Between two looks at what is waited for: a request that lasts from one look to the next is
/// looked at as [`Waited`] demands.
const LOOK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
const LOOK_CLOSELY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// The thread needs a buffer and little else.
const STACK_BYTES: usize = 128 * 1024;

/// The thread, as its worker has it.
#[derive(Debug)]
pub(super) struct Guard {
    shared: Arc<Shared>,
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// The process group of the program.
    group: u32,
    /// The number of the request that must be answered in time; 0: none.
    watched: AtomicU64,
    patience_ns: AtomicU64,
    gave_up: AtomicBool,
    /// The end of what stood on standard error.
    errors: Mutex<Vec<u8>>,
}

impl Guard {
    /// Watches the program that leads this process group and writes to the other end
    /// of `errors`.
    ///
    /// # Errors
    /// EAGAIN where a limit on threads is reached, EMFILE on descriptors.
    pub(super) fn start(group: u32, errors: OwnedFd) -> io::Result<Guard> {
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&errors, true)?;
        let shared = Arc::new(Shared {
            group,
            watched: AtomicU64::new(0),
            patience_ns: AtomicU64::new(0),
            gave_up: AtomicBool::new(false),
            errors: Mutex::new(Vec::new()),
        });
        let watching = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("jostle-pipe".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || watching.watch(&errors, &stopped))?;
        Ok(Guard {
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// From now on this request (numbered from 1) must be answered within this time.
    pub(super) fn watch(&self, request: u64, patience_ns: u64) {
        self.shared.patience_ns.store(patience_ns, Relaxed);
        self.shared.watched.store(request, Release);
    }

    /// It was.
    pub(super) fn rest(&self) {
        self.shared.watched.store(0, Release);
    }

    /// How long an answer was awaited, if the program was ended for want of it.
    pub(super) fn gave_up(&self) -> Option<Duration> {
        let patience = || Duration::from_nanos(self.shared.patience_ns.load(Relaxed));
        self.shared.gave_up.load(Acquire).then(patience)
    }

    /// Ends the thread, which reads what there still is.
    pub(super) fn stop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It does not panic, and what it has read is kept.
            let _ = thread.join();
        }
    }

    /// The end of what stood on standard error, whole lines if there is room, at most
    /// `most` bytes.
    pub(super) fn last_words(&self, most: usize) -> Vec<u8> {
        let errors = self.shared.kept();
        let text = errors.trim_ascii();
        let end = &text[text.len().saturating_sub(most)..];
        let cut = end.len() < text.len();
        let whole = end.iter().position(|byte| *byte == b'\n');
        match whole.filter(|_| cut) {
            Some(line_end) => end[line_end + 1..].to_vec(),
            None => end.to_vec(),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, errors: &OwnedFd, stopped: &OwnedFd) {
        let (mut seen, mut waited) = (0, Waited::begin());
        let mut look = &LOOK;
        let mut open = true;
        loop {
            let mut fds = [
                PollFd::new(stopped, PollFlags::IN),
                PollFd::new(errors, PollFlags::IN),
            ];
            let watched = if open { &mut fds[..] } else { &mut fds[..1] };
            let polled = poll(watched, Some(look));
            let stop = polled.is_ok() && !fds[0].revents().is_empty();
            if open && polled.is_ok() && !fds[1].revents().is_empty() || stop {
                open = self.keep(errors);
            }
            if stop {
                return;
            }
            let request = self.watched.load(Acquire);
            if request != seen {
                (seen, waited) = (request, Waited::begin());
                look = &LOOK;
                continue;
            }
            let so_far = waited.so_far().as_nanos() as u64;
            look = if request == 0 { &LOOK } else { &LOOK_CLOSELY };
            if request != 0 && so_far > self.patience_ns.load(Relaxed) {
                self.gave_up.store(true, Release);
                process::kill_group(self.group);
                return self.outlive(errors, stopped);
            }
        }
    }

    /// After the program was killed: until the worker has seen it.
    fn outlive(&self, errors: &OwnedFd, stopped: &OwnedFd) {
        while let Err(Errno::INTR) = poll(&mut [PollFd::new(stopped, PollFlags::IN)], None) {}
        self.keep(errors);
    }

    /// Takes what has come, at most the size of a few pipes at a time. False at its end.
    fn keep(&self, errors: &OwnedFd) -> bool {
        let mut room = [0; KEPT];
        for _ in 0..64 {
            match read(errors, &mut room[..]) {
                Ok(0) => return false,
                Ok(count) => {
                    let mut kept = self.kept();
                    let spare = (kept.len() + count).saturating_sub(KEPT);
                    let spare = spare.min(kept.len());
                    kept.drain(..spare);
                    kept.extend_from_slice(&room[..count]);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}
