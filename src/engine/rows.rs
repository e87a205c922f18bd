//! Sums attention rows of one request as they are read, step by step.

use crate::{
    ids::{HeadRef, Span},
    score::Rows,
};

/// The mean of rows over read positions, in f64, position by position in ascending order: the result does
/// not depend on how a prefill was cut into steps.
#[derive(Clone, Debug)]
pub(super) struct RowMean {
    n_candidates: usize,
    /// `[heads, n_candidates]`.
    sum: Vec<f64>,
    /// Rows added per head.
    added: Vec<usize>,
}

impl RowMean {
    pub(super) fn new(heads: &[HeadRef], candidates: &[Span]) -> Self {
        let n_candidates = candidates.iter().map(|s| s.len()).sum();
        Self { n_candidates, sum: vec![0.0; heads.len() * n_candidates], added: vec![0; heads.len()] }
    }

    /// Adds the row of one head at the next read position, times `weight`.
    pub(super) fn add(&mut self, head: usize, row: &[f32], weight: f64) {
        let n = self.n_candidates;
        for (sum, &a) in self.sum[head * n..][..n].iter_mut().zip(row) {
            *sum += weight * f64::from(a);
        }
        self.added[head] += 1;
    }

    /// Forgets everything: the sequence starts again.
    pub(super) fn reset(&mut self) {
        self.sum.fill(0.0);
        self.added.fill(0);
    }

    /// The mean, once every head has `reads` rows.
    ///
    /// # Errors
    /// A sentence when a row is missing or not a number: then nothing may be reported at all.
    pub(super) fn mean(&self, reads: usize) -> Result<Rows, String> {
        if let Some(head) = self.added.iter().position(|&a| a != reads) {
            return Err(format!("{} of {reads} attention rows were read for head {head}", self.added[head]));
        }
        let mean = self.sum.iter().map(|s| s / reads as f64).collect();
        Rows::new(self.added.len(), self.n_candidates, mean)
            .map_err(|e| format!("the attention rows are unusable: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_averages_and_counts() {
        let heads = ["L0H1", "L2H0"].map(|h| h.parse().unwrap());
        let mut mean = RowMean::new(&heads, &[Span::new(3, 5), Span::new(7, 8)]);
        mean.add(0, &[0.5, 0.5, 0.0], 1.0);
        assert!(mean.mean(1).unwrap_err().contains("head 1"));
        mean.add(1, &[0.0, 0.0, 1.0], 1.0);
        assert_eq!(mean.mean(1).unwrap().row(1), [0.0, 0.0, 1.0]);
        mean.add(0, &[0.0, 0.25, 0.75], 1.0);
        mean.add(1, &[0.0, 0.5, 0.5], 1.0);
        assert_eq!(mean.mean(2).unwrap().row(0), [0.25, 0.375, 0.375]);
        let mut whole = RowMean::new(&heads[..1], &[Span::new(0, 2)]);
        whole.add(0, &[0.5, 0.5], 0.5);
        whole.add(0, &[1.0, 0.0], 0.25);
        assert_eq!(whole.mean(2).unwrap().row(0), [0.25, 0.125]);
        mean.reset();
        assert!(mean.mean(2).is_err());
        mean.add(0, &[f32::NAN, 0.0, 0.0], 1.0);
        mean.add(1, &[0.0, 0.5, 0.5], 1.0);
        assert!(mean.mean(1).unwrap_err().contains("unusable"));
    }
}
