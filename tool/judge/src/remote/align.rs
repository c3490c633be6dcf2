//! Puts the series of two machines on one clock by what their connections carried: the clocks
//! themselves have nothing in common.
//!
//! Both ends of a connection count the same bytes. A look of ours at which one had carried N came
//! after the last look there that found fewer, and before the first that found more. So each of our
//! looks bounds how far the other clock is ahead; the truth lies within nearly all bounds (Marzullo's
//! intersection of intervals). A pause widens bounds and makes none wrong.

/// What one end had carried by when: between which two nanoseconds of its machine's clock it was read,
/// which is long on a busy machine, and a count that never falls.
pub(super) type Curve = Vec<([u64; 2], u64)>;

/// Fewer bounds in a part of the run tell nothing.
const FEWEST: usize = 8;

/// Bounds that are wider than so many looks were made in a pause.
const WIDEST: u64 = 3;

/// The share of the bounds that has to agree, or it is not the same traffic.
const AGREE: f64 = 0.8;

/// The clock may be anywhere within so much of the best agreement.
const NEARLY: f64 = 0.9;

/// Each part of the run has its own alignment, since clocks drift: NTP slews one by 0.5 ms a second
/// at most, which is 30 ms in this time.
const PART_NS: u64 = 60_000_000_000;

/// If the clocks seem to drift faster, it is not the same traffic.
const DRIFT: f64 = 1e-3;

/// The other machine's clock beside ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Aligned {
    /// By their clock, how far it is ahead of ours, in nanoseconds.
    knots: Vec<(u64, i64)>,
    /// How far off that may be.
    pub error_ns: u64,
    /// The looks by which it is known.
    pub bounds: usize,
}

/// Why two series cannot be put on one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Misfit {
    /// Next to nothing was carried, or the run was short.
    #[error("too little traffic was seen at both ends to align the clocks: {0} looks bound them")]
    Few(usize),
    /// Others' traffic, or none of ours.
    #[error("what was carried there is not what was carried here")]
    Differ,
    /// Not to a look.
    #[error("the clocks can be aligned to {0} ms only, which is longer than a look")]
    Wide(u64),
}

/// Aligns by curves of both ends, ours first; `look_ns`: the usual time between two looks.
pub(super) fn align(curves: &[[Curve; 2]], look_ns: u64) -> Result<Aligned, Misfit> {
    let all = curves
        .iter()
        .flat_map(|[ours, theirs]| bounds(ours, theirs));
    let mut all: Vec<(u64, [i64; 2])> = all
        .filter(|(_, [low, high])| high.abs_diff(*low) <= WIDEST * look_ns)
        .collect();
    all.sort_unstable();
    let (mut rest, mut found, mut before) = (&all[..], Aligned::default(), None);
    while let Some((first_ns, _)) = rest.first() {
        let (part, after) = rest.split_at(rest.partition_point(|(at, _)| at - first_ns < PART_NS));
        rest = after;
        if part.len() < FEWEST {
            continue;
        }
        let (share, [low, high]) = agreement(part.iter().map(|(_, bound)| *bound));
        let (at_ns, ahead_ns) = (part[part.len() / 2].0, low.midpoint(high));
        let error_ns = high.abs_diff(low) / 2;
        let drifted = |(then_ns, then): (u64, i64)| {
            let drift_ns = DRIFT * (at_ns - then_ns) as f64;
            ahead_ns.abs_diff(then) as f64 > drift_ns + (found.error_ns + error_ns) as f64
        };
        if share < AGREE || before.is_some_and(drifted) {
            return Err(Misfit::Differ);
        }
        before = Some((at_ns, ahead_ns));
        found
            .knots
            .push((at_ns.saturating_add_signed(ahead_ns), ahead_ns));
        found.error_ns = found.error_ns.max(error_ns);
        found.bounds += part.len();
    }
    match found {
        Aligned { bounds: 0, .. } => Err(Misfit::Few(all.len())),
        Aligned { error_ns, .. } if error_ns > look_ns => Err(Misfit::Wide(error_ns / 1_000_000)),
        found => Ok(found),
    }
}

/// For each of our looks that lies between two of theirs, when, and between which numbers of
/// nanoseconds their clock is ahead.
fn bounds<'c>(ours: &'c Curve, theirs: &'c Curve) -> impl Iterator<Item = (u64, [i64; 2])> + 'c {
    ours.iter().filter_map(|([from, to], count)| {
        let less = theirs.partition_point(|(_, other)| other < count);
        let not_more = theirs.partition_point(|(_, other)| other <= count);
        let [before, after] = [theirs.get(less.checked_sub(1)?)?.0, theirs.get(not_more)?.0];
        let ahead = |theirs: u64, ours: u64| (theirs as i64).saturating_sub(ours as i64);
        Some((*from, [ahead(before[0], *to), ahead(after[1], *from)]))
    })
}

/// The largest share of the bounds that one value meets, and between which values nearly as many
/// are met.
fn agreement(bounds: impl ExactSizeIterator<Item = [i64; 2]>) -> (f64, [i64; 2]) {
    let all = bounds.len();
    let mut steps: Vec<(i64, i64)> = bounds
        .flat_map(|[low, high]| [(low, 1), (high, -1)])
        .collect();
    // At one value, those that begin there count before those that end.
    steps.sort_unstable_by_key(|(at, step)| (*at, -step));
    let mut met = 0;
    let met = steps.iter().map(|(_, step)| {
        met += step;
        met
    });
    let met: Vec<i64> = met.collect();
    let most = met.iter().copied().max().unwrap_or(0);
    let enough = |met: &i64| *met as f64 >= NEARLY * most as f64;
    let first = met.iter().position(enough).unwrap_or(0);
    let last = met.iter().rposition(enough).unwrap_or(0);
    let at = |step: usize| steps.get(step).map_or(0, |(at, _)| *at);
    (most as f64 / all.max(1) as f64, [at(first), at(last + 1)])
}

impl Aligned {
    /// A time of their clock on ours.
    pub(super) fn ours_ns(&self, theirs_ns: u64) -> i64 {
        let next = self.knots.partition_point(|(at, _)| *at <= theirs_ns);
        let ahead_ns = match (next.checked_sub(1), self.knots.get(next)) {
            (Some(last), Some((to_ns, to))) => {
                let (from_ns, from) = self.knots[last];
                let part = (theirs_ns - from_ns) as f64 / (to_ns - from_ns).max(1) as f64;
                from + (part * (to - from) as f64) as i64
            }
            (Some(last), None) => self.knots[last].1,
            (None, first) => first.map_or(0, |(_, ahead)| *ahead),
        };
        (theirs_ns as i64).saturating_sub(ahead_ns)
    }
}

/// Columns of one series over the intervals of another, both by the edges of their intervals on one
/// clock: there is one edge more than there are intervals.
#[derive(Clone, Debug)]
pub(super) struct Resampling {
    pub from: Vec<f64>,
    pub to: Vec<f64>,
}

impl Resampling {
    /// Sums over intervals: what an interval had is spread evenly over it.
    pub(super) fn sums(&self, column: &[f64]) -> Vec<f64> {
        let mut sum = 0.0;
        let sums = column.iter().map(|value| {
            sum += value;
            sum
        });
        let sums: Vec<f64> = std::iter::once(0.0).chain(sums).collect();
        let until = |at: f64| -> f64 {
            let next = self.from.partition_point(|edge| *edge <= at);
            let last = sums.get(next.saturating_sub(1)).copied().unwrap_or(sum);
            let Some((from, to)) = next.checked_sub(1).zip(self.from.get(next)) else {
                return last;
            };
            let from = self.from[from];
            let more = sums.get(next).copied().unwrap_or(last) - last;
            last + more * (at - from) / (to - from).max(f64::MIN_POSITIVE)
        };
        let each = self.to.windows(2);
        each.map(|edges| crate::rounded(until(edges[1]) - until(edges[0])))
            .collect()
    }

    /// What was met at the ends of intervals: at the end that is nearest.
    pub(super) fn levels(&self, column: &[f64]) -> Vec<f64> {
        let ends = self.from.get(1..).unwrap_or_default();
        let nearest = |at: f64| {
            let next = ends.partition_point(|end| *end <= at);
            let is_far = |other: &usize| {
                let gap = |nth: usize| ends.get(nth).map_or(f64::INFINITY, |end| (end - at).abs());
                gap(*other) <= gap(next)
            };
            let nth = next.checked_sub(1).filter(is_far).unwrap_or(next);
            column.get(nth).copied().unwrap_or(0.0)
        };
        self.to.iter().skip(1).map(|end| nearest(*end)).collect()
    }

    /// The first interval that the other series covers whole, and the one after the last.
    pub(super) fn covered(&self) -> [usize; 2] {
        let [first, last] =
            [self.from.first(), self.from.last()].map(|edge| edge.copied().unwrap_or(0.0));
        let start = self.to.partition_point(|edge| *edge < first);
        let end = self.to.partition_point(|edge| *edge <= last);
        [start, end.saturating_sub(1).max(start)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const LOOK: u64 = 100 * MS;

    type Of<'a> = &'a dyn Fn(f64) -> f64;

    /// Looks at a count that follows the true time in milliseconds, every 100 ms and a fifth of that
    /// to and fro, by this clock.
    fn looks(seconds: u64, phase: f64, count: Of<'_>, clock: Of<'_>) -> Curve {
        let mut at_ms = 137.0 * phase;
        let mut curve = Vec::new();
        while at_ms < 1e3 * seconds as f64 {
            let at_ns = (clock(at_ms) * 1e6) as u64;
            curve.push(([at_ns, at_ns + MS], count(at_ms + 0.5) as u64));
            at_ms += 80.0 + 40.0 * (curve.len() as f64 * 0.618_034 + phase).fract();
        }
        curve
    }

    /// Our clock is five seconds ahead of the true time.
    fn both(seconds: u64, ours: Of<'_>, theirs: Of<'_>, clock: Of<'_>) -> Result<Aligned, Misfit> {
        let ours = looks(seconds, 0.0, ours, &|ms| ms + 5e3);
        align(&[[ours, looks(seconds, 0.37, theirs, clock)]], LOOK)
    }

    /// How far off our time is at a true time, in milliseconds.
    fn off_ms(found: &Aligned, clock: Of<'_>, at_ms: f64) -> f64 {
        (found.ours_ns((clock(at_ms) * 1e6) as u64) as f64 / 1e6 - at_ms - 5e3).abs()
    }

    fn steady(ms: f64) -> f64 {
        3_000.0 * ms
    }

    #[test]
    fn clocks_that_are_hours_apart_are_aligned_to_a_part_of_a_look() {
        let ahead = |ms: f64| ms + 2.5e7;
        // Five bursts a second of a throttled side; pauses, one of ten seconds.
        let bursts = |ms: f64| 9_000.0 * ((ms / 200.0).floor() * 10.0 + (ms % 200.0).min(10.0));
        let pauses =
            |ms: f64| 50.0 * (ms.min(3e3) + (ms - 5e3).clamp(0.0, 2e3) + (ms - 17e3).max(0.0));
        let counts: [Of<'_>; 3] = [&steady, &bursts, &pauses];
        for (nth, count) in counts.into_iter().enumerate() {
            let found = both(20, count, count, &ahead).unwrap();
            let off_ms = off_ms(&found, &ahead, 9e3);
            let case = format!("{nth}: {off_ms} ms, {found:?}");
            assert!(off_ms <= 1.0 + found.error_ns as f64 / 1e6, "{case}");
            assert!(off_ms < 50.0 && found.error_ns < LOOK, "{case}");
        }
        // What they count comes 10 ms later: the network's way is a part of the error.
        let found = both(20, &steady, &|ms| steady((ms - 10.0).max(0.0)), &ahead).unwrap();
        let off_ms = off_ms(&found, &ahead, 9e3);
        assert!(off_ms < 25.0, "{off_ms} ms, {found:?}");
    }

    #[test]
    fn a_clock_that_drifts_is_followed() {
        // 200 ppm are 120 ms in ten minutes.
        let fast = |ms: f64| 1e6 + ms * 1.0002;
        let found = both(600, &steady, &steady, &fast).unwrap();
        for at_ms in [40e3, 300e3, 560e3] {
            let off_ms = off_ms(&found, &fast, at_ms);
            assert!(off_ms < 20.0, "{at_ms}: {off_ms} ms, {found:?}");
        }
    }

    #[test]
    fn other_traffic_and_too_little_are_not_aligned() {
        let found = |seconds, theirs: Of<'_>| both(seconds, &steady, theirs, &|ms| ms + 1e7);
        let differ = |found: Result<Aligned, Misfit>| found == Err(Misfit::Differ);
        // Another client does a twentieth of the work at the same port; or so little that each
        // minute fits, and the clocks would drift by two parts in a thousand.
        assert!(differ(found(20, &|ms| 1.05 * steady(ms))));
        assert!(differ(found(600, &|ms| 1.002 * steady(ms))));
        assert!(differ(found(20, &|ms| 1.0 + 0.2 * ms * ms)));
        assert_eq!(found(20, &|_| 0.0), Err(Misfit::Few(0)));
        assert_eq!(align(&[], LOOK), Err(Misfit::Few(0)));
    }

    #[test]
    fn columns_keep_their_sums_over_other_intervals() {
        let between = Resampling {
            from: vec![-0.05, 0.1, 0.2, 0.3, 0.55],
            to: vec![-0.2, -0.1, 0.05, 0.14, 0.24, 0.5, 0.6],
        };
        let sums = between.sums(&[1.5, 2.0, 4.0, 0.0]);
        assert_eq!(sums, [0.0, 1.0, 1.3, 2.8, 2.4, 0.0]);
        let levels = between.levels(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(levels, [1.0, 1.0, 1.0, 2.0, 4.0, 4.0]);
        assert_eq!(between.covered(), [2, 5]);
    }
}
