//! The table of options; `options/mod.rs` says how it is read.
//!
//! The order of the rows is the order of fields in a plan file and of options in a
//! printed command, and within a heading that of the help.

use super::DefaultValue::{Absent, Decided, Fixed, OfRequests, Swept};
use super::Heading::{Measuring, Requests};
use super::{Access, Heading, Opt, Use, Value, options};
use crate::connect::{Accept, Close, Only, PortRange};
use crate::list::List;
use crate::objective::Objective;
use crate::plan::{
    Arrivals, Carrier, Connection, Fault, Measure, Names, Place, Range, Renew, Workload,
    one_or_many,
};
use crate::server_at::ServerAt;
use crate::time::{Busy, Nanos, Unit};
use serde::{Deserialize, Serialize};

/// Locks in all.
pub const MOST_KEYS: u64 = 1_000_000;

options! {
    // So many may be in flight by default: at the least default rate as many as come in
    // 0.64 s, at the greatest in 6.4 ms. Of `contend`, lockscale's list.
    workers: List = "workers", short('w') {
        Contend => Swept("10:200"), "Contending workers, a list";
        Stream => Swept("1:2"), "Workers, a list";
        Churn => Swept("1:2"), "Workers, a list; each opens sessions of its own";
        Hold => Swept("1"), "Workers, a list; each holds locks of its own";
        Rate => Swept("64"), "Most requests in flight, a list";
        Verify => Fixed("6"), "Client processes, one number";
    }
    hold: Busy = "hold" else (Busy::Sleep(Nanos::ZERO)), short('b'), unit(Unit::Micros) {
        Contend => Fixed("1ms"), "Time the lock is held; negative: spin";
    }
    idle: Busy = "idle" else (Busy::Sleep(Nanos::ZERO)), short('i'), unit(Unit::Micros) {
        Contend => Fixed("10us"), "Time between release and next attempt; negative: spin";
    }
    // A percentile of 99 needs 1,000 requests: 200 a second, or several runs.
    duration: Nanos = "duration", short('t'), under(Measuring) {
        Contend => Decided("a pilot decides"), "Window of each run";
        Rate => Fixed("5s"), "Window of each run";
        Spread => Fixed("1s"), "Window of each run";
        Stream | Hold | Churn => Fixed("300s"), "Longest time of a run";
    }
    runs: u32 = "runs", under(Measuring), between(1, 10_000) {
        Contend | Stream | Hold | Spread | Churn
            => Decided("6 to 15, as the spread demands"), "Runs of each point";
        Rate
            => Decided("6 to 15, as the spread demands; with --find 24"),
            "Runs of each point; with --find, steps around the limit";
        Connect => Decided("3 to 15, as spread and budget demand"), "Sweeps of each curve";
        Recover => Fixed("20"), "Runs of each target and fault";
        Verify => Fixed("1"), "Runs of each target; the second has the next seed, and so on";
    }
    warmup: Nanos = "warmup", under(Measuring) {
        Contend => Decided("a pilot decides"), "Time between the last arrival and the window";
        Rate => Fixed("500ms"), "Time between the first request and the window";
        Spread => Fixed("500ms"), "Time between the last arrival and the window";
    }
    budget: Nanos = "budget" else (Nanos::ZERO), under(Measuring) {
        Contend => Fixed("50s"), "Longest time of all runs together, where pilots decide";
        Stream | Hold | Rate | Spread | Churn => Fixed("50s"), "Time that all runs together should take";
        Connect => Fixed("50s"), "Time that all sweeps together should take";
    }
    carrier: Carrier = "as" else (Carrier::Processes), value("CARRIER"), under(Measuring) {
        Contend | Stream | Hold | Rate
            => Fixed("processes"), "What a worker is: processes, threads or, for servers, tasks";
        Churn => Fixed("processes"), "What a worker is: processes or threads";
    }
    generator_threads: u64 = "generator-threads" else (1), under(Measuring), between(1, 1_024) {
        Contend | Stream | Hold | Rate => Decided("half of the CPUs"), "Threads that drive tasks";
    }
    // Client and server on one CPU or on two is a third of connect(); the scheduler's
    // choice would be most of what differs between sweeps.
    place: Place = "place" else (Place::None), value("WHERE"), under(Measuring) {
        Contend | Stream | Hold | Rate | Churn
            => Fixed("none"), "CPUs of the workers: none, same, cross, cpus:0-3 (a server that is \
                               launched gets the others)";
        Connect => Fixed("cross"), "CPUs: the first for clients, the others for servers";
        Spread => Decided("the first half"), "CPUs of the generators: none, same, cross, cpus:0-3";
    }
    server_place: Place = "server-place", value("WHERE"), under(Measuring) {
        Contend | Stream | Hold | Rate | Churn
            => Decided("those that --place cpus:LIST leaves"),
            "CPUs of a launched server: none, same, cross, cpus:0-3";
        Spread
            => Decided("those that the generators leave"),
            "CPUs of a launched server: none, same, cross, cpus:0-3";
    }
    measure: Measure = "measure" else (Measure::Full), under(Measuring) {
        Contend | Stream | Hold | Rate
            => Fixed("full"), "What is recorded: full; counts, for locks quicker than a stamp";
    }
    // One number stands by itself, as it did before `hold` swept it.
    #[serde(serialize_with = "one_or_many")]
    keys: List = "keys", between(1, MOST_KEYS) {
        Contend => Fixed("1"), "Locks, one number; each operation picks one at random";
        Hold => Swept("1000:10000"), "Locks that each worker holds, a list";
        Verify => Fixed("3"), "Locks, one number; each call picks one at random";
    }
    // A shorter time than a second is mostly the start and the end of it.
    keep: Nanos = "for" else (Nanos::ZERO), between(1_000_000_000, 43_200_000_000_000) {
        Hold => Absent, "Keep the locks for this long, and renew their leases, before they are released";
        Verify => Fixed("60s"), "How long clients call and faults strike, in each run";
    }
    // All runs of `churn` with two workers then need 13,500 ports of 14,116.
    operations: List = "operations", short('n'), between(1, 1_000_000_000) {
        Stream => Swept("1000:10000"), "Operations of each worker, a list";
        Churn => Swept("300"), "Sessions of each worker, each for one acquisition, a list";
    }
    names: Names = "names" else (Names::One), value("WHICH") {
        Stream => Fixed("one"), "One lock for all, or each worker its own: one, own";
        Churn => Fixed("own"), "One lock for all, or each worker its own: one, own";
        Rate => Fixed("own"), "For locks: one for all, or each worker its own: one, own";
    }
    // The requests of a batch and their replies must fit into the sockets' buffers, or
    // client and server would wait for each other.
    pipeline: u64 = "pipeline" else (1), value("D"), between(1, 1_000) {
        Stream => Fixed("1"), "Pairs to send before their replies are read";
        Hold => Fixed("1"), "Requests to send before their replies are read";
    }
    shared: f64 = "shared" else (0.0) {
        Contend => Fixed("0"), "Share of shared acquisitions, 0 to 1";
    }
    range: Range = "range" else (Range::Same) {
        Contend
            => Fixed("same"), "Byte ranges of record locks: same, overlap (neighbours), disjoint";
    }
    try_only: bool = "try" else (false) {
        Contend => Fixed("false"), "Try, and idle after a refusal, instead of waiting";
    }
    acquire_timeout: Nanos = "acquire-timeout", unit(Unit::Micros) {
        Contend => Absent, "Give up an attempt after this long";
    }
    open_each: bool = "open-each" else (false) {
        Contend => Fixed("false"), "Open and close the file for each acquisition, as lockscale did";
    }
    slots: u64 = "slots" else (1), between(1, 1_000_000) {
        Contend | Stream | Hold | Rate
            => Fixed("16384"), "Semaphores to which the names of several locks are hashed (sysv)";
    }
    fault: Vec<Fault> = "fault", value("LIST") {
        Recover
            => Swept("kill,stop,cut,server-kill,server-stop"), "Faults to inject while the lock is held, a list \
                (also host-gone, idle-cut; with --members leader-kill, leader-stop, member-kill, \
                partition:minority, partition:majority)";
        Verify
            => Decided("all"), "Faults that strike at random: all that target and machine can have, or a list \
                                (those of recover, cut-to, cut-from, server-wipe, clock)";
    }
    waiters: u64 = "waiters" else (1), between(1, 1_000) {
        Recover => Fixed("3"), "Processes that wait for the lock when the fault strikes";
    }
    within: Nanos = "within" else (Nanos::ZERO) {
        Recover => Fixed("30s"), "How long to wait for the next grant";
    }
    // Longer than a client's usual patience of a second, and than the default lease.
    pause: Nanos = "pause" else (Nanos::ZERO) {
        Recover => Fixed("3s"), "How long stop, cut and server-stop last (with a lease, stop and cut last longer by it), how long an old owner works on, and how long a connection is silent before idle-cut (at most half of the lease)";
    }
    // The shortest that memcached and etcd can do beside others.
    lease: Nanos = "lease" else (Nanos::ZERO) {
        Recover | Verify => Fixed("2s"), "Lease to request, where the target's locks have one";
        Hold => Absent, "Lease to request with --for, where the target's locks can have one";
    }
    with: String = "with", value("SERVICE") {
        Verify
            => Absent, "Launch this service for pipe: and lib:, for which {SERVICE} in their words is its \
                        HOST:PORT; faults strike it, too";
    }
    promise: String = "promise", value("WORDS") {
        Verify
            => Decided("the target's"),
            "Judge by this promise: by=connection, lease=2s, restart, tokens, order, with commas";
    }
    history: String = "history", value("FILE") {
        Verify => Absent, "Keep the history of the calls in this file; {run} is the number of the run";
    }
    strict: bool = "strict" else (false) {
        Verify => Fixed("false"), "Exit with 3 also where something is undecided";
    }
    renew: Renew = "renew", value("WHICH") {
        Contend | Recover
            => Fixed("yes"), "yes: renew leases as the usual client libraries do; no: do not renew";
    }
    members: u64 = "members" else (1), between(1, 9) {
        Contend | Stream | Hold | Rate | Spread | Recover | Churn | Verify
            => Absent, "Servers of the launched cluster (redis, etcd, zookeeper), an odd number";
    }
    wait_replicas: u64 = "wait-replicas" else (0), value("N"), between(1, 8) {
        Contend | Recover | Verify
            => Absent, "Grants count only once N replicas have them (redis, by WAIT)";
    }
    timer_slack: Nanos = "timer-slack" else (Nanos(1)), unit(Unit::Micros), under(Measuring) {
        Contend | Stream | Hold | Rate | Spread | Churn
            => Fixed("1ns"), "The kernel's timer slack of each worker";
        Connect | Recover => Fixed("1ns"), "The kernel's timer slack of each process";
    }
    over: Vec<Nanos> = "over" else (Vec::new()), under(Measuring) {
        Contend | Stream | Hold | Rate | Churn
            => Absent, "Print the share of waits above each of these, such as 1ms:1s";
        Spread => Absent, "Print the share of requests above each of these, such as 1s:10s";
    }
    // Two decades and more, and the number at which the even ones of Linux's usual range
    // of ports are used up (14,116) between two of them.
    open: List = "open", between(1, 100_000_000) {
        Connect
            => Swept("100:300:1k:3k:10k:14k:15k:20k"), "Connections that are open at once, a list";
    }
    listeners: List = "listeners", between(0, 1_000_000) {
        Connect => Fixed("0"), "Other listening sockets meanwhile, a list";
    }
    sources: List = "sources", between(1, 65_536) {
        Connect => Decided("1:16; 1 towards other servers"), "Source addresses in 127.0.0.0/8, a list";
    }
    ports: u64 = "ports" else (1), between(1, 10_000) {
        Connect => Fixed("1"), "Destination ports";
    }
    accept: Accept = "accept" else (Accept::Shared) {
        Connect
            => Fixed("shared"), "How acceptors share: shared (all are woken), epollexclusive, reuseport";
    }
    acceptors: u64 = "acceptors" else (1), between(1, 1_000) {
        Connect => Fixed("1"), "Processes that accept at the same time";
    }
    bind_no_port: bool = "bind-no-port" {
        Connect
            => Decided("several addresses are bound without, a single one is not bound"),
            "Bind the source address without a port (=false: with its port), also a single one";
    }
    port_range: PortRange = "port-range", value("LO-HI") {
        Connect
            => Decided("net.ipv4.ip_local_port_range"),
            "Ports that the kernel may choose for these sockets (IP_LOCAL_PORT_RANGE)";
    }
    close: Close = "close" else (Close::Fin) {
        Connect => Fixed("fin"), "How connections end: fin, or rst, which leaves no TIME_WAIT";
    }
    #[serde(serialize_with = "one_or_many")]
    rate: List = "rate" {
        Connect => Decided("one after the other"), "Connections a second, one number";
        Rate
            => Swept("100:1000:10000"),
            "Requests a second, a list; with --find the lowest and the highest (1000:1000000)";
    }
    find: Objective = "find", value("OBJECTIVE") {
        Rate
            => Absent, "Find the highest rate that meets this: p99<5ms, errors<0.1%, several with commas";
    }
    sndbuf: u64 = "sndbuf", value("BYTES"), between(1, 1 << 30) {
        Connect => Absent, "Send buffer of each socket, in bytes, as requested from the kernel";
    }
    rcvbuf: u64 = "rcvbuf", value("BYTES"), between(1, 1 << 30) {
        Connect => Absent, "Receive buffer of each socket, in bytes, as requested from the kernel";
    }
    only: Only = "only", value("STEP") {
        Connect => Absent, "Measure one step alone: bind (sockets are bound, none connects)";
    }
    during: String = "during", value("COMMAND"), under(Measuring) {
        Contend | Stream | Hold | Rate | Churn
            => Absent, "Run a profiler or tracer along; {pid} and {pids} stand for the workers";
        Connect => Absent, "Run a profiler or tracer along; {pid} and {pids} stand for the processes";
        Spread => Absent, "Run a profiler or tracer along; {pid} and {pids} stand for the generators";
    }
    prepare: String = "prepare", value("COMMAND"), under(Measuring) {
        Contend | Stream | Hold | Rate | Spread | Churn
            => Absent, "Run this on this host before each run, pilots included; a failure ends the measurement";
        Recover => Absent, "Run this before each run; a failure ends the measurement";
    }
    expect: List = "expect", under(Requests) {
        Stream | Rate | Spread
            => Decided("the target's"), "Codes that count as success, such as 0:3; any other is an error";
    }
    // Longer than any call that somebody waits for, and short enough that one that hangs
    // does not cost the run.
    call_timeout: Nanos = "call-timeout" else (Nanos::ZERO), under(Requests) {
        Stream | Rate | Spread => OfRequests("10s"), "How long one request may take";
    }
    command_output: String = "command-output", value("FILE"), under(Requests) {
        Stream | Rate | Spread
            => Decided("to nowhere"), "Append the output of commands to this file";
    }
    null: String = "null", value("TARGET"), under(Requests) {
        Stream
            => Decided("exec:true, of commands"), "A target that does nothing, measured for comparison; or none";
    }
    numbers: u64 = "numbers", under(Requests) {
        Stream | Rate | Spread
            => Decided("all requests"), "{n} cycles through this many numbers";
    }
    arrivals: Arrivals = "arrivals" else (Arrivals::Constant) {
        Contend => Fixed("constant"), "How idle times vary: constant, poisson (exponential, with this mean)";
        Rate => Fixed("constant"), "How requests follow each other: constant, poisson";
    }
    drop_after: Nanos = "drop-after" else (Nanos::ZERO) {
        Rate => Fixed("1s"), "Drop a request that finds no free worker for this long";
    }
    // Each is a thread. CERN's study had 90 in flight, which its numbers of client machines divide.
    in_flight: u64 = "in-flight", between(1, 10_000) {
        Spread => Fixed("90"), "Requests in flight";
    }
    generators: List = "generators" {
        Spread => Swept("3:6:9:18"), "Processes that share them, a list";
    }
    generator_cpu: f64 = "generator-cpu" {
        Spread
            => Decided("no limit"), "CPU limit of each of them, such as 0.2";
    }
    connection: Connection = "connection", value("WHICH"), under(Requests) {
        Stream | Rate | Spread
            => Decided("the target's"), "each: a connection for each request; keep: one for each worker";
    }
    credentials: String = "credentials", value("FILE") {
        Contend | Stream | Hold | Rate | Spread | Recover | Churn | Verify
            => Decided("of the environment, or anonymous"),
            "File with the name in its first line, the password in its second, for servers of yours";
    }
    server_log: String = "server-log", value("FILE"), under(Requests) {
        Stream | Rate | Spread => Absent, "Count the server's operations in this log instead of asking the server";
    }
    #[serde(alias = "server-cgroup")]
    server: ServerAt = "server", under(Measuring) {
        Contend | Stream | Hold | Connect | Rate | Spread | Churn
            => Absent, "The server on this machine, if connections do not show it: :PORT, pid:N, \
                        unix:PATH, cgroup:PATH";
    }
    seed: u64 = "seed" else (0), value("SEED"), under(Measuring) {
        Contend | Stream | Hold | Connect | Rate | Spread | Recover | Churn | Verify
            => Decided("a fresh one, printed"), "Seed of every random choice";
    }
}
