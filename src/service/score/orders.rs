//! Scoring in several orders of the chunks. What a chunk scores depends a little on where it stands and on what stands
//! before it; the mean over orders does so less, and ranks better (heads/RESULTS.md). Each order costs a prefill.
//!
//! Pure. Tests: below, and `tests/http/score.rs` against requests with one order each.

use std::{fmt, str::FromStr};

use super::{QueryScores, ScoreAnswer, ScoredChunk, TokenResponse};
use crate::{
    eval::sample::permutation,
    score::{ChunkScore, HeadScore, rank},
};

/// In how many orders chunks are scored: 1 to [`Orders::MOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "usize", into = "usize")]
pub struct Orders(usize);

/// A number of orders that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{asked} orders; 1 to {} can be averaged", Orders::MOST)]
pub struct NoSuchOrders {
    asked: usize,
}

impl Default for Orders {
    fn default() -> Self {
        Self(1)
    }
}

impl TryFrom<usize> for Orders {
    type Error = NoSuchOrders;

    fn try_from(asked: usize) -> Result<Self, NoSuchOrders> {
        if (1..=Self::MOST).contains(&asked) { Ok(Self(asked)) } else { Err(NoSuchOrders { asked }) }
    }
}

impl From<Orders> for usize {
    fn from(orders: Orders) -> Self {
        orders.0
    }
}

impl FromStr for Orders {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let asked: usize =
            text.parse().map_err(|_| format!("{text:?} is no number from 1 to {}", Self::MOST))?;
        Self::try_from(asked).map_err(|e| e.to_string())
    }
}

impl fmt::Display for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Orders {
    /// Most orders.
    pub const MOST: usize = 8;

    /// The orders of `n` chunks: as they come, then random ones, all different; fewer where there are not so many. The
    /// same for every request with `n` chunks. (The second could be the first reversed; random ones rank better.)
    #[must_use]
    pub(super) fn of(self, n: usize) -> Vec<Vec<usize>> {
        let ways = (1..=n).try_fold(1, |ways, i| (ways < Self::MOST).then_some(ways * i));
        let most = self.0.min(ways.unwrap_or(Self::MOST));
        let mut orders: Vec<Vec<usize>> = vec![(0..n).collect()];
        let mut drawn = (0..).map(|number| permutation(n, SEED, number));
        while orders.len() < most {
            orders.extend(drawn.next().filter(|order| !orders.contains(order)));
        }
        orders
    }
}

/// Any will do, as long as it stays.
const SEED: u64 = 0;

/// The means of `answers[order]`, whose chunks stand as `orders[order]` says: its first is the `orders[order][0]`-th of the
/// request. At least one.
pub(super) fn mean(orders: &[Vec<usize>], answers: Vec<ScoreAnswer>) -> ScoreAnswer {
    let n = answers.len();
    let mut sorted = orders.iter().zip(answers).map(|(order, answer)| back(order, answer));
    let mut sum = sorted.next().expect("chunks have at least one order: this is a bug");
    for answer in sorted {
        add(&mut sum, answer);
    }
    sum.orders = n;
    if n > 1 {
        sum.queries.iter_mut().for_each(|query| divide(query, n as f64));
    }
    sum
}

/// Puts chunks back into the order of the request.
fn back(order: &[usize], answer: ScoreAnswer) -> ScoreAnswer {
    let sort = |query: QueryScores| {
        let mut chunks: Vec<(usize, ScoredChunk)> = order.iter().copied().zip(query.chunks).collect();
        chunks.sort_by_key(|(at, _)| *at);
        QueryScores { chunks: chunks.into_iter().map(|(_, chunk)| chunk).collect() }
    };
    ScoreAnswer { queries: answer.queries.into_iter().map(sort).collect(), ..answer }
}

fn add(sum: &mut ScoreAnswer, answer: ScoreAnswer) {
    let (usage, more) = (&mut sum.usage, answer.usage);
    usage.prompt_tokens += more.prompt_tokens;
    usage.cached_tokens += more.cached_tokens;
    usage.computed_tokens += more.computed_tokens;
    usage.shared_tokens += more.shared_tokens;
    usage.control_tokens += more.control_tokens;
    usage.control_cached_tokens += more.control_cached_tokens;
    let (timings, more) = (&mut sum.timings, answer.timings);
    timings.tokenize += more.tokenize;
    timings.queue += more.queue;
    timings.prefill += more.prefill;
    timings.score += more.score;
    sum.phases.extend(answer.phases);
    let chunks = |queries: Vec<QueryScores>| queries.into_iter().flat_map(|query| query.chunks);
    for (sum, chunk) in sum.queries.iter_mut().flat_map(|query| &mut query.chunks).zip(chunks(answer.queries))
    {
        add_chunk(sum, chunk);
    }
}

fn add_chunk(sum: &mut ScoredChunk, chunk: ScoredChunk) {
    sum.score.value += chunk.score.value;
    sum.score.flags.no_response &= chunk.score.flags.no_response;
    for (sum, head) in sum.score.heads.iter_mut().zip(chunk.score.heads) {
        sum.score += head.score;
        sum.mass += head.mass;
    }
    let explained = chunk.explained.into_iter().flatten();
    for (sum, token) in sum.explained.iter_mut().flatten().zip(explained) {
        sum.response += token.response;
        sum.per_head.iter_mut().zip(token.per_head).for_each(|(sum, response)| *sum += response);
    }
}

/// Makes means of sums, and ranks them.
fn divide(query: &mut QueryScores, n: f64) {
    for ScoredChunk { score: ChunkScore { value, heads, .. }, explained, .. } in &mut query.chunks {
        *value /= n;
        for HeadScore { score, mass } in heads {
            *score /= n;
            *mass /= n;
        }
        for TokenResponse { response, per_head, .. } in explained.iter_mut().flatten() {
            *response /= n;
            per_head.iter_mut().for_each(|response| *response /= n);
        }
    }
    let ranks = rank(&query.chunks.iter().map(|chunk| chunk.score.value).collect::<Vec<_>>());
    query.chunks.iter_mut().zip(ranks).for_each(|(chunk, rank)| chunk.rank = rank);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_different_start_with_the_requests_own_and_are_as_many_as_there_are() {
        let of = |asked: usize, n| Orders::try_from(asked).unwrap().of(n);
        assert_eq!(of(1, 3), [[0, 1, 2]]);
        assert_eq!((of(8, 0), of(8, 1)), (vec![vec![]], vec![vec![0]]));
        assert_eq!(of(8, 2), [[0, 1], [1, 0]]);
        for (asked, n, want) in [(8, 3, 6), (5, 3, 5), (8, 4, 8), (8, 300, 8)] {
            let mut orders = of(asked, n);
            assert_eq!(orders, of(asked, n), "the same again");
            assert_eq!(orders[..2], of(2, n));
            orders.sort();
            orders.dedup();
            assert_eq!(orders.len(), want, "{asked} orders of {n}");
            orders.iter_mut().for_each(|order| order.sort_unstable());
            assert!(orders.iter().all(|order| order.iter().copied().eq(0..n)));
        }
    }

    #[test]
    fn numbers_that_cannot_be_are_refused() {
        for text in ["0", "9", "-1", "two", ""] {
            assert!(text.parse::<Orders>().unwrap_err().contains("1 to 8"), "{text}");
        }
        assert_eq!("8".parse::<Orders>().unwrap().to_string(), "8");
        assert!(serde_json::from_str::<Orders>("0").unwrap_err().to_string().contains("1 to 8"));
    }
}
