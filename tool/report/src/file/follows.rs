//! Figures of a run that follow from others in the same record. A file in which they do not
//! was edited, or written by another program; none of its figures would be known.

use jostle_model::record::Run;

/// One of them: its name, its value, and what it follows from with what comes of that. None
/// where either is not recorded.
type Follows = (
    &'static str,
    fn(&Run) -> Option<f64>,
    &'static str,
    fn(&Run) -> Option<f64>,
);

static FOLLOWS: [Follows; 6] = [
    (
        "throughput_per_s",
        |run| Some(run.throughput_per_s),
        "operations / window_s",
        |run| Some(run.operations as f64 / run.window.window_s),
    ),
    (
        "of_ideal",
        |run| run.of_ideal,
        "throughput_per_s / ceiling_per_s",
        |run| Some(run.throughput_per_s / run.ceiling_per_s?),
    ),
    (
        "cpu_us_per_operation",
        |run| run.cpu.cpu_us_per_operation,
        "(cpu_s - spun_s) / operations",
        |run| {
            let cpu_s = run.cpu.cpu_s? - run.cpu.spun_s.unwrap_or(0.0);
            // That of requests counts their programs, and those that failed.
            let of_locks = run.codes.is_empty() && run.times.service_ns.is_none();
            of_locks.then(|| 1e6 * cpu_s / run.operations as f64)
        },
    ),
    (
        "per_worker.mean",
        |run| Some(run.per_worker?.mean),
        EACH,
        each,
    ),
    (
        "per_worker.rotations",
        |run| Some(run.per_worker?.rotations),
        EACH,
        each,
    ),
    (
        "operations",
        |run| Some(run.operations as f64),
        "the sum of workers.operations",
        |run| Some(run.workers.as_ref()?.operations.iter().sum::<u64>() as f64),
    ),
];

const EACH: &str = "operations / at.workers";

fn each(run: &Run) -> Option<f64> {
    Some(run.operations as f64 / run.at.workers? as f64)
}

/// The first that contradicts what it follows from, in words. A record without operations has
/// left them out.
pub(super) fn contradiction(run: &Run) -> Option<String> {
    /// The share by which other programs may round a number.
    const ROUNDED: f64 = 1e-6;
    let mut recorded = FOLLOWS.iter().filter(|_| run.operations > 0);
    recorded.find_map(|(name, of, from, follows)| {
        let (found, follows) = (of(run)?, follows(run)?);
        let differs = (found - follows).abs() > ROUNDED * found.abs().max(follows.abs());
        differs.then(|| format!("{name} is {found}, but {from} is {follows}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;

    #[test]
    fn each_figure_that_was_changed_is_found_and_what_is_not_recorded_is_not_missed() {
        let run = made::recorded().runs.remove(0);
        assert_eq!(contradiction(&run), None);
        type Change = fn(&mut Run);
        let changes: [(&str, Change); 6] = [
            ("throughput_per_s", |run| run.throughput_per_s *= 1.1),
            ("of_ideal", |run| run.of_ideal = Some(0.98)),
            ("cpu_us", |run| run.cpu.cpu_us_per_operation = Some(1.0)),
            ("per_worker.mean", |run| {
                run.per_worker.as_mut().unwrap().mean += 1.0;
            }),
            ("per_worker.rotations", |run| {
                run.per_worker.as_mut().unwrap().rotations += 1.0;
            }),
            ("operations", |run| {
                run.workers.as_mut().unwrap().operations[0] += 1;
            }),
        ];
        for (name, change) in changes {
            let mut edited = run.clone();
            change(&mut edited);
            let found = contradiction(&edited).unwrap_or_default();
            assert!(found.starts_with(name), "{name}: {found}");
            edited.operations = 0;
            assert_eq!(contradiction(&edited), None);
        }
        let mut rounded = run;
        rounded.throughput_per_s *= 1.0 + 5e-7;
        assert_eq!(contradiction(&rounded), None);
    }
}
