//! `POST /v1/chat/completions`.

use std::time::Instant;

use axum::{Extension, extract::State, http::HeaderMap, response::Response};
use serde_json::Value;

use super::{
    ApiError, AppState,
    auth::Caller,
    record::Record,
    sse::{Envelope, Watched, events, whole},
    state::Served,
    wire::{Body, chat as wire, managing as managing_wire},
};
use crate::service::{Permit, ServiceError, contexts::Managing, generate::ChatJob};

/// Continues a conversation, whole or as a stream.
pub(super) async fn chat(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    Extension(record): Extension<Record>,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let begin = Instant::now();
    let served = state.served()?;
    served.check_model(&body)?;
    record.asks("chat", &served.model.id);
    state.check_template(&body)?;
    let (mut job, delivery, asked) = wire::job(&body)?;
    drop(body);
    job.options.salt = caller.salt(&job.options.salt);
    let managing = managing_wire::managing(&headers, asked, caller.owner())?;
    record.generates(delivery.stream);
    let logprobs = job.options.logprobs.is_some();
    let (permit, report) = match managing {
        Some(managing) => manage(&state, &served, &record, &managing, &mut job).await?,
        None => (state.enter()?, None),
    };
    let generation = served.model.chat(job, permit).await?;
    let envelope = Envelope::new("chatcmpl", &served).reporting(report);
    let choices = generation.n_choices();
    let deltas = Watched::new(generation, served, begin, record);
    if !delivery.stream {
        return whole(deltas, &envelope, "chat.completion", |i, c| wire::choice(i, c, logprobs)).await;
    }
    let opening = (0..choices).map(wire::opening).collect();
    let piece = move |delta: &_| wire::piece(delta, logprobs);
    Ok(events(deltas, delivery, envelope, "chat.completion.chunk", opening, piece))
}

/// Puts what a context admits in the place of the job's search results, and tells what was done.
async fn manage(
    state: &AppState,
    served: &Served,
    record: &Record,
    managing: &Managing,
    job: &mut ChatJob,
) -> Result<(Permit, Option<Value>), ApiError> {
    let contexts = state.contexts()?;
    let (model, salt) = (&served.model, &job.options.salt);
    let managed = contexts.manage(model, &job.prompt.messages, managing, salt, state.enter()?).await;
    let (managed, permit) = managed.map_err(|e| match e {
        // what is not a message's is of how the context is to be made
        ServiceError::Invalid { ref field, .. }
        | ServiceError::TooLong { ref field, .. }
        | ServiceError::TextTooLong { ref field, .. }
            if !field.starts_with("messages") =>
        {
            ApiError::from(e).inside("qrae")
        }
        other => other.into(),
    })?;
    for answer in &managed.scored {
        served.metrics.count_scores(answer);
        record.scored(answer);
    }
    let report = managing_wire::report(&managed);
    job.prompt.messages = managed.messages;
    Ok((permit, Some(report)))
}
