//! What is served: the model and its head sets.

use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
};
use serde_json::{Value, json};

use super::{ApiError, AppState, state::Served};
use crate::{score::heads::HeadSet, service::ServiceError};

/// The one model.
pub(super) async fn list(State(state): State<AppState>) -> Result<Json<Value>, ApiError> {
    Ok(Json(json!({"object": "list", "data": [entry(&*state.served()?)]})))
}

/// The same, by its id, which may hold slashes.
pub(super) async fn one(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let served = state.served()?;
    let Path(id) = id.map_err(|e| ApiError::invalid("model", &e.body_text()))?;
    if id != served.model.id {
        let known = served.model.id.clone();
        return Err(ServiceError::Unknown { field: "model".into(), name: id, known }.into());
    }
    Ok(Json(entry(&served)))
}

fn entry(served: &Served) -> Value {
    json!({
        "id": served.model.id,
        "object": "model",
        "created": served.created,
        "owned_by": "qrae",
        "root": served.model.id,
        "max_model_len": served.model.max_model_len,
        "qrae": {"compute": served.model.compute.to_string(), "processor": served.model.processor},
    })
}

/// The head sets that fit the model.
pub(super) async fn head_sets(State(state): State<AppState>) -> Result<Json<Value>, ApiError> {
    let served = state.served()?;
    let model = &served.model;
    let entry = |(set, default): (&HeadSet, bool)| {
        json!({
            "id": set.name(),
            "object": "qrae.head_set",
            "label": set.label(),
            "hash": set.hash(),
            "default": default,
            "heads": set.heads(),
            "method": set.default_method(),
            "standing": set.standing(),
            "provenance": set.provenance(),
        })
    };
    let data: Vec<Value> = model.head_sets.iter().map(entry).collect();
    Ok(Json(json!({"object": "list", "model": model.id, "prompt_hash": model.prompt_hash, "data": data})))
}
