//! The description of the API: it names the routes there are, the fields that are read, and the answers that are given.

use std::{collections::BTreeSet, fs, path::Path};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
};
use qrae::{
    http::{AppState, ServerOptions, router},
    store::Address,
};
use serde_json::{Value, json};

use crate::support::*;

async fn document() -> Value {
    get(&app(), "/openapi.json").await.ok()
}

/// A server with two contexts, `a` and `gone`.
async fn with_two(options: &ServerOptions) -> Router {
    let app = with_contexts(model(), options, &Address::Memory).await;
    for id in ["a", "gone"] {
        post(&app, CONTEXTS, &json!({"id": id, "query": "who?", "heads": HEADS})).await;
    }
    app
}

fn trusting() -> ServerOptions {
    ServerOptions { trust_request_chat_template: true, ..ServerOptions::default() }
}

/// A path with what is there in place of its parameters.
fn filled(path: &str) -> String {
    let id = if path.starts_with(CONTEXTS) { "a" } else { MODEL };
    path.replace("{id}", id).replace("{file}", "app.js")
}

/// Each operation as (path, method, what is said of it).
fn operations(document: &Value) -> Vec<(String, String, &Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().iter();
            methods.map(move |(method, operation)| (path.clone(), method.clone(), operation))
        })
        .collect()
}

fn follow<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(place) => {
            let found = document.pointer(place.trim_start_matches('#'));
            follow(document, found.unwrap_or_else(|| panic!("{place} leads nowhere")))
        }
        None => schema,
    }
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("what is a {other}?"),
    }
}

/// What is wrong with a value, a field that is not described included.
fn unlike(document: &Value, schema: &Value, value: &Value, place: &str) -> Vec<String> {
    let schema = follow(document, schema);
    if let Some(any) = schema["anyOf"].as_array() {
        let all: Vec<_> = any.iter().map(|one| unlike(document, one, value, place)).collect();
        return if all.iter().any(Vec::is_empty) { Vec::new() } else { all.concat() };
    }
    let mut wrong = Vec::new();
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().map(|kind| kind.as_str().unwrap()).collect(),
        _ => Vec::new(),
    };
    let allowed = schema["enum"].as_array().is_none_or(|all| all.contains(value))
        && schema.get("const").is_none_or(|only| only == value)
        && (kinds.is_empty() || kinds.iter().any(|kind| is(value, kind)));
    let low = schema["minimum"].as_f64().zip(value.as_f64()).is_some_and(|(least, n)| n < least);
    let high = schema["maximum"].as_f64().zip(value.as_f64()).is_some_and(|(most, n)| n > most);
    if !allowed || low || high {
        wrong.push(format!("{place} is {value}, not as in {schema}"));
    }
    if let (Some(fields), Some(known)) = (value.as_object(), schema["properties"].as_object()) {
        let required = schema["required"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap());
        wrong
            .extend(required.filter(|n| !fields.contains_key(*n)).map(|n| format!("{place}.{n} is missing")));
        for (name, field) in fields {
            match known.get(name) {
                Some(schema) => wrong.extend(unlike(document, schema, field, &format!("{place}.{name}"))),
                None => wrong.push(format!("{place}.{name} is not described")),
            }
        }
    }
    if let (Some(items), Some(schema)) = (value.as_array(), schema.get("items")) {
        let item = |(i, item)| unlike(document, schema, item, &format!("{place}[{i}]"));
        wrong.extend(items.iter().enumerate().flat_map(item));
    }
    wrong
}

/// The examples of an operation's body; those that leave the heads to the model name some, for the tiny one has no set.
fn examples(path: &str, operation: &Value) -> Vec<Value> {
    let examples = operation.pointer("/requestBody/content/application~1json/examples");
    let values: Vec<Value> =
        examples.unwrap().as_object().unwrap().values().map(|one| one["value"].clone()).collect();
    assert!(!values.is_empty(), "{path}");
    let scores = ["score", "rerank", "gate"].iter().any(|word| path.contains(word)) || path == CONTEXTS;
    values.into_iter().map(|v| if scores { merged(v, &json!({"heads": HEADS})) } else { v }).collect()
}

#[tokio::test]
async fn it_names_every_route_and_no_other() {
    let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/mod.rs")).unwrap();
    let routes: BTreeSet<(String, String)> = source
        .split(".route(\"")
        .skip(1)
        .flat_map(|rest| {
            let (path, rest) = rest.split_once("\", ").unwrap();
            let line = rest.lines().next().unwrap();
            let methods =
                ["get", "post", "delete"].into_iter().filter(move |m| line.contains(&format!("{m}(")));
            let path = path.replace("{*", "{");
            methods.map(move |method| (path.clone(), method.to_owned())).collect::<Vec<_>>()
        })
        .collect();
    assert!(routes.len() > 15 && routes.contains(&("/health".into(), "get".into())), "{routes:?}");
    let document = document().await;
    let described: BTreeSet<(String, String)> =
        operations(&document).into_iter().map(|(path, method, _)| (path, method)).collect();
    assert_eq!(described, routes);
    let ids: BTreeSet<&str> =
        operations(&document).iter().map(|(.., o)| o["operationId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), described.len(), "two operations have one id");
}

#[tokio::test]
async fn schemas_are_schemas() {
    let document = document().await;
    let schemas = document["components"]["schemas"].as_object().unwrap();
    assert!(schemas.len() > 20, "{}", schemas.len());
    for (name, schema) in schemas {
        assert!(jsonschema::draft202012::meta::is_valid(schema), "{name}: {schema}");
    }
}

#[tokio::test]
async fn examples_are_accepted_and_answered_as_described() {
    let (app, document) = (with_two(&trusting()).await, document().await);
    for (path, method, operation) in operations(&document) {
        let body = operation.pointer("/requestBody/content/application~1json/schema");
        let said = operation.pointer("/responses/200/content").unwrap().as_object().unwrap();
        let mut answers = Vec::new();
        if let Some(schema) = body {
            for example in examples(&path, operation) {
                assert_eq!(unlike(&document, schema, &example, "body"), [""; 0], "{path}");
                answers.push(post(&app, &filled(&path), &example).await);
            }
        } else if method == "delete" {
            answers.push(delete(&app, &path.replace("{id}", "gone")).await);
        } else {
            assert_eq!(method, "get");
            answers.push(get(&app, &filled(&path)).await);
        }
        for answer in answers {
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
            let kind = answer.headers["content-type"].to_str().unwrap().split(';').next().unwrap();
            let schema = said.get(kind).or(said.get("*/*"));
            let schema = schema.unwrap_or_else(|| panic!("{path} answers {kind}, which is not described"));
            if kind == "application/json" {
                assert_eq!(unlike(&document, &schema["schema"], &answer.json(), "answer"), [""; 0], "{path}");
            }
        }
    }
}

/// A field that is described and not looked at would take anything. (That a field is not looked at after it was read,
/// the compiler finds.)
#[tokio::test]
async fn every_described_field_is_read() {
    let (app, document) = (with_two(&trusting()).await, document().await);
    let odd = [json!({"§": 1}), json!(3.5), json!("§"), json!([{}]), json!(-99), json!(true)];
    let mut seen = 0;
    for (path, _, operation) in operations(&document) {
        let Some(schema) = operation.pointer("/requestBody/content/application~1json/schema") else {
            continue;
        };
        let fields = follow(&document, schema)["properties"].as_object().unwrap();
        for name in fields.keys() {
            let mut refused = false;
            for example in examples(&path, operation) {
                for value in &odd {
                    let body = merged(example.clone(), &json!({(name): value}));
                    let status = post(&app, &filled(&path), &body).await.status;
                    assert!(status == 200 || status.is_client_error(), "{path} {name} {value}: {status}");
                    refused |= status.is_client_error();
                }
            }
            assert!(refused, "{path} takes anything for {name}");
            seen += 1;
        }
    }
    assert!(seen > 80, "{seen}");
    let listed = follow(&document, &document["components"]["schemas"]["ScoreRequest"])["properties"].clone();
    assert!(listed.get("query").is_some() && listed.get("heads").is_some() && listed.get("rest").is_none());
}

async fn sent(app: &Router, path: &str, kind: &str, body: &str) -> Answer {
    let request = Request::post(path).header("content-type", kind);
    send(app, request.body(Body::from(body.to_owned())).unwrap()).await
}

#[tokio::test]
async fn refusals_are_as_described() {
    let document = document().await;
    let open = with_two(&trusting()).await;
    let full = with_two(&ServerOptions { max_requests: 0, ..ServerOptions::default() }).await;
    let locked = with_two(&ServerOptions { api_keys: vec!["key".into()], ..ServerOptions::default() }).await;
    let small = with_two(&ServerOptions { max_body_bytes: 8, ..ServerOptions::default() }).await;
    let empty = router(AppState::new(&ServerOptions::default()));
    let mut seen = BTreeSet::new();
    for (path, _, operation) in operations(&document) {
        if operation.get("requestBody").is_none() {
            continue;
        }
        let mut answers = Vec::new();
        for example in examples(&path, operation) {
            let good = example.to_string();
            let other = merged(example.clone(), &json!({"model": "none"})).to_string();
            let wrong = json!({"query": 1, "messages": 1, "prompt": 1, "tokens": 1, "after_update": "x"});
            let bad = merged(example, &wrong).to_string();
            for (app, kind, body) in [
                (&full, "application/json", &good),
                (&locked, "application/json", &good),
                (&small, "application/json", &good),
                (&empty, "application/json", &good),
                (&open, "text/plain", &good),
                (&open, "application/json", &other),
                (&open, "application/json", &bad),
            ] {
                answers.push(sent(app, &filled(&path), kind, body).await);
            }
        }
        answers.push(sent(&open, &filled(&path), "application/json", "{").await);
        for answer in answers {
            assert_ne!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
            let said = &operation["responses"][answer.status.as_str()];
            assert!(!said.is_null(), "{path} answers {}, which is not described", answer.status);
            let schema = follow(&document, said).pointer("/content/application~1json/schema").unwrap();
            assert_eq!(unlike(&document, schema, &answer.json(), "error"), [""; 0], "{path}");
            seen.insert(answer.status.as_u16());
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [400, 401, 404, 413, 415, 422, 429, 503]);
}

#[tokio::test]
async fn the_description_wants_a_key_and_its_page_none() {
    let app = app_with(&ServerOptions { api_keys: vec!["key".into()], ..ServerOptions::default() });
    assert_eq!(get(&app, "/openapi.json").await.status, 401);
    for path in ["/docs", "/web/docs.js", "/web/docs.css"] {
        assert_eq!(get(&app, path).await.status, 200, "{path}");
    }
    let request = Request::get("/openapi.json").header("authorization", "Bearer key");
    let answer = send(&app, request.body(Body::empty()).unwrap()).await.ok();
    assert_eq!((&answer["openapi"], &answer["info"]["title"]), (&json!("3.1.0"), &json!("qrae")));
}
