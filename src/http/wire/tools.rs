//! Tools on the wire: what may be called, and what was.

use serde_json::{Value, json};

use crate::{
    http::ApiError,
    service::generate::{ToolCall, ToolChoice},
};

/// OpenAI's `tool_choice`.
pub(super) fn tool_choice(choice: &Value) -> Result<ToolChoice, ApiError> {
    let wrong = |field: &str, reason: &str| Err(ApiError::invalid(field, reason));
    match choice {
        Value::Null => Ok(ToolChoice::Auto),
        Value::String(word) => match word.as_str() {
            "none" => Ok(ToolChoice::None),
            "auto" => Ok(ToolChoice::Auto),
            "required" => Ok(ToolChoice::Required),
            _ => wrong("tool_choice", "must be \"none\", \"auto\", \"required\" or a function"),
        },
        Value::Object(_) if choice["type"] != "function" => wrong("tool_choice.type", "must be \"function\""),
        Value::Object(_) => match choice["function"]["name"].as_str() {
            Some(name) => Ok(ToolChoice::Function(name.to_owned())),
            None => wrong("tool_choice.function.name", "must be a string"),
        },
        _ => wrong("tool_choice", "must be a word or a function"),
    }
}

/// Calls as a message shows them, or `numbered` as a stream does: there, too, each is told whole and at once.
pub(super) fn tool_calls(calls: &[ToolCall], numbered: bool) -> Value {
    let one = |told: &ToolCall| {
        let function = json!({"name": told.call.name, "arguments": told.call.arguments});
        let mut call = json!({"id": told.id, "type": "function", "function": function});
        if numbered {
            call["index"] = told.index.into();
        }
        call
    };
    calls.iter().map(one).collect()
}
