//! `/v1/contexts`: the context manager as a resource. Each context belongs to the key that made it.

use axum::{
    Extension, Json,
    extract::{
        Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ApiError, AppState,
    auth::Caller,
    record::Record,
    state::now,
    wire::{Body, contexts as wire},
};
use crate::{
    kv::Salt,
    service::contexts::{Contexts, Settings},
    store::Name,
};

/// Entries of a list where its length is not asked for, and the most there may be.
const PAGE: i64 = 100;
const LONGEST_PAGE: i64 = 1000;

type Id = Result<Path<String>, PathRejection>;

/// Which part of a list.
#[derive(Deserialize)]
pub(super) struct Part {
    after: Option<String>,
    limit: Option<String>,
}

/// What every handler here begins with.
struct Asked<'a> {
    contexts: &'a Contexts,
    name: Name,
}

fn asked(state: &AppState, caller: Caller, id: Id) -> Result<Asked<'_>, ApiError> {
    let Path(id) = id.map_err(|e| ApiError::invalid("context", &e.body_text()))?;
    wire::context_id("context", &id)?;
    Ok(Asked { contexts: state.contexts()?, name: Name { owner: caller.owner(), id } })
}

/// `POST /v1/contexts`.
pub(super) async fn create(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    Extension(record): Extension<Record>,
    Body(body): Body,
) -> Result<Json<Value>, ApiError> {
    let (served, contexts) = (state.served()?, state.contexts()?);
    served.check_model(&body)?;
    record.asks("context.create", &served.model.id);
    let made = wire::made(&body)?;
    let settings = Settings::new(&served.model, &made.job)?;
    let permit = state.enter()?;
    let _permit = settings.check(&served.model, &made.question, made.config, permit).await?;
    let name = Name { owner: caller.owner(), id: made.id };
    let view = contexts.create(&name, &settings, made.config, &made.question, made.expires_in).await?;
    Ok(Json(wire::context(&view)))
}

/// `GET /v1/contexts`.
pub(super) async fn list(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    part: Result<Query<Part>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    let (after, limit) = page(part)?;
    let after = after.unwrap_or_default();
    if !after.is_empty() {
        wire::context_id("after", &after)?;
    }
    let mut found = state.contexts()?.list(&caller.owner(), &after, limit + 1).await?;
    let more = found.len() as i64 > limit;
    found.truncate(limit as usize);
    let last = found.last().map_or(after, |header| header.id.clone());
    let data: Vec<Value> = found.iter().map(wire::summary).collect();
    Ok(Json(json!({"object": "list", "data": data, "next": last, "has_more": more})))
}

/// `GET /v1/contexts/{id}`.
pub(super) async fn read(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    id: Id,
) -> Result<Json<Value>, ApiError> {
    let Asked { contexts, name } = asked(&state, caller, id)?;
    Ok(Json(wire::context(&contexts.view(&name).await?)))
}

/// `DELETE /v1/contexts/{id}`.
pub(super) async fn delete(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    id: Id,
) -> Result<Json<Value>, ApiError> {
    let Asked { contexts, name } = asked(&state, caller, id)?;
    contexts.delete(&name).await?;
    Ok(Json(json!({"id": name.id, "object": "qrae.context", "deleted": true})))
}

/// `POST /v1/contexts/{id}/results`.
pub(super) async fn update(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    Extension(record): Extension<Record>,
    id: Id,
    Body(body): Body,
) -> Result<Json<Value>, ApiError> {
    let served = state.served()?;
    let Asked { contexts, name } = asked(&state, caller, id)?;
    served.check_model(&body)?;
    record.asks("context.update", &served.model.id);
    let update = wire::update(&body)?;
    drop(body);
    let permit = state.enter()?;
    let salt = caller.salt(&Salt::none());
    let (updated, _permit) = contexts.update(&served.model, &name, update, (&salt, false), permit).await?;
    for answer in &updated.scored {
        served.metrics.count_scores(answer);
        record.scored(answer);
    }
    let id = format!("update-{}", uuid::Uuid::new_v4().simple());
    let mut answer = wire::updated(&id, &updated);
    answer["created"] = now().into();
    Ok(Json(answer))
}

/// `GET /v1/contexts/{id}/events`.
pub(super) async fn events(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    id: Id,
    part: Result<Query<Part>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    let Asked { contexts, name } = asked(&state, caller, id)?;
    let (after, limit) = page(part)?;
    let from = after.map_or(Ok(0), |after| after.parse::<u32>());
    let from = from.map_err(|_| ApiError::invalid("after", "must be the number of an event"))?.into();
    let (batches, all) = contexts.events(&name, from, limit).await?;
    Ok(Json(wire::events(&batches, from, limit as usize, all)))
}

/// `GET /v1/contexts/{id}/export`.
pub(super) async fn export(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    id: Id,
) -> Result<Json<Value>, ApiError> {
    let Asked { contexts, name } = asked(&state, caller, id)?;
    let (header, batches) = contexts.export(&name).await?;
    Ok(Json(wire::export(&header, &batches)))
}

/// `POST /v1/contexts/{id}/fork`.
pub(super) async fn fork(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    id: Id,
    Body(body): Body,
) -> Result<Json<Value>, ApiError> {
    let Asked { contexts, name } = asked(&state, caller, id)?;
    state.served()?.check_model(&body)?;
    let fork = wire::fork(&body)?;
    let new = Name { id: fork.id, ..name.clone() };
    let view = contexts.fork(&name, &new, fork.after, fork.expires_in).await?;
    Ok(Json(wire::context(&view)))
}

fn page(part: Result<Query<Part>, QueryRejection>) -> Result<(Option<String>, i64), ApiError> {
    let Query(Part { after, limit }) = part.map_err(|e| ApiError::bad_request(e.body_text()))?;
    let limit = limit.map_or(Some(PAGE), |limit| limit.parse().ok());
    match limit {
        Some(limit) if (1..=LONGEST_PAGE).contains(&limit) => Ok((after, limit)),
        _ => Err(ApiError::invalid("limit", &format!("must be a number from 1 to {LONGEST_PAGE}"))),
    }
}
