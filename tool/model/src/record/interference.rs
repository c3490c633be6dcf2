//! Influences that may have slowed our own threads without using CPU time of their own.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Interrupts and tracers: their time is booked to the thread that they interrupt, so that no
/// account shows it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interference {
    /// Between the readings at the edges of the window; absent where /proc/interrupts cannot be
    /// read, or where reading it takes over 0.5 % of the window.
    pub window: Option<Interrupts>,
    /// Beside the anchor, before and after the run: no worker works meanwhile. Absent without an
    /// anchor.
    pub anchor: Option<Interrupts>,
    /// Programs that had performance events open (perf_event_open(2)), eBPF programs attached to
    /// the kernel, or /proc/locks open, before or after the run, as `perf (812)`, at most three; absent, that is
    /// unchecked, where none was found and not all descriptors could be seen (another user's, a
    /// container).
    pub tracers: Option<Vec<String>>,
    /// The tracing that tracefs had switched on, at most three: a tracer, or events as
    /// `sched:sched_switch`; absent, that is unchecked, where it is not mounted or may not be read.
    pub traced: Option<Vec<String>>,
    /// Programs whose sockets got every packet (packet(7)) of our network namespace, at most
    /// three, or that one may not be seen; absent where the kernel does not tell.
    pub captures: Option<Vec<String>>,
    /// How far CLOCK_MONOTONIC went from before the run to after it, by CLOCK_MONOTONIC_RAW, which
    /// nobody sets: 1.1 where somebody lets the clock run a tenth too fast.
    pub clock_rate: Option<f64>,
}

/// How often each CPU that workers and server may use was interrupted, by /proc/interrupts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interrupts {
    /// Time between the readings.
    pub between_s: f64,
    /// By timers, of each CPU: the scheduler's tick, sleeps that end, timers of other programs.
    pub timer: Vec<u64>,
    /// By performance counters that overflowed.
    pub monitor: Vec<u64>,
    /// By other CPUs: to reschedule, call a function, flush the TLB. Locks cause these when they
    /// wake a waiter.
    pub call: Vec<u64>,
}
