//! The only door to kernels: public functions on plain rows that check what comes from outside, then run on a [`Cpu`].
//!
//! Knows no model, no request, no scheduler. The rows of a pass belong to the caller and are kept from pass to
//! pass: in steady state a layer allocates nothing that grows with them.

pub mod activations;
pub mod attn_rows;
pub mod cpu;
pub mod kv_store;
pub mod linear;
pub mod norm;
pub mod reference;
pub mod rope;

pub use activations::{Activations, Keep};
pub use attn_rows::{AttentionRows, RowQuery};
pub use cpu::{
    Cpu,
    attention::{AttentionItem, KvFloat, PageLayout},
    buffer::Scratch,
};
pub use kv_store::{KvStore, Slot};
pub use linear::Linear;

use crate::ids::{BlockId, TokenId};

/// What a kernel was asked for and cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// A token that the embedding does not have.
    #[error("embedding: token {token} of a vocabulary of {vocab}")]
    Token {
        /// The token.
        token: TokenId,
        /// Rows of the embedding.
        vocab: usize,
    },
    /// A block that the pool does not have.
    #[error("{op}: {block:?} in a pool of {blocks} blocks")]
    Block {
        /// What was to be done.
        op: &'static str,
        /// The block.
        block: BlockId,
        /// Blocks of the pool.
        blocks: usize,
    },
    /// A block table that ends too early.
    #[error("{op}: position {position} past a table of {blocks} blocks")]
    Table {
        /// What was to be done.
        op: &'static str,
        /// The first position that has no block.
        position: usize,
        /// Blocks of the table.
        blocks: usize,
    },
    /// Rows of another shape than the pool or the request calls for.
    #[error("{op}: {found} values, expected {expected}")]
    Shape {
        /// What was to be done.
        op: &'static str,
        /// Values there are.
        found: usize,
        /// Values there should be.
        expected: usize,
    },
}
