//! Distributions of times: their summaries, and the histograms behind them.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;
use std::ops::Index;

/// A distribution's summary. Its histogram stands among the point's histograms;
/// `tool/docs/results.md` says under which name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Values. With 0 the other fields mean nothing.
    pub count: u64,
    /// Exact smallest.
    pub min: u64,
    /// Exact largest.
    pub max: u64,
    /// Exact mean.
    pub mean: f64,
    /// Percentiles from the histogram, within 0.4 %: `p50`, `p90`, `p99`, `p999`; one with
    /// fewer than 10 values beyond it is absent.
    #[serde(flatten)]
    pub percentiles: Percentiles,
    /// From a time to the share of values above it, for each time of `over` in the plan.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub over: BTreeMap<String, f64>,
}

/// Waits: some attempts had not ended when the window did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// The granted ones.
    #[serde(flatten)]
    pub granted: Distribution,
    /// Attempts without a grant by the end of the window, and timeouts.
    pub censored: u64,
    /// Percentiles over granted and censored attempts; quote these. One that the curve does not
    /// reach stands in `at_least`.
    pub kaplan_meier: Percentiles,
    /// Percentiles known only to be above this value.
    #[serde(skip_serializing_if = "Percentiles::is_empty", default)]
    pub at_least: Percentiles,
}

/// Percentiles in nanoseconds, by the names of [`Percentiles::NAMES`]; other names in a
/// record are passed over. A run has a dozen of these and a file ten thousand runs, so that
/// one without a value takes a pointer, and one with values no memory for names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Named", into = "Named")]
pub struct Percentiles(Option<Box<[Option<u64>; 4]>>);

#[skip_serializing_none]
#[derive(Serialize, Deserialize)]
struct Named {
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
    p999: Option<u64>,
}

impl Percentiles {
    /// The names of the percentiles.
    pub const NAMES: [&str; 4] = ["p50", "p90", "p99", "p999"];

    /// The percentile of this name, if it is known.
    pub fn get(&self, name: &str) -> Option<&u64> {
        self.0.as_ref()?[place(name)?].as_ref()
    }

    /// Sets the percentile of this name; another name than those is passed over.
    pub fn insert(&mut self, name: &str, ns: u64) {
        if let Some(place) = place(name) {
            self.0.get_or_insert_default()[place] = Some(ns);
        }
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Those that are known, from the lowest.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let values = self.0.iter().flat_map(|values| **values);
        let named = Self::NAMES.into_iter().zip(values);
        named.filter_map(|(name, ns)| Some((name, ns?)))
    }
}

fn place(name: &str) -> Option<usize> {
    Percentiles::NAMES.iter().position(|known| *known == name)
}

impl Index<&str> for Percentiles {
    type Output = u64;

    /// The percentile of this name, which must be known.
    fn index(&self, name: &str) -> &u64 {
        self.get(name)
            .unwrap_or_else(|| panic!("{name} is not known"))
    }
}

impl<N: AsRef<str>> FromIterator<(N, u64)> for Percentiles {
    fn from_iter<I: IntoIterator<Item = (N, u64)>>(named: I) -> Percentiles {
        let mut percentiles = Percentiles::default();
        for (name, ns) in named {
            percentiles.insert(name.as_ref(), ns);
        }
        percentiles
    }
}

impl<N: AsRef<str>, const COUNT: usize> From<[(N, u64); COUNT]> for Percentiles {
    fn from(named: [(N, u64); COUNT]) -> Percentiles {
        named.into_iter().collect()
    }
}

impl From<Named> for Percentiles {
    fn from(named: Named) -> Percentiles {
        let values = [named.p50, named.p90, named.p99, named.p999];
        let known = values.iter().any(Option::is_some);
        Percentiles(known.then(|| Box::new(values)))
    }
}

impl From<Percentiles> for Named {
    fn from(percentiles: Percentiles) -> Named {
        let [p50, p90, p99, p999] = percentiles.0.map_or([None; 4], |values| *values);
        Named {
            p50,
            p90,
            p99,
            p999,
        }
    }
}

/// A log-linear histogram: the smallest value of each bucket that is not
/// empty, and its count. Buckets are 1 wide up to 256, then 128 to an octave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Buckets(pub Vec<(u64, u64)>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serial::Value;

    #[test]
    fn percentiles_are_fields_of_their_distribution_and_small() {
        let distribution = Distribution {
            count: 20,
            percentiles: [("p50", 7), ("p999", 9), ("p33", 1)].into(),
            ..Distribution::default()
        };
        let text = serde_json::to_string(&distribution).unwrap();
        assert!(text.contains(r#""p50":7,"p999":9"#), "{text}");
        assert!(!text.contains("p90") && !text.contains("p33"), "{text}");
        let mut fields: Value = text.parse().unwrap();
        fields["p33"] = 1.into();
        let read: Distribution = serde_json::from_value(fields).unwrap();
        assert_eq!(read, distribution);
        assert_eq!(read.percentiles.get("p90"), None);
        assert_eq!(size_of::<Percentiles>(), size_of::<usize>());
        let none: Distribution = Distribution::default();
        let text = serde_json::to_string(&none).unwrap();
        assert_eq!(serde_json::from_str::<Distribution>(&text).unwrap(), none);
        assert!(none.percentiles.is_empty());
    }
}
