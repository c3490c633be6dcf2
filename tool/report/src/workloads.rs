//! Each workload in the formats for people: a row for each.

pub(crate) mod churn;

use crate::ResultSet;
use crate::closing;
use crate::columns::Column;
use crate::html::chapter::Chapter;
use crate::html::figures::answer::Answer;
use crate::html::figures::latency::{self, CONNECTING, HOLDING, OPERATION, RESPONDING};
use crate::html::figures::medians::large;
use crate::html::figures::{Drawing, recover as recovering, verify as verifying};
use crate::next::{self, Step};
use crate::{connect, headline, kept, rate, recover, requests, spread, verify, what};
use jostle_model::Plan;
use jostle_model::plan::Workload;
use jostle_stats::requested::makes_requests;
use jostle_stats::summary::PointSummary;

pub(crate) struct Row {
    workload: Workload,
    /// The columns of the table above these points; what was not measured is left out.
    pub(crate) columns: fn(&[PointSummary<'_>]) -> &'static [Column],
    /// The next question to results against which nothing speaks, from a plan that asks the same
    /// again.
    pub(crate) next: fn(&ResultSet, Plan) -> Step,
    /// What its runs do, behind the command and its targets.
    pub(crate) what: fn(&Plan) -> String,
    /// The main figure of the page.
    pub(crate) answer: Answer,
}

const THROUGHPUT: fn(&Chapter<'_>) -> Option<Drawing> = |chapter| large(chapter, "Throughput");
const CPU: fn(&Chapter<'_>) -> Option<Drawing> =
    |chapter| large(chapter, "CPU time of the workers for one operation");
const SERVER_CPU: fn(&Chapter<'_>) -> Option<Drawing> =
    |chapter| large(chapter, "CPU time of the server for one operation");
const MEMORY: fn(&Chapter<'_>) -> Option<Drawing> =
    |chapter| large(chapter, "Memory of the server for one held lock");
const BUSIEST: fn(&Chapter<'_>) -> Option<Drawing> =
    |chapter| large(chapter, "The busiest generator");

/// One for each workload.
static ROWS: &[Row] = &[
    Row {
        workload: Workload::Contend,
        columns: |_| headline::COLUMNS,
        next: |set, next| next::contend_question(&set.experiment.plan, next),
        what: what::contend,
        answer: Answer {
            question: "How do throughput and CPU cost change with the number of workers?",
            beside: "Which one is fastest, and what does it cost?",
            of: &[THROUGHPUT, CPU],
        },
    },
    Row {
        workload: Workload::Stream,
        columns: counted_columns,
        next: counted_question,
        what: what::stream,
        answer: Answer {
            question: "How fast is it, and how long does one operation take?",
            beside: "Which one is fastest, and how long does one operation take?",
            of: &[
                THROUGHPUT,
                |chapter| latency::figure(chapter, &OPERATION),
                CPU,
            ],
        },
    },
    Row {
        workload: Workload::Hold,
        columns: counted_columns,
        next: counted_question,
        what: what::hold,
        answer: Answer {
            question: "What does it cost to hold more locks?",
            beside: "What does it cost to hold locks?",
            of: &[
                |chapter| latency::figure(chapter, &HOLDING),
                MEMORY,
                SERVER_CPU,
                THROUGHPUT,
            ],
        },
    },
    Row {
        workload: Workload::Connect,
        columns: |_| connect::COLUMNS,
        next: |set, next| next::connect_question(&set.experiment.plan, next),
        what: what::connect,
        answer: Answer {
            question: "From how many open connections on does one more become expensive?",
            beside: "What does one more connection cost?",
            of: &[
                |chapter| latency::figure(chapter, &CONNECTING),
                CPU,
                SERVER_CPU,
            ],
        },
    },
    Row {
        workload: Workload::Rate,
        columns: |_| rate::COLUMNS,
        next: |set, next| match &set.experiment.plan.find {
            Some(_) => closing::find::question(set, next),
            None => next::rate_question(&set.experiment.plan, next),
        },
        what: what::rate,
        answer: Answer {
            question: "Up to which rate does the latency hold?",
            beside: "What is the latency at this rate?",
            of: &[|chapter| latency::figure(chapter, &RESPONDING), THROUGHPUT],
        },
    },
    Row {
        workload: Workload::Spread,
        columns: |_| spread::COLUMNS,
        next: next::spread_question,
        what: what::spread,
        answer: Answer {
            question: "Which side is the limit: the server or the generators?",
            beside: "Which side is the limit: the server or the generators?",
            of: &[THROUGHPUT, BUSIEST],
        },
    },
    Row {
        workload: Workload::Recover,
        columns: |_| recover::COLUMNS,
        next: |set, next| next::recover_question(&set.experiment.plan, next),
        what: what::recover,
        answer: Answer {
            question: "How long until the next grant, after each fault?",
            beside: "How long until the next grant, after each fault?",
            of: &[recovering::granted, recovering::believed],
        },
    },
    churn::ROW,
    Row {
        workload: Workload::Verify,
        columns: |_| verify::COLUMNS,
        next: |set, next| next::recover_question(&set.experiment.plan, next),
        what: what::verify,
        answer: Answer {
            question: "Is the promise kept?",
            beside: "Is the promise kept?",
            of: &[verifying::excerpt],
        },
    },
];

pub(crate) fn shown(workload: Workload) -> &'static Row {
    let row = ROWS.iter().find(|row| row.workload == workload);
    row.unwrap_or(&ROWS[0])
}

/// The columns of workloads whose runs end with their operations.
fn counted_columns(points: &[PointSummary<'_>]) -> &'static [Column] {
    match () {
        () if requests::are(points) => requests::COLUMNS,
        () if kept::are(points) => kept::COLUMNS,
        () => headline::COUNTED,
    }
}

fn counted_question(set: &ResultSet, next: Plan) -> Step {
    let plan = &set.experiment.plan;
    match makes_requests(plan) {
        true => next::requests_question(plan, next),
        false => next::counted_question(set, next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_has_one_row() {
        for workload in Workload::ALL {
            let rows = ROWS.iter().filter(|row| row.workload == *workload);
            assert_eq!(rows.count(), 1, "{workload}");
        }
    }
}
