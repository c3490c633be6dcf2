//! A daemon in a process of its own, and a plain client.

#![allow(dead_code)] // Each test file uses its part.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use jostle_resp::Value;
use jostle_resp::value::ValueLimits;

/// A running `jostled`; killed when dropped.
pub(crate) struct Daemon {
    pub child: Child,
    pub port: u16,
    pub log: Vec<String>,
    stderr: BufReader<ChildStderr>,
}

impl Daemon {
    /// Starts it without a data directory on a free port, with more flags.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let mut all = vec!["--data", "none", "--listen", "127.0.0.1:0"];
        all.extend(flags);
        Self::start_exactly(&all)
    }

    /// Starts it with these flags alone.
    pub(crate) fn start_exactly(flags: &[&str]) -> Self {
        Self::from_command(Command::new(crate::JOSTLED).args(flags))
    }

    /// Starts what a command starts, and waits until it is ready.
    pub(crate) fn from_command(command: &mut Command) -> Self {
        let mut daemon = Self::launched(command);
        daemon.await_ready();
        daemon
    }

    /// Starts what a command starts.
    pub(crate) fn launched(command: &mut Command) -> Self {
        let mut child = command
            .env_remove("JOSTLED_PASSWORD")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self {
            child,
            port: 0,
            log: Vec::new(),
            stderr,
        }
    }

    /// Waits until it serves.
    pub(crate) fn await_ready(&mut self) {
        loop {
            let mut line = String::new();
            let length = self.stderr.read_line(&mut line).unwrap();
            assert!(length > 0, "jostled did not start: {:?}", self.log);
            let ready = line.contains("ready");
            self.log.push(line.trim_end().to_owned());
            if ready {
                break;
            }
        }
        let mut log = self.log.iter();
        self.port = log
            .find_map(|line| port_in(line, "listening on "))
            .unwrap_or(0);
    }

    /// The port that a line of the log names.
    pub(crate) fn port_of(&self, what: &str) -> u16 {
        self.log
            .iter()
            .find_map(|line| port_in(line, what))
            .unwrap()
    }

    pub(crate) fn client(&self) -> Client<TcpStream> {
        Client::new(TcpStream::connect(("127.0.0.1", self.port)).unwrap())
    }

    /// A figure of INFO.
    pub(crate) fn info(&self, name: &str) -> u64 {
        self.client().info(name)
    }

    /// Waits until a figure of INFO is what it should be.
    pub(crate) fn await_info(&self, name: &str, value: u64) {
        let mut client = self.client();
        eventually(name, || client.info(name) == value);
    }

    /// Like `await_info`, asked by a client that has the right to.
    pub(crate) fn await_info_as(&self, client: &mut Client<TcpStream>, name: &str, value: u64) {
        eventually(name, || client.info(name) == value);
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Reads its log until a line contains this.
    pub(crate) fn await_log(&mut self, what: &str) {
        let (mut line, mut before) = (String::new(), String::new());
        while !line.contains(what) {
            before.push_str(&line);
            line.clear();
            assert!(
                self.stderr.read_line(&mut line).unwrap() > 0,
                "no line {what} in: {before}"
            );
        }
    }

    /// Closes the reading end of its log.
    pub(crate) fn close_log(&mut self) {
        let nothing = Command::new("true").stderr(Stdio::piped()).spawn();
        let mut nothing = nothing.unwrap();
        self.stderr = BufReader::new(nothing.stderr.take().unwrap());
        let _ = nothing.wait();
    }

    /// Waits for its end; returns its exit code and the rest of its log.
    pub(crate) fn finish(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        (code, rest)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn port_in(line: &str, what: &str) -> Option<u16> {
    let (_, address) = line.split_once(what)?;
    address
        .split_once('/')
        .map_or(address, |(start, _)| start)
        .rsplit(':')
        .next()?
        .parse()
        .ok()
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

/// Runs `happen` while the daemon is stopped.
pub(crate) fn at_once(daemon: &Daemon, happen: impl FnOnce()) {
    daemon.signal("-STOP");
    // The signal acts on a sleeping daemon as it wakes: it must not wake for
    // what comes.
    let stat = format!("/proc/{}/stat", daemon.child.id());
    eventually("it has stopped", || {
        std::fs::read_to_string(&stat).unwrap().contains(") T ")
    });
    happen();
    eventually("what was sent has arrived", || all_has_arrived(daemon.port));
    daemon.signal("-CONT");
}

/// Whether the kernel has delivered all data that was sent to this port over IPv4, and
/// the sender's close: on a busy machine it does so some time after the call that sent
/// it. The table's fields are those of proc_pid_net(5): the addresses, the state (04 is
/// FIN_WAIT1: the end is not acknowledged) and the bytes that are not acknowledged.
fn all_has_arrived(port: u16) -> bool {
    let to = format!("0100007F:{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let fields = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    table
        .lines()
        .map(fields)
        .all(|fields| fields[2] != to || (fields[3] != "04" && fields[4].starts_with("00000000:")))
}

/// A figure in the reply to INFO.
pub(crate) fn figure(info: &Value, name: &str) -> u64 {
    let text = info.as_text().unwrap();
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok();
    text.lines().find_map(value).unwrap()
}

/// Waits again where a signal ended the wait.
///
/// Signals that the process ignores do that too where the wait has a time limit: SIGCONT
/// (signal(7)), and SIGCHLD if the thread whose child ends has blocked signals at that
/// moment, as it does while it starts another process.
fn uninterrupted<T>(mut wait: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match wait() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// systemd's side of the protocol of sd_notify(3).
pub(crate) struct Manager {
    pub socket: UnixDatagram,
}

impl Manager {
    /// On a socket at this path; for `$NOTIFY_SOCKET`.
    pub(crate) fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        let patience = Some(Duration::from_secs(120));
        socket.set_read_timeout(patience).unwrap();
        Self { socket }
    }

    /// The next message.
    #[track_caller]
    pub(crate) fn hear(&self) -> String {
        let mut bytes = [0; 500];
        let length = uninterrupted(|| self.socket.recv(&mut bytes)).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }
}

/// A client that sends words and reads replies.
pub(crate) struct Client<S> {
    pub stream: S,
    buffer: Vec<u8>,
}

impl Client<TcpStream> {
    pub(crate) fn set_timeout(&self, timeout: Duration) {
        self.stream.set_read_timeout(Some(timeout)).unwrap();
    }
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, line: &str) {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut bytes = Vec::new();
        jostle_resp::request::encode(&mut bytes, &args);
        self.stream.write_all(&bytes).unwrap();
    }

    /// The next reply; an error if the connection ends first.
    pub(crate) fn try_read(&mut self) -> io::Result<Value> {
        loop {
            let found = Value::decode(&self.buffer, ValueLimits::default());
            if let Some((value, used)) = found.unwrap() {
                self.buffer.drain(..used);
                return Ok(value);
            }
            let mut bytes = [0; 1 << 15];
            match uninterrupted(|| self.stream.read(&mut bytes))? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                length => self.buffer.extend_from_slice(&bytes[..length]),
            }
        }
    }

    #[track_caller]
    pub(crate) fn read(&mut self) -> Value {
        self.try_read().unwrap()
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, line: &str) -> Value {
        self.send(line);
        self.read()
    }

    /// The reply in a short form: `1`, `nil`, `OK`, and of errors the first word.
    #[track_caller]
    pub(crate) fn say(&mut self, line: &str) -> String {
        let reply = self.ask(line);
        short(&reply)
    }

    /// A lock's token.
    #[track_caller]
    pub(crate) fn token(&mut self, line: &str) -> u64 {
        let reply = self.ask(line);
        reply
            .as_integer()
            .unwrap_or_else(|| panic!("{line}: {reply:?}")) as u64
    }

    #[track_caller]
    pub(crate) fn info(&mut self, name: &str) -> u64 {
        let reply = self.ask("INFO");
        let text = reply.as_text().unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap_or_else(|| panic!("no {name} in INFO"))
            .parse()
            .unwrap()
    }
}

pub(crate) fn short(value: &Value) -> String {
    match value {
        Value::Integer(number) => number.to_string(),
        Value::Nil => "nil".into(),
        Value::Simple(text) => text.clone(),
        Value::Error(text) => text.split(' ').next().unwrap_or_default().to_owned(),
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    }
}

/// A tool that the test runs. Fails with advice if it is not installed.
pub(crate) fn tool(name: &str) -> Command {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|directory| directory.join(name).exists())
    });
    assert!(
        found,
        "`{name}` is not installed (`cargo xtask ci` installs it)"
    );
    Command::new(name)
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Runs a command to its end; returns its output. Fails the test if the command failed.
#[track_caller]
pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}{errors}",
        output.status
    );
    text
}

/// The kind of most certificates' keys.
#[cfg(feature = "tls")]
pub(crate) const ELLIPTIC: &[&str] = &["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];

/// Makes a certificate for this host in a directory, with a key of this kind; returns their
/// files, the certificate first.
#[cfg(feature = "tls")]
pub(crate) fn certificate(directory: &Path, key_kind: &[&str]) -> [String; 2] {
    let file = |name: &str| directory.join(name).display().to_string();
    let [cert, key] = ["cert.pem", "key.pem"].map(file);
    output(
        tool("openssl")
            .args(["req", "-x509", "-nodes", "-days", "2", "-newkey"])
            .args(key_kind)
            .args(["-subj", "/CN=localhost", "-keyout", &key, "-out", &cert])
            .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]),
    );
    [cert, key]
}
