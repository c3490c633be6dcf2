//! What is planted: a side of the load, how it is held back, and by how much.

use crate::validate::sides::Side;
use serde::{Deserialize, Serialize};

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Plant {
    /// A CPU quota on its control group: what it used, less the dose.
    Quota,
    /// A program of great weight on its CPU, which takes the dose of it.
    Hog,
    /// SIGSTOP and SIGCONT in turn, stopped for the dose of the time.
    Pause,
}

impl Plant {
    const ALL: [Plant; 3] = [Plant::Quota, Plant::Hog, Plant::Pause];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Plant::Quota => "quota",
            Plant::Hog => "hog",
            Plant::Pause => "pauses",
        }
    }
}

/// Shares that are taken, in per cent.
pub(super) const DOSES: [u32; 6] = [10, 20, 30, 40, 60, 80];

/// One turn of pauses: as long as a quota's period.
const TURN_MS: u64 = 100;

/// What is planted in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Planted {
    pub side: Side,
    pub plant: Plant,
    /// In per cent.
    pub dose: u32,
}

impl Planted {
    /// Everything that there is to plant.
    pub(crate) fn all() -> impl Iterator<Item = Planted> {
        let sides = [Side::Generator, Side::Server].into_iter();
        let ways = sides.flat_map(|side| Plant::ALL.map(|plant| (side, plant)));
        ways.flat_map(|(side, plant)| DOSES.map(|dose| Planted { side, plant, dose }))
    }

    /// What is left of what the side used, or of the time.
    pub(crate) fn left(self) -> f64 {
        1.0 - f64::from(self.dose) / 100.0
    }

    /// Milliseconds stopped and running of each turn.
    pub(crate) fn turn_ms(self) -> [u64; 2] {
        let stopped = TURN_MS * u64::from(self.dose) / 100;
        [stopped, TURN_MS - stopped]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dose_is_planted_in_each_way_on_both_sides() {
        let all: Vec<Planted> = Planted::all().collect();
        assert_eq!(all.len(), 2 * 3 * DOSES.len());
        let distinct: std::collections::BTreeSet<&Planted> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        for planted in all {
            let [stopped, running] = planted.turn_ms();
            assert!(stopped > 0 && running > 0 && stopped + running == TURN_MS);
            let share = running as f64 / TURN_MS as f64;
            assert!((planted.left() - share).abs() < 1e-9, "{planted:?}");
        }
    }
}
