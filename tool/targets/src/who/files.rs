//! Who has a lock on a file, by the lists of the kernel; and whose a lock file is, by what it says.

use super::{Answer, Question, Refusal, State, Told};
use crate::holders::mode;
use jostle_model::who::Party;
use jostle_sys::census::{self, Identity};
use jostle_sys::files::file_system;
use jostle_sys::owners::{Key, LAST_BYTE, Locks, OwnedBy, Owner};
use jostle_sys::waits;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Whose locks the server or the driver keeps, so that those of other machines are not listed.
const REMOTE: [&str; 11] = [
    "nfs", "cifs", "smb2", "9p", "fuse", "ceph", "lustre", "gpfs", "gfs2", "ocfs2", "afs",
];

/// Between what the clocks of files and of processes say of the same time.
const SLACK: Duration = Duration::from_millis(50);

pub(super) fn who(question: &Question<'_>, kind: OwnedBy) -> Told {
    let path = Path::new(question.argument);
    let cannot = |error| Refusal::Unknown(format!("cannot look at {}: {error}", path.display()));
    let key = Key::of(path).map_err(cannot)?;
    let system = file_system(path).unwrap_or_default();
    let all = Locks::read();
    let holders = all.owners(&key, kind).into_iter();
    let holders = holders.map(|owner| party(&owner, kind));
    let waiters = all.waiters(&key, kind).into_iter().map(|mut owner| {
        if owner.pid == 0 {
            owner.pid = waits::for_open_file(&key).unwrap_or(0);
            owner.name = Identity::of(owner.pid).unwrap_or_default().name;
        }
        party(&owner, kind)
    });
    let mut answer = Answer::of(holders.collect(), waiters.collect());
    let is_remote = REMOTE.contains(&&*system);
    if is_remote {
        let note = format!("the file is on {system}: locks of other machines are not listed here");
        answer.notes.push(note);
    }
    if !census::is_first_pids() {
        let note = "this is not the machine's first PID namespace: locks of processes outside it \
                    are not listed here";
        answer.notes.push(note.to_owned());
    }
    if system == "overlay" {
        let note = "a lock on overlayfs does not exclude one on the layers below";
        answer.notes.push(note.to_owned());
    }
    if answer.state == State::Free && (is_remote || !census::is_first_pids()) {
        answer.state = State::Unknown;
    }
    Ok(answer)
}

/// One who has it or waits, in the words of an answer.
pub(super) fn party(owner: &Owner, kind: OwnedBy) -> Party {
    let named = |pid: u32| match Identity::of(pid) {
        Some(process) => format!("pid {pid} {}", process.name),
        None => format!("pid {pid}, which has ended"),
    };
    let pid = Some(owner.pid).filter(|pid| *pid != 0);
    let bytes = Some(owner.bytes).filter(|_| kind == OwnedBy::Record);
    Party {
        who: pid.map(named),
        pid,
        mode: Some(mode(owner.is_shared)),
        bytes: bytes.filter(|bytes| *bytes != [0, LAST_BYTE]),
        state: pid.and_then(started),
        note: match (owner.taker, pid) {
            (Some(taker), Some(_)) => Some(format!(
                "has the open file with which {} took it",
                named(taker)
            )),
            (Some(taker), None) => Some(format!(
                "{} took it; who has that open file now may not be seen (root sees it)",
                named(taker)
            )),
            (None, None) => {
                Some("who has that open file may not be seen (root sees it)".to_owned())
            }
            (None, Some(_)) => None,
        },
        ..Party::default()
    }
}

/// The kernel does not keep since when a lock is held: no longer than the process lives.
fn started(pid: u32) -> Option<String> {
    let age = census::age(pid)?;
    Some(format!("started {:.1} s ago", age.as_secs_f64()))
}

pub(super) fn lockfile(question: &Question<'_>) -> Told {
    let path = Path::new(question.argument);
    let cannot = |error| Refusal::Unknown(format!("cannot read {}: {error}", path.display()));
    let status = match path.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Answer::of(Vec::new(), Vec::new()));
        }
        status => status.map_err(cannot)?,
    };
    if !status.is_file() {
        return Err(Refusal::Usage(format!("{} is no file", path.display())));
    }
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|file| {
        use std::io::Read;
        file.take(256).read_to_string(&mut text)
    });
    let age = status
        .modified()
        .ok()
        .map(|at| SystemTime::now().duration_since(at));
    let age = age.and_then(Result::ok);
    let (pid, note) = match read {
        Ok(_) => match text
            .split_whitespace()
            .next()
            .and_then(|word| word.parse().ok())
        {
            Some(pid) if pid > 0 => owner(pid, age, status.uid(), path),
            _ => (
                None,
                "the file does not begin with the number of a process".to_owned(),
            ),
        },
        Err(error) => (None, format!("the file cannot be read: {error}")),
    };
    let holder = Party {
        who: pid.map(|pid| format!("pid {pid} {}", Identity::of(pid).unwrap_or_default().name)),
        pid,
        since_ms: age.map(|age| age.as_millis() as u64),
        note: Some(note),
        ..Party::default()
    };
    let answer = Answer::of(vec![holder], Vec::new());
    Ok(answer.noting("who waits for a lock file cannot be known: waiters try again and again"))
}

/// Whether this process can have written the file.
fn owner(pid: u32, age: Option<Duration>, user: u32, path: &Path) -> (Option<u32>, String) {
    let no = |said: &str| (None, format!("the file names pid {pid}, {said}"));
    let system = file_system(path).unwrap_or_default();
    if REMOTE.contains(&&*system) {
        return no(&format!(
            "and is on {system}: it may be a process of another machine"
        ));
    }
    let (Some(lives), Ok(process)) = (
        census::age(pid),
        Path::new("/proc").join(pid.to_string()).metadata(),
    ) else {
        return no("which has ended: the file is left over");
    };
    match age {
        Some(age) if lives + SLACK < age => {
            no("which is now another process, started after the file was written: it is left over")
        }
        None => no("and was written in the future: whether that process is meant cannot be known"),
        _ if user != 0 && process.uid() != 0 && process.uid() != user => {
            no("which is another user's process than the file")
        }
        _ => {
            let note = "the file names it; it lives, and was started before the file was written";
            (Some(pid), note.to_owned())
        }
    }
}
