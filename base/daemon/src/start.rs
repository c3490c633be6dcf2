//! How a daemon starts and ends: where it listens, and its exit code.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

/// Logs where a daemon listens.
pub fn announce(
    addresses: impl Iterator<Item = SocketAddr>,
    unix: Option<&Path>,
    log: impl Fn(&str),
) {
    addresses.for_each(|address| log(&format!("listening on {address}")));
    unix.inspect(|path| log(&format!("listening on {}", path.display())));
}

/// The exit code: 2 for settings that cannot be used (`is_usage`), 1 for other failures, which
/// are logged.
pub fn exit_code<E: Display>(
    ended: Result<(), E>,
    is_usage: impl Fn(&E) -> bool,
    log: impl Fn(&str),
) -> ExitCode {
    let Err(failure) = ended else {
        return ExitCode::SUCCESS;
    };
    log(&failure.to_string());
    ExitCode::from(if is_usage(&failure) { 2 } else { 1 })
}
