//! Managed conversations on the wire: what a chat asks of a context, and what is told of it.

use axum::http::HeaderMap;
use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    contexts::{self, tokens},
    typed,
};
use crate::{
    http::ApiError,
    service::contexts::{Managed, ManagedBlock, Managing, NewContext},
    store::Name,
    transcript::Deferred,
};

/// A header that names the context, for agents that cannot change their requests' bodies.
const HEADER: &str = "x-qrae-context";

/// Largest pattern, in bytes, and as it is compiled.
const LONGEST_PATTERN: usize = 4096;
const LARGEST_PATTERN: usize = 128 << 10;

/// What a chat asks of a context, besides the fields that make one: those are read when it is first used.
#[derive(Deserialize, JsonSchema)]
pub(in crate::http) struct Fields {
    /// The context that manages this conversation's search results; made when it is first used.
    #[schemars(with = "Option<crate::http::openapi::shapes::ContextId>")]
    context: Option<String>,
    /// What the model is told of results that wait: nothing, or number, title and address of each.
    #[schemars(with = "Option<crate::http::openapi::shapes::DeferredWord>")]
    deferred: Option<Deferred>,
    /// A regular expression whose matches are the results, in its groups named `text` and perhaps `id`, `title` and `url`:
    /// for tools that print neither JSON nor numbered lists.
    #[schemars(length(max = 4096))]
    results_pattern: Option<String>,
}

/// What the field `qrae` or the header asks for; nothing where there is neither.
pub(in crate::http) fn managing(
    headers: &HeaderMap,
    asked: Value,
    owner: String,
) -> Result<Option<Managing>, ApiError> {
    let header = headers.get(HEADER).map(|value| value.to_str().unwrap_or_default());
    if asked.is_null() && header.is_none() {
        return Ok(None);
    }
    let mut own = if asked.is_null() { json!({}) } else { asked };
    if !own.is_object() {
        return Err(ApiError::invalid("qrae", "must be an object with a context"));
    }
    let inside = |e: ApiError| e.inside("qrae");
    let fields: Fields = typed(&own).map_err(inside)?;
    let id = match (fields.context, header) {
        (Some(id), Some(other)) if id != other => {
            let reason = format!("is not the one of the header {HEADER}; give one of them");
            return Err(ApiError::invalid("qrae.context", &reason));
        }
        (Some(id), _) => contexts::context_id("qrae.context", &id).map(|()| id)?,
        (None, Some(id)) => contexts::context_id(HEADER, id).map(|()| id.to_owned())?,
        (None, None) => return Err(ApiError::invalid("qrae.context", "is missing")),
    };
    let pattern = fields.results_pattern.as_deref().map(pattern).transpose()?;
    // a question of its own is not needed, and its name is the one above
    let question = own["query"].as_str().map(str::to_owned);
    if own["query"].is_null() {
        own["query"] = "".into();
    }
    own["id"] = Value::Null;
    let made = contexts::made(&own).map_err(inside)?;
    let new = NewContext { job: made.job, config: made.config, question, expires_in: made.expires_in };
    Ok(Some(Managing {
        name: Name { owner, id },
        deferred: fields.deferred.unwrap_or_default(),
        pattern,
        new,
    }))
}

fn pattern(text: &str) -> Result<Regex, ApiError> {
    let field = "qrae.results_pattern";
    if text.len() > LONGEST_PATTERN {
        let reason = format!("has {} bytes; at most {LONGEST_PATTERN} are read", text.len());
        return Err(ApiError::invalid(field, &reason));
    }
    let pattern = RegexBuilder::new(text).size_limit(LARGEST_PATTERN).build();
    let pattern = pattern.map_err(|e| {
        let reason = e.to_string();
        let last = reason.lines().last().unwrap_or_default();
        ApiError::invalid(field, &format!("cannot be read: {}", last.trim_start_matches("error: ")))
    })?;
    if pattern.capture_names().flatten().any(|name| name == "text") {
        return Ok(pattern);
    }
    Err(ApiError::invalid(field, "has no group named text, as in (?<text>.*)"))
}

/// What was done to a conversation.
pub(in crate::http) fn report(managed: &Managed) -> Value {
    let Managed { view, created, blocks, .. } = managed;
    let block = |ManagedBlock { message, answer, replayed }: &ManagedBlock| {
        json!({
            "message": message,
            "update": answer.update,
            "update_id": answer.id,
            "replayed": replayed,
            "results": answer.groups.iter().map(|group| group.results.len()).sum::<usize>(),
            "admitted": answer.admitted(),
            "deferred": answer.deferred(),
        })
    };
    let last = blocks.iter().map(|block| block.answer.update).max().unwrap_or(0);
    json!({
        "context": view.header.id,
        "created": created,
        "searches": blocks.iter().map(block).collect::<Vec<_>>(),
        "tokens": tokens(view, last),
    })
}
