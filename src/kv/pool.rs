//! The block pool: reference counts, the free list, and the prefix cache seen from outside.
//!
//! Owns who holds which block. Must not know what is in a block beyond the tokens it is told. Tests:
//! `tests.rs` and `tests/kv_props.rs`.

use std::{collections::BTreeSet, hash::BuildHasher};

use super::{
    BLOCK_SIZE, Salt,
    prefix::{BlockHasher, EntryId, Found, NewEntry, PrefixIndex},
};
use crate::ids::{BlockId, Depth, TokenId};

/// More blocks were asked for than are free or can be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{needed} KV blocks are needed but only {available} can be had; \
     let running requests finish, cancel some, or start the server with a larger KV pool"
)]
pub struct OutOfBlocks {
    /// Blocks asked for.
    pub needed: usize,
    /// Blocks that were free or evictable.
    pub available: usize,
}

/// Where the blocks are. `free + cached + in_use == total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// All blocks.
    pub total: usize,
    /// Blocks without content.
    pub free: usize,
    /// Blocks nobody holds whose content can be reused; evicted when space is needed.
    pub cached: usize,
    /// Blocks held by at least one sequence.
    pub in_use: usize,
}

/// One block's bookkeeping.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    pub(super) refs: u32,
    pub(super) entry: Option<EntryId>,
}

/// All KV blocks of one device. `S` hashes block contents; any function is correct, a good one is fast.
#[derive(Debug)]
pub struct KvPool<S = BlockHasher> {
    pub(super) blocks: Vec<Block>,
    /// Ordered, so that low numbers are used first and untouched memory stays untouched.
    pub(super) free: BTreeSet<BlockId>,
    pub(super) index: PrefixIndex<S>,
    /// Logical time: one tick for each publication and each release.
    clock: u64,
}

impl KvPool {
    /// A pool of `n_blocks` free blocks (at most `u32::MAX`), numbered from 0.
    #[must_use]
    pub fn new(n_blocks: usize) -> Self {
        Self::with_hasher(n_blocks, BlockHasher::default())
    }
}

impl<S: BuildHasher> KvPool<S> {
    /// As [`KvPool::new`], with another hash of block contents.
    #[must_use]
    pub fn with_hasher(n_blocks: usize, hasher: S) -> Self {
        let n = u32::try_from(n_blocks).expect("a pool has at most u32::MAX blocks: this is a bug");
        Self {
            blocks: vec![Block::default(); n_blocks],
            free: (0..n).map(BlockId).collect(),
            index: PrefixIndex::new(hasher),
            clock: 0,
        }
    }

    /// The longest run of cached full blocks from position 0 that hold exactly `tokens` under `salt`, each at
    /// least `depth` deep and together at most `limit` tokens. Takes a reference on each; they count as used until
    /// they are released.
    #[must_use = "the blocks returned are held until they are released"]
    pub fn match_prefix(
        &mut self,
        salt: &Salt,
        tokens: &[TokenId],
        depth: Depth,
        limit: usize,
    ) -> Vec<BlockId> {
        let mut parent = None;
        let mut matched = Vec::new();
        for content in tokens[..limit.min(tokens.len())].chunks_exact(BLOCK_SIZE) {
            let Found::Hit(id) = self.index.find(parent, salt, content) else { break };
            let entry = self.index.get(id);
            if entry.depth < depth {
                break;
            }
            matched.push(entry.block);
            self.blocks[entry.block.0 as usize].refs += 1;
            self.index.set_idle(id, false);
            parent = Some(id);
        }
        matched
    }

    /// Takes `n` blocks, all or none, evicting cached ones as needed. Each has one reference.
    ///
    /// # Errors
    /// [`OutOfBlocks`] when fewer than `n` are free or evictable; nothing was evicted then.
    pub fn allocate(&mut self, n: usize) -> Result<Vec<BlockId>, OutOfBlocks> {
        if n > self.available() {
            return Err(OutOfBlocks { needed: n, available: self.available() });
        }
        while self.free.len() < n {
            let victim = self.index.next_victim().expect("a cached block can be evicted: this is a bug");
            let blocks = self.index.remove_subtree(victim);
            self.unregister(&blocks);
        }
        let taken: Vec<BlockId> = (0..n).map_while(|_| self.free.pop_first()).collect();
        for block in &taken {
            self.blocks[block.0 as usize].refs = 1;
        }
        Ok(taken)
    }

    /// Offers the full blocks of `tokens[..n_computed]`, held by the caller in `table` and `depth` deep, to the
    /// prefix cache. A content that is cached at least as deep keeps its block; a shallower one is replaced.
    pub fn publish(
        &mut self,
        salt: &Salt,
        tokens: &[TokenId],
        table: &[BlockId],
        n_computed: usize,
        depth: Depth,
    ) {
        let now = self.tick();
        let mut parent = None;
        for (content, &block) in tokens[..n_computed].chunks_exact(BLOCK_SIZE).zip(table) {
            assert!(self.ref_count(block) > 0, "{block:?} was published but nobody holds it: this is a bug");
            let id = match self.index.find(parent, salt, content) {
                Found::Hit(id) => {
                    self.deepen(id, block, depth);
                    self.index.touch(id, now);
                    id
                }
                Found::Vacant(hash) if !self.is_registered(block) => {
                    let new = NewEntry { parent, salt, tokens: content, hash, block, depth };
                    let id = self.index.insert(&new, now);
                    self.blocks[block.0 as usize].entry = Some(id);
                    id
                }
                // Nothing can hang below a content that is not cached.
                Found::Vacant(_) | Found::Collision => return,
            };
            parent = Some(id);
        }
    }

    /// Takes one more reference on each block, for a fork. Each must be held already.
    pub fn retain(&mut self, table: &[BlockId]) {
        for &block in table {
            assert!(self.ref_count(block) > 0, "{block:?} was retained but nobody holds it: this is a bug");
            self.blocks[block.0 as usize].refs += 1;
        }
    }

    /// Drops one reference on each block. What nobody holds any more is freed, or stays cached if registered.
    pub fn release(&mut self, table: &[BlockId]) {
        let now = self.tick();
        for &block in table {
            let state = &mut self.blocks[block.0 as usize];
            state.refs = state.refs.checked_sub(1).expect("a released block is held: this is a bug");
            match (state.refs, state.entry) {
                (0, None) => {
                    self.free.insert(block);
                }
                (0, Some(id)) => {
                    self.index.touch(id, now);
                    self.index.set_idle(id, true);
                }
                _ => {}
            }
        }
    }

    /// Forgets all cached contents. Blocks in use stay in use, as private blocks.
    pub fn clear_cache(&mut self) {
        let blocks = self.index.clear();
        self.unregister(&blocks);
    }

    /// Where the blocks are now.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let (total, free, cached) = (self.blocks.len(), self.free.len(), self.index.n_idle());
        PoolStats { total, free, cached, in_use: total - free - cached }
    }

    /// How many blocks [`KvPool::allocate`] can give at most now.
    #[must_use]
    pub fn available(&self) -> usize {
        self.free.len() + self.index.n_idle()
    }

    /// How many times `block` is held.
    #[must_use]
    pub fn ref_count(&self, block: BlockId) -> u32 {
        self.blocks[block.0 as usize].refs
    }

    /// Whether `block` is content of the prefix cache.
    #[must_use]
    pub fn is_registered(&self, block: BlockId) -> bool {
        self.blocks[block.0 as usize].entry.is_some()
    }

    /// Lets a held block of equal content stand for the entry if it is deeper.
    fn deepen(&mut self, id: EntryId, block: BlockId, depth: Depth) {
        let entry = self.index.get(id);
        let deeper = depth > entry.depth;
        if deeper && (entry.block == block || !self.is_registered(block)) {
            let old = self.index.replace(id, block, depth);
            if old != block {
                self.unregister(&[old]);
                self.blocks[block.0 as usize].entry = Some(id);
            }
        }
    }

    /// Takes the mark of the cache from blocks; those that nobody holds are free from now on.
    fn unregister(&mut self, blocks: &[BlockId]) {
        for &block in blocks {
            let state = &mut self.blocks[block.0 as usize];
            state.entry = None;
            if state.refs == 0 {
                self.free.insert(block);
            }
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}
