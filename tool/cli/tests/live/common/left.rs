//! Traces that a run may leave behind apart from processes: ledgers with lock files, semaphores,
//! temporary files.

use super::processes::lives;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Where runs have their directories.
const LEDGERS: &str = "/dev/shm";

/// The traces there before a run began.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    semaphores: BTreeSet<String>,
    /// The run directories of all processes. One that died may have left its directory, and
    /// its number may be given to a process of this run.
    ledgers: BTreeSet<String>,
}

impl Before {
    pub(crate) fn look() -> Before {
        Before {
            semaphores: semaphores(),
            ledgers: entries(Path::new(LEDGERS)).into_iter().collect(),
        }
    }

    pub(crate) fn new_semaphores(&self) -> Vec<String> {
        let new = semaphores()
            .into_iter()
            .filter(|set| !self.semaphores.contains(set));
        new.map(|set| format!("semaphores {set}")).collect()
    }

    /// The run directories of these processes: `jostle-UID-PID-START-N`.
    pub(crate) fn new_ledgers_of(&self, pids: &[u32]) -> Vec<String> {
        let of_ours = |name: &str| {
            let pid = name
                .strip_prefix("jostle-")
                .and_then(|rest| rest.split('-').nth(1));
            pid.and_then(|pid| pid.parse().ok())
                .is_some_and(|pid| pids.contains(&pid))
        };
        let mut left = entries(Path::new(LEDGERS));
        left.retain(|path| {
            of_ours(path.rsplit('/').next().unwrap_or_default()) && !self.ledgers.contains(path)
        });
        left
    }
}

/// The sets of this IPC namespace: key, number, mode, count and owner of each.
pub(crate) fn semaphores() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/sysvipc/sem").unwrap();
    let identity = |line: &str| {
        line.split_whitespace()
            .take(5)
            .collect::<Vec<_>>()
            .join(" ")
    };
    text.lines().skip(1).map(identity).collect()
}

/// Control groups that keepers made who are gone: `jostle-cpu-PID-N`, wherever they
/// stand.
pub(crate) fn groups_of_the_dead() -> Vec<String> {
    let is_left = |name: &str| {
        let pid = name
            .strip_prefix("jostle-cpu-")
            .and_then(|rest| rest.split('-').next());
        pid.is_some_and(|pid| pid.parse().is_ok_and(|pid| !lives(pid)))
    };
    let mut left = Vec::new();
    let mut open = vec![Path::new("/sys/fs/cgroup").to_owned()];
    while let Some(directory) = open.pop() {
        // It may go while we look.
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            if path.is_dir() && !path.is_symlink() {
                let name = path.file_name().unwrap().to_string_lossy();
                left.extend(is_left(&name).then(|| path.display().to_string()));
                open.push(path);
            }
        }
    }
    left
}

/// The names in a directory.
pub(crate) fn entries(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().path().display().to_string())
        .collect()
}
