//! One task's connection: a socket that never waits, what is still to be sent,
//! and the beginning of a reply whose rest has not come.

use jostle_targets::Traffic;
use jostle_targets::stream::Stream;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes that one read may bring. All connections of a thread share this
/// memory: it stays in the CPU's cache, and a task without replies has no
/// buffer.
pub(super) const ROOM: usize = 64 * 1024;

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    stream: Stream,
    out: Vec<u8>,
    sent: usize,
    kept: Vec<u8>,
    traffic: Traffic,
}

/// The result of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// So many bytes stand in the room.
    Bytes(usize),
    /// Nothing is there.
    Nothing,
    /// The server has closed the connection.
    End,
}

impl Link {
    /// Wraps a connected socket.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn new(stream: Stream) -> io::Result<Link> {
        stream.set_nonblocking(true)?;
        Ok(Link {
            stream,
            out: Vec::new(),
            sent: 0,
            kept: Vec::new(),
            traffic: Traffic::default(),
        })
    }

    /// Where requests are put together that the next flush sends.
    #[inline]
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Sends what has been put together. False if the server's side is full, and
    /// the rest has to wait.
    ///
    /// # Errors
    /// The socket's.
    #[inline]
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        while self.sent < self.out.len() {
            match (&self.stream).write(&self.out[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        match (&self.stream).flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            flushed => flushed?,
        }
        if self.sent > 0 {
            self.traffic.sent(self.sent);
        }
        self.out.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Reads into the room, behind what was kept.
    ///
    /// # Errors
    /// The socket's.
    #[inline]
    pub(super) fn read(&mut self, room: &mut Vec<u8>) -> io::Result<Arrived> {
        let kept = self.kept.len();
        if room.len() < kept + ROOM {
            room.resize(kept + ROOM, 0);
        }
        if kept > 0 {
            room[..kept].copy_from_slice(&self.kept);
        }
        loop {
            return match (&self.stream).read(&mut room[kept..]) {
                Ok(0) => Ok(Arrived::End),
                Ok(count) => {
                    self.traffic.received(count);
                    self.kept.clear();
                    Ok(Arrived::Bytes(kept + count))
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Arrived::Nothing),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
        }
    }

    /// Keeps the beginning of a reply.
    #[inline]
    pub(super) fn keep(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            self.kept.extend_from_slice(rest);
        }
    }

    /// The connection, to end it.
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The traffic so far.
    pub(super) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Ends the connection: the server gives up what it waited for.
    pub(super) fn shut_down(&self) {
        self.stream.shut_down();
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
