//! A run's orders about requests, whichever workload decides when they are due, and their results.

use super::data::join_any;
use super::{CpuTimes, Merged, OpenLoopData};
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
    /// Their connections; None: as the target does by itself.
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

/// The results of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestData {
    /// Their parts, in order.
    pub phases: Vec<PhaseData>,
    /// From sending to answer, successes.
    pub service: Merged,
    /// From sending to answer, of failed requests.
    pub failed: Merged,
    /// Answers by their code.
    pub codes: BTreeMap<String, u64>,
    /// CPU time of the processes that were started.
    pub children: CpuTimes,
    /// The outcomes of requests that came at a rate.
    pub open_loop: Option<Box<OpenLoopData>>,
}

impl RequestData {
    pub(super) fn join(&mut self, other: &RequestData) {
        let phases = self.phases.iter_mut().zip(&other.phases);
        phases.for_each(|(all, one)| all.span.join(&one.span));
        self.service.join(&other.service);
        self.failed.join(&other.failed);
        for (code, count) in &other.codes {
            *self.codes.entry(code.clone()).or_default() += count;
        }
        self.children += other.children;
        join_any(&mut self.open_loop, &other.open_loop, |all, one| {
            all.join(one);
        });
    }
}

/// A part of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseData {
    /// Its name, such as `spawn`.
    pub phase: String,
    /// Its times.
    pub span: Merged,
}
