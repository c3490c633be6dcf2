//! Sockets that are listened on.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

/// Sockets do not block, and programs that are started do not inherit them.
pub const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// The kernel cuts it to net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// Listens for TCP; `set` sets options of the socket before. Also returns the address
/// with the port that the kernel chose.
///
/// # Errors
/// The system's.
pub fn tcp(
    address: SocketAddr,
    set: impl FnOnce(&OwnedFd) -> io::Result<()>,
) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
    let bound = bind(address, set)?;
    listen(&bound.0)?;
    Ok(bound)
}

/// Accepts connections from now on.
///
/// # Errors
/// The system's; `AddrInUse` if another socket does so there.
pub fn listen(fd: &OwnedFd) -> io::Result<()> {
    Ok(net::listen(fd, BACKLOG)?)
}

/// Takes an address without listening there: clients are refused.
///
/// # Errors
/// The system's; `AddrInUse` if another socket listens there.
pub fn bind(
    address: SocketAddr,
    set: impl FnOnce(&OwnedFd) -> io::Result<()>,
) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let fd = net::socket_with(family, SocketType::STREAM, FLAGS, None)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    set(&fd)?;
    net::bind(&fd, &address)?;
    let address = SocketAddr::try_from(net::getsockname(&fd)?).ok();
    Ok((fd, address))
}

/// Listens at a socket file with these permissions, which the caller removes at the end.
///
/// # Errors
/// The system's; `AddrInUse` if a process answers at this path.
pub fn unix(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    // A socket that nobody answers is a dead daemon's; one that is answered
    // is left alone.
    if UnixStream::connect(path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path)?,
        _ => {}
    }
    let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    // The mode is set before anybody can connect: between bind and listen.
    net::bind(&fd, &SocketAddrUnix::new(path)?)?;
    set_mode(path, mode)?;
    net::listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// Sets the permissions of a socket file. Where its directory belongs to another user, that
/// user can put a link in its place, which is not followed.
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let found = fs::open(
        path,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let kind = FileType::from_raw_mode(fs::fstat(&found)?.st_mode);
    if kind != FileType::Socket {
        let text = format!("{} is not the socket that was made there", path.display());
        return Err(io::Error::other(text));
    }
    // A descriptor of O_PATH cannot be passed to fchmod(2).
    let itself = format!("/proc/self/fd/{}", found.as_raw_fd());
    std::fs::set_permissions(itself, std::fs::Permissions::from_mode(mode))
}

/// Listens at an abstract name, which has neither file nor permissions.
///
/// # Errors
/// The system's.
pub fn unix_abstract(name: &[u8]) -> io::Result<OwnedFd> {
    let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    net::bind(&fd, &SocketAddrUnix::new_abstract_name(name)?)?;
    net::listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// The path and the permissions of a socket file: octal digits, or its owner alone.
///
/// # Errors
/// In words for the user.
pub fn with_mode(path: PathBuf, digits: Option<&str>) -> Result<(PathBuf, u32), String> {
    Ok((path, mode(digits.unwrap_or("600"))?))
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(format!("`{text}` is not a mode such as 600 or 660")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_socket_is_replaced_and_one_that_is_answered_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let first = unix(&path, 0o600).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let refused = unix(&path, 0o600).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        assert!(UnixStream::connect(&path).is_ok());
        drop(first);
        let _second = unix(&path, 0o660).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "kept").unwrap();
        assert!(unix(file.path(), 0o600).is_err());
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "kept");
    }

    #[test]
    fn a_link_in_the_place_of_a_socket_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (victim, link) = (
            directory.path().join("victim"),
            directory.path().join("link"),
        );
        let _listens = unix(&victim, 0o600).unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        set_mode(&link, 0o666).unwrap_err();
        let mode = std::fs::metadata(&victim).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_mode_is_three_octal_digits_at_most() {
        assert_eq!(mode("600"), Ok(0o600));
        for wrong in ["8", "7777", "", "-1", "rw"] {
            assert!(mode(wrong).is_err(), "{wrong}");
        }
    }

    mod live_tests {
        use super::*;

        #[test]
        fn the_kernel_s_port_is_told_and_options_are_set_before() {
            let mut asked = false;
            let (fd, address) = tcp("127.0.0.1:0".parse().unwrap(), |fd| {
                asked = true;
                Ok(sockopt::set_tcp_nodelay(fd, true)?)
            })
            .unwrap();
            assert!(asked && sockopt::tcp_nodelay(&fd).unwrap());
            let address = address.unwrap();
            assert!(address.port() > 0);
            assert!(std::net::TcpStream::connect(address).is_ok());
        }
    }
}
