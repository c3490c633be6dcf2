//! How long an idle CPU of a virtual machine polls before it halts: a setting of the
//! guest's kernel that moves the rates of locks by a factor, so that a verdict has to
//! hold on either side of it.

use anyhow::{Context, ensure};
use jostle_testbed::leash::Leash;
use std::path::Path;
use std::process::Command;

const FILE: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";

/// Both sides: never poll, and poll for longer than a wake-up takes.
pub(super) const SETTINGS: [u64; 2] = [0, 200_000];

/// As it is; None: this machine has no such setting.
pub(super) fn now() -> Option<u64> {
    read(Path::new(FILE))
}

fn read(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Sets it, until the leash is dropped or this program ends: a shell waits for that
/// and restores what was there.
pub(super) fn set(ns: u64) -> anyhow::Result<Leash> {
    set_in(Path::new(FILE), ns)
}

fn set_in(file: &Path, ns: u64) -> anyhow::Result<Leash> {
    const RESTORE: &str = r#"trap '' INT HUP TERM; read -r never; echo "$1" > "$2""#;
    let name = file.display();
    let before = read(file).with_context(|| {
        format!("cannot read {name}: run it without --both-halt-settings on this machine")
    })?;
    let mut shell = Command::new("sh");
    shell
        .args(["-c", RESTORE, "sh", &before.to_string()])
        .arg(file);
    let restored = Leash::start(&mut shell)?;
    std::fs::write(file, ns.to_string())
        .with_context(|| format!("cannot write {name} (as root)"))?;
    ensure!(read(file) == Some(ns), "{name} does not keep {ns}");
    Ok(restored)
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
