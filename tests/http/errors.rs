//! What is refused, and how it is said.

use axum::{body::Body, http::Request};
use qrae::http::{AppState, ServerOptions, router};
use serde_json::json;

use crate::support::*;

fn check(answer: &Answer, status: u16, param: impl Into<Option<&'static str>>, what: &str) {
    assert_eq!(answer.status.as_u16(), status, "{what}: {}", answer.text);
    let error = answer.json()["error"].take();
    let keys: Vec<&String> = error.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["message", "type", "param", "code"], "{what}");
    assert_eq!(error["param"].as_str(), param.into(), "{what}: {error}");
    assert!(!error["message"].as_str().unwrap().is_empty() && error["type"].is_string());
    assert!(answer.headers.contains_key("x-request-id"), "{what}");
}

#[tokio::test]
async fn each_wrong_field_is_named() {
    let app = app();
    let messages = json!([{"role": "user", "content": "x"}]);
    let base = json!({"messages": messages, "prompt": "x", "query": "q", "chunks": ["c"], "heads": HEADS, "max_tokens": 1});
    let sampling = [
        (json!({"temperature": -0.1}), "temperature"),
        (json!({"temperature": 2.1}), "temperature"),
        (json!({"temperature": 1e300}), "temperature"),
        (json!({"temperature": "hot"}), "temperature"),
        (json!({"top_p": 0}), "top_p"),
        (json!({"top_p": 1.01}), "top_p"),
        (json!({"min_p": 1}), "min_p"),
        (json!({"min_p": -0.1}), "min_p"),
        (json!({"top_k": -2}), "top_k"),
        (json!({"top_k": 1.5}), "top_k"),
        (json!({"presence_penalty": 2.5}), "presence_penalty"),
        (json!({"frequency_penalty": -2.5}), "frequency_penalty"),
        (json!({"repetition_penalty": 0}), "repetition_penalty"),
        (json!({"repetition_penalty": 1e-40}), "repetition_penalty"),
        (json!({"n": 0}), "n"),
        (json!({"n": 17}), "n"),
        (json!({"n": true}), "n"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"max_tokens": -1}), "max_tokens"),
        (json!({"max_completion_tokens": 0}), "max_completion_tokens"),
        (json!({"seed": 1.5}), "seed"),
        (json!({"seed": 18_446_744_073_709_551_615_u64}), "seed"),
        (json!({"stop": 7}), "stop"),
        (json!({"stop": ""}), "stop"),
        (json!({"stop": ["a", ""]}), "stop[1]"),
        (json!({"stop": vec!["a"; 17]}), "stop"),
        (json!({"stop_token_ids": [1, -1]}), "stop_token_ids[1]"),
        (json!({"ignore_eos": "yes"}), "ignore_eos"),
        (json!({"stream": "yes"}), "stream"),
        (json!({"stream_options": {"include_usage": 7}}), "stream_options.include_usage"),
        (json!({"response_format": 7}), "response_format"),
        (json!({"response_format": {"type": "xml"}}), "response_format.type"),
        (json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema.schema"),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "strange"}}}}),
            "response_format",
        ),
        (json!({"response_format": {"type": "json_object"}, "ignore_eos": true}), "response_format"),
        (json!({"best_of": 2}), "best_of"),
        (json!({"suffix": "s"}), "suffix"),
        (json!({"logit_bias": {"5": 1}}), "logit_bias"),
        (json!({"cache_salt": ""}), "cache_salt"),
        (json!({"model": 7}), "model"),
    ];
    for (more, param) in &sampling {
        for path in [CHAT, COMPLETIONS] {
            let answer = post(&app, path, &merged(base.clone(), more)).await;
            check(&answer, 400, *param, &format!("{path} {more}"));
        }
    }
    let rows = [
        (CHAT, json!({"messages": null}), "messages"),
        (CHAT, json!({"messages": []}), "messages"),
        (
            CHAT,
            json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            "messages[0].content[0].type",
        ),
        (CHAT, json!({"tools": 7}), "tools"),
        (CHAT, json!({"tools": [7]}), "tools[0]"),
        (CHAT, json!({"tools": [{"type": "function", "function": {}}]}), "tools[0].function.name"),
        (CHAT, json!({"tool_choice": 7}), "tool_choice"),
        (CHAT, json!({"tool_choice": "always"}), "tool_choice"),
        (CHAT, json!({"tool_choice": {"type": "tool"}}), "tool_choice.type"),
        (CHAT, json!({"tool_choice": {"type": "function"}}), "tool_choice.function.name"),
        (CHAT, json!({"tool_choice": "required"}), "tool_choice"),
        (CHAT, json!({"parallel_tool_calls": "no"}), "parallel_tool_calls"),
        (CHAT, json!({"include_reasoning": "no"}), "include_reasoning"),
        (CHAT, json!({"chat_template": "{% if %}"}), "chat_template"),
        (CHAT, json!({"chat_template": "{{ raise_exception('no') }}"}), "messages"),
        (CHAT, json!({"chat_template": "{{ 1 + none }}"}), "chat_template"),
        (CHAT, json!({"chat_template": ""}), "messages"),
        (CHAT, json!({"chat_template_kwargs": 7}), "chat_template_kwargs"),
        (CHAT, json!({"logprobs": 3}), "logprobs"),
        (CHAT, json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs"),
        (CHAT, json!({"top_logprobs": 2}), "top_logprobs"),
        (
            CHAT,
            json!({"add_generation_prompt": true, "continue_final_message": true}),
            "continue_final_message",
        ),
        (CHAT, json!({"chat_template": "y", "continue_final_message": true}), "continue_final_message"),
        (COMPLETIONS, json!({"prompt": null}), "prompt"),
        (COMPLETIONS, json!({"prompt": ""}), "prompt"),
        (COMPLETIONS, json!({"prompt": []}), "prompt"),
        (COMPLETIONS, json!({"prompt": [1, "a"]}), "prompt[1]"),
        (COMPLETIONS, json!({"prompt": [1, 320]}), "prompt[1]"),
        (COMPLETIONS, json!({"prompt": ["a", [1, -1]]}), "prompt[1][1]"),
        (COMPLETIONS, json!({"prompt": ["a", []]}), "prompt[1]"),
        (COMPLETIONS, json!({"prompt": ["a", 1]}), "prompt[1]"),
        (COMPLETIONS, json!({"prompt": vec!["a"; 100], "n": 2}), "n"),
        (COMPLETIONS, json!({"logprobs": 21}), "logprobs"),
        (COMPLETIONS, json!({"logprobs": 1, "echo": true}), "logprobs"),
        (SCORE, json!({"query": null}), "query"),
        (SCORE, json!({"queries": ["a"]}), "query"),
        (SCORE, json!({"query": null, "queries": []}), "queries"),
        (SCORE, json!({"query": null, "queries": ["a", 7]}), "queries[1]"),
        (SCORE, json!({"chunks": null}), "chunks"),
        (SCORE, json!({"chunks": ["a", 7]}), "chunks[1]"),
        (SCORE, json!({"chunks": ["a", {"title": "t"}]}), "chunks[1]"),
        (SCORE, json!({"chunks": [{"text": 7}]}), "chunks[0].text"),
        (SCORE, json!({"chunks": [{"text": "a", "id": [1]}]}), "chunks[0].id"),
        (SCORE, json!({"statistic": "variance"}), "statistic"),
        (SCORE, json!({"control": 1}), "control"),
        (SCORE, json!({"read": "first"}), "read"),
        (SCORE, json!({"heads": []}), "heads"),
        (SCORE, json!({"heads": ["16-7"]}), "heads[0]"),
        (SCORE, json!({"heads": ["L0H0", "L0H0"]}), "heads"),
        (SCORE, json!({"heads": ["L3H0"]}), "heads"),
        (SCORE, json!({"head_set": "x"}), "heads"),
        (SCORE, json!({"max_tokens_per_chunk": 0}), "max_tokens_per_chunk"),
        (SCORE, json!({"orders": 0}), "orders"),
        (SCORE, json!({"orders": 9}), "orders"),
        (SCORE, json!({"orders": "2"}), "orders"),
        (SCORE, json!({"explain": 1}), "explain"),
        ("/tokenize", json!({}), "prompt"),
        ("/tokenize", json!({"prompt": 7, "messages": null}), "prompt"),
        ("/detokenize", json!({}), "tokens"),
        ("/detokenize", json!({"tokens": [1, 320]}), "tokens[1]"),
    ];
    for (path, more, param) in &rows {
        let answer = post(&app, path, &merged(base.clone(), more)).await;
        check(&answer, 400, *param, &format!("{path} {more}"));
    }
}

#[tokio::test]
async fn an_answer_of_any_size_is_refused_before_it_is_computed() {
    let heads: Vec<String> = (0..3).flat_map(|l| (0..6).map(move |h| format!("L{l}H{h}"))).collect();
    let queries = vec!["q"; 512];
    let mut body = json!({"queries": queries, "chunks": ["x".repeat(400)], "heads": heads, "explain": true});
    let answer = post(&app(), SCORE, &body).await;
    check(&answer, 400, "explain", "over three million numbers");
    assert!(answer.text.contains("4710400") && answer.text.contains("3000000"), "{}", answer.text);
    body["queries"] = json!(["q"]);
    post(&app(), SCORE, &body).await.ok();
    let body = json!({"queries": queries, "chunks": vec!["x"; 50], "heads": heads});
    let answer = post(&app(), SCORE, &body).await;
    check(&answer, 400, "queries", "half a million results");
    assert!(answer.text.contains("537600") && answer.text.contains("500000"), "{}", answer.text);
}

#[tokio::test]
async fn a_query_is_named_as_it_was_sent() {
    let app = app();
    let (long, longer) = ("x".repeat(600), "x".repeat(1 << 17));
    for text in [long, longer] {
        for (queries, param) in [
            (json!({"query": text}), "query"),
            (json!({"queries": [text]}), "queries[0]"),
            (json!({"queries": ["a", text, "b"]}), "queries[1]"),
        ] {
            let body = merged(json!({"chunks": ["c"], "heads": HEADS}), &queries);
            let answer = post(&app, SCORE, &body).await;
            check(&answer, 400, param, "a long query");
            assert_eq!(answer.json()["error"]["code"], "context_length_exceeded");
        }
    }
    let body = json!({"query": "q", "chunks": ["c", " ".repeat(500_001)], "heads": HEADS, "max_tokens_per_chunk": 1});
    let answer = post(&app, SCORE, &body).await;
    check(&answer, 400, "chunks[1]", "white space that cannot be tokenised");
}

#[test]
fn a_folder_without_its_tokenizer_says_so_before_its_weights_are_read() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("model.safetensors"), "no weights").unwrap();
    let files = qrae::hub::ModelFiles::Folder(dir.path().into());
    let loaded = qrae::service::ServedModel::load(&files, None, &qrae::service::LoadOptions::default());
    let said = loaded.err().unwrap().to_string();
    assert!(said.contains("tokenizer.json"), "{said}");
}

#[tokio::test]
async fn a_text_that_cannot_fit_is_not_tokenised() {
    let app = app();
    let long = "x".repeat(1 << 21);
    let chat = json!({"messages": [{"role": "user", "content": long}]});
    let chat_with_control = json!({"messages": [{"role": "user", "content": format!("<s>{long}")}]});
    let rows = [
        (CHAT, chat.clone(), "messages"),
        (CHAT, chat_with_control, "messages"),
        ("/tokenize", chat, "messages"),
        (COMPLETIONS, json!({"prompt": long}), "prompt"),
        (COMPLETIONS, json!({"prompt": ["a", long]}), "prompt[1]"),
        (SCORE, json!({"query": long, "chunks": ["c"], "heads": HEADS}), "query"),
        (SCORE, json!({"query": "q", "chunks": ["", long], "heads": HEADS}), "chunks"),
        (SCORE, json!({"query": "q", "chunks": [{"title": long, "text": ""}], "heads": HEADS}), "chunks"),
        (
            SCORE,
            json!({"query": "q", "chunks": [long], "heads": HEADS, "max_tokens_per_chunk": 9999999}),
            "chunks",
        ),
    ];
    for (path, body, param) in rows {
        let answer = post(&app, path, &body).await;
        check(&answer, 400, param, path);
        assert_eq!(answer.json()["error"]["code"], "context_length_exceeded");
        let told = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        let (_, told) = told.split_once("bytes of text are at least ").expect("both numbers");
        let least: usize = told.split(' ').next().unwrap().parse().unwrap();
        assert!((2_097_152..2_097_200).contains(&least), "{}", answer.text);
        assert!(answer.text.contains("the limit is "), "{}", answer.text);
    }
    // what is cut is cut after it was tokenised, so one chunk has a limit all the same
    let cut = json!({"query": "q", "chunks": ["", long], "heads": HEADS, "max_tokens_per_chunk": 5});
    let unknown = json!({"messages": [{"role": "user", "content": " x".repeat(700_000)}]});
    for (path, body, param) in [(SCORE, cut, "chunks[1]"), ("/tokenize", json!({"prompt": long}), "prompt")] {
        let answer = post(&app, path, &body).await;
        check(&answer, 400, param, path);
        assert!(answer.text.contains("2097152") && answer.text.contains("1048576"), "{}", answer.text);
    }
    let answer = post(&wordy(), "/tokenize", &unknown).await;
    check(&answer, 400, "messages", "of a tokenizer that tells nothing untokenised");
    assert!(answer.text.contains("1048576"), "{}", answer.text);
    let many = vec![1; (1 << 18) + 1];
    let answer = post(&app, "/detokenize", &json!({"tokens": many})).await;
    check(&answer, 400, "tokens", "detokenize");
    assert!(answer.text.contains("262145") && answer.text.contains("262144"), "{}", answer.text);
    post(&app, "/detokenize", &json!({"tokens": vec![1; 1 << 18]})).await.ok();
    // many chunks of nothing are separators, and answers
    let many = json!({"query": "q", "chunks": vec![""; 1 << 17], "heads": HEADS});
    for app in [app, wordy()] {
        let answer = post(&app, SCORE, &many).await;
        check(&answer, 400, "chunks", "separators");
        assert!(answer.text.contains("at least 131072 tokens"), "{}", answer.text);
    }
}

#[test]
fn weights_that_are_no_numbers_are_refused_at_load() {
    let said = damaged();
    assert!(
        said.contains("model.safetensors: model.norm.weight: value 0 is infinite or not a number"),
        "{said}"
    );
}

#[tokio::test]
async fn the_largest_numbers_are_numbers() {
    let app = app();
    let body = json!({"query": "a", "chunks": ["x"], "heads": HEADS, "max_tokens_per_chunk": u64::MAX});
    let answer = post(&app, SCORE, &body).await.ok();
    assert_eq!(answer["results"][0]["flags"]["truncated"], false);
    for path in [CHAT, COMPLETIONS] {
        let body =
            json!({"messages": [{"role": "user", "content": "x"}], "prompt": "x", "max_tokens": i64::MAX});
        check(&post(&app, path, &body).await, 400, if path == CHAT { "messages" } else { "prompt" }, path);
    }
}

#[tokio::test]
async fn what_is_null_ignored_or_at_a_border_is_taken() {
    let app = app();
    for more in [
        json!({"temperature": null, "top_p": null, "n": null, "stop": null, "seed": null, "model": null, "stream": null}),
        json!({"user": "u", "store": true, "metadata": {"a": 1}, "parallel_tool_calls": true, "logit_bias": {}}),
        json!({"temperature": 2, "top_p": 1e-60, "min_p": 0.999, "top_k": -1, "repetition_penalty": 100, "seed": i64::MIN}),
        json!({"temperature": 1e-300, "seed": i64::MAX, "presence_penalty": -2, "response_format": {"type": "text"}}),
        json!({"model": MODEL, "stop": [], "stop_token_ids": [4_000_000_000_u32], "max_completion_tokens": 2, "max_tokens": 0}),
        json!({"tool_choice": "none", "tools": null, "stream_options": null, "top_logprobs": 0}),
    ] {
        post(&app, CHAT, &chat("x", &more)).await.ok();
    }
}

#[tokio::test]
async fn unknown_names_are_not_found() {
    let app = app();
    let other = json!({"model": "other", "messages": [{"role": "user", "content": "x"}], "prompt": "x", "tokens": []});
    for path in [CHAT, COMPLETIONS, SCORE, "/tokenize", "/v1/tokenize", "/detokenize"] {
        check(&post(&app, path, &other).await, 404, "model", path);
    }
    check(&get(&app, "/v1/models/other").await, 404, "model", "models");
    check(&get(&app, "/v1/models/%ff").await, 400, "model", "an id that is no text");
    let score = json!({"query": "q", "chunks": [], "head_set": "none"});
    check(&post(&app, SCORE, &score).await, 404, "head_set", "head set");
    let score = json!({"query": "q", "chunks": []});
    let answer = post(&app, SCORE, &score).await;
    check(&answer, 404, "head_set", "no default");
    assert!(answer.text.contains("heads"), "says what to do: {}", answer.text);
    for path in ["/web", "/v1", "/v1/chat", "/v2/models", "/health/x", "/v1/chat/completions/"] {
        check(&get(&app, path).await, 404, None, path);
    }
    for path in [CHAT, COMPLETIONS, SCORE, "/tokenize"] {
        check(&get(&app, path).await, 405, None, path);
    }
    check(&post(&app, "/v1/models", &json!({})).await, 405, None, "models");
}

#[tokio::test]
async fn malformed_bodies_are_the_callers_fault() {
    let app = app();
    let deep = |open: &str, close: &str| {
        format!("{{\"messages\": {}{}}}", open.repeat(5000), close.repeat(5000)).into_bytes()
    };
    let bodies: Vec<Vec<u8>> = vec![
        vec![],
        b"{".to_vec(),
        b"not json".to_vec(),
        b"[]".to_vec(),
        b"7".to_vec(),
        b"null".to_vec(),
        b"\"x\"".to_vec(),
        b"{} trailing".to_vec(),
        vec![0xff, 0xfe, 0x00],
        b"{\"prompt\": \"\xff\"}".to_vec(),
        b"{\"prompt\": \"\\ud800\"}".to_vec(),
        b"{\"temperature\": 1e999}".to_vec(),
        b"{\"seed\": 99999999999999999999999999999999}".to_vec(),
        b"{\"max_tokens\": NaN}".to_vec(),
        deep("[", "]"),
        deep("{\"a\":", "}"),
        b"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"prompt\": {}, \"chunks\": {}, \"tokens\": {}}".to_vec(),
        b"\x1f\x8b\x08\x00".to_vec(),
    ];
    for body in bodies {
        for path in [CHAT, COMPLETIONS, SCORE, "/tokenize", "/detokenize"] {
            let answer = raw(&app, path, body.clone()).await;
            if [CHAT, "/tokenize"].contains(&path) && answer.status == 200 {
                continue; // a prompt that this route does not read
            }
            assert_eq!(answer.status, 400, "{path} {:?}: {}", String::from_utf8_lossy(&body), answer.text);
            assert!(answer.json()["error"]["message"].is_string());
        }
    }
    let answer = raw(&app, CHAT, b"{\n \"messages\": [,]}".to_vec()).await;
    assert!(answer.text.contains("line 2 column"), "{}", answer.text);
    let nested = format!(
        "{{\"prompt\": \"x\", \"query\": \"q\", \"ignored\": {}{}}}",
        "[".repeat(100),
        "]".repeat(100)
    );
    raw(&app, COMPLETIONS, nested.into_bytes()).await.ok();
    for (kind, status) in [
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/json; charset=utf-8", 200),
        ("APPLICATION/JSON", 200),
        ("", 415),
    ] {
        let body = Body::from(json!({"prompt": "x", "max_tokens": 1}).to_string());
        let request = Request::post(COMPLETIONS).header("content-type", kind).body(body).unwrap();
        assert_eq!(send(&app, request).await.status, status, "{kind}");
    }
    for (coding, status) in [(None, 200), (Some("identity"), 200), (Some("gzip"), 415)] {
        let body = Body::from(json!({"prompt": "x", "max_tokens": 1}).to_string());
        let request = Request::post(COMPLETIONS);
        let request = coding.into_iter().fold(request, |r, coding| r.header("content-encoding", coding));
        assert_eq!(send(&app, request.body(body).unwrap()).await.status, status, "{coding:?}");
    }
}

#[tokio::test]
async fn every_route_is_behind_the_key() {
    let app =
        app_with(&ServerOptions { api_keys: vec!["Key-1".into(), "key-2".into()], ..Default::default() });
    let routes = [
        ("POST", CHAT),
        ("POST", COMPLETIONS),
        ("POST", SCORE),
        ("POST", "/tokenize"),
        ("POST", "/v1/tokenize"),
        ("POST", "/detokenize"),
        ("GET", "/v1/models"),
        ("GET", "/v1/models/tests/tiny"),
        ("GET", "/v1/head_sets"),
        ("GET", "/metrics"),
        ("GET", "/none"),
        ("GET", CHAT),
        ("DELETE", "/v1/models"),
        ("OPTIONS", CHAT),
        ("GET", "/HEALTH"),
        ("GET", "/health/"),
        ("GET", "//health"),
        ("GET", "/health/../metrics"),
        ("GET", "/%68ealth"),
    ];
    for (method, path) in routes {
        for sent in [None, Some("Bearer key-1"), Some("Bearer Key-1x"), Some("key-1"), Some("Bearer ")] {
            let mut request = Request::builder().method(method).uri(path);
            if let Some(sent) = sent {
                request = request.header("authorization", sent);
            }
            let answer = send(&app, request.body(Body::empty()).unwrap()).await;
            check(&answer, 401, None, &format!("{method} {path} {sent:?}"));
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
            assert_eq!(answer.json()["error"]["code"], "invalid_api_key");
        }
        for sent in ["Bearer Key-1", "Key-1", "Bearer key-2"] {
            let request = Request::builder().method(method).uri(path).header("authorization", sent);
            let answer = send(&app, request.body(Body::empty()).unwrap()).await;
            assert_ne!(answer.status, 401, "{method} {path}");
        }
    }
    get(&app, "/health").await.ok();
}

#[tokio::test]
async fn templates_from_requests_are_taken_only_where_callers_are_trusted() {
    let messages = json!([{"role": "user", "content": "x"}]);
    let body = json!({"messages": messages, "chat_template": "{{ messages[0].content }}", "max_tokens": 1});
    let wary = app_with(&ServerOptions::default());
    for path in [CHAT, "/tokenize"] {
        let answer = post(&wary, path, &body).await;
        check(&answer, 400, "chat_template", path);
        assert!(answer.text.contains("--trust-request-chat-template"), "{}", answer.text);
        assert_eq!(post(&app(), path, &body).await.status, 200);
    }
}

#[tokio::test]
async fn a_large_body_is_refused_with_the_limit() {
    let app = app_with(&ServerOptions { max_body_bytes: 1000, ..Default::default() });
    let body = json!({"prompt": "x".repeat(2000), "max_tokens": 1}).to_string();
    for length in [true, false] {
        let mut request = Request::post(COMPLETIONS).header("content-type", "application/json");
        if length {
            request = request.header("content-length", body.len());
        }
        let stream = futures::stream::iter(
            body.as_bytes().chunks(300).map(|c| Ok::<_, std::io::Error>(c.to_vec())).collect::<Vec<_>>(),
        );
        let answer = send(&app, request.body(Body::from_stream(stream)).unwrap()).await;
        check(&answer, 413, None, "large");
        assert!(
            answer.text.contains("1000 bytes") && answer.text.contains("--max-body-bytes"),
            "{}",
            answer.text
        );
    }
    post(&app, COMPLETIONS, &json!({"prompt": "x".repeat(400), "max_tokens": 1})).await.ok();
}

#[tokio::test]
async fn a_full_house_says_when_to_come_again() {
    let app = app_with(&ServerOptions { max_requests: 1, ..Default::default() });
    let body = chat("full", &json!({"stream": true, "max_tokens": 300, "ignore_eos": true})).to_string();
    let request =
        Request::post(CHAT).header("content-type", "application/json").body(Body::from(body)).unwrap();
    let running = tower::ServiceExt::oneshot(app.clone(), request).await.unwrap();
    assert_eq!(running.status(), 200);
    for (path, body) in [
        (CHAT, chat("x", &json!({}))),
        (COMPLETIONS, json!({"prompt": "x"})),
        (SCORE, json!({"query": "q", "chunks": ["c"], "heads": HEADS})),
        ("/tokenize", json!({"prompt": "x"})),
    ] {
        let answer = post(&app, path, &body).await;
        check(&answer, 429, None, path);
        assert_eq!(answer.headers["retry-after"], "1");
        assert_eq!(answer.json()["error"]["type"], "rate_limit_error");
    }
    get(&app, "/health").await.ok();
    get(&app, "/v1/models").await.ok();
    drop(running);
    post(&app, CHAT, &chat("x", &json!({}))).await.ok();
    post(&app, CHAT, &chat("x", &json!({"temperature": 7}))).await;
    post(&app, CHAT, &chat("x", &json!({}))).await.ok();
}

#[tokio::test]
async fn nothing_is_served_before_the_model_is_there() {
    let state = AppState::new(&ServerOptions { api_keys: vec!["k".into()], ..Default::default() });
    let app = router(state.clone());
    let keyed = |method: &str, path: &str| {
        let request = Request::builder().method(method).uri(path).header("authorization", "Bearer k");
        request.body(Body::empty()).unwrap()
    };
    for (method, path) in [
        ("POST", CHAT),
        ("GET", "/v1/models"),
        ("GET", "/metrics"),
        ("GET", "/none"),
        ("POST", SCORE),
        ("GET", "/health"),
    ] {
        let answer = send(&app, keyed(method, path)).await;
        check(&answer, 503, None, path);
        assert_eq!(answer.json()["error"]["code"], "loading");
    }
    check(&get(&app, "/health").await, 503, None, "health needs no key");
    check(&get(&app, "/v1/models").await, 401, None, "the key comes first");
    assert!(state.install(model()));
    assert!(!state.install(model()), "the first one stays");
    assert_eq!(get(&app, "/health").await.ok(), json!({"status": "ok"}));
    send(&app, keyed("GET", "/v1/models")).await.ok();
}
