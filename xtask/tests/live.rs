//! `cargo xtask hosts` from any shell: hosts stay until they are taken down, and
//! nothing is left of a start that was killed. Needs root, sshd, and the tools of
//! iproute2 and util-linux.

#![allow(clippy::unwrap_used, reason = "every function here is of a test")]

use jostle_testbed::hosts::Hosts;
use jostle_testbed::running::{Running, eventually, said};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A place for hosts that xtask makes; a test that fails takes them down, too.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn directory(&self) -> PathBuf {
        self.0.path().join("hosts")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Ok(Some(hosts)) = Hosts::open(&self.directory()) {
            let _ = hosts.down();
        }
    }
}

fn xtask(directory: &Path, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command
        .args(["hosts", "--dir"])
        .arg(directory)
        .args(words.split(' '));
    command
}

#[test]
fn any_shell_can_use_hosts_and_take_them_down() {
    let place = Place::new();
    let directory = place.directory();
    let refused = |words: &str| {
        let output = xtask(&directory, words).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(said(&mut xtask(&directory, "down")), "no hosts are up\n");
    assert!(refused("ps").contains("no hosts are up"));
    let told = said(&mut xtask(&directory, "2"));
    assert!(told.contains("h2    198.18.0.2    -"), "{told}");
    assert_eq!(
        said(&mut xtask(&directory, "2")),
        told,
        "they are up already"
    );
    assert!(refused("3").contains("down"));
    assert!(refused("cut h3").contains("h1, h2, srv"));
    let hosts = Hosts::open(&directory).unwrap().unwrap();
    let all: Vec<_> = hosts.members().cloned().collect();
    let name = said(&mut xtask(
        &directory,
        "exec h2 cat /proc/sys/kernel/hostname",
    ));
    assert_eq!(name, "h2\n");
    let code = xtask(&directory, "exec h2 false").status().unwrap().code();
    assert_eq!(code, Some(1));
    // One that crashes takes nobody along, and hinders nobody.
    let first = all[0].pid.to_string();
    said(Command::new("kill").args(["-9", &first]));
    eventually("h1 has ended", || !all[0].alive());
    let code = xtask(&directory, "exec h1 true").status().unwrap().code();
    assert_eq!(code, Some(125));
    said(&mut xtask(&directory, "down"));
    // Their parent has ended: whoever adopted them may not have reaped them yet.
    assert!(all.iter().all(|host| !host.alive()));
    assert!(!directory.exists() && !Path::new(&all[1].group).exists());
}

#[test]
fn a_start_that_is_killed_halfway_can_be_taken_down() {
    let place = Place::new();
    let directory = place.directory();
    for after_ms in [0, 3, 6, 9, 12, 16, 20, 25, 30, 40] {
        let mut start = xtask(&directory, "3");
        let mut start = Running(start.stdout(Stdio::null()).spawn().unwrap());
        std::thread::sleep(Duration::from_millis(after_ms));
        start.0.kill().unwrap();
        start.0.wait().unwrap();
        let hosts = Hosts::open(&directory).unwrap();
        let Some(hosts) = hosts else { continue };
        let all: Vec<_> = hosts.members().cloned().collect();
        hosts.down().unwrap();
        assert!(!directory.exists());
        let groups = all.iter().map(|host| Path::new(&host.group));
        assert!(groups.clone().all(|group| !group.exists()), "{after_ms} ms");
        // Also those that had not been noted yet.
        eventually("first processes have ended", || living_in(&directory) == 0);
    }
}

/// First processes that are still there, or still on their way: until an sshd is
/// ready they are in the hosts' directory.
fn living_in(directory: &Path) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let places = processes.filter_map(|entry| std::fs::read_link(entry.path().join("cwd")).ok());
    // A directory that is removed has a word behind its name.
    let name = directory.display().to_string();
    places
        .filter(|cwd| cwd.display().to_string().starts_with(&name))
        .count()
}

#[test]
fn only_directories_of_hosts_are_taken_down() {
    let place = tempfile::tempdir().unwrap();
    let allow = |mode| std::fs::set_permissions(place.path(), Permissions::from_mode(mode));
    let down = || {
        let output = xtask(place.path(), "down").output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    allow(0o700).unwrap();
    std::fs::write(place.path().join("letter"), "dear").unwrap();
    assert!(down().contains("does not hold hosts"));
    allow(0o755).unwrap();
    assert!(down().contains("not a private directory"));
    assert!(place.path().join("letter").exists());
}
