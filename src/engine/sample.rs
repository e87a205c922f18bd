//! Choosing the next token from logits. Pure but for the generator it owns, which its seed determines.

use std::{collections::HashMap, fmt::Debug};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::ids::TokenId;

/// How tokens are chosen, after OpenAI's and vLLM's parameters of the same names.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the most probable token; otherwise logits are divided by it.
    pub temperature: f32,
    /// Keep the most probable tokens that together reach this probability, in (0, 1]; 1 keeps all.
    pub top_p: f32,
    /// Keep this many tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep tokens at least this fraction as probable as the best one, in [0, 1).
    pub min_p: f32,
    /// Taken once from the logit of every token already generated.
    pub presence_penalty: f32,
    /// Taken from a token's logit for each time it was generated.
    pub frequency_penalty: f32,
    /// Divides positive and multiplies negative logits of tokens in prompt or answer; 1 does nothing.
    pub repetition_penalty: f32,
    /// Equal seeds give equal tokens.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            seed: 0,
        }
    }
}

/// Log-probabilities (natural, of the unmodified logits) at one position.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// Of the chosen token.
    pub chosen: f32,
    /// The most probable tokens, best first.
    pub top: Vec<(TokenId, f32)>,
}

/// The model gave logits that no token can be chosen from.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error(
    "the model's logit for token {token} is {logit}, from which nothing can be chosen; its weights are damaged or its \
     numbers overflow"
)]
pub struct BadLogit {
    /// The first such token.
    pub token: usize,
    /// Not a number or +∞; -∞ when every logit is.
    pub logit: f32,
}

/// Rules out tokens, place by place: who makes one knows what the tokens mean.
pub trait TokenMask: Send + Debug {
    /// Makes the logits of tokens that may not come next -∞.
    ///
    /// # Errors
    /// A sentence when it cannot tell.
    fn apply(&mut self, logits: &mut [f32]) -> Result<(), String>;

    /// Notes the token that was chosen. Should return at once: what comes next is asked for a step later.
    fn push(&mut self, token: TokenId);
}

/// Why no token was chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoToken {
    /// The model's logits are of no use.
    #[error(transparent)]
    Logit(#[from] BadLogit),
    /// What the answer must look like could not be told.
    #[error("what may come next could not be told: {reason}")]
    Mask {
        /// The mask's words.
        reason: String,
    },
    /// The model gives no chance to any token that may come next.
    #[error("the model gives probability 0 to every token that may come next")]
    NoneAllowed,
}

/// Chooses the tokens of one sequence.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    mask: Option<Box<dyn TokenMask>>,
    /// Number of top log-probabilities asked for, if any.
    logprobs: Option<usize>,
    rng: ChaCha8Rng,
    /// How often each token was generated.
    generated: HashMap<TokenId, u32>,
    /// Tokens of the prompt, kept only where the repetition penalty needs them.
    prompt: Vec<TokenId>,
}

impl Sampler {
    /// For a sequence that starts from `prompt`.
    #[must_use]
    pub fn new(sampling: Sampling, logprobs: Option<usize>, prompt: &[TokenId]) -> Self {
        let mut distinct = if sampling.repetition_penalty == 1.0 { Vec::new() } else { prompt.to_vec() };
        distinct.sort_unstable();
        distinct.dedup();
        let rng = ChaCha8Rng::seed_from_u64(sampling.seed);
        Self { sampling, mask: None, logprobs, rng, generated: HashMap::new(), prompt: distinct }
    }

    /// Chooses only tokens that `mask` lets through.
    #[must_use]
    pub fn masked(self, mask: Option<Box<dyn TokenMask>>) -> Self {
        Self { mask, ..self }
    }

    /// The next token given the logits `[vocab]`, and log-probabilities where asked for.
    ///
    /// # Errors
    /// When a logit is not a number or +∞, or all are -∞, and when the mask fails or leaves nothing.
    pub fn next(&mut self, mut logits: Vec<f32>) -> Result<(TokenId, Option<Logprobs>), NoToken> {
        let bad = logits.iter().position(|&l| l.is_nan() || l == f32::INFINITY);
        let bad = bad.or_else(|| logits.iter().all(|&l| l == f32::NEG_INFINITY).then_some(0));
        if let Some(token) = bad {
            let logit = logits.get(token).copied().unwrap_or(f32::NEG_INFINITY);
            return Err(BadLogit { token, logit }.into());
        }
        let raw = self.logprobs.map(|_| logits.clone());
        self.penalise(&mut logits);
        if let Some(mask) = &mut self.mask {
            mask.apply(&mut logits).map_err(|reason| NoToken::Mask { reason })?;
            if logits[greedy(&logits) as usize] == f32::NEG_INFINITY {
                return Err(NoToken::NoneAllowed);
            }
        }
        let token = if self.sampling.temperature == 0.0 { greedy(&logits) } else { self.draw(&logits) };
        if let Some(mask) = &mut self.mask {
            mask.push(token);
        }
        *self.generated.entry(token).or_default() += 1;
        Ok((token, raw.map(|raw| logprobs(&raw, token, self.logprobs.unwrap_or(0)))))
    }

    fn penalise(&self, logits: &mut [f32]) {
        let s = &self.sampling;
        if s.repetition_penalty != 1.0 {
            let fresh = self.generated.keys().filter(|t| self.prompt.binary_search(t).is_err());
            for &token in self.prompt.iter().chain(fresh) {
                if let Some(l) = logits.get_mut(token as usize) {
                    *l = if *l > 0.0 { *l / s.repetition_penalty } else { *l * s.repetition_penalty };
                }
            }
        }
        for (&token, &count) in &self.generated {
            logits[token as usize] -= s.presence_penalty + s.frequency_penalty * count as f32;
        }
    }

    /// Draws from the softmax of `logits / temperature`, cut by min_p, then top_k, then top_p.
    fn draw(&mut self, logits: &[f32]) -> TokenId {
        let s = &self.sampling;
        let best = logits[greedy(logits) as usize];
        let weight = |l: f32| (f64::from(l - best) / f64::from(s.temperature)).exp();
        let floor = f64::from(s.min_p);
        let mut kept: Vec<(TokenId, f64)> =
            (0..).zip(logits).map(|(t, &l)| (t, weight(l))).filter(|&(_, w)| w >= floor && w > 0.0).collect();
        // best first, ties by token id: a total order, so the choice never depends on the sorting algorithm
        let order = |a: &(TokenId, f64), b: &(TokenId, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if s.top_k > 0 && s.top_k < kept.len() {
            kept.select_nth_unstable_by(s.top_k - 1, order);
            kept.truncate(s.top_k);
        }
        let mut total: f64 = kept.iter().map(|(_, w)| w).sum();
        if s.top_p < 1.0 {
            total = keep_most_probable(&mut kept, f64::from(s.top_p) * total, order);
        }
        let mut left = self.rng.random::<f64>() * total;
        for &(token, w) in &kept {
            left -= w;
            if left < 0.0 {
                return token;
            }
        }
        kept[kept.len() - 1].0
    }
}

/// Cuts `kept` to its best entries that together weigh at least `enough`; their weight. Only a growing head is sorted:
/// few tokens carry most of the probability.
fn keep_most_probable(
    kept: &mut Vec<(TokenId, f64)>,
    enough: f64,
    order: impl Fn(&(TokenId, f64), &(TokenId, f64)) -> std::cmp::Ordering + Copy,
) -> f64 {
    let mut head = 64;
    loop {
        if head < kept.len() {
            kept.select_nth_unstable_by(head - 1, order);
        }
        let end = head.min(kept.len());
        kept[..end].sort_unstable_by(order);
        let mut weight = 0.0;
        for i in 0..end {
            weight += kept[i].1;
            if weight >= enough || i + 1 == kept.len() {
                kept.truncate(i + 1);
                return weight;
            }
        }
        head *= 8;
    }
}

/// The most probable token, the lowest id among equals.
fn greedy(logits: &[f32]) -> TokenId {
    let mut best = 0;
    for (t, l) in logits.iter().enumerate() {
        if *l > logits[best] {
            best = t;
        }
    }
    best as TokenId
}

fn logprobs(logits: &[f32], chosen: TokenId, top: usize) -> Logprobs {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|l| f64::from(l - max).exp()).sum();
    let log = |token: TokenId| (f64::from(logits[token as usize] - max) - sum.ln()) as f32;
    let mut ids: Vec<TokenId> = (0..logits.len() as TokenId).collect();
    let order = |a: &TokenId, b: &TokenId| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    let top = top.min(ids.len());
    if top > 0 && top < ids.len() {
        ids.select_nth_unstable_by(top - 1, order);
    }
    ids.truncate(top);
    ids.sort_unstable_by(order);
    Logprobs { chosen: log(chosen), top: ids.into_iter().map(|t| (t, log(t))).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(sampling: &Sampling, logits: &[f32], n: usize) -> Vec<TokenId> {
        (0..n)
            .map(|i| {
                let seed = sampling.seed + i as u64;
                let mut sampler = Sampler::new(Sampling { seed, ..sampling.clone() }, None, &[]);
                sampler.next(logits.to_vec()).unwrap().0
            })
            .collect()
    }

    fn hot() -> Sampling {
        Sampling { temperature: 1.0, ..Sampling::default() }
    }

    #[test]
    fn greedy_takes_the_lowest_id_among_equals() {
        assert_eq!(draws(&Sampling::default(), &[0.0, 3.0, 3.0, -1.0], 3), [1, 1, 1]);
    }

    #[test]
    fn draws_follow_the_softmax() {
        let logits = [0.0f32, 1.0, 2.0];
        let counts = draws(&hot(), &logits, 20_000).iter().fold([0f64; 3], |mut c, &t| {
            c[t as usize] += 1.0 / 20_000.0;
            c
        });
        let sum: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
        for (got, l) in counts.iter().zip(logits) {
            assert!((got - f64::from(l).exp() / sum).abs() < 0.015, "{counts:?}");
        }
    }

    #[test]
    fn cuts_keep_what_they_say() {
        let logits = [1.0f32, 0.9, 0.8, -5.0];
        let only = |s: Sampling| {
            let mut seen = draws(&s, &logits, 300);
            seen.sort_unstable();
            seen.dedup();
            seen
        };
        assert_eq!(only(Sampling { top_k: 2, ..hot() }), [0, 1]);
        assert_eq!(only(Sampling { top_k: 99, min_p: 0.85, ..hot() }), [0, 1]);
        assert_eq!(only(Sampling { top_p: 0.5, ..hot() }), [0, 1]);
        assert_eq!(only(Sampling { top_p: 1e-9, ..hot() }), [0]);
        assert_eq!(only(Sampling { temperature: 1e-6, ..hot() }), [0]);
        let half_missing = [f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY, 0.0];
        assert!(draws(&hot(), &half_missing, 200).iter().all(|t| t % 2 == 1));
    }

    #[test]
    fn penalties_push_repeats_away_and_seeds_reproduce() {
        let mut sampler = Sampler::new(Sampling { frequency_penalty: 0.6, ..Sampling::default() }, None, &[]);
        let mut next = || sampler.next(vec![1.0, 0.5, 0.0]).unwrap().0;
        assert_eq!([next(), next(), next(), next()], [0, 1, 0, 2]);
        let mut sampler = Sampler::new(Sampling { presence_penalty: 2.0, ..Sampling::default() }, None, &[]);
        let mut next = || sampler.next(vec![1.0, 0.5, 0.0]).unwrap().0;
        assert_eq!([next(), next(), next(), next()], [0, 1, 2, 0]);
        let mut sampler =
            Sampler::new(Sampling { repetition_penalty: 4.0, ..Sampling::default() }, None, &[0]);
        assert_eq!(sampler.next(vec![1.0, 0.5, -0.1]).unwrap().0, 1);
        let long = |seed| {
            let mut s = Sampler::new(Sampling { seed, ..hot() }, None, &[]);
            (0..50).map(|_| s.next(vec![0.0; 100]).unwrap().0).collect::<Vec<_>>()
        };
        assert_eq!(long(7), long(7));
        assert_ne!(long(7), long(8));
    }

    #[test]
    fn logprobs_are_those_of_the_raw_logits() {
        let mut sampler =
            Sampler::new(Sampling { presence_penalty: 9.0, ..Sampling::default() }, Some(2), &[]);
        let (_, first) = sampler.next(vec![0.0, 1.0, 0.5]).unwrap();
        let (token, second) = sampler.next(vec![0.0, 1.0, 0.5]).unwrap();
        let second = second.unwrap();
        assert_eq!(token, 2);
        assert_eq!(first.unwrap().top, second.top);
        assert_eq!(second.top.iter().map(|t| t.0).collect::<Vec<_>>(), [1, 2]);
        let sum = 1f32 + 1f32.exp() + 0.5f32.exp();
        assert!((second.chosen - (0.5 - sum.ln())).abs() < 1e-6);
    }

    #[test]
    fn logits_that_nothing_can_be_chosen_from_are_an_error() {
        let mut sampler = Sampler::new(hot(), None, &[]);
        let mut bad = |logits| match sampler.next(logits) {
            Err(NoToken::Logit(bad)) => (bad.token, bad.logit),
            other => panic!("{other:?}"),
        };
        assert_eq!(bad(vec![0.0, f32::NAN]).0, 1);
        assert_eq!(bad(vec![0.0, 1.0, f32::INFINITY]), (2, f32::INFINITY));
        assert_eq!(bad(vec![f32::NEG_INFINITY; 3]), (0, f32::NEG_INFINITY));
        assert!(sampler.next(Vec::new()).is_err());
    }

    /// Lets through these tokens, one set after the other.
    #[derive(Debug)]
    struct Sets(Vec<Vec<TokenId>>);

    impl TokenMask for Sets {
        fn apply(&mut self, logits: &mut [f32]) -> Result<(), String> {
            let allowed = self.0.first().ok_or("no more sets")?;
            (0..).zip(logits).filter(|(t, _)| !allowed.contains(t)).for_each(|(_, l)| *l = f32::NEG_INFINITY);
            Ok(())
        }

        fn push(&mut self, token: TokenId) {
            assert!(self.0.remove(0).contains(&token));
        }
    }

    #[test]
    fn masked_tokens_are_never_chosen_and_log_probabilities_do_not_see_the_mask() {
        for sampling in
            [Sampling::default(), Sampling { top_p: 0.3, ..hot() }, Sampling { top_k: 1, ..hot() }]
        {
            let sets = vec![vec![2], vec![0, 3], vec![], vec![0]];
            let mut sampler = Sampler::new(sampling, Some(1), &[]).masked(Some(Box::new(Sets(sets))));
            let logits = vec![1.0, 9.0, f32::NEG_INFINITY, 0.5];
            assert_eq!(
                sampler.next(logits.clone()),
                Err(NoToken::NoneAllowed),
                "the one allowed has no chance"
            );
            let (token, logprobs) = sampler.next(vec![1.0, 9.0, 0.0, 0.5]).unwrap();
            assert_eq!((token, logprobs.unwrap().top[0].0), (2, 1));
            assert_eq!(sampler.next(logits.clone()).unwrap().0, 0);
            assert_eq!(sampler.next(logits), Err(NoToken::NoneAllowed));
        }
        let mut sampler = Sampler::new(hot(), None, &[]).masked(Some(Box::new(Sets(vec![]))));
        assert_eq!(sampler.next(vec![0.0]), Err(NoToken::Mask { reason: "no more sets".into() }));
    }

    #[test]
    fn the_sorted_head_is_the_head_of_the_sorted() {
        let order = |a: &(TokenId, f64), b: &(TokenId, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        let all: Vec<(TokenId, f64)> = (0..3000u32).map(|i| (i, f64::from(i * 7919 % 101) + 0.5)).collect();
        let total: f64 = all.iter().map(|a| a.1).sum();
        for share in [0.0001, 0.05, 0.5, 0.97, 1.0, 2.0] {
            let mut slow = all.clone();
            slow.sort_by(order);
            let mut reached = 0.0;
            let end = slow.iter().position(|a| {
                reached += a.1;
                reached >= share * total
            });
            slow.truncate(end.map_or(slow.len(), |i| i + 1));
            let mut fast = all.clone();
            let weight = keep_most_probable(&mut fast, share * total, order);
            assert_eq!(fast, slow, "{share}");
            assert_eq!(weight, slow.iter().map(|a| a.1).sum::<f64>());
        }
    }
}
