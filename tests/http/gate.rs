//! The gate: what it shows follows from the scores and explanations of the scoring route.

use serde_json::{Value, json};

use crate::support::*;

const GATE: &str = "/v1/gate";

fn texts() -> [&'static str; 4] {
    [
        "Rivers are long. They run to the sea! Do they?",
        "日本語です。 The 👩‍👧 user reads it. A third one\r\nstands on two lines.",
        "",
        "x",
    ]
}

fn request(more: &Value) -> Value {
    let [a, b, c, d] = texts();
    let chunks = json!([a, {"id": "b", "title": "Sea", "text": b}, {"id": 7, "text": c}, d]);
    merged(json!({"query": "what is in the sea?", "chunks": chunks, "heads": HEADS}), more)
}

fn admissions(answer: &Value) -> Vec<&str> {
    answer["results"].as_array().unwrap().iter().map(|r| r["admission"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn spans_hold_the_share_and_point_into_the_text() {
    let app = app();
    let explained = post(&app, SCORE, &request(&json!({"explain": true}))).await.ok();
    let mut cut = 0;
    for share in [0.05, 0.3, 0.6, 1.0] {
        let answer = post(&app, GATE, &request(&json!({"top_k": 4, "share": share}))).await.ok();
        assert_eq!(answer["object"], "qrae.gate");
        assert_eq!(answer["head_set"], explained["head_set"]);
        for (i, text) in texts().iter().enumerate() {
            let (gated, scored) = (&answer["results"][i], &explained["results"][i]);
            for same in ["index", "id", "score", "rank", "tokens", "flags"] {
                assert_eq!(gated.get(same), scored.get(same), "{same}");
            }
            let chars: Vec<char> = text.chars().collect();
            let spans: Vec<(usize, usize)> = gated["spans"]
                .as_array()
                .unwrap()
                .iter()
                .map(|s| {
                    let at = |name: &str| s[name].as_u64().unwrap() as usize;
                    let (start, end) = (at("start"), at("end"));
                    assert_eq!(s["text"], chars[start..end].iter().collect::<String>());
                    (start, end)
                })
                .collect();
            let parts: Vec<&str> =
                gated["spans"].as_array().unwrap().iter().map(|s| s["text"].as_str().unwrap()).collect();
            assert_eq!(gated["text"], parts.join(" […] "));
            if gated["admission"] == "full" {
                assert_eq!(gated["text"], *text);
                assert_eq!(gated["tokens_shown"], gated["tokens"]);
                continue;
            }
            cut += 1;
            let (mut held, mut all) = (0.0, 0.0);
            for token in scored["explain"].as_array().unwrap() {
                let response = token["response"].as_f64().unwrap();
                let start = token["start"].as_u64().unwrap() as usize;
                all += response;
                // the space after a sentence counts with it
                let blank = |from: usize| chars[from.min(start)..=start].iter().all(|c| c.is_whitespace());
                let shown = token["in_title"] == json!(true)
                    || spans.iter().any(|&(s, e)| s <= start && (start < e || blank(e)));
                held += if shown { response } else { 0.0 };
            }
            assert!(held >= share * all - 1e-9, "{held} of {all} at {share}");
            assert!(gated["tokens_shown"].as_u64() < gated["tokens"].as_u64());
        }
    }
    assert!(cut > 2, "{cut}");
}

#[tokio::test]
async fn rules_admit_by_rank_score_and_budget() {
    let app = app();
    let half = post(&app, GATE, &request(&json!({}))).await.ok();
    let ranks: Vec<u64> =
        half["results"].as_array().unwrap().iter().map(|r| r["rank"].as_u64().unwrap()).collect();
    for (admission, rank) in admissions(&half).iter().zip(&ranks) {
        assert_eq!(*admission == "withhold", *rank > 2, "the better half");
    }
    let withheld = half["results"].as_array().unwrap().iter().find(|r| r["admission"] == "withhold").unwrap();
    assert_eq!((&withheld["text"], &withheld["spans"]), (&json!(""), &json!([])));
    let whole = post(&app, GATE, &request(&json!({"top_k": 4, "full": 4}))).await.ok();
    assert_eq!(admissions(&whole), ["full"; 4]);
    assert_eq!(whole["tokens"]["all"], whole["tokens"]["shown"]);
    let scores: Vec<f64> =
        half["results"].as_array().unwrap().iter().map(|r| r["score"].as_f64().unwrap()).collect();
    let best = scores.iter().copied().fold(0.0, f64::max);
    let least = post(&app, GATE, &request(&json!({"threshold": best}))).await.ok();
    for (admission, score) in admissions(&least).iter().zip(&scores) {
        assert_eq!(*admission == "withhold", *score < best);
    }
    for budget in [0, 10, 30, 1000] {
        let answer = post(&app, GATE, &request(&json!({"budget_tokens": budget}))).await.ok();
        let shown = answer["tokens"]["shown"].as_u64().unwrap();
        let title = answer["results"][1]["title"].as_str().unwrap();
        assert_eq!(title, "Sea", "kept whatever the budget");
        assert!(shown <= budget.max(8), "{shown} of {budget}");
        let sum: u64 =
            answer["results"].as_array().unwrap().iter().map(|r| r["tokens_shown"].as_u64().unwrap()).sum();
        assert_eq!(sum, shown);
    }
    let again = post(&app, GATE, &request(&json!({"budget_tokens": 30}))).await.ok();
    let once = post(&app, GATE, &request(&json!({"budget_tokens": 30}))).await.ok();
    assert_eq!(again["results"], once["results"]);
    let none = post(&app, GATE, &request(&json!({"chunks": []}))).await.ok();
    assert_eq!(none["results"], json!([]));
}

/// What lies beyond `max_tokens_per_chunk` was not read, and is neither shown nor left out of the bill.
#[tokio::test]
async fn a_cut_chunk_is_shown_as_far_as_it_was_read() {
    let app = app();
    let long = format!("Rivers are long. {}", "and they run on to the sea ".repeat(12));
    for budget in [40, 60, 1000] {
        let more =
            json!({"chunks": [long], "max_tokens_per_chunk": 30, "budget_tokens": budget, "share": 1.0});
        let answer = post(&app, GATE, &request(&more)).await.ok();
        let gated = &answer["results"][0];
        assert_eq!((&gated["admission"], &gated["flags"]["truncated"]), (&json!("span"), &json!(true)));
        let text = gated["text"].as_str().unwrap();
        assert!(long.starts_with(text) && text.len() < long.len() / 2, "{text}");
        let count = post(&app, "/tokenize", &json!({"prompt": text, "add_special_tokens": false})).await.ok();
        assert!(count["count"].as_u64() <= gated["tokens_shown"].as_u64(), "{gated}");
    }
}

#[tokio::test]
async fn wrong_fields_are_named() {
    let app = app();
    for (more, param) in [
        (json!({"top_k": -1}), "top_k"),
        (json!({"top_k": 1, "threshold": 0.5}), "top_k"),
        (json!({"budget_tokens": 5, "threshold": 0.5}), "threshold"),
        (json!({"budget_tokens": "5"}), "budget_tokens"),
        (json!({"full": -2}), "full"),
        (json!({"share": 0}), "share"),
        (json!({"share": 1.01}), "share"),
        (json!({"queries": ["a"]}), "queries"),
        (json!({"explain": true}), "explain"),
        (json!({"query": null}), "query"),
        (json!({"chunks": [{"title": "a"}]}), "chunks[0]"),
    ] {
        let answer = post(&app, GATE, &request(&more)).await;
        assert_eq!(answer.status, 400, "{more}: {}", answer.text);
        assert_eq!(answer.json()["error"]["param"], param, "{more}");
    }
}
