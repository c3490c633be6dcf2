//! The main figure of each workload: what answers the question that a plan asks.
//!
//! The figures of a workload stand in its row of [`crate::workloads`].

use super::{Chapter, Drawing, bars};
use crate::workloads::shown;

/// Drawings of a main figure, at most: side by side on a screen.
const DRAWINGS: usize = 2;

/// The question that a workload answers.
pub(crate) struct Answer {
    /// Where something is swept.
    pub(crate) question: &'static str,
    /// Where nothing is.
    pub(crate) beside: &'static str,
    /// In the order of preference; of those that were measured the first two.
    pub(crate) of: &'static [fn(&Chapter<'_>) -> Option<Drawing>],
}

/// The question of a chapter and the drawings that answer it; None where nothing of
/// them was measured.
pub(crate) fn answer(chapter: &Chapter<'_>) -> Option<(&'static str, Vec<Drawing>)> {
    let answer = &shown(chapter.workload).answer;
    let figures = answer.of.iter().filter_map(|figure| figure(chapter));
    let mut figures: Vec<Drawing> = figures.collect();
    figures.extend(bars::figure(chapter));
    // Of many targets bars are read first, and then what the title says.
    let leads =
        |figure: &Drawing| !chapter.lead.is_empty() && figure.title.starts_with(chapter.lead);
    figures.sort_by_key(|figure| (!figure.title.ends_with(bars::TITLE), !leads(figure)));
    figures.truncate(DRAWINGS);
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
    fn contention_is_answered_by_throughput_and_cpu() {
        let sets = [made::set()];
        let (question, figures) = answer(&chapters(&sets)[0]).unwrap();
        let titles: Vec<&str> = figures.iter().map(|figure| figure.title.as_str()).collect();
        assert_eq!(
            titles,
            // The title says that sysv is the cheapest in CPU.
            ["CPU time of the workers for one lock", "Throughput"]
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
