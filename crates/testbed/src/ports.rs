//! Ports for servers that cannot say which one the kernel chose.

use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};

/// A port of the loopback address on which nobody listens now.
///
/// # Errors
/// The system's.
pub fn free_port() -> io::Result<u16> {
    free_port_of(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// The same of another address.
///
/// # Errors
/// The system's.
pub(crate) fn free_port_of(address: IpAddr) -> io::Result<u16> {
    Ok(TcpListener::bind((address, 0))?.local_addr()?.port())
}
