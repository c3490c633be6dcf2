//! A jostled for one trial, and what INFO tells of it.

use anyhow::{Context, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running daemon; killed when dropped.
pub(super) struct Daemon {
    child: Child,
    pub port: u16,
    /// Open, and read by nobody: it logs a few lines.
    _log: Box<dyn BufRead>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    pub(super) fn start(jostled: &Path) -> anyhow::Result<Daemon> {
        let mut child = Command::new(jostled)
            .args(["--data", "none", "--listen", "127.0.0.1:0"])
            .env_remove("JOSTLED_PASSWORD")
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", jostled.display()))?;
        let stderr = child.stderr.take().context("stderr is piped")?;
        let mut daemon = Daemon {
            child,
            port: 0,
            _log: Box::new(BufReader::new(stderr)),
        };
        let mut all = String::new();
        while !all.ends_with(" ready\n") {
            let start = all.len();
            if daemon._log.read_line(&mut all)? == 0 {
                bail!("jostled did not start: {all}");
            }
            if let Some((_, port)) = all[start..].split_once("listening on 127.0.0.1:") {
                daemon.port = port.trim_end().parse()?;
            }
        }
        Ok(daemon)
    }

    pub(super) fn connect(&self) -> anyhow::Result<TcpStream> {
        TcpStream::connect(("127.0.0.1", self.port)).context("connect to jostled")
    }

    /// A figure of INFO.
    pub(super) fn info(&self, name: &str) -> anyhow::Result<u64> {
        let mut stream = self.connect()?;
        stream.write_all(b"INFO\r\nQUIT\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        let figure = reply
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let figure = figure.with_context(|| format!("INFO has no {name}"))?;
        Ok(figure.trim().parse()?)
    }
}
