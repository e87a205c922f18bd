//! What watches the server: health and metrics.

use axum::{Json, extract::State, http::StatusCode, http::header, response::IntoResponse};
use serde_json::{Value, json};

use super::{ApiError, AppState};
use crate::{engine::EngineError, service::ServiceError};

/// 200 only when the model can be used: it is loaded and its engine works.
pub(super) async fn health(State(state): State<AppState>) -> Result<Json<Value>, ApiError> {
    if !state.served()?.model.engine.is_alive() {
        return Err(ServiceError::Engine(EngineError::Stopped).into());
    }
    Ok(Json(json!({"status": "ok"})))
}

/// Prometheus' text format.
pub(super) async fn metrics(State(state): State<AppState>) -> Result<impl IntoResponse, ApiError> {
    let served = state.served()?;
    let text = served.metrics.text(&served.model.engine.stats());
    let text = text.map_err(|e| {
        ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "server_error",
            format!("metrics cannot be written: {e}"),
        )
    })?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}
