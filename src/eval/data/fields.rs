//! The fields of one record, taken out by name and checked; and ids, which may occur once.
//!
//! What a form needs is its own file's business. Tests: `data/tests.rs`.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::error::{At, Problem};

/// One JSON object whose fields are taken out one by one. A field that is null is not there.
pub(super) struct Fields {
    object: Map<String, Value>,
    /// What such an object is, for messages: `a labelled record is {…}`.
    expected: &'static str,
    /// Which chunk it is, from 1, if it is one.
    chunk: Option<usize>,
}

impl Fields {
    /// Fails when the value is not an object.
    pub(super) fn new(value: Value, expected: &'static str, chunk: Option<usize>) -> Result<Self, Problem> {
        match value {
            Value::Object(object) => Ok(Self { object, expected, chunk }),
            other => Err(Problem::NotAnObject { expected, found: kind(&other) }),
        }
    }

    /// Whether a field is there.
    pub(super) fn has(&self, field: &str) -> bool {
        self.object.get(field).is_some_and(|value| !value.is_null())
    }

    /// The names of the fields, for messages.
    pub(super) fn names(&self) -> String {
        let some: Vec<String> =
            self.object.keys().take(8).map(|name| shown(name).escape_debug().to_string()).collect();
        match self.object.len() {
            0 => "no field".to_owned(),
            n if n > some.len() => format!("{}, …", some.join(", ")),
            _ => some.join(", "),
        }
    }

    /// A field's value. Takes it out, and leaves its name for messages.
    pub(super) fn take(&mut self, field: &str) -> Option<Value> {
        self.object.get_mut(field).map(Value::take).filter(|value| !value.is_null())
    }

    /// A field that has to be there.
    pub(super) fn required(&mut self, field: &str) -> Result<Value, Problem> {
        self.take(field).ok_or_else(|| self.missing(field))
    }

    /// A text, if the field is there.
    pub(super) fn text(&mut self, field: &str) -> Result<Option<String>, Problem> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(field, "a text", &other)),
        }
    }

    /// A text that has to be there.
    pub(super) fn required_text(&mut self, field: &str) -> Result<String, Problem> {
        self.text(field)?.ok_or_else(|| self.missing(field))
    }

    /// An id, if the field is there. Whole numbers are taken as their digits.
    pub(super) fn id(&mut self, field: &str) -> Result<Option<String>, Problem> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(Value::Number(n)) if n.is_i64() || n.is_u64() => Ok(Some(n.to_string())),
            Some(other) => Err(self.wrong(field, "a text or a whole number", &other)),
        }
    }

    /// An array, if the field is there.
    pub(super) fn array(&mut self, field: &str) -> Result<Option<Vec<Value>>, Problem> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Array(values)) => Ok(Some(values)),
            Some(other) => Err(self.wrong(field, "an array", &other)),
        }
    }

    /// That a field is not there.
    pub(super) fn missing(&self, field: &str) -> Problem {
        Problem::Missing { field: self.named(field), expected: self.expected, has: self.names() }
    }

    /// That a field holds another kind of value.
    pub(super) fn wrong(&self, field: &str, expected: &'static str, found: &Value) -> Problem {
        Problem::WrongType { field: self.named(field), expected, found: kind(found) }
    }

    fn named(&self, field: &str) -> String {
        self.chunk.map_or_else(|| format!("`{field}`"), |n| format!("`{field}` of chunk {n}"))
    }
}

/// What a value is, for messages: a number itself, and of what else there is the kind.
pub(super) fn kind(value: &Value) -> String {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(n) => return n.to_string(),
        Value::String(text) if text.trim().is_empty() => "a blank text",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    kind.to_owned()
}

/// The beginning of a text from a file, short enough for a message; as it is, so to be escaped where it is shown.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 40;
    let start: String = text.chars().take(MOST).collect();
    if start.len() < text.len() { format!("{start}…") } else { start }
}

/// The ids met so far, numbered from 0 in the order they came.
#[derive(Debug, Default)]
pub(super) struct Ids(HashMap<String, (usize, At)>);

impl Ids {
    /// Fails when the id was met before.
    pub(super) fn add(&mut self, id: &str, at: At) -> Result<(), Problem> {
        let number = self.0.len();
        match self.0.get(id) {
            Some(&(_, first)) => Err(Problem::DuplicateId { id: shown(id), first }),
            None => {
                self.0.insert(id.to_owned(), (number, at));
                Ok(())
            }
        }
    }

    /// The number of an id.
    pub(super) fn number(&self, id: &str) -> Option<usize> {
        self.0.get(id).map(|&(number, _)| number)
    }
}
