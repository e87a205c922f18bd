//! Observing: one labelled question goes through the model once, and every head is read at once.

use super::{ServedModel, ServiceError};
use crate::{
    engine::{EngineError, Over, RowsOutput, RowsRequest, Tail, TailRead},
    eval::{
        answer::answer_spans,
        observation::{Observation, Readings, TailRows},
        question::Question,
    },
    ids::{HeadRef, Span, TokenId},
    kv::Salt,
    prompt::layout::{LayoutError, NULL_QUERY, ScoringPrompt, layout},
    score::Rows,
};

/// An observation and what it cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// What was seen.
    pub observation: Observation,
    /// Tokens of the query-conditioned input.
    pub prompt_tokens: usize,
}

/// Where the reads of a tail lie in the engine's answer.
const LAST: usize = 0;
const MEAN: usize = 1;
const QUESTION: usize = 2;
const LAST_VISIBLE: usize = 3;

impl ServedModel {
    /// Every head of the model, ascending.
    #[must_use]
    pub fn all_heads(&self) -> Vec<HeadRef> {
        let spec = self.engine.spec();
        let heads = |layer| (0..spec.n_heads as u16).map(move |head| HeadRef { layer, head });
        (0..spec.n_layers as u16).flat_map(heads).collect()
    }

    /// Reads all heads for `question` in one prefill (and a second short tail, the null query's). Blocks until done.
    ///
    /// # Errors
    /// When the prompt is too long for the model, there is no token to read, or the engine fails.
    pub fn observe(&self, question: &Question) -> Result<Observed, ServiceError> {
        let prompt = layout(
            &self.score_prompt,
            &self.pieces,
            &question.chunks,
            &[&question.query, NULL_QUERY],
            None,
            &self.tokenizer,
        )
        .map_err(|e| match e {
            LayoutError::EmptyTail { .. } => ServiceError::invalid("query", &e),
            other => ServiceError::invalid("chunks", &other),
        })?;
        let prompt_tokens = prompt.prefix.len() + prompt.tails.iter().map(Vec::len).max().unwrap_or(0);
        if prompt_tokens > self.max_model_len {
            let limit = self.max_model_len;
            return Err(ServiceError::TooLong {
                field: "chunks".into(),
                prompt: prompt_tokens,
                new: 0,
                limit,
            });
        }
        if prompt.chunks.iter().all(|c| c.span.is_empty()) {
            return Err(ServiceError::invalid("chunks", &"no chunk has a token to read"));
        }
        let output = self.engine.rows(self.request(&prompt)).blocking_recv();
        let output = output.unwrap_or(Err(EngineError::Stopped))?;
        let answer = question.answer.as_deref().map(|answer| answer_tokens(&prompt, answer));
        let observation =
            observation(&prompt, &output, answer.filter(|tokens| !tokens.is_empty()).as_deref());
        let observation = observation
            .map_err(|e| EngineError::Failed { reason: format!("the rows cannot be scored: {e}") })?;
        Ok(Observed { observation, prompt_tokens })
    }

    fn request(&self, prompt: &ScoringPrompt) -> RowsRequest {
        let tail = |tokens: &Vec<TokenId>| {
            let all = Span::new(0, tokens.len());
            let last = Span::new(tokens.len() - 1, tokens.len());
            let asked = Span::new(0, tokens.len() - prompt.suffix_len);
            let question = if asked.is_empty() { all } else { asked };
            let read = |tokens, over| TailRead { tokens, over };
            let reads = vec![
                read(last, Over::Candidates),
                read(all, Over::Candidates),
                read(question, Over::Visible),
                read(last, Over::Visible),
            ];
            Tail { tokens: tokens.clone(), reads }
        };
        RowsRequest {
            prefix: prompt.prefix.clone(),
            tails: prompt.tails.iter().map(tail).collect(),
            control: true,
            heads: self.all_heads(),
            candidates: prompt.chunks.iter().map(|c| c.span).filter(|s| !s.is_empty()).collect(),
            salt: Salt::none(),
        }
    }
}

fn observation(
    prompt: &ScoringPrompt,
    output: &RowsOutput,
    answer: Option<&[usize]>,
) -> Result<Observation, crate::score::ScoreError> {
    let control = output.control.as_ref().expect("the control was asked for: this is a bug");
    let readings = Readings {
        chunk_lens: &prompt.chunk_lens(),
        query_free: control,
        query: tail_rows(&output.tails[0]),
        null: tail_rows(&output.tails[1]),
        last_visible: &output.tails[0][LAST_VISIBLE],
    };
    Observation::new(&readings, answer)
}

fn tail_rows(reads: &[Rows]) -> TailRows<'_> {
    TailRows { last: &reads[LAST], mean: &reads[MEAN], question: &reads[QUESTION] }
}

/// Candidate tokens (counted over all chunks) that overlap an occurrence of the answer in a chunk's text.
fn answer_tokens(prompt: &ScoringPrompt, answer: &str) -> Vec<usize> {
    let (mut first, mut tokens) = (0, Vec::new());
    for chunk in &prompt.chunks {
        let found = answer_spans(&chunk.text, answer);
        let overlaps = |o: &Span| found.iter().any(|f| o.start < f.end && o.end > f.start);
        let here = chunk.offsets.iter().enumerate().filter(|(_, o)| overlaps(o));
        tokens.extend(here.map(|(i, _)| first + i));
        first += chunk.offsets.len();
    }
    tokens
}
