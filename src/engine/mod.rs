//! Owns the device: one thread that plans a step, runs one forward pass, and settles it, over and over.
//!
//! Requests come in as token ids and leave as token ids or attention rows; the engine knows no text, no HTTP, no score.
//! Callers hold an [`EngineHandle`]; dropping what a call returned cancels it, and its KV is free at the next step.

mod jobs;
mod rows;
pub mod sample;
mod step;
mod thread;

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use tokio::sync::{mpsc as tokio_mpsc, oneshot};

pub use sample::{Logprobs, Sampling, TokenMask};

use crate::{
    ids::{HeadRef, Span, TokenId},
    kv::{PoolStats, Salt},
    model::{Decoder, DecoderSpec},
    sched::SchedConfig,
    score::Rows,
};

/// How an engine runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// KV blocks in the pool.
    pub kv_blocks: usize,
    /// Step budget, prefill chunk, most sequences at once.
    pub sched: SchedConfig,
    /// Threads of the kernels.
    pub threads: usize,
    /// Read the prefix cache. Off, every prompt is computed whole.
    pub prefix_cache: bool,
    /// Stop scoring passes at the deepest head. Off, they run every layer.
    pub early_exit: bool,
}

/// A prompt to continue.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateRequest {
    /// Token ids, at least one.
    pub prompt: Vec<TokenId>,
    /// How tokens are chosen; continuation `i` of several uses seed `seed + i`.
    pub sampling: Sampling,
    /// Most tokens to generate, at least 1.
    pub max_new: usize,
    /// Tokens that end the continuation; the one that does is reported.
    pub stop_tokens: Vec<TokenId>,
    /// Number of top log-probabilities per token; `Some(0)` is only the chosen one's.
    pub logprobs: Option<usize>,
    /// Independent continuations of the one prompt, at least 1. The prompt is computed once.
    pub n: usize,
    /// Whose cached KV may be used.
    pub salt: Salt,
}

/// Why a continuation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// A stop token.
    StopToken,
    /// `max_new` tokens.
    Length,
}

/// When the engine did what for a request; each is not before the one above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// The request was handed over.
    pub submitted: Instant,
    /// Its first step began.
    pub started: Instant,
    /// Its prompt was computed: the first token, or the rows, were there.
    pub prefilled: Instant,
}

impl Phases {
    /// How long it waited.
    #[must_use]
    pub fn queue(&self) -> Duration {
        self.started - self.submitted
    }

    /// How long its prompt took.
    #[must_use]
    pub fn prefill(&self) -> Duration {
        self.prefilled - self.started
    }
}

/// One generated token.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// The token.
    pub id: TokenId,
    /// Where asked for.
    pub logprobs: Option<Logprobs>,
    /// Set on the last token.
    pub finish: Option<Finish>,
    /// Prompt tokens that were not computed but found in the prefix cache.
    pub cached_tokens: usize,
    /// Set on the first token.
    pub phases: Option<Phases>,
}

/// Tokens of one continuation as they come. Ends after the token with `finish`, or with an error.
pub type Tokens = tokio_mpsc::UnboundedReceiver<Result<Token, EngineError>>;

/// Attention rows to read from one prefix with one or more tails.
#[derive(Clone, Debug, PartialEq)]
pub struct RowsRequest {
    /// Tokens shared by all tails; at least one.
    pub prefix: Vec<TokenId>,
    /// Tails, at least one, none empty. Tail `i` continues the prefix on its own.
    pub tails: Vec<Tail>,
    /// Also read the row of the prefix's last token: the query-free control.
    pub control: bool,
    /// Heads to read, sorted.
    pub heads: Vec<HeadRef>,
    /// Candidate tokens: ascending, disjoint spans inside the prefix, at least one token in all.
    pub candidates: Vec<Span>,
    /// Whose cached KV may be used.
    pub salt: Salt,
}

/// One tail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Its tokens.
    pub tokens: Vec<TokenId>,
    /// What is read of it: at least one.
    pub reads: Vec<TailRead>,
}

/// Some tokens of a tail, whose attention rows are averaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailRead {
    /// Which tokens, counted from the tail's first; at least one.
    pub tokens: Span,
    /// What each row is normalised over before the average.
    pub over: Over,
}

/// What an attention row is normalised over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The candidate tokens: restricted rows, which sum to 1.
    Candidates,
    /// All tokens the read position sees, as the model's own softmax: the row's part on the candidates, which sums to
    /// their share of the attention.
    Visible,
}

impl Tail {
    /// A tail whose last `reads` tokens are read, restricted to the candidates.
    ///
    /// # Panics
    /// When the tail has fewer tokens: a bug in the caller.
    #[must_use]
    pub fn read_last(tokens: Vec<TokenId>, reads: usize) -> Self {
        let over_last = Span::new(tokens.len() - reads, tokens.len());
        Self { tokens, reads: vec![TailRead { tokens: over_last, over: Over::Candidates }] }
    }
}

/// What was read.
#[derive(Clone, Debug, PartialEq)]
pub struct RowsOutput {
    /// The control's rows, `[heads, candidate tokens]`, where asked for.
    pub control: Option<Rows>,
    /// Per tail, the rows of each of its reads.
    pub tails: Vec<Vec<Rows>>,
    /// Tokens of the first tail's input whose KV was found in the prefix cache. What the other tails share with the first
    /// is not counted.
    pub cached_tokens: usize,
    /// Tokens that were computed, in all.
    pub computed_tokens: usize,
    /// When it was done.
    pub phases: Phases,
}

/// A request that the engine could not finish.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The KV pool could never hold it.
    #[error(
        "the request needs KV for {needed} tokens, the whole pool holds {capacity}; raise --kv-tokens or shorten it"
    )]
    TooLong {
        /// Tokens it needs room for.
        needed: usize,
        /// Tokens the pool holds.
        capacity: usize,
    },
    /// The forward pass failed or panicked on it. Other requests are not affected.
    #[error("the model failed on this request: {reason}")]
    Failed {
        /// What it said.
        reason: String,
    },
    /// What the answer must look like is too much for its mask.
    #[error("what may come next could not be told: {reason}")]
    Mask {
        /// The mask's words.
        reason: String,
    },
    /// The engine has shut down.
    #[error("the engine has stopped")]
    Stopped,
}

/// What the engine is doing and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Sequences that hold KV.
    pub running: usize,
    /// Sequences that wait for room.
    pub waiting: usize,
    /// Times a sequence was put back for lack of KV.
    pub preemptions: u64,
    /// Forward passes.
    pub steps: u64,
    /// Prompt tokens computed.
    pub prefill_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Prompt tokens looked up in the prefix cache.
    pub prefix_queries: u64,
    /// Prompt tokens found there.
    pub prefix_hits: u64,
    /// Times KV was held, or its bookkeeping contradicted itself, while nothing was in flight: bugs.
    pub leaks: u64,
    /// The KV pool.
    pub kv: PoolStats,
}

/// The way to an engine; cheap to clone. The engine stops when the last handle is gone and its work is done.
#[derive(Clone)]
pub struct EngineHandle {
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
}

struct Shared {
    spec: DecoderSpec,
    kv_blocks: usize,
    stats: Mutex<EngineStats>,
    stopped: AtomicBool,
}

impl Shared {
    fn stats(&self) -> MutexGuard<'_, EngineStats> {
        self.stats.lock().expect("nothing panics while it holds the stats: this is a bug")
    }
}

enum Command {
    /// With when it was handed over.
    Generate(
        GenerateRequest,
        Instant,
        Vec<Box<dyn TokenMask>>,
        Vec<tokio_mpsc::UnboundedSender<Result<Token, EngineError>>>,
    ),
    Rows(RowsRequest, Instant, oneshot::Sender<Result<RowsOutput, EngineError>>),
    ClearCache(oneshot::Sender<()>),
}

impl EngineHandle {
    /// Starts the engine's thread on `decoder`.
    ///
    /// # Errors
    /// When the KV pool or the kernel threads cannot be made; the message says why.
    pub fn start(decoder: Box<dyn Decoder>, config: &EngineConfig) -> Result<Self, String> {
        let (commands, inbox) = mpsc::channel();
        let spec = decoder.spec().clone();
        let stats = EngineStats {
            kv: PoolStats { total: config.kv_blocks, free: config.kv_blocks, ..PoolStats::default() },
            ..EngineStats::default()
        };
        let shared = Arc::new(Shared {
            spec,
            kv_blocks: config.kv_blocks,
            stats: Mutex::new(stats),
            stopped: AtomicBool::new(false),
        });
        thread::spawn(decoder, config, inbox, Arc::clone(&shared))?;
        Ok(Self { commands, shared })
    }

    /// Sizes of the model.
    #[must_use]
    pub fn spec(&self) -> &DecoderSpec {
        &self.shared.spec
    }

    /// Tokens the KV pool holds.
    #[must_use]
    pub fn kv_tokens(&self) -> usize {
        self.shared.kv_blocks * crate::ids::BLOCK_SIZE
    }

    /// Starts `request.n` continuations. Dropping a receiver cancels its continuation.
    #[must_use = "dropping the receivers cancels the request"]
    pub fn generate(&self, request: GenerateRequest) -> Vec<Tokens> {
        self.generate_masked(request, Vec::new())
    }

    /// The same where `masks`, one for each continuation or none at all, say which tokens may come next.
    #[must_use = "dropping the receivers cancels the request"]
    pub fn generate_masked(&self, request: GenerateRequest, masks: Vec<Box<dyn TokenMask>>) -> Vec<Tokens> {
        assert!(masks.is_empty() || masks.len() == request.n, "masks for some only: this is a bug");
        assert!(
            !request.prompt.is_empty() && request.max_new > 0 && request.n > 0,
            "an empty request: this is a bug"
        );
        let (senders, receivers) = (0..request.n).map(|_| tokio_mpsc::unbounded_channel()).unzip();
        // a stopped engine drops the senders, and the receivers say so
        let _ = self.commands.send(Command::Generate(request, Instant::now(), masks, senders));
        receivers
    }

    /// Reads attention rows. Dropping the receiver cancels; an engine that stops drops the sender.
    #[must_use = "dropping the receiver cancels the request"]
    pub fn rows(&self, request: RowsRequest) -> oneshot::Receiver<Result<RowsOutput, EngineError>> {
        let (sender, receiver) = oneshot::channel();
        let _ = self.commands.send(Command::Rows(request, Instant::now(), sender));
        receiver
    }

    /// Empties the prefix cache; done when the receiver resolves.
    #[must_use = "the cache may still be full until the receiver resolves"]
    pub fn clear_cache(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let _ = self.commands.send(Command::ClearCache(sender));
        receiver
    }

    /// Whether the engine still works. It never stops while there is a handle, unless it is broken.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.shared.stopped.load(Ordering::Relaxed)
    }

    /// A snapshot taken when the latest step began or ended.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        *self.shared.stats()
    }
}
