//! What one request came to. It is told once the request is over: when the last byte of its answer is handed on, or when it
//! is given up, be it that the caller went away. Then there is one line in the log (`line`), and a span where a collector
//! is named (`span`).
//!
//! Owns the request's id. Holds numbers and this program's own words; of the caller's words nothing but the id, the
//! path of a request that no route takes, and for the span the path. Tests: `tests/http/log.rs`, `tests/http/traces.rs`,
//! and below.

mod line;
mod span;
#[cfg(test)]
mod tests;

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Instant,
};

use axum::{
    body::{Body, Bytes},
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode},
    middleware::Next,
    response::Response,
};
use hyper::body::{Body as _, Frame, SizeHint};
use tracing::{Instrument, Span};

use super::{ApiError, AppState, error::Failure, page};
use crate::{
    engine::Phases,
    service::{
        generate::{FinishReason, Generation},
        score::{ScoreAnswer, ScoreJob},
    },
};
use span::ServerSpan;

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What is known of a request so far; handlers find it among its extensions. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Record(Arc<Mutex<Facts>>);

#[derive(Default)]
struct Facts {
    /// The first thing that went wrong.
    error: Option<&'static str>,
    /// `chat`, `text_completion`, `score`, `gate` or `rerank`.
    operation: Option<&'static str>,
    model: Option<String>,
    stream: Option<bool>,
    queries: Option<usize>,
    chunks: Option<usize>,
    prompt_tokens: Option<usize>,
    cached_tokens: Option<usize>,
    computed_tokens: Option<usize>,
    completion_tokens: Option<usize>,
    /// Per choice; None where it has not ended.
    finishes: Vec<Option<FinishReason>>,
    /// When the engine worked for it.
    phases: Vec<Phases>,
    last_token: Option<Instant>,
}

impl Record {
    /// The model is asked to do something.
    pub(super) fn asks(&self, operation: &'static str, model: &str) {
        let mut facts = self.facts();
        facts.operation = Some(operation);
        facts.model = Some(model.to_owned());
    }

    /// It generates; told before the prompt is looked at.
    pub(super) fn generates(&self, stream: bool) {
        self.facts().stream = Some(stream);
    }

    /// The choices of a generation, which are from now on unfinished.
    pub(super) fn choices(&self, n: usize) {
        self.facts().finishes = vec![None; n];
    }

    /// What has been generated so far.
    pub(super) fn generated(&self, generation: &Generation) {
        let usage = generation.usage();
        let mut facts = self.facts();
        facts.prompt_tokens = Some(usage.prompt_tokens);
        facts.cached_tokens = Some(usage.cached_tokens);
        if facts.completion_tokens.replace(usage.completion_tokens) != Some(usage.completion_tokens) {
            facts.last_token = Some(Instant::now());
        }
        let phases = generation.phases();
        if facts.phases.first() != phases.as_ref() {
            facts.phases = phases.into_iter().collect();
        }
    }

    /// A choice has ended.
    pub(super) fn finished(&self, choice: usize, reason: FinishReason) {
        if let Some(finish) = self.facts().finishes.get_mut(choice) {
            *finish = Some(reason);
        }
    }

    /// It scores.
    pub(super) fn scores(&self, job: &ScoreJob) {
        let mut facts = self.facts();
        facts.queries = Some(job.queries.len());
        facts.chunks = Some(job.chunks.len());
    }

    /// What scoring took.
    pub(super) fn scored(&self, answer: &ScoreAnswer) {
        let mut facts = self.facts();
        facts.prompt_tokens = Some(answer.usage.prompt_tokens);
        facts.cached_tokens = Some(answer.usage.cached_tokens);
        facts.computed_tokens = Some(answer.usage.computed_tokens);
        facts.phases.clone_from(&answer.phases);
    }

    /// It went wrong after its answer had begun.
    pub(super) fn failed(&self, error: &ApiError) {
        self.facts().error.get_or_insert(error.name());
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outermost layer: gives the request its id, which the answer carries, and its record, and tells that at the end.
/// Whatever is logged on the way, is logged inside a span with the id.
pub(super) async fn keep(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    let mut telling = Telling::begin(&state, &request, &id);
    request.extensions_mut().insert(telling.record.clone());
    let span = telling.log_span();
    let mut response = next.run(request).instrument(span.clone()).await;
    response.headers_mut().insert(REQUEST_ID, id);
    telling.answered(&response);
    response.map(|body| Body::new(ToldBody { body, ended: false, span, telling }))
}

/// The caller's `X-Request-Id` where it is 1 to 128 visible ASCII characters, else one that is made up.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let visible =
        |v: &HeaderValue| (1..=128).contains(&v.len()) && v.as_bytes().iter().all(u8::is_ascii_graphic);
    headers.get(&REQUEST_ID).filter(|v| visible(v)).cloned().unwrap_or_else(|| {
        let id = uuid::Uuid::new_v4().simple().to_string();
        HeaderValue::try_from(id).expect("hexadecimal digits are a header value: this is a bug")
    })
}

/// Tells the record when it is dropped, which is when the request is over, however it ended.
struct Telling {
    record: Record,
    id: HeaderValue,
    method: &'static str,
    /// The pattern; None where no route takes the path.
    route: Option<MatchedPath>,
    path: String,
    /// What watches the server, and the page's files, are no news.
    quiet: bool,
    begin: Instant,
    /// None while there is no answer.
    status: Option<StatusCode>,
    /// The answer was handed on to its last byte.
    whole: bool,
    span: Option<ServerSpan>,
}

/// Longest path that is told, in characters.
const LONGEST_PATH: usize = 256;

impl Telling {
    fn begin(state: &AppState, request: &Request, id: &HeaderValue) -> Self {
        let path = request.uri().path();
        let quiet = matches!(path, "/health" | "/metrics") || page::at(path).is_some();
        let mut telling = Self {
            record: Record::default(),
            id: id.clone(),
            method: method(request.method()),
            route: request.extensions().get::<MatchedPath>().cloned(),
            path: path.chars().take(LONGEST_PATH).collect(),
            quiet,
            begin: Instant::now(),
            status: None,
            whole: false,
            span: None,
        };
        let tracer = state.tracer().filter(|_| !quiet);
        telling.span = tracer.map(|tracer| ServerSpan::begin(tracer, &telling, request));
        telling
    }

    fn id(&self) -> &str {
        self.id.to_str().unwrap_or_default()
    }

    fn trace_id(&self) -> Option<String> {
        self.span.as_ref().map(ServerSpan::trace_id)
    }

    /// On the highest level, so that also a log of errors alone says whose they are.
    fn log_span(&self) -> Span {
        tracing::error_span!("request", request_id = self.id(), trace_id = self.trace_id())
    }

    fn answered(&mut self, response: &Response) {
        self.status = Some(response.status());
        // of an answer to HEAD nobody reads the body
        self.whole = self.method == "HEAD";
        if let Some(Failure(name)) = response.extensions().get() {
            self.record.facts().error = Some(name);
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let facts = std::mem::take(&mut *self.record.facts());
        line::tell(self, &facts);
        if let Some(span) = self.span.take() {
            span.end(self, &facts);
        }
    }
}

/// A method's name, as far as it is one that HTTP knows.
fn method(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or("_OTHER")
}

/// A choice's end, as the API spells it; what has not ended was given up.
fn finish(reason: Option<FinishReason>) -> &'static str {
    match reason {
        Some(FinishReason::Stop) => "stop",
        Some(FinishReason::Length) => "length",
        Some(FinishReason::ToolCalls) => "tool_calls",
        None => "abort",
    }
}

/// The body of an answer; when it is dropped, the request is over.
struct ToldBody {
    // before `telling`: what is generated is known when that is dropped
    body: Body,
    ended: bool,
    span: Span,
    telling: Telling,
}

impl hyper::body::Body for ToldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let _inside = this.span.enter();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        this.ended |= matches!(polled, Poll::Ready(None));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ToldBody {
    fn drop(&mut self) {
        self.telling.whole |= self.ended || self.body.is_end_stream();
    }
}
