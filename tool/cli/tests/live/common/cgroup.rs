//! A control group of a test's own, in version 1 or 2, whichever this machine
//! lets root make.

use super::must_be_root;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long the last processes of a group may take to leave it.
const LEAVING: Duration = Duration::from_secs(60);

/// The group's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// Removed when dropped.
pub(crate) struct Cgroup {
    path: PathBuf,
    pub version: Version,
}

impl Cgroup {
    /// A group in which this controller can set limits.
    pub(crate) fn with(controller: &str) -> Cgroup {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        must_be_root("make control groups");
        let name = format!(
            "jostle-test-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let unified = Path::new("/sys/fs/cgroup");
        let of_v1 = unified.join(controller);
        let (version, top) = match of_v1.join("tasks").exists() {
            true => (Version::V1, of_v1),
            false => (Version::V2, unified.to_owned()),
        };
        if version == Version::V2 {
            // Given to the groups below it by their parent.
            let _ = fs::write(top.join("cgroup.subtree_control"), format!("+{controller}"));
        }
        let path = top.join(name);
        fs::create_dir(&path).unwrap_or_else(|error| {
            panic!(
                "this test needs control groups with {controller}; cannot make {}: {error}",
                path.display()
            )
        });
        Cgroup { path, version }
    }

    /// Sets a limit by the name that it has in each version.
    pub(crate) fn set(&self, v1: &[(&str, &str)], v2: &[(&str, &str)]) -> &Cgroup {
        let limits = match self.version {
            Version::V1 => v1,
            Version::V2 => v2,
        };
        for (file, value) in limits {
            fs::write(self.path.join(file), value)
                .unwrap_or_else(|error| panic!("{file}={value}: {error}"));
        }
        self
    }

    /// The shell command by which a process enters.
    pub(crate) fn enter(&self) -> String {
        format!("echo $$ > {}/cgroup.procs", self.path.display())
    }

    /// Waits until the controller `pids` counts no process in it. Processes that have ended
    /// are counted until the kernel has removed them.
    pub(crate) fn until_empty(&self) {
        let start = Instant::now();
        let counted = || fs::read_to_string(self.path.join("pids.current")).unwrap();
        while counted().trim() != "0" {
            assert!(start.elapsed() < LEAVING, "{} processes left", counted());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its last process may still be on its way out.
        let start = Instant::now();
        while fs::remove_dir(&self.path).is_err() && start.elapsed() < LEAVING {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
