//! Scoring on the wire.

use std::{borrow::Cow, num::NonZeroUsize};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::Value;

use super::{settings, typed};
use crate::{http::ApiError, prompt::layout::Chunk, service::score::ScoreJob};

/// A scoring request's own fields.
#[derive(Deserialize, JsonSchema)]
pub(in crate::http) struct Fields {
    /// One question, for `results`; either this or `queries`.
    query: Option<String>,
    /// Several over the same chunks, for a list of `queries` in the answer.
    queries: Option<Vec<String>>,
    /// What is scored, in retrieval order.
    chunks: Option<Vec<Sent>>,
    /// Longer chunks are cut, and flagged.
    max_tokens_per_chunk: Option<NonZeroUsize>,
    /// Also give every token's response.
    explain: Option<bool>,
}

/// The names of these fields.
const FIELDS: [&str; 5] = ["query", "queries", "chunks", "max_tokens_per_chunk", "explain"];

/// A chunk as sent: its text alone, or an object.
pub(super) struct Sent {
    id: Option<ChunkId>,
    title: Option<String>,
    url: Option<String>,
    text: String,
}

impl From<Sent> for Chunk {
    /// With its id as text.
    fn from(Sent { id, title, url, text }: Sent) -> Self {
        let id = id.map(|id| match id {
            ChunkId::Text(id) => id,
            ChunkId::Number(id) => id.to_string(),
        });
        Self { id, title, url, text }
    }
}

/// The caller's name for a chunk, given back as it came.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(untagged, expecting = "an id is a string or an integer")]
enum ChunkId {
    Text(String),
    Number(i64),
}

impl From<ChunkId> for Value {
    fn from(id: ChunkId) -> Self {
        match id {
            ChunkId::Text(id) => id.into(),
            ChunkId::Number(id) => id.into(),
        }
    }
}

/// A chunk as an object.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "Chunk")]
struct Object {
    id: Option<ChunkId>,
    title: Option<String>,
    url: Option<String>,
    text: String,
}

impl JsonSchema for Sent {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "TextOrChunk".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"type": "string"}, generator.subschema_for::<Object>()]})
    }
}

impl<'de> Deserialize<'de> for Sent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Sent;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string or an object with text")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Sent, E> {
                Ok(Sent { id: None, title: None, url: None, text: text.into() })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Sent, A::Error> {
                let Object { id, title, url, text } = Object::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Sent { id, title, url, text })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// What of a request shapes the answer.
pub(in crate::http) struct Asked {
    /// Each chunk's id as it came.
    pub(in crate::http) ids: Vec<Option<Value>>,
    /// A list of queries was asked.
    pub(in crate::http) many: bool,
}

/// A request's job.
pub(in crate::http) fn job(body: &Value) -> Result<(ScoreJob, Asked), ApiError> {
    job_among(body, &[])
}

/// The same for a route that reads `more` fields.
pub(super) fn job_among(body: &Value, more: &[&str]) -> Result<(ScoreJob, Asked), ApiError> {
    let fields: Fields = typed(body)?;
    settings::note_unknown(body, &[&FIELDS, more].concat());
    let many = fields.queries.is_some();
    let queries = match (fields.query, fields.queries) {
        (Some(query), None) => vec![query],
        (None, Some(queries)) if queries.is_empty() => {
            return Err(ApiError::invalid("queries", "must hold at least one query"));
        }
        (None, Some(queries)) => queries,
        (Some(_), Some(_)) => {
            return Err(ApiError::invalid("query", "is given beside queries; give one of them"));
        }
        (None, None) => return Err(ApiError::invalid("query", "is missing; give query or queries")),
    };
    let sent =
        fields.chunks.ok_or_else(|| ApiError::invalid("chunks", "is missing; an empty list is fine"))?;
    let (ids, chunks) = sent
        .into_iter()
        .map(|Sent { id, title, url, text }| (id.map(Value::from), Chunk { id: None, title, url, text }))
        .unzip();
    let job = ScoreJob {
        queries,
        chunks,
        max_tokens_per_chunk: fields.max_tokens_per_chunk,
        explain: fields.explain.unwrap_or(false),
        ..settings::job(body)?
    };
    Ok((job, Asked { ids, many }))
}
