//! Metrics and probes of health, over [`super::http`].

use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::http::HttpConn;
use super::{HTTP, Server, info, now};

/// Scrapers at the same time; one more takes the place of the one that is there
/// for longest, so that slow ones cannot keep the others out.
const CONNECTIONS: usize = 16;

impl Server {
    /// Whether the daemon can grant locks; if not, the reason.
    fn health(&self) -> Result<(), &'static str> {
        if self.is_draining() {
            return Err("draining: waits for holders and grants nothing");
        }
        if self.leases.from.is_some() {
            return Err("leases from before the start may still run: nothing is granted yet");
        }
        if self.full().is_some() {
            return Err("the store has no room: nothing is granted");
        }
        if self.table.tokens_left() == 0 {
            return Err("no fencing tokens can be made durable");
        }
        Ok(())
    }

    pub(super) fn admit_http(&mut self, fd: OwnedFd) {
        let free = self.http.iter().position(Option::is_none);
        let index = match free {
            Some(index) => index,
            None if self.http.len() < CONNECTIONS => {
                self.http.push(None);
                self.http.len() - 1
            }
            None => self.oldest_http(),
        };
        let event = HTTP | index as u64;
        if self.watch_for(event, &fd, EventFlags::IN).is_ok() {
            self.http[index] = Some(HttpConn::new(fd, now()));
            // Its request may be here already: it is answered before others that were
            // accepted with it can take its place.
            self.http_ready(index);
        }
    }

    fn oldest_http(&self) -> usize {
        let ages = self.http.iter().map(|conn| conn.as_ref().map(|c| c.since));
        let oldest = ages.enumerate().min_by_key(|(_, since)| *since);
        oldest.map_or(0, |(index, _)| index)
    }

    pub(super) fn http_ready(&mut self, index: usize) {
        let Some(mut conn) = self.http.get_mut(index).and_then(Option::take) else {
            return;
        };
        if self.serve_http(&mut conn, index) {
            self.http[index] = Some(conn);
        }
    }

    /// False: done, or lost.
    fn serve_http(&mut self, conn: &mut HttpConn, index: usize) -> bool {
        if conn.answer.is_empty() {
            match recv(&conn.fd, &mut self.work.scratch[..], RecvFlags::empty()) {
                Ok((0, _)) => return false,
                Ok((bytes, _)) => conn.request.extend_from_slice(&self.work.scratch[..bytes]),
                Err(Errno::AGAIN | Errno::INTR) => return true,
                Err(_) => return false,
            }
            let server = &*self;
            if !conn.respond(|| info::metrics(server, now()), server.health()) {
                return true;
            }
            let data = EventData::new_u64(HTTP | index as u64);
            if epoll::modify(&self.epoll, &conn.fd, data, EventFlags::OUT).is_err() {
                return false;
            }
        }
        match send(&conn.fd, &conn.answer[conn.sent..], SendFlags::NOSIGNAL) {
            Ok(sent) => conn.sent += sent,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return false,
        }
        conn.sent < conn.answer.len()
    }
}
