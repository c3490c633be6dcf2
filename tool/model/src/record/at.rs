//! Where in a sweep a point lies.

use crate::connect;
use crate::plan::{Fault, Plan, Shape};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The swept values of a point; what is not swept is absent.
#[skip_serializing_none]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct At {
    /// Contending workers.
    pub workers: Option<u64>,
    /// `stream` and `churn`: operations of each worker.
    pub operations: Option<u64>,
    /// `hold`: locks that each worker holds at the peak.
    pub keys: Option<u64>,
    /// `connect`: connections that are open.
    pub open: Option<u64>,
    /// `connect`: other sockets that listen.
    pub listeners: Option<u64>,
    /// `connect`: source addresses.
    pub sources: Option<u64>,
    /// `rate`: requests offered a second.
    pub rate: Option<u64>,
    /// `spread`: generators over which the requests in flight are spread.
    pub generators: Option<u64>,
    /// `recover`: `kill`, `stop`, `cut`, `server-kill` or `server-stop`.
    pub fault: Option<Fault>,
}

impl At {
    /// The points that a resolved plan asks of each target, in its order; none where the runs
    /// themselves decide which come next.
    pub fn swept(plan: &Plan) -> Vec<At> {
        let of = |list: &Option<crate::List>| list.as_ref().map_or(Vec::new(), |l| l.0.clone());
        let shape = plan.workload.shape();
        let second = match shape {
            Shape::Connect => return connect::swept(plan),
            Shape::Recover => {
                let faults = plan.fault.iter().flatten();
                let at = |fault: &Fault| At {
                    fault: Some(*fault),
                    ..At::default()
                };
                return faults.map(at).collect();
            }
            Shape::Spread => {
                let at = |generators| At {
                    generators: Some(generators),
                    ..At::default()
                };
                return of(&plan.generators).into_iter().map(at).collect();
            }
            Shape::Verify => return vec![At::default()],
            Shape::Contend => vec![None],
            Shape::Stream => of(&plan.operations).into_iter().map(Some).collect(),
            Shape::Hold => of(&plan.keys).into_iter().map(Some).collect(),
            Shape::Rate if plan.find.is_some() => Vec::new(),
            Shape::Rate => of(&plan.rate).into_iter().map(Some).collect(),
        };
        let workers = of(&plan.workers);
        let at = |workers: u64, second: Option<u64>| At {
            workers: Some(workers),
            operations: second.filter(|_| shape == Shape::Stream),
            keys: second.filter(|_| shape == Shape::Hold),
            rate: second.filter(|_| shape == Shape::Rate),
            ..At::default()
        };
        workers
            .iter()
            .flat_map(|workers| second.iter().map(move |second| at(*workers, *second)))
            .collect()
    }
}
