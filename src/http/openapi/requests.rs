//! Schemas of request bodies, from the types that read them, and an example or two of each.

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::http::{
    tokenize,
    wire::{
        chat::Conversation, common::Common, completions, contexts, gate, rerank, score, settings::Settings,
    },
};

/// All of them by name, with what they refer to.
pub(super) fn schemas() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|s| {
        s.definitions_path = "/components/schemas".into();
        s.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let g = &mut generator;
    let settings = fields::<Settings>(g);
    let common = fields::<Common>(g);
    let conversation = fields::<Conversation>(g);
    let mut for_template = conversation.clone();
    for unread in
        ["logprobs", "top_logprobs", "tool_choice", "parallel_tool_calls", "include_reasoning", "qrae"]
    {
        for_template.shift_remove(unread);
    }
    let score = fields::<score::Fields>(g);
    let mut gated = score.clone();
    for unread in ["queries", "explain"] {
        gated.shift_remove(unread);
    }
    let gate = fields::<gate::Fields>(g);
    let mut of_context = settings.clone();
    of_context.shift_remove("cache_salt");
    let bodies = [
        ("ScoreRequest", object(&[score, settings.clone()], &["chunks"])),
        ("GateRequest", object(&[gated, gate, settings.clone()], &["query", "chunks"])),
        ("RerankRequest", object(&[fields::<rerank::Fields>(g), settings.clone()], &["query"])),
        ("NewContext", object(&[fields::<contexts::NewContext>(g), of_context], &["query"])),
        ("ContextResults", object(&[fields::<contexts::Results>(g)], &[])),
        ("ForkContext", object(&[fields::<contexts::ForkFields>(g)], &[])),
        ("ChatRequest", object(&[conversation, common.clone()], &["messages"])),
        ("CompletionRequest", object(&[fields::<completions::Fields>(g), common], &["prompt"])),
        ("TokenizeRequest", object(&[fields::<tokenize::Fields>(g), for_template], &[])),
        ("DetokenizeRequest", object(&[fields::<tokenize::Ids>(g)], &["tokens"])),
    ];
    let mut schemas = generator.take_definitions(true);
    schemas.extend(bodies.map(|(name, schema)| (name.to_owned(), schema)));
    schemas
}

/// A type's fields with their schemas.
fn fields<T: JsonSchema>(generator: &mut SchemaGenerator) -> Map<String, Value> {
    let mut schema = T::json_schema(generator).to_value();
    match schema["properties"].take() {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// One object with the fields of several types, and the model's name.
fn object(parts: &[Map<String, Value>], required: &[&str]) -> Value {
    let mut all = Map::new();
    let model = "The served model's name; it may be left out.";
    all.insert("model".into(), json!({"type": ["string", "null"], "description": model}));
    all.extend(parts.iter().flat_map(Clone::clone));
    for name in required {
        // what is required may not be null either
        let Some(field) = all.get_mut(*name).and_then(Value::as_object_mut) else { continue };
        field.shift_remove("default");
        if let Some(Value::Array(types)) = field.get_mut("type") {
            types.retain(|kind| kind != "null");
        }
    }
    json!({"type": "object", "properties": all, "required": required})
}

/// Examples of a body: each is accepted as it is by a server whose model has a head set.
pub(super) fn examples(body: &str) -> Value {
    let messages = json!([{"role": "user", "content": "In which town was the architect born?"}]);
    let weather = json!({"type": "function", "function": {
        "name": "weather", "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
    }});
    let town =
        json!({"type": "object", "required": ["town"], "properties": {"town": {"enum": ["Bern", "Basel"]}}});
    let chunks = ["Anna Lindt built the town hall.", "Anna Lindt was born in Bern."];
    let query = "In which town was the architect of the town hall born?";
    match body {
        "ScoreRequest" => json!({
            "texts": {"value": {"query": query, "chunks": chunks}},
            "full": {"summary": "Several questions, chunks with ids, every token's response", "value": {
                "queries": [query, "Who built the town hall?"],
                "chunks": [{"id": "a", "title": "Town hall", "text": chunks[0]}, {"id": 2, "text": chunks[1]}],
                "statistic": "entropy", "control": "query_free", "read": "last", "orders": 2,
                "max_tokens_per_chunk": 64, "explain": true, "cache_salt": "tenant",
            }},
        }),
        "GateRequest" => json!({
            "half": {"summary": "The better half", "value": {"query": query, "chunks": chunks}},
            "budget": {"summary": "What fits into a budget, the best chunk whole", "value": {
                "query": query,
                "chunks": [{"id": "a", "title": "Town hall", "text": chunks[0]}, chunks[1]],
                "budget_tokens": 40, "full": 1, "share": 0.7,
            }},
        }),
        "NewContext" => json!({
            "paper": {"summary": "The paper's smaller setting", "value": {
                "query": query, "results_per_query": 5, "retention": 0.5, "expires_in": 86400,
            }},
        }),
        "ContextResults" => json!({
            "search": {"summary": "What one query found", "value": {"results": [
                {"url": "http://localhost/hall", "title": "Town hall", "text": chunks[0]},
                {"url": "http://localhost/lindt", "title": "Anna Lindt", "text": chunks[1]},
            ]}},
            "groups": {"summary": "What several queries found, safe to be sent again", "value": {
                "update_id": "call_1",
                "groups": [{"search": "town hall architect", "results": chunks}, {"search": "Bern", "results": []}],
            }},
        }),
        "ForkContext" => json!({
            "before": {"summary": "From before the first update", "value": {"after_update": 0}},
        }),
        "RerankRequest" => json!({
            "documents": {"summary": "Cohere, Jina", "value": {
                "query": query, "documents": chunks, "top_n": 1, "return_documents": true,
            }},
            "texts": {"summary": "text-embeddings-inference", "value": {
                "query": query, "texts": chunks, "return_text": true,
            }},
        }),
        "ChatRequest" => json!({
            "chat": {"value": {"messages": messages, "max_tokens": 32}},
            "stream": {"value": {
                "messages": messages, "max_tokens": 32, "temperature": 0, "stream": true,
                "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 2,
            }},
            "tools": {"summary": "With a tool to call", "value": {
                "messages": messages, "max_tokens": 32, "tools": [weather], "tool_choice": "auto",
            }},
            "schema": {"summary": "An answer in JSON", "value": {
                "messages": messages, "max_tokens": 32,
                "response_format": {"type": "json_schema", "json_schema": {"name": "town", "schema": town}},
            }},
        }),
        "CompletionRequest" => json!({
            "text": {"value": {"prompt": "Bern is", "max_tokens": 16, "stop": ["\n"], "logprobs": 1}},
        }),
        "TokenizeRequest" => json!({
            "text": {"value": {"prompt": "Bern is", "return_token_strs": true}},
            "messages": {"value": {"messages": messages}},
        }),
        _ => json!({"ids": {"value": {"tokens": [1, 2, 3]}}}),
    }
}
