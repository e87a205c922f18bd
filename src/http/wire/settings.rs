//! How a request wants chunks scored: the fields that every scoring route takes.

use serde::Deserialize;
use serde_json::Value;

use super::typed;
use crate::{
    http::ApiError,
    ids::HeadRef,
    kv::Salt,
    score::{Control, Read, Statistic},
    service::score::{HeadChoice, Orders, ScoreJob},
};

#[derive(Deserialize)]
struct Settings {
    statistic: Option<Statistic>,
    control: Option<Control>,
    read: Option<Read>,
    head_set: Option<String>,
    heads: Option<Vec<HeadRef>>,
    orders: Option<Orders>,
    cache_salt: Option<String>,
}

/// The names of these fields.
pub(in crate::http) const SETTINGS: [&str; 7] =
    ["statistic", "control", "read", "head_set", "heads", "orders", "cache_salt"];

/// A job with what the body says of these fields, and nothing to score yet.
pub(super) fn job(body: &Value) -> Result<ScoreJob, ApiError> {
    let fields: Settings = typed(body)?;
    let heads = match (fields.heads, fields.head_set) {
        (None, None) => HeadChoice::Default,
        (None, Some(name)) => HeadChoice::Named(name),
        (Some(heads), None) => HeadChoice::Heads(heads),
        (Some(_), Some(_)) => {
            return Err(ApiError::invalid("heads", "are given beside head_set; give one of them"));
        }
    };
    if fields.cache_salt.as_deref().is_some_and(|salt| salt.is_empty() || salt.len() > 1024) {
        return Err(ApiError::invalid("cache_salt", "must have 1 to 1024 bytes"));
    }
    Ok(ScoreJob {
        heads,
        statistic: fields.statistic,
        control: fields.control,
        read: fields.read,
        orders: fields.orders.unwrap_or_default(),
        salt: fields.cache_salt.as_deref().map_or_else(Salt::none, Salt::new),
        ..ScoreJob::default()
    })
}

/// Notes which of a body's fields nobody reads, `known` being those of the route.
pub(super) fn note_unknown(body: &Value, known: &[&str]) {
    let fields = body.as_object().into_iter().flatten();
    let ignored: Vec<&String> = fields
        .map(|(name, _)| name)
        .filter(|name| {
            *name != "model" && !known.contains(&name.as_str()) && !SETTINGS.contains(&name.as_str())
        })
        .collect();
    if !ignored.is_empty() {
        tracing::debug!(?ignored, "unknown fields of a request were ignored");
    }
}
