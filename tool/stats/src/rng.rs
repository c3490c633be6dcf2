//! Random choices from a printed seed: a small random number generator for the measured loop.
//!
//! xoshiro256++ 1.0 (Blackman & Vigna, Scrambled linear pseudorandom number
//! generators, ACM TOMS 47, 2021), seeded by SplitMix64 (Steele, Lea & Flood,
//! Fast splittable pseudorandom number generators, OOPSLA 2014) as its authors
//! advise. A dependency would do the same; these few lines keep every result
//! reproducible from its seed whatever a library decides later.
//!
//! Not for secrets.

/// Spreads a counter or a seed over 64 bits; the next state and its output.
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A random number generator. Cloning it repeats its future.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// That of a seed; any seed will do, zero too.
    pub fn new(seed: u64) -> Rng {
        let mut mix = seed;
        Rng {
            state: std::array::from_fn(|_| splitmix64(&mut mix)),
        }
    }

    /// Number `stream` of those of a seed, so that each worker draws
    /// numbers of its own: both words pass through SplitMix64, since seeds that
    /// were merely added would give worker 1 of seed 7 what worker 0 of seed 8
    /// draws.
    pub fn stream(seed: u64, stream: u64) -> Rng {
        let mut mix = seed;
        Rng::new(splitmix64(&mut mix) ^ stream.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// A whole number in 0..n; 0 for n = 0.
    ///
    /// The high half of a product (Lemire, Fast random integer generation in an
    /// interval, ACM TOMACS 29, 2019) without its rejection step: no number's
    /// probability is off by more than 2^-64, which no run is long enough to
    /// see.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// A number in [0, 1), a multiple of 2^-53.
    #[inline]
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// How many operations on the next one to pick lies, where each is picked
    /// with probability 1 / `mean`: 1, 2, 3, ... with that mean, geometrically
    /// distributed. Gaps of fixed length would beat with any period of the
    /// workload; geometric ones cannot. A mean of 1 or less gives always 1.
    ///
    /// 1 + floor(ln U / ln(1 - 1/mean)), U uniform in (0, 1]: the inverse of
    /// the distribution function (Devroye, Non-uniform random variate
    /// generation, 1986, chapter X.2).
    #[inline]
    pub fn geometric(&mut self, mean: f64) -> u64 {
        if mean.is_nan() || mean <= 1.0 {
            return 1;
        }
        let uniform = 1.0 - self.unit_f64();
        let gap = uniform.ln() / (-1.0 / mean).ln_1p();
        (gap as u64).saturating_add(1)
    }

    /// A number of the exponential distribution with mean 1: -ln(u) for u uniform in
    /// (0, 1] (inversion; Knuth, The Art of Computer Programming 2, 3.4.1 D).
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit_f64()).ln()
    }

    /// A standard normal number (Box & Muller, Ann. Math. Statist. 29, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit_f64()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit_f64()).cos()
    }

    /// Puts a slice into random order (Fisher & Yates; Durstenfeld 1964).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeder_gives_the_published_sequence() {
        let mut state = 1_234_567;
        let drawn: Vec<u64> = (0..3).map(|_| splitmix64(&mut state)).collect();
        assert_eq!(
            drawn,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn the_generator_gives_the_published_sequence() {
        let mut rng = Rng {
            state: [1, 2, 3, 4],
        };
        let drawn: Vec<u64> = (0..5).map(|_| rng.next_u64()).collect();
        assert_eq!(
            drawn,
            [
                41_943_041,
                58_720_359,
                3_588_806_011_781_223,
                3_591_011_842_654_386,
                9_228_616_714_210_784_205
            ]
        );
    }

    #[test]
    fn a_seed_repeats_itself_and_neighbours_differ() {
        let draw = |mut rng: Rng| rng.next_u64();
        assert_eq!(draw(Rng::new(7)), draw(Rng::new(7)));
        assert_ne!(draw(Rng::new(7)), draw(Rng::new(8)));
        let mut firsts: Vec<u64> = (0..100)
            .flat_map(|seed| (0..100).map(move |stream| draw(Rng::stream(seed, stream))))
            .collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 10_000);
    }

    #[test]
    fn numbers_below_n_are_spread_evenly() {
        let mut rng = Rng::new(1);
        let mut counts = [0u64; 7];
        for _ in 0..70_000 {
            counts[rng.below(7) as usize] += 1;
        }
        // 10,000 each, standard deviation 93.
        assert!(
            counts.iter().all(|n| n.abs_diff(10_000) < 400),
            "{counts:?}"
        );
        assert_eq!((rng.below(1), rng.below(0)), (0, 0));
    }

    #[test]
    fn exponential_numbers_have_the_mean_and_the_spread_they_should() {
        let mut rng = Rng::new(5);
        let drawn: Vec<f64> = (0..40_000).map(|_| rng.exponential()).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        // P(x > t) = exp(-t).
        for above in [0.1, 1.0, 3.0] {
            let found = drawn.iter().filter(|x| **x > above).count() as f64 / drawn.len() as f64;
            assert!((found - f64::exp(-above)).abs() < 0.01, "{above}: {found}");
        }
    }

    #[test]
    fn geometric_gaps_have_the_mean_and_the_spread_they_should() {
        for mean in [1.5, 10.0, 500.0] {
            let mut rng = Rng::new(3);
            let gaps: Vec<f64> = (0..40_000).map(|_| rng.geometric(mean) as f64).collect();
            let found = gaps.iter().sum::<f64>() / gaps.len() as f64;
            assert!((found / mean - 1.0).abs() < 0.02, "{mean}: {found}");
            // P(gap = 1) = 1/mean.
            let ones = gaps.iter().filter(|g| **g == 1.0).count() as f64 / gaps.len() as f64;
            assert!((ones * mean - 1.0).abs() < 0.25, "{mean}: {ones}");
        }
        for mean in [1.0, 0.0, -5.0, f64::NAN] {
            assert_eq!(Rng::new(1).geometric(mean), 1);
        }
    }

    #[test]
    fn a_shuffle_keeps_every_item_and_reaches_every_order() {
        let mut rng = Rng::new(5);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..500 {
            let mut items = [1, 2, 3, 4];
            rng.shuffle(&mut items);
            seen.insert(items);
        }
        assert_eq!(seen.len(), 24);
    }
}
