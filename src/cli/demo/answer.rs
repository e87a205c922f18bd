//! Answers a question from search results with the loaded model, greedily, giving out the text as it comes.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{
    engine::{EngineError, GenerateRequest, Sampling},
    ids::TokenId,
    kv::Salt,
    prompt::{PieceEncoder, Specials, layout::Chunk, template::RenderInput},
    service::ServedModel,
    text::TokenStream,
};

/// Longest answer.
const MAX_NEW: usize = 48;

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

/// The prompt's tokens: the chunks, then the question, as one user message.
pub(super) fn prompt(model: &ServedModel, question: &str, chunks: &[&Chunk]) -> anyhow::Result<Vec<TokenId>> {
    let listed = (1..).zip(chunks).map(|(i, chunk)| format!("[{i}] {}", chunk.serialise().0));
    let listed = listed.collect::<Vec<_>>().join("\n\n");
    let content = format!(
        "Search results:\n\n{listed}\n\nAnswer in one sentence, using only the search results above.\nQuestion: {question}"
    );
    let (bos, eos) = (model.bos_text(), model.eos_text());
    let messages = json!([{"role": "user", "content": content}]);
    let text = model.template.render(&RenderInput {
        messages: &messages,
        add_generation_prompt: true,
        bos_token: bos.as_deref(),
        eos_token: eos.as_deref(),
        ..RenderInput::default()
    })?;
    let mut ids = model.tokenizer.encode(&text, Specials::Parse)?.ids;
    if let Some(bos) = model.pieces.bos.filter(|bos| ids.first() != Some(bos)) {
        ids.insert(0, bos);
    }
    Ok(ids)
}

/// Continues `prompt`; `on_text` gets each piece of text. `cache` keeps the KV of different answers apart, so that
/// each pays for its own prompt.
pub(super) fn answer(
    model: &ServedModel,
    prompt: Vec<TokenId>,
    cache: &str,
    mut on_text: impl FnMut(&str) -> anyhow::Result<()>,
) -> anyhow::Result<Answer> {
    let begin = Instant::now();
    let prompt_tokens = prompt.len();
    let request = GenerateRequest {
        prompt,
        sampling: Sampling::default(),
        max_new: MAX_NEW,
        stop_tokens: model.stop_tokens.clone(),
        logprobs: None,
        n: 1,
        salt: Salt::new(cache),
    };
    let mut continuations = model.engine.generate(request);
    let tokens = continuations.first_mut().expect("one was asked for: this is a bug");
    let mut stream = TokenStream::new(&model.tokenizer, true);
    let (mut text, mut first_token, mut new_tokens) = (String::new(), None, 0);
    loop {
        let token = tokens.blocking_recv().unwrap_or(Err(EngineError::Stopped))?;
        first_token.get_or_insert_with(|| begin.elapsed());
        new_tokens += 1;
        if let Some(piece) = stream.push(token.id) {
            on_text(&piece)?;
            text += &piece;
        }
        if token.finish.is_some() {
            break;
        }
    }
    let rest = stream.finish();
    on_text(&rest)?;
    text += &rest;
    let total = begin.elapsed();
    Ok(Answer { text, prompt_tokens, new_tokens, first_token: first_token.unwrap_or(total), total })
}
