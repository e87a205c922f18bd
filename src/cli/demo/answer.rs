//! Answers a question from search results: a greedy chat whose text comes out piece by piece.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use serde_json::json;

use crate::{
    engine::Sampling,
    kv::Salt,
    prompt::layout::Chunk,
    service::{
        Permit, ServedModel,
        generate::{AnswerOptions, ChatJob, ChatPrompt, GenerateOptions, Generation},
    },
};

/// Longest answer, in tokens.
const MAX_TOKENS: usize = 48;

/// An answer on its way.
pub(super) struct Asked {
    begin: Instant,
    generation: Generation,
}

/// An answer, and what it cost.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) prompt_tokens: usize,
    pub(super) new_tokens: usize,
    /// From asking to the first token.
    pub(super) first_token: Duration,
    pub(super) total: Duration,
}

/// Asks the question after these results. `cache` keeps the KV of different answers apart, so that each pays for its
/// own prompt.
pub(super) async fn ask(
    model: &Arc<ServedModel>,
    question: &str,
    results: &[&Chunk],
    cache: &str,
    permit: Permit,
) -> anyhow::Result<Asked> {
    let begin = Instant::now();
    let listed = (1..).zip(results).map(|(i, chunk)| format!("[{i}] {}", chunk.serialise().0));
    let listed = listed.collect::<Vec<_>>().join("\n\n");
    let content = format!(
        "Search results:\n\n{listed}\n\nAnswer in one sentence, using only the search results above.\n\
         Question: {question}"
    );
    let job = ChatJob {
        prompt: ChatPrompt::new(json!([{"role": "user", "content": content}])),
        options: GenerateOptions {
            sampling: Sampling::default(),
            max_tokens: Some(MAX_TOKENS),
            salt: Salt::new(cache),
            ..GenerateOptions::default()
        },
        answer: AnswerOptions::default(),
    };
    Ok(Asked { begin, generation: model.chat(job, permit).await? })
}

impl Asked {
    pub(super) fn prompt_tokens(&self) -> usize {
        self.generation.usage().prompt_tokens
    }

    /// Waits for the whole answer; `on_text` gets each piece as it comes.
    pub(super) async fn listen(
        mut self,
        mut on_text: impl FnMut(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<Answer> {
        let (mut text, mut first_token) = (String::new(), None);
        while let Some(delta) = self.generation.next().await {
            let delta = delta?;
            first_token.get_or_insert_with(|| self.begin.elapsed());
            on_text(&delta.text)?;
            text += &delta.text;
        }
        let (usage, total) = (self.generation.usage(), self.begin.elapsed());
        Ok(Answer {
            text,
            prompt_tokens: usage.prompt_tokens,
            new_tokens: usage.completion_tokens,
            first_token: first_token.unwrap_or(total),
            total,
        })
    }
}
