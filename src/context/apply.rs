//! The one place where a state changes: event by event, as they are decided and as they are replayed.
//!
//! Nothing is decided here. Events that do not fit (a log that was cut, edited or mixed up) are refused, and then
//! nothing has changed.

use std::{mem, sync::Arc};

use super::{
    Admitted, Answer, ApplyError, BatchScore, Candidate, ChunkId, ChunkScore, Event, Key, Place, ReplayError,
    Score, Sighting, State, Update,
    fits::{all_once, chunk, in_hand, next_result, number, order, sorted},
    plan::is_score,
    state::{Past, Pending, Stage, count},
};

impl State {
    /// The state after all of a log's events.
    ///
    /// # Errors
    /// When the log is empty, does not begin with `created`, or has an event that does not fit the ones before it.
    pub fn replay<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<Self, ReplayError> {
        let mut events = events.into_iter();
        let first = events.next().ok_or(ReplayError::Empty)?;
        let fail = |at| move |source| ReplayError::Event { at, source };
        let mut state = Self::created(first).map_err(fail(0))?;
        for (i, event) in events.enumerate() {
            state.apply(event).map_err(fail(i + 1))?;
        }
        Ok(state)
    }

    /// The state after a log's first event.
    ///
    /// # Errors
    /// When that is not `created`.
    pub fn created(event: &Event) -> Result<Self, ApplyError> {
        match event {
            Event::Created { config, question } => Ok(Self::new(*config, question.clone())),
            _ => Err(order(event, "a log begins with `created`")),
        }
    }

    /// Lets `event` happen.
    ///
    /// # Errors
    /// When it does not fit; nothing has changed then.
    pub fn apply(&mut self, event: &Event) -> Result<(), ApplyError> {
        match event {
            Event::Created { .. } => Err(order(event, "a log has one `created`, its first event")),
            Event::UpdateBegun { update, given } => self.update_begun(event, *update, given),
            Event::ChunkSeen { rank, chunk, key, .. } => self.chunk_seen(event, *rank, *chunk, key),
            Event::Duplicate { rank, of, .. } => self.duplicate(event, *rank, *of),
            Event::BatchChosen { chunks, .. } => self.batch_chosen(event, chunks),
            Event::Waited { .. } => self.waited(event),
            Event::Scored { scores, .. } => self.scored(event, scores),
            Event::Admitted { chunks, .. } => self.admitted(event, chunks),
            Event::Deferred { chunks, .. } => self.deferred(event, chunks),
            Event::Forgotten { chunks, .. } => self.forgotten(event, chunks),
            Event::Answered { update } => self.answered(event, *update),
        }
    }

    fn update_begun(&mut self, event: &Event, update: u32, given: &Arc<Update>) -> Result<(), ApplyError> {
        if self.pending.is_some() {
            return Err(order(event, "the update before it is not answered"));
        }
        if self.ids.contains_key(given.id.as_str()) {
            return Err(order(event, "an update of this id is answered already"));
        }
        number(event, "update", update, count(self.past.len() + 1))?;
        self.pending = Some(Pending {
            number: update,
            content: given.content(),
            given: Arc::clone(given),
            done: Vec::new(),
            current: Default::default(),
            stage: Stage::Sorting,
        });
        Ok(())
    }

    fn chunk_seen(&mut self, event: &Event, rank: u32, id: ChunkId, key: &Key) -> Result<(), ApplyError> {
        let pending = in_hand(&mut self.pending, event, |stage| *stage == Stage::Sorting)?;
        let result = next_result(pending, event, rank)?;
        if id.0 != self.next_chunk {
            return Err(chunk(event, id, "not the next number"));
        }
        if let Some(known) = self.keys.get(key) {
            return Err(chunk(event, *known, "the same one already"));
        }
        let turn = pending.turn();
        let first_seen = Place { update: turn.update, group: turn.group, rank };
        let chunk = Arc::clone(result);
        pending.current.results.push(Sighting { chunk: id, new: true });
        self.next_chunk += 1;
        self.keys.insert(key.clone(), id);
        let candidate = Candidate { id, first_seen, key: key.clone(), chunk, scores: Vec::new() };
        self.cache.insert(Arc::new(candidate));
        Ok(())
    }

    fn duplicate(&mut self, event: &Event, rank: u32, of: ChunkId) -> Result<(), ApplyError> {
        let pending = in_hand(&mut self.pending, event, |stage| *stage == Stage::Sorting)?;
        next_result(pending, event, rank)?;
        if self.cache.get(of).is_none() && !self.whitelist.contains_key(&of) {
            return Err(chunk(event, of, "neither in the cache nor in the whitelist"));
        }
        pending.current.results.push(Sighting { chunk: of, new: false });
        Ok(())
    }

    fn batch_chosen(&mut self, event: &Event, chunks: &[ChunkId]) -> Result<(), ApplyError> {
        let pending = sorted(&mut self.pending, event)?;
        if chunks.is_empty() {
            return Err(order(event, "a batch is not empty"));
        }
        all_once(event, chunks, |id| self.cache.get(id).is_some())?;
        pending.current.cached = self.cache.len();
        pending.stage = Stage::Scoring(chunks.to_vec());
        Ok(())
    }

    fn waited(&mut self, event: &Event) -> Result<(), ApplyError> {
        let pending = sorted(&mut self.pending, event)?;
        pending.current.cached = self.cache.len();
        pending.stage = Stage::Closing;
        Ok(())
    }

    fn scored(&mut self, event: &Event, scores: &[ChunkScore]) -> Result<(), ApplyError> {
        let pending = in_hand(&mut self.pending, event, |stage| matches!(stage, Stage::Scoring(_)))?;
        let turn = pending.turn();
        let same = matches!(&pending.stage, Stage::Scoring(batch) if scores.iter().map(|s| s.chunk).eq(batch.iter().copied()));
        if !same {
            return Err(order(event, "it must have the chunks of the batch, in its order"));
        }
        if let Some(wrong) = scores.iter().find(|s| !is_score(s.score)) {
            return Err(chunk(event, wrong.chunk, "without a score of allowed size"));
        }
        for &ChunkScore { chunk, score } in scores {
            self.cache.score(chunk, Score { turn, value: score });
            let mean =
                self.cache.get(chunk).and_then(|c| c.mean()).expect("it was just scored: this is a bug");
            pending.current.scores.push(BatchScore { chunk, score, mean });
        }
        pending.stage = Stage::Scored;
        Ok(())
    }

    fn admitted(&mut self, event: &Event, chunks: &[ChunkId]) -> Result<(), ApplyError> {
        let pending = in_hand(&mut self.pending, event, |stage| *stage == Stage::Scored)?;
        all_once(event, chunks, |id| self.cache.get(id).is_some_and(|c| !c.scores.is_empty()))?;
        let turn = pending.turn();
        for candidate in chunks.iter().filter_map(|id| self.cache.remove(*id)) {
            self.whitelist.insert(candidate.id, Arc::new(Admitted { candidate, turn }));
        }
        pending.current.admitted = chunks.to_vec();
        pending.stage = Stage::Closing;
        Ok(())
    }

    fn deferred(&mut self, event: &Event, chunks: &[ChunkId]) -> Result<(), ApplyError> {
        let pending = in_hand(&mut self.pending, event, |stage| *stage == Stage::Closing)?;
        all_once(event, chunks, |id| self.cache.get(id).is_some())?;
        pending.current.deferred = chunks.to_vec();
        close(pending);
        Ok(())
    }

    fn forgotten(&mut self, event: &Event, chunks: &[ChunkId]) -> Result<(), ApplyError> {
        let pending = in_hand(&mut self.pending, event, |stage| *stage == Stage::Closing)?;
        all_once(event, chunks, |id| self.cache.get(id).is_some())?;
        for candidate in chunks.iter().filter_map(|id| self.cache.remove(*id)) {
            self.keys.remove(&candidate.key);
        }
        pending.current.forgotten = chunks.to_vec();
        close(pending);
        Ok(())
    }

    fn answered(&mut self, event: &Event, update: u32) -> Result<(), ApplyError> {
        let done = |pending: &Pending| pending.done.len() == pending.given.groups.len();
        let Some(pending) = self.pending.take_if(|p| done(p) && p.number == update) else {
            return Err(order(event, "the groups of this update are not all done"));
        };
        let Pending { number, given, content, done, .. } = pending;
        let answer = Arc::new(Answer { update: number, id: given.id.clone(), groups: done });
        self.ids.insert(given.id.as_str().into(), self.past.len());
        self.past.push(Arc::new(Past { content, answer }));
        Ok(())
    }
}

fn close(pending: &mut Pending) {
    pending.done.push(mem::take(&mut pending.current));
    pending.stage = Stage::Sorting;
}
