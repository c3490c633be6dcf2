//! The threads of one side: when each ran, and when it was runnable and not running.

use jostle_model::judged::Thread;
use jostle_sys::stat::{self, Asleep, Scheduled, SchedulerClock, SleepState};
use std::collections::BTreeMap;

/// Threads whose clocks are kept open, on each side.
const THREADS: usize = 400;

/// Threads whose series are kept when there are more.
const KEPT: usize = 64;

/// Threads that stand in the record.
const RECORDED: usize = 8;

/// Intervals after which the series of idle threads are dropped.
const SWEEP: usize = 256;

/// One thread, as long as it is followed.
#[derive(Debug)]
struct Followed {
    clock: Option<SchedulerClock>,
    last: Scheduled,
    sleep: Option<SleepState>,
    asleep: Asleep,
    name: String,
    /// Looks at which it was there.
    looks: u32,
    /// The interval in which it was first seen.
    first: usize,
    /// CPU time and time in the queue, from that interval on.
    series: Vec<(f64, f64)>,
}

impl Followed {
    fn total(&self) -> f64 {
        self.series.iter().map(|(cpu, queued)| cpu + queued).sum()
    }
}

/// All threads of a side.
#[derive(Debug, Default)]
pub(super) struct Threads {
    followed: BTreeMap<(u32, u32), Followed>,
    /// Intervals so far.
    intervals: usize,
    /// Most at a time.
    pub most: u64,
    /// Whether the kernel counts the time in run queues.
    pub counted: bool,
    /// Threads that waited for a disk at the latest look, by their process, and the major
    /// faults of all in the interval; None where nobody asks.
    pub on_disk: Option<(BTreeMap<u32, u32>, u64)>,
}

impl Threads {
    /// At the start of the first interval.
    pub(super) fn begin(&mut self, pids: &[u32]) {
        for pid in pids {
            for tid in stat::threads_of(*pid) {
                self.follow(*pid, tid, self.intervals);
            }
        }
    }

    /// At the end of an interval: what the threads of these processes waited for a CPU,
    /// in seconds.
    pub(super) fn look(&mut self, pids: &[u32]) -> f64 {
        let mut there = 0;
        let mut queued_s = 0.0;
        if let Some(on_disk) = &mut self.on_disk {
            *on_disk = Default::default();
        }
        for pid in pids {
            for tid in stat::threads_of(*pid) {
                there += 1;
                queued_s += self.read(*pid, tid);
            }
        }
        self.intervals += 1;
        self.most = self.most.max(there);
        for followed in self.followed.values_mut() {
            if followed.first + followed.series.len() < self.intervals {
                // Gone: it may be a number again, of another thread.
                followed.clock = None;
            }
        }
        if self.intervals.is_multiple_of(SWEEP) {
            self.sweep(KEPT);
        }
        queued_s
    }

    fn read(&mut self, pid: u32, tid: u32) -> f64 {
        let alive = |followed: &Followed| followed.clock.is_some();
        if !self.followed.get(&(pid, tid)).is_some_and(alive) {
            // What it did before belongs to no interval that we saw whole.
            self.follow(pid, tid, self.intervals + 1);
            return 0.0;
        }
        let Some(followed) = self.followed.get_mut(&(pid, tid)) else {
            return 0.0;
        };
        let Some(now) = followed.clock.as_ref().and_then(SchedulerClock::read) else {
            return 0.0;
        };
        self.counted = true;
        let cpu_s = now.ran_ns.saturating_sub(followed.last.ran_ns) as f64 / 1e9;
        let queued_s = now.waited_ns.saturating_sub(followed.last.waited_ns) as f64 / 1e9;
        followed.last = now;
        followed.looks += 1;
        if let (Some((waiting, faults)), Some(now)) = (
            &mut self.on_disk,
            followed.sleep.as_ref().and_then(SleepState::read),
        ) {
            *faults += now.major_faults - followed.asleep.major_faults.min(now.major_faults);
            followed.asleep = now;
            if now.for_disk {
                *waiting.entry(pid).or_default() += 1;
            }
        }
        if followed.looks.is_power_of_two() {
            // Programs are executed, and threads named, after they were forked.
            followed.name = name(pid, tid).unwrap_or_else(|| followed.name.clone());
        }
        let missed = self.intervals - followed.first - followed.series.len();
        followed
            .series
            .extend(std::iter::repeat_n((0.0, 0.0), missed));
        followed.series.push((cpu_s, queued_s));
        queued_s
    }

    fn follow(&mut self, pid: u32, tid: u32, first: usize) {
        let open = self.followed.values().filter(|one| one.clock.is_some());
        if open.count() >= THREADS {
            return;
        }
        let Some(clock) = SchedulerClock::of(pid, tid) else {
            return;
        };
        let sleep = self.on_disk.as_ref().and_then(|_| SleepState::of(pid, tid));
        let followed = Followed {
            asleep: sleep
                .as_ref()
                .and_then(SleepState::read)
                .unwrap_or_default(),
            sleep,
            last: clock.read().unwrap_or_default(),
            clock: Some(clock),
            name: name(pid, tid).unwrap_or_default(),
            looks: 0,
            first,
            series: Vec::new(),
        };
        self.followed.insert((pid, tid), followed);
    }

    /// Books CPU time of the latest interval to the threads that were gone at its end, in
    /// proportion to the interval before; the time in the queue grows with it.
    pub(super) fn credit(&mut self, missing_s: f64, span_s: f64) {
        let latest = self.intervals;
        let mut gone: Vec<&mut Followed> = self.followed.values_mut().collect();
        gone.retain(|thread| thread.first + thread.series.len() + 1 == latest);
        let last = |thread: &Followed| thread.series.last().copied().unwrap_or_default();
        let all_s: f64 = gone.iter().map(|thread| last(thread).0).sum();
        for thread in gone {
            let (cpu_s, queued_s) = last(thread);
            let times = missing_s / all_s.max(f64::MIN_POSITIVE);
            let cpu_s = (cpu_s * times).min(span_s);
            let queued_s = (queued_s * times).min(span_s - cpu_s);
            thread.series.push((cpu_s, queued_s));
        }
    }

    /// Hands the threads of these processes to another side, and returns the time that all of them
    /// waited for a CPU in each interval.
    pub(super) fn hand_over(&mut self, pids: &[u32], to: &mut Threads) -> Vec<f64> {
        let mut queued_s = vec![0.0; self.intervals];
        let theirs = self
            .followed
            .extract_if(.., |(pid, _), _| pids.contains(pid));
        for (key, mut thread) in theirs {
            for (sum, (_, queued)) in queued_s.iter_mut().skip(thread.first).zip(&thread.series) {
                *sum += queued;
            }
            thread.sleep = to
                .on_disk
                .as_ref()
                .and_then(|_| SleepState::of(key.0, key.1));
            thread.asleep = thread
                .sleep
                .as_ref()
                .and_then(SleepState::read)
                .unwrap_or_default();
            to.followed.insert(key, thread);
        }
        to.counted |= self.counted;
        queued_s
    }

    /// Drops the series of all but the busiest; those that live are followed anew.
    fn sweep(&mut self, kept: usize) {
        let followed = self.followed.iter();
        let totals = followed.map(|(key, thread)| (*key, thread.total()));
        let mut totals: Vec<((u32, u32), f64)> = totals.collect();
        totals.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (key, _) in totals.into_iter().skip(kept) {
            self.followed.remove(&key);
        }
    }

    /// The busiest, each with a value for each interval.
    pub(super) fn busiest(mut self) -> Vec<Thread> {
        self.sweep(RECORDED);
        let intervals = self.intervals;
        let mut threads: Vec<((u32, u32), Followed)> = self.followed.into_iter().collect();
        threads.sort_by(|(_, a), (_, b)| b.total().total_cmp(&a.total()));
        let recorded = threads.into_iter().map(|((pid, tid), followed)| {
            let column = |of: fn(&(f64, f64)) -> f64| -> Vec<f64> {
                let before = std::iter::repeat_n(0.0, followed.first.min(intervals));
                let after = followed.series.iter().map(|pair| super::rounded(of(pair)));
                let mut column: Vec<f64> = before.chain(after).collect();
                column.resize(intervals, 0.0);
                column
            };
            Thread {
                cpu_s: column(|(cpu, _)| *cpu),
                queued_s: column(|(_, queued)| *queued),
                name: followed.name,
                pid: pid.into(),
                tid: tid.into(),
            }
        });
        recorded.collect()
    }
}

/// As the kernel names it (comm); characters that steer a terminal are question marks.
pub(super) fn name(pid: u32, tid: u32) -> Option<String> {
    let text = std::fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    let printed = |c: char| if c.is_control() { '?' } else { c };
    let text = String::from_utf8_lossy(&text);
    Some(text.trim_end().chars().map(printed).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_within_the_latest_interval_is_booked_as_the_one_before() {
        let thread = |first, series: &[(f64, f64)]| Followed {
            clock: None,
            last: Scheduled::default(),
            sleep: None,
            asleep: Asleep::default(),
            name: String::new(),
            looks: 0,
            first,
            series: series.to_vec(),
        };
        let gone = [
            thread(0, &[(0.01, 0.0), (0.06, 0.03)]),
            thread(1, &[(0.02, 0.0)]),
        ];
        let before = thread(0, &[(0.09, 0.0)]);
        let mut threads = Threads {
            followed: (1..).map(|tid| (1, tid)).zip(gone).collect(),
            intervals: 3,
            ..Threads::default()
        };
        threads.followed.insert((2, 2), before);
        threads.credit(0.04, 0.05);
        let latest = |key| threads.followed[&key].series.last().copied().unwrap();
        assert_eq!(latest((1, 1)), (0.03, 0.015));
        assert_eq!(latest((1, 2)), (0.01, 0.0));
        assert_eq!(threads.followed[&(2, 2)].series.len(), 1);
    }

    #[test]
    fn a_thread_that_spins_is_the_busiest_and_has_a_value_for_each_interval() {
        let own = std::process::id();
        let mut threads = Threads::default();
        threads.begin(&[own]);
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        let ran_ns = || stat::scheduled(own, tid as u32).unwrap_or_default().ran_ns;
        let mut x = 1u64;
        for _ in 0..3 {
            let began = ran_ns();
            while ran_ns() - began < 30_000_000 {
                x = std::hint::black_box(x.wrapping_mul(3));
            }
            threads.look(&[own]);
        }
        // Its process has gone.
        threads.look(&[]);
        assert!(threads.counted && threads.most >= 1);
        let busiest = threads.busiest();
        let spun = busiest.iter().find(|thread| thread.tid == tid).unwrap();
        assert_eq!((spun.cpu_s.len(), spun.queued_s.len()), (4, 4));
        // To a tick or two.
        assert!(spun.cpu_s.iter().sum::<f64>() > 0.05, "{spun:?}");
        assert_eq!(spun.cpu_s[3], 0.0);
    }
}
