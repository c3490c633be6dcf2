//! The server's own counts: from OpenLDAP's `cn=Monitor`, or from its log of operations.
//! Only the three numbers that can be compared with a client's.

use super::place::Place;
use super::session::{Dial, Session};
use super::wire::{self, Numbers, Search};
use crate::login::Credentials;
use crate::{CallError, Result, SetupError};
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::ops::Sub;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Operations that a server has completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Binds.
    pub binds: u64,
    /// Searches.
    pub searches: u64,
    /// Unbinds.
    pub unbinds: u64,
}

impl Sub for Counts {
    type Output = Counts;

    fn sub(self, other: Counts) -> Counts {
        Counts {
            binds: self.binds.saturating_sub(other.binds),
            searches: self.searches.saturating_sub(other.searches),
            unbinds: self.unbinds.saturating_sub(other.unbinds),
        }
    }
}

/// Unbinds have no answer, so that the client does not know when the last ones are counted.
/// Readings are repeated until this many are the same: a thread of the server that has one
/// may stand still for a moment, while others answer.
const THE_SAME: usize = 4;
const BETWEEN_READINGS: Duration = Duration::from_millis(20);
const READINGS_AT_MOST: usize = 100;

fn settled(mut read: impl FnMut() -> Result<Counts>) -> Result<Counts> {
    let (mut last, mut same) = (read()?, 1);
    for _ in 1..READINGS_AT_MOST {
        std::thread::sleep(BETWEEN_READINGS);
        let next = read()?;
        same = if next == last { same + 1 } else { 1 };
        last = next;
        if same == THE_SAME {
            break;
        }
    }
    Ok(last)
}

/// Reads `cn=Monitor`.
#[derive(Debug, Default)]
pub(super) struct Monitor {
    /// Our own operations for reading it, which the server counts too.
    own: Mutex<Counts>,
}

/// Below it there is an entry for each kind of operation.
const OPERATIONS: &str = "//-/cn=Operations,cn=Monitor?monitorOpCompleted?one";

impl Monitor {
    /// Other clients' operations since the server started; None if it has no monitor, or
    /// `credentials` may not read it.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn read(&self, dial: &Dial, credentials: &Credentials) -> Result<Option<Counts>> {
        let said = |error: CallError| SetupError(format!("cannot read cn=Monitor: {error}"));
        let operations = Place::parse(Some(OPERATIONS), 0).map_err(SetupError)?;
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let mut session = dial.open().map_err(said)?;
        if session.bind(credentials).map_err(said)?.code != 0 {
            return Ok(None);
        }
        own.binds += 1;
        let mut there = true;
        let counts = settled(|| {
            session.begin();
            let counts = ask(&mut session, &operations.search).map_err(said)?;
            // The server does not count this search yet, because it has not completed.
            let others = counts.unwrap_or_default() - *own;
            own.searches += 1;
            there = counts.is_some();
            Ok(others)
        })?;
        session.unbind().map_err(said)?;
        own.unbinds += 1;
        Ok(there.then_some(counts))
    }
}

/// None where nothing is found.
fn ask(session: &mut Session, search: &Search) -> Result<Option<Counts>, CallError> {
    let mut counts = Counts::default();
    let found = session.search(search, Numbers::default(), |bytes| {
        let Some((name, value)) = wire::entry(bytes, "monitorOpCompleted") else {
            return;
        };
        let number = value.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
        let name = name.to_ascii_lowercase();
        match (name.split(|byte| *byte == b',').next(), number) {
            (Some(b"cn=bind"), Some(number)) => counts.binds = number,
            (Some(b"cn=search"), Some(number)) => counts.searches = number,
            (Some(b"cn=unbind"), Some(number)) => counts.unbinds = number,
            _ => {}
        }
    })?;
    Ok((found.outcome.code == 0 && found.entries > 0).then_some(counts))
}

/// Reads the lines that were added to a server's log.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// Where reading goes on, and what stands before.
    read: Mutex<(u64, Counts)>,
}

impl Log {
    /// From its present end on.
    ///
    /// # Errors
    /// In words for the user, where it cannot be read.
    pub(super) fn open(path: &Path) -> Result<Log> {
        let end = File::open(path)
            .and_then(|file| file.metadata())
            .map_err(|error| unreadable(path, &error.to_string()))?;
        Ok(Log {
            path: path.to_owned(),
            read: Mutex::new((end.len(), Counts::default())),
        })
    }

    /// The operations logged since it was opened.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn read(&self) -> Result<Counts> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        settled(|| {
            self.follow(&mut read)
                .map_err(|error| unreadable(&self.path, &error.to_string()))?;
            Ok(read.1)
        })
    }

    fn follow(&self, read: &mut (u64, Counts)) -> std::io::Result<()> {
        let mut file = File::open(&self.path)?;
        if file.metadata()?.len() < read.0 {
            return Err(std::io::Error::other("it became shorter during the run"));
        }
        file.seek(SeekFrom::Start(read.0))?;
        let mut lines = BufReader::new(file);
        let mut line = Vec::new();
        // A line without its end is read when it is whole.
        while lines.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
            read.0 += line.len() as u64;
            count(&line, &mut read.1);
            line.clear();
        }
        Ok(())
    }
}

fn unreadable(path: &Path, why: &str) -> SetupError {
    SetupError(format!(
        "cannot read --server-log {}: {why}",
        path.display()
    ))
}

/// `conn=1000 op=1 SRCH base="..."`, as OpenLDAP writes with `loglevel stats`, and
/// 389 Directory Server in its access log. A bind with a password is logged twice
/// by OpenLDAP, as asked (`method=`) and as done (`mech=`); what a search asks for
/// stands in a line of its own (`SRCH attr=`).
fn count(line: &[u8], counts: &mut Counts) {
    let text = String::from_utf8_lossy(line);
    let Some((_, operation)) = text.split_once(" op=") else {
        return;
    };
    let mut words = operation.split_whitespace().skip(1);
    match (words.next(), words.next()) {
        (Some("BIND"), _) if operation.contains(" method=") => counts.binds += 1,
        (Some("SRCH"), Some(what)) if what.starts_with("base=") => counts.searches += 1,
        (Some("UNBIND"), _) => counts.unbinds += 1,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const LINES: &str = "\
6b01 0x7f conn=1001 fd=13 ACCEPT from IP=127.0.0.1:51998 (IP=127.0.0.1:3899)
6b01 0x7f conn=1001 op=0 BIND dn=\"cn=UNBIND SRCH\" method=128
6b01 0x7f conn=1001 op=0 BIND dn=\"cn=UNBIND SRCH\" mech=SIMPLE bind_ssf=0 ssf=0
6b01 0x7f conn=1001 op=0 RESULT tag=97 err=0 qtime=0.000003 etime=0.000077 text=
6b01 0x7f conn=1001 op=1 SRCH base=\"dc=example\" scope=2 deref=0 filter=\"(uid= op=9 UNBIND)\"
6b01 0x7f conn=1001 op=1 SRCH attr=mail
6b01 0x7f conn=1001 op=1 SEARCH RESULT tag=101 err=0 nentries=1 text=
6b01 0x7f conn=1001 op=2 UNBIND
6b01 0x7f conn=1001 fd=13 closed
";

    #[test]
    fn counts_settle_only_after_several_readings_that_are_the_same() {
        let mut binds = [5, 5, 5, 6, 6, 6, 6, 7].into_iter();
        let read = || {
            Ok(Counts {
                binds: binds.next().unwrap(),
                ..Counts::default()
            })
        };
        assert_eq!(settled(read).unwrap().binds, 6);
        // A server that others use is never at rest.
        let mut binds = 0;
        let read = || {
            binds += 1;
            Ok(Counts {
                binds,
                ..Counts::default()
            })
        };
        assert_eq!(settled(read).unwrap().binds, READINGS_AT_MOST as u64);
    }

    #[test]
    fn a_log_is_counted_from_where_it_ended() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(LINES.as_bytes()).unwrap();
        let log = Log::open(file.path()).unwrap();
        assert_eq!(log.read().unwrap(), Counts::default());
        let (most, end) = LINES.split_at(LINES.len() - 100);
        file.write_all(most.as_bytes()).unwrap();
        assert_eq!(log.read().unwrap().unbinds, 0, "its line is not whole yet");
        file.write_all(end.as_bytes()).unwrap();
        let one = Counts {
            binds: 1,
            searches: 1,
            unbinds: 1,
        };
        assert_eq!(log.read().unwrap(), one);
        file.as_file().set_len(0).unwrap();
        assert!(log.read().unwrap_err().0.contains("became shorter"));
        assert!(Log::open(Path::new("/no/such/log")).is_err());
    }
}
