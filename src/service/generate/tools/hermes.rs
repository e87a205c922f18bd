//! Hermes' and Qwen's format: one JSON object per call, between two tags.

use serde_json::{Value, json};

use super::{Offered, ToolChoice};

/// Opens a call.
pub(super) const OPEN: &str = "<tool_call>";
/// Closes it.
pub(super) const CLOSE: &str = "</tool_call>";

/// A grammar (in Lark, as `llguidance` reads it) of answers that consist of calls: of one of `offered`, or of the one
/// that is named. With `parallel` there may be several. `answer` is a JSON schema that the answer may follow instead. `tame` has
/// the last word on each call's schema.
pub(in crate::service::generate) fn grammar(
    offered: &Offered,
    choice: &ToolChoice,
    parallel: bool,
    answer: Option<&Value>,
    tame: impl Fn(&mut Value),
) -> String {
    let named = |name: &str| match choice {
        ToolChoice::Function(only) => only == name,
        _ => true,
    };
    let call = |(name, parameters): (&str, &Value)| {
        let mut schema = json!({
            "type": "object",
            "properties": {"name": {"const": name}, "arguments": parameters},
            "required": ["name", "arguments"],
            "additionalProperties": false,
        });
        // references start at the root, which is now one level up
        for key in ["$defs", "definitions"] {
            if let Some(shared) = parameters.get(key) {
                schema[key] = shared.clone();
            }
        }
        tame(&mut schema);
        schema
    };
    let one_of: Vec<Value> = offered.iter().filter(|(name, _)| named(name)).map(call).collect();
    let calls = if parallel { r#"call ("\n" call)*"# } else { "call" };
    let start = if answer.is_some() { format!("answer | {calls}") } else { calls.to_owned() };
    let rules = one_of.iter().enumerate();
    let names: Vec<String> = rules.clone().map(|(i, _)| format!("call_{i}")).collect();
    let rules: String = rules.map(|(i, schema)| format!("call_{i}: %json {schema}\n")).collect();
    let answer = answer.map_or_else(String::new, |schema| format!("answer: %json {schema}\n"));
    let names = names.join(" | ");
    format!("start: {start}\ncall: \"{OPEN}\\n\" ({names}) \"\\n{CLOSE}\"\n{rules}{answer}")
}
