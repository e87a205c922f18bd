//! One sequence: what was asked for it, and how far it is.
//!
//! Owns the arithmetic of one sequence. Must not know the others or the pool. Tests: with the scheduler's.

use crate::{
    ids::{BlockId, Depth, SeqId, TokenId},
    kv::{Salt, blocks_for},
};

/// What a sequence is computed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Generated tokens, at most `max_new` of them (appended or finished with).
    NextTokens {
        /// Upper bound; the pool must be able to hold the prompt and this many tokens.
        max_new: usize,
    },
    /// Attention rows of the prompt; nothing is generated.
    Rows,
}

/// Start from another sequence's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fork {
    /// A sequence added before.
    pub parent: SeqId,
    /// Number of leading tokens shared with it. At most all but the last are.
    pub at: usize,
}

/// A sequence to be computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSequence {
    /// Its name; no other sequence known to the scheduler has it.
    pub id: SeqId,
    /// The prompt, at least one token.
    pub tokens: Vec<TokenId>,
    /// Whose cached blocks it may use.
    pub salt: Salt,
    /// How deep its KV is computed and has to be.
    pub depth: Depth,
    /// First prompt position that must be computed even if cached: the first read position, or the last token.
    /// Larger values mean the last token.
    pub recompute_from: usize,
    /// What it is computed for.
    pub want: Want,
    /// Waits until the parent has computed `at` tokens and starts from its blocks. Where that is impossible
    /// (the parent is gone or shallower, has another salt or other tokens, or `recompute_from < at`) the
    /// sequence starts as if it had no parent.
    pub fork: Option<Fork>,
    /// Whether to look into the prefix cache.
    pub reuse: bool,
}

/// Order of arrival; the scheduler's own name of a sequence.
pub(super) type Arrival = u64;

/// A sequence the scheduler knows.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) id: SeqId,
    /// Prompt and appended tokens.
    pub(super) tokens: Vec<TokenId>,
    pub(super) n_prompt: usize,
    pub(super) salt: Salt,
    pub(super) depth: Depth,
    recompute_from: usize,
    pub(super) want: Want,
    pub(super) reuse: bool,
    /// Parent and number of shared tokens, until the sequence has started or starts on its own.
    pub(super) fork: Option<(Arrival, usize)>,
    /// Sequences that wait to start from this one.
    pub(super) children: Vec<Arrival>,
    /// Blocks held, in order of position.
    pub(super) table: Vec<BlockId>,
    /// Positions `0..computed` are in the blocks.
    pub(super) computed: usize,
    /// No item was settled since the (re)start.
    pub(super) restart: bool,
    /// Tokens taken over at the first start.
    pub(super) n_cached: Option<usize>,
    /// Tokens handed out in plans so far.
    pub(super) n_planned: usize,
}

impl Sequence {
    pub(super) fn new(seq: NewSequence, fork: Option<(Arrival, usize)>) -> Self {
        Self {
            id: seq.id,
            n_prompt: seq.tokens.len(),
            tokens: seq.tokens,
            salt: seq.salt,
            depth: seq.depth,
            recompute_from: seq.recompute_from,
            want: seq.want,
            reuse: seq.reuse,
            fork,
            children: Vec::new(),
            table: Vec::new(),
            computed: 0,
            restart: true,
            n_cached: None,
            n_planned: 0,
        }
    }

    /// How many leading tokens may come from elsewhere. The last one never: its output is wanted. Once tokens
    /// were generated, the prompt was read; only until then does `recompute_from` hold.
    pub(super) fn reusable(&self) -> usize {
        let all_but_last = self.tokens.len() - 1;
        if self.tokens.len() > self.n_prompt { all_but_last } else { self.recompute_from.min(all_but_last) }
    }

    /// Tokens not yet computed. At least one for every running sequence.
    pub(super) fn remaining(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Whether the sequence generates, one token a step.
    pub(super) fn is_decode(&self) -> bool {
        self.tokens.len() > self.n_prompt && self.remaining() == 1
    }

    /// Whether it is computed to score.
    pub(super) fn scores(&self) -> bool {
        self.want == Want::Rows
    }

    /// Blocks the sequence ends up with at most.
    pub(super) fn max_blocks(&self) -> usize {
        max_blocks(self.n_prompt, self.want)
    }

    /// Blocks the sequence still needs, when it holds `n_held`, to compute all its tokens, and one more to
    /// generate into if it generates.
    pub(super) fn demand(&self, n_held: usize) -> usize {
        (blocks_for(self.tokens.len()) + 1).min(self.max_blocks()).saturating_sub(n_held)
    }
}

/// Blocks a sequence of `n_prompt` tokens ends up with at most.
pub(super) fn max_blocks(n_prompt: usize, want: Want) -> usize {
    match want {
        Want::NextTokens { max_new } => blocks_for(n_prompt.saturating_add(max_new)),
        Want::Rows => blocks_for(n_prompt),
    }
}
