//! A daemon that can be killed and started again, and the program.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use jostle_lockd::{Server, Settings};

/// The settings of the daemon that this process is to be, as TOML would have them: the port,
/// the data directory and the file of its password, if it has one.
const DAEMON: &str = "JOSTLE_TEST_DAEMON";

/// Not a test: the daemon's process ends here.
#[test]
fn daemon() {
    let Ok(given) = std::env::var(DAEMON) else {
        return;
    };
    let mut words = given.split(' ');
    let mut next = || {
        words
            .next()
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
    };
    let settings = Settings {
        listen: vec![format!("127.0.0.1:{}", next().unwrap())],
        data: next(),
        password_file: next().map(Into::into),
        ..Settings::default()
    };
    let (_never, stop) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut server = Server::bind(settings.resolve(|_| None).unwrap()).unwrap();
    server.run(stop).unwrap();
}

pub(crate) struct Daemon {
    child: Option<Child>,
    pub(crate) port: u16,
    words: String,
    _data: tempfile::TempDir,
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    /// With the password that stands in this file.
    pub(crate) fn start_with(password_file: &str) -> Self {
        let data = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let words = format!("{port} {} {password_file}", data.path().display());
        let child = None;
        let mut daemon = Self {
            child,
            port,
            words,
            _data: data,
        };
        daemon.again();
        daemon
    }

    /// Starts it, again if it was killed.
    pub(crate) fn again(&mut self) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "common::daemon"])
            .env(DAEMON, &self.words);
        let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(silent.process_group(0).spawn().unwrap());
        let port = self.port;
        eventually("it listens", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// `jostle-lock` with these words, separated by spaces.
    pub(crate) fn lock(&self, words: &str) -> Command {
        lock_at(&self.url(), words)
    }

    /// The first bytes of the reply to a line.
    pub(crate) fn ask(&self, line: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut bytes = [0; 4096];
        let length = stream.read(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    /// Waits until nobody holds a lock, or has a session.
    pub(crate) fn await_nothing(&self) {
        let left = || {
            let info = self.ask("INFO locks");
            !info.contains("holds:0\r\n") || !info.contains("sessions:0\r\n")
        };
        eventually("nothing is left", || !left());
    }

    pub(crate) fn await_held(&self) {
        eventually("the lock is held", || {
            !self.ask("INFO locks").contains("holds:0\r\n")
        });
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) const JOSTLE_LOCK: &str = env!("CARGO_BIN_EXE_jostle-lock");

pub(crate) fn lock_at(url: &str, words: &str) -> Command {
    let mut command = Command::new(JOSTLE_LOCK);
    command.args(words.split(' ')).env("JOSTLE_LOCK_URL", url);
    command.env_remove("JOSTLE_LOCK_TOKEN").stdin(Stdio::null());
    command
}

/// A process that is ended with its value.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(
            command
                .stderr(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Its exit code, and what it said.
    pub(crate) fn finish(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        let mut stderr = self.0.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        (self.0.wait().unwrap().code(), said)
    }
}

/// The guard's and the command's process of a wrapper, where it has them.
pub(crate) fn parts(wrapper: u32) -> (Option<u32>, Option<u32>) {
    let (mut guard, mut command) = (None, None);
    for pid in jostle_sys::process::forked_by(wrapper) {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        match comm.trim() {
            "jostle-guard" => guard = Some(pid),
            // Not yet what it shall be.
            "jostle-lock" | "" => {}
            _ => command = Some(pid),
        }
    }
    (guard, command)
}

#[track_caller]
pub(crate) fn both_parts(wrapper: u32) -> (u32, u32) {
    let mut found = (None, None);
    eventually("guard and command run", || {
        found = parts(wrapper);
        found.0.is_some() && found.1.is_some()
    });
    (found.0.unwrap(), found.1.unwrap())
}

pub(crate) fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Waits for something that must come true, within two minutes on any machine.
#[track_caller]
pub(crate) fn eventually(what: &str, mut test: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !test() {
        assert!(Instant::now() < end, "not within two minutes: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A link to a daemon that can stop forwarding, or break.
pub(crate) struct Relay {
    pub(crate) port: u16,
    pub(crate) cut: Arc<AtomicBool>,
    /// The next reply ends its connection in its place.
    pub(crate) swallow: Arc<AtomicBool>,
}

impl Relay {
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let cut = Arc::new(AtomicBool::new(false));
        let swallow = Arc::new(AtomicBool::new(false));
        let shared = (cut.clone(), swallow.clone());
        std::thread::spawn(move || {
            for here in listener.incoming().flatten() {
                let Ok(there) = TcpStream::connect(("127.0.0.1", port)) else {
                    continue;
                };
                let never = Arc::new(AtomicBool::new(false));
                let both = [(&here, &there, never), (&there, &here, shared.1.clone())];
                for (from, to, swallow) in both {
                    let (from, to, cut) = (from.try_clone(), to.try_clone(), shared.0.clone());
                    std::thread::spawn(move || {
                        forward(&mut from.unwrap(), &mut to.unwrap(), &cut, &swallow);
                    });
                }
            }
        });
        Self {
            port: own,
            cut,
            swallow,
        }
    }
}

fn forward(from: &mut TcpStream, to: &mut TcpStream, cut: &AtomicBool, swallow: &AtomicBool) {
    let mut bytes = [0; 4096];
    loop {
        let count = match from.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Ok(count @ 1..) => count,
            _ => break,
        };
        while cut.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
        if swallow.swap(false, SeqCst) || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// The repository's root.
pub(crate) fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
