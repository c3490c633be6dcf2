//! Did the hypervisor take CPU time away?

use super::{Evidence, Found, measured, percent};
use jostle_model::Remedy;
use jostle_model::record::{Claim, Status};

/// Shares of the time in which a CPU was wanted.
const SUSPECT: f64 = 0.02;
const INVALID: f64 = 0.10;

/// Ticks under which a share of them is not judged: of 200, one tick is 0.5 %,
/// a quarter of the finer threshold.
const LEAST_TICKS: f64 = 200.0;

check! {
    "steal" in "share": "How much of the time in which we wanted a CPU did the hypervisor take?";
    threshold: text!(
        "stolen / (busy + stolen) above {}: SUSPECT for `absolute`, above {}: INVALID for that and \
         `distribution`; judged from \
         {LEAST_TICKS} ticks on, pooled over the runs",
        percent(SUSPECT),
        percent(INVALID)
    ),
    source: "proc_stat(5), steal; a quiet virtual machine shows under 1 %, \
             a noisy one 3 to 11 % with round trips at half their rate",
    fooled_by: "a hypervisor that does not report steal, a neighbour that takes caches or memory \
                bandwidth instead of CPU time, and short experiments under 200 ticks",
    advice: "run it again in a quieter hour, or on a machine of your own",
    words: |reason| {
        let share = percent(measured(reason));
        format!("the hypervisor took {share} of the CPU time")
    },
}

/// Steal distorts absolute figures, and percentiles too if it is large. Ratios of paired
/// runs have intervals of their own, and are not affected.
fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let stolen = evidence.sum(|run| run.around.machine.stolen_ticks) as f64;
    let wanted = stolen + evidence.sum(|run| run.around.machine.busy_ticks) as f64;
    if wanted < LEAST_TICKS {
        return None;
    }
    let share = stolen / wanted;
    let (is, limit, claims): (_, _, &[Claim]) = match share {
        share if share > INVALID => (
            Status::Invalid,
            INVALID,
            &[Claim::Absolute, Claim::Distribution],
        ),
        share if share > SUSPECT => (Status::Suspect, SUSPECT, &[Claim::Absolute]),
        _ => return None,
    };
    Some(Found::new(is, claims, share, limit).remedy(Remedy::Again))
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{after, judge, point};
    use jostle_model::record::{Claim, Status};

    fn with(busy: u64, stolen: u64) -> Status {
        after(&CHECK, |run| {
            run.around.machine.busy_ticks = busy;
            run.around.machine.stolen_ticks = stolen;
        })
    }

    #[test]
    fn two_and_ten_percent_are_the_limits() {
        let table = [
            (980, 20, Status::Valid), // 2.0 %
            (979, 21, Status::Suspect),
            (900, 100, Status::Suspect), // 10.0 %
            (899, 101, Status::Invalid),
        ];
        for (busy, stolen, is) in table {
            assert_eq!(with(busy, stolen), is, "{busy} {stolen}");
        }
    }

    #[test]
    fn under_200_ticks_one_run_is_not_judged_but_several_are() {
        assert_eq!(with(150, 49), Status::Valid);
        assert_eq!(with(151, 49), Status::Invalid);
        let mut short = point();
        short.around.machine.busy_ticks = 80;
        short.around.machine.stolen_ticks = 20;
        assert_eq!(judge(&CHECK, std::slice::from_ref(&short)), None);
        assert_eq!(
            judge(&CHECK, &[short.clone(), short]).unwrap().is,
            Status::Invalid
        );
    }

    #[test]
    fn comparisons_survive_a_noisy_hour() {
        let mut noisy = point();
        noisy.around.machine.stolen_ticks = 200;
        let reason = judge(&CHECK, &[noisy]).unwrap();
        assert!(!reason.claims.contains(&Claim::Ratio));
        assert!(reason.text.contains("32.3 %"), "{}", reason.text);
    }
}
