//! The main figure of each workload: what answers the question that a plan asks.
//!
//! A new workload is one entry of [`ANSWERS`].

use super::latency::{self, CONNECTING, HOLDING, OPERATION, RESPONDING};
use super::overlay::large;
use super::recover;
use super::{Chapter, Figure};
use jostle_model::plan::Workload;

/// Drawings of a main figure, at most: side by side on a screen.
const DRAWINGS: usize = 2;

/// What a workload is for.
struct Answer {
    workload: Workload,
    /// Where something is swept.
    question: &'static str,
    /// Where nothing is.
    beside: &'static str,
    /// In the order of preference; of those that were measured the first two.
    of: &'static [fn(&Chapter<'_>) -> Option<Figure>],
}

const THROUGHPUT: fn(&Chapter<'_>) -> Option<Figure> = |chapter| large(chapter, "Throughput");
const CPU: fn(&Chapter<'_>) -> Option<Figure> =
    |chapter| large(chapter, "CPU time of the workers for one operation");
const SERVER_CPU: fn(&Chapter<'_>) -> Option<Figure> =
    |chapter| large(chapter, "CPU time of the server for one operation");
const MEMORY: fn(&Chapter<'_>) -> Option<Figure> =
    |chapter| large(chapter, "Memory of the server for one held lock");
const BUSIEST: fn(&Chapter<'_>) -> Option<Figure> =
    |chapter| large(chapter, "The busiest generator");

static ANSWERS: &[Answer] = &[
    Answer {
        workload: Workload::Contend,
        question: "How do throughput and CPU cost change with the number of workers?",
        beside: "Which one is fastest, and what does it cost?",
        of: &[THROUGHPUT, CPU],
    },
    Answer {
        workload: Workload::Stream,
        question: "How fast is it, and how long does one operation take?",
        beside: "Which one is fastest, and how long does one operation take?",
        of: &[
            THROUGHPUT,
            |chapter| latency::figure(chapter, &OPERATION),
            CPU,
        ],
    },
    Answer {
        workload: Workload::Hold,
        question: "What does it cost to hold more locks?",
        beside: "What does it cost to hold locks?",
        of: &[
            |chapter| latency::figure(chapter, &HOLDING),
            MEMORY,
            SERVER_CPU,
            THROUGHPUT,
        ],
    },
    Answer {
        workload: Workload::Connect,
        question: "From how many open connections on does one more become expensive?",
        beside: "What does one more connection cost?",
        of: &[
            |chapter| latency::figure(chapter, &CONNECTING),
            CPU,
            SERVER_CPU,
        ],
    },
    Answer {
        workload: Workload::Rate,
        question: "Up to which rate does the latency hold?",
        beside: "What is the latency at this rate?",
        of: &[|chapter| latency::figure(chapter, &RESPONDING), THROUGHPUT],
    },
    Answer {
        workload: Workload::Spread,
        question: "Which side is the limit: the server or the generators?",
        beside: "Which side is the limit: the server or the generators?",
        of: &[THROUGHPUT, BUSIEST],
    },
    Answer {
        workload: Workload::Recover,
        question: "How long until the next grant, after each fault?",
        beside: "How long until the next grant, after each fault?",
        of: &[recover::figure],
    },
];

/// The question of a chapter and the drawings that answer it; None where nothing of
/// them was measured.
pub(crate) fn answer(chapter: &Chapter<'_>) -> Option<(&'static str, Vec<Figure>)> {
    let answer = ANSWERS
        .iter()
        .find(|answer| answer.workload == chapter.workload)?;
    let figures = answer.of.iter().filter_map(|figure| figure(chapter));
    let figures: Vec<Figure> = figures.take(DRAWINGS).collect();
    let question = match chapter.sweeps() {
        true => answer.question,
        false => answer.beside,
    };
    (!figures.is_empty()).then_some((question, figures))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::chapter::chapters;
    use crate::made;

    #[test]
    fn every_workload_has_one_entry() {
        for workload in Workload::ALL {
            let entries = ANSWERS.iter().filter(|answer| answer.workload == *workload);
            assert_eq!(entries.count(), 1, "{workload}");
        }
    }

    #[test]
    fn contention_is_answered_by_throughput_and_cpu() {
        let sets = [made::set()];
        let (question, figures) = answer(&chapters(&sets)[0]).unwrap();
        let titles: Vec<&str> = figures.iter().map(|figure| figure.title.as_str()).collect();
        assert_eq!(
            titles,
            ["Throughput", "CPU time of the workers for one lock"]
        );
        assert!(question.contains("workers"));
    }

    #[test]
    fn the_cliff_of_connections_is_marked() {
        let sets = [made::connections()];
        let (_, figures) = answer(&chapters(&sets)[0]).unwrap();
        let drawn = figures[0].charts[0].drawing.0.as_str();
        assert!(drawn.contains("area bend"), "{drawn}");
    }
}
