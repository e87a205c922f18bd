//! Gating on the wire: a scoring request with one question, and which of its chunks are to be shown.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    score::{self, Asked},
    scored::{around, flags},
    typed,
};
use crate::{
    gate::{Candidate, Gated, Policy, Response, Rules, gate},
    http::ApiError,
    ids::Span,
    prompt::layout::Chunk,
    service::{
        ServedModel,
        score::{ScoreAnswer, ScoreJob, ScoredChunk, TokenResponse},
    },
};

/// The share of a chunk's response that spans hold where none is given.
const SHARE: f64 = 0.8;

/// What stands between two spans of a text.
const GAP: &str = " […] ";

/// A gating request's own fields, besides those of a scoring request with one `query`.
#[derive(Deserialize, JsonSchema)]
pub(in crate::http) struct Fields {
    /// Admit the best so many chunks; without any of the three, the better half.
    #[schemars(range(min = 0))]
    top_k: Option<i64>,
    /// Admit every chunk of at least this score.
    threshold: Option<f64>,
    /// Admit, from the best down, every chunk whose kept tokens still fit into so many; titles count first.
    #[schemars(range(min = 0))]
    budget_tokens: Option<i64>,
    /// Show so many of the best admitted chunks whole.
    #[schemars(range(min = 0))]
    full: Option<i64>,
    /// The share of a chunk's response that its spans hold.
    #[schemars(extend("exclusiveMinimum" = 0.0), range(max = 1.0))]
    share: Option<f64>,
}

/// The names of these fields.
const FIELDS: [&str; 5] = ["top_k", "threshold", "budget_tokens", "full", "share"];

/// How a request's chunks are gated, and what of them the answer repeats.
pub(in crate::http) struct Gating {
    rules: Rules,
    chunks: Vec<Chunk>,
    asked: Asked,
}

/// A request's job, which explains every token, and what is done with its scores.
pub(in crate::http) fn job(body: &Value) -> Result<(ScoreJob, Gating), ApiError> {
    for name in ["queries", "explain"] {
        if !body[name].is_null() {
            return Err(ApiError::invalid(name, "is no field of this route; /v1/qrae/score has it"));
        }
    }
    let fields: Fields = typed(body)?;
    let (mut job, asked) = score::job_among(body, &FIELDS)?;
    job.explain = true;
    let rules = fields.rules(job.chunks.len())?;
    let chunks = job.chunks.clone();
    Ok((job, Gating { rules, chunks, asked }))
}

impl Fields {
    fn rules(&self, chunks: usize) -> Result<Rules, ApiError> {
        let count = |field: &str, n: i64| {
            usize::try_from(n).map_err(|_| ApiError::invalid(field, &format!("is {n}, must be at least 0")))
        };
        let policy = match (self.top_k, self.threshold, self.budget_tokens) {
            (None, None, None) => Policy::TopK(chunks.div_ceil(2)),
            (Some(k), None, None) => Policy::TopK(count("top_k", k)?),
            (None, Some(least), None) => Policy::Threshold(least),
            (None, None, Some(tokens)) => Policy::Budget(count("budget_tokens", tokens)?),
            (Some(_), ..) => {
                return Err(ApiError::invalid("top_k", "is given beside another rule; give one of them"));
            }
            (None, ..) => {
                return Err(ApiError::invalid("threshold", "is given beside another rule; give one of them"));
            }
        };
        let share = self.share.unwrap_or(SHARE);
        if !(share > 0.0 && share <= 1.0) {
            return Err(ApiError::invalid("share", &format!("is {share}, must be above 0 and at most 1")));
        }
        Ok(Rules { policy, full: count("full", self.full.unwrap_or(0))?, share })
    }
}

impl Gating {
    /// The answer's body but for what names the single response.
    pub(in crate::http) fn answer(&self, model: &ServedModel, answer: &ScoreAnswer) -> Map<String, Value> {
        let scored = answer.queries.first().map(|q| q.chunks.as_slice()).unwrap_or_default();
        let responses: Vec<Vec<Response>> = scored.iter().map(responses).collect();
        let candidates: Vec<Candidate<'_>> = scored
            .iter()
            .zip(&self.chunks)
            .zip(&responses)
            .map(|((scored, chunk), responses)| Candidate {
                text: &chunk.text,
                score: scored.score.value,
                rank: scored.rank,
                tokens: scored.tokens,
                cut: scored.truncated.then(|| reach(scored)),
                responses,
            })
            .collect();
        let gated = gate(&candidates, &self.rules);
        let results = scored.iter().zip(&gated).enumerate().map(|(i, (s, g))| self.result(i, s, g)).collect();
        let mut fields = around(model, answer, "qrae.gate", ("results", results));
        let shown: usize = gated.iter().map(|g| g.tokens).sum();
        let all: usize = scored.iter().map(|s| s.tokens).sum();
        fields.insert("tokens".into(), json!({"all": all, "shown": shown}));
        fields
    }

    fn result(&self, index: usize, scored: &ScoredChunk, gated: &Gated) -> Value {
        let chunk = &self.chunks[index];
        let parts: Vec<(Span, String)> =
            gated.spans.iter().map(|span| (*span, characters(&chunk.text, *span))).collect();
        let text = parts.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(GAP);
        let span =
            |(Span { start, end }, text): &(Span, String)| json!({"start": start, "end": end, "text": text});
        let mut result = json!({
            "index": index,
            "id": self.asked.ids[index],
            "title": chunk.title,
            "admission": gated.admission,
            "text": text,
            "spans": parts.iter().map(span).collect::<Vec<_>>(),
            "score": scored.score.value,
            "rank": scored.rank,
            "tokens": scored.tokens,
            "tokens_shown": gated.tokens,
            "flags": flags(scored),
        });
        if let Some(fields) = result.as_object_mut() {
            for name in ["id", "title"] {
                if fields[name].is_null() {
                    fields.shift_remove(name);
                }
            }
        }
        result
    }
}

/// Characters of the text up to the end of the last token that was scored.
fn reach(chunk: &ScoredChunk) -> usize {
    chunk.explained.iter().flatten().filter_map(|token| token.span).map(|span| span.end).max().unwrap_or(0)
}

fn responses(chunk: &ScoredChunk) -> Vec<Response> {
    let one = |token: &TokenResponse| Response {
        start: token.span.filter(|_| !token.in_title).map(|span| span.start),
        response: token.response,
    };
    chunk.explained.iter().flatten().map(one).collect()
}

fn characters(text: &str, span: Span) -> String {
    text.chars().skip(span.start).take(span.len()).collect()
}
