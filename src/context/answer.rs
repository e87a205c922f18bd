//! What comes out: a batch to score, and what became of an update.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{ChunkId, Turn};
use crate::prompt::layout::Chunk;

/// Chunks to score together, in this order, for this query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Which group asks for it.
    pub turn: Turn,
    /// What they are scored for.
    pub query: String,
    /// The chunks in the order of the scoring prompt: those with the fewest scores first, among equals the first seen.
    /// Never empty.
    pub chunks: Vec<(ChunkId, Arc<Chunk>)>,
}

/// What became of an update. Numbers of chunks only: the chunks themselves are in the state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Which update of the context, from 1.
    pub update: u32,
    /// The caller's name for it.
    pub id: String,
    /// One for each group of the update, in order.
    pub groups: Vec<GroupAnswer>,
}

impl Answer {
    /// The chunks that entered the whitelist, first seen first.
    #[must_use]
    pub fn admitted(&self) -> Vec<ChunkId> {
        self.all(|group| &group.admitted).into_iter().collect()
    }

    /// The chunks that the update brought or scored and that wait in the cache after it, first seen first.
    #[must_use]
    pub fn deferred(&self) -> Vec<ChunkId> {
        // a later group may have admitted what an earlier one deferred
        let admitted = self.all(|group| &group.admitted);
        self.all(|group| &group.deferred).difference(&admitted).copied().collect()
    }

    fn all(&self, part: impl Fn(&GroupAnswer) -> &Vec<ChunkId>) -> BTreeSet<ChunkId> {
        self.groups.iter().flat_map(part).copied().collect()
    }
}

/// What became of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupAnswer {
    /// For each result, in retrieval order, which chunk it is.
    pub results: Vec<Sighting>,
    /// Chunks in the cache when it was decided what to score, those of this group included.
    pub cached: usize,
    /// The batch in its order; empty when scoring waits.
    pub scores: Vec<BatchScore>,
    /// What entered the whitelist, the highest mean first.
    pub admitted: Vec<ChunkId>,
    /// What the group brought or scored and left in the cache, first seen first.
    pub deferred: Vec<ChunkId>,
    /// What was dropped for good, first seen first: under [`super::Mode::CurrentSearch`] instead of deferral.
    pub forgotten: Vec<ChunkId>,
}

/// Which chunk a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// The chunk.
    pub chunk: ChunkId,
    /// Whether this was the first time it was seen; otherwise it is a duplicate.
    pub new: bool,
}

/// A score of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchScore {
    /// The chunk.
    pub chunk: ChunkId,
    /// The score as it came.
    pub score: f64,
    /// The mean of its scores, this one included.
    pub mean: f64,
}
