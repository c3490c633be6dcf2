//! Descriptors in a socket: this process sends them before exec and receives them after it.
//!
//! So no descriptor has to be inherited by its number, and nothing has to be undone if
//! exec fails.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Descriptors of one message; the kernel takes at most 253.
const AT_ONCE: usize = 250;

/// A socket that holds these descriptors, in this order.
///
/// # Errors
/// The system's; above all if they are more than the socket's buffer has room for.
pub(crate) fn pack(descriptors: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
    let (to, from) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    for some in descriptors.chunks(AT_ONCE) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(some));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&to, &[IoSlice::new(b"d")], &mut control, flags)?;
    }
    // Closing `to` here marks the end.
    Ok(from)
}

/// The descriptors of a parcel.
///
/// # Errors
/// It is not a parcel, or the system's error.
pub(crate) fn unpack(parcel: &OwnedFd) -> io::Result<Vec<OwnedFd>> {
    let mut found = Vec::new();
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut byte = [0];
        let got = recvmsg(
            parcel,
            &mut [IoSliceMut::new(&mut byte)],
            &mut control,
            flags,
        )?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                found.extend(descriptors);
            }
        }
        if got.bytes == 0 {
            return Ok(found);
        }
    }
}

/// Takes over the descriptor of standard input, which becomes /dev/null.
///
/// # Errors
/// The system's.
pub(crate) fn take_stdin() -> io::Result<OwnedFd> {
    let taken = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    close_stdin()?;
    Ok(taken)
}

/// Redirects standard input to /dev/null.
///
/// # Errors
/// The system's.
pub(crate) fn close_stdin() -> io::Result<()> {
    let nothing = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(nothing)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_come_out_as_they_went_in() {
        // More than one message.
        let pairs: Vec<_> = (0..300).map(|_| UnixStream::pair().unwrap()).collect();
        let sent: Vec<_> = pairs.iter().map(|(one, _)| one.as_fd()).collect();
        let parcel = pack(&sent).unwrap();
        let found = unpack(&parcel).unwrap();
        assert_eq!(found.len(), 300);
        for (number, (found, (_, other))) in found.into_iter().zip(&pairs).enumerate() {
            let text = number.to_string();
            UnixStream::from(found).write_all(text.as_bytes()).unwrap();
            let mut heard = [0; 8];
            let length = (&*other).read(&mut heard).unwrap();
            assert_eq!(&heard[..length], text.as_bytes());
        }
        // Something else is no parcel.
        let file = File::open("/dev/null").unwrap();
        assert!(unpack(&file.into()).is_err());
    }
}
