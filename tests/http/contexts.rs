//! Contexts over HTTP: what an agent sends, what is kept, and that nobody sees another's.

use axum::{Router, body::Body, http::Request};
use qrae::{
    context::{Context, Event, Record},
    http::ServerOptions,
    service::{LoadOptions, ServedModel},
    store::Address,
};
use serde_json::{Value, json};

use crate::support::*;

async fn keeping(place: &Address) -> Router {
    with_contexts(model(), &ServerOptions::default(), place).await
}

async fn app() -> Router {
    keeping(&Address::Memory).await
}

/// A new context with B = 2.
async fn make(app: &Router, id: &str, more: &Value) {
    let base = json!({"id": id, "query": "who swims?", "results_per_query": 2, "heads": HEADS});
    post(app, CONTEXTS, &merged(base, more)).await.ok();
}

fn chunks(range: std::ops::Range<usize>) -> Value {
    let one = |i| json!({"url": format!("http://x/{i}"), "title": format!("page {i}"), "text": format!("fish number {i} swims in the sea")});
    range.map(one).collect()
}

async fn results(app: &Router, id: &str, body: &Value) -> Answer {
    post(app, &format!("{CONTEXTS}/{id}/results"), body).await
}

async fn search(app: &Router, id: &str, update: &str, found: &Value) -> Value {
    results(app, id, &json!({"update_id": update, "results": found})).await.ok()
}

async fn read(app: &Router, id: &str) -> Value {
    get(app, &format!("{CONTEXTS}/{id}")).await.ok()
}

fn numbers(list: &Value) -> Vec<u64> {
    let number = |v: &Value| v.as_u64().or_else(|| v["chunk"].as_u64()).unwrap();
    list.as_array().unwrap().iter().map(number).collect()
}

#[tokio::test]
async fn results_are_scored_admitted_and_told() {
    let app = app().await;
    make(&app, "a", &json!({})).await;
    let first = search(&app, "a", "one", &chunks(0..1)).await;
    assert_eq!((&first["update"], &first["groups"][0]["waits"]), (&json!(1), &json!(true)));
    assert_eq!(first["whitelist"], json!([]));
    assert_eq!(numbers(&first["deferred"]), [1]);

    let second = search(&app, "a", "two", &chunks(0..3)).await;
    let group = &second["groups"][0];
    assert_eq!(
        group["results"],
        json!([{"chunk": 1, "new": false}, {"chunk": 2, "new": true}, {"chunk": 3, "new": true}])
    );
    assert_eq!(numbers(&group["scores"]), [1, 2], "the first seen of those without a score");
    // the scores are those of the scoring route
    let asked = json!({"query": "who swims?", "chunks": chunks(0..2), "heads": HEADS});
    let scored = post(&app, SCORE, &asked).await.ok();
    for i in 0..2 {
        assert_eq!(group["scores"][i]["score"], scored["results"][i]["score"]);
    }
    let best = if scored["results"][0]["rank"] == 1 { 1 } else { 2 };
    assert_eq!((numbers(&second["admitted"]), numbers(&second["whitelist"])), (vec![best], vec![best]));
    assert_eq!(second["usage"]["prompt_tokens"], scored["usage"]["prompt_tokens"]);
    let texts = chunks(0..3);
    let admitted = &second["whitelist"][0];
    for field in ["text", "url", "title"] {
        assert_eq!(admitted[field], texts[best as usize - 1][field]);
    }
    // the tokens that an agent would have read without it, those it reads, and what is saved
    let of = |i: usize| scored["results"][i]["tokens"].as_u64().unwrap();
    let tokens = &second["tokens"];
    let read_now = admitted["tokens"].as_u64().unwrap();
    assert_eq!(read_now, of(best as usize - 1));
    let brought = tokens["results"].as_u64().unwrap();
    assert!(brought > 2 * of(0) + of(1), "the first result came twice");
    assert_eq!(tokens["whitelist"], read_now);
    assert_eq!(tokens["saved"], brought - read_now);

    let state = read(&app, "a").await;
    assert_eq!(state["whitelist"], second["whitelist"]);
    assert_eq!(state["tokens"], second["tokens"]);
    assert_eq!(state["cache"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&state["updates"], &state["retention"], &state["mode"]),
        (&json!(2), &json!(0.5), &json!("manager"))
    );
}

#[tokio::test]
async fn the_log_replays_to_the_state_and_is_read_in_parts() {
    let app = app().await;
    make(&app, "a", &json!({})).await;
    for i in 0..5 {
        search(&app, "a", &format!("u{i}"), &chunks(i..i + 3)).await;
    }
    let (mut all, mut next) = (Vec::new(), 0);
    loop {
        let part = get(&app, &format!("{CONTEXTS}/a/events?after={next}&limit=7")).await.ok();
        let data = part["data"].as_array().unwrap();
        assert!(data.len() <= 7);
        for event in data {
            assert_eq!(event["number"], all.len());
            all.push(event.clone());
        }
        next = part["next"].as_i64().unwrap();
        if part["has_more"] == json!(false) {
            break;
        }
        assert_eq!(data.len(), 7);
    }
    let export = get(&app, &format!("{CONTEXTS}/a/export")).await.ok();
    assert_eq!(export["events"], json!(all));
    assert_eq!((&export["format"], export["costs"].as_array().unwrap().len()), (&json!(1), 5));
    let event = |stored: &Value| -> Event {
        let mut record = stored.clone();
        for beside in ["number", "at"] {
            record.as_object_mut().unwrap().shift_remove(beside).unwrap();
        }
        serde_json::from_value::<Record>(record).unwrap().event
    };
    let events: Vec<Event> = all.iter().map(event).collect();
    let replayed = Context::replay(&events).unwrap();
    let state = read(&app, "a").await;
    let whitelist: Vec<u64> = replayed.state().whitelist().map(|a| a.candidate.id.0).collect();
    assert_eq!(whitelist, numbers(&state["whitelist"]));
    let cache: Vec<u64> = replayed.state().cache().map(|c| c.id.0).collect();
    assert_eq!(cache, numbers(&state["cache"]));
    let past = get(&app, &format!("{CONTEXTS}/a/events?after=100000")).await.ok();
    assert_eq!((&past["data"], &past["has_more"]), (&json!([]), &json!(false)));
}

#[tokio::test]
async fn a_retry_gets_the_same_answer_and_changes_nothing() {
    let app = app().await;
    make(&app, "a", &json!({})).await;
    search(&app, "a", "one", &chunks(0..2)).await;
    let second = search(&app, "a", "two", &chunks(2..4)).await;
    search(&app, "a", "three", &chunks(4..6)).await;
    let before = read(&app, "a").await;
    let again = search(&app, "a", "two", &chunks(2..4)).await;
    assert_eq!((&second["replayed"], &again["replayed"]), (&json!(false), &json!(true)));
    assert_eq!(again["usage"]["computed_tokens"], 0);
    for field in ["update", "update_id", "groups", "admitted", "deferred", "whitelist", "tokens"] {
        if field != "deferred" {
            assert_eq!(second[field], again[field], "{field}");
        }
    }
    assert_eq!(numbers(&second["deferred"]), numbers(&again["deferred"]));
    let other = results(&app, "a", &json!({"update_id": "two", "results": chunks(2..5)})).await;
    let message = other.refused(409, Some("update_id"));
    assert!(message.contains("other content"), "{message}");
    assert_eq!(read(&app, "a").await, before);
}

#[tokio::test]
async fn several_queries_of_one_search_are_worked_through_in_order() {
    let app = app().await;
    make(&app, "a", &json!({})).await;
    let groups = json!([{"search": "x", "results": chunks(0..2)}, {"results": []}, {"search": "y", "results": chunks(1..4)}]);
    let answer = results(&app, "a", &json!({"groups": groups, "query": "what is in the sea?"})).await.ok();
    let groups = answer["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 3);
    assert_eq!(groups[1]["waits"], true, "one chunk is left in the cache");
    assert!(numbers(&groups[2]["scores"]).len() == 2 && answer["whitelist"].as_array().unwrap().len() == 2);
    let empty = json!(vec![json!({"results": []}); 65]);
    results(&app, "a", &json!({"groups": empty})).await.refused(400, Some("groups"));
    // the ablation forgets
    make(&app, "b", &json!({"mode": "current_search"})).await;
    let answer = search(&app, "b", "one", &chunks(0..3)).await;
    assert_eq!(answer["groups"][0]["forgotten"].as_array().unwrap().len(), 2);
    assert_eq!(read(&app, "b").await["cache"], json!([]));
}

#[tokio::test]
async fn what_is_wrong_is_named_and_leaves_no_trace() {
    let app = app().await;
    make(&app, "a", &json!({})).await;
    let before = read(&app, "a").await;
    let base = json!({"query": "q", "heads": HEADS});
    for (more, field) in [
        (json!({"query": null}), "query"),
        (json!({"query": 7}), "query"),
        (json!({"query": "x".repeat(100_000)}), "query"),
        (json!({"results_per_query": 0}), "results_per_query"),
        (json!({"results_per_query": 999}), "results_per_query"),
        (json!({"results_per_query": 10_000_000_000_u64}), "results_per_query"),
        (json!({"retention": 0}), "retention"),
        (json!({"retention": 1.5}), "retention"),
        (json!({"retention": "half"}), "retention"),
        (json!({"mode": "best"}), "mode"),
        (json!({"id": ""}), "id"),
        (json!({"id": "a/b"}), "id"),
        (json!({"id": "x".repeat(129)}), "id"),
        (json!({"expires_in": 0}), "expires_in"),
        (json!({"heads": ["L99H0"]}), "heads"),
        (json!({"max_tokens_per_chunk": 0}), "max_tokens_per_chunk"),
    ] {
        post(&app, CONTEXTS, &merged(base.clone(), &more)).await.refused(400, Some(field));
    }
    post(&app, CONTEXTS, &merged(base.clone(), &json!({"id": "a"}))).await.refused(409, Some("id"));
    post(&app, CONTEXTS, &json!({"query": "q"})).await.refused(404, Some("head_set"));
    post(&app, CONTEXTS, &merged(base, &json!({"model": "other"}))).await.refused(404, Some("model"));
    for (body, field) in [
        (json!({}), "results"),
        (json!({"results": [], "groups": []}), "results"),
        (json!({"results": ["a", 7]}), "results[1]"),
        (json!({"results": [{"url": "x"}]}), "results[0]"),
        (json!({"groups": [{"results": ["a"]}, {}]}), "groups[1]"),
        (json!({"results": [], "update_id": ""}), "update_id"),
        (json!({"results": [], "update_id": "x".repeat(129)}), "update_id"),
        (json!({"results": ["short", "long ".repeat(500)]}), "results[1]"),
        (json!({"groups": [{"results": []}, {"results": ["long ".repeat(500)]}]}), "groups[1].results[0]"),
        (json!({"results": ["a", "b"], "query": "long ".repeat(2000)}), "query"),
        (json!({"results": ["a", "b"], "query": 7}), "query"),
    ] {
        results(&app, "a", &body).await.refused(400, Some(field));
    }
    let long = json!({"results": ["long ".repeat(500)]});
    let message = results(&app, "a", &long).await.refused(400, Some("results[0]"));
    assert!(message.contains("max_tokens_per_chunk"), "{message}");
    for (part, field) in
        [("after=%00", "after"), ("after=a/b", "after"), ("limit=x", "limit"), ("limit=", "limit")]
    {
        get(&app, &format!("{CONTEXTS}?{part}")).await.refused(400, Some(field));
    }
    for path in ["events?limit=0", "events?limit=5000", "events?after=x", "events?after=-1"] {
        let answer = get(&app, &format!("{CONTEXTS}/a/{path}")).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text);
    }
    get(&app, "/v1/contexts/none").await.refused(404, Some("context"));
    get(&app, "/v1/contexts/%20").await.refused(400, Some("context"));
    assert_eq!(read(&app, "a").await, before);
    // what is cut is taken
    make(&app, "cut", &json!({"max_tokens_per_chunk": 20})).await;
    results(&app, "cut", &long).await.ok();
    results(&app, "cut", &json!({"results": chunks(0..2)})).await.ok();
}

#[tokio::test]
async fn a_context_is_its_keys_alone() {
    let options = ServerOptions { api_keys: vec!["one".into(), "two".into()], ..ServerOptions::default() };
    let app = with_contexts(model(), &options, &Address::Memory).await;
    let ask = async |key: &str, method: &str, path: &str, body: &Value| {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.header("authorization", format!("Bearer {key}"));
        send(&app, request.body(Body::from(body.to_string())).unwrap()).await
    };
    let new = json!({"id": "a", "query": "q", "heads": HEADS});
    ask("one", "POST", CONTEXTS, &new).await.ok();
    for (method, path) in [
        ("GET", "a"),
        ("DELETE", "a"),
        ("POST", "a/results"),
        ("GET", "a/events"),
        ("GET", "a/export"),
        ("POST", "a/fork"),
    ] {
        let answer = ask("two", method, &format!("{CONTEXTS}/{path}"), &json!({"results": []})).await;
        answer.refused(404, Some("context"));
        assert_eq!(ask("", method, &format!("{CONTEXTS}/{path}"), &json!({})).await.status, 401);
    }
    let list = async |key: &str| ask(key, "GET", CONTEXTS, &json!({})).await.ok()["data"].clone();
    assert_eq!(list("two").await, json!([]));
    assert_eq!(list("one").await[0]["id"], "a");
    ask("two", "POST", CONTEXTS, &new).await.ok();
    ask("one", "DELETE", "/v1/contexts/a", &json!({})).await.ok();
    assert_eq!((list("one").await, list("two").await[0]["id"].clone()), (json!([]), json!("a")));
}

#[tokio::test]
async fn a_fork_goes_its_own_way_and_a_deleted_name_starts_anew() {
    let app = app().await;
    make(&app, "a", &json!({})).await;
    for i in 0..4 {
        search(&app, "a", &format!("u{i}"), &chunks(2 * i..2 * i + 2)).await;
    }
    let original = read(&app, "a").await;
    let fork = async |body: Value| post(&app, "/v1/contexts/a/fork", &body).await;
    let same = fork(json!({"id": "same"})).await.ok();
    let half = fork(json!({"id": "half", "after_update": 2})).await.ok();
    let none = fork(json!({"after_update": 0, "expires_in": 60})).await.ok();
    assert_eq!((&same["whitelist"], &same["tokens"]), (&original["whitelist"], &original["tokens"]));
    assert_eq!((&half["updates"], &none["updates"]), (&json!(2), &json!(0)));
    assert!(none["id"].as_str().unwrap().starts_with("ctx-") && none["expires"].is_number());
    // it goes on as the original did
    for i in 2..4 {
        search(&app, "half", &format!("u{i}"), &chunks(2 * i..2 * i + 2)).await;
    }
    assert_eq!(read(&app, "half").await["whitelist"], original["whitelist"]);
    fork(json!({"after_update": 5})).await.refused(400, Some("after_update"));
    fork(json!({"id": "same"})).await.refused(409, Some("id"));
    assert_eq!(read(&app, "a").await, original);

    let gone = delete(&app, "/v1/contexts/a").await.ok();
    assert_eq!(gone, json!({"id": "a", "object": "qrae.context", "deleted": true}));
    delete(&app, "/v1/contexts/a").await.refused(404, Some("context"));
    results(&app, "a", &json!({"results": []})).await.refused(404, Some("context"));
    make(&app, "a", &json!({})).await;
    assert_eq!(search(&app, "a", "u0", &chunks(0..1)).await["update"], 1);
    make(&app, "short", &json!({"expires_in": 1})).await;
    tokio::time::sleep(std::time::Duration::from_millis(2100)).await;
    get(&app, "/v1/contexts/short").await.refused(404, Some("context"));
    let listed = get(&app, "/v1/contexts?limit=2").await.ok();
    assert_eq!((listed["data"].as_array().unwrap().len(), &listed["has_more"]), (2, &json!(true)));
}

#[tokio::test]
async fn updates_of_one_context_follow_each_other_also_from_several_servers() {
    let folder = tempfile::tempdir().unwrap();
    let place = Address::File(folder.path().join("contexts.sqlite"));
    let servers = [keeping(&place).await, keeping(&place).await];
    make(&servers[0], "a", &json!({})).await;
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..12_usize {
        let app = servers[i % 2].clone();
        tasks.spawn(async move {
            search(&app, "a", &format!("u{i}"), &chunks(2 * i..2 * i + 2)).await["update"].as_u64().unwrap()
        });
    }
    let mut numbers = tasks.join_all().await;
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=12).collect::<Vec<_>>());
    let state = read(&servers[0], "a").await;
    assert_eq!(state, read(&servers[1], "a").await);
    assert_eq!(state["whitelist"].as_array().unwrap().len(), 12);
    // one deletes and makes anew what the other has in memory
    delete(&servers[0], "/v1/contexts/a").await.ok();
    make(&servers[0], "a", &json!({"query": "anew?"})).await;
    assert_eq!(read(&servers[1], "a").await["query"], "anew?");
    assert_eq!(search(&servers[1], "a", "u0", &chunks(0..2)).await["update"], 1);
    // and after all of them are gone
    drop(servers);
    assert_eq!(read(&keeping(&place).await, "a").await["updates"], 1);
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_the_context_as_it_was() {
    let app = app().await;
    make(&app, "a", &json!({})).await;
    search(&app, "a", "one", &chunks(0..2)).await;
    let before = read(&app, "a").await;
    for wait in 0..12_u32 {
        let body = json!({"update_id": "gone", "results": chunks(2..4)});
        let update = results(&app, "a", &body);
        let given_up =
            tokio::time::timeout(std::time::Duration::from_micros(u64::from(wait) * 300), update).await;
        if given_up.is_ok() {
            break;
        }
        let now = read(&app, "a").await;
        assert!(now == before || now["updates"] == 2, "whole or not at all");
    }
    // whatever became of it, sending it again brings it in once
    search(&app, "a", "gone", &chunks(2..4)).await;
    assert_eq!(read(&app, "a").await["updates"], 2);
}

#[tokio::test]
async fn a_server_without_contexts_or_with_another_model_says_so() {
    let none = served(model());
    assert_eq!(get(&none, CONTEXTS).await.status, 503);
    assert_eq!(get(&none, CONTEXTS).await.json()["error"]["code"], "contexts_off");
    let folder = tempfile::tempdir().unwrap();
    let place = Address::File(folder.path().join("contexts.sqlite"));
    make(&keeping(&place).await, "a", &json!({})).await;
    let named = LoadOptions { served_name: Some("other".into()), ..LoadOptions::default() };
    let other: ServedModel = loaded_as(named);
    let other = with_contexts(other, &ServerOptions::default(), &place).await;
    let message = results(&other, "a", &json!({"results": ["x"]})).await.refused(409, Some("context"));
    assert!(message.contains(MODEL) && message.contains("other"), "{message}");
    assert_eq!(read(&other, "a").await["model"], MODEL);
}
