//! How far a mean over questions can be trusted: percentile bootstrap intervals (Efron 1979), and paired ones for
//! the difference of two methods on the same questions.
//!
//! Questions are the units drawn, with replacement; chunks of one question stay together. Must not know what the
//! values measure. Tests: below.

use rayon::prelude::*;

use super::draw::Draw;

/// How intervals are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bootstrap {
    /// Resampled means, at least 1.
    pub resamples: usize,
    /// Share of the resampled means inside the interval, in (0, 1).
    pub level: f64,
    /// Equal seeds give equal intervals.
    pub seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self { resamples: 2_000, level: 0.95, seed: 42 }
    }
}

/// A mean over questions and where it would mostly fall with other questions of the same kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Mean of the values themselves.
    pub mean: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Values that no interval can be made of.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum BootstrapError {
    /// Nothing to average.
    #[error("no values to average; give at least one question")]
    NoValues,
    /// A value that spoils every mean.
    #[error("value {index} is {value}; leave out questions without a value")]
    NotFinite {
        /// Its index.
        index: usize,
        /// The value.
        value: f64,
    },
    /// Two methods on different questions.
    #[error(
        "{first} and {second} values cannot be paired; compare methods on the same questions, in the same order"
    )]
    Unpaired {
        /// Values of the first method.
        first: usize,
        /// Values of the second.
        second: usize,
    },
    /// No resamples.
    #[error("0 resamples make no interval; ask for some, 2,000 are common")]
    NoResamples,
    /// A level outside (0, 1).
    #[error("{level} is no level of confidence; give a share between 0 and 1, such as 0.95")]
    Level {
        /// The level.
        level: f64,
    },
}

impl Bootstrap {
    /// The percentile interval of the mean of `values` (one per question, finite): the `(1 ∓ level)/2` quantiles of
    /// the means of `resamples` draws of as many questions, with replacement. Quantiles between two means are
    /// interpolated. One question alone gives an interval of no width: it says nothing about others.
    pub fn mean_interval(&self, values: &[f64]) -> Result<Interval, BootstrapError> {
        self.check(values)?;
        let n = values.len();
        // one stream per resample, so that the interval does not depend on how threads share the work
        let resampled = (0..self.resamples as u64).into_par_iter().map(|resample| {
            let mut draw = Draw::new(self.seed, resample);
            (0..n).map(|_| values[draw.below(n)]).sum::<f64>() / n as f64
        });
        let mut means: Vec<f64> = resampled.collect();
        means.sort_by(f64::total_cmp);
        let tail = (1.0 - self.level) / 2.0;
        let mean = values.iter().sum::<f64>() / n as f64;
        Ok(Interval { mean, low: quantile(&means, tail), high: quantile(&means, 1.0 - tail) })
    }

    /// The interval of the mean of `a[i] − b[i]`, two methods on the same questions in the same order. Questions
    /// that are hard for both cancel out, so it is much narrower than the two methods' own intervals suggest; the
    /// methods differ at this level when it does not hold 0.
    pub fn paired_difference(&self, a: &[f64], b: &[f64]) -> Result<Interval, BootstrapError> {
        if a.len() != b.len() {
            return Err(BootstrapError::Unpaired { first: a.len(), second: b.len() });
        }
        self.check(a)?;
        self.check(b)?;
        let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
        self.mean_interval(&differences)
    }

    fn check(&self, values: &[f64]) -> Result<(), BootstrapError> {
        if self.resamples == 0 {
            return Err(BootstrapError::NoResamples);
        }
        if !(self.level > 0.0 && self.level < 1.0) {
            return Err(BootstrapError::Level { level: self.level });
        }
        if values.is_empty() {
            return Err(BootstrapError::NoValues);
        }
        match values.iter().position(|v| !v.is_finite()) {
            Some(index) => Err(BootstrapError::NotFinite { index, value: values[index] }),
            None => Ok(()),
        }
    }
}

/// Quantile of sorted values with linear interpolation (type 7 of Hyndman and Fan 1996), `p` in [0, 1].
fn quantile(sorted: &[f64], p: f64) -> f64 {
    let at = p * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// About normal with variance 1/12 · 12 = 1.
    fn noise(n: usize, seed: u64) -> Vec<f64> {
        let mut draw = Draw::new(seed, 0);
        let mut uniform = || draw.below(1 << 30) as f64 / (1_u64 << 30) as f64;
        (0..n).map(|_| (0..12).map(|_| uniform()).sum::<f64>() - 6.0).collect()
    }

    #[test]
    fn the_interval_is_as_wide_as_theory_says() {
        let values = noise(400, 1);
        let found = Bootstrap { resamples: 20_000, ..Bootstrap::default() }.mean_interval(&values).unwrap();
        let mean = values.iter().sum::<f64>() / 400.0;
        let sd = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 400.0).sqrt();
        assert_eq!(found.mean, mean);
        assert!((found.high - mean - 1.96 * sd / 20.0).abs() < 0.004, "{found:?}");
        assert!((mean - found.low - 1.96 * sd / 20.0).abs() < 0.004, "{found:?}");
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let bootstrap = Bootstrap { resamples: 400, level: 0.8, seed: 3 };
        let holds = |seed: &u64| {
            let found = bootstrap.mean_interval(&noise(60, *seed)).unwrap();
            found.low <= 0.0 && 0.0 <= found.high
        };
        let held = (100..600_u64).filter(holds).count();
        assert!((375..=425).contains(&held), "{held} of 500, expected about 400");
    }

    #[test]
    fn pairing_finds_a_difference_that_lies_inside_both_intervals() {
        let hard = noise(50, 4);
        let better: Vec<f64> = hard.iter().zip(noise(50, 5)).map(|(h, e)| h + 0.1 + 0.05 * e).collect();
        let bootstrap = Bootstrap::default();
        let difference = bootstrap.paired_difference(&better, &hard).unwrap();
        assert!(difference.low > 0.05 && difference.high < 0.15, "{difference:?}");
        let (a, b) = (bootstrap.mean_interval(&better).unwrap(), bootstrap.mean_interval(&hard).unwrap());
        assert!(a.low < b.mean && b.high > a.mean, "the methods' own intervals hold each other's means");
        let back = bootstrap.paired_difference(&hard, &better).unwrap();
        assert!((back.mean + difference.mean).abs() < 1e-15 && (back.low + difference.high).abs() < 1e-12);
    }

    #[test]
    fn seeds_decide_and_threads_do_not() {
        let values = noise(30, 6);
        let with = |seed| Bootstrap { seed, ..Bootstrap::default() }.mean_interval(&values).unwrap();
        assert_eq!(with(1), with(1));
        assert_ne!(with(1), with(2));
        let pool = |n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
        assert_eq!(pool(1).install(|| with(1)), pool(3).install(|| with(1)));
    }

    #[test]
    fn quantiles_are_interpolated() {
        let sorted = [1.0, 2.0, 4.0];
        assert_eq!([0.0, 0.25, 0.5, 0.75, 1.0].map(|p| quantile(&sorted, p)), [1.0, 1.5, 2.0, 3.0, 4.0]);
        assert_eq!(quantile(&[7.0], 0.3), 7.0);
    }

    #[test]
    fn what_makes_no_interval_is_refused() {
        let bootstrap = Bootstrap::default();
        assert_eq!(bootstrap.mean_interval(&[]), Err(BootstrapError::NoValues));
        assert!(matches!(
            bootstrap.mean_interval(&[0.0, f64::NAN]),
            Err(BootstrapError::NotFinite { index: 1, .. })
        ));
        assert_eq!(
            bootstrap.paired_difference(&[0.0], &[0.0, 1.0]),
            Err(BootstrapError::Unpaired { first: 1, second: 2 })
        );
        let of = |bootstrap: Bootstrap| bootstrap.mean_interval(&[1.0]);
        assert_eq!(of(Bootstrap { resamples: 0, ..bootstrap }), Err(BootstrapError::NoResamples));
        assert_eq!(of(Bootstrap { level: 1.0, ..bootstrap }), Err(BootstrapError::Level { level: 1.0 }));
        assert!(of(Bootstrap { level: f64::NAN, ..bootstrap }).is_err());
        assert_eq!(of(bootstrap), Ok(Interval { mean: 1.0, low: 1.0, high: 1.0 }));
    }
}
