//! Axes: where a value stands on a logarithmic and on a linear scale, and which
//! ticks each has.
//!
//! Both are computed here, once; the page's script only chooses between them.

use super::units::{Unit, compact};

/// Pixels between two labels beside the vertical axis, at least.
const APART_Y: f64 = 34.0;
/// Below the horizontal axis: pixels of each letter of the longest label, and between labels.
const LETTER: f64 = 9.2;
const BETWEEN: f64 = 8.0;
/// Pixels that a logarithmic axis keeps apart for 0, which has no logarithm.
const FOR_ZERO: f64 = 20.0;
/// The least quotient of the values of an axis that can be logarithmic: values that are closer are
/// read by their differences, and noise must not look like growth.
const LEAST_SPAN: f64 = 10.0;

/// A position on either scale, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Both {
    /// On the logarithmic one.
    pub log: f64,
    /// On the linear one.
    pub linear: f64,
}

impl Both {
    /// One place on both scales.
    pub(super) fn same(at: f64) -> Both {
        Both {
            log: at,
            linear: at,
        }
    }

    /// So many pixels further.
    pub(super) fn moved(self, by: f64) -> Both {
        Both {
            log: self.log + by,
            linear: self.linear + by,
        }
    }
}

/// A kind of axis, and which of [`Both`] positions it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// Equal factors are equal distances.
    Log,
    /// Equal differences are equal distances.
    Linear,
}

impl Scale {
    /// As the page's attributes and its script name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Scale::Log => "log",
            Scale::Linear => "linear",
        }
    }

    /// The position on this scale.
    pub(super) fn of(self, at: Both) -> f64 {
        match self {
            Scale::Log => at.log,
            Scale::Linear => at.linear,
        }
    }
}

/// A mark of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    /// In pixels.
    pub at: f64,
    /// Empty at ticks between the labelled ones.
    pub label: String,
}

/// One axis, either way.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// Where it begins and ends, in pixels.
    pixels: [f64; 2],
    log: Option<Log>,
    linear: [f64; 2],
    /// Ticks of the logarithmic scale.
    pub log_ticks: Vec<Tick>,
    /// Ticks of the linear scale.
    pub linear_ticks: Vec<Tick>,
}

#[derive(Clone, Copy, Debug)]
struct Log {
    ends: [f64; 2],
    /// Whether 0 has a place before the smallest value.
    zero: bool,
}

impl Axis {
    /// Of values beside the vertical axis, which always shows 0 when linear.
    pub(super) fn of_values(unit: Unit, values: &[f64], pixels: [f64; 2]) -> Axis {
        let values: Vec<f64> = finite(values);
        let step = linear_step(unit, &values, pixels);
        let greatest = values.iter().copied().fold(0.0, f64::max);
        let top = match unit {
            Unit::Index => greatest.max(1.0),
            _ => step * (greatest / step - 1e-9).ceil().max(1.0),
        };
        let log = log_of(&values).filter(|_| unit.logarithmic());
        let log = log.map(|log| Log {
            ends: rounded(log.ends),
            ..log
        });
        let mut axis = Axis::bare(pixels, log, [0.0, top]);
        axis.linear_ticks = axis.every(step, unit);
        axis.log_ticks = match axis.log {
            Some(log) => axis.decades(log, unit),
            None => axis.linear_ticks.clone(),
        };
        axis
    }

    /// Of swept values, whose logarithmic ticks are these values themselves.
    pub(super) fn of_sweep(values: &[f64], pixels: [f64; 2]) -> Axis {
        let values = finite(values);
        let greatest = values.iter().copied().fold(1.0, f64::max);
        let log = log_of(&values).map(|log| Log {
            ends: [log.ends[0] / 1.12, log.ends[1] * 1.12],
            ..log
        });
        let mut axis = Axis::bare(pixels, log, [0.0, greatest * 1.04]);
        let width = 5.0 * LETTER + BETWEEN;
        let room = ((pixels[1] - pixels[0]).abs() / width).max(2.0);
        axis.log_ticks = axis.at_values(&values);
        axis.linear_ticks = match log {
            Some(_) => axis.every(nice(greatest / room), Unit::Number("")),
            None => axis.log_ticks.clone(),
        };
        axis
    }

    /// Of things that are no numbers, side by side.
    pub(super) fn of_names(names: &[String], pixels: [f64; 2]) -> Axis {
        let mut axis = Axis::bare(pixels, None, [0.5, names.len() as f64 + 0.5]);
        let room = (pixels[1] - pixels[0]).abs() / names.len().max(1) as f64;
        // Names that touch are read as one.
        let letters = ((room - BETWEEN) / LETTER) as usize;
        let tick = |(at, name): (usize, &String)| Tick {
            at: axis.at(at as f64 + 1.0).linear,
            label: cut(name, letters.max(3)),
        };
        axis.linear_ticks = names.iter().enumerate().map(tick).collect();
        axis.log_ticks.clone_from(&axis.linear_ticks);
        axis
    }

    fn bare(pixels: [f64; 2], log: Option<Log>, linear: [f64; 2]) -> Axis {
        Axis {
            pixels,
            log,
            linear,
            log_ticks: Vec::new(),
            linear_ticks: Vec::new(),
        }
    }

    /// The ticks of either scale, for groups of this class; one where both have the same.
    pub(super) fn shown(&self, class: &str) -> Vec<(String, &[Tick])> {
        if self.log_ticks == self.linear_ticks {
            return vec![(class.to_owned(), &self.log_ticks)];
        }
        vec![
            (format!("{class} log"), &self.log_ticks),
            (format!("{class} lin"), &self.linear_ticks),
        ]
    }

    /// Where a value stands.
    pub(super) fn at(&self, value: f64) -> Both {
        let [low, high] = self.linear;
        let linear = self.along((value - low) / (high - low));
        Both {
            log: self.log.map_or(linear, |log| self.log_at(log, value)),
            linear,
        }
    }

    fn along(&self, share: f64) -> f64 {
        let [from, to] = self.pixels;
        from + (to - from) * share.clamp(-0.02, 1.02)
    }

    fn log_at(&self, log: Log, value: f64) -> f64 {
        if value <= 0.0 {
            return self.pixels[0];
        }
        let [low, high] = log.ends;
        let share = (value / low).ln() / (high / low).ln();
        let length = (self.pixels[1] - self.pixels[0]).abs();
        let kept = if log.zero { FOR_ZERO / length } else { 0.0 };
        self.along(kept + (1.0 - kept) * share)
    }

    fn every(&self, step: f64, unit: Unit) -> Vec<Tick> {
        let last = (self.linear[1] / step + 1e-9) as u64;
        (0..=last)
            .map(|n| n as f64 * step)
            .map(|value| Tick {
                at: self.at(value).linear,
                label: unit.tick(value),
            })
            .collect()
    }

    /// Powers of ten, with 2 and 5 between them where there is room.
    fn decades(&self, log: Log, unit: Unit) -> Vec<Tick> {
        let [low, high] = log.ends;
        let length = (self.pixels[1] - self.pixels[0]).abs();
        let decades = (high / low).log10();
        let per_decade = length / decades.max(0.1);
        let labelled: &[f64] = match per_decade {
            room if room > 4.0 * APART_Y => &[1.0, 2.0, 5.0],
            room if room > 2.2 * APART_Y => &[1.0, 3.0],
            _ => &[1.0],
        };
        let skip = (APART_Y / per_decade / 1.6).ceil().max(1.0) as i32;
        let mut ticks = Vec::new();
        ticks.extend(log.zero.then(|| Tick {
            at: self.pixels[0],
            label: unit.tick(0.0),
        }));
        let first = (low.log10() + 1e-9).floor() as i32;
        for exponent in first..=(high.log10() + 1e-9).floor() as i32 {
            for digit in 1..=9 {
                let value = f64::from(digit) * 10f64.powi(exponent);
                if value < low * (1.0 - 1e-9) || value > high * (1.0 + 1e-9) {
                    continue;
                }
                let named = labelled.contains(&f64::from(digit)) && exponent % skip == 0;
                ticks.push(Tick {
                    at: self.at(value).log,
                    label: if named {
                        unit.tick(value)
                    } else {
                        String::new()
                    },
                });
            }
        }
        ticks
    }

    /// The swept values, without labels that would touch the one before; the
    /// last one always has its own.
    fn at_values(&self, values: &[f64]) -> Vec<Tick> {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let mut ticks: Vec<Tick> = Vec::new();
        let mut free_to = f64::INFINITY;
        for value in values.into_iter().rev() {
            let (at, label) = (self.at(value).log, compact(value));
            let half = label.chars().count() as f64 * LETTER / 2.0;
            let fits = at + half <= free_to;
            if fits {
                free_to = at - half - BETWEEN;
            }
            ticks.push(Tick {
                at,
                label: if fits { label } else { String::new() },
            });
        }
        ticks.reverse();
        ticks
    }
}

fn finite(values: &[f64]) -> Vec<f64> {
    values.iter().copied().filter(|v| v.is_finite()).collect()
}

/// The ends of the positive values; None without any, and where they lie close together.
fn log_of(values: &[f64]) -> Option<Log> {
    let positive = || values.iter().copied().filter(|v| *v > 0.0);
    let (low, high) = (positive().reduce(f64::min)?, positive().reduce(f64::max)?);
    (high >= LEAST_SPAN * low).then(|| Log {
        ends: [low, high],
        zero: values.iter().any(|v| *v <= 0.0),
    })
}

/// Out to the next 1, 2 or 5.
fn rounded([low, high]: [f64; 2]) -> [f64; 2] {
    let down = |value: f64| {
        let power = 10f64.powf((value.log10() + 1e-9).floor());
        let digit = [5.0, 2.0, 1.0]
            .into_iter()
            .find(|d| d * power <= value * (1.0 + 1e-9));
        digit.unwrap_or(1.0) * power
    };
    [down(low), nice(high)]
}

fn linear_step(unit: Unit, values: &[f64], pixels: [f64; 2]) -> f64 {
    let greatest = values.iter().copied().fold(0.0, f64::max);
    let greatest = match (unit, greatest > 0.0) {
        (Unit::Index, _) | (_, false) => greatest.max(1.0),
        _ => greatest,
    };
    let room = ((pixels[1] - pixels[0]).abs() / APART_Y).max(2.0);
    nice(greatest / room)
}

/// The next of 1, 2, 5 times a power of ten.
fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let digit = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|digit| digit * power >= step * (1.0 - 1e-9));
    digit.unwrap_or(10.0) * power
}

/// At most so many letters, the last an ellipsis where some were cut.
pub(super) fn cut(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    let kept: String = text.chars().take(letters.saturating_sub(1)).collect();
    kept + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Unit = Unit::Time(1.0);

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        let labels = ticks.iter().map(|tick| tick.label.as_str());
        labels.filter(|label| !label.is_empty()).collect()
    }

    #[test]
    fn equal_factors_are_equal_distances_on_one_and_equal_differences_on_the_other() {
        let axis = Axis::of_values(TIME, &[1_000.0, 1_000_000.0], [300.0, 0.0]);
        let at: Vec<Both> = [1e3, 1e4, 1e5, 1e6].map(|v| axis.at(v)).to_vec();
        for pair in at.windows(2) {
            assert!((pair[0].log - pair[1].log - 100.0).abs() < 1e-6);
        }
        assert_eq!(axis.at(0.0).linear, 300.0);
        assert!((axis.at(5e5).linear - 150.0).abs() < 1e-6);
    }

    #[test]
    fn zero_has_a_place_of_its_own_before_the_smallest() {
        let axis = Axis::of_values(Unit::Number("locks"), &[0.0, 1.0, 100.0], [300.0, 0.0]);
        assert_eq!(axis.at(0.0).log, 300.0);
        assert!((axis.at(1.0).log - (300.0 - FOR_ZERO)).abs() < 1e-6);
        assert_eq!(axis.log_ticks[0].label, "0");
    }

    #[test]
    fn ticks_are_round_and_not_crowded() {
        let axis = Axis::of_values(TIME, &[12_000.0, 4.1e9], [200.0, 0.0]);
        assert_eq!(
            labels(&axis.log_ticks),
            ["10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s"]
        );
        assert_eq!(
            labels(&axis.linear_ticks),
            ["0", "1 s", "2 s", "3 s", "4 s", "5 s"]
        );
        let flat = Axis::of_values(Unit::PerSecond("locks/s"), &[967.0, 990.0], [200.0, 0.0]);
        assert_eq!(flat.log_ticks, flat.linear_ticks);
        assert_eq!(flat.at(0.0), Both::same(200.0));
        let share = Axis::of_values(Unit::Share, &[0.02, 0.11], [200.0, 0.0]);
        assert!(share.log.is_none());
        assert_eq!(share.log_ticks, share.linear_ticks);
        assert_eq!(labels(&share.linear_ticks).first(), Some(&"0 %"));
    }

    #[test]
    fn a_sweep_is_labelled_by_its_own_values() {
        let sweep = [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];
        let axis = Axis::of_sweep(&sweep, [0.0, 500.0]);
        assert_eq!(
            labels(&axis.log_ticks),
            ["10", "20", "50", "100", "200", "500", "1000"]
        );
        assert_eq!(labels(&axis.linear_ticks)[..2], ["0", "200"]);
        let steps: Vec<f64> = (1..=100).map(|n| f64::from(n) * 1000.0).collect();
        let axis = Axis::of_sweep(&steps, [0.0, 300.0]);
        assert!(labels(&axis.log_ticks).len() < 12);
        assert_eq!(labels(&axis.log_ticks).last(), Some(&"100k"));
    }

    #[test]
    fn nothing_or_one_value_is_an_axis_too() {
        for values in [&[][..], &[0.0], &[7.0], &[f64::NAN]] {
            for unit in [TIME, Unit::Share, Unit::Index, Unit::Bytes] {
                let axis = Axis::of_values(unit, values, [200.0, 0.0]);
                let at = axis.at(7.0);
                assert!(at.log.is_finite() && at.linear.is_finite());
                assert!(!axis.linear_ticks.is_empty());
            }
            assert!(Axis::of_sweep(values, [0.0, 9.0]).at(7.0).log.is_finite());
        }
    }

    #[test]
    fn names_stand_side_by_side_and_are_cut_to_their_room() {
        let names = ["flock".to_owned(), "redis://127.0.0.1:6379".to_owned()];
        let axis = Axis::of_names(&names, [0.0, 200.0]);
        assert_eq!(axis.at(1.0), Both::same(50.0));
        assert_eq!(labels(&axis.log_ticks), ["flock", "redis://1…"]);
        // Eight of them on a phone lay on each other.
        let names = ["memcached"; 8].map(str::to_owned);
        let axis = Axis::of_names(&names, [0.0, 492.0]);
        let letters = labels(&axis.log_ticks)[0].chars().count() as f64;
        assert!(letters * LETTER + BETWEEN <= 492.0 / 8.0, "{letters}");
    }
}
