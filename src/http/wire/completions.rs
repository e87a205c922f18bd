//! Text completions on the wire.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Rest,
    common::{self, Common, Delivery, logprob_count, note_unknown, token_chars},
    token_ids, typed,
};
use crate::{
    http::ApiError,
    service::generate::{Completion, CompletionJob, GenerateDelta, TextPrompt, TokenLogprob},
};

/// What a completion's request has besides the common fields.
#[derive(Deserialize, JsonSchema)]
pub(in crate::http) struct Fields {
    #[serde(default)]
    #[schemars(with = "crate::http::openapi::shapes::Prompts")]
    prompt: Value,
    echo: Option<bool>,
    #[schemars(range(min = 0, max = 20))]
    logprobs: Option<i64>,
    #[serde(flatten)]
    #[schemars(skip)]
    rest: Rest,
}

/// A request's job.
pub(in crate::http) fn job(body: &Value) -> Result<(CompletionJob, Delivery), ApiError> {
    let common: Common = typed(body)?;
    let fields: Fields = typed(body)?;
    note_unknown(&common.rest, &fields.rest);
    let mut options = common.options(body)?;
    options.logprobs = fields.logprobs.map(|n| logprob_count("logprobs", n)).transpose()?;
    let job =
        CompletionJob { prompts: prompts(&fields.prompt)?, echo: fields.echo.unwrap_or(false), options };
    Ok((job, common.delivery()))
}

/// A string, token ids, or a list of either.
pub(in crate::http) fn prompts(prompt: &Value) -> Result<Vec<TextPrompt>, ApiError> {
    let wrong = || ApiError::invalid("prompt", "must be a string, a list of token ids, or a list of either");
    match prompt {
        Value::String(text) => Ok(vec![TextPrompt::Text(text.clone())]),
        Value::Array(list) if list.is_empty() => Err(ApiError::invalid("prompt", "must not be empty")),
        Value::Array(list) if list[0].is_number() => {
            Ok(vec![TextPrompt::Tokens(token_ids(prompt, "prompt")?)])
        }
        Value::Array(list) => {
            let one = |(i, prompt): (usize, &Value)| match prompt {
                Value::String(text) => Ok(TextPrompt::Text(text.clone())),
                Value::Array(_) => token_ids(prompt, &format!("prompt[{i}]")).map(TextPrompt::Tokens),
                _ => {
                    Err(ApiError::invalid(format!("prompt[{i}]"), "must be a string or a list of token ids"))
                }
            };
            list.iter().enumerate().map(one).collect()
        }
        _ => Err(wrong()),
    }
}

/// One whole choice.
pub(in crate::http) fn choice(index: usize, choice: &Completion, logprobs: bool) -> Value {
    json!({
        "index": index,
        "text": choice.text,
        "logprobs": logprobs.then(|| entries(&choice.logprobs, &mut 0)),
        "finish_reason": common::finish_reason(choice.finish),
        "stop_reason": common::stop_reason(choice.stop_reason.as_ref()),
    })
}

/// A piece of a stream. `offset` counts the characters of the choice's tokens so far.
pub(in crate::http) fn piece(delta: &GenerateDelta, logprobs: bool, offset: &mut usize) -> Value {
    json!({
        "index": delta.choice,
        "text": delta.text,
        "logprobs": logprobs.then(|| entries(&delta.logprobs, offset)),
        "finish_reason": common::finish_reason(delta.finish),
        "stop_reason": common::stop_reason(delta.stop_reason.as_ref()),
    })
}

fn entries(logprobs: &[TokenLogprob], offset: &mut usize) -> Value {
    let start = |l: &TokenLogprob| {
        *offset += token_chars(l);
        *offset - token_chars(l)
    };
    let offsets: Vec<usize> = logprobs.iter().map(start).collect();
    let top = |l: &TokenLogprob| {
        let best = l.top.iter().map(|t| (t.token.clone(), t.logprob.into()));
        best.chain([(l.token.clone(), l.logprob.into())]).collect::<Map<String, Value>>()
    };
    json!({
        "tokens": logprobs.iter().map(|l| l.token.as_str()).collect::<Vec<_>>(),
        "token_logprobs": logprobs.iter().map(|l| l.logprob).collect::<Vec<_>>(),
        "top_logprobs": logprobs.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}
