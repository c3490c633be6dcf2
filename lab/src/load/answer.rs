//! A server that does nothing but answer: it finds where each request ends, as
//! any server must, and says 1. The bound for a server on this path.

use jostle_resp::request::{Args, Limits, Progress, decode};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// The listener among the events; connections are numbered from 0.
const LISTENER: u64 = u64::MAX;

struct Connection {
    stream: TcpStream,
    /// Start of a request whose rest has not come.
    partial: Vec<u8>,
}

/// Serves until it is killed. Prints its port when clients can connect.
pub fn run() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(
        &epoll,
        &listener,
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )?;
    println!("ready {}", listener.local_addr()?.port());
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events = Vec::with_capacity(1024);
    let mut buffer = vec![0; 64 * 1024];
    let (mut args, mut out) = (Args::new(), Vec::new());
    loop {
        events.clear();
        epoll::wait(&epoll, spare_capacity(&mut events), None)?;
        for event in &events {
            if event.data.u64() == LISTENER {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                let number = EventData::new_u64(connections.len() as u64);
                epoll::add(&epoll, &stream, number, EventFlags::IN)?;
                connections.push(Some(Connection {
                    stream,
                    partial: Vec::new(),
                }));
                continue;
            }
            let slot = &mut connections[event.data.u64() as usize];
            let served = slot
                .as_mut()
                .is_some_and(|connection| connection.serve(&mut buffer, &mut args, &mut out));
            if !served {
                *slot = None;
            }
        }
    }
}

impl Connection {
    /// Answers what one read gives; false when the client is gone.
    fn serve(&mut self, buffer: &mut [u8], args: &mut Args, out: &mut Vec<u8>) -> bool {
        let kept = self.partial.len();
        buffer[..kept].copy_from_slice(&self.partial);
        let read = match self.stream.read(&mut buffer[kept..]) {
            Ok(read) if read > 0 => read,
            _ => return false,
        };
        let bytes = &buffer[..kept + read];
        let mut at = 0;
        out.clear();
        loop {
            match decode(&bytes[at..], Limits::default(), args) {
                Ok(Progress::Complete { used }) => {
                    at += used;
                    out.extend_from_slice(b":1\r\n");
                }
                Ok(Progress::Incomplete { .. }) => break,
                Err(_) => return false,
            }
        }
        self.partial.clear();
        self.partial.extend_from_slice(&bytes[at..]);
        // May block: clients bound what they have in flight, so that the
        // answers fit into the socket.
        self.stream.write_all(out).is_ok()
    }
}
