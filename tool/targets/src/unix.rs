//! `unix`: connections over a Unix socket. Without a path the server is ours.

use crate::endpoint::{Address, Endpoint, Wanted};
use crate::prelude::*;
use rustix::net::SocketAddrUnix;
use std::path::PathBuf;

/// Its line in the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "unix",
    argument: Some("PATH"),
    check_argument: argument::path,
    family: Family::Connection,
    summary: "connections over a Unix socket; without a path, to a server of our own",
    details: "Stream sockets. They have no ports, so that nothing is searched or used up but \
              descriptors and memory. With a path the client side alone is made, towards any \
              server that accepts there.",
    ..Entry::PLAIN
};

/// Its endpoint.
///
/// # Errors
/// A path that is too long for a socket.
pub(crate) fn endpoint(wanted: &Wanted<'_>) -> Result<Endpoint> {
    let path = match wanted.argument {
        Some(path) => PathBuf::from(path),
        // The ledger removes its directory with everything in it.
        None => wanted.ledger.path().join("connect.sock"),
    };
    let address = SocketAddrUnix::new(path.as_path()).map_err(|errno| {
        SetupError(format!(
            "cannot use {} as a socket: {errno}; a path of at most 107 bytes is taken",
            path.display()
        ))
    })?;
    Ok(Endpoint {
        addresses: vec![Address::Unix(address)],
        embedded: wanted.argument.is_none(),
    })
}
