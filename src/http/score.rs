//! `POST /v1/qrae/score`.

use axum::{Json, extract::State};
use serde_json::{Map, Value, json};

use super::{
    ApiError, AppState,
    state::now,
    wire::{Body, score as wire, scored::score_json},
};

/// Scores chunks for one or more queries. A caller that goes away drops this future, and with it the engine's work.
pub(super) async fn score(State(state): State<AppState>, Body(body): Body) -> Result<Json<Value>, ApiError> {
    let served = state.served()?;
    served.check_model(&body)?;
    let (job, asked) = wire::job(&body)?;
    drop(body);
    let permit = state.enter()?;
    let answer = served.model.score(job, permit).await?;
    served.metrics.count_scores(&answer);
    let mut response = Map::new();
    response.insert("id".into(), format!("score-{}", uuid::Uuid::new_v4().simple()).into());
    response.insert("created".into(), json!(now()));
    response.extend(score_json(&served.model, &answer, &asked.ids, asked.many));
    Ok(Json(Value::Object(response)))
}
