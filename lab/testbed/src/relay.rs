//! A server that only relays: who releases the one lock hands it to the next in
//! line, and that is all it knows. The bound for hand-offs on this path, for 10
//! waiters as for 10,000: what the kernel's sockets cost grows for it, too. It
//! never sleeps, so that nobody can answer sooner. A client asks it as it asks a jostled,
//! and may not have more than one request on its way.

use jostle_resp::request::{Args, Limits, Progress, decode};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};

/// The listener among the events; connections are numbered from 0.
const LISTENER: u64 = u64::MAX;

/// Connections, who waits, and whether somebody holds the lock.
#[derive(Default)]
struct Relay {
    connections: Vec<Option<TcpStream>>,
    waiting: VecDeque<usize>,
    held: bool,
    grants: u64,
    args: Args,
}

/// Serves at this port of the loopback address until it is killed.
///
/// # Errors
/// The system's, of the server itself; a client's end its connection.
pub fn run(port: u16) -> io::Result<()> {
    // If it stays, accept() will tell.
    jostle_sys::files::raise_descriptor_limit();
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let number = EventData::new_u64(LISTENER);
    epoll::add(&epoll, &listener, number, EventFlags::IN)?;
    let mut relay = Relay::default();
    let mut events = Vec::with_capacity(1024);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        events.clear();
        epoll::wait(
            &epoll,
            spare_capacity(&mut events),
            Some(&Timespec::default()),
        )?;
        for event in &events {
            if event.data.u64() == LISTENER {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let number = EventData::new_u64(relay.connections.len() as u64);
                epoll::add(&epoll, &stream, number, EventFlags::IN | EventFlags::ET)?;
                relay.connections.push(Some(stream));
                continue;
            }
            let index = event.data.u64() as usize;
            let Some(stream) = &mut relay.connections[index] else {
                continue;
            };
            match stream.read(&mut buffer) {
                Ok(read) if read > 0 => relay.serve(index, &buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => relay.connections[index] = None,
            }
        }
    }
}

impl Relay {
    /// Serves what one read gave: whole requests, as clients write them at once.
    fn serve(&mut self, index: usize, mut bytes: &[u8]) {
        let mut replies = Vec::new();
        while let Ok(Progress::Complete { used }) = decode(bytes, Limits::default(), &mut self.args)
        {
            let command = self.args.get(bytes, 0);
            match command {
                Some(b"UNLOCK") => {
                    replies.extend_from_slice(b":1\r\n");
                    self.held = false;
                }
                Some(b"INFO") => replies.extend_from_slice(&self.info()),
                _ => self.waiting.push_back(index),
            }
            bytes = &bytes[used..];
            if !self.held
                && let Some(next) = self.waiting.pop_front()
            {
                self.held = true;
                self.grants += 1;
                if next == index {
                    replies.extend_from_slice(b":7\r\n");
                } else {
                    self.send(next, b":7\r\n");
                }
            }
        }
        self.send(index, &replies);
    }

    /// The relay's answer to a client that asks before and after a run.
    fn info(&self) -> Vec<u8> {
        let (pid, grants) = (std::process::id(), self.grants);
        let text = format!("process_id:{pid}\r\ngrants:{grants}\r\n");
        format!("${}\r\n{text}\r\n", text.len()).into_bytes()
    }

    fn send(&mut self, index: usize, bytes: &[u8]) {
        let Some(stream) = &mut self.connections[index] else {
            return;
        };
        if !bytes.is_empty() && stream.write_all(bytes).is_err() {
            self.connections[index] = None;
        }
    }
}

#[cfg(test)]
mod live_tests {
    use super::*;

    #[test]
    fn the_lock_goes_to_the_next_in_line() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut relay = Relay::default();
        let mut clients: Vec<TcpStream> = (0..3)
            .map(|_| {
                let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                relay.connections.push(Some(listener.accept().unwrap().0));
                client
            })
            .collect();
        let lock: &[u8] = b"*2\r\n$4\r\nLOCK\r\n$1\r\na\r\n";
        let unlock: &[u8] = b"*2\r\n$6\r\nUNLOCK\r\n$1\r\na\r\n";
        let both = [unlock, lock].concat();
        for (who, request) in [(0, lock), (1, lock), (2, lock), (0, &both), (1, unlock)] {
            relay.serve(who, request);
        }
        for (client, expected) in clients
            .iter_mut()
            .zip([":7\r\n:1\r\n", ":7\r\n:1\r\n", ":7\r\n"])
        {
            let mut bytes = vec![0; expected.len()];
            client.read_exact(&mut bytes).unwrap();
            assert_eq!(String::from_utf8_lossy(&bytes), expected);
        }
        // The first one, which has asked again, comes after the third.
        relay.serve(2, unlock);
        let mut bytes = [0; 4];
        clients[0].read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b":7\r\n");
        // Who asks for figures gets in nobody's way.
        relay.serve(1, b"*1\r\n$4\r\nINFO\r\n");
        let mut bytes = [0; 64];
        let read = clients[1].read(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes[..read]);
        assert!(text.ends_with("\r\ngrants:4\r\n\r\n"), "{text:?}");
    }
}
