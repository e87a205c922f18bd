//! Deciding: what an update is, what comes next, and whether scores fit. Looks at a state and changes nothing.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Answer, Batch, BeginError, ChunkId, ChunkScore, CommitError, Event, Key, Mode, ScoreProblem, State,
    Update,
    state::{Pending, Stage, count},
};
use crate::prompt::layout::Chunk;

/// The largest magnitude of a score; far above what any statistic gives, and so small that no mean leaves f64.
pub const MAX_SCORE: f64 = 1e100;

/// Whether a number may enter a history.
pub(super) fn is_score(value: f64) -> bool {
    value.abs() <= MAX_SCORE // false for NaN
}

/// What an update that comes in is.
#[derive(Clone, Debug, PartialEq)]
pub enum Begun {
    /// A new one: it begins with this event.
    New(Event),
    /// The one in progress: it goes on where it stands.
    Pending,
    /// One that is done: this was the answer.
    Answered(Arc<Answer>),
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// This decision is to be applied; then there is another plan.
    Decide(Event),
    /// This batch is to be scored.
    Score(Batch),
    /// No update is in progress.
    Nothing,
}

impl State {
    /// Recognises `update`.
    ///
    /// # Errors
    /// When its id is empty or was used with other content, or when another update is in progress.
    pub fn begin(&self, update: Update) -> Result<Begun, BeginError> {
        if update.id.is_empty() {
            return Err(BeginError::NoId);
        }
        let other = |number| BeginError::OtherContent { id: update.id.clone(), update: number };
        if let Some(&at) = self.ids.get(update.id.as_str()) {
            let past = &self.past[at];
            let same = past.content == update.content();
            return if same {
                Ok(Begun::Answered(Arc::clone(&past.answer)))
            } else {
                Err(other(past.answer.update))
            };
        }
        match &self.pending {
            None => {
                let number = count(self.past.len() + 1);
                Ok(Begun::New(Event::UpdateBegun { update: number, given: Arc::new(update) }))
            }
            Some(pending) if pending.given.id != update.id => {
                Err(BeginError::Busy { id: update.id, pending: pending.given.id.clone() })
            }
            Some(pending) if *pending.given != update => Err(other(pending.number)),
            Some(_) => Ok(Begun::Pending),
        }
    }

    /// The next decision, or the batch whose scores it waits for.
    #[must_use]
    pub fn plan(&self) -> Plan {
        let Some(pending) = &self.pending else { return Plan::Nothing };
        let update = pending.number;
        if pending.done.len() == pending.given.groups.len() {
            return Plan::Decide(Event::Answered { update });
        }
        let group = pending.turn().group;
        Plan::Decide(match &pending.stage {
            Stage::Scoring(chunks) => return Plan::Score(self.batch(pending, chunks)),
            Stage::Sorting => match pending.next_result() {
                Some(result) => self.sort(pending, result),
                None => match self.choose() {
                    Some(chunks) => Event::BatchChosen { update, group, chunks },
                    None => Event::Waited { update, group },
                },
            },
            Stage::Scored => {
                let chunks = self.cache.best().take(self.config.admissions()).collect();
                Event::Admitted { update, group, chunks }
            }
            Stage::Closing => {
                let chunks = self.left(pending);
                match self.config.mode {
                    Mode::Manager => Event::Deferred { update, group, chunks },
                    Mode::CurrentSearch => Event::Forgotten { update, group, chunks },
                }
            }
        })
    }

    /// What becomes of the scores of `batch`, one for each of its chunks, in order.
    ///
    /// # Errors
    /// When `batch` is not the one awaited, or the scores do not fit it.
    pub fn commit(&self, batch: &Batch, scores: &[f64]) -> Result<Event, CommitError> {
        match self.plan() {
            Plan::Score(awaited) if awaited == *batch => {}
            Plan::Score(awaited) => {
                return Err(CommitError::OtherBatch { found: batch.turn, awaited: awaited.turn });
            }
            Plan::Decide(_) | Plan::Nothing => return Err(CommitError::NotAwaited { found: batch.turn }),
        }
        if scores.len() != batch.chunks.len() {
            return Err(CommitError::Count { found: scores.len(), expected: batch.chunks.len() });
        }
        let chunks = batch.chunks.iter().map(|(id, _)| *id);
        let scores: Vec<ChunkScore> =
            chunks.zip(scores).map(|(chunk, &score)| ChunkScore { chunk, score }).collect();
        if let Some(index) = scores.iter().position(|s| !is_score(s.score)) {
            let ChunkScore { chunk, score } = scores[index];
            let problem = if score.is_finite() { ScoreProblem::TooLarge } else { ScoreProblem::NotFinite };
            return Err(CommitError::Score { index, chunk, score, problem });
        }
        Ok(Event::Scored { update: batch.turn.update, group: batch.turn.group, scores })
    }

    fn sort(&self, pending: &Pending, result: &Chunk) -> Event {
        let turn = pending.turn();
        let (update, group, rank) = (turn.update, turn.group, count(pending.current.results.len() + 1));
        let key = Key::of(result);
        match self.keys.get(&key) {
            Some(&of) => Event::Duplicate { update, group, rank, of },
            None => Event::ChunkSeen { update, group, rank, chunk: ChunkId(self.next_chunk), key },
        }
    }

    /// The chunks to score; none when scoring waits.
    fn choose(&self) -> Option<Vec<ChunkId>> {
        let size = match self.config.mode {
            Mode::Manager => self.config.results_per_query.get(),
            // the cache holds what this group brought, and nothing else
            Mode::CurrentSearch => self.cache.len().max(1),
        };
        (self.cache.len() >= size).then(|| self.cache.fewest_scores().take(size).collect())
    }

    fn batch(&self, pending: &Pending, chunks: &[ChunkId]) -> Batch {
        let query = pending.given.query.as_ref().unwrap_or(&self.question).clone();
        let chunk = |id: &ChunkId| Some((*id, Arc::clone(&self.cache.get(*id)?.chunk)));
        Batch { turn: pending.turn(), query, chunks: chunks.iter().filter_map(chunk).collect() }
    }

    /// What the group in hand brought or scored and has not admitted, first seen first.
    fn left(&self, pending: &Pending) -> Vec<ChunkId> {
        let new = pending.current.results.iter().filter(|result| result.new).map(|result| result.chunk);
        let touched: BTreeSet<ChunkId> = new.chain(pending.current.scores.iter().map(|s| s.chunk)).collect();
        touched.into_iter().filter(|id| self.cache.get(*id).is_some()).collect()
    }
}
