//! One head, one chunk: from responses to a number. Must not know chunks or heads as lists.
//!
//! Tests: `mod.rs` for values worked by hand, `twin.rs` for random ones.

use super::{HeadScore, Statistic};

/// Response above which a token counts as responding, as a multiple of the even share `1/|C|`.
const FLOOR_SHARES: f64 = 2.0;

/// The statistic and the mass of the responses of one chunk's tokens, in token order. `n_candidates` is
/// `|C|` over all chunks. Finite for finite responses, 0 for none.
pub(super) fn head_score(
    statistic: Statistic,
    responses: impl ExactSizeIterator<Item = f64> + Clone,
    n_candidates: usize,
) -> HeadScore {
    let n = responses.len();
    let mass: f64 = responses.clone().fold(0.0, |sum, r| sum + r);
    let score = match statistic {
        Statistic::Sum => mass,
        Statistic::Breadth if n == 0 => 0.0,
        Statistic::Breadth => {
            let floor = FLOOR_SHARES / n_candidates as f64;
            responses.filter(|&r| r > floor).count() as f64 / n as f64
        }
        Statistic::ScaledSum if n == 0 => 0.0,
        Statistic::ScaledSum => mass / (n as f64 / n_candidates as f64).sqrt(),
        Statistic::Entropy if n < 2 || mass == 0.0 => 0.0,
        Statistic::Entropy => normalised_entropy(responses, mass, n),
    };
    HeadScore { score, mass }
}

impl Statistic {
    /// A score as relevance in `[0, 1]`, for interfaces that promise one; higher scores are never less relevant. Entropy,
    /// sum and breadth are one already. A scaled sum `s` may exceed 1, and becomes `s / (1 + s)`.
    #[must_use]
    pub fn relevance(self, score: f64) -> f64 {
        match self {
            Self::Entropy | Self::Sum | Self::Breadth => score.clamp(0.0, 1.0),
            Self::ScaledSum => score.max(0.0) / (1.0 + score.max(0.0)),
        }
    }
}

/// `−Σ ρ ln ρ / ln n`, with `0 ln 0 = 0`. Rounding can carry an even response past 1 by an ulp: cut there.
fn normalised_entropy(responses: impl Iterator<Item = f64>, mass: f64, n: usize) -> f64 {
    let mut entropy = 0.0;
    for response in responses {
        let share = response / mass;
        if share > 0.0 {
            entropy -= share * share.ln();
        }
    }
    (entropy / (n as f64).ln()).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relevance_lies_between_none_and_one_and_keeps_the_order() {
        for &statistic in Statistic::ALL {
            let scores = [0.0, 1e-9, 0.25, 0.5, 1.0];
            let relevance = scores.map(|s| statistic.relevance(s));
            assert!(
                relevance.is_sorted_by(|a, b| a < b) && relevance[0] == 0.0 && relevance[4] <= 1.0,
                "{statistic}"
            );
        }
        assert_eq!([0.25, 1.0, 3.0].map(|s| Statistic::ScaledSum.relevance(s)), [0.2, 0.5, 0.75]);
        assert_eq!(Statistic::Sum.relevance(1.0 + f64::EPSILON), 1.0, "rounding carries no sum past 1");
    }
}
