//! Qwen3-Coder's and Nemotron's format: `<function=name>` with a tag per parameter, whose values stand as they are.
//!
//! A value ends at the `</parameter>` after which another parameter or the function's end follows, so that code with
//! such tags in it survives. Values are texts; the tool's schema says which of them are numbers, lists and so on.

use serde_json::{Map, Value};

use super::{Call, Offered, Step};

/// Opens a function.
pub(super) const FUNCTION: &str = "<function=";
const END_FUNCTION: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const END_PARAMETER: &str = "</parameter>";

/// A function being read.
#[derive(Clone, Debug)]
pub(super) struct Function {
    close: &'static str,
    state: State,
    /// Where what is being read begins.
    from: usize,
    name: String,
    parameters: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// White space, then `<function=`.
    Start,
    /// Up to `>`.
    Name,
    /// White space, then a parameter or the end.
    Between,
    /// Up to `>`.
    Parameter,
    /// Up to `</parameter>` and what follows it.
    Value,
    /// White space, then the closing marker.
    Close,
}

impl Function {
    pub(super) fn new(close: &'static str) -> Self {
        Self { close, state: State::Start, from: 0, name: String::new(), parameters: Vec::new() }
    }

    /// The next character; `text` is all so far and ends with it.
    pub(super) fn push(&mut self, text: &str, c: char) -> Step {
        match self.state {
            State::Start => self.expect(text, c, &[FUNCTION]),
            State::Between => self.expect(text, c, &[PARAMETER, END_FUNCTION]),
            State::Close => self.expect(text, c, &[self.close]),
            State::Name | State::Parameter => self.name(text, c),
            State::Value => {
                if c == '=' || c == '>' {
                    self.value(text);
                }
                Step::More
            }
        }
    }

    /// White space, then one of `tags`.
    fn expect(&mut self, text: &str, c: char, tags: &[&'static str]) -> Step {
        let read = &text[self.from..];
        if read.len() == c.len_utf8() && c.is_whitespace() {
            self.from = text.len();
            return Step::More;
        }
        let Some(tag) = tags.iter().find(|tag| tag.starts_with(read)) else {
            return Step::Broken(read.len());
        };
        if tag.len() > read.len() {
            return Step::More;
        }
        self.from = text.len();
        self.state = match *tag {
            FUNCTION => State::Name,
            PARAMETER => State::Parameter,
            END_FUNCTION => State::Close,
            _ => return Step::Done,
        };
        Step::More
    }

    /// A name up to `>`; it has no brackets and no line of its own.
    fn name(&mut self, text: &str, c: char) -> Step {
        let name = &text[self.from..text.len() - c.len_utf8()];
        match c {
            '>' if !name.trim().is_empty() => {
                let name = name.trim().to_owned();
                self.from = text.len();
                if self.state == State::Name {
                    self.name = name;
                    self.state = State::Between;
                } else {
                    self.parameters.push((name, String::new()));
                    self.state = State::Value;
                }
                Step::More
            }
            '<' | '>' | '\n' => Step::Broken(c.len_utf8()),
            _ => Step::More,
        }
    }

    /// Ends a value where the text shows that it has ended.
    fn value(&mut self, text: &str) {
        for (tag, next) in [(PARAMETER, State::Parameter), (END_FUNCTION, State::Close)] {
            let before = text[self.from..].strip_suffix(tag);
            let value = before.and_then(|before| before.trim_end().strip_suffix(END_PARAMETER));
            if let (Some(value), Some((_, last))) = (value, self.parameters.last_mut()) {
                let value = value.strip_prefix('\n').unwrap_or(value);
                *last = value.strip_suffix('\n').unwrap_or(value).to_owned();
                self.from = text.len();
                self.state = next;
                return;
            }
        }
    }

    /// The call, once it is whole. Of a parameter that is given twice, the last counts.
    pub(super) fn call(self, offered: &Offered) -> Call {
        let one = |(name, text): (String, String)| {
            let value = typed(text, offered.parameter(&self.name, &name));
            (name, value)
        };
        let arguments: Map<String, Value> = self.parameters.into_iter().map(one).collect();
        Call { name: self.name, arguments: Value::Object(arguments).to_string() }
    }
}

/// A value as its schema wants it: JSON where no text is meant and it is JSON, the text itself otherwise.
fn typed(text: String, schema: Option<&Value>) -> Value {
    let Some(schema) = schema else { return Value::String(text) };
    let mut types = Vec::new();
    named_types(schema, &mut types);
    let plain = text.trim();
    if types.contains(&"null") && plain == "null" {
        return Value::Null;
    }
    if types.is_empty() || types.contains(&"string") {
        return Value::String(text);
    }
    let parsed = match plain {
        // as Python prints them
        "True" => Some(Value::Bool(true)),
        "False" => Some(Value::Bool(false)),
        _ => serde_json::from_str(plain).ok(),
    };
    parsed.unwrap_or(Value::String(text))
}

/// The types that a schema names, also in its alternatives.
fn named_types<'a>(schema: &'a Value, types: &mut Vec<&'a str>) {
    match &schema["type"] {
        Value::String(name) => types.push(name),
        Value::Array(names) => types.extend(names.iter().filter_map(Value::as_str)),
        _ => {}
    }
    for key in ["anyOf", "oneOf"] {
        schema[key].as_array().into_iter().flatten().for_each(|one| named_types(one, types));
    }
}
