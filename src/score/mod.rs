//! The score of a chunk, from attention rows: pure arithmetic on slices in f64.
//!
//! Owns the formula (normalised entropy of the query's response, and its variants), the checked rows it
//! is computed from, ranking, and head sets. Must not know tensors, tokens, prompts' texts or files.
//! Tests: beside each file, the slow twin in `twin.rs`, and `tests/score_golden.rs`.
//!
//! Notation used in the docs: `a(t)` is the restricted row of the query-conditioned input (the attention
//! from the read position to candidate token `t`, normalised over all candidate tokens `C`), `b(t)` that
//! of the control, `C_i` the tokens of chunk `i`, `n_i = |C_i|`.
//!
//! ```
//! use qrae::score::{Rows, ScoreInput, Statistic, score};
//!
//! // one head, two chunks of two tokens: the question moves attention evenly to the second chunk
//! let control = Rows::new(1, 4, vec![0.4, 0.4, 0.1, 0.1])?;
//! let conditioned = Rows::new(1, 4, vec![0.1, 0.1, 0.4, 0.4])?;
//! let scores = score(&ScoreInput {
//!     chunk_lens: &[2, 2],
//!     conditioned: &conditioned,
//!     control: Some(&control),
//!     statistic: Statistic::Entropy,
//! })?;
//! assert!(scores[0].value == 0.0 && scores[0].flags.no_response);
//! assert!((scores[1].value - 1.0).abs() < 1e-12);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod heads;
mod method;
mod rank;
mod rows;
mod statistic;
#[cfg(test)]
mod twin;

pub(crate) use method::words;
pub use method::{Control, Method, Read, Statistic, UnknownWord};
pub use rank::rank;
pub use rows::{Rows, RowsError};
use serde::{Deserialize, Serialize};

/// What one scored batch is computed from.
#[derive(Clone, Copy, Debug)]
pub struct ScoreInput<'a> {
    /// Candidate tokens per chunk, `n_i`, in prompt order; they sum to the rows' `n_candidates`.
    pub chunk_lens: &'a [usize],
    /// Restricted rows of the query-conditioned input, one per head.
    pub conditioned: &'a Rows,
    /// Restricted rows of the control, same shape; `None` skips the subtraction.
    pub control: Option<&'a Rows>,
    /// What is computed from a chunk's responses.
    pub statistic: Statistic,
}

/// The score of one chunk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChunkScore {
    /// Mean of `heads[..].score`; finite and not negative, higher is more relevant.
    /// At most 1 for entropy, breadth and sum of true rows; a scaled sum reaches `√(|C|/n_i)`.
    pub value: f64,
    /// Candidate tokens of the chunk, `n_i`.
    pub n_tokens: usize,
    /// Per head, in the rows' order.
    pub heads: Vec<HeadScore>,
    /// Defined edges this chunk fell into.
    pub flags: Flags,
}

/// One head's part in a chunk's score.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeadScore {
    /// The statistic of this head alone.
    pub score: f64,
    /// Response mass `m = Σ_{t∈C_i} max(0, a(t) − b(t))`, or `Σ a(t)` without control.
    pub mass: f64,
}

/// Edges of the definition. A flag explains a value; it is never an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flags {
    /// `n_i = 0`: no token to score, the value is 0. The other flags stay unset.
    pub empty: bool,
    /// `n_i = 1`: entropy is 0 by definition (`ln 1 = 0`); sum and breadth keep their value.
    pub single_token: bool,
    /// The chunk has tokens but no head gives it any mass: the value is 0.
    pub no_response: bool,
}

/// The parts of a scored batch don't fit together. Always a bug of the caller, never of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScoreError {
    /// Chunks and rows disagree about the number of candidate tokens.
    #[error(
        "the chunks hold {chunk_tokens} tokens but the rows {row_tokens}; pass the chunk lengths the rows were made with"
    )]
    ChunkLengths {
        /// Sum of the chunk lengths.
        chunk_tokens: usize,
        /// Candidates per row.
        row_tokens: usize,
    },
    /// Conditioned and control rows differ in shape.
    #[error(
        "conditioned rows are {conditioned:?} (heads, candidates) but control rows {control:?}; read both for the same heads and chunks"
    )]
    Shapes {
        /// `(n_heads, n_candidates)` of the conditioned rows.
        conditioned: (usize, usize),
        /// `(n_heads, n_candidates)` of the control rows.
        control: (usize, usize),
    },
    /// A head index beyond the rows.
    #[error("head index {head} of {n_heads}; heads are counted from 0 in the order of the head set")]
    NoSuchHead {
        /// The index asked for.
        head: usize,
        /// Heads in the rows.
        n_heads: usize,
    },
}

/// Scores every chunk: `S_i = mean over heads of S_{h,i}`.
///
/// Response `r(t) = max(0, a(t) − b(t))`, or `a(t)` without control. Per head and chunk, tokens in order:
/// - entropy: with `m = Σ r(t)`, `ρ_t = r(t)/m`: `−Σ ρ_t ln ρ_t / ln n_i` in `[0, 1]`; 0 when `n_i < 2` or `m = 0`;
/// - sum: `m`;
/// - breadth: `|{t ∈ C_i : r(t) > 2/|C|}| / n_i`; 0 when `n_i = 0`;
/// - scaled sum: `m / √(n_i/|C|)`, from 0 to `√(|C|/n_i)`; 0 when `n_i = 0`. A long chunk gathers more noise than a short
///   one, so the sum favours it, and the mean per token favours short ones: half way, as a Pearson residual divides by
///   the root of what was expected, the length says least.
///
/// Source: QRAE paper (entropy, control, mean over heads); sum is its ablation, breadth and scaled sum ours.
pub fn score(input: &ScoreInput<'_>) -> Result<Vec<ChunkScore>, ScoreError> {
    check(input)?;
    let n_candidates = input.conditioned.n_candidates();
    let mut start = 0;
    let chunks = input.chunk_lens.iter().map(|&len| {
        let range = start..start + len;
        start += len;
        let heads = (0..input.conditioned.n_heads()).map(|head| {
            let response = |t| response(input, head, t);
            statistic::head_score(input.statistic, range.clone().map(response), n_candidates)
        });
        chunk_score(heads.collect(), len)
    });
    Ok(chunks.collect())
}

/// Mean over heads of the response per candidate token, `[n_candidates]`, in prompt order.
pub fn responses(input: &ScoreInput<'_>) -> Result<Vec<f64>, ScoreError> {
    check(input)?;
    let n_heads = input.conditioned.n_heads();
    let mean = |t| (0..n_heads).map(|head| response(input, head, t)).sum::<f64>() / n_heads as f64;
    Ok((0..input.conditioned.n_candidates()).map(mean).collect())
}

/// Response of one head (an index into the rows) per candidate token, `[n_candidates]`, in prompt order.
pub fn head_responses(input: &ScoreInput<'_>, head: usize) -> Result<Vec<f64>, ScoreError> {
    check(input)?;
    let n_heads = input.conditioned.n_heads();
    if head >= n_heads {
        return Err(ScoreError::NoSuchHead { head, n_heads });
    }
    Ok((0..input.conditioned.n_candidates()).map(|t| response(input, head, t)).collect())
}

fn check(input: &ScoreInput<'_>) -> Result<(), ScoreError> {
    let row_tokens = input.conditioned.n_candidates();
    let chunk_tokens = input.chunk_lens.iter().fold(0_usize, |sum, &len| sum.saturating_add(len));
    if chunk_tokens != row_tokens {
        return Err(ScoreError::ChunkLengths { chunk_tokens, row_tokens });
    }
    let shape = |rows: &Rows| (rows.n_heads(), rows.n_candidates());
    match input.control {
        Some(control) if shape(control) != shape(input.conditioned) => {
            Err(ScoreError::Shapes { conditioned: shape(input.conditioned), control: shape(control) })
        }
        _ => Ok(()),
    }
}

fn response(input: &ScoreInput<'_>, head: usize, t: usize) -> f64 {
    let conditioned = input.conditioned.row(head)[t];
    match input.control {
        Some(control) => (conditioned - control.row(head)[t]).max(0.0),
        None => conditioned,
    }
}

fn chunk_score(heads: Vec<HeadScore>, n_tokens: usize) -> ChunkScore {
    let value = heads.iter().map(|h| h.score).sum::<f64>() / heads.len() as f64;
    let empty = n_tokens == 0;
    let no_response = !empty && heads.iter().all(|h| h.mass == 0.0);
    ChunkScore { value, n_tokens, heads, flags: Flags { empty, single_token: n_tokens == 1, no_response } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(heads: &[&[f64]]) -> Rows {
        Rows::new(heads.len(), heads[0].len(), heads.concat()).unwrap()
    }

    fn one(
        chunk_lens: &[usize],
        conditioned: &[f64],
        control: Option<&[f64]>,
        statistic: Statistic,
    ) -> Vec<ChunkScore> {
        let conditioned = rows(&[conditioned]);
        let control = control.map(|c| rows(&[c]));
        score(&ScoreInput { chunk_lens, conditioned: &conditioned, control: control.as_ref(), statistic })
            .unwrap()
    }

    #[test]
    fn entropy_of_an_even_response_is_one_and_of_a_single_peak_is_zero() {
        // Responses: chunk 0 [.1, .1], chunk 1 [.3, 0]; the third chunk is suppressed by the query.
        let scores = one(
            &[2, 2, 2],
            &[0.2, 0.2, 0.4, 0.0, 0.1, 0.1],
            Some(&[0.1, 0.1, 0.1, 0.1, 0.3, 0.3]),
            Statistic::Entropy,
        );
        assert!((scores[0].value - 1.0).abs() < 1e-12, "{scores:?}");
        assert_eq!(scores[1].value, 0.0);
        assert!((scores[1].heads[0].mass - 0.3).abs() < 1e-12);
        assert_eq!((scores[2].value, scores[2].flags.no_response), (0.0, true));
        assert!(!scores[0].flags.no_response && !scores[1].flags.no_response);
    }

    #[test]
    fn an_even_response_never_rounds_past_one() {
        for n in 2..300 {
            let scores = one(&[n], &vec![1.0 / n as f64; n], None, Statistic::Entropy);
            assert!(
                scores[0].value <= 1.0 && scores[0].value > 1.0 - 1e-12,
                "{n} tokens: {}",
                scores[0].value
            );
        }
    }

    #[test]
    fn entropy_matches_a_value_worked_by_hand() {
        // ρ = (3/4, 1/4): H = 2 ln 2 − (3/4) ln 3, over ln 2.
        let want = 2.0 - 0.75 * 3_f64.ln() / 2_f64.ln();
        let scores = one(&[2, 1], &[0.6, 0.2, 0.2], None, Statistic::Entropy);
        assert!((scores[0].value - want).abs() < 1e-15, "{} is not {want}", scores[0].value);
    }

    #[test]
    fn one_token_is_zero_entropy_but_keeps_its_sum_and_breadth() {
        let value = |statistic| {
            let scores = one(&[1, 9], &[0.7, 0.3, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], None, statistic);
            assert!(scores[0].flags.single_token && !scores[1].flags.single_token);
            scores[0].value
        };
        assert_eq!(value(Statistic::Entropy), 0.0);
        assert_eq!(value(Statistic::Sum), 0.7);
        assert_eq!(value(Statistic::Breadth), 1.0);
    }

    #[test]
    fn breadth_counts_what_lies_strictly_above_twice_the_even_share() {
        // |C| = 4: the floor is exactly one half.
        let scores = one(&[2, 2], &[0.5, 0.0, 0.5, 0.0], None, Statistic::Breadth);
        assert_eq!((scores[0].value, scores[1].value), (0.0, 0.0));
        assert!(!scores[0].flags.no_response, "a response below the floor is still a response");
        let scores = one(&[2, 2], &[0.51, 0.0, 0.49, 0.0], None, Statistic::Breadth);
        assert_eq!((scores[0].value, scores[1].value), (0.5, 0.0));
    }

    #[test]
    fn an_empty_chunk_is_zero_and_says_only_that() {
        for &statistic in Statistic::ALL {
            let scores = one(&[0, 2, 0], &[0.5, 0.5], None, statistic);
            for i in [0, 2] {
                assert_eq!((scores[i].value, scores[i].n_tokens), (0.0, 0));
                assert_eq!(scores[i].flags, Flags { empty: true, ..Flags::default() });
            }
        }
    }

    #[test]
    fn the_score_is_the_mean_over_heads_and_a_silent_head_counts_as_zero() {
        let conditioned = rows(&[&[0.5, 0.5, 0.0], &[0.0, 0.0, 1.0]]);
        let input = ScoreInput {
            chunk_lens: &[2, 1],
            conditioned: &conditioned,
            control: None,
            statistic: Statistic::Entropy,
        };
        let scores = score(&input).unwrap();
        assert!((scores[0].value - 0.5).abs() < 1e-12);
        assert!(!scores[0].flags.no_response, "one of the heads responded");
        assert_eq!(responses(&input).unwrap(), [0.25, 0.25, 0.5]);
        assert_eq!(head_responses(&input, 1).unwrap(), [0.0, 0.0, 1.0]);
        assert_eq!(head_responses(&input, 2), Err(ScoreError::NoSuchHead { head: 2, n_heads: 2 }));
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let (a, b) = (rows(&[&[0.5, 0.5]]), rows(&[&[0.5, 0.5], &[1.0, 0.0]]));
        let input = |lens, control| ScoreInput {
            chunk_lens: lens,
            conditioned: &a,
            control,
            statistic: Statistic::Sum,
        };
        assert_eq!(
            score(&input(&[1], None)),
            Err(ScoreError::ChunkLengths { chunk_tokens: 1, row_tokens: 2 })
        );
        assert!(score(&input(&[usize::MAX, 3], None)).is_err());
        assert_eq!(
            responses(&input(&[2], Some(&b))),
            Err(ScoreError::Shapes { conditioned: (1, 2), control: (2, 2) })
        );
    }
}
