//! Decisions as they are stored: one JSON object each, readable by itself.
//!
//! ```json
//! {"v":1,"event":"batch_chosen","update":3,"group":1,"chunks":[4,7,9,11,12]}
//! ```
//!
//! Events hold what came in (updates, scores) and what was decided, keys of chunks included; never what follows from
//! earlier events (means, ranks). So a log stays valid when a rule of deciding changes: replaying it decides nothing.
//!
//! [`Record`] is the stored form. Its `v` is the format of that one event, so a log may go on after an upgrade. Any change
//! to the shape or the meaning of an event makes a new format, and this file then reads both.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ChunkId, Config, Key, Turn, Update};

/// Something that happened to a context. `update` and `group` are counted from 1.
///
/// The events of a group, in order: for each result `chunk_seen` or `duplicate`; then `batch_chosen`, `scored`, `admitted`,
/// or `waited`; then `deferred` or `forgotten`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// The first event of every log.
    Created {
        /// The rules.
        config: Config,
        /// The user's question: what chunks are scored for, unless an update says otherwise.
        question: String,
    },
    /// An update came in.
    UpdateBegun {
        /// Its number.
        update: u32,
        /// The whole update.
        given: Arc<Update>,
    },
    /// A result is a new chunk, and is in the cache now.
    ChunkSeen {
        /// Which update.
        update: u32,
        /// Which group.
        group: u32,
        /// Which result of the group, from 1.
        rank: u32,
        /// The number it gets.
        chunk: ChunkId,
        /// What it will be recognised by.
        key: Key,
    },
    /// A result is a chunk already seen: earlier in the group, in the cache or in the whitelist.
    Duplicate {
        /// Which update.
        update: u32,
        /// Which group.
        group: u32,
        /// Which result of the group, from 1.
        rank: u32,
        /// The chunk it is.
        of: ChunkId,
    },
    /// These chunks are to be scored together.
    BatchChosen {
        /// Which update.
        update: u32,
        /// Which group.
        group: u32,
        /// In the order of the scoring prompt.
        chunks: Vec<ChunkId>,
    },
    /// Nothing is scored in this group.
    Waited {
        /// Which update.
        update: u32,
        /// Which group.
        group: u32,
    },
    /// The batch has its scores.
    Scored {
        /// Which update.
        update: u32,
        /// Which group.
        group: u32,
        /// In the order of the batch.
        scores: Vec<ChunkScore>,
    },
    /// These chunks went from the cache to the whitelist.
    Admitted {
        /// Which update.
        update: u32,
        /// Which group.
        group: u32,
        /// The highest mean first.
        chunks: Vec<ChunkId>,
    },
    /// These chunks, new or scored in this group, stay in the cache. Ends the group.
    Deferred {
        /// Which update.
        update: u32,
        /// Which group.
        group: u32,
        /// First seen first.
        chunks: Vec<ChunkId>,
    },
    /// These chunks left the cache for good. Ends the group.
    Forgotten {
        /// Which update.
        update: u32,
        /// Which group.
        group: u32,
        /// First seen first.
        chunks: Vec<ChunkId>,
    },
    /// Every group is done, and the answer stands. Ends the update.
    Answered {
        /// Which update.
        update: u32,
    },
}

/// A score and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkScore {
    /// The chunk.
    pub chunk: ChunkId,
    /// Its score in this batch, exactly.
    pub score: f64,
}

impl Event {
    /// Its name in JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Created { .. } => "created",
            Self::UpdateBegun { .. } => "update_begun",
            Self::ChunkSeen { .. } => "chunk_seen",
            Self::Duplicate { .. } => "duplicate",
            Self::BatchChosen { .. } => "batch_chosen",
            Self::Waited { .. } => "waited",
            Self::Scored { .. } => "scored",
            Self::Admitted { .. } => "admitted",
            Self::Deferred { .. } => "deferred",
            Self::Forgotten { .. } => "forgotten",
            Self::Answered { .. } => "answered",
        }
    }

    /// The group it is of, for those that are of one.
    #[must_use]
    pub fn turn(&self) -> Option<Turn> {
        match *self {
            Self::Created { .. } | Self::UpdateBegun { .. } | Self::Answered { .. } => None,
            Self::ChunkSeen { update, group, .. }
            | Self::Duplicate { update, group, .. }
            | Self::BatchChosen { update, group, .. }
            | Self::Waited { update, group }
            | Self::Scored { update, group, .. }
            | Self::Admitted { update, group, .. }
            | Self::Deferred { update, group, .. }
            | Self::Forgotten { update, group, .. } => Some(Turn { update, group }),
        }
    }
}

/// An event as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The format it is in.
    pub v: Format,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

impl From<Event> for Record {
    fn from(event: Event) -> Self {
        Self { v: Format, event }
    }
}

/// The format of stored events that is written, 1. Reading refuses others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Format;

impl Format {
    const KNOWN: u64 = 1;
}

impl From<Format> for u64 {
    fn from(_: Format) -> Self {
        Format::KNOWN
    }
}

impl TryFrom<u64> for Format {
    type Error = OtherFormat;

    fn try_from(found: u64) -> Result<Self, OtherFormat> {
        if found == Self::KNOWN { Ok(Self) } else { Err(OtherFormat { found, known: Self::KNOWN }) }
    }
}

/// An event stored by another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event has format {found}; this version reads format {known}")]
pub struct OtherFormat {
    /// The event's format.
    pub found: u64,
    /// The format understood.
    pub known: u64,
}
