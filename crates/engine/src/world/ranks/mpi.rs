//! The link that MPI is. See `jostle_sys::mpi` for why it never waits.

use super::link::{Link, LinkError};
use jostle_sys::mpi::{Endpoint, Refused};

fn said(refused: Refused) -> LinkError {
    LinkError(refused.to_string())
}

impl Link for Endpoint {
    fn size(&self) -> usize {
        Endpoint::size(self)
    }

    fn send(&mut self, to: usize, bytes: Vec<u8>) -> Result<(), LinkError> {
        Endpoint::send(self, to, bytes).map_err(said)
    }

    fn try_receive(&mut self) -> Result<Option<(usize, Vec<u8>)>, LinkError> {
        Endpoint::try_receive(self).map_err(said)
    }

    fn is_flushed(&mut self) -> bool {
        // What cannot be sent any more need not be waited for.
        Endpoint::is_flushed(self).unwrap_or(true)
    }

    fn leave(self: Box<Self>) {
        Endpoint::leave(*self);
    }

    fn abort(self: Box<Self>, code: u8) {
        Endpoint::abort(*self, code)
    }
}
