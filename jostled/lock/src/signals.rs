//! Signals as flags and a descriptor to wait for. Those that this process was told to ignore
//! stay ignored, by the command too.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use signal_hook::consts::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::low_level::pipe;

/// Those that end a program which does not expect them.
pub(crate) const ENDING: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

pub(crate) struct Signals {
    heard: UnixStream,
    come: Vec<(i32, Arc<AtomicBool>)>,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        let ignored = ignored.unwrap_or(0);
        let (heard, rung) = UnixStream::pair()?;
        heard.set_nonblocking(true)?;
        let mut come = Vec::new();
        for signal in ENDING.into_iter().chain([SIGCHLD, SIGCONT]) {
            if signal != SIGCHLD && ignored >> (signal - 1) & 1 == 1 {
                continue;
            }
            let flag = Arc::new(AtomicBool::new(false));
            // The flag is set before the descriptor is readable.
            signal_hook::flag::register(signal, flag.clone())?;
            pipe::register(signal, rung.try_clone()?)?;
            come.push((signal, flag));
        }
        Ok(Self { heard, come })
    }

    /// Takes those that have come.
    pub(crate) fn take(&self) -> Vec<i32> {
        let mut bytes = [0; 64];
        while (&self.heard).read(&mut bytes).is_ok_and(|count| count > 0) {}
        let come = self.come.iter();
        let come = come.filter(|(_, flag)| flag.swap(false, SeqCst));
        come.map(|(signal, _)| *signal).collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.heard.as_fd()
    }
}
