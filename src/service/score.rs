//! Scoring: queries and chunks become one scoring prompt, one rows request, and per chunk a score that shows its work.

mod answer;
mod orders;

use std::{num::NonZeroUsize, sync::Arc, time::Instant};

use answer::answer;
pub use orders::Orders;

use super::{
    Permit, ServedModel, ServiceError,
    generate::off_thread,
    limits::{ScoreSize, query_field},
};
use crate::{
    engine::{EngineError, Phases, RowsOutput, RowsRequest, Tail},
    ids::{HeadRef, Span},
    kv::Salt,
    prompt::layout::{Chunk, LayoutError, NULL_QUERY, Piece, ScoringPrompt, layout},
    score::{ChunkScore, Control, Method, Read, Statistic},
};

pub use super::limits::{MAX_EXPLAINED, MAX_KEPT, MAX_QUERIES, MAX_READ, MAX_RESULTS};

/// What is to be scored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScoreJob {
    /// One or more queries over the same chunks.
    pub queries: Vec<String>,
    /// The chunks, in retrieval order; none is fine.
    pub chunks: Vec<Chunk>,
    /// Which heads.
    pub heads: HeadChoice,
    /// Instead of the head set's own statistic.
    pub statistic: Option<Statistic>,
    /// Instead of the head set's own control.
    pub control: Option<Control>,
    /// Instead of the head set's own read.
    pub read: Option<Read>,
    /// In how many orders of the chunks; their scores are averaged.
    pub orders: Orders,
    /// Cut chunks to this many tokens (flagged); no cut by default.
    pub max_tokens_per_chunk: Option<NonZeroUsize>,
    /// Also give the response of every token; at most [`MAX_EXPLAINED`] numbers.
    pub explain: bool,
    /// Whose cached KV may be used.
    pub salt: Salt,
}

impl ScoreJob {
    /// The same with the chunks in another order: first the `order[0]`-th.
    fn in_order(&self, order: &[usize]) -> Self {
        Self { chunks: order.iter().map(|&i| self.chunks[i].clone()).collect(), ..self.clone() }
    }
}

/// Which heads are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HeadChoice {
    /// The model's default head set.
    #[default]
    Default,
    /// A head set by name, with or without `@hash`.
    Named(String),
    /// These heads.
    Heads(Vec<HeadRef>),
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoreAnswer {
    /// Per query, in the order of the request.
    pub queries: Vec<QueryScores>,
    /// The heads that were read, in the order of `ChunkScore::heads`.
    pub heads: Vec<HeadRef>,
    /// `name@hash` of the head set, or `custom:` and the heads, as in `custom:L1H2+L3H0`.
    pub head_set: String,
    /// The method that was used.
    pub method: Method,
    /// Orders of the chunks that were averaged: as many as asked for, or as there are.
    pub orders: usize,
    /// Tokens; of several orders their sum.
    pub usage: ScoreUsage,
    /// Seconds.
    pub timings: ScoreTimings,
    /// When the engine worked on it, once for each order; never, where all chunks are empty.
    pub phases: Vec<Phases>,
}

/// Scores of all chunks for one query.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryScores {
    /// In the order of the request.
    pub chunks: Vec<ScoredChunk>,
}

/// One chunk's score.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredChunk {
    /// Value, flags, and per head score and mass.
    pub score: ChunkScore,
    /// 1 is the best; ties keep the order of the request.
    pub rank: usize,
    /// Tokens the chunk has.
    pub tokens: usize,
    /// Whether it was cut to `max_tokens_per_chunk`.
    pub truncated: bool,
    /// With `explain`: every scored token, in order.
    pub explained: Option<Vec<TokenResponse>>,
}

/// How much one token responds to the query.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenResponse {
    /// Characters (Unicode scalar values) of the chunk's `text`; `None` where the token lies in the title.
    pub span: Option<Span>,
    /// Whether the token begins in the title.
    pub in_title: bool,
    /// Mean response over heads.
    pub response: f64,
    /// Response of each head, in the order of [`ScoreAnswer::heads`].
    pub per_head: Vec<f64>,
}

/// What a scoring request cost, in tokens: `prompt = computed + cached + shared`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScoreUsage {
    /// The inputs as the paper counts them: per query the query-conditioned input, and its control where there is one.
    pub prompt_tokens: usize,
    /// Tokens found in the prefix cache of earlier requests.
    pub cached_tokens: usize,
    /// Tokens that were computed.
    pub computed_tokens: usize,
    /// Tokens that one of this request's inputs has from another of them.
    pub shared_tokens: usize,
    /// Of `prompt_tokens`, those of the controls' inputs.
    pub control_tokens: usize,
    /// Of these, those that were not computed for the control: `shared_tokens` but for what queries have from each other.
    pub control_cached_tokens: usize,
}

/// Where the time went, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScoreTimings {
    /// Laying out and tokenising the prompt.
    pub tokenize: f64,
    /// Waiting for the engine.
    pub queue: f64,
    /// In the engine.
    pub prefill: f64,
    /// From rows to scores.
    pub score: f64,
}

/// A request made ready for the engine.
struct Plan {
    heads: Vec<HeadRef>,
    head_set: String,
    method: Method,
    prompt: ScoringPrompt,
    usage: ScoreUsage,
    tokenize: f64,
}

impl ServedModel {
    /// Scores `job.chunks` for each query. Tokenising and scoring hold up nobody else; dropping the future cancels.
    ///
    /// # Errors
    /// When a field is wrong, the prompt too long, or the engine fails.
    pub async fn score(self: &Arc<Self>, job: ScoreJob, permit: Permit) -> Result<ScoreAnswer, ServiceError> {
        self.score_as(job, permit, |answer| answer).await
    }

    /// The same, with the answer put in the form it is wanted in: `form`, too, holds up nobody, and the permit stays taken
    /// until it is done.
    ///
    /// # Errors
    /// As [`score`](Self::score).
    pub async fn score_as<T: Send + 'static>(
        self: &Arc<Self>,
        job: ScoreJob,
        permit: Permit,
        form: impl FnOnce(ScoreAnswer) -> T + Send + 'static,
    ) -> Result<T, ServiceError> {
        let (formed, _permit) = self.score_within(job, permit, form).await?;
        Ok(formed)
    }

    /// The same for one of several jobs of a request, which gets its permit back.
    pub(super) async fn score_within<T: Send + 'static>(
        self: &Arc<Self>,
        job: ScoreJob,
        permit: Permit,
        form: impl FnOnce(ScoreAnswer) -> T + Send + 'static,
    ) -> Result<(T, Permit), ServiceError> {
        let orders = job.orders.of(job.chunks.len());
        let (mut answers, mut permit) = (Vec::new(), permit);
        // one after the other, so that no more rows and KV are held than one order needs; their own order comes first, so
        // that errors name chunks by their place in the request
        for order in &orders {
            let (answer, back) = self.score_in_one_order(job.in_order(order), permit).await?;
            answers.push(answer);
            permit = back;
        }
        off_thread(permit, move || Ok(form(orders::mean(&orders, answers)))).await
    }

    /// Tokens of each chunk's title and text as they are in a scoring prompt, uncut.
    pub(super) fn chunk_tokens(&self, chunks: &[Chunk]) -> Result<Vec<usize>, ServiceError> {
        if chunks.is_empty() {
            return Ok(Vec::new());
        }
        let job = ScoreJob { chunks: chunks.to_vec(), ..ScoreJob::default() };
        let prompt = self.lay_out(&job, Method::default())?;
        Ok(prompt.chunks.iter().map(|chunk| chunk.tokens).collect())
    }

    /// Most tokens that each of `n` chunks of one length may have beside the query of `job`; above 0.
    pub(super) fn chunk_room(&self, job: &ScoreJob, n: usize) -> Result<usize, ServiceError> {
        let (_, _, default) = self.heads(&job.heads)?;
        let method = Method { control: job.control.unwrap_or(default.control), ..default };
        let empty = Chunk { id: None, title: None, url: None, text: String::new() };
        let job = ScoreJob { chunks: vec![empty; n], ..job.clone() };
        let prompt = self.lay_out(&job, method)?;
        let longest = prompt.tails.iter().map(Vec::len).max().unwrap_or(0);
        let around = prompt.prefix.len() + longest;
        // a marker may be a token longer before a text than it is alone
        match (self.max_model_len.saturating_sub(around) / n).saturating_sub(1) {
            0 => Err(ServiceError::TooLong {
                field: query_field(job.queries.len(), 0),
                prompt: around + 2 * n,
                new: 0,
                limit: self.max_model_len,
            }),
            room => Ok(room),
        }
    }

    async fn score_in_one_order(
        self: &Arc<Self>,
        job: ScoreJob,
        permit: Permit,
    ) -> Result<(ScoreAnswer, Permit), ServiceError> {
        let (model, job) = (Arc::clone(self), Arc::new(job));
        let work = {
            let job = Arc::clone(&job);
            move || model.plan(&job)
        };
        let (plan, permit) = off_thread(permit, work).await?;
        let nothing_to_read = plan.prompt.chunks.iter().all(|c| c.span.is_empty());
        let output = if nothing_to_read { None } else { Some(self.read_rows(&job, &plan).await?) };
        off_thread(permit, move || answer(&job, plan, output)).await
    }

    fn plan(&self, job: &ScoreJob) -> Result<Plan, ServiceError> {
        let begin = Instant::now();
        if job.queries.is_empty() {
            return Err(ServiceError::invalid("query", "at least one query is needed"));
        }
        if job.queries.len() > MAX_QUERIES {
            let reason =
                format!("{} are too many for one request; send at most {MAX_QUERIES}", job.queries.len());
            return Err(ServiceError::invalid("queries", &reason));
        }
        let (heads, head_set, default) = self.heads(&job.heads)?;
        let method = Method {
            statistic: job.statistic.unwrap_or(default.statistic),
            control: job.control.unwrap_or(default.control),
            read: job.read.unwrap_or(default.read),
        };
        for (i, query) in job.queries.iter().enumerate() {
            self.check_text(&query_field(job.queries.len(), i), query)?;
        }
        self.check_chunks(&job.chunks, job.max_tokens_per_chunk)?;
        let prompt = self.lay_out(job, method)?;
        let usage = self.usage(&prompt, job, method)?;
        self.size(&prompt, job, method, heads.len()).check()?;
        Ok(Plan { heads, head_set, method, prompt, usage, tokenize: begin.elapsed().as_secs_f64() })
    }

    /// The heads to read, what to call them, and the method they were chosen with.
    pub(super) fn heads(&self, choice: &HeadChoice) -> Result<(Vec<HeadRef>, String, Method), ServiceError> {
        let set = match choice {
            HeadChoice::Default => self.head_sets.default_set()?,
            HeadChoice::Named(name) => self.head_sets.named(name)?,
            HeadChoice::Heads(heads) => return self.custom_heads(heads),
        };
        Ok((set.heads().to_vec(), set.label(), set.default_method()))
    }

    fn custom_heads(&self, heads: &[HeadRef]) -> Result<(Vec<HeadRef>, String, Method), ServiceError> {
        let spec = self.engine.spec();
        let mut sorted = heads.to_vec();
        sorted.sort_unstable();
        if sorted.is_empty() {
            return Err(ServiceError::invalid("heads", "at least one head is needed"));
        }
        if let Some(pair) = sorted.windows(2).find(|p| p[0] == p[1]) {
            return Err(ServiceError::invalid("heads", &format!("{} is there twice", pair[0])));
        }
        let fits = |h: &&HeadRef| usize::from(h.layer) < spec.n_layers && usize::from(h.head) < spec.n_heads;
        if let Some(head) = sorted.iter().find(|h| !fits(h)) {
            let reason = format!(
                "{head} does not exist: the model has layers 0 to {} and heads 0 to {}",
                spec.n_layers - 1,
                spec.n_heads - 1
            );
            return Err(ServiceError::invalid("heads", &reason));
        }
        let names: Vec<String> = sorted.iter().map(ToString::to_string).collect();
        Ok((sorted, format!("custom:{}", names.join("+")), Method::default()))
    }

    fn lay_out(&self, job: &ScoreJob, method: Method) -> Result<ScoringPrompt, ServiceError> {
        let mut queries: Vec<&str> = job.queries.iter().map(String::as_str).collect();
        if method.control == Control::NullQuery {
            queries.push(NULL_QUERY);
        }
        layout(
            &self.score_prompt,
            &self.pieces,
            &job.chunks,
            &queries,
            job.max_tokens_per_chunk,
            &self.tokenizer,
        )
        .map_err(|e| match e {
            LayoutError::EmptyTail { number } | LayoutError::Encode { piece: Piece::Query(number), .. } => {
                ServiceError::invalid(query_field(job.queries.len(), number - 1), &e)
            }
            LayoutError::Encode { piece: Piece::Chunk(number), .. } => {
                ServiceError::invalid(format!("chunks[{}]", number - 1), &e)
            }
            other => ServiceError::invalid("chunks", &other),
        })
    }

    /// Counts the logical inputs, and refuses those that are too long.
    fn usage(
        &self,
        prompt: &ScoringPrompt,
        job: &ScoreJob,
        method: Method,
    ) -> Result<ScoreUsage, ServiceError> {
        let input = |tail: &Vec<u32>| prompt.prefix.len() + tail.len();
        let (n, limit) = (job.queries.len(), self.max_model_len);
        if let Some((i, longest)) = prompt.tails.iter().map(input).enumerate().max_by_key(|(_, len)| *len)
            && longest > limit
        {
            // the null query is nobody's field
            let chunks_alone = prompt.prefix.len() > limit || i >= n;
            let field = if chunks_alone { "chunks".into() } else { query_field(n, i) };
            return Err(ServiceError::TooLong { field, prompt: longest, new: 0, limit });
        }
        let control = match method.control {
            Control::None => 0,
            Control::QueryFree => prompt.prefix.len(),
            Control::NullQuery => prompt.tails.last().map_or(0, input),
        };
        let control_tokens = n * control;
        let prompt_tokens = prompt.tails.iter().take(n).map(input).sum::<usize>() + control_tokens;
        Ok(ScoreUsage { prompt_tokens, control_tokens, ..ScoreUsage::default() })
    }

    /// What the request comes to, for its limits.
    fn size(&self, prompt: &ScoringPrompt, job: &ScoreJob, method: Method, heads: usize) -> ScoreSize {
        let reads: usize = prompt.tails.iter().map(|tail| reads(method, tail)).sum();
        let control = usize::from(method.control == Control::QueryFree);
        ScoreSize {
            queries: job.queries.len(),
            tails: prompt.tails.len(),
            heads,
            chunks: job.chunks.len(),
            tokens: prompt.chunk_lens().iter().sum(),
            reads: (reads + control).min(self.step_tokens),
            explain: job.explain,
        }
    }

    async fn read_rows(&self, job: &ScoreJob, plan: &Plan) -> Result<RowsOutput, ServiceError> {
        let Plan { heads, method, prompt, .. } = plan;
        let tail = |tail: &Vec<u32>| Tail::read_last(tail.clone(), reads(*method, tail));
        let request = RowsRequest {
            prefix: prompt.prefix.clone(),
            tails: prompt.tails.iter().map(tail).collect(),
            control: method.control == Control::QueryFree,
            heads: heads.clone(),
            candidates: prompt.chunks.iter().map(|c| c.span).filter(|s| !s.is_empty()).collect(),
            salt: job.salt.clone(),
        };
        Ok(self.engine.rows(request).await.unwrap_or(Err(EngineError::Stopped))?)
    }
}

/// How many of the last tokens of `tail` are read.
fn reads(method: Method, tail: &[u32]) -> usize {
    match method.read {
        Read::Last => 1,
        Read::QueryMean => tail.len(),
    }
}
