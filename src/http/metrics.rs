//! What operators count. Names are vLLM's where the meaning is the same, `qrae_…` elsewhere; labels never hold a
//! caller's words.

use std::{
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
    service::{
        generate::{FinishReason, GenerateDelta, Usage},
        score::ScoreAnswer,
    },
};

const SECONDS: [f64; 16] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0];

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
    chunks: IntCounter,
    scores: Histogram,
    zero_response: IntCounter,
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
    /// Metrics labelled with the served model's name.
    pub(super) fn new(model: &str) -> Self {
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
        let tenths: Vec<f64> = (1..=10).map(|i| f64::from(i) / 10.0).collect();
        Self {
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
            chunks: counter("qrae_chunks_scored_total", "Chunks scored, once per query."),
            scores: histogram("qrae_scores", "Scores of chunks.", &tenths),
            zero_response: counter("qrae_zero_response_chunks_total", "Scored chunks no head responds to."),
            refused: counters("qrae_requests_refused_total", "Requests refused, by reason.", &["reason"]),
            answers: counters(
                "qrae_http_requests_total",
                "Answers, by route and status.",
                &["route", "status"],
            ),
            registry,
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

    /// Notes the scores of an answer.
    pub(super) fn count_scores(&self, answer: &ScoreAnswer) {
        for chunk in answer.queries.iter().flat_map(|q| &q.chunks) {
            self.chunks.inc();
            self.scores.observe(chunk.score.value);
            self.zero_response.inc_by(u64::from(chunk.score.flags.no_response));
        }
    }
}

/// Watches one generation; what it saw is counted when it is dropped.
pub(super) struct Watch {
    served: Arc<Served>,
    begin: Instant,
    first: Option<Duration>,
    unfinished: usize,
    tokens: usize,
}

impl Watch {
    /// From now on, for `choices` choices.
    pub(super) fn new(served: Arc<Served>, begin: Instant, choices: usize) -> Self {
        Self { served, begin, first: None, unfinished: choices, tokens: 0 }
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
        self.tokens = usage.completion_tokens;
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
        if let (Some(first), Some(later)) = (self.first, self.tokens.checked_sub(1).filter(|n| *n > 0)) {
            metrics.per_token.observe((all - first).as_secs_f64() / later as f64);
        }
    }
}
