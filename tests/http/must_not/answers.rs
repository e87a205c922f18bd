//! Answers of a model that says what a script says: whole characters, stops, ends, and raw text where it is wanted raw.

use axum::Router;
use qrae::service::{
    LoadOptions,
    generate::{ReasoningParser, ToolFormat, ToolParser},
};
use serde_json::{Value, json};

use super::house::scripted;
use crate::support::*;

/// The same request on both routes.
fn both(more: &Value) -> [(&'static str, Value); 2] {
    [
        (CHAT, merged(json!({"messages": [{"role": "user", "content": "say it"}]}), more)),
        (COMPLETIONS, merged(json!({"prompt": "say it"}), more)),
    ]
}

/// The text of a whole answer, why it ended, and what it was asked to stop at.
async fn whole(app: &Router, path: &str, body: &Value) -> (String, String, Value) {
    let choice = post(app, path, body).await.ok()["choices"][0].take();
    let text = choice["message"]["content"].as_str().or(choice["text"].as_str()).unwrap();
    (text.to_owned(), choice["finish_reason"].as_str().unwrap().to_owned(), choice["stop_reason"].clone())
}

/// The pieces of a stream, and the same of the end.
async fn streamed(app: &Router, path: &str, body: &Value) -> (Vec<String>, String, Value) {
    let events = post(app, path, &merged(body.clone(), &json!({"stream": true}))).await.events();
    let choices: Vec<&Value> = events.iter().map(|event| &event["choices"][0]).collect();
    let text =
        |choice: &&Value| choice["delta"]["content"].as_str().or(choice["text"].as_str()).unwrap().to_owned();
    let (last, others) = choices.split_last().unwrap();
    assert!(others.iter().all(|choice| choice["finish_reason"].is_null()), "{events:?}");
    let reason = last["finish_reason"].as_str().unwrap().to_owned();
    (choices.iter().map(text).collect(), reason, last["stop_reason"].clone())
}

#[tokio::test]
async fn m13_no_character_is_split_and_a_stream_says_what_the_whole_answer_says() {
    let said = "日本語 👩‍👧 e\u{301}\r\nעב \u{10ffff}.";
    let app = scripted(said, LoadOptions::default());
    for (path, body) in both(&json!({})) {
        let (pieces, reason, _) = streamed(&app, path, &body).await;
        assert_eq!((pieces.concat().as_str(), reason.as_str()), (said, "stop"));
        assert!(
            pieces.iter().filter(|piece| !piece.is_empty()).count() >= said.chars().count(),
            "as they come: {pieces:?}"
        );
        assert_eq!(whole(&app, path, &body).await.0, said);
        // cut anywhere, all whole characters are there, and nothing but the last piece tells of a part of one
        for most in 1..=said.len() {
            let body = merged(body.clone(), &json!({"max_tokens": most}));
            let (pieces, reason, _) = streamed(&app, path, &body).await;
            assert_eq!((pieces.concat(), reason.as_str()), (whole(&app, path, &body).await.0, "length"));
            let complete = said.floor_char_boundary(most);
            let text = pieces.concat();
            let rest =
                text.strip_prefix(&said[..complete]).unwrap_or_else(|| panic!("{text:?} of {most} tokens"));
            assert!(
                rest.chars().all(|c| c == '\u{fffd}') && rest.is_empty() == (complete == most),
                "{rest:?}"
            );
            assert!(pieces.iter().rev().skip(1).all(|piece| !piece.contains('\u{fffd}')), "{pieces:?}");
        }
    }
}

#[tokio::test]
async fn m13_a_stop_string_is_found_across_tokens_and_nothing_of_it_is_told() {
    let said = "aab aabaab 日本日語\n<tool_response>no";
    let app = scripted(said, LoadOptions::default());
    let starts: Vec<usize> = said.char_indices().map(|(at, _)| at).collect();
    let cut = |start: usize, chars: usize| said[start..].chars().take(chars).collect::<String>();
    let of_text = starts.iter().flat_map(|&start| [1, 2, 4, 7].map(|chars| cut(start, chars)));
    let mut stops: Vec<Vec<String>> = of_text.map(|stop| vec!["never".to_owned(), stop]).collect();
    stops.push(["\n<tool_response>", "<tool_response>"].map(str::to_owned).to_vec());
    for stops in stops {
        // of several, the one that is complete first
        let stop = stops
            .iter()
            .filter(|s| said.contains(*s))
            .min_by_key(|s| said.find(*s).unwrap() + s.len())
            .unwrap();
        let longest = stops
            .iter()
            .filter(|s| s.ends_with(stop.as_str()) && said.contains(*s))
            .max_by_key(|s| s.len())
            .unwrap();
        let want = &said[..said.find(longest).unwrap()];
        for (path, body) in both(&json!({"stop": stops})) {
            let (text, reason, found) = whole(&app, path, &body).await;
            assert_eq!(
                (text.as_str(), reason.as_str(), &found),
                (want, "stop", &json!(longest)),
                "{stops:?}"
            );
            let (pieces, reason, found) = streamed(&app, path, &body).await;
            assert_eq!(
                (pieces.concat().as_str(), reason.as_str(), &found),
                (want, "stop", &json!(longest)),
                "{stops:?}"
            );
        }
    }
    // one that only begins at the answer's end is text
    for (path, body) in both(&json!({"stop": ["no!", "<tool_response>now"]})) {
        assert_eq!(streamed(&app, path, &body).await.0.concat(), said);
        assert_eq!(whole(&app, path, &body).await, (said.to_owned(), "stop".to_owned(), Value::Null));
    }
}

#[tokio::test]
async fn m13_the_finish_reason_and_the_usage_are_those_of_what_happened() {
    let said = "it is so";
    let app = scripted(said, LoadOptions::default());
    for (more, text, reason, made) in [
        (json!({}), said, "stop", 9),
        (json!({"max_tokens": 9}), said, "stop", 9),
        (json!({"max_tokens": 8}), said, "length", 8),
        (json!({"max_tokens": 3}), "it ", "length", 3),
        (json!({"max_tokens": 20, "ignore_eos": true}), said, "length", 20),
        (json!({"stop": "is"}), "it ", "stop", 5),
        (json!({"stop": "so", "max_tokens": 8}), "it is ", "stop", 8),
        (json!({"stop_token_ids": [u32::from(b's')]}), "it i", "stop", 5),
    ] {
        for (path, body) in both(&more) {
            let answer = post(&app, path, &body).await.ok();
            assert_eq!(answer["usage"]["completion_tokens"], made, "{more}");
            let (told, because, _) = whole(&app, path, &body).await;
            assert_eq!((told.as_str(), because.as_str()), (text, reason), "{more}");
            let (pieces, because, _) = streamed(&app, path, &body).await;
            assert_eq!((pieces.concat().as_str(), because.as_str()), (text, reason), "{more}");
        }
    }
}

#[tokio::test]
async fn m13_a_stream_ends_with_done_and_tells_usage_only_when_asked() {
    let app = scripted("it is so", LoadOptions::default());
    for options in [
        json!({}),
        json!({"stream_options": null}),
        json!({"stream_options": {}}),
        json!({"stream_options": {"include_usage": false}}),
        json!({"stream_options": {"include_usage": null}}),
    ] {
        for (path, body) in both(&merged(options, &json!({"stream": true}))) {
            let answer = post(&app, path, &body).await;
            assert_eq!(answer.text.matches("[DONE]").count(), 1);
            for event in answer.events() {
                assert!(event.get("usage").is_none(), "{event}");
                assert_eq!(event["choices"].as_array().unwrap().len(), 1, "{event}");
            }
        }
    }
    for (path, body) in both(&json!({"stream": true, "stream_options": {"include_usage": true}})) {
        let events = post(&app, path, &body).await.events();
        let (usage, others) = events.split_last().unwrap();
        assert_eq!((&usage["choices"], &usage["usage"]["completion_tokens"]), (&json!([]), &json!(9)));
        assert!(
            others
                .iter()
                .all(|event| event["usage"].is_null() && event["choices"].as_array().unwrap().len() == 1)
        );
    }
}

fn look() -> Value {
    let at = json!({"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]});
    json!([{"type": "function", "function": {"name": "look", "parameters": at}}])
}

const CALL: &str =
    "Now:\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"</tool_call> {}\"}}\n</tool_call>";

#[tokio::test]
async fn m14_answers_are_raw_text_unless_tools_are_sent() {
    let options = |tool_parser| LoadOptions { tool_parser, ..LoadOptions::default() };
    let hermes = scripted(CALL, options(ToolParser::Format(ToolFormat::Hermes)));
    let off = scripted(CALL, options(ToolParser::Off));
    let with_tools = json!({"tools": look()});
    for (app, more) in [
        (&hermes, json!({})),
        (&hermes, json!({"tools": null})),
        (&hermes, json!({"tools": []})),
        (&hermes, json!({"tool_choice": "none", "tools": look()})),
        (&off, json!({})),
        (&off, with_tools.clone()),
    ] {
        for (path, body) in both(&more) {
            assert_eq!(
                whole(app, path, &body).await,
                (CALL.to_owned(), "stop".to_owned(), Value::Null),
                "{more}"
            );
            assert_eq!(streamed(app, path, &body).await.0.concat(), CALL, "{more}");
            assert!(!post(app, path, &body).await.text.contains("tool_calls"), "{more}");
        }
    }
    let [(_, body), _] = both(&with_tools);
    let choice = post(&hermes, CHAT, &body).await.ok()["choices"][0].take();
    assert_eq!(
        (&choice["message"]["content"], &choice["finish_reason"]),
        (&json!("Now:"), &json!("tool_calls"))
    );
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["name"], "look");
}

#[tokio::test]
async fn m14_reasoning_stays_in_the_text_unless_the_server_reads_it() {
    let said = "<think>\nhm, </think>yes";
    let raw = scripted(said, LoadOptions::default());
    for (path, body) in both(&json!({})) {
        assert_eq!(whole(&raw, path, &body).await.0, said);
        assert_eq!(streamed(&raw, path, &body).await.0.concat(), said);
    }
    let reader = LoadOptions { reasoning_parser: ReasoningParser::Think, ..LoadOptions::default() };
    let [(_, chat), (_, completion)] = both(&json!({}));
    let told = post(&scripted(said, reader.clone()), CHAT, &chat).await.ok()["choices"][0]["message"].take();
    assert_eq!((&told["content"], &told["reasoning"]), (&json!("yes"), &json!("\nhm, ")));
    let plain = scripted(said, reader);
    assert_eq!(whole(&plain, COMPLETIONS, &completion).await.0, said, "a completion is text");
}

#[tokio::test]
async fn m14_a_closing_tag_inside_a_json_string_ends_no_call() {
    let app = scripted(
        CALL,
        LoadOptions { tool_parser: ToolParser::Format(ToolFormat::Hermes), ..LoadOptions::default() },
    );
    let [(_, body), _] = both(&json!({"tools": look()}));
    let called = |calls: &Value| {
        assert_eq!(calls.as_array().unwrap().len(), 1, "{calls}");
        serde_json::from_str::<Value>(calls[0]["function"]["arguments"].as_str().unwrap()).unwrap()
    };
    let whole = post(&app, CHAT, &body).await.ok();
    assert_eq!(called(&whole["choices"][0]["message"]["tool_calls"]), json!({"at": "</tool_call> {}"}));
    let events = post(&app, CHAT, &merged(body, &json!({"stream": true}))).await.events();
    let told: Vec<&Value> = events
        .iter()
        .map(|e| &e["choices"][0]["delta"]["tool_calls"])
        .filter(|calls| !calls.is_null())
        .collect();
    assert_eq!(told.len(), 1);
    assert_eq!(called(told[0]), json!({"at": "</tool_call> {}"}));
    let text: String = events.iter().filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "Now:");
}
