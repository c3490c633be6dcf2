//! What a run is told about requests, whichever workload decides when they are due, and
//! what became of them.

use super::{Merged, OpenLoopData};
use jostle_model::plan::Connection;
use jostle_model::time::Nanos;
use jostle_targets::Requests;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Requests and their answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestOrder {
    /// Codes that are a success; None: the target's own.
    pub expect: Option<Vec<u64>>,
    /// How long one may take.
    pub timeout: Nanos,
    /// Where the output of started programs goes.
    pub output: Option<String>,
    /// `{n}` runs over so many numbers; None: over all requests.
    pub numbers: Option<u64>,
    /// What connections they have; None: as the target does by itself.
    pub connection: Option<Connection>,
    /// The log in which the server's own counts are read.
    pub server_log: Option<String>,
}

impl RequestOrder {
    /// Whether an answer with this code is a success.
    pub fn expects(&self, target: &dyn Requests, code: u32) -> bool {
        match &self.expect {
            Some(codes) => codes.contains(&u64::from(code)),
            None => target.is_success(code),
        }
    }
}

/// What requests came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestData {
    /// Their parts, in order.
    pub phases: Vec<(String, Merged)>,
    /// From sending to answer, successes.
    pub service: Merged,
    /// The same, of others.
    pub failed: Merged,
    /// Answers by their code.
    pub codes: BTreeMap<String, u64>,
    /// User and system time of the processes that were started.
    pub children_ns: (u64, u64),
    /// What became of requests that came at a rate.
    pub open_loop: Option<Box<OpenLoopData>>,
}
