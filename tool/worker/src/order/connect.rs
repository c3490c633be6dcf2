//! One sweep of `connect`, and what it yields.

use super::{CpuTimes, Merged, Together, cpus};
use jostle_model::ServerAt;
use jostle_model::connect::{Accept, Close, Only, PortRange, Stopped};
use jostle_model::plan::Place;
use jostle_model::record::{Anchor, Circumstances};
use jostle_model::time::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One sweep of `connect`: connections grow to each of the listed numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepOrder {
    /// The target as typed.
    pub target: String,
    /// Numbers of connections, ascending.
    pub open: Vec<u64>,
    /// Other sockets that listen.
    pub listeners: u64,
    /// Source addresses.
    pub sources: u64,
    /// The sweep's number in the experiment, so that no source address is used twice.
    pub sweep: u64,
    /// Destination ports.
    pub ports: u64,
    /// How acceptors share.
    pub accept: Accept,
    /// Processes that accept at the same time.
    pub acceptors: u64,
    /// Bind the source address, with its port or without; None: bind nothing.
    pub bind_no_port: Option<bool>,
    /// Ports that the kernel may choose.
    pub port_range: Option<PortRange>,
    /// How connections end.
    pub close: Close,
    /// Connections a second that are offered.
    pub rate: Option<u64>,
    /// Send buffer of each socket.
    pub sndbuf: Option<u64>,
    /// Receive buffer of each socket.
    pub rcvbuf: Option<u64>,
    /// The one step that is measured.
    pub only: Option<Only>,
    /// The CPUs: the first for clients, the others for servers; empty: any.
    pub cpus: Vec<usize>,
    /// The placement by which these CPUs were chosen; each of several hosts has its own.
    pub place: Place,
    /// Slack of each process's timers.
    pub timer_slack: Nanos,
    /// The load on the machine.
    pub load: Demand,
    /// How long nothing may move before that is called a timeout.
    pub patience: Nanos,
    /// Runs along.
    pub during: Option<String>,
    /// The server's processes, where they cannot be found behind our connections.
    #[serde(default)]
    pub server: Option<ServerAt>,
    /// Whether somebody watches, so that the keeper tells how far the sweep is.
    #[serde(default)]
    pub watched: bool,
    /// With other hosts at the same time, which wait for each other at each listed
    /// number.
    pub together: Option<Together>,
    /// The seed of this sweep.
    pub seed: u64,
}

impl SweepOrder {
    /// As it is for this host, which may use these CPUs.
    pub fn here(mut self, allowed: &[usize]) -> SweepOrder {
        if self.together.is_some() {
            self.cpus = cpus(&self.place, allowed);
        }
        self
    }
}

/// The opening of connections up to a listed number. Figures are of those beyond the number before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reached {
    /// The listed number.
    pub listed: u64,
    /// Open at the beginning.
    pub from: u64,
    /// Open at the end.
    pub opened: u64,
    /// Accepted at the end, all of the sweep.
    pub accepted: Option<u64>,
    /// From beginning to end.
    pub took_ns: u64,
    /// From the beginning of the sweep to the end of this number.
    pub total_ns: u64,
    /// From the first fork to the last process ready.
    pub ramp_ns: u64,
    /// Distributions by name.
    pub figures: BTreeMap<String, Merged>,
    /// The side that connects.
    pub client: SideData,
    /// The side that accepts.
    pub server: Option<SideData>,
    /// Connections accepted by each lane.
    pub accepted_by: Vec<u64>,
    /// The greatest lateness of an intended start, of all so far.
    pub lag_ns: Option<u64>,
    /// The machine and the owners of the CPU time meanwhile, processes that ended before
    /// their time, and, with the last number, what ran along.
    pub around: Circumstances,
    /// The growth of the kernel's slab since the sweep began.
    pub slab_bytes: i64,
    /// The fall of available memory since the sweep began.
    pub memory_bytes: i64,
    /// By cache, since the sweep began.
    pub caches: BTreeMap<String, i64>,
    /// TCP sockets by state.
    pub sockstat: BTreeMap<String, u64>,
    /// Descriptors that each process may have.
    pub descriptors: Option<u64>,
    /// Connections that the peer had closed or reset; None where nothing is
    /// connected.
    #[serde(default)]
    pub lost: Option<Lost>,
    /// The error that ended the sweep here.
    pub stopped: Option<Stopped>,
    /// When the first connection of these began, by `CLOCK_MONOTONIC` of its host;
    /// zero: there was none.
    #[serde(default)]
    pub began_ns: u64,
    /// Medians of connecting and accepting by decade; with the last number.
    pub decades: BTreeMap<String, [Option<u64>; 2]>,
}

/// Connections that one side holds and the other does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// How many.
    pub count: u64,
    /// The number of the first one, in the order of opening on one host.
    pub first: Option<u64>,
}

/// One side of the connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideData {
    /// Processes.
    pub processes: u64,
    /// CPU time.
    pub cpu_ns: u64,
    /// How the CPU time is divided.
    pub usage: CpuTimes,
    /// Memory of its processes, by all connections so far.
    pub own_bytes: Option<u64>,
}

/// How the connections were closed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Closed {
    /// For each number that was reached: distributions by name.
    pub figures: Vec<(u64, BTreeMap<String, Merged>)>,
    /// Medians of the first close() by decade of connections still open.
    pub decades: BTreeMap<String, u64>,
    /// TCP sockets in TIME_WAIT afterwards less those before.
    pub time_wait_left: Option<u64>,
    /// The times of the machine's own acts, before and after the sweep.
    pub anchor: Option<Anchor>,
}

/// A sweep's demands on the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// Whether the family has ports.
    pub has_ports: bool,
    /// Whether the server is ours.
    pub embedded: bool,
    /// Source addresses.
    pub sources: u64,
    /// Destination ports.
    pub ports: u64,
    /// Ports that the plan narrows to.
    pub port_range: Option<PortRange>,
    /// Whether sockets are bound and no more.
    pub alone: bool,
    /// Whether a port is taken before its destination is known, by bind().
    pub binds_port: bool,
    /// Processes that accept at the same time.
    pub acceptors: u64,
    /// Other sockets that listen.
    pub listeners: u64,
    /// Memory of one connection.
    pub bytes_each: u64,
}

impl Demand {
    /// Sets of ports that are used up one by one.
    pub fn pairs(&self) -> u64 {
        match self.binds_port {
            true => self.sources,
            false => self.sources * self.ports,
        }
    }
}
