//! HANDOVER: another program takes the place of this one, with all locks.

use super::call::Call;
use crate::server::Server;
use crate::server::conn::Phase;

/// The answer comes from the program that goes on: the new one, or this one. It takes
/// no path: an administrator of locks cannot choose what the daemon's user executes.
pub(super) fn handover(server: &mut Server, mut call: Call<'_>) {
    match server.begin_handover(Some(call.conn.id)) {
        Ok(()) => {
            server.audit(call.conn, "handover", &[]);
            call.conn.phase = Phase::Waiting;
        }
        Err(why) => call.error(&format!("ERR no handover: {why}")),
    }
}
