//! `GET /openapi.json`: what the server takes and answers, as OpenAPI 3.1.
//!
//! Fields of requests come from the types that read them (`requests.rs`); answers are described in `openapi/answers.json`,
//! which tests hold against real ones. Owns the list of operations. Knows no model. Tests: `tests/http/openapi.rs`.

mod requests;
pub(super) mod shapes;

use std::sync::LazyLock;

use axum::{http::header, response::IntoResponse};
use serde_json::{Map, Value, json};

/// One operation, at one path or under several names.
struct Operation {
    method: &'static str,
    paths: &'static [&'static str],
    /// One word per path.
    ids: &'static [&'static str],
    tag: &'static str,
    summary: &'static str,
    /// The schema of its body.
    body: Option<&'static str>,
    answer: Answer,
    errors: &'static [u16],
}

/// What a good answer holds.
enum Answer {
    /// JSON of this schema.
    Json(&'static str),
    /// The same, or with `stream` server-sent events.
    Stream(&'static str),
    /// Other text of this type.
    Text(&'static str),
}

const GET_ERRORS: &[u16] = &[400, 401, 503];
const WORK_ERRORS: &[u16] = &[400, 401, 404, 408, 413, 415, 429, 500, 503, 504];
const RERANK_ERRORS: &[u16] = &[400, 401, 404, 408, 413, 415, 422, 424, 429, 500, 503, 504];

const CONTEXT_ERRORS: &[u16] = &[400, 401, 404, 408, 409, 413, 415, 429, 500, 503, 504];
const READ_ERRORS: &[u16] = &[400, 401, 404, 503];

const OPERATIONS: &[Operation] = &[
    Operation {
        method: "post",
        paths: &["/v1/qrae/score"],
        ids: &["score"],
        tag: "Scoring",
        summary: "How much each chunk responds to a question",
        body: Some("ScoreRequest"),
        answer: Answer::Json("ScoreAnswer"),
        errors: WORK_ERRORS,
    },
    Operation {
        method: "post",
        paths: &["/v1/gate"],
        ids: &["gate"],
        tag: "Scoring",
        summary: "Which chunks to show, and which sentences of them",
        body: Some("GateRequest"),
        answer: Answer::Json("GateAnswer"),
        errors: WORK_ERRORS,
    },
    Operation {
        method: "post",
        paths: &["/rerank", "/v1/rerank", "/v2/rerank"],
        ids: &["rerank", "rerankV1", "rerankV2"],
        tag: "Scoring",
        summary: "The same for clients of Cohere, Jina (documents) and text-embeddings-inference (texts)",
        body: Some("RerankRequest"),
        answer: Answer::Json("RerankAnswer"),
        errors: RERANK_ERRORS,
    },
    Operation {
        method: "post",
        paths: &["/v1/contexts"],
        ids: &["createContext"],
        tag: "Contexts",
        summary: "Begin to manage what an agent reads",
        body: Some("NewContext"),
        answer: Answer::Json("Context"),
        errors: CONTEXT_ERRORS,
    },
    Operation {
        method: "get",
        paths: &["/v1/contexts"],
        ids: &["listContexts"],
        tag: "Contexts",
        summary: "The contexts of this key, by id",
        body: None,
        answer: Answer::Json("ContextList"),
        errors: GET_ERRORS,
    },
    Operation {
        method: "get",
        paths: &["/v1/contexts/{id}"],
        ids: &["readContext"],
        tag: "Contexts",
        summary: "A context as it is now",
        body: None,
        answer: Answer::Json("Context"),
        errors: READ_ERRORS,
    },
    Operation {
        method: "delete",
        paths: &["/v1/contexts/{id}"],
        ids: &["deleteContext"],
        tag: "Contexts",
        summary: "Delete a context and its log",
        body: None,
        answer: Answer::Json("ContextDeleted"),
        errors: READ_ERRORS,
    },
    Operation {
        method: "post",
        paths: &["/v1/contexts/{id}/results"],
        ids: &["updateContext"],
        tag: "Contexts",
        summary: "Bring a search's results: which enter the agent's context, which wait",
        body: Some("ContextResults"),
        answer: Answer::Json("ContextUpdate"),
        errors: CONTEXT_ERRORS,
    },
    Operation {
        method: "get",
        paths: &["/v1/contexts/{id}/events"],
        ids: &["readEvents"],
        tag: "Contexts",
        summary: "What happened to a context, in order",
        body: None,
        answer: Answer::Json("ContextEvents"),
        errors: READ_ERRORS,
    },
    Operation {
        method: "get",
        paths: &["/v1/contexts/{id}/export"],
        ids: &["exportContext"],
        tag: "Contexts",
        summary: "All that is stored of a context",
        body: None,
        answer: Answer::Json("ContextExport"),
        errors: READ_ERRORS,
    },
    Operation {
        method: "post",
        paths: &["/v1/contexts/{id}/fork"],
        ids: &["forkContext"],
        tag: "Contexts",
        summary: "A new context with the history of this one",
        body: Some("ForkContext"),
        answer: Answer::Json("Context"),
        errors: CONTEXT_ERRORS,
    },
    Operation {
        method: "post",
        paths: &["/v1/chat/completions"],
        ids: &["chat"],
        tag: "Generation",
        summary: "Continue a conversation",
        body: Some("ChatRequest"),
        answer: Answer::Stream("ChatAnswer"),
        errors: WORK_ERRORS,
    },
    Operation {
        method: "post",
        paths: &["/v1/completions"],
        ids: &["complete"],
        tag: "Generation",
        summary: "Continue texts",
        body: Some("CompletionRequest"),
        answer: Answer::Stream("CompletionAnswer"),
        errors: WORK_ERRORS,
    },
    Operation {
        method: "get",
        paths: &["/v1/models"],
        ids: &["listModels"],
        tag: "Models",
        summary: "The model that is served",
        body: None,
        answer: Answer::Json("ModelList"),
        errors: GET_ERRORS,
    },
    Operation {
        method: "get",
        paths: &["/v1/models/{id}"],
        ids: &["getModel"],
        tag: "Models",
        summary: "The same, by its id, which may hold slashes",
        body: None,
        answer: Answer::Json("Model"),
        errors: &[400, 401, 404, 503],
    },
    Operation {
        method: "get",
        paths: &["/v1/head_sets"],
        ids: &["listHeadSets"],
        tag: "Models",
        summary: "The head sets that fit it",
        body: None,
        answer: Answer::Json("HeadSetList"),
        errors: GET_ERRORS,
    },
    Operation {
        method: "post",
        paths: &["/tokenize", "/v1/tokenize"],
        ids: &["tokenize", "tokenizeV1"],
        tag: "Tokens",
        summary: "The token ids of a prompt or of messages",
        body: Some("TokenizeRequest"),
        answer: Answer::Json("Tokens"),
        errors: WORK_ERRORS,
    },
    Operation {
        method: "post",
        paths: &["/detokenize", "/v1/detokenize"],
        ids: &["detokenize", "detokenizeV1"],
        tag: "Tokens",
        summary: "The text of token ids",
        body: Some("DetokenizeRequest"),
        answer: Answer::Json("Text"),
        errors: WORK_ERRORS,
    },
    Operation {
        method: "get",
        paths: &["/health"],
        ids: &["health"],
        tag: "Operation",
        summary: "200 when the model can be used; asks for no key",
        body: None,
        answer: Answer::Json("Health"),
        errors: &[400, 503],
    },
    Operation {
        method: "get",
        paths: &["/metrics"],
        ids: &["metrics"],
        tag: "Operation",
        summary: "Prometheus' text format",
        body: None,
        answer: Answer::Text("text/plain"),
        errors: &[400, 401, 500, 503],
    },
    Operation {
        method: "get",
        paths: &["/openapi.json"],
        ids: &["describe"],
        tag: "Operation",
        summary: "This description",
        body: None,
        answer: Answer::Json("Description"),
        errors: GET_ERRORS,
    },
    Operation {
        method: "get",
        paths: &["/", "/docs"],
        ids: &["page", "docs"],
        tag: "Pages",
        summary: "Pages for people; they ask for no key",
        body: None,
        answer: Answer::Text("text/html"),
        errors: &[400],
    },
    Operation {
        method: "get",
        paths: &["/web/{file}"],
        ids: &["pageFile"],
        tag: "Pages",
        summary: "The files the pages are made of",
        body: None,
        answer: Answer::Text("*/*"),
        errors: &[400, 401, 404, 503],
    },
];

/// Operations whose answer is a part of a list.
const PAGED: [&str; 2] = ["listContexts", "readEvents"];

/// Operations that ask for no key.
const OPEN: [&str; 3] = ["/health", "/", "/docs"];

/// `GET /openapi.json`.
pub(super) async fn description() -> impl IntoResponse {
    static TEXT: LazyLock<String> = LazyLock::new(|| document().to_string());
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str())
}

fn document() -> Value {
    let mut answers: Value = serde_json::from_str(include_str!("openapi/answers.json"))
        .expect("the description of answers is JSON: this is a bug");
    let requests = requests::schemas();
    if let Some(schemas) = answers["schemas"].as_object_mut() {
        schemas.extend(requests);
    }
    answers["securitySchemes"] = json!({"key": {"type": "http", "scheme": "bearer"}});
    let mut paths = Map::new();
    for operation in OPERATIONS {
        for (path, id) in operation.paths.iter().zip(operation.ids) {
            let described = operation.describe(path, id);
            let methods = paths.entry(*path).or_insert_with(|| json!({}));
            methods[operation.method] = described;
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "qrae", "version": env!("CARGO_PKG_VERSION"), "description": env!("CARGO_PKG_DESCRIPTION")},
        "security": [{"key": []}, {}],
        "paths": paths,
        "components": answers,
    })
}

impl Operation {
    fn describe(&self, path: &str, id: &str) -> Value {
        let mut responses = Map::new();
        responses.insert("200".into(), self.answer.describe());
        for status in self.errors {
            let tei = if self.ids[0] == "rerank" { "Rerank" } else { "" };
            let name = json!({"$ref": format!("#/components/responses/{tei}{status}")});
            responses.insert(status.to_string(), name);
        }
        let mut described = json!({
            "operationId": id, "tags": [self.tag], "summary": self.summary, "responses": responses,
        });
        if let Some(body) = self.body {
            let schema = json!({"$ref": format!("#/components/schemas/{body}")});
            let content = json!({"schema": schema, "examples": requests::examples(body)});
            described["requestBody"] = json!({"required": true, "content": {"application/json": content}});
        }
        let mut parameters: Vec<Value> = path
            .split(['{', '}'])
            .skip(1)
            .step_by(2)
            .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
            .collect();
        if PAGED.contains(&id) {
            let of_page = ["after", "limit"];
            parameters.extend(of_page.map(|p| json!({"$ref": format!("#/components/parameters/{p}")})));
        }
        if self.body.is_some() {
            parameters.push(json!({"$ref": "#/components/parameters/timeout"}));
        }
        if !parameters.is_empty() {
            described["parameters"] = parameters.into();
        }
        if OPEN.contains(&path) {
            described["security"] = json!([]);
        }
        described
    }
}

impl Answer {
    fn describe(&self) -> Value {
        let schema = |name: &str| json!({"schema": {"$ref": format!("#/components/schemas/{name}")}});
        let content = match self {
            Self::Json(name) => json!({"application/json": schema(name)}),
            Self::Stream(name) => {
                json!({"application/json": schema(name), "text/event-stream": {"schema": {"type": "string"}}})
            }
            Self::Text(kind) => json!({(*kind): {"schema": {"type": "string"}}}),
        };
        json!({"description": "The answer", "content": content})
    }
}
