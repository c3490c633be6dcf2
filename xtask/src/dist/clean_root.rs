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

/// What runs outside of the new root, but within the namespaces. The arguments: the
/// clean root, a folder to mount in, the packages, the script, and whether it stays
/// outside. All that is written goes to memory; the network has nothing but itself.
const ENTER: &str = r#"
set -eu
lower=$1 place=$2 packages=$3 script=$4 stay=$5
ip link set lo up
mount -t tmpfs tmpfs "$place"
mkdir "$place/upper" "$place/work" "$place/root"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$place/upper,workdir=$place/work" "$place/root"
cd "$place/root"
mkdir -p proc sys dev tmp packages
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs tmp
mount --bind "$packages" packages
if [ "$stay" = stay ]; then mount --bind tmp /tmp; exec bash -c "$script"; fi
exec chroot . bash -c "cd /; $script"
"#;

/// What every script begins with. A run that other programs disturbed is INVALID (exit
/// code 3): the package works all the same, if all acquisitions were checked.
const TOOLS: &str = r#"
set -eu
answers() { # until a PING is answered, for 20 s at most
    for _ in $(seq 200); do
        if exec 3<>/dev/tcp/127.0.0.1/2626; then
            printf 'PING\r\n' >&3
            IFS= read -r -t 5 reply <&3 || reply=nothing
            exec 3>&-
            echo "PING: $reply"
            [ "$reply" = "$(printf '+PONG\r')" ] && return 0
        fi 2>/dev/null
        sleep 0.1
    done
    echo "jostled does not answer" >&2
    return 1
}
measures() {
    code=0; said=$("$@") || code=$?
    echo "$said"
    case $code in 0|3) ;; *) return 1 ;; esac
    echo "$said" | tr -s ' \n' '  ' | grep -q 'Checked: [0-9,]* acquisitions, 0 overlaps'
}
refuses() { # there is no such procedure
    for _ in $(seq 200); do
        code=0; $1 /no_such_procedure 2>/dev/null || code=$?
        [ "$code" = 69 ] || break
        sleep 0.1
    done
    echo "jostle-call: $code"
    [ "$code" = 70 ]
}
finds() { # the file is 2000 bytes: too large for 1000, not for 3000
    head -c 2000 /dev/zero > /tmp/spooled
    for _ in $(seq 200); do
        code=0; $1 /sizecheck file=spooled max=1000 2>/dev/null || code=$?
        [ "$code" = 69 ] || break
        sleep 0.1
    done
    echo "jostle-call: $code"
    [ "$code" = 1 ] && $1 /sizecheck file=spooled max=3000
}
"#;

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
    /// What is mounted below all that a script writes.
    files: PathBuf,
    _place: Option<tempfile::TempDir>,
}

impl Root {
    /// Makes one from Debian's packages.
    pub(super) fn of_debian() -> anyhow::Result<Root> {
        Root::of(OLDEST, BESIDE)
    }

    /// Makes one of this machine's release, with Open MPI and systemd.
    pub(super) fn with_mpi() -> anyhow::Result<Root> {
        let about = std::fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
        let mut lines = about.lines();
        let release = lines.find_map(|line| line.strip_prefix("VERSION_CODENAME="));
        Root::of(
            release.context("no VERSION_CODENAME in /etc/os-release")?,
            "openmpi-bin,systemd",
        )
    }

    fn of(release: &str, beside: &str) -> anyhow::Result<Root> {
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

    /// Runs a script of bash in a fresh copy, where `/packages` are the files of a folder.
    ///
    /// # Errors
    /// The script's last status, if it is not 0; it has printed why.
    pub(super) fn run(&self, packages: &Path, script: &str) -> anyhow::Result<()> {
        self.enter(packages, script, "chroot")
    }

    /// The same for a root without a shell: the script stays outside, with the root as
    /// its current folder.
    pub(super) fn run_beside(&self, packages: &Path, script: &str) -> anyhow::Result<()> {
        self.enter(packages, script, "stay")
    }

    fn enter(&self, packages: &Path, script: &str, how: &str) -> anyhow::Result<()> {
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
            .arg(format!("{TOOLS}{script}"))
            .arg(how)
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
