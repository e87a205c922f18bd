//! `POST /v1/gate`: which chunks an agent's context should take, and which sentences of them.

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
    wire::{Body, gate as wire},
};
use crate::service::{ServiceError, score::ScoreAnswer};

/// Scores chunks for one query and admits some of them, whole or in part. What holds for scoring holds here.
pub(super) async fn gate(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    Extension(record): Extension<Record>,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let served = state.served()?;
    served.check_model(&body)?;
    record.asks("gate", &served.model.id);
    let (mut job, gating) = wire::job(&body)?;
    job.salt = caller.salt(&job.salt);
    record.scores(&job);
    drop(body);
    let permit = state.enter()?;
    let write = {
        let served = served.clone();
        move |answer: ScoreAnswer| {
            record.scored(&answer);
            served.metrics.count_scores(&answer);
            let mut response = Map::new();
            response.insert("id".into(), format!("gate-{}", uuid::Uuid::new_v4().simple()).into());
            response.insert("created".into(), json!(now()));
            response.extend(gating.answer(&served.model, &answer));
            Value::Object(response).to_string()
        }
    };
    let text = served.model.score_as(job, permit, write).await.map_err(of_chunks)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
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
