//! The list of hosts: a file that any process can read, in which each first process is known by its
//! number and its namespace, so that a number that has gone to another process is not mistaken for
//! it.

use super::{NONE, SERVER, SWITCH};
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// The file in the hosts' directory: a line for each, its words in the order of
/// [`Member`]'s fields.
const FILE: &str = "hosts";
/// The first line of such a file: only a directory with one is ever removed.
const HEAD: &str = "# hosts made by cargo xtask hosts\n";
const SECOND_NS: i64 = 1_000_000_000;

/// One host, or the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its host name.
    pub name: String,
    /// Its first process.
    pub pid: u32,
    /// The namespace of its processes, as /proc/PID/ns/pid has it.
    pub namespace: String,
    /// In the range for benchmarks (RFC 2544), which nobody routes.
    pub address: String,
    /// How far its monotonic clock is ahead of this machine's, in nanoseconds.
    pub shift_ns: i64,
    /// The control group of its CPU time, or `-`.
    pub group: String,
}

/// All of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub members: Vec<Member>,
}

/// The hosts to make, before any exists; `now_ns` is this machine's monotonic clock.
pub(super) fn plan(count: u16, now_ns: u64) -> Vec<Member> {
    let member = |name: String, address: String, shift_ns| Member {
        name,
        pid: 0,
        namespace: NONE.to_owned(),
        address,
        shift_ns,
        group: NONE.to_owned(),
    };
    let shift = |index| shift_ns(index, count + 1, now_ns);
    let mut members: Vec<Member> = (1..=count)
        .map(|n| member(format!("h{n}"), format!("198.18.0.{n}"), shift(n)))
        .collect();
    members.push(member(
        SERVER.to_owned(),
        "198.18.1.1".to_owned(),
        shift(count + 1),
    ));
    members.push(member(SWITCH.to_owned(), NONE.to_owned(), 0));
    members
}

/// Different for each, no whole number of anything: 1000 s ahead for each of the
/// odd ones, and behind for the even ones, by 10 s each or, as no clock may start
/// below zero, as much less as fits into half of this machine's age.
fn shift_ns(index: u16, count: u16, now_ns: u64) -> i64 {
    let odd_ns = i64::from(index) * 12_345_679;
    if index % 2 == 1 {
        return i64::from(index) * 1000 * SECOND_NS + odd_ns;
    }
    let room_ns = i64::try_from(now_ns / 2).unwrap_or(i64::MAX) / i64::from(count);
    let step_ns = room_ns.min(10 * SECOND_NS);
    -(i64::from(index) * step_ns - odd_ns.min(step_ns / 2))
}

impl Member {
    /// Whether its first process is there.
    pub fn alive(&self) -> bool {
        self.pid != 0 && namespace_of(self.pid).is_some_and(|found| found == self.namespace)
    }

    /// Notes what its first process lives in, now that there is one.
    pub(crate) fn read_namespace(&mut self, pid: u32) -> anyhow::Result<()> {
        self.pid = pid;
        self.namespace = namespace_of(pid)
            .with_context(|| format!("the first process of {} ended at once", self.name))?;
        Ok(())
    }
}

/// None for a process that is gone, or has ended and is but waited for: such a one
/// keeps its number, and no other namespace.
fn namespace_of(pid: u32) -> Option<String> {
    fs::read_link(format!("/proc/{pid}/ns/uts")).ok()?;
    let name = fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?;
    Some(name.to_string_lossy().into_owned())
}

impl State {
    /// In one piece, whoever ends us.
    pub(super) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let lines: Vec<String> = self.members.iter().map(line).collect();
        let next = directory.join(format!("{FILE}.next"));
        fs::write(&next, HEAD.to_owned() + &lines.concat())
            .and_then(|()| fs::rename(&next, directory.join(FILE)))
            .context("cannot note the hosts")
    }

    /// None if the directory is not there.
    pub(super) fn read(directory: &Path) -> anyhow::Result<Option<State>> {
        let Ok(found) = fs::symlink_metadata(directory) else {
            return Ok(None);
        };
        // What stands there is believed, down to which processes to kill.
        let own = found.uid() == rustix::process::geteuid().as_raw();
        if !(found.is_dir() && own && found.mode() & 0o077 == 0) {
            bail!(
                "{} is not a private directory of this user",
                directory.display()
            );
        }
        let file = directory.join(FILE);
        if !file.exists() && is_new(directory) {
            return Ok(Some(State::default()));
        }
        let text = fs::read_to_string(file).unwrap_or_default();
        let lines = text.strip_prefix(HEAD).map(str::lines);
        let members = lines.and_then(|lines| lines.map(parse).collect());
        let members = members.with_context(|| {
            let place = directory.display();
            format!("{place} does not hold hosts ({place}/{FILE} is missing or damaged)")
        })?;
        Ok(Some(State { members }))
    }
}

/// Whether nothing has come about here yet but the beginning of a first note.
fn is_new(directory: &Path) -> bool {
    let first = format!("{FILE}.next");
    fs::read_dir(directory).is_ok_and(|mut entries| {
        entries.all(|entry| entry.is_ok_and(|entry| *entry.file_name() == *first))
    })
}

fn line(member: &Member) -> String {
    let (name, pid, namespace) = (&member.name, member.pid, &member.namespace);
    let (address, shift_ns, group) = (&member.address, member.shift_ns, &member.group);
    format!("{name} {pid} {namespace} {address} {shift_ns} {group}\n")
}

fn parse(line: &str) -> Option<Member> {
    let mut words = line.splitn(6, ' ');
    let mut word = || words.next().map(str::to_owned);
    Some(Member {
        name: word()?,
        pid: word()?.parse().ok()?,
        namespace: word()?,
        address: word()?,
        shift_ns: word()?.parse().ok()?,
        group: word()?,
    })
}

/// The processes on a host, but for its first one and what that made of itself for each connection;
/// not what only waits to be reaped.
pub(super) fn processes(member: &Member) -> Vec<(u32, String)> {
    inhabitants(member)
        .filter(|pid| *pid != member.pid)
        .filter_map(|pid| Some((pid, command_of(pid)?)))
        .filter(|(_, command)| !command.starts_with("sshd:"))
        .collect()
}

/// All that runs on a host.
fn inhabitants(member: &Member) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|pid| namespace_of(*pid).is_some_and(|found| found == member.namespace))
}

/// None of one that ends: it has no memory any more, and hence no arguments, and
/// keeps its place in the namespace until it is reaped. One in the middle of
/// execve(2) has none either; it goes by its name.
fn command_of(pid: u32) -> Option<String> {
    let text = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&text).replace('\0', " ");
    let command = text.trim_end();
    if !command.is_empty() {
        return Some(command.to_owned());
    }
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    name_of(&String::from_utf8_lossy(&stat)).map(|name| format!("[{name}]"))
}

/// From /proc/PID/stat; None of a process that ends or has ended.
fn name_of(stat: &str) -> Option<&str> {
    /// linux/sched.h: since before its memory was given up.
    const PF_EXITING: u64 = 4;
    // The name may hold blanks and parentheses.
    let (head, tail) = stat.rsplit_once(") ")?;
    let mut fields = tail.split(' ');
    let has_ended = matches!(fields.next()?, "Z" | "X");
    let flags: u64 = fields.nth(5)?.parse().ok()?;
    let name = head.split_once('(')?.1;
    (!has_ended && flags & PF_EXITING == 0).then_some(name)
}

/// Asks everything to end, then kills the first processes, and with them all.
pub(super) fn end_all(
    members: &[Member],
    grace: Duration,
    patience: Duration,
    own: &mut Vec<Child>,
) {
    let running = || -> Vec<u32> {
        let all = members.iter();
        let all = all.filter(|member| member.alive()).flat_map(processes);
        all.map(|(pid, _)| pid).collect()
    };
    tell(Signal::TERM, &running());
    await_until(grace, || running().is_empty());
    let first = members.iter().filter(|member| member.alive());
    tell(
        Signal::KILL,
        &first.map(|member| member.pid).collect::<Vec<_>>(),
    );
    for mut child in own.drain(..) {
        // Also one that was started and not noted yet.
        let _ = child.kill();
        let _ = child.wait();
    }
    // A first process that ends has left its namespaces before it kills the others.
    await_until(patience, || {
        members
            .iter()
            .all(|member| inhabitants(member).next().is_none())
    });
}

fn tell(signal: Signal, pids: &[u32]) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid as i32)) {
        // Some may be gone by now.
        let _ = kill_process(pid, signal);
    }
}

fn await_until(patience: Duration, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() && start.elapsed() < patience {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_arguments_goes_by_its_name_until_it_ends() {
        let table = [
            // /proc/PID/stat, name
            ("7 (sleep) R 1 7 7 0 -1 4194304 55 0", Some("sleep")), // within execve
            ("7 (a) b (c) S 1 7 7 0 -1 64 55 0", Some("a) b (c")),
            ("7 (setsid) R 1 7 7 0 -1 4194308 55 0", None), // exiting
            ("7 (sh) Z 1 7 7 0 -1 4228108 0 0", None),
            ("7 (sh) Z 1 7 7 0 -1 0 0 0", None),
            ("nonsense", None),
        ];
        for (stat, name) in table {
            assert_eq!(name_of(stat), name, "{stat}");
        }
    }

    mod live_tests {
        use super::*;

        /// One that had ended and was not reaped yet was listed without a name, so that
        /// hosts seemed to have something left behind.
        #[test]
        fn what_only_waits_to_be_reaped_is_no_process() {
            let mut ended = std::process::Command::new("true").spawn().unwrap();
            await_until(Duration::from_secs(10), || command_of(ended.id()).is_none());
            assert_eq!(command_of(ended.id()), None);
            ended.wait().unwrap();
            assert!(command_of(std::process::id()).is_some_and(|own| !own.is_empty()));
        }
    }
}
