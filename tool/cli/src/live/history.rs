//! What was seen, as the page draws it: at most so many samples, however long it takes.

use serde::Serialize;

/// Samples that are kept; a page is about as many pixels wide.
pub(super) const MOST: usize = 600;

/// What was seen at one moment, of the time since the moment before.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Sample {
    /// Seconds since the beginning.
    pub t_s: f64,
    /// Which point, by its place among the state's names.
    pub point: usize,
    /// Which run of all.
    pub run: usize,
    /// Seconds that it stands for.
    pub span_s: f64,
    /// Operations a second.
    pub per_s: f64,
    /// Percentiles and maximum of the latency in nanoseconds: p50, p90,
    /// p99, max; without those that too few times lie beyond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns: Option<[Option<u64>; 4]>,
    /// CPUs in use by workers, server, jostle and others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<[f64; 4]>,
}

impl Sample {
    /// Both as one. Rates and CPUs are weighed by time; of latencies the higher one
    /// stands, since percentiles cannot be averaged.
    fn with(&self, later: &Sample) -> Sample {
        let span_s = self.span_s + later.span_s;
        let mean = |one: f64, other: f64| match span_s > 0.0 {
            true => (one * self.span_s + other * later.span_s) / span_s,
            false => other,
        };
        let ns = match (self.ns, later.ns) {
            (Some(one), Some(other)) => Some(std::array::from_fn(|at| one[at].max(other[at]))),
            (one, other) => one.or(other),
        };
        let cpus = match (self.cpus, later.cpus) {
            (Some(one), Some(other)) => Some(std::array::from_fn(|at| mean(one[at], other[at]))),
            (one, other) => one.or(other),
        };
        Sample {
            span_s,
            per_s: mean(self.per_s, later.per_s),
            ns,
            cpus,
            ..later.clone()
        }
    }
}

/// The samples. All stand for about as many looks: when there are too many, they are halved,
/// and from then on each stands for twice as many.
#[derive(Clone, Debug)]
pub(super) struct History {
    kept: Vec<Sample>,
    /// Looks that a sample stands for, and how many the last one has.
    each: usize,
    in_last: usize,
}

impl Default for History {
    fn default() -> History {
        History {
            kept: Vec::new(),
            each: 1,
            in_last: 0,
        }
    }
}

/// What became of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// It is the last one.
    New,
    /// It is a part of the last one, which has changed.
    ToLast,
    /// All have changed.
    Thinned,
}

impl History {
    /// Adds one.
    pub(super) fn add(&mut self, sample: Sample) -> Added {
        if let Some(last) = self.kept.last_mut()
            && self.in_last < self.each
        {
            *last = joined(last, &sample);
            self.in_last += 1;
            return Added::ToLast;
        }
        let full = self.kept.len() >= MOST;
        if full {
            let pairs = self.kept.chunks(2);
            self.kept = pairs
                .filter_map(|pair| match pair {
                    [one, later] => Some(joined(one, later)),
                    rest => rest.first().cloned(),
                })
                .collect();
            self.each *= 2;
        }
        self.kept.push(sample);
        self.in_last = 1;
        if full { Added::Thinned } else { Added::New }
    }

    /// In the order of time.
    pub(super) fn samples(&self) -> &[Sample] {
        &self.kept
    }
}

/// Two of one run as one; of two runs the later one.
fn joined(one: &Sample, later: &Sample) -> Sample {
    match one.run == later.run {
        true => one.with(later),
        false => later.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(nth: usize, run: usize) -> Sample {
        Sample {
            t_s: nth as f64,
            run,
            span_s: 1.0,
            per_s: nth as f64,
            ns: Some([Some(nth as u64); 4]),
            cpus: Some([nth as f64, 0.0, 0.0, 1.0]),
            ..Sample::default()
        }
    }

    #[test]
    fn hours_take_as_much_memory_as_minutes() {
        let mut history = History::default();
        for nth in 0..100_000 {
            history.add(sample(nth, nth / 10_000));
            assert!(history.samples().len() <= MOST);
        }
        let kept = history.samples();
        assert!(kept.len() >= MOST / 2);
        assert!(kept.windows(2).all(|two| two[0].t_s < two[1].t_s));
        let last = kept.last().unwrap();
        assert_eq!((last.t_s, last.run, kept[0].run), (99_999.0, 9, 0));
        // The first ones cover the beginning, and their mean is that of what they cover.
        let first = &kept[0];
        assert!(
            (first.per_s - (first.span_s - 1.0) / 2.0).abs() < 1e-6,
            "{first:?}"
        );
        assert_eq!(first.ns, Some([Some(first.t_s as u64); 4]));
    }

    #[test]
    fn runs_of_two_points_are_never_mixed() {
        let mut history = History::default();
        let added = (0..=MOST).map(|nth| history.add(sample(nth, nth)));
        let thinned = added.filter(|added| *added == Added::Thinned).count();
        assert_eq!((thinned, history.samples().len()), (1, MOST / 2 + 1));
        let known = |one: &Sample| *one == sample(one.run, one.run);
        assert!(history.samples().iter().all(known));
    }
}
