//! Driving a context: decisions are applied and collected until scores are needed or the answer stands.

use std::{mem, sync::Arc};

use super::{
    Answer, ApplyError, Batch, BeginError, Begun, CommitError, Config, Event, Plan, ReplayError, State,
    Update,
};

/// A state, and the events that led to it and are not stored yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    state: State,
    fresh: Vec<Event>,
}

/// What the caller does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Score this batch and [`Context::commit`] the scores.
    Score(Batch),
    /// Give this answer; the update is done.
    Done(Arc<Answer>),
}

impl Context {
    /// A new context, with its first event.
    #[must_use]
    pub fn new(config: Config, question: &str) -> Self {
        let question = question.to_owned();
        let state = State::new(config, question.clone());
        Self { state, fresh: vec![Event::Created { config, question }] }
    }

    /// The context that stored events led to. None of them is given again.
    ///
    /// # Errors
    /// As [`State::replay`].
    pub fn replay<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<Self, ReplayError> {
        Ok(Self { state: State::replay(events)?, fresh: Vec::new() })
    }

    /// Goes on by a stored event that others decided. It is not given again.
    ///
    /// # Errors
    /// As [`State::apply`]; nothing has changed then.
    pub fn follow(&mut self, event: &Event) -> Result<(), ApplyError> {
        self.state.apply(event)
    }

    /// What it is now.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The events since this was last called, oldest first: what a log needs.
    pub fn take_events(&mut self) -> Vec<Event> {
        mem::take(&mut self.fresh)
    }

    /// Begins `update`, or goes on with it if it is in progress, or gives the recorded answer if it is done.
    ///
    /// # Errors
    /// As [`State::begin`]; nothing has changed then.
    pub fn begin(&mut self, update: Update) -> Result<Step, BeginError> {
        match self.state.begin(update)? {
            Begun::Answered(answer) => return Ok(Step::Done(answer)),
            Begun::New(event) => self.record(event),
            Begun::Pending => {}
        }
        Ok(self.advance())
    }

    /// Takes the scores of the batch that is awaited, in its order.
    ///
    /// # Errors
    /// As [`State::commit`]; nothing has changed then, and the batch is still awaited.
    pub fn commit(&mut self, batch: &Batch, scores: &[f64]) -> Result<Step, CommitError> {
        let event = self.state.commit(batch, scores)?;
        self.record(event);
        Ok(self.advance())
    }

    fn advance(&mut self) -> Step {
        loop {
            match self.state.plan() {
                Plan::Decide(event) => self.record(event),
                Plan::Score(batch) => return Step::Score(batch),
                Plan::Nothing => {
                    let last = self.state.past.last().expect("an update was just done: this is a bug");
                    return Step::Done(Arc::clone(&last.answer));
                }
            }
        }
    }

    fn record(&mut self, event: Event) {
        self.state.apply(&event).expect("a decision fits the state it was taken in: this is a bug");
        self.fresh.push(event);
    }
}
