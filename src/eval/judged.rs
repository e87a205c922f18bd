//! One judged question: what each head says about each chunk, and which chunks are relevant.
//!
//! Must not know how scores came about or what a chunk says. Tests: below.

/// A question's chunks with their relevance labels and each head's score of each chunk under one method.
/// Whatever is computed from it does not depend on the chunks' order but for ties.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    n_heads: usize,
    scores: Vec<f32>,
    labels: Vec<u32>,
    query: Option<String>,
}

/// Parts of a judged question that don't fit together, or a head that is not there.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum JudgedError {
    /// Scores of another number of heads or chunks.
    #[error(
        "{n_scores} scores cannot be those of {n_heads} heads for {n_chunks} labelled chunks; give one score per head and chunk"
    )]
    Shape {
        /// Heads announced.
        n_heads: usize,
        /// Labels given.
        n_chunks: usize,
        /// Scores given.
        n_scores: usize,
    },
    /// No head, so nothing to score with.
    #[error("no heads given; a score is a mean over at least one head")]
    NoHeads,
    /// A score that cannot be ranked.
    #[error("head {head} scores chunk {chunk} as {score}; scores are finite")]
    NotFinite {
        /// Index of the head.
        head: usize,
        /// Index of the chunk.
        chunk: usize,
        /// The score.
        score: f32,
    },
    /// A label whose gain is out of proportion.
    #[error("chunk {chunk} has relevance {label}; labels go from 0 (not relevant) to {most}")]
    Label {
        /// Index of the chunk.
        chunk: usize,
        /// The label.
        label: u32,
        /// Highest label.
        most: u32,
    },
    /// A head index beyond the scores.
    #[error("head index {head} of {n_heads}; heads are counted from 0")]
    NoSuchHead {
        /// The index asked for.
        head: usize,
        /// Heads there are.
        n_heads: usize,
    },
    /// A weight that is not a number.
    #[error("head {head} has weight {weight}; weights are finite")]
    Weight {
        /// Index of the head.
        head: usize,
        /// The weight.
        weight: f64,
    },
}

impl Judged {
    /// Highest relevance label: gains of `2^label` stay exact in f64, and so do sums of many.
    pub const MOST_LABEL: u32 = 31;

    /// `scores` is `[n_heads, chunks]` head-major, higher = more relevant; `labels` is `[chunks]`, 0 = not
    /// relevant, higher = more, at most [`Self::MOST_LABEL`]. No chunks at all is a question that nothing can be
    /// said about.
    pub fn new(n_heads: usize, scores: Vec<f32>, labels: Vec<u32>) -> Result<Self, JudgedError> {
        let n_chunks = labels.len();
        if n_heads == 0 {
            return Err(JudgedError::NoHeads);
        }
        if n_heads.checked_mul(n_chunks) != Some(scores.len()) {
            return Err(JudgedError::Shape { n_heads, n_chunks, n_scores: scores.len() });
        }
        if let Some(i) = scores.iter().position(|s| !s.is_finite()) {
            let (head, chunk) = (i / n_chunks, i % n_chunks);
            return Err(JudgedError::NotFinite { head, chunk, score: scores[i] });
        }
        if let Some(chunk) = labels.iter().position(|&label| label > Self::MOST_LABEL) {
            return Err(JudgedError::Label { chunk, label: labels[chunk], most: Self::MOST_LABEL });
        }
        Ok(Self { n_heads, scores, labels, query: None })
    }

    /// The same, known to ask `query`. Judged questions that ask the same say much the same, as do those of one question
    /// with its chunks in several orders: who cuts questions into parts keeps them together.
    #[must_use]
    pub fn asking(self, query: &str) -> Self {
        Self { query: Some(query.to_owned()), ..self }
    }

    /// What is asked, where that is known.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// Heads that scored.
    #[must_use]
    pub fn n_heads(&self) -> usize {
        self.n_heads
    }

    /// Relevance per chunk, 0 = not relevant. `[chunks]`
    #[must_use]
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// One head's score of each chunk, `[chunks]`; `head` is below `n_heads` or this panics.
    #[must_use]
    pub fn head(&self, head: usize) -> &[f32] {
        let n_chunks = self.labels.len();
        &self.scores[head * n_chunks..(head + 1) * n_chunks]
    }

    /// The QRAE score of each chunk with this head set, `[chunks]`: the mean over `heads` (a head named twice
    /// counts twice). Sums of f32 values of similar size are exact in f64, so the heads' order does not matter to
    /// ties.
    pub fn set_score(&self, heads: &[usize]) -> Result<Vec<f64>, JudgedError> {
        let ones: Vec<(usize, f64)> = heads.iter().map(|&head| (head, 1.0)).collect();
        let sums = self.weighted(&ones)?;
        Ok(sums.into_iter().map(|sum| sum / heads.len() as f64).collect())
    }

    /// `Σ weight · score` over `heads`, per chunk, `[chunks]`, in the order given and not divided by anything.
    pub fn weighted(&self, heads: &[(usize, f64)]) -> Result<Vec<f64>, JudgedError> {
        if heads.is_empty() {
            return Err(JudgedError::NoHeads);
        }
        let mut sums = vec![0.0; self.labels.len()];
        for &(head, weight) in heads {
            if head >= self.n_heads {
                return Err(JudgedError::NoSuchHead { head, n_heads: self.n_heads });
            }
            if !weight.is_finite() {
                return Err(JudgedError::Weight { head, weight });
            }
            for (sum, &score) in sums.iter_mut().zip(self.head(head)) {
                *sum += weight * f64::from(score);
            }
        }
        Ok(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three_by_two() -> Judged {
        Judged::new(3, vec![1.0, 2.0, 0.5, 0.0, 3.0, 4.0], vec![0, 2]).unwrap()
    }

    #[test]
    fn a_set_is_scored_by_the_mean_of_its_heads() {
        let judged = three_by_two();
        assert_eq!(judged.head(1), [0.5, 0.0]);
        assert_eq!(judged.set_score(&[0, 2]).unwrap(), [2.0, 3.0]);
        assert_eq!(judged.set_score(&[1]).unwrap(), [0.5, 0.0]);
        assert_eq!(judged.weighted(&[(0, 2.0), (2, -1.0)]).unwrap(), [-1.0, 0.0]);
        let empty = Judged::new(3, vec![], vec![]).unwrap();
        assert_eq!(empty.set_score(&[2]).unwrap(), [0.0; 0]);
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let shape = |n_heads, scores, labels| Judged::new(n_heads, vec![0.0; scores], vec![1; labels]);
        assert_eq!(shape(2, 5, 3), Err(JudgedError::Shape { n_heads: 2, n_chunks: 3, n_scores: 5 }));
        assert!(shape(2, 1, 0).is_err() && shape(usize::MAX, 0, 2).is_err());
        assert_eq!(shape(0, 0, 0), Err(JudgedError::NoHeads));
        let odd = Judged::new(2, vec![0.0, 1.0, 2.0, f32::INFINITY], vec![0, 1]);
        assert_eq!(odd, Err(JudgedError::NotFinite { head: 1, chunk: 1, score: f32::INFINITY }));
        assert!(Judged::new(1, vec![f32::NAN], vec![0]).is_err());
        let label = JudgedError::Label { chunk: 1, label: 32, most: 31 };
        assert_eq!(Judged::new(1, vec![0.0, 0.0], vec![31, 32]), Err(label));
    }

    #[test]
    fn heads_and_weights_that_are_not_there_are_refused() {
        let judged = three_by_two();
        assert_eq!(judged.set_score(&[3]), Err(JudgedError::NoSuchHead { head: 3, n_heads: 3 }));
        assert_eq!(judged.set_score(&[]), Err(JudgedError::NoHeads));
        assert_eq!(judged.weighted(&[]), Err(JudgedError::NoHeads));
        assert!(matches!(judged.weighted(&[(0, f64::NAN)]), Err(JudgedError::Weight { head: 0, .. })));
    }
}
