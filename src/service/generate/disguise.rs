//! Keeps control tokens that are spelled in messages from becoming control tokens.
//!
//! A rendered chat is encoded as one text in which the template's `<|im_end|>` is a control token, and so would be the
//! same characters out of a web page that a message quotes. Therefore, and only where some text of the request spells a
//! control token, every such spelling is replaced before rendering by a *stand-in*: one private-use character that
//! occurs nowhere else in the request. After rendering, the stand-ins are encoded as plain text and what lies between
//! them as before. All other chats are encoded whole, exactly as Hugging Face does it.
//!
//! Holds for every string and key of messages, tools and template variables. A template that compares a message with
//! the text of a control token does not see it there. Two strings that spell a control token only together would need
//! a template that writes them with nothing in between.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::{
    ids::TokenId,
    prompt::{EncodeError, PieceEncoder, Specials},
    text::Tokenizer,
};

/// The texts of all control tokens, longest first.
pub(in crate::service) fn control_texts(tokenizer: &Tokenizer) -> Vec<String> {
    let ids = (0..tokenizer.vocab_size() as TokenId).filter(|&id| tokenizer.is_control(id));
    let mut texts: Vec<String> = ids.filter_map(|id| tokenizer.id_to_token(id)).collect();
    texts.retain(|text| !text.is_empty());
    texts.sort_unstable_by_key(|text| std::cmp::Reverse(text.len()));
    texts
}

/// Which character stands for which control token's text.
#[derive(Debug, Default)]
pub(super) struct Disguise {
    /// Texts of control tokens that are spelled, longest first.
    texts: Vec<String>,
    /// Their stand-ins.
    stand_ins: Vec<char>,
}

impl Disguise {
    /// The disguise that `values` need; an empty one where they spell no control token. `None` when they use up all
    /// private-use characters.
    pub(super) fn of(values: &[&Value], control: &[String]) -> Option<Self> {
        let mut found = Vec::new();
        let mut look = |text: &str| found.extend(spellings(text, control).into_iter().map(|(_, i)| i));
        values.iter().for_each(|value| visit(value, &mut look));
        if found.is_empty() {
            return Some(Self::default());
        }
        found.sort_unstable();
        found.dedup();
        let mut taken = HashSet::new();
        let mut look = |text: &str| taken.extend(text.chars().filter(|c| PRIVATE.contains(c)));
        values.iter().for_each(|value| visit(value, &mut look));
        let stand_ins: Vec<char> = PRIVATE.filter(|c| !taken.contains(c)).take(found.len()).collect();
        let texts: Vec<String> = found.into_iter().map(|i| control[i].clone()).collect();
        (stand_ins.len() == texts.len()).then_some(Self { texts, stand_ins })
    }

    /// Whether nothing is disguised.
    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// `value` with every spelling of a control token replaced by its stand-in.
    pub(super) fn put_on(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.put_on_text(text)),
            Value::Array(items) => items.iter().map(|item| self.put_on(item)).collect(),
            Value::Object(map) => Value::Object(self.put_on_map(map)),
            other => other.clone(),
        }
    }

    /// The same for a map's keys and values.
    pub(super) fn put_on_map(&self, map: &Map<String, Value>) -> Map<String, Value> {
        map.iter().map(|(key, value)| (self.put_on_text(key), self.put_on(value))).collect()
    }

    fn put_on_text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        for (at, which) in spellings(text, &self.texts) {
            out.push_str(&text[done..at]);
            out.push(self.stand_ins[which]);
            done = at + self.texts[which].len();
        }
        out + &text[done..]
    }

    /// The ids of a rendered text: stand-ins as plain text, everything else with control tokens parsed.
    pub(super) fn encode(&self, rendered: &str, tokenizer: &Tokenizer) -> Result<Vec<TokenId>, EncodeError> {
        let mut ids = Vec::new();
        let mut rest = rendered;
        while let Some(at) = rest.find(self.stand_ins.as_slice()) {
            ids.extend(tokenizer.encode(&rest[..at], Specials::Parse)?.ids);
            let mut after = rest[at..].chars();
            let stand_in = after.next();
            let which = self.stand_ins.iter().position(|c| Some(*c) == stand_in);
            let text = which.map_or("", |i| &self.texts[i]);
            ids.extend(tokenizer.encode(text, Specials::Plain)?.ids);
            rest = after.as_str();
        }
        ids.extend(tokenizer.encode(rest, Specials::Parse)?.ids);
        Ok(ids)
    }
}

/// Characters that mean nothing to anybody: Supplementary Private Use Area-B.
const PRIVATE: std::ops::RangeInclusive<char> = '\u{100000}'..='\u{10fffd}';

/// Where `text` spells which of `control` (longest first), from left to right, none overlapping.
fn spellings(text: &str, control: &[String]) -> Vec<(usize, usize)> {
    let mut firsts: Vec<char> = control.iter().filter_map(|c| c.chars().next()).collect();
    firsts.sort_unstable();
    firsts.dedup();
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find(firsts.as_slice()).map(|at| from + at) {
        let which = control.iter().position(|c| text[at..].starts_with(c.as_str()));
        found.extend(which.map(|i| (at, i)));
        let first = text[at..].chars().next().map_or(1, char::len_utf8);
        from = at + which.map_or(first, |i| control[i].len());
    }
    found
}

/// Calls `look` with every string and key in `value`.
fn visit(value: &Value, look: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => look(text),
        Value::Array(items) => items.iter().for_each(|item| visit(item, look)),
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            look(key);
            visit(value, look);
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn control() -> Vec<String> {
        ["<|im_end|>", "[INST]", "<|im", "<s>"].map(String::from).to_vec()
    }

    #[test]
    fn spellings_are_found_everywhere_and_the_longest_wins() {
        let control = control();
        let found = |text| spellings(text, &control);
        assert_eq!(found("a <|im_end|><|im_e [INST]é<s>"), [(2, 0), (12, 2), (19, 1), (27, 3)]);
        assert_eq!(found("a < b [x] <|i"), []);
    }

    #[test]
    fn plain_requests_need_no_disguise() {
        let value = json!([{"role": "user", "content": "a < b, [1], <|i"}]);
        assert!(Disguise::of(&[&value], &control()).unwrap().is_empty());
    }

    #[test]
    fn strings_and_keys_at_any_depth_are_disguised_by_unused_characters() {
        let value = json!([{"content": "x<s>y\u{100000}", "tool_calls": [{"[INST]": ["<s><s>"]}], "n": 3}]);
        let disguise = Disguise::of(&[&value], &control()).unwrap();
        let (inst, s) = ('\u{100001}', '\u{100002}');
        let want = json!([{"content": format!("x{s}y\u{100000}"), "tool_calls": [{inst.to_string(): [format!("{s}{s}")]}], "n": 3}]);
        assert_eq!(disguise.put_on(&value), want);
    }

    #[test]
    fn a_request_that_uses_up_every_private_character_is_refused() {
        let value = json!([PRIVATE.collect::<String>(), "<s>"]);
        assert!(Disguise::of(&[&value], &control()).is_none());
    }
}
