//! What goes on beside a load: connections that wait for other locks, and somebody who
//! reads the metrics.

use anyhow::{bail, ensure};
use jostle_resp::Value;
use jostle_resp::request::encode;
use jostle_resp::value::ValueLimits;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Waiters stand in this many lines.
const LINES: usize = 10;
/// How often the metrics are read.
const SCRAPE_EVERY: Duration = Duration::from_millis(100);
/// A server that has not queued all waiters by then hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connections that wait for locks until they are dropped.
pub(super) fn wait(port: u16, waiters: usize) -> anyhow::Result<Vec<TcpStream>> {
    jostle_sys::files::raise_descriptor_limit();
    let mut open = Vec::new();
    for waiter in 0..waiters + LINES.min(waiters) {
        let mut stream = connect(port)?;
        let name = format!("waited for {}", waiter % LINES);
        let mut request = Vec::new();
        encode(&mut request, &[b"LOCK", name.as_bytes()]);
        stream.write_all(&request)?;
        open.push(stream);
    }
    if waiters == 0 {
        return Ok(open);
    }
    let end = Instant::now() + PATIENCE;
    loop {
        let info = ask(&mut connect(port)?, &[b"INFO"])?;
        let line = format!("\nwaiters:{waiters}\r");
        if info.as_text().is_some_and(|text| text.contains(&line)) {
            return Ok(open);
        }
        ensure!(Instant::now() < end, "no {waiters} waiters in {info:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn connect(port: u16) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// One request and its reply.
fn ask(stream: &mut TcpStream, words: &[&[u8]]) -> anyhow::Result<Value> {
    let mut request = Vec::new();
    encode(&mut request, words);
    stream.write_all(&request)?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        if let Some((value, _)) = Value::decode(&bytes, ValueLimits::default())? {
            if let Value::Error(text) = value {
                bail!("the server says: {text}");
            }
            return Ok(value);
        }
        let read = stream.read(&mut buffer)?;
        ensure!(read > 0, "the server closed the connection");
        bytes.extend_from_slice(&buffer[..read]);
    }
}

/// Reads the metrics over and over until it is dropped.
pub(super) struct Reader {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// From the server whose metrics are at this port.
    pub(super) fn start(port: u16) -> Reader {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                // What fails here shows in the server's count of scrapes, not in the load.
                let _ = read(port);
                std::thread::sleep(SCRAPE_EVERY);
            }
        });
        Reader {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn read(port: u16) -> std::io::Result<usize> {
    let mut stream = connect(port)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.read_to_end(&mut Vec::new())
}
