//! Scoring on the wire.

use std::num::NonZeroUsize;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Map, Value, json};

use super::{Rest, typed};
use crate::{
    http::ApiError,
    ids::{HeadRef, Span},
    kv::Salt,
    prompt::layout::Chunk,
    score::{Control, Read, Statistic},
    service::score::{HeadChoice, QueryScores, ScoreAnswer, ScoreJob, ScoredChunk, TokenResponse},
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
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged, expecting = "an id is a string or an integer")]
pub(in crate::http) enum ChunkId {
    Text(String),
    Number(i64),
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
    ids: Vec<Option<ChunkId>>,
    many: bool,
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
        .map(|Sent { id, title, url, text }| (id, Chunk { id: None, title, url, text }))
        .unzip();
    let job = ScoreJob {
        queries,
        chunks,
        heads,
        statistic: fields.statistic,
        control: fields.control,
        read: fields.read,
        max_tokens_per_chunk: fields.max_tokens_per_chunk,
        explain: fields.explain.unwrap_or(false),
        salt: fields.cache_salt.as_deref().map_or_else(Salt::none, Salt::new),
    };
    Ok((job, Asked { ids, many }))
}

/// The answer's own part of the response: `results`, or `queries` where several were asked.
pub(in crate::http) fn answer(answer: &ScoreAnswer, asked: &Asked) -> Map<String, Value> {
    let ms = |seconds: f64| (seconds * 1e6).round() / 1e3;
    let (usage, timings) = (answer.usage, answer.timings);
    let fields = json!({
        "head_set": answer.head_set,
        "heads": answer.heads,
        "method": answer.method,
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": 0,
            "total_tokens": usage.prompt_tokens,
            "computed_tokens": usage.computed_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        },
        "timings": {
            "tokenize_ms": ms(timings.tokenize),
            "queue_ms": ms(timings.queue),
            "prefill_ms": ms(timings.prefill),
            "score_ms": ms(timings.score),
        },
    });
    let Value::Object(mut fields) = fields else { return Map::new() };
    let results = |query: &QueryScores| -> Value {
        let chunks = query.chunks.iter().zip(&asked.ids).enumerate();
        chunks.map(|(i, (chunk, id))| result(i, chunk, id.as_ref(), &answer.heads)).collect()
    };
    if asked.many {
        let query = |(i, q): (usize, &QueryScores)| json!({"index": i, "results": results(q)});
        fields.insert("queries".into(), answer.queries.iter().enumerate().map(query).collect());
    } else {
        fields.insert("results".into(), answer.queries.first().map(results).unwrap_or_default());
    }
    fields
}

fn result(index: usize, chunk: &ScoredChunk, id: Option<&ChunkId>, heads: &[HeadRef]) -> Value {
    let score = &chunk.score;
    let head = |(head, s): (&HeadRef, &crate::score::HeadScore)| json!({"head": head, "score": s.score, "mass": s.mass});
    let mut result = json!({
        "index": index,
        "id": id,
        "score": score.value,
        "rank": chunk.rank,
        "tokens": chunk.tokens,
        "tokens_scored": score.n_tokens,
        "flags": {
            "empty": score.flags.empty,
            "single_token": score.flags.single_token,
            "no_response": score.flags.no_response,
            "truncated": chunk.truncated,
        },
        "heads": heads.iter().zip(&score.heads).map(head).collect::<Vec<_>>(),
    });
    if let (None, Some(fields)) = (id, result.as_object_mut()) {
        fields.shift_remove("id");
    }
    if let Some(tokens) = &chunk.explained {
        result["explain"] = tokens.iter().map(token).collect();
    }
    result
}

/// Characters of `text`; an empty range at its start for a token that lies in the title alone.
fn token(token: &TokenResponse) -> Value {
    let Span { start, end } = token.span.unwrap_or_default();
    json!({
        "start": start,
        "end": end,
        "in_title": token.in_title,
        "response": token.response,
        "per_head": token.per_head,
    })
}
