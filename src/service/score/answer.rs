//! From attention rows to the answer of a scoring request.

use std::time::Instant;

use super::{Plan, QueryScores, ScoreAnswer, ScoreJob, ScoreTimings, ScoreUsage, ScoredChunk, TokenResponse};
use crate::{
    engine::{EngineError, RowsOutput},
    ids::{HeadRef, Span},
    prompt::layout::ScoringPrompt,
    score::{Control, Rows, ScoreInput, head_responses, rank, responses, score},
    service::ServiceError,
};

/// From rows to the answer; `output` is absent when every chunk is empty, and then nothing was computed.
pub(super) fn answer(
    job: &ScoreJob,
    plan: Plan,
    output: Option<RowsOutput>,
) -> Result<ScoreAnswer, ServiceError> {
    let begin = Instant::now();
    let Plan { heads, head_set, method, prompt, mut usage, tokenize } = plan;
    let lens = prompt.chunk_lens();
    let mut timings = ScoreTimings { tokenize, ..ScoreTimings::default() };
    let assemble = |conditioned: &Rows, control: Option<&Rows>| {
        let input = ScoreInput { chunk_lens: &lens, conditioned, control, statistic: method.statistic };
        assemble(&input, &prompt, job.explain)
    };
    let phases: Vec<_> = output.iter().map(|output| output.phases).collect();
    let queries = if let Some(output) = output {
        timings.queue = output.phases.queue().as_secs_f64();
        timings.prefill = output.phases.prefill().as_secs_f64();
        usage.cached_tokens = output.cached_tokens;
        usage.computed_tokens = output.computed_tokens;
        usage.shared_tokens = usage.prompt_tokens.saturating_sub(usage.cached_tokens + usage.computed_tokens);
        let among_queries = (job.queries.len() - 1) * prompt.prefix.len();
        usage.control_cached_tokens =
            usage.shared_tokens.saturating_sub(among_queries).min(usage.control_tokens);
        let control = match method.control {
            Control::QueryFree => output.control.as_ref(),
            Control::NullQuery => output.tails.last().map(|reads| &reads[0]),
            Control::None => None,
        };
        let tails = output.tails.iter().take(job.queries.len());
        tails.map(|reads| assemble(&reads[0], control)).collect::<Result<_, _>>()?
    } else {
        usage = ScoreUsage::default();
        let zero = zero_rows(&heads);
        job.queries.iter().map(|_| assemble(&zero, None)).collect::<Result<_, _>>()?
    };
    timings.score = begin.elapsed().as_secs_f64();
    Ok(ScoreAnswer { queries, heads, head_set, method, orders: 1, usage, timings, phases })
}

/// Rows over no candidates: what is read when every chunk is empty.
fn zero_rows(heads: &[HeadRef]) -> Rows {
    Rows::new(heads.len(), 0, Vec::new()).expect("no values are valid rows: this is a bug")
}

fn assemble(
    input: &ScoreInput<'_>,
    prompt: &ScoringPrompt,
    explain: bool,
) -> Result<QueryScores, ServiceError> {
    let failed =
        |e: &dyn std::fmt::Display| EngineError::Failed { reason: format!("the rows cannot be scored: {e}") };
    let scores = score(input).map_err(|e| failed(&e))?;
    let ranks = rank(&scores.iter().map(|s| s.value).collect::<Vec<_>>());
    let mut explained = if explain { Some(explanations(input, prompt)?.into_iter()) } else { None };
    let chunks =
        scores.into_iter().zip(ranks).zip(&prompt.chunks).map(|((score, rank), chunk)| ScoredChunk {
            score,
            rank,
            tokens: chunk.tokens,
            truncated: chunk.truncated,
            explained: explained.as_mut().and_then(Iterator::next),
        });
    Ok(QueryScores { chunks: chunks.collect() })
}

/// Per chunk, every scored token with its responses and its characters in the caller's text.
fn explanations(
    input: &ScoreInput<'_>,
    prompt: &ScoringPrompt,
) -> Result<Vec<Vec<TokenResponse>>, ServiceError> {
    let failed = |e: &dyn std::fmt::Display| EngineError::Failed {
        reason: format!("the rows cannot be explained: {e}"),
    };
    let mean = responses(input).map_err(|e| failed(&e))?;
    let heads = 0..input.conditioned.n_heads();
    let per_head =
        heads.map(|h| head_responses(input, h)).collect::<Result<Vec<_>, _>>().map_err(|e| failed(&e))?;
    let mut t = 0..mean.len();
    let chunk = |chunk: &crate::prompt::layout::ChunkSpan| {
        let token = |(offsets, t): (&Span, usize)| {
            let place = chunk.place(*offsets);
            let per_head = per_head.iter().map(|r| r[t]).collect();
            TokenResponse { span: place.text, in_title: place.in_title, response: mean[t], per_head }
        };
        chunk.offsets.iter().zip(t.by_ref()).map(token).collect()
    };
    Ok(prompt.chunks.iter().map(chunk).collect())
}
