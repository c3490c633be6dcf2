//! The interface between systemd and a service: readiness, and sockets that were opened
//! before the service started. As of systemd 252.

use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use listenfd::ListenFd;

/// The socket through which the service manager learns the service's state.
#[derive(Debug)]
pub struct Notifier {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Notifier {
    /// The one that `$NOTIFY_SOCKET` names, if any.
    #[must_use]
    pub fn from_env() -> Option<Self> {
        Self::new(&std::env::var("NOTIFY_SOCKET").ok()?)
    }

    fn new(name: &str) -> Option<Self> {
        let address = match name.strip_prefix('@') {
            Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name),
            None => SocketAddr::from_pathname(name),
        };
        Some(Self {
            socket: UnixDatagram::unbound().ok()?,
            address: address.ok()?,
        })
    }

    /// Clients are served.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// The settings are being read again; [`Notifier::ready`] follows.
    pub fn reloading(&self) {
        let micros = jostle_sys::clock::monotonic() / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// The daemon ends.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// A line for people.
    pub fn status(&self, text: &str) {
        self.send(&format!("STATUS={text}"));
    }

    fn send(&self, state: &str) {
        // A manager that does not listen must not keep the daemon from its work.
        let _ = self.socket.set_nonblocking(true);
        let _ = self.socket.send_to_addr(state.as_bytes(), &self.address);
    }
}

/// A socket that listens already.
#[derive(Debug)]
pub struct Inherited {
    /// The socket.
    pub fd: OwnedFd,
    /// Its `FileDescriptorName=`.
    pub name: String,
}

/// The sockets that systemd has opened for this process (`$LISTEN_FDS`).
///
/// # Errors
/// A descriptor is not a stream socket that listens on TCP or a path.
pub fn inherited() -> std::io::Result<Vec<Inherited>> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut found = ListenFd::from_env();
    (0..found.len())
        .map(|index| {
            let fd: OwnedFd = match found.take_tcp_listener(index) {
                Ok(Some(listener)) => listener.into(),
                _ => {
                    let listener = found.take_unix_listener(index)?;
                    listener.ok_or(std::io::ErrorKind::InvalidInput)?.into()
                }
            };
            let name = names.next().unwrap_or_default().to_owned();
            Ok(Inherited { fd, name })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_arrive_at_a_path_and_at_an_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("jostled-test-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, named) in [
            (
                UnixDatagram::bind(&path).unwrap(),
                path.to_str().unwrap().to_owned(),
            ),
            (
                UnixDatagram::bind_addr(&abstract_address).unwrap(),
                format!("@{name}"),
            ),
        ] {
            let notifier = Notifier::new(&named).unwrap();
            let mut heard = Vec::new();
            notifier.ready();
            notifier.reloading();
            notifier.stopping();
            for _ in 0..3 {
                let mut bytes = [0; 200];
                let length = socket.recv(&mut bytes).unwrap();
                heard.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
            }
            assert_eq!((&*heard[0], &*heard[2]), ("READY=1", "STOPPING=1"));
            let time = heard[1]
                .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
                .unwrap();
            assert!(time.parse::<u64>().unwrap() > 0);
        }
        // Nobody listens: nothing happens.
        Notifier::new("/nonexistent/socket").unwrap().ready();
    }
}
