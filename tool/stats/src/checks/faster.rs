//! Did connecting get suspiciously faster as more connections were open?

use super::{BUT_RATIO, Evidence, Found, measured};
use jostle_model::Remedy;

/// Half of the time before is what a virtual machine's own two speeds can do; a
/// call that fails returns in under a tenth.
const SUSPICIOUS: f64 = 0.4;

check! {
    "faster" in "ratio": "Did a connection take far less time than with fewer of them open?";
    threshold: text!(
        "a median under {SUSPICIOUS} times that of the point before, median over the runs: \
         SUSPECT for `absolute` and `distribution`"
    ),
    source: "nothing that the kernel does for a connection gets cheaper with their number; its \
             ancestor got faster once its calls began to fail. Not judged where the point before \
             holds fewer than 1000 connections, which pay for cold caches",
    fooled_by: "a curve that gets faster little by little",
    advice: "run it again",
    words: text!(
        |reason| "a connection takes {:.2} times as long as with fewer open, which none should",
        measured(reason)
    ),
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let ratio = evidence.median(|run| run.connections.as_ref()?.to_previous);
    let ratio = ratio.filter(|ratio| *ratio < SUSPICIOUS)?;
    Some(Found::suspect(BUT_RATIO, ratio, SUSPICIOUS).remedy(Remedy::Again))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{judge, point};
    use jostle_model::connect::Connections;
    use jostle_model::record::{Run, Status};

    fn runs(ratios: &[Option<f64>]) -> Vec<Run> {
        let run = |to_previous: &Option<f64>| {
            let mut run = point();
            run.connections = Some(Box::new(Connections {
                to_previous: *to_previous,
                ..Connections::default()
            }));
            run
        };
        ratios.iter().map(run).collect()
    }

    #[test]
    fn the_median_over_the_runs_decides() {
        let table: &[(&[Option<f64>], Status)] = &[
            (&[Some(1.0)], Status::Valid),
            (&[Some(0.41)], Status::Valid),
            (&[Some(0.39)], Status::Suspect),
            (&[Some(0.1), Some(0.9), Some(1.0)], Status::Valid),
            (&[Some(0.1), Some(0.1), Some(1.0)], Status::Suspect),
            (&[None], Status::Valid),
        ];
        for (ratios, is) in table {
            let found = judge(&CHECK, &runs(ratios)).map_or(Status::Valid, |reason| reason.is);
            assert_eq!(found, *is, "{ratios:?}");
        }
    }
}
