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
    for name in ["vllm:request_prompt_tokens", "vllm:request_generation_tokens"] {
        assert_eq!(line(&format!("{name}_count")), 1.0, "{name}");
    }
    assert_eq!(line("vllm:request_generation_tokens_sum"), 6.0, "two choices of three tokens");
    assert!(line("vllm:request_prompt_tokens_sum") > 6.0);
    for name in ["qrae_score_queue_time_seconds_count", "qrae_score_prefill_time_seconds_count"] {
        assert_eq!(line(name), 1.0, "{name}");
    }
    assert_eq!(with("qrae_requests_refused_total", "reason=\"overloaded\""), 0.0);
    let blocks: f64 =
        ["free", "cached", "in_use"].iter().map(|s| with("qrae_kv_blocks", &format!("state=\"{s}\""))).sum();
    assert!(blocks > 10.0);
}

/// The value of the one series that begins so.
fn value(text: &str, series: &str) -> f64 {
    let found: Vec<&str> = text.lines().filter(|line| line.starts_with(series)).collect();
    assert_eq!(found.len(), 1, "{series}: {text}");
    found[0].rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn controls_say_what_they_had_to_compute() {
    let chunks = ["a chunk of some words", "another chunk, longer than the first one"];
    let mut prefix = 0.0;
    for (control, queries) in
        [("query_free", 1), ("query_free", 3), ("null_query", 1), ("null_query", 3), ("none", 2)]
    {
        let app = app();
        let queries: Vec<String> = (0..queries).map(|i| format!("question {i}?")).collect();
        let n = queries.len() as f64;
        let salt = format!("{control} {n}");
        let body = json!({"queries": queries, "chunks": chunks, "heads": HEADS, "control": control, "cache_salt": salt});
        let usage = post(&app, SCORE, &body).await.ok()["usage"].clone();
        let number = |value: &serde_json::Value| value.as_f64().unwrap();
        let shared = number(&usage["prompt_tokens_details"]["shared_tokens"]);
        let text = get(&app, "/metrics").await.text;
        let (all, found) =
            (value(&text, "qrae_control_tokens_total{"), value(&text, "qrae_control_cached_tokens_total{"));
        match control {
            "none" => assert_eq!((all, found), (0.0, 0.0)),
            // the control is the input's own prefix
            "query_free" => {
                assert!(all > 0.0 && all % n == 0.0 && found == all, "{found} of {all}: {usage}");
                prefix = all / n;
                assert_eq!(shared, (2.0 * n - 1.0) * prefix, "{usage}");
            }
            // what queries share among themselves is not the control's
            _ => {
                assert_eq!(found, shared - (n - 1.0) * prefix, "{usage}");
                assert!(0.0 < found && found < all, "{found} of {all}: {usage}");
            }
        }
    }
}

#[tokio::test]
async fn heads_that_do_not_respond_are_counted_under_few_names() {
    let set = "format = 1\nn_layers = 3\nn_heads = 6\nheads = [\"L0H5\", \"L1H3\"]\npublished = true\n\
               [provenance]\ndata = \"made here\"\ncriterion = \"none\"\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    std::fs::write(&file, set).unwrap();
    let app = app_with_heads(&file);
    // one chunk has all the attention under query and control alike: nothing is left of any head
    let one = |heads: serde_json::Value| {
        let body = json!({"query": "which?", "chunks": ["x", ""]});
        if heads.is_null() { body } else { merged(body, &json!({"heads": heads})) }
    };
    let read = async || get(&app, "/metrics").await.text;
    let count = |text: &str, head: &str| value(text, &format!("qrae_zero_response_total{{head=\"{head}\""));
    let text = read().await;
    assert_eq!([count(&text, "L0H5"), count(&text, "L1H3"), count(&text, "custom")], [0.0; 3]);
    post(&app, SCORE, &one(serde_json::Value::Null)).await.ok();
    let text = read().await;
    assert_eq!([count(&text, "L0H5"), count(&text, "L1H3"), count(&text, "custom")], [1.0, 1.0, 0.0]);
    post(&app, SCORE, &one(json!(["L0H5", "L1H2", "L0H1"]))).await.ok();
    let text = read().await;
    assert_eq!([count(&text, "L0H5"), count(&text, "L1H3"), count(&text, "custom")], [1.0, 1.0, 3.0]);
    assert_eq!(text.lines().filter(|line| line.starts_with("qrae_zero_response_total{")).count(), 3);
}

#[tokio::test]
async fn scores_above_one_have_buckets() {
    let app = app();
    let chunks: Vec<String> = (0..12).map(|i| format!("chunk {i}")).collect();
    let body = json!({"query": "which?", "chunks": chunks, "heads": HEADS, "statistic": "scaled_sum"});
    post(&app, SCORE, &body).await.ok();
    let text = get(&app, "/metrics").await.text;
    let bounds: Vec<f64> = text
        .lines()
        .filter_map(|line| {
            line.strip_prefix("qrae_scores_bucket{")?.split("le=\"").nth(1)?.split('"').next()?.parse().ok()
        })
        .collect();
    assert!(bounds.iter().filter(|b| b.is_finite() && **b > 1.0).count() >= 5, "{bounds:?}");
    assert_eq!(value(&text, "qrae_scores_count"), 12.0);
}

#[tokio::test]
async fn the_dashboard_asks_only_for_metrics_there_are() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards/qrae.json");
    let board: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let app = app();
    post(&app, CHAT, &chat("hello", &json!({}))).await.ok();
    let text = get(&app, "/metrics").await.text;
    let mut known = std::collections::BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        let ends: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        known.extend(ends.iter().map(|end| format!("{name}{end}")));
    }
    let panels = board["panels"].as_array().unwrap();
    let rows: Vec<&str> =
        panels.iter().filter(|p| p["type"] == "row").map(|p| p["title"].as_str().unwrap()).collect();
    assert_eq!(rows, ["Traffic", "Latency", "KV and cache", "Scoring"]);
    let targets = panels.iter().flat_map(|p| p["targets"].as_array().into_iter().flatten());
    let mut queries: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    queries
        .extend(board["templating"]["list"].as_array().unwrap().iter().map(|v| v["query"].as_str().unwrap()));
    assert!(queries.len() > 20, "{queries:?}");
    for query in queries {
        let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
        for name in words.filter(|word| word.starts_with("vllm:") || word.starts_with("qrae_")) {
            assert!(known.contains(name), "{name} in {query} is not in /metrics: {known:?}");
        }
    }
}
