//! The daemon's end: everybody gets what is theirs, for as long as that may take.

use std::io;

use jostle_resp::Writer;
use rustix::event::epoll;
use rustix::time::Timespec;

use super::Server;
use crate::table::{Event, Time};

impl Server {
    /// See [`Server::run`].
    pub(super) fn drain(&mut self) -> io::Result<()> {
        self.listeners.clear();
        let start = self.now();
        // What is due is done first, while every connection is in its place; and
        // all waits end before the first lock is released.
        self.step(Event::Tick, start);
        for slot in 0..self.conns.len() {
            let Some(conn) = &mut self.conns[slot] else {
                continue;
            };
            if conn.waiting {
                let client = conn.id;
                conn.waiting = false;
                Writer::new(&mut conn.output, conn.protocol)
                    .error("SHUTDOWN the lock daemon is ending");
                self.step(Event::Cancel { client }, start);
            }
        }
        for slot in 0..self.conns.len() {
            let Some(mut conn) = self.conns[slot].take() else {
                continue;
            };
            conn.closing = true;
            let alive = self.flush(&mut conn);
            self.put_back(conn, alive);
        }
        let end = Time(start.0 + self.config.drain_timeout.as_nanos() as u64);
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1024);
        while self.table.clients() > 0 && self.now() < end {
            events.clear();
            let pause = Timespec {
                tv_sec: 0,
                tv_nsec: 50_000_000,
            };
            let buffer = rustix::buffer::spare_capacity(&mut events);
            let _ = epoll::wait(&self.epoll, buffer, Some(&pause));
            for event in &events {
                self.handle(*event);
            }
            self.end_of_turn();
        }
        Ok(())
    }
}
