//! Clients that connect and disconnect, and clients that other clients' commands have woken.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::Server;
use super::conn::Conn;
#[cfg(feature = "tls")]
use super::handshake::Handshakes;
use super::net::{self, Door};
use super::stream::Stream;
use super::turn::GRANTS_PER_SEND;
use crate::log::{self, Level};
use crate::table::{Cancel, ClientId, Close, Open, Time, Unlock};

/// Epoll reports each change once (edge-triggered). It does not look at a socket again
/// after each read, and need not be told when a client may not be read from. Code that
/// leaves bytes unread must record that ([`Conn::readable`]).
const INTEREST: EventFlags = EventFlags::IN
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);
/// The interest while something could not be sent. It is not set otherwise, because a
/// Unix socket would report each reply that its client reads.
const STUCK: EventFlags = INTEREST.union(EventFlags::OUT);

impl Server {
    pub(super) fn conn(&self, client: ClientId) -> Option<&Conn> {
        let conn = self.conns.get(client.slot())?.as_deref()?;
        (conn.id == client).then_some(conn)
    }

    pub(super) fn take_conn(&mut self, client: ClientId) -> Option<Box<Conn>> {
        let place = self.conns.get_mut(client.slot())?;
        place.take_if(|conn| conn.id == client)
    }

    pub(super) fn accept(&mut self, index: usize) {
        // A bounded number at a time, so that a storm of connections does not
        // stop those that are there.
        for _ in 0..64 {
            let Some(listener) = self.doors.listeners.get(index) else {
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
        if !passing && !self.doors.deaf {
            // No files or memory left: do not spin, listen again with the sweep.
            self.doors.deaf = true;
            for listener in &self.doors.listeners {
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
            self.stats.rejected += 1;
            return;
        }
        if self.is_full() && !self.make_room() {
            self.stats.rejected += 1;
            let text = b"-ERR max number of clients reached\r\n";
            let _ = rustix::net::send(&fd, text, rustix::net::SendFlags::NOSIGNAL);
            return;
        }
        self.doors.arrivals += 1;
        let number = self.doors.arrivals;
        #[cfg(feature = "tls")]
        if door == Door::Tls {
            if let Some(handshakes) = &self.doors.handshakes {
                let _ = handshakes.begin(number, fd, peer);
            }
            return;
        }
        self.let_in(number, Stream::plain(fd), peer);
    }

    fn is_full(&self) -> bool {
        let known = self.table.clients() as usize;
        #[cfg(feature = "tls")]
        let handshakes = self.doors.handshakes.as_ref();
        #[cfg(feature = "tls")]
        let known = known + handshakes.map_or(0, Handshakes::pending);
        known >= self.doors.max_connections
    }

    /// Closes the client that has not logged in, or not finished its handshake, for the
    /// longest time. Places that are reserved for administrators would otherwise be taken
    /// by whoever is silent.
    fn make_room(&mut self) -> bool {
        loop {
            let first = self.doors.unproved.front().copied();
            #[cfg(feature = "tls")]
            if let Some(handshakes) = &self.doors.handshakes
                && handshakes.pending() > 0
                && first.is_none_or(|(number, _)| handshakes.oldest() < number)
            {
                handshakes.close_oldest();
                return true;
            }
            let Some((_, client)) = first else {
                return false;
            };
            self.doors.unproved.pop_front();
            let silent = self.conn(client).is_some_and(|conn| !conn.authenticated);
            if silent && let Some(conn) = self.take_conn(client) {
                self.stats.closed_slow += 1;
                self.close(conn);
                return true;
            }
        }
    }

    /// Notes a client that has not logged in.
    pub(super) fn note_unproved(&mut self, number: u64, client: ClientId) {
        if self.doors.unproved.len() >= 2 * self.doors.max_connections {
            let mut clients = std::mem::take(&mut self.doors.unproved);
            let silent = |conn: &Conn| !conn.authenticated;
            clients.retain(|(_, client)| self.conn(*client).is_some_and(silent));
            self.doors.unproved = clients;
        }
        let unproved = &mut self.doors.unproved;
        let place = unproved.partition_point(|(earlier, _)| *earlier < number);
        unproved.insert(place, (number, client));
    }

    /// Admits the clients whose handshakes are done.
    #[cfg(feature = "tls")]
    pub(super) fn admit_tls(&mut self) {
        self.doors.handshakes.iter().for_each(Handshakes::hush);
        while let Some(guest) = self.doors.handshakes.as_ref().and_then(Handshakes::take) {
            let stream = Stream::tls(guest.fd, guest.tls);
            let Some(client) = self.let_in(guest.number, stream, guest.peer) else {
                continue;
            };
            // Requests may have arrived together with the end of the handshake; epoll
            // does not report them.
            if let Some(conn) = self.conns[client.slot()].as_mut() {
                conn.intake.readable = true;
                conn.later = true;
                self.turn.later.push_back(client);
            }
        }
    }

    fn let_in(
        &mut self,
        number: u64,
        stream: Stream,
        peer: Option<SocketAddr>,
    ) -> Option<ClientId> {
        let now = self.now();
        let client = self.step(Open, now)?;
        let mut conn = Box::new(Conn::new(stream, client, peer, now));
        conn.probation = self.is_reserved();
        conn.draining = self.life.draining.is_some();
        conn.kept = self.gate.as_ref().map(|_| Box::default());
        self.log_out(&mut conn, now);
        #[cfg(feature = "tls")]
        if let Some(name) = conn.stream.common_name()
            && let Some(user) = self.config.users.find(&name)
            && user.on
        {
            let user = user.clone();
            // If the login is refused, the client is treated as one without a certificate.
            if self.log_in(&mut conn, user, now).is_ok() {
                self.audit_login(&conn, "certificate");
            }
        }
        if self.watch_new(&conn).is_err() {
            self.forget_user(&mut conn);
            self.step(Close(client), now);
            return None;
        }
        self.stats.connections += 1;
        if log::writes(Level::Debug) {
            let text = format!("client {} from {}", client.number(), conn.address());
            log::write(Level::Debug, &text);
        }
        if self.conns.len() <= client.slot() {
            self.conns.resize_with(client.slot() + 1, || None);
        }
        let proved = conn.authenticated;
        self.conns[client.slot()] = Some(conn);
        if !proved {
            self.note_unproved(number, client);
        }
        Some(client)
    }

    pub(super) fn client_ready(&mut self, number: u64, flags: EventFlags) {
        let client = ClientId::from_number(number);
        // The event may belong to a client that left in this same turn.
        let Some(mut conn) = self.take_conn(client) else {
            return;
        };
        // A client that has hung up may have sent requests before.
        let hung_up = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        conn.intake.hung_up |= hung_up;
        conn.intake.readable |= hung_up || flags.contains(EventFlags::IN);
        conn.broken |= flags.contains(EventFlags::ERR);
        if self.turn.fair {
            self.turn.resume(&mut conn);
            self.conns[client.slot()] = Some(conn);
            return;
        }
        if hung_up {
            // When thousands of clients die at once, others come first.
            self.turn.dying.push_back(client);
            self.conns[client.slot()] = Some(conn);
            return;
        }
        let alive = !conn.is_abandoned() && self.serve(&mut conn);
        self.put_back(conn, alive);
    }

    /// Serves clients that have hung up for the last time, a bounded number each turn.
    pub(super) fn close_dying(&mut self) {
        for _ in 0..GRANTS_PER_SEND {
            let Some(client) = self.turn.dying.pop_front() else {
                return;
            };
            let Some(mut conn) = self.take_conn(client) else {
                continue;
            };
            let alive = !conn.broken && !conn.is_abandoned() && self.serve(&mut conn);
            self.put_back(conn, alive);
        }
    }

    /// Ends a connection's turn: watches it further, or closes it.
    pub(super) fn put_back(&mut self, mut conn: Box<Conn>, alive: bool) {
        if !alive || self.watch(&mut conn).is_err() {
            return self.close(conn);
        }
        let goes_on = conn.intake.more || conn.can_read(self.config.max_request);
        let abandons = conn.waits() && conn.intake.hung_up;
        if (goes_on || abandons) && !conn.later && (abandons || !self.is_held_back(&conn)) {
            conn.later = true;
            self.turn.later.push_back(conn.id);
        }
        self.account(&mut conn);
        let slot = conn.id.slot();
        self.conns[slot] = Some(conn);
        if !self.work.outputs.is_empty() {
            // The wait ended while the connection was out of its slot; it is notified now.
            self.wake();
        }
    }

    #[inline]
    pub(super) fn account(&mut self, conn: &mut Conn) {
        let bytes = conn.buffered();
        self.freed += conn.accounted.saturating_sub(bytes);
        self.buffered = self.buffered + bytes - conn.accounted;
        conn.accounted = bytes;
    }

    /// Watches a connection that nobody has watched yet.
    pub(super) fn watch_new(&self, conn: &Conn) -> io::Result<()> {
        self.watch_for(conn.id.number(), &conn.stream.fd, INTEREST)
    }

    fn watch(&self, conn: &mut Conn) -> rustix::io::Result<()> {
        let stuck = conn.is_stuck();
        if conn.watched_for_room == stuck {
            return Ok(());
        }
        conn.watched_for_room = stuck;
        let data = EventData::new_u64(conn.id.number());
        let interest = if stuck { STUCK } else { INTEREST };
        epoll::modify(&self.epoll, &conn.stream.fd, data, interest)
    }

    pub(super) fn close(&mut self, conn: Box<Conn>) {
        let now = self.now();
        self.close_at(conn, now);
    }

    /// Closes a connection as of the current command's time; commands that follow have
    /// the same time.
    pub(super) fn close_at(&mut self, mut conn: Box<Conn>, now: Time) {
        let client = conn.id;
        if conn.waits() {
            // A timer that is due may still grant it a lease. It must be in its slot to
            // be notified, so that the lease can be passed on.
            self.conns[client.slot()] = Some(conn);
            self.wake();
            self.step(Cancel(client), now);
            let Some(found) = self.take_conn(client) else {
                return;
            };
            conn = found;
        }
        self.pass_on(&mut conn, now);
        if log::writes(Level::Debug) {
            let text = format!("client {} is gone", client.number());
            log::write(Level::Debug, &text);
        }
        self.forget_user(&mut conn);
        self.buffered -= conn.accounted;
        self.freed += conn.accounted;
        conn.stream.close();
        self.step(Close(client), now);
        self.take_journal(Some(&conn));
    }

    /// Passes on a lease or a session's lock that was granted to a client that was gone
    /// before the reply could be sent. Nobody can know its token, unless the session
    /// has asked again over another connection.
    fn pass_on(&mut self, conn: &mut Conn, now: Time) {
        let client = conn.id;
        for (token, name, _) in std::mem::take(&mut conn.fresh_leases).iter() {
            if self.table.may_be_known(name, token) {
                continue;
            }
            let token = Some(token);
            let event = Unlock {
                client,
                name,
                token,
            };
            // Unless a command behind the wait has released it already.
            if self.step(event, now).is_ok() {
                self.stats.passed_on += 1;
            }
        }
    }

    /// Lets a connection continue after its wait has ended.
    pub(super) fn resume(&mut self, client: ClientId) {
        let Some(mut conn) = self.take_conn(client) else {
            return;
        };
        conn.later = false;
        let alive = !conn.broken && self.continue_turn(&mut conn);
        self.put_back(conn, alive);
    }

    fn continue_turn(&mut self, conn: &mut Conn) -> bool {
        if conn.is_abandoned() {
            return false;
        }
        if self.is_held_back(conn) {
            // It goes on when its replies are sent.
            return true;
        }
        if !conn.waits() && !conn.intake.input.is_empty() {
            // Replies keep their order: the reply to the wait is in `output` already.
            let now = self.now();
            self.execute_input(conn, now);
            self.note_incomplete(conn, now);
        }
        if conn.can_read(self.config.max_request) {
            return self.serve(conn);
        }
        self.turn.unsent.push(conn.id);
        true
    }

    /// Sends the replies that other clients' commands have caused.
    pub(super) fn deliver(&mut self, client: ClientId) {
        let Some(mut conn) = self.take_conn(client) else {
            return;
        };
        let alive = self.flush(&mut conn);
        self.put_back(conn, alive);
    }
}
