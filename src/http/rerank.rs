//! `POST /rerank`, `/v1/rerank`, `/v2/rerank`: chunks scored for clients that know Cohere's, Jina's or
//! text-embeddings-inference's interface.

use axum::{
    Extension,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::{
    ApiError, AppState,
    auth::Caller,
    record::Record,
    wire::{
        Body,
        rerank::{self as wire, Dialect},
    },
};
use crate::service::{ServiceError, score::ScoreAnswer};

/// Answers in the dialect of the body, errors too once it is known.
pub(super) async fn rerank(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    Extension(record): Extension<Record>,
    Body(body): Body,
) -> Response {
    let dialect = match Dialect::of(&body) {
        Ok(dialect) => dialect,
        Err(error) => return error.into_response(),
    };
    if dialect == Dialect::Tei && body["texts"].as_array().is_some_and(Vec::is_empty) {
        let error = json!({"error": "texts cannot be empty", "error_type": "Empty"});
        return (StatusCode::BAD_REQUEST, axum::Json(error)).into_response();
    }
    match scored(&state, caller, record, &body, dialect).await {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) if dialect == Dialect::Tei => error.into_tei(),
        Err(error) => error.into_response(),
    }
}

async fn scored(
    state: &AppState,
    caller: Caller,
    record: Record,
    body: &Value,
    dialect: Dialect,
) -> Result<String, ApiError> {
    let served = state.served()?;
    served.check_model(body)?;
    record.asks("rerank", &served.model.id);
    let (mut job, asked) = wire::job(body, dialect)?;
    job.salt = caller.salt(&job.salt);
    record.scores(&job);
    let permit = state.enter()?;
    let write = {
        let served = served.clone();
        move |answer: ScoreAnswer| {
            served.metrics.count_scores(&answer);
            record.scored(&answer);
            let id = format!("rerank-{}", uuid::Uuid::new_v4().simple());
            wire::answer(&answer, &asked, &served.model.id, &id).to_string()
        }
    };
    served.model.score_as(job, permit, write).await.map_err(|e| named_as_sent(e, dialect).into())
}

/// What is a chunk within is a document or a text to the caller.
fn named_as_sent(mut error: ServiceError, dialect: Dialect) -> ServiceError {
    if let ServiceError::Invalid { field, .. }
    | ServiceError::TooLong { field, .. }
    | ServiceError::TextTooLong { field, .. } = &mut error
        && let Some(place) = field.strip_prefix("chunks")
    {
        *field = format!("{}{place}", dialect.chunks());
    }
    error
}
