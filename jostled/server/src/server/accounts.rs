//! The users of connections: logins, and the effects of reading the users file again.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Server;
use super::conn::{Conn, Phase};
use super::guesses::source;
use crate::table::{Amounts, Enlist, Quota, Time};
use crate::users::{self, User, Users};

/// The share that one of several users may have of what is bounded for all: three
/// quarters, so that no user can leave the others without.
fn share(whole: u64) -> u64 {
    whole - whole / 4
}

/// Why a login fails although the password is right.
pub(super) enum LoginError {
    /// The user has as many connections as it may.
    Quota(u32),
    /// Only administrators are let in.
    Reserved,
}

impl Server {
    /// Checks users before they are adopted: there must be numbers for all of them, and
    /// no user without a password while other machines can reach an address.
    pub(super) fn check_users(&self, users: Users) -> Result<Users, String> {
        let new = users.iter();
        let new = new.filter(|user| self.numbers.find(&user.name).is_none());
        if self.numbers.names.len() + new.count() >= usize::from(u16::MAX) {
            return Err("more than 65534 users since the start".to_owned());
        }
        // Listeners that systemd or the previous program opened count, too.
        let mut listeners = self.doors.listeners.iter();
        match listeners.find_map(|listener| listener.unguarded(&users)) {
            Some(address) => Err(format!(
                "a user without a password, while {address} can be reached from other machines"
            )),
            None => Ok(users),
        }
    }

    /// Adopts checked users for all connections that are in their slots.
    pub(super) fn adopt_users(&mut self, users: Users, now: Time) {
        let mut gone: BTreeSet<u16> = (0..=self.numbers.names.len() as u16).collect();
        let mut quotas = Vec::new();
        for user in users.iter() {
            let account = self.numbers.add(&user.name);
            gone.remove(&account);
            quotas.push((account, user.quota));
        }
        // Users that are gone keep what they hold and get nothing new. Their bounds are
        // removed last: while any account has a bound, leases of closed connections
        // stay counted.
        quotas.extend(
            gone.into_iter()
                .map(|account| (account, Default::default())),
        );
        self.numbers.shared = users.are_several();
        // With a store, connections that may not go on are found in the rounds.
        let gated = self.gate.is_some();
        self.turn.fair = self.numbers.shared || users.open().is_none() || gated;
        for (account, quota) in quotas {
            let most = self.most_of(&quota);
            self.step(Quota { account, most }, now);
        }
        self.config.users = users;
        for slot in 0..self.conns.len() {
            if let Some(mut conn) = self.conns[slot].take() {
                self.renew_user(&mut conn);
                self.conns[slot] = Some(conn);
            }
        }
    }

    /// The bounds of a user with these rules in the table.
    fn most_of(&self, quota: &users::Quota) -> Amounts {
        let limits = &self.config.table;
        let own = |rule: Option<u32>, whole| rule.unwrap_or_else(|| self.share(whole));
        Amounts {
            locks: quota.locks.unwrap_or(u32::MAX),
            waiters: own(quota.waiters, limits.waiters),
            sessions: own(quota.sessions, limits.sessions),
            bytes: match self.numbers.shared {
                true => share(limits.memory_bytes as u64),
                false => u64::MAX,
            },
        }
    }

    /// One user's share of a bound; the only user has no share but all of it.
    fn share(&self, whole: u32) -> u32 {
        match self.numbers.shared {
            true => share(whole.into()) as u32,
            false => u32::MAX,
        }
    }

    /// The user with this name, or else a user of that name without any rights.
    pub(super) fn user_named(&self, name: &str) -> Arc<User> {
        let found = self.config.users.find(name.as_bytes()).cloned();
        found.unwrap_or_else(|| Arc::new(User::gone(name)))
    }

    /// Looks up a connection's user again by its name. If the user is gone or off, the
    /// connection's new commands are refused.
    pub(super) fn renew_user(&mut self, conn: &mut Conn) {
        let Some(known) = &conn.user else { return };
        let found = self.config.users.find(known.name.as_bytes());
        conn.gone = found.is_none_or(|user| !user.on);
        if let Some(user) = found {
            conn.user = Some(user.clone());
        }
        conn.update_guard();
    }

    /// Makes a user that of a connection.
    pub(super) fn log_in(
        &mut self,
        conn: &mut Conn,
        user: Arc<User>,
        now: Time,
    ) -> Result<(), LoginError> {
        if conn.probation && !user.admin {
            return Err(LoginError::Reserved);
        }
        let number = self.numbers.add(&user.name);
        let same = conn.user.is_some() && conn.user_number() == number;
        let place = usize::from(number);
        let share = || self.share(self.doors.max_connections as u32);
        let most = user.quota.connections.unwrap_or_else(share);
        if !same && self.numbers.connections[place] >= most {
            return Err(LoginError::Quota(most));
        }
        self.forget_user(conn);
        self.numbers.connections[place] += 1;
        if number != conn.user_number() {
            let client = conn.id;
            let account = number;
            self.step(Enlist { client, account }, now);
        }
        conn.probation = false;
        conn.gone = false;
        conn.log_in(user, number);
        Ok(())
    }

    /// Resets a connection's user to that of a new connection.
    pub(super) fn log_out(&mut self, conn: &mut Conn, now: Time) {
        self.forget_user(conn);
        conn.log_out();
        if let Some(user) = self.config.users.open().cloned() {
            // If the default user is refused, for example by its quota, the client has to log in.
            let _ = self.log_in(conn, user, now);
        }
    }

    /// A connection no longer counts as one of its user's.
    pub(super) fn forget_user(&mut self, conn: &mut Conn) {
        if conn.user.take().is_some() {
            self.numbers.connections[usize::from(conn.user_number())] -= 1;
        }
    }

    /// Whether a connection just opened is admitted only for an administrator.
    pub(super) fn is_reserved(&self) -> bool {
        let known = self.table.clients() as usize;
        // The new connection is counted already.
        let reserved = self.config.reserve_connections;
        known > self.doors.max_connections.saturating_sub(reserved)
    }
}

impl Server {
    /// Whether the password that a client gives is checked now. If not, its request waits.
    pub(super) fn may_check(&mut self, conn: &mut Conn, now: Time) -> bool {
        if matches!(conn.phase, Phase::Checked) {
            conn.phase = Phase::Open;
            return true;
        }
        let (source, fresh) = (source(conn), conn.wrong_passwords == 0);
        let may = self.doors.guesses.admit(source, conn.id, fresh, now);
        if !may {
            conn.phase = Phase::Unchecked;
            self.stats.commands -= 1;
        }
        may
    }

    /// Notes a right password.
    pub(super) fn note_right(&mut self, conn: &Conn) {
        self.doors.guesses.right(source(conn));
    }

    /// Lets clients whose turn has come give their passwords again.
    pub(super) fn check_waiting(&mut self) {
        let now = self.clock;
        if self.doors.guesses.due().is_none_or(|due| due > now) {
            return;
        }
        let (conns, turn) = (&mut self.conns, &mut self.turn);
        self.doors.guesses.turns(now, |client| {
            let conn = conns[client.slot()].as_mut();
            let waits = |conn: &&mut Box<Conn>| {
                conn.id == client && matches!(conn.phase, Phase::Unchecked) && !conn.intake.hung_up
            };
            let Some(conn) = conn.filter(waits) else {
                return false;
            };
            conn.phase = Phase::Checked;
            turn.resume(conn);
            true
        });
    }
}
