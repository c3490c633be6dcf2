//! An encrypted connection that is read and written as a socket is: blocking or not, with
//! the socket's own time limits.

use jostle_sys::signal;
use jostle_sys::waited::{Patience, Waited};
use rustls::ClientConnection;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A connection after its handshake.
#[derive(Debug)]
pub struct TlsStream {
    socket: TcpStream,
    /// Its keys change with each record, in both directions.
    connection: Mutex<ClientConnection>,
}

impl TlsStream {
    /// Shakes hands on a blocking socket.
    ///
    /// # Errors
    /// TimedOut if it takes longer than `patience`; what TLS says against the server; the
    /// system's.
    pub(super) fn shake(
        patience: Duration,
        socket: TcpStream,
        mut connection: ClientConnection,
    ) -> io::Result<TlsStream> {
        let usual = socket.read_timeout()?;
        socket.set_read_timeout(Some(Patience::look(patience)))?;
        let mut waited = Waited::begin();
        while connection.is_handshaking() {
            match step(&socket, &mut connection) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted && !signal::interrupted() => {}
                // The socket's limit, at which we look up.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            // A server that sends a few bytes at a time is waited for no longer.
            if waited.so_far() > patience {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        send(&socket, &mut connection)?;
        socket.set_read_timeout(usual)?;
        Ok(TlsStream {
            socket,
            connection: Mutex::new(connection),
        })
    }

    /// The socket below.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether decrypted bytes wait to be read, which polling the socket would not show.
    pub fn has_more(&self) -> bool {
        let mut connection = self.lock();
        let state = connection.process_new_packets();
        state.is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
    }

    /// Sends this, and in the same piece that no more follows.
    ///
    /// # Errors
    /// The system's.
    pub fn end(&self, last: &[u8]) -> io::Result<()> {
        let connection = &mut *self.lock();
        connection.writer().write_all(last)?;
        connection.send_close_notify();
        send(&self.socket, connection)
    }

    fn lock(&self) -> MutexGuard<'_, ClientConnection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends what is due, and takes in what one read brings.
fn step(socket: &TcpStream, connection: &mut ClientConnection) -> io::Result<()> {
    send(socket, connection)?;
    if connection.read_tls(&mut &*socket)? == 0 {
        return Err(io::Error::new(
            ErrorKind::UnexpectedEof,
            "it closed the connection",
        ));
    }
    take_in(socket, connection)
}

/// Decrypts what has come.
fn take_in(socket: &TcpStream, connection: &mut ClientConnection) -> io::Result<()> {
    connection.process_new_packets().map(drop).map_err(|error| {
        // Sends the server an alert with the cause, if it still reads.
        let _ = connection.write_tls(&mut &*socket);
        io::Error::new(ErrorKind::InvalidData, error)
    })
}

fn send(socket: &TcpStream, connection: &mut ClientConnection) -> io::Result<()> {
    while connection.wants_write() {
        match connection.write_tls(&mut &*socket) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            sent => drop(sent?),
        }
    }
    Ok(())
}

impl Read for &TlsStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let connection = &mut *self.lock();
        loop {
            match connection.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The peer closed without ending TLS. That counts as a normal end, as for a
                // plain socket.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            // The end shows in the next turn.
            connection.read_tls(&mut &self.socket)?;
            take_in(&self.socket, connection)?;
            // An answer of TLS's own, such as new keys; what does not fit now goes with
            // the next request.
            match send(&self.socket, connection) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }
}

impl Write for &TlsStream {
    /// Encrypts the bytes that it accepts. Encrypted bytes for which the socket has no room
    /// stay until [`Write::flush`].
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let connection = &mut *self.lock();
        send(&self.socket, connection)?;
        let count = connection.writer().write(bytes)?;
        match send(&self.socket, connection) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        send(&self.socket, &mut self.lock())
    }
}

#[cfg(test)]
mod live_tests {
    use super::*;
    use jostle_sys::waited::leaping;
    use rustls::{ClientConfig, RootCertStore, crypto};
    use std::net::TcpListener;
    use std::sync::Arc;

    #[test]
    fn a_server_that_says_nothing_or_drips_is_given_up() {
        for drips in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            let served = std::thread::spawn(move || {
                // The head of a record of 16 KiB, and its first bytes one by one.
                let mut written = server.write_all(b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xfb");
                while drips && written.is_ok() {
                    std::thread::sleep(Duration::from_millis(5));
                    written = server.write_all(b"\0");
                }
                server
            });
            let provider = Arc::new(crypto::ring::default_provider());
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth();
            let name = "localhost".try_into().unwrap();
            let connection = ClientConnection::new(Arc::new(config), name).unwrap();
            let patience = Duration::from_secs(1);
            let (late, looks) = leaping(|| TlsStream::shake(patience, client, connection));
            assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
            // Its begin, ten looks, and one that is longer.
            assert_eq!(looks, 12);
            served.join().unwrap();
        }
    }
}
