//! What a context is at one moment, and reading it. Changed by `apply.rs` alone.

use std::{collections::BTreeMap, sync::Arc};

use crate::prompt::layout::Chunk;

use super::{Admitted, Answer, Candidate, ChunkId, Config, GroupAnswer, Key, Turn, Update, cache::Cache};

/// The cache, the whitelist, and the updates seen; and where the update in progress stands, if there is one.
///
/// A clone goes on by itself: that is a fork. It shares chunks and answers with the original until either changes.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub(super) config: Config,
    pub(super) question: String,
    pub(super) cache: Cache,
    pub(super) whitelist: BTreeMap<ChunkId, Arc<Admitted>>,
    /// Of the cache and the whitelist: what results are recognised by.
    pub(super) keys: BTreeMap<Key, ChunkId>,
    pub(super) next_chunk: u64,
    pub(super) past: Vec<Arc<Past>>,
    /// From ids to places in `past`.
    pub(super) ids: BTreeMap<Arc<str>, usize>,
    pub(super) pending: Option<Pending>,
}

/// An update that is done.
#[derive(Debug, PartialEq)]
pub(super) struct Past {
    pub(super) content: String,
    pub(super) answer: Arc<Answer>,
}

/// An update in progress.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pending {
    pub(super) number: u32,
    pub(super) given: Arc<Update>,
    pub(super) content: String,
    /// The groups that are done.
    pub(super) done: Vec<GroupAnswer>,
    /// What is known of the group in hand, the one after `done`.
    pub(super) current: GroupAnswer,
    pub(super) stage: Stage,
}

/// Where the group in hand stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// Results are told apart; as many are done as `current.results` has.
    Sorting,
    /// A batch is chosen, and its scores are awaited.
    Scoring(Vec<ChunkId>),
    /// The scores are in.
    Scored,
    /// What is admitted is admitted, or nothing was scored.
    Closing,
}

impl Pending {
    /// The group in hand; past the last one when all are done.
    pub(super) fn turn(&self) -> Turn {
        Turn { update: self.number, group: count(self.done.len() + 1) }
    }

    /// The first result of the group in hand that is not told apart yet.
    pub(super) fn next_result(&self) -> Option<&Arc<Chunk>> {
        self.given.groups.get(self.done.len())?.results.get(self.current.results.len())
    }
}

/// A count that log and answers hold in 32 bits.
pub(super) fn count(n: usize) -> u32 {
    u32::try_from(n).expect("nobody sends four thousand million of anything: this is a bug")
}

impl State {
    pub(super) fn new(config: Config, question: String) -> Self {
        Self {
            config,
            question,
            cache: Cache::default(),
            whitelist: BTreeMap::new(),
            keys: BTreeMap::new(),
            next_chunk: 1,
            past: Vec::new(),
            ids: BTreeMap::new(),
            pending: None,
        }
    }

    /// The rules.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What chunks are scored for, unless an update says otherwise.
    #[must_use]
    pub fn question(&self) -> &str {
        &self.question
    }

    /// The candidate cache, first seen first.
    pub fn cache(&self) -> impl ExactSizeIterator<Item = &Candidate> {
        self.cache.iter()
    }

    /// The whitelist as it is presented: first seen first, whenever it was admitted.
    pub fn whitelist(&self) -> impl ExactSizeIterator<Item = &Admitted> {
        self.whitelist.values().map(|admitted| &**admitted)
    }

    /// The whitelist as it was when that update was done, first seen first. Nothing leaves the whitelist.
    pub fn whitelist_after(&self, update: u32) -> impl Iterator<Item = &Admitted> {
        self.whitelist().filter(move |admitted| admitted.turn.update <= update)
    }

    /// A chunk of the cache or the whitelist.
    #[must_use]
    pub fn chunk(&self, id: ChunkId) -> Option<&Candidate> {
        let cached = self.cache.get(id);
        cached.or_else(|| Some(&self.whitelist.get(&id)?.candidate)).map(|candidate| &**candidate)
    }

    /// The answers to all updates that are done, in order.
    pub fn answers(&self) -> impl ExactSizeIterator<Item = &Answer> + DoubleEndedIterator {
        self.past.iter().map(|past| &*past.answer)
    }

    /// The answer to the update of this id, if it is done.
    #[must_use]
    pub fn answer(&self, id: &str) -> Option<&Answer> {
        Some(&self.past[*self.ids.get(id)?].answer)
    }

    /// The id of the update in progress.
    #[must_use]
    pub fn pending(&self) -> Option<&str> {
        self.pending.as_ref().map(|pending| pending.given.id.as_str())
    }
}
