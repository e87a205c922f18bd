//! The log: a line for every request once it is over, and whose an error is.

use std::{
    io,
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use axum::{Router, body::Body, http::Request};
use futures::StreamExt;
use qrae::http::{AppState, ServerOptions, router};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::*;

static WRITTEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Keeps;

impl io::Write for Keeps {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        WRITTEN.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps what is logged from now on, by all tests of this process, as the server logs it, and the quiet lines too.
pub fn keep_log() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        let logs = tracing_subscriber::fmt().json().with_env_filter("info,qrae::request=debug");
        logs.with_writer(|| Keeps).init();
    });
}

/// All of it so far.
pub fn logged() -> String {
    String::from_utf8(WRITTEN.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap()
}

pub fn lines() -> Vec<Value> {
    logged().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The lines that tell a request's end.
fn told(id: &str) -> Vec<Value> {
    let mut lines = lines();
    lines.retain(|l| l["target"] == "qrae::request" && l["fields"]["request_id"] == id);
    lines
}

/// The fields of the one line at level info.
pub fn fields(id: &str) -> Value {
    let mut told = told(id);
    assert_eq!(told.len(), 1, "{id}: {told:?}");
    assert_eq!(told[0]["level"], "INFO");
    assert!(told[0]["span"].is_null(), "the line holds all itself: {}", told[0]);
    told[0]["fields"].take()
}

/// The errors that were logged for a request.
fn errors(id: &str) -> Vec<Value> {
    let mut lines = lines();
    lines.retain(|l| l["level"] == "ERROR" && l["span"]["request_id"] == id);
    lines
}

/// A request with an id.
pub fn asks(path: &str, id: &str, body: &Value) -> Request<Body> {
    let request = Request::post(path).header("content-type", "application/json").header("x-request-id", id);
    request.body(Body::from(body.to_string())).unwrap()
}

/// `fields` without the times, which must be there and add up.
fn untimed(mut fields: Value) -> Value {
    let map = fields.as_object_mut().unwrap();
    let mut seconds = |name: &str| map.shift_remove(name).unwrap().as_f64().unwrap();
    let (all, queue, prefill) = (seconds("seconds"), seconds("queue_seconds"), seconds("prefill_seconds"));
    assert!(queue >= 0.0 && prefill > 0.0 && all >= queue + prefill, "{all} {queue} {prefill}");
    fields
}

#[tokio::test]
async fn a_whole_answer_is_told_with_what_it_took() {
    keep_log();
    let app = app();
    let body = chat("the log of a whole answer", &json!({"max_tokens": 3, "ignore_eos": true, "n": 2}));
    let usage = send(&app, asks(CHAT, "log-whole", &body)).await.ok()["usage"].take();
    assert_eq!(
        untimed(fields("log-whole")),
        json!({
            "message": "answered", "request_id": "log-whole", "method": "POST", "route": CHAT, "status": 200,
            "cancelled": false, "model": MODEL, "operation": "chat", "stream": false,
            "prompt_tokens": usage["prompt_tokens"], "cached_tokens": 0, "completion_tokens": 6,
            "finish_reasons": "length,length",
        })
    );
    let body = json!({"prompt": ["on the", "in the"], "max_tokens": 2, "ignore_eos": true});
    send(&app, asks(COMPLETIONS, "log-two", &body)).await.ok();
    let told = untimed(fields("log-two"));
    assert_eq!((&told["operation"], &told["completion_tokens"]), (&json!("text_completion"), &json!(4)));
}

#[tokio::test]
async fn scoring_is_told_with_what_it_took() {
    keep_log();
    let app = app();
    let body = json!({"queries": ["who", "when"], "chunks": ["log chunk one", "log chunk two", ""], "heads": HEADS,
                      "orders": 2});
    let answer = send(&app, asks(SCORE, "log-score", &body)).await.ok();
    let told = untimed(fields("log-score"));
    assert_eq!(
        told,
        json!({
            "message": "answered", "request_id": "log-score", "method": "POST", "route": SCORE, "status": 200,
            "cancelled": false, "model": MODEL, "operation": "score", "queries": 2, "chunks": 3,
            "prompt_tokens": answer["usage"]["prompt_tokens"],
            "cached_tokens": answer["usage"]["prompt_tokens_details"]["cached_tokens"],
            "computed_tokens": answer["usage"]["computed_tokens"],
        })
    );
    assert!(told["computed_tokens"].as_u64().unwrap() > 0);
    let body = json!({"query": "who", "documents": ["log chunk one"], "heads": HEADS});
    send(&app, asks("/v2/rerank", "log-rerank", &body)).await.ok();
    let told = untimed(fields("log-rerank"));
    assert_eq!((&told["operation"], &told["chunks"]), (&json!("rerank"), &json!(1)));
}

#[tokio::test]
async fn a_stream_is_told_when_it_has_been_read() {
    keep_log();
    let body = chat("a stream", &json!({"max_tokens": 5, "ignore_eos": true, "stream": true}));
    let response = app().oneshot(asks(CHAT, "log-stream", &body)).await.unwrap();
    let mut pieces = response.into_body().into_data_stream();
    pieces.next().await.unwrap().unwrap();
    assert!(told("log-stream").is_empty(), "it is not over");
    while let Some(piece) = pieces.next().await {
        piece.unwrap();
    }
    drop(pieces);
    let told = untimed(fields("log-stream"));
    assert_eq!((&told["stream"], &told["cancelled"]), (&json!(true), &json!(false)));
    assert_eq!((&told["completion_tokens"], &told["finish_reasons"]), (&json!(5), &json!("length")));
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_a_line_with_what_was_done() {
    keep_log();
    let long = |stream: bool| {
        let more = json!({"max_tokens": 450, "ignore_eos": true, "n": 2, "stream": stream});
        chat("who goes away", &more)
    };
    let response = app().oneshot(asks(CHAT, "log-cut", &long(true))).await.unwrap();
    let mut pieces = response.into_body().into_data_stream();
    for _ in 0..6 {
        pieces.next().await.unwrap().unwrap();
    }
    drop(pieces);
    let told = untimed(fields("log-cut"));
    assert_eq!((&told["message"], &told["cancelled"]), (&json!("cancelled"), &json!(true)));
    assert_eq!((&told["status"], &told["finish_reasons"]), (&json!(200), &json!("abort,abort")));
    assert!((1..900).contains(&told["completion_tokens"].as_u64().unwrap()), "{told}");

    // one that is not streamed has no status yet
    let asked = app().oneshot(asks(CHAT, "log-given-up", &long(false)));
    assert!(tokio::time::timeout(Duration::from_millis(5), asked).await.is_err(), "900 tokens in no time");
    let told = fields("log-given-up");
    assert_eq!((&told["message"], &told["cancelled"]), (&json!("cancelled"), &json!(true)));
    assert!(told["status"].is_null(), "{told}");
    assert_eq!((&told["model"], &told["stream"]), (&json!(MODEL), &json!(false)));
}

#[tokio::test]
async fn what_is_refused_is_told_with_why_and_without_the_callers_words() {
    keep_log();
    let app = app_with(&ServerOptions { api_keys: vec!["zq-key".into()], ..ServerOptions::default() });
    let sent = async |id: &str, method: &str, path: &str, key: &str, body: &Value| {
        let mut request = asks(path, id, body);
        *request.method_mut() = method.parse().unwrap();
        request.headers_mut().insert("authorization", key.parse().unwrap());
        send(&app, request).await;
        fields(id)
    };
    let key = "Bearer zq-key";
    let told = sent("no-key", "POST", CHAT, "Bearer zq-other", &chat("x", &json!({}))).await;
    assert_eq!((&told["status"], &told["error"]), (&json!(401), &json!("invalid_api_key")));
    let told = sent("no-model", "POST", CHAT, key, &chat("x", &json!({"model": "zq-model"}))).await;
    assert_eq!((&told["status"], &told["error"]), (&json!(404), &json!("model_not_found")));
    assert!(told["model"].is_null() && told["operation"].is_null(), "{told}");
    let told = sent("bad", "POST", SCORE, key, &json!({"query": "zq", "chunks": "zq-chunks"})).await;
    assert_eq!((&told["status"], &told["error"]), (&json!(400), &json!("invalid_request_error")));
    let told = sent("pattern", "GET", "/v1/models/zq-name", key, &json!({})).await;
    assert_eq!((&told["route"], &told["status"]), (&json!("/v1/models/{*id}"), &json!(404)));
    assert!(told["path"].is_null(), "{told}");
    // no route: the path is all there is to say, but not at any length
    let told = sent("lost", "ZQVERB", &format!("/{}", "a".repeat(5000)), key, &json!({})).await;
    assert_eq!((&told["route"], &told["method"]), (&json!("unmatched"), &json!("_OTHER")));
    assert_eq!(told["path"].as_str().unwrap().len(), 256);
    let all = logged();
    for words in ["zq-", "ZQVERB"] {
        assert!(!all.contains(words), "{:?}", all.lines().find(|line| line.contains(words)));
    }
}

#[tokio::test]
async fn nothing_that_is_asked_or_answered_is_logged() {
    keep_log();
    let secret = "xq-secret";
    let tool = json!({"type": "function", "function": {"name": secret, "parameters": {"type": "object"}}});
    let tail = json!({"stop": [secret], "user": secret, "cache_salt": secret, "tools": [tool], "max_tokens": 4,
                      "metadata": {secret: secret}, secret: secret});
    let asked = chat(secret, &tail);
    let score =
        json!({"query": secret, "chunks": [{"id": secret, "title": secret, "text": secret}], "heads": HEADS});
    let failing = AppState::new(&ServerOptions::default());
    assert!(failing.install(broken()));
    let mut answers = String::new();
    for (i, app) in [app(), router(failing)].iter().enumerate() {
        for (j, body) in [asked.clone(), merged(asked.clone(), &json!({"stream": true}))].iter().enumerate() {
            answers += &send(app, asks(CHAT, &format!("quiet-{i}-{j}"), body)).await.text;
        }
        let completion = json!({"prompt": secret, "max_tokens": 4, "echo": true});
        answers += &send(app, asks(COMPLETIONS, &format!("quiet-{i}-c"), &completion)).await.text;
        send(app, asks(SCORE, &format!("quiet-{i}-s"), &score)).await;
        let wrong = chat(secret, &json!({"temperature": secret}));
        assert_eq!(send(app, asks(CHAT, &format!("quiet-{i}-w"), &wrong)).await.status.as_u16(), 400);
    }
    assert!(answers.contains(secret), "it is echoed to the caller");
    let all = logged();
    assert!(!all.contains(secret), "{:?}", all.lines().find(|line| line.contains(secret)));
    assert_eq!(fields("quiet-1-0")["status"], 500);
}

#[tokio::test]
async fn an_error_says_whose_it_is() {
    keep_log();
    let state = AppState::new(&ServerOptions::default());
    assert!(state.install(broken()));
    let app = router(state);
    assert_eq!(send(&app, asks(CHAT, "broke", &chat("x", &json!({})))).await.status.as_u16(), 500);
    let told = fields("broke");
    assert_eq!((&told["status"], &told["error"]), (&json!(500), &json!("server_error")));
    let logged = errors("broke");
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0]["fields"]["message"].as_str().unwrap().contains("the model failed"), "{logged:?}");
    // in a stream it comes too late for a status
    send(&app, asks(CHAT, "broke-late", &chat("x", &json!({"stream": true})))).await;
    let told = fields("broke-late");
    assert_eq!((&told["status"], &told["error"]), (&json!(200), &json!("server_error")));
    assert_eq!((&told["cancelled"], errors("broke-late").len()), (&json!(false), 1));
}

#[tokio::test]
async fn a_request_past_its_time_is_told_as_late() {
    keep_log();
    let strict = app_with(&ServerOptions {
        request_timeout: Some(Duration::from_millis(1)),
        ..ServerOptions::default()
    });
    let long = chat("late", &json!({"max_tokens": 450, "ignore_eos": true}));
    send(&strict, asks(CHAT, "log-late", &long)).await;
    let told = fields("log-late");
    assert_eq!((&told["status"], &told["error"]), (&json!(504), &json!("deadline_exceeded")));
    assert_eq!(told["cancelled"], json!(false), "it was answered");
}

#[tokio::test]
async fn probes_and_files_are_no_news() {
    keep_log();
    let quiet = async |app: &Router, path: &str, method: &str, id: &str| {
        let request = Request::builder().method(method).uri(path).header("x-request-id", id);
        send(app, request.body(Body::empty()).unwrap()).await;
        let mut told = told(id);
        assert_eq!((told.len(), &told[0]["level"]), (1, &json!("DEBUG")), "{path}: {told:?}");
        told.remove(0)["fields"].take()
    };
    let app = app();
    for (path, id) in [("/health", "q-1"), ("/metrics", "q-2"), ("/", "q-3"), ("/web/app.js", "q-4")] {
        let told = quiet(&app, path, "GET", id).await;
        assert_eq!((&told["status"], &told["cancelled"]), (&json!(200), &json!(false)), "{path}");
    }
    assert_eq!(quiet(&app, "/", "HEAD", "q-5").await["cancelled"], json!(false), "there is no body to read");
}
