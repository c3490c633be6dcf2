//! Who has a lock on a file, by the lists of the kernel; and whose a lock file is, by what it says.

use super::{Answer, Question, Refusal, State, Told};
use crate::holders::mode;
use jostle_model::who::Party;
use jostle_sys::census::{self, Identity};
use jostle_sys::files::file_system;
use jostle_sys::owners::{Key, LAST_BYTE, Locks, OwnedBy, Owner};
use jostle_sys::waits;
use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Whose locks the server or the driver keeps, so that those of other machines are not listed.
const REMOTE: [&str; 11] = [
    "nfs", "cifs", "smb2", "9p", "fuse", "ceph", "lustre", "gpfs", "gfs2", "ocfs2", "afs",
];

/// Looks at a lock that seems to be nobody's while somebody waits for it.
const LOOKS: usize = 5;

/// Between what the clocks of files and of processes say of the same time.
const SLACK: Duration = Duration::from_millis(50);

pub(super) fn who(question: &Question<'_>, kind: OwnedBy) -> Told {
    let path = Path::new(question.argument);
    let cannot = |error| Refusal::Unknown(format!("cannot look at {}: {error}", path.display()));
    let key = Key::from_path(path).map_err(cannot)?;
    let system = file_system(path).unwrap_or_default();
    // One that goes from hand to hand may be missed between two of the kernel's lists.
    let looks = (0..LOOKS).map(|_| {
        let all = Locks::read();
        (all.owners(&key, kind), all.waiters(&key, kind))
    });
    let is_whole = |(owners, waiters): &(BTreeSet<Owner>, Vec<Owner>)| {
        !owners.is_empty() || waiters.is_empty()
    };
    let Some((mut owners, waiters)) = looks.into_iter().find(is_whole) else {
        let said = format!(
            "{} is waited for, and who has it changed at each look",
            path.display()
        );
        return Err(Refusal::Unknown(said));
    };
    let all = owners.len();
    owners.retain(|owner| owner.pid != std::process::id());
    let is_ours = owners.len() < all;
    let holders = owners.into_iter().map(|owner| party(&owner, kind));
    let unnamed = waiters.iter().filter(|owner| owner.pid == 0).count();
    let may_name = unnamed == 1 && census::is_complete() && geteuid().is_root();
    let waiters = waiters.into_iter().map(|mut owner| {
        if owner.pid == 0 && may_name {
            owner.pid = waits::for_open_file(&key).unwrap_or(0);
            owner.name = Identity::of(owner.pid).unwrap_or_default().name;
        }
        party(&owner, kind)
    });
    let mut answer = Answer::new(holders.collect(), waiters.collect());
    if is_ours {
        let note = "jostle itself has inherited that open file, and is left out";
        answer.notes.push(note.to_owned());
    }
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
        // The taker's number may be another process's by now.
        note: match (owner.taker, pid) {
            (Some(taker), Some(_)) => {
                Some(format!("has the open file with which pid {taker} took it"))
            }
            (Some(taker), None) => Some(format!("pid {taker} took it; {}", unseen())),
            (None, None) => Some(unseen().to_owned()),
            (None, Some(_)) => None,
        },
        ..Party::default()
    }
}

/// Why nobody is named.
fn unseen() -> &'static str {
    match geteuid().is_root() {
        true => "which process has that open file is not shown by any descriptor",
        false => "who has that open file may not be seen (root sees more)",
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
            return Ok(Answer::new(Vec::new(), Vec::new()));
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
    let answer = Answer::new(vec![holder], Vec::new());
    Ok(answer.noting("who waits for a lock file cannot be known: waiters try again and again"))
}

/// Whether a process of another PID namespace has this number in it.
fn is_elsewhere(pid: u32) -> bool {
    let pid = pid.to_string();
    census::processes().into_iter().any(|other| {
        let status = std::fs::read_to_string(format!("/proc/{other}/status"));
        let status = status.unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let inner = numbers.unwrap_or_default().split_whitespace().skip(1);
        inner.last() == Some(&*pid)
    })
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
    if is_elsewhere(pid) {
        return no("which a process of another PID namespace has there, too");
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
