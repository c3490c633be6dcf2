//! A connection to a service: a plain socket, or a socket with TLS. Both are read and
//! written alike.

use crate::tls::TlsStream;
use crate::{CallError, surplus};
use jostle_sys::clock;
use jostle_sys::files::Errno;
use jostle_sys::waited::Patience;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// Over TCP, each request sent at once.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
    /// Over TLS on TCP.
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Whether calls wait.
    ///
    /// # Errors
    /// The system's.
    pub fn set_nonblocking(&self, set: bool) -> io::Result<()> {
        Ok(ioctl_fionbio(self, set)?)
    }

    /// How long a read waits; None: for ever.
    ///
    /// # Errors
    /// The system's.
    pub fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        Ok(set_socket_timeout(self, Timeout::Recv, patience)?)
    }

    /// Ends the connection in both directions.
    pub fn shut_down(&self) {
        // One that the other side has ended already is no error.
        let _ = shutdown(self, Shutdown::Both);
    }

    /// Whether decrypted bytes wait to be read, which polling the socket would not show.
    #[inline]
    pub fn has_more(&self) -> bool {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => false,
            Stream::Tls(stream) => stream.has_more(),
        }
    }

    /// Whether the other side has ended the connection, or it has failed, as far as this
    /// machine knows.
    pub fn has_ended(&self) -> bool {
        has_ended(self.as_fd())
    }

    /// Tells the server that no more requests follow, as [`surplus::end`].
    pub fn end(&self) {
        if let Stream::Tls(stream) = self {
            // One that the server has ended already is no error.
            let _ = stream.end(&[]);
        }
        surplus::end(self);
    }

    /// Ends a connection on which every request has been answered, as
    /// `surplus::at_end`.
    ///
    /// # Errors
    /// EPROTO in the name of `call` where anything came.
    pub fn part(&self, call: &'static str) -> Result<(), CallError> {
        let Stream::Tls(_) = self else {
            return surplus::at_end(self, call);
        };
        let until = clock::monotonic() + surplus::END_PATIENCE.as_nanos() as u64;
        self.end();
        match self.set_nonblocking(true).is_err() || self.ends_silently(until) {
            true => Ok(()),
            false => Err(surplus::error(call)),
        }
    }

    /// Whether nothing more arrives before the server ends its side, or before a time of
    /// `CLOCK_MONOTONIC`: the second half of `surplus::at_end`.
    pub fn ends_silently(&self, until: u64) -> bool {
        let Stream::Tls(stream) = self else {
            return surplus::ends_silently(self, until);
        };
        // Received bytes may belong to TLS, such as the end of the session.
        let mut plain: &TlsStream = stream;
        loop {
            match plain.read(&mut [0; 1]) {
                Ok(count) => return count == 0,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !surplus::await_bytes(self.as_fd(), until) {
                        return true;
                    }
                }
                // A reset, or bytes that cannot be decrypted: this is no answer.
                Err(_) => return true,
            }
        }
    }
}

/// A socket that is connected within this patience, whose writes look up at each
/// [`Patience::look`]. `ended`: whether a signal ends the wait.
///
/// # Errors
/// The system's, with its call; TIMEDOUT if nobody answers.
pub fn connected(
    address: &SocketAddr,
    patience: Duration,
    ended: fn() -> bool,
) -> Result<TcpStream, (&'static str, Errno)> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let call = |errno| ("connect", errno);
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| ("socket", errno))?;
    let look = Some(Patience::look(patience));
    set_socket_timeout(&socket, Timeout::Send, look).map_err(call)?;
    let mut patience = Patience::of(patience);
    loop {
        // Asked again, it waits on.
        match rustix::net::connect(&socket, address) {
            Ok(()) => return Ok(TcpStream::from(socket)),
            Err(Errno::INPROGRESS | Errno::ALREADY) if patience.is_over() => {
                return Err(call(Errno::TIMEDOUT));
            }
            Err(Errno::INPROGRESS | Errno::ALREADY) => {}
            Err(Errno::INTR) if !ended() => {}
            Err(errno) => return Err(call(errno)),
        }
    }
}

/// Whether the other end of this socket has closed it, or it failed.
pub fn has_ended(socket: BorrowedFd<'_>) -> bool {
    let mut watched = [PollFd::new(&socket, PollFlags::RDHUP)];
    // HUP and ERR are always watched.
    poll(&mut watched, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tls(stream) => stream.socket().as_fd(),
        }
    }
}

impl Read for &Stream {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).read(into),
            Stream::Unix(stream) => (&mut &*stream).read(into),
            Stream::Tls(stream) => (&mut &**stream).read(into),
        }
    }
}

impl Write for &Stream {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).write(bytes),
            Stream::Unix(stream) => (&mut &*stream).write(bytes),
            Stream::Tls(stream) => (&mut &**stream).write(bytes),
        }
    }

    /// Sends encrypted bytes for which the socket had no room before.
    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => Ok(()),
            Stream::Tls(stream) => (&mut &**stream).flush(),
        }
    }
}
