//! Generation: messages or a prompt become token ids, the engine's tokens become text, choice by choice.
//!
//! Owns the jobs, the prompt's ids (`prompt`, `messages`, `disguise`), the stream of deltas (`stream`), what is told
//! apart in them (`read`: `tools` and `think`) and what answers must look like (`answer`, `grammar`). Knows no HTTP.
//! Tests: in the parts, and `tests/http.rs` with a tiny model behind it.

mod answer;
mod disguise;
#[cfg(test)]
mod fixture;
mod grammar;
mod messages;
mod prompt;
mod read;
mod stream;
mod think;
mod tools;

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Permit, ServedModel, ServiceError};
use crate::{
    engine::{EngineError, GenerateRequest, Sampling},
    ids::TokenId,
    kv::Salt,
};

use answer::Masks;
pub use answer::{AnswerOptions, ReasoningParser};
pub(super) use disguise::control_texts;
pub(super) use grammar::Grammars;
pub use grammar::ResponseFormat;
pub(super) use messages::straighten;
use read::Reader;
pub use stream::{
    Completion, FinishReason, GenerateDelta, Generation, StopReason, TokenLogprob, ToolCall, Usage, collect,
};
pub use tools::{Call, ToolChoice, ToolFormat, ToolParser};

/// Most choices of one request, over all its prompts.
pub const MAX_CHOICES: usize = 128;

/// A conversation to continue.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatPrompt {
    /// An array of messages, each with `role` and `content`, as OpenAI writes them.
    pub messages: Value,
    /// An array of tool definitions for the template.
    pub tools: Option<Value>,
    /// A Jinja source used instead of the model's own template.
    pub chat_template: Option<String>,
    /// Further variables of the template.
    pub chat_template_kwargs: Map<String, Value>,
    /// Open the assistant's turn at the end of the prompt.
    pub add_generation_prompt: bool,
    /// Leave the last message open, so that the answer goes on with it.
    pub continue_final_message: bool,
}

impl ChatPrompt {
    /// These messages, with the generation prompt and nothing else.
    #[must_use]
    pub fn new(messages: Value) -> Self {
        Self {
            messages,
            tools: None,
            chat_template: None,
            chat_template_kwargs: Map::new(),
            add_generation_prompt: true,
            continue_final_message: false,
        }
    }
}

/// A text to continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextPrompt {
    /// Text that may already be a rendered template: control tokens in it are parsed, BOS is added where it is missing.
    Text(String),
    /// Token ids, used as they are.
    Tokens(Vec<TokenId>),
}

/// How a prompt is continued. The default is OpenAI's.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// How tokens are chosen. Choice `i` uses seed `seed + i`.
    pub sampling: Sampling,
    /// Most tokens per choice, at least 1; by default what the model's length leaves.
    pub max_tokens: Option<usize>,
    /// Strings that end a choice; none of them is ever part of its text.
    pub stop: Vec<String>,
    /// Tokens that end a choice, besides the model's own.
    pub stop_token_ids: Vec<TokenId>,
    /// The model's own end tokens do not end a choice.
    pub ignore_eos: bool,
    /// Top log-probabilities per token; `Some(0)` is only the chosen token's.
    pub logprobs: Option<usize>,
    /// Choices per prompt, at least 1.
    pub n: usize,
    /// Control tokens are not part of the text.
    pub skip_special_tokens: bool,
    /// What the answer must look like.
    pub format: ResponseFormat,
    /// Whose cached KV may be used.
    pub salt: Salt,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            sampling: Sampling { temperature: 1.0, seed: random_seed(), ..Sampling::default() },
            max_tokens: None,
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            ignore_eos: false,
            logprobs: None,
            n: 1,
            skip_special_tokens: true,
            format: ResponseFormat::Text,
            salt: Salt::none(),
        }
    }
}

/// A seed nobody can foresee, for requests that name none.
#[must_use]
pub fn random_seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

/// A chat completion.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatJob {
    /// The conversation.
    pub prompt: ChatPrompt,
    /// How it is continued.
    pub options: GenerateOptions,
    /// What is looked for in the answer.
    pub answer: AnswerOptions,
}

/// A text completion.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionJob {
    /// At least one prompt; choice `c` of prompt `p` is choice `p * n + c` of the answer.
    pub prompts: Vec<TextPrompt>,
    /// The choice's text begins with its prompt's.
    pub echo: bool,
    /// How they are continued.
    pub options: GenerateOptions,
}

impl ServedModel {
    /// Continues a conversation. Dropping the result cancels it.
    ///
    /// # Errors
    /// When a field is wrong or prompt and answer would not fit; failures of the engine come out of the stream.
    pub async fn chat(self: &Arc<Self>, job: ChatJob, permit: Permit) -> Result<Generation, ServiceError> {
        check_choices(1, job.options.n)?;
        let model = Arc::clone(self);
        let work = move || {
            let ids = model.chat_tokens(&job.prompt)?;
            let (reader, masks) = model.answer(&job, &ids)?;
            Ok((vec![ids], masks, reader, job.options))
        };
        let ((prompts, masks, reader, options), permit) = off_thread(permit, work).await?;
        self.start("messages", prompts, masks, &options, Generation::new(permit, reader))
    }

    /// Continues one or more texts. Dropping the result cancels it.
    ///
    /// # Errors
    /// As for [`chat`](Self::chat).
    pub async fn complete(
        self: &Arc<Self>,
        job: CompletionJob,
        permit: Permit,
    ) -> Result<Generation, ServiceError> {
        let CompletionJob { prompts, echo, options } = job;
        if echo && options.logprobs.is_some() {
            let reason = "is not supported together with echo; ask for one of them";
            return Err(ServiceError::invalid("logprobs", reason));
        }
        check_choices(prompts.len(), options.n)?;
        let model = Arc::clone(self);
        let skip_special = options.skip_special_tokens;
        let work = move || -> Result<_, ServiceError> {
            let ids = prompts.iter().enumerate().map(|(i, prompt)| {
                let field = if prompts.len() == 1 { "prompt".into() } else { format!("prompt[{i}]") };
                model.prompt_tokens(prompt, &field)
            });
            let ids: Vec<Vec<TokenId>> = ids.collect::<Result<_, ServiceError>>()?;
            let masks = model.format_masks(&options, ids.len())?;
            let text = |prompt: &TextPrompt| match prompt {
                TextPrompt::Text(text) => text.clone(),
                TextPrompt::Tokens(ids) => model.tokenizer.decode(ids, skip_special),
            };
            let echoes = if echo { prompts.iter().map(text).collect() } else { Vec::new() };
            Ok((ids, masks, echoes, options))
        };
        let ((ids, masks, echoes, options), permit) = off_thread(permit, work).await?;
        let mut generation = Generation::new(permit, Reader::default());
        for (prompt, text) in echoes.into_iter().enumerate() {
            for choice in 0..options.n {
                generation.say_first(prompt * options.n + choice, text.clone());
            }
        }
        self.start("prompt", ids, masks, &options, generation)
    }

    /// Hands all prompts to the engine.
    fn start(
        &self,
        field: &str,
        prompts: Vec<Vec<TokenId>>,
        mut masks: Masks,
        options: &GenerateOptions,
        mut generation: Generation,
    ) -> Result<Generation, ServiceError> {
        let lengths: Vec<usize> =
            prompts.iter().map(|ids| self.room(field, ids.len(), options)).collect::<Result<_, _>>()?;
        let mut stop_tokens = options.stop_token_ids.clone();
        if !options.ignore_eos {
            stop_tokens.extend(&self.stop_tokens);
        }
        generation.follow(masks.field);
        for (i, (prompt, max_new)) in prompts.into_iter().zip(lengths).enumerate() {
            let mut sampling = options.sampling.clone();
            sampling.seed = sampling.seed.wrapping_add((i * options.n) as u64);
            let request = GenerateRequest {
                sampling,
                max_new,
                stop_tokens: stop_tokens.clone(),
                logprobs: options.logprobs,
                n: options.n,
                salt: options.salt.clone(),
                prompt,
            };
            generation.add_prompt(
                &self.tokenizer,
                options,
                request.prompt.len(),
                self.engine.generate_masked(request, masks.take(options.n)),
            );
        }
        Ok(generation)
    }

    /// How many tokens may be generated after a prompt of `prompt` tokens.
    fn room(&self, field: &str, prompt: usize, options: &GenerateOptions) -> Result<usize, ServiceError> {
        let limit = self.max_model_len;
        let new = options.max_tokens.unwrap_or_else(|| limit.saturating_sub(prompt)).max(1);
        if prompt.saturating_add(new) > limit {
            return Err(ServiceError::TooLong { field: field.into(), prompt, new, limit });
        }
        Ok(new)
    }
}

fn check_choices(prompts: usize, n: usize) -> Result<(), ServiceError> {
    if (1..=MAX_CHOICES).contains(&prompts.saturating_mul(n)) {
        return Ok(());
    }
    let reason = format!("1 to {MAX_CHOICES} choices are made, counting n for every prompt");
    Err(ServiceError::invalid("n", &reason))
}

/// Runs `work`, which may take long, where it holds up nobody. The permit stays taken until it is done, also when the
/// caller has gone by then.
pub(crate) async fn off_thread<T: Send + 'static>(
    permit: Permit,
    work: impl FnOnce() -> Result<T, ServiceError> + Send + 'static,
) -> Result<(T, Permit), ServiceError> {
    let span = tracing::Span::current(); // what is logged there is said of the same request
    match tokio::task::spawn_blocking(move || span.in_scope(|| (work(), permit))).await {
        Ok((result, permit)) => Ok((result?, permit)),
        Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
        Err(_) => Err(EngineError::Stopped.into()),
    }
}
