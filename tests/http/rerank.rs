//! Reranking in both dialects: shapes, order, `top_n`, forms of documents, errors as each client reads them.

use axum::Router;
use serde_json::{Value, json};

use crate::support::*;

const ROUTES: [&str; 3] = ["/rerank", "/v1/rerank", "/v2/rerank"];
const TEXTS: [&str; 4] = ["the user asked 7", "it is 日本語 and the user", "", "she and he"];

fn cohere(more: &Value) -> Value {
    merged(json!({"model": MODEL, "query": "what is in the sea?", "documents": TEXTS, "heads": HEADS}), more)
}

fn tei(more: &Value) -> Value {
    merged(json!({"query": "what is in the sea?", "texts": TEXTS, "heads": HEADS}), more)
}

async fn results(app: &Router, more: &Value) -> Vec<Value> {
    post(app, "/rerank", &cohere(more)).await.ok()["results"].as_array().unwrap().clone()
}

fn indices(results: &[Value]) -> Vec<u64> {
    results.iter().map(|r| r["index"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn both_dialects_rank_as_the_native_route_does() {
    let app = app();
    for statistic in ["entropy", "sum", "breadth", "scaled_sum"] {
        let more = json!({"statistic": statistic});
        let native =
            json!({"query": "what is in the sea?", "chunks": TEXTS, "heads": HEADS, "statistic": statistic});
        let native = post(&app, SCORE, &native).await.ok();
        let mut ranked: Vec<&Value> = native["results"].as_array().unwrap().iter().collect();
        ranked.sort_by_key(|r| r["rank"].as_u64());
        let order: Vec<u64> = ranked.iter().map(|r| r["index"].as_u64().unwrap()).collect();
        for route in ROUTES {
            let answer = post(&app, route, &cohere(&more)).await.ok();
            let results = answer["results"].as_array().unwrap();
            assert_eq!(indices(results), order, "{route} {statistic}");
            let scores: Vec<f64> = results.iter().map(|r| r["relevance_score"].as_f64().unwrap()).collect();
            assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
            assert!(scores.iter().all(|s| (0.0..=1.0).contains(s)), "{scores:?}");
            let list = post(&app, route, &tei(&more)).await.ok();
            let list = list.as_array().unwrap();
            assert_eq!(indices(list), order, "{route} {statistic}");
            assert_eq!(list.iter().map(|r| r["score"].as_f64().unwrap()).collect::<Vec<_>>(), scores);
        }
        let raw = post(&app, "/rerank", &tei(&merged(more, &json!({"raw_scores": true})))).await.ok();
        let raw: Vec<&Value> = raw.as_array().unwrap().iter().map(|r| &r["score"]).collect();
        assert_eq!(raw, ranked.iter().map(|r| &r["score"]).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn the_object_has_what_cohere_jina_and_litellm_read() {
    let answer = post(&app(), "/v2/rerank", &cohere(&json!({}))).await.ok();
    assert!(answer["id"].as_str().unwrap().starts_with("rerank-"));
    assert_eq!((&answer["model"], &answer["object"]), (&json!(MODEL), &json!("list")));
    let tokens = answer["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(tokens > 0);
    for place in ["/usage/total_tokens", "/meta/billed_units/total_tokens", "/meta/tokens/input_tokens"] {
        assert_eq!(answer.pointer(place), Some(&json!(tokens)), "{place}");
    }
    assert_eq!(answer.pointer("/meta/billed_units/search_units"), Some(&json!(1)));
    assert_eq!(answer.pointer("/meta/api_version/version"), Some(&json!("2")));
    assert!(answer.pointer("/usage/prompt_tokens_details/cached_tokens").unwrap().is_u64());
    let empty = answer["results"].as_array().unwrap().iter().find(|r| r["index"] == 2).unwrap();
    assert_eq!((&empty["flags"]["empty"], &empty["relevance_score"]), (&json!(true), &json!(0.0)));
    assert!(empty.get("document").is_none(), "given back only when asked for");
}

#[tokio::test]
async fn top_n_of_nothing_is_all_and_too_many_is_all() {
    let app = app();
    for (top_n, want) in
        [(Value::Null, 4), (json!(0), 4), (json!(1), 1), (json!(3), 3), (json!(4), 4), (json!(1_000_000), 4)]
    {
        let found = results(&app, &json!({"top_n": top_n})).await;
        assert_eq!(found.len(), want, "{top_n}");
    }
    assert_eq!(results(&app, &json!({"top_n": 2})).await, results(&app, &json!({})).await[..2]);
    assert_eq!(results(&app, &json!({"documents": []})).await.len(), 0);
    let list = post(&app, "/rerank", &tei(&json!({"top_n": 1}))).await.ok();
    assert_eq!(list.as_array().unwrap().len(), 1, "ours to give: TEI has no such field");
}

#[tokio::test]
async fn ties_keep_the_order_of_the_request_and_twins_are_two() {
    let found =
        results(&app(), &json!({"documents": ["", "", "it is", ""], "control": "none", "statistic": "sum"}))
            .await;
    assert_eq!(indices(&found), [2, 0, 1, 3]);
    let twins = results(&app(), &json!({"documents": ["it is", "it is"], "return_documents": true})).await;
    let mut seen = indices(&twins);
    seen.sort_unstable();
    assert_eq!(seen, [0, 1]);
}

#[tokio::test]
async fn documents_come_in_many_forms_and_go_back_as_they_came() {
    let app = app();
    let documents = json!([
        "plain",
        {"text": "with a title", "title": "Sea", "id": 7, "more": {"x": 1}},
        {"content": [{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}]},
        {"content": "as content"},
    ]);
    let found = results(&app, &json!({"documents": documents, "return_documents": true})).await;
    for result in &found {
        let i = result["index"].as_u64().unwrap() as usize;
        let want = if i == 0 { json!({"text": "plain"}) } else { documents[i].clone() };
        assert_eq!(result["document"], want);
    }
    let same = [
        (
            json!({"documents": [{"content": [{"text": "in "}, {"type": "text", "text": "parts"}]}]}),
            "in parts",
        ),
        (json!({"documents": [{"a": "one", "b": 2, "c": "three"}], "rank_fields": ["c", "b"]}), "three\n2"),
    ];
    for (more, plain) in same {
        assert_eq!(
            results(&app, &more).await,
            results(&app, &json!({"documents": [plain]})).await,
            "{plain}"
        );
    }
    let given = post(&app, "/rerank", &tei(&json!({"return_text": true}))).await.ok();
    for result in given.as_array().unwrap() {
        assert_eq!(result["text"], TEXTS[result["index"].as_u64().unwrap() as usize]);
    }
}

#[tokio::test]
async fn long_documents_are_cut_only_when_asked_and_say_so() {
    let documents = json!(["it is the user and she asked the user", "it is"]);
    let truncated = |results: Vec<Value>| {
        let mut flags: Vec<(u64, bool)> = results
            .iter()
            .map(|r| (r["index"].as_u64().unwrap(), r["flags"]["truncated"].as_bool().unwrap()))
            .collect();
        flags.sort_unstable();
        flags
    };
    let app = app();
    let cut = results(&app, &json!({"documents": documents, "max_tokens_per_doc": 5})).await;
    assert_eq!(truncated(cut), [(0, true), (1, false)]);
    assert_eq!(truncated(results(&app, &json!({"documents": documents})).await), [(0, false), (1, false)]);
}

#[tokio::test]
async fn wrong_fields_are_named_in_openais_shape_for_documents() {
    let app = app();
    let rows = [
        (json!({"query": null}), "query"),
        (json!({"query": 7}), "query"),
        (json!({"documents": null}), "documents"),
        (json!({"documents": "a"}), "documents"),
        (json!({"documents": ["a", 7]}), "documents[1]"),
        (json!({"documents": ["a", null]}), "documents[1]"),
        (json!({"documents": [{"title": "t"}]}), "documents[0].text"),
        (json!({"documents": [{"text": 7}]}), "documents[0].text"),
        (json!({"documents": [{"text": "a", "title": 7}]}), "documents[0].title"),
        (json!({"documents": [{"content": [{"type": "image_url"}]}]}), "documents[0].content[0]"),
        (json!({"documents": [{"text": "a"}], "rank_fields": ["b"]}), "documents[0].b"),
        (json!({"texts": ["a"]}), "texts"),
        (json!({"top_n": -1}), "top_n"),
        (json!({"top_n": "2"}), "top_n"),
        (json!({"max_tokens_per_doc": 0}), "max_tokens_per_doc"),
        (json!({"truncate_prompt_tokens": 10}), "truncate_prompt_tokens"),
        (json!({"return_documents": 1}), "return_documents"),
        (json!({"statistic": "variance"}), "statistic"),
        (json!({"heads": ["L9H0"]}), "heads"),
        (json!({"head_set": "x"}), "heads"),
        (json!({"orders": 9}), "orders"),
        (json!({"cache_salt": ""}), "cache_salt"),
        (json!({"documents": ["word ".repeat(300)]}), "documents"),
        (json!({"query": "word ".repeat(300)}), "query"),
    ];
    for (more, param) in rows {
        let answer = post(&app, "/v2/rerank", &cohere(&more)).await;
        let error = answer.json()["error"].take();
        assert_eq!((answer.status.as_u16(), &error["param"]), (400, &json!(param)), "{more} {error}");
        assert!(error["message"].as_str().unwrap().starts_with(param), "{error}");
    }
    let unknown = post(&app, "/rerank", &cohere(&json!({"model": "other"}))).await;
    assert_eq!((unknown.status.as_u16(), &unknown.json()["error"]["param"]), (404, &json!("model")));
    let accepted =
        json!({"instruction": "x", "max_chunks_per_doc": 3, "truncate_prompt_tokens": -1, "user": "me"});
    post(&app, "/rerank", &cohere(&accepted)).await.ok();
}

#[tokio::test]
async fn errors_for_texts_have_teis_shape_and_statuses() {
    let app = app();
    let rows = [
        (json!({"texts": []}), 400, "Empty"),
        (json!({"texts": ["a", 7]}), 422, "Validation"),
        (json!({"query": null}), 422, "Validation"),
        (json!({"raw_scores": "yes"}), 422, "Validation"),
        (json!({"texts": ["word ".repeat(300)]}), 422, "Validation"),
        (json!({"model": "other"}), 404, "Validation"),
    ];
    for (more, status, kind) in rows {
        let answer = post(&app, "/rerank", &tei(&more)).await;
        let body = answer.json();
        assert_eq!((answer.status.as_u16(), &body["error_type"]), (status, &json!(kind)), "{more} {body}");
        assert!(!body["error"].as_str().unwrap().is_empty());
        assert!(answer.headers["content-type"].to_str().unwrap().starts_with("application/json"));
    }
    let long = post(&app, "/rerank", &tei(&json!({"texts": ["a", "word ".repeat(300)]}))).await.json();
    assert!(long["error"].as_str().unwrap().starts_with("texts"), "{long}");
    let accepted = json!({"truncate": true, "truncation_direction": "Left"});
    post(&app, "/rerank", &tei(&accepted)).await.ok();

    let full = app_with(&qrae::http::ServerOptions { max_requests: 0, ..Default::default() });
    let answer = post(&full, "/rerank", &tei(&json!({}))).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["error_type"]), (429, &json!("Overloaded")));
    assert!(answer.headers.contains_key("retry-after"));
    let answer = post(&full, "/rerank", &cohere(&json!({}))).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["error"]["type"]), (429, &json!("rate_limit_error")));
}

#[tokio::test]
async fn one_rerank_is_one_permit_whatever_its_size() {
    let app = app_with(&qrae::http::ServerOptions { max_requests: 1, ..Default::default() });
    let many: Vec<String> = (0..40).map(|i| format!("n{i}")).collect();
    let answer = post(&app, "/rerank", &tei(&json!({"texts": many}))).await.ok();
    assert_eq!(answer.as_array().unwrap().len(), 40);
}

#[tokio::test]
async fn keys_are_asked_for_on_every_spelling() {
    let options = qrae::http::ServerOptions { api_keys: vec!["k".into()], ..Default::default() };
    let app = app_with(&options);
    for route in ROUTES {
        assert_eq!(post(&app, route, &tei(&json!({}))).await.status.as_u16(), 401, "{route}");
    }
}
