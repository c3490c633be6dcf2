//! The gate: with a store, a reply leaves when the store has what it tells.
//!
//! Each reply, of reads, errors and waits too, enters its connection's `held`. At the end
//! of a turn the loop hands what the journal has to the store's thread, and all held
//! replies become `sent for` with it. They move on to the connection's output when that
//! operation, which began after their turn, has succeeded. There is one operation at a
//! time. Where the store fences, as a locked file does, an operation without entries would
//! prove nothing: as long as all entries are committed, replies go straight through.
//!
//! Metrics and health do not wait: they are no replies to clients of locks.

#[cfg(test)]
mod live_tests;

use std::os::fd::OwnedFd;
use std::time::Duration;

use jostle_resp::Writer;

use super::conn::Conn;
use super::parts::Numbers;
use super::reserver::TOKENS_PATIENCE;
use super::storer::{Answer, Storer};
use super::{STORED, Server};
use crate::store::{Entry, Store};
use crate::table::{ClientId, Owner, Record, Tokens};
use crate::tokens::END;

/// Bytes of replies that a connection has in the gate, above which it is not read.
const HELD: usize = 256 * 1024;
/// Bytes of entries that wait for the store, above which no connection is read.
const CHOKED: usize = 4 << 20;

/// Entries beyond which the same holds for a store of transactions: four of them.
const CHOKED_ENTRIES: usize = 4 * 126;

/// Replies of a connection that may not be sent yet.
#[derive(Default)]
pub(super) struct Kept {
    /// The store has not been asked since these turns.
    pub(super) held: Vec<u8>,
    /// An operation is under way that began after these turns.
    pub(super) sent_for: Vec<u8>,
}

impl Kept {
    pub(super) fn len(&self) -> usize {
        self.held.len() + self.sent_for.len()
    }

    pub(super) fn capacity(&self) -> usize {
        self.held.capacity() + self.sent_for.capacity()
    }
}

/// The store's thread, and who waits for it.
pub(super) struct Gate {
    storer: Storer,
    fences: bool,
    keeps_connections: bool,
    /// Entries that the store has not been asked to commit, and their bytes.
    journal: Vec<Entry>,
    bytes: usize,
    /// What happens from now on is not stored.
    stopped: bool,
    /// An operation is under way.
    asked: bool,
    /// Clients with replies in `held`, and those of the operation that is under way.
    held: Vec<ClientId>,
    sent_for: Vec<ClientId>,
    /// The number of this run, to be stored once nothing is waited for any more.
    run: u64,
    /// Why nothing may be granted.
    pub(super) full: Option<String>,
    pub(super) commits: u64,
    pub(super) entries: u64,
    pub(super) commit_ns: u64,
}

impl Gate {
    pub(super) fn new(store: Box<dyn Store>, run: u64) -> std::io::Result<Self> {
        let (fences, keeps_connections) = (store.fences(), store.keeps_connections());
        let storer = Storer::start(store)?;
        Ok(Self::around(storer, fences, keeps_connections, run))
    }

    /// The gate of a thread that runs already.
    pub(super) fn around(storer: Storer, fences: bool, keeps_connections: bool, run: u64) -> Self {
        Self {
            fences,
            keeps_connections,
            storer,
            journal: Vec::new(),
            bytes: 0,
            stopped: false,
            asked: false,
            held: Vec::new(),
            sent_for: Vec::new(),
            run,
            full: None,
            commits: 0,
            entries: 0,
            commit_ns: 0,
        }
    }

    /// Clients with replies that wait.
    #[cfg(feature = "ha")]
    pub(super) fn waiting(&self) -> usize {
        self.held.len() + self.sent_for.len()
    }

    /// Whether all is committed, and no reply waits.
    fn is_idle(&self) -> bool {
        !self.asked && self.journal.is_empty() && self.held.is_empty()
    }

    /// Whether replies go straight through.
    fn is_open(&self) -> bool {
        self.fences && !self.asked && self.journal.is_empty()
    }

    fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes();
        self.journal.push(entry);
    }

    /// Notes that the rest of the journal is complete: all leases of earlier runs are in it,
    /// or have ended.
    pub(super) fn note_run(&mut self) {
        if self.run != 0 {
            let run = std::mem::take(&mut self.run);
            self.push(Entry::Run(run, 0));
        }
    }

    /// Notes a change that the table has recorded.
    pub(super) fn note(&mut self, record: Record, names: &Numbers) {
        let of_connection = record.owner == Owner::Connection;
        if !self.stopped && (self.keeps_connections || !of_connection) {
            self.push(Entry::from_record(record, |number| {
                names.name(number).to_owned()
            }));
        }
    }

    /// Notes that a connection has replies in `held`.
    fn note_held(&mut self, client: ClientId) {
        self.held.push(client);
    }
}

impl Server {
    /// Lets a store have all that happens from now on.
    pub(super) fn open_gate(&mut self, store: Box<dyn Store>, run: u64) -> std::io::Result<()> {
        self.pass(Gate::new(store, run)?)
    }

    /// Lets all replies pass this gate.
    pub(super) fn pass(&mut self, gate: Gate) -> std::io::Result<()> {
        self.watch_for(
            STORED,
            gate.storer.bell(),
            rustix::event::epoll::EventFlags::IN,
        )?;
        self.gate = Some(Box::new(gate));
        self.obey_audit();
        Ok(())
    }

    /// Writes a reply that no command of this turn has asked for.
    pub(super) fn reply(&mut self, conn: &mut Conn, write: impl FnOnce(&Self, Writer<'_>)) {
        let Some(kept) = &mut conn.kept else {
            let mut out = std::mem::take(&mut conn.output);
            write(self, Writer::new(&mut out, conn.protocol));
            conn.output = out;
            return;
        };
        let mut out = std::mem::take(&mut kept.held);
        let first = out.is_empty();
        write(self, Writer::new(&mut out, conn.protocol));
        kept.held = out;
        if let (Some(gate), true) = (&mut self.gate, first) {
            gate.note_held(conn.id);
        }
    }

    /// Takes the journal, and keeps replies back if they may not be sent yet; whether it
    /// does. Those of a connection stay in their order.
    #[cold]
    pub(super) fn keep_back(&mut self, conn: &mut Conn, out: &mut Vec<u8>) -> bool {
        self.note_records(Some(conn));
        let (Some(gate), Some(kept)) = (&mut self.gate, &mut conn.kept) else {
            return false;
        };
        if gate.is_open() && kept.len() == 0 {
            return false;
        }
        if !out.is_empty() {
            if kept.held.is_empty() {
                gate.note_held(conn.id);
            }
            self.stats.bytes_out += out.len() as u64;
            kept.held.append(out);
        }
        true
    }

    /// Whether a connection has so many replies in the gate that it is not read.
    #[inline(never)]
    pub(super) fn is_held_back(&self, conn: &Conn) -> bool {
        conn.kept.as_ref().is_some_and(|kept| kept.len() >= HELD)
    }

    /// Whether so much waits for the store that no connection is read.
    pub(super) fn is_choked(&self) -> bool {
        let gate = self.gate.as_ref();
        gate.is_some_and(|gate| {
            let many = gate.bytes >= CHOKED || !gate.fences && gate.journal.len() >= CHOKED_ENTRIES;
            gate.asked && many
        })
    }

    /// Ends a turn: takes the journal, asks the store, and sends what need not wait.
    #[cold]
    #[inline(never)]
    pub(super) fn advance_gate(&mut self) {
        self.note_records(None);
        self.ask_store();
        self.deliver_replies();
    }

    /// Begins the next operation of the store, if there is something to commit or to prove
    /// and none is under way.
    fn ask_store(&mut self) {
        let Some(gate) = &mut self.gate else { return };
        if gate.asked || gate.journal.is_empty() && gate.held.is_empty() {
            return;
        }
        gate.sent_for = std::mem::take(&mut gate.held);
        for client in &gate.sent_for {
            let conn = self.conns.get_mut(client.slot()).and_then(Option::as_mut);
            if let Some(conn) = conn.filter(|conn| conn.id == *client)
                && let Some(kept) = &mut conn.kept
            {
                kept.sent_for = std::mem::take(&mut kept.held);
            }
        }
        if gate.is_open() {
            return self.free_replies();
        }
        (gate.asked, gate.bytes) = (true, 0);
        gate.storer.commit(std::mem::take(&mut gate.journal));
    }

    /// Lets the replies go that were sent for.
    fn free_replies(&mut self) {
        let Some(gate) = &mut self.gate else { return };
        for client in std::mem::take(&mut gate.sent_for) {
            let conn = self.conns.get_mut(client.slot()).and_then(Option::as_mut);
            if let Some(conn) = conn.filter(|conn| conn.id == client)
                && let Some(kept) = &mut conn.kept
            {
                // Its memory goes with it.
                let replies = std::mem::take(&mut kept.sent_for);
                match conn.output.is_empty() {
                    true => conn.output = replies,
                    false => conn.output.extend_from_slice(&replies),
                }
                self.turn.unsent.push(client);
            }
        }
    }

    /// Takes the answers of the store.
    pub(super) fn take_commits(&mut self, patience: Duration) {
        let mut patience = patience;
        while let Some(gate) = &mut self.gate
            && let Some(answer) = gate.storer.answer(patience)
        {
            patience = Duration::ZERO;
            match answer {
                Answer::Committed { entries, ns } => {
                    gate.asked = false;
                    gate.commits += 1;
                    gate.entries += entries;
                    gate.commit_ns += ns;
                    self.free_replies();
                }
                Answer::Room(full) => {
                    let gives = full.is_none();
                    gate.full = full;
                    match gives {
                        false => self.table.withhold_tokens(),
                        true if self.reserver.is_some() => self.provide_tokens(),
                        true => self.step(Tokens(END), self.clock),
                    }
                }
                #[cfg(feature = "ha")]
                Answer::Tokens(end) => self.may_give(end),
                #[cfg(feature = "ha")]
                Answer::Released => self.note_released(),
            }
        }
    }

    /// Lets all be committed, and all replies go, and the store rest; returns its file. Each
    /// connection must be in its slot.
    pub(super) fn rest_store(&mut self) -> Result<Option<OwnedFd>, String> {
        self.take_journal(None);
        while self.gate.as_ref().is_some_and(|gate| !gate.is_idle()) {
            self.ask_store();
            if self.gate.as_ref().is_some_and(|gate| gate.asked) {
                self.take_commits(TOKENS_PATIENCE);
                if self.gate.as_ref().is_some_and(|gate| gate.asked) {
                    return Err("the store does not answer".to_owned());
                }
            }
        }
        let gate = self.gate.as_ref();
        gate.map(|gate| gate.storer.rest(TOKENS_PATIENCE))
            .transpose()
    }

    /// Stores nothing that happens from now on.
    #[cfg(feature = "ha")]
    pub(super) fn stop_journal(&mut self) {
        self.note_records(None);
        self.gate.iter_mut().for_each(|gate| gate.stopped = true);
    }

    /// Lets all be committed and then the store go, until that is `done`, for at most so long.
    #[cfg(feature = "ha")]
    pub(super) fn release_store(&mut self, patience: Duration, done: impl Fn(&Self) -> bool) {
        let (end, mut released) = (std::time::Instant::now() + patience, false);
        while !done(self) && std::time::Instant::now() < end {
            match self.gate.as_ref().filter(|gate| gate.is_idle()) {
                Some(gate) if !released => {
                    gate.storer.release();
                    released = true;
                }
                _ => self.ask_store(),
            }
            self.take_commits(Duration::from_millis(50));
        }
    }

    /// Lets the store go on after a rest.
    pub(super) fn wake_store(&self) {
        if let Some(gate) = &self.gate {
            gate.storer.wake();
        }
    }
}
