//! `POST /v1/chat/completions`.

use std::time::Instant;

use axum::{Extension, extract::State, response::Response};

use super::{
    ApiError, AppState,
    auth::Caller,
    record::Record,
    sse::{Envelope, Watched, events, whole},
    wire::{Body, chat as wire},
};

/// Continues a conversation, whole or as a stream.
pub(super) async fn chat(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    Extension(record): Extension<Record>,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let begin = Instant::now();
    let served = state.served()?;
    served.check_model(&body)?;
    record.asks("chat", &served.model.id);
    state.check_template(&body)?;
    let (mut job, delivery) = wire::job(&body)?;
    job.options.salt = caller.salt(&job.options.salt);
    drop(body);
    record.generates(delivery.stream);
    let logprobs = job.options.logprobs.is_some();
    let generation = served.model.chat(job, state.enter()?).await?;
    let envelope = Envelope::new("chatcmpl", &served);
    let choices = generation.n_choices();
    let deltas = Watched::new(generation, served, begin, record);
    if !delivery.stream {
        return whole(deltas, &envelope, "chat.completion", |i, c| wire::choice(i, c, logprobs)).await;
    }
    let opening = (0..choices).map(wire::opening).collect();
    let piece = move |delta: &_| wire::piece(delta, logprobs);
    Ok(events(deltas, delivery, envelope, "chat.completion.chunk", opening, piece))
}
