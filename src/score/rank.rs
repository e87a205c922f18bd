//! Ranks of scores.

/// The 1-based rank of each score, the highest first; equal scores keep their input order, so ranks are a
/// permutation of `1..=n`. Scores are finite; a NaN would rank last.
#[must_use]
pub fn rank(scores: &[f64]) -> Vec<usize> {
    // Adding 0 makes -0 and 0 the tie they are; total_cmp would tell them apart.
    let key = |i: usize| if scores[i].is_nan() { f64::NEG_INFINITY } else { scores[i] + 0.0 };
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| key(b).total_cmp(&key(a)));
    let mut ranks = vec![0; scores.len()];
    for (position, &i) in order.iter().enumerate() {
        ranks[i] = position + 1;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_ranks_first_and_ties_keep_input_order() {
        assert_eq!(rank(&[0.1, 0.9, 0.5]), [3, 1, 2]);
        assert_eq!(rank(&[0.5, 0.9, 0.5, 0.5]), [2, 1, 3, 4]);
        assert_eq!(rank(&[-0.0, 0.0, -0.0]), [1, 2, 3]);
        assert_eq!(rank(&[f64::NAN, 0.0, 0.1]), [3, 2, 1]);
        assert_eq!(rank(&[]), [0; 0]);
    }
}
