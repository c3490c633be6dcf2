//! The world of a test.

use crate::service::{Daemon, Link};
use jostle_lock::{Locks, Settings, Wish};
use std::thread;
use std::time::Duration;

/// A daemon, a link to it, and its locks.
pub struct World {
    pub daemon: Daemon,
    pub link: Link,
    pub locks: Locks,
}

pub fn locks(port: u16, timeout: Duration, retries: u32) -> Locks {
    let settings = Settings { timeout, retries };
    Locks::new(format!("redis://127.0.0.1:{port}"), settings).unwrap()
}

pub const SECOND: Duration = Duration::from_secs(1);

impl World {
    pub fn new() -> World {
        let daemon = Daemon::start();
        let link = Link::start(&daemon);
        let locks = locks(link.port, SECOND, 0);
        World {
            daemon,
            link,
            locks,
        }
    }

    pub fn begin(&self, fault: &str) {
        match fault {
            "cut off" => self.link.set(true),
            "killed" => self.daemon.signal("-KILL"),
            _ => self.daemon.signal("-STOP"),
        }
    }

    pub fn end(&self) {
        self.link.set(false);
        self.daemon.signal("-CONT");
    }
}

/// Tries all cases in worlds of their own, at the same time: they mostly wait.
pub fn in_each(faults: &[&'static str], ttls: &[u64], case: fn(&World, &str, Option<Duration>)) {
    thread::scope(|scope| {
        for &fault in faults {
            for &ttl in ttls {
                let ttl = (ttl > 0).then(|| Duration::from_millis(ttl));
                scope.spawn(move || case(&World::new(), fault, ttl));
            }
        }
    });
}

pub fn at_once() -> Wish {
    Wish::waiting(Duration::ZERO)
}
