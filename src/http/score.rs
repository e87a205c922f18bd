//! `POST /v1/qrae/score`.

use axum::{
    Extension,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};

use super::{
    ApiError, AppState,
    auth::Caller,
    record::Record,
    state::now,
    wire::{Body, score as wire, scored::score_json},
};
use crate::service::{ServiceError, score::ScoreAnswer};

/// Scores chunks for one or more queries. A caller that goes away drops this future, and with it the engine's work.
/// The answer's text is written where it holds up nobody: with explanations it is some 60 MB.
pub(super) async fn score(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    Extension(record): Extension<Record>,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let served = state.served()?;
    served.check_model(&body)?;
    record.asks("score", &served.model.id);
    let (mut job, asked) = wire::job(&body)?;
    job.salt = caller.salt(&job.salt);
    drop(body);
    record.scores(&job);
    let permit = state.enter()?;
    let many = asked.many;
    let write = {
        let served = served.clone();
        move |answer: ScoreAnswer| {
            served.metrics.count_scores(&answer);
            record.scored(&answer);
            let mut response = Map::new();
            response.insert("id".into(), format!("score-{}", uuid::Uuid::new_v4().simple()).into());
            response.insert("created".into(), json!(now()));
            response.extend(score_json(&served.model, &answer, &asked.ids, asked.many));
            drop(answer);
            Value::Object(response).to_string()
        }
    };
    let text = served.model.score_as(job, permit, write).await.map_err(|e| named_as_sent(e, many))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
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
