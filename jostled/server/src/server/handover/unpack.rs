//! Builds a server from the state that another one has handed over.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::super::commands::table::COMMANDS;
use super::super::conn::Conn;
use super::super::errors::StartError;
use super::super::net::{Listener, unguarded};
use super::super::parts::Numbers;
use super::super::reserver::Reserver;
use super::super::stream::Stream;
use super::super::{Server, now};
use crate::config::{Config, ConfigError, StoreKind};
use crate::handover::check::proof;
use crate::handover::parcel;
use crate::handover::state::{ConnState, Sealed, State, StateError};
use crate::log::say;
use crate::store::FileLog;
use crate::table::{ClientId, Close, Table, Time};
use crate::tokens::{END, FileStore, Opened};

/// Returns from a check with this error, unless the condition holds.
macro_rules! ensure {
    ($holds:expr => $($text:tt)+) => {
        if !$holds { return Err(StateError::Unsound(format!($($text)+))); }
    };
}

/// Checks whether a server with these settings could go on from the state in the
/// standard input, and prints the proof.
///
/// # Errors
/// Why it could not.
pub fn prove(config: &Config) -> Result<(), StateError> {
    let state = parcel::take_stdin()?;
    let sealed = Sealed::from_file(File::from(state))?;
    could_go_on(config, sealed.read()?)?;
    let mut out = io::stdout();
    writeln!(out, "{}", proof(sealed.checksum()))?;
    Ok(out.flush()?)
}

/// Whether a server with these settings could go on from a state.
pub(super) fn could_go_on(config: &Config, state: State) -> Result<(), StateError> {
    check(config, &state)?;
    #[cfg(feature = "tls")]
    if let Some(tls) = &config.tls {
        super::super::setup::load_tls(tls).map_err(StartError::Tls)?;
    }
    Table::from_image(&state.table, config.table)?;
    Ok(())
}

/// Checks everything that needs no table.
fn check(config: &Config, state: &State) -> Result<(), StateError> {
    let at = state.table.at();
    let clock = now();
    ensure!(at <= clock => "it was written in the future");
    ensure!(state.started <= at.0 && state.begun <= clock.0 => "it began in the future");
    let (next, end) = state.table.tokens();
    ensure!(next >= 1 && end <= END => "its tokens go from {next} to {end}");
    check_settings(config, state)?;
    let mut known = BTreeSet::new();
    for conn in &state.conns {
        ensure!(known.insert(conn.id) => "two connections are one client");
        check_conn(conn, state, at)?;
    }
    let lost = state.lost.iter().all(|number| known.insert(*number));
    ensure!(lost => "a connection is both lost and there");
    let open = state.table.connections().map(ClientId::number);
    ensure!(open.collect::<BTreeSet<u64>>() == known =>
        "its connections are not the clients of its table");
    let waiting = state.table.waiting_clients();
    for conn in &state.conns {
        let reason = waiting.contains(&conn.id)
            || conn.refusal_due.is_some()
            || state.asker == Some(conn.id);
        ensure!(conn.waiting == reason => "client {} waits for nothing", conn.id);
    }
    Ok(())
}

fn check_conn(conn: &ConnState, state: &State, at: Time) -> Result<(), StateError> {
    let profile = &conn.profile;
    let times = [Some(profile.since), Some(profile.last_request)];
    let times = times
        .into_iter()
        .chain([profile.incomplete_since, profile.stuck_since]);
    let past = times.flatten().all(|time| time <= at);
    ensure!(past => "client {} came in the future", conn.id);
    ensure!(usize::from(conn.number) <= state.users.len() => "client {} has no user", conn.id);
    Ok(())
}

/// Checks that the new settings fit the state.
fn check_settings(config: &Config, state: &State) -> Result<(), StateError> {
    let data = config.data.as_ref().map(|path| path.as_os_str().as_bytes());
    if data != state.data.as_deref() {
        let text = "the data directory is another one; that needs a restart";
        return Err(StateError::Settings(text.to_owned()));
    }
    if (config.store == StoreKind::File) != state.store {
        let text = "--store is another one; that needs a restart";
        return Err(StateError::Settings(text.to_owned()));
    }
    for listener in &state.listeners {
        #[cfg(feature = "tls")]
        if listener.door == super::super::net::Door::Tls && config.tls.is_none() {
            let text = "there is a TLS address, and no certificate (--tls-cert, --tls-key)";
            return Err(StateError::Settings(text.to_owned()));
        }
        if let Some(address) = unguarded(listener.door, listener.address, &config.users) {
            let error = ConfigError::Public(address);
            return Err(StateError::Settings(error.to_string()));
        }
    }
    Ok(())
}

impl Server {
    /// Continues where the previous program stopped. Its state comes through the
    /// standard input.
    ///
    /// # Errors
    /// Why that is impossible. All locks are lost then.
    pub fn take_over(config: Config) -> Result<Self, StateError> {
        let parcel = parcel::take_stdin()?;
        let mut descriptors = parcel::unpack(&parcel)?.into_iter();
        let mut next = || {
            let missing = StateError::Damaged("a descriptor is missing");
            descriptors.next().ok_or(missing)
        };
        let state = Sealed::from_file(File::from(next()?))?.read()?;
        check(&config, &state)?;
        let tokens = state.data.as_ref().map(|_| next()).transpose()?;
        let log = state.store.then(&mut next).transpose()?;
        let table = Table::from_image(&state.table, config.table)?;
        let mut server = Self::around(table, config)?;
        server.take_store_over(log, &state)?;
        server.take_tokens_over(tokens)?;
        server.numbers = Numbers::new(&state.users);
        server.restore_counts(&state);
        let now = server.now();
        server.adopt_users(server.config.users.clone(), now);
        for listener in &state.listeners {
            let path = listener.file.as_ref().map(|path| OsStr::from_bytes(path));
            server.doors.listeners.push(Listener {
                fd: next()?,
                door: listener.door,
                address: listener.address,
                file: path.map(PathBuf::from),
            });
        }
        server.watch_listeners()?;
        for conn in &state.conns {
            server.restore_conn(conn, next()?)?;
        }
        server.restore_turns(&state);
        server.end_lost(&state);
        // Waits that fell due during the handover ended before their connections were
        // restored; they are answered now. Outputs that are left concern connections
        // that have ended.
        server.wake();
        server.work.outputs.clear();
        server.note_taken_over(&state);
        Ok(server)
    }

    /// The store of the tokens, whose file stays locked throughout.
    fn take_tokens_over(&mut self, file: Option<OwnedFd>) -> Result<(), StateError> {
        let (Some(file), Some(directory)) = (file, &self.config.data) else {
            return Ok(());
        };
        let opened = FileStore::adopt(directory, File::from(file), false);
        let Opened { store, first, .. } = opened.map_err(StartError::Store)?;
        let reserved = self.table.next_token() + self.table.tokens_left();
        ensure!(reserved <= first =>
            "tokens below {reserved} are in use, and the file says {first}");
        self.reserver = Some(Reserver::start(Box::new(store))?);
        self.promise_first(&[]);
        Ok(self.watch_bell()?)
    }

    /// The store, whose file stays locked throughout, and must have what the table has.
    fn take_store_over(&mut self, file: Option<OwnedFd>, state: &State) -> Result<(), StateError> {
        let (Some(file), Some(directory)) = (file, &self.config.data) else {
            return Ok(());
        };
        let found = FileLog::adopt(directory, File::from(file)).map_err(StartError::Store)?;
        let (tokens, sessions) = state.table.outliving();
        let same = found.stored.holds.keys().copied().eq(tokens)
            && found.stored.sessions.len() == sessions;
        ensure!(same && found.doubt.is_none() =>
            "the log has other leases and sessions than the table; a restart goes on with it");
        Ok(self.open_gate(Box::new(found.log), 0)?)
    }

    fn restore_counts(&mut self, state: &State) {
        self.life.started = Time(state.started);
        self.stats = state.stats.clone();
        for (spec, count) in COMMANDS.iter().zip(&mut self.stats.per_command) {
            let found = state.requests.iter().find(|(name, _)| name == spec.name);
            *count = found.map_or(0, |(_, count)| *count);
        }
    }

    fn restore_conn(&mut self, state: &ConnState, fd: OwnedFd) -> Result<(), StateError> {
        let user = state.user.as_ref().map(|name| self.user_named(name));
        let mut conn = Box::new(Conn::restored(state, Stream::plain(fd), user));
        conn.kept = self.gate.as_ref().map(|_| Box::default());
        if conn.user.is_some() {
            self.numbers.connections[usize::from(conn.user_number())] += 1;
            self.renew_user(&mut conn);
        }
        self.account(&mut conn);
        self.watch_new(&conn)?;
        if !conn.authenticated {
            self.note_unproved(0, conn.id);
        }
        let slot = conn.id.slot();
        if self.conns.len() <= slot {
            self.conns.resize_with(slot + 1, || None);
        }
        self.conns[slot] = Some(conn);
        Ok(())
    }

    /// Restores which connections go on with their turn, and which have unsent replies.
    fn restore_turns(&mut self, state: &State) {
        for number in &state.resumed {
            let client = ClientId::from_number(*number);
            if let Some(mut conn) = self.take_conn(client) {
                self.turn.resume(&mut conn);
                self.conns[client.slot()] = Some(conn);
            }
        }
        let all = self.conns.iter().flatten();
        let owed = all.filter(|conn| conn.pending() > 0);
        self.turn.unsent = owed.map(|conn| conn.id).collect();
    }

    /// Closes the clients whose connections could not be handed over: their locks go to others.
    fn end_lost(&mut self, state: &State) {
        let now = self.now();
        for number in &state.lost {
            let client = ClientId::from_number(*number);
            self.step(Close(client), now);
        }
    }

    fn note_taken_over(&mut self, state: &State) {
        self.stats.handovers += 1;
        if let Some(asker) = state.asker {
            self.unblock(ClientId::from_number(asker), |reply| reply.simple("OK"));
        }
        let now = self.now();
        let stall_us = now.0.saturating_sub(state.begun) / 1000;
        self.life.taken_over = Some((now, stall_us));
        // The first turn begins at once, and sends what is due.
        self.next_sweep = now;
        say(&format!(
            "handover: taken over from jostled {} after {stall_us} us: {} connections, {} holds, \
             {} waits; {} connections with TLS have ended, with what they owned without a lease",
            state.program,
            state.conns.len(),
            self.table.holds(),
            self.table.waiting(),
            state.lost.len()
        ));
    }
}
