//! Did the hypervisor take CPU time away?

use super::{Check, Evidence, Limits, percent};
use jostle_model::record::Reason;

const LIMITS: Limits = Limits {
    suspect: 0.02,
    invalid: 0.10,
};

/// Ticks under which a share of them is not judged: of 200, one tick is 0.5 %,
/// a quarter of the finer threshold.
const LEAST_TICKS: f64 = 200.0;

/// The check.
pub static CHECK: Check = Check {
    name: "steal",
    asks: "How much of the time in which we wanted a CPU did the hypervisor take?",
    threshold: "stolen / (busy + stolen) above 2 %: SUSPECT, above 10 %: INVALID; \
                judged from 200 ticks on, pooled over the runs",
    source: "proc_stat(5), steal; a quiet virtual machine shows under 1 %, \
             a noisy one 3 to 11 % with round trips at half their rate",
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let stolen = evidence.sum(|run| run.machine.stolen_ticks) as f64;
    let wanted = stolen + evidence.sum(|run| run.machine.busy_ticks) as f64;
    if wanted < LEAST_TICKS {
        return None;
    }
    let share = stolen / wanted;
    let text = format!(
        "the hypervisor took {} of the CPU time; run it again in a quieter hour",
        percent(share)
    );
    CHECK.disturbance(share, LIMITS, text)
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{after, judge, point};
    use jostle_model::record::{Claim, Is};

    fn with(busy: u64, stolen: u64) -> Is {
        after(&CHECK, |point| {
            point.machine.busy_ticks = busy;
            point.machine.stolen_ticks = stolen;
        })
    }

    #[test]
    fn two_and_ten_percent_are_the_limits() {
        let table = [
            (980, 20, Is::Valid), // 2.0 %
            (979, 21, Is::Suspect),
            (900, 100, Is::Suspect), // 10.0 %
            (899, 101, Is::Invalid),
        ];
        for (busy, stolen, is) in table {
            assert_eq!(with(busy, stolen), is, "{busy} {stolen}");
        }
    }

    #[test]
    fn under_200_ticks_one_run_is_not_judged_but_several_are() {
        assert_eq!(with(150, 49), Is::Valid);
        assert_eq!(with(151, 49), Is::Invalid);
        let mut short = point();
        short.machine.busy_ticks = 80;
        short.machine.stolen_ticks = 20;
        assert_eq!(judge(&CHECK, std::slice::from_ref(&short)), None);
        assert_eq!(
            judge(&CHECK, &[short.clone(), short]).unwrap().is,
            Is::Invalid
        );
    }

    #[test]
    fn comparisons_survive_a_noisy_hour() {
        let mut noisy = point();
        noisy.machine.stolen_ticks = 200;
        let reason = judge(&CHECK, &[noisy]).unwrap();
        assert!(!reason.claims.contains(&Claim::Ratio));
        assert!(reason.text.contains("32.3 %"), "{}", reason.text);
    }
}
