//! Losses of processes between two looks at them: the time that their threads waited for a CPU, and
//! what the hypervisor took.

use jostle_model::record::Delays;
use jostle_sys::stat;
use std::collections::BTreeMap;

/// The first look.
#[derive(Debug)]
pub(crate) struct Looked {
    waited_ns: BTreeMap<u32, u64>,
    stolen_ticks: Option<u64>,
}

impl Looked {
    /// At all threads of these processes.
    pub(crate) fn at(processes: &[u32]) -> Looked {
        Looked {
            waited_ns: waited(processes),
            stolen_ticks: stolen_ticks(),
        }
    }

    /// The losses of these processes since; of threads that were started meanwhile everything
    /// counts. None where the kernel does not tell.
    pub(crate) fn since(&self, processes: &[u32]) -> Option<Delays> {
        let now = waited(processes);
        if now.is_empty() {
            return None;
        }
        let before = |thread| self.waited_ns.get(thread).copied().unwrap_or(0);
        let waits = now
            .iter()
            .map(|(thread, waited)| waited.saturating_sub(before(thread)));
        let stolen_ticks = stolen_ticks()?.saturating_sub(self.stolen_ticks?);
        Some(Delays {
            waited_for_cpu_ns: waits.sum(),
            stolen_ns: stolen_ticks * 1_000_000_000 / stat::ticks_per_second().max(1),
        })
    }
}

/// By thread.
fn waited(processes: &[u32]) -> BTreeMap<u32, u64> {
    let threads = processes.iter().flat_map(|pid| {
        stat::threads_of(*pid)
            .into_iter()
            .map(move |tid| (*pid, tid))
    });
    threads
        .filter_map(|(pid, tid)| Some((tid, stat::scheduled(pid, tid)?.waited_ns)))
        .collect()
}

fn stolen_ticks() -> Option<u64> {
    stat::machine_ticks().ok().map(|ticks| ticks.stolen)
}

#[cfg(test)]
mod live_tests {
    use super::*;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    /// A loop on one CPU, killed with the value.
    struct Hog(Child);

    impl Hog {
        fn start(cpu: usize) -> Hog {
            let mut hog = Command::new("taskset");
            hog.args(["-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"]);
            Hog(hog.spawn().unwrap())
        }
    }

    impl Drop for Hog {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn two_that_share_a_cpu_wait_for_it_and_what_they_waited_before_does_not_count() {
        let cpu = *jostle_sys::cpu::allowed().first().unwrap();
        let hogs = [Hog::start(cpu), Hog::start(cpu)];
        let pids = hogs.each_ref().map(|hog| hog.0.id());
        let waits = |looked: &Looked, least_ns: u64| {
            let start = Instant::now();
            loop {
                let delays = looked.since(&pids).unwrap();
                if delays.waited_for_cpu_ns >= least_ns {
                    return;
                }
                assert!(start.elapsed() < Duration::from_secs(120), "{delays:?}");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        let first = Looked::at(&pids);
        waits(&first, 50_000_000);
        let second = Looked::at(&pids);
        let waited_since = |looked: &Looked| looked.since(&pids).unwrap().waited_for_cpu_ns;
        // In this order, for they go on waiting.
        let [rest, whole] = [&second, &first].map(waited_since);
        assert!(rest < whole, "{rest} of {whole}");
        assert_eq!(second.since(&[]), None);
    }
}
