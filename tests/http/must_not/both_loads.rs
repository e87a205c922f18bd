//! Answers and scores at once, pass by pass: neither load holds up the other, and nobody who has gone is worked for.

use std::time::Duration;

use axum::{Router, body::Body, http::Request};
use futures::StreamExt;
use qrae::{http::ServerOptions, service::ServedModel};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::house::*;
use crate::support::*;

/// Much to score: some 200 tokens of chunks, and many questions of some 40.
fn burst(number: usize) -> Value {
    let chunks: Vec<String> =
        (0..4).map(|i| format!("{number} {i} {}", "the user and she ".repeat(5))).collect();
    let queries: Vec<String> = (0..60).map(|i| format!("what did {i} say of it?")).collect();
    json!({"queries": queries, "chunks": chunks, "heads": HEADS, "cache_salt": format!("burst {number}")})
}

/// A server of this model with so many places.
fn app_of(model: ServedModel, max_requests: usize) -> Router {
    served_with(model, &ServerOptions { max_requests, ..ServerOptions::default() })
}

/// The events of a stream as they come.
async fn stream(app: &Router, body: &Value) -> mpsc::UnboundedReceiver<String> {
    let request = Request::post(CHAT).header("content-type", "application/json");
    let request =
        request.body(Body::from(merged(body.clone(), &json!({"stream": true})).to_string())).unwrap();
    let response = tower::ServiceExt::oneshot(app.clone(), request).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut pieces = response.into_body().into_data_stream();
    let (sender, events) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(piece) = pieces.next().await {
            let text = String::from_utf8(piece.unwrap().to_vec()).unwrap();
            for event in text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")) {
                let _ = sender.send(event.to_owned());
            }
        }
    });
    events
}

/// The text of the next event, which must come.
async fn text(events: &mut mpsc::UnboundedReceiver<String>) -> String {
    let event = tokio::time::timeout(Duration::from_secs(60), events.recv()).await;
    let event: Value = serde_json::from_str(&event.expect("an event").expect("one more event")).unwrap();
    event["choices"][0]["delta"]["content"].as_str().unwrap().to_owned()
}

/// For a request to get to the engine, so that few passes go by until it is there.
async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m11_no_burst_of_scores_starves_a_chat() {
    let (gate, model) = gated(64);
    let app = served(model.clone());
    // every token of this answer is a piece of the stream
    let format = json!({"type": "json_schema", "json_schema": {"schema": {"const": "k".repeat(440)}}});
    let body = json!({"messages": [{"role": "user", "content": "k"}], "response_format": format});
    let mut chat = stream(&app, &body).await;
    let mut said = text(&mut chat).await;
    assert_eq!(gate.step().await.answers, 0, "its prompt");
    said += &text(&mut chat).await;

    // six bursts come; what is left of them when the counting begins is more than 100 steps can score
    let mut scores: Vec<_> = (0..6).map(|i| spawn_post(&app, SCORE, burst(i))).collect();
    while gate.next().await.scored == 0 || model.engine.stats().waiting < 200 {
        a_moment().await;
        gate.step().await;
        said += &text(&mut chat).await;
    }
    let mut scored = 0;
    for i in 0..100 {
        if i % 20 == 0 {
            scores.push(spawn_post(&app, SCORE, burst(6 + i)));
        }
        let pass = gate.step().await;
        assert!((1..=SHARE).contains(&pass.scored), "{pass:?} between two tokens");
        assert_eq!((pass.answers, pass.prompts), (1, 0), "{pass:?}");
        scored += pass.scored;
        let piece = text(&mut chat).await;
        assert!(!piece.is_empty(), "each step gave the stream its token");
        said += &piece;
    }
    assert!(scored > 90 * SHARE, "scores used {scored} of {} tokens", 100 * SHARE);
    gate.open();
    while let Some(event) = chat.recv().await.filter(|event| event != "[DONE]") {
        let event: Value = serde_json::from_str(&event).unwrap();
        said += event["choices"][0]["delta"]["content"].as_str().unwrap();
    }
    assert_eq!(said, format!("\"{}\"", "k".repeat(440)));
    for score in scores {
        assert_eq!(score.await.unwrap().ok()["queries"].as_array().unwrap().len(), 60);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m11_no_flood_of_long_answers_keeps_a_score_from_starting() {
    let (gate, model) = gated(4);
    let app = served(model.clone());
    let long = |i| chat(&format!("flood {i}"), &json!({"max_tokens": 400, "ignore_eos": true}));
    let flood: Vec<_> = (0..12).map(|i| spawn_post(&app, CHAT, long(i))).collect();
    let here = || {
        let stats = model.engine.stats();
        (stats.running, stats.waiting)
    };
    // a first pass takes what came first; the others are seen after it
    while gate.next().await.answers < 4 || here() != (4, 8) {
        a_moment().await;
        gate.step().await;
    }
    let chunks = ["the user and she ".repeat(12), "she and he".to_owned()];
    let body = json!({"query": "what did she say?", "chunks": chunks, "heads": HEADS});
    let score = spawn_post(&app, SCORE, body);
    while here() == (4, 8) {
        a_moment().await;
        let pass = gate.step().await;
        assert_eq!(pass, Pass { answers: 4, ..Pass::default() });
        gate.next().await;
    }
    // it starts in the step in which it comes, beyond the places there are, and has its whole share until it is done
    assert_eq!(here(), (5, 8));
    let mut passes = Vec::new();
    while gate.next().await.scored > 0 {
        passes.push(gate.step().await);
    }
    let answer = score.await.unwrap().ok();
    let tokens = answer["usage"]["computed_tokens"].as_u64().unwrap() as usize;
    assert!(tokens > 2 * SHARE, "{answer}");
    let mut left = tokens;
    for pass in passes {
        assert_eq!(pass, Pass { answers: 4, prompts: 0, scored: left.min(SHARE) });
        left -= pass.scored;
    }
    assert_eq!(left, 0);
    assert_eq!(here(), (4, 8), "eight that came before it have not begun");
    gate.open();
    for long in flood {
        assert_eq!(long.await.unwrap().ok()["usage"]["completion_tokens"], 400);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m11_what_is_given_up_is_not_worked_for_and_leaves_no_kv_and_no_place() {
    let chunks = ["the user and she ".repeat(10), "she and he ".repeat(5)];
    let score = |more: Value| merged(json!({"query": "who?", "chunks": chunks, "heads": HEADS}), &more);
    let many: Vec<String> = (0..50).map(|i| format!("question {i} of many")).collect();
    let long = json!({"max_tokens": 300, "ignore_eos": true});
    for (path, body) in [
        (SCORE, score(json!({"control": "query_free"}))),
        (SCORE, score(json!({"control": "null_query", "read": "query_mean"}))),
        (SCORE, score(json!({"query": null, "queries": many, "control": "null_query"}))),
        (SCORE, score(json!({"orders": 2}))),
        ("/rerank", json!({"query": "who?", "documents": chunks, "heads": HEADS})),
        ("/rerank", json!({"query": "who?", "texts": chunks, "heads": HEADS})),
        (CHAT, chat("x", &long)),
        (CHAT, chat("x", &merged(long.clone(), &json!({"n": 8})))),
        (COMPLETIONS, merged(json!({"prompt": ["a", "b"]}), &long)),
        (COMPLETIONS, merged(json!({"prompt": "a", "stream": true}), &long)),
    ] {
        let (gate, model) = gated(64);
        let app = app_of(model.clone(), 1);
        let request = spawn_post(&app, path, body.clone());
        assert_ne!(gate.next().await, Pass::default());
        assert!(model.engine.stats().kv.in_use > 0);
        assert_eq!(post(&app, path, &body).await.status, 429, "one place, and it is taken");
        request.abort();
        assert!(request.await.unwrap_err().is_cancelled());
        gate.open();
        soon("the engine stops", || model.engine.stats().running + model.engine.stats().waiting == 0).await;
        let stats = model.engine.stats();
        assert_eq!((gate.passes(), stats.kv.in_use, stats.leaks), (1, 0, 0), "{path} {body}");
        assert_eq!(stats.kv.free + stats.kv.cached, stats.kv.total);
        post(&app, CHAT, &chat("and now?", &json!({"max_tokens": 1}))).await.ok();
    }
}

#[tokio::test]
async fn m11_a_request_is_one_place_whatever_it_holds() {
    let app = app_of(model(), 1);
    let texts: Vec<String> = (0..40).map(|i| format!("n{i}")).collect();
    let query = json!({"query": "which?", "heads": HEADS});
    for (path, body) in [
        ("/rerank", merged(query.clone(), &json!({"texts": texts}))),
        ("/v2/rerank", merged(query, &json!({"documents": texts}))),
        (SCORE, json!({"queries": texts, "chunks": ["one", "two", "three"], "heads": HEADS, "orders": 4})),
        (CHAT, chat("x", &json!({"n": 16, "max_tokens": 2}))),
        (COMPLETIONS, json!({"prompt": texts, "n": 2, "max_tokens": 1})),
    ] {
        post(&app, path, &body).await.ok();
    }
}
