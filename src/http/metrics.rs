//! What operators count. Names are vLLM's where the meaning is the same, `qrae_…` elsewhere; labels never hold a
//! caller's words.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::http::StatusCode;
use prometheus::{
    Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder, core::Collector,
};

use super::state::Served;
use crate::{
    engine::EngineStats,
    ids::HeadRef,
    service::{
        HeadSets,
        generate::{FinishReason, GenerateDelta, Usage},
        score::ScoreAnswer,
    },
};

const SECONDS: [f64; 16] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0];

/// Tokens of one request; the last is more than most models take.
const TOKENS: [f64; 17] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5];

/// Scores: in tenths up to 1, the most of three statistics; a scaled sum goes on to the square root of how many times a
/// chunk's tokens all candidates are.
const SCORES: [f64; 16] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 50.0];

/// Why requests are refused, in the words of the metric.
const REASONS: [&str; 6] = ["unauthorized", "not_found", "too_large", "overloaded", "unavailable", "invalid"];

/// The label of heads that a request names itself.
const CUSTOM: &str = "custom";

/// All metrics of one model.
pub(super) struct Metrics {
    registry: Registry,
    running: IntGauge,
    waiting: IntGauge,
    kv_usage: Gauge,
    /// Counters that follow the engine's own, in the order of [`engine_counts`].
    engine: Mutex<Vec<IntCounter>>,
    kv_blocks: IntGaugeVec,
    success: IntCounterVec,
    first_token: Histogram,
    per_token: Histogram,
    latency: Histogram,
    prompt_tokens: Histogram,
    new_tokens: Histogram,
    score_queue: Histogram,
    score_prefill: Histogram,
    chunks: IntCounter,
    scores: Histogram,
    no_response: IntCounter,
    zero_response: IntCounterVec,
    /// `name@hash` of the model's head sets, whose heads are labels.
    head_sets: HashSet<String>,
    control_tokens: IntCounter,
    control_cached: IntCounter,
    refused: IntCounterVec,
    answers: IntCounterVec,
}

/// Counters kept by the engine.
const ENGINE_COUNTERS: [(&str, &str); 5] = [
    ("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache."),
    ("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache."),
    ("vllm:num_preemptions_total", "Times a sequence was put back for lack of KV."),
    ("vllm:prompt_tokens_total", "Prompt tokens taken in, computed or found in the prefix cache."),
    ("vllm:generation_tokens_total", "Tokens generated."),
];

fn engine_counts(stats: &EngineStats) -> [u64; 5] {
    let EngineStats { prefix_queries, prefix_hits, preemptions, generated_tokens, .. } = *stats;
    [prefix_queries, prefix_hits, preemptions, prefix_queries, generated_tokens]
}

/// Registers a metric whose name and labels are fixed here.
fn add<M: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<M>) -> M {
    let metric = metric.expect("metric names are valid: this is a bug");
    registry.register(Box::new(metric.clone())).expect("metric names are unique: this is a bug");
    metric
}

impl Metrics {
    /// Metrics labelled with the served model's name, and where they are a head's, with a head of its own sets.
    pub(super) fn new(model: &str, head_sets: &HeadSets) -> Self {
        let registry = Registry::new();
        let r = &registry;
        let opts = |name: &str, help: &str| Opts::new(name, help).const_label("model_name", model);
        let gauge = |name, help| add(r, IntGauge::with_opts(opts(name, help)));
        let counter = |name, help| add(r, IntCounter::with_opts(opts(name, help)));
        let counters = |name, help, labels: &[&str]| add(r, IntCounterVec::new(opts(name, help), labels));
        let histogram = |name, help, buckets: &[f64]| {
            let opts = HistogramOpts { common_opts: opts(name, help), buckets: buckets.to_vec() };
            add(r, Histogram::with_opts(opts))
        };
        let metrics = Self {
            running: gauge("vllm:num_requests_running", "Sequences that hold KV."),
            waiting: gauge("vllm:num_requests_waiting", "Sequences that wait for room."),
            kv_usage: add(
                r,
                Gauge::with_opts(opts("vllm:kv_cache_usage_perc", "Share of the KV blocks in use, 0 to 1.")),
            ),
            engine: Mutex::new(ENGINE_COUNTERS.iter().map(|(name, help)| counter(name, help)).collect()),
            kv_blocks: add(r, IntGaugeVec::new(opts("qrae_kv_blocks", "KV blocks by state."), &["state"])),
            success: counters(
                "vllm:request_success_total",
                "Choices that ended, by reason.",
                &["finished_reason"],
            ),
            first_token: histogram(
                "vllm:time_to_first_token_seconds",
                "From request to first text.",
                &SECONDS,
            ),
            per_token: histogram(
                "vllm:time_per_output_token_seconds",
                "Mean time between tokens of a request, after the first.",
                &SECONDS,
            ),
            latency: histogram(
                "vllm:e2e_request_latency_seconds",
                "From request to the end of its answer.",
                &SECONDS,
            ),
            prompt_tokens: histogram(
                "vllm:request_prompt_tokens",
                "Prompt tokens of a generation request.",
                &TOKENS,
            ),
            new_tokens: histogram(
                "vllm:request_generation_tokens",
                "Tokens generated for a request, over all its choices.",
                &TOKENS,
            ),
            score_queue: histogram(
                "qrae_score_queue_time_seconds",
                "A scoring request's wait for the engine.",
                &SECONDS,
            ),
            score_prefill: histogram(
                "qrae_score_prefill_time_seconds",
                "A scoring request's time in the engine.",
                &SECONDS,
            ),
            chunks: counter("qrae_chunks_scored_total", "Chunks scored, once per query."),
            scores: histogram("qrae_scores", "Scores of chunks.", &SCORES),
            no_response: counter("qrae_zero_response_chunks_total", "Scored chunks no head responds to."),
            zero_response: counters(
                "qrae_zero_response_total",
                "Scored chunks a head does not respond to; heads that requests name themselves are \"custom\".",
                &["head"],
            ),
            head_sets: head_sets.iter().map(|(set, _)| set.label()).collect(),
            control_tokens: counter("qrae_control_tokens_total", "Tokens of the controls' inputs."),
            control_cached: counter(
                "qrae_control_cached_tokens_total",
                "Tokens of the controls' inputs that were not computed for them but found.",
            ),
            refused: counters("qrae_requests_refused_total", "Requests refused, by reason.", &["reason"]),
            answers: counters(
                "qrae_http_requests_total",
                "Answers, by route and status.",
                &["route", "status"],
            ),
            registry,
        };
        metrics.begin(head_sets);
        metrics
    }

    /// Series whose labels are known from the start begin at 0, so that the first event is a difference.
    fn begin(&self, head_sets: &HeadSets) {
        let heads = head_sets.iter().flat_map(|(set, _)| set.heads()).map(ToString::to_string);
        for head in heads.chain([CUSTOM.to_owned()]) {
            self.zero_response.with_label_values(&[head]);
        }
        for reason in REASONS {
            self.refused.with_label_values(&[reason]);
        }
        for reason in ["stop", "length", "abort"] {
            self.success.with_label_values(&[reason]);
        }
    }

    /// The text format, with the engine's latest numbers.
    pub(super) fn text(&self, stats: &EngineStats) -> prometheus::Result<String> {
        let gauge = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.running.set(gauge(stats.running));
        self.waiting.set(gauge(stats.waiting));
        self.kv_usage.set(stats.kv.in_use as f64 / stats.kv.total.max(1) as f64);
        for (state, n) in [("free", stats.kv.free), ("cached", stats.kv.cached), ("in_use", stats.kv.in_use)]
        {
            self.kv_blocks.with_label_values(&[state]).set(gauge(n));
        }
        {
            // one scrape at a time, or both would add the same difference
            let counters =
                self.engine.lock().expect("nothing panics while it holds the counters: this is a bug");
            for (counter, now) in counters.iter().zip(engine_counts(stats)) {
                counter.inc_by(now.saturating_sub(counter.get()));
            }
        }
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }

    /// Notes an answer, and a refusal where it is one.
    pub(super) fn count_answer(&self, route: &str, status: StatusCode) {
        self.answers.with_label_values(&[route, status.as_str()]).inc();
        let reason = match status.as_u16() {
            401 => "unauthorized",
            404 | 405 => "not_found",
            413 => "too_large",
            429 => "overloaded",
            503 => "unavailable",
            400..=499 => "invalid",
            _ => return,
        };
        self.refused.with_label_values(&[reason]).inc();
    }

    /// Notes the scores of an answer, and what it took.
    pub(super) fn count_scores(&self, answer: &ScoreAnswer) {
        self.score_queue.observe(answer.timings.queue);
        self.score_prefill.observe(answer.timings.prefill);
        self.control_tokens.inc_by(answer.usage.control_tokens as u64);
        self.control_cached.inc_by(answer.usage.control_cached_tokens as u64);
        let own = self.head_sets.contains(&answer.head_set);
        let label = |head: &HeadRef| if own { head.to_string() } else { CUSTOM.to_owned() };
        let zero: Vec<IntCounter> =
            answer.heads.iter().map(|head| self.zero_response.with_label_values(&[label(head)])).collect();
        for chunk in answer.queries.iter().flat_map(|q| &q.chunks) {
            self.chunks.inc();
            self.scores.observe(chunk.score.value);
            self.no_response.inc_by(u64::from(chunk.score.flags.no_response));
            if chunk.score.flags.empty {
                continue; // no head could respond
            }
            for (zero, head) in zero.iter().zip(&chunk.score.heads) {
                zero.inc_by(u64::from(head.mass <= 0.0));
            }
        }
    }
}

/// Watches one generation; what it saw is counted when it is dropped.
pub(super) struct Watch {
    served: Arc<Served>,
    begin: Instant,
    first: Option<Duration>,
    unfinished: usize,
    usage: Usage,
}

impl Watch {
    /// From now on, for `choices` choices.
    pub(super) fn new(served: Arc<Served>, begin: Instant, choices: usize) -> Self {
        Self { served, begin, first: None, unfinished: choices, usage: Usage::default() }
    }

    pub(super) fn see(&mut self, delta: &GenerateDelta, usage: Usage) {
        if usage.completion_tokens == 0 {
            return; // an echo of the prompt
        }
        let metrics = &self.served.metrics;
        if self.first.is_none() {
            let first = self.begin.elapsed();
            metrics.first_token.observe(first.as_secs_f64());
            self.first = Some(first);
        }
        self.usage = usage;
        if let Some(reason) = delta.finish {
            let reason = if reason == FinishReason::Length { "length" } else { "stop" };
            metrics.success.with_label_values(&[reason]).inc();
            self.unfinished = self.unfinished.saturating_sub(1);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let metrics = &self.served.metrics;
        if self.unfinished > 0 {
            metrics.success.with_label_values(&["abort"]).inc_by(self.unfinished as u64);
            return;
        }
        let all = self.begin.elapsed();
        metrics.latency.observe(all.as_secs_f64());
        let Usage { prompt_tokens, completion_tokens, .. } = self.usage;
        metrics.prompt_tokens.observe(prompt_tokens as f64);
        metrics.new_tokens.observe(completion_tokens as f64);
        if let (Some(first), Some(later)) = (self.first, completion_tokens.checked_sub(1).filter(|n| *n > 0))
        {
            metrics.per_token.observe((all - first).as_secs_f64() / later as f64);
        }
    }
}
