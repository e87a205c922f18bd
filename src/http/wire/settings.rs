//! How a request wants chunks scored: the fields that every scoring route takes.

use schemars::JsonSchema;
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

/// The fields, as sent.
#[derive(Deserialize, JsonSchema)]
pub(in crate::http) struct Settings {
    /// What is computed from a chunk's responses; by default the head set's own.
    #[schemars(with = "Option<crate::http::openapi::shapes::StatisticWord>")]
    statistic: Option<Statistic>,
    /// What is subtracted; by default the head set's own.
    #[schemars(with = "Option<crate::http::openapi::shapes::ControlWord>")]
    control: Option<Control>,
    /// Where rows are read; by default the head set's own.
    #[schemars(with = "Option<crate::http::openapi::shapes::ReadWord>")]
    read: Option<Read>,
    /// A head set of `/v1/head_sets`, with or without `@hash`.
    head_set: Option<String>,
    /// Heads in place of a head set.
    #[schemars(with = "Option<Vec<crate::http::openapi::shapes::Head>>")]
    heads: Option<Vec<HeadRef>>,
    /// Orders of the chunks that are averaged, each for one more prefill.
    #[schemars(with = "Option<crate::http::openapi::shapes::OrderCount>")]
    orders: Option<Orders>,
    /// Whose cached KV may be used: only of requests with the same salt.
    #[schemars(with = "Option<crate::http::openapi::shapes::CacheSalt>")]
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
