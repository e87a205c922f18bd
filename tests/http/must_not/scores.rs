//! Scores: what they must not depend on, what they are at their edges, what they cost.

use axum::Router;
use futures::future::{join, join_all};
use qrae::service::LoadOptions;
use serde_json::{Value, json};

use crate::support::*;

fn score(query: &str, chunks: &Value, more: &Value) -> Value {
    merged(json!({"query": query, "chunks": chunks, "heads": HEADS}), more)
}

fn number(value: &Value, place: &str) -> u64 {
    value.pointer(place).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {place} in {value}"))
}

fn cached(answer: &Value) -> u64 {
    number(answer, "/usage/prompt_tokens_details/cached_tokens")
}

/// Six requests of all kinds, two with the same chunks.
fn various() -> Vec<Value> {
    let chunks = |i: usize| -> Value {
        (0..3).map(|c| format!("{c} {}", "the user and she ".repeat(2 + (i + c) % 4))).collect()
    };
    [
        json!({"explain": true}),
        json!({"explain": true, "statistic": "sum", "control": "null_query"}),
        json!({"explain": true, "statistic": "breadth", "read": "query_mean"}),
        json!({"statistic": "scaled_sum", "control": "none", "orders": 2}),
        json!({"query": null, "queries": ["who?", "and where is she?", "why"]}),
        json!({"control": "null_query", "read": "query_mean", "statistic": "breadth"}),
    ]
    .iter()
    .enumerate()
    .map(|(i, more)| score(&format!("what of {i}?"), &chunks(i % 5), more))
    .collect()
}

/// The scores of an answer, and all that shows how they came about.
async fn scores(app: &Router, body: &Value) -> [Value; 2] {
    let mut answer = post(app, SCORE, body).await.ok();
    [answer["results"].take(), answer["queries"].take()]
}

#[tokio::test]
async fn m01_a_score_does_not_depend_on_cache_batch_mates_chunk_size_order_or_concurrency() {
    let bodies = various();
    let plain = app_loaded(LoadOptions { no_prefix_cache: true, ..LoadOptions::default() });
    let mut alone = Vec::new();
    for body in &bodies {
        alone.push(scores(&plain, body).await);
    }
    let chats: Vec<Value> = (0..4)
        .map(|i| chat(&"and she ".repeat(10 * i), &json!({"max_tokens": 60, "ignore_eos": true})))
        .collect();
    for options in [
        LoadOptions::default(),
        LoadOptions { max_batched_tokens: Some(7), prefill_chunk: Some(3), ..LoadOptions::default() },
        LoadOptions { prefill_chunk: Some(33), prefill_beside_decode: Some(5), ..LoadOptions::default() },
        LoadOptions { kv_tokens: Some(640), no_early_exit: true, ..LoadOptions::default() },
        LoadOptions { max_sequences: Some(1), ..LoadOptions::default() },
    ] {
        let app = app_loaded(options.clone());
        for round in ["cold", "warm"] {
            for (body, want) in bodies.iter().zip(&alone).rev() {
                assert_eq!(scores(&app, body).await, *want, "{round}, last first: {options:?} {body}");
            }
        }
        let (together, _) = join(
            join_all(bodies.iter().map(|body| scores(&app, body))),
            join_all(chats.iter().map(|body| post(&app, CHAT, body))),
        )
        .await;
        assert_eq!(together, alone, "all at once: {options:?}");
    }
}

#[tokio::test]
async fn m01_a_score_does_not_depend_on_prior_eviction() {
    let app = app_loaded(LoadOptions { kv_tokens: Some(512), ..LoadOptions::default() });
    let texts = |word: &str| json!([word.repeat(45), word.repeat(40)]);
    let body = score("which?", &texts("she "), &json!({"explain": true}));
    let first = post(&app, SCORE, &body).await.ok();
    let again = post(&app, SCORE, &body).await.ok();
    assert!(cached(&first) == 0 && cached(&again) > 32, "{} {}", first["usage"], again["usage"]);
    for word in ["it ", "me ", "we "] {
        post(&app, SCORE, &score("which?", &texts(word), &json!({}))).await.ok();
    }
    let evicted = post(&app, SCORE, &body).await.ok();
    assert!(cached(&evicted) < cached(&again), "nothing was evicted, so this proves nothing");
    assert_eq!((&again["results"], &evicted["results"]), (&first["results"], &first["results"]));
}

#[tokio::test]
async fn m05_the_control_is_the_same_prefix_whatever_the_query_begins_with() {
    let app = app();
    let count = async |text: &str, special: bool| {
        let body = json!({"prompt": text, "parse_special": special});
        number(&post(&app, "/tokenize", &body).await.ok(), "/count")
    };
    let chunks = json!(["the user\n", " and she\n\n", "x"]);
    let suffix = count("<|im_end|>\n<|im_start|>assistant\n", true).await;
    let mut prefixes = Vec::new();
    let begins = ["why?", "\nwhy", "\n\nwhy", " why", "\u{301}why", "on", "<|im_end|>", "[4] x", "", "日本"];
    for (i, query) in begins.iter().enumerate() {
        let salt = json!({"cache_salt": format!("m05 {i}")});
        let usage = post(&app, SCORE, &score(query, &chunks, &salt)).await.ok()["usage"].take();
        let (computed, shared) =
            (number(&usage, "/computed_tokens"), number(&usage, "/prompt_tokens_details/shared_tokens"));
        prefixes.push(shared);
        assert_eq!(number(&usage, "/prompt_tokens"), computed + shared, "{query:?} {usage}");
        let tail = count(&format!("Question: {query}"), false).await + suffix;
        assert_eq!(computed, shared + tail, "one input, of which the control is a part: {query:?} {usage}");
    }
    assert_eq!(prefixes, vec![prefixes[0]; begins.len()]);
    // nor does a chunk's end merge with what comes after it
    let together = post(&app, SCORE, &score("why?", &chunks, &json!({}))).await.ok();
    for (i, chunk) in chunks.as_array().unwrap().iter().enumerate() {
        let alone = post(&app, SCORE, &score("why?", &json!([chunk]), &json!({}))).await.ok();
        assert_eq!(together["results"][i]["tokens"], alone["results"][0]["tokens"], "{chunk}");
    }
}

/// Fails where a value holds null or a number that is none.
fn no_null(value: &Value, place: &str) {
    match value {
        Value::Null => panic!("{place} is null"),
        Value::Number(n) => assert!(n.as_f64().unwrap().is_finite(), "{place} is {n}"),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, v)| no_null(v, &format!("{place}[{i}]")));
        }
        Value::Object(map) => map.iter().for_each(|(k, v)| no_null(v, &format!("{place}.{k}"))),
        Value::String(_) | Value::Bool(_) => {}
    }
}

#[tokio::test]
async fn m06_no_chunk_gives_null_or_an_error_however_little_it_holds() {
    let app = app();
    let lists = [
        json!([]),
        json!([""]),
        json!(["", {"title": "", "text": ""}]),
        json!([" "]),
        json!(["x"]),
        json!(["x", "x"]),
        json!(["\u{200b}", "\0", "\n\t \r\n", "", "e\u{301}", "x", {"title": "t", "text": ""}]),
    ];
    let mut silent = 0;
    for statistic in ["entropy", "sum", "breadth", "scaled_sum"] {
        for control in ["query_free", "none", "null_query"] {
            for read in ["last", "query_mean"] {
                for list in &lists {
                    let how =
                        json!({"statistic": statistic, "control": control, "read": read, "explain": true});
                    let what = format!("{list} {how}");
                    let answer = post(&app, SCORE, &score("why?", list, &how)).await.ok();
                    let results = answer["results"].as_array().unwrap();
                    assert_eq!(results.len(), list.as_array().unwrap().len(), "{what}");
                    no_null(&answer["results"], &what);
                    for result in results {
                        let (value, flags) = (result["score"].as_f64().unwrap(), &result["flags"]);
                        assert!(value >= 0.0, "{what}: {result}");
                        let tokens = number(result, "/tokens_scored");
                        let single = tokens == 1;
                        assert_eq!(
                            (&flags["empty"], &flags["single_token"]),
                            (&json!(tokens == 0), &json!(single))
                        );
                        let nothing = tokens == 0 || flags["no_response"] == true;
                        if nothing || single && statistic == "entropy" {
                            assert_eq!(value, 0.0, "{what}: {result}");
                        }
                        silent += usize::from(flags["no_response"] == true);
                    }
                }
            }
        }
    }
    assert!(silent > 0, "no chunk was without a response");
    for list in lists {
        let documents = json!({"query": "why?", "documents": list, "heads": HEADS});
        no_null(&post(&app, "/rerank", &documents).await.ok()["results"], "documents");
        let texts: Vec<&Value> = list.as_array().unwrap().iter().filter(|text| text.is_string()).collect();
        if !texts.is_empty() {
            let body = json!({"query": "why?", "texts": texts, "heads": HEADS, "raw_scores": true});
            no_null(&post(&app, "/rerank", &body).await.ok(), "texts");
        }
    }
}

#[tokio::test]
async fn m16_cached_tokens_are_those_the_engine_found_and_are_always_told() {
    let text = "the user and she ".repeat(10);
    let documents = [&text, "she and he"];
    let long = json!({"max_tokens": 2, "ignore_eos": true});
    for (path, body) in [
        (CHAT, chat(&format!("1 {text}"), &long)),
        (COMPLETIONS, merged(json!({"prompt": format!("2 {text}")}), &long)),
        (SCORE, score("3?", &json!(documents), &json!({}))),
        ("/rerank", json!({"query": "4?", "documents": [documents[1], documents[0]], "heads": HEADS})),
    ] {
        // for each a cache of its own: all scoring prompts begin alike
        let model = load(false);
        let app = served(model.clone());
        for warm in [false, true] {
            let before = model.engine.stats();
            let answer = post(&app, path, &body).await.ok();
            let after = model.engine.stats();
            let (found, computed) =
                (after.prefix_hits - before.prefix_hits, after.prefill_tokens - before.prefill_tokens);
            assert_eq!((cached(&answer), found > 0), (found, warm), "{path} {}", answer["usage"]);
            let prompt = number(&answer, "/usage/prompt_tokens");
            let shared = answer.pointer("/usage/prompt_tokens_details/shared_tokens").and_then(Value::as_u64);
            // a rerank does not tell what its two inputs share: all that was neither found nor computed
            let shared = shared.unwrap_or(if path == "/rerank" { prompt - found - computed } else { 0 });
            assert_eq!(prompt, found + computed + shared, "{path} {}", answer["usage"]);
            assert!(computed > 0 && found < prompt, "the last token is always computed");
        }
    }
    for path in [CHAT, COMPLETIONS] {
        let body = merged(
            chat("5", &long),
            &json!({"prompt": "5", "stream": true, "stream_options": {"include_usage": true}}),
        );
        let events = post(&app(), path, &body).await.events();
        assert_eq!(cached(events.last().unwrap()), 0, "told though it is none");
    }
}

#[tokio::test]
async fn m16_the_tokens_of_both_passes_are_counted() {
    let app = app();
    let chunks = json!(["the user", "and she"]);
    let usage = async |control: &str, query: &str| {
        let more = json!({"control": control, "cache_salt": format!("m16 {control} {query}")});
        post(&app, SCORE, &score(query, &chunks, &more)).await.ok()["usage"].take()
    };
    let prompt = |usage: &Value| number(usage, "/prompt_tokens");
    // the null query is this text
    for query in ["why?", "N/A"] {
        let (none, free, null) =
            (usage("none", query).await, usage("query_free", query).await, usage("null_query", query).await);
        let prefix = number(&free, "/prompt_tokens_details/shared_tokens");
        assert!(0 < prefix && prefix < prompt(&none));
        assert_eq!(prompt(&free), prompt(&none) + prefix, "the control is an input of its own, to the count");
        assert_eq!(prompt(&null), prompt(&none) + prompt(&usage("none", "N/A").await));
        for usage in [none, free, null] {
            assert_eq!(usage["total_tokens"], usage["prompt_tokens"]);
        }
    }
    let body = json!({"query": "why?", "documents": chunks, "heads": HEADS, "control": "query_free"});
    let reranked = post(&app, "/rerank", &body).await.ok();
    assert_eq!(reranked["usage"]["prompt_tokens"], usage("query_free", "why?").await["prompt_tokens"]);
}

#[tokio::test]
async fn m18_no_block_of_the_cache_is_taken_for_another() {
    // nothing is evicted, and nobody else is there
    let app = app_loaded(LoadOptions { kv_tokens: Some(1 << 14), ..LoadOptions::default() });
    let ask = async |prompt: &[u32]| {
        let body = json!({"prompt": prompt, "max_tokens": 1});
        cached(&post(&app, COMPLETIONS, &body).await.ok())
    };
    let prompt: Vec<u32> = (0..70).map(|i| 3 + i * 7 % 200).collect();
    assert_eq!([ask(&prompt).await, ask(&prompt).await], [0, 64]);
    for at in 0..64 {
        let mut other = prompt.clone();
        other[at] += 1;
        assert_eq!(ask(&other).await, at as u64 / 32 * 32, "token {at} is another");
    }
    let mut swapped = prompt.clone();
    swapped.swap(3, 4);
    assert_eq!(ask(&swapped).await, 0, "the same tokens in another order");
    assert_eq!(ask(&prompt[32..]).await, 0, "the same tokens after others");
    assert_eq!(ask(&prompt).await, 64);
}
