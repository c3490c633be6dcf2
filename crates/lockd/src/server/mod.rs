//! The server around the lock table: one thread, one epoll, no locks.
//!
//! Each turn of the loop takes the connections that are readable, executes what
//! each has sent with one read and one write, then delivers the grants that
//! came of it to others. Time is read after each read: what arrived was sent
//! before it, so that a lease never ends earlier than its client reckons.

mod commands;
mod conn;
mod http;
mod info;
mod net;
mod reserver;
mod stream;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use jostle_resp::{Args, Progress, Writer};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::config::{Config, Data};
use crate::table::{Event, HashKey, Outcome, Output, Reply, SessionId, Table, Time};
use crate::tokens::{END, FileStore, StoreError, TokenStore};
use commands::Call;
use conn::Conn;
use http::HttpConn;
use info::Stats;
use net::{Door, Listener};
use reserver::{Reserved, Reserver};
use stream::{Received, Stream};

/// Bytes read at a time: a few thousand pipelined commands.
const SCRATCH: usize = 64 * 1024;
/// Replies gathered before they are sent although more commands are there.
const OUT_BATCH: usize = 256 * 1024;
/// Descriptors for other things than clients.
const SPARE_FILES: usize = 64;
/// A next range of tokens is asked for when fewer are left.
const TOKENS_LOW: u64 = crate::tokens::RANGE / 2;
/// With fewer left than one read can use, and the next range on its way, the
/// server waits for the disk rather than refuse grants.
const TOKENS_CRITICAL: u64 = SCRATCH as u64;
const TOKENS_PATIENCE: Duration = Duration::from_secs(1);
/// How often timeouts of connections are looked at.
const SWEEP_NS: u64 = 1_000_000_000;
/// A scraper's time to send its request and to read the answer.
const HTTP_TIMEOUT_NS: u64 = 5_000_000_000;

// What an epoll event belongs to: sessions use their numbers as they are.
const KIND_SHIFT: u32 = 60;
const LISTENER: u64 = 1 << KIND_SHIFT;
const HTTP: u64 = 2 << KIND_SHIFT;
const STOP: u64 = 3 << KIND_SHIFT;
const BELL: u64 = 4 << KIND_SHIFT;

/// Why a client is disconnected.
enum Fault {
    Slow,
    Idle,
    Greedy,
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address or socket path cannot be listened on.
    #[error("cannot listen on {place}: {error}")]
    Listen {
        /// Which.
        place: String,
        /// Why.
        error: io::Error,
    },
    /// The data directory cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The first range of tokens cannot be made durable.
    #[error("cannot reserve fencing tokens: {0}")]
    Tokens(String),
    /// The certificate or key cannot be used.
    #[error("TLS: {0}")]
    Tls(String),
    /// A call that should not fail.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

impl From<rustix::io::Errno> for StartError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::System(errno.into())
    }
}

/// A lock daemon that listens.
pub struct Server {
    config: Config,
    table: Table,
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    #[cfg(feature = "tls")]
    tls: Option<std::sync::Arc<rustls::ServerConfig>>,
    /// By session slot.
    conns: Vec<Option<Box<Conn>>>,
    http: Vec<Option<HttpConn>>,
    reserver: Option<Reserver>,
    stats: Stats,
    started: Time,
    max_connections: usize,
    /// Bytes in all clients' buffers.
    buffered: usize,
    /// Slots with something to send, and those whose held-back commands may go on.
    dirty: VecDeque<SessionId>,
    resumed: VecDeque<SessionId>,
    /// Those whose commands go on with the next turn.
    later: VecDeque<SessionId>,
    /// The command being executed was a long one: others come first.
    pub(crate) long: bool,
    outputs: Vec<Output>,
    scratch: Vec<u8>,
    out: Vec<u8>,
    args: Args,
    next_sweep: Time,
    /// Listeners are not watched for now, as no more files can be opened.
    deaf: bool,
}

/// Nanoseconds of the system's monotonic clock.
fn now() -> Time {
    let time = clock_gettime(ClockId::Monotonic);
    Time(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

impl Server {
    /// Opens the data directory and everything that is listened on. From here
    /// on clients can connect; they are served by [`Server::run`].
    ///
    /// # Errors
    /// [`StartError`].
    pub fn bind(config: Config) -> Result<Self, StartError> {
        match &config.data {
            Data::None => Self::with_tokens(config, None, 1),
            Data::Directory(path) => {
                let (store, first) = FileStore::open(path)?;
                Self::with_tokens(config, Some(Box::new(store)), first)
            }
        }
    }

    /// [`Server::bind`] with another store of tokens, of which `first` was never
    /// given out.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn with_tokens(
        config: Config,
        store: Option<Box<dyn TokenStore>>,
        first: u64,
    ) -> Result<Self, StartError> {
        let started = now();
        let max_connections = net::connections_that_fit(config.max_connections, SPARE_FILES);
        let mut server = Self {
            table: Table::new(config.table, HashKey::random(), first),
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            listeners: Vec::new(),
            #[cfg(feature = "tls")]
            tls: config
                .tls
                .as_ref()
                .map(load_tls)
                .transpose()
                .map_err(StartError::Tls)?,
            conns: Vec::new(),
            http: Vec::new(),
            reserver: store.map(Reserver::start).transpose()?,
            stats: Stats::default(),
            started,
            max_connections,
            buffered: 0,
            dirty: VecDeque::new(),
            resumed: VecDeque::new(),
            later: VecDeque::new(),
            long: false,
            outputs: Vec::new(),
            scratch: vec![0; SCRATCH],
            out: Vec::new(),
            args: Args::new(),
            next_sweep: started,
            deaf: false,
            config,
        };
        server.first_tokens()?;
        server.listen()?;
        Ok(server)
    }

    fn first_tokens(&mut self) -> Result<(), StartError> {
        if let Some(reserver) = &mut self.reserver {
            reserver.request(self.table.next_token());
            self.take_tokens(Duration::from_secs(3600));
            if self.table.tokens_left() == 0 {
                return Err(StartError::Tokens(self.token_trouble()));
            }
            let bell = self.reserver.as_ref().map(Reserver::bell);
            if let Some(bell) = bell {
                epoll::add(&self.epoll, bell, EventData::new_u64(BELL), EventFlags::IN)?;
            }
        } else {
            self.step(Event::Tokens { end: END }, self.started);
        }
        Ok(())
    }

    fn listen(&mut self) -> Result<(), StartError> {
        let failed = |place: String| move |error| StartError::Listen { place, error };
        let mut listeners = Vec::new();
        let tcp = |address: &SocketAddr, door| {
            Listener::tcp(*address, door).map_err(failed(address.to_string()))
        };
        for address in &self.config.listen {
            listeners.push(tcp(address, Door::Tcp)?);
        }
        #[cfg(feature = "tls")]
        for address in self.config.tls.iter().flat_map(|tls| &tls.listen) {
            listeners.push(tcp(address, Door::Tls)?);
        }
        if let Some(address) = &self.config.metrics {
            listeners.push(tcp(address, Door::Metrics)?);
        }
        if let Some((path, mode)) = &self.config.unix {
            let place = path.display().to_string();
            listeners.push(Listener::unix(path, *mode).map_err(failed(place))?);
        }
        for (index, listener) in listeners.iter().enumerate() {
            let data = EventData::new_u64(LISTENER | index as u64);
            epoll::add(&self.epoll, &listener.fd, data, EventFlags::IN)?;
        }
        self.listeners = listeners;
        Ok(())
    }

    /// The addresses that clients can connect to, with the ports that port 0
    /// became.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let doors = self
            .listeners
            .iter()
            .filter(|listener| listener.door != Door::Metrics);
        doors.filter_map(|listener| listener.address)
    }

    /// The address of the metrics.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        let found = self
            .listeners
            .iter()
            .find(|listener| listener.door == Door::Metrics);
        found.and_then(|listener| listener.address)
    }

    /// Connections that are allowed: fewer than configured where the limit of
    /// open files does not allow more.
    #[must_use]
    pub fn max_connections(&self) -> usize {
        self.max_connections
    }

    /// Serves until `stop` becomes readable, then drains: nobody is let in any
    /// more, those who wait are told, and clients get the replies that are
    /// theirs, for as long as [`Config::drain_timeout`] allows.
    ///
    /// # Errors
    /// Of epoll; no client can cause one.
    pub fn run(&mut self, stop: impl AsFd) -> io::Result<()> {
        epoll::add(&self.epoll, &stop, EventData::new_u64(STOP), EventFlags::IN)?;
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1024);
        loop {
            self.wait(&mut events)?;
            for event in &events {
                if event.data.u64() == STOP {
                    let _ = epoll::delete(&self.epoll, &stop);
                    return self.drain();
                }
                self.handle(*event);
            }
            self.end_of_turn();
        }
    }

    /// Waits for something to do.
    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        events.clear();
        let timeout = self.timeout();
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(events),
            timeout.as_ref(),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// How long to wait at most: until the next deadline, in whole milliseconds,
    /// rounded up, so as not to wake before it.
    fn timeout(&self) -> Option<Timespec> {
        let mut next = self.table.next_tick();
        if !self.later.is_empty() {
            next = Some(Time(0));
        }
        if self.table.sessions() > 0 || !self.http.is_empty() || self.deaf || self.no_tokens() {
            next = Some(next.map_or(self.next_sweep, |next| next.min(self.next_sweep)));
        }
        let ns = next?.0.saturating_sub(now().0);
        let ms = ns.div_ceil(1_000_000).min(3_600_000);
        Some(Timespec {
            tv_sec: (ms / 1000) as i64,
            tv_nsec: (ms % 1000 * 1_000_000) as _,
        })
    }

    fn handle(&mut self, event: epoll::Event) {
        let data = event.data.u64();
        let index = (data & !(0xf << KIND_SHIFT)) as usize;
        match data & (0xf << KIND_SHIFT) {
            LISTENER => self.accept(index),
            HTTP => self.http_ready(index),
            BELL => self.take_tokens(Duration::ZERO),
            _ => self.client_ready(data, event.flags),
        }
    }

    /// What is left after all ready connections had their turn.
    fn end_of_turn(&mut self) {
        let now = now();
        if self.table.next_tick().is_some_and(|tick| tick <= now) {
            self.step(Event::Tick, now);
        }
        if now >= self.next_sweep {
            self.sweep(now);
        }
        self.resumed.append(&mut self.later);
        // Either can wake others, but only by commands that have arrived.
        loop {
            while let Some(session) = self.resumed.pop_front() {
                self.resume(session);
            }
            let Some(session) = self.dirty.pop_front() else {
                return;
            };
            self.deliver(session);
        }
    }

    // The table.

    /// One step of the table; wakes those whose waits it ended.
    #[inline]
    fn step(&mut self, event: Event<'_>, now: Time) -> Reply {
        let reply = self.table.step(event, now, &mut self.outputs);
        if !self.outputs.is_empty() {
            self.wake();
        }
        reply
    }

    fn wake(&mut self) {
        let mut outputs = std::mem::take(&mut self.outputs);
        for output in outputs.drain(..) {
            let Some(mut conn) = self.take_conn(output.session) else {
                continue;
            };
            self.end_wait(&mut conn, output.outcome);
            self.conns[output.session.slot()] = Some(conn);
        }
        self.outputs = outputs;
    }

    fn end_wait(&mut self, conn: &mut Conn, outcome: Outcome) {
        conn.waiting = false;
        let mut reply = Writer::new(&mut conn.output, conn.protocol);
        match outcome {
            Outcome::Granted { token, lease } => {
                reply.integer(token as i64);
                conn.fresh_lease = lease.then_some(token);
            }
            Outcome::TimedOut => reply.nil(),
            Outcome::Refused(refusal) => self.refuse(&mut reply, refusal),
        }
        self.mark_dirty(conn);
        if !conn.input.is_empty() || conn.stream.is_tls() {
            self.resumed.push_back(conn.session);
        }
    }

    fn mark_dirty(&mut self, conn: &mut Conn) {
        if !conn.dirty {
            conn.dirty = true;
            self.dirty.push_back(conn.session);
        }
    }

    // Tokens.

    fn no_tokens(&self) -> bool {
        self.table.tokens_left() < TOKENS_LOW && self.reserver.is_some()
    }

    fn token_trouble(&self) -> String {
        let trouble = self
            .reserver
            .as_ref()
            .and_then(|reserver| reserver.trouble.clone());
        trouble.unwrap_or_else(|| "the disk has not answered yet".to_owned())
    }

    /// Before commands are executed: asks for tokens in time.
    #[inline]
    fn provide_tokens(&mut self) {
        let left = self.table.tokens_left();
        if left >= TOKENS_LOW {
            return;
        }
        let Some(reserver) = &mut self.reserver else {
            return;
        };
        // After a failure the sweep tries again, once a second.
        if reserver.trouble.is_none() {
            reserver.request(self.table.next_token() + left);
        }
        if left < TOKENS_CRITICAL && reserver.in_flight() && reserver.trouble.is_none() {
            self.take_tokens(TOKENS_PATIENCE);
        }
    }

    fn take_tokens(&mut self, patience: Duration) {
        let Some(reserver) = &mut self.reserver else {
            return;
        };
        match reserver.answer(patience) {
            Reserved::Upto(end) => {
                self.stats.reservations += 1;
                self.table
                    .step(Event::Tokens { end }, now(), &mut self.outputs);
            }
            Reserved::Failed => self.stats.reservation_failures += 1,
            Reserved::Pending => {
                if patience >= TOKENS_PATIENCE {
                    reserver.trouble = Some("the disk does not answer".to_owned());
                }
            }
        }
    }

    // Connections.

    fn conn(&self, session: SessionId) -> Option<&Conn> {
        let conn = self.conns.get(session.slot())?.as_deref()?;
        (conn.session == session).then_some(conn)
    }

    fn take_conn(&mut self, session: SessionId) -> Option<Box<Conn>> {
        let place = self.conns.get_mut(session.slot())?;
        if place.as_ref().is_some_and(|conn| conn.session == session) {
            place.take()
        } else {
            None
        }
    }

    fn accept(&mut self, index: usize) {
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

    fn client_ready(&mut self, number: u64, flags: EventFlags) {
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

    /// Reads, executes and answers. False: the connection is to be closed.
    fn serve(&mut self, conn: &mut Conn, flags: EventFlags) -> bool {
        // A lease must have reached its client, or be passed on, before more of
        // its commands are executed: they may ask for another.
        if conn.fresh_lease.is_some() && !self.flush(conn) {
            return false;
        }
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP) && !conn.ended {
            loop {
                match self.receive(conn) {
                    // One read a turn, so that nobody has to wait for a client
                    // that sends without end; but what TLS has taken from the
                    // socket, epoll would not tell of again.
                    Some(true) if conn.stream.is_tls() => {}
                    Some(_) => break,
                    None => return false,
                }
            }
        }
        self.flush(conn)
    }

    /// One read and what follows from it. `Some(true)`: there may be more;
    /// `None`: the connection is lost.
    fn receive(&mut self, conn: &mut Conn) -> Option<bool> {
        if conn.closing || conn.input.len() >= self.config.max_request {
            return Some(false);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let received = conn.stream.receive(&mut scratch);
        // After the read: whatever it gave was sent before this.
        let now = now();
        let outcome = match received {
            Ok(Received::Bytes(bytes)) => {
                self.stats.bytes_in += bytes as u64;
                self.take_input(conn, &scratch[..bytes], now);
                Some(true)
            }
            Ok(Received::Nothing) => Some(false),
            Ok(Received::End) => {
                conn.ended = true;
                // Whoever waits is gone; replies already earned are still sent.
                if conn.waiting { None } else { Some(false) }
            }
            Err(_) => None,
        };
        self.note_incomplete(conn, now);
        self.scratch = scratch;
        outcome
    }

    /// Executes what has arrived, straight from the read buffer if nothing was
    /// left over from before. What comes behind a LOCK that waits is kept. (The
    /// table must not be touched here for one who waits: it might grant, and
    /// would not find the connection in its place.)
    fn take_input(&mut self, conn: &mut Conn, bytes: &[u8], now: Time) {
        if conn.waiting {
            conn.input.extend_from_slice(bytes);
        } else if conn.input.is_empty() {
            let used = self.execute(conn, bytes, now);
            conn.input.extend_from_slice(&bytes[used..]);
        } else {
            conn.input.extend_from_slice(bytes);
            self.execute_input(conn, now);
        }
    }

    fn execute_input(&mut self, conn: &mut Conn, now: Time) {
        let input = std::mem::take(&mut conn.input);
        let used = self.execute(conn, &input, now);
        conn.input = input;
        conn.consume(used);
    }

    /// Keeps the time since when the client owes us the rest of something.
    fn note_incomplete(&self, conn: &mut Conn, now: Time) {
        let partial = !conn.input.is_empty() && !conn.waiting;
        if partial || !conn.authenticated || conn.stream.is_handshaking() {
            // A whole request in between starts the time anew.
            if partial && conn.last_request == now {
                conn.incomplete_since = Some(now);
            }
            conn.incomplete_since.get_or_insert(now);
        } else {
            conn.incomplete_since = None;
        }
    }

    /// Executes the requests that `bytes` holds, until one waits or is cut off;
    /// returns how many bytes they were.
    fn execute(&mut self, conn: &mut Conn, bytes: &[u8], now: Time) -> usize {
        self.provide_tokens();
        let limits = jostle_resp::Limits {
            bytes: self.config.max_request,
            ..Default::default()
        };
        let mut args = std::mem::take(&mut self.args);
        let mut out = std::mem::take(&mut self.out);
        let mut used = 0;
        conn.more = false;
        while !conn.waiting && !conn.closing && bytes.len() - used >= conn.needed.max(1) {
            if std::mem::take(&mut self.long) {
                conn.more = true;
                self.later.push_back(conn.session);
                break;
            }
            let request = &bytes[used..];
            match jostle_resp::request::decode(request, limits, &mut args) {
                Ok(Progress::Complete { used: length }) => {
                    used += length;
                    conn.needed = 0;
                    if !args.is_empty() {
                        let call = Call {
                            conn,
                            args: &args,
                            request,
                            out: &mut out,
                            now,
                        };
                        commands::execute(self, call);
                    }
                }
                Ok(Progress::Incomplete { needed }) => conn.needed = needed,
                Err(error) => {
                    self.stats.protocol_errors += 1;
                    self.stats.closed_request += 1;
                    let text = format!("ERR Protocol error: {error}");
                    Writer::new(&mut out, conn.protocol).error(&text);
                    conn.closing = true;
                }
            }
            if out.len() > OUT_BATCH && !self.send(conn, &mut out, now) {
                conn.closing = true;
            }
        }
        self.long = false;
        if used > 0 {
            conn.last_request = now;
        }
        // Grants to others go first: somebody waits for them, while the replies
        // here tell what is done already.
        while let Some(session) = self.dirty.pop_front() {
            self.deliver(session);
        }
        if !out.is_empty() {
            self.send(conn, &mut out, now);
        }
        self.out = out;
        self.args = args;
        used
    }

    /// Sends `out`, as far as it goes, and keeps the rest with the connection.
    /// False if that is more than allowed; the connection is then useless.
    fn send(&mut self, conn: &mut Conn, out: &mut Vec<u8>, now: Time) -> bool {
        self.stats.bytes_out += out.len() as u64;
        let mut sent = 0;
        if conn.pending() == 0 && !conn.stream.wants_write() {
            match conn.stream.transmit(out) {
                Ok(bytes) => sent = bytes,
                Err(_) => {
                    out.clear();
                    conn.ended = true;
                    conn.closing = true;
                    return false;
                }
            }
        }
        if sent < out.len() {
            conn.output.extend_from_slice(&out[sent..]);
            conn.stuck_since.get_or_insert(now);
        }
        out.clear();
        let fits = conn.pending() <= self.config.max_output;
        if !fits {
            self.stats.closed_output += 1;
            // What it has not read it will not get.
            conn.output.clear();
            conn.sent = 0;
            conn.ended = true;
            conn.closing = true;
        }
        fits
    }

    /// Sends what waits; false if the connection is over.
    fn flush(&mut self, conn: &mut Conn) -> bool {
        if conn.pending() > 0 || conn.stream.wants_write() {
            if conn.pending() > self.config.max_output {
                self.stats.closed_output += 1;
                return false;
            }
            // A client that gave up just now must not take a lease with it.
            if conn.fresh_lease.is_some() && conn.stream.peer_is_gone() {
                return false;
            }
            if conn.flush(now()).is_err() {
                return false;
            }
            conn.fresh_lease = None;
        }
        let sent = conn.pending() == 0 && !conn.stream.wants_write();
        let over = conn.closing || (conn.ended && !conn.more);
        !(over && sent && !conn.waiting)
    }

    /// Ends a connection's turn: watches it further, or closes it.
    fn put_back(&mut self, mut conn: Box<Conn>, alive: bool) {
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

    fn close(&mut self, mut conn: Box<Conn>) {
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
    fn resume(&mut self, session: SessionId) {
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
    fn deliver(&mut self, session: SessionId) {
        let Some(mut conn) = self.take_conn(session) else {
            return;
        };
        let alive = self.flush(&mut conn);
        self.put_back(conn, alive);
    }

    // Timeouts.

    fn sweep(&mut self, now: Time) {
        self.next_sweep = Time(now.0 + SWEEP_NS);
        if self.deaf {
            self.hear_again();
        }
        if self.no_tokens()
            && let Some(reserver) = &mut self.reserver
        {
            reserver.request(self.table.next_token() + self.table.tokens_left());
        }
        self.buffered = self
            .conns
            .iter()
            .flatten()
            .map(|conn| conn.buffered())
            .sum();
        for slot in 0..self.conns.len() {
            let Some(conn) = &self.conns[slot] else {
                continue;
            };
            let Some(fault) = self.fault_of(conn, now) else {
                continue;
            };
            match fault {
                Fault::Slow => self.stats.closed_slow += 1,
                Fault::Idle => self.stats.closed_idle += 1,
                Fault::Greedy => self.stats.closed_output += 1,
            }
            if let Some(conn) = self.conns[slot].take() {
                self.close(conn);
            }
        }
        for place in &mut self.http {
            if place
                .as_ref()
                .is_some_and(|conn| now.0 - conn.since.0 > HTTP_TIMEOUT_NS)
            {
                *place = None;
            }
        }
    }

    /// Why a connection is to be closed, if it is.
    fn fault_of(&self, conn: &Conn, now: Time) -> Option<Fault> {
        let passed = |since: Option<Time>, limit: Option<Duration>| {
            since.zip(limit).is_some_and(|(since, limit)| {
                u128::from(now.0.saturating_sub(since.0)) > limit.as_nanos()
            })
        };
        let patience = self.config.request_timeout;
        if passed(conn.incomplete_since, patience) || passed(conn.stuck_since, patience) {
            return Some(Fault::Slow);
        }
        let of_use = conn.waiting || self.table.owns_any(conn.session);
        if !of_use && passed(Some(conn.last_request), self.config.idle_timeout) {
            return Some(Fault::Idle);
        }
        let full = self.buffered > self.config.max_buffers;
        (full && conn.buffered() > 64 << 10).then_some(Fault::Greedy)
    }

    fn hear_again(&mut self) {
        self.deaf = false;
        for (index, listener) in self.listeners.iter().enumerate() {
            let data = EventData::new_u64(LISTENER | index as u64);
            let _ = epoll::add(&self.epoll, &listener.fd, data, EventFlags::IN);
        }
    }

    // Metrics.

    fn admit_http(&mut self, fd: OwnedFd) {
        let free = self.http.iter().position(Option::is_none);
        let index = match free {
            Some(index) => index,
            None if self.http.len() < http::CONNECTIONS => {
                self.http.push(None);
                self.http.len() - 1
            }
            None => return,
        };
        let data = EventData::new_u64(HTTP | index as u64);
        if epoll::add(&self.epoll, &fd, data, EventFlags::IN).is_ok() {
            self.http[index] = Some(HttpConn::new(fd, now()));
        }
    }

    fn http_ready(&mut self, index: usize) {
        let Some(mut conn) = self.http.get_mut(index).and_then(Option::take) else {
            return;
        };
        if self.serve_http(&mut conn, index) {
            self.http[index] = Some(conn);
        }
    }

    /// False: done, or lost.
    fn serve_http(&mut self, conn: &mut HttpConn, index: usize) -> bool {
        use rustix::io::Errno;
        use rustix::net::{RecvFlags, SendFlags, recv, send};
        if conn.answer.is_empty() {
            match recv(&conn.fd, &mut self.scratch[..], RecvFlags::empty()) {
                Ok((0, _)) => return false,
                Ok((bytes, _)) => conn.request.extend_from_slice(&self.scratch[..bytes]),
                Err(Errno::AGAIN | Errno::INTR) => return true,
                Err(_) => return false,
            }
            let server = &*self;
            if !conn.respond(|| info::metrics(server, now())) {
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

    // The end.

    /// See [`Server::run`].
    fn drain(&mut self) -> io::Result<()> {
        self.listeners.clear();
        let start = now();
        // What is due is done first, while every connection is in its place; and
        // all waits end before the first lock is released.
        self.step(Event::Tick, start);
        for slot in 0..self.conns.len() {
            let Some(conn) = &mut self.conns[slot] else {
                continue;
            };
            if conn.waiting {
                let session = conn.session;
                conn.waiting = false;
                Writer::new(&mut conn.output, conn.protocol)
                    .error("SHUTDOWN the lock daemon is ending");
                self.step(Event::Cancel { session }, start);
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
        while self.table.sessions() > 0 && now() < end {
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

#[cfg(feature = "tls")]
fn load_tls(
    config: &crate::config::TlsConfig,
) -> Result<std::sync::Arc<rustls::ServerConfig>, String> {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let failed = |path: &std::path::Path, error: &dyn std::fmt::Display| {
        format!("{}: {error}", path.display())
    };
    let certs = CertificateDer::pem_file_iter(&config.cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| failed(&config.cert, &error))?;
    let key =
        PrivateKeyDer::from_pem_file(&config.key).map_err(|error| failed(&config.key, &error))?;
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(certs, key)
        .map_err(|error| failed(&config.cert, &error))?;
    Ok(std::sync::Arc::new(server))
}
