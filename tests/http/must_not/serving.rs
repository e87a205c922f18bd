//! The house: what errors look like, who gets in, what is told of its health, and what is counted under which names.

use std::collections::BTreeSet;

use axum::{
    Router,
    body::Body,
    http::{Method, Request},
};
use qrae::{
    http::{AppState, ServerOptions, router},
    service::LoadOptions,
};
use serde_json::{Value, json};

use super::house::*;
use crate::support::*;

#[tokio::test]
async fn m12_each_failure_has_its_status_and_one_shape_in_each_dialect() {
    let app = app();
    let full = app_with(&ServerOptions { max_requests: 0, ..ServerOptions::default() });
    let small = app_with(&ServerOptions { max_body_bytes: 20, ..ServerOptions::default() });
    let large = app_with(&ServerOptions { max_body_bytes: 1 << 24, ..ServerOptions::default() });
    let empty = router(AppState::new(&ServerOptions::default()));
    let failing = served(broken());
    let rerank = |more: Value| merged(json!({"query": "why?", "heads": HEADS}), &more);
    let text = json!({"texts": ["it is"]});
    for (app, path, body, status) in [
        (&app, CHAT, chat("x", &json!({"temperature": 9})), 400),
        (&app, SCORE, json!({"query": "why?", "chunks": [7], "heads": HEADS}), 400),
        (&app, "/rerank", rerank(json!({"documents": [7]})), 400),
        (&app, "/rerank", rerank(json!({"texts": [7]})), 422),
        (&app, CHAT, chat("x", &json!({"model": "other"})), 404),
        (&app, "/rerank", merged(rerank(text.clone()), &json!({"model": "other"})), 404),
        (&full, COMPLETIONS, json!({"prompt": "x"}), 429),
        (&full, "/rerank", rerank(text.clone()), 429),
        (&small, CHAT, chat("x", &json!({})), 413),
        (&small, "/rerank", rerank(text.clone()), 413),
        (&large, COMPLETIONS, json!({"prompt": "x", "max_tokens": 1, "ignored": "x".repeat(5 << 20)}), 200),
        (&app, COMPLETIONS, json!({"prompt": "x", "max_tokens": 1, "ignored": "x".repeat(5 << 20)}), 413),
        (&empty, CHAT, chat("x", &json!({})), 503),
        (&failing, CHAT, chat("x", &json!({})), 500),
    ] {
        let answer = post(app, path, &body).await;
        assert_eq!(answer.status.as_u16(), status, "{path}: {}", answer.text);
        let body = answer.json();
        if status == 200 {
            continue;
        }
        let names: Vec<&String> = body.as_object().unwrap().keys().collect();
        if names == ["error", "error_type"] {
            assert!(path == "/rerank" && body["error"].is_string() && body["error_type"].is_string());
        } else {
            let names: Vec<&String> = body["error"].as_object().unwrap().keys().collect();
            assert_eq!(names, ["message", "type", "param", "code"]);
        }
        assert_eq!(answer.headers.contains_key("retry-after"), status == 429);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m12_a_panic_ends_its_own_request_and_not_the_engine() {
    let (gate, model) = gated(64);
    let app = served(model.clone());
    let good = [
        (CHAT, chat("good", &json!({"max_tokens": 20}))),
        (SCORE, json!({"query": "good?", "chunks": ["the user", "she and he"], "heads": HEADS})),
    ];
    let bad = [
        (CHAT, chat(PANIC, &json!({})), 500),
        (COMPLETIONS, json!({"prompt": ["x", format!("x{PANIC}")]}), 500),
        (SCORE, json!({"query": "why?", "chunks": ["x", PANIC], "heads": HEADS}), 500),
        (
            SCORE,
            json!({"queries": ["why?", PANIC], "chunks": ["x"], "heads": HEADS, "control": "null_query"}),
            500,
        ),
        ("/rerank", json!({"query": PANIC, "documents": ["x"], "heads": HEADS}), 500),
        ("/rerank", json!({"query": "why?", "texts": [PANIC], "heads": HEADS}), 424),
    ];
    // all of them wait for the same passes
    let running: Vec<_> = good.iter().map(|(path, body)| spawn_post(&app, path, body.clone())).collect();
    let failing: Vec<_> = bad.iter().map(|(path, body, _)| spawn_post(&app, path, body.clone())).collect();
    for _ in 0..3 {
        gate.step().await;
    }
    gate.open();
    for (failing, (path, body, status)) in failing.into_iter().zip(&bad) {
        let answer = failing.await.unwrap();
        assert_eq!(answer.status.as_u16(), *status, "{path} {body}: {}", answer.text);
        assert!(answer.text.contains("planted panic"), "{}", answer.text);
    }
    for (running, (path, body)) in running.into_iter().zip(&good) {
        let (together, alone) = (running.await.unwrap().ok(), post(&app_of_its_own(), path, body).await.ok());
        assert_eq!((&together["choices"], &together["results"]), (&alone["choices"], &alone["results"]));
    }
    assert_eq!(get(&app, "/health").await.ok(), json!({"status": "ok"}));
    soon("idle", || model.engine.stats().running + model.engine.stats().waiting == 0).await;
    assert_eq!((model.engine.stats().kv.in_use, model.engine.stats().leaks), (0, 0));
}

/// The same model without a gate.
fn app_of_its_own() -> Router {
    served(model())
}

/// What opens nothing where the key is `Key-Ab1`.
const WRONG: [&str; 12] = [
    "",
    "Bearer",
    "Bearer ",
    "key-ab1",
    "Bearer KEY-AB1",
    "Bearer Key-Ab",
    "Bearer Key-Ab11",
    "Bearer ey-Ab1",
    "Bearer Key-Ab1 Key-Ab1",
    "Bearer Bearer Key-Ab1",
    "Basic Key-Ab1",
    "Key-Ab1,Key-Ab1",
];

#[tokio::test]
async fn m15_every_route_refuses_every_wrong_key() {
    let app = app_with(&ServerOptions { api_keys: vec!["Key-Ab1".into()], ..ServerOptions::default() });
    let document = get(&served(model()), "/openapi.json").await.ok();
    let mut routes: Vec<(Method, String, bool)> = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let method = method.to_uppercase().parse().unwrap();
            let path = path.replace("{id}", MODEL).replace("{file}", "none.js");
            routes.push((method, path, operation["security"] == json!([])));
        }
    }
    let open: BTreeSet<&str> = routes.iter().filter(|r| r.2).map(|r| r.1.as_str()).collect();
    assert_eq!(open, BTreeSet::from(["/", "/docs", "/health"]));
    assert!(routes.len() > 15, "{routes:?}");
    // and what is described nowhere
    for path in [
        "/none",
        "/v1",
        "/metrics/",
        "//metrics",
        "/v1/../metrics",
        "/HEALTH",
        "/health/x",
        "/v1/qrae/score/x",
    ] {
        routes.extend([Method::GET, Method::POST].map(|method| (method, path.to_owned(), false)));
    }
    for (method, path, open) in &routes {
        let ask = async |header: &str, sent: Option<&str>, query: &str| {
            let request = Request::builder().method(method).uri(format!("{path}{query}"));
            let request = sent.into_iter().fold(request, |request, sent| request.header(header, sent));
            send(&app, request.body(Body::empty()).unwrap()).await
        };
        let mut refused = vec![
            ask("authorization", None, "").await,
            ask("x-api-key", Some("Key-Ab1"), "?api_key=Key-Ab1").await,
        ];
        for wrong in WRONG {
            refused.push(ask("authorization", Some(wrong), "").await);
        }
        for answer in refused {
            assert_eq!(answer.status == 401, !open, "{method} {path}: {}", answer.text);
        }
        let answer = ask("authorization", Some("Bearer Key-Ab1"), "").await;
        assert_ne!(answer.status, 401, "{method} {path}: {}", answer.text);
    }
}

#[tokio::test]
async fn m15_no_cache_is_shared_between_keys_or_salts() {
    let api_keys = vec!["one".to_owned(), "two".to_owned()];
    let options = ServerOptions { api_keys, ..ServerOptions::default() };
    let text = |path: &str| format!("{path} {}", "the user and she ".repeat(10));
    for (path, body) in [
        (CHAT, chat(&text("chat"), &json!({"max_tokens": 1}))),
        (COMPLETIONS, json!({"prompt": text("completions"), "max_tokens": 1})),
        (SCORE, json!({"query": "why?", "chunks": [text("score")], "heads": HEADS})),
        ("/rerank", json!({"query": "why?", "documents": [text("rerank")], "heads": HEADS})),
    ] {
        // for each a cache of its own: all scoring prompts begin alike
        let model = loaded(LoadOptions { kv_tokens: Some(1 << 13), ..LoadOptions::default() });
        let app = served_with(model, &options);
        let ask = async |key: &str, salt: Option<&str>| {
            let body = merged(body.clone(), &salt.map_or(json!({}), |salt| json!({"cache_salt": salt})));
            let request =
                Request::post(path).header("authorization", key).header("content-type", "application/json");
            let answer = send(&app, request.body(Body::from(body.to_string())).unwrap()).await.ok();
            answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() > 0
        };
        let asked = [
            ("one", None),
            ("one", Some("a")),
            ("one", Some("b")),
            ("two", None),
            ("two", Some("a")),
            ("two", Some("A")),
        ];
        for (key, salt) in asked {
            assert!(!ask(key, salt).await, "{path}: {key} {salt:?} sees another's");
        }
        for (key, salt) in asked {
            assert!(ask(key, salt).await, "{path}: {key} {salt:?} sees its own");
        }
    }
}

#[tokio::test]
async fn m17_health_is_not_ok_before_the_model_is_there() {
    let state = AppState::new(&ServerOptions::default());
    let app = router(state.clone());
    let answer = get(&app, "/health").await;
    assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (503, &json!("loading")));
    assert_eq!(get(&app, "/metrics").await.status, 503);
    assert!(state.install(model()));
    assert_eq!(get(&app, "/health").await.ok(), json!({"status": "ok"}));
}

#[tokio::test]
async fn m17_no_word_of_a_caller_makes_a_series() {
    let app = app();
    let say = async |word: &str| {
        let body = json!({"model": word, "user": word, "query": word, "messages": [{"role": word, "content": word}]});
        for path in [CHAT, COMPLETIONS, SCORE, "/rerank", "/tokenize"] {
            post(&app, path, &body).await;
        }
        let mine = json!({"user": word, "cache_salt": word, "stop": [word], "seed": word.len(), "metadata": {word: word}});
        post(&app, CHAT, &chat(word, &mine)).await.ok();
        let heads = [format!("L0H{}", word.len() % 6), format!("L1H{}", word.len() % 5)];
        let chunk = json!({"id": word, "title": word, "url": word, "text": word});
        let score = json!({"query": word, "chunks": [chunk, "x"], "heads": heads, "cache_salt": word});
        post(&app, SCORE, &score).await.ok();
        post(&app, SCORE, &json!({"query": word, "chunks": [word], "head_set": word})).await;
        for path in [
            format!("/{word}"),
            format!("/v1/models/{word}"),
            format!("/web/{word}"),
            format!("/health?{word}"),
        ] {
            let request = Request::get(path).header("x-request-id", word).header("user-agent", word);
            send(&app, request.body(Body::empty()).unwrap()).await;
        }
        let method = Method::from_bytes(word.to_uppercase().as_bytes()).unwrap();
        send(&app, Request::builder().method(method).uri("/v1/models").body(Body::empty()).unwrap()).await;
    };
    let series = async || {
        let text = get(&app, "/metrics").await.text;
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.rsplit_once(' ').unwrap().0.to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(get(&app, "/metrics").await.status, 200);
    say("first").await;
    let before = series().await;
    for i in 0..12 {
        say(&format!("word{}", "x".repeat(i))).await;
    }
    let after = series().await;
    assert_eq!(after.difference(&before).collect::<Vec<_>>(), [""; 0]);
    assert!(!after.iter().any(|line| line.contains("word") || line.contains("first\"")), "{after:?}");
}
