//! Chats whose search results a context manages: one field or header, and the model reads what was admitted.

use axum::{Router, body::Body, http::Request};
use qrae::{http::ServerOptions, store::Address};
use serde_json::{Value, json};

use crate::support::*;

/// Shows the messages that the model gets: its answer repeats no prompt, but `/tokenize` of the same messages has as
/// many tokens.
async fn app() -> Router {
    let options = ServerOptions { trust_request_chat_template: true, ..ServerOptions::default() };
    with_contexts(model(), &options, &Address::Memory).await
}

fn found(pages: std::ops::Range<usize>) -> String {
    let one = |i| json!({"url": format!("http://x/{i}"), "title": format!("page {i}"), "text": format!("fish {i} swims")});
    json!({"results": pages.map(one).collect::<Vec<_>>()}).to_string()
}

fn body(messages: &Value, qrae: &Value) -> Value {
    json!({"messages": messages, "max_tokens": 1, "temperature": 0, "qrae": merged(json!({"heads": HEADS}), qrae)})
}

fn conversation(searches: &[String]) -> Value {
    let mut messages = vec![json!({"role": "user", "content": "who swims?"})];
    for text in searches {
        messages.push(json!({"role": "assistant", "content": "looking"}));
        messages.push(json!({"role": "tool", "content": text}));
    }
    messages.into()
}

async fn tokens(app: &Router, messages: &Value) -> Value {
    post(app, "/tokenize", &json!({"messages": messages})).await.ok()["count"].clone()
}

#[tokio::test]
async fn the_model_reads_the_whitelist_in_the_results_place() {
    let app = app().await;
    let searches = [found(0..2), "42 degrees".into(), found(2..4)];
    let asked = json!({"context": "a", "results_per_query": 2});
    let answer = post(&app, CHAT, &body(&conversation(&searches), &asked)).await.ok();
    let report = &answer["qrae"];
    assert_eq!((&report["context"], &report["created"]), (&json!("a"), &json!(true)));
    let told = report["searches"].as_array().unwrap();
    let places: Vec<_> =
        told.iter().map(|s| (s["message"].as_u64().unwrap(), s["results"].as_u64().unwrap())).collect();
    assert_eq!(places, [(2, 2), (6, 2)]);
    // what the model was sent is what the context shows, block by block
    let context = get(&app, "/v1/contexts/a").await.ok();
    assert_eq!((&context["query"], &context["results_per_query"]), (&json!("who swims?"), &json!(2)));
    let shown = |update: u64| -> String {
        let chunks = context["whitelist"].as_array().unwrap().iter();
        let chunks = chunks.filter(|c| c["admitted"]["update"] == update);
        let one = |c: &Value| {
            let word = |name: &str| c[name].as_str().unwrap().to_owned();
            format!("[{}] {} ({})\n{}", c["chunk"], word("title"), word("url"), word("text"))
        };
        chunks.map(one).collect::<Vec<_>>().join("\n\n")
    };
    assert!(!shown(1).is_empty() && !shown(2).is_empty());
    let sent = conversation(&[shown(1), "42 degrees".into(), shown(2)]);
    assert_eq!(answer["usage"]["prompt_tokens"], tokens(&app, &sent).await);
    assert_eq!(report["tokens"], context["tokens"]);
    assert!(report["tokens"]["saved"].as_u64() > Some(0));
}

#[tokio::test]
async fn a_conversation_that_goes_on_begins_as_it_did_and_scores_nothing_twice() {
    let app = app().await;
    let searches: Vec<String> = (0..4).map(|i| found(2 * i..2 * i + 2)).collect();
    let asked = json!({"context": "a", "results_per_query": 2});
    let (mut cached, mut counts) = (0, Vec::new());
    for n in 1..=4 {
        let answer = post(&app, CHAT, &body(&conversation(&searches[..n]), &asked)).await.ok();
        let told = answer["qrae"]["searches"].as_array().unwrap();
        let replayed: Vec<bool> = told.iter().map(|s| s["replayed"].as_bool().unwrap()).collect();
        assert_eq!(replayed, [vec![true; n - 1], vec![false]].concat());
        assert_eq!(answer["qrae"]["created"], n == 1);
        let usage = &answer["usage"];
        cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        counts.push(usage["prompt_tokens"].as_u64().unwrap());
    }
    assert_eq!(get(&app, "/v1/contexts/a").await.ok()["updates"], 4);
    // all that was sent before was found again, down to a block
    assert!(cached + 32 > counts[2], "{cached} of {counts:?}");
    // the same once more: nothing is new, and as a stream it is told with the first event
    let again = merged(body(&conversation(&searches), &asked), &json!({"stream": true}));
    let events = post(&app, CHAT, &again).await.events();
    assert_eq!(events[0]["qrae"]["searches"].as_array().unwrap().len(), 4);
    assert!(events[1..].iter().all(|event| event.get("qrae").is_none()));
    assert_eq!(get(&app, "/v1/contexts/a").await.ok()["updates"], 4);
}

#[tokio::test]
async fn a_header_is_enough_and_hermes_answers_are_found() {
    let app = app().await;
    let heads = json!({"heads": HEADS});
    let text = format!("<tool_response>\n{}\n</tool_response>", found(0..6));
    let messages = json!([{"role": "user", "content": "who swims?"}, {"role": "assistant", "content": "s"},
                          {"role": "user", "content": text}]);
    let body = json!({"messages": messages, "max_tokens": 1, "qrae": heads});
    let request =
        Request::post(CHAT).header("content-type", "application/json").header("x-qrae-context", "h");
    let answer = send(&app, request.body(Body::from(body.to_string())).unwrap()).await.ok();
    assert_eq!(
        (&answer["qrae"]["context"], &answer["qrae"]["searches"][0]["message"]),
        (&json!("h"), &json!(2))
    );
    assert_eq!(answer["qrae"]["searches"][0]["admitted"].as_array().unwrap().len(), 3, "three of five");
    // once it is there, the name alone will do: this model has no head set of its own
    let body = json!({"messages": messages, "max_tokens": 1, "qrae": {"context": "h"}});
    assert_eq!(post(&app, CHAT, &body).await.ok()["qrae"]["searches"][0]["replayed"], true);
    let body = json!({"messages": messages, "max_tokens": 1, "qrae": {"context": "new"}});
    post(&app, CHAT, &body).await.refused(404, Some("head_set"));
    // results that would not fit are cut for scoring, and shown whole
    let long = json!([{"text": "long ".repeat(300)}, {"text": "short"}]).to_string();
    let asked = json!({"context": "long", "results_per_query": 2, "deferred": "stubs"});
    let answer = post(&app, CHAT, &self::body(&conversation(&[long]), &asked)).await;
    assert!(
        answer.status == 200 || answer.json()["error"]["code"] == "context_length_exceeded",
        "{}",
        answer.text
    );
    let context = get(&app, "/v1/contexts/long").await.ok();
    assert_eq!(context["updates"], 1);
    // a list in a form of its own
    let own = "DOC 1: fish swims\nDOC 2: bird flies";
    let asked = json!({"context": "own", "results_per_query": 2, "results_pattern": r"DOC \d: (?<text>.*)"});
    let answer = post(&app, CHAT, &self::body(&conversation(&[own.into()]), &asked)).await.ok();
    assert_eq!(answer["qrae"]["searches"][0]["results"], 2);
}

#[tokio::test]
async fn what_is_asked_wrongly_is_named() {
    let app = app().await;
    let messages = conversation(&[found(0..2)]);
    for (qrae, field) in [
        (json!({}), "qrae.context"),
        (json!({"context": "a b"}), "qrae.context"),
        (json!({"context": 7}), "qrae.context"),
        (json!({"context": "a", "deferred": "some"}), "qrae.deferred"),
        (json!({"context": "a", "retention": 2}), "qrae.retention"),
        (json!({"context": "a", "results_per_query": 0}), "qrae.results_per_query"),
        (json!({"context": "a", "results_per_query": 900}), "qrae.results_per_query"),
        (json!({"context": "a", "query": "long ".repeat(3000)}), "qrae.query"),
        (json!({"context": "a", "query": 5}), "qrae.query"),
        (json!({"context": "a", "heads": ["L99H1"]}), "qrae.heads"),
        (json!({"context": "a", "results_pattern": "("}), "qrae.results_pattern"),
        (json!({"context": "a", "results_pattern": "x"}), "qrae.results_pattern"),
        (
            json!({"context": "a", "results_pattern": format!("(?<text>x){}", "y".repeat(5000))}),
            "qrae.results_pattern",
        ),
    ] {
        post(&app, CHAT, &body(&messages, &qrae)).await.refused(400, Some(field));
    }
    for qrae in [json!("a"), json!(7), json!([])] {
        let asked = json!({"messages": messages, "qrae": qrae});
        post(&app, CHAT, &asked).await.refused(400, Some("qrae"));
    }
    get(&app, "/v1/contexts/a").await.refused(404, Some("context"));
    let off = served(model());
    let answer = post(&off, CHAT, &body(&messages, &json!({"context": "a"}))).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (503, &json!("contexts_off")));
    // without the field nothing is managed
    let plain = post(&app, CHAT, &json!({"messages": messages, "max_tokens": 1})).await.ok();
    assert_eq!((plain.get("qrae"), &plain["usage"]["prompt_tokens"]), (None, &tokens(&app, &messages).await));
}
