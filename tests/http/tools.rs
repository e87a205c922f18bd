//! Tool calls, formats and reasoning over HTTP. The tiny model is brought to call by a grammar; real models skip loudly
//! where their files are not there.

use std::{path::PathBuf, sync::OnceLock};

use axum::Router;
use qrae::{
    http::{AppState, ServerOptions, router},
    hub::ModelFiles,
    service::{
        LoadOptions, ServedModel,
        generate::{ReasoningParser, ToolFormat, ToolParser},
    },
};
use serde_json::{Value, json};

use crate::support::*;

pub(super) fn hermes() -> Router {
    static APP: OnceLock<Router> = OnceLock::new();
    let tool_parser = ToolParser::Format(ToolFormat::Hermes);
    APP.get_or_init(|| app_loaded(LoadOptions { tool_parser, ..LoadOptions::default() })).clone()
}

pub(super) fn tool(name: &str, parameters: &Value) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "d", "parameters": parameters}})
}

/// The parameters of `look`; those of `stop` are none.
fn look() -> Value {
    json!({"type": "object", "properties": {"at": {"enum": ["sea", "</tool_call>"]}, "n": {"type": "integer", "maximum": 9, "minimum": 0}},
           "required": ["at", "n"], "additionalProperties": false})
}

fn nothing() -> Value {
    json!({"type": "object", "properties": {}, "additionalProperties": false})
}

fn tools() -> Value {
    json!([tool("look", &look()), tool("stop", &nothing())])
}

/// A request that calls something, in much of the room that the tiny model has.
fn asked(seed: u64, more: &Value) -> Value {
    let base = json!({"tools": tools(), "tool_choice": "required", "seed": seed, "temperature": 1.0, "max_tokens": 400});
    merged(chat("call", &base), more)
}

/// The calls of a whole choice, checked.
pub(super) fn calls(choice: &Value) -> Vec<(String, Value)> {
    let one = |call: &Value| {
        assert_eq!(call["type"], "function");
        assert!(call["id"].as_str().unwrap().starts_with("call_"), "{call}");
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        (call["function"]["name"].as_str().unwrap().to_owned(), arguments)
    };
    choice["message"]["tool_calls"].as_array().into_iter().flatten().map(one).collect()
}

pub(super) fn valid(schema: &Value, value: &Value) -> bool {
    jsonschema::validator_for(schema).unwrap().is_valid(value)
}

/// Calls, content and finish reason of one choice of a stream.
fn streamed(events: &[Value], index: u64) -> (Vec<(String, Value)>, String, String) {
    let (mut calls, mut content, mut finish) = (Vec::new(), String::new(), String::new());
    let pieces = events.iter().flat_map(|e| e["choices"].as_array().unwrap());
    for choice in pieces.filter(|c| c["index"] == index) {
        assert!(finish.is_empty(), "a piece after the last: {choice}");
        content += choice["delta"]["content"].as_str().unwrap_or("");
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            assert_eq!((&call["index"], &call["type"]), (&json!(calls.len()), &json!("function")));
            assert!(call["id"].is_string());
            let arguments = call["function"]["arguments"].as_str().unwrap();
            calls.push((
                call["function"]["name"].as_str().unwrap().to_owned(),
                serde_json::from_str(arguments).unwrap(),
            ));
        }
        finish += choice["finish_reason"].as_str().unwrap_or("");
    }
    (calls, content, finish)
}

#[tokio::test]
async fn a_forced_answer_is_calls_of_the_tools_and_a_stream_says_the_same() {
    let app = hermes();
    let (mut complete, mut several) = (0, 0);
    for seed in 0..8 {
        let answer = post(&app, CHAT, &asked(seed, &json!({}))).await.ok();
        let choice = &answer["choices"][0];
        let called = calls(choice);
        for (name, arguments) in &called {
            let schema = if name == "look" { look() } else { nothing() };
            assert!(["look", "stop"].contains(&name.as_str()) && valid(&schema, arguments), "{called:?}");
        }
        if choice["finish_reason"] == "tool_calls" {
            assert_eq!(choice["message"]["content"], Value::Null);
            assert!(!called.is_empty());
            complete += 1;
        } else {
            assert_eq!(choice["finish_reason"], "length");
        }
        several += usize::from(called.len() > 1);
        let events = post(&app, CHAT, &asked(seed, &json!({"stream": true}))).await.events();
        let (told, content, finish) = streamed(&events, 0);
        assert_eq!((told, json!(finish)), (called, choice["finish_reason"].clone()));
        assert_eq!(content, choice["message"]["content"].as_str().unwrap_or(""));
    }
    assert!(complete >= 4 && several >= 1, "{complete} complete, {several} with several calls");
}

#[tokio::test]
async fn one_function_or_one_call_is_what_was_asked_for() {
    let app = hermes();
    let mut complete = 0;
    for seed in 0..6 {
        for more in [
            json!({"tool_choice": {"type": "function", "function": {"name": "look"}}}),
            json!({"parallel_tool_calls": false}),
        ] {
            let answer = post(&app, CHAT, &asked(seed, &more)).await.ok();
            let called = calls(&answer["choices"][0]);
            let named = more.get("tool_choice").is_some();
            assert!(called.len() <= 1 && called.iter().all(|(name, _)| !named || name == "look"), "{answer}");
            complete += usize::from(answer["choices"][0]["finish_reason"] == "tool_calls");
        }
    }
    assert!(complete >= 6, "{complete}");
}

#[tokio::test]
async fn choices_call_on_their_own_and_every_token_keeps_its_log_probability() {
    let app = hermes();
    let more = json!({"n": 3, "logprobs": true, "top_logprobs": 2});
    let whole = post(&app, CHAT, &asked(3, &more)).await.ok();
    let events = post(&app, CHAT, &asked(3, &merged(more, &json!({"stream": true})))).await.events();
    let mut tokens = 0;
    for (i, choice) in (0..).zip(whole["choices"].as_array().unwrap()) {
        assert_eq!(streamed(&events, i).0, calls(choice));
        let entries = choice["logprobs"]["content"].as_array().unwrap();
        let pieces = events.iter().flat_map(|e| e["choices"].as_array().unwrap()).filter(|c| c["index"] == i);
        let told = pieces.flat_map(|c| c["logprobs"]["content"].as_array().cloned().unwrap_or_default());
        assert_eq!(told.collect::<Vec<_>>(), *entries);
        assert!(entries.iter().all(|e| e["top_logprobs"].as_array().unwrap().len() == 2));
        let spelled: String = entries.iter().map(|e| e["token"].as_str().unwrap()).collect();
        assert!(spelled.starts_with("<tool_call>\n"), "{spelled}");
        tokens += entries.len() + usize::from(choice["finish_reason"] == "tool_calls");
    }
    assert_eq!(whole["usage"]["completion_tokens"], tokens, "{whole}");
}

#[tokio::test]
async fn answers_stay_text_where_no_call_is_looked_for() {
    let (raw, hermes) = (app(), hermes());
    for seed in 0..3 {
        let body =
            |more| chat("plain", &merged(json!({"seed": seed, "temperature": 1.2, "max_tokens": 30}), &more));
        let want = post(&raw, CHAT, &body(json!({}))).await.ok()["choices"][0]["message"].take();
        for more in [
            json!({"tools": tools()}),
            json!({"tools": tools(), "tool_choice": "none"}),
            json!({"tools": tools(), "tool_choice": "auto", "parallel_tool_calls": false}),
            json!({"tools": []}),
            json!({"tool_choice": "auto"}),
        ] {
            for app in [&raw, &hermes] {
                assert_eq!(
                    post(app, CHAT, &body(more.clone())).await.ok()["choices"][0]["message"],
                    want,
                    "{more}"
                );
            }
        }
    }
}

#[tokio::test]
async fn calls_and_their_results_may_stand_in_the_history() {
    let messages = json!([
        {"role": "user", "content": "call"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{\"at\": \"sea\"}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "waves"}]},
    ]);
    let template = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments.at }}{% endfor %};{% endfor %}";
    let body = json!({"messages": messages, "chat_template": template, "tools": tools(), "max_tokens": 3});
    let prompt = post(&app(), "/tokenize", &body).await.ok()["tokens"].take();
    let text = post(&app(), "/detokenize", &json!({"tokens": prompt})).await.ok()["prompt"].take();
    assert_eq!(text, "user:call;assistant:sea;tool:waves;");
    post(&hermes(), CHAT, &body).await.ok();
}

#[tokio::test]
async fn formats_are_followed_on_both_routes() {
    let app = hermes();
    let schema = json!({"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"enum": [1, "zwei", null]}},
                        "required": ["a", "b"], "additionalProperties": false});
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}});
    let mut complete = 0;
    for seed in 0..6 {
        let more =
            json!({"response_format": format, "seed": seed, "temperature": 1.0, "max_tokens": 300, "n": 2});
        for (path, body) in
            [(CHAT, chat("form", &more)), (COMPLETIONS, merged(json!({"prompt": "form"}), &more))]
        {
            let answer = post(&app, path, &body).await.ok();
            for choice in answer["choices"].as_array().unwrap() {
                let text = choice["message"]["content"].as_str().or(choice["text"].as_str()).unwrap();
                if choice["finish_reason"] == "stop" {
                    let value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
                    assert!(valid(&schema, &value), "{text}");
                    complete += 1;
                } else {
                    assert!(text.starts_with('{'), "{text}");
                }
            }
        }
    }
    assert!(complete >= 12, "{complete} of 24");
    let body = chat("form", &json!({"response_format": {"type": "json_object"}, "max_tokens": 20}));
    let text = post(&app, CHAT, &body).await.ok()["choices"][0]["message"]["content"].take();
    assert!(text.as_str().unwrap().starts_with('{'), "{text}");
}

#[tokio::test]
async fn with_tools_an_answer_is_calls_or_the_format() {
    let app = hermes();
    // the tiny model likes "<" better than "[", and something of the other schema better than "<"
    let schemas = [json!({"enum": [[7]]}), json!({"enum": [7, [7], "s", null, true, {}]})];
    let (mut called, mut formed) = (0, 0);
    for seed in 0..12 {
        let schema = &schemas[seed as usize % 2];
        let format = json!({"type": "json_schema", "json_schema": {"schema": schema}});
        let more =
            json!({"tool_choice": "auto", "response_format": format, "tools": [tool("stop", &nothing())]});
        let answer = post(&app, CHAT, &asked(seed, &more)).await.ok();
        let choice = &answer["choices"][0];
        match choice["finish_reason"].as_str().unwrap() {
            "tool_calls" => called += 1,
            "stop" => {
                let text = choice["message"]["content"].as_str().unwrap();
                let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
                assert!(valid(schema, &value), "{text}");
                formed += 1;
            }
            _ => {}
        }
    }
    assert!(called > 0 && formed > 0, "{called} called, {formed} formed");
}

#[tokio::test]
async fn what_cannot_be_forced_is_refused_with_its_field() {
    let xml = app_loaded(LoadOptions {
        tool_parser: ToolParser::Format(ToolFormat::Xml),
        ..LoadOptions::default()
    });
    let none = app_loaded(LoadOptions { tool_parser: ToolParser::Off, ..LoadOptions::default() });
    let format = json!({"type": "json_object"});
    let bad = json!([tool("f", &json!({"type": "strange"}))]);
    for (app, more, param) in [
        (&none, json!({}), "tool_choice"),
        (&xml, json!({"tool_choice": "auto", "response_format": format}), "response_format"),
        (
            &hermes(),
            json!({"tool_choice": {"type": "function", "function": {"name": "g"}}}),
            "tool_choice.function.name",
        ),
        (&hermes(), json!({"tools": bad}), "tools[0].function.parameters"),
        (&hermes(), json!({"ignore_eos": true}), "tools"),
        (&hermes(), json!({"chat_template": "a<think>\n"}), "tool_choice"),
        (
            &hermes(),
            json!({"chat_template": "a<think>\n", "tools": [], "tool_choice": "auto", "response_format": format}),
            "response_format",
        ),
    ] {
        let answer = post(app, CHAT, &asked(1, &more)).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json()["error"]["param"]),
            (400, &json!(param)),
            "{more}: {}",
            answer.text
        );
    }
}

/// The tiny model's template shows no form of calls, another one shows XML; a call that must be is read all the same.
#[tokio::test]
async fn any_model_can_be_made_to_call() {
    let xml = json!({"chat_template": "{{ messages[0].content }}<tool_call><function="});
    let hermes = json!({"chat_template": "{{ messages[0].content }}<tool_call>"});
    for more in [json!({}), xml, hermes] {
        let mut called = 0;
        for seed in 0..4 {
            let answer = post(&app(), CHAT, &asked(seed, &more)).await.ok();
            called += calls(&answer["choices"][0]).len();
        }
        assert!(called > 0, "{more}");
    }
}

#[tokio::test]
async fn reasoning_is_told_apart_where_the_server_reads_it() {
    let thinker =
        app_loaded(LoadOptions { reasoning_parser: ReasoningParser::Think, ..LoadOptions::default() });
    // the tiny model never ends its reasoning
    let body =
        |more| chat("think", &merged(json!({"chat_template": "{{ messages[0].content }}<think>\n"}), &more));
    let raw = post(&app(), CHAT, &body(json!({}))).await.ok()["choices"][0]["message"].take();
    let text = raw["content"].as_str().unwrap();
    assert!(!text.is_empty() && raw.get("reasoning").is_none(), "{raw}");
    let told = post(&thinker, CHAT, &body(json!({}))).await.ok()["choices"][0]["message"].take();
    assert_eq!(
        told,
        json!({"role": "assistant", "content": "", "reasoning": text, "reasoning_content": text})
    );
    let untold = post(&thinker, CHAT, &body(json!({"include_reasoning": false}))).await.ok();
    assert_eq!(untold["choices"][0]["message"], json!({"role": "assistant", "content": ""}));
    let events = post(&thinker, CHAT, &body(json!({"stream": true}))).await.events();
    let deltas = events.iter().map(|e| &e["choices"][0]["delta"]);
    let reasoning: String = deltas.clone().filter_map(|d| d["reasoning"].as_str()).collect();
    assert_eq!(reasoning, text);
    assert!(deltas.skip(1).all(|d| d["content"].as_str().unwrap_or("").is_empty()));
    // not opened by the template and not by the model: an answer
    let plain = post(&thinker, CHAT, &chat("think", &json!({}))).await.ok();
    assert_eq!(
        plain["choices"][0]["message"],
        post(&app(), CHAT, &chat("think", &json!({}))).await.ok()["choices"][0]["message"]
    );
}

const SMALL: &str = "smollm2-135m-instruct-q4_1.gguf";

fn small() -> Option<Router> {
    let dir = std::env::var_os("QRAE_MODELS").map(PathBuf::from);
    let file = dir.or_else(|| Some(dirs::cache_dir()?.join("qrae/models")))?.join(SMALL);
    if !file.is_file() {
        eprintln!("SKIPPED: {} is not there; `qrae models pull` fetches it", file.display());
        return None;
    }
    let tool_parser = ToolParser::Format(ToolFormat::Hermes);
    let options = LoadOptions { kv_tokens: Some(4096), tool_parser, ..LoadOptions::default() };
    let state = AppState::new(&ServerOptions::default());
    assert!(state.install(ServedModel::load(&ModelFiles::Gguf(file), None, &options).unwrap()));
    Some(router(state))
}

#[tokio::test]
async fn a_real_model_follows_every_schema() {
    let Some(app) = small() else { return };
    let person = json!({"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 30}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{1,8}$"}, "maxItems": 3},
        "kind": {"enum": ["a", "b"]}}, "required": ["name", "age", "tags", "kind"], "additionalProperties": false});
    let nested = json!({"$defs": {"p": {"type": "object", "properties": {"x": {"type": "number", "minimum": -10, "maximum": 10}, "left": {"type": "boolean"}},
        "required": ["x", "left"], "additionalProperties": false}}, "type": "array", "items": {"$ref": "#/$defs/p"}, "minItems": 1, "maxItems": 2});
    let either =
        json!({"anyOf": [{"type": "null"}, {"type": "string", "format": "date"}, {"const": "日本 \"q\""}]});
    for schema in [&person, &nested, &either] {
        let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
        for (seed, temperature) in [(0, 0.0), (1, 0.8), (2, 1.5)] {
            let more = json!({"response_format": format, "seed": seed, "temperature": temperature, "max_tokens": 400, "n": 2});
            let answer = post(&app, CHAT, &chat("Invent something and write it as JSON.", &more)).await.ok();
            for choice in answer["choices"].as_array().unwrap() {
                let text = choice["message"]["content"].as_str().unwrap();
                assert_eq!(choice["finish_reason"], "stop", "{text}");
                let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
                assert!(valid(schema, &value), "{text}");
            }
        }
    }
    let search = json!({"type": "object", "properties": {"query": {"type": "string", "maxLength": 40}}, "required": ["query"], "additionalProperties": false});
    let more = json!({"tools": [tool("search", &search)], "tool_choice": "required", "parallel_tool_calls": false, "max_tokens": 100});
    let answer = post(&app, CHAT, &chat("Search for lighthouses.", &more)).await.ok();
    let called = calls(&answer["choices"][0]);
    assert_eq!((called.len(), &answer["choices"][0]["finish_reason"]), (1, &json!("tool_calls")), "{answer}");
    assert!(called[0].0 == "search" && valid(&search, &called[0].1), "{called:?}");
}
