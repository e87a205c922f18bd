//! The scheduler's state: sequences come, are settled, and go.
//!
//! Owns all sequences and the pool. How a step is chosen is in `planner.rs`. Tests: `tests.rs` and
//! `tests/sched_props.rs`.
//!
//! A sequence is in one of three sets, each in order of arrival: *waiting* (holds nothing), *running* (holds
//! the blocks of its computed positions), *finished* (done, but holds its blocks for forks that have not
//! started). A preempted sequence returns to its place among the waiting, before all that arrived later.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    plan::{Next, StepItem, StepPlan},
    sequence::{Arrival, Fork, NewSequence, Sequence, Want, max_blocks},
};
use crate::{
    ids::{BlockId, SeqId, TokenId},
    kv::{BLOCK_SIZE, KvPool},
};

/// Limits of a step. Zeros count as ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedConfig {
    /// Most tokens of one step, all sequences together.
    pub max_batched_tokens: usize,
    /// Most prefill tokens of one sequence in one step.
    pub prefill_chunk: usize,
    /// Most prefill tokens, all sequences together, of a step in which some sequence decodes: what bounds the time
    /// between two tokens of a chat while long prompts are computed.
    pub prefill_beside_decode: usize,
    /// Most running sequences, and one more where all of them generate and another scores, or the other way round.
    /// Whatever it is, no more than `max_batched_tokens` run, so that each can decode.
    pub max_sequences: usize,
}

/// Why a sequence was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// There is nothing to compute.
    #[error("sequence {0:?} has no tokens; a prompt needs at least one")]
    Empty(SeqId),
    /// The name is taken by a sequence that is not gone yet.
    #[error("sequence {0:?} exists already; finish or cancel it before its id is used again")]
    Duplicate(SeqId),
    /// The sequence alone would not fit.
    #[error(
        "the prompt and the tokens to generate need {needed} KV blocks of {BLOCK_SIZE} tokens but the pool has \
         {total}; shorten the prompt, lower max_tokens, or start the server with a larger KV pool"
    )]
    TooLong {
        /// Blocks the sequence needs in the end.
        needed: usize,
        /// Blocks of the pool.
        total: usize,
    },
}

/// How many sequences there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sequences that hold blocks and take part in steps.
    pub running: usize,
    /// Sequences that have not started, or were preempted.
    pub waiting: usize,
    /// How often a sequence was preempted since the scheduler was made.
    pub preemptions: u64,
}

/// Decides what each step computes.
#[derive(Debug)]
pub struct Scheduler {
    pub(super) config: SchedConfig,
    pub(super) pool: KvPool,
    arrivals: BTreeMap<SeqId, Arrival>,
    sequences: BTreeMap<Arrival, Sequence>,
    pub(super) waiting: BTreeSet<Arrival>,
    pub(super) running: BTreeSet<Arrival>,
    pub(super) finished: BTreeSet<Arrival>,
    next_arrival: Arrival,
    pub(super) preemptions: u64,
}

impl Scheduler {
    /// A scheduler without sequences. It owns the pool from now on.
    #[must_use]
    pub fn new(config: SchedConfig, pool: KvPool) -> Self {
        let config = SchedConfig {
            max_batched_tokens: config.max_batched_tokens.max(1),
            prefill_chunk: config.prefill_chunk.max(1),
            prefill_beside_decode: config.prefill_beside_decode.max(1),
            max_sequences: config.max_sequences.max(1),
        };
        Self {
            config,
            pool,
            arrivals: BTreeMap::new(),
            sequences: BTreeMap::new(),
            waiting: BTreeSet::new(),
            running: BTreeSet::new(),
            finished: BTreeSet::new(),
            next_arrival: 0,
            preemptions: 0,
        }
    }

    /// Queues a sequence.
    ///
    /// # Errors
    /// [`AddError`]; nothing has changed then.
    pub fn add(&mut self, seq: NewSequence) -> Result<(), AddError> {
        if seq.tokens.is_empty() {
            return Err(AddError::Empty(seq.id));
        }
        if self.arrivals.contains_key(&seq.id) {
            return Err(AddError::Duplicate(seq.id));
        }
        let (needed, total) = (max_blocks(seq.tokens.len(), seq.want), self.pool.stats().total);
        if needed > total {
            return Err(AddError::TooLong { needed, total });
        }
        let arrival = self.next_arrival;
        self.next_arrival += 1;
        let fork = seq.fork.and_then(|fork| self.useful_fork(&seq, fork));
        if let Some((parent, _)) = fork {
            self.seq_mut(parent).children.push(arrival);
        }
        self.arrivals.insert(seq.id, arrival);
        self.sequences.insert(arrival, Sequence::new(seq, fork));
        self.waiting.insert(arrival);
        Ok(())
    }

    /// Forgets a sequence and frees its blocks at once; unknown ids are ignored. Forks of it that have not
    /// started will start as if they had no parent.
    pub fn cancel(&mut self, id: SeqId) {
        if let Some(&arrival) = self.arrivals.get(&id) {
            self.remove(arrival);
            self.retire_parents();
        }
    }

    /// Gives up a sequence that could not be computed; the same as [`Scheduler::cancel`]. When a step fails as
    /// a whole, every sequence of its plan must be failed or cancelled: its copies may not have happened.
    pub fn fail(&mut self, id: SeqId) {
        self.cancel(id);
    }

    /// Takes in the outcome of a plan, before the next one is made. `next` says what became of items that were
    /// the last of their sequence (or ends a sequence early); an item without an entry just advances, but a
    /// last one is planned again. Sequences that are gone by now are passed over. Full blocks become
    /// reusable by others here.
    pub fn settle(&mut self, plan: &StepPlan, next: &[(SeqId, Next)]) {
        let next: BTreeMap<SeqId, Next> = next.iter().copied().collect();
        for item in &plan.items {
            let arrival =
                self.arrivals.get(&item.seq).copied().filter(|arrival| self.running.contains(arrival));
            if let Some(arrival) = arrival.filter(|&arrival| self.seq(arrival).computed == item.start) {
                self.settle_item(arrival, item, next.get(&item.seq).copied());
            }
        }
        self.retire_parents();
    }

    /// Prompt tokens the sequence did not have to compute when it first started: from the prefix cache or its
    /// fork parent. 0 until then. `None`: the sequence is unknown.
    #[must_use]
    pub fn cached_tokens(&self, id: SeqId) -> Option<usize> {
        self.by_id(id).map(|seq| seq.n_cached.unwrap_or(0))
    }

    /// Tokens planned for the sequence so far, those of the plan in flight included; positions computed again
    /// after a preemption count again. `None`: the sequence is unknown.
    #[must_use]
    pub fn computed_tokens(&self, id: SeqId) -> Option<usize> {
        self.by_id(id).map(|seq| seq.n_planned)
    }

    /// Whether the sequence holds blocks and takes part in steps.
    #[must_use]
    pub fn is_running(&self, id: SeqId) -> bool {
        self.arrivals.get(&id).is_some_and(|arrival| self.running.contains(arrival))
    }

    /// How many sequences there are now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { running: self.running.len(), waiting: self.waiting.len(), preemptions: self.preemptions }
    }

    /// Whether nothing is left to do. No block is in use then.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sequences.is_empty()
    }

    /// The block pool.
    #[must_use]
    pub fn pool(&self) -> &KvPool {
        &self.pool
    }

    /// The block pool, to clear its cache. Blocks taken from it here are missing to the sequences.
    pub fn pool_mut(&mut self) -> &mut KvPool {
        &mut self.pool
    }

    /// The fork in the scheduler's terms, or `None` if waiting for the parent can bring nothing.
    fn useful_fork(&self, seq: &NewSequence, fork: Fork) -> Option<(Arrival, usize)> {
        let arrival = *self.arrivals.get(&fork.parent)?;
        let parent = self.seq(arrival);
        let at = fork.at.min(seq.tokens.len() - 1);
        let done = self.finished.contains(&arrival) && parent.computed < at;
        let shares = at <= seq.recompute_from || seq.reuse;
        let useful = at > 0 && shares && !done && parent.salt == seq.salt && parent.depth >= seq.depth;
        useful.then_some((arrival, at))
    }

    fn settle_item(&mut self, arrival: Arrival, item: &StepItem, next: Option<Next>) {
        if item.last && next.is_none() {
            return;
        }
        let seq = self.seq_mut(arrival);
        seq.computed = item.end;
        seq.restart = false;
        if item.start / BLOCK_SIZE != item.end / BLOCK_SIZE {
            self.publish(arrival);
        }
        match next {
            Some(Next::Finish) => self.finish(arrival),
            Some(Next::Token(token)) => self.append(arrival, item, token),
            None => {}
        }
    }

    fn append(&mut self, arrival: Arrival, item: &StepItem, token: TokenId) {
        let seq = self.seq_mut(arrival);
        let Want::NextTokens { max_new } = seq.want else {
            panic!("{:?} wants rows but was given a token: this is a bug", seq.id);
        };
        assert!(item.last, "{:?} was given a token amid its prompt: this is a bug", seq.id);
        seq.tokens.push(token);
        let n_new = seq.tokens.len() - seq.n_prompt;
        assert!(n_new <= max_new, "{:?} was given more than {max_new} tokens: this is a bug", seq.id);
    }

    /// The sequence is done. It stays as long as forks that it can still serve wait for it.
    fn finish(&mut self, arrival: Arrival) {
        let seq = self.seq(arrival);
        let (computed, children) = (seq.computed, seq.children.clone());
        for child in children {
            if self.seq(child).fork.is_some_and(|(_, at)| at > computed) {
                self.unlink(child);
            }
        }
        self.running.remove(&arrival);
        self.finished.insert(arrival);
    }

    /// Lets finished sequences go for which no fork waits any more.
    pub(super) fn retire_parents(&mut self) {
        let done = |arrival: &Arrival| self.seq(*arrival).children.is_empty();
        let retired: Vec<Arrival> = self.finished.iter().copied().filter(done).collect();
        for arrival in retired {
            self.remove(arrival);
        }
    }

    /// Forgets a sequence, whatever it was doing, and frees its blocks.
    pub(super) fn remove(&mut self, arrival: Arrival) {
        self.unlink(arrival);
        let seq = self.sequences.remove(&arrival).expect("a sequence is removed once: this is a bug");
        for child in seq.children {
            self.seq_mut(child).fork = None;
        }
        self.pool.release(&seq.table);
        self.arrivals.remove(&seq.id);
        self.waiting.remove(&arrival);
        self.running.remove(&arrival);
        self.finished.remove(&arrival);
    }

    /// The sequence waits for its fork parent no longer.
    pub(super) fn unlink(&mut self, arrival: Arrival) {
        if let Some((parent, _)) = self.seq_mut(arrival).fork.take() {
            self.seq_mut(parent).children.retain(|&child| child != arrival);
        }
    }

    /// Offers the computed full blocks to the prefix cache.
    pub(super) fn publish(&mut self, arrival: Arrival) {
        let seq = self.sequences.get(&arrival).expect("a queued sequence exists: this is a bug");
        self.pool.publish(&seq.salt, &seq.tokens, &seq.table, seq.computed, seq.depth);
    }

    /// Takes cached blocks that the sequence can start from.
    pub(super) fn match_cached(&mut self, arrival: Arrival) -> Vec<BlockId> {
        let seq = self.sequences.get(&arrival).expect("a queued sequence exists: this is a bug");
        let limit = if seq.reuse { seq.reusable() } else { 0 };
        self.pool.match_prefix(&seq.salt, &seq.tokens, seq.depth, limit)
    }

    pub(super) fn seq(&self, arrival: Arrival) -> &Sequence {
        self.sequences.get(&arrival).expect("a queued sequence exists: this is a bug")
    }

    pub(super) fn seq_mut(&mut self, arrival: Arrival) -> &mut Sequence {
        self.sequences.get_mut(&arrival).expect("a queued sequence exists: this is a bug")
    }

    fn by_id(&self, id: SeqId) -> Option<&Sequence> {
        self.arrivals.get(&id).map(|&arrival| self.seq(arrival))
    }
}
