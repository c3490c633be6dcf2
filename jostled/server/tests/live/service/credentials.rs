//! Secrets that systemd passes to a service that runs as a user of its own
//! (DynamicUser=, LoadCredential=): files of root that this user may read.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{XattrFlags, setxattr};

use crate::JOSTLED;
use crate::common::{Daemon, eventually, output, tool};

const NAMES: [&str; 2] = ["jostled.password", "jostled.users"];

/// A service's files.
struct Unit {
    directory: tempfile::TempDir,
    /// The user that its processes run as.
    user: u32,
}

impl Unit {
    /// With credentials that only root may read.
    fn new() -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test needs root to become another user; run `cargo test` as root, as ci does"
        );
        let unit = Self {
            directory: tempfile::tempdir().unwrap(),
            // Beyond all users of a usual machine.
            user: 4_000_000 + std::process::id() % 1_000_000,
        };
        set_mode(unit.directory.path(), 0o755);
        // Another process copies it: a file that this one writes cannot be executed
        // while another thread forks. A link would change the file, which daemons of
        // other tests see during a handover.
        output(tool("cp").args([Path::new(JOSTLED), &unit.path("jostled")]));
        for name in ["state", "credentials"] {
            fs::create_dir(unit.path(name)).unwrap();
            set_mode(&unit.path(name), 0o700);
        }
        chown(unit.path("state"), Some(unit.user), Some(unit.user)).unwrap();
        let texts = ["secret\n", "user app on >plain ~* +@lock\n"];
        for (name, text) in NAMES.iter().zip(texts) {
            fs::write(unit.credential(name), text).unwrap();
            set_mode(&unit.credential(name), 0o400);
        }
        unit
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn credential(&self, name: &str) -> PathBuf {
        self.path("credentials").join(name)
    }

    fn jostled(&self) -> Command {
        let mut command = run_as(self.user, &self.path("jostled"));
        command
            .args(["--listen", "127.0.0.1:0"])
            .env("CREDENTIALS_DIRECTORY", self.path("credentials"))
            .env("STATE_DIRECTORY", self.path("state"))
            .env_remove("JOSTLED_PASSWORD");
        command
    }

    fn may_read(&self, user: u32, name: &str) -> bool {
        let mut cat = run_as(user, Path::new("cat"));
        let output = cat.arg(self.credential(name)).output().unwrap();
        output.status.success()
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A program, with the rights of a plain user.
fn run_as(user: u32, program: &Path) -> Command {
    let user = user.to_string();
    let mut command = tool("setpriv");
    command
        .args(["--reuid", &user, "--regid", &user, "--clear-groups"])
        .args(["--no-new-privs", "--bounding-set=-all"])
        .arg(program);
    command
}

/// Lets one more user read a file, or search a directory, that stays its owner's:
/// `setfacl --modify u:USER:PERMISSIONS`, as systemd does it. The attribute's layout
/// is that of linux/posix_acl_xattr.h, version 2.
fn let_read(user: u32, path: &Path, permissions: u16) {
    const NOBODY: u32 = u32::MAX;
    let entries = [
        (0x01, permissions, NOBODY), // The owner.
        (0x02, permissions, user),
        (0x04, 0, NOBODY),           // The group.
        (0x10, permissions, NOBODY), // What users and groups may have at most.
        (0x20, 0, NOBODY),           // Others.
    ];
    let mut attribute = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        attribute.extend(u16::to_le_bytes(tag));
        attribute.extend(permissions.to_le_bytes());
        attribute.extend(id.to_le_bytes());
    }
    let name = "system.posix_acl_access";
    setxattr(path, name, &attribute, XattrFlags::empty()).unwrap();
}

/// Makes credentials readable for the service's user.
type Grant = fn(&Unit);

/// As systemd does: they stay root's.
fn by_list(unit: &Unit) {
    let_read(unit.user, &unit.path("credentials"), 5);
    for name in NAMES {
        let_read(unit.user, &unit.credential(name), 4);
        assert_eq!(fs::metadata(unit.credential(name)).unwrap().uid(), 0);
    }
}

/// As systemd does where the file system has no such lists.
fn by_owner(unit: &Unit) {
    for path in NAMES.map(|name| unit.credential(name)) {
        chown(path, Some(unit.user), Some(unit.user)).unwrap();
    }
    chown(unit.path("credentials"), Some(unit.user), Some(unit.user)).unwrap();
}

/// The output of a daemon that must fail to start; one that does start is killed.
fn ended(command: &mut Command) -> Output {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(120);
    while child.try_wait().unwrap().is_none() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    child.wait_with_output().unwrap()
}

#[test]
fn credentials_that_only_the_service_may_read_are_in_force() {
    for grant in [by_list, by_owner] as [Grant; 2] {
        let unit = Unit::new();
        grant(&unit);
        for name in NAMES {
            assert!(unit.may_read(unit.user, name));
            assert!(!unit.may_read(unit.user + 1, name));
        }
        let daemon = Daemon::from_command(&mut unit.jostled());
        let process = fs::metadata(format!("/proc/{}", daemon.child.id())).unwrap();
        assert_eq!(process.uid(), unit.user);
        let mut client = daemon.client();
        for (line, expected) in [
            ("LOCK a", "NOAUTH"),
            ("AUTH app plain", "OK"),
            ("LOCK a", "1"),
            ("FORCEUNLOCK a", "NOPERM"),
            ("AUTH secret", "OK"),
            ("FORCEUNLOCK a", "1"),
        ] {
            assert_eq!(client.say(line), expected, "{line}");
        }
        // And later, too.
        fs::write(unit.credential("jostled.password"), "other\n").unwrap();
        daemon.signal("-HUP");
        eventually("the other password is in force", || {
            daemon.client().say("AUTH other") == "OK"
        });
        daemon.signal("-TERM");
        let (code, log) = daemon.finish();
        assert_eq!(code, Some(0));
        assert!(log.contains("settings read again"), "{log}");
        assert!(!log.contains("secret"), "{log}");
    }
}

#[test]
fn credentials_that_the_service_may_not_read_keep_it_from_starting() {
    // Without them everybody could take and break locks.
    let only_found = |unit: &Unit| let_read(unit.user, &unit.path("credentials"), 5);
    let not_even_found = |_: &Unit| {};
    for grant in [only_found, not_even_found] as [Grant; 2] {
        for other in NAMES {
            let unit = Unit::new();
            grant(&unit);
            fs::remove_file(unit.credential(other)).unwrap();
            let output = ended(&mut unit.jostled());
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{text}");
            let path = unit.credential("jostled.").display().to_string();
            assert!(text.contains(&path), "{text}");
            assert!(text.contains("Permission denied"), "{text}");
        }
    }
}

#[test]
fn credentials_that_are_not_there_are_not_missed() {
    let unit = Unit::new();
    fs::remove_dir_all(unit.path("credentials")).unwrap();
    let daemon = Daemon::from_command(&mut unit.jostled());
    assert_eq!(daemon.client().say("LOCK a"), "1");
}
