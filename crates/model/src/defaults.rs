//! What a plan asks for where it says nothing.
//!
//! One place, since two need it: whoever resolves a plan fills these values in,
//! and whoever prints a plan as a command leaves them out again. What pilots or
//! the machine decide (windows, runs, seeds) has no default here.

use crate::connect::{Accept, Close};
use crate::list::List;
use crate::plan::{Arrivals, Carrier, Measure, Names, Place, Plan, Range, Workload};
use crate::time::{Busy, Nanos};

/// What is measured where no target is named: of locks, the two of the kernel
/// that differ most in whom they serve next; of operations, the daemon, and
/// beside it what needs no server, or what the daemon's ancestor did.
pub fn targets(workload: Workload) -> &'static [&'static str] {
    match workload {
        Workload::Contend => &["flock", "sysv"],
        Workload::Stream => &["lockd", "flock"],
        Workload::Hold => &["lockd", "chained"],
        Workload::Connect => &["tcp"],
        Workload::Rate | Workload::Spread => &["lockd"],
    }
}

/// What is swept where the plan does not say: lockscale's list of worker
/// counts, and the ends of the Open Lock Daemon's sweeps. Only swept fields are
/// set; they are printed whatever they are, since they are what was asked.
pub fn swept(workload: Workload) -> Plan {
    let list = |values: &[u64]| Some(List(values.to_vec()));
    let plan = Plan::of(workload);
    match workload {
        Workload::Contend => Plan {
            workers: list(&[10, 20, 50, 100, 200, 500, 1000]),
            ..plan
        },
        Workload::Stream => Plan {
            workers: list(&[1, 2]),
            operations: list(&[1_000, 10_000]),
            ..plan
        },
        Workload::Hold => Plan {
            workers: list(&[1]),
            keys: list(&[1_000, 10_000]),
            ..plan
        },
        // Two decades and more, and the number at which the even ones of Linux's
        // usual range of ports are used up (14,116) between two of them. How many
        // source addresses there are, the target decides.
        Workload::Connect => Plan {
            open: list(&[100, 300, 1_000, 3_000, 10_000, 14_000, 15_000, 20_000]),
            ..plan
        },
        // So many may be in flight: at the least of these rates as many as come in
        // 0.64 s, at the greatest in 6.4 ms.
        Workload::Rate => Plan {
            workers: list(&[64]),
            rate: list(&[100, 1_000, 10_000]),
            ..plan
        },
        // The client machines of CERN's study.
        Workload::Spread => Plan {
            generators: list(&[3, 6, 9, 18]),
            ..plan
        },
    }
}

/// Every option whose default is always the same, for this workload; fields
/// that it does not use, or that have no such default, are absent.
pub fn options(workload: Workload) -> Plan {
    let common = Plan {
        budget: Some(Nanos::from_millis(50_000)),
        carrier: Some(Carrier::Processes),
        place: Some(Place::None),
        measure: Some(Measure::Full),
        slots: Some(16_384),
        timer_slack: Some(Nanos(1)),
        ..Plan::of(workload)
    };
    // What a run may take that ends with its operations.
    let counted = Plan {
        pipeline: Some(1),
        duration: Some(Nanos::from_millis(300_000)),
        ..common.clone()
    };
    match workload {
        Workload::Contend => Plan {
            hold: Some(Busy::Sleep(Nanos::from_millis(1))),
            idle: Some(Busy::Sleep(Nanos::from_micros(10))),
            keys: Some(List(vec![1])),
            shared: Some(0.0),
            range: Some(Range::Same),
            try_only: Some(false),
            open_each: Some(false),
            ..common
        },
        Workload::Stream => Plan {
            names: Some(Names::One),
            ..counted
        },
        Workload::Hold => counted,
        // A percentile of 99 needs 1,000 requests: 200 a second, or several runs.
        Workload::Rate => Plan {
            duration: Some(Nanos::from_millis(5_000)),
            warmup: Some(Nanos::from_millis(500)),
            names: Some(Names::Own),
            arrivals: Some(Arrivals::Constant),
            drop_after: Some(Nanos::from_millis(1_000)),
            ..common
        },
        Workload::Connect => Plan {
            carrier: None,
            // Client and server on one CPU or on two is a third of connect(); the
            // scheduler's choice would be most of what differs between sweeps.
            place: Some(Place::Cross),
            measure: None,
            slots: None,
            listeners: Some(List(vec![0])),
            ports: Some(1),
            accept: Some(Accept::Shared),
            acceptors: Some(1),
            close: Some(Close::Fin),
            ..common
        },
        // CERN's study had 90 in flight, which 3, 6, 9 and 18 divide.
        Workload::Spread => Plan {
            in_flight: Some(90),
            duration: Some(Nanos::from_millis(1_000)),
            warmup: Some(Nanos::from_millis(500)),
            place: None,
            carrier: None,
            measure: None,
            slots: None,
            ..common
        },
    }
}

/// The same, of what requests have beside: absent where locks are measured.
pub fn requests(workload: Workload) -> Plan {
    Plan {
        // Longer than any call that somebody waits for, and short enough that one
        // that hangs does not cost the run.
        call_timeout: Some(Nanos::from_millis(10_000)),
        ..Plan::of(workload)
    }
}

/// No request that does nothing.
pub const NO_NULL: &str = "none";

impl Plan {
    /// Takes from `other` what is absent here. Targets stay as they are.
    pub fn fill_from(&mut self, other: Plan) {
        macro_rules! fill {
            ($($field:ident),+ $(,)?) => {
                // A field that is missing in this list does not compile.
                let Plan { workload: _, targets: _, optional: _, $($field),+ } = other;
                $(if self.$field.is_none() { self.$field = $field; })+
            };
        }
        fill!(
            workers,
            hold,
            idle,
            duration,
            runs,
            warmup,
            budget,
            carrier,
            generator_threads,
            place,
            measure,
            keys,
            operations,
            names,
            pipeline,
            shared,
            range,
            try_only,
            acquire_timeout,
            open_each,
            slots,
            timer_slack,
            over,
            open,
            listeners,
            sources,
            ports,
            accept,
            acceptors,
            bind_no_port,
            port_range,
            close,
            rate,
            sndbuf,
            rcvbuf,
            only,
            during,
            expect,
            call_timeout,
            command_output,
            null,
            numbers,
            arrivals,
            drop_after,
            in_flight,
            generators,
            generator_cpu,
            connection,
            credentials,
            server_log,
            server,
            seed,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_plan_says_is_kept_and_the_rest_is_filled_in() {
        let mut plan = Plan {
            hold: Some(Busy::Spin(Nanos(7))),
            ..Plan::of(Workload::Contend)
        };
        plan.fill_from(options(Workload::Contend));
        assert_eq!(plan.hold, Some(Busy::Spin(Nanos(7))));
        assert_eq!(plan.keys, Some(List(vec![1])));
        assert_eq!(plan.workers, None);
    }

    #[test]
    fn what_is_swept_is_no_option() {
        for workload in Workload::ALL {
            let options = serde_json::to_value(options(*workload)).unwrap();
            let swept = serde_json::to_value(swept(*workload)).unwrap();
            let both = |field: &&String| options.get(field.as_str()).is_some();
            let shared: Vec<&String> = swept.as_object().unwrap().keys().filter(both).collect();
            assert_eq!(shared, ["workload"], "{workload}");
            assert!(swept.as_object().unwrap().len() > 1, "{workload}");
            assert!(!targets(*workload).is_empty(), "{workload}");
        }
    }
}
