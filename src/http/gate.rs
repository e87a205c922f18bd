//! `POST /v1/gate`: which chunks an agent's context should take, and which sentences of them.

use axum::{Extension, extract::State, response::Response};

use super::{
    ApiError, AppState,
    auth::Caller,
    record::Record,
    scoring::{Scoring, named},
    wire::{Body, gate as wire},
};
use crate::service::ServiceError;

/// Scores chunks for one query and admits some of them, whole or in part. What holds for scoring holds here.
pub(super) async fn gate(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    Extension(record): Extension<Record>,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let scoring = Scoring { state, caller, record, operation: "gate" };
    scoring
        .answer(
            body,
            wire::job,
            |served, answer, gating, id| named(id, gating.answer(&served.model, &answer)),
            of_chunks,
        )
        .await
}

/// Tokens are always explained here: too many of them are too many chunks.
fn of_chunks(mut error: ServiceError) -> ServiceError {
    if let ServiceError::Invalid { field, .. } = &mut error
        && field == "explain"
    {
        "chunks".clone_into(field);
    }
    error
}
