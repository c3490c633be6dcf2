//! What a ledger records beside its own directory, and how each is removed.

use super::{SERVER_PREFIX, namespace};
use crate::limits::cpu_group;
use crate::sysv;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a control group may still have processes, or a directory writers.
const GROUP_PATIENCE: Duration = Duration::from_secs(2);

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
        if let Some(path) = line.strip_prefix(b"file ") {
            return Some(Item::File(PathBuf::from(OsStr::from_bytes(path))));
        }
        if let Some(path) = line.strip_prefix(b"group ") {
            return Some(Item::Group(PathBuf::from(OsStr::from_bytes(path))));
        }
        if let Some(path) = line.strip_prefix(b"directory ") {
            return Some(Item::Directory(PathBuf::from(OsStr::from_bytes(path))));
        }
        let rest = std::str::from_utf8(line.strip_prefix(b"semaphore ")?).ok()?;
        let (key, namespace) = rest.split_once(' ')?;
        Some(Item::Semaphore {
            key: key.parse().ok()?,
            namespace: namespace.to_owned(),
        })
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
    let is_ours = path
        .file_name()
        .and_then(OsStr::to_str)
        .is_some_and(|name| name.starts_with(cpu_group::PREFIX));
    if !is_ours {
        return Err(format!("left {}: it is no group of ours", path.display()));
    }
    let start = Instant::now();
    loop {
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if start.elapsed() > GROUP_PATIENCE => {
                return Err(format!("cannot remove {}: {error}", path.display()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// A server that has just been killed may still write into it.
fn remove_directory(path: &Path) -> Result<(), String> {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if !name.starts_with(SERVER_PREFIX) || fs::symlink_metadata(path).is_ok_and(|m| !m.is_dir()) {
        return Err(format!(
            "left {}: it is no directory of ours",
            path.display()
        ));
    }
    let start = Instant::now();
    loop {
        match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if start.elapsed() > GROUP_PATIENCE => {
                return Err(format!("cannot remove {}: {error}", path.display()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
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
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}
