//! How long an idle CPU of a virtual machine polls before it halts: a setting of the
//! guest's kernel that moves the rates of locks by a factor, so that a verdict has to
//! hold on either side of it.

use anyhow::{Context, ensure};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

const FILE: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";

/// Both sides: never poll, and poll for longer than a wake-up takes.
pub const SETTINGS: [u64; 2] = [0, 200_000];

/// As it is; None: this machine has no such setting.
pub fn now() -> Option<u64> {
    read(Path::new(FILE))
}

fn read(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The setting as it was, to be restored when this is dropped, or when this program
/// ends in whatever way: a shell waits for that.
pub struct Restored(Child, Option<ChildStdin>);

/// Sets it.
pub fn set(ns: u64) -> anyhow::Result<Restored> {
    set_in(Path::new(FILE), ns)
}

fn set_in(file: &Path, ns: u64) -> anyhow::Result<Restored> {
    const RESTORE: &str = r#"trap '' INT HUP TERM; read -r never; echo "$1" > "$2""#;
    let name = file.display();
    let before = read(file).with_context(|| {
        format!("cannot read {name}: run it without --both-halt-settings on this machine")
    })?;
    let mut shell = Command::new("sh")
        .args(["-c", RESTORE, "sh", &before.to_string()])
        .arg(file)
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot run sh")?;
    let input = shell.stdin.take();
    let restored = Restored(shell, input);
    std::fs::write(file, ns.to_string())
        .with_context(|| format!("cannot write {name} (as root)"))?;
    ensure!(read(file) == Some(ns), "{name} does not keep {ns}");
    Ok(restored)
}

impl Drop for Restored {
    fn drop(&mut self) {
        drop(self.1.take());
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_is_restored() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("setting");
        std::fs::write(&file, "7\n").unwrap();
        let restored = set_in(&file, 200_000).unwrap();
        assert_eq!(read(&file), Some(200_000));
        drop(restored);
        assert_eq!(read(&file), Some(7));
        assert!(set_in(&directory.path().join("none"), 1).is_err());
    }
}
