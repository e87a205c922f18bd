//! Answers to generation requests, whole or as server-sent events.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use axum::{
    Json,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event, KeepAlive},
    },
};
use futures::{Stream, StreamExt};
use serde_json::{Value, json};

use super::{
    ApiError,
    metrics::Watch,
    record::Record,
    state::{Served, now},
    wire::common::{Delivery, usage},
};
use crate::service::{
    ServiceError,
    generate::{Completion, GenerateDelta, Generation, collect},
};

/// How often a comment is sent while there is nothing to say.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A generation and who watches it.
pub(super) struct Watched {
    generation: Generation,
    watch: Watch,
    record: Record,
}

impl Watched {
    pub(super) fn new(generation: Generation, served: Arc<Served>, begin: Instant, record: Record) -> Self {
        record.choices(generation.n_choices());
        let watch = Watch::new(served, begin, generation.n_choices());
        Self { generation, watch, record }
    }
}

impl Stream for Watched {
    type Item = Result<GenerateDelta, ServiceError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.generation.poll_next_unpin(context);
        self.record.generated(&self.generation);
        if let Poll::Ready(Some(Ok(delta))) = &polled {
            if let Some(reason) = delta.finish {
                self.record.finished(delta.choice, reason);
            }
            let usage = self.generation.usage();
            self.watch.see(delta, usage);
        }
        polled
    }
}

/// What all parts of one answer begin with.
#[derive(Clone)]
pub(super) struct Envelope {
    id: String,
    created: u64,
    model: String,
    /// What was done to the request, for the first part of its answer.
    report: Option<Value>,
}

impl Envelope {
    pub(super) fn new(prefix: &str, served: &Served) -> Self {
        let id = format!("{prefix}-{}", uuid::Uuid::new_v4().simple());
        Self { id, created: now(), model: served.model.id.clone(), report: None }
    }

    /// The same, and the answer tells what was done to the request.
    pub(super) fn reporting(self, report: Option<Value>) -> Self {
        Self { report, ..self }
    }

    fn wrap(&self, object: &str, choices: &[Value], usage: Option<Value>) -> Value {
        let Self { id, created, model, report } = self;
        let mut body =
            json!({"id": id, "object": object, "created": created, "model": model, "choices": choices});
        if let Some(usage) = usage {
            body["usage"] = usage;
        }
        if let Some(report) = report {
            body["qrae"] = report.clone();
        }
        body
    }
}

/// The whole answer at once.
pub(super) async fn whole(
    mut deltas: Watched,
    envelope: &Envelope,
    object: &str,
    choice: impl Fn(usize, &Completion) -> Value,
) -> Result<Response, ApiError> {
    let n = deltas.generation.n_choices();
    let choices = collect(&mut deltas, n).await?;
    let choices: Vec<Value> = choices.iter().enumerate().map(|(i, c)| choice(i, c)).collect();
    let usage = usage(deltas.generation.usage());
    Ok(Json(envelope.wrap(object, &choices, Some(usage))).into_response())
}

/// The answer as events: `opening` pieces, one piece per delta, the usage where asked for, and `[DONE]`; after a
/// failure its error and nothing more. The events own the generation: dropping them cancels it.
pub(super) fn events<F>(
    deltas: Watched,
    delivery: Delivery,
    envelope: Envelope,
    object: &'static str,
    opening: Vec<Value>,
    piece: F,
) -> Response
where
    F: FnMut(&GenerateDelta) -> Value + Send + Unpin + 'static,
{
    let mut events =
        Events { ready: VecDeque::new(), deltas: Some(deltas), delivery, envelope, object, piece };
    opening.into_iter().for_each(|piece| events.say(&[piece], Value::Null));
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

struct Events<F> {
    ready: VecDeque<Event>,
    /// None when the last event is in `ready`.
    deltas: Option<Watched>,
    delivery: Delivery,
    envelope: Envelope,
    object: &'static str,
    piece: F,
}

impl<F> Events<F> {
    fn say(&mut self, choices: &[Value], usage: Value) {
        let usage = self.delivery.include_usage.then_some(usage);
        let body = self.envelope.wrap(self.object, choices, usage);
        self.envelope.report = None;
        self.ready.push_back(Event::default().data(body.to_string()));
    }

    fn end(&mut self) {
        if let Some(deltas) = self.deltas.take()
            && self.delivery.include_usage
        {
            self.say(&[], usage(deltas.generation.usage()));
        }
        self.ready.push_back(Event::default().data("[DONE]"));
    }
}

impl<F: FnMut(&GenerateDelta) -> Value + Unpin> Stream for Events<F> {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            let Some(deltas) = &mut this.deltas else { return Poll::Ready(None) };
            match ready!(deltas.poll_next_unpin(context)) {
                Some(Ok(delta)) => {
                    let piece = (this.piece)(&delta);
                    this.say(&[piece], Value::Null);
                }
                Some(Err(error)) => {
                    let error = ApiError::from(error);
                    error.report();
                    deltas.record.failed(&error);
                    this.deltas = None;
                    this.ready.push_back(Event::default().data(error.body().to_string()));
                }
                None => this.end(),
            }
        }
    }
}
