//! Messages as chat templates expect them, from messages as clients send them.

use serde_json::{Map, Value};

use crate::service::ServiceError;

/// Checks and straightens messages: content in text parts becomes one text (parts on their own lines), absent content
/// of an assistant's or tool's message the empty text, arguments of tool calls the object their text spells; null
/// fields and empty lists of tool calls, which templates would take for given, are left out.
///
/// # Errors
/// Naming the field: `messages[2].content[0].type`.
pub(in crate::service) fn straighten(messages: &Value) -> Result<Value, ServiceError> {
    let list = messages.as_array().filter(|list| !list.is_empty());
    let list =
        list.ok_or_else(|| ServiceError::invalid("messages", "must be a list of at least one message"))?;
    let all = list.iter().enumerate().map(|(i, message)| one(message, &format!("messages[{i}]")));
    all.collect::<Result<_, _>>().map(Value::Array)
}

fn one(message: &Value, field: &str) -> Result<Value, ServiceError> {
    let message = message
        .as_object()
        .ok_or_else(|| ServiceError::invalid(field, "must be an object with role and content"))?;
    let role = message.get("role").and_then(Value::as_str);
    let role = role.ok_or_else(|| ServiceError::invalid(format!("{field}.role"), "must be a string"))?;
    let given = message.iter().filter(|(key, value)| !value.is_null() || *key == "content");
    let mut out: Map<String, Value> = given.map(|(k, v)| (k.clone(), v.clone())).collect();
    let content = text(message.get("content").unwrap_or(&Value::Null), role, &format!("{field}.content"))?;
    out.insert("content".into(), content.into());
    if out.get("tool_calls").is_some_and(|calls| calls.as_array().is_some_and(Vec::is_empty)) {
        out.shift_remove("tool_calls");
    }
    for call in out.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        parse_arguments(call);
    }
    Ok(Value::Object(out))
}

fn text(content: &Value, role: &str, field: &str) -> Result<String, ServiceError> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Null if matches!(role, "assistant" | "tool" | "function") => Ok(String::new()),
        Value::Array(parts) => {
            let part = |(i, part): (usize, &Value)| {
                let wrong =
                    |name: &str, reason: &str| ServiceError::invalid(format!("{field}[{i}]{name}"), reason);
                match (part, part["type"].as_str()) {
                    (Value::String(text), _) => Ok(text.clone()),
                    (_, Some("text" | "input_text" | "output_text")) => {
                        let text = part["text"].as_str().map(str::to_owned);
                        text.ok_or_else(|| wrong(".text", "must be a string"))
                    }
                    (_, Some("refusal")) => Ok(part["refusal"].as_str().unwrap_or_default().to_owned()),
                    _ => Err(wrong(
                        ".type",
                        "this model takes text parts only: {\"type\": \"text\", \"text\": …}",
                    )),
                }
            };
            Ok(parts.iter().enumerate().map(part).collect::<Result<Vec<_>, _>>()?.join("\n"))
        }
        _ => Err(ServiceError::invalid(field, "must be a string or a list of text parts")),
    }
}

/// Clients send arguments as JSON text, templates print them as JSON: without this they would be quoted twice.
fn parse_arguments(call: &mut Value) {
    if let Some(arguments) = call.pointer_mut("/function/arguments")
        && let Some(object @ Value::Object(_)) = arguments.as_str().and_then(|a| serde_json::from_str(a).ok())
    {
        *arguments = object;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_come_out_as_templates_expect_them() {
        let sent = json!([
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": null},
            {"role": "assistant", "content": null, "refusal": null, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}},
                {"id": "2", "type": "function", "function": {"name": "g", "arguments": "not json"}}]},
            {"role": "assistant", "content": "c", "tool_calls": []},
        ]);
        let want = json!([
            {"role": "user", "content": "a\nb"},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
                {"id": "2", "type": "function", "function": {"name": "g", "arguments": "not json"}}]},
            {"role": "assistant", "content": "c"},
        ]);
        assert_eq!(straighten(&sent), Ok(want));
    }

    #[test]
    fn the_wrong_field_is_named() {
        for (sent, field) in [
            (json!(null), "messages"),
            (json!([]), "messages"),
            (json!({"role": "user"}), "messages"),
            (json!(["hi"]), "messages[0]"),
            (json!([{"role": "user", "content": "x"}, {"content": "x"}]), "messages[1].role"),
            (json!([{"role": 7, "content": "x"}]), "messages[0].role"),
            (json!([{"role": "user"}]), "messages[0].content"),
            (json!([{"role": "user", "content": 7}]), "messages[0].content"),
            (json!([{"role": "user", "content": [{"type": "image_url"}]}]), "messages[0].content[0].type"),
            (json!([{"role": "user", "content": ["a", {"type": "text"}]}]), "messages[0].content[1].text"),
        ] {
            match straighten(&sent) {
                Err(ServiceError::Invalid { field: named, .. }) => assert_eq!(named, field, "{sent}"),
                other => panic!("{sent}: {other:?}"),
            }
        }
    }
}
