//! Whether a stored event fits the state it comes to, and in what it does not.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    ApplyError, ChunkId, Event,
    state::{Pending, Stage, count},
};
use crate::prompt::layout::Chunk;

/// The update in progress, if `event` is of the group in hand and that is in the right stage.
pub(super) fn in_hand<'a>(
    pending: &'a mut Option<Pending>,
    event: &Event,
    stage: impl Fn(&Stage) -> bool,
) -> Result<&'a mut Pending, ApplyError> {
    let pending = pending.as_mut().ok_or_else(|| order(event, "no update is in progress"))?;
    let (turn, found) = (pending.turn(), event.turn());
    if found != Some(turn) || pending.done.len() == pending.given.groups.len() {
        return Err(order(event, "it is not of the group in hand"));
    }
    if stage(&pending.stage) {
        Ok(pending)
    } else {
        Err(order(event, "the group in hand is in another stage"))
    }
}

/// The same, if all results of the group in hand are told apart.
pub(super) fn sorted<'a>(
    pending: &'a mut Option<Pending>,
    event: &Event,
) -> Result<&'a mut Pending, ApplyError> {
    let pending = in_hand(pending, event, |stage| *stage == Stage::Sorting)?;
    if pending.next_result().is_some() {
        return Err(order(event, "results of the group are left"));
    }
    Ok(pending)
}

/// The result that `event` is about, if it is the `rank`-th and that is next.
pub(super) fn next_result<'a>(
    pending: &'a Pending,
    event: &Event,
    rank: u32,
) -> Result<&'a Arc<Chunk>, ApplyError> {
    number(event, "rank", rank, count(pending.current.results.len() + 1))?;
    pending.next_result().ok_or_else(|| order(event, "the group has no more results"))
}

/// Whether all of `chunks` fit and none is named twice.
pub(super) fn all_once(
    event: &Event,
    chunks: &[ChunkId],
    fits: impl Fn(ChunkId) -> bool,
) -> Result<(), ApplyError> {
    let mut seen = BTreeSet::new();
    match chunks.iter().find(|id| !fits(**id) || !seen.insert(**id)) {
        Some(wrong) => Err(chunk(event, *wrong, "not in the cache, not scored, or named twice")),
        None => Ok(()),
    }
}

/// The error of an event that cannot come here.
pub(super) fn order(event: &Event, reason: &'static str) -> ApplyError {
    ApplyError::Order { event: event.name(), reason }
}

/// Whether a number is the next one.
pub(super) fn number(
    event: &Event,
    field: &'static str,
    found: u32,
    expected: u32,
) -> Result<(), ApplyError> {
    if found == expected {
        Ok(())
    } else {
        Err(ApplyError::Number { event: event.name(), field, found, expected })
    }
}

/// The error of an event that names a chunk that does not fit.
pub(super) fn chunk(event: &Event, chunk: ChunkId, problem: &'static str) -> ApplyError {
    ApplyError::Chunk { event: event.name(), chunk, problem }
}
