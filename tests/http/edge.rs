//! What stands between callers and the model: time limits, other origins' pages, each key's own cache.

use std::time::Duration;

use axum::{
    Router,
    body::Body,
    http::{Method, Request},
};
use qrae::http::ServerOptions;
use serde_json::{Value, json};

use crate::support::*;

async fn sent(app: &Router, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let request = Request::post(path).header("content-type", "application/json");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    send(app, request.body(Body::from(body.to_string())).unwrap()).await
}

/// Takes longer than a millisecond.
fn long(more: &Value) -> Value {
    merged(chat("the user", &json!({"max_tokens": 400, "ignore_eos": true})), more)
}

#[tokio::test]
async fn a_request_past_its_time_is_dropped_and_told() {
    let app = app();
    let soon = [("x-request-timeout", "0.001")];
    let answer = sent(&app, CHAT, &soon, &long(&json!({}))).await;
    let error = answer.json()["error"].take();
    assert_eq!((answer.status.as_u16(), &error["code"]), (504, &json!("deadline_exceeded")));
    assert!(error["message"].as_str().unwrap().contains("0.001 s"), "{error}");
    // the server's own limit holds for all; a caller can ask for less, not for more
    let strict =
        ServerOptions { request_timeout: Some(Duration::from_millis(1)), ..ServerOptions::default() };
    let strict = app_with(&strict);
    for headers in [&[][..], &[("x-request-timeout", "600")]] {
        assert_eq!(sent(&strict, CHAT, headers, &long(&json!({}))).await.status.as_u16(), 504);
    }
    // what was dropped holds nothing
    for _ in 0..500 {
        if model().engine.stats().running == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    sent(&app, CHAT, &[("x-request-timeout", "600")], &chat("it is", &json!({}))).await.ok();
    let wrong = sent(&app, CHAT, &[("x-request-timeout", "soon")], &chat("it is", &json!({}))).await;
    assert_eq!((wrong.status.as_u16(), &wrong.json()["error"]["param"]), (400, &json!("X-Request-Timeout")));
}

#[tokio::test]
async fn a_stream_past_its_time_ends_with_an_error_event() {
    let many = json!({"stream": true, "n": 16});
    let answer = sent(&app(), CHAT, &[("x-request-timeout", "0.004")], &long(&many)).await;
    if answer.status.as_u16() == 504 {
        return; // a machine so busy that the stream had not begun
    }
    assert_eq!(answer.status, 200);
    assert!(!answer.text.contains("[DONE]"), "it was not done");
    let last = answer.text.trim_end().rsplit("\n\n").next().unwrap();
    let last: Value = serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "deadline_exceeded");
    // one that is done in time is as without a limit
    let short = chat("it is", &json!({"stream": true}));
    let events = sent(&app(), CHAT, &[("x-request-timeout", "600")], &short).await.events();
    assert!(events.last().unwrap()["choices"][0]["finish_reason"].is_string());
}

#[tokio::test]
async fn pages_of_other_origins_get_nothing_unless_named() {
    let asks = |origin: &str| {
        let request = Request::builder().method(Method::OPTIONS).uri(SCORE).header("origin", origin);
        let request = request.header("access-control-request-method", "POST");
        request
            .header("access-control-request-headers", "authorization,content-type,x-request-timeout")
            .body(Body::empty())
            .unwrap()
    };
    let allowed = |answer: &Answer| answer.headers.get("access-control-allow-origin").cloned();
    let closed = app();
    assert_eq!(allowed(&send(&closed, asks("https://a.example")).await), None);

    let api_keys = vec!["k".to_owned()];
    let cors_origins = vec!["https://a.example".parse().unwrap()];
    let open = app_with(&ServerOptions { api_keys, cors_origins, ..ServerOptions::default() });
    let answer = send(&open, asks("https://a.example")).await;
    assert_eq!(answer.status.as_u16(), 200, "the browser asks without a key");
    assert_eq!(allowed(&answer).unwrap(), "https://a.example");
    let headers = answer.headers["access-control-allow-headers"].to_str().unwrap();
    assert!(headers.contains("x-request-timeout"), "{headers}");
    assert!(answer.headers.contains_key("x-request-id"), "it is a request like others");
    assert_eq!(allowed(&send(&open, asks("https://b.example")).await), None);
    // errors can be read by the page too
    let refused = sent(&open, SCORE, &[("origin", "https://a.example")], &json!({})).await;
    assert_eq!(
        (refused.status.as_u16(), allowed(&refused).unwrap().to_str().unwrap()),
        (401, "https://a.example")
    );
}

#[tokio::test]
async fn keys_do_not_see_each_others_cache() {
    let api_keys = vec!["one".to_owned(), "two".to_owned()];
    let app = app_with(&ServerOptions { api_keys, ..ServerOptions::default() });
    let text = "the user and she and he and the user ".repeat(8);
    let ask = |key: &'static str, salt: Option<&str>| {
        let body = chat(&text, &salt.map_or(json!({}), |salt| json!({"cache_salt": salt})));
        let app = &app;
        async move {
            let answer = sent(app, CHAT, &[("authorization", key)], &body).await.ok();
            answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
        }
    };
    assert_eq!(ask("Bearer one", None).await, 0);
    assert!(ask("Bearer one", None).await > 0, "one's own");
    assert_eq!(ask("Bearer two", None).await, 0, "not another's");
    assert!(ask("two", None).await > 0, "a key is a key, however it is sent");
    assert_eq!(ask("Bearer one", Some("s")).await, 0);
    assert_eq!(ask("Bearer two", Some("s")).await, 0);
    assert!(ask("Bearer two", Some("s")).await > 0);
}
