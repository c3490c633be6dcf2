//! TLS for targets with a server: the trusted certificates, the TLS options of an address,
//! and the handshake (`present`; `present/stream` has the connection after the handshake). In
//! a build without the feature `services`, `absent` has the same names, and refuses.
//!
//! The checks cannot be skipped. To use a server with a self-signed certificate, name that
//! certificate as trusted.

#[cfg(not(feature = "services"))]
#[expect(missing_docs, reason = "`present` documents the same names")]
mod absent;
#[cfg(feature = "services")]
mod present;

#[cfg(not(feature = "services"))]
pub use absent::*;
#[cfg(feature = "services")]
pub use present::*;

/// Stack of a worker's thread that shakes hands and encrypts.
pub const STACK: usize = 512 << 10;
