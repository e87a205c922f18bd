//! The same surface on a real model, where its file is there; skips loudly.

use std::path::PathBuf;

use qrae::{
    http::{AppState, ServerOptions, router},
    hub::ModelFiles,
    service::{LoadOptions, ServedModel, generate::ChatPrompt},
};
use serde::Deserialize;
use serde_json::json;

use crate::support::*;

const FILE: &str = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";

fn real() -> Option<ServedModel> {
    let dir = std::env::var_os("QRAE_MODELS").map(PathBuf::from);
    let file = dir.or_else(|| Some(dirs::cache_dir()?.join("qrae/models")))?.join(FILE);
    if !file.is_file() {
        eprintln!("SKIPPED: {} is not there; `qrae models pull` fetches it", file.display());
        return None;
    }
    let options = LoadOptions { kv_tokens: Some(8192), ..LoadOptions::default() };
    Some(ServedModel::load(&ModelFiles::Gguf(file), None, &options).unwrap())
}

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    query: String,
    chat_ids: Vec<u32>,
    greedy_64: Vec<u32>,
}

#[tokio::test]
async fn a_real_model_answers_and_scores() {
    let Some(model) = real() else { return };
    let state = AppState::new(&ServerOptions::default());
    assert!(state.install(model));
    let app = router(state);
    let body = json!({"messages": [{"role": "user", "content": "What is the capital of France? Answer in one word."}], "temperature": 0, "max_tokens": 20});
    let answer = post(&app, CHAT, &body).await.ok();
    println!("{answer}");
    assert!(answer["choices"][0]["message"]["content"].as_str().unwrap().contains("Paris"));
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let stream = merged(body, &json!({"stream": true}));
    assert_eq!(
        assemble(&post(&app, CHAT, &stream).await.events(), 1).0[0],
        answer["choices"][0]["message"]["content"]
    );
    let score = json!({
        "query": "Who painted the Mona Lisa?",
        "chunks": [
            {"id": "a", "title": "Photosynthesis", "text": "Plants turn light into chemical energy in their chloroplasts."},
            {"id": "b", "title": "Mona Lisa", "text": "The Mona Lisa is a portrait painted by Leonardo da Vinci around 1503."},
            {"id": "c", "title": "Rust", "text": "Rust is a programming language with a borrow checker."},
        ],
        "heads": ["L16H7", "L14H3"], "statistic": "sum", "control": "null_query", "read": "query_mean",
    });
    let answer = post(&app, SCORE, &score).await.ok();
    println!("{answer}");
    assert!(answer["results"].as_array().unwrap().iter().all(|r| r["score"].as_f64().unwrap().is_finite()));
}

/// The ids of a chat are those of the reference, and so is the text it goes on with.
#[tokio::test]
async fn chats_have_the_reference_ids() {
    let shared = std::env::var_os("QRAE_SHARED").map(PathBuf::from);
    let shared = shared.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"));
    let Ok(text) = std::fs::read_to_string(shared.join("golden/qwen2.5-coder-0.5b.json")) else {
        eprintln!("SKIPPED: the golden file of qwen2.5-coder-0.5b is not there");
        return;
    };
    let Some(model) = real() else { return };
    let golden: Golden = serde_json::from_str(&text).unwrap();
    let state = AppState::new(&ServerOptions::default());
    assert!(state.install(model.clone()));
    let app = router(state);
    for (i, case) in golden.cases.iter().enumerate() {
        let messages = json!([{"role": "user", "content": case.query}]);
        assert_eq!(
            model.chat_tokens(&ChatPrompt::new(messages.clone())).unwrap(),
            case.chat_ids,
            "{}",
            case.id
        );
        if i < 3 {
            let body = json!({"messages": messages, "temperature": 0, "max_tokens": 64});
            let answer = post(&app, CHAT, &body).await.ok();
            let want = model.tokenizer.decode(&case.greedy_64, true);
            assert_eq!(answer["choices"][0]["message"]["content"], want, "{}", case.id);
            assert_eq!(answer["usage"]["completion_tokens"], case.greedy_64.len());
        }
    }
}
