//! Contexts on the wire: how one is made, what an update brings, and what is said of both.

use std::num::NonZeroUsize;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{score::Sent, settings, typed};
use crate::{
    context::{Admitted, Candidate, ChunkId, Config, Group, GroupAnswer, Mode, Retention, Sums, Update},
    http::ApiError,
    prompt::layout::Chunk,
    service::{
        contexts::{Updated, View},
        score::ScoreJob,
    },
    store::{Batch, Header},
};

/// B where a context names none: the paper's smaller setting.
const RESULTS_PER_QUERY: NonZeroUsize = NonZeroUsize::new(5).expect("a number above 0");

/// Most results of a batch.
const MOST_RESULTS: usize = 1000;

/// Longest id of a context or an update.
const LONGEST_ID: usize = 128;

/// A new context's own fields.
#[derive(Deserialize, JsonSchema)]
pub(in crate::http) struct NewContext {
    /// The user's question: what chunks are scored for, unless an update brings another query.
    query: Option<String>,
    /// What the context is called; made up where none is given.
    #[schemars(with = "Option<crate::http::openapi::shapes::ContextId>")]
    id: Option<String>,
    /// B: results that a search returns for a query, and chunks of a scored batch.
    #[schemars(range(min = 1, max = 1000))]
    results_per_query: Option<NonZeroUsize>,
    /// ϱ: the share of B that may enter the whitelist with each group of results.
    #[schemars(with = "Option<f64>", extend("exclusiveMinimum" = 0.0), range(max = 1.0))]
    retention: Option<Retention>,
    /// `manager`: chunks wait and compete by their mean score; `current_search`: what is not admitted at once is forgotten.
    #[schemars(with = "Option<crate::http::openapi::shapes::ModeWord>")]
    mode: Option<Mode>,
    /// Longer chunks are cut when they are scored.
    max_tokens_per_chunk: Option<NonZeroUsize>,
    /// Forget the context so many seconds after its last use; never by default.
    #[schemars(range(min = 1))]
    expires_in: Option<i64>,
}

const NEW_FIELDS: [&str; 7] =
    ["query", "id", "results_per_query", "retention", "mode", "max_tokens_per_chunk", "expires_in"];

/// A context that is to be made.
pub(in crate::http) struct Made {
    pub(in crate::http) id: String,
    pub(in crate::http) question: String,
    pub(in crate::http) config: Config,
    /// Its settings: a job without queries or chunks.
    pub(in crate::http) job: ScoreJob,
    pub(in crate::http) expires_in: Option<i64>,
}

/// An update's fields.
#[derive(Deserialize, JsonSchema)]
pub(in crate::http) struct Results {
    /// The caller's name for this update. Sent again with the same content, it gets the same answer and changes nothing.
    #[schemars(length(min = 1, max = 128))]
    update_id: Option<String>,
    /// What is scored for in this update, instead of the context's query.
    query: Option<String>,
    /// The results of one query, in retrieval order; either this or `groups`.
    results: Option<Vec<Sent>>,
    /// The results of several queries of one search call, which are worked through in order.
    #[schemars(length(max = 64))]
    groups: Option<Vec<ResultGroup>>,
}

/// What one query of a search call found.
#[derive(Deserialize, JsonSchema)]
pub(in crate::http) struct ResultGroup {
    /// What was searched for: kept in the log, and decides nothing.
    search: Option<String>,
    /// In retrieval order.
    results: Vec<Sent>,
}

/// A fork's fields.
#[derive(Deserialize, JsonSchema)]
pub(in crate::http) struct ForkFields {
    /// What the new context is called; made up where none is given.
    #[schemars(with = "Option<crate::http::openapi::shapes::ContextId>")]
    id: Option<String>,
    /// Go on from after this update; 0 is before the first one, and by default all are taken over.
    after_update: Option<u32>,
    /// Forget the new context so many seconds after its last use; as the old one by default.
    #[schemars(range(min = 1))]
    expires_in: Option<i64>,
}

/// A fork that is to be made.
pub(in crate::http) struct Fork {
    pub(in crate::http) id: String,
    pub(in crate::http) after: Option<u32>,
    pub(in crate::http) expires_in: Option<i64>,
}

/// A context's id, if it can be one: 1 to 128 letters, digits, and `.`, `_`, `:`, `-`.
pub(in crate::http) fn context_id(field: &str, id: &str) -> Result<(), ApiError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
    if (1..=LONGEST_ID).contains(&id.len()) && id.chars().all(fits) {
        return Ok(());
    }
    let reason = format!("must be 1 to {LONGEST_ID} letters, digits, dots, colons, hyphens or underscores");
    Err(ApiError::invalid(field, &reason))
}

fn id_or_new(id: Option<String>) -> Result<String, ApiError> {
    match id {
        Some(id) => context_id("id", &id).map(|()| id),
        None => Ok(format!("ctx-{}", uuid::Uuid::new_v4().simple())),
    }
}

fn lifetime(expires_in: Option<i64>) -> Result<Option<i64>, ApiError> {
    match expires_in {
        Some(seconds) if seconds < 1 => {
            Err(ApiError::invalid("expires_in", &format!("is {seconds}, must be at least 1 second")))
        }
        other => Ok(other),
    }
}

/// The context that a body describes.
pub(in crate::http) fn made(body: &Value) -> Result<Made, ApiError> {
    let fields: NewContext = typed(body)?;
    let question = fields.query.ok_or_else(|| ApiError::invalid("query", "is missing"))?;
    settings::note_unknown(body, &NEW_FIELDS);
    let results_per_query = fields.results_per_query.unwrap_or(RESULTS_PER_QUERY);
    if results_per_query.get() > MOST_RESULTS {
        let reason = format!("is {results_per_query}; at most {MOST_RESULTS} are scored together");
        return Err(ApiError::invalid("results_per_query", &reason));
    }
    let config = Config {
        results_per_query,
        retention: fields.retention.unwrap_or_default(),
        mode: fields.mode.unwrap_or_default(),
    };
    let job = ScoreJob { max_tokens_per_chunk: fields.max_tokens_per_chunk, ..settings::job(body)? };
    Ok(Made { id: id_or_new(fields.id)?, question, config, job, expires_in: lifetime(fields.expires_in)? })
}

/// The update that a body brings. One without an id gets one, and cannot be retried.
pub(in crate::http) fn update(body: &Value) -> Result<Update, ApiError> {
    let Results { update_id, query, results, groups } = typed(body)?;
    let group = |search, results: Vec<Sent>| Group {
        search,
        results: results.into_iter().map(|sent| Arc::new(Chunk::from(sent))).collect(),
    };
    let groups = match (results, groups) {
        (Some(results), None) => vec![group(None, results)],
        (None, Some(groups)) => groups.into_iter().map(|g| group(g.search, g.results)).collect(),
        (Some(_), Some(_)) => {
            return Err(ApiError::invalid("results", "are given beside groups; give one of them"));
        }
        (None, None) => {
            return Err(ApiError::invalid(
                "results",
                "is missing; give results or groups, which may be empty",
            ));
        }
    };
    let id = update_id.unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string());
    if !(1..=LONGEST_ID).contains(&id.len()) {
        return Err(ApiError::invalid("update_id", &format!("must have 1 to {LONGEST_ID} bytes")));
    }
    Ok(Update { id, query, groups })
}

/// The fork that a body asks for.
pub(in crate::http) fn fork(body: &Value) -> Result<Fork, ApiError> {
    let ForkFields { id, after_update, expires_in } = typed(body)?;
    Ok(Fork { id: id_or_new(id)?, after: after_update, expires_in: lifetime(expires_in)? })
}

/// A context as it is.
pub(in crate::http) fn context(view: &View) -> Value {
    let View { header, settings, state, .. } = view;
    let config = state.config();
    let updates = state.answers().len();
    let mut about = summary(header);
    let more = json!({
        "model": settings.model,
        "head_set": settings.head_set,
        "method": {"statistic": settings.statistic, "control": settings.control, "read": settings.read},
        "orders": settings.orders,
        "max_tokens_per_chunk": settings.max_tokens_per_chunk,
        "query": state.question(),
        "results_per_query": config.results_per_query,
        "retention": config.retention,
        "mode": config.mode,
        "updates": updates,
        "whitelist": state.whitelist().map(|a| admitted(view, a)).collect::<Vec<_>>(),
        "cache": state.cache().map(|c| candidate(view, c, true)).collect::<Vec<_>>(),
        "tokens": tokens(view, updates as u32),
    });
    if let (Value::Object(about), Value::Object(more)) = (&mut about, more) {
        about.extend(more.into_iter().filter(|(_, value)| !value.is_null()));
    }
    about
}

/// What a list says of a context.
pub(in crate::http) fn summary(header: &Header) -> Value {
    let mut about = json!({
        "id": header.id,
        "object": "qrae.context",
        "created": header.created,
        "last_used": header.used,
    });
    if let Some(expires) = header.expires() {
        about["expires"] = expires.into();
    }
    about
}

/// What became of an update.
pub(in crate::http) fn updated(id: &str, updated: &Updated) -> Value {
    let Updated { view, answer, replayed, cost, .. } = updated;
    let chunks = |ids: &[ChunkId], form: &dyn Fn(&Candidate) -> Value| -> Vec<Value> {
        ids.iter().filter_map(|id| view.state.chunk(*id)).map(form).collect()
    };
    let evaluator = cost.evaluator;
    json!({
        "id": id,
        "object": "qrae.context.update",
        "context": view.header.id,
        "update": answer.update,
        "update_id": answer.id,
        "replayed": replayed,
        "groups": answer.groups.iter().map(group).collect::<Vec<_>>(),
        "admitted": chunks(&answer.admitted(), &|c| candidate(view, c, true)),
        "deferred": chunks(&answer.deferred(), &|c| candidate(view, c, false)),
        "whitelist": view.state.whitelist_after(answer.update).map(|a| admitted(view, a)).collect::<Vec<_>>(),
        "tokens": tokens(view, answer.update),
        "usage": {
            "prompt_tokens": evaluator.prompt,
            "completion_tokens": 0,
            "total_tokens": evaluator.prompt,
            "computed_tokens": evaluator.computed,
            "prompt_tokens_details": {"cached_tokens": evaluator.cached},
        },
    })
}

fn group(group: &GroupAnswer) -> Value {
    json!({
        "results": group.results,
        "cached": group.cached,
        "waits": group.scores.is_empty(),
        "scores": group.scores,
        "admitted": group.admitted,
        "deferred": group.deferred,
        "forgotten": group.forgotten,
    })
}

/// Tokens with the manager and without it, up to an update.
pub(super) fn tokens(view: &View, update: u32) -> Value {
    let Sums { results, evaluator } = view.weights.sums(update);
    let whitelist = view.weights.whitelist(&view.state, update);
    json!({
        "results": results,
        "whitelist": whitelist,
        "saved": results - whitelist.min(results),
        "evaluator": evaluator,
    })
}

fn admitted(view: &View, Admitted { candidate: chunk, turn }: &Admitted) -> Value {
    let mut value = candidate(view, chunk, true);
    value["admitted"] = json!(turn);
    value
}

/// A chunk with its history; without its text it can still be told which one it is.
fn candidate(view: &View, candidate: &Candidate, text: bool) -> Value {
    let Candidate { id, first_seen, chunk, scores, .. } = candidate;
    let mut value = Map::from_iter([("chunk".to_owned(), json!(id))]);
    let named = [("id", &chunk.id), ("title", &chunk.title), ("url", &chunk.url)];
    value.extend(named.into_iter().filter_map(|(name, v)| Some((name.to_owned(), v.clone()?.into()))));
    if text {
        value.insert("text".into(), chunk.text.clone().into());
    }
    value.insert("tokens".into(), view.weights.of(*id).into());
    value.insert("first_seen".into(), json!(first_seen));
    if text && let Some(mean) = candidate.mean() {
        value.insert("score".into(), mean.into());
        value.insert("scores".into(), scores.iter().map(|score| json!(score.value)).collect());
    }
    Value::Object(value)
}

/// Events from number `from` on, at most `limit`, of the batches that hold them; `all` is how many the context has.
pub(in crate::http) fn events(batches: &[Batch], from: i64, limit: usize, all: i64) -> Value {
    let data: Vec<Value> = numbered(batches)
        .filter(|(number, ..)| *number >= from)
        .take(limit)
        .map(|(number, at, record)| event(number, at, record))
        .collect();
    let next = from.min(all) + data.len() as i64;
    json!({"object": "list", "data": data, "next": next, "has_more": next < all})
}

/// All that is stored of a context.
pub(in crate::http) fn export(header: &Header, batches: &[Batch]) -> Value {
    let events: Vec<Value> =
        numbered(batches).map(|(number, at, record)| event(number, at, record)).collect();
    let costs: Vec<Value> = batches.iter().filter_map(|batch| Some(json!(batch.cost.as_ref()?))).collect();
    let settings: Value = serde_json::from_str(&header.settings).unwrap_or_default();
    json!({"format": 1, "context": summary(header), "settings": settings, "events": events, "costs": costs})
}

fn numbered(batches: &[Batch]) -> impl Iterator<Item = (i64, i64, Value)> {
    batches.iter().flat_map(|batch| {
        (batch.first..).zip(&batch.records).map(|(number, record)| (number, batch.at, json!(record)))
    })
}

fn event(number: i64, at: i64, record: Value) -> Value {
    let mut event = Map::from_iter([("number".to_owned(), json!(number)), ("at".to_owned(), json!(at))]);
    if let Value::Object(record) = record {
        event.extend(record);
    }
    Value::Object(event)
}
