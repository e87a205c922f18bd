//! Restricted attention rows with a checked shape. Must not know how they were captured.

/// How far above 1 an entry may lie: rows come from f32 softmaxes, so sums are 1 only nearly.
const SLACK: f64 = 1e-3;

/// Restricted rows `[n_heads, n_candidates]`, head-major: entry `(h, t)` is the share of head `h`'s
/// attention over the candidate tokens that goes to candidate `t`. A row sums to 1, or to 0 where there is
/// nothing to attend to; entries are finite and in `[0, 1]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    n_heads: usize,
    n_candidates: usize,
    data: Vec<f64>,
}

/// Numbers that are not attention rows. Always a bug or a broken model, never a bad request.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RowsError {
    /// A mean over no heads does not exist.
    #[error("no heads: a head set names at least one head")]
    NoHeads,
    /// Shape and data disagree.
    #[error("{n_heads} heads × {n_candidates} candidates need {} numbers, got {found}", n_heads.saturating_mul(*n_candidates))]
    WrongLength {
        /// Rows promised.
        n_heads: usize,
        /// Entries per row promised.
        n_candidates: usize,
        /// Numbers given.
        found: usize,
    },
    /// An entry is NaN, infinite, negative, or clearly above 1.
    #[error(
        "row {head}, candidate {candidate} holds {value}, which is not a share between 0 and 1; check the weights and the rows' normalisation"
    )]
    NotAShare {
        /// Row index.
        head: usize,
        /// Candidate index.
        candidate: usize,
        /// The entry.
        value: f64,
    },
}

impl Rows {
    /// Checks shape and entries. `data` is head-major.
    pub fn new(n_heads: usize, n_candidates: usize, data: Vec<f64>) -> Result<Self, RowsError> {
        if n_heads == 0 {
            return Err(RowsError::NoHeads);
        }
        if n_heads.checked_mul(n_candidates) != Some(data.len()) {
            return Err(RowsError::WrongLength { n_heads, n_candidates, found: data.len() });
        }
        let is_share = |value: &f64| (0.0..=1.0 + SLACK).contains(value);
        if let Some(at) = data.iter().position(|value| !is_share(value)) {
            let (head, candidate) = (at / n_candidates, at % n_candidates);
            return Err(RowsError::NotAShare { head, candidate, value: data[at] });
        }
        Ok(Self { n_heads, n_candidates, data })
    }

    /// Number of rows.
    #[must_use]
    pub fn n_heads(&self) -> usize {
        self.n_heads
    }

    /// Entries per row.
    #[must_use]
    pub fn n_candidates(&self) -> usize {
        self.n_candidates
    }

    /// The row of one head, `[n_candidates]`. Panics when there is no such head: that is a bug in the caller.
    #[must_use]
    pub fn row(&self, head: usize) -> &[f64] {
        &self.data[head * self.n_candidates..(head + 1) * self.n_candidates]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shares_in_the_promised_shape_are_rows() {
        let rows = Rows::new(2, 2, vec![0.25, 0.75, 1.0, 0.0]).unwrap();
        assert_eq!(rows.row(1), [1.0, 0.0]);
        assert!(Rows::new(3, 0, vec![]).is_ok(), "no candidates is a defined edge");
        assert_eq!(Rows::new(0, 0, vec![]), Err(RowsError::NoHeads));
        assert_eq!(
            Rows::new(2, 2, vec![0.5; 3]),
            Err(RowsError::WrongLength { n_heads: 2, n_candidates: 2, found: 3 })
        );
        assert!(matches!(Rows::new(usize::MAX, 2, vec![]), Err(RowsError::WrongLength { .. })));
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-9, 1.5] {
            match Rows::new(2, 2, vec![0.5, 0.5, bad, 0.5]) {
                Err(RowsError::NotAShare { head: 1, candidate: 0, value }) => {
                    assert_eq!(value.to_bits(), bad.to_bits())
                }
                other => panic!("{bad} gave {other:?}"),
            }
        }
    }
}
