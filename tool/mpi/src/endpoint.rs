//! The link that MPI is: messages between the ranks of a job that a launcher has started.
//!
//! Nothing here waits: a send is begun and looked after later, a receive is begun
//! when its message has come. MPI's own waits spin, which would take a CPU from what
//! is measured, and cannot be bounded. The crate `mpi` starts and ends the library; its
//! requests borrow their buffers for the span of a block, and ours outlive the
//! function that begins them, hence the raw calls.

use jostle_engine::world::{Link, LinkError};
use mpi::ffi;
use mpi::topology::{Communicator, SimpleCommunicator};
use mpi::{Threading, environment::Universe};
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::raw::c_int;

/// This process's place in the job.
pub struct Endpoint {
    universe: Option<Universe>,
    world: SimpleCommunicator,
    sending: Vec<Transfer>,
    /// In the order in which they were matched.
    receiving: VecDeque<Transfer>,
}

/// A message that the library reads from or writes to.
#[derive(Debug)]
struct Transfer {
    peer: usize,
    request: ffi::MPI_Request,
    /// From [`Box::into_raw`], and ours again when the request is complete; before
    /// that nobody looks at it.
    bytes: *mut [u8],
    done: bool,
}

impl Endpoint {
    /// As [`crate::join`].
    pub fn join() -> Option<Endpoint> {
        let (universe, _) = mpi::initialize_with_threading(Threading::Single)?;
        let world = universe.world();
        // SAFETY: the library is initialised, and both handles are its own constants.
        // A peer that is gone is then an error of the call, where the library can tell.
        unsafe { ffi::MPI_Comm_set_errhandler(ffi::RSMPI_COMM_WORLD, ffi::RSMPI_ERRORS_RETURN) };
        Some(Endpoint {
            universe: Some(universe),
            world,
            sending: Vec::new(),
            receiving: VecDeque::new(),
        })
    }

    /// Takes a message that has come, or whose coming has been announced, and begins
    /// to receive it. False if there is none.
    fn begin_receive(&mut self) -> Result<bool, LinkError> {
        let (mut flag, mut count) = (0, 0);
        let mut message = MaybeUninit::uninit();
        let mut status = MaybeUninit::uninit();
        // SAFETY: the library fills what the pointers to live locals lead to.
        let code = unsafe {
            ffi::MPI_Improbe(
                ffi::RSMPI_ANY_SOURCE,
                ffi::RSMPI_ANY_TAG,
                ffi::RSMPI_COMM_WORLD,
                &raw mut flag,
                message.as_mut_ptr(),
                status.as_mut_ptr(),
            )
        };
        accepted("MPI_Improbe", code)?;
        if flag == 0 {
            return Ok(false);
        }
        // SAFETY: both were filled, since a message was matched.
        let (mut message, status) = unsafe { (message.assume_init(), status.assume_init()) };
        // SAFETY: a status of the library's and a live local.
        let code = unsafe { ffi::MPI_Get_count(&status, ffi::RSMPI_UINT8_T, &raw mut count) };
        accepted("MPI_Get_count", code)?;
        let bytes = Box::into_raw(vec![0_u8; count.max(0) as usize].into_boxed_slice());
        let mut request = MaybeUninit::uninit();
        // SAFETY: as in `send`; the message is the one that was matched for us.
        let code = unsafe {
            ffi::MPI_Imrecv(
                bytes.cast(),
                count,
                ffi::RSMPI_UINT8_T,
                &raw mut message,
                request.as_mut_ptr(),
            )
        };
        accepted("MPI_Imrecv", code)?;
        self.receiving.push_back(Transfer {
            peer: status.MPI_SOURCE as usize,
            // SAFETY: filled by the call that was accepted.
            request: unsafe { request.assume_init() },
            bytes,
            done: false,
        });
        Ok(true)
    }

    /// Looks after what is being sent.
    fn tend(&mut self) -> Result<(), LinkError> {
        for transfer in &mut self.sending {
            transfer.test()?;
        }
        for transfer in self.sending.extract_if(.., |transfer| transfer.done) {
            drop(transfer.complete());
        }
        Ok(())
    }
}

impl Link for Endpoint {
    fn rank(&self) -> usize {
        self.world.rank() as usize
    }

    fn size(&self) -> usize {
        self.world.size() as usize
    }

    fn send(&mut self, to: usize, bytes: Vec<u8>) -> Result<(), LinkError> {
        self.tend()?;
        let bytes = Box::into_raw(bytes.into_boxed_slice());
        let mut request = MaybeUninit::uninit();
        // SAFETY: the buffer is valid for its length and stays so, unlooked at, until
        // `complete` takes it back; the library fills the request.
        let code = unsafe {
            ffi::MPI_Isend(
                bytes.cast(),
                bytes.len() as c_int,
                ffi::RSMPI_UINT8_T,
                to as c_int,
                0,
                ffi::RSMPI_COMM_WORLD,
                request.as_mut_ptr(),
            )
        };
        accepted("MPI_Isend", code)?;
        self.sending.push(Transfer {
            peer: to,
            // SAFETY: filled by the call that was accepted.
            request: unsafe { request.assume_init() },
            bytes,
            done: false,
        });
        self.tend()
    }

    fn is_flushed(&mut self) -> bool {
        // What cannot be sent any more need not be waited for.
        self.tend().is_err() || self.sending.is_empty()
    }

    fn try_receive(&mut self) -> Result<Option<(usize, Vec<u8>)>, LinkError> {
        self.tend()?;
        while self.begin_receive()? {}
        let mut waited_for = Vec::new();
        for nth in 0..self.receiving.len() {
            let transfer = &mut self.receiving[nth];
            if waited_for.contains(&transfer.peer) {
                continue;
            }
            transfer.test()?;
            if transfer.done {
                let Some(transfer) = self.receiving.remove(nth) else {
                    break;
                };
                return Ok(Some((transfer.peer, transfer.complete().into_vec())));
            }
            waited_for.push(transfer.peer);
        }
        Ok(None)
    }

    /// Waits until all ranks do.
    fn leave(mut self: Box<Self>) {
        drop(self.universe.take());
    }

    fn abort(self: Box<Self>, code: u8) {
        self.world.abort(code.into())
    }
}

impl Drop for Endpoint {
    /// Leaving waits for all ranks; who has not agreed on it goes without, and the
    /// launcher notices.
    fn drop(&mut self) {
        std::mem::forget(self.universe.take());
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("sending", &self.sending)
            .field("receiving", &self.receiving)
            .finish_non_exhaustive()
    }
}

impl Transfer {
    fn test(&mut self) -> Result<(), LinkError> {
        if self.done {
            return Ok(());
        }
        let mut flag = 0;
        // SAFETY: the request was begun and is not complete; its status is not asked
        // for.
        let code = unsafe {
            ffi::MPI_Test(
                &raw mut self.request,
                &raw mut flag,
                ffi::RSMPI_STATUS_IGNORE,
            )
        };
        self.done = flag != 0;
        accepted("MPI_Test", code)
    }

    /// Only when it is done.
    fn complete(self) -> Box<[u8]> {
        // SAFETY: from `Box::into_raw`, and taken back once, since `self` is consumed;
        // the library does not touch it any more.
        unsafe { Box::from_raw(self.bytes) }
    }
}

fn accepted(call: &'static str, code: c_int) -> Result<(), LinkError> {
    match code {
        0 => Ok(()),
        code => Err(LinkError(format!("{call}: MPI error {code}"))),
    }
}
