//! Readers of the metrics that are slow, silent or many, beside one that is prompt.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};

use super::{activated, get};
use crate::common::{Daemon, eventually};

/// Connections to the metrics that a daemon keeps at the same time.
const KEPT: usize = 16;
/// Bytes of a request that it keeps.
const REQUEST_MAX: usize = 8192;
const ASKED: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

/// A reader for whom the kernel keeps as little as it can, and less than a page.
fn narrow(port: u16) -> TcpStream {
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&fd, 1).unwrap();
    connect(&fd, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).unwrap();
    let stream = TcpStream::from(fd);
    stream.set_nonblocking(true).unwrap();
    stream
}

fn open_files(daemon: &Daemon) -> usize {
    let path = format!("/proc/{}/fd", daemon.child.id());
    std::fs::read_dir(path).unwrap().count()
}

#[track_caller]
fn assert_whole(answer: &str) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    assert_eq!(length.unwrap().parse(), Ok(body.len()));
}

#[test]
fn readers_that_ask_and_do_not_read_keep_nobody_from_the_metrics() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap();
    // Its connections have the same bound: the daemon itself has to keep what is not
    // read of a page.
    sockopt::set_socket_send_buffer_size(&metrics, 1).unwrap();
    let port = metrics.local_addr().unwrap().port();
    let daemon = activated(tcp.into(), metrics.into(), "main:metrics", "");
    let mut worker = daemon.client();
    assert_whole(&get(port, "/metrics"));
    let memory = worker.info("used_memory_rss");
    let files = open_files(&daemon);

    let half = format!(
        "GET /metrics HTTP/1.1\r\nX: {}",
        "x".repeat(REQUEST_MAX - 100)
    );
    let mut slow = Vec::new();
    for request in [ASKED, &half, ""] {
        for _ in 0..100 {
            let mut stream = narrow(port);
            stream.write_all(request.as_bytes()).unwrap();
            slow.push(stream);
        }
        // They are there, and have not been answered in full.
        eventually("as many as may be are kept", || {
            open_files(&daemon) == files + KEPT
        });
        assert_whole(&get(port, "/metrics"));
        assert_eq!(worker.say("PING"), "PONG");
        assert!(open_files(&daemon) <= files + KEPT);
    }
    // A request without end is kept up to a bound.
    let mut endless = TcpStream::connect(("127.0.0.1", port)).unwrap();
    endless.write_all(&[b'x'; REQUEST_MAX]).unwrap();
    let mut answer = String::new();
    endless.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let grown = worker.info("used_memory_rss").saturating_sub(memory);
    assert!(grown < 1 << 20, "{grown} bytes for slow readers");
    // Their time ends, though they send a byte now and then.
    eventually("all are gone", || {
        for stream in &mut slow {
            let _ = stream.write(b"x");
        }
        open_files(&daemon) == files
    });
    assert_whole(&get(port, "/metrics"));
}

#[test]
fn who_has_asked_is_answered_though_many_come_behind() {
    let daemon = Daemon::start(&["--metrics", "127.0.0.1:0"]);
    let port = daemon.port_of("metrics on http://");
    // All of them are there when the daemon looks.
    daemon.signal("-STOP");
    let mut prompt = TcpStream::connect(("127.0.0.1", port)).unwrap();
    prompt.write_all(ASKED.as_bytes()).unwrap();
    let slow: Vec<_> = (0..40).map(|_| narrow(port)).collect();
    daemon.signal("-CONT");
    prompt
        .set_read_timeout(Some(Duration::from_secs(120)))
        .unwrap();
    let mut answer = String::new();
    prompt.read_to_string(&mut answer).unwrap();
    assert_whole(&answer);
    drop(slow);
}
