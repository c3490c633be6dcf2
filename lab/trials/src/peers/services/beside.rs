//! The load beside a load: connections that wait for other locks, and somebody who reads the
//! metrics.

use anyhow::ensure;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
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
pub(super) fn wait(server: SocketAddr, waiters: usize) -> anyhow::Result<Vec<TcpStream>> {
    if waiters == 0 {
        return Ok(Vec::new());
    }
    jostle_sys::files::raise_descriptor_limit();
    let mut open = Vec::new();
    for waiter in 0..waiters + LINES.min(waiters) {
        let mut stream = TcpStream::connect(server)?;
        writeln!(stream, "LOCK waited-for-{}\r", waiter % LINES)?;
        open.push(stream);
    }
    let end = Instant::now() + PATIENCE;
    let waiting = format!("\nwaiters:{waiters}\r");
    loop {
        let info = answer(server, "INFO\r\nQUIT\r\n")?;
        if info.contains(&waiting) {
            return Ok(open);
        }
        ensure!(Instant::now() < end, "no {waiters} waiters in {info:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A server's answer before it closes the connection.
fn answer(server: SocketAddr, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(server)?;
    stream.write_all(request.as_bytes())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
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
                let request =
                    "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
                let _ = answer((Ipv4Addr::LOCALHOST, port).into(), request);
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
