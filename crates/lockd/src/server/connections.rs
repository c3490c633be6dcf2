//! Clients that come and go, and those that others' commands have woken.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::conn::Conn;
use super::net::{self, Door};
use super::stream::Stream;
use super::{Server, now};
use crate::table::{Event, Reply, SessionId, Time};

impl Server {
    pub(super) fn conn(&self, session: SessionId) -> Option<&Conn> {
        let conn = self.conns.get(session.slot())?.as_deref()?;
        (conn.session == session).then_some(conn)
    }

    pub(super) fn take_conn(&mut self, session: SessionId) -> Option<Box<Conn>> {
        let place = self.conns.get_mut(session.slot())?;
        if place.as_ref().is_some_and(|conn| conn.session == session) {
            place.take()
        } else {
            None
        }
    }

    pub(super) fn accept(&mut self, index: usize) {
        // A bounded number at a time, so that a storm of connections does not
        // stop those that are there.
        for _ in 0..64 {
            let Some(listener) = self.listeners.get(index) else {
                return;
            };
            let door = listener.door;
            match listener.accept() {
                Ok((fd, peer)) => self.admit(fd, peer, door),
                Err(error) => return self.accept_failed(&error),
            }
        }
    }

    fn accept_failed(&mut self, error: &io::Error) {
        let passing = matches!(
            error.kind(),
            io::ErrorKind::WouldBlock
                | io::ErrorKind::Interrupted
                | io::ErrorKind::ConnectionAborted
        );
        if !passing && !self.deaf {
            // No files or memory left: do not spin, listen again with the sweep.
            self.deaf = true;
            for listener in &self.listeners {
                let _ = epoll::delete(&self.epoll, &listener.fd);
            }
        }
    }

    fn admit(&mut self, fd: OwnedFd, peer: Option<SocketAddr>, door: Door) {
        if door == Door::Metrics {
            return self.admit_http(fd);
        }
        if door != Door::Unix && net::tune(&fd, self.config.tcp_keepalive).is_err() {
            // The client is gone already.
            return;
        }
        if self.table.sessions() >= self.max_connections as u64 {
            self.stats.rejected += 1;
            let text = b"-ERR max number of clients reached\r\n";
            if door != Door::Metrics {
                let _ = rustix::net::send(&fd, text, rustix::net::SendFlags::NOSIGNAL);
            }
            return;
        }
        let stream = match door {
            #[cfg(feature = "tls")]
            Door::Tls => match self.tls.clone().map(rustls::ServerConnection::new) {
                Some(Ok(connection)) => Stream::tls(fd, connection),
                _ => return,
            },
            _ => Stream::plain(fd),
        };
        let now = now();
        let Reply::Opened(session) = self.step(Event::Open, now) else {
            return;
        };
        let open = self.config.password.is_none();
        let mut conn = Box::new(Conn::new(stream, session, peer, open, now));
        conn.interest = conn.wanted_interest(self.config.max_request);
        let data = EventData::new_u64(session.number());
        if epoll::add(&self.epoll, &conn.stream.fd, data, conn.interest).is_err() {
            self.step(Event::Close { session }, now);
            return;
        }
        self.stats.connections += 1;
        if self.conns.len() <= session.slot() {
            self.conns.resize_with(session.slot() + 1, || None);
        }
        self.conns[session.slot()] = Some(conn);
    }

    pub(super) fn client_ready(&mut self, number: u64, flags: EventFlags) {
        let slot = (number & 0xf_ffff) as usize;
        let Some(place) = self.conns.get_mut(slot) else {
            return;
        };
        // The event may be of one who left in this very turn.
        if place
            .as_ref()
            .is_none_or(|conn| conn.session.number() != number)
        {
            return;
        }
        let Some(mut conn) = place.take() else { return };
        let gone = flags.intersects(EventFlags::ERR | EventFlags::HUP)
            || (flags.contains(EventFlags::RDHUP) && conn.waiting);
        let alive = !gone && self.serve(&mut conn, flags);
        self.put_back(conn, alive);
    }

    /// Ends a connection's turn: watches it further, or closes it.
    pub(super) fn put_back(&mut self, mut conn: Box<Conn>, alive: bool) {
        if !alive {
            return self.close(conn);
        }
        // What it has to send is sent, or epoll will tell when it can be. It may
        // have been passed over in the list while it was out of its place.
        conn.dirty = false;
        let wanted = conn.wanted_interest(self.config.max_request);
        if wanted != conn.interest {
            conn.interest = wanted;
            let data = EventData::new_u64(conn.session.number());
            if epoll::modify(&self.epoll, &conn.stream.fd, data, wanted).is_err() {
                return self.close(conn);
            }
        }
        let slot = conn.session.slot();
        self.conns[slot] = Some(conn);
    }

    pub(super) fn close(&mut self, mut conn: Box<Conn>) {
        let (now, session) = (now(), conn.session);
        if conn.waiting {
            // What is due by now may grant it a lease yet: it must be in its
            // place to be told, so that the lease can be passed on.
            self.conns[session.slot()] = Some(conn);
            self.step(Event::Tick, now);
            let Some(found) = self.take_conn(session) else {
                return;
            };
            conn = found;
        }
        self.pass_on(&mut conn, now);
        conn.stream.close();
        self.step(Event::Close { session }, now);
    }

    /// A lease that was granted to a client that was gone before the reply could
    /// be sent goes to the next one; nobody can know its token.
    fn pass_on(&mut self, conn: &mut Conn, now: Time) {
        let Some(token) = conn.fresh_lease.take() else {
            return;
        };
        self.stats.passed_on += 1;
        let (session, name) = (conn.session, std::mem::take(&mut conn.wanted));
        self.step(
            Event::Unlock {
                session,
                name: &name,
                token: Some(token),
            },
            now,
        );
    }

    /// Lets a connection go on whose wait has ended.
    pub(super) fn resume(&mut self, session: SessionId) {
        let Some(mut conn) = self.take_conn(session) else {
            return;
        };
        let alive = self.go_on(&mut conn);
        self.put_back(conn, alive);
    }

    fn go_on(&mut self, conn: &mut Conn) -> bool {
        if conn.fresh_lease.is_some() && !self.flush(conn) {
            return false;
        }
        if !conn.waiting && !conn.input.is_empty() {
            // Replies keep their order: that of the wait stands in `output`.
            let now = now();
            self.execute_input(conn, now);
            self.note_incomplete(conn, now);
        }
        let more = conn.stream.is_tls() && !conn.waiting;
        self.serve(
            conn,
            if more {
                EventFlags::IN
            } else {
                EventFlags::empty()
            },
        )
    }

    /// Sends what others' commands have brought a connection.
    pub(super) fn deliver(&mut self, session: SessionId) {
        let Some(mut conn) = self.take_conn(session) else {
            return;
        };
        let alive = self.flush(&mut conn);
        self.put_back(conn, alive);
    }
}
