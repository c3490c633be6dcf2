//! The journal: each hold that begins, is renewed, or ends with its cause, and each session
//! that begins or ends, in their order. It is kept for the audit and for a store: replaying
//! it gives the table's holds and sessions. While it is off, it costs nothing: one check
//! decides whether a hold is booked to its account or recorded here.

use std::collections::HashMap;

use super::entries::{EntryKind, NEVER, Ref};
use super::slab::NIL;
use super::{ClientId, Mode, SessionKey, Table};

/// Why a hold has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// UNLOCK, of this client.
    Released(ClientId),
    /// The lease ran out.
    Expired,
    /// The connection that owned it ended.
    Disconnected,
    /// The session that owned it ended.
    SessionEnded,
    /// FORCEUNLOCK.
    Forced,
}

/// A change of a hold, or of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has begun; `ttl_ms` is 0 if its owner has no lease.
    Begun { mode: Mode, ttl_ms: u64 },
    /// Its lease begins again, with this length.
    Renewed { ttl_ms: u64 },
    /// It has ended.
    Ended(Cause),
    /// The session has begun.
    Opened { ttl_ms: u64 },
    /// The session has ended. Its holds end by records of their own, some later.
    Closed,
    /// So many holds of one request follow.
    Together { count: u64 },
}

/// The owner whose end ends a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Connection,
    Lease,
    Session(SessionKey),
}

/// A change of a hold, or of a session, which has no token.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) change: Change,
    pub(crate) owner: Owner,
    /// The lock's name, or the session's text.
    pub(crate) name: Vec<u8>,
    pub(crate) token: u64,
    /// The owner: a connection, which may be gone, or a session.
    pub(crate) client: ClientId,
    /// The number of the owner's user; `None`: the owner had gone when the journal began.
    pub(crate) account: Option<u16>,
}

/// A journal that is kept.
#[derive(Debug, Default)]
pub(super) struct Journal {
    records: Vec<Record>,
    /// Whose each lease is: it may outlive its client.
    lessees: HashMap<u64, u16>,
}

impl Table {
    /// Keeps a journal from now on, or none.
    pub(crate) fn keep_journal(&mut self, kept: bool) {
        if kept != self.journal.is_some() {
            self.journal = kept.then(Box::default);
        }
        self.note_books();
    }

    #[inline]
    pub(crate) fn keeps_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// Takes what was recorded.
    pub(crate) fn take_records(&mut self) -> Vec<Record> {
        let journal = self.journal.as_mut();
        journal.map_or(Vec::new(), |journal| std::mem::take(&mut journal.records))
    }

    /// Sets whether holds are booked or recorded.
    pub(super) fn note_books(&mut self) {
        self.booked = self.quotas || self.journal.is_some();
    }

    /// Books and records a hold that begins.
    #[inline(never)]
    pub(super) fn book_begin(&mut self, entry: Ref, client: u64, ttl_ms: u64) {
        self.book_hold(entry);
        let mode = match entry.kind() {
            EntryKind::Lock => Mode::Exclusive,
            _ => {
                let lock = &self.locks[self.claims[entry.index()].lock];
                self.queue(lock).shared_mode()
            }
        };
        self.record(entry, client, ttl_ms != 0, Change::Begun { mode, ttl_ms });
    }

    /// Records that a lease begins again.
    #[cold]
    pub(super) fn record_renewal(&mut self, entry: Ref, ttl_ms: u64) {
        let client = match entry.kind() {
            EntryKind::Lock => self.locks[entry.index()].client,
            _ => self.claims[entry.index()].client,
        };
        self.record(entry, client, true, Change::Renewed { ttl_ms });
    }

    /// Books and records the end of a hold, while its entry still shows it.
    #[inline(never)]
    pub(super) fn book_ended(&mut self, entry: Ref, client: u64, deadline: u64, cause: Cause) {
        self.record(entry, client, deadline != NEVER, Change::Ended(cause));
        self.book_end(entry);
    }

    /// Records the beginning or the end of a session.
    pub(super) fn record_session(&mut self, session: u32, change: Change) {
        if let Some(journal) = &mut self.journal {
            let session = &self.sessions[session];
            journal.records.push(Record {
                change,
                owner: Owner::Session(session.key),
                name: session.text.as_bytes().to_vec(),
                token: 0,
                client: ClientId(session.client),
                account: Some(session.key.user),
            });
        }
    }

    /// Records that the next holds are those of one request.
    pub(super) fn record_group(&mut self, client: u64, count: u64) {
        if let Some(journal) = &mut self.journal {
            journal.records.push(Record {
                change: Change::Together { count },
                owner: Owner::Connection,
                name: Vec::new(),
                token: 0,
                client: ClientId(client),
                account: None,
            });
        }
    }

    fn record(&mut self, entry: Ref, client: u64, leased: bool, change: Change) {
        let Some(journal) = &mut self.journal else {
            return;
        };
        let at = entry.index();
        let (lock, token) = match entry.kind() {
            EntryKind::Lock => (at, self.locks[at].token),
            _ => (self.claims[at].lock, self.claims[at].token),
        };
        let client = ClientId(client);
        let client_now = &self.clients[client.slot()];
        let mut account = (client_now.id == client.0).then_some(client_now.account);
        let owner = match client_now.session {
            _ if leased => Owner::Lease,
            NIL => Owner::Connection,
            session => Owner::Session(self.sessions[session].key),
        };
        match change {
            Change::Begun { .. } if leased => journal
                .lessees
                .extend(account.map(|account| (token, account))),
            Change::Ended(_) => account = journal.lessees.remove(&token).or(account),
            _ => {}
        }
        let mut name = Vec::new();
        self.locks[lock].name_into(&self.blocks, &mut name);
        journal.records.push(Record {
            change,
            owner,
            name,
            token,
            client,
            account,
        });
    }
}
