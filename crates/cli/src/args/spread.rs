//! The options of `jostle spread`.

use super::{Asked, Output, Times, micros, quickened, seconds, times};
use clap::Args;
use jostle_model::plan::{Place, Plan, Workload};
use jostle_model::{List, Nanos, ServerAt};

#[derive(Debug, Args)]
#[command(
    after_help = "A closed loop: each request is followed by the next one of its worker. The same number is kept\n\
    in flight by few generators and by many, so that it shows whether they or the server are the\n\
    limit; that can be told where they have CPUs of their own: by default the generators use the\n\
    first half of the CPUs, and servers that jostle launches the others. Lists: 3:6:9:18, 1..8+1."
)]
pub struct Spread {
    /// What to ask, such as lockd, redis or any lock (acquired and released), or exec:COMMAND
    #[arg(value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Requests that are kept in flight [default: 90]
    #[arg(long, value_name = "N")]
    pub in_flight: Option<u64>,
    /// Processes over which they are spread, a list [default: 3:6:9:18]
    #[arg(long, value_name = "LIST")]
    pub generators: Option<List>,
    /// CPUs' worth of time that each of them gets, such as 0.2 [default: no limit]
    #[arg(long, value_name = "SHARE")]
    pub generator_cpu: Option<f64>,
    #[command(flatten)]
    pub asked: Asked,
    #[command(flatten)]
    pub how: How,
    #[command(flatten)]
    pub output: Output,
}

/// As of other verbs, but for what generators have no choice in.
#[derive(Debug, Args)]
#[command(next_help_heading = "How to measure")]
pub struct How {
    /// Window of each run; bare numbers are seconds [default: 1s]
    #[arg(short = 't', long, value_name = "TIME", value_parser = seconds)]
    pub duration: Option<Nanos>,
    /// Runs of each point [default: 6 to 15, as the spread demands]
    #[arg(long, value_name = "R")]
    pub runs: Option<u32>,
    /// Time between the last arrival and the window [default: 500ms]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub warmup: Option<Nanos>,
    /// What all runs together should take [default: 50s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub budget: Option<Nanos>,
    /// CPUs of the generators: none, same, cross, cpus:0-3 [default: the first half]
    #[arg(long, value_name = "WHERE")]
    pub place: Option<Place>,
    /// The kernel's timer slack of each worker [default: 1ns]
    #[arg(long, value_name = "TIME", value_parser = micros)]
    pub timer_slack: Option<Nanos>,
    /// Print the share of requests above each of these, such as 1s:10s
    #[arg(long, value_name = "TIMES", value_parser = times)]
    pub over: Option<Times>,
    /// Run a profiler or tracer along; {pid} and {pids} stand for the generators
    #[arg(long, value_name = "COMMAND")]
    pub during: Option<String>,
    /// The server on this machine, if its connections do not tell: :PORT, pid:N, unix:PATH, cgroup:PATH
    #[arg(long, value_name = "WHICH")]
    pub server: Option<ServerAt>,
    /// Seed of every random choice [default: a fresh one, printed]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Three runs of each point
    #[arg(long)]
    pub quick: bool,
}

impl How {
    /// A plan with these options alone.
    fn plan(&self) -> Plan {
        quickened(
            self.quick,
            Plan {
                duration: self.duration,
                runs: self.runs,
                warmup: self.warmup,
                budget: self.budget,
                place: self.place.clone(),
                timer_slack: self.timer_slack,
                over: self.over.clone().map(|times| times.0),
                during: self.during.clone(),
                server: self.server.clone(),
                seed: self.seed,
                ..Plan::of(Workload::Spread)
            },
        )
    }
}

impl Spread {
    /// The plan as typed.
    pub fn plan(&self) -> Plan {
        self.asked.apply(Plan {
            targets: self.targets.clone(),
            in_flight: self.in_flight,
            generators: self.generators.clone(),
            generator_cpu: self.generator_cpu,
            ..self.how.plan()
        })
    }
}
