//! Whether the time that the kernel spends in soft interrupts counts as that of the
//! task which they interrupt, or as nobody's (CONFIG_IRQ_TIME_ACCOUNTING).
//!
//! The kernel's configuration tells, where it can be read; this is found out by
//! trying. A packet to oneself over the loopback is received in a soft interrupt
//! that strikes its sender: either the sender's CPU clock goes on meanwhile, or not.

use rustix::time::{ClockId, clock_gettime};
use std::net::UdpSocket;
use std::time::Duration;

/// Looks, of which the one with the least disturbance decides.
const LOOKS: usize = 20;

/// Packets of a look: some 0.1 ms, so that most looks are not interrupted.
const PACKETS: usize = 20;

/// Share of a look's time by its CPU clock, from which on all of it counts, and
/// under which a part does not. Receiving is a third of it or more.
const ALL: f64 = 0.97;
const PART: f64 = 0.9;

/// Tries for some milliseconds; None where it cannot be told (no loopback, a busy
/// machine).
pub fn counts_as_the_task_s() -> Option<bool> {
    let socket = UdpSocket::bind("127.0.0.1:0").ok()?;
    socket.connect(socket.local_addr().ok()?).ok()?;
    socket
        .set_read_timeout(Some(Duration::from_millis(100)))
        .ok()?;
    let looks: Option<Vec<f64>> = (0..LOOKS).map(|_| look(&socket)).collect();
    told(&looks?)
}

/// CPU time by time.
fn look(socket: &UdpSocket) -> Option<f64> {
    let before = (now(ClockId::ThreadCPUTime), now(ClockId::Monotonic));
    for _ in 0..PACKETS {
        socket.send(b"to myself").ok()?;
        socket.recv(&mut [0; 16]).ok()?;
    }
    let used = now(ClockId::ThreadCPUTime) - before.0;
    let passed = now(ClockId::Monotonic) - before.1;
    Some(used as f64 / passed.max(1) as f64)
}

fn now(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn told(looks: &[f64]) -> Option<bool> {
    match looks.iter().copied().fold(0.0, f64::max) {
        most if most >= ALL => Some(true),
        most if most > 0.0 && most < PART => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn the_least_disturbed_look_decides() {
        let table: [(&[f64], Option<bool>); 5] = [
            (&[0.3, 0.99, 0.7], Some(true)),
            (&[0.62, 0.65, 0.2], Some(false)),
            (&[0.5, 0.93], None),
            (&[0.0], None),
            (&[], None),
        ];
        for (looks, expected) in table {
            assert_eq!(told(looks), expected, "{looks:?}");
        }
    }
}
