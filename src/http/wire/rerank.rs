//! Reranking as other servers' clients ask for it. A body with `documents` speaks Cohere's and Jina's dialect, one with
//! `texts` that of text-embeddings-inference (TEI).

use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{scored::flags, settings, typed};
use crate::{
    http::ApiError,
    prompt::layout::Chunk,
    score::Statistic,
    service::score::{ScoreAnswer, ScoreJob, ScoredChunk},
};

/// Whose client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Dialect {
    /// `documents` → an object with `results`.
    Cohere,
    /// `texts` → a list.
    Tei,
}

impl Dialect {
    /// The dialect of a body, told by which field it has.
    ///
    /// # Errors
    /// When it has both or none.
    pub(in crate::http) fn of(body: &Value) -> Result<Self, ApiError> {
        match (body["documents"].is_null(), body["texts"].is_null()) {
            (false, true) => Ok(Self::Cohere),
            (true, false) => Ok(Self::Tei),
            (false, false) => Err(ApiError::invalid("texts", "are given beside documents; give one of them")),
            (true, true) => Err(ApiError::invalid(
                "documents",
                "is missing; give documents (as Cohere) or texts (as TEI)",
            )),
        }
    }

    /// What this dialect calls the chunks.
    pub(in crate::http) fn chunks(self) -> &'static str {
        match self {
            Self::Cohere => "documents",
            Self::Tei => "texts",
        }
    }
}

/// A rerank request's own fields, of both dialects.
#[derive(Deserialize, JsonSchema)]
pub(in crate::http) struct Fields {
    query: Option<String>,
    /// Cohere's and Jina's dialect: the answer is an object.
    #[schemars(with = "Option<Vec<crate::http::openapi::shapes::Document>>")]
    documents: Option<Vec<Value>>,
    /// The dialect of text-embeddings-inference: the answer is a list.
    texts: Option<Vec<String>>,
    /// At most so many results; 0 for all.
    #[schemars(range(min = 0))]
    top_n: Option<i64>,
    return_documents: Option<bool>,
    rank_fields: Option<Vec<String>>,
    max_tokens_per_doc: Option<NonZeroUsize>,
    #[schemars(skip)]
    truncate_prompt_tokens: Option<i64>,
    raw_scores: Option<bool>,
    return_text: Option<bool>,
}

/// The names of these fields, and of those of TEI that change nothing here: no text is ever cut but where
/// `max_tokens_per_doc` says so.
const FIELDS: [&str; 12] = [
    "query",
    "documents",
    "texts",
    "top_n",
    "return_documents",
    "rank_fields",
    "max_tokens_per_doc",
    "truncate_prompt_tokens",
    "raw_scores",
    "return_text",
    "truncate",
    "truncation_direction",
];

/// What of a request shapes the answer.
#[derive(Debug)]
pub(in crate::http) struct Asked {
    dialect: Dialect,
    /// At most so many results.
    top_n: usize,
    /// Scores as they are in place of relevance.
    raw: bool,
    /// The documents, where they are to be given back.
    given: Option<Vec<Value>>,
}

/// A request's job.
pub(in crate::http) fn job(body: &Value, dialect: Dialect) -> Result<(ScoreJob, Asked), ApiError> {
    let fields: Fields = typed(body)?;
    settings::note_unknown(body, &FIELDS);
    let query = fields.query.ok_or_else(|| ApiError::invalid("query", "is missing"))?;
    let top_n = match fields.top_n {
        None | Some(0) => usize::MAX,
        Some(n) => usize::try_from(n).map_err(|_| ApiError::invalid("top_n", "must be 0 (all) or more"))?,
    };
    if fields.truncate_prompt_tokens.is_some_and(|n| n >= 0) {
        let reason = "is not supported, for it would cut the prompt; cut documents with max_tokens_per_doc";
        return Err(ApiError::invalid("truncate_prompt_tokens", reason));
    }
    let (chunks, give) = match dialect {
        Dialect::Cohere => {
            let documents = fields.documents.as_deref().unwrap_or_default();
            let ranked = fields.rank_fields.as_deref().unwrap_or_default();
            let chunk =
                |(i, document): (usize, &Value)| document_chunk(document, &format!("documents[{i}]"), ranked);
            (documents.iter().enumerate().map(chunk).collect::<Result<_, _>>()?, fields.return_documents)
        }
        Dialect::Tei => {
            let chunk = |text: &String| Chunk { text: text.clone(), ..Chunk::default() };
            (fields.texts.iter().flatten().map(chunk).collect(), fields.return_text)
        }
    };
    let given = give.unwrap_or(false).then(|| match dialect {
        Dialect::Cohere => fields.documents.unwrap_or_default().into_iter().map(as_object).collect(),
        Dialect::Tei => fields.texts.unwrap_or_default().into_iter().map(Value::from).collect(),
    });
    let job = ScoreJob {
        queries: vec![query],
        chunks,
        max_tokens_per_chunk: fields.max_tokens_per_doc,
        ..settings::job(body)?
    };
    let raw = dialect == Dialect::Tei && fields.raw_scores.unwrap_or(false);
    Ok((job, Asked { dialect, top_n, raw, given }))
}

fn as_object(document: Value) -> Value {
    if document.is_string() { json!({"text": document}) } else { document }
}

/// A document is a string, or an object: its `text` (or `content`: a string, or parts with texts) and `title`, or the
/// fields named in `rank_fields`, one on a line.
fn document_chunk(document: &Value, place: &str, ranked: &[String]) -> Result<Chunk, ApiError> {
    let object = match document {
        Value::String(text) => return Ok(Chunk { text: text.clone(), ..Chunk::default() }),
        Value::Object(object) => object,
        _ => return Err(ApiError::invalid(place, "must be a string or an object with text")),
    };
    let string = |name: &str| match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(ApiError::invalid(format!("{place}.{name}"), "must be a string")),
    };
    if !ranked.is_empty() {
        let line = |name: &String| match object.get(name) {
            None | Some(Value::Null) => {
                Err(ApiError::invalid(format!("{place}.{name}"), "is missing, and rank_fields names it"))
            }
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Ok(other.to_string()),
        };
        let lines = ranked.iter().map(line).collect::<Result<Vec<_>, _>>()?;
        return Ok(Chunk { text: lines.join("\n"), ..Chunk::default() });
    }
    let text = match (string("text")?, object.get("content")) {
        (Some(text), _) => text,
        (None, Some(content)) => content_text(content, place)?,
        (None, None) => {
            return Err(ApiError::invalid(
                format!("{place}.text"),
                "is missing; rank_fields can name other fields",
            ));
        }
    };
    Ok(Chunk { title: string("title")?, text, ..Chunk::default() })
}

fn content_text(content: &Value, place: &str) -> Result<String, ApiError> {
    let refuse = |place: String| ApiError::invalid(place, "must be text: a string, or parts of type text");
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => parts
            .iter()
            .enumerate()
            .map(|(i, part)| match (&part["type"], &part["text"]) {
                (Value::Null, Value::String(text)) => Ok(text.as_str()),
                (Value::String(kind), Value::String(text)) if kind == "text" => Ok(text.as_str()),
                _ => Err(refuse(format!("{place}.content[{i}]"))),
            })
            .collect(),
        _ => Err(refuse(format!("{place}.content"))),
    }
}

/// The answer's body, best first; ties keep the order of the request.
pub(in crate::http) fn answer(answer: &ScoreAnswer, asked: &Asked, model: &str, id: &str) -> Value {
    let chunks = answer.queries.first().map_or(&[][..], |query| &query.chunks);
    let mut best: Vec<(usize, &ScoredChunk)> = chunks.iter().enumerate().collect();
    best.sort_by_key(|(_, chunk)| chunk.rank);
    best.truncate(asked.top_n);
    let statistic = answer.method.statistic;
    let given = |i: usize| asked.given.as_ref().and_then(|given| given.get(i)).cloned();
    match asked.dialect {
        Dialect::Tei => {
            best.iter().map(|&(i, chunk)| tei_result(i, chunk, given(i), asked.raw, statistic)).collect()
        }
        Dialect::Cohere => {
            let results: Vec<Value> =
                best.iter().map(|&(i, chunk)| cohere_result(i, chunk, given(i), statistic)).collect();
            let tokens = answer.usage.prompt_tokens;
            json!({
                "object": "list",
                "id": id,
                "model": model,
                "results": results,
                "meta": {
                    "api_version": {"version": "2"},
                    "billed_units": {"search_units": 1, "total_tokens": tokens},
                    "tokens": {"input_tokens": tokens, "output_tokens": 0},
                },
                "usage": {
                    "prompt_tokens": tokens,
                    "completion_tokens": 0,
                    "total_tokens": tokens,
                    "prompt_tokens_details": {"cached_tokens": answer.usage.cached_tokens},
                },
                "head_set": answer.head_set,
                "method": answer.method,
            })
        }
    }
}

fn cohere_result(index: usize, chunk: &ScoredChunk, document: Option<Value>, statistic: Statistic) -> Value {
    let mut result = Map::new();
    result.insert("index".into(), index.into());
    result.insert("relevance_score".into(), statistic.relevance(chunk.score.value).into());
    document.and_then(|document| result.insert("document".into(), document));
    result.insert("flags".into(), flags(chunk));
    result.into()
}

fn tei_result(
    index: usize,
    chunk: &ScoredChunk,
    text: Option<Value>,
    raw: bool,
    statistic: Statistic,
) -> Value {
    let value = chunk.score.value;
    let mut result = Map::new();
    result.insert("index".into(), index.into());
    text.and_then(|text| result.insert("text".into(), text));
    result.insert("score".into(), if raw { value } else { statistic.relevance(value) }.into());
    result.into()
}
