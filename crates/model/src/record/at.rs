//! Where in a sweep a point lies.

use crate::connect;
use crate::plan::{Fault, Plan, Workload};
use serde::{Deserialize, Serialize};

/// The swept values of a point; what is not swept is absent.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct At {
    /// Contending workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u64>,
    /// Operations of each worker.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub operations: Option<u64>,
    /// Locks that each worker holds at the peak.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub keys: Option<u64>,
    /// Connections that are open.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub open: Option<u64>,
    /// Other sockets that listen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub listeners: Option<u64>,
    /// Source addresses of the connections.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sources: Option<u64>,
    /// Requests a second that are offered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate: Option<u64>,
    /// Generators over which the requests in flight are spread.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub generators: Option<u64>,
    /// What struck (`recover`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<Fault>,
}

impl At {
    /// The points that a resolved plan asks of each target, in its order.
    pub fn swept(plan: &Plan) -> Vec<At> {
        if plan.workload == Workload::Connect {
            return connect::swept(plan);
        }
        if plan.workload == Workload::Recover {
            let faults = plan.fault.iter().flatten();
            let at = |fault: &Fault| At {
                fault: Some(*fault),
                ..At::default()
            };
            return faults.map(at).collect();
        }
        let of = |list: &Option<crate::List>| list.as_ref().map_or(Vec::new(), |l| l.0.clone());
        if plan.workload == Workload::Spread {
            let at = |generators| At {
                generators: Some(generators),
                ..At::default()
            };
            return of(&plan.generators).into_iter().map(at).collect();
        }
        let workers = of(&plan.workers);
        let second = match plan.workload {
            Workload::Contend | Workload::Connect | Workload::Spread | Workload::Recover => {
                vec![None]
            }
            Workload::Stream => of(&plan.operations).into_iter().map(Some).collect(),
            Workload::Hold => of(&plan.keys).into_iter().map(Some).collect(),
            Workload::Rate => of(&plan.rate).into_iter().map(Some).collect(),
        };
        let at = |workers: u64, second: Option<u64>| At {
            workers: Some(workers),
            operations: second.filter(|_| plan.workload == Workload::Stream),
            keys: second.filter(|_| plan.workload == Workload::Hold),
            rate: second.filter(|_| plan.workload == Workload::Rate),
            ..At::default()
        };
        workers
            .iter()
            .flat_map(|workers| second.iter().map(move |second| at(*workers, *second)))
            .collect()
    }
}
