//! A bench for the whole binary, as a user starts it: command lines that read
//! as they are typed, processes found and killed by what they are, and a look
//! at everything that a run could leave behind.
//!
//! Every wait has a limit, so that a run that hangs fails its test and no more.
//! What needs root says so and fails without it.

#![allow(dead_code, reason = "not every test binary needs everything")]

pub(crate) mod browser;
pub(crate) mod cgroup;
mod done;
pub(crate) mod left;
pub(crate) mod liar;
pub(crate) mod loops;
pub(crate) mod processes;
mod running;
pub(crate) mod servers;
pub(crate) mod small_disk;
pub(crate) mod web;

pub(crate) use done::Done;
pub(crate) use jostle_testbed::turns::{alone, beside, each_at_once};
pub(crate) use processes::{Process, Signal};
pub(crate) use running::Running;

use jostle_model::judged::Watched;
use jostle_model::record::{Reason, Record, Run};
use left::Before;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A process that has not ended by then hangs: no run of these tests has so much to do. It is no
/// bound on how quick a machine must be.
const LIMIT: Duration = Duration::from_secs(600);
/// How long a test may look for what other programs can hide from it: in half a minute of
/// tries, a machine of whose time others took two thirds hid some of it each time.
const TRYING: Duration = Duration::from_secs(120);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// For commands that name CPU 0, which these tests may have been started without.
pub(crate) fn on_every_cpu() {
    let all: Vec<usize> = (0..1024).collect();
    jostle_sys::cpu::pin(&all).unwrap();
}

/// Fails a test that this user cannot make, rather than let it pass unmade.
pub(crate) fn must_be_root(to: &str) {
    let root = rustix::process::geteuid().is_root();
    assert!(
        root,
        "this test needs root to {to}; run `cargo test` as root, as ci does"
    );
}

/// A program that a test needs beside jostle.
pub(crate) fn must_have(program: &str, package: &str) {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()));
    assert!(
        found,
        "this test needs {program}: apt-get install {package} (`cargo xtask ci` does)"
    );
}

/// Python under this path, and so with a name of its own beside others in Python.
pub(crate) fn python_by_name(path: &Path) {
    must_have("python3", "python3");
    let python = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable, end='')"])
        .output()
        .unwrap();
    let python = String::from_utf8(python.stdout).unwrap();
    std::os::unix::fs::symlink(python, path).unwrap();
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `$PATH`, with this jostle before all other programs.
pub(crate) fn path_with_jostle() -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_jostle")).parent().unwrap();
    format!("{}:{}", binary.display(), std::env::var("PATH").unwrap())
}

/// A text in one line, with one space between its words.
pub(crate) fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The rows of a table in text: a line each, with `=>` between its cells.
pub(crate) fn rows<const N: usize>(table: &str) -> Vec<[&str; N]> {
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    let rows = lines.map(|line| {
        let cells: Vec<&str> = line.split("=>").map(str::trim).collect();
        <[&str; N]>::try_from(cells).unwrap_or_else(|cells| panic!("{N} cells: {cells:?}"))
    });
    rows.collect()
}

/// The first line that a child prints.
pub(crate) fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let stdout = child.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// A network of its own, in which a shell first does this.
pub(crate) fn in_a_network_of_its_own(run: Jostle, script: &str) -> Jostle {
    must_be_root("make network namespaces");
    must_have("unshare", "util-linux");
    must_have("ip", "iproute2");
    run.after(&format!("ip link set lo up && {script}"))
        .under("unshare --net")
}

/// Looks again and again until there is something to see.
pub(crate) fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(
            start.elapsed() < limit,
            "waited {limit:?} in vain for {what}"
        );
        std::thread::sleep(LOOK);
    }
}

/// A finding that a test makes in one run of several: other programs on this machine can spoil one,
/// hardly all that are made in [`TRYING`].
#[track_caller]
pub(crate) fn in_some_try<T>(what: &str, attempt: impl FnMut() -> Option<T>) -> T {
    tried(attempt).unwrap_or_else(|| panic!("{what}: not in five runs, nor in {TRYING:?}"))
}

fn tried<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    let mut tries = 0;
    while tries < 5 || start.elapsed() < TRYING {
        let found = attempt();
        if found.is_some() {
            return found;
        }
        tries += 1;
        std::thread::sleep(Duration::from_secs(1));
    }
    None
}

/// A finding that a run makes only where other programs leave it figures: if each of five has a
/// point that is INVALID for them, there is nothing to find.
#[track_caller]
pub(crate) fn in_some_try_unless_disturbed(what: &str, mut attempt: impl FnMut() -> (Done, bool)) {
    let (mut tries, mut undisturbed) = (0, None);
    let found = tried(|| {
        let (done, found) = attempt();
        tries += 1;
        undisturbed = (!done.is_disturbed())
            .then_some(done)
            .or(undisturbed.take());
        (found || undisturbed.is_none() && tries == 5).then_some(())
    });
    if let (None, Some(done)) = (found, undisturbed) {
        panic!("{what}: not in {TRYING:?}; {}", done.transcript());
    }
}

/// A directory of the test's own, in which its runs are started, and the user
/// who starts them.
#[derive(Clone)]
pub(crate) struct Place {
    directory: Arc<TempDir>,
    user: Option<u32>,
    binary: PathBuf,
}

/// A place of a test that measures beside others: see [`beside`].
pub(crate) struct BesideOthers {
    place: Place,
    _turn: std::sync::RwLockReadGuard<'static, ()>,
}

impl std::ops::Deref for BesideOthers {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Place {
    /// For runs by the user of the test, beside other tests.
    pub(crate) fn beside_others() -> BesideOthers {
        BesideOthers {
            _turn: beside(),
            place: Place::new(),
        }
    }

    /// For runs by the user of the test.
    pub(crate) fn new() -> Place {
        let directory = tempfile::Builder::new()
            .prefix("jostle-test.")
            .tempdir()
            .unwrap();
        fs::create_dir(directory.path().join("tmp")).unwrap();
        // Servers that refuse root run as another user in it.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Place {
            directory: Arc::new(directory),
            user: None,
            binary: PathBuf::from(env!("CARGO_BIN_EXE_jostle")),
        }
    }

    /// Runs another program here; what it prints, and complains of.
    #[track_caller]
    pub(crate) fn program(&self, line: &[&str]) -> (String, String) {
        let output = Command::new(line[0])
            .args(&line[1..])
            .current_dir(self.path())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{line:?}: {stdout}{stderr}");
        (stdout, stderr)
    }

    /// For runs by a user who is not root and whom no other process belongs to.
    pub(crate) fn of_a_plain_user() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        must_be_root("become another user");
        must_have("setpriv", "util-linux");
        let mut place = Place::new();
        // Beyond all users of a usual machine; two test binaries do not meet.
        let user =
            1_000_000 + std::process::id() % 30_000 * 100 + NEXT.fetch_add(1, Ordering::Relaxed);
        let reachable = place.path().join("bin/jostle");
        fs::create_dir(place.path().join("bin")).unwrap();
        if fs::hard_link(&place.binary, &reachable).is_err() {
            fs::copy(&place.binary, &reachable).unwrap();
        }
        for path in [place.path().to_owned(), place.path().join("tmp")] {
            chown(path, Some(user), Some(user)).unwrap();
        }
        place.binary = reachable;
        place.user = Some(user);
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// A directory that every user may write to.
    pub(crate) fn make_directory(&self, name: &str) {
        fs::create_dir(self.file(name)).unwrap();
        fs::set_permissions(self.file(name), fs::Permissions::from_mode(0o777)).unwrap();
    }

    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.file(name)).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect()
    }

    /// The runs of a result file as far as it is written.
    pub(crate) fn runs(&self, name: &str) -> Vec<Run> {
        runs(&self.read(name))
    }

    /// A command line without its first word, split at white space.
    pub(crate) fn jostle(&self, line: &str) -> Jostle {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Jostle {
            place: self.clone(),
            words: line.split_whitespace().map(str::to_owned).collect(),
            under: Vec::new(),
            limit: LIMIT,
            mark: format!(
                "{}-{}",
                std::process::id(),
                NEXT.fetch_add(1, Ordering::Relaxed)
            ),
        }
    }
}

/// A run in a place of its own.
pub(crate) fn jostle(line: &str) -> Jostle {
    Place::new().jostle(line)
}

/// One run of this command line, printed as records.
pub(crate) fn as_json(line: &str) -> Jostle {
    jostle(&format!("{line} --runs 1 --format json"))
}

/// A run that has not been started.
pub(crate) struct Jostle {
    place: Place,
    words: Vec<String>,
    under: Vec<String>,
    limit: Duration,
    mark: String,
}

impl Jostle {
    /// Started by another program, whose words come first: `prlimit --nproc=9`.
    pub(crate) fn under(mut self, line: &str) -> Jostle {
        self.under
            .splice(0..0, line.split_whitespace().map(str::to_owned));
        self
    }

    /// One more word, spaces and all.
    pub(crate) fn word(mut self, word: &str) -> Jostle {
        self.words.push(word.to_owned());
        self
    }

    /// Started by a shell that first does this.
    pub(crate) fn after(mut self, script: &str) -> Jostle {
        let script = format!("{script} && exec \"$@\"");
        self.under.splice(
            0..0,
            ["sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()],
        );
        self
    }

    fn command(&self) -> Command {
        // Who runs the tests in the background has it ignore SIGINT.
        let mut words = vec!["env".to_owned(), "--default-signal=INT".to_owned()];
        words.extend(self.under.iter().cloned());
        if let Some(user) = self.place.user {
            let user = user.to_string();
            let setpriv = [
                "setpriv",
                "--reuid",
                &user,
                "--regid",
                &user,
                "--clear-groups",
            ];
            words.extend(setpriv.map(str::to_owned));
        }
        words.push(self.place.binary.to_string_lossy().into_owned());
        words.extend(self.words.iter().cloned());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .current_dir(self.place.path())
            .env("TMPDIR", self.place.file("tmp"))
            .env(processes::MARK, &self.mark)
            .stdin(Stdio::null())
            .process_group(0);
        command
    }

    /// Started, and left to itself.
    pub(crate) fn in_background(self) -> Running {
        let before = Before::look();
        let stream = |name: &str| {
            let path = self.place.file(&format!("{}.{name}", self.mark));
            (File::create(&path).unwrap(), path)
        };
        let ((stdout, stdout_path), (stderr, stderr_path)) = (stream("stdout"), stream("stderr"));
        let mut command = self.command();
        let child = command.stdout(stdout).stderr(stderr).spawn();
        let child = child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        Running {
            line: [self.under, vec!["jostle".to_owned()], self.words]
                .concat()
                .join(" "),
            place: self.place,
            mark: self.mark,
            limit: self.limit,
            child,
            keeper: None,
            stdout: stdout_path,
            stderr: stderr_path,
            before,
            started: Instant::now(),
            status: None,
        }
    }

    /// To its end.
    pub(crate) fn run(self) -> Done {
        self.in_background().end()
    }

    /// To its end, with this exit code: see [`Done::exits`].
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Done {
        self.run().exits(code)
    }

    /// To its end, at which it has measured: see [`Done::measures`].
    #[track_caller]
    pub(crate) fn measures(self) -> Done {
        self.run().measures()
    }

    /// To its end; then nothing of it may be left.
    pub(crate) fn run_cleanly(self) -> Done {
        self.run().leaves_nothing()
    }
}

fn runs(lines: &str) -> Vec<Run> {
    let record = |line: &str| match serde_json::from_str(line) {
        Ok(Record::Run(run)) => Some(*run),
        Ok(_) => None,
        Err(error) => panic!("{error} in {line}"),
    };
    lines.lines().filter_map(record).collect()
}

/// The first record of a result of `judge`.
#[track_caller]
pub(crate) fn watched(lines: &str) -> Watched {
    match lines.lines().next().map(serde_json::from_str) {
        Some(Ok(Record::Judged(watched))) => *watched,
        other => panic!("{other:?}: {lines}"),
    }
}

/// The reason that a check gave, if it spoke.
pub(crate) fn reason<'a>(run: &'a Run, check: &str) -> Option<&'a Reason> {
    run.verdict
        .reasons
        .iter()
        .find(|reason| reason.check == check)
}
