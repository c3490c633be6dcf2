//! The figures of a run that points are summarized by: one declaration each, by which
//! summaries, comparisons, fits, formats and pages find it.

use jostle_model::record::{Distribution, Kept, Run};

/// One figure.
#[derive(Debug)]
pub struct Figure {
    /// In documents and tables of data, with its unit.
    pub name: &'static str,
    /// How it becomes a figure of the point.
    pub over: Over,
    /// Reads it from a run.
    pub of: fn(&Run) -> Option<f64>,
}

/// The runs of a point that a figure is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// All that have it.
    Runs,
    /// The same; None if one of the point's runs does not have it.
    EachRun,
    /// Those that others did not disturb: CPU time, which is less on a CPU that others keep
    /// awake.
    Undisturbed,
    /// The same, unless the times are those of generators that could do no more: times of
    /// operations, and shares of workers.
    Times,
    /// A rate, in the clean slices of each run where the throughput is from these.
    CleanSlices,
}

impl Over {
    /// Whether runs are left out that others disturbed.
    pub fn is_undisturbed(self) -> bool {
        matches!(self, Over::Undisturbed | Over::Times)
    }
}

macro_rules! figures {
    ($($(#[$doc:meta])* $place:ident = $name:literal, $over:ident, $of:expr;)*) => {
        $($(#[$doc])*
        pub const $place: &Figure = &Figure { name: $name, over: Over::$over, of: $of };)*

        /// Every figure.
        pub static FIGURES: &[&Figure] = &[$($place),*];
    };
}

figures! {
    /// Operations per second.
    THROUGHPUT = "throughput_per_s", CleanSlices, |run| Some(run.throughput_per_s);
    /// Share of the ideal.
    OF_IDEAL = "of_ideal", CleanSlices, |run| run.of_ideal;
    /// CPU per operation.
    CPU = "cpu_us_per_operation", Undisturbed, |run| run.cpu.cpu_us_per_operation;
    /// The server's CPU per operation.
    SERVER_CPU = "server_cpu_us_per_operation", Undisturbed, |run| run.server?.cpu_us_per_operation;
    /// The server's memory for each lock held.
    HELD_BYTES = "server_bytes_per_held_lock", Runs, |run| run.server?.bytes_per_held_lock;
    /// How often a worker asked its server for each grant.
    ROUND_TRIPS = "round_trips_per_grant", Runs, |run| Some(run.traffic?.for_each_grant()?.0);
    /// Bytes of both directions for each grant.
    BYTES = "bytes_per_grant", Runs, |run| Some(run.traffic?.for_each_grant()?.1);
    /// Median time of an acquisition.
    ACQUIRE_P50 = "acquire_p50_ns", Times, |run| granted(run, "p50");
    /// Its 99th percentile.
    ACQUIRE_P99 = "acquire_p99_ns", Times, |run| granted(run, "p99");
    /// Median time of a release.
    RELEASE_P50 = "release_p50_ns", Times, |run| p50(&run.times.release_ns);
    /// Median time of a hand-off.
    HANDOFF_P50 = "handoff_p50_ns", Times, |run| p50(&run.times.handoff_ns);
    /// Median time of whole batches, where requests were pipelined.
    BATCH_P50 = "batch_p50_ns", Times, |run| p50(&run.times.batch_ns);
    /// Its 99th percentile.
    BATCH_P99 = "batch_p99_ns", Times, |run| p99(&run.times.batch_ns);
    /// Median response of requests, with those that got no answer; of connections at a rate,
    /// of those that were opened.
    RESPONSE_P50 = "response_p50_ns", Times, |run| response(run, "p50");
    /// Its 99th percentile.
    RESPONSE_P99 = "response_p99_ns", Times, |run| response(run, "p99");
    /// Mean time of a request from sending to answer, of successes.
    SERVICE = "service_mean_ns", Times, |run| Some(run.times.service_ns.as_ref()?.mean);
    /// Its median.
    SERVICE_P50 = "service_p50_ns", Times, |run| p50(&run.times.service_ns);
    /// Its 99th percentile.
    SERVICE_P99 = "service_p99_ns", Times, |run| p99(&run.times.service_ns);
    /// The mean less that of requests that do nothing, run by run.
    NET = "service_net_ns", Times, |run| {
        Some((SERVICE.of)(run)? - run.null.as_ref()?.service_ns.mean)
    };
    /// Median time of connect().
    CONNECT_P50 = "connect_p50_ns", Runs, |run| p50(&run.times.connect_ns);
    /// Its 99th percentile.
    CONNECT_P99 = "connect_p99_ns", Runs, |run| p99(&run.times.connect_ns);
    /// Median time of the last connects before the listed number.
    CONNECT_LAST_P50 = "connect_last_p50_ns", Runs, |run| p50(&run.times.connect_last_ns);
    /// Median time of bind().
    BIND_P50 = "bind_p50_ns", Runs, |run| p50(&run.times.bind_ns);
    /// Median time of accept4().
    ACCEPT_P50 = "accept_p50_ns", Runs, |run| p50(&run.times.accept_ns);
    /// Median time of the first close().
    CLOSE_P50 = "close_p50_ns", Runs, |run| p50(&run.times.close_ns);
    /// Kernel memory of one connection.
    SLAB_BYTES = "slab_bytes_each", Runs, |run| run.connections.as_ref()?.slab_bytes_each;
    /// Share of the grants that were contended.
    BLOCKED = "blocked_share", Runs, |run| run.blocked_share;
    /// Share of the workers' time in which they were blocked.
    BLOCKED_TIME = "blocked_time_share", Runs, |run| run.blocked_time_share;
    /// Share of the time in which a lock was free while its next owner waited.
    FREE = "free_share", Times, Run::free_share;
    /// Requests that were in flight.
    IN_FLIGHT = "effective_in_flight", Runs, |run| Some(run.spread.as_ref()?.effective);
    /// Those of them that were not in their own worker's hands.
    AT_SERVER = "in_flight_at_server", Runs, |run| run.spread.as_ref()?.at_server;
    /// From a fault to the next grant; a run without one would have the longest.
    NEXT_GRANT = "next_grant_ns", EachRun, |run| {
        Some(run.recovery.as_ref()?.next_grant_ns? as f64)
    };
    /// Renewals of one kept lock in a minute.
    KEPT_RENEWALS = "kept_renewals_per_lock_minute", Runs,
        |run| kept(run, Kept::renewals_per_minute);
    /// The workers' CPU time for one kept lock in a minute.
    KEPT_CPU = "kept_cpu_us_per_lock_minute", Undisturbed, |run| kept(run, Kept::cpu_us_per_minute);
    /// The same of the server.
    KEPT_SERVER_CPU = "kept_server_cpu_us_per_lock_minute", Undisturbed,
        |run| kept(run, Kept::server_cpu_us_per_minute);
    /// The same without what the server uses while it has no locks.
    KEPT_OWN_SERVER_CPU = "kept_own_server_cpu_us_per_lock_minute", Undisturbed,
        |run| kept(run, Kept::own_server_cpu_us_per_minute);
    /// What the server's memory grew by for one kept lock.
    KEPT_BYTES = "kept_server_memory_bytes_per_lock", Runs,
        |run| kept(run, Kept::server_memory_bytes_each);
}

pub(crate) fn p50(of: &Option<Distribution>) -> Option<f64> {
    percentile(of.as_ref()?, "p50")
}

pub(crate) fn p99(of: &Option<Distribution>) -> Option<f64> {
    percentile(of.as_ref()?, "p99")
}

fn granted(run: &Run, name: &str) -> Option<f64> {
    percentile(&run.acquire_ns.as_ref()?.granted, name)
}

fn percentile(of: &Distribution, name: &str) -> Option<f64> {
    of.percentiles.get(name).map(|ns| *ns as f64)
}

/// A percentile of the responses of a run, by its name; None where it is known only to lie
/// above.
pub fn response(run: &Run, name: &str) -> Option<f64> {
    let known = match (&run.spread, &run.open_loop) {
        (Some(spread), _) => &spread.response_ns.as_ref()?.kaplan_meier,
        (None, Some(open)) => &open.response_kaplan_meier,
        (None, None) => &run.times.response_ns.as_ref()?.percentiles,
    };
    known.get(name).map(|ns| *ns as f64)
}

fn kept(run: &Run, figure: fn(&Kept) -> Option<f64>) -> Option<f64> {
    figure(run.kept.as_deref()?)
}
