//! How much a ranking of heads owes to the inputs that happened to be drawn.
//!
//! Owns head values per input, and what resampling, halving and a concentration bound say about their ranking. Must
//! not know what the values measure. Tests: below.

use rayon::prelude::*;

use super::draw::Draw;

/// One value per input and head, such as answer mass or AUROC; higher is better. At least one input and one head.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadValues {
    /// `[inputs][heads]`, finite.
    values: Vec<Vec<f64>>,
}

/// Values that no ranking of heads can be made of.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum HeadValuesError {
    /// No input or no head.
    #[error("there are no values; give at least one input and one head")]
    Empty,
    /// Inputs with different numbers of heads.
    #[error("input {input} has values of {n_heads} heads, the first has {expected}; give every head a value")]
    Heads {
        /// Index of the input.
        input: usize,
        /// Its values.
        n_heads: usize,
        /// Values of the first input.
        expected: usize,
    },
    /// A value that spoils every mean.
    #[error("input {input} gives head {head} the value {value}; leave out inputs without a value")]
    NotFinite {
        /// Index of the input.
        input: usize,
        /// Index of the head.
        head: usize,
        /// The value.
        value: f64,
    },
}

impl HeadValues {
    /// Checks `[inputs][heads]`.
    pub fn new(values: Vec<Vec<f64>>) -> Result<Self, HeadValuesError> {
        let expected = values.first().map_or(0, Vec::len);
        if expected == 0 {
            return Err(HeadValuesError::Empty);
        }
        for (input, row) in values.iter().enumerate() {
            if row.len() != expected {
                return Err(HeadValuesError::Heads { input, n_heads: row.len(), expected });
            }
            if let Some(head) = row.iter().position(|v| !v.is_finite()) {
                return Err(HeadValuesError::NotFinite { input, head, value: row[head] });
            }
        }
        Ok(Self { values })
    }

    /// Inputs.
    #[must_use]
    pub fn n_inputs(&self) -> usize {
        self.values.len()
    }

    /// Heads.
    #[must_use]
    pub fn n_heads(&self) -> usize {
        self.values[0].len()
    }

    /// Mean over inputs of each head's value, `[heads]`.
    #[must_use]
    pub fn means(&self) -> Vec<f64> {
        self.means_of(0..self.n_inputs())
    }

    fn means_of(&self, inputs: impl Iterator<Item = usize>) -> Vec<f64> {
        let mut sums = vec![0.0; self.n_heads()];
        let mut n = 0;
        for input in inputs {
            n += 1;
            sums.iter_mut().zip(&self.values[input]).for_each(|(sum, value)| *sum += value);
        }
        sums.into_iter().map(|sum| sum / f64::from(n)).collect()
    }

    /// How often each head is among the `k` best by mean when as many inputs are drawn again with replacement, a
    /// share of `resamples` in [0, 1], `[heads]` (Efron 1979). Ties go to the lower head index; the shares sum to
    /// `k`. With 0 resamples every share is 0.
    #[must_use]
    pub fn top_frequency(&self, k: usize, resamples: usize, seed: u64) -> Vec<f64> {
        let n = self.n_inputs();
        let zero = || vec![0_u32; self.n_heads()];
        let counts = (0..resamples as u64).into_par_iter().map(|resample| {
            let mut draw = Draw::new(seed, resample);
            best_first(&self.means_of((0..n).map(|_| draw.below(n))))
        });
        // counts are whole numbers: in whatever order threads add them, the sum is the same
        let counts = counts.fold(zero, |mut counts, order| {
            order.iter().take(k).for_each(|&head| counts[head] += 1);
            counts
        });
        let counts = counts.reduce(zero, |a, b| a.iter().zip(&b).map(|(a, b)| a + b).collect());
        counts.into_iter().map(|count| f64::from(count) / resamples.max(1) as f64).collect()
    }

    /// Mean over `halvings` random halvings of the inputs of Spearman's correlation between both halves' means, in
    /// [−1, 1]: 1 when any half ranks all heads alike. (With an odd number one half is larger by one input. It is
    /// the correlation of halves, not stepped up to the full number of inputs.) Halvings in which a half's means
    /// are all equal say nothing and are left out; `None` when nothing is left, always so with one input or one
    /// head.
    #[must_use]
    pub fn split_half(&self, halvings: usize, seed: u64) -> Option<f64> {
        let n = self.n_inputs();
        if n < 2 {
            return None;
        }
        let found = (0..halvings as u64).into_par_iter().map(|halving| {
            let mut order = Draw::new(seed, halving).permutation(n);
            let mut half = order.split_off(n / 2);
            // one order of addition for one set of inputs
            order.sort_unstable();
            half.sort_unstable();
            spearman(&self.means_of(order.into_iter()), &self.means_of(half.into_iter()))
        });
        let found: Vec<f64> = found.collect::<Vec<_>>().into_iter().flatten().collect();
        (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
    }

    /// The observed gap at the boundary of the `k` best heads: the mean of the head ranked k less that of the next
    /// one, at least 0. `None` when `k` is 0 or takes all heads. See [`hoeffding`] for what it is compared with.
    #[must_use]
    pub fn boundary_gap(&self, k: usize) -> Option<f64> {
        let means = self.means();
        let order = best_first(&means);
        (k > 0 && k < order.len()).then(|| means[order[k - 1]] - means[order[k]])
    }
}

/// Hoeffding's bound with a union over heads: `ε = sqrt(ln(2 · n_heads / δ) / (2 n))`. With probability at least 1
/// − δ the means of *all* heads over `n` independent inputs with values in [0, 1] are within ε of their
/// expectations; so a boundary gap above 2ε means that the true top k was found. (It assumes nothing more, and is
/// wide: the bootstrap frequencies say more about gaps below it.) Infinite for `n` = 0. `delta` is in (0, 1];
/// Hoeffding 1963, the QRAE paper's form.
#[must_use]
pub fn hoeffding(n_heads: usize, delta: f64, n: usize) -> f64 {
    ((2.0 * n_heads as f64 / delta).ln() / (2.0 * n as f64)).sqrt()
}

/// Fewest inputs for which [`hoeffding`]'s ε is below half of `gap`, so that a gap of this size between the last head
/// chosen and the next is beyond doubt: `floor(2 · ln(2 · n_heads / δ) / gap²) + 1`. `None` for a gap that is not above 0,
/// or so small that no such number can be written.
#[must_use]
pub fn hoeffding_inputs(n_heads: usize, delta: f64, gap: f64) -> Option<usize> {
    let inputs = (2.0 * (2.0 * n_heads as f64 / delta).ln() / (gap * gap)).floor() + 1.0;
    (gap > 0.0 && inputs < 1e15).then_some(inputs as usize)
}

/// Heads by value, highest first, ties by index.
fn best_first(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]).then(a.cmp(&b)));
    order
}

/// Pearson's correlation of the ranks, equal values sharing the mean of their ranks. `None` when a side is
/// constant.
#[must_use]
pub fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = (shared_ranks(a), shared_ranks(b));
    let middle = (a.len() as f64 - 1.0) / 2.0;
    let product =
        |x: &[f64], y: &[f64]| -> f64 { x.iter().zip(y).map(|(x, y)| (x - middle) * (y - middle)).sum() };
    let spread = product(&a, &a) * product(&b, &b);
    (spread > 0.0).then(|| (product(&a, &b) / spread.sqrt()).clamp(-1.0, 1.0))
}

/// Ranks from 0 for the highest; equal values share the mean of theirs.
fn shared_ranks(values: &[f64]) -> Vec<f64> {
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for ties in best_first(values).chunk_by(|&i, &j| values[i] == values[j]) {
        let shared = first as f64 + (ties.len() as f64 - 1.0) / 2.0;
        ties.iter().for_each(|&i| ranks[i] = shared);
        first += ties.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Heads whose expectations are `truth`, with even noise of ±`noise`.
    fn noisy(truth: &[f64], noise: f64, inputs: usize, seed: u64) -> HeadValues {
        let mut draw = Draw::new(seed, 99);
        let mut even = || draw.below(2_000_001) as f64 / 1e6 - 1.0;
        let values = (0..inputs).map(|_| truth.iter().map(|t| t + noise * even()).collect()).collect();
        HeadValues::new(values).unwrap()
    }

    fn ladder(n: usize, step: f64) -> Vec<f64> {
        (0..n).map(|i| i as f64 * step).collect()
    }

    #[test]
    fn clear_heads_are_always_on_top_and_equal_ones_as_often_as_chance() {
        let clear = noisy(&[0.1, 0.9, 0.1, 0.8], 0.05, 30, 1);
        assert_eq!(clear.top_frequency(2, 500, 7), [0.0, 1.0, 0.0, 1.0]);
        // the average over many draws of inputs: each of four equal heads is on top in half of the cases
        let mut mean = [0.0; 4];
        for seed in 0..100 {
            let found = noisy(&[0.5; 4], 0.3, 20, seed).top_frequency(2, 200, 7);
            assert!((found.iter().sum::<f64>() - 2.0).abs() < 1e-12);
            mean.iter_mut().zip(found).for_each(|(m, f)| *m += f / 100.0);
        }
        assert!(mean.iter().all(|m| (m - 0.5).abs() < 0.15), "{mean:?}");
    }

    #[test]
    fn ties_go_to_the_lower_head_and_k_may_take_all() {
        let equal = HeadValues::new(vec![vec![0.5; 3]; 4]).unwrap();
        assert_eq!(equal.top_frequency(1, 10, 1), [1.0, 0.0, 0.0]);
        assert_eq!(equal.top_frequency(9, 10, 1), [1.0; 3]);
        assert_eq!(equal.top_frequency(0, 10, 1), [0.0; 3]);
        assert_eq!(equal.top_frequency(1, 0, 1), [0.0; 3]);
    }

    #[test]
    fn halves_agree_about_signal_and_not_about_noise() {
        let signal = noisy(&ladder(50, 0.02), 0.1, 40, 2).split_half(100, 5).unwrap();
        assert!(signal > 0.97, "{signal}");
        let noise: f64 =
            (0..30).map(|s| noisy(&[0.5; 50], 0.3, 40, s).split_half(20, 5).unwrap()).sum::<f64>() / 30.0;
        assert!(noise.abs() < 0.1, "{noise}");
        assert_eq!(HeadValues::new(vec![vec![0.1, 0.2]]).unwrap().split_half(10, 1), None);
        assert_eq!(HeadValues::new(vec![vec![0.1; 2]; 4]).unwrap().split_half(10, 1), None);
        assert_eq!(HeadValues::new(vec![vec![0.1, 0.2]; 5]).unwrap().split_half(10, 1), Some(1.0));
        assert_eq!(HeadValues::new(vec![vec![0.1, 0.2]; 5]).unwrap().split_half(0, 1), None);
    }

    #[test]
    fn seeds_decide_and_threads_do_not() {
        let values = noisy(&ladder(20, 0.01), 0.3, 25, 3);
        let of = |seed| (values.top_frequency(3, 300, seed), values.split_half(50, seed));
        let pool = |n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
        assert_eq!(pool(1).install(|| of(1)), pool(3).install(|| of(1)));
        let (a, b) = (of(1), of(2));
        assert!(a.0 != b.0 && a.1 != b.1);
    }

    #[test]
    fn the_bound_is_its_formula_and_holds() {
        // ln(2 · 336 / 0.05) = 9.506 over 200
        assert!((hoeffding(336, 0.05, 100) - (13_440_f64.ln() / 200.0).sqrt()).abs() < 1e-15);
        assert!(hoeffding(336, 0.05, 0).is_infinite());
        let epsilon = hoeffding(10, 0.1, 50);
        let misses = (0..200).filter(|&seed| {
            noisy(&[0.5; 10], 0.5, 50, seed).means().iter().any(|m| (m - 0.5).abs() >= epsilon)
        });
        assert!(misses.count() <= 20);
    }

    #[test]
    fn the_gap_is_that_at_the_boundary() {
        let values = HeadValues::new(vec![vec![0.25, 1.0, 0.5], vec![0.25, 0.5, 0.5]]).unwrap();
        assert_eq!(values.means(), [0.25, 0.75, 0.5]);
        assert_eq!([0, 1, 2, 3].map(|k| values.boundary_gap(k)), [None, Some(0.25), Some(0.25), None]);
    }

    #[test]
    fn values_that_cannot_be_ranked_are_refused() {
        let of = |values: &[&[f64]]| HeadValues::new(values.iter().map(|v| v.to_vec()).collect());
        assert_eq!(of(&[]), Err(HeadValuesError::Empty));
        assert_eq!(of(&[&[]]), Err(HeadValuesError::Empty));
        let ragged = HeadValuesError::Heads { input: 1, n_heads: 1, expected: 2 };
        assert_eq!(of(&[&[0.0, 0.0], &[0.0]]), Err(ragged));
        assert!(matches!(of(&[&[0.0, f64::NAN]]), Err(HeadValuesError::NotFinite { input: 0, head: 1, .. })));
    }

    /// `1 − 6 Σ d² / (n (n² − 1))`, true without ties.
    fn spearman_twin(a: &[f64], b: &[f64]) -> f64 {
        let rank = |v: &[f64], i: usize| v.iter().filter(|x| **x > v[i]).count() as f64;
        let d: f64 = (0..a.len()).map(|i| (rank(a, i) - rank(b, i)).powi(2)).sum();
        let n = a.len() as f64;
        1.0 - 6.0 * d / (n * (n * n - 1.0))
    }

    proptest! {
        #[test]
        fn spearman_is_the_textbook_one(seed: u64, n in 2_usize..40) {
            let mut draw = Draw::new(seed, 0);
            let mut order = || draw.permutation(n).into_iter().map(|i| i as f64).collect::<Vec<_>>();
            let (a, b) = (order(), order());
            let found = spearman(&a, &b).unwrap();
            prop_assert!((found - spearman_twin(&a, &b)).abs() < 1e-9);
            let stretched: Vec<f64> = a.iter().map(|x| x.exp()).collect();
            prop_assert_eq!(spearman(&stretched, &b), Some(found));
        }
    }

    #[test]
    fn equal_values_share_their_ranks() {
        assert_eq!(shared_ranks(&[0.5, 0.9, 0.5, 0.1]), [1.5, 0.0, 1.5, 3.0]);
        assert_eq!(spearman(&[0.1, 0.1], &[0.1, 0.2]), None);
        // ranks (1.5, 1.5, 0) against (2, 1, 0): covariance 1.5 over the root of 1.5 · 2
        assert!((spearman(&[0.1, 0.1, 0.2], &[0.1, 0.2, 0.3]).unwrap() - 1.5 / 3_f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn so_many_inputs_prove_a_gap_and_one_less_does_not() {
        for (n_heads, gap) in [(270, 0.1), (12, 0.25), (1000, 0.011)] {
            let n = hoeffding_inputs(n_heads, 0.05, gap).unwrap();
            assert!(2.0 * hoeffding(n_heads, 0.05, n) < gap && 2.0 * hoeffding(n_heads, 0.05, n - 1) >= gap);
        }
        assert_eq!([0.0, -0.1, 1e-200, f64::NAN].map(|gap| hoeffding_inputs(12, 0.05, gap)), [None; 4]);
    }
}
