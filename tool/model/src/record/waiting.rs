//! The cost of waiting for a lock, from the runs of `contend`.

use super::Point;

/// The least minutes of waiting per grant. With fewer, the grants themselves are too large
/// a part of the cost.
const LEAST_MINUTES: f64 = 5.0;

impl Point {
    /// Workers that waited for a lock, on average: all but those that held one or paused.
    /// The number of these is the rate times the time that each operation holds and pauses
    /// (Little, Operations Research 9, 1961). None if this is not known, or if there were
    /// so many grants that waiting was not the main cost of the run.
    pub fn waiting(&self) -> Option<f64> {
        let workers = self.at.workers.filter(|_| self.workload == "contend")? as f64;
        let elsewhere_ns = self.hold_ns.as_ref()?.mean + self.idle_mean_ns.unwrap_or(0.0);
        let waiting = workers - self.throughput_per_s * elsewhere_ns / 1e9;
        let grants_per_minute = self.throughput_per_s * 60.0;
        (waiting > 0.0 && waiting >= LEAST_MINUTES * grants_per_minute).then_some(waiting)
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
        self.each_waiting_minute(self.cpu_us_per_operation?)
    }

    /// The server's CPU time for each waiting worker, in microseconds a minute.
    pub fn waiting_server_cpu_us_per_minute(&self) -> Option<f64> {
        self.each_waiting_minute(self.server?.cpu_us_per_operation?)
    }
}

#[cfg(test)]
mod tests {
    use crate::record::{At, Distribution, Point, Server, ServerTraffic};

    /// A thousand workers that wait; two grants a second, each held for half a second.
    fn queue() -> Point {
        Point {
            workload: "contend".to_owned(),
            at: At {
                workers: Some(1_001),
                ..At::default()
            },
            throughput_per_s: 2.0,
            hold_ns: Some(Distribution {
                mean: 0.5e9,
                ..Distribution::default()
            }),
            cpu_us_per_operation: Some(250.0),
            server: Some(Server {
                cpu_us_per_operation: Some(5_000.0),
                ..Server::default()
            }),
            traffic: Some(ServerTraffic {
                grants: 120,
                round_trips: 60_000,
                ..ServerTraffic::default()
            }),
            ..Point::default()
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
        let point = Point {
            idle_mean_ns: Some(99.5e9),
            ..queue()
        };
        assert!((point.waiting().unwrap() - 801.0).abs() < 1e-6);
    }

    #[test]
    fn a_run_whose_cost_is_that_of_its_grants_tells_nothing_of_waiting() {
        let changed: [fn(&mut Point); 4] = [
            |point| point.at.workers = Some(600),
            |point| point.throughput_per_s = 4.0,
            |point| point.hold_ns = None,
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
