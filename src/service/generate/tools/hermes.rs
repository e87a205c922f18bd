//! Hermes' and Qwen's format: one JSON object per call, between two tags.

use serde_json::{Value, json};

use crate::service::generate::grammar::move_references;

/// Opens a call.
pub(super) const OPEN: &str = "<tool_call>";
/// Closes it.
pub(super) const CLOSE: &str = "</tool_call>";

/// The JSON schema of a call of a tool. References of `parameters` start at their root, and still do.
pub(in crate::service::generate) fn call_schema(name: &str, parameters: &Value) -> Value {
    let mut parameters = parameters.clone();
    move_references(&mut parameters, "#/properties/arguments");
    json!({
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": false,
    })
}

/// A grammar (in Lark, as `llguidance` reads it) of answers that consist of calls, each of one of `calls` (schemas). With
/// `parallel` there may be several. `answer` is a JSON schema that the answer may follow instead.
pub(in crate::service::generate) fn grammar<'a>(
    calls: impl Iterator<Item = &'a Value>,
    parallel: bool,
    answer: Option<&Value>,
) -> String {
    let (mut names, mut rules) = (Vec::new(), String::new());
    for (i, schema) in calls.enumerate() {
        names.push(format!("call_{i}"));
        rules += &format!("call_{i}: %json {schema}\n");
    }
    let calls = if parallel { r#"call ("\n" call)*"# } else { "call" };
    let start = if answer.is_some() { format!("answer | {calls}") } else { calls.to_owned() };
    let answer = answer.map_or_else(String::new, |schema| format!("answer: %json {schema}\n"));
    let names = names.join(" | ");
    format!("start: {start}\ncall: \"{OPEN}\\n\" ({names}) \"\\n{CLOSE}\"\n{rules}{answer}")
}
