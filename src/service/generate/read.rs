//! Reads an answer's text for those who asked: reasoning apart, tool calls apart, the rest as it is.
//!
//! Sits between a choice's text and its deltas. Without tools and without a reasoning parser it changes nothing.

use super::{
    GenerateDelta,
    stream::{FinishReason, ToolCall},
    think::{self, ThinkStream},
    tools::{Event, Offered, ToolFormat, ToolStream},
};

/// Reads one choice.
#[derive(Clone, Debug, Default)]
pub(super) struct Reader {
    think: Option<Think>,
    tools: Option<Tools>,
}

#[derive(Clone, Debug)]
struct Think {
    stream: ThinkStream,
    told: bool,
}

#[derive(Clone, Debug)]
struct Tools {
    format: ToolFormat,
    stream: ToolStream,
    /// White space at the end of the text so far: left out when a call follows, or nothing but the end after a call.
    blank: String,
    /// Whether there was other text since the last call.
    said: bool,
    calls: usize,
    one: bool,
}

impl Reader {
    /// Finds calls of `offered`; with `one`, the answer ends with the first.
    pub(super) fn with_tools(self, format: ToolFormat, offered: Offered, one: bool) -> Self {
        let stream = ToolStream::new(format, offered);
        Self {
            tools: Some(Tools { format, stream, blank: String::new(), said: false, calls: 0, one }),
            ..self
        }
    }

    /// Takes reasoning out of the text; `told`: and tells it. `opened`: the prompt has begun it.
    pub(super) fn with_think(self, opened: bool, told: bool) -> Self {
        Self { think: Some(Think { stream: ThinkStream::new(opened), told }), ..self }
    }

    /// Texts it looks for, which must arrive also where they are control tokens.
    pub(super) fn markers(&self) -> Vec<&'static str> {
        let tools = self.tools.iter().flat_map(|tools| tools.format.markers());
        let think = self.think.iter().flat_map(|_| [think::OPEN, think::CLOSE]);
        tools.flat_map(|(open, close)| [*open, *close]).chain(think).collect()
    }

    /// What a delta of plain text says; nothing while it cannot be told yet.
    pub(super) fn read(&mut self, mut delta: GenerateDelta) -> Option<GenerateDelta> {
        let last = delta.finish.is_some();
        if let Some(think) = &mut self.think {
            let mut thought = think.stream.push(&delta.text);
            if last {
                let rest = think.stream.finish();
                thought.reasoning += &rest.reasoning;
                thought.answer += &rest.answer;
            }
            delta.text = thought.answer;
            delta.reasoning = if think.told { thought.reasoning } else { String::new() };
        }
        if let Some(tools) = &mut self.tools {
            tools.read(&mut delta, last);
        }
        let anything = !(delta.text.is_empty() && delta.reasoning.is_empty() && delta.calls.is_empty());
        (anything || !delta.logprobs.is_empty() || delta.finish.is_some()).then_some(delta)
    }
}

impl Tools {
    fn read(&mut self, delta: &mut GenerateDelta, last: bool) {
        let mut events = self.stream.push(&std::mem::take(&mut delta.text));
        if last {
            events.extend(self.stream.finish());
        }
        for event in events {
            match event {
                Event::Text(text) => {
                    self.blank += &text;
                    let blank = self.blank.split_off(self.blank.trim_end().len());
                    self.said |= !self.blank.is_empty();
                    delta.text += &std::mem::replace(&mut self.blank, blank);
                }
                Event::Call(call) => {
                    self.blank.clear();
                    self.said = false;
                    let id = format!("call_{}", uuid::Uuid::new_v4().simple());
                    delta.calls.push(ToolCall { index: self.calls, id, call });
                    self.calls += 1;
                    if self.one {
                        delta.finish = Some(FinishReason::ToolCalls);
                        delta.stop_reason = None;
                        return;
                    }
                }
            }
        }
        if last && (self.said || self.calls == 0) {
            delta.text += &std::mem::take(&mut self.blank);
        }
        if self.calls > 0 && delta.finish == Some(FinishReason::Stop) {
            delta.finish = Some(FinishReason::ToolCalls);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::service::generate::StopReason;

    fn tools(one: bool) -> Reader {
        let offered = json!([{"type": "function", "function": {"name": "f"}}]);
        Reader::default().with_tools(ToolFormat::Hermes, Offered::new(&offered).unwrap(), one)
    }

    /// Feeds a text in pieces of `size` characters, the last with `finish`.
    fn run(mut reader: Reader, text: &str, size: usize, finish: FinishReason) -> Vec<GenerateDelta> {
        let chars: Vec<char> = text.chars().collect();
        let mut pieces: Vec<String> = chars.chunks(size).map(|c| c.iter().collect()).collect();
        let last = pieces.pop().unwrap_or_default();
        let mut out = Vec::new();
        for piece in pieces {
            out.extend(reader.read(GenerateDelta { text: piece, ..GenerateDelta::default() }));
            if out.last().is_some_and(|d: &GenerateDelta| d.finish.is_some()) {
                return out;
            }
        }
        let stop_reason = (finish == FinishReason::Stop).then_some(StopReason::Token(1));
        out.extend(reader.read(GenerateDelta {
            text: last,
            finish: Some(finish),
            stop_reason,
            ..GenerateDelta::default()
        }));
        out
    }

    /// Text, reasoning, the calls' names with their indices, and the end.
    fn told(deltas: &[GenerateDelta]) -> (String, String, Vec<(usize, String)>, FinishReason) {
        assert!(deltas.iter().rev().skip(1).all(|d| d.finish.is_none()));
        (
            deltas.iter().map(|d| d.text.as_str()).collect(),
            deltas.iter().map(|d| d.reasoning.as_str()).collect(),
            deltas.iter().flat_map(|d| d.calls.iter().map(|c| (c.index, c.call.name.clone()))).collect(),
            deltas.last().unwrap().finish.unwrap(),
        )
    }

    const TWO: &str =
        "Now:\n<tool_call>{\"name\": \"f\"}</tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call>\n";

    #[test]
    fn calls_are_told_apart_and_end_the_answer_with_their_reason() {
        for size in [1, 3, 7, 1000] {
            let got = told(&run(tools(false), TWO, size, FinishReason::Stop));
            let calls = vec![(0, "f".to_owned()), (1, "g".to_owned())];
            assert_eq!(got, ("Now:".into(), String::new(), calls, FinishReason::ToolCalls), "{size}");
            let got = told(&run(tools(true), TWO, size, FinishReason::Stop));
            assert_eq!((got.2, got.3), (vec![(0, "f".into())], FinishReason::ToolCalls));
            let cut = told(&run(tools(false), &TWO[..70], size, FinishReason::Length));
            assert_eq!((cut.2.len(), cut.3), (1, FinishReason::Length), "what was cut off says so");
            assert_eq!(cut.0, format!("Now:{}", &TWO[41..70]), "and is text");
        }
    }

    #[test]
    fn answers_without_calls_stay_as_they_are() {
        for text in ["", " \n", "\n\nyes <tool_call>no</tool_call> ", "<tool_call>"] {
            for size in [1, 4] {
                let got = told(&run(tools(false), text, size, FinishReason::Stop));
                assert_eq!(got, (text.into(), String::new(), vec![], FinishReason::Stop));
            }
        }
        let ids: Vec<String> = run(tools(false), TWO, 5, FinishReason::Stop)
            .iter()
            .flat_map(|d| d.calls.iter().map(|c| c.id.clone()))
            .collect();
        assert_ne!(ids[0], ids[1]);
    }

    #[test]
    fn calls_are_looked_for_after_the_reasoning_only() {
        let text = format!("<think>\n{TWO}</think>\n{TWO}");
        for size in [1, 5, 1000] {
            let got = told(&run(tools(false).with_think(false, true), &text, size, FinishReason::Stop));
            assert_eq!((got.0.as_str(), got.1, got.2.len()), ("\nNow:", format!("\n{TWO}"), 2));
            let got =
                told(&run(Reader::default().with_think(true, false), "a</think>b", size, FinishReason::Stop));
            assert_eq!((got.0.as_str(), got.1.as_str()), ("b", ""), "not told where not wanted");
        }
    }

    proptest::proptest! {
        #[test]
        fn it_does_not_matter_how_an_answer_is_cut(
            parts in proptest::collection::vec(proptest::sample::select(vec![
                "<tool_call>{\"name\": \"f\"}</tool_call>", "<tool_call>", "\n", " ", "a", "<think>", "</think>",
            ]), 0..9),
            size in 1usize..9,
        ) {
            let text = parts.concat();
            let reader = tools(false).with_think(false, true);
            let whole = told(&run(reader.clone(), &text, text.len().max(1), FinishReason::Stop));
            proptest::prop_assert_eq!(&told(&run(reader, &text, size, FinishReason::Stop)), &whole);
            if whole.2.is_empty() && whole.1.is_empty() && !text.contains("think") {
                proptest::prop_assert_eq!(whole.0, text);
            }
        }
    }
}
