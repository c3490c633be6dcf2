//! An engine in a process of its own, and a plain client.

#![allow(dead_code)] // Each test file uses its part.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A running `procd` with its folders; killed when dropped.
pub(crate) struct Engine {
    pub child: Child,
    pub port: u16,
    pub home: tempfile::TempDir,
    log: Receiver<String>,
}

/// The procedures that an engine starts with.
pub(crate) const PROCEDURES: &[(&str, &str)] = &[
    ("accept", "return 0"),
    ("code", "return tonumber(args[1])"),
    ("echo", "print(args[1], args.name, body)"),
    ("fail", "error('it broke')"),
    ("forever", "while true do end"),
    ("big", "print(('x'):rep(tonumber(args[1]) - 1))"),
    ("work", "for i = 1, tonumber(args[1]) do end return 5"),
    ("bomb", "local s = 'x' while true do s = s .. s end"),
];

impl Engine {
    /// Starts one on a free port with [`PROCEDURES`] and a spool file `m` of
    /// 1000 bytes, and more flags.
    pub(crate) fn start(flags: &[&str]) -> Engine {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("procedures")).unwrap();
        std::fs::create_dir(home.path().join("spool")).unwrap();
        std::fs::write(home.path().join("spool/m"), [b'm'; 1000]).unwrap();
        std::fs::write(home.path().join("secret"), "secret").unwrap();
        for (name, text) in PROCEDURES {
            let path = home.path().join(format!("procedures/{name}.lua"));
            std::fs::write(path, text).unwrap();
        }
        Engine::start_in(home, "127.0.0.1:0", flags)
    }

    /// Starts one in a home that exists.
    pub(crate) fn start_in(home: tempfile::TempDir, listen: &str, flags: &[&str]) -> Engine {
        // The default name is there once, and other tests run at the same time.
        let no_unix = ["--unix", "none"];
        let unix = if flags.contains(&"--unix") {
            &[]
        } else {
            &no_unix[..]
        };
        let mut child = Command::new(env!("CARGO_BIN_EXE_procd"))
            .args(["--listen", listen])
            .args(unix)
            .arg("--procedures")
            .arg(home.path().join("procedures"))
            .arg("--spool")
            .arg(home.path().join("spool"))
            .args(flags)
            .env_remove("PROCD_TOKEN")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (lines, log) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in stderr.lines() {
                let _ = lines.send(line.unwrap());
            }
        });
        let mut engine = Engine {
            child,
            port: 0,
            home,
            log,
        };
        loop {
            let line = engine.next_line();
            if let Some(address) = line.strip_prefix("procd: listening on 127.0.0.1:") {
                engine.port = address.parse().unwrap();
            }
            if line == "procd: ready" {
                return engine;
            }
        }
    }

    fn next_line(&self) -> String {
        let line = self.log.recv_timeout(Duration::from_secs(120));
        line.expect("procd says nothing more")
    }

    /// Waits for a line of the log that contains this.
    pub(crate) fn await_log(&self, what: &str) -> String {
        loop {
            let line = self.next_line();
            if line.contains(what) {
                return line;
            }
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(TcpStream::connect(("127.0.0.1", self.port)).unwrap())
    }

    /// Asks on a connection of its own.
    #[track_caller]
    pub(crate) fn get(&self, target: &str) -> Reply {
        self.client().get(target)
    }

    pub(crate) fn url(&self, target: &str) -> String {
        format!("http://127.0.0.1:{}{target}", self.port)
    }

    pub(crate) fn stats(&self) -> serde_json::Value {
        serde_json::from_str(&self.get("/stats").body).unwrap()
    }

    /// A procedure's part of the statistics.
    pub(crate) fn stats_of(&self, name: &str) -> serde_json::Value {
        self.stats()["procedures"][name].clone()
    }

    /// Puts a procedure in place as one should: by rename.
    pub(crate) fn install(&self, name: &str, text: &str) {
        let folder = self.home.path().join("procedures");
        std::fs::write(folder.join("beside"), text).unwrap();
        std::fs::rename(folder.join("beside"), folder.join(format!("{name}.lua"))).unwrap();
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let kill = Command::new("kill").args([signal, &pid]).status();
        assert!(kill.unwrap().success());
    }

    /// Runs `jostle-call` against this engine.
    pub(crate) fn call(&self, arguments: &[&str]) -> Called {
        let address = format!("127.0.0.1:{}", self.port);
        jostle_call(arguments, &[("JOSTLE_CALL_ADDRESS", &address)])
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The result of a run of `jostle-call`: exit code, output, messages.
pub(crate) type Called = (Option<i32>, String, String);

pub(crate) fn jostle_call(arguments: &[&str], environment: &[(&str, &str)]) -> Called {
    jostle_call_with(b"", arguments, environment)
}

/// A run of `jostle-call` with this standard input. `cargo xtask ci` names the client for another
/// processor.
pub(crate) fn jostle_call_with(
    input: &[u8],
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Called {
    let mut command = match std::env::var_os("JOSTLE_CALL_AARCH64") {
        Some(_) => Command::new("qemu-aarch64"),
        None => Command::new(env!("CARGO_BIN_EXE_jostle-call")),
    };
    command.args(std::env::var_os("JOSTLE_CALL_AARCH64"));
    command.args(arguments).env_clear();
    command.envs(environment.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    // A client that does not read it may have ended.
    let _ = child.stdin.take().unwrap().write_all(input);
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (status.code(), text(&stdout), text(&stderr))
}

/// A reply, read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub status: u16,
    pub exit_code: Option<u8>,
    pub head: String,
    pub body: String,
}

/// A client that sends bytes and reads replies.
pub(crate) struct Client {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn new(stream: TcpStream) -> Client {
        stream
            .set_read_timeout(Some(Duration::from_secs(120)))
            .unwrap();
        Client {
            stream,
            buffer: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn ask(&mut self, target: &str) {
        self.send(&format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"));
    }

    #[track_caller]
    pub(crate) fn get(&mut self, target: &str) -> Reply {
        self.ask(target);
        self.read().expect("the connection ended")
    }

    /// The next reply; `None` if the connection ends first.
    #[track_caller]
    pub(crate) fn read(&mut self) -> Option<Reply> {
        loop {
            if let Some(reply) = self.take() {
                return Some(reply);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(length) => self.buffer.extend_from_slice(&bytes[..length]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                // A signal that the process ignores ends a wait with a time limit too:
                // SIGCONT (signal(7)), and SIGCHLD if the thread whose child ends has blocked
                // signals at that moment, as it does while it starts another process.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    fn take(&mut self) -> Option<Reply> {
        let end = self
            .buffer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")?
            + 4;
        let head = String::from_utf8(self.buffer[..end].to_vec()).unwrap();
        let value = |name: &str| {
            let mut lines = head.lines();
            lines.find_map(|line| line.strip_prefix(name).map(str::trim))
        };
        let length: usize = value("Content-Length:").map_or(0, |text| text.parse().unwrap());
        let body = self.buffer.get(end..end + length)?.to_vec();
        let reply = Reply {
            status: head[9..12].parse().unwrap(),
            exit_code: value("Exit-Code:").map(|text| text.parse().unwrap()),
            body: String::from_utf8(body).unwrap(),
            head,
        };
        self.buffer.drain(..end + length);
        Some(reply)
    }
}

/// Waits for something that must come true soon.
#[track_caller]
pub(crate) fn eventually(what: &str, mut test: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !test() {
        assert!(Instant::now() < end, "not within 120 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs curl; exit code and output.
pub(crate) fn curl(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new("curl")
        .args(["--silent", "--max-time", "20"])
        .args(arguments)
        .output();
    let output = output.expect("`curl` is not installed (Debian: curl)");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text)
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}
