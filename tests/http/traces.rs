//! Traces: what a collector gets of a request, and that one which is not there changes nothing.

use axum::{
    Router,
    body::Body,
    http::{HeaderValue, Request},
};
use qrae::{
    http::{AppState, ServerOptions, Traces, router},
    service::ServedModel,
};
use serde_json::{Value, json};
use std::time::Duration;

use crate::{
    collector::{Attributes, Collector, attributes},
    log::{asks, fields, keep_log, logged},
    support::*,
};

/// What a server's span kind, and an error, are on the wire.
const SERVER: i32 = 2;
const ERROR: i32 = 2;
const UNSET: i32 = 0;

fn traced(model: ServedModel, traces: &Traces) -> Router {
    let state = AppState::traced(&ServerOptions::default(), Some(traces));
    assert!(state.install(model));
    router(state)
}

/// Blocks, so elsewhere.
async fn finish(traces: Traces) {
    let sent = tokio::task::spawn_blocking(move || traces.finish(Duration::from_secs(30)));
    assert!(sent.await.unwrap());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `all` must hold these.
fn holds(all: &Attributes, wanted: &Value) {
    for (name, value) in wanted.as_object().unwrap() {
        assert_eq!(all.get(name), Some(value), "{name} in {all:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_is_a_span_below_the_callers_with_its_phases() {
    keep_log();
    let collector = Collector::start();
    let traces = Traces::to(&collector.url).unwrap();
    let app = traced(model(), &traces);
    let body = chat("to be traced", &json!({"max_tokens": 4, "ignore_eos": true, "n": 2, "stream": true}));
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let mut request = asks(CHAT, "traced-chat", &body);
    let header = HeaderValue::from_str(&format!("00-{trace}-{parent}-01")).unwrap();
    request.headers_mut().insert("traceparent", header);
    request.headers_mut().insert("user-agent", HeaderValue::from_static("an agent"));
    assert_eq!(send(&app, request).await.events().len(), 10, "an opening and four pieces each");
    finish(traces).await;

    let (sent, below) = collector.request("traced-chat");
    let span = &sent.span;
    assert_eq!((span.name.as_str(), span.kind), ("POST /v1/chat/completions", SERVER));
    assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (trace.to_owned(), parent.to_owned()));
    assert_eq!(span.status.as_ref().map_or(UNSET, |status| status.code), UNSET);
    let told = fields("traced-chat");
    assert_eq!(told["trace_id"], trace, "the line names the trace");
    let all = attributes(&span.attributes);
    holds(
        &all,
        &json!({
            "http.request.method": "POST", "http.route": CHAT, "http.response.status_code": 200,
            "url.path": CHAT, "url.scheme": "http", "network.protocol.version": "1.1",
            "user_agent.original": "an agent",
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "qrae", "gen_ai.request.model": MODEL,
            "gen_ai.response.model": MODEL, "gen_ai.request.stream": true,
            "gen_ai.usage.input_tokens": told["prompt_tokens"], "gen_ai.usage.output_tokens": 8,
            "gen_ai.usage.cache_read.input_tokens": told["cached_tokens"],
            "gen_ai.response.finish_reasons": ["length", "length"],
        }),
    );
    assert!(!all.contains_key("error.type"), "{all:#?}");
    holds(&sent.resource, &json!({"service.name": "qrae", "service.version": env!("CARGO_PKG_VERSION")}));

    // one phase after the other, within the request
    let mut time = span.start_time_unix_nano;
    for name in ["queue", "prefill", "decode"] {
        assert_eq!(below[name].len(), 1, "{name}");
        let phase = &below[name][0];
        assert!(time <= phase.start_time_unix_nano, "{name} begins before what is before it");
        assert!(phase.start_time_unix_nano <= phase.end_time_unix_nano, "{name}");
        time = phase.end_time_unix_nano;
    }
    assert!(time <= span.end_time_unix_nano, "the request ends last");
    assert_eq!(below.len(), 3, "{below:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scores_refusals_and_failures_are_spans_too() {
    let collector = Collector::start();
    let traces = Traces::to(&collector.url).unwrap();
    let (app, failing) = (traced(model(), &traces), traced(broken(), &traces));
    let body = json!({"query": "who", "chunks": ["traced one", "traced two"], "heads": HEADS, "orders": 2});
    let usage = send(&app, asks(SCORE, "traced-score", &body)).await.ok()["usage"].take();
    send(&app, asks(SCORE, "traced-refusal", &json!({"query": "who"}))).await;
    send(&app, asks("/no/such/place", "traced-nowhere", &json!({}))).await;
    send(&failing, asks(CHAT, "traced-failure", &chat("x", &json!({})))).await;
    let asked = app.clone();
    let long = chat("given up", &json!({"max_tokens": 450, "ignore_eos": true, "n": 4}));
    let given_up = send(&asked, asks(CHAT, "traced-given-up", &long));
    assert!(tokio::time::timeout(Duration::from_millis(5), given_up).await.is_err());
    // the caller's trace is not to be kept
    let mut unsampled = asks(SCORE, "traced-not", &body);
    let header = HeaderValue::from_static("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
    unsampled.headers_mut().insert("traceparent", header);
    send(&app, unsampled).await.ok();
    let probe = Request::get("/health").header("x-request-id", "traced-probe").body(Body::empty()).unwrap();
    send(&app, probe).await.ok();
    finish(traces).await;

    let (sent, below) = collector.request("traced-score");
    assert_eq!(sent.span.name, "POST /v1/qrae/score");
    assert!(sent.span.parent_span_id.is_empty() && sent.span.trace_id.len() == 16, "a trace of its own");
    holds(
        &attributes(&sent.span.attributes),
        &json!({
            "gen_ai.operation.name": "score", "gen_ai.request.model": MODEL, "qrae.queries": 1, "qrae.chunks": 2,
            "gen_ai.usage.input_tokens": usage["prompt_tokens"], "qrae.computed_tokens": usage["computed_tokens"],
        }),
    );
    assert_eq!((below["queue"].len(), below["prefill"].len(), below.len()), (2, 2, 2), "one for each order");

    let outcome = |id: &str| {
        let span = collector.request(id).0.span;
        let all = attributes(&span.attributes);
        let code = span.status.as_ref().map_or(UNSET, |status| status.code);
        let get = |name: &str| all.get(name).cloned().unwrap_or_default();
        (span.name.clone(), code, get("http.response.status_code"), get("error.type"))
    };
    let score = "POST /v1/qrae/score".to_owned();
    assert_eq!(outcome("traced-refusal"), (score, UNSET, json!(400), Value::Null), "the caller's fault");
    assert_eq!(
        outcome("traced-nowhere"),
        ("POST".into(), UNSET, json!(404), Value::Null),
        "no path in a name"
    );
    let chat = format!("POST {CHAT}");
    assert_eq!(outcome("traced-failure"), (chat.clone(), ERROR, json!(500), json!("server_error")));
    assert_eq!(outcome("traced-given-up"), (chat, ERROR, Value::Null, json!("cancelled")));

    let requests = collector.sent().into_iter().filter(|sent| sent.span.kind == SERVER).count();
    assert_eq!(requests, 5, "neither the one that is not sampled nor the probe");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_not_there_is_told_once_and_changes_nothing() {
    keep_log();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://me:xq-password@{}", nobody.local_addr().unwrap());
    drop(nobody);
    let traces = Traces::to(&url).unwrap();
    let app = traced(model(), &traces);
    for i in 0..3 {
        let body = chat("without a collector", &json!({"max_tokens": 2}));
        send(&app, asks(CHAT, &format!("alone-{i}"), &body)).await.ok();
    }
    tokio::task::spawn_blocking(move || traces.finish(Duration::from_secs(30))).await.unwrap();
    let place = url.replace("me:xq-password@", "");
    let all = logged();
    let warnings: Vec<&str> = all.lines().filter(|line| line.contains(&place)).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("WARN") && warnings[0].contains("traces do not reach"), "{warnings:?}");
    assert!(!all.contains("xq-password"));
}
