//! The integrity check of the pool: every redundant fact compared with what it was derived from.
//!
//! Owns no state. Called when idle and after every operation in tests. Tests: below (it finds damage), and
//! `tests/kv_props.rs` (it finds none).

use std::hash::BuildHasher;

use super::{BLOCK_SIZE, KvPool, prefix::Entry, prefix::EntryId};
use crate::ids::BlockId;

/// `Err` with the message unless the fact holds.
macro_rules! require {
    ($fact:expr, $($message:tt)+) => {
        if !$fact {
            return Err(format!($($message)+));
        }
    };
}

impl<S: BuildHasher> KvPool<S> {
    /// Checks everything the pool believes. O(blocks).
    ///
    /// # Errors
    /// The first contradiction found, in words.
    pub fn check(&self) -> Result<(), String> {
        self.check_blocks()?;
        let mut idle = 0;
        let mut idle_leaves = 0;
        let mut entries = 0;
        for (id, entry) in self.index.iter() {
            self.check_entry(id, entry)?;
            entries += 1;
            idle += usize::from(entry.idle);
            idle_leaves += usize::from(entry.idle && entry.children.is_empty());
        }
        let registered = self.blocks.iter().filter(|block| block.entry.is_some()).count();
        require!(registered == entries, "{registered} blocks are registered, {entries} entries exist");
        require!(self.index.by_content.len() == entries, "the map names other entries than exist");
        require!(self.index.n_idle() == idle, "{} idle entries counted, {idle} exist", self.index.n_idle());
        require!(self.index.idle_leaves.len() == idle_leaves, "the eviction order has strangers");
        let stats = self.stats();
        let in_use = self.blocks.iter().filter(|block| block.refs > 0).count();
        require!(stats.in_use == in_use, "{} blocks in use by count, {in_use} are held", stats.in_use);
        Ok(())
    }

    /// Free means: not held and not registered; and everything of that kind is free.
    fn check_blocks(&self) -> Result<(), String> {
        for (number, state) in (0..).zip(&self.blocks) {
            let block = BlockId(number);
            let unused = state.refs == 0 && state.entry.is_none();
            require!(self.free.contains(&block) == unused, "{block:?} is wrong in the free list: {state:?}");
        }
        require!(self.free.iter().all(|b| (b.0 as usize) < self.blocks.len()), "the free list has strangers");
        Ok(())
    }

    fn check_entry(&self, id: EntryId, entry: &Entry) -> Result<(), String> {
        let state = &self.blocks[entry.block.0 as usize];
        require!(state.entry == Some(id), "{id:?} names {:?}, which names {:?}", entry.block, state.entry);
        require!(entry.idle == (state.refs == 0), "{id:?} is idle: {}, but {state:?}", entry.idle);
        require!(entry.tokens.len() == BLOCK_SIZE, "{id:?} holds {} tokens", entry.tokens.len());
        let hash = self.index.hash(entry.parent, &entry.salt, &entry.tokens);
        require!(hash == entry.hash, "{id:?} has another hash than its tokens");
        let found = self.index.by_content.get(&(entry.parent, hash));
        require!(found == Some(&id), "{id:?} is not found by its content");
        let leaf = entry.idle && entry.children.is_empty();
        let listed = self.index.idle_leaves.contains(&(entry.last_used, id));
        require!(listed == leaf, "{id:?} is wrong in the eviction order");
        for &child in &entry.children {
            let below = self.index.get(child);
            require!(below.parent == Some(id), "{child:?} has another parent than {id:?}");
            require!(below.salt == entry.salt, "{child:?} has another salt than its parent");
            require!(below.position == entry.position + 1, "{child:?} is at {}", below.position);
            require!(below.depth <= entry.depth, "{child:?} is deeper than its parent");
        }
        match entry.parent {
            None => require!(entry.position == 0, "{id:?} has no parent but position {}", entry.position),
            Some(parent) => {
                require!(self.index.get(parent).children.contains(&id), "{id:?} is unknown to its parent");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ids::Depth, kv::Salt};

    #[test]
    fn damage_is_found() {
        let healthy = || {
            let mut pool = KvPool::new(4);
            let table = pool.allocate(2).unwrap();
            let tokens: Vec<u32> = (0..64).collect();
            pool.publish(&Salt::none(), &tokens, &table, 64, Depth(1));
            pool.release(&table[1..]);
            pool.check().unwrap();
            pool
        };
        type Damage = fn(&mut KvPool);
        let damages: [(&str, Damage); 5] = [
            ("a held block on the free list", |pool| assert!(pool.free.insert(BlockId(0)))),
            ("a free block lost", |pool| assert!(pool.free.pop_last().is_some())),
            ("a reference too many", |pool| pool.blocks[1].refs += 1),
            ("a registered block without its mark", |pool| pool.blocks[0].entry = None),
            ("an entry that the map lost", |pool| pool.index.by_content.clear()),
        ];
        for (what, damage) in damages {
            let mut pool = healthy();
            damage(&mut pool);
            assert!(pool.check().is_err(), "{what} was not noticed");
        }
    }
}
