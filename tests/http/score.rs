//! Scores: shapes, several queries, explanations, edges.

use serde_json::{Value, json};

use crate::support::*;

fn request(more: &Value) -> Value {
    let chunks = json!([
        "the first chunk speaks of rivers",
        {"id": "b", "title": "Sea", "url": "x", "text": "日本語 and the 👩‍👧 user", "extra": 1},
        {"id": 7, "text": ""},
        {"id": "b", "text": "x"},
    ]);
    merged(json!({"query": "what is in the sea?", "chunks": chunks, "heads": HEADS}), more)
}

#[tokio::test]
async fn answers_show_their_work() {
    let answer = post(&app(), SCORE, &request(&json!({"model": MODEL}))).await.ok();
    insta::with_settings!({snapshot_path => "../snapshots", prepend_module_to_snapshot => false}, {
        insta::assert_json_snapshot!("score", masked(answer.clone()));
    });
    let results = answer["results"].as_array().unwrap();
    let ids: Vec<&Value> = results.iter().map(|r| &r["id"]).collect();
    assert_eq!(ids, [&Value::Null, &json!("b"), &json!(7), &json!("b")], "as they came, twins too");
    let scores: Vec<f64> = results.iter().map(|r| r["score"].as_f64().unwrap()).collect();
    assert!(scores.iter().all(|s| (0.0..=1.0).contains(s)), "{scores:?}");
    for r in results {
        let better = scores.iter().filter(|s| **s > r["score"].as_f64().unwrap()).count();
        assert!(r["rank"].as_u64().unwrap() as usize > better);
        let heads = r["heads"].as_array().unwrap();
        let mean = heads.iter().map(|h| h["score"].as_f64().unwrap()).sum::<f64>() / 2.0;
        assert!((mean - r["score"].as_f64().unwrap()).abs() < 1e-12);
    }
    assert_eq!(
        (&results[2]["flags"]["empty"], &results[3]["flags"]["single_token"]),
        (&json!(true), &json!(true))
    );
}

#[tokio::test]
async fn several_queries_get_the_scores_they_get_alone() {
    let app = app();
    let two = request(&json!({"query": null, "queries": ["first?", "what is in the sea?"]}));
    let both = post(&app, SCORE, &two).await.ok();
    assert!(both.get("results").is_none());
    assert_eq!(both["queries"].as_array().unwrap().len(), 2);
    assert_eq!(both["queries"][1]["index"], 1);
    let alone = post(&app, SCORE, &request(&json!({}))).await.ok();
    assert_eq!(both["queries"][1]["results"], alone["results"]);
    assert!(alone.get("queries").is_none());
    let one =
        post(&app, SCORE, &request(&json!({"query": null, "queries": ["what is in the sea?"]}))).await.ok();
    assert_eq!(one["queries"][0]["results"], alone["results"], "a list of one stays a list");
}

#[tokio::test]
async fn explanations_point_into_the_callers_text() {
    let answer = post(&app(), SCORE, &request(&json!({"explain": true, "statistic": "sum"}))).await.ok();
    assert_eq!(answer["method"], json!({"statistic": "sum", "control": "query_free", "read": "last"}));
    let text: Vec<char> = "日本語 and the 👩‍👧 user".chars().collect();
    let result = &answer["results"][1];
    let tokens = result["explain"].as_array().unwrap();
    assert_eq!(tokens.len() as u64, result["tokens_scored"].as_u64().unwrap());
    let mut covered = vec![false; text.len()];
    let mut mass = 0.0;
    for token in tokens {
        let (start, end) =
            (token["start"].as_u64().unwrap() as usize, token["end"].as_u64().unwrap() as usize);
        assert!(start <= end && end <= text.len());
        assert!(start < end || token["in_title"] == json!(true), "{token}");
        covered[start..end].fill(true);
        let heads = token["per_head"].as_array().unwrap();
        assert_eq!(heads.len(), 2);
        mass += token["response"].as_f64().unwrap();
    }
    assert!(covered.iter().all(|c| *c));
    assert!((mass - result["score"].as_f64().unwrap()).abs() < 1e-9, "responses add up to the sum");
    assert_eq!(answer["results"][2]["explain"], json!([]));
}

#[tokio::test]
async fn long_chunks_are_cut_only_when_asked_and_say_so() {
    let app = app();
    let answer = post(&app, SCORE, &request(&json!({"max_tokens_per_chunk": 5}))).await.ok();
    let first = &answer["results"][0];
    assert_eq!((&first["tokens_scored"], &first["flags"]["truncated"]), (&json!(5), &json!(true)));
    assert!(first["tokens"].as_u64().unwrap() > 5);
    assert_eq!(answer["results"][3]["flags"]["truncated"], false);
    let long = json!({"chunks": ["word ".repeat(300)]});
    let answer = post(&app, SCORE, &request(&long)).await;
    let error = answer.json()["error"].take();
    assert_eq!((answer.status.as_u16(), &error["param"]), (400, &json!("chunks")));
    assert_eq!(error["code"], "context_length_exceeded");
}

#[tokio::test]
async fn every_method_gives_numbers_and_no_chunks_are_fine() {
    let app = app();
    for statistic in ["entropy", "sum", "breadth", "scaled_sum"] {
        for control in ["query_free", "none", "null_query"] {
            for read in ["last", "query_mean"] {
                let more = json!({"statistic": statistic, "control": control, "read": read});
                let answer = post(&app, SCORE, &request(&more)).await.ok();
                assert_eq!(answer["method"], more);
                let usage = &answer["usage"];
                let parts =
                    ["cached_tokens", "shared_tokens"].map(|n| usage["prompt_tokens_details"][n].as_u64());
                let parts: u64 = parts.iter().flatten().sum();
                assert_eq!(
                    parts + usage["computed_tokens"].as_u64().unwrap(),
                    usage["prompt_tokens"],
                    "{usage}"
                );
                assert!(answer["results"].as_array().unwrap().iter().all(|r| r["score"].is_number()));
            }
        }
    }
    for chunks in [json!([]), json!(["", {"text": ""}])] {
        let answer = post(&app, SCORE, &request(&json!({"chunks": chunks}))).await.ok();
        assert_eq!(answer["results"].as_array().unwrap().len(), chunks.as_array().unwrap().len());
        assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    }
}

#[tokio::test]
async fn several_orders_are_averaged_chunk_by_chunk() {
    let app = app();
    let ask = |chunks: &Value, more: Value| {
        let body = merged(request(&json!({"chunks": chunks, "explain": true})), &more);
        let app = &app;
        async move { post(app, SCORE, &body).await.ok() }
    };
    let chunks = json!([{"id": "a", "text": "the user asked 7"}, {"text": "she and he and the user"}]);
    let one = ask(&chunks, json!({})).await;
    let other = ask(&json!([chunks[1], chunks[0]]), json!({})).await;
    let both = ask(&chunks, json!({"orders": 2})).await;
    assert_eq!((&one["orders"], &both["orders"]), (&json!(1), &json!(2)));
    assert_eq!(both["results"][0]["id"], "a");
    assert_ne!(one["results"][0]["score"], other["results"][1]["score"], "the order does matter");
    let number = |v: &Value| v.as_f64().unwrap();
    let of: [&dyn Fn(&Value) -> f64; 4] = [
        &|r| number(&r["score"]),
        &|r| number(&r["heads"][0]["score"]),
        &|r| number(&r["heads"][1]["mass"]),
        &|r| number(&r["explain"][1]["response"]),
    ];
    for i in 0..2 {
        let (a, b, mean) = (&one["results"][i], &other["results"][1 - i], &both["results"][i]);
        of.iter().for_each(|of| assert!((of(mean) - (of(a) + of(b)) / 2.0).abs() < 1e-12, "{i}: {mean}"));
        assert_eq!(mean["tokens"], a["tokens"]);
    }
    let [a, b] = [0, 1].map(|i| &both["results"][i]);
    let second = u64::from(number(&a["score"]) < number(&b["score"]));
    assert_eq!((a["rank"].as_u64(), b["rank"].as_u64()), (Some(1 + second), Some(2 - second)));
    let prompt = |answer: &Value| answer["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(prompt(&both), prompt(&one) + prompt(&other));

    // never more orders than there are, and the same ones every time
    assert_eq!(ask(&chunks, json!({"orders": 8})).await["results"], both["results"]);
    assert_eq!(ask(&json!([]), json!({"orders": 8})).await["orders"], 1);
    let four = json!(["it is", "she and he", "", "日本語 and"]);
    let five = ask(&four, json!({"orders": 5})).await;
    assert_eq!((&five["orders"], &five["results"][2]["flags"]["empty"]), (&json!(5), &json!(true)));
    assert_eq!(five["results"], ask(&four, json!({"orders": 5})).await["results"]);
}

#[tokio::test]
async fn the_same_list_again_is_found_in_the_cache() {
    let app = app();
    let body = request(&json!({"cache_salt": "score again"}));
    let first = post(&app, SCORE, &body).await.ok();
    let again = post(&app, SCORE, &body).await.ok();
    assert_eq!(first["results"], again["results"], "bit for bit");
    assert_eq!(first["usage"]["prompt_tokens"], again["usage"]["prompt_tokens"]);
    let cached = |a: &Value| a["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached(&first) == 0 && cached(&again) >= 32, "{first} {again}");
}
