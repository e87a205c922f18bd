//! A scored request as JSON, for the server and for the command line.

use serde_json::{Map, Value, json};

use crate::{
    ids::{HeadRef, Span},
    score::{Flags, HeadScore},
    service::{
        ServedModel,
        score::{QueryScores, ScoreAnswer, ScoredChunk, TokenResponse},
    },
};

/// The body of `POST /v1/qrae/score` but for what names the single response. `ids` are the chunks' own, given back as
/// they came; with `many`, there is a list of `queries` in place of `results`.
#[must_use]
pub fn score_json(
    model: &ServedModel,
    answer: &ScoreAnswer,
    ids: &[Option<Value>],
    many: bool,
) -> Map<String, Value> {
    let results = |query: &QueryScores| -> Value {
        let chunks = query.chunks.iter().zip(ids).enumerate();
        chunks.map(|(i, (chunk, id))| result(i, chunk, id.as_ref(), &answer.heads)).collect()
    };
    let (name, value) = if many {
        let query = |(i, q): (usize, &QueryScores)| json!({"index": i, "results": results(q)});
        ("queries", answer.queries.iter().enumerate().map(query).collect())
    } else {
        ("results", answer.queries.first().map(results).unwrap_or_default())
    };
    around(model, answer, "qrae.score", (name, value))
}

/// What is said around the results: how they came to be, and what they cost.
pub(super) fn around(
    model: &ServedModel,
    answer: &ScoreAnswer,
    object: &str,
    (name, results): (&str, Value),
) -> Map<String, Value> {
    let ms = |seconds: f64| (seconds * 1e6).round() / 1e3;
    let (usage, timings) = (answer.usage, answer.timings);
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| fields.insert(name.into(), value);
    put("object", object.into());
    put("model", model.id.as_str().into());
    put("prompt_hash", model.prompt_hash.as_str().into());
    put("head_set", answer.head_set.as_str().into());
    put("heads", json!(answer.heads));
    put("method", json!(answer.method));
    put("orders", answer.orders.into());
    put(name, results);
    put(
        "usage",
        json!({
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": 0,
            "total_tokens": usage.prompt_tokens,
            "computed_tokens": usage.computed_tokens,
            "prompt_tokens_details": {
                "cached_tokens": usage.cached_tokens,
                "shared_tokens": usage.shared_tokens,
            },
        }),
    );
    put(
        "timings",
        json!({
            "tokenize_ms": ms(timings.tokenize),
            "queue_ms": ms(timings.queue),
            "prefill_ms": ms(timings.prefill),
            "score_ms": ms(timings.score),
        }),
    );
    fields
}

fn result(index: usize, chunk: &ScoredChunk, id: Option<&Value>, heads: &[HeadRef]) -> Value {
    let score = &chunk.score;
    let head = |(head, s): (&HeadRef, &HeadScore)| json!({"head": head, "score": s.score, "mass": s.mass});
    let mut result = json!({
        "index": index,
        "id": id,
        "score": score.value,
        "rank": chunk.rank,
        "tokens": chunk.tokens,
        "tokens_scored": score.n_tokens,
        "flags": flags(chunk),
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

/// Which edges of the definition a chunk fell into.
pub(super) fn flags(chunk: &ScoredChunk) -> Value {
    let Flags { empty, single_token, no_response } = chunk.score.flags;
    json!({"empty": empty, "single_token": single_token, "no_response": no_response, "truncated": chunk.truncated})
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
