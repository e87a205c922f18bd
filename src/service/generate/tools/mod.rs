//! Tool calls in the text of an answer: three formats, each a machine that takes one character after the other.
//!
//! What comes out does not depend on how the text is cut. A call is told once it is whole: then nothing is lost when it
//! breaks off, and the text stands as it was written. Pure: knows text and JSON, no tokens, no HTTP. Tests: `tests`.

mod choice;
mod hermes;
mod json;
mod offered;
mod pangu;
#[cfg(test)]
mod tests;
mod xml;

pub use choice::ToolChoice;
pub(super) use hermes::{call_schema, grammar};
pub(super) use offered::Offered;

/// How a model writes tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolFormat {
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Hermes, Qwen 2.5 and 3.
    Hermes,
    /// `<tool_call><function=name><parameter=p>value</parameter></function></tool_call>`: Qwen3-Coder, Nemotron.
    Xml,
    /// `[unused11][{"name": …, "arguments": {…}}, …][unused12]`: openPangu, whose second generation writes
    /// `<|tool_call_start|>` and `<|tool_call_end|>`.
    Pangu,
}

/// Which format a server reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolParser {
    /// The one that the chat template shows its model.
    #[default]
    Auto,
    /// This one.
    Format(ToolFormat),
    /// None: answers are text.
    Off,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// A JSON object, as text.
    pub arguments: String,
}

/// What an answer consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Text, never empty.
    Text(String),
    /// A whole call.
    Call(Call),
}

/// What a character does to a call that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It goes on.
    More,
    /// It is whole.
    Done,
    /// It was none. The last so many bytes may begin something else.
    Broken(usize),
}

/// What stands between a call's opening marker and its end.
#[derive(Clone, Debug)]
enum Body {
    Json(json::Enclosed),
    Xml(xml::Function),
}

impl ToolFormat {
    /// The format that a chat template tells its model to write.
    #[must_use]
    pub fn of_template(source: &str) -> Option<Self> {
        let shows = |marker: &str| source.contains(marker);
        if pangu::MARKERS.iter().any(|(open, _)| shows(open)) {
            Some(Self::Pangu)
        } else if !shows(hermes::OPEN) {
            None
        } else if shows(xml::FUNCTION) {
            Some(Self::Xml)
        } else {
            Some(Self::Hermes)
        }
    }

    /// Texts that must reach the parser, also where they are control tokens.
    pub(super) fn markers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Hermes | Self::Xml => &[(hermes::OPEN, hermes::CLOSE)],
            Self::Pangu => &pangu::MARKERS,
        }
    }

    fn body(self, close: &'static str) -> Body {
        match self {
            Self::Hermes | Self::Pangu => Body::Json(json::Enclosed::new(close)),
            Self::Xml => Body::Xml(xml::Function::new(close)),
        }
    }
}

/// Finds calls in a growing text.
#[derive(Clone, Debug)]
pub(super) struct ToolStream {
    format: ToolFormat,
    offered: Offered,
    /// Outside a call: what may begin one. Inside: the opening marker.
    held: String,
    /// Inside a call.
    body: Option<Body>,
    /// Text since the opening marker.
    text: String,
}

impl ToolStream {
    /// From the beginning of an answer in which `offered` may be called.
    pub(super) fn new(format: ToolFormat, offered: Offered) -> Self {
        Self { format, offered, held: String::new(), body: None, text: String::new() }
    }

    /// What `text` adds: it is told as soon as it is certain, calls once they are whole.
    pub(super) fn push(&mut self, text: &str) -> Vec<Event> {
        let mut out = Vec::new();
        text.chars().for_each(|c| self.take(c, &mut out));
        out
    }

    /// What is left when no text follows: a call that has no end is text.
    pub(super) fn finish(&mut self) -> Vec<Event> {
        self.body = None;
        let mut out = Vec::new();
        say(&mut out, &(std::mem::take(&mut self.held) + &std::mem::take(&mut self.text)));
        out
    }

    fn take(&mut self, c: char, out: &mut Vec<Event>) {
        let Some(body) = &mut self.body else { return self.outside(c, out) };
        self.text.push(c);
        let step = match body {
            Body::Json(body) => body.push(c),
            Body::Xml(body) => body.push(&self.text, c),
        };
        match step {
            Step::More => {}
            Step::Done => {
                let body = self.body.take();
                let calls = body.and_then(|body| self.calls(body));
                let whole = std::mem::take(&mut self.held) + &std::mem::take(&mut self.text);
                match calls {
                    Some(calls) => out.extend(calls.into_iter().map(Event::Call)),
                    None => say(out, &whole),
                }
            }
            Step::Broken(again) => {
                self.body = None;
                let mut whole = std::mem::take(&mut self.held) + &std::mem::take(&mut self.text);
                let rest = whole.split_off(whole.len() - again);
                say(out, &whole);
                // at most as long as a marker, and outside a call
                rest.chars().for_each(|c| self.take(c, out));
            }
        }
    }

    fn outside(&mut self, c: char, out: &mut Vec<Event>) {
        self.held.push(c);
        let markers = self.format.markers();
        while !markers.iter().any(|(open, _)| open.starts_with(&self.held)) {
            let first = self.held.remove(0);
            say(out, first.encode_utf8(&mut [0; 4]));
        }
        if let Some((_, close)) = markers.iter().find(|(open, _)| *open == self.held) {
            self.body = Some(self.format.body(close));
        }
    }

    /// The calls of a whole body; none where it says no call after all.
    fn calls(&self, body: Body) -> Option<Vec<Call>> {
        match body {
            Body::Json(body) => json::calls(body.json(&self.text), self.format == ToolFormat::Pangu),
            Body::Xml(body) => Some(vec![body.call(&self.offered)]),
        }
    }
}

/// Adds text to what was said last.
fn say(out: &mut Vec<Event>, text: &str) {
    match out.last_mut() {
        _ if text.is_empty() => {}
        Some(Event::Text(last)) => last.push_str(text),
        _ => out.push(Event::Text(text.to_owned())),
    }
}
