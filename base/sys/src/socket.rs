//! Options of sockets that no well-kept crate offers yet, and the limit on
//! descriptors. Everything else about sockets comes from `rustix`.

use crate::errno::done;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// linux/in.h; since Linux 6.3.
const IP_LOCAL_PORT_RANGE: libc::c_int = 51;

/// The kernel copies `value`, and follows a pointer in it, with checks of its own. A value
/// of the wrong type therefore gives the system's error.
pub(crate) fn set<T: Copy>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: the pointer is to a live local of the length given, which the kernel only
    // reads; the descriptor is open as long as it is borrowed.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    Ok(done(result)?)
}

/// The first bytes of an option's value; zeros where the kernel has fewer.
///
/// # Errors
/// The system's.
pub(crate) fn get<const BYTES: usize>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
) -> io::Result<[u8; BYTES]> {
    let mut value = [0; BYTES];
    let mut length = BYTES as libc::socklen_t;
    // SAFETY: the pointers are to live locals, and the kernel writes at most the length given;
    // the descriptor is open as long as it is borrowed.
    let result = unsafe {
        let value = value.as_mut_ptr().cast();
        libc::getsockopt(fd.as_raw_fd(), level, option, value, &raw mut length)
    };
    done(result)?;
    Ok(value)
}

/// bind() with port 0 takes the address alone; connect() chooses the port
/// (ip(7), IP_BIND_ADDRESS_NO_PORT).
///
/// # Errors
/// The system's; ENOPROTOOPT before Linux 4.2.
pub fn bind_address_no_port(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1_u32)
}

/// Narrows the ports that the kernel may choose for this socket (ip(7),
/// IP_LOCAL_PORT_RANGE).
///
/// # Errors
/// The system's; ENOPROTOOPT before Linux 6.3.
pub fn local_port_range(fd: BorrowedFd<'_>, low: u16, high: u16) -> io::Result<()> {
    set(
        fd,
        libc::IPPROTO_IP,
        IP_LOCAL_PORT_RANGE,
        u32::from(high) << 16 | u32::from(low),
    )
}

/// Lets a listening TCP socket wake its server only once a connection has sent
/// something (tcp(7), TCP_DEFER_ACCEPT): one wake-up instead of two for a client
/// that speaks first. One that stays silent for `seconds` is handed over as it
/// is.
///
/// # Errors
/// The system's.
pub fn defer_accept(listener: impl AsFd, seconds: u32) -> io::Result<()> {
    set(
        listener.as_fd(),
        libc::IPPROTO_TCP,
        libc::TCP_DEFER_ACCEPT,
        seconds,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
    use std::net::{Ipv4Addr, SocketAddrV4};

    fn bound_port(option: impl Fn(BorrowedFd<'_>) -> io::Result<()>) -> u16 {
        let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        option(fd.as_fd()).unwrap();
        bind(&fd, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        SocketAddrV4::try_from(getsockname(&fd).unwrap())
            .unwrap()
            .port()
    }

    #[test]
    fn a_port_comes_late_or_out_of_the_range_asked_for() {
        assert_ne!(bound_port(|_| Ok(())), 0);
        assert_eq!(bound_port(bind_address_no_port), 0);
        let port = bound_port(|fd| local_port_range(fd, 40_000, 40_063));
        assert!((40_000..=40_063).contains(&port), "{port}");
    }
}
