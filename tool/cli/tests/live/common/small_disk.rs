//! A file system that is soon full.

use super::must_be_root;
use std::path::{Path, PathBuf};
use std::process::Command;

/// It is gone when dropped.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// On this directory, of so much, as mount(8) has sizes.
    pub(crate) fn mount(at: &Path, size: &str) -> SmallDisk {
        must_be_root("mount a small file system");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={size},mode=1777"))
            .arg("none")
            .arg(at)
            .status();
        assert!(
            mounted.unwrap().success(),
            "cannot mount a tmpfs on {}",
            at.display()
        );
        SmallDisk(at.to_owned())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
