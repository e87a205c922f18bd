//! Generation: shapes, streams, stops, usage, seeds.

use qrae::http::{AppState, ServerOptions, router};
use serde_json::{Value, json};

use crate::support::*;

fn texts(answer: &Value) -> Vec<String> {
    let text = |c: &Value| c["message"]["content"].as_str().or(c["text"].as_str()).unwrap().to_owned();
    answer["choices"].as_array().unwrap().iter().map(text).collect()
}

#[tokio::test]
async fn answers_have_openais_shape() {
    let app = app();
    let body =
        chat("shape", &json!({"logprobs": true, "top_logprobs": 1, "max_tokens": 2, "ignore_eos": true}));
    let answer = post(&app, CHAT, &body).await.ok();
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| insta::assert_json_snapshot!("chat", masked(answer)));
    let body =
        json!({"prompt": "shape", "max_tokens": 2, "temperature": 0, "logprobs": 1, "ignore_eos": true});
    let answer = post(&app, COMPLETIONS, &body).await.ok();
    settings.bind(|| insta::assert_json_snapshot!("completion", masked(answer)));
}

#[tokio::test]
async fn a_failing_model_is_a_500_or_the_last_event() {
    let state = AppState::new(&ServerOptions::default());
    assert!(state.install(broken()));
    let app = router(state);
    for stream in [false, true] {
        for (path, body) in [
            (CHAT, chat("x", &json!({"stream": stream}))),
            (COMPLETIONS, json!({"prompt": "x", "stream": stream})),
        ] {
            let answer = post(&app, path, &body).await;
            let error = if stream {
                assert_eq!(answer.status, 200);
                assert!(!answer.text.contains("[DONE]"));
                let last = answer.text.trim_end().rsplit("data: ").next().unwrap();
                serde_json::from_str(last).unwrap()
            } else {
                assert_eq!(answer.status, 500);
                answer.json()
            };
            assert_eq!(error["error"]["type"], "server_error", "{}", answer.text);
        }
    }
}

#[tokio::test]
async fn a_stream_opens_with_the_role_and_ends_with_the_reason() {
    let body =
        chat("stream", &json!({"stream": true, "stream_options": {"include_usage": true}, "max_tokens": 5}));
    let events = post(&app(), CHAT, &body).await.events();
    let first = &events[0];
    assert_eq!(first["object"], "chat.completion.chunk");
    assert_eq!(first["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    let (usage, pieces) = events.split_last().unwrap();
    assert!(pieces.iter().all(|e| e["usage"].is_null() && e.as_object().unwrap().contains_key("usage")));
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], 5);
    assert!(usage["usage"]["prompt_tokens_details"]["cached_tokens"].is_u64());
    assert_eq!(pieces.last().unwrap()["choices"][0]["finish_reason"], "length");
    assert!(pieces.iter().rev().skip(1).all(|e| e["choices"][0]["finish_reason"].is_null()));
    assert!(events.iter().all(|e| e["id"] == first["id"] && e["model"] == MODEL));
    let plain = post(&app(), CHAT, &chat("stream", &json!({"stream": true, "max_tokens": 5}))).await.events();
    assert!(plain.iter().all(|e| e.get("usage").is_none()), "not asked for");
}

#[tokio::test]
async fn a_stream_adds_up_to_the_whole_answer() {
    let app = app();
    for seed in 0..6 {
        let more = json!({"seed": seed, "temperature": 1.5, "n": 3, "max_tokens": 40, "logprobs": true, "stop": ["\u{fffd}z", "e"]});
        let whole = post(&app, CHAT, &chat("equal", &more)).await.ok();
        let stream =
            merged(chat("equal", &more), &json!({"stream": true, "stream_options": {"include_usage": true}}));
        let events = post(&app, CHAT, &stream).await.events();
        let (streamed, finishes) = assemble(&events, 3);
        assert_eq!(streamed, texts(&whole));
        let reasons: Vec<&str> = whole["choices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["finish_reason"].as_str().unwrap())
            .collect();
        assert_eq!(finishes, reasons);
        let usage = &events.last().unwrap()["usage"];
        for field in ["prompt_tokens", "completion_tokens", "total_tokens"] {
            assert_eq!(usage[field], whole["usage"][field], "{field}");
        }
        for choice in 0..3 {
            let pieces = events.iter().flat_map(|e| e["choices"].as_array().unwrap());
            let entries = pieces
                .filter(|c| c["index"] == choice)
                .flat_map(|c| c["logprobs"]["content"].as_array().cloned().unwrap_or_default());
            assert_eq!(
                entries.collect::<Vec<_>>(),
                *whole["choices"][choice]["logprobs"]["content"].as_array().unwrap()
            );
        }

        let more = json!({"prompt": "equal", "seed": seed, "n": 2, "max_tokens": 30, "echo": true});
        let whole = post(&app, COMPLETIONS, &more).await.ok();
        let events = post(&app, COMPLETIONS, &merged(more, &json!({"stream": true}))).await.events();
        assert_eq!(assemble(&events, 2).0, texts(&whole));
        assert!(texts(&whole).iter().all(|t| t.starts_with("equal")), "{whole}");
    }
}

#[tokio::test]
async fn a_stop_string_is_cut_off_wherever_tokens_end() {
    let app = app();
    let body = |more: Value| {
        chat(
            "stop here",
            &merged(json!({"ignore_eos": true, "max_tokens": 60, "seed": 4, "temperature": 1.2}), &more),
        )
    };
    let full = texts(&post(&app, CHAT, &body(json!({}))).await.ok()).remove(0);
    let chars: Vec<char> = full.chars().collect();
    let mut tried = 0;
    for start in (0..chars.len().saturating_sub(4)).step_by(3) {
        let stop: String = chars[start..start + 4].iter().collect();
        let at = full.find(&stop).unwrap();
        for stream in [false, true] {
            let request = body(json!({"stop": ["never seen", stop], "stream": stream}));
            let answer = post(&app, CHAT, &request).await;
            let (text, finish, reason) = if stream {
                let events = answer.events();
                let (mut texts, finishes) = assemble(&events, 1);
                (
                    texts.remove(0),
                    finishes[0].clone(),
                    events.last().unwrap()["choices"][0]["stop_reason"].clone(),
                )
            } else {
                let choice = answer.ok()["choices"][0].take();
                let text = choice["message"]["content"].as_str().unwrap().to_owned();
                (text, choice["finish_reason"].as_str().unwrap().to_owned(), choice["stop_reason"].clone())
            };
            assert_eq!((text.as_str(), finish.as_str()), (&full[..at], "stop"), "{stop:?} of {full:?}");
            assert_eq!(reason, json!(stop));
            tried += 1;
        }
    }
    assert!(tried > 10, "{full:?}");
}

#[tokio::test]
async fn stop_tokens_end_the_answer_and_are_not_in_it() {
    let app = app();
    let mut tried = 0;
    for first in 0..20 {
        let base = json!({"prompt": [first, 6, 7], "temperature": 0, "max_tokens": 8, "ignore_eos": true, "logprobs": 0});
        let full = post(&app, COMPLETIONS, &base).await.ok();
        let names = full["choices"][0]["logprobs"]["tokens"].as_array().unwrap().clone();
        assert_eq!((names.len(), &full["usage"]["completion_tokens"]), (8, &json!(8)));
        let ids = post(&app, "/tokenize", &json!({"prompt": names[2]})).await.ok()["tokens"].take();
        // a part of a character has no text of its own to find its id by
        let ([id], false) = (&ids.as_array().unwrap()[..], names[2] == "\u{fffd}") else { continue };
        let at = names.iter().position(|n| *n == names[2]).unwrap();
        let stopped = post(&app, COMPLETIONS, &merged(base, &json!({"stop_token_ids": [id]}))).await.ok();
        let choice = &stopped["choices"][0];
        assert_eq!((&choice["finish_reason"], &choice["stop_reason"]), (&json!("stop"), id));
        assert_eq!(stopped["usage"]["completion_tokens"], at as u64 + 1, "the token that stops is counted");
        assert_eq!(choice["logprobs"]["tokens"].as_array().unwrap()[..], names[..at]);
        tried += 1;
    }
    assert!(tried > 3, "{tried}");
}

#[tokio::test]
async fn seeds_reproduce_and_choices_differ() {
    let app = app();
    let body = |more: Value| {
        chat("seeds", &merged(json!({"temperature": 1.5, "max_tokens": 20, "ignore_eos": true}), &more))
    };
    let one = texts(&post(&app, CHAT, &body(json!({"seed": -5, "n": 2}))).await.ok());
    assert_eq!(texts(&post(&app, CHAT, &body(json!({"seed": -5, "n": 2}))).await.ok()), one);
    assert_ne!(one[0], one[1]);
    assert_ne!(texts(&post(&app, CHAT, &body(json!({"seed": 6}))).await.ok())[0], one[0]);
    let unseeded = texts(&post(&app, CHAT, &body(json!({}))).await.ok());
    assert_ne!(texts(&post(&app, CHAT, &body(json!({}))).await.ok()), unseeded);
}

#[tokio::test]
async fn a_repeated_prompt_is_found_in_the_cache_and_a_salt_keeps_others_out() {
    let app = app();
    let long = "a prompt of several blocks ".repeat(8);
    let cached = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    let mine = chat(&long, &json!({"cache_salt": "mine"}));
    let first = post(&app, CHAT, &mine).await.ok();
    assert_eq!(cached(&first), 0);
    let again = post(&app, CHAT, &merged(mine, &json!({"n": 4}))).await.ok();
    let prompt = again["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(cached(&again), prompt / 32 * 32 - if prompt % 32 == 0 { 32 } else { 0 });
    assert_eq!(again["usage"]["completion_tokens"], 48, "all choices are counted");
    assert_eq!(first["choices"][0]["message"], again["choices"][0]["message"]);
    let theirs = post(&app, CHAT, &chat(&long, &json!({"cache_salt": "theirs"}))).await.ok();
    assert_eq!(cached(&theirs), 0);
}

#[tokio::test]
async fn several_prompts_are_several_choices_in_order() {
    let app = app();
    let body = |prompt: Value, n: u64| json!({"prompt": prompt, "temperature": 0, "max_tokens": 6, "n": n});
    let one = post(&app, COMPLETIONS, &body(json!("first"), 1)).await.ok();
    let two = post(&app, COMPLETIONS, &body(json!([9, 8, 7]), 1)).await.ok();
    let both = post(&app, COMPLETIONS, &body(json!(["first", [9, 8, 7]]), 2)).await.ok();
    let (one_text, two_text) = (texts(&one).remove(0), texts(&two).remove(0));
    assert_eq!(texts(&both), [&one_text, &one_text, &two_text, &two_text].map(Clone::clone));
    let indices: Vec<u64> =
        both["choices"].as_array().unwrap().iter().map(|c| c["index"].as_u64().unwrap()).collect();
    assert_eq!(indices, [0, 1, 2, 3]);
    let prompt = |a: &Value| a["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(prompt(&both), prompt(&one) + prompt(&two));
}

#[tokio::test]
async fn log_probabilities_are_those_of_the_tokens_shown() {
    let body =
        json!({"prompt": "logs", "temperature": 0, "max_tokens": 6, "logprobs": 3, "ignore_eos": true});
    let choice = post(&app(), COMPLETIONS, &body).await.ok()["choices"][0].take();
    let logs = &choice["logprobs"];
    let len = |field: &str| logs[field].as_array().unwrap().len();
    assert_eq!([len("tokens"), len("token_logprobs"), len("top_logprobs"), len("text_offset")], [6; 4]);
    for i in 0..6 {
        let chosen = logs["token_logprobs"][i].as_f64().unwrap();
        let top = logs["top_logprobs"][i].as_object().unwrap();
        let best = top.values().filter_map(Value::as_f64).fold(f64::NEG_INFINITY, f64::max);
        assert!(chosen <= 0.0 && (chosen - best).abs() < 1e-6, "greedy takes the best: {logs}");
        assert!(top.len() <= 3 && !top.is_empty());
    }
}

#[tokio::test]
async fn the_answer_fills_what_the_model_leaves() {
    let app = app();
    let body = json!({"prompt": vec![7; 500], "temperature": 0, "ignore_eos": true});
    let answer = post(&app, COMPLETIONS, &body).await.ok();
    assert_eq!(answer["usage"]["completion_tokens"], 12, "512 in all");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    for (body, param) in [
        (json!({"prompt": vec![7; 512]}), "prompt"),
        (json!({"prompt": vec![7; 500], "max_tokens": 13}), "prompt"),
        (json!({"prompt": "x".repeat(2000)}), "prompt"),
    ] {
        let answer = post(&app, COMPLETIONS, &body).await;
        let error = answer.json()["error"].take();
        assert_eq!((answer.status.as_u16(), &error["param"]), (400, &json!(param)));
        assert_eq!(error["code"], "context_length_exceeded");
        assert!(error["message"].as_str().unwrap().contains("512"), "{error}");
    }
    let answer = post(&app, CHAT, &chat(&"long ".repeat(200), &json!({}))).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["error"]["param"]), (400, &json!("messages")));
}

#[tokio::test]
async fn concurrent_requests_get_the_answers_they_get_alone() {
    let app = app();
    let requests: Vec<(&str, Value)> = (0..12)
        .map(|i| match i % 3 {
            0 => (CHAT, chat(&format!("mixed {i}"), &json!({"max_tokens": 30}))),
            1 => (COMPLETIONS, json!({"prompt": format!("mixed {i}"), "seed": i, "max_tokens": 30})),
            _ => (
                SCORE,
                json!({"query": format!("mixed {i}"), "chunks": ["one chunk", "another"], "heads": HEADS}),
            ),
        })
        .collect();
    let essence = |a: &Value| (a["choices"].clone(), a["results"].clone());
    let mut alone = Vec::new();
    for (path, body) in &requests {
        alone.push(essence(&post(&app, path, body).await.ok()));
    }
    let together =
        futures::future::join_all(requests.iter().map(|(path, body)| post(&app, path, body))).await;
    for (together, alone) in together.iter().zip(&alone) {
        assert_eq!(essence(&together.ok()), *alone);
    }
}
