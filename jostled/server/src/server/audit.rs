//! The audit. Commands that take something from other clients and refused logins are always
//! logged. `--audit` adds what the table's journal records, logins, and changes of users;
//! those lines have a queue of their own, and are queued at the end of a turn.

use super::Server;
use super::conn::Conn;
use crate::config::Audited;
use crate::log::{self, Value};
use crate::table::{Cause, Change, Mode, Record};
use crate::users::{DEFAULT, User, Users};

/// Lines that are gathered before the end of a turn.
const GATHERED: usize = 1024;

type Fields<'v> = Vec<(&'v str, Value<'v>)>;

impl Cause {
    /// Its name in the audit.
    fn word(self) -> &'static str {
        match self {
            Self::Released(_) => "unlock",
            Self::Expired => "expired",
            Self::Disconnected => "disconnected",
            Self::SessionEnded => "session ended",
            Self::Forced => "forceunlock",
        }
    }
}

/// The fields that identify a connection.
fn about(conn: &Conn) -> Fields<'_> {
    let user = conn.user.as_ref().map_or("", |user| &user.name);
    vec![
        ("user", Value::Bytes(user.as_bytes())),
        ("client", Value::Shown(&conn.id)),
        ("address", address(conn)),
    ]
}

fn address(conn: &Conn) -> Value<'_> {
    match &conn.peer {
        Some(peer) => Value::Shown(peer),
        None => Value::Bytes(b"unix"),
    }
}

/// The rules of `user` that `other` has not; a password shows as such.
fn rules(user: Option<&User>, other: Option<&User>) -> String {
    let line = |user: Option<&User>| user.map_or(String::new(), User::to_string);
    let (line, other) = (line(user), line(other));
    let others: Vec<&str> = other.split(' ').collect();
    // Behind `user` and the name.
    let words = line.split(' ').skip(2);
    let words = words.filter(|word| !others.contains(word));
    let shown = words.map(|word| {
        if word.starts_with('#') {
            "#password"
        } else {
            word
        }
    });
    shown.collect::<Vec<_>>().join(" ")
}

impl Server {
    /// Notes what a client did.
    pub(super) fn audit(&self, conn: &Conn, event: &str, more: &[(&str, Value<'_>)]) {
        log::audit(event, &[&about(conn)[..], more].concat());
    }

    /// Notes a login that was refused: a bounded number a second.
    pub(super) fn audit_failure(&mut self, conn: &Conn, name: &[u8], why: &str) {
        let second = self.clock.0 / 1_000_000_000;
        let Some(left_out) = self.failures.note(second) else {
            return;
        };
        let mut fields = vec![
            ("as", Value::Bytes(&name[..name.len().min(128)])),
            ("why", Value::Bytes(why.as_bytes())),
        ];
        if left_out > 0 {
            fields.push(("left_out_before", Value::Shown(&left_out)));
        }
        self.audit(conn, "authentication failed", &fields);
    }

    fn audits(&self, what: Audited) -> bool {
        self.config.audit.contains(&what)
    }

    /// Obeys `--audit`, which may have changed.
    pub(super) fn obey_audit(&mut self) {
        let kept = self.audits(Audited::Locks) || self.gate.is_some();
        self.table.keep_journal(kept);
    }

    /// Notes a login: `by` a password or a certificate.
    #[cold]
    pub(super) fn audit_login(&mut self, conn: &Conn, by: &str) {
        if self.audits(Audited::Logins) {
            let mut fields = about(conn);
            fields.push(("by", Value::Bytes(by.as_bytes())));
            self.audited.push(log::audit_line("login", &fields));
        }
    }

    /// Notes the difference between the users before and those in force. `by`: the client
    /// that had them read; `None`: a signal.
    pub(super) fn audit_users(&mut self, before: &Users, by: Option<&Conn>) {
        if !self.audits(Audited::Acl) {
            return;
        }
        let by = by.map_or_else(|| vec![("by", Value::Bytes(b"signal"))], about);
        let users = &self.config.users;
        let mut note = |event: &str, old: Option<&User>, new: Option<&User>| {
            let name = old.or(new).map_or("", |user| &user.name);
            let (gone, come) = (rules(old, new), rules(new, old));
            let mut fields = by.clone();
            fields.push(("changed", Value::Bytes(name.as_bytes())));
            fields.push(("without", Value::Bytes(gone.as_bytes())));
            fields.push(("with", Value::Bytes(come.as_bytes())));
            self.audited.push(log::audit_line(event, &fields));
        };
        for user in users.iter() {
            match before.find(user.name.as_bytes()) {
                None => note("user added", None, Some(user)),
                Some(old) if old == user => {}
                Some(old) => note("user changed", Some(old), Some(user)),
            }
        }
        for old in before.iter() {
            if users.find(old.name.as_bytes()).is_none() {
                note("user removed", Some(old), None);
            }
        }
    }

    /// Turns what the journal has recorded into lines of the audit, and entries for the
    /// store, while this connection is out of its slot.
    #[inline]
    pub(super) fn take_journal(&mut self, own: Option<&Conn>) {
        if self.table.keeps_journal() {
            self.note_records(own);
        }
    }

    #[cold]
    pub(super) fn note_records(&mut self, own: Option<&Conn>) {
        let audits = self.audits(Audited::Locks);
        for record in self.table.take_records() {
            if audits && let Some(line) = self.line_of(&record, own) {
                self.audited.push(line);
            }
            if let Some(gate) = &mut self.gate {
                gate.note(record, &self.numbers);
            }
        }
        if self.audited.len() >= GATHERED {
            self.queue_audit();
        }
    }

    /// The line of a hold that begins or ends.
    fn line_of(&self, record: &Record, own: Option<&Conn>) -> Option<String> {
        let conn = own.filter(|own| own.id == record.client);
        let user = match record.account {
            None => "",
            Some(0) => DEFAULT,
            Some(number) => &self.numbers.names[usize::from(number) - 1],
        };
        let mut fields: Fields<'_> = Vec::with_capacity(8);
        fields.push(("user", Value::Bytes(user.as_bytes())));
        fields.push(("client", Value::Shown(&record.client)));
        if let Some(conn) = conn.or_else(|| self.conn(record.client)) {
            fields.push(("address", address(conn)));
        }
        fields.push(("lock", Value::Bytes(&record.name)));
        fields.push(("token", Value::Shown(&record.token)));
        Some(match &record.change {
            Change::Begun { mode, ttl_ms } => {
                fields.push(("mode", Value::Bytes(mode.word().as_bytes())));
                if let Mode::Place { of } = mode {
                    fields.push(("of", Value::Shown(of)));
                }
                if *ttl_ms > 0 {
                    fields.push(("ttl_ms", Value::Shown(ttl_ms)));
                }
                log::audit_line("granted", &fields)
            }
            Change::Ended(cause) => {
                fields.push(("cause", Value::Bytes(cause.word().as_bytes())));
                if let Cause::Released(by) = cause
                    && *by != record.client
                {
                    fields.push(("by", Value::Shown(by)));
                }
                log::audit_line("ended", &fields)
            }
            Change::Renewed { .. }
            | Change::Opened { .. }
            | Change::Closed
            | Change::Together { .. } => return None,
        })
    }

    /// Queues the lines of this turn, and at its end what is left in the journal, for which
    /// the store is asked.
    pub(super) fn end_audit(&mut self) {
        if self.table.keeps_journal() {
            self.advance_gate();
        }
        if !self.audited.is_empty() {
            self.queue_audit();
        }
    }

    #[cold]
    fn queue_audit(&mut self) {
        log::audit_all(self.audited.drain(..));
    }
}
