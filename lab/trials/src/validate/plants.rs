//! The plant in a run: a side of the load, how it is held back, and by how much.

use super::sides::Side;
use serde::{Deserialize, Serialize};

/// How a side is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Plant {
    /// A CPU quota on jostle's control group, within the window; the server is in another.
    Throttle,
    /// A CPU quota of what the side used, less the dose: on its control group, or on each
    /// generator of `spread` by its own option.
    Quota,
    /// A program that never sleeps on the generators' CPU, of such a weight.
    Starve,
    /// A program of great weight on the side's CPU, which takes the dose of it.
    Hog,
    /// SIGSTOP and SIGCONT in turn, stopped for the dose of the time.
    Pause,
}

/// A plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Planted {
    /// jostle's own generators, unless a record says otherwise.
    #[serde(default)]
    pub side: Side,
    pub plant: Plant,
    /// The share that is taken, in per cent.
    pub dose: u32,
}

impl Planted {
    /// Every dose of every plant on every side.
    pub(crate) fn all(sides: &[Side], plants: &[Plant], doses: &[u32]) -> Vec<Planted> {
        let mut all = Vec::new();
        for side in sides {
            for plant in plants {
                all.extend(doses.iter().map(|dose| Planted {
                    side: *side,
                    plant: *plant,
                    dose: *dose,
                }));
            }
        }
        all
    }

    /// The rest of what the side used, or of the time.
    pub(crate) fn left(self) -> f64 {
        1.0 - f64::from(self.dose) / 100.0
    }

    /// Milliseconds stopped and running of each turn.
    pub(crate) fn turn_ms(self, turn_ms: u64) -> [u64; 2] {
        let stopped = turn_ms * u64::from(self.dose) / 100;
        [stopped, turn_ms - stopped]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dose_is_planted_in_each_way_on_both_sides() {
        let plants = [Plant::Quota, Plant::Hog, Plant::Pause];
        let doses = [10, 20, 30, 40, 60, 80];
        let all = Planted::all(&[Side::Generator, Side::Server], &plants, &doses);
        assert_eq!(all.len(), 2 * 3 * doses.len());
        let distinct: std::collections::BTreeSet<&Planted> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        for planted in all {
            let [stopped, running] = planted.turn_ms(100);
            assert!(stopped > 0 && running > 0 && stopped + running == 100);
            let share = running as f64 / 100.0;
            assert!((planted.left() - share).abs() < 1e-9, "{planted:?}");
        }
    }

    #[test]
    fn what_is_recorded_without_a_side_is_the_generators() {
        let planted: Planted = serde_json::from_str(r#"{"plant":"starve","dose":5}"#).unwrap();
        assert_eq!(
            (planted.side, planted.plant),
            (Side::Generator, Plant::Starve)
        );
    }
}
