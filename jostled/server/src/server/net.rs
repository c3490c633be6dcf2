//! Sockets that are listened on, and the options of those that are accepted.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jostle_daemon::socket::{self, FLAGS};
use rustix::net::{self, sockopt};
use serde::{Deserialize, Serialize};

use crate::users::Users;

/// The kind of connections that a listener accepts. TLS stands last, so that the others
/// have the same numbers without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Door {
    Tcp,
    Unix,
    Metrics,
    #[cfg(feature = "tls")]
    Tls,
}

/// A socket that is listened on.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) fd: OwnedFd,
    pub(crate) door: Door,
    /// Where; for a Unix socket `None`.
    pub(crate) address: Option<SocketAddr>,
    /// The socket file to remove at the end.
    pub(crate) file: Option<PathBuf>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.file {
            // If it is gone already, so much the better.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Listener {
    /// A socket with this address, which does not listen yet.
    pub(crate) fn bind(address: SocketAddr, door: Door) -> io::Result<Self> {
        let (fd, address) = socket::bind(address, |_| Ok(()))?;
        Ok(Self {
            fd,
            door,
            address,
            file: None,
        })
    }

    /// Lets clients in.
    pub(crate) fn open(&self) -> io::Result<()> {
        socket::listen(&self.fd)
    }

    pub(crate) fn unix(path: &Path, mode: u32) -> io::Result<Self> {
        Ok(Self {
            fd: socket::unix(path, mode)?,
            door: Door::Unix,
            address: None,
            file: Some(path.to_owned()),
        })
    }

    /// A socket that listens already. Its address and its name decide what it is for.
    pub(crate) fn inherited(fd: OwnedFd, name: &str) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let address = SocketAddr::try_from(net::getsockname(&fd)?).ok();
        let door = match (name, address) {
            (_, None) => Door::Unix,
            ("metrics", _) => Door::Metrics,
            #[cfg(feature = "tls")]
            ("tls", _) => Door::Tls,
            _ => Door::Tcp,
        };
        Ok(Self {
            fd,
            door,
            address,
            file: None,
        })
    }

    /// Its address, if other machines reach it and not all users need passwords.
    pub(crate) fn unguarded(&self, users: &Users) -> Option<SocketAddr> {
        unguarded(self.door, self.address, users)
    }

    /// The next connection and where it comes from.
    pub(crate) fn accept(&self) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
        if self.door == Door::Unix {
            return Ok((net::accept_with(&self.fd, FLAGS)?, None));
        }
        let (fd, from) = net::acceptfrom_with(&self.fd, FLAGS)?;
        Ok((fd, from.and_then(|from| SocketAddr::try_from(from).ok())))
    }
}

/// See [`Listener::unguarded`].
pub(crate) fn unguarded(
    door: Door,
    address: Option<SocketAddr>,
    users: &Users,
) -> Option<SocketAddr> {
    let public = |address: &SocketAddr| !jostle_daemon::address::is_loopback(address);
    let serves = door != Door::Metrics && !users.all_need_passwords();
    address.filter(public).filter(|_| serves)
}

/// Probes that may stay unanswered.
const PROBES: u32 = 3;

/// Whole seconds are what the kernel takes; 60 s of silence, then 10 s each.
fn between_probes(keepalive: Duration) -> Duration {
    Duration::from_secs(keepalive.as_secs().div_ceil(6).max(1))
}

/// After how long a connection is closed whose client has not been heard of.
pub(crate) fn given_up_after(keepalive: Duration) -> Duration {
    keepalive + between_probes(keepalive) * PROBES
}

/// Makes replies leave at once, and detects a peer whose host is gone: by probes while
/// nothing is sent, by unacknowledged data otherwise, after the same time.
pub(crate) fn tune(fd: impl AsFd, keepalive: Duration) -> io::Result<()> {
    let fd = fd.as_fd();
    sockopt::set_tcp_nodelay(fd, true)?;
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, keepalive)?;
    sockopt::set_tcp_keepintvl(fd, between_probes(keepalive))?;
    sockopt::set_tcp_keepcnt(fd, PROBES)?;
    let ms = u32::try_from(given_up_after(keepalive).as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(fd, ms)?;
    Ok(())
}
