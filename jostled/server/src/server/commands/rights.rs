//! A user's rights: classes of commands, and names of locks.
//!
//! Only commands of guarded connections are checked here ([`Conn::guarded`]): most
//! connections may do everything.

use jostle_resp::parse_u64;

use super::call::Call;
use super::sessions;
use super::table::{Class, Names, Spec, Verb};
use crate::server::Server;
use crate::server::conn::Conn;
use crate::server::drain::DRAINING;

/// The reply to a client on a connection reserved for administrators that has not
/// logged in as one.
pub(super) const RESERVED: &str =
    "ERR max number of clients reached: the rest is for administrators";

/// Subcommands that only administrators have.
const ADMIN: &[&[u8]] = &[b"LIST", b"KILL", b"UNBLOCK", b"LOAD"];

impl Class {
    fn needed(spec: &Spec, call: &Call<'_>) -> Self {
        if spec.verb == Verb::Session && sessions::is_of_admins(call) {
            return Self::Admin;
        }
        if spec.class != Self::Subcommand {
            return spec.class;
        }
        let given = call.arg(1);
        if ADMIN.iter().any(|word| given.eq_ignore_ascii_case(word)) {
            Self::Admin
        } else {
            Self::Anybody
        }
    }
}

/// Whether a command takes or releases a single lock and its user may do so. Most
/// commands are of this kind, and [`permit`] need not be called.
#[inline]
pub(super) fn may_plainly(call: &Call<'_>, spec: &Spec) -> bool {
    let of_a_lock = spec.class == Class::Lock && spec.names == Names::First;
    let (conn, name) = (&*call.conn, call.arg(1));
    let begins = conn.names_begin.is_some_and(|begin| begin.is_of(name));
    of_a_lock && (begins || conn.may_lock && sees(conn, name))
}

/// Whether a connection may execute a command now. A transaction asks when the
/// command is queued, and again when it is executed.
pub(super) fn permit(server: &Server, call: &Call<'_>, spec: &Spec) -> Result<(), String> {
    if spec.kind.is_open() {
        return Ok(());
    }
    if call.conn.probation {
        return Err(RESERVED.into());
    }
    if !call.conn.authenticated {
        return Err("NOAUTH Authentication required.".into());
    }
    if !call.conn.restricted {
        return Ok(());
    }
    let Some(user) = call.conn.user.as_deref().filter(|_| !call.conn.gone) else {
        return Err("NOPERM this user is off or gone; its locks stay until they end".into());
    };
    if server.is_draining() && takes(spec, call) {
        return Err(DRAINING.into());
    }
    let class = Class::needed(spec, call);
    let needs = match class {
        Class::Lock if !user.lock => Some("+@lock"),
        Class::Admin if !user.admin => Some("+@admin"),
        _ => None,
    };
    if let Some(rule) = needs {
        let (name, command) = (&user.name, spec.name.to_ascii_lowercase());
        return Err(format!(
            "NOPERM user {name} has no permissions to run the '{command}' command ({rule})"
        ));
    }
    let count = match spec.names {
        Names::None => return Ok(()),
        Names::First => return may_use(call, call.arg(1)),
        // If this is not a number, the command itself reports the error.
        Names::Counted => parse_u64(call.arg(1)).unwrap_or(0),
    };
    let names = call.rest(2).take(count as usize);
    names.into_iter().try_for_each(|name| may_use(call, name))
}

/// Whether a command takes a lock, or begins something that could.
fn takes(spec: &Spec, call: &Call<'_>) -> bool {
    match spec.name {
        "LOCK" | "TRYLOCK" | "LOCKALL" => true,
        "SESSION" => call.arg(1).eq_ignore_ascii_case(b"OPEN"),
        _ => false,
    }
}

fn may_use(call: &Call<'_>, name: &[u8]) -> Result<(), String> {
    if sees(call.conn, name) {
        return Ok(());
    }
    let shown = name[..name.len().min(64)].escape_ascii();
    Err(format!(
        "NOPERM this user has no permissions for the lock '{shown}'"
    ))
}

/// Whether a connection's user may use a name.
pub(super) fn sees(conn: &Conn, name: &[u8]) -> bool {
    !conn.restricted || conn.user.as_ref().is_some_and(|user| user.may_use(name))
}
