//! A tiny model with a tokenizer, and a client that calls the router in process.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{HeaderMap, Request, StatusCode},
};
use qrae::{
    http::{AppState, ServerOptions, router},
    hub::ModelFiles,
    service::{LoadOptions, ServedModel, contexts::Contexts, load::ServeError},
    store::{Address, Store},
};
use serde_json::{Value, json};
use tower::ServiceExt;

/// The served name.
pub const MODEL: &str = "tests/tiny";
pub const IM_START: u32 = 269;
pub const IM_END: u32 = 270;
pub const BOS: u32 = 271;

/// Heads that work on the tiny model, for requests that name none would find no head set.
pub const HEADS: [&str; 2] = ["L0H5", "L1H3"];

/// GPT-2's byte alphabet.
fn alphabet() -> Vec<char> {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut others = 256u32..;
    let letter = |b| if printable(b) { u32::from(b) } else { others.next().unwrap() };
    (0..=255).map(letter).map(|code| char::from_u32(code).unwrap()).collect()
}

/// Every byte, some merges, and three control tokens.
pub fn tokenizer_json() -> String {
    let mut vocab: serde_json::Map<String, Value> =
        alphabet().into_iter().zip(0u32..).map(|(c, id)| (c.to_string(), id.into())).collect();
    let merges =
        ["t h", "th e", "Ġ the", "i n", "e r", "o n", "Ġ a", "u s", "us er", "s y", "Ċ Ċ", "Ġ <", "| >"];
    for (merge, id) in merges.iter().zip(256u32..) {
        vocab.insert(merge.replace(' ', ""), id.into());
    }
    let special = |(text, id): (&str, u32)| {
        json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    let added = [("<|im_start|>", IM_START), ("<|im_end|>", IM_END), ("<s>", BOS)].map(special);
    let level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab,
                  "merges": merges},
    })
    .to_string()
}

/// Loads the tiny model; with `bos`, one whose prompts begin with `<s>`.
pub fn load(bos: bool) -> ServedModel {
    load_from(bos, &|_| {}).unwrap()
}

/// The tiny model with a tokenizer that trims what stands around an added token, so that nothing is known of how many
/// tokens a text has before it is tokenised.
pub fn wordy() -> Router {
    let state = AppState::new(&ServerOptions::default());
    let trimming = tokenizer_json().replacen("\"lstrip\":false", "\"lstrip\":true", 1);
    assert!(state.install(load_with(&trimming, false, &|_| {}).unwrap()));
    router(state)
}

fn load_from(bos: bool, change: &dyn Fn(&mut [u8])) -> Result<ServedModel, ServeError> {
    load_with(&tokenizer_json(), bos, change)
}

/// The tiny model, loaded with other options.
pub fn app_loaded(options: LoadOptions) -> Router {
    let trusting = ServerOptions { trust_request_chat_template: true, ..ServerOptions::default() };
    served_with(loaded(options), &trusting)
}

/// The tiny model, loaded with other options.
pub fn loaded(options: LoadOptions) -> ServedModel {
    loaded_as(LoadOptions { served_name: Some(MODEL.into()), ..options })
}

/// The same under the name that the options say.
pub fn loaded_as(options: LoadOptions) -> ServedModel {
    let options = LoadOptions { threads: Some(1), ..options };
    load_as(&tokenizer_json(), false, &|_| {}, &options).unwrap()
}

fn load_with(tokenizer: &str, bos: bool, change: &dyn Fn(&mut [u8])) -> Result<ServedModel, ServeError> {
    load_with_heads(tokenizer, bos, None, change)
}

fn load_with_heads(
    tokenizer: &str,
    bos: bool,
    head_set: Option<PathBuf>,
    change: &dyn Fn(&mut [u8]),
) -> Result<ServedModel, ServeError> {
    let served_name = Some(MODEL.into());
    let options = LoadOptions { served_name, head_set, threads: Some(1), ..LoadOptions::default() };
    load_as(tokenizer, bos, change, &options)
}

fn load_as(
    tokenizer: &str,
    bos: bool,
    change: &dyn Fn(&mut [u8]),
    options: &LoadOptions,
) -> Result<ServedModel, ServeError> {
    let dir = tempfile::tempdir().unwrap();
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/qwen3");
    fs::copy(golden.join("config.json"), dir.path().join("config.json")).unwrap();
    let mut weights = fs::read(golden.join("model.safetensors")).unwrap();
    change(&mut weights);
    fs::write(dir.path().join("model.safetensors"), weights).unwrap();
    fs::write(dir.path().join("tokenizer.json"), tokenizer).unwrap();
    let config = json!({"bos_token": "<s>", "eos_token": "<|im_end|>", "add_bos_token": bos});
    fs::write(dir.path().join("tokenizer_config.json"), config.to_string()).unwrap();
    ServedModel::load(&ModelFiles::Folder(dir.path().into()), None, options)
}

/// One model for all tests: they run in one process.
pub fn model() -> ServedModel {
    static MODEL: OnceLock<ServedModel> = OnceLock::new();
    MODEL.get_or_init(|| load(false)).clone()
}

pub fn app_with(options: &ServerOptions) -> Router {
    served_with(model(), options)
}

/// A server of this model, open to all.
pub fn served(model: ServedModel) -> Router {
    served_with(model, &ServerOptions::default())
}

/// A server of this model.
pub fn served_with(model: ServedModel, options: &ServerOptions) -> Router {
    let state = AppState::new(options);
    assert!(state.install(model));
    router(state)
}

/// A server of this model that keeps contexts there.
pub async fn with_contexts(model: ServedModel, options: &ServerOptions, place: &Address) -> Router {
    let state = AppState::new(options);
    assert!(state.install(model));
    assert!(state.keep_contexts(Contexts::new(Store::open(place).await.unwrap())));
    router(state)
}

/// The tiny model with a head set from a file, or why it is not loaded with it.
pub fn load_heads(file: &Path) -> Result<ServedModel, ServeError> {
    load_with_heads(&tokenizer_json(), false, Some(file.into()), &|_| {})
}

/// The tiny model with a head set from a file.
pub fn app_with_heads(file: &Path) -> Router {
    served(load_heads(file).unwrap())
}

/// Open to all and trusting.
pub fn app() -> Router {
    app_with(&ServerOptions { trust_request_chat_template: true, ..ServerOptions::default() })
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// Checks the status and gives the body.
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()
    }

    /// The message of a refusal, whose status and field are checked.
    pub fn refused(&self, status: u16, param: Option<&str>) -> String {
        assert_eq!(self.status, status, "{}", self.text);
        let error = self.json()["error"].take();
        assert_eq!(error["param"].as_str(), param, "{error}");
        error["message"].as_str().unwrap().to_owned()
    }

    /// The data of every event; the last must be `[DONE]`.
    pub fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text);
        assert_eq!(self.headers["content-type"], "text/event-stream");
        let mut data: Vec<&str> = self.text.split("\n\n").filter(|e| !e.is_empty()).collect();
        assert!(self.text.ends_with("\n\n"));
        assert_eq!(data.pop(), Some("data: [DONE]"), "{}", self.text);
        let value = |e: &str| serde_json::from_str(e.strip_prefix("data: ").unwrap()).unwrap();
        data.into_iter().map(value).collect()
    }
}

pub async fn send(app: &Router, request: Request<Body>) -> Answer {
    let response = app.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    Answer { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
}

pub async fn post(app: &Router, path: &str, body: &Value) -> Answer {
    raw(app, path, body.to_string().into_bytes()).await
}

pub async fn raw(app: &Router, path: &str, body: Vec<u8>) -> Answer {
    let request = Request::post(path).header("content-type", "application/json");
    send(app, request.body(Body::from(body)).unwrap()).await
}

pub async fn delete(app: &Router, path: &str) -> Answer {
    send(app, Request::delete(path).body(Body::empty()).unwrap()).await
}

pub async fn get(app: &Router, path: &str) -> Answer {
    send(app, Request::get(path).body(Body::empty()).unwrap()).await
}

pub const CHAT: &str = "/v1/chat/completions";
pub const COMPLETIONS: &str = "/v1/completions";
pub const CONTEXTS: &str = "/v1/contexts";
pub const SCORE: &str = "/v1/qrae/score";

/// Waits for something that must come soon.
pub async fn soon(what: &str, mut is: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if is() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("{what}: never");
}

/// A chat request; `more` is merged in.
pub fn chat(content: &str, more: &Value) -> Value {
    merged(
        json!({"messages": [{"role": "user", "content": content}], "max_tokens": 12, "temperature": 0}),
        more,
    )
}

pub fn merged(mut base: Value, more: &Value) -> Value {
    base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    base
}

/// The texts of all choices of a stream, each choice's last finish reason, and the usage event, checking the order of
/// things on the way.
pub fn assemble(events: &[Value], n: usize) -> (Vec<String>, Vec<String>) {
    let mut texts = vec![String::new(); n];
    let mut finishes = vec![String::new(); n];
    for event in events {
        for choice in event["choices"].as_array().unwrap() {
            let index = choice["index"].as_u64().unwrap() as usize;
            assert!(finishes[index].is_empty(), "a piece after the last: {choice}");
            let text = choice["delta"]["content"].as_str().or(choice["text"].as_str()).unwrap();
            texts[index] += text;
            if let Some(reason) = choice["finish_reason"].as_str() {
                finishes[index] = reason.into();
            }
        }
    }
    (texts, finishes)
}

/// The value with what differs from run to run, or hangs on the last bits of floats, replaced by its field's name.
pub fn masked(mut value: Value) -> Value {
    const DIFFER: [&str; 18] = [
        "id",
        "created",
        "prompt_hash",
        "cached_tokens",
        "computed_tokens",
        "shared_tokens",
        "score",
        "mass",
        "logprob",
        "token",
        "bytes",
        "token_logprobs",
        "top_logprobs",
        "tokens",
        "text",
        "text_offset",
        "tokenize_ms",
        "queue_ms",
    ];
    match &mut value {
        Value::Array(items) => items.iter_mut().for_each(|item| *item = masked(item.take())),
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                let text = key == "content" && value.is_string();
                let list = key == "top_logprobs" && value[0].get("logprob").is_some();
                let mask = DIFFER.contains(&key.as_str()) && !list || text || key.ends_with("_ms");
                *value = if mask { format!("[{key}]").into() } else { masked(value.take()) };
            }
        }
        _ => {}
    }
    value
}

/// Loads the tiny model with a final norm of the largest numbers, so that every token's logits overflow and it fails.
pub fn broken() -> ServedModel {
    load_from(false, &|weights| fill_norm(weights, f32::MAX)).unwrap()
}

/// What is said of the tiny model with a norm that is not a number.
pub fn damaged() -> String {
    load_from(false, &|weights| fill_norm(weights, f32::NAN)).err().unwrap().to_string()
}

fn fill_norm(weights: &mut [u8], value: f32) {
    let header = 8 + u64::from_le_bytes(weights[..8].try_into().unwrap()) as usize;
    let json: Value = serde_json::from_slice(&weights[8..header]).unwrap();
    let norm = &json["model.norm.weight"];
    let at = |i: usize| header + norm["data_offsets"][i].as_u64().unwrap() as usize;
    assert_eq!(norm["dtype"], "BF16");
    let upper = (value.to_bits() >> 16) as u16;
    weights[at(0)..at(1)].as_chunks_mut().0.iter_mut().for_each(|to| *to = upper.to_le_bytes());
}
