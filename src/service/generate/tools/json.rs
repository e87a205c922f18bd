//! Calls written as JSON between two markers: where the JSON ends, and what it says.

use serde::de::IgnoredAny;
use serde_json::Deserializer;

use super::{Call, Step};

/// JSON between two markers. A closing marker inside a JSON string does not end it.
#[derive(Clone, Debug)]
pub(super) struct Enclosed {
    close: &'static str,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Before the first bracket.
    Start,
    /// So many brackets are open.
    Inside { depth: usize, string: bool, escaped: bool },
    /// After the last bracket; so many bytes of the closing marker were read.
    Close(usize),
}

impl Enclosed {
    pub(super) fn new(close: &'static str) -> Self {
        Self { close, state: State::Start }
    }

    /// The next character. Brackets of both kinds count alike: whether it is JSON is seen at its end.
    pub(super) fn push(&mut self, c: char) -> Step {
        match &mut self.state {
            State::Start => match c {
                '{' | '[' => self.state = State::Inside { depth: 1, string: false, escaped: false },
                _ if is_space(c) => {}
                _ => return Step::Broken(c.len_utf8()),
            },
            State::Inside { string: true, escaped: escaped @ true, .. } => *escaped = false,
            State::Inside { string: string @ true, escaped, .. } => match c {
                '"' => *string = false,
                '\\' => *escaped = true,
                _ => {}
            },
            State::Inside { depth, string, .. } => match c {
                '"' => *string = true,
                '{' | '[' => *depth += 1,
                '}' | ']' => {
                    *depth -= 1;
                    if *depth == 0 {
                        self.state = State::Close(0);
                    }
                }
                ',' | ':' | '-' | '+' | '.' => {}
                _ if is_space(c) || c.is_ascii_alphanumeric() => {}
                _ => return Step::Broken(c.len_utf8()),
            },
            State::Close(0) if is_space(c) => {}
            State::Close(read) => {
                if !self.close[*read..].starts_with(c) {
                    return Step::Broken(*read + c.len_utf8());
                }
                *read += c.len_utf8();
                if *read == self.close.len() {
                    return Step::Done;
                }
            }
        }
        Step::More
    }

    /// The part of a whole body before its closing marker.
    pub(super) fn json<'a>(&self, body: &'a str) -> &'a str {
        body.strip_suffix(self.close).unwrap_or(body).trim()
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// The calls that `json` says: one object, or with `list` also a list of at least one. Each has a name and an object of
/// arguments, which are kept letter by letter; without any they are empty.
pub(super) fn calls(json: &str, list: bool) -> Option<Vec<Call>> {
    if !list || !json.starts_with('[') {
        return Some(vec![call(json)?]);
    }
    let mut calls = Vec::new();
    let mut rest = json[1..].trim_start();
    loop {
        let (item, after) = value(rest)?;
        calls.push(call(item)?);
        rest = after.trim_start();
        match rest.strip_prefix(',') {
            Some(after) => rest = after.trim_start(),
            None => return (rest == "]").then_some(calls),
        }
    }
}

fn call(json: &str) -> Option<Call> {
    let mut rest = json.strip_prefix('{')?.trim_start();
    let (mut name, mut arguments) = (None, None);
    loop {
        let (key, after) = value(rest)?;
        let (said, after) = value(after.trim_start().strip_prefix(':')?.trim_start())?;
        match serde_json::from_str::<String>(key).ok()?.as_str() {
            "name" => name = Some(serde_json::from_str::<String>(said).ok()?),
            "arguments" | "parameters" => arguments = Some(said),
            _ => {}
        }
        rest = after.trim_start();
        match rest.strip_prefix(',') {
            Some(after) => rest = after.trim_start(),
            None if rest == "}" => break,
            None => return None,
        }
    }
    let arguments = match arguments {
        None | Some("null") => "{}".to_owned(),
        Some(object) if object.starts_with('{') => object.to_owned(),
        // some models write the object as a string, as the wire has it
        Some(text) => serde_json::from_str::<String>(text).ok().filter(|text| is_object(text))?,
    };
    name.filter(|name| !name.is_empty()).map(|name| Call { name, arguments })
}

fn is_object(text: &str) -> bool {
    serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).is_ok()
}

/// The JSON value at the start of `text`, and what follows it.
fn value(text: &str) -> Option<(&str, &str)> {
    let mut values = Deserializer::from_str(text).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    let end = values.byte_offset();
    Some(text.split_at(end))
}
