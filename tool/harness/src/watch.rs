//! When the parent gets a progress report: at most once a second, so rarely that looking
//! costs next to nothing, and only if it has read the report before.

use crate::Context;
use jostle_worker::order::{Reply, Running};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::Cell;
use std::os::unix::net::UnixStream;

/// Between two looks, in nanoseconds.
const EVERY_NS: u64 = 1_000_000_000;

/// Time between two looks, by what the last one took: a look at a thousand workers takes
/// some milliseconds of a CPU that they could use.
const REST: u64 = 1_000;

/// The rest of the window when the last look begins, beside four times what a look takes: the
/// clocks have to be read at the window's end, not after it.
const BEFORE_END_NS: u64 = 50_000_000;

/// The looks at one run.
#[derive(Debug, Default)]
pub struct Watch {
    wanted: bool,
    next_ns: Cell<u64>,
    took_ns: Cell<u64>,
}

impl Watch {
    /// `wanted`: whether anybody watches.
    pub fn new(wanted: bool) -> Watch {
        Watch {
            wanted,
            ..Watch::default()
        }
    }

    /// The window opened.
    pub fn opens(&self, now_ns: u64) {
        self.next_ns.set(now_ns + EVERY_NS);
    }

    /// Whether it is time to look. `closes_ns`: the end of the window, if that is known.
    pub fn is_due(&self, now_ns: u64, closes_ns: Option<u64>) -> bool {
        let left = closes_ns.map_or(u64::MAX, |closes| closes.saturating_sub(now_ns));
        self.wanted && now_ns >= self.next_ns.get() && left > BEFORE_END_NS + 4 * self.took_ns.get()
    }

    /// Passes a look on, which began at `began_ns` and is over at `now_ns`.
    pub fn tell(&self, context: &Context, began_ns: u64, now_ns: u64, mut running: Running) {
        let took = now_ns.saturating_sub(began_ns);
        running.took_ns = took;
        self.took_ns.set(took);
        self.next_ns
            .set(began_ns + EVERY_NS.max(took.saturating_mul(REST)));
        // A parent that stands still must not stop the run with it. One that is gone is
        // noticed by whoever waits for it.
        if has_room(&context.stream) {
            let _ = context.tell(&Reply::Running(Box::new(running)));
        }
    }
}

/// Whether some ten kilobytes can be written without waiting: the kernel calls a socket
/// writable while three quarters of its buffer are free.
fn has_room(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::OUT)];
    let ready = poll(&mut fds, Some(&Timespec::default()));
    ready.is_ok_and(|ready| ready > 0) && fds[0].revents().contains(PollFlags::OUT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const S: u64 = 1_000_000_000;

    #[test]
    fn it_looks_once_a_second_and_not_at_the_end() {
        let watch = Watch::new(true);
        watch.opens(5 * S);
        for (now, closes, due) in [
            (5 * S, None, false),
            (6 * S - 1, None, false),
            (6 * S, None, true),
            (6 * S, Some(9 * S), true),
            (6 * S, Some(6 * S + BEFORE_END_NS), false),
            (6 * S, Some(5 * S), false),
        ] {
            assert_eq!(watch.is_due(now, closes), due, "{now} {closes:?}");
        }
        let nobody = Watch::new(false);
        nobody.opens(0);
        assert!(!nobody.is_due(9 * S, None));
    }

    #[test]
    fn a_reader_that_stands_still_does_not_stop_the_writer() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert!(has_room(&ours));
        ours.set_nonblocking(true).unwrap();
        let block = [0; 4096];
        // Until it would wait.
        while matches!((&ours).write(&block), Ok(1..)) {}
        assert!(!has_room(&ours));
    }
}
