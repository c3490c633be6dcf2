//! CPU time read from outside: of other processes, their threads, and the
//! whole machine.
//!
//! A blocked worker cannot read its own clock at the edge of the window, so the
//! keeper reads it. The sum is exact to the nanosecond, whatever the kernel's
//! accounting; the split in user and system is not read here, since with tick
//! accounting it is only sampled.

use crate::census::{numbers_in, stat_field};
use crate::limits::text::field;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The CPU clock of another process, all its threads together.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock(libc::clockid_t);

impl CpuClock {
    /// The clock of process `pid` (clock_getcpuclockid(3)).
    ///
    /// # Errors
    /// ESRCH if it is gone.
    pub fn of(pid: u32) -> io::Result<CpuClock> {
        let mut id = 0;
        // SAFETY: the pointer is to a live local.
        match unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &mut id) } {
            0 => Ok(CpuClock(id)),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// CPU time used so far, in nanoseconds; None once the process is reaped.
    pub fn read(self) -> Option<u64> {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the pointer is to a live local.
        let done = unsafe { libc::clock_gettime(self.0, &mut time) };
        (done == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}

/// CPU time of this process so far, in nanoseconds.
pub fn own_cpu_ns() -> u64 {
    CpuClock(libc::CLOCK_PROCESS_CPUTIME_ID).read().unwrap_or(0)
}

/// The scheduler's counts of one thread (/proc/PID/task/TID/schedstat).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduled {
    /// On a CPU, in nanoseconds, as of the last tick or switch.
    pub ran_ns: u64,
    /// Runnable but not running, in nanoseconds.
    pub waited_ns: u64,
    /// Times put on a CPU.
    pub switches: u64,
}

/// The scheduler's counts of one thread, open to be read again and again: opening it takes several
/// times as long as reading it.
#[derive(Debug)]
pub struct SchedulerClock(File);

impl SchedulerClock {
    /// None where the kernel was built without (CONFIG_SCHED_INFO) or the thread is
    /// gone.
    pub fn of(pid: u32, tid: u32) -> Option<SchedulerClock> {
        let file = File::open(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
        Some(SchedulerClock(file))
    }

    /// None where the thread is gone, or where the kernel counts nothing: it then
    /// shows zeros, which a thread that has ever run cannot have.
    pub fn read(&self) -> Option<Scheduled> {
        let mut buffer = [0; 96];
        let read = self.0.read_at(&mut buffer, 0).ok()?;
        parse_scheduled(std::str::from_utf8(&buffer[..read]).ok()?)
    }
}

fn parse_scheduled(text: &str) -> Option<Scheduled> {
    let scheduled = Scheduled {
        ran_ns: field(text, 0)?,
        waited_ns: field(text, 1)?,
        switches: field(text, 2)?,
    };
    (scheduled != Scheduled::default()).then_some(scheduled)
}

/// Reads once what the scheduler counts of one thread.
pub fn scheduled(pid: u32, tid: u32) -> Option<Scheduled> {
    SchedulerClock::of(pid, tid)?.read()
}

/// Whether a thread sleeps, and its faults (/proc/PID/task/TID/stat), open to be read again and
/// again.
#[derive(Debug)]
pub struct SleepState(File);

/// The wait of a thread beside those for CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asleep {
    /// It waits for a disk, or for what no signal ends (state D).
    pub for_disk: bool,
    /// Page faults that had to read a disk or swap, since its start.
    pub major_faults: u64,
}

impl SleepState {
    /// None where the thread is gone.
    pub fn of(pid: u32, tid: u32) -> Option<SleepState> {
        let file = File::open(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
        Some(SleepState(file))
    }

    /// None where the thread is gone.
    pub fn read(&self) -> Option<Asleep> {
        let mut buffer = [0; 512];
        let read = self.0.read_at(&mut buffer, 0).ok()?;
        parse_asleep(&String::from_utf8_lossy(&buffer[..read]))
    }
}

fn parse_asleep(text: &str) -> Option<Asleep> {
    Some(Asleep {
        for_disk: stat_field::<char>(text, 3)? == 'D',
        major_faults: stat_field(text, 12)?,
    })
}

/// Bytes that a process has read from disks and written to them so far (read_bytes and
/// write_bytes of /proc/PID/io). None if it is gone, or another user's.
pub fn disk_bytes(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    Some(parse_disk_bytes(&text))
}

fn parse_disk_bytes(text: &str) -> u64 {
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    let of_disk = lines.filter(|(name, _)| ["read_bytes", "write_bytes"].contains(name));
    let bytes = of_disk.filter_map(|(_, bytes)| bytes.parse::<u64>().ok());
    bytes.sum()
}

/// The threads of a process; empty if it is gone.
pub fn threads_of(pid: u32) -> Vec<u32> {
    numbers_in(&format!("/proc/{pid}/task"))
}

/// CPU time of the whole machine since boot, in ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineTicks {
    /// Neither idle nor stolen.
    pub busy: u64,
    /// Idle, waiting for input and output included.
    pub idle: u64,
    /// Taken by the hypervisor.
    pub stolen: u64,
    /// In soft interrupts; part of busy.
    pub softirq: u64,
    /// Hard interrupts of devices, by their count; timers and calls between CPUs are not
    /// among them on x86.
    pub interrupts: u64,
    /// CPUs over which the others are summed: all that are online, whether we
    /// may use them or not.
    pub cpus: u64,
    /// Taken by the hypervisor, and in soft interrupts, by the number of the CPU.
    pub each: BTreeMap<usize, [u64; 2]>,
}

impl MachineTicks {
    /// Time that the hypervisor took, and soft interrupts, on these CPUs, or on all if none are
    /// named.
    pub fn on(&self, cpus: &[usize]) -> [u64; 2] {
        let each = self.each.iter();
        each.filter(|(cpu, _)| cpus.is_empty() || cpus.contains(cpu))
            .fold([0; 2], |[stolen, softirq], (_, ticks)| {
                [stolen + ticks[0], softirq + ticks[1]]
            })
    }
}

/// Reads /proc/stat.
///
/// # Errors
/// Where /proc is not mounted or has another shape.
pub fn machine_ticks() -> io::Result<MachineTicks> {
    let text = std::fs::read_to_string("/proc/stat")?;
    parse_machine(&text).ok_or_else(|| io::Error::other("/proc/stat has no line of all CPUs"))
}

fn parse_machine(text: &str) -> Option<MachineTicks> {
    // user nice system idle iowait irq softirq steal guest guest_nice; guest
    // time is contained in user time (proc(5)).
    let numbers = |line: &str| -> Vec<u64> {
        let words = line.split_whitespace().skip(1);
        words.map_while(|field| field.parse().ok()).collect()
    };
    let fields = numbers(text.lines().find(|line| line.starts_with("cpu "))?);
    let at = |n: usize| fields.get(n).copied().unwrap_or(0);
    // The first is the sum, with those that have no device.
    let interrupts = text.lines().find(|line| line.starts_with("intr "));
    let interrupts = interrupts.map_or(0, |line| numbers(line).iter().skip(1).sum());
    let each = text.lines().take_while(|line| line.starts_with("cpu"));
    let each: BTreeMap<usize, [u64; 2]> = each
        .filter_map(|line| {
            let (name, _) = line.split_once(' ')?;
            let cpu = name.strip_prefix("cpu")?.parse().ok()?;
            let fields = numbers(line);
            Some((cpu, [7, 6].map(|n| fields.get(n).copied().unwrap_or(0))))
        })
        .collect();
    (fields.len() >= 4).then(|| MachineTicks {
        busy: at(0) + at(1) + at(2) + at(5) + at(6),
        idle: at(3) + at(4),
        stolen: at(7),
        softirq: at(6),
        interrupts,
        cpus: each.len() as u64,
        each,
    })
}

/// Packets that the kernel has handled since boot, by the number of the CPU
/// (/proc/net/softnet_stat); empty where it does not say.
pub fn packets() -> BTreeMap<usize, u64> {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
    parse_packets(&text)
}

/// A line for each CPU that is online. The first field counts packets; the thirteenth is the
/// CPU's number, since Linux 5.10.
fn parse_packets(text: &str) -> BTreeMap<usize, u64> {
    let lines = text.lines().enumerate().filter_map(|(nth, line)| {
        let field = |at: usize| {
            let word = line.split_ascii_whitespace().nth(at)?;
            u64::from_str_radix(word, 16).ok()
        };
        let cpu = field(12).map_or(nth, |cpu| cpu as usize);
        Some((cpu, field(0)?))
    });
    lines.collect()
}

/// Ticks a second in /proc (sysconf(3), _SC_CLK_TCK).
pub fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_s_line_is_split_as_proc_5_says() {
        let text = "cpu  747 1 307 166519 522 3 12 2 9 0\ncpu0 1 2 3 4\ncpu1 1 2 3 4 5 6 7 8\n\
             intr 90 0 30 11\nctxt 5\n";
        assert_eq!(
            parse_machine(text),
            Some(MachineTicks {
                busy: 747 + 1 + 307 + 3 + 12,
                idle: 166_519 + 522,
                stolen: 2,
                softirq: 12,
                interrupts: 41,
                cpus: 2,
                each: BTreeMap::from([(0, [0, 0]), (1, [8, 7])]),
            })
        );
        assert_eq!(parse_machine("intr 5\n"), None);
        let machine = parse_machine(text).unwrap();
        assert_eq!((machine.on(&[0]), machine.on(&[])), ([0, 0], [8, 7]));
    }

    #[test]
    fn a_thread_s_state_and_major_faults_stand_behind_its_name() {
        let of = |state: &str| {
            let text = format!("71 (a) b) {state} 1 71 71 0 -1 4194304 240 11 7 12 0 0");
            let asleep = parse_asleep(&text).unwrap();
            (asleep.for_disk, asleep.major_faults)
        };
        assert_eq!((of("D"), of("S")), ((true, 7), (false, 7)));
        assert_eq!(parse_asleep("71 (a) D 1"), None);
        let own = std::process::id();
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert!(!SleepState::of(own, tid).unwrap().read().unwrap().for_disk);
        let io =
            "rchar: 9\nwchar: 9\nread_bytes: 4096\nwrite_bytes: 512\ncancelled_write_bytes: 9\n";
        assert_eq!(parse_disk_bytes(io), 4608);
    }

    #[test]
    fn packets_are_counted_by_cpu() {
        let zeros = "0 0 0 0 0 0 0 0 0 0 0";
        let text = format!("0000001f {zeros} 00000002\n00000002 {zeros} 00000003\n");
        assert_eq!(parse_packets(&text), BTreeMap::from([(2, 31), (3, 2)]));
        assert_eq!(parse_packets("0000001f 0\n"), BTreeMap::from([(0, 31)]));
        assert!(parse_packets("").is_empty());
    }

    #[test]
    fn a_kernel_that_counts_nothing_shows_zeros() {
        assert_eq!(parse_scheduled("0 0 0\n"), None);
        let counted = parse_scheduled("7 0 1\n").unwrap();
        assert_eq!((counted.ran_ns, counted.waited_ns), (7, 0));
    }

    #[test]
    fn work_moves_our_own_clock_and_others_read_it() {
        let clock = CpuClock::of(std::process::id()).unwrap();
        let before = clock.read().unwrap();
        let mut x = 1u64;
        for i in 0..2_000_000u64 {
            x = std::hint::black_box(x.wrapping_mul(i | 1));
        }
        assert!(clock.read().unwrap() > before);
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert!(scheduled(std::process::id(), tid).is_some());
        // One above the largest number that Linux ever gives a process.
        assert!(CpuClock::of(4 << 20 | 1).is_err());
    }
}
