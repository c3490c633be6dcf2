//! A system in which nothing was installed: Debian's oldest release that is still
//! served, with its essential packages and Python. Each script gets its own copy, in
//! namespaces of its own; everything it starts and writes is gone when it ends.

use super::temporary;
use anyhow::Context;
use jostle_testbed::shell;
use std::path::{Path, PathBuf};
use std::process::Command;

/// glibc 2.31: the nearest to the lowest one that `jostle` needs.
const OLDEST: &str = "bullseye";

/// `python3-venv` brings pip along.
const BESIDE: &str = "python3-venv";

/// Seconds after which a script is ended, with all that it started.
const LIMIT: &str = "180";

const ENTER: &str = include_str!("enter.sh");

/// Where this machine's own packages come from: it serves older releases, too.
fn mirror() -> anyhow::Result<String> {
    let mut apt = Command::new("apt-get");
    apt.args([
        "indextargets",
        "--format",
        "$(SITE)",
        "Created-By: Packages",
    ]);
    let sites = shell::output(&mut apt)?;
    let mut sites = sites.lines().map(|site| site.trim_end_matches('/'));
    let main = sites.find(|site| site.ends_with("/debian"));
    let main = main.context("apt-get names no server with Debian's main archive")?;
    Ok(main.to_owned())
}

/// A root that scripts can be run in; it goes with its value.
pub(super) struct Root {
    /// The tree mounted below all that a script writes.
    files: PathBuf,
    _place: Option<tempfile::TempDir>,
}

impl Root {
    /// Makes one from Debian's packages.
    pub(super) fn of_debian() -> anyhow::Result<Root> {
        Root::make(OLDEST, BESIDE)
    }

    /// Makes one of this machine's release, with Open MPI and systemd.
    pub(super) fn with_mpi() -> anyhow::Result<Root> {
        let about = std::fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
        let mut lines = about.lines();
        let release = lines.find_map(|line| line.strip_prefix("VERSION_CODENAME="));
        Root::make(
            release.context("no VERSION_CODENAME in /etc/os-release")?,
            "openmpi-bin,systemd",
        )
    }

    fn make(release: &str, beside: &str) -> anyhow::Result<Root> {
        let place = temporary("root")?;
        let files = place.path().join("files");
        let mut mmdebstrap = Command::new("mmdebstrap");
        mmdebstrap
            .args(["--quiet", "--variant=essential", "--include", beside])
            .args(["--format=directory", release])
            .arg(&files)
            .arg(mirror()?);
        shell::run(&mut mmdebstrap)
            .context("the clean root comes from Debian's servers, and is made as root")?;
        Ok(Root {
            files,
            _place: Some(place),
        })
    }

    /// One that is there already, such as an unpacked image.
    pub(super) fn at(files: &Path) -> Root {
        Root {
            files: files.to_owned(),
            _place: None,
        }
    }

    /// Runs a script of bash in a fresh copy, where `packages` are the files of a folder; with the
    /// root as its current folder, or, of a root without a shell, beside it.
    ///
    /// # Errors
    /// The script's last status, if it is not 0; it has printed why.
    pub(super) fn run(&self, packages: &Path, script: &str, stays: bool) -> anyhow::Result<()> {
        let place = temporary("mount")?;
        let mut unshare = Command::new("timeout");
        unshare
            .args(["--kill-after=5", LIMIT, "unshare"])
            .args([
                "--mount",
                "--pid",
                "--net",
                "--ipc",
                "--fork",
                "--kill-child=KILL",
            ])
            .args(["bash", "-c", ENTER, "enter"])
            .args([&self.files, place.path()])
            .arg(packages)
            .args([&stays.to_string(), script])
            .stdin(std::process::Stdio::null());
        let output = unshare.output().context("cannot run `unshare`")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let erred = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(
            output.status.success(),
            "in the clean root ({}):\n{said}{erred}",
            output.status
        );
        Ok(())
    }
}
