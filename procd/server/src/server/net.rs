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

use jostle_daemon::socket::{self, FLAGS};
use rustix::net::{self, Shutdown, sockopt};

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
        let (fd, address) = socket::tcp(address, |fd| {
            sockopt::set_tcp_nodelay(fd, true)?;
            sockopt::set_socket_keepalive(fd, true)?;
            jostle_sys::socket::defer_accept(fd, patience.as_secs().min(3600) as u32)
        })?;
        Ok(Self::new(fd, address, None))
    }

    /// `@NAME` is an abstract socket, which has neither file nor permissions.
    pub(super) fn unix(path: &Path, mode: u32) -> io::Result<Self> {
        match path.as_os_str().as_bytes().strip_prefix(b"@") {
            Some(name) => Ok(Self::new(socket::unix_abstract(name)?, None, None)),
            None => {
                let fd = socket::unix(path, mode)?;
                Ok(Self::new(fd, None, Some(path.to_owned())))
            }
        }
    }

    fn new(fd: OwnedFd, address: Option<SocketAddr>, file: Option<PathBuf>) -> Self {
        Self {
            fd,
            address,
            file,
            closed: AtomicBool::new(false),
        }
    }

    pub(super) fn accept(&self) -> rustix::io::Result<OwnedFd> {
        net::accept_with(&self.fd, FLAGS)
    }

    /// Stops accepting connections. Only the first call has an effect: later the
    /// socket's file may be a successor's.
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
