//! The engine's thread: receive, plan, run, settle.

use std::{
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvError, TryRecvError},
    },
    time::Instant,
};

use tokio::sync::{mpsc as tokio_mpsc, oneshot};

use super::{
    Command, EngineConfig, EngineError, GenerateRequest, RowsOutput, RowsRequest, Shared, Token, TokenMask,
    jobs::{Generation, Jobs},
    step::{Device, ItemResult, guarded},
};
use crate::{
    ids::{BLOCK_SIZE, Depth, SeqId},
    kv::KvPool,
    model::Decoder,
    ops::{Cpu, KvStore, PageLayout},
    sched::{AddError, Fork, NewSequence, Next, Scheduler, StepItem, StepPlan, Want},
};

/// Makes the device's memory and threads, then lets the engine loose.
pub(super) fn spawn(
    decoder: Box<dyn Decoder>,
    config: &EngineConfig,
    inbox: Receiver<Command>,
    shared: Arc<Shared>,
) -> Result<(), String> {
    let spec = decoder.spec();
    let layout = PageLayout { n_kv_heads: spec.n_kv_heads, head_dim: spec.head_dim };
    let kv = KvStore::new(spec.n_layers, config.kv_blocks, layout, decoder.kv_float())
        .map_err(|e| format!("no memory for {} KV blocks: {e}", config.kv_blocks))?;
    let engine = Engine {
        n_layers: spec.n_layers,
        device: Device { decoder, kv, cpu: Cpu::new(config.threads) },
        sched: Scheduler::new(config.sched, KvPool::new(config.kv_blocks)),
        jobs: Jobs::default(),
        config: config.clone(),
        shared,
    };
    let thread = std::thread::Builder::new().name("engine".into()).spawn(move || engine.run(&inbox));
    thread.map(drop).map_err(|e| format!("cannot start the engine thread: {e}"))
}

/// Says that the engine has stopped, however it did.
struct SignOff(Arc<Shared>);

impl Drop for SignOff {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }
}

struct Engine {
    n_layers: usize,
    device: Device,
    sched: Scheduler,
    jobs: Jobs,
    config: EngineConfig,
    shared: Arc<Shared>,
}

impl Engine {
    /// Until every handle is gone and all work is done.
    fn run(mut self, inbox: &Receiver<Command>) {
        let _sign = SignOff(Arc::clone(&self.shared));
        while self.receive(inbox) {
            for id in self.jobs.abandoned() {
                self.give_up(id, &EngineError::Stopped);
            }
            let plan = self.sched.plan();
            self.note_stats();
            if plan.items.is_empty() {
                self.give_up_all();
            } else {
                self.step(&plan);
            }
            self.note_stats();
        }
    }

    /// Takes in waiting commands; blocks when there is nothing else to do. False at the end.
    fn receive(&mut self, inbox: &Receiver<Command>) -> bool {
        if self.jobs.is_empty() {
            self.check_idle();
            match inbox.recv() {
                Ok(command) => self.accept(command),
                Err(RecvError) => return false,
            }
        }
        loop {
            match inbox.try_recv() {
                Ok(command) => self.accept(command),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return !self.jobs.is_empty(),
            }
        }
    }

    /// With nothing in flight no KV may be held. A leak is a bug, but no reason to stop serving.
    fn check_idle(&self) {
        let pool = self.sched.pool();
        let broken = pool.check().err().or_else(|| {
            let in_use = pool.stats().in_use;
            let idle = in_use == 0 && self.sched.is_idle();
            (!idle).then(|| format!("{in_use} KV blocks are held while no request is in flight"))
        });
        if let Some(error) = broken {
            tracing::error!(error, "KV bookkeeping: this is a bug");
            self.shared.stats().leaks += 1;
        }
    }

    fn accept(&mut self, command: Command) {
        match command {
            Command::Generate(request, submitted, masks, replies) => {
                self.accept_generate(&request, submitted, masks, replies);
            }
            Command::Rows(request, submitted, reply) => self.accept_rows(request, submitted, reply),
            Command::ClearCache(done) => {
                self.sched.pool_mut().clear_cache();
                let _ = done.send(());
            }
        }
    }

    /// The first continuation computes the prompt; the others fork off before its last token.
    fn accept_generate(
        &mut self,
        request: &GenerateRequest,
        submitted: Instant,
        masks: Vec<Box<dyn TokenMask>>,
        replies: Vec<tokio_mpsc::UnboundedSender<Result<Token, EngineError>>>,
    ) {
        let mut first = None;
        let mut masks = masks.into_iter();
        for (continuation, reply) in replies.into_iter().enumerate() {
            let (id, mask) = (self.jobs.next_id(), masks.next());
            let at = request.prompt.len() - 1;
            let sequence = NewSequence {
                id,
                tokens: request.prompt.clone(),
                salt: request.salt.clone(),
                depth: Depth(self.n_layers as u16),
                recompute_from: at,
                want: Want::NextTokens { max_new: request.max_new },
                fork: first.filter(|_| at > 0).map(|parent| Fork { parent, at }),
                reuse: self.config.prefix_cache,
            };
            match self.sched.add(sequence) {
                Ok(()) => {
                    let generation = Generation::new(request, submitted, continuation, mask, reply);
                    self.jobs.add_generation(id, generation);
                }
                Err(e) => drop(reply.send(Err(refusal(&e)))),
            }
            first.get_or_insert(id);
        }
    }

    /// The first tail computes the prefix (and reads the control); the others fork off at its end.
    fn accept_rows(
        &mut self,
        request: RowsRequest,
        submitted: Instant,
        reply: oneshot::Sender<Result<RowsOutput, EngineError>>,
    ) {
        let prefix = request.prefix.len();
        let deepest = request.heads.iter().map(|h| h.layer).max().unwrap_or(0);
        let depth = if self.config.early_exit { Depth(deepest) } else { Depth(self.n_layers as u16) };
        let mut sequences = Vec::new();
        for tail in &request.tails {
            let id = self.jobs.next_id();
            let reads = tail.reads.iter().map(|read| read.tokens.start);
            let first_read = prefix + reads.min().expect("a tail is read somewhere: this is a bug");
            let first = sequences.first().copied();
            let sequence = NewSequence {
                id,
                tokens: [request.prefix.as_slice(), &tail.tokens].concat(),
                salt: request.salt.clone(),
                depth,
                recompute_from: if first.is_none() && request.control { prefix - 1 } else { first_read },
                want: Want::Rows,
                fork: first.map(|parent| Fork { parent, at: prefix }),
                reuse: self.config.prefix_cache,
            };
            if let Err(e) = self.sched.add(sequence) {
                sequences.iter().for_each(|&id| self.sched.cancel(id));
                return drop(reply.send(Err(refusal(&e))));
            }
            sequences.push(id);
        }
        self.jobs.add_rows(&sequences, request, submitted, reply);
    }

    fn step(&mut self, plan: &StepPlan) {
        let now = Instant::now();
        let results = self.device.run(plan, &self.jobs);
        self.shared.stats().steps += 1;
        let mut next = Vec::new();
        let mut failed = Vec::new();
        for (item, result) in plan.items.iter().zip(results) {
            self.count(item);
            let told = result.and_then(|result| guarded(|| Ok(self.deliver(item, result, now))));
            match told.unwrap_or_else(|reason| Err(EngineError::Failed { reason })) {
                Ok(Some(outcome)) => next.push((item.seq, outcome)),
                Ok(None) => {}
                Err(error) => failed.push((item.seq, error)),
            }
        }
        for (id, error) in failed {
            // a mask that cannot be made is no fault of the server, and its reason may quote the caller
            if let EngineError::Failed { .. } = error {
                tracing::error!(sequence = id.0, %error, "request failed");
            }
            self.give_up(id, &error);
        }
        self.sched.settle(plan, &next);
    }

    /// Hands an item's results to its request; what the scheduler is to do with the sequence.
    fn deliver(
        &mut self,
        item: &StepItem,
        result: ItemResult,
        now: Instant,
    ) -> Result<Option<Next>, EngineError> {
        self.jobs.begin(item, now);
        for (heads, rows) in &result.rows {
            self.jobs.add_rows_read(item, heads, rows);
        }
        let cached = self.sched.cached_tokens(item.seq).unwrap_or(0);
        self.jobs.finish_item(item, result.logits, cached)
    }

    fn give_up(&mut self, id: SeqId, error: &EngineError) {
        for id in self.jobs.fail(id, error) {
            self.sched.fail(id);
        }
    }

    /// The scheduler always has something to run while there is work; if not, nobody may wait for ever.
    fn give_up_all(&mut self) {
        let error =
            EngineError::Failed { reason: "the scheduler found nothing to run: this is a bug".into() };
        for id in self.jobs.ids() {
            tracing::error!(sequence = id.0, %error, "request failed");
            self.give_up(id, &error);
        }
    }

    /// Before an item's results are handed over.
    fn count(&self, item: &StepItem) {
        let mut stats = self.shared.stats();
        let (generating, computed) = (self.jobs.generating(item.seq), (item.end - item.start) as u64);
        if item.restart {
            let hits = self.sched.cached_tokens(item.seq).unwrap_or(0) as u64;
            stats.prefix_hits += hits;
            stats.prefix_queries += hits;
        }
        if generating != Some(true) || computed > 1 || item.restart {
            stats.prefill_tokens += computed;
            stats.prefix_queries += computed;
        }
        stats.generated_tokens += u64::from(item.last && generating.is_some());
    }

    fn note_stats(&self) {
        let counts = self.sched.counts();
        let mut stats = self.shared.stats();
        stats.running = counts.running;
        stats.waiting = counts.waiting;
        stats.preemptions = counts.preemptions;
        stats.kv = self.sched.pool().stats();
    }
}

/// Why the scheduler will not take a sequence.
fn refusal(error: &AddError) -> EngineError {
    match error {
        AddError::TooLong { needed, total } => {
            EngineError::TooLong { needed: needed * BLOCK_SIZE, capacity: total * BLOCK_SIZE }
        }
        other => EngineError::Failed { reason: other.to_string() },
    }
}
