//! Reasoning before an answer: what stands between `<think>` and `</think>`, told apart from the rest.
//!
//! The template may have opened it already; otherwise it counts only at the very beginning of the answer. Pure.

/// Opens reasoning.
pub(super) const OPEN: &str = "<think>";
/// Ends it.
pub(super) const CLOSE: &str = "</think>";

/// Tells reasoning and answer apart in a growing text.
#[derive(Clone, Debug)]
pub(super) struct ThinkStream {
    state: State,
    /// What may be a part of the next tag.
    held: String,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Before,
    Inside,
    After,
}

/// What a text adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Thought {
    pub(super) reasoning: String,
    pub(super) answer: String,
}

impl ThinkStream {
    /// `opened`: the prompt ends inside the reasoning.
    pub(super) fn new(opened: bool) -> Self {
        Self { state: if opened { State::Inside } else { State::Before }, held: String::new() }
    }

    /// What `text` adds, as soon as it is certain.
    pub(super) fn push(&mut self, text: &str) -> Thought {
        self.held += text;
        let mut thought = Thought::default();
        if let State::Before = self.state {
            let begun = self.held.trim_start();
            if let Some(rest) = begun.strip_prefix(OPEN) {
                self.held = rest.to_owned();
                self.state = State::Inside;
            } else if !OPEN.starts_with(begun) {
                self.state = State::After;
            }
        }
        if let State::Inside = self.state {
            if let Some((reasoning, answer)) = self.held.split_once(CLOSE) {
                thought.reasoning = reasoning.to_owned();
                self.held = answer.to_owned();
                self.state = State::After;
            } else {
                let ends = |n: &usize| self.held.ends_with(&CLOSE[..*n]);
                let kept = (1..CLOSE.len()).rev().find(ends).unwrap_or(0);
                let held = self.held.split_off(self.held.len() - kept);
                thought.reasoning = std::mem::replace(&mut self.held, held);
            }
        }
        if let State::After = self.state {
            thought.answer = std::mem::take(&mut self.held);
        }
        thought
    }

    /// What is left when no text follows. Reasoning that was not ended stays reasoning.
    pub(super) fn finish(&mut self) -> Thought {
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::Inside => Thought { reasoning: held, ..Thought::default() },
            State::Before | State::After => Thought { answer: held, ..Thought::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split<'a>(opened: bool, pieces: impl IntoIterator<Item = &'a str>) -> (String, String) {
        let mut stream = ThinkStream::new(opened);
        let mut thoughts: Vec<Thought> = pieces.into_iter().map(|piece| stream.push(piece)).collect();
        thoughts.push(stream.finish());
        (
            thoughts.iter().map(|t| t.reasoning.as_str()).collect(),
            thoughts.iter().map(|t| t.answer.as_str()).collect(),
        )
    }

    #[test]
    fn reasoning_is_what_stands_between_the_tags() {
        let both = |opened, text| {
            let (reasoning, answer) = split(opened, [text]);
            format!("{reasoning}|{answer}")
        };
        assert_eq!(
            both(false, "\n<think>\na </thin b\n</think>\n\nc</think>"),
            "\na </thin b\n|\n\nc</think>"
        );
        assert_eq!(both(true, "a</think>b"), "a|b");
        assert_eq!(both(true, "a b"), "a b|");
        assert_eq!(both(false, "<think>a </thi"), "a </thi|");
        assert_eq!(both(false, "a <think>b</think>"), "|a <think>b</think>", "only at the beginning");
        assert_eq!(both(false, " <thin"), "| <thin");
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_the_text_is_cut(
            parts in prop::collection::vec(prop::sample::select(vec!["<think>", "</think>", "</th", "a", "é", "\n", "<"]), 0..9),
            opened: bool,
        ) {
            let text = parts.concat();
            let chars: Vec<String> = text.chars().map(String::from).collect();
            let whole = split(opened, [text.as_str()]);
            prop_assert_eq!(&split(opened, parts), &whole);
            prop_assert_eq!(&split(opened, chars.iter().map(String::as_str)), &whole);
        }
    }
}
