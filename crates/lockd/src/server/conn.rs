//! One client's connection: its buffers and what it has agreed on.

use std::net::SocketAddr;

use jostle_resp::Protocol;
use rustix::event::epoll::EventFlags;

use super::stream::Stream;
use crate::table::{SessionId, Time};

pub(crate) struct Conn {
    pub(crate) stream: Stream,
    pub(crate) session: SessionId,
    /// `None` on the Unix socket.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) protocol: Protocol,
    pub(crate) authenticated: bool,
    /// Commands are held back while a LOCK waits.
    pub(crate) waiting: bool,
    /// To be closed once its replies are sent.
    pub(crate) closing: bool,
    /// The client has closed its side; nothing more will come.
    pub(crate) ended: bool,
    /// `input` may hold whole requests, which the next turn executes.
    pub(crate) more: bool,
    /// Stands in the list of those with something to send.
    pub(crate) dirty: bool,
    /// What epoll watches for.
    pub(crate) interest: EventFlags,
    /// Received and not yet executed.
    pub(crate) input: Vec<u8>,
    /// No request is whole before `input` has so many bytes.
    pub(crate) needed: usize,
    /// Replies not yet sent, from `sent` on.
    pub(crate) output: Vec<u8>,
    pub(crate) sent: usize,
    /// The name that the LOCK in progress wants, if it wants a lease.
    pub(crate) wanted: Vec<u8>,
    /// A lease granted after a wait, whose reply was not yet sent.
    pub(crate) fresh_lease: Option<u64>,
    pub(crate) since: Time,
    pub(crate) last_request: Time,
    /// Since when a request is incomplete, or the client not yet known.
    pub(crate) incomplete_since: Option<Time>,
    /// Since when replies wait and none has been taken.
    pub(crate) stuck_since: Option<Time>,
    pub(crate) commands: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) library: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
}

/// Capacity that an empty buffer may keep for the next time: enough that
/// commands do not allocate, little enough for 10,000 connections.
const KEEP: usize = 4096;

impl Conn {
    pub(crate) fn new(
        stream: Stream,
        session: SessionId,
        peer: Option<SocketAddr>,
        authenticated: bool,
        now: Time,
    ) -> Self {
        let unknown = !authenticated || stream.is_tls();
        Self {
            stream,
            session,
            peer,
            protocol: Protocol::Resp2,
            authenticated,
            waiting: false,
            closing: false,
            ended: false,
            more: false,
            dirty: false,
            interest: EventFlags::empty(),
            input: Vec::new(),
            needed: 0,
            output: Vec::new(),
            sent: 0,
            wanted: Vec::new(),
            fresh_lease: None,
            since: now,
            last_request: now,
            incomplete_since: unknown.then_some(now),
            stuck_since: None,
            commands: 0,
            name: Vec::new(),
            library: Vec::new(),
            library_version: Vec::new(),
        }
    }

    /// Replies that wait to be sent, in bytes.
    pub(crate) fn pending(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Bytes of memory in its buffers.
    pub(crate) fn buffered(&self) -> usize {
        self.input.capacity() + self.output.capacity()
    }

    /// Where it comes from, as an administrator reads it.
    pub(crate) fn address(&self) -> String {
        self.peer
            .map_or_else(|| "unix".to_owned(), |peer| peer.to_string())
    }

    /// Sends what waits. An error means that the client is gone.
    pub(crate) fn flush(&mut self, now: Time) -> std::io::Result<()> {
        while self.sent < self.output.len() || self.stream.wants_write() {
            let sent = self.stream.transmit(&self.output[self.sent..])?;
            self.sent += sent;
            if sent == 0 || self.stream.wants_write() {
                let since = self.stuck_since.get_or_insert(now);
                if sent != 0 {
                    *since = now;
                }
                return Ok(());
            }
        }
        self.stuck_since = None;
        self.sent = 0;
        self.output.clear();
        self.output.shrink_to(KEEP);
        Ok(())
    }

    /// Forgets input that was executed.
    pub(crate) fn consume(&mut self, used: usize) {
        self.input.drain(..used);
        self.input.shrink_to(KEEP.max(self.input.len()));
    }

    /// What epoll should watch for.
    pub(crate) fn wanted_interest(&self, max_input: usize) -> EventFlags {
        let mut wanted = EventFlags::empty();
        if !self.ended && !self.closing {
            // Even a client that is not read from must be seen to leave.
            wanted |= EventFlags::RDHUP;
            if self.input.len() < max_input {
                wanted |= EventFlags::IN;
            }
        }
        if self.pending() > 0 || self.stream.wants_write() {
            wanted |= EventFlags::OUT;
        }
        wanted
    }
}
