//! client-rs load PORT CONNECTIONS SECONDS: a thread for each connection. client-rs serve PORT TURNS:
//! a thread for each connection, which turns so often for each request, in about a nanosecond each.
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

fn host() -> String {
    std::env::var("CASE_HOST").unwrap_or("127.0.0.1".to_owned())
}

fn load(port: u16, connections: u64, seconds: u64) {
    let end = Instant::now() + Duration::from_secs(seconds);
    let done = AtomicU64::new(0);
    let one = || -> std::io::Result<()> {
        let (mut stream, mut answer) = (TcpStream::connect((&*host(), port))?, [0; 4096]);
        while Instant::now() < end {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")?;
            if stream.read(&mut answer)? == 0 {
                break;
            }
            done.fetch_add(1, Relaxed);
        }
        Ok(())
    };
    let thread = || {
        while Instant::now() < end {
            if one().is_err() {
                thread::sleep(Duration::from_millis(10));
            }
        }
    };
    thread::scope(|scope| (0..connections).for_each(|_| drop(scope.spawn(thread))));
    println!("{} requests", done.load(Relaxed));
}

fn serve(port: u16, turns: u64) -> std::io::Result<()> {
    for stream in TcpListener::bind((&*host(), port))?.incoming() {
        let mut stream = stream?;
        thread::spawn(move || {
            let mut request = [0; 4096];
            while stream.read(&mut request).is_ok_and(|length| length > 0) {
                (0..turns).for_each(|turn| {
                    black_box(turn);
                });
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n";
                if stream.write_all(answer).is_err() {
                    break;
                }
            }
        });
    }
    Ok(())
}

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let number = |nth: usize| words[nth].parse().expect("a number");
    match words[1].as_str() {
        "serve" => serve(number(2) as u16, number(3)),
        _ => {
            load(number(2) as u16, number(3), number(4));
            Ok(())
        }
    }
}
