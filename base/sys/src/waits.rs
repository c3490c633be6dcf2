//! The waits of threads, from /proc: no process is stopped or traced.
//!
//! The call in which a thread sleeps and its arguments (/proc/PID/task/TID/syscall) are shown to
//! whoever may trace the process (ptrace(2), "Ptrace access mode checking").

use crate::census;
use crate::owners::Key;
use libc::c_long;
use std::fs;
use std::path::Path;

/// A thread at one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Its process.
    pub pid: u32,
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// It sleeps.
    pub sleeps: bool,
    /// How often it was taken from a CPU.
    pub switches: u64,
    /// The call that it sleeps in; None without the right to see it.
    pub call: Option<Blocked>,
}

/// The call in which a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// flock(2) of a descriptor.
    Flock(u32),
    /// fcntl(2) that waits for a record lock.
    Record(u32),
    /// A call that reads from a descriptor.
    Reads(u32),
    /// One that writes to it.
    Writes(u32),
    /// futex(2).
    Futex {
        /// The address of its word.
        address: u64,
        /// Without flags.
        operation: u32,
        /// Only threads of this process share it.
        is_private: bool,
        /// The value with which the thread began to wait.
        expected: u32,
        /// It ends by itself.
        is_timed: bool,
    },
    /// wait4(2) and waitid(2): one child, or any.
    Child(Option<u32>),
    /// semop(2) on a set.
    Semaphores(i32),
    /// Another call.
    Other(&'static str),
}

/// Whether a thread of a process sleeps until it gets a lock of a file; false without the right to see
/// it.
pub fn for_file_lock((pid, tid): (u32, u32)) -> bool {
    let call = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"));
    let call = call.ok().and_then(|text| Blocked::parse(&text));
    matches!(call, Some(Blocked::Flock(_) | Blocked::Record(_)))
}

/// FUTEX_LOCK_PI and FUTEX_LOCK_PI2: the kernel itself keeps the owner in the word.
pub const LOCK_PI: [u32; 2] = [6, 13];
/// FUTEX_WAIT and FUTEX_WAIT_BITSET.
pub const WAIT: [u32; 2] = [0, 9];

const READS: [c_long; 6] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_pread64,
];
const WRITES: [c_long; 5] = [
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_connect,
];
const OTHERS: [(c_long, &str); 9] = [
    (libc::SYS_accept, "a connection"),
    (libc::SYS_accept4, "a connection"),
    (libc::SYS_ppoll, "events"),
    (libc::SYS_pselect6, "events"),
    (libc::SYS_epoll_pwait, "events"),
    (libc::SYS_nanosleep, "a timer"),
    (libc::SYS_clock_nanosleep, "a timer"),
    (libc::SYS_rt_sigsuspend, "a signal"),
    (libc::SYS_rt_sigtimedwait, "a signal"),
];
#[cfg(target_arch = "x86_64")]
const OLDER: [(c_long, &str); 4] = [
    (libc::SYS_poll, "events"),
    (libc::SYS_select, "events"),
    (libc::SYS_epoll_wait, "events"),
    (libc::SYS_pause, "a signal"),
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: [(c_long, &str); 0] = [];

impl Blocked {
    /// From `202 0x7f00 0x80 ...`, a call and its six arguments in hexadecimal; None for a thread
    /// that runs or sleeps outside a call.
    fn parse(text: &str) -> Option<Blocked> {
        const PRIVATE: u32 = 128;
        const REALTIME: u32 = 256;
        const ALL: u64 = 0;
        const ONE: u64 = 1;
        let mut words = text.split_whitespace();
        let number: c_long = words.next()?.parse().ok().filter(|number| *number >= 0)?;
        let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        let [first, second, third, fourth] = [argument()?, argument()?, argument()?, argument()?];
        let descriptor = first as u32;
        let waits = [libc::F_SETLKW, libc::F_OFD_SETLKW].map(|command| command as u64);
        Some(match number {
            libc::SYS_flock => Blocked::Flock(descriptor),
            libc::SYS_fcntl if waits.contains(&second) => Blocked::Record(descriptor),
            libc::SYS_futex => Blocked::Futex {
                address: first,
                operation: second as u32 & !(PRIVATE | REALTIME),
                is_private: second as u32 & PRIVATE != 0,
                expected: third as u32,
                is_timed: fourth != 0,
            },
            libc::SYS_wait4 => {
                Blocked::Child(u32::try_from(first as i32).ok().filter(|pid| *pid > 0))
            }
            libc::SYS_waitid if first == ALL => Blocked::Child(None),
            libc::SYS_waitid if first == ONE => Blocked::Child(Some(second as u32)),
            libc::SYS_semop | libc::SYS_semtimedop => Blocked::Semaphores(first as i32),
            number if READS.contains(&number) => Blocked::Reads(descriptor),
            number if WRITES.contains(&number) => Blocked::Writes(descriptor),
            number => {
                let mut known = OTHERS.iter().chain(&OLDER);
                let name = known.find(|(known, _)| *known == number);
                Blocked::Other(name.map_or("another call", |(_, name)| name))
            }
        })
    }
}

/// The threads of a process; none where it is gone.
pub fn threads(pid: u32) -> Vec<Look> {
    let tids = crate::stat::threads_of(pid).into_iter();
    tids.filter_map(|tid| thread(pid, tid)).collect()
}

fn thread(pid: u32, tid: u32) -> Option<Look> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}"));
    let status = read("status").ok()?;
    let line = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"))
    };
    let number = |name| line(name).and_then(|text| text.parse::<u64>().ok());
    let state = line("State")?;
    let printed = |c: char| if c.is_control() { '?' } else { c };
    Some(Look {
        pid,
        tid,
        name: line("Name")?.chars().map(printed).collect(),
        sleeps: state.starts_with(['S', 'D']),
        switches: number("voluntary_ctxt_switches")? + number("nonvoluntary_ctxt_switches")?,
        call: read("syscall").ok().and_then(|text| Blocked::parse(&text)),
    })
}

/// The threads of all processes that sleep in such a call.
fn all(is_it: impl Fn(&Look) -> bool) -> Vec<u32> {
    let mut pids = census::processes();
    pids.retain(|pid| threads(*pid).iter().any(&is_it));
    pids
}

/// The process that waits for a lock of an open file on this file, where it is the only one: the
/// list of locks names none.
pub fn for_open_file(key: &Key) -> Option<u32> {
    let waits = |look: &Look| match look.call {
        Some(Blocked::Record(descriptor)) => file(look.pid, descriptor).as_ref() == Some(key),
        _ => false,
    };
    match all(waits)[..] {
        [pid] => Some(pid),
        _ => None,
    }
}

/// The processes that wait for a set of semaphores of this IPC namespace.
pub fn for_semaphores(id: i32) -> Vec<u32> {
    let namespace = |of: String| fs::read_link(format!("/proc/{of}/ns/ipc")).ok();
    let own = namespace("self".to_owned());
    let mut pids = all(|look| look.call == Some(Blocked::Semaphores(id)));
    pids.retain(|pid| namespace(pid.to_string()) == own);
    pids
}

/// The file of a descriptor of a process.
pub fn file(pid: u32, descriptor: u32) -> Option<Key> {
    Key::from_path(Path::new(&format!("/proc/{pid}/fd/{descriptor}"))).ok()
}

/// Words of the memory of a process, without stopping it (process_vm_readv(2)); None without the
/// right to, and where it has no such memory.
pub fn words<const N: usize>(pid: u32, address: u64) -> Option<[u32; N]> {
    let mut words = [0u32; N];
    let length = size_of_val(&words);
    let local = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: length,
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: length,
    };
    // SAFETY: the kernel writes at most as many bytes as `words` has; the other address is of the
    // other process and is checked by the kernel.
    let read =
        unsafe { libc::process_vm_readv(pid as i32, &raw const local, 1, &raw const remote, 1, 0) };
    (usize::try_from(read) == Ok(length)).then_some(words)
}

/// The line of a process's memory map (proc_pid_maps(5)) that has this address: its device and
/// inode, its offset there, and its name. None where it may not be seen.
pub fn mapping(pid: u32, address: u64) -> Option<(String, u64, String)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).ok());
        let is_in = from? <= address && address < to?;
        let offset = u64::from_str_radix(words.nth(1)?, 16).ok()?;
        let file = format!("{} {}", words.next()?, words.next()?);
        let name = words.collect::<Vec<_>>().join(" ");
        is_in.then(|| (file, offset + address - from.unwrap_or(0), name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_with_their_arguments() {
        let call = |number: c_long, rest: &str| {
            Blocked::parse(&format!("{number} {rest} 0x0 0x0 0x7ffd 0x7f81"))
        };
        let futex = |operation, is_private, expected, is_timed| Blocked::Futex {
            address: 0x7f00,
            operation,
            is_private,
            expected,
            is_timed,
        };
        for (number, rest, expected) in [
            (libc::SYS_flock, "0x3 0x2 0x0 0x0", Blocked::Flock(3)),
            (libc::SYS_fcntl, "0x4 0x7 0x7ffd 0x0", Blocked::Record(4)),
            (libc::SYS_fcntl, "0x4 0x26 0x7ffd 0x0", Blocked::Record(4)),
            (
                libc::SYS_fcntl,
                "0x4 0x6 0x7ffd 0x0",
                Blocked::Other("another call"),
            ),
            (
                libc::SYS_futex,
                "0x7f00 0x80 0x2 0x0",
                futex(0, true, 2, false),
            ),
            (
                libc::SYS_futex,
                "0x7f00 0x189 0x5 0x7ff0",
                futex(9, true, 5, true),
            ),
            (
                libc::SYS_futex,
                "0x7f00 0x6 0x0 0x0",
                futex(6, false, 0, false),
            ),
            (
                libc::SYS_wait4,
                "0xffffffff 0x0 0x0 0x0",
                Blocked::Child(None),
            ),
            (
                libc::SYS_wait4,
                "0x1267 0x0 0x0 0x0",
                Blocked::Child(Some(0x1267)),
            ),
            (libc::SYS_waitid, "0x1 0x7 0x0 0x4", Blocked::Child(Some(7))),
            (
                libc::SYS_semtimedop,
                "0x9 0x7ffd 0x1 0x0",
                Blocked::Semaphores(9),
            ),
            (
                libc::SYS_nanosleep,
                "0x7ffd 0x0 0x0 0x0",
                Blocked::Other("a timer"),
            ),
        ] {
            assert_eq!(call(number, rest), Some(expected), "{number} {rest}");
        }
        for text in ["running", "-1 0x7ffd 0x7f81", "", "202"] {
            assert_eq!(Blocked::parse(text), None, "{text}");
        }
    }

    #[test]
    fn memory_is_read_where_it_is() {
        let word = [7u32, 8];
        let (own, address) = (std::process::id(), word.as_ptr() as u64);
        assert_eq!(words::<2>(own, address), Some([7, 8]));
        assert_eq!(words::<2>(own, 8), None);
        let (_, _, name) = mapping(own, address).unwrap();
        assert!(name.contains("stack") || name.is_empty(), "{name}");
        assert_eq!(mapping(own, 8), None);
    }
}
