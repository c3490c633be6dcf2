//! The monotone fit: at which load half of the steps meet the objective.
//!
//! A step at load r meets it with probability
//! `LUCK + (1 - LUCK - NOISE) / (1 + exp((ln r - ln limit) / spread))`: the psychometric function
//! with lapses of Wichmann & Hill (Perception & Psychophysics 63, 2001), which no single step
//! can pull away. The limit's distribution is computed on a grid, all spreads alike before the
//! first look, as in QUEST (Watson & Pelli, Perception & Psychophysics 33, 1983).

use jostle_model::record::Interval;

/// A step far below the limit misses for reasons of its own, such as a pause of the machine.
const NOISE: f64 = 0.05;

/// A step far beyond it meets nevertheless.
const LUCK: f64 = 0.01;

/// Spreads in ln r: from a server that answers alike at each step to one whose steps differ by a
/// tenth.
const SPREADS: [f64; 4] = [0.01, 0.02, 0.04, 0.08];

/// The step of the grid of limits, in ln r.
const CELL: f64 = 0.004;

/// Where the limit lies.
#[derive(Debug)]
pub(super) struct Fit {
    /// Loads, ascending, with the probability of each.
    cells: Vec<(f64, f64)>,
}

impl Fit {
    /// From looks (load, met), for a limit from `low` to `high`.
    pub(super) fn new(looks: impl Iterator<Item = (u64, bool)>, low: u64, high: u64) -> Fit {
        let looks: Vec<(f64, bool)> = looks.map(|(rate, met)| ((rate as f64).ln(), met)).collect();
        let (low, high) = ((low as f64).ln(), (high as f64).ln());
        let count = ((high - low) / CELL).ceil().max(1.0) as usize;
        let limits = (0..=count).map(|nth| low + (high - low) * nth as f64 / count as f64);
        let likelihood = |limit: f64, spread: f64| -> f64 {
            let of_look = looks.iter().map(|(rate, met)| {
                let beyond = ((rate - limit) / spread).clamp(-50.0, 50.0);
                let meets = LUCK + (1.0 - LUCK - NOISE) / (1.0 + beyond.exp());
                if *met { meets } else { 1.0 - meets }
            });
            of_look.map(f64::ln).sum()
        };
        let logs: Vec<(f64, [f64; SPREADS.len()])> = limits
            .map(|limit| (limit.exp(), SPREADS.map(|spread| likelihood(limit, spread))))
            .collect();
        let most = logs.iter().flat_map(|(_, of)| of);
        let most = most.copied().fold(f64::MIN, f64::max);
        let cells = logs
            .iter()
            .map(|(rate, of)| (*rate, of.iter().map(|l| (l - most).exp()).sum()));
        let cells: Vec<(f64, f64)> = cells.collect();
        let all: f64 = cells.iter().map(|(_, p)| p).sum();
        Fit {
            cells: cells.into_iter().map(|(rate, p)| (rate, p / all)).collect(),
        }
    }

    /// The load below which the limit lies with this probability.
    pub(super) fn quantile(&self, q: f64) -> f64 {
        let mut below = 0.0;
        let cell = self.cells.iter().find(|(_, p)| {
            below += p;
            below >= q
        });
        cell.or(self.cells.last()).map_or(0.0, |(rate, _)| *rate)
    }

    /// The median, and where the limit lies with 95 %.
    pub(super) fn interval(&self) -> Interval {
        Interval {
            estimate: self.quantile(0.5),
            low: self.quantile(0.025),
            high: self.quantile(0.975),
        }
    }
}
