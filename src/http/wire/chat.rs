//! Chat completions on the wire.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Rest,
    common::{self, Common, Delivery, logprob_count, note_unknown},
    tools::{tool_calls, tool_choice},
    typed,
};
use crate::{
    http::ApiError,
    service::generate::{AnswerOptions, ChatJob, ChatPrompt, Completion, GenerateDelta, TokenLogprob},
};

/// The conversation's fields, as sent; `/tokenize` takes the same.
#[derive(Deserialize, JsonSchema)]
pub(in crate::http) struct Conversation {
    #[serde(default)]
    #[schemars(with = "crate::http::openapi::shapes::Messages")]
    messages: Value,
    #[serde(default)]
    #[schemars(with = "crate::http::openapi::shapes::Tools")]
    tools: Value,
    #[serde(default)]
    #[schemars(with = "crate::http::openapi::shapes::ToolChoice")]
    tool_choice: Value,
    chat_template: Option<String>,
    chat_template_kwargs: Option<Map<String, Value>>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
    logprobs: Option<bool>,
    #[schemars(range(min = 0, max = 20))]
    top_logprobs: Option<i64>,
    parallel_tool_calls: Option<bool>,
    include_reasoning: Option<bool>,
    /// Has a context manage the search results among the messages; the fields of a new context count when it is made.
    #[serde(default)]
    #[schemars(with = "Option<super::managing::Fields>")]
    qrae: Value,
    #[serde(flatten)]
    #[schemars(skip)]
    rest: Rest,
}

impl Conversation {
    pub(in crate::http) fn prompt(self) -> Result<ChatPrompt, ApiError> {
        if !matches!(self.tools, Value::Null | Value::Array(_)) {
            return Err(ApiError::invalid("tools", "must be a list of tool definitions"));
        }
        let mut kwargs = self.chat_template_kwargs.unwrap_or_default();
        if !self.tool_choice.is_null() {
            kwargs.entry("tool_choice").or_insert(self.tool_choice);
        }
        let open = self.continue_final_message.unwrap_or(false);
        Ok(ChatPrompt {
            messages: self.messages,
            tools: Some(self.tools).filter(|tools| !tools.is_null()),
            chat_template: self.chat_template,
            chat_template_kwargs: kwargs,
            add_generation_prompt: self.add_generation_prompt.unwrap_or(!open),
            continue_final_message: open,
        })
    }

    fn answer(&self) -> Result<AnswerOptions, ApiError> {
        Ok(AnswerOptions {
            tool_choice: tool_choice(&self.tool_choice)?,
            parallel_tool_calls: self.parallel_tool_calls.unwrap_or(true),
            include_reasoning: self.include_reasoning.unwrap_or(true),
        })
    }

    fn logprobs(&self) -> Result<Option<usize>, ApiError> {
        let top = self.top_logprobs.map(|n| logprob_count("top_logprobs", n)).transpose()?;
        match (self.logprobs.unwrap_or(false), top) {
            (true, top) => Ok(Some(top.unwrap_or(0))),
            (false, None | Some(0)) => Ok(None),
            (false, Some(_)) => Err(ApiError::invalid("top_logprobs", "is only given with logprobs: true")),
        }
    }
}

/// A request's job, how it is answered, and what it asks of a context.
pub(in crate::http) fn job(body: &Value) -> Result<(ChatJob, Delivery, Value), ApiError> {
    let common: Common = typed(body)?;
    let mut conversation: Conversation = typed(body)?;
    note_unknown(&common.rest, &conversation.rest);
    let mut options = common.options(body)?;
    options.logprobs = conversation.logprobs()?;
    let answer = conversation.answer()?;
    let managing = conversation.qrae.take();
    Ok((ChatJob { prompt: conversation.prompt()?, options, answer }, common.delivery(), managing))
}

/// One whole choice.
pub(in crate::http) fn choice(index: usize, choice: &Completion, logprobs: bool) -> Value {
    let only_calls = choice.text.is_empty() && !choice.calls.is_empty();
    let content = (!only_calls).then_some(choice.text.as_str());
    let mut message = json!({"role": "assistant", "content": content});
    say_more(&mut message, &choice.reasoning, tool_calls(&choice.calls, false));
    json!({
        "index": index,
        "message": message,
        "logprobs": logprobs.then(|| entries(&choice.logprobs)),
        "finish_reason": common::finish_reason(choice.finish),
        "stop_reason": common::stop_reason(choice.stop_reason.as_ref()),
    })
}

/// The piece of a stream that opens a choice.
pub(in crate::http) fn opening(index: usize) -> Value {
    json!({
        "index": index,
        "delta": {"role": "assistant", "content": ""},
        "logprobs": null,
        "finish_reason": null,
    })
}

/// A piece of a stream.
pub(in crate::http) fn piece(delta: &GenerateDelta, logprobs: bool) -> Value {
    let other = delta.text.is_empty() && !(delta.reasoning.is_empty() && delta.calls.is_empty());
    let mut said = if other { json!({}) } else { json!({"content": delta.text}) };
    say_more(&mut said, &delta.reasoning, tool_calls(&delta.calls, true));
    let mut piece = json!({
        "index": delta.choice,
        "delta": said,
        "logprobs": logprobs.then(|| entries(&delta.logprobs)),
        "finish_reason": common::finish_reason(delta.finish),
    });
    if delta.finish.is_some() {
        piece["stop_reason"] = common::stop_reason(delta.stop_reason.as_ref());
    }
    piece
}

/// What there is besides content. Reasoning goes by the name it has in vLLM now and by the one it had.
fn say_more(message: &mut Value, reasoning: &str, calls: Value) {
    if !reasoning.is_empty() {
        message["reasoning"] = reasoning.into();
        message["reasoning_content"] = reasoning.into();
    }
    if calls != json!([]) {
        message["tool_calls"] = calls;
    }
}

fn entries(logprobs: &[TokenLogprob]) -> Value {
    let plain = |l: &TokenLogprob| json!({"token": l.token, "logprob": l.logprob, "bytes": l.bytes});
    let entry = |l: &TokenLogprob| {
        let mut entry = plain(l);
        entry["top_logprobs"] = l.top.iter().map(plain).collect();
        entry
    };
    json!({"content": logprobs.iter().map(entry).collect::<Vec<_>>()})
}
