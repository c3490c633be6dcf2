//! The client's end: starts a watcher on the server's machine, or connects to one that listens there.

use super::lines::{self, Lines, after_ns, send};
use super::{Answer, PROTOCOL, Reach, Remote, Request, Seen, Wanted, token};
use crate::sockets::Sockets;
use jostle_sys::clock;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SECOND_NS: u64 = 1_000_000_000;

/// How long a connection, a first answer and what was seen may take to come.
const PATIENCE_NS: u64 = 30 * SECOND_NS;

/// How often the watcher hears that we are there.
pub(super) const BEAT_NS: u64 = 10 * SECOND_NS;

/// The longest line that is taken: a week's looks take a third of it.
const LONGEST: usize = 64 << 20;

/// Lines that a shell's start-up files may print before the first answer.
const CHATTER: usize = 100;

/// Takes the program from its input, runs it, and removes it when it has ended: with its input, or by
/// any signal. Only a SIGKILL of this shell itself leaves the copy.
const COPIED: &str = "umask 077; d=$(mktemp -d \"${TMPDIR:-/tmp}/jostle.XXXXXXXXXX\") || exit 1; \
    trap \"rm -rf $d\" EXIT; trap \"exit 1\" HUP INT TERM PIPE; \
    head -c BYTES >\"$d/jostle\" && chmod 700 \"$d/jostle\" && \"$d/jostle\" judge --watch-server -; \
    c=$?; [ $c -lt 126 ] || echo \"the copy in $d does not run on $(uname -sm)\" >&2; exit $c";

/// A watcher elsewhere.
#[derive(Debug)]
pub(crate) struct Link {
    /// The host's name, without the user's.
    host: String,
    answers: Lines,
    to: OwnedFd,
    /// ssh, and its standard error.
    ssh: Option<(Child, Lines)>,
    asked: bool,
    beat_ns: u64,
    /// Why no more is heard of it.
    lost: Option<String>,
}

impl Link {
    /// Reaches the watcher, and has it ready. `asked`: whether the user wants to stop.
    ///
    /// # Errors
    /// What failed, and what to do.
    pub(crate) fn open(
        remote: &Remote,
        asked: &mut dyn FnMut() -> Option<i32>,
    ) -> Result<Link, String> {
        let mut link = match &remote.at {
            Reach::Ssh(host) => Link::by_ssh(host, remote.copies)?,
            Reach::Tcp(at) => Link::by_tcp(at)?,
        };
        if remote.copies && link.ssh.is_some() {
            let program = std::fs::read("/proc/self/exe");
            let program = program.map_err(|error| format!("cannot read this program: {error}"))?;
            // That it was not taken shows below.
            let _ = lines::write(&link.to, &program);
        }
        let hello = link.answer(asked);
        let (build, nonce) = match hello {
            Ok(Answer::Hello { build, nonce, .. }) => (build, nonce),
            Ok(other) => return Err(link.odd(&other)),
            Err(error) => return Err(link.why(&remote.at, &error)),
        };
        let host = &link.host;
        if build != remote.build {
            return Err(format!(
                "on {host} is {build}; this is {}: both have to be one build. Install this one there, \
                 or add --copy-binary",
                remote.build
            ));
        }
        let open = Request::Open {
            protocol: PROTOCOL,
            build,
            proof: token::proof(remote.token.as_deref(), &nonce),
        };
        let ready = send(&link.to, &open).and_then(|()| link.answer(asked));
        match ready {
            Ok(Answer::Ready) => Ok(link),
            Ok(other) => Err(link.odd(&other)),
            Err(error) => Err(link.why(&remote.at, &error)),
        }
    }

    fn by_ssh(at: &str, copies: bool) -> Result<Link, String> {
        let script = match copies {
            true => {
                let bytes = std::fs::metadata("/proc/self/exe").map_or(0, |program| program.len());
                format!("sh -c '{}'", COPIED.replace("BYTES", &bytes.to_string()))
            }
            false => "jostle judge --watch-server -".to_owned(),
        };
        // In a group of its own: ^C is for the command, and ends nothing else.
        let started = Command::new("ssh")
            .args(["-o", "BatchMode=yes", "--", at, &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        let mut ssh = started.map_err(|error| {
            format!("cannot start ssh: {error}; install it, or use --server-host tcp:HOST:PORT")
        })?;
        let streams = (ssh.stdin.take(), ssh.stdout.take(), ssh.stderr.take());
        let (Some(to), Some(from), Some(errors)) = streams else {
            return Err("ssh has no standard streams".to_owned());
        };
        let host = at.rsplit_once('@').map_or(at, |(_, host)| host);
        let errors = Lines::new(errors.into(), 1 << 16);
        Ok(Link::new(host, from.into(), to.into(), Some((ssh, errors))))
    }

    fn by_tcp(at: &str) -> Result<Link, String> {
        let connect = || -> io::Result<[OwnedFd; 2]> {
            let mut last = io::Error::from(io::ErrorKind::NotFound);
            for address in at.to_socket_addrs()? {
                match TcpStream::connect_timeout(&address, Duration::from_nanos(PATIENCE_NS)) {
                    Ok(stream) => return Ok([stream.try_clone()?.into(), stream.into()]),
                    Err(error) => last = error,
                }
            }
            Err(last)
        };
        let [from, to] = connect().map_err(|error| {
            format!(
                "cannot connect to {at}: {error}; start `jostle judge --watch-server ADDRESS:PORT` \
                 there"
            )
        })?;
        let host = at.rsplit_once(':').map_or(at, |(host, _)| host);
        Ok(Link::new(host, from, to, None))
    }

    fn new(host: &str, from: OwnedFd, to: OwnedFd, ssh: Option<(Child, Lines)>) -> Link {
        Link {
            host: host.to_owned(),
            answers: Lines::new(from, LONGEST),
            to,
            ssh,
            asked: false,
            beat_ns: clock::monotonic(),
            lost: None,
        }
    }

    /// The next answer; lines before it that are none were printed by others.
    fn answer(&mut self, asked: &mut dyn FnMut() -> Option<i32>) -> io::Result<Answer> {
        let until_ns = after_ns(PATIENCE_NS);
        let mut others = 0;
        while others < CHATTER {
            match self.answers.next(until_ns.min(after_ns(SECOND_NS / 4)))? {
                Some(line) => match serde_json::from_str(&line) {
                    Ok(answer) => return Ok(answer),
                    Err(_) => others += 1,
                },
                None if asked().is_some() => return Err(io::ErrorKind::Interrupted.into()),
                None if clock::monotonic() >= until_ns => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                None => {}
            }
        }
        Err(io::Error::other(
            "it answers something else than a watcher does",
        ))
    }

    fn odd(&self, answer: &Answer) -> String {
        match answer {
            Answer::Refused(why) => format!("the watcher on {} refuses: {why}", self.host),
            _ => format!("the watcher on {} gave an answer out of turn", self.host),
        }
    }

    /// Why there was no answer.
    fn why(&mut self, at: &Reach, error: &io::Error) -> String {
        let host = &self.host;
        let (Reach::Ssh(at), Some((ssh, errors))) = (at, &mut self.ssh) else {
            return format!("the watcher at {host} does not answer: {}", ended(error));
        };
        let mut said: Vec<String> = Vec::new();
        // ssh's other processes may keep it open.
        let until_ns = after_ns(SECOND_NS);
        while let Ok(Some(line)) = errors.next(until_ns) {
            said.push(line);
        }
        let said = said.split_off(said.len().saturating_sub(4)).join("; ");
        let is_over = || ssh.try_wait().ok().flatten();
        let status =
            jostle_sys::waited::within(Duration::from_secs(2), Duration::from_millis(5), is_over);
        match status.and_then(|status| status.code()) {
            Some(255) => format!(
                "ssh does not reach {host}: {said}; it may ask for no password here, so try `ssh -o \
                 BatchMode=yes -- {at} true`"
            ),
            Some(127) => format!(
                "no jostle on {host} in the PATH of ssh's commands ({said}): install this build there, \
                 or add --copy-binary"
            ),
            Some(code) => format!(
                "what ran on {host} is no watcher of this build (exit code {code}): {said}; install \
                 this build there, or add --copy-binary"
            ),
            None => format!("no answer from {host}: {}; {said}", ended(error)),
        }
    }

    /// After a look: asks the watcher to begin, once it is known at what; and lets it know that we
    /// are there.
    pub(crate) fn keep(&mut self, sockets: &mut Sockets, every_ns: u64) {
        let wanted = match self.asked {
            true => None,
            false => sockets.elsewhere(),
        };
        let now_ns = clock::monotonic();
        let sent = if let Some((server, clients)) = wanted {
            self.asked = true;
            let wanted = Wanted {
                server,
                clients,
                every_ns,
            };
            send(&self.to, &Request::Watch(wanted))
        } else if self.lost.is_none() && now_ns >= self.beat_ns {
            lines::write(&self.to, b"\n")
        } else {
            return;
        };
        self.beat_ns = now_ns + BEAT_NS;
        if let Err(error) = sent {
            self.lost = Some(ended(&error));
        }
    }

    /// The host, and what was seen there; nothing where it was never asked.
    pub(crate) fn end(mut self) -> (String, Result<Option<Seen>, String>) {
        let seen = send(&self.to, &Request::End).and_then(|()| self.answer(&mut || None));
        let host = std::mem::take(&mut self.host);
        let seen = match seen {
            Ok(Answer::Seen(seen)) => Ok(seen.map(|seen| *seen)),
            Ok(other) => Err(self.odd(&other)),
            Err(error) => {
                let why = self.lost.take().unwrap_or_else(|| ended(&error));
                Err(format!("its watcher was lost during the run: {why}"))
            }
        };
        (host, seen)
    }
}

impl Drop for Link {
    /// What runs there ends with its input.
    fn drop(&mut self) {
        let _ = send(&self.to, &Request::End);
        let Some((ssh, _)) = &mut self.ssh else {
            return;
        };
        let is_over = || ssh.try_wait().ok().flatten();
        let patience = Duration::from_secs(5);
        if jostle_sys::waited::within(patience, Duration::from_millis(2), is_over).is_none() {
            let _ = ssh.kill();
            let _ = ssh.wait();
        }
    }
}

/// The end of a stream in words.
fn ended(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => "it ended".to_owned(),
        io::ErrorKind::TimedOut => "it did not answer in time".to_owned(),
        _ => error.to_string(),
    }
}
