//! The cost of waiting for a lock, and how long locks are free meanwhile, from the runs of
//! `contend`.

use super::Run;

/// The least minutes of waiting per grant. With fewer, the grants themselves are too large
/// a part of the cost.
const LEAST_MINUTES: f64 = 5.0;

impl Run {
    /// Workers that waited for a lock, on average: all but those that held one or paused.
    /// The number of these is the rate times the time that each operation holds and pauses
    /// (Little, Operations Research 9, 1961). None if this is not known, or if there were
    /// so many grants that waiting was not the main cost of the run.
    pub fn waiting(&self) -> Option<f64> {
        let workers = self.at.workers.filter(|_| self.workload == "contend")? as f64;
        let elsewhere_ns = self.times.hold_ns.as_ref()?.mean + self.idle_mean_ns.unwrap_or(0.0);
        let waiting = workers - self.throughput_per_s * elsewhere_ns / 1e9;
        let grants_per_minute = self.throughput_per_s * 60.0;
        (waiting > 0.0 && waiting >= LEAST_MINUTES * grants_per_minute).then_some(waiting)
    }

    /// The share of the time in which a lock was free although its next owner waited already:
    /// hand-offs a second, times the mean of one, for each lock. A queue's is the way of its
    /// messages; a lock that is polled stays free until the next poll. None of shared locks,
    /// which several own.
    pub fn free_share(&self) -> Option<f64> {
        let is_exclusive = self.workload == "contend" && self.writer_wait_ns.is_none();
        let handoff_ns = self
            .times
            .handoff_ns
            .as_ref()
            .filter(|_| is_exclusive)?
            .mean;
        let handoffs_per_s = self.blocked_share? * self.throughput_per_s;
        let locks = self.at.keys.unwrap_or(1).max(1) as f64;
        Some((handoffs_per_s * handoff_ns / 1e9 / locks).min(1.0))
    }

    /// So much for each waiting worker and minute, of what each operation cost.
    fn each_waiting_minute(&self, per_operation: f64) -> Option<f64> {
        Some(per_operation * self.throughput_per_s * 60.0 / self.waiting()?)
    }

    /// How often a waiting worker asks its server in a minute.
    pub fn waiting_round_trips_per_minute(&self) -> Option<f64> {
        self.each_waiting_minute(self.traffic?.for_each_grant()?.0)
    }

    /// The workers' CPU time for each of them that waits, in microseconds a minute.
    pub fn waiting_cpu_us_per_minute(&self) -> Option<f64> {
        self.each_waiting_minute(self.cpu.cpu_us_per_operation?)
    }

    /// The server's CPU time for each waiting worker, in microseconds a minute.
    pub fn waiting_server_cpu_us_per_minute(&self) -> Option<f64> {
        self.each_waiting_minute(self.server?.cpu_us_per_operation?)
    }
}

#[cfg(test)]
mod tests {
    use crate::record::{At, Cpu, Distribution, Run, Server, ServerTraffic, Times};

    /// Holds of 10 ms, of which each is waited for: a queue hands on in 100 us, and polls every
    /// 20 ms find the lock free after 10 ms on average.
    #[test]
    fn a_lock_that_is_polled_is_free_for_longer_than_a_queue() {
        let handed_on_in = |handoff_ms: f64| Run {
            throughput_per_s: 1_000.0 / (10.0 + handoff_ms),
            blocked_share: Some(1.0),
            times: Times {
                handoff_ns: Some(Distribution {
                    mean: handoff_ms * 1e6,
                    ..Distribution::default()
                }),
                ..Times::default()
            },
            ..queue()
        };
        let (queue, polled) = (handed_on_in(0.1), handed_on_in(10.0));
        assert!((0.0098..0.01).contains(&queue.free_share().unwrap()));
        assert_eq!(polled.free_share(), Some(0.5));
        // Half of the time goes by in another lock, and half of the grants nobody waited for.
        let mut others = polled.clone();
        (others.at.keys, others.blocked_share) = (Some(2), Some(0.5));
        assert_eq!(others.free_share(), Some(0.125));
        others.writer_wait_ns = Some(Default::default());
        assert_eq!(others.free_share(), None);
    }

    /// A thousand workers that wait; two grants a second, each held for half a second.
    fn queue() -> Run {
        Run {
            workload: "contend".to_owned(),
            at: At {
                workers: Some(1_001),
                ..At::default()
            },
            throughput_per_s: 2.0,
            times: Times {
                hold_ns: Some(Distribution {
                    mean: 0.5e9,
                    ..Distribution::default()
                }),
                ..Times::default()
            },
            cpu: Cpu {
                cpu_us_per_operation: Some(250.0),
                ..Cpu::default()
            },
            server: Some(Server {
                cpu_us_per_operation: Some(5_000.0),
                ..Server::default()
            }),
            traffic: Some(ServerTraffic {
                grants: 120,
                round_trips: 60_000,
                ..ServerTraffic::default()
            }),
            ..Run::default()
        }
    }

    #[test]
    fn what_a_run_cost_is_shared_out_over_the_minutes_of_waiting() {
        let point = queue();
        let figures = [
            (point.waiting(), 1_000.0),
            (point.waiting_round_trips_per_minute(), 60.0),
            (point.waiting_cpu_us_per_minute(), 30.0),
            (point.waiting_server_cpu_us_per_minute(), 600.0),
        ];
        for (at, (found, expected)) in figures.into_iter().enumerate() {
            let found = found.unwrap();
            assert!((found - expected).abs() < 1e-6, "{at}: {found}");
        }
    }

    #[test]
    fn workers_that_pause_do_not_wait() {
        let run = Run {
            idle_mean_ns: Some(99.5e9),
            ..queue()
        };
        assert!((run.waiting().unwrap() - 801.0).abs() < 1e-6);
    }

    #[test]
    fn a_run_whose_cost_is_that_of_its_grants_tells_nothing_of_waiting() {
        let changed: [fn(&mut Run); 4] = [
            |point| point.at.workers = Some(600),
            |point| point.throughput_per_s = 4.0,
            |run| run.times.hold_ns = None,
            |point| point.workload = "stream".to_owned(),
        ];
        for (at, change) in changed.into_iter().enumerate() {
            let mut point = queue();
            change(&mut point);
            assert_eq!(point.waiting(), None, "{at}");
            assert_eq!(point.waiting_round_trips_per_minute(), None, "{at}");
        }
    }
}
