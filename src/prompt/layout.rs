//! The scoring prompt as token ids: `prefix = head ++ instruction ++ (block ++ separator)*`, then one tail
//! per query, `query ++ suffix`.
//!
//! Every piece is tokenised on its own and the ids are concatenated. So a chunk's span is exact by
//! construction, its tokens do not depend on its neighbours, and all tails share one prefix to the token.
//! Only template pieces may produce special tokens; text from outside never does.
//! Pure: the tokenizer is passed in. Tests: `layout/tests.rs` with toy encoders.

mod chunk;
mod score_prompt;
#[cfg(test)]
mod tests;

use std::{fmt, num::NonZeroUsize};

pub use chunk::{Chunk, ChunkSpan, Place, byte_span};
pub use score_prompt::{ScorePrompt, ScorePromptError, content_hash, prompt_hash};

use super::{EncodeError, Encoded, PieceEncoder, Specials};
use crate::ids::{Span, TokenId};

/// The query that asks nothing: the tail of the null-query control.
pub const NULL_QUERY: &str = "N/A";

/// The model's chat template, rendered around a sentinel user message and cut at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplatePieces {
    /// Everything before the user's text.
    pub before: String,
    /// Everything after it, with the generation prompt.
    pub after: String,
    /// The token every input of this model starts with. It is put first unless the tokens of `before`
    /// already start with it, so a prompt never has two.
    pub bos: Option<TokenId>,
}

/// A scoring prompt, ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScoringPrompt {
    /// Tokens shared by all queries; never empty. Its last position is `p0`.
    pub prefix: Vec<TokenId>,
    /// Tokens of each query's tail, in the order of the queries; none is empty. The input of query `q` is
    /// `prefix ++ tails[q]`, and its last position is `pq`.
    pub tails: Vec<Vec<TokenId>>,
    /// How many of each tail's last tokens are the query suffix and not the query.
    pub suffix_len: usize,
    /// Where the chunks lie, in order; spans are disjoint and ascending.
    pub chunks: Vec<ChunkSpan>,
}

impl ScoringPrompt {
    /// Position of the query-free control: the last token of the prefix.
    #[must_use]
    pub fn p0(&self) -> usize {
        self.prefix.len() - 1
    }

    /// Read position of one query's input: its last token. Panics when there is no such query.
    #[must_use]
    pub fn pq(&self, query: usize) -> usize {
        self.prefix.len() + self.tails[query].len() - 1
    }

    /// Scored tokens per chunk, `n_i`.
    #[must_use]
    pub fn chunk_lens(&self) -> Vec<usize> {
        self.chunks.iter().map(|c| c.span.len()).collect()
    }
}

/// A part of a scoring prompt that is tokenised on its own. Chunks and queries are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Piece {
    TemplateHead,
    Instruction,
    Chunk(usize),
    Separator,
    Query(usize),
    QuerySuffix,
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TemplateHead => f.write_str("template head"),
            Self::Instruction => f.write_str("instruction"),
            Self::Chunk(number) => write!(f, "chunk {number}"),
            Self::Separator => f.write_str("separator"),
            Self::Query(number) => write!(f, "query {number}"),
            Self::QuerySuffix => f.write_str("query suffix"),
        }
    }
}

/// A scoring prompt that cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The card's score prompt is not usable.
    #[error(transparent)]
    Prompt(#[from] ScorePromptError),
    /// The tokenizer failed on one piece.
    #[error("{piece}: {source}")]
    Encode {
        /// Which piece.
        piece: Piece,
        /// What went wrong.
        source: EncodeError,
    },
    /// Nothing comes before the query, so there is no position to read a control from.
    #[error("the prompt has no token before the query; give at least one chunk or an instruction")]
    EmptyPrefix,
    /// A tail without tokens has no read position.
    #[error("query {number} is empty and the score prompt adds nothing to it; ask something")]
    EmptyTail {
        /// Which query, counted from 1.
        number: usize,
    },
}

/// Lays out chunks and queries. `max_tokens_per_chunk` cuts longer chunks at their end (flagged, the
/// separator stays); queries are never cut. Any number of chunks and queries is fine, also none.
pub fn layout(
    prompt: &ScorePrompt,
    pieces: &TemplatePieces,
    chunks: &[Chunk],
    queries: &[&str],
    max_tokens_per_chunk: Option<NonZeroUsize>,
    encoder: &dyn PieceEncoder,
) -> Result<ScoringPrompt, LayoutError> {
    prompt.check()?;
    let mut prefix = head(prompt, pieces, encoder)?;
    let separator = encode(encoder, &prompt.separator, Specials::Plain, Piece::Separator)?.ids;
    let mut spans = Vec::with_capacity(chunks.len());
    for (i, chunk) in chunks.iter().enumerate() {
        spans.push(push_block(&mut prefix, prompt, chunk, i + 1, max_tokens_per_chunk, encoder)?);
        prefix.extend_from_slice(&separator);
    }
    if prefix.is_empty() {
        return Err(LayoutError::EmptyPrefix);
    }
    let suffix = encode(encoder, prompt.suffix(pieces), Specials::Parse, Piece::QuerySuffix)?.ids;
    let suffix_len = suffix.len();
    let mut tails = Vec::with_capacity(queries.len());
    for (number, query) in (1..).zip(queries) {
        let mut tail = encode(encoder, &prompt.query_text(query), Specials::Plain, Piece::Query(number))?.ids;
        tail.extend_from_slice(&suffix);
        if tail.is_empty() {
            return Err(LayoutError::EmptyTail { number });
        }
        tails.push(tail);
    }
    Ok(ScoringPrompt { prefix, tails, suffix_len, chunks: spans })
}

/// The template's opening and the instruction.
fn head(
    prompt: &ScorePrompt,
    pieces: &TemplatePieces,
    encoder: &dyn PieceEncoder,
) -> Result<Vec<TokenId>, LayoutError> {
    let mut ids = encode(encoder, &pieces.before, Specials::Parse, Piece::TemplateHead)?.ids;
    if let Some(bos) = pieces.bos
        && ids.first() != Some(&bos)
    {
        ids.insert(0, bos);
    }
    if let Some(text) = prompt.instruction_text() {
        ids.extend(encode(encoder, &text, Specials::Plain, Piece::Instruction)?.ids);
    }
    Ok(ids)
}

/// Appends one block to the prefix and says where the chunk's tokens came to lie.
fn push_block(
    prefix: &mut Vec<TokenId>,
    prompt: &ScorePrompt,
    chunk: &Chunk,
    number: usize,
    max_tokens: Option<NonZeroUsize>,
    encoder: &dyn PieceEncoder,
) -> Result<ChunkSpan, LayoutError> {
    let (text, title_chars) = chunk.serialise();
    let (before, after) = prompt.block_around(number);
    let block = encode(encoder, &format!("{before}{text}{after}"), Specials::Plain, Piece::Chunk(number))?;
    let start = before.chars().count();
    let inside = Span::new(start, start + text.chars().count());
    let own = overlapping(&block.offsets, inside);
    let most = max_tokens.map_or(usize::MAX, NonZeroUsize::get);
    let kept = Span::new(own.start, own.end.min(own.start.saturating_add(most)));

    // block ids:  before | kept | cut | after      (cut is empty unless the chunk is too long)
    let base = prefix.len();
    prefix.extend_from_slice(&block.ids[..kept.end]);
    prefix.extend_from_slice(&block.ids[own.end..]);
    // A token may reach over the border ("] Word" gives " Word"); its offset is clamped to the text.
    let clamp = |at: usize| at.clamp(inside.start, inside.end) - inside.start;
    let offsets =
        block.offsets[kept.range()].iter().map(|o| Span::new(clamp(o.start), clamp(o.end))).collect();
    Ok(ChunkSpan {
        span: Span::new(base + kept.start, base + kept.end),
        offsets,
        tokens: own.len(),
        truncated: kept != own,
        text,
        title_chars,
    })
}

/// The tokens whose characters overlap `inside`, as one range of token indices; empty when there are none,
/// and then it lies before the first token that starts after `inside`.
fn overlapping(offsets: &[Span], inside: Span) -> Span {
    let overlaps = |o: &Span| !o.is_empty() && o.start < inside.end && o.end > inside.start;
    match (offsets.iter().position(overlaps), offsets.iter().rposition(overlaps)) {
        (Some(first), Some(last)) => Span::new(first, last + 1),
        _ => {
            let at =
                offsets.iter().position(|o| o.start >= inside.end && !o.is_empty()).unwrap_or(offsets.len());
            Span::new(at, at)
        }
    }
}

fn encode(
    encoder: &dyn PieceEncoder,
    text: &str,
    specials: Specials,
    piece: Piece,
) -> Result<Encoded, LayoutError> {
    if text.is_empty() {
        return Ok(Encoded::default());
    }
    let encoded = encoder.encode(text, specials).map_err(|source| LayoutError::Encode { piece, source })?;
    assert_eq!(
        encoded.ids.len(),
        encoded.offsets.len(),
        "an encoder gave ids without offsets: this is a bug"
    );
    Ok(encoded)
}
