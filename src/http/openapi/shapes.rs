//! Shapes of fields whose types say too little, or lie below `http` and know no schema: what stands in for them in
//! `#[schemars(with = …)]`. Each is the schema of what the server's own reading of the field takes.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::{
    context::Mode,
    score::{Control, Read, Statistic},
    service::score::Orders,
    transcript::Deferred,
};

/// Declares types that are nothing but a schema.
macro_rules! shapes {
    ($($(#[$doc:meta])* $name:ident = $schema:expr;)+) => {$(
        $(#[$doc])*
        pub(in crate::http) enum $name {}

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    )+};
}

fn words<T: ToString>(all: &[T]) -> Schema {
    let words: Vec<String> = all.iter().map(ToString::to_string).collect();
    json_schema!({"type": "string", "enum": words})
}

shapes! {
    /// A word of [`Statistic`].
    StatisticWord = words(Statistic::ALL);
    /// A word of [`Control`].
    ControlWord = words(Control::ALL);
    /// A word of [`Read`].
    ReadWord = words(Read::ALL);
    /// Layer and query head, counted from 0.
    Head = json_schema!({"type": "string", "pattern": "^L[0-9]+H[0-9]+$"});
    /// Orders that are averaged.
    OrderCount = json_schema!({"type": "integer", "minimum": 1, "maximum": Orders::MOST});
    /// What a context is called.
    ContextId = json_schema!({"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"});
    /// A word of [`Mode`].
    ModeWord = json_schema!({"type": "string", "enum": [Mode::Manager, Mode::CurrentSearch]});
    /// A word of [`Deferred`].
    DeferredWord = json_schema!({"type": "string", "enum": [Deferred::Hidden, Deferred::Stubs]});
    /// Whose cached KV may be used.
    CacheSalt = json_schema!({"type": "string", "minLength": 1, "maxLength": 1024});
    /// One string or several.
    Stops = json_schema!({"anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 16},
        {"type": "null"}
    ]});
    /// Token ids.
    TokenIds = json_schema!({"type": "array", "items": {"type": "integer", "minimum": 0}});
    /// A text, its token ids, or a list of either.
    Prompts = json_schema!({"anyOf": [
        {"type": "string"},
        {"type": "array", "minItems": 1, "items": {"type": "string"}},
        {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
        {"type": "array", "minItems": 1, "items": {"type": "array", "items": {"type": "integer", "minimum": 0}}}
    ]});
    /// A conversation, as OpenAI writes it.
    Messages = json_schema!({"type": "array", "items": {
        "type": "object",
        "required": ["role"],
        "properties": {
            "role": {"type": "string"},
            "content": {"description": "A text, or parts of type text"}
        }
    }});
    /// What may be called, as OpenAI writes it.
    Tools = json_schema!({"type": ["array", "null"], "maxItems": 256, "items": {
        "type": "object",
        "required": ["type", "function"],
        "properties": {"type": {"const": "function"}, "function": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": 256},
                "description": {"type": "string"},
                "parameters": {"type": "object", "description": "A JSON schema"}
            }
        }}
    }});
    /// Whether and what to call.
    ToolChoice = json_schema!({"anyOf": [
        {"type": "string", "enum": ["none", "auto", "required"]},
        {"type": "object", "required": ["type", "function"], "properties": {
            "type": {"const": "function"},
            "function": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
        }},
        {"type": "null"}
    ]});
    /// The form of the answer.
    ResponseFormat = json_schema!({"anyOf": [
        {"type": "object", "required": ["type"], "properties": {"type": {"enum": ["text", "json_object"]}}},
        {"type": "object", "required": ["type", "json_schema"], "properties": {
            "type": {"const": "json_schema"},
            "json_schema": {"type": "object", "required": ["schema"], "properties": {
                "name": {"type": "string"},
                "strict": {"type": "boolean"},
                "schema": {"type": "object", "description": "A JSON schema"}
            }}
        }},
        {"type": "null"}
    ]});
    /// A document: a text, or an object with one.
    Document = json_schema!({"anyOf": [
        {"type": "string"},
        {"type": "object", "description": "With text (or content) and an optional title, or what rank_fields names"}
    ]});
}
