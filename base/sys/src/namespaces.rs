//! A process that believes itself alone on a host of its own: its own names,
//! network, processes, mounts, System V objects and monotonic clock.
//!
//! For tests and demonstrations of many hosts on one machine. Not a container:
//! the files, the users and the wall clock are everybody's.

use crate::census;
use crate::errno::done;
use crate::process;
use rustix::process::geteuid;
use rustix::thread::LinkNameSpaceType;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// The namespaces of a host of its own (namespaces(7)).
const OWN: libc::c_int = libc::CLONE_NEWPID
    | libc::CLONE_NEWTIME
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNS;

/// Starts a command as the first process of a new host, whose monotonic and
/// boot-time clocks are `shift_ns` ahead of this process's (behind, if negative).
/// Everything that it starts lives there too, and dies with it.
///
/// Mounts are a copy: the command has to make them private (mount(8),
/// `--make-rprivate`) before it mounts anything.
///
/// # Errors
/// EPERM without the right to; EINVAL from a kernel without time namespaces;
/// ERANGE for a clock that would be behind zero.
pub fn spawn_as_host(command: &mut Command, shift_ns: i64) -> io::Result<Child> {
    // An unshare applies to the thread that makes it, and ends with that thread.
    std::thread::scope(|scope| {
        let start = || {
            leave(OWN)?;
            std::fs::write(offsets_of_this_thread(), offsets(shift_ns))?;
            // With a user to change to, std forks; kernels before 6.3 refuse to
            // vfork into another time namespace.
            command.uid(geteuid().as_raw()).spawn()
        };
        match scope.spawn(start).join() {
            Ok(child) => child,
            Err(_) => Err(io::Error::other("the thread that starts it panicked")),
        }
    })
}

/// A network namespace of this machine. It lasts while this is held.
#[derive(Debug)]
pub struct Network {
    /// Its number, by which the kernel names it.
    pub id: u64,
    /// One of the processes in it.
    pub pid: u32,
    file: File,
}

impl Network {
    /// That of a process.
    ///
    /// # Errors
    /// EACCES where the process may not be looked at, ENOENT where it is gone.
    pub fn of(pid: u32) -> io::Result<Network> {
        let file = File::open(format!("/proc/{pid}/ns/net"))?;
        let id = file.metadata()?.ino();
        Ok(Network { id, pid, file })
    }

    /// The result of `act`, which a helper thread does there, so that nobody else leaves the own
    /// namespace. What it opens stays in this one.
    ///
    /// # Errors
    /// EPERM where it may not be entered; the own one is not entered.
    pub fn within<T: Send>(&self, act: impl FnOnce() -> T + Send) -> io::Result<T> {
        if network_of(std::process::id()) == Some(self.id) {
            return Ok(act());
        }
        std::thread::scope(|scope| {
            let enter = || {
                let kind = Some(LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(self.file.as_fd(), kind)?;
                Ok(act())
            };
            match scope.spawn(enter).join() {
                Ok(done) => done,
                Err(_) => Err(io::Error::other("the thread that enters it panicked")),
            }
        })
    }
}

/// The number of a process's network namespace; None where the process may not be looked at.
pub fn network_of(pid: u32) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
    let number = link.to_str()?.strip_prefix("net:[")?.strip_suffix(']')?;
    number.parse().ok()
}

/// Namespaces that are looked at.
const MOST: usize = 256;

/// The network namespaces of all processes that may be looked at, our own first; and whether these
/// are all of this machine.
pub fn networks() -> (Vec<Network>, bool) {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    let mut complete = census::is_complete();
    let pids = census::processes().into_iter();
    for pid in std::iter::once(std::process::id()).chain(pids) {
        match network_of(pid) {
            Some(id) if !seen.insert(id) => {}
            Some(_) if all.len() < MOST => all.extend(Network::of(pid)),
            // A zombie has none any more.
            None if census::Identity::of(pid).is_none() || process::is_over(pid) => {}
            _ => complete = false,
        }
    }
    (all, complete)
}

/// Unshares (unshare(2)) for this thread and the processes that it starts; processes and
/// clock for the latter only.
pub(crate) fn leave(namespaces: libc::c_int) -> io::Result<()> {
    // SAFETY: plain number; none of these touches memory or descriptors, and only
    // this thread's own view of the system changes.
    Ok(done(unsafe { libc::unshare(namespaces) })?)
}

/// /proc/TID shows a thread's own namespaces; /proc/PID shows those of the first thread.
fn offsets_of_this_thread() -> String {
    let thread = rustix::thread::gettid().as_raw_nonzero();
    format!("/proc/{thread}/timens_offsets")
}

/// As time_namespaces(7) wants them: whole seconds, and nanoseconds that are never
/// negative.
fn offsets(shift_ns: i64) -> String {
    const SECOND: i64 = 1_000_000_000;
    let (s, ns) = (shift_ns.div_euclid(SECOND), shift_ns.rem_euclid(SECOND));
    format!("monotonic {s} {ns}\nboottime {s} {ns}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    fn first_number(text: &str) -> f64 {
        text.split_whitespace().next().unwrap().parse().unwrap()
    }

    #[test]
    fn offsets_are_split_as_the_kernel_wants_them() {
        let table = [
            (0, "0 0"),
            (1_000_000_000_789, "1000 789"),
            (-1, "-1 999999999"),
            (-2_500_000_000, "-3 500000000"),
        ];
        for (shift_ns, expected) in table {
            let both = format!("monotonic {expected}\nboottime {expected}\n");
            assert_eq!(offsets(shift_ns), both);
        }
    }

    mod live_tests {
        use super::*;

        #[test]
        fn a_host_has_a_first_process_no_network_and_a_clock_of_its_own() {
            const SHIFT_NS: i64 = 5_000_000_000_123;
            let uptime_s = first_number(&std::fs::read_to_string("/proc/uptime").unwrap());
            let mut command = Command::new("sh");
            command
                .args(["-c", "cat /proc/uptime; echo $$; tail -n +3 /proc/net/dev"])
                .stdout(Stdio::piped());
            let child = spawn_as_host(&mut command, SHIFT_NS).unwrap();
            let said = child.wait_with_output().unwrap().stdout;
            let said = String::from_utf8(said).unwrap();
            let ahead_s = first_number(&said) - uptime_s;
            assert!((4999.9..5060.0).contains(&ahead_s), "{ahead_s} s");
            let lines: Vec<&str> = said.lines().skip(1).collect();
            assert!(
                matches!(&lines[..], ["1", only] if only.contains("lo:")),
                "{said}"
            );
        }
    }
}
