//! The parts of a handover: the server's state as data, and its descriptors.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::super::Server;
use super::super::commands::table::COMMANDS;
use super::super::conn::Conn;
use super::super::net::Listener;
use crate::handover::parcel;
use crate::handover::state::{ListenerState, Sealed, State};
use crate::table::{ClientId, Time};

impl Server {
    /// The state, while every connection is in its place.
    pub(super) fn state(&self, now: Time) -> State {
        let bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
        let resumed = self.turn.resumed.iter().chain(&self.turn.later);
        let resumed = resumed.chain(&self.turn.granted).chain(&self.turn.dying);
        let resumed = resumed.chain(self.doors.guesses.waiting());
        let conns = self.conns.iter().flatten();
        let lost = conns.filter(|conn| conn.stream.is_tls());
        let listeners = self.doors.listeners.iter();
        let listener_state = |listener: &Listener| ListenerState {
            door: listener.door,
            address: listener.address,
            file: listener.file.as_ref().map(bytes),
        };
        let handover = self.life.handover.as_ref();
        let asker = handover.and_then(|handover| handover.asker);
        let mut stats = self.stats.clone();
        stats.handshakes_failed = self.handshakes_failed();
        // They go by name.
        let requests = std::mem::take(&mut stats.per_command);
        State {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            begun: now.0,
            started: self.life.started.0,
            data: self.config.data.as_ref().map(bytes),
            store: self.gate.is_some(),
            table: self.table.image(now),
            users: self.numbers.names.clone(),
            stats,
            requests: COMMANDS
                .iter()
                .zip(&requests)
                .map(|(spec, count)| (spec.name.to_owned(), *count))
                .collect(),
            listeners: listeners.map(listener_state).collect(),
            conns: self.plain().map(Conn::state).collect(),
            lost: lost.map(|conn| conn.id.number()).collect(),
            resumed: resumed.copied().map(ClientId::number).collect(),
            asker: asker.map(ClientId::number),
        }
    }

    /// The connections that can be handed over.
    fn plain(&self) -> impl Iterator<Item = &Conn> {
        let all = self.conns.iter().filter_map(|conn| conn.as_deref());
        all.filter(|conn| !conn.stream.is_tls())
    }

    /// The state and its descriptors; `files` are those of the tokens and of the store.
    pub(super) fn parcel(&self, state: &Sealed, files: &[Option<OwnedFd>]) -> io::Result<OwnedFd> {
        let mut descriptors = vec![state.file().as_fd()];
        descriptors.extend(files.iter().flatten().map(AsFd::as_fd));
        let listeners = self.doors.listeners.iter();
        descriptors.extend(listeners.map(|listener| listener.fd.as_fd()));
        descriptors.extend(self.plain().map(|conn| conn.stream.fd.as_fd()));
        parcel::pack(&descriptors)
    }
}
