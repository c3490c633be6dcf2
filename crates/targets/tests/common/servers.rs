//! The servers of lock services: one of each for a whole test binary, on free
//! ports of the loopback address, gone with it.

use jostle_lockd::{Config, Server};
use jostle_targets::answering::Answering;
use jostle_targets::{Launcher, SetupError};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Launches servers as threads of the test.
#[derive(Debug)]
pub struct InProcess;

impl Launcher for InProcess {
    fn launch(&self, server: &str) -> Result<String, SetupError> {
        match server.split_once(':').map_or(server, |(name, _)| name) {
            "lockd" => Ok(jostled().0.clone()),
            "lockd+unix" => Ok(jostled().1.clone()),
            "echo" => Ok(answering().0.clone()),
            "echo+unix" => Ok(answering().1.clone()),
            other => Err(SetupError(format!("no {other} in these tests"))),
        }
    }

    fn answering_program(&self) -> Vec<String> {
        let script = "while read -r verb rest; do case $verb in \
                      HELLO) echo READY shared timeout;; A) echo G;; U) echo K;; esac; done";
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }
}

/// The argument with which a target finds its server or library, where it needs one.
pub fn argument(target: &str) -> Option<&'static str> {
    match target {
        "redis" => Some(redis()),
        "pipe" => Some(python_lock()),
        "lib" => Some(library()),
        _ => None,
    }
}

/// The example of own-locks/ that can do everything, compiled.
fn library() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../../own-locks");
        let path = format!(
            "{}/rwlock-{}.so",
            env!("CARGO_TARGET_TMPDIR"),
            std::process::id()
        );
        let status = Command::new("cc")
            .args(["-O2", "-shared", "-fPIC", "-I", header, "-o", &path])
            .arg(format!("{header}/examples/rwlock.c"))
            .status();
        assert!(
            status.unwrap().success(),
            "is the Debian package gcc installed?"
        );
        path
    })
}

/// A jostled: its TCP address, and the path of its Unix socket.
fn jostled() -> &'static (String, String) {
    static PLACE: OnceLock<(String, String)> = OnceLock::new();
    PLACE.get_or_init(|| {
        let path = format!(
            "{}/jostled-{}",
            env!("CARGO_TARGET_TMPDIR"),
            std::process::id()
        );
        let mut config = Config::embedded();
        config.unix = Some((path.clone().into(), 0o600));
        let mut server = Server::bind(config).unwrap();
        let address = server.addresses().next().unwrap().to_string();
        std::thread::spawn(move || {
            // Nobody ever writes to the other end: it runs as long as we do.
            let (stop, _never) = UnixStream::pair().unwrap();
            server.run(&stop).unwrap();
        });
        (address, path)
    })
}

/// A server that only answers, by its TCP address and by the path of its socket.
fn answering() -> &'static (String, String) {
    static PLACE: OnceLock<(String, String)> = OnceLock::new();
    PLACE.get_or_init(|| {
        let path = format!(
            "{}/echo-{}",
            env!("CARGO_TARGET_TMPDIR"),
            std::process::id()
        );
        let (tcp, address) = Answering::bind().unwrap();
        let unix = Answering::bind_unix(path.as_ref()).unwrap();
        for mut server in [tcp, unix] {
            std::thread::spawn(move || {
                let (stop, _never) = UnixStream::pair().unwrap();
                server.run(&stop).unwrap();
            });
        }
        (address.to_string(), path)
    })
}

/// A program that is a lock on a file in the test's own directory: one word, since
/// command lines of tests are split at white space.
fn python_lock() -> &'static str {
    // A lock of its own for each test: they run at the same time, each in its thread.
    thread_local!(static PROGRAM: OnceLock<&'static str> = const { OnceLock::new() });
    let make = || {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let place = env!("CARGO_TARGET_TMPDIR");
        let program = format!(
            "{place}/pipe-lock-{}",
            rustix::thread::gettid().as_raw_nonzero()
        );
        let python = format!("python3 '{root}/own-locks/pipe/python/file_lock.py'");
        let script = format!("#!/bin/sh\nexec {python} '{program}.lock'\n");
        std::fs::write(&program, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        program.leak() as &'static str
    };
    PROGRAM.with(|program| *program.get_or_init(make))
}

/// A Redis that keeps nothing on disk, as `//HOST:PORT`.
fn redis() -> &'static str {
    static PLACE: OnceLock<String> = OnceLock::new();
    PLACE.get_or_init(|| start_redis(""))
}

/// The same with a password, as `redis://HOST:PORT`, and a jostled of that kind.
pub fn guarded(password: &str) -> [String; 2] {
    let mut server = Server::bind(Config {
        password: Some(password.to_owned()),
        ..Config::embedded()
    })
    .unwrap();
    let address = server.addresses().next().unwrap();
    std::thread::spawn(move || {
        let (stop, _never) = UnixStream::pair().unwrap();
        server.run(&stop).unwrap();
    });
    let redis = start_redis(&format!("--requirepass {password}"));
    [format!("redis:{redis}"), format!("lockd://{address}")]
}

fn start_redis(options: &str) -> String {
    let port = free_port();
    // The shell ends the server when we end, whatever the way: its standard
    // input closes.
    let script = format!(
        "redis-server --port {port} --bind 127.0.0.1 --save '' --appendonly no {options} \
         >/dev/null & read -r never; kill $!"
    );
    Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .spawn()
        .map(std::mem::forget)
        .unwrap();
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "redis-server does not answer; is the Debian package redis-server installed?"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    format!("//127.0.0.1:{port}")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}
