//! Were there as many requests in flight as there should have been?

use super::{EVERYTHING, Evidence, Found, measured, more_generators, percent, seen};
use crate::intervals::median;

/// Share of the nominal number.
const LEAST: f64 = 0.95;

check! {
    "concurrency" in "share": "Was as much in flight as was asked for?";
    threshold: text!(
        "the mean number of requests in flight, median over the runs, under {} of the nominal \
         number: INVALID; time in which a generator was stopped does not count",
        percent(LEAST)
    ),
    source: "Little's law (Operations Research 9, 1961): the number in flight is throughput by \
             latency; what is missing, the server was never asked for",
    fooled_by: "a generator that is stopped for less than 20 ms at a time, and one that runs but \
                does nothing with an answer that is there; `generator` sees the latter",
    advice: "more generators, or more CPU time for them",
    words: text!(
        |reason| "only {} of {}",
        percent(measured(reason)),
        seen(reason)
    ),
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let spreads = || evidence.each(|run| run.spread.as_deref());
    let shares = spreads().map(|spread| spread.effective / spread.in_flight.max(1) as f64);
    let share = median(shares).filter(|share| *share < LEAST)?;
    let nominal = spreads().next()?.in_flight;
    Some(
        Found::invalid(EVERYTHING, share, LEAST)
            .seen(format!(
                "{nominal} requests were in flight on average{}",
                stopped(evidence)
            ))
            .remedy(more_generators(&evidence.experiment.plan)),
    )
}

fn stopped(evidence: &Evidence<'_>) -> String {
    let generators = evidence.runs.iter().flat_map(|run| &run.thread_loads);
    let still = generators
        .filter_map(|generator| Some(generator.process?.still_share))
        .fold(0.0, f64::max);
    match still > 0.0 {
        true => format!(
            ", while a generator was stopped for up to {} of the window (by a signal, or by its \
             CPU quota)",
            percent(still)
        ),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{judge, point};
    use jostle_model::record::{GeneratorProcess, Run, Spread, Status, ThreadLoad};

    fn run(effective: f64, still_share: f64) -> Run {
        let mut run = point();
        run.spread = Some(Box::new(Spread {
            in_flight: 90,
            effective,
            ..Spread::default()
        }));
        run.thread_loads = vec![ThreadLoad {
            process: Some(GeneratorProcess {
                still_share,
                ..GeneratorProcess::default()
            }),
            ..ThreadLoad::default()
        }];
        run
    }

    #[test]
    fn less_than_nineteen_twentieths_is_another_load() {
        let found = |each: &[f64]| {
            let runs: Vec<Run> = each.iter().map(|effective| run(*effective, 0.0)).collect();
            judge(&CHECK, &runs).map_or(Status::Valid, |reason| reason.is)
        };
        assert_eq!(found(&[90.0]), Status::Valid);
        assert_eq!(found(&[85.5]), Status::Valid);
        assert_eq!(found(&[85.4]), Status::Invalid);
        // One odd run does not decide.
        assert_eq!(found(&[60.0, 89.0, 89.0]), Status::Valid);
        assert_eq!(judge(&CHECK, &[point()]), None);
    }

    #[test]
    fn the_text_says_how_many_there_were_and_what_was_stopped() {
        let text = judge(&CHECK, &[run(45.0, 0.5)]).unwrap().text;
        assert!(
            text.starts_with("only 50.0 % of 90 requests were in flight on average"),
            "{text}"
        );
        assert!(text.contains("was stopped for up to 50.0 %"), "{text}");
    }
}
