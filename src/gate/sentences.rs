//! A text's sentences, by Unicode's rules (UAX 29), and what responds in each.

use unicode_segmentation::UnicodeSegmentation;

use super::Response;
use crate::ids::Span;

/// Most sentences of a chunk; of more, neighbours are taken together. It bounds the work of choosing.
const MOST: usize = 256;

/// A sentence.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sentence {
    /// Its characters, without white space at either end.
    pub(super) span: Span,
    /// Tokens that begin in it.
    pub(super) tokens: usize,
    /// The sum of their responses.
    pub(super) mass: f64,
}

/// The sentences of `text` that are not only white space.
pub(super) fn of(text: &str, responses: &[Response]) -> Vec<Sentence> {
    let mut sentences: Vec<Sentence> = Vec::new();
    let mut tokens = responses.iter().filter_map(|r| Some((r.start?, r.response))).peekable();
    let mut at = 0;
    for piece in text.split_sentence_bounds() {
        let end = at + piece.chars().count();
        let (mut count, mut mass) = (0, 0.0);
        while let Some((_, response)) = tokens.next_if(|(start, _)| *start < end) {
            count += 1;
            mass += response;
        }
        let trimmed = piece.trim_start();
        let start = end - trimmed.chars().count();
        let span = Span { start, end: start + trimmed.trim_end().chars().count() };
        match sentences.last_mut() {
            // white space alone: its tokens go with the sentence before
            Some(last) if span.is_empty() => {
                last.tokens += count;
                last.mass += mass;
            }
            _ => sentences.push(Sentence { span, tokens: count, mass }),
        }
        at = end;
    }
    // leading white space goes with the sentence after it
    if sentences.len() > 1 && sentences[0].span.is_empty() {
        let Sentence { tokens, mass, .. } = sentences.remove(0);
        sentences[0].tokens += tokens;
        sentences[0].mass += mass;
    }
    let together = sentences.len().div_ceil(MOST).max(1);
    sentences.chunks(together).map(merged).collect()
}

fn merged(sentences: &[Sentence]) -> Sentence {
    let (first, last) = (&sentences[0], &sentences[sentences.len() - 1]);
    Sentence {
        span: Span { start: first.span.start, end: last.span.end },
        tokens: sentences.iter().map(|s| s.tokens).sum(),
        mass: sentences.iter().map(|s| s.mass).sum(),
    }
}
