//! The options of `jostle connect`.

use super::{Output, micros, quickened, seconds};
use clap::Args;
use jostle_model::connect::{Accept, Close, Only, PortRange};
use jostle_model::plan::{Place, Plan, Workload};
use jostle_model::{List, Nanos, ServerAt};

#[derive(Debug, Args)]
#[command(
    after_help = "Connections grow from none to the greatest number in one sweep, and are kept open; at each\n\
    listed number the figures are read of those that were added since the one before. All are\n\
    made on this machine, by one process after the other. Lists: 1k:5k:10k, 1k..1Mx10. With\n\
    nothing said, one source address is measured beside many."
)]
pub struct Connect {
    /// What to connect to: tcp, unix (servers of our own), tcp://HOST:PORT or unix:PATH
    #[arg(value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Connections open, a list [default: 100:300:1k:3k:10k:14k:15k:20k]
    #[arg(long, value_name = "LIST")]
    pub open: Option<List>,
    /// Other sockets that listen meanwhile, a list [default: 0]
    #[arg(long, value_name = "LIST")]
    pub listeners: Option<List>,
    /// Source addresses in 127.0.0.0/8, a list [default: 1:16; 1 towards other servers]
    #[arg(long, value_name = "LIST")]
    pub sources: Option<List>,
    /// Destination ports [default: 1]
    #[arg(long, value_name = "N")]
    pub ports: Option<u64>,
    /// Processes that accept at the same time [default: 1]
    #[arg(long, value_name = "N")]
    pub acceptors: Option<u64>,
    /// How they share: shared (all are woken), epollexclusive, reuseport [default: shared]
    #[arg(long, value_name = "HOW")]
    pub accept: Option<Accept>,
    /// Bind the source address without a port (=false: with its port), also a single one
    /// [default: several addresses are bound without, a single one is not bound]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub bind_no_port: Option<bool>,
    /// Ports that the kernel may choose for these sockets (IP_LOCAL_PORT_RANGE)
    #[arg(long, value_name = "LO-HI")]
    pub port_range: Option<PortRange>,
    /// How connections end: fin, or rst, which leaves no TIME_WAIT [default: fin]
    #[arg(long, value_name = "HOW")]
    pub close: Option<Close>,
    /// Connections a second that are offered [default: one after the other]
    #[arg(long, value_name = "N")]
    pub rate: Option<List>,
    /// Send buffer of each socket, in bytes
    #[arg(long, value_name = "BYTES")]
    pub sndbuf: Option<u64>,
    /// Receive buffer of each socket, in bytes
    #[arg(long, value_name = "BYTES")]
    pub rcvbuf: Option<u64>,
    /// Measure one step alone: bind (sockets are bound, and nobody connects)
    #[arg(long, value_name = "STEP")]
    pub only: Option<Only>,
    #[command(flatten)]
    pub how: How,
    #[command(flatten)]
    pub output: Output,
}

/// How sweeps are repeated.
#[derive(Debug, Args)]
#[command(next_help_heading = "How to measure")]
pub struct How {
    /// Sweeps of each curve [default: 3 to 15, as spread and budget demand]
    #[arg(long, value_name = "R")]
    pub runs: Option<u32>,
    /// What all sweeps together should take [default: 50s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub budget: Option<Nanos>,
    /// CPUs: the first for clients, the others for servers [default: cross]
    #[arg(long, value_name = "WHERE")]
    pub place: Option<Place>,
    /// The kernel's timer slack of each process [default: 1ns]
    #[arg(long, value_name = "TIME", value_parser = micros)]
    pub timer_slack: Option<Nanos>,
    /// Run a profiler or tracer along; {pid} and {pids} stand for the processes
    #[arg(long, value_name = "COMMAND")]
    pub during: Option<String>,
    /// The server on this machine, if its connections do not tell: :PORT, pid:N, unix:PATH, cgroup:PATH
    #[arg(long, value_name = "WHICH")]
    pub server: Option<ServerAt>,
    /// Seed of every random choice [default: a fresh one, printed]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Three sweeps of each curve
    #[arg(long)]
    pub quick: bool,
}

impl How {
    /// A plan with these options alone.
    fn plan(&self) -> Plan {
        quickened(
            self.quick,
            Plan {
                runs: self.runs,
                budget: self.budget,
                place: self.place.clone(),
                timer_slack: self.timer_slack,
                during: self.during.clone(),
                server: self.server.clone(),
                seed: self.seed,
                ..Plan::of(Workload::Connect)
            },
        )
    }
}

impl Connect {
    /// The plan as typed.
    pub fn plan(&self) -> Plan {
        Plan {
            targets: self.targets.clone(),
            open: self.open.clone(),
            listeners: self.listeners.clone(),
            sources: self.sources.clone(),
            ports: self.ports,
            acceptors: self.acceptors,
            accept: self.accept,
            bind_no_port: self.bind_no_port,
            port_range: self.port_range,
            close: self.close,
            rate: self.rate.clone(),
            sndbuf: self.sndbuf,
            rcvbuf: self.rcvbuf,
            only: self.only,
            ..self.how.plan()
        }
    }
}
