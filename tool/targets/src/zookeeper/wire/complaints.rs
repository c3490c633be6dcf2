//! Words for failures: the server's errors, and a session that is over or silent.

use super::{DELETE, LIST, PING_CALL};
use crate::CallError;
use crate::wire::refused;
use crate::zookeeper::jute::error;
use jostle_sys::files::Errno;

#[cold]
pub(super) fn complaint(call: &'static str, code: i32) -> CallError {
    let (errno, said) = match code {
        error::EXPIRED => (Errno::TIMEDOUT, "the session has expired"),
        error::NO_NODE => (Errno::TIMEDOUT, "the node is gone"),
        error::NO_AUTH => (Errno::ACCESS, "the server lets nobody create nodes below /"),
        _ => return refused(call, format!("the server's error {code}").as_bytes()),
    };
    CallError::saying(call, errno, said)
}

/// Our node was not there any more.
pub(super) const LAPSED: CallError = CallError::saying(
    LIST,
    Errno::TIMEDOUT,
    "our node was gone before the lock was granted",
);

/// The session was gone at the release.
pub(super) const LOST: CallError = CallError::saying(
    DELETE,
    Errno::TIMEDOUT,
    "our node was gone before the release",
);

/// No ping was answered.
pub(super) const SILENT: CallError = CallError::saying(
    PING_CALL,
    Errno::TIME,
    "the server has not answered in time",
);
