//! The connections of `http` and `https`: plain sockets under the well-kept client,
//! which can be asked for what that client's own sockets do not tell, namely whether
//! the server has sent more than it was asked for ([`crate::surplus`]). That client
//! drops such a connection without a word and opens another.
//!
//! [`Sockets`] is the first link of its chain of connectors, [`Watching`] the last,
//! behind TLS: what is left of an answer can be seen there in clear.

use crate::surplus;
use jostle_sys::clock::Clock;
use jostle_sys::signal;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use ureq::unversioned::transport::time;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Error, Timeout};

/// Limits of one wait are of whole steps, so that a request that has about as much
/// time left as the one before needs no system call to say so.
const STEP_MS: u64 = 10;

/// What a worker and its connections tell each other.
#[derive(Debug, Default)]
pub(super) struct Watch {
    clock: OnceLock<Clock>,
    /// When the latest connection was there; zero: none since the request began.
    connected: AtomicU64,
    /// The server sent what it was not asked for.
    surplus: AtomicBool,
    /// No request follows: a connection that is given up has to end in silence.
    parts: AtomicBool,
    latest: Mutex<Weak<TcpStream>>,
}

impl Watch {
    /// A request begins.
    pub(super) fn begin(&self, clock: Clock) {
        self.clock.get_or_init(|| clock);
        self.connected.store(0, Relaxed);
        self.surplus.store(false, Relaxed);
    }

    /// When the connection of this request was there, if it has its own.
    pub(super) fn connected_at(&self) -> Option<u64> {
        Some(self.connected.load(Relaxed)).filter(|stamp| *stamp > 0)
    }

    /// Whether the server has sent more than it was asked for.
    pub(super) fn is_surplus(&self) -> bool {
        self.surplus.load(Relaxed)
    }

    /// There will be no more requests: says so to the server. The connection is
    /// listened to until its end when it is dropped.
    pub(super) fn part(&self) {
        self.surplus.store(false, Relaxed);
        self.parts.store(true, Relaxed);
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = latest.upgrade() {
            surplus::end(&*stream);
        }
    }

    fn note_surplus(&self) {
        self.surplus.store(true, Relaxed);
    }
}

/// Opens sockets.
#[derive(Debug)]
pub(super) struct Sockets(pub Arc<Watch>);

impl Connector<()> for Sockets {
    type Out = Line;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _chained: Option<()>,
    ) -> Result<Option<Line>, Error> {
        let stream = Arc::new(connected(&details.addrs, details.timeout)?);
        let config = details.config;
        let mut latest = self.0.latest.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = Arc::downgrade(&stream);
        Ok(Some(Line {
            stream,
            buffers: LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size()),
            watch: Arc::clone(&self.0),
            is_tls: details.needs_tls(),
            is_new: true,
            patience: [None; 2],
        }))
    }
}

/// The first of these addresses that answers.
fn connected(addresses: &[SocketAddr], timeout: NextTimeout) -> Result<TcpStream, Error> {
    let mut last = Error::ConnectionFailed;
    for address in addresses {
        let stream = match timeout.not_zero() {
            Some(left) => TcpStream::connect_timeout(address, *left),
            None => TcpStream::connect(address),
        };
        match stream {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                last = Error::Timeout(Timeout::Connect);
            }
            Err(error) => last = Error::Io(error),
        }
    }
    Err(last)
}

/// A socket.
#[derive(Debug)]
pub(super) struct Line {
    stream: Arc<TcpStream>,
    buffers: LazyBuffers,
    watch: Arc<Watch>,
    /// What comes may be TLS's own: a new ticket is no answer.
    is_tls: bool,
    /// Nothing was sent yet.
    is_new: bool,
    /// How long reading and writing wait.
    patience: [Option<Duration>; 2],
}

#[derive(Clone, Copy)]
enum Wait {
    Read = 0,
    Write = 1,
}

impl Line {
    /// Notes what came before it was asked for, or behind an answer.
    fn listen(&self) {
        if !self.is_tls && surplus::is_waiting(&*self.stream) {
            self.watch.note_surplus();
        }
    }

    fn set_patience(&mut self, wait: Wait, timeout: NextTimeout) -> Result<(), Error> {
        let patience = timeout.not_zero().map(|left| {
            let steps = (left.as_millis() as u64).div_ceil(STEP_MS).max(1);
            Duration::from_millis(steps * STEP_MS)
        });
        if self.patience[wait as usize] != patience {
            match wait {
                Wait::Read => self.stream.set_read_timeout(patience)?,
                Wait::Write => self.stream.set_write_timeout(patience)?,
            }
            self.patience[wait as usize] = patience;
        }
        Ok(())
    }
}

impl Transport for Line {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        if std::mem::take(&mut self.is_new) {
            self.listen();
        }
        self.set_patience(Wait::Write, timeout)?;
        let output = &self.buffers.output()[..amount];
        (&*self.stream).write_all(output).map_err(late(timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.set_patience(Wait::Read, timeout)?;
        let input = self.buffers.input_append_buf();
        let count = loop {
            match (&*self.stream).read(input) {
                // Unless it is the keeper's signal.
                Err(error) if error.kind() == ErrorKind::Interrupted && !signal::interrupted() => {}
                read => break read.map_err(late(timeout))?,
            }
        };
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    /// Asked after an answer, and before the next request.
    fn is_open(&mut self) -> bool {
        match surplus::state(&*self.stream) {
            surplus::State::Quiet => true,
            surplus::State::Ended => false,
            surplus::State::Speaks => {
                if !self.is_tls {
                    self.watch.note_surplus();
                }
                false
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.listen();
    }
}

/// What the system calls a wait that was over.
fn late(timeout: NextTimeout) -> impl Fn(std::io::Error) -> Error {
    move |error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => Error::Io(error),
    }
}

/// Watches what becomes of connections.
#[derive(Debug)]
pub(super) struct Watching(pub Arc<Watch>);

impl<In: Transport> Connector<In> for Watching {
    type Out = Watched<In>;

    fn connect(
        &self,
        _details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Watched<In>>, Error> {
        if let Some(clock) = self.0.clock.get() {
            self.0.connected.store(clock.now(), Relaxed);
        }
        Ok(chained.map(|inner| Watched {
            inner,
            watch: Arc::clone(&self.0),
        }))
    }
}

/// A connection, encrypted or not.
#[derive(Debug)]
pub(super) struct Watched<In: Transport> {
    inner: In,
    watch: Arc<Watch>,
}

impl<In: Transport> Transport for Watched<In> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.inner.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.inner.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}

impl<In: Transport> Drop for Watched<In> {
    /// The client has read what belongs to its answer; the rest belongs to none.
    fn drop(&mut self) {
        let mut is_more = !self.inner.buffers().input().is_empty();
        if !is_more && self.watch.parts.load(Relaxed) {
            let timeout = NextTimeout {
                after: time::Duration::Exact(surplus::END_PATIENCE),
                ..NextTimeout::default()
            };
            is_more = matches!(self.inner.await_input(timeout), Ok(true));
        }
        if is_more {
            self.watch.note_surplus();
        }
    }
}
