//! The figures of a run: a row for each, from which tables, csv, pages, metrics, summaries,
//! comparisons, rankings and fits take all that they need of it.
//!
//! Data that no row can hold stand where they are used: distributions with their bounds, percentiles
//! of all requests of a point, what the data name (phases, answers, errors), and the order of
//! what is printed side by side. [`headline`] is the figure that a workload is known by.

use Better::More;
use jostle_model::Plan;
use jostle_model::connect::Only;
use jostle_model::plan::Shape;
use jostle_model::record::{Distribution, Kept, PerWorker, Run, Waits};

/// One figure. Empty words: it is not used there.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// In summaries, fits and comparisons, with its unit.
    pub name: &'static str,
    /// Its name in comparisons, where that is another.
    pub alias: Option<&'static str>,
    /// Its name in csv, without the unit.
    pub stem: &'static str,
    /// As it ends the name: `ns`, `per_s`; empty for counts and indices. Of figures of the page
    /// alone it may be any word.
    pub unit: &'static str,
    /// Where its column stands in csv, and what its drawing is about.
    pub topic: Topic,
    /// The runs of a point that it is taken over.
    pub over: Over,
    /// How it becomes a column of the point in csv.
    pub fold: Fold,
    /// Reads it from a run.
    pub of: fn(&Run) -> Option<f64>,
    /// The better direction.
    pub better: Better,
    /// In comparisons.
    pub compared: &'static str,
    /// The target with the best one is this.
    pub best: &'static str,
    /// How the title of the drawing begins that shows which target that is.
    pub lead: &'static str,
    /// In sentences about its growth, before "per lock" or "per operation".
    pub grows: &'static str,
    /// Whether that follows; a call's own time says by itself of what it is.
    pub per_operation: bool,
    /// Above its drawing.
    pub title: &'static str,
    /// Below that.
    pub note: &'static str,
}

/// The runs of a point that a figure is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// All that have it.
    Runs,
    /// All; None if one of the point's runs does not have it.
    EachRun,
    /// All, since it tells why a point is INVALID; it is printed of such a point, too.
    Evidence,
    /// Those that others did not disturb: CPU time, which is less on a CPU that others keep
    /// awake.
    Undisturbed,
    /// As `Undisturbed`, unless the times are those of generators that could do no more: times of
    /// operations, and shares of workers.
    Times,
    /// A rate, or the time of an operation, in the clean slices of each run where the
    /// throughput is from these.
    CleanSlices,
}

impl Over {
    /// Whether runs are left out that others disturbed.
    pub fn is_undisturbed(self) -> bool {
        matches!(self, Over::Undisturbed | Over::Times)
    }
}

/// How figures of single runs become one of their point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// The median, with the ends of its interval in columns of their own.
    Interval,
    /// The median alone.
    Middle,
    /// The sum.
    Sum,
    /// The least.
    Least,
    /// The greatest.
    Most,
    /// The value of the run that stands for all in the fairness of a point, so that such columns
    /// belong together.
    OneRun,
}

/// The better direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Such as a throughput.
    More,
    /// Such as a wait.
    Less,
}

/// A figure's subject: csv has a group of columns for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// How much was done.
    Rates,
    /// Times of calls. In csv their columns are those of the distributions.
    Calls,
    /// Open connections.
    Connections,
    /// The cost of operations.
    Costs,
    /// The cost of locks that are held for a time.
    Kept,
    /// Requests in flight.
    Requests,
    /// How much of the time workers waited.
    Blocked,
    /// The shares of the workers.
    Fairness,
    /// After a fault; yes is 1, no is 0.
    Recovery,
    /// A promise through many faults.
    Promise,
    /// Looked at by checks.
    Evidence,
}

impl Figure {
    /// A time over all runs, without words.
    pub const TIME: Figure = Figure {
        name: "",
        alias: None,
        stem: "",
        unit: "ns",
        topic: Topic::Calls,
        over: Over::Runs,
        fold: Fold::Interval,
        of: |_| None,
        better: Better::Less,
        compared: "",
        best: "",
        lead: "",
        grows: "",
        per_operation: false,
        title: "",
        note: "",
    };

    /// How it changes with the machine: 1 for a time, -1 for a rate, 0 for what has nothing to
    /// do with time.
    pub fn machine(&self) -> f64 {
        match self.unit {
            "per_s" => -1.0,
            "ns" | "s" => 1.0,
            unit if unit.starts_with("us_") => 1.0,
            _ => 0.0,
        }
    }

    /// Its name in comparisons.
    pub fn compared_name(&self) -> &'static str {
        self.alias.unwrap_or(self.name)
    }
}

/// The rows by what they are about: `NAME = "stem" _ "unit", OVER FOLD, of, field: value`. One
/// with a NAME is in summaries; its name there is its column's, if no other is given.
macro_rules! figures {
    ($($topic:ident {$(
        $($(#[$doc:meta])+ $place:ident =)? $stem:literal $(_ $unit:literal)?,
        $over:ident $($fold:ident)?, $of:expr $(, $field:ident: $value:expr)*;
    )*})*) => {
        $($(figures! {
            @const [$($(#[$doc])+ $place)?]
            $topic $stem $(_ $unit)?, $over $($fold)?, $of $(, $field: $value)*
        })*)*

        /// Every figure, in the order of comparisons, fits, and drawings of one subject.
        pub static FIGURES: &[Figure] = &[$($(figures!(
            @ $topic $stem $(_ $unit)?, $over $($fold)?, $of $(, $field: $value)*
        ),)*)*];

        /// Those that summaries have.
        pub static SUMMARIZED: &[&Figure] = &[$($($($place,)?)*)*];
    };
    (@const [] $($row:tt)*) => {};
    (@const [$(#[$doc:meta])+ $place:ident] $($row:tt)*) => {
        $(#[$doc])+
        pub const $place: &Figure = &figures!(@ $($row)*);
    };
    (@ $topic:ident $stem:literal $(_ $unit:literal)?, $over:ident $($fold:ident)?, $of:expr
        $(, $field:ident: $value:expr)*) => {
        Figure {
            $($field: $value,)*
            ..Figure {
                name: concat!($stem $(, "_", $unit)?),
                stem: $stem,
                unit: concat!($($unit)?),
                topic: Topic::$topic,
                over: Over::$over,
                $(fold: Fold::$fold,)?
                of: $of,
                ..Figure::TIME
            }
        }
    };
}

figures! {
Rates {
    /// Operations per second.
    THROUGHPUT = "throughput" _ "per_s", CleanSlices, |run| Some(run.throughput_per_s),
        better: More, compared: "ops/s", best: "fastest", lead: "Throughput",
        title: "Throughput", note: "higher is better";
    "ceiling" _ "per_s", Runs Middle, |run| run.ceiling_per_s;
    /// Share of the ideal.
    OF_IDEAL = "of_ideal" _ "share", CleanSlices, |run| run.of_ideal,
        name: "of_ideal", better: More;
    "operations", Runs Sum, |run| Some(run.operations as f64);
    "window" _ "s", Runs Middle, |run| Some(run.window.window_s);
    "warmup" _ "s", Runs Middle, |run| Some(run.window.warmup_s);
    "acquire_phase" _ "s", Runs, |run| run.acquire_phase_s;
    "release_phase" _ "s", Runs, |run| run.release_phase_s;
}
Calls {
    // A connection's holds what the tool and its waits for the server take.
    "" _ "ns", CleanSlices, |run| {
        let of_locks = run.operations > 0 && run.connections.is_none();
        of_locks.then(|| 1e9 * run.window.window_s / run.operations as f64)
    }, name: "time_per_operation_ns", grows: "time", per_operation: true;
    /// Median time of connect().
    CONNECT_P50 = "connect_p50" _ "ns", Runs, |run| p50(&run.times.connect_ns),
        compared: "connect ns", best: "quickest to connect", lead: "Time to open",
        grows: "time in connect()";
    /// Its 99th percentile.
    CONNECT_P99 = "connect_p99" _ "ns", Runs, |run| p99(&run.times.connect_ns);
    /// Median time of the last connects before the listed number.
    CONNECT_LAST_P50 = "connect_last_p50" _ "ns", Runs, |run| p50(&run.times.connect_last_ns);
    /// Median time of bind().
    BIND_P50 = "bind_p50" _ "ns", Runs, |run| p50(&run.times.bind_ns),
        compared: "bind ns", best: "quickest to bind", lead: "Time to open";
    // Beside connect() it is next to nothing.
    "" _ "ns", Runs, |run| p50(&run.times.bind_ns).filter(|_| run.times.connect_ns.is_none()),
        name: "bind_p50_ns", grows: "time in bind()";
    /// Median time of accept4().
    ACCEPT_P50 = "accept_p50" _ "ns", Runs, |run| p50(&run.times.accept_ns),
        compared: "accept ns", grows: "time in accept4()";
    /// Median time of the first close().
    CLOSE_P50 = "close_p50" _ "ns", Runs, |run| p50(&run.times.close_ns), compared: "close ns";
}
Connections {
    "opened", Runs, |run| Some(run.connections.as_ref()?.opened as f64);
    "total" _ "s", Runs, |run| Some(run.connections.as_ref()?.total_s);
    "client_own_memory" _ "bytes_each", Runs,
        |run| run.connections.as_ref()?.client.own_bytes_each;
    "server_own_memory" _ "bytes_each", Runs,
        |run| run.connections.as_ref()?.server.as_ref()?.own_bytes_each;
    /// Kernel memory of one connection.
    SLAB_BYTES = "slab_memory" _ "bytes_each", Runs,
        |run| run.connections.as_ref()?.slab_bytes_each,
        name: "slab_bytes_each", compared: "kernel bytes";
    "server_cpu_user" _ "s", Runs, |run| run.connections.as_ref()?.server.as_ref()?.cpu_user_s;
    "server_cpu_system" _ "s", Runs,
        |run| run.connections.as_ref()?.server.as_ref()?.cpu_system_s;
    "time_wait_left", Runs, |run| Some(run.connections.as_ref()?.time_wait_left? as f64);
}
Costs {
    /// CPU per operation.
    CPU = "cpu" _ "us_per_operation", Undisturbed, |run| run.cpu.cpu_us_per_operation,
        compared: "CPU us/op", best: "cheapest in CPU", lead: "CPU time of the workers",
        grows: "CPU", per_operation: true, title: "CPU time of the workers for one operation",
        note: "waiting included; lower is better";
    "" _ "s", Runs, |run| {
        let counted = run.per_worker.is_none() && run.operations > 0;
        counted.then(|| run.window.window_s / run.operations as f64)
    }, title: "Time for one operation, all workers together",
        note: "the run by its operations; level where cost is linear in their number";
    "cpu" _ "s", Runs Sum, |run| run.cpu.cpu_s;
    "cpu_user" _ "s", Runs Sum, |run| run.cpu.cpu_user_s;
    "cpu_system" _ "s", Runs Sum, |run| run.cpu.cpu_system_s;
    "spun" _ "s", Runs Sum, |run| run.cpu.spun_s;
    "children_user" _ "s", Runs Sum, |run| run.cpu.children_user_s;
    "children_system" _ "s", Runs Sum, |run| run.cpu.children_system_s;
    /// The server's CPU per operation.
    SERVER_CPU = "server_cpu" _ "us_per_operation", Undisturbed,
        |run| run.server?.cpu_us_per_operation,
        compared: "server us/op", best: "cheapest in its server's CPU",
        lead: "CPU time of the server", grows: "server CPU", per_operation: true,
        title: "CPU time of the server for one operation", note: "lower is better";
    /// How often a worker asked its server for each grant.
    ROUND_TRIPS = "round_trips" _ "per_grant", Runs, |run| Some(run.traffic?.for_each_grant()?.0);
    /// Bytes of both directions for each grant.
    BYTES = "network" _ "bytes_per_grant", Runs, |run| Some(run.traffic?.for_each_grant()?.1),
        name: "bytes_per_grant";
    "failovers", Runs Sum, |run| Some(run.traffic?.failovers? as f64);
    /// The server's memory for each lock held.
    HELD_BYTES = "server_memory" _ "bytes_per_held_lock", Runs,
        |run| run.server?.bytes_per_held_lock,
        name: "server_bytes_per_held_lock", alias: Some("bytes_per_held_lock"),
        compared: "bytes/lock", title: "Memory of the server for one held lock",
        note: "lower is better";
    "null_cpu" _ "us_per_operation", Runs, |run| Some(run.null.as_ref()?.cpu_us_per_operation);
    "waiting", Runs, Run::waiting;
    "waiting_round_trips" _ "per_waiting_minute", Runs, Run::waiting_round_trips_per_minute;
    "waiting_cpu" _ "us_per_waiting_minute", Undisturbed, Run::waiting_cpu_us_per_minute;
    "waiting_server_cpu" _ "us_per_waiting_minute", Undisturbed,
        Run::waiting_server_cpu_us_per_minute;
    "context_switches", Runs Sum, |run| Some(run.cpu.context_switches? as f64);
    "idle_mean" _ "ns", Runs, |run| run.idle_mean_ns;
    "stamp_every", Runs Middle, |run| Some(run.stamp_every? as f64);
    "stamped", Runs Sum, |run| Some(run.stamped? as f64);
}
Kept {
    /// Renewals of one kept lock in a minute.
    KEPT_RENEWALS = "kept_renewals" _ "per_lock_minute", Runs,
        |run| kept(run, Kept::renewals_per_minute);
    "kept_round_trips" _ "per_lock_minute", Runs, |run| kept(run, Kept::round_trips_per_minute);
    "kept_network" _ "bytes_per_lock_minute", Runs, |run| kept(run, Kept::bytes_per_minute);
    /// The workers' CPU time for one kept lock in a minute.
    KEPT_CPU = "kept_cpu" _ "us_per_lock_minute", Undisturbed,
        |run| kept(run, Kept::cpu_us_per_minute);
    /// The server's CPU time for it.
    KEPT_SERVER_CPU = "kept_server_cpu" _ "us_per_lock_minute", Undisturbed,
        |run| kept(run, Kept::server_cpu_us_per_minute), compared: "server us/lock and minute",
        title: "CPU time of the server for one held lock in a minute",
        note: "while all locks were kept; lower is better";
    /// The server's, without what it uses while it has no locks.
    KEPT_OWN_SERVER_CPU = "kept_own_server_cpu" _ "us_per_lock_minute", Undisturbed,
        |run| kept(run, Kept::own_server_cpu_us_per_minute);
    /// Growth of the server's memory for one kept lock.
    KEPT_BYTES = "kept_server_memory" _ "bytes_per_lock", Runs,
        |run| kept(run, Kept::server_memory_bytes_each);
    "kept_connections" _ "per_lock", Runs, |run| kept(run, Kept::connections_each);
    "" _ "ns", Runs, |run| Some(run.kept.as_ref()?.latest_ns()? as f64),
        title: "Greatest lateness of a renewal",
        note: "from when it was due until the server had confirmed it; lower is better";
}
Calls {
    /// Median time of an acquisition.
    ACQUIRE_P50 = "acquire_p50" _ "ns", Times, |run| waited(run.acquire_ns.as_ref()?, "p50"), compared: "wait p50 ns";
    /// Its 99th percentile.
    ACQUIRE_P99 = "acquire_p99" _ "ns", Times, |run| waited(run.acquire_ns.as_ref()?, "p99"),
        compared: "wait p99 ns", best: "quickest to acquire (p99)", lead: "Time for one operation";
    /// Median time of a hand-off.
    HANDOFF_P50 = "handoff_p50" _ "ns", Times, |run| p50(&run.times.handoff_ns),
        compared: "hand-off ns";
    /// Median time of a release.
    RELEASE_P50 = "release_p50" _ "ns", Times, |run| p50(&run.times.release_ns),
        compared: "release ns";
    /// Median time of whole batches, where requests were pipelined.
    BATCH_P50 = "batch_p50" _ "ns", Times, |run| p50(&run.times.batch_ns), compared: "batch ns";
    /// Its 99th percentile.
    BATCH_P99 = "batch_p99" _ "ns", Times, |run| p99(&run.times.batch_ns);
    /// Median response of requests, with those that got no answer; of connections at a rate,
    /// of those that were opened.
    RESPONSE_P50 = "response_p50" _ "ns", Times, |run| response(run, "p50"),
        compared: "response p50 ns";
    /// Its 99th percentile.
    RESPONSE_P99 = "response_p99" _ "ns", Times, |run| response(run, "p99"),
        compared: "response p99 ns", best: "quickest to respond (p99)", lead: "Response time";
    /// Mean time of a request from sending to answer, of successes.
    SERVICE = "service_mean" _ "ns", Times, |run| Some(run.times.service_ns.as_ref()?.mean);
    /// Its median.
    SERVICE_P50 = "service_p50" _ "ns", Times, |run| p50(&run.times.service_ns);
    /// Its 99th percentile.
    SERVICE_P99 = "service_p99" _ "ns", Times, |run| p99(&run.times.service_ns);
    /// The mean less that of requests that do nothing, run by run.
    NET = "service_net" _ "ns", Times, |run| {
        Some((SERVICE.of)(run)? - run.null.as_ref()?.service_ns.mean)
    };
}
Requests {
    "in_flight", Evidence, |run| Some(run.spread.as_ref()?.in_flight as f64);
    /// Requests that were in flight.
    IN_FLIGHT = "effective_in_flight", Evidence, |run| Some(run.spread.as_ref()?.effective),
        title: "Requests in flight",
        note: "as there were, on average; those asked for are the same everywhere";
    /// Those of them that were not in their own worker's hands.
    AT_SERVER = "in_flight_at_server", Evidence, |run| run.spread.as_ref()?.at_server,
        title: "Requests at the server", note: "in flight, and not in their own worker's hands";
    "" _ "share", Runs, |run| busiest(run).filter(|_| run.spread.is_some()),
        title: "The busiest generator",
        note: "share of its time, or of its CPU quota; from 0.9 on it is the limit";
}
Blocked {
    /// Share of the grants that were contended.
    BLOCKED = "blocked" _ "share", Runs, |run| run.blocked_share,
        title: "Blocked share", note: "acquisitions that found the lock taken";
    /// Share of the workers' time in which they were blocked.
    BLOCKED_TIME = "blocked_time" _ "share", Runs, |run| run.blocked_time_share;
    /// Share of the time in which a lock was free while its next owner waited.
    FREE = "free" _ "share", Times, Run::free_share;
    "" _ "switches / operation", Runs, |run| {
        let switches = run.cpu.context_switches.filter(|_| run.operations > 0)?;
        Some(switches as f64 / run.operations as f64)
    }, title: "Context switches for one operation", note: "times that a worker was put on a CPU";
}
Fairness {
    "per_worker_min", Times OneRun, |run| Some(run.per_worker?.min as f64);
    "per_worker_max", Times OneRun, |run| Some(run.per_worker?.max as f64);
    "per_worker_mean", Times OneRun, |run| Some(run.per_worker?.mean);
    "per_worker_stddev", Times OneRun, |run| Some(run.per_worker?.stddev);
    "per_worker_none", Times OneRun, |run| Some(run.per_worker?.none as f64);
    "jain", Times OneRun, |run| Some(run.per_worker?.jain);
    "dispersion", Times OneRun, |run| Some(run.per_worker?.dispersion);
    "top_half_share", Times OneRun, |run| Some(run.per_worker?.top_half_share);
    "rotations", Times OneRun, |run| Some(run.per_worker?.rotations);
    "longest_wait" _ "ns", Times Most, |run| Some(run.per_worker?.longest_wait_ns? as f64);
    "longest_streak", Times Most, |run| Some(run.per_worker?.longest_streak? as f64);
    "owner_changes", Times Sum, |run| Some(run.per_worker?.owner_changes? as f64);
    "longest_streak_while_waited", Times Most,
        |run| Some(run.per_worker?.longest_streak_while_waited? as f64);
    "" _ "share", Times, |run| Some(shared(run)?.none as f64 / run.at.workers? as f64),
        title: "Workers that got nothing", note: "share of all workers; lower is better";
    "" _ "variance / mean", Times, |run| Some(shared(run)?.dispersion),
        title: "Dispersion among workers",
        note: "near 0 a queue, near 1 a lottery, above favouritism";
    "" _ "index", Times OneRun, |run| Some(shared(run)?.jain), better: More, best: "fairest",
        title: "Jain's index", note: "1: all got the same; few turns by lot give less";
}
Recovery {
    /// From a fault to the next grant; a run without one would have the longest.
    NEXT_GRANT = "next_grant" _ "ns", EachRun Middle,
        |run| Some(run.recovery.as_ref()?.next_grant_ns? as f64), compared: "next grant ns",
        best: "quickest to recover", lead: "Time to the next grant";
    "next_grant_worst" _ "ns", Runs Most,
        |run| Some(run.recovery.as_ref()?.next_grant_ns? as f64);
    "after_release" _ "ns", Runs Middle,
        |run| Some(run.recovery.as_ref()?.after_release_ns? as f64);
    "after_release_worst" _ "ns", Runs Most,
        |run| Some(run.recovery.as_ref()?.after_release_ns? as f64);
    "after_lease" _ "ns", Runs Middle, |run| Some(run.recovery.as_ref()?.after_lease_ns? as f64);
    "after_lease_worst" _ "ns", Runs Most,
        |run| Some(run.recovery.as_ref()?.after_lease_ns? as f64);
    "after_return" _ "ns", Runs Middle, |run| Some(run.recovery.as_ref()?.after_return_ns? as f64);
    "after_return_worst" _ "ns", Runs Most,
        |run| Some(run.recovery.as_ref()?.after_return_ns? as f64);
    "two_believed" _ "ns", Runs Middle, |run| Some(run.recovery.as_ref()?.two_believed_ns? as f64);
    "two_believed_worst" _ "ns", Runs Most,
        |run| Some(run.recovery.as_ref()?.two_believed_ns? as f64);
    "two_ran" _ "ns", Runs Middle, |run| Some(run.recovery.as_ref()?.two_ran_ns? as f64);
    "two_ran_worst" _ "ns", Runs Most, |run| Some(run.recovery.as_ref()?.two_ran_ns? as f64);
    "told_runs", Runs Sum, |run| yes(run.recovery.as_ref()?.told);
    "write_refused_runs", Runs Sum, |run| yes(run.recovery.as_ref()?.write_refused);
    "in_order_runs", Runs Sum, |run| yes(run.recovery.as_ref()?.in_order);
    "served_waiters", Runs Sum, |run| Some(run.recovery.as_ref()?.served as f64);
}
Promise {
    "verified_calls", Evidence Sum, |run| Some(run.verified.as_ref()?.calls as f64);
    "unknown_calls", Evidence Sum, |run| Some(run.verified.as_ref()?.unknown as f64);
    "dropped_calls", Evidence Sum, |run| Some(run.verified.as_ref()?.dropped as f64);
    "faults_struck", Evidence Sum, |run| Some(run.verified.as_ref()?.struck() as f64);
    /// Violations of the promise.
    VIOLATIONS = "violations", Evidence Sum, |run| Some(run.verified.as_ref()?.violations() as f64);
    "violations_overlap", Evidence Sum, |run| Some(run.verified.as_ref()?.overlaps as f64);
    "violations_foreign_release", Evidence Sum,
        |run| Some(run.verified.as_ref()?.foreign_releases as f64);
    "violations_token_fell", Evidence Sum, |run| Some(run.verified.as_ref()?.tokens_fell as f64);
    "violations_late_grant", Evidence Sum, |run| Some(run.verified.as_ref()?.late_grants as f64);
    "outside_the_promise", Evidence Sum, |run| Some(run.verified.as_ref()?.outside as f64);
    "undecided", Evidence Sum, |run| Some(run.verified.as_ref()?.undecided as f64);
    "granted_to_the_departed", Evidence Sum,
        |run| Some(run.verified.as_ref()?.to_the_departed as f64);
    "longest_free" _ "ns", Evidence Most, |run| Some(run.verified.as_ref()?.longest_free_ns as f64);
    "free_bound" _ "ns", Evidence Most, |run| Some(run.verified.as_ref()?.free_bound_ns? as f64);
}
Evidence {
    "errors", Evidence Sum, |run| Some(run.around.errors.values().sum::<u64>() as f64);
    "deaths", Evidence Sum, |run| Some(run.around.deaths.len() as f64);
    "timeouts", Evidence Sum, |run| Some(run.timeouts? as f64);
    "exclusion_checked", Evidence Sum, |run| Some(run.exclusion.as_ref()?.checked as f64);
    "exclusion_violations", Evidence Sum, |run| Some(run.exclusion.as_ref()?.violations as f64);
    "exclusion_holder_died", Evidence Sum, |run| Some(run.exclusion.as_ref()?.holder_died as f64);
    "exclusion_lost_updates", Evidence Sum,
        |run| Some(run.exclusion.as_ref()?.lost_updates as f64);
    "server_counted", Evidence Sum, |run| Some(run.server?.counted? as f64);
    "server_difference", Evidence Sum, |run| Some(run.server?.difference? as f64);
    "planned", Evidence Sum, |run| Some(run.open_loop.as_ref()?.planned as f64);
    "done", Evidence Sum, |run| Some(run.open_loop.as_ref()?.done as f64);
    "failed", Evidence Sum, |run| Some(run.open_loop.as_ref()?.failed as f64);
    "dropped", Evidence Sum, |run| Some(run.open_loop.as_ref()?.dropped as f64);
    "in_flight_at_end", Evidence Sum, |run| Some(run.open_loop.as_ref()?.in_flight as f64);
    "leases_lapsed", Evidence Sum, |run| Some(run.kept.as_ref()?.lapsed as f64);
    "renewals_late", Evidence Sum, |run| Some(run.kept.as_ref()?.late as f64);
    "lost", Evidence Sum, |run| Some(run.connections.as_ref()?.lost? as f64);
    "generators_busiest" _ "share", Evidence Most, busiest,
        title: "How busy the busiest worker was",
        note: "running or runnable; near 100 % the tool is the limit";
    "generators_still" _ "share", Evidence Most, |run| {
        let shares = run.thread_loads.iter().filter_map(|load| Some(load.process?.still_share));
        shares.reduce(f64::max)
    };
    "runqueue_wait" _ "s", Evidence Sum, |run| run.cpu.runqueue_wait_s;
    "others_cpu" _ "s", Evidence Sum, |run| run.around.accounts.as_ref()?.others_s;
    "server_cpu" _ "s", Evidence Sum, |run| run.around.accounts.as_ref()?.server_s;
    "unexplained_cpu" _ "s", Evidence Sum, |run| run.around.accounts.as_ref()?.unexplained_s;
    "waited" _ "s", Evidence Sum, |run| run.around.accounts.as_ref()?.waited_s;
    "stolen" _ "s", Evidence Sum, |run| run.around.accounts.as_ref()?.stolen_s;
    "steal" _ "share", Evidence Most, |run| run.around.machine.steal_share,
        title: "CPU time stolen by the hypervisor",
        note: "of busy and stolen time of the whole machine";
    "throttled_periods", Evidence Sum, |run| Some(run.around.machine.throttled_periods? as f64);
    "start_spread" _ "ns", Evidence Most, |run| Some(run.window.start_spread_ns as f64);
    "anchor_step" _ "ns", Evidence Middle, |run| Some(run.around.anchor?.step_ns);
    "anchor_call" _ "ns", Evidence Middle, |run| Some(run.around.anchor?.call_ns);
    "anchor_wake" _ "ns", Evidence Middle, |run| Some(run.around.anchor?.wake_ns);
    "anchor_line" _ "ns", Evidence Middle, |run| run.around.anchor?.line_ns;
}
}

/// The figure that a workload is known by: what the table of `connect` leads with, else the
/// throughput.
pub fn headline(plan: &Plan) -> &'static Figure {
    match (plan.workload.shape(), plan.only) {
        (Shape::Connect, None) => CONNECT_P50,
        (Shape::Connect, Some(Only::Bind)) => BIND_P50,
        (Shape::Recover, _) => NEXT_GRANT,
        // All rates are reached, until they are not.
        (Shape::Rate, _) => RESPONSE_P50,
        (Shape::Contend | Shape::Stream | Shape::Hold | Shape::Spread | Shape::Verify, _) => {
            THROUGHPUT
        }
    }
}

pub(crate) fn p50(of: &Option<Distribution>) -> Option<f64> {
    percentile(of.as_ref()?, "p50")
}

pub(crate) fn p99(of: &Option<Distribution>) -> Option<f64> {
    percentile(of.as_ref()?, "p99")
}

/// A percentile of all attempts of a run, those included that were waiting when the window
/// ended; infinite where it is known only to lie above some value.
pub fn waited(waits: &Waits, name: &str) -> Option<f64> {
    match waits.censored {
        0 => percentile(&waits.granted, name),
        _ if waits.at_least.get(name).is_some() => Some(f64::INFINITY),
        _ => waits.kaplan_meier.get(name).map(|ns| *ns as f64),
    }
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

/// The shares of the workers, where there are several.
fn shared(run: &Run) -> Option<PerWorker> {
    run.per_worker.filter(|_| run.at.workers > Some(1))
}

fn busiest(run: &Run) -> Option<f64> {
    let shares = run.thread_loads.iter().map(|load| load.busy_share);
    shares.reduce(f64::max)
}

fn yes(is: Option<bool>) -> Option<f64> {
    is.map(|is| f64::from(u8::from(is)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_name_is_of_one_figure_in_summaries_in_comparisons_and_in_laws_of_growth() {
        let compared = FIGURES.iter().filter(|of| !of.compared.is_empty());
        let fitted = FIGURES.iter().filter(|of| !of.grows.is_empty());
        let uses: [Vec<&str>; 3] = [
            SUMMARIZED.iter().map(|of| of.name).collect(),
            compared.map(Figure::compared_name).collect(),
            fitted.map(|of| of.name).collect(),
        ];
        for names in uses {
            let once: BTreeSet<&str> = names.iter().copied().collect();
            assert_eq!(once.len(), names.len(), "{names:?}");
        }
    }
}
