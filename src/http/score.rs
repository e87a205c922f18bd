//! `POST /v1/qrae/score`.

use axum::{Extension, extract::State, response::Response};

use super::{
    ApiError, AppState,
    auth::Caller,
    record::Record,
    scoring::{Scoring, named},
    wire::{Body, score as wire, scored::score_json},
};
use crate::service::ServiceError;

/// Scores chunks for one or more queries.
pub(super) async fn score(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    Extension(record): Extension<Record>,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let many = !body["queries"].is_null();
    let scoring = Scoring { state, caller, record, operation: "score" };
    scoring
        .answer(
            body,
            wire::job,
            |served, answer, asked, id| {
                let fields = score_json(&served.model, &answer, &asked.ids, asked.many);
                drop(answer); // before its text is written: both may be large
                named(id, fields)
            },
            |error| named_as_sent(error, many),
        )
        .await
}

/// The one query of a list is `queries[0]`.
fn named_as_sent(mut error: ServiceError, many: bool) -> ServiceError {
    if let ServiceError::Invalid { field, .. }
    | ServiceError::TooLong { field, .. }
    | ServiceError::TextTooLong { field, .. } = &mut error
        && many
        && field == "query"
    {
        "queries[0]".clone_into(field);
    }
    error
}
