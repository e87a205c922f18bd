//! Why an update, a batch's scores or a stored event is refused. Whatever is refused has changed nothing.

use super::{ChunkId, MAX_SCORE, Turn};

/// An update that cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// Retries could not be told from new updates.
    #[error("an update needs an id that is not empty")]
    NoId,
    /// Not a retry: the id stands for something else.
    #[error(
        "update id {id:?} was used before with other content, for update {update}; a new update needs a new id"
    )]
    OtherContent {
        /// The id.
        id: String,
        /// The update that has it.
        update: u32,
    },
    /// Updates are worked through one after the other.
    #[error("update {id:?} must wait until update {pending:?} is done")]
    Busy {
        /// The one that came.
        id: String,
        /// The one in progress.
        pending: String,
    },
}

/// Scores that do not fit.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CommitError {
    /// Nothing is awaited.
    #[error("scores came for {}, but none are awaited", turn(*found))]
    NotAwaited {
        /// The batch they are for.
        found: Turn,
    },
    /// They are for a batch of an earlier state or of another context.
    #[error("scores came for a batch of {}, but another one is awaited, of {}", turn(*found), turn(*awaited))]
    OtherBatch {
        /// The batch they are for.
        found: Turn,
        /// The batch that is awaited. Equal to `found` for a context that took another way.
        awaited: Turn,
    },
    /// Too many or too few.
    #[error("a batch of {expected} chunks got {found} scores")]
    Count {
        /// Scores.
        found: usize,
        /// Chunks.
        expected: usize,
    },
    /// One of them is none.
    #[error("score {score} of chunk {chunk}, at place {index} of the batch, {problem}")]
    Score {
        /// Place in the batch, from 0.
        index: usize,
        /// The chunk.
        chunk: ChunkId,
        /// The number that came.
        score: f64,
        /// What is wrong with it.
        problem: ScoreProblem,
    },
}

/// What can be wrong with a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScoreProblem {
    /// NaN or infinite.
    #[error("is not finite")]
    NotFinite,
    /// Beyond [`MAX_SCORE`].
    #[error("is beyond {MAX_SCORE:e}")]
    TooLarge,
}

fn turn(turn: Turn) -> String {
    format!("update {}, group {}", turn.update, turn.group)
}

/// An event that does not fit the state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// It cannot come here.
    #[error("`{event}` cannot come here: {reason}")]
    Order {
        /// The event's name.
        event: &'static str,
        /// Why not.
        reason: &'static str,
    },
    /// It is numbered wrongly.
    #[error("`{event}` has {field} {found}, but {expected} comes next")]
    Number {
        /// The event's name.
        event: &'static str,
        /// The field.
        field: &'static str,
        /// Its number.
        found: u32,
        /// The number that fits.
        expected: u32,
    },
    /// It names a chunk that does not fit.
    #[error("`{event}` names chunk {chunk}, which is {problem}")]
    Chunk {
        /// The event's name.
        event: &'static str,
        /// The chunk.
        chunk: ChunkId,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// A log that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// It has no events.
    #[error("a log has at least one event, `created`")]
    Empty,
    /// One of its events does not fit those before it.
    #[error("event {at} of the log, counted from 0: {source}")]
    Event {
        /// Which, from 0.
        at: usize,
        /// Why.
        source: ApplyError,
    },
}
