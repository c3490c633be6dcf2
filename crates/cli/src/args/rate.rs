//! The options of `jostle rate`.

use super::{Asked, Common, Output, seconds};
use clap::Args;
use jostle_model::plan::{Arrivals, Names, Plan, Workload};
use jostle_model::{List, Nanos};

#[derive(Debug, Args)]
#[command(
    after_help = "An open loop: when each request is due is fixed before the run, whatever becomes of those\n\
    before. The response time counts from there, the service time from the sending. A request of\n\
    a lock is an acquisition and a release. Lists: 100:1k:10k, 1k..5k+1k. With no target, lockd.",
    mut_arg("duration", |arg| arg.help("Window of each run; bare numbers are seconds [default: 5s]")),
    mut_arg("warmup", |arg| arg.help("Time between the first request and the window [default: 500ms]"))
)]
pub struct Rate {
    /// What to ask, such as lockd, redis or 'exec:true'
    #[arg(value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Requests a second, a list [default: 100:1000:10000]
    #[arg(long, value_name = "LIST")]
    pub rate: Option<List>,
    /// How requests follow each other: constant, poisson [default: constant]
    #[arg(long, value_name = "HOW")]
    pub arrivals: Option<Arrivals>,
    /// The most that may be in flight, a list [default: 64]
    #[arg(short, long, value_name = "LIST")]
    pub workers: Option<List>,
    /// Do not send what finds none of them free for so long [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub drop_after: Option<Nanos>,
    /// Of locks: one for all, or each worker its own: one, own [default: own]
    #[arg(long, value_name = "WHICH")]
    pub names: Option<Names>,
    #[command(flatten)]
    pub asked: Asked,
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub output: Output,
}

impl Rate {
    /// The plan as typed.
    pub fn plan(&self) -> Plan {
        self.asked.apply(Plan {
            targets: self.targets.clone(),
            rate: self.rate.clone(),
            arrivals: self.arrivals,
            workers: self.workers.clone(),
            drop_after: self.drop_after,
            names: self.names,
            ..self.common.plan(Workload::Rate)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Verb};
    use clap::Parser;
    use jostle_model::plan::{Arrivals, Workload};
    use jostle_model::{List, Nanos};

    #[test]
    fn a_sweep_of_rates_is_typed_as_a_list() {
        let line =
            "jostle rate lockd --rate 100:1k:10k --arrivals poisson -t 5 -w 32 --drop-after 0.5";
        let Verb::Rate(rate) = Cli::try_parse_from(line.split(' ')).unwrap().verb else {
            panic!("another verb");
        };
        let plan = rate.plan();
        assert_eq!(plan.workload, Workload::Rate);
        assert_eq!(plan.rate, Some(List(vec![100, 1_000, 10_000])));
        assert_eq!(plan.arrivals, Some(Arrivals::Poisson));
        assert_eq!(plan.workers, Some(List(vec![32])));
        assert_eq!(plan.drop_after, Some(Nanos::from_millis(500)));
    }
}
