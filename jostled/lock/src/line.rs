//! The wait for the lock, in the name of a session.

use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use jostle_resp::Value;

use crate::args::Options;
use crate::link::{LOGIN, Link, readable};
use crate::server::Server;
use crate::signals::{ENDING, Signals};
use crate::term::{Times, now, ns};
use crate::{Failure, code, say};

/// After this time it says what it waits for; so often it looks whether that changed.
const FIRST_WORD: u64 = 1_000_000_000;
const LOOK: u64 = 2_000_000_000;

/// A lock that was granted.
pub(crate) struct Granted {
    pub(crate) link: Link,
    pub(crate) session: String,
    pub(crate) tokens: Vec<u64>,
    /// When the last request that prolonged the session was sent.
    pub(crate) sent: u64,
}

/// Why an attempt has failed.
enum Trouble {
    /// Another attempt may succeed.
    Passing(String),
    Final(Failure),
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Passing(error.to_string())
    }
}

/// One who waits, over connections that may break.
pub(crate) struct Waiter<'o> {
    pub(crate) options: &'o Options,
    pub(crate) server: &'o Server,
    pub(crate) signals: &'o Signals,
    pub(crate) times: Times,
    begun: u64,
    /// The last line that it printed.
    said: String,
}

impl<'o> Waiter<'o> {
    pub(crate) fn new(
        options: &'o Options,
        server: &'o Server,
        signals: &'o Signals,
        times: Times,
    ) -> Self {
        Self {
            options,
            server,
            signals,
            times,
            begun: now(),
            said: String::new(),
        }
    }

    fn answer(&self) -> Duration {
        Duration::from_nanos(self.times.every).max(Duration::from_secs(1))
    }

    /// Waits until the lock is granted.
    pub(crate) fn wait(&mut self) -> Result<Granted, Failure> {
        let mut reached = None;
        loop {
            let outcome = self.attempt(&mut reached);
            let why = match outcome {
                Ok(granted) => return Ok(granted),
                Err(Trouble::Final(failure)) => return Err(failure),
                Err(Trouble::Passing(why)) => why,
            };
            let since = reached.unwrap_or(self.begun);
            // One that never answered is unlikely to.
            if reached.is_none() || now() > since + 2 * self.times.ttl {
                let place = &self.server.place;
                let text = format!("jostled at {place} does not answer: {why}");
                return Err(Failure(code::UNAVAILABLE, text));
            }
            self.word(&format!(
                "lost the connection to jostled ({why}), and asks again"
            ));
            self.heed(Duration::from_millis(200), None)?;
        }
    }

    /// Prints what has changed.
    fn word(&mut self, text: &str) {
        if self.said != text {
            say(text);
            text.clone_into(&mut self.said);
        }
    }

    /// Lets time pass; a signal that ends programs ends this one, without a trace.
    fn heed(&self, time: Duration, session: Option<&str>) -> Result<(), Failure> {
        readable([self.signals.as_fd()], Some(time))
            .map_err(|error| Failure::system("cannot wait", error))?;
        let signals = self.signals.take();
        let Some(signal) = signals.into_iter().find(|signal| ENDING.contains(signal)) else {
            return Ok(());
        };
        self.forget(session);
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        Err(Failure(128 + signal as u8, String::new()))
    }

    /// Closes a session that nothing was taken with, without waiting long for the server.
    fn forget(&self, session: Option<&str>) {
        let patience = Duration::from_millis(500);
        if let Some(id) = session
            && let Ok(mut link) = Link::open(self.server, patience)
        {
            let _ = link.ask(&[b"SESSION", b"CLOSE", id.as_bytes()], patience);
        }
    }

    /// Opens a session and waits in its name. Whatever fails, a new attempt has a new session:
    /// what the old one may have got is given back.
    fn attempt(&mut self, reached: &mut Option<u64>) -> Result<Granted, Trouble> {
        let answer = self.answer();
        let login = reached.map_or(LOGIN.max(answer), |_| answer);
        let opened = Link::open_slowly(self.server, answer, login);
        let mut link = match opened {
            Ok(link) => link,
            Err(Failure(code::UNAVAILABLE, why)) if reached.is_some() => {
                return Err(Trouble::Passing(why));
            }
            Err(failure) => return Err(Trouble::Final(failure)),
        };
        let sent = now();
        let ttl = (self.times.ttl / 1_000_000).to_string();
        let text = self.text();
        let open = [
            b"SESSION",
            &b"OPEN"[..],
            b"TTL",
            ttl.as_bytes(),
            b"AS",
            text.as_bytes(),
        ];
        let session = match link.ask(&open, self.answer())? {
            Value::Bulk(id) => String::from_utf8_lossy(&id).into_owned(),
            other => return Err(self.refused(&other)),
        };
        *reached = Some(sent);
        let outcome = self.attempt_in(link, &session, sent);
        if outcome.is_err() {
            self.forget(Some(&session));
        }
        outcome
    }

    fn attempt_in(
        &mut self,
        mut link: Link,
        session: &str,
        mut sent: u64,
    ) -> Result<Granted, Trouble> {
        let left_ms = self.options.patience().map(|patience| {
            let until = self.begun.saturating_add(ns(patience));
            until.saturating_sub(now()).div_ceil(1_000_000)
        });
        link.send(&[&as_slices(&self.request(session, left_ms))])?;
        let (mut side, mut look) = (None, self.begun + FIRST_WORD);
        let reply = loop {
            if let Some(reply) = link.take()? {
                break reply;
            }
            let renew = sent + self.times.every;
            let due = renew.min(look).saturating_sub(now());
            let fds = [link.as_fd(), self.signals.as_fd()];
            readable(fds, Some(Duration::from_nanos(due)))?;
            self.heed(Duration::ZERO, Some(session))
                .map_err(Trouble::Final)?;
            if now() >= renew || now() >= look {
                let asked = now();
                match self.look_around(&mut side, session, now() >= look) {
                    Ok(()) => sent = asked,
                    Err(Trouble::Final(failure)) => return Err(Trouble::Final(failure)),
                    // The session may last; a new connection may do.
                    Err(Trouble::Passing(why)) => {
                        side = None;
                        if now() > sent + self.times.ttl {
                            return Err(Trouble::Passing(why));
                        }
                        self.heed(Duration::from_millis(100), Some(session))
                            .map_err(Trouble::Final)?;
                    }
                }
                if now() >= look {
                    look = now() + LOOK;
                }
            }
        };
        let tokens = match reply {
            Value::Integer(token) => vec![token as u64],
            Value::Array(tokens) => {
                let tokens = tokens.iter().filter_map(Value::as_integer);
                tokens.map(|token| token as u64).collect()
            }
            Value::Nil => return Err(Trouble::Final(self.options.conflict())),
            other => return Err(self.refused(&other)),
        };
        // The command shall begin with nearly all of the time.
        if now() > sent + self.times.every / 4 {
            sent = now();
            let renew = [b"SESSION", &b"RENEW"[..], session.as_bytes()];
            let reply = link.ask(&renew, self.answer())?;
            if reply.as_integer() != Some(1) {
                return Err(self.refused(&reply));
            }
        }
        Ok(Granted {
            link,
            session: session.to_owned(),
            tokens,
            sent,
        })
    }

    /// LOCK, or LOCKALL for several names.
    fn request(&self, session: &str, left_ms: Option<u64>) -> Vec<Vec<u8>> {
        let names = &self.options.names;
        let mut words: Vec<Vec<u8>> = match &names[..] {
            [_] => vec![b"LOCK".to_vec()],
            _ => vec![b"LOCKALL".to_vec(), names.len().to_string().into()],
        };
        words.extend(names.iter().map(|name| name.as_bytes().to_vec()));
        words.extend([b"SESSION".to_vec(), session.into()]);
        if let Some(ms) = left_ms {
            words.extend([b"WAIT".to_vec(), ms.to_string().into()]);
        }
        if self.options.shared {
            words.push(b"SHARED".to_vec());
        }
        if let Some(places) = self.options.places {
            words.extend([b"OF".to_vec(), places.to_string().into()]);
        }
        words
    }

    /// Who asks, for people; never the arguments, which may be secret.
    fn text(&self) -> String {
        let mut user = ["LOGNAME", "USER"].iter();
        let user = user.find_map(|name| std::env::var(name).ok());
        let user = user.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string());
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        let words = self.options.words();
        let program = words.first().map(Path::new).and_then(Path::file_name);
        let program = program.unwrap_or_default().to_string_lossy();
        let what = self.options.label.as_deref().unwrap_or(&program);
        let mut text = format!("{user}@{host} pid {} {what}", std::process::id());
        text.retain(|letter| !letter.is_control());
        text.truncate(text.floor_char_boundary(255));
        text
    }

    /// Renews the session while it waits, and says what it waits for.
    fn look_around(
        &mut self,
        side: &mut Option<Link>,
        session: &str,
        aloud: bool,
    ) -> Result<(), Trouble> {
        let answer = self.answer();
        if side.is_none() {
            let opened = Link::open(self.server, answer);
            *side = Some(opened.map_err(|Failure(_, why)| Trouble::Passing(why))?);
        }
        let Some(link) = side else { return Ok(()) };
        let id = session.as_bytes();
        let reply = link.ask(&[b"SESSION", b"RENEW", id], answer)?;
        if reply.as_integer() != Some(1) {
            return Err(self.refused(&reply));
        }
        if !aloud {
            return Ok(());
        }
        let mut lines = Vec::new();
        for name in &self.options.names {
            let name_bytes = name.as_bytes();
            link.send(&[
                &[b"PLACE", name_bytes, b"SESSION", id],
                &[b"HOLDER", name_bytes],
            ])?;
            let place = link.await_reply(answer)?.as_integer();
            let holders = link.await_reply(answer)?;
            lines.push((name, place, holders));
        }
        // Only names that somebody else has keep it waiting.
        let busy = |(_, place, holders): &&(_, Option<i64>, Value)| {
            *place != Some(1) || !matches!(holders, Value::Array(rows) if rows.is_empty())
        };
        let (name, place, holders) = lines.iter().find(busy).unwrap_or(&lines[0]);
        let place = match place {
            Some(1001) => "beyond place 1000 in line".to_owned(),
            Some(place) => format!("place {place} in line"),
            None => "in line".to_owned(),
        };
        let holder = match holders {
            Value::Array(rows) => rows.first().map(|row| described(row, rows.len())),
            _ => None,
        };
        let holder = holder.unwrap_or_else(|| "nobody holds it".to_owned());
        self.word(&format!("waits for {name:?}, {place}: {holder}"));
        Ok(())
    }

    /// An error of jostled: whether it passes, else its exit code and a sentence.
    fn refused(&self, reply: &Value) -> Trouble {
        let Value::Error(text) = reply else {
            return Trouble::Passing(format!("an unexpected answer, {reply:?}"));
        };
        let place = &self.server.place;
        let (code, passing) = match text.split(' ').next().unwrap_or_default() {
            "NOSESSION" => (code::UNAVAILABLE, true),
            "NOAUTH" => {
                let text = format!("jostled at {place} wants a password: give --password-file");
                return Trouble::Final(Failure(code::NO_PERMISSION, text));
            }
            "NOPERM" | "WRONGPASS" => (code::NO_PERMISSION, false),
            "BADNAME" | "BADLIMIT" | "ERR" | "ALREADYHELD" => (code::DATA, false),
            _ => (code::UNAVAILABLE, false),
        };
        match passing {
            true => Trouble::Passing(text.clone()),
            false => Trouble::Final(Failure(code, format!("jostled at {place} refuses: {text}"))),
        }
    }
}

pub(crate) fn as_slices(words: &[Vec<u8>]) -> Vec<&[u8]> {
    words.iter().map(Vec::as_slice).collect()
}

/// A holder in words, and how many others there are.
fn described(row: &Value, holders: usize) -> String {
    let Value::Array(pairs) = row else {
        return "held".to_owned();
    };
    let field = |key: &str| {
        let at = pairs
            .iter()
            .position(|found| found.as_text() == Some(key))?;
        pairs.get(at + 1)
    };
    let text = |key| {
        field(key)
            .and_then(Value::as_text)
            .filter(|text| !text.is_empty())
    };
    let who = text("name")
        .or_else(|| text("address"))
        .unwrap_or("a client that is gone");
    let who: String = who.chars().filter(|letter| !letter.is_control()).collect();
    let held_ms = field("held-ms").and_then(Value::as_integer).unwrap_or(0);
    let since = std::time::SystemTime::now() - Duration::from_millis(held_ms.max(0) as u64);
    let others = match holders {
        1 => String::new(),
        _ => format!(" and {} others", holders - 1),
    };
    format!("held by {who}{others} since {}", clock(since))
}

/// The time of day, UTC, to the second.
fn clock(at: std::time::SystemTime) -> String {
    let since = at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    // Half a second decides nothing, and two looks would differ by it.
    let seconds = (since.as_millis() as u64 + 500) / 1000;
    let of_day = seconds % 86_400;
    format!(
        "{:02}:{:02}:{:02} UTC",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    )
}
