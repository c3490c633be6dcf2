//! The server's counters.

use serde::{Deserialize, Serialize};

use super::commands::table::PerCommand;

/// Counters that the lock table does not keep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stats {
    pub(crate) commands: u64,
    /// Handed over by name.
    #[serde(skip)]
    pub(crate) per_command: PerCommand,
    pub(crate) connections: u64,
    pub(crate) rejected: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) protocol_errors: u64,
    pub(crate) auth_failures: u64,
    pub(crate) closed_idle: u64,
    pub(crate) closed_slow: u64,
    pub(crate) closed_output: u64,
    pub(crate) closed_request: u64,
    pub(crate) closed_http: u64,
    pub(crate) passed_on: u64,
    pub(crate) killed: u64,
    pub(crate) unblocked: u64,
    pub(crate) reservations: u64,
    pub(crate) reservation_failures: u64,
    pub(crate) handovers: u64,
    pub(crate) handover_failures: u64,
    /// Those before the last handover.
    pub(crate) handshakes_failed: u64,
}
