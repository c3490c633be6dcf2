//! What was seen, as the page draws it: at most so many samples, however long it takes.

use serde::Serialize;

/// Samples that are kept; a page is about as many pixels wide.
pub const MOST: usize = 600;

/// What was seen at one moment, of the time since the moment before.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
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

/// The samples.
#[derive(Clone, Debug, Default)]
pub struct History(Vec<Sample>);

impl History {
    /// Adds one. True where the others were thinned for it.
    pub fn add(&mut self, sample: Sample) -> bool {
        let full = self.0.len() >= MOST;
        if full {
            self.thin();
        }
        self.0.push(sample);
        full
    }

    /// In the order of time.
    pub fn samples(&self) -> &[Sample] {
        &self.0
    }

    /// Halves them: two of one run become one, and of two runs the later one stays.
    fn thin(&mut self) {
        let pairs = self.0.chunks(2);
        let halved = pairs.map(|pair| match pair {
            [one, later] if one.run == later.run => one.with(later),
            [.., last] => last.clone(),
            [] => Sample::default(),
        });
        self.0 = halved.collect();
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
        assert!(kept.len() > MOST / 2);
        assert!(kept.windows(2).all(|two| two[0].t_s < two[1].t_s));
        assert_eq!(kept.last(), Some(&sample(99_999, 9)));
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
        let thinned = (0..=MOST)
            .filter(|nth| history.add(sample(*nth, *nth)))
            .count();
        assert_eq!((thinned, history.samples().len()), (1, MOST / 2 + 1));
        let known = |one: &Sample| *one == sample(one.run, one.run);
        assert!(history.samples().iter().all(known));
    }
}
