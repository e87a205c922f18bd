//! Scoring on the wire.

use std::num::NonZeroUsize;

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::Value;

use super::{Rest, typed};
use crate::{
    http::ApiError,
    ids::HeadRef,
    kv::Salt,
    prompt::layout::Chunk,
    score::{Control, Read, Statistic},
    service::score::{HeadChoice, Orders, ScoreJob},
};

#[derive(Deserialize)]
struct Fields {
    query: Option<String>,
    queries: Option<Vec<String>>,
    chunks: Option<Vec<Sent>>,
    statistic: Option<Statistic>,
    control: Option<Control>,
    read: Option<Read>,
    head_set: Option<String>,
    heads: Option<Vec<HeadRef>>,
    orders: Option<Orders>,
    max_tokens_per_chunk: Option<NonZeroUsize>,
    explain: Option<bool>,
    cache_salt: Option<String>,
    #[serde(flatten)]
    rest: Rest,
}

/// A chunk as sent: its text alone, or an object.
struct Sent {
    id: Option<ChunkId>,
    title: Option<String>,
    url: Option<String>,
    text: String,
}

/// The caller's name for a chunk, given back as it came.
#[derive(Deserialize)]
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

impl<'de> Deserialize<'de> for Sent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Object {
            id: Option<ChunkId>,
            title: Option<String>,
            url: Option<String>,
            text: String,
        }
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
    let fields: Fields = typed(body)?;
    super::common::note_unknown(&fields.rest, &fields.rest);
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
    let sent =
        fields.chunks.ok_or_else(|| ApiError::invalid("chunks", "is missing; an empty list is fine"))?;
    let (ids, chunks) = sent
        .into_iter()
        .map(|Sent { id, title, url, text }| (id.map(Value::from), Chunk { id: None, title, url, text }))
        .unzip();
    let job = ScoreJob {
        queries,
        chunks,
        heads,
        statistic: fields.statistic,
        control: fields.control,
        read: fields.read,
        orders: fields.orders.unwrap_or_default(),
        max_tokens_per_chunk: fields.max_tokens_per_chunk,
        explain: fields.explain.unwrap_or(false),
        salt: fields.cache_salt.as_deref().map_or_else(Salt::none, Salt::new),
    };
    Ok((job, Asked { ids, many }))
}
