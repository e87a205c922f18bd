//! What passes between scheduler and engine in one step. Plain data.
//!
//! Must not know how a plan is made or executed. Tests: with the scheduler's.

use crate::ids::{BlockId, Depth, SeqId, TokenId};

/// One step: block copies, to be done first and in any order, then one forward pass over all items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepPlan {
    /// Whole blocks to copy, `(from, to)`. No block is both source and target.
    pub copies: Vec<(BlockId, BlockId)>,
    /// Deepest first, and in order of arrival among equals. At most one item for a sequence.
    pub items: Vec<StepItem>,
}

/// The tokens of one sequence to compute in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepItem {
    /// Whose tokens.
    pub seq: SeqId,
    /// First position to compute; every position before it is in the table's blocks already.
    pub start: usize,
    /// First position after; `start < end`.
    pub end: usize,
    /// The tokens at `start..end`.
    pub tokens: Vec<TokenId>,
    /// The blocks of positions `0..end`: position `p` is in slot `p % BLOCK_SIZE` of `table[p / BLOCK_SIZE]`.
    pub table: Vec<BlockId>,
    /// How far up the stack to compute.
    pub depth: Depth,
    /// The item ends at the sequence's last token: logits or rows are due.
    pub last: bool,
    /// First item since the sequence started or came back: rows captured before are void.
    pub restart: bool,
}

/// What the engine made of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A last item of [`super::Want::NextTokens`]: append this token and go on.
    Token(TokenId),
    /// The sequence is done; its blocks are released.
    Finish,
}
