//! Many hosts on one machine: each with a name, an address, an sshd, processes and
//! a monotonic clock of its own, on a switch that only they are connected to, so
//! that a real `mpirun` starts its ranks over ssh across them.
//!
//! A host is the namespaces of one process, its sshd; when that ends, so does all
//! that runs there, and nothing has a name outside. What is left are a directory
//! with keys and scripts, and control groups, which [`Hosts::down`] removes from any
//! process. Links can be slowed and cut (`links`), CPU time limited (`cpu`).
//!
//! For `cargo xtask hosts`, and for tests. Needs root. Not a container: files,
//! users and the wall clock are the machine's.

mod cpu;
mod links;
mod state;

use crate::shell::{quiet, write_script};
use anyhow::{Context, bail};
use jostle_sys::namespaces::spawn_as_host;
pub use state::Member;
use state::State;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The host for servers.
pub const SERVER: &str = "srv";
/// Where the links come together; has no sshd.
const SWITCH: &str = "switch";
/// The mark for a part that a member does not have.
const NONE: &str = "-";
/// As many as have an address.
pub const MOST: u16 = 200;

/// The script of a host's first process.
const HOST: &str = include_str!("host.sh");
/// The script of the switch's first process. It, too, ends when its maker ends early.
const SWITCH_SCRIPT: &str =
    "echo switch >/proc/sys/kernel/hostname; read -r go && exec sleep infinity";

/// For sshds to start, and processes to end, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// For programs to clear away after themselves before they are killed.
const GRACE: Duration = Duration::from_secs(1);

/// Directories of tests' hosts: the test's process follows, and a number.
const TEST_PREFIX: &str = "jostle-hosts-of-test-";

/// Hosts that are up. Dropping it takes them down if this process made them for
/// itself ([`Hosts::for_test`]).
#[derive(Debug)]
pub struct Hosts {
    directory: PathBuf,
    state: State,
    /// First processes that are children of this one.
    children: Vec<Child>,
    temporary: bool,
}

impl Drop for Hosts {
    #[allow(clippy::print_stderr, reason = "a destructor returns nothing")]
    fn drop(&mut self) {
        if self.temporary
            && let Err(error) = self.take_down()
        {
            eprintln!("the hosts of {}: {error:#}", self.directory.display());
        }
    }
}

/// # Errors
/// For anybody else.
pub fn need_root() -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("hosts are made of namespaces, which needs root");
    }
    Ok(())
}

/// Where hosts are that nobody gave another place.
pub fn usual_directory() -> PathBuf {
    std::env::temp_dir().join("jostle-hosts")
}

impl Hosts {
    /// Makes h1 to hN and srv. They stay until [`Hosts::down`].
    ///
    /// # Errors
    /// In words for the user; nothing stays then.
    pub fn up(directory: &Path, count: u16) -> anyhow::Result<Hosts> {
        if !(1..=MOST).contains(&count) {
            bail!("from 1 to {MOST} hosts, not {count}");
        }
        need_root()?;
        let made = fs::DirBuilder::new().mode(0o700).create(directory);
        match made {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => bail!(
                "{} is there: hosts are up, or something is left of some; `cargo xtask hosts down` \
                 takes them down",
                directory.display()
            ),
            made => made.with_context(|| format!("cannot make {}", directory.display()))?,
        }
        let mut hosts = Hosts {
            directory: directory.to_owned(),
            state: State::default(),
            children: Vec::new(),
            temporary: true, // until they are whole
        };
        hosts.start(count)?;
        hosts.temporary = false;
        Ok(hosts)
    }

    /// Hosts in a directory of their own; they end with the value, and those of tests that were
    /// killed are taken down first.
    ///
    /// # Errors
    /// As for [`Hosts::up`].
    pub fn for_test(count: u16) -> anyhow::Result<Hosts> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        sweep_dead_tests();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{TEST_PREFIX}{}-{number}", std::process::id());
        let mut hosts = Hosts::up(&std::env::temp_dir().join(name), count)?;
        hosts.temporary = true;
        Ok(hosts)
    }

    /// Those that are up, or half up. None without any.
    ///
    /// # Errors
    /// A directory that somebody else could have written to.
    pub fn open(directory: &Path) -> anyhow::Result<Option<Hosts>> {
        Ok(State::read(directory)?.map(|state| Hosts {
            directory: directory.to_owned(),
            state,
            children: Vec::new(),
            temporary: false,
        }))
    }

    /// Ends everything that runs on them and removes all traces.
    ///
    /// # Errors
    /// What could not be removed; the rest is.
    pub fn down(mut self) -> anyhow::Result<()> {
        self.temporary = false;
        self.take_down()
    }

    /// Keys, scripts and the hosts' temporary files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// h1 to hN, then srv.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        let members = self.state.members.iter();
        members.filter(|member| member.name != SWITCH)
    }

    /// One of them.
    ///
    /// # Errors
    /// The names that there are.
    pub fn member(&self, name: &str) -> anyhow::Result<&Member> {
        let found = self.members().find(|member| member.name == name);
        found.with_context(|| {
            let names: Vec<&str> = self.members().map(|member| &*member.name).collect();
            format!("there is no host {name}, but {}", names.join(", "))
        })
    }

    /// A command that will run on a host, in the caller's working directory, and
    /// be terminated if the process that it becomes here is killed.
    pub fn on(&self, host: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(self.directory.join("exec"));
        command.arg(host).arg(program);
        command
    }

    /// `mpirun` on h1, with the options that reach the others.
    pub fn mpirun(&self) -> Command {
        Command::new(self.directory.join("mpirun"))
    }

    /// Whether all first processes are there.
    pub fn whole(&self) -> bool {
        self.directory.join("mpirun").exists() && self.state.members.iter().all(Member::alive)
    }

    /// Processes on a host beside its sshd: number, seen from here, and command.
    ///
    /// # Errors
    /// For a host that is not there.
    pub fn processes(&self, host: &str) -> anyhow::Result<Vec<(u32, String)>> {
        let member = self.member(host)?;
        Ok(state::processes(member))
    }

    fn start(&mut self, count: u16) -> anyhow::Result<()> {
        let now_ns = jostle_sys::clock::monotonic();
        // Whoever ends us from here on leaves what `down` can find.
        self.state.members = state::plan(count, now_ns);
        self.make_groups()?;
        self.write_keys()?;
        self.write_files()?;
        for at in 0..self.state.members.len() {
            let child = self.start_member(at)?;
            self.state.members[at].pid = child.id();
            self.children.push(child);
        }
        // First processes wait for a word, and end when we do: now they are known.
        self.state.write(&self.directory)?;
        links::connect(&self.state)?;
        for child in &mut self.children {
            let mut stdin = child.stdin.take().context("stdin is a pipe")?;
            // One that has ended says why below.
            let _ = stdin.write_all(b"go\n");
        }
        self.await_sshds()?;
        // Last: what makes them whole.
        let script = |name, text: String| write_script(&self.directory.join(name), &text);
        script("exec", exec_script(&self.directory))?;
        script("mpirun", mpirun_script(&self.directory))
    }

    /// Groups of CPU time for all hosts, noted before they are made; where none can
    /// be, all else works.
    fn make_groups(&mut self) -> anyhow::Result<()> {
        let place = self.directory.file_name().unwrap_or_default();
        let place = format!("{}-{}", place.to_string_lossy(), std::process::id());
        for level in cpu::levels() {
            let mut groups = Vec::new();
            for member in self.state.members.iter_mut().filter(|m| m.name != SWITCH) {
                let group = level.join(format!("{place}-{}", member.name));
                member.group = group.display().to_string();
                groups.push(group);
            }
            self.state.write(&self.directory)?;
            if cpu::create(&groups).is_ok() {
                return Ok(());
            }
        }
        for member in &mut self.state.members {
            NONE.clone_into(&mut member.group);
        }
        self.state.write(&self.directory)
    }

    fn start_member(&mut self, at: usize) -> anyhow::Result<Child> {
        let member = &mut self.state.members[at];
        let mut command = Command::new("sh");
        let log = fs::File::create(self.directory.join(format!("{}.log", member.name)))?;
        command
            .arg("-c")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .current_dir(&self.directory);
        if member.name == SWITCH {
            command.arg(SWITCH_SCRIPT);
        } else {
            command
                .arg(HOST)
                .args([&member.name, &member.address, &member.group])
                .arg(&self.directory);
        }
        let child = spawn_as_host(&mut command, member.shift_ns)
            .with_context(|| format!("cannot make the namespaces of {}", member.name))?;
        member.read_namespace(child.id())?;
        Ok(child)
    }

    fn await_sshds(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        let hosts: Vec<(usize, String)> = (self.state.members.iter().enumerate())
            .filter(|(_, member)| member.name != SWITCH)
            .map(|(at, member)| (at, member.name.clone()))
            .collect();
        for (at, name) in hosts {
            while !self.directory.join(format!("{name}.pid")).exists() {
                let ended = self.children[at].try_wait()?.is_some();
                if ended || start.elapsed() > PATIENCE {
                    let log = self.directory.join(format!("{name}.log"));
                    let said = fs::read_to_string(log).unwrap_or_default();
                    bail!("{name} did not start its sshd: {}", said.trim());
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Ok(())
    }

    fn write_keys(&self) -> anyhow::Result<()> {
        for name in ["host_key", "user_key"] {
            quiet(
                Command::new("ssh-keygen")
                    .args(["-q", "-t", "ed25519", "-N", "", "-C", "jostle", "-f"])
                    .arg(self.directory.join(name)),
            )?;
        }
        Ok(())
    }

    fn write_files(&self) -> anyhow::Result<()> {
        let place = self.directory.display();
        let mut names = "127.0.0.1 localhost\n".to_owned();
        let mut slots = String::new();
        for member in self.members() {
            names += &format!("{} {}\n", member.address, member.name);
            fs::create_dir_all(self.directory.join("tmp").join(&member.name))?;
            if member.name != SERVER {
                slots += &format!("{} slots=1\n", member.name);
            }
        }
        // Programs of a test's own come first.
        fs::create_dir(self.directory.join("bin"))?;
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{place}/bin:{path}");
        let sshd = format!(
            "HostKey {place}/host_key\nAuthorizedKeysFile {place}/user_key.pub\n\
             PermitRootLogin prohibit-password\nStrictModes no\nUsePAM no\nUseDNS no\n\
             MaxStartups 1000\nMaxSessions 1000\nPrintMotd no\nPrintLastLog no\n\
             SetEnv \"PATH={path}\"\n"
        );
        let ssh = format!(
            "Host *\n  User root\n  IdentityFile {place}/user_key\n  IdentitiesOnly yes\n  \
             StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n  \
             ConnectTimeout 10\n"
        );
        for (name, text) in [
            ("passwd", plain_shell(&fs::read_to_string("/etc/passwd")?)),
            ("etc-hosts", names),
            ("hostfile", slots),
            ("sshd_config", sshd),
            ("ssh_config", ssh),
        ] {
            fs::write(self.directory.join(name), text)?;
        }
        Ok(())
    }

    fn take_down(&mut self) -> anyhow::Result<()> {
        state::end_all(&self.state.members, GRACE, PATIENCE, &mut self.children);
        let left = (self.state.members.iter()).filter(|member| member.alive());
        let left: Vec<&str> = left.map(|member| &*member.name).collect();
        if !left.is_empty() {
            bail!("the first processes of {} do not end", left.join(", "));
        }
        for member in &self.state.members {
            cpu::remove(&member.group, PATIENCE)?;
        }
        self.remove_directory()
    }

    /// Removes the directory. A tool of a start that was killed may still write into it.
    fn remove_directory(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            match fs::remove_dir_all(&self.directory) {
                Err(error)
                    if error.kind() == ErrorKind::DirectoryNotEmpty
                        && start.elapsed() < PATIENCE =>
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                done => {
                    return done
                        .with_context(|| format!("cannot remove {}", self.directory.display()));
                }
            }
        }
    }
}

/// Takes down what tests left that were killed: their process is in the name.
fn sweep_dead_tests() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| {
            let (pid, _) = name.strip_prefix(TEST_PREFIX)?.split_once('-')?;
            pid.parse::<u32>().ok()
        });
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
            && let Ok(Some(hosts)) = Hosts::open(&entry.path())
        {
            let _ = hosts.down();
        }
    }
}

/// /etc/passwd with a plain shell for root: another would read its start-up files for
/// each rank, whatever they do on this machine.
fn plain_shell(passwd: &str) -> String {
    let plain = |line: &str| match line.rsplit_once(':') {
        Some((root, _)) if line.starts_with("root:") => format!("{root}:/bin/sh\n"),
        _ => format!("{line}\n"),
    };
    passwd.lines().map(plain).collect()
}

fn exec_script(directory: &Path) -> String {
    include_str!("exec.sh").replace("DIRECTORY", &directory.display().to_string())
}

/// One rank to a host; whoever has more says so behind it.
fn mpirun_script(directory: &Path) -> String {
    include_str!("mpirun.sh").replace("DIRECTORY", &directory.display().to_string())
}
