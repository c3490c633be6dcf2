//! The connections of `http` and `https`: our own sockets below the HTTP client. They
//! report whether the server has sent a surplus answer ([`crate::surplus`]), which the
//! client's own sockets do not: the client silently drops such a connection and opens
//! another.
//!
//! [`Sockets`] is the first link of the client's chain of connectors. [`Watching`] is the
//! last link, above TLS, where the rest of an answer is decrypted.

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

/// Time limits are rounded up to steps, so that a request with about the same limit as the
/// one before needs no system call to set it.
const STEP_MS: u64 = 10;

/// State that a worker shares with its connections.
#[derive(Debug, Default)]
pub(super) struct Watch {
    clock: OnceLock<Clock>,
    /// When the latest connection was there; zero: none since the request began.
    connected: AtomicU64,
    /// The server sent what it was not asked for.
    surplus: AtomicBool,
    /// No request follows: from now on anything received on a closing connection is a
    /// surplus answer.
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

    /// No more requests follow: shuts down our side of the connection. The drop then reads
    /// until the server's end.
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
    /// Received bytes may belong to TLS: a new ticket is no answer.
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
    /// Checks for bytes received before a request, or after an answer.
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

/// The error for a wait that was over.
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
    /// The client has read its answer; any further bytes are a surplus answer.
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
