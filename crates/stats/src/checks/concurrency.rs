//! Were there as many requests in flight as there should have been?

use super::{Check, EVERYTHING, Evidence, percent};
use crate::intervals::median;
use jostle_model::record::{Is, Reason};

const LEAST: f64 = 0.95;

/// The check.
pub static CHECK: Check = Check {
    name: "concurrency",
    asks: "Was as much in flight as was asked for?",
    threshold: "the mean number of requests in flight, median over the runs, under 95 % of the \
                nominal number: INVALID; time in which a generator stood still does not count",
    source: "Little's law (Operations Research 9, 1961): the number in flight is throughput by \
             latency; what is missing, the server was never asked for",
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let spreads = || evidence.runs.iter().filter_map(|run| run.spread.as_deref());
    let shares: Vec<f64> = spreads()
        .map(|spread| spread.effective / spread.in_flight.max(1) as f64)
        .collect();
    let share = median(&shares).filter(|share| *share < LEAST)?;
    let nominal = spreads().next()?.in_flight;
    let still = evidence
        .runs
        .iter()
        .flat_map(|run| &run.generators)
        .filter_map(|generator| Some(generator.process?.still_share))
        .fold(0.0, f64::max);
    let why = match still > 0.0 {
        true => format!(
            "; a generator stood still for up to {} of the window (stopped, or its CPU quota \
             was used up)",
            percent(still)
        ),
        false => String::new(),
    };
    let text = format!(
        "{:.1} requests were in flight of {nominal} ({}), so that this is another load than it \
         says{why}",
        share * nominal as f64,
        percent(share)
    );
    Some(CHECK.reason(Is::Invalid, EVERYTHING, text))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{judge, point};
    use jostle_model::record::{Generator, GeneratorProcess, Is, Point, Spread};

    fn run(effective: f64, still_share: f64) -> Point {
        let mut point = point();
        point.spread = Some(Box::new(Spread {
            in_flight: 90,
            effective,
            ..Spread::default()
        }));
        point.generators = vec![Generator {
            process: Some(GeneratorProcess {
                still_share,
                ..GeneratorProcess::default()
            }),
            ..Generator::default()
        }];
        point
    }

    #[test]
    fn less_than_nineteen_twentieths_is_another_load() {
        let found = |each: &[f64]| {
            let runs: Vec<Point> = each.iter().map(|effective| run(*effective, 0.0)).collect();
            judge(&CHECK, &runs).map_or(Is::Valid, |reason| reason.is)
        };
        assert_eq!(found(&[90.0]), Is::Valid);
        assert_eq!(found(&[85.5]), Is::Valid);
        assert_eq!(found(&[85.4]), Is::Invalid);
        // One odd run does not decide.
        assert_eq!(found(&[60.0, 89.0, 89.0]), Is::Valid);
        assert_eq!(judge(&CHECK, &[point()]), None);
    }

    #[test]
    fn the_text_says_how_many_there_were_and_who_stood_still() {
        let text = judge(&CHECK, &[run(45.0, 0.5)]).unwrap().text;
        assert!(
            text.starts_with("45.0 requests were in flight of 90 (50.0 %)"),
            "{text}"
        );
        assert!(text.contains("stood still for up to 50.0 %"), "{text}");
    }
}
