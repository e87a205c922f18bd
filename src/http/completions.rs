//! `POST /v1/completions`.

use std::time::Instant;

use axum::{Extension, extract::State, response::Response};

use super::{
    ApiError, AppState,
    auth::Caller,
    record::Record,
    sse::{Envelope, Watched, events, whole},
    wire::{Body, completions as wire},
};
use crate::service::generate::GenerateDelta;

/// Continues texts, whole or as a stream.
pub(super) async fn completions(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    Extension(record): Extension<Record>,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let begin = Instant::now();
    let served = state.served()?;
    served.check_model(&body)?;
    record.asks("text_completion", &served.model.id);
    let (mut job, delivery) = wire::job(&body)?;
    job.options.salt = caller.salt(&job.options.salt);
    drop(body);
    record.generates(delivery.stream);
    let logprobs = job.options.logprobs.is_some();
    let generation = served.model.complete(job, state.enter()?).await?;
    let envelope = Envelope::new("cmpl", &served);
    let mut offsets = vec![0; generation.n_choices()];
    let deltas = Watched::new(generation, served, begin, record);
    if !delivery.stream {
        return whole(deltas, &envelope, "text_completion", |i, c| wire::choice(i, c, logprobs)).await;
    }
    let piece = move |delta: &GenerateDelta| wire::piece(delta, logprobs, &mut offsets[delta.choice]);
    Ok(events(deltas, delivery, envelope, "text_completion", Vec::new(), piece))
}
