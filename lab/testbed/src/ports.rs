//! Ports for servers that cannot say which one the kernel chose.

use jostle_sys::ports::free;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// A port of the loopback address on which nobody listens now.
///
/// # Errors
/// The system's.
pub fn free_port() -> io::Result<u16> {
    free_port_of(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// A free port of another address.
///
/// # Errors
/// The system's.
pub(crate) fn free_port_of(address: IpAddr) -> io::Result<u16> {
    free(address, 1).map(|ports| ports[0])
}
