//! What one request may take of the machine, told before it takes it: texts before they are tokenised, and the numbers
//! that a scoring request has the engine keep and the answer show.
//!
//! Whatever is refused is refused with both numbers and with what makes it smaller. Counts only: knows no tensor and no
//! JSON. Tests: here, and `tests/http/errors.rs`.

use std::num::NonZeroUsize;

use super::{ServedModel, ServiceError};
use crate::prompt::{PieceEncoder, Specials, layout::Chunk};

/// Bytes of text that are tokenised in any case.
const SHORT_TEXT: usize = 64 << 10;

/// Most bytes of one text, where the model's length does not give more: tokenising takes some four hundred times as many.
const LONG_TEXT: usize = 1 << 20;

/// Bytes that every token of a model's length may have in one text: many times what languages and programs have.
const BYTES_PER_TOKEN: usize = 32;

/// Most queries of one scoring request.
pub const MAX_QUERIES: usize = 512;

/// Most numbers of an explanation: per query and token, one for each head and five for what else is said of
/// a token. Each takes some 20 bytes of the answer and some hundred while it is written.
pub const MAX_EXPLAINED: usize = 3_000_000;

/// What a token of an explanation takes besides its heads, in numbers of [`MAX_EXPLAINED`].
const TOKEN_FIELDS: usize = 5;

/// Most numbers that are kept until the last query is read: rows of all queries and of the control, over heads and
/// tokens. Eight bytes each, and once more when they are handed over.
pub const MAX_KEPT: usize = 50_000_000;

/// Most numbers that are read in one step of the engine: rows of its read positions, over heads and tokens. Four bytes
/// each.
pub const MAX_READ: usize = 150_000_000;

/// Most results: per query and chunk, one for each head and three for what else is said of a chunk. Each takes
/// some 80 bytes of the answer and some 400 while it is written.
pub const MAX_RESULTS: usize = 500_000;

/// What a chunk takes besides its heads, in results of [`MAX_RESULTS`].
const CHUNK_FIELDS: usize = 3;

/// The queries of a scoring request by the name they have in errors: `query` where there is one, else `queries[i]`.
pub(super) fn query_field(queries: usize, i: usize) -> String {
    if queries == 1 { "query".into() } else { format!("queries[{i}]") }
}

impl ServedModel {
    /// Most bytes of one text that is tokenised.
    #[must_use]
    pub fn max_text_bytes(&self) -> usize {
        self.max_model_len.saturating_mul(BYTES_PER_TOKEN).max(LONG_TEXT)
    }

    /// Refuses a text of `field` that cannot fit the model or is too long to tokenise. Short ones are left to the exact
    /// count.
    pub(super) fn check_text(&self, field: &str, text: &str) -> Result<(), ServiceError> {
        self.check_least(field, text.len(), || self.tokenizer.least_tokens(text))?;
        self.check_bytes(field, text.len())
    }

    /// Refuses a text of `bytes` bytes that takes too much memory to tokenise, whatever it would come to.
    pub(crate) fn check_bytes(&self, field: &str, bytes: usize) -> Result<(), ServiceError> {
        let most = self.max_text_bytes();
        if bytes <= most {
            return Ok(());
        }
        let reason = format!("has {bytes} bytes; at most {most} are tokenised as one text: send less of it");
        Err(ServiceError::invalid(field, &reason))
    }

    /// Refuses chunks that together cannot fit the model, each cut to `cut` tokens where that is given, or of which one is
    /// too long to tokenise.
    pub(super) fn check_chunks(
        &self,
        chunks: &[Chunk],
        cut: Option<NonZeroUsize>,
    ) -> Result<(), ServiceError> {
        let separator = &self.score_prompt.separator;
        let own = |chunk: &Chunk| chunk.title.as_ref().map_or(0, String::len) + chunk.text.len();
        let bytes = chunks.iter().map(|chunk| own(chunk) + separator.len()).sum();
        let most = cut.map_or(usize::MAX, NonZeroUsize::get);
        let least = || {
            let between = self.tokenizer.encode(separator, Specials::Plain).map_or(0, |e| e.ids.len());
            let one = |chunk: &Chunk| self.tokenizer.least_tokens(&chunk.serialise().0).min(most) + between;
            chunks.iter().map(one).sum()
        };
        self.check_least("chunks", bytes, least)?;
        let of_one = |(i, chunk): (usize, &Chunk)| self.check_bytes(&format!("chunks[{i}]"), own(chunk));
        chunks.iter().enumerate().try_for_each(of_one)
    }

    fn check_least(
        &self,
        field: &str,
        bytes: usize,
        least: impl FnOnce() -> usize,
    ) -> Result<(), ServiceError> {
        let limit = self.max_model_len;
        if bytes <= SHORT_TEXT {
            return Ok(());
        }
        match least() {
            least if least <= limit => Ok(()),
            least => Err(ServiceError::TextTooLong { field: field.into(), bytes, least, limit }),
        }
    }
}

/// What a scoring request comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScoreSize {
    pub(super) queries: usize,
    /// What is run after the chunks: the queries, and the null query where it is the control.
    pub(super) tails: usize,
    pub(super) heads: usize,
    pub(super) chunks: usize,
    /// Of all chunks, as far as they are scored.
    pub(super) tokens: usize,
    /// Most positions that one step of the engine can read.
    pub(super) reads: usize,
    pub(super) explain: bool,
}

impl ScoreSize {
    /// Refuses what the engine should not keep or the answer should not hold.
    pub(super) fn check(&self) -> Result<(), ServiceError> {
        let Self { queries, tails, heads, chunks, tokens, reads, explain } = *self;
        let kept = product([tails.saturating_add(1), heads, tokens]);
        if kept > MAX_KEPT {
            let reason = format!(
                "attention of {queries} queries with their control, over {heads} heads and {tokens} tokens of the \
                 chunks, is {kept} numbers; the limit is {MAX_KEPT}: send fewer queries or chunks, or read fewer heads"
            );
            return Err(ServiceError::invalid(if queries > 1 { "queries" } else { "heads" }, &reason));
        }
        let read = product([reads, heads, tokens]);
        if read > MAX_READ {
            let reason = format!(
                "attention of {reads} tokens of the queries, over {heads} heads and {tokens} tokens of the chunks, is \
                 {read} numbers at once; the limit is {MAX_READ}: read \"last\", send shorter or fewer queries, or read \
                 fewer heads"
            );
            return Err(ServiceError::invalid("read", &reason));
        }
        let results = product([queries, chunks, heads.saturating_add(CHUNK_FIELDS)]);
        if results > MAX_RESULTS {
            let reason = format!(
                "{queries} queries over {chunks} chunks and {heads} heads would be answered in {results} results; the \
                 limit is {MAX_RESULTS}: send fewer queries or chunks, or read fewer heads"
            );
            return Err(ServiceError::invalid(if queries > 1 { "queries" } else { "chunks" }, &reason));
        }
        let numbers = product([queries, tokens, heads.saturating_add(TOKEN_FIELDS)]);
        if explain && numbers > MAX_EXPLAINED {
            let reason = format!(
                "{queries} queries over {heads} heads and {tokens} tokens would be explained in {numbers} numbers; the \
                 limit is {MAX_EXPLAINED}: send fewer queries, read fewer heads, or leave explain out"
            );
            return Err(ServiceError::invalid("explain", &reason));
        }
        Ok(())
    }
}

fn product<const N: usize>(factors: [usize; N]) -> usize {
    factors.into_iter().fold(1, usize::saturating_mul)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ScoreSize =
        ScoreSize { queries: 1, tails: 1, heads: 1, chunks: 1, tokens: 1, reads: 1, explain: true };

    fn said(size: ScoreSize) -> (String, String) {
        match size.check() {
            Err(ServiceError::Invalid { field, reason }) => (field, reason),
            other => panic!("{size:?}: {other:?}"),
        }
    }

    #[test]
    fn what_is_of_use_passes() {
        let size = |queries, heads, chunks, tokens, reads| ScoreSize {
            tails: queries + 1,
            explain: false,
            ..ScoreSize { queries, heads, chunks, tokens, reads, ..ONE }
        };
        assert_eq!(size(1, 4, 64, 32_768, 100).check(), Ok(()), "a few heads, everything a model holds");
        assert_eq!(size(1, 4, 64, 32_768, 1024).check(), Ok(()), "read over a whole step");
        assert_eq!(size(1, 336, 40, 5_000, 40).check(), Ok(()), "all heads of a small model");
        assert_eq!(size(MAX_QUERIES, 4, 20, 7_000, 1024).check(), Ok(()), "as many queries as there may be");
        assert_eq!(size(10, 336, 100, 10_000, 40).check(), Ok(()), "all heads, several queries");
        assert_eq!(ONE.check(), Ok(()));
        assert_eq!(ScoreSize { queries: usize::MAX, heads: 0, tokens: 0, chunks: 0, ..ONE }.check(), Ok(()));
    }

    #[test]
    fn each_product_has_a_limit_and_both_numbers_are_told() {
        let kept = ScoreSize { queries: 512, tails: 513, heads: 270, tokens: 7000, ..ONE };
        let (field, reason) = said(kept);
        assert!(
            field == "queries" && reason.contains("971460000") && reason.contains("50000000"),
            "{reason}"
        );
        assert_eq!(said(ScoreSize { heads: 3000, tokens: 32_768, ..ONE }).0, "heads");

        let read = ScoreSize { heads: 336, tokens: 6000, reads: 512, explain: false, ..ONE };
        let (field, reason) = said(read);
        assert!(field == "read" && reason.contains("1032192000") && reason.contains("150000000"), "{reason}");
        assert!(reason.contains("\"last\""), "{reason}");

        let results = ScoreSize { queries: 512, tails: 512, heads: 1, chunks: 6000, tokens: 6000, ..ONE };
        let (field, reason) = said(results);
        assert!(field == "queries" && reason.contains("12288000") && reason.contains("500000"), "{reason}");
        assert_eq!(said(ScoreSize { chunks: 500_000, ..ONE }).0, "chunks");

        let explained = ScoreSize { queries: 160, tails: 160, heads: 8, tokens: 2000, ..ONE };
        let (field, reason) = said(explained);
        assert!(field == "explain" && reason.contains("4160000") && reason.contains("3000000"), "{reason}");
        assert_eq!(ScoreSize { explain: false, ..explained }.check(), Ok(()));
        // what is said of a token besides its heads counts too
        assert_eq!(said(ScoreSize { tokens: 600_000, ..ONE }).0, "explain");
    }

    #[test]
    fn no_product_wraps() {
        let most = usize::MAX;
        for size in [
            ScoreSize { tails: most, heads: most, ..ONE },
            ScoreSize { reads: most, tokens: 2, ..ONE },
            ScoreSize { queries: most, chunks: 2, ..ONE },
            ScoreSize { queries: 1 << 40, chunks: 1 << 40, ..ONE },
            ScoreSize { queries: most, chunks: 0, ..ONE },
        ] {
            assert!(size.check().is_err(), "{size:?}");
        }
    }

    #[test]
    fn queries_are_named_as_they_were_sent() {
        assert_eq!(query_field(1, 0), "query");
        assert_eq!(query_field(3, 2), "queries[2]");
    }
}
