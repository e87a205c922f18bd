//! What the routes that score have in common: from a body to the text of an answer, counted and told.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};

use super::{
    ApiError, AppState,
    auth::Caller,
    record::Record,
    state::{Served, now},
};
use crate::service::{
    ServiceError,
    score::{ScoreAnswer, ScoreJob},
};

/// A request for scores.
pub(super) struct Scoring {
    pub(super) state: AppState,
    pub(super) caller: Caller,
    pub(super) record: Record,
    /// What it is called in the log, and at the start of its answer's id.
    pub(super) operation: &'static str,
}

impl Scoring {
    /// Scores the job that `read` finds in the body, and has `write` make the answer of it, given the answer's id, where
    /// that holds up nobody: with explanations it is some 60 MB. `rename` calls fields as the caller did. A caller that
    /// goes away drops this future, and with it the engine's work.
    pub(super) async fn answer<A: Send + 'static>(
        self,
        body: Value,
        read: impl FnOnce(&Value) -> Result<(ScoreJob, A), ApiError>,
        write: impl FnOnce(&Served, ScoreAnswer, &A, &str) -> Value + Send + 'static,
        rename: impl FnOnce(ServiceError) -> ServiceError,
    ) -> Result<Response, ApiError> {
        let Self { state, caller, record, operation } = self;
        let served = state.served()?;
        served.check_model(&body)?;
        record.asks(operation, &served.model.id);
        let (mut job, asked) = read(&body)?;
        job.salt = caller.salt(&job.salt);
        drop(body);
        record.scores(&job);
        let permit = state.enter()?;
        let form = {
            let served = served.clone();
            move |answer: ScoreAnswer| {
                served.metrics.count_scores(&answer);
                record.scored(&answer);
                let id = format!("{operation}-{}", uuid::Uuid::new_v4().simple());
                write(&served, answer, &asked, &id).to_string()
            }
        };
        let text = served.model.score_as(job, permit, form).await.map_err(rename)?;
        Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
    }
}

/// An answer of ours, with what names it.
pub(super) fn named(id: &str, fields: Map<String, Value>) -> Value {
    let mut answer = Map::from_iter([("id".into(), id.into()), ("created".into(), json!(now()))]);
    answer.extend(fields);
    Value::Object(answer)
}
