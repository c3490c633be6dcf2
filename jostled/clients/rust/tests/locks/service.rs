//! A jostled of the test's own (`$JOSTLED`), and a link to it that can be cut.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Waits for something that must come true soon.
#[track_caller]
pub fn eventually(what: &str, mut test: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !test() {
        assert!(Instant::now() < end, "not within 20 s: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Killed when dropped.
pub struct Daemon {
    child: Child,
    pub port: u16,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    pub fn start() -> Daemon {
        Daemon::with("JOSTLED_PASSWORD", None)
    }

    /// One with this variable, or without it.
    pub fn with(variable: &str, value: Option<&str>) -> Daemon {
        let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../target/debug/jostled");
        let program = std::env::var("JOSTLED").unwrap_or_else(|_| built.into());
        let mut child = Command::new(&program)
            .args(["--data", "none", "--listen", "127.0.0.1:0"])
            .env_remove(variable)
            .envs(value.map(|value| (variable, value)))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut all = String::new();
        while !all.ends_with("ready\n") {
            assert!(log.read_line(&mut all).unwrap() > 0, "{program}: {all}");
        }
        let (_, port) = all.split_once("listening on 127.0.0.1:").unwrap();
        let port = port.lines().next().unwrap().parse().unwrap();
        thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Daemon { child, port }
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let kill = Command::new("kill").args([signal, &pid]).status();
        assert!(kill.unwrap().success());
    }

    /// The reply to one command, as the text of RESP2.
    pub fn ask(&self, words: &str) -> String {
        let mut plain = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        plain
            .write_all(format!("{words}\r\nQUIT\r\n").as_bytes())
            .unwrap();
        let mut reply = String::new();
        plain.read_to_string(&mut reply).unwrap();
        reply
    }

    /// A figure of INFO.
    #[track_caller]
    pub fn info(&self, name: &str) -> u64 {
        let reply = self.ask("INFO");
        let figure = reply
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        figure.unwrap().parse().unwrap()
    }

    /// Waits until nobody holds a lock or waits for one.
    #[track_caller]
    pub fn settles(&self) {
        eventually("no holds", || self.info("holds") == 0);
        eventually("no waiters", || self.info("waiters") == 0);
    }
}

/// A way to the daemon that stops forwarding when it is cut, as a dead network does.
pub struct Link {
    pub port: u16,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    cut: bool,
    /// The request whose answer is to be lost.
    swallow: Option<String>,
    opened: usize,
}

impl Link {
    pub fn start(daemon: &Daemon) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = Link {
            port: listener.local_addr().unwrap().port(),
            state: Arc::default(),
        };
        let (state, to) = (Arc::clone(&link.state), daemon.port);
        // Ends with the test's process.
        thread::spawn(move || {
            for near in listener.incoming() {
                state.0.lock().unwrap().opened += 1;
                let state = Arc::clone(&state);
                thread::spawn(move || carry(near.unwrap(), to, &state));
            }
        });
        link
    }

    pub fn set(&self, cut: bool) {
        self.state.0.lock().unwrap().cut = cut;
        self.state.1.notify_all();
    }

    /// Once: forwards a request that has this text, and cuts its connection in place of
    /// the answer, when there is one.
    pub fn lose_answer_to(&self, request: &str) {
        self.state.0.lock().unwrap().swallow = Some(request.to_owned());
    }

    pub fn opened(&self) -> usize {
        self.state.0.lock().unwrap().opened
    }
}

fn await_whole((state, changed): &(Mutex<State>, Condvar)) {
    let cut = |state: &mut State| state.cut;
    drop(changed.wait_while(state.lock().unwrap(), cut).unwrap());
}

/// Whether this is the request whose answer is to be lost.
fn swallows(state: &(Mutex<State>, Condvar), bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let mut state = state.0.lock().unwrap();
    let found = state.swallow.take_if(|request| text.contains(&**request));
    found.is_some()
}

fn carry(near: TcpStream, to: u16, state: &Arc<(Mutex<State>, Condvar)>) {
    await_whole(state);
    let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else {
        return;
    };
    let (back, here) = (far.try_clone().unwrap(), near.try_clone().unwrap());
    let other = Arc::clone(state);
    let loses = Arc::new(AtomicBool::new(false));
    let lost = Arc::clone(&loses);
    thread::spawn(move || pump(back, here, &other, &lost));
    pump(near, far, state, &loses);
}

/// Forwards one direction until it ends; both end with it, as for a killed client.
fn pump(
    mut from: TcpStream,
    mut to: TcpStream,
    state: &(Mutex<State>, Condvar),
    loses: &AtomicBool,
) {
    let mut buffer = [0; 65536];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        await_whole(state);
        if loses.load(SeqCst) {
            break; // This is the answer.
        }
        if swallows(state, &buffer[..length]) {
            loses.store(true, SeqCst);
        }
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    await_whole(state);
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
