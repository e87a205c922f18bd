//! The gate: which of a batch's chunks an agent's context takes, and which parts of them, from scores and token responses
//! that are already paid for.
//!
//! Owns the choice (best k, a budget of tokens, a least score), and the spans: runs of whole sentences, the fewest tokens
//! that hold a share of a chunk's response. Titles are kept always. The same input gives the same answer. Must not know
//! models, tokens' texts or requests. Tests: `tests.rs`, with the slow twin of the spans.

mod sentences;
mod spans;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::ids::Span;
use sentences::Sentence;

/// What of a chunk is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    /// All of it.
    Full,
    /// The title and some sentences.
    Span,
    /// The title.
    Withhold,
}

/// Which chunks are admitted; the better ranked ones first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// The best so many.
    TopK(usize),
    /// All with at least this score.
    Threshold(f64),
    /// Each whose kept tokens fit what better ones have left of so many, every title counted first.
    Budget(usize),
}

/// How a batch is gated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Which chunks are admitted.
    pub policy: Policy,
    /// Of these, so many of the best are shown whole.
    pub full: usize,
    /// The share of a chunk's response that its spans hold, above 0 and at most 1.
    pub share: f64,
}

/// A scored chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate<'a> {
    /// Its text, without the title.
    pub text: &'a str,
    /// Finite.
    pub score: f64,
    /// From 1; each rank of a batch once.
    pub rank: usize,
    /// Tokens of title and text, those that were not scored included.
    pub tokens: usize,
    /// Where only the first characters of the text were scored: how many. `None` where all were.
    pub cut: Option<usize>,
    /// The scored tokens, in order.
    pub responses: &'a [Response],
}

/// One token's response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response {
    /// The character of the text at which the token begins; `None` for a token of the title.
    pub start: Option<usize>,
    /// Finite, not negative.
    pub response: f64,
}

/// What becomes of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gated {
    /// What is shown.
    pub admission: Admission,
    /// What is shown of the text, in characters: disjoint, ascending, without white space at their ends; the whole text
    /// where it is `Full`, nothing where it is withheld.
    pub spans: Vec<Span>,
    /// Tokens of what is shown, the title's among them.
    pub tokens: usize,
}

/// Gates a batch; the answer is in the order of `chunks`.
#[must_use]
pub fn gate(chunks: &[Candidate<'_>], rules: &Rules) -> Vec<Gated> {
    let mut gated: Vec<Gated> = chunks
        .iter()
        .map(|c| Gated { admission: Admission::Withhold, spans: Vec::new(), tokens: title_tokens(c) })
        .collect();
    let mut left = match rules.policy {
        Policy::Budget(tokens) => tokens.saturating_sub(gated.iter().map(|g| g.tokens).sum()),
        Policy::TopK(_) | Policy::Threshold(_) => usize::MAX,
    };
    let mut best: Vec<usize> = (0..chunks.len()).collect();
    best.sort_by_key(|&i| chunks[i].rank);
    for (place, i) in best.into_iter().enumerate() {
        let chunk = &chunks[i];
        let admitted = match rules.policy {
            Policy::TopK(k) => place < k,
            Policy::Threshold(least) => chunk.score >= least,
            Policy::Budget(_) => true,
        };
        if !admitted {
            continue;
        }
        let title = gated[i].tokens;
        let whole = (place < rules.full).then(|| full(chunk));
        let fitting = whole.into_iter().chain([shortened(chunk, title, rules.share)]);
        if let Some(shown) = fitting.into_iter().find(|shown| shown.tokens - title <= left) {
            left -= shown.tokens - title;
            gated[i] = shown;
        }
    }
    gated
}

/// Tokens of the title. Of a chunk that was cut before its text no more is known than that they are not more than its own.
fn title_tokens(chunk: &Candidate<'_>) -> usize {
    match chunk.cut {
        Some(0) => chunk.tokens,
        _ => chunk.responses.iter().filter(|r| r.start.is_none()).count(),
    }
}

fn full(chunk: &Candidate<'_>) -> Gated {
    let end = chunk.text.chars().count();
    let spans = if end == 0 { Vec::new() } else { vec![Span { start: 0, end }] };
    Gated { admission: Admission::Full, spans, tokens: chunk.tokens }
}

/// The chunk's title, of `title` tokens, and the sentences that hold the share, none beyond what was scored; all of it
/// where these are all there are, and where no token responds: then nothing tells them apart.
fn shortened(chunk: &Candidate<'_>, title: usize, share: f64) -> Gated {
    let end = chunk.cut.and_then(|chars| chunk.text.char_indices().nth(chars)).map(|(end, _)| end);
    let sentences = sentences::of(&chunk.text[..end.unwrap_or(chunk.text.len())], chunk.responses);
    let in_title: f64 = chunk.responses.iter().filter(|r| r.start.is_none()).map(|r| r.response).sum();
    let kept = spans::smallest(&sentences, in_title, share);
    if kept.is_empty() || end.is_none() && kept.len() == sentences.len() {
        return full(chunk);
    }
    let tokens = title + kept.iter().map(|&i| sentences[i].tokens).sum::<usize>();
    Gated { admission: Admission::Span, spans: joined(&sentences, &kept), tokens }
}

/// Neighbours become one span.
fn joined(sentences: &[Sentence], kept: &[usize]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut before = None;
    for &i in kept {
        let span = sentences[i].span;
        match spans.last_mut() {
            Some(last) if before == i.checked_sub(1) => last.end = span.end,
            _ => spans.push(span),
        }
        before = Some(i);
    }
    spans
}
