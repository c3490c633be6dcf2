//! The defaults of a plan's options.
//!
//! Resolving a plan fills these values in, and printing a plan as a command leaves them out
//! again. They are in the table of options. Values that pilots or the machine decide
//! (windows, runs, seeds) are not there.

use crate::options::{DefaultValue, OPTIONS};
use crate::plan::{Plan, Workload};

/// The targets measured where none is named.
pub fn targets(workload: Workload) -> &'static [&'static str] {
    workload.facts().targets
}

/// Targets that make a useful comparison.
pub fn contrasts(workload: Workload) -> &'static [&'static str] {
    workload.facts().contrasts
}

/// The default sweep. It is printed even if it is the default, because it states what was
/// measured.
pub fn swept(workload: Workload) -> Plan {
    of_sort(workload, |default| match default {
        DefaultValue::Swept(typed) => Some(typed),
        _ => None,
    })
}

/// Every option whose default is always the same, for this workload; fields
/// that it does not use, or that have no such default, are absent.
pub fn options(workload: Workload) -> Plan {
    of_sort(workload, |default| match default {
        DefaultValue::Fixed(typed) => Some(typed),
        _ => None,
    })
}

/// The defaults of the options that only requests have; absent if locks are measured.
pub fn requests(workload: Workload) -> Plan {
    of_sort(workload, |default| match default {
        DefaultValue::OfRequests(typed) => Some(typed),
        _ => None,
    })
}

/// The defaults of one sort, from the table of options.
fn of_sort(workload: Workload, sort: fn(DefaultValue) -> Option<&'static str>) -> Plan {
    let mut plan = Plan::of(workload);
    for option in OPTIONS {
        let default = option.in_workload(workload).map(|used| used.default);
        if let Some(typed) = default.and_then(sort) {
            let read = option.set(&mut plan, typed);
            debug_assert_eq!(read, Ok(()), "--{}", option.word);
        }
    }
    plan
}

/// No request that does nothing.
pub const NO_NULL: &str = "none";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Busy, List, Nanos};

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
            // `verify` has one point for each target.
            let sweeps = swept.as_object().unwrap().len() > 1;
            assert_eq!(sweeps, *workload != Workload::Verify, "{workload}");
            assert!(!targets(*workload).is_empty(), "{workload}");
        }
    }
}
