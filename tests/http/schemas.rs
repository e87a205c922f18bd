//! Schemas that ask for too much, and those of tools that refer to their own parts.

use serde_json::{Map, Value, json};

use super::tools::{calls, hermes, tool, valid};
use crate::support::*;

fn format(schema: &Value) -> Value {
    json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}})
}

fn properties(n: usize) -> Value {
    let named: Map<String, Value> = (0..n).map(|i| (format!("p{i}"), json!({"type": "integer"}))).collect();
    json!({"type": "object", "properties": named})
}

/// Each would take seconds to minutes to compile, or cannot be followed after its first token.
fn heavy() -> Vec<Value> {
    let branches: Vec<Value> = (0..3000)
        .map(|i| json!({"type": "object", "properties": {format!("k{i}"): {"type": "string"}}}))
        .collect();
    vec![
        json!({"type": "integer", "multipleOf": 999_983}),
        json!({"type": "object", "properties": {"a": {"type": "integer", "allOf": [{"multipleOf": 9973}, {"multipleOf": 997}]}}}),
        properties(5000),
        json!({"anyOf": branches}),
        json!({"$ref": "#"}),
        json!({"enum": (0..100_000).map(|i| format!("value number {i}")).collect::<Vec<_>>()}),
    ]
}

/// The library's parts and options are nobody's business.
fn plain(message: &str) {
    assert!(message.len() < 600 && !message.contains('\n'), "{message}");
    for word in ["Bias", "lexer", "parser", "limit for this grammar", "option", "%json", "Some("] {
        assert!(!message.contains(word), "{word} in {message}");
    }
}

#[tokio::test]
async fn schemas_that_are_too_much_are_refused_with_their_field() {
    let app = hermes();
    for schema in heavy() {
        for (path, body) in [
            (CHAT, chat("form", &format(&schema))),
            (COMPLETIONS, merged(json!({"prompt": "form", "max_tokens": 4}), &format(&schema))),
        ] {
            let message = post(&app, path, &body).await.refused(400, Some("response_format"));
            assert!(message.contains("cannot be followed"), "{message}");
            plain(&message);
        }
        let tools = json!([tool("fine", &json!({"type": "object"})), tool("bad", &schema)]);
        let body = chat("call", &json!({"tools": tools, "tool_choice": "required"}));
        let message = post(&app, CHAT, &body).await.refused(400, Some("tools[1].function.parameters"));
        plain(&message);
        // a tool that is not to be called is not compiled
        let only = json!({"type": "function", "function": {"name": "fine"}});
        let body = chat("call", &json!({"tools": tools, "tool_choice": only, "max_tokens": 4}));
        post(&app, CHAT, &body).await.ok();
    }
}

/// `n` definitions, each of which leads to the next by way of `link`; the last one is a digit.
fn chain(n: usize, link: impl Fn(Value) -> Value) -> Value {
    let next = |i: usize| json!({"$ref": format!("#/$defs/d{i}")});
    let mut defs: Map<String, Value> = (0..n).map(|i| (format!("d{i}"), link(next(i + 1)))).collect();
    defs.insert(format!("d{n}"), json!({"enum": [1, 2]}));
    json!({"$ref": "#/$defs/d0", "$defs": defs})
}

/// However far references lead, the server answers and goes on.
#[tokio::test]
async fn long_chains_of_references_are_followed_or_refused() {
    let app = hermes();
    let optional = |next| json!({"anyOf": [{"type": "null"}, next]});
    let object = |next| json!({"type": "object", "properties": {"a": next}, "required": ["a"], "additionalProperties": false});
    let nested =
        |next: Value| (0..100).fold(next, |inner, _| json!({"type": "array", "items": inner, "minItems": 1}));
    type Link<'a> = &'a dyn Fn(Value) -> Value;
    let links: [Link<'_>; 6] = [
        &|next| next,
        &|next| json!({"allOf": [next]}),
        &optional,
        &object,
        &nested,
        &|next| json!({"items": next}),
    ];
    for (at, link) in links.into_iter().enumerate() {
        for n in [2, 300, 600, 900, 1500, 5000, 50_000] {
            if n * link(json!({})).to_string().len() > 2 << 20 {
                continue; // with references and names, larger than a body may be
            }
            let body = chat("form", &merged(format(&chain(n, link)), &json!({"max_tokens": 2})));
            let answer = post(&app, CHAT, &body).await;
            if answer.status == 200 {
                assert!(n < 2000, "{at}, {n}");
            } else {
                assert!(n > 2, "{at}, {n}: {}", answer.text);
                plain(&answer.refused(400, Some("response_format")));
            }
        }
    }
    post(&app, CHAT, &chat("form", &json!({}))).await.ok();
}

#[tokio::test]
async fn tools_that_are_too_much_together_are_refused() {
    let app = hermes();
    let tools: Vec<Value> = (0..3).map(|i| tool(&format!("t{i}"), &properties(900))).collect();
    let body = chat("call", &json!({"tools": tools, "tool_choice": "required"}));
    let message = post(&app, CHAT, &body).await.refused(400, Some("tools"));
    assert!(message.contains("2000"), "{message}");
    let body = chat("call", &json!({"tools": tools[..2], "tool_choice": "required", "max_tokens": 4}));
    post(&app, CHAT, &body).await.ok();
}

#[tokio::test]
async fn a_schema_that_turns_out_to_be_too_much_halfway_is_the_callers_fault() {
    let app = hermes();
    // each pattern is small; how many places they are at together is found out letter by letter
    let patterns: Vec<Value> =
        (1..300).map(|i| json!({"type": "string", "pattern": format!("(.{{{i}}})*x")})).collect();
    let more =
        merged(format(&json!({"anyOf": patterns})), &json!({"temperature": 1.0, "max_tokens": 300, "n": 4}));
    let answer = post(&app, CHAT, &chat("form", &more)).await;
    let message = answer.refused(400, Some("response_format"));
    plain(&message);
    let events = post(&app, CHAT, &chat("form", &merged(more, &json!({"stream": true})))).await;
    assert_eq!(events.status, 200, "the answer had begun");
    assert!(events.text.contains("\"param\":\"response_format\""), "{}", events.text);
    post(&app, CHAT, &chat("form", &json!({}))).await.ok();
}

#[tokio::test]
async fn references_inside_a_tools_parameters_start_at_their_root() {
    let app = hermes();
    let schemas = [
        json!({"type": "object", "properties": {"a": {"$ref": "#/properties/b"}, "b": {"type": "integer", "minimum": 0, "maximum": 9}},
               "required": ["a", "b"], "additionalProperties": false}),
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/digit"}}, "required": ["a"], "additionalProperties": false,
               "$defs": {"digit": {"enum": [1, 2]}}}),
        json!({"$ref": "#/definitions/all", "definitions": {"all": {"type": "object", "properties": {"x": {"type": "boolean"}},
               "required": ["x"], "additionalProperties": false}}}),
    ];
    let mut whole = 0;
    for (seed, schema) in (0..).zip(schemas.iter().cycle().take(9)) {
        let body = json!({"tools": [tool("one", schema)], "tool_choice": "required", "parallel_tool_calls": false,
                          "seed": seed, "temperature": 1.0, "max_tokens": 300});
        let answer = post(&app, CHAT, &chat("call", &body)).await.ok();
        for (_, arguments) in calls(&answer["choices"][0]) {
            assert!(valid(schema, &arguments), "{arguments} for {schema}");
            whole += 1;
        }
    }
    assert!(whole >= 5, "{whole} of 9");
    let nowhere = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}});
    let body = chat("call", &json!({"tools": [tool("one", &nowhere)], "tool_choice": "required"}));
    post(&app, CHAT, &body).await.refused(400, Some("tools[0].function.parameters"));
}
