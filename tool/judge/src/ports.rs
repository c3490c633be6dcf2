//! The ports of this machine for new connections.

use jostle_sys::limits::net::{self, Net, Reuse};
use jostle_sys::sock_diag::Tcp;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// TCP_TIMEWAIT_LEN (include/net/tcp.h).
const TIME_WAIT_MS: u32 = 60_000;

/// The ports taken.
#[derive(Debug)]
pub(super) struct Ports {
    /// How many there are.
    pub all: u64,
    reuse: Reuse,
    reuse_after: Duration,
    /// Connections that were opened lately, by interval.
    lately: VecDeque<(Instant, u64)>,
    /// Whether the clients are on the loopback.
    pub is_loopback: bool,
}

impl Ports {
    /// By the settings of this network namespace.
    pub(super) fn read() -> Ports {
        let net = Net::read();
        let all = net
            .ports
            .map_or(0, |(first, last)| u64::from(last.saturating_sub(first)) + 1);
        Ports {
            all: all.saturating_sub(net.reserved),
            reuse: Reuse::read(),
            reuse_after: net::reuse_after(),
            lately: VecDeque::new(),
            is_loopback: false,
        }
    }

    /// Ports of connections in TIME_WAIT that no new connection may take. `ab` opens more
    /// connections in a minute than there are ports.
    pub(super) fn taken(&mut self, time_wait: u64, newly: u64, now: Instant) -> u64 {
        self.lately.push_back((now, newly));
        let is_old = |(at, _): &(Instant, u64)| now.duration_since(*at) > self.reuse_after;
        while self.lately.front().is_some_and(is_old) {
            self.lately.pop_front();
        }
        match self.reuses() {
            true => time_wait.min(self.lately.iter().map(|(_, opened)| opened).sum()),
            false => time_wait,
        }
    }

    /// Whether this socket in TIME_WAIT keeps its port.
    pub(super) fn keeps(&self, socket: &Tcp) -> bool {
        let age_ms = TIME_WAIT_MS.saturating_sub(socket.expires_ms);
        !self.reuses() || u128::from(age_ms) < self.reuse_after.as_millis()
    }

    fn reuses(&self) -> bool {
        match self.reuse {
            Reuse::Always => true,
            Reuse::Loopback => self.is_loopback,
            Reuse::Never => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_in_time_wait_are_taken_until_they_may_be_used_again() {
        let taken = |reuse, is_loopback| {
            let mut ports = Ports {
                all: 28_232,
                reuse,
                reuse_after: Duration::from_secs(2),
                lately: VecDeque::new(),
                is_loopback,
            };
            let start = Instant::now();
            let at = |seconds| start + Duration::from_secs(seconds);
            // 5,000 a second, of which TIME_WAIT keeps those of a minute.
            let each = (1..=10).map(|nth| ports.taken(nth * 5_000, 5_000, at(nth)));
            each.last()
        };
        assert_eq!(taken(Reuse::Never, true), Some(50_000));
        assert_eq!(taken(Reuse::Loopback, false), Some(50_000));
        // Those of the last two seconds, and of the interval that ends with them.
        assert_eq!(taken(Reuse::Loopback, true), Some(15_000));
        assert_eq!(taken(Reuse::Always, false), Some(15_000));
    }
}
