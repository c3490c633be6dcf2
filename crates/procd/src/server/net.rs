//! Sockets that are listened on, and their options, which those that are
//! accepted inherit.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::net::{
    self, AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
/// The kernel cuts it to net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// A socket that is listened on.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) fd: OwnedFd,
    /// Where; for a Unix socket `None`.
    pub(super) address: Option<SocketAddr>,
    /// The socket file to remove at the end.
    file: Option<PathBuf>,
    closed: AtomicBool,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
    }
}

impl Listener {
    /// `patience` is how long a connection may stay silent before it is taken up.
    pub(super) fn tcp(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let family = if address.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let fd = net::socket_with(family, SocketType::STREAM, FLAGS, None)?;
        sockopt::set_socket_reuseaddr(&fd, true)?;
        sockopt::set_tcp_nodelay(&fd, true)?;
        sockopt::set_socket_keepalive(&fd, true)?;
        jostle_sys::socket::defer_accept(&fd, patience.as_secs().min(3600) as u32)?;
        net::bind(&fd, &address)?;
        net::listen(&fd, BACKLOG)?;
        let address = SocketAddr::try_from(net::getsockname(&fd)?).ok();
        Ok(Self {
            fd,
            address,
            file: None,
            closed: AtomicBool::new(false),
        })
    }

    /// `@NAME` is an abstract socket, which has neither file nor permissions.
    pub(super) fn unix(path: &Path, mode: u32) -> io::Result<Self> {
        if let Some(name) = path.as_os_str().as_bytes().strip_prefix(b"@") {
            let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
            net::bind(&fd, &SocketAddrUnix::new_abstract_name(name)?)?;
            net::listen(&fd, BACKLOG)?;
            return Ok(Self::without_address(fd, None));
        }
        // A socket that nobody answers is a dead engine's; one that is answered
        // is left alone.
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        match std::fs::symlink_metadata(path) {
            Ok(found) if std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()) => {
                std::fs::remove_file(path)?;
            }
            _ => {}
        }
        let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
        // The mode is set before anybody can connect: between bind and listen.
        net::bind(&fd, &SocketAddrUnix::new(path)?)?;
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, permissions)?;
        net::listen(&fd, BACKLOG)?;
        Ok(Self::without_address(fd, Some(path.to_owned())))
    }

    fn without_address(fd: OwnedFd, file: Option<PathBuf>) -> Self {
        Self {
            fd,
            address: None,
            file,
            closed: AtomicBool::new(false),
        }
    }

    pub(super) fn accept(&self) -> rustix::io::Result<OwnedFd> {
        net::accept_with(&self.fd, FLAGS)
    }

    /// Nobody is let in any more. Once: by the second time the socket's file may
    /// be a successor's.
    pub(super) fn close(&self) {
        if self.closed.swap(true, Relaxed) {
            return;
        }
        // It can only fail where nobody could connect anyway.
        let _ = net::shutdown(&self.fd, Shutdown::Both);
        if let Some(path) = &self.file {
            // If it is gone already, so much the better.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Raises the limit of open files to what is allowed; returns how many
/// connections fit, leaving `spare` for other files.
pub(super) fn connections_that_fit(wanted: usize, spare: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let needed = (wanted + spare) as u64;
    if limit.current.is_some_and(|current| current < needed) {
        let current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
        // If it fails, the limit that holds is read below.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current,
                maximum: limit.maximum,
            },
        );
    }
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(wanted, |current| {
        wanted.min((current as usize).saturating_sub(spare))
    })
}
