//! The items that a ledger records beside its own directory, and how each is removed.

use super::{SERVER_PREFIX, gone, namespace};
use crate::limits::cpu_group;
use crate::sysv;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a control group may still have processes, or a directory writers.
const PATIENCE: Duration = Duration::from_secs(2);

/// One thing to be removed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    File(PathBuf),
    Group(PathBuf),
    Directory(PathBuf),
    Semaphore { key: i32, namespace: String },
}

impl Item {
    pub(super) fn parse(line: &[u8]) -> Option<Item> {
        let space = line.iter().position(|byte| *byte == b' ')?;
        let (word, rest) = (&line[..space], &line[space + 1..]);
        let path = PathBuf::from(OsStr::from_bytes(rest));
        match word {
            b"file" => Some(Item::File(path)),
            b"group" => Some(Item::Group(path)),
            b"directory" => Some(Item::Directory(path)),
            b"semaphore" => {
                let (key, namespace) = std::str::from_utf8(rest).ok()?.split_once(' ')?;
                Some(Item::Semaphore {
                    key: key.parse().ok()?,
                    namespace: namespace.to_owned(),
                })
            }
            _ => None,
        }
    }

    pub(super) fn remove(&self) -> Result<(), String> {
        match self {
            Item::File(path) => remove_lock_file(path),
            Item::Group(path) => remove_group(path),
            Item::Directory(path) => remove_directory(path),
            Item::Semaphore {
                key,
                namespace: made_in,
            } if *made_in == namespace("ipc") => match sysv::remove(*key) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!(
                    "cannot remove the semaphores of key {key}: {error}; try ipcrm -S {key}"
                )),
            },
            Item::Semaphore { .. } => Ok(()),
        }
    }
}

/// The last of its processes may still be on its way out.
fn remove_group(path: &Path) -> Result<(), String> {
    if !has_prefix(path, cpu_group::PREFIX) {
        return Err(format!("left {}: it is no group of ours", path.display()));
    }
    try_for_a_time(path, |path| fs::remove_dir(path))
}

/// A server that has just been killed may still write into it.
fn remove_directory(path: &Path) -> Result<(), String> {
    let is_other = fs::symlink_metadata(path).is_ok_and(|m| !m.is_dir());
    if is_other || !has_prefix(path, SERVER_PREFIX) {
        return Err(format!(
            "left {}: it is no directory of ours",
            path.display()
        ));
    }
    try_for_a_time(path, |path| fs::remove_dir_all(path))
}

fn has_prefix(path: &Path, prefix: &str) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name.starts_with(prefix))
}

fn try_for_a_time(path: &Path, remove: fn(&Path) -> io::Result<()>) -> Result<(), String> {
    let start = Instant::now();
    loop {
        match gone(remove(path)) {
            Err(error) if start.elapsed() > PATIENCE => {
                return Err(format!("cannot remove {}: {error}", path.display()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
            Ok(()) => return Ok(()),
        }
    }
}

fn remove_lock_file(path: &Path) -> Result<(), String> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("cannot look at {}: {error}", path.display())),
    };
    if !metadata.is_file() || metadata.len() > 0 {
        return Err(format!(
            "left {}: it is no empty file any more",
            path.display()
        ));
    }
    gone(fs::remove_file(path))
        .map_err(|error| format!("cannot remove {}: {error}", path.display()))
}
