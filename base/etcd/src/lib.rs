//! Calls of etcd's API: its messages, gRPC over one connection ([`grpc`]), and a client of a
//! whole cluster ([`cluster`]).

mod carrier;
pub mod cluster;
mod failure;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod grpc;
pub mod messages;

pub use carrier::Carried;
pub use failure::Failure;
pub use prost::Message;

/// The end of the range of all keys that begin with this, which does not end with 0xff.
#[must_use]
pub fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}
