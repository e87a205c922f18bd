//! `POST /rerank`, `/v1/rerank`, `/v2/rerank`: chunks scored for clients that know Cohere's, Jina's or
//! text-embeddings-inference's interface.

use axum::{
    Extension,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;

use super::{
    AppState,
    auth::Caller,
    record::Record,
    scoring::Scoring,
    wire::{
        Body,
        rerank::{self as wire, Dialect},
    },
};
use crate::service::ServiceError;

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
    let scoring = Scoring { state, caller, record, operation: "rerank" };
    let answered = scoring
        .answer(
            body,
            |body| wire::job(body, dialect),
            |served, answer, asked, id| wire::answer(&answer, asked, &served.model.id, id),
            |error| named_as_sent(error, dialect),
        )
        .await;
    match answered {
        Err(error) if dialect == Dialect::Tei => error.into_tei(),
        answered => answered.into_response(),
    }
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
