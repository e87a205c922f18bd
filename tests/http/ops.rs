//! Models, tokens, metrics, request ids.

use axum::{body::Body, http::Request};
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn the_model_is_listed_with_its_length() {
    let app = app();
    let list = get(&app, "/v1/models").await.ok();
    let entry = &list["data"][0];
    assert_eq!(list["object"], "list");
    assert_eq!(
        (&entry["id"], &entry["object"], &entry["owned_by"]),
        (&json!(MODEL), &json!("model"), &json!("qrae"))
    );
    assert_eq!((&entry["max_model_len"], &entry["root"]), (&json!(512), &json!(MODEL)));
    assert_eq!(entry["qrae"]["compute"], "int8");
    assert!(entry["qrae"]["processor"].as_str().unwrap().ends_with(" threads"), "{entry}");
    let created = entry["created"].as_u64().unwrap();
    assert!((1_700_000_000..10_000_000_000).contains(&created), "seconds");
    assert_eq!(get(&app, "/v1/models/tests/tiny").await.ok(), *entry);
    assert_eq!(get(&app, "/v1/models/tests%2Ftiny").await.ok(), *entry);
    assert_eq!(get(&app, "/v1/head_sets").await.ok()["data"], json!([]));
}

#[tokio::test]
async fn tokens_go_there_and_back() {
    let app = app();
    let text = "the user 日本語 <|im_end|>";
    let answer = post(&app, "/v1/tokenize", &json!({"prompt": text, "return_token_strs": true})).await.ok();
    assert_eq!(answer["tokens"].as_array().unwrap().last(), Some(&json!(IM_END)));
    assert_eq!(
        (&answer["count"], &answer["max_model_len"]),
        (&json!(answer["tokens"].as_array().unwrap().len()), &json!(512))
    );
    assert_eq!(answer["token_strs"][0], "the");
    let back = post(&app, "/detokenize", &json!({"tokens": answer["tokens"]})).await.ok();
    assert_eq!(back["prompt"], text);
    let plain = post(&app, "/tokenize", &json!({"prompt": text, "parse_special": false})).await.ok();
    assert!(!plain["tokens"].as_array().unwrap().contains(&json!(IM_END)));
    assert_eq!(post(&app, "/tokenize", &json!({"prompt": ""})).await.ok()["tokens"], json!([]));
}

#[tokio::test]
async fn request_ids_are_kept_or_made() {
    let app = app();
    let sent = async |id: &[u8]| {
        let request = Request::get("/health").header("x-request-id", id).body(Body::empty()).unwrap();
        send(&app, request).await.headers["x-request-id"].as_bytes().to_vec()
    };
    assert_eq!(sent(b"abc-123").await, b"abc-123");
    assert_eq!(sent(&[b'x'; 128]).await, [b'x'; 128]);
    for bad in [&[b'x'; 129][..], b"", b"a b", b"\xff"] {
        let made = sent(bad).await;
        assert!(made != bad && made.len() == 32, "{made:?}");
    }
    assert_ne!(
        get(&app, "/none").await.headers["x-request-id"],
        get(&app, "/none").await.headers["x-request-id"]
    );
}

#[tokio::test]
async fn metrics_count_and_hold_no_callers_words() {
    let app = app();
    let secret = "callers-words";
    post(&app, CHAT, &chat(secret, &json!({"max_tokens": 3, "ignore_eos": true, "n": 2}))).await.ok();
    post(&app, SCORE, &json!({"query": secret, "chunks": ["one chunk", ""], "heads": HEADS})).await.ok();
    post(&app, CHAT, &json!({"model": secret})).await;
    get(&app, &format!("/{secret}")).await;
    get(&app, &format!("/v1/models/{secret}")).await;
    let answer = get(&app, "/metrics").await;
    assert!(answer.headers["content-type"].to_str().unwrap().starts_with("text/plain; version=0.0.4"));
    let text = answer.text;
    assert!(!text.contains(secret), "{text}");
    let line = |name: &str| {
        let found: Vec<&str> = text.lines().filter(|l| l.starts_with(name)).collect();
        assert_eq!(found.len(), 1, "{name}: {text}");
        assert!(found[0].contains("model_name=\"tests/tiny\""), "{}", found[0]);
        found[0].rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    for name in [
        "vllm:num_requests_running{",
        "vllm:num_requests_waiting{",
        "vllm:kv_cache_usage_perc{",
        "vllm:num_preemptions_total{",
        "vllm:prefix_cache_hits_total{",
    ] {
        line(name);
    }
    for name in
        ["vllm:prefix_cache_queries_total{", "vllm:prompt_tokens_total{", "vllm:generation_tokens_total{"]
    {
        assert!(line(name) >= 1.0, "{name}");
    }
    let with = |name: &str, label: &str| {
        let found = text.lines().find(|l| l.starts_with(name) && l.contains(label));
        found
            .unwrap_or_else(|| panic!("{name} {label}: {text}"))
            .rsplit(' ')
            .next()
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    assert_eq!(with("vllm:request_success_total", "finished_reason=\"length\""), 2.0);
    for name in [
        "vllm:time_to_first_token_seconds_count",
        "vllm:time_per_output_token_seconds_count",
        "vllm:e2e_request_latency_seconds_count",
    ] {
        assert_eq!(line(name), 1.0, "{name}");
    }
    assert_eq!((line("qrae_chunks_scored_total"), line("qrae_scores_count")), (2.0, 2.0));
    assert_eq!(with("qrae_http_requests_total", "route=\"/v1/models/{*id}\""), 1.0);
    assert_eq!(with("qrae_http_requests_total", "route=\"unmatched\""), 1.0);
    assert_eq!(with("qrae_requests_refused_total", "reason=\"not_found\""), 3.0);
    let blocks: f64 =
        ["free", "cached", "in_use"].iter().map(|s| with("qrae_kv_blocks", &format!("state=\"{s}\""))).sum();
    assert!(blocks > 10.0);
}
