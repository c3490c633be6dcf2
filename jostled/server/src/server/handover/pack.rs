//! What a server hands over: its state as data, and its descriptors.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use super::super::Server;
use super::super::commands::table::COMMANDS;
use super::super::conn::Conn;
use crate::config::Data;
use crate::handover::parcel;
use crate::handover::state::{ListenerState, Sealed, State};
use crate::table::Time;

impl Server {
    /// The state, while every connection is in its place.
    pub(super) fn state(&self, now: Time) -> State {
        let data = match &self.config.data {
            Data::None => None,
            Data::Directory(path) => Some(path.as_os_str().as_bytes().to_vec()),
        };
        let resumed = self.turn.resumed.iter().chain(&self.turn.later);
        let resumed = resumed.chain(&self.turn.granted).chain(&self.turn.dying);
        let mut stats = self.stats.clone();
        stats.handshakes_failed = self.handshakes_failed();
        // They go by name.
        let requests = std::mem::take(&mut stats.per_command);
        State {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            begun: now.0,
            started: self.life.started.0,
            data,
            table: self.table.image(now),
            users: self.numbers.names().to_vec(),
            stats,
            requests: COMMANDS
                .iter()
                .zip(&requests)
                .map(|(spec, count)| (spec.name.to_owned(), *count))
                .collect(),
            listeners: self
                .doors
                .listeners
                .iter()
                .map(|listener| ListenerState {
                    door: listener.door,
                    address: listener.address,
                    file: listener
                        .file()
                        .map(|path| path.as_os_str().as_bytes().to_vec()),
                })
                .collect(),
            conns: self.plain().map(Conn::state).collect(),
            lost: self
                .conns
                .iter()
                .flatten()
                .filter(|conn| conn.stream.is_tls())
                .map(|conn| conn.id.number())
                .collect(),
            resumed: resumed.map(|client| client.number()).collect(),
            asker: self
                .life
                .handover
                .as_ref()
                .and_then(|found| found.asker)
                .map(|client| client.number()),
        }
    }

    /// The connections that can be handed over.
    fn plain(&self) -> impl Iterator<Item = &Conn> {
        let all = self.conns.iter().filter_map(|conn| conn.as_deref());
        all.filter(|conn| !conn.stream.is_tls())
    }

    /// The state and its descriptors.
    pub(super) fn parcel(&self, state: &Sealed, tokens: Option<&OwnedFd>) -> io::Result<OwnedFd> {
        let mut descriptors = vec![state.file().as_fd()];
        descriptors.extend(tokens.map(AsFd::as_fd));
        descriptors.extend(
            self.doors
                .listeners
                .iter()
                .map(|listener| listener.fd.as_fd()),
        );
        descriptors.extend(self.plain().map(|conn| conn.stream.fd.as_fd()));
        parcel::pack(&descriptors)
    }
}
