//! A client's byte stream: plain, or through TLS. Never blocks.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// A connected socket.
pub(crate) struct Stream {
    pub(crate) fd: OwnedFd,
    #[cfg(feature = "tls")]
    tls: Option<Box<rustls::ServerConnection>>,
}

/// The result of reading.
pub(crate) enum Received {
    /// So many bytes; there may be more.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// The client has closed its side.
    End,
}

impl Stream {
    pub(crate) fn plain(fd: OwnedFd) -> Self {
        Self {
            fd,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    #[cfg(feature = "tls")]
    pub(crate) fn tls(fd: OwnedFd, connection: rustls::ServerConnection) -> Self {
        Self {
            fd,
            tls: Some(Box::new(connection)),
        }
    }

    /// The common name in a TLS client's certificate, which one of our authorities has signed.
    #[cfg(feature = "tls")]
    pub(crate) fn common_name(&self) -> Option<Vec<u8>> {
        let certificates = self.tls.as_ref()?.peer_certificates()?;
        super::certificate::common_name(certificates.first()?)
    }

    /// Whether it may hold bytes that epoll does not know of.
    pub(crate) fn is_tls(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Whether bytes wait to be sent that were already accepted.
    pub(crate) fn wants_write(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.as_ref().is_some_and(|tls| tls.wants_write());
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Reads into `buffer`.
    #[inline]
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            return receive_tls(&self.fd, tls, buffer);
        }
        match recv(&self.fd, buffer, RecvFlags::empty()) {
            Ok((0, _)) => Ok(Received::End),
            Ok((bytes, _)) => Ok(Received::Bytes(bytes)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Received::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends some of `bytes`; returns how many were accepted.
    #[inline]
    pub(crate) fn transmit(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            return transmit_tls(&self.fd, tls, bytes);
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        match send(&self.fd, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => Ok(sent),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the client has closed its side, or is gone, though not all that
    /// it sent may have been read. Costs a system call.
    pub(crate) fn peer_is_gone(&self) -> bool {
        let mut events = [PollFd::new(&self.fd, PollFlags::RDHUP)];
        let _ = poll(&mut events, Some(&Timespec::default()));
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        events[0].revents().intersects(gone)
    }

    /// Ends the stream as its protocol requires.
    pub(crate) fn close(&mut self) {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = tls.write_tls(&mut Socket(&self.fd));
        }
    }
}

/// The socket as rustls wants to see it.
#[cfg(feature = "tls")]
pub(crate) struct Socket<'a>(pub(crate) &'a OwnedFd);

#[cfg(feature = "tls")]
impl io::Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.0, buffer, RecvFlags::empty())?.0)
    }
}

#[cfg(feature = "tls")]
impl io::Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(feature = "tls")]
fn receive_tls(
    fd: &OwnedFd,
    tls: &mut rustls::ServerConnection,
    buffer: &mut [u8],
) -> io::Result<Received> {
    use std::io::Read;
    loop {
        // What is decrypted comes first: epoll knows nothing of it.
        match tls.reader().read(buffer) {
            Ok(0) => return Ok(Received::End),
            Ok(bytes) => return Ok(Received::Bytes(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        match tls.read_tls(&mut Socket(fd)) {
            Ok(0) => return Ok(Received::End),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Received::Nothing);
            }
            Err(error) => return Err(error),
        }
        if let Err(error) = tls.process_new_packets() {
            // The alert tells the client why.
            let _ = tls.write_tls(&mut Socket(fd));
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        push_tls(fd, tls)?;
    }
}

#[cfg(feature = "tls")]
fn transmit_tls(
    fd: &OwnedFd,
    tls: &mut rustls::ServerConnection,
    bytes: &[u8],
) -> io::Result<usize> {
    use std::io::Write;
    let mut accepted = 0;
    loop {
        // rustls takes what its bounded buffer holds; the rest stays with us.
        let taken = tls.writer().write(&bytes[accepted..])?;
        accepted += taken;
        push_tls(fd, tls)?;
        if accepted == bytes.len() || taken == 0 || tls.wants_write() {
            return Ok(accepted);
        }
    }
}

/// Sends what is encrypted, as far as it goes.
#[cfg(feature = "tls")]
fn push_tls(fd: &OwnedFd, tls: &mut rustls::ServerConnection) -> io::Result<()> {
    while tls.wants_write() {
        match tls.write_tls(&mut Socket(fd)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
