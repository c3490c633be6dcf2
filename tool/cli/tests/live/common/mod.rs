//! A bench for the whole binary, as a user starts it: command lines that read
//! as they are typed, processes found and killed by what they are, and a look
//! at everything that a run could leave behind.
//!
//! Every wait has a limit, so that a run that hangs fails its test and no more.
//! What needs root says so and fails without it.

#![allow(dead_code, reason = "not every test binary needs everything")]

pub(crate) mod browser;
pub(crate) mod cgroup;
pub(crate) mod left;
pub(crate) mod liar;
pub(crate) mod loops;
pub(crate) mod processes;
pub(crate) mod small_disk;
pub(crate) mod web;

pub(crate) use jostle_testbed::turns::{alone, beside, each_at_once};
pub(crate) use processes::{Process, Signal};

use jostle_model::record::{Point, Reason, Record};
use left::Before;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What has not ended by then hangs: no run of these tests has so much to do. It is no bound
/// on how quick a machine must be.
const LIMIT: Duration = Duration::from_secs(600);
/// What the check `neighbours` says in each of its reasons.
const DISTURBED: &str = "kept it from its CPUs";
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

/// What a test finds in one of five runs: other programs on this machine can
/// spoil one, hardly five in a row.
#[track_caller]
pub(crate) fn in_five_tries<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    for _ in 0..5 {
        if let Some(found) = attempt() {
            return found;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    panic!("{what}: not in five runs");
}

/// The same of what a run finds only where other programs leave it figures: if each of
/// five has a point that is INVALID for them, there is nothing to find.
#[track_caller]
pub(crate) fn in_five_tries_unless_disturbed(
    what: &str,
    mut attempt: impl FnMut() -> (Done, bool),
) {
    let mut undisturbed = None;
    for _ in 0..5 {
        let (done, found) = attempt();
        if found {
            return;
        }
        undisturbed = (!done.is_disturbed()).then_some(done).or(undisturbed);
    }
    if let Some(done) = undisturbed {
        panic!("{what}: not in five runs; {}", done.transcript());
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

impl Place {
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

    /// The points of a result file as far as it is written.
    pub(crate) fn points(&self, name: &str) -> Vec<Point> {
        points(&self.read(name))
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

    /// To its end; then nothing of it may be left.
    pub(crate) fn run_cleanly(self) -> Done {
        self.run().leaves_nothing()
    }
}

/// A run in progress. Dropped, it is killed with all that belongs to it.
pub(crate) struct Running {
    line: String,
    pub place: Place,
    mark: String,
    limit: Duration,
    child: Child,
    keeper: Option<u32>,
    stdout: PathBuf,
    stderr: PathBuf,
    before: Before,
    started: Instant,
    status: Option<ExitStatus>,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// By which its processes are known.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// Time since it was started.
    pub(crate) fn so_far(&self) -> Duration {
        self.started.elapsed()
    }

    fn text(path: &Path) -> String {
        String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
    }

    /// What it has printed on stderr so far.
    pub(crate) fn said(&self) -> String {
        Running::text(&self.stderr)
    }

    /// What it has printed on stdout so far.
    pub(crate) fn printed(&self) -> String {
        Running::text(&self.stdout)
    }

    /// Waits until there is something to see; fails if the run ends before.
    pub(crate) fn until<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&mut Running) -> Option<T>,
    ) -> T {
        loop {
            if let Some(seen) = look(self) {
                return seen;
            }
            assert!(
                !self.has_ended(),
                "it ended before {what}: {}",
                self.transcript()
            );
            assert!(
                self.started.elapsed() < self.limit,
                "no {what}: {}",
                self.transcript()
            );
            std::thread::sleep(LOOK);
        }
    }

    fn has_ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().unwrap();
        }
        self.status.is_some()
    }

    fn transcript(&self) -> String {
        transcript(
            &self.line,
            self.status,
            &Running::text(&self.stdout),
            &Running::text(&self.stderr),
        )
    }

    fn child_named(&self, name: &str) -> Option<u32> {
        processes::children(self.pid())
            .into_iter()
            .find(|child| child.name == name)
            .map(|child| child.pid)
    }

    /// The keeper's process; waits until it is there.
    pub(crate) fn keeper(&mut self) -> u32 {
        if self.keeper.is_none() {
            self.keeper = Some(self.until("a keeper", |run| run.child_named("jostle-keeper")));
        }
        self.keeper.unwrap()
    }

    /// Waits until an interrupt no longer kills it at once: when it begins to listen
    /// takes long on a busy machine.
    pub(crate) fn until_it_listens(&mut self) {
        self.until("a handler of SIGINT", |run| {
            processes::catches(run.pid(), Signal::INT).then_some(())
        });
    }

    /// The worker processes that exist now.
    pub(crate) fn workers(&mut self) -> Vec<Process> {
        let keeper = self.keeper();
        let workers = processes::children(keeper).into_iter();
        workers
            .filter(|child| {
                ["jostle-worker", "jostle-threads", "jostle-tasks"].contains(&child.name.as_str())
            })
            .collect()
    }

    /// Waits until so many worker processes exist.
    pub(crate) fn until_workers(&mut self, count: usize) -> Vec<Process> {
        self.until(&format!("{count} workers"), |run| {
            Some(run.workers()).filter(|w| w.len() >= count)
        })
    }

    /// Waits until a worker sleeps out its hold, and finds it by that. For
    /// locks whose waiters do not sleep on a timer.
    pub(crate) fn holder(&mut self) -> u32 {
        self.until("a holder", |run| {
            run.workers()
                .iter()
                .find(|worker| worker.sleeps_on_a_timer())
                .map(|worker| worker.pid)
        })
    }

    /// The server that its keeper has launched, by the program's name, once workers work.
    pub(crate) fn server(&mut self, program: &str) -> u32 {
        self.until_workers(1);
        let keeper = self.keeper();
        self.until("the server", |_| {
            let children = processes::children(keeper).into_iter();
            let mut named = children.filter(|process| process.name == program);
            named.next().map(|process| process.pid)
        })
    }

    /// Once workers work, kills the servers of this program that its keeper has launched,
    /// until it ends: the first may be that of a pilot, which needs it no more.
    pub(crate) fn kill_servers(&mut self, program: &str) {
        self.until_workers(1);
        let keeper = self.keeper();
        while !self.has_ended() && self.started.elapsed() < self.limit {
            let children = processes::children(keeper).into_iter();
            for server in children.filter(|process| process.name == program) {
                self.kill(server.pid);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the tool measures its own cost, in a child of the keeper.
    pub(crate) fn until_own_cost(&mut self) -> u32 {
        let keeper = self.keeper();
        self.until("the own cost", |_| {
            processes::children(keeper)
                .into_iter()
                .find(|child| child.name == "jostle-cost")
                .map(|child| child.pid)
        })
    }

    /// Waits until so many runs stand in the result file.
    pub(crate) fn until_points(&mut self, file: &str, count: usize) {
        let place = self.place.clone();
        self.until(&format!("{count} points in {file}"), |_| {
            (place.read(file).matches("{\"record\":\"point\"").count() >= count).then_some(())
        });
    }

    /// Lets time pass.
    pub(crate) fn after(&self, time: Duration) -> &Running {
        std::thread::sleep(time);
        self
    }

    /// To the process that the user started.
    pub(crate) fn signal(&self, signal: Signal) -> &Running {
        processes::signal(self.pid(), signal);
        self
    }

    /// As the terminal sends it: to the whole process group.
    pub(crate) fn signal_group(&self, signal: Signal) -> &Running {
        processes::signal_group(self.pid(), signal);
        self
    }

    /// At once, to any of its processes.
    pub(crate) fn kill(&self, pid: u32) -> &Running {
        processes::signal(pid, Signal::KILL);
        self
    }

    /// The user's process, the keeper, the cleaner and every worker, as one blow.
    pub(crate) fn kill_all_at_once(&mut self) {
        let cleaner = self.child_named("jostle-cleaner");
        let cleaner = cleaner.expect("a cleaner");
        self.kill_at_once(&[cleaner]);
    }

    /// The same, but for the process that clears away then.
    pub(crate) fn kill_all_but_the_cleaner(&mut self) {
        self.kill_at_once(&[]);
    }

    fn kill_at_once(&mut self, others: &[u32]) {
        let keeper = self.keeper();
        let workers = self.workers();
        let victims = workers.iter().map(|w| w.pid).chain(others.iter().copied());
        let victims: Vec<u32> = [keeper, self.pid()].into_iter().chain(victims).collect();
        // Stopped first, so that none of them sees another one die.
        for pid in &victims {
            processes::signal(*pid, Signal::STOP);
        }
        for pid in &victims {
            processes::signal(*pid, Signal::KILL);
        }
        processes::until_gone(&victims);
    }

    /// Waits for the end of the process that the user started.
    pub(crate) fn end(mut self) -> Done {
        let left = self.limit.saturating_sub(self.started.elapsed());
        let deadline = Instant::now() + left;
        while !self.has_ended() {
            assert!(
                Instant::now() < deadline,
                "it does not end: {}",
                self.transcript()
            );
            std::thread::sleep(LOOK);
        }
        Done {
            line: self.line.clone(),
            place: self.place.clone(),
            mark: self.mark.clone(),
            status: self.status,
            stdout: Running::text(&self.stdout),
            stderr: Running::text(&self.stderr),
            pids: [Some(self.pid()), self.keeper]
                .into_iter()
                .flatten()
                .collect(),
            before: self.before.clone(),
            took: self.started.elapsed(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended() {
            processes::marked(&self.mark)
                .iter()
                .for_each(|p| processes::signal(p.pid, Signal::KILL));
            let _ = self.child.wait();
        }
    }
}

fn transcript(line: &str, status: Option<ExitStatus>, stdout: &str, stderr: &str) -> String {
    let status = status.map_or_else(|| "it runs".to_owned(), |status| status.to_string());
    format!("\n$ {line}\n--- stdout\n{stdout}--- stderr\n{stderr}--- {status}")
}

/// A run that has ended.
#[derive(Clone)]
pub(crate) struct Done {
    line: String,
    pub place: Place,
    mark: String,
    status: Option<ExitStatus>,
    pub stdout: String,
    pub stderr: String,
    pids: Vec<u32>,
    before: Before,
    pub took: Duration,
}

impl Done {
    /// As a shell counts: 128 and the number of the signal that ended it.
    pub(crate) fn code(&self) -> i32 {
        let status = self.status.unwrap();
        status
            .code()
            .or(status.signal().map(|signal| 128 + signal))
            .unwrap()
    }

    pub(crate) fn transcript(&self) -> String {
        transcript(&self.line, self.status, &self.stdout, &self.stderr)
    }

    /// Whether other programs or the hypervisor took so much of the machine that a
    /// point is INVALID for it.
    pub(crate) fn is_disturbed(&self) -> bool {
        // However the lines are broken.
        let words: Vec<&str> = self.stdout.split_whitespace().collect();
        self.code() == 3 && words.join(" ").contains(DISTURBED)
    }

    /// With this exit code. Other programs and the hypervisor may make a point of any
    /// run INVALID, whatever the test is about: then it says so, and 3 stands for 0.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Done {
        let disturbed = code == 0 && self.is_disturbed();
        assert!(
            disturbed || self.code() == code,
            "exit code {} expected of {}",
            code,
            self.transcript()
        );
        self
    }

    /// Exit code 0, or 3 where something in the results is INVALID.
    #[track_caller]
    pub(crate) fn measures(self) -> Done {
        assert!(
            [0, 3].contains(&self.code()),
            "exit code of {}",
            self.transcript()
        );
        self
    }

    /// On stderr.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Done {
        assert!(
            self.stderr.contains(text),
            "stderr does not say {text:?}: {}",
            self.transcript()
        );
        self
    }

    /// On stderr.
    #[track_caller]
    pub(crate) fn does_not_say(self, text: &str) -> Done {
        assert!(
            !self.stderr.contains(text),
            "stderr says {text:?}: {}",
            self.transcript()
        );
        self
    }

    /// On stdout.
    #[track_caller]
    pub(crate) fn prints(self, text: &str) -> Done {
        assert!(
            self.stdout.contains(text),
            "stdout has no {text:?}: {}",
            self.transcript()
        );
        self
    }

    #[track_caller]
    pub(crate) fn prints_nothing(self) -> Done {
        assert!(self.stdout.is_empty(), "stdout: {}", self.transcript());
        self
    }

    #[track_caller]
    pub(crate) fn says_nothing(self) -> Done {
        assert!(self.stderr.is_empty(), "stderr: {}", self.transcript());
        self
    }

    /// What ends a run at once or after a while ends it within a minute on any machine. What
    /// it must not wait for lasts longer.
    #[track_caller]
    pub(crate) fn ends_within_a_minute(self) -> Done {
        self.ends_within(Duration::from_secs(60))
    }

    /// The bound of a figure.
    #[track_caller]
    pub(crate) fn ends_within(self, limit: Duration) -> Done {
        assert!(
            self.took < limit,
            "it took {:?}: {}",
            self.took,
            self.transcript()
        );
        self
    }

    /// Looks for processes, directories, files and semaphores. Those of a
    /// killed parent may need a moment to be cleared away.
    #[track_caller]
    pub(crate) fn leaves_nothing(self) -> Done {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let left = self.what_is_left();
            if left.is_empty() {
                return self;
            }
            assert!(
                Instant::now() < deadline,
                "left behind: {left:#?} by {}",
                self.transcript()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// In words.
    pub(crate) fn what_is_left(&self) -> Vec<String> {
        let mut left: Vec<String> = processes::marked(&self.mark)
            .iter()
            .map(Process::to_string)
            .collect();
        left.extend(self.before.new_ledgers_of(&self.pids));
        left.extend(left::entries(&self.place.file("tmp")));
        left.extend(self.before.new_semaphores());
        left.extend(left::groups_of_the_dead());
        left
    }

    /// The runs on stdout, printed with `--format json`.
    pub(crate) fn points(&self) -> Vec<Point> {
        points(&self.stdout)
    }

    /// The only one.
    #[track_caller]
    pub(crate) fn point(&self) -> Point {
        let points = self.points();
        assert_eq!(points.len(), 1, "points of {}", self.transcript());
        points.into_iter().next().unwrap()
    }
}

fn points(lines: &str) -> Vec<Point> {
    let record = |line: &str| match serde_json::from_str(line) {
        Ok(Record::Point(point)) => Some(*point),
        Ok(_) => None,
        Err(error) => panic!("{error} in {line}"),
    };
    lines.lines().filter_map(record).collect()
}

/// The reason that a check gave, if it spoke.
pub(crate) fn reason<'a>(point: &'a Point, check: &str) -> Option<&'a Reason> {
    point
        .verdict
        .reasons
        .iter()
        .find(|reason| reason.check == check)
}
