//! A chunk as a context knows it: where it was first seen, and every score it was given.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::Key;
use crate::prompt::layout::Chunk;

/// A chunk of one context, numbered from 1 in the order in which chunks were first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChunkId(pub u64);

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One group of results of one update. Both are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Turn {
    /// Which update of the context.
    pub update: u32,
    /// Which group of the update.
    pub group: u32,
}

/// Where a chunk was first seen. All are counted from 1; ascending places are ascending [`ChunkId`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Which update of the context.
    pub update: u32,
    /// Which group of the update.
    pub group: u32,
    /// Which result of the group, duplicates counted.
    pub rank: u32,
}

/// A score that a chunk was given, with the batch it was given in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The batch: one for each turn at most.
    pub turn: Turn,
    /// The score as it came; finite, higher is more relevant.
    pub value: f64,
}

/// A chunk with its history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its number.
    pub id: ChunkId,
    /// Where it was first seen.
    pub first_seen: Place,
    /// What it is recognised by.
    pub key: Key,
    /// The result as it was first seen.
    pub chunk: Arc<Chunk>,
    /// Its scores, oldest first.
    pub scores: Vec<Score>,
}

impl Candidate {
    /// The arithmetic mean of its scores, added up oldest first; none before the first score.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        // from +0, so that a mean is never -0
        let sum = self.scores.iter().fold(0.0, |sum, score| sum + score.value);
        (!self.scores.is_empty()).then(|| sum / self.scores.len() as f64)
    }
}

/// A chunk in the whitelist. It keeps the history that brought it there, and gets no more scores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Admitted {
    /// The chunk.
    pub candidate: Arc<Candidate>,
    /// When it was admitted.
    pub turn: Turn,
}
