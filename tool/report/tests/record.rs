//! The record of this repository, judged by the checks of today.

use jostle_stats::checks::{Evidence, idle_lock};
use std::path::Path;

/// A rule for standstills that is made finer must not flag what was measured in good order. Where
/// the record does not know how idle the CPUs were, it is judged as if all were.
#[test]
fn no_run_of_the_record_stands_still_that_did_not_before() {
    let name = idle_lock::CHECK.name;
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/record");
    let (mut runs, mut sliced) = (0, 0);
    for file in std::fs::read_dir(place).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|end| end != "jsonl") {
            continue;
        }
        // Some hold what `judge` watched, which are no runs.
        for set in jostle_report::read(&path).unwrap_or_default() {
            for run in &set.runs {
                let mut run = run.clone();
                let readings = run.around.accounts.as_mut();
                let readings = readings.and_then(|of| of.readings.as_mut());
                if let Some(of) = readings.filter(|of| of.idle_us.is_empty()) {
                    of.idle_us.clone_from(&of.length_us);
                }
                let run = &run;
                let evidence = Evidence {
                    experiment: &set.experiment,
                    runs: &[run],
                };
                let was = run
                    .verdict
                    .reasons
                    .iter()
                    .any(|reason| reason.check == name);
                let is = idle_lock::CHECK.look(&evidence);
                assert!(
                    is.is_none() || was,
                    "{path:?}: {} {:?}: {is:?}",
                    run.target,
                    run.at
                );
                let accounts = run.around.accounts.as_deref();
                runs += 1;
                sliced += usize::from(accounts.is_some_and(|of| of.readings.is_some()));
            }
        }
    }
    assert!(runs > 2_000 && sliced > 2_000, "{runs} {sliced}");
}
