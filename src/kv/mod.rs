//! Paged KV bookkeeping: which block holds what, who holds it, and what can be reused.
//!
//! Owns block numbers, reference counts, the free list, the prefix cache and its eviction. Must not know
//! tensors, devices, clocks or requests: it deals in token ids and block numbers only, and the same calls
//! give the same blocks on every machine. Tests: `tests.rs` (examples that read as documentation), and
//! `tests/kv_props.rs` (against naive twins).
//!
//! A block is in exactly one of three states:
//!
//! ```text
//!            allocate                     release (not registered)
//!   free ───────────────▶ in use ─────────────────────────────────▶ free
//!                         │    ▲
//!      release            │    │ match_prefix
//!      (registered        ▼    │
//!       by publish)       cached ──────────────────────────────────▶ free
//!                                  evicted, least recently used first
//! ```

mod check;
mod pool;
mod prefix;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use crate::ids::BLOCK_SIZE;
pub use pool::{KvPool, OutOfBlocks, PoolStats};
pub use prefix::BlockHasher;

/// Number of blocks that hold `n_tokens` positions.
#[must_use]
pub fn blocks_for(n_tokens: usize) -> usize {
    n_tokens.div_ceil(BLOCK_SIZE)
}

/// Whose cache it is: sequences with different salts never share a block, however equal their tokens.
///
/// [`Salt::none`] is a value like any other: it is shared among all requests that name no salt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Salt(Option<Arc<str>>);

impl Salt {
    /// The salt of requests that name none.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// The salt `name`. The empty name is not [`Salt::none`].
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(Some(name.into()))
    }

    /// The same salt in the part of the cache that belongs to `owner`: equal only for equal owners and salts.
    #[must_use]
    pub fn of(&self, owner: &str) -> Self {
        // the length tells where the owner ends
        let (mark, name) = if let Some(name) = &self.0 { ("+", &**name) } else { ("-", "") };
        Self(Some(format!("{}{mark}{owner}{name}", owner.len()).into()))
    }
}
