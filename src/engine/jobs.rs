//! The requests in flight: which sequence works for whom, and what it has yielded so far.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Instant,
};

use tokio::sync::{mpsc, oneshot};

use super::{
    EngineError, Finish, GenerateRequest, Over, Phases, RowsOutput, RowsRequest, Tail, Token, TokenMask,
    rows::RowMean,
    sample::{NoToken, Sampler},
};
use crate::{
    ids::{HeadRef, SeqId, Span, TokenId},
    model::Output,
    ops::AttentionRows,
    sched::{Next, StepItem},
};

/// What a sequence works for.
pub(super) enum Work {
    /// One continuation.
    Generate(Box<Generation>),
    /// One tail of a rows request.
    Read { job: u64, tail: usize },
}

/// One continuation.
pub(super) struct Generation {
    sampler: Sampler,
    left: usize,
    has_begun: bool,
    submitted: Instant,
    started: Option<Instant>,
    stop_tokens: Vec<TokenId>,
    reply: mpsc::UnboundedSender<Result<Token, EngineError>>,
}

/// One rows request; its sequences share it.
pub(super) struct RowsJob {
    request: RowsRequest,
    control: RowMean,
    /// Per tail and read.
    tails: Vec<Vec<RowMean>>,
    unfinished: usize,
    cached_tokens: usize,
    computed_tokens: usize,
    submitted: Instant,
    started: Option<Instant>,
    /// Taken when the answer is sent.
    reply: Option<oneshot::Sender<Result<RowsOutput, EngineError>>>,
    sequences: Vec<SeqId>,
}

/// What is read in one item.
pub(super) struct Reading<'a> {
    /// The heads, sorted.
    pub(super) heads: &'a [HeadRef],
    /// Candidate tokens.
    pub(super) candidates: &'a [Span],
    /// Tokens that each read position sees, where rows over all of them are wanted.
    pub(super) visible: Option<Vec<usize>>,
}

/// All requests in flight.
#[derive(Default)]
pub(super) struct Jobs {
    work: BTreeMap<SeqId, Work>,
    rows: HashMap<u64, RowsJob>,
    next: u64,
}

impl Generation {
    pub(super) fn new(
        request: &GenerateRequest,
        submitted: Instant,
        continuation: usize,
        mask: Option<Box<dyn TokenMask>>,
        reply: mpsc::UnboundedSender<Result<Token, EngineError>>,
    ) -> Self {
        let mut sampling = request.sampling.clone();
        sampling.seed = sampling.seed.wrapping_add(continuation as u64);
        Self {
            sampler: Sampler::new(sampling, request.logprobs, &request.prompt).masked(mask),
            left: request.max_new,
            has_begun: false,
            submitted,
            started: None,
            stop_tokens: request.stop_tokens.clone(),
            reply,
        }
    }

    /// Chooses and reports the next token.
    fn advance(&mut self, logits: Vec<f32>, cached_tokens: usize) -> Result<Next, NoToken> {
        let (id, logprobs) = self.sampler.next(logits)?;
        self.left -= 1;
        let phases = (!self.has_begun).then(|| phases(self.submitted, self.started));
        self.has_begun = true;
        let stopped = self.stop_tokens.contains(&id).then_some(Finish::StopToken);
        let finish = stopped.or((self.left == 0).then_some(Finish::Length));
        // a closed channel is noticed, and the sequence cancelled, before the next step
        let _ = self.reply.send(Ok(Token { id, logprobs, finish, cached_tokens, phases }));
        Ok(if finish.is_some() { Next::Finish } else { Next::Token(id) })
    }
}

impl RowsJob {
    fn new(
        request: RowsRequest,
        submitted: Instant,
        reply: oneshot::Sender<Result<RowsOutput, EngineError>>,
    ) -> Self {
        let mean = RowMean::new(&request.heads, &request.candidates);
        Self {
            tails: request.tails.iter().map(|tail| vec![mean.clone(); tail.reads.len()]).collect(),
            control: mean,
            unfinished: request.tails.len(),
            cached_tokens: 0,
            computed_tokens: 0,
            submitted,
            started: None,
            reply: Some(reply),
            sequences: Vec::new(),
            request,
        }
    }

    /// Read positions inside an item of the sequence that runs `tail`, ascending. The first tail also reads the control.
    fn reads(&self, tail: usize, item: &StepItem) -> Vec<usize> {
        let prefix = self.request.prefix.len();
        let reads = self.request.tails[tail].reads.iter().flat_map(|r| r.tokens.range());
        let control = (tail == 0 && self.request.control).then_some(prefix - 1);
        let within = |p: &usize| (item.start..item.end).contains(p);
        let positions: BTreeSet<usize> =
            control.into_iter().chain(reads.map(|t| prefix + t)).filter(within).collect();
        positions.into_iter().collect()
    }

    /// Takes in the rows of one layer, `[reads in the item][heads here]`.
    fn add(&mut self, tail: usize, item: &StepItem, heads: &[usize], read: &AttentionRows) {
        let n: usize = self.request.candidates.iter().map(|s| s.len()).sum();
        let prefix = self.request.prefix.len();
        for (i, position) in self.reads(tail, item).into_iter().enumerate() {
            for (j, &head) in heads.iter().enumerate() {
                let at = i * heads.len() + j;
                let row = &read.rows[at * n..][..n];
                let Some(token) = position.checked_sub(prefix) else {
                    self.control.add(head, row, 1.0);
                    continue;
                };
                let reads = self.request.tails[tail].reads.iter().zip(&mut self.tails[tail]);
                for (read_of, mean) in reads.filter(|(r, _)| r.tokens.range().contains(&token)) {
                    let weight = match read_of.over {
                        Over::Candidates => 1.0,
                        Over::Visible => f64::from(read.shares[at]),
                    };
                    mean.add(head, row, weight);
                }
            }
        }
    }

    fn output(&self) -> Result<RowsOutput, String> {
        let tail = |(means, tail): (&Vec<RowMean>, &Tail)| {
            means.iter().zip(&tail.reads).map(|(mean, read)| mean.mean(read.tokens.len())).collect()
        };
        let tails = self.tails.iter().zip(&self.request.tails).map(tail);
        Ok(RowsOutput {
            control: self.request.control.then(|| self.control.mean(1)).transpose()?,
            tails: tails.collect::<Result<_, String>>()?,
            cached_tokens: self.cached_tokens,
            computed_tokens: self.computed_tokens,
            phases: phases(self.submitted, self.started),
        })
    }
}

/// Of a request whose prompt is computed now.
fn phases(submitted: Instant, started: Option<Instant>) -> Phases {
    Phases { submitted, started: started.unwrap_or(submitted), prefilled: Instant::now() }
}

impl Jobs {
    pub(super) fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// All sequences in flight.
    pub(super) fn ids(&self) -> Vec<SeqId> {
        self.work.keys().copied().collect()
    }

    /// A name for one more sequence.
    pub(super) fn next_id(&mut self) -> SeqId {
        self.next += 1;
        SeqId(self.next)
    }

    pub(super) fn add_generation(&mut self, id: SeqId, generation: Generation) {
        self.work.insert(id, Work::Generate(Box::new(generation)));
    }

    /// Notes a rows request whose tail `i` is run by `sequences[i]`.
    pub(super) fn add_rows(
        &mut self,
        sequences: &[SeqId],
        request: RowsRequest,
        submitted: Instant,
        reply: oneshot::Sender<Result<RowsOutput, EngineError>>,
    ) {
        let job = sequences[0].0;
        for (tail, &id) in sequences.iter().enumerate() {
            self.work.insert(id, Work::Read { job, tail });
        }
        let rows = RowsJob { sequences: sequences.to_vec(), ..RowsJob::new(request, submitted, reply) };
        self.rows.insert(job, rows);
    }

    /// Sequences whose caller has gone.
    pub(super) fn abandoned(&self) -> Vec<SeqId> {
        let gone = |work: &Work| match work {
            Work::Generate(g) => g.reply.is_closed(),
            Work::Read { job, .. } => self.rows[job].reply.as_ref().is_none_or(oneshot::Sender::is_closed),
        };
        self.work.iter().filter(|(_, w)| gone(w)).map(|(id, _)| *id).collect()
    }

    /// What the model is to hand back for an item.
    pub(super) fn output(&self, item: &StepItem) -> Output {
        match &self.work[&item.seq] {
            Work::Generate(_) if item.last => Output::Logits,
            Work::Generate(_) => Output::Nothing,
            Work::Read { job, tail } => {
                let reads = self.rows[job].reads(*tail, item).into_iter();
                let reads: Vec<usize> = reads.map(|p| p - item.start).collect();
                let heads = &self.rows[job].request.heads;
                if reads.is_empty() {
                    Output::Nothing
                } else {
                    Output::Queries { reads, heads: heads.clone() }
                }
            }
        }
    }

    /// Whether an item belongs to a continuation, and if so, whether that has yielded a token before.
    pub(super) fn generating(&self, id: SeqId) -> Option<bool> {
        match &self.work[&id] {
            Work::Generate(generation) => Some(generation.has_begun),
            Work::Read { .. } => None,
        }
    }

    /// What the rows request that an item works for reads of it.
    pub(super) fn reading(&self, item: &StepItem) -> Option<Reading<'_>> {
        let Work::Read { job, tail } = &self.work[&item.seq] else { return None };
        let request = &self.rows[job].request;
        let whole = request.tails[*tail].reads.iter().any(|read| read.over == Over::Visible);
        let seen = || self.rows[job].reads(*tail, item).iter().map(|p| p + 1).collect();
        Some(Reading { heads: &request.heads, candidates: &request.candidates, visible: whole.then(seen) })
    }

    /// Before the results of an item are taken in: counts it, and forgets what an earlier start had read. `now`: when its
    /// step began.
    pub(super) fn begin(&mut self, item: &StepItem, now: Instant) {
        match self.work.get_mut(&item.seq).expect("an item's sequence is in flight: this is a bug") {
            Work::Generate(generation) => {
                generation.started.get_or_insert(now);
            }
            Work::Read { job, tail } => {
                let job = self.rows.get_mut(job).expect("a reader's job is in flight: this is a bug");
                job.started.get_or_insert(now);
                job.computed_tokens += item.end - item.start;
                if item.restart {
                    job.tails[*tail].iter_mut().for_each(RowMean::reset);
                    if *tail == 0 {
                        job.control.reset();
                    }
                }
            }
        }
    }

    /// Takes in attention rows of one layer for an item.
    pub(super) fn add_rows_read(&mut self, item: &StepItem, heads: &[usize], rows: &AttentionRows) {
        if let Work::Read { job, tail } = &self.work[&item.seq] {
            let job = self.rows.get_mut(job).expect("a reader's job is in flight: this is a bug");
            job.add(*tail, item, heads, rows);
        }
    }

    /// After a last item: chooses a token, or completes a tail and perhaps the request. `None` for other items.
    ///
    /// # Errors
    /// When the result is unusable; the caller fails the sequence.
    pub(super) fn finish_item(
        &mut self,
        item: &StepItem,
        logits: Option<Vec<f32>>,
        cached_tokens: usize,
    ) -> Result<Option<Next>, EngineError> {
        if !item.last {
            return Ok(None);
        }
        match self.work.get_mut(&item.seq).expect("an item's sequence is in flight: this is a bug") {
            Work::Generate(generation) => {
                let logits = logits.ok_or_else(|| failed("the model gave no logits"))?;
                let next = generation.advance(logits, cached_tokens).map_err(|error| match error {
                    NoToken::Mask { reason } => EngineError::Mask { reason },
                    other => failed(&other),
                })?;
                if next == Next::Finish {
                    self.work.remove(&item.seq);
                }
                Ok(Some(next))
            }
            Work::Read { job, tail } => {
                let (id, tail) = (*job, *tail);
                let job = self.rows.get_mut(&id).expect("a reader's job is in flight: this is a bug");
                if tail == 0 {
                    job.cached_tokens = cached_tokens;
                }
                job.unfinished -= 1;
                if job.unfinished == 0 {
                    let output = job.output().map_err(|e| failed(&e))?;
                    if let Some(reply) = job.reply.take() {
                        let _ = reply.send(Ok(output));
                    }
                    self.rows.remove(&id);
                }
                self.work.remove(&item.seq);
                Ok(Some(Next::Finish))
            }
        }
    }

    /// Gives up the request that `id` works for; says why to its caller, and names all its sequences.
    pub(super) fn fail(&mut self, id: SeqId, error: &EngineError) -> Vec<SeqId> {
        match self.work.remove(&id) {
            None => Vec::new(),
            Some(Work::Generate(generation)) => {
                let _ = generation.reply.send(Err(error.clone()));
                vec![id]
            }
            Some(Work::Read { job, .. }) => {
                let Some(mut job) = self.rows.remove(&job) else { return vec![id] };
                if let Some(reply) = job.reply.take() {
                    let _ = reply.send(Err(error.clone()));
                }
                for sequence in &job.sequences {
                    self.work.remove(sequence);
                }
                job.sequences
            }
        }
    }
}

fn failed(reason: &(impl ToString + ?Sized)) -> EngineError {
    EngineError::Failed { reason: reason.to_string() }
}
