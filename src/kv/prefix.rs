//! The prefix index: which chains of full blocks are cached, and in which order they may go.
//!
//! Owns the tree of entries, one entry for each distinct (salt, tokens of the block and all before). Must not
//! know reference counts: the pool tells it whether an entry's block is idle. Tests: through the pool, in
//! `tests.rs` and `tests/kv_props.rs`.
//!
//! Entries are found by (parent entry, hash of the block's tokens) and then compared token by token. A parent
//! is named by its entry and not by its content, so a comparison of one block proves the whole chain. Two
//! contents of one parent whose hashes collide cannot both be cached: the second is left out, a miss.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
};

use super::Salt;
use crate::ids::{BlockId, Depth, TokenId};

/// The default hash of block contents: one fixed function, the same in every run.
pub type BlockHasher = BuildHasherDefault<DefaultHasher>;

/// A place in the index. Reused after removal, but never while an entry below it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EntryId(u32);

/// One cached full block.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) parent: Option<EntryId>,
    pub(super) children: Vec<EntryId>,
    pub(super) salt: Salt,
    pub(super) tokens: Box<[TokenId]>,
    pub(super) hash: u64,
    /// Number of blocks before this one in its chain.
    pub(super) position: usize,
    pub(super) block: BlockId,
    pub(super) depth: Depth,
    pub(super) last_used: u64,
    /// No sequence holds the block.
    pub(super) idle: bool,
}

/// What the index knows of one block's content.
pub(super) enum Found {
    /// Cached, compared and equal.
    Hit(EntryId),
    /// Not cached; the hash under which it can be inserted.
    Vacant(u64),
    /// Another content has the same hash: it can neither be found nor inserted.
    Collision,
}

/// What [`PrefixIndex::insert`] registers.
pub(super) struct NewEntry<'a> {
    pub(super) parent: Option<EntryId>,
    pub(super) salt: &'a Salt,
    pub(super) tokens: &'a [TokenId],
    pub(super) hash: u64,
    pub(super) block: BlockId,
    pub(super) depth: Depth,
}

/// The tree of cached chains.
#[derive(Debug)]
pub(super) struct PrefixIndex<S> {
    hasher: S,
    pub(super) by_content: HashMap<(Option<EntryId>, u64), EntryId, BlockHasher>,
    slots: Vec<Option<Entry>>,
    vacant: Vec<EntryId>,
    /// Idle entries without children, by last use: the order of eviction.
    pub(super) idle_leaves: BTreeSet<(u64, EntryId)>,
    n_idle: usize,
}

impl<S: BuildHasher> PrefixIndex<S> {
    pub(super) fn new(hasher: S) -> Self {
        Self {
            hasher,
            by_content: HashMap::default(),
            slots: Vec::new(),
            vacant: Vec::new(),
            idle_leaves: BTreeSet::new(),
            n_idle: 0,
        }
    }

    /// Number of entries whose block nobody holds.
    pub(super) fn n_idle(&self) -> usize {
        self.n_idle
    }

    pub(super) fn get(&self, id: EntryId) -> &Entry {
        self.slots[id.0 as usize].as_ref().expect("an entry id in use names an entry: this is a bug")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (EntryId, &Entry)> {
        (0..).map(EntryId).zip(&self.slots).filter_map(|(id, slot)| Some((id, slot.as_ref()?)))
    }

    /// The hash of a block. A first block has no parent to tell salts apart, so the salt is hashed with it.
    pub(super) fn hash(&self, parent: Option<EntryId>, salt: &Salt, tokens: &[TokenId]) -> u64 {
        if parent.is_some() { self.hasher.hash_one(tokens) } else { self.hasher.hash_one((salt, tokens)) }
    }

    /// Looks `tokens` up below `parent`. A hit was compared, not only hashed.
    pub(super) fn find(&self, parent: Option<EntryId>, salt: &Salt, tokens: &[TokenId]) -> Found {
        let hash = self.hash(parent, salt, tokens);
        let Some(&id) = self.by_content.get(&(parent, hash)) else { return Found::Vacant(hash) };
        let entry = self.get(id);
        if entry.salt == *salt && *entry.tokens == *tokens { Found::Hit(id) } else { Found::Collision }
    }

    /// Registers a block that somebody holds. The caller has seen [`Found::Vacant`] for it.
    pub(super) fn insert(&mut self, new: &NewEntry<'_>, now: u64) -> EntryId {
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            EntryId(u32::try_from(self.slots.len() - 1).expect("as many entries as blocks: this is a bug"))
        });
        self.slots[id.0 as usize] = Some(Entry {
            parent: new.parent,
            children: Vec::new(),
            salt: new.salt.clone(),
            tokens: new.tokens.into(),
            hash: new.hash,
            position: new.parent.map_or(0, |parent| self.get(parent).position + 1),
            block: new.block,
            depth: new.depth,
            last_used: now,
            idle: false,
        });
        self.by_content.insert((new.parent, new.hash), id);
        if let Some(parent) = new.parent {
            self.update(parent, |entry| entry.children.push(id));
        }
        id
    }

    /// Notes a use at logical time `now`.
    pub(super) fn touch(&mut self, id: EntryId, now: u64) {
        self.update(id, |entry| entry.last_used = now);
    }

    /// Notes whether anybody holds the entry's block.
    pub(super) fn set_idle(&mut self, id: EntryId, idle: bool) {
        self.update(id, |entry| entry.idle = idle);
    }

    /// Lets `block`, which somebody holds, stand for the entry. Returns the block that stood for it.
    pub(super) fn replace(&mut self, id: EntryId, block: BlockId, depth: Depth) -> BlockId {
        let mut old = block;
        self.update(id, |entry| {
            old = std::mem::replace(&mut entry.block, block);
            entry.depth = entry.depth.max(depth);
            entry.idle = false;
        });
        old
    }

    /// The entry to evict next, with everything below it: the least recently used idle leaf. Only when every
    /// leaf is held (a sequence holds a block below an entry whose twin it computed itself) an inner entry.
    pub(super) fn next_victim(&self) -> Option<EntryId> {
        let leaf = self.idle_leaves.first().map(|&(_, id)| id);
        leaf.or_else(|| {
            let idle = self.iter().filter(|(_, entry)| entry.idle);
            idle.min_by_key(|(_, entry)| (entry.last_used, Reverse(entry.position))).map(|(id, _)| id)
        })
    }

    /// Forgets an entry and all entries below it; returns their blocks.
    pub(super) fn remove_subtree(&mut self, id: EntryId) -> Vec<BlockId> {
        if let Some(parent) = self.get(id).parent {
            self.update(parent, |entry| entry.children.retain(|&child| child != id));
        }
        let mut blocks = Vec::new();
        let mut doomed = vec![id];
        while let Some(id) = doomed.pop() {
            let entry = self.slots[id.0 as usize].take().expect("children exist: this is a bug");
            self.idle_leaves.remove(&(entry.last_used, id));
            self.n_idle -= usize::from(entry.idle);
            self.by_content.remove(&(entry.parent, entry.hash));
            self.vacant.push(id);
            doomed.extend(entry.children);
            blocks.push(entry.block);
        }
        blocks
    }

    /// Forgets everything; returns the blocks.
    pub(super) fn clear(&mut self) -> Vec<BlockId> {
        let blocks = self.iter().map(|(_, entry)| entry.block).collect();
        self.by_content.clear();
        self.slots.clear();
        self.vacant.clear();
        self.idle_leaves.clear();
        self.n_idle = 0;
        blocks
    }

    /// The one way to change an entry: keeps the eviction order and the count of idle entries true.
    fn update(&mut self, id: EntryId, change: impl FnOnce(&mut Entry)) {
        let entry =
            self.slots[id.0 as usize].as_mut().expect("an entry id in use names an entry: this is a bug");
        self.idle_leaves.remove(&(entry.last_used, id));
        self.n_idle -= usize::from(entry.idle);
        change(entry);
        self.n_idle += usize::from(entry.idle);
        if entry.idle && entry.children.is_empty() {
            self.idle_leaves.insert((entry.last_used, id));
        }
    }
}
