//! Which parts of a conversation are search results.

use std::{collections::HashMap, ops::Range};

use regex::Regex;

use super::{Groups, group, json, list};
use crate::{
    context::Update,
    prompt::layout::{Chunk, content_hash},
};

/// What Hermes' models and those trained like them put around a tool's answer in a user's message.
const OPEN: &str = "<tool_response>";
const CLOSE: &str = "</tool_response>";

/// A message of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// `system`, `user`, `assistant`, `tool`, …
    pub role: &'a str,
    /// Its text.
    pub text: &'a str,
}

/// A tool's answer that holds search results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Which message, from 0.
    pub message: usize,
    /// Where in its text, in bytes.
    pub bytes: Range<usize>,
    /// The results, under an id made of the block's text and of how often it was there before.
    pub update: Update,
}

/// All blocks, in order. Looked through are messages of the roles `tool` and `function`, and what stands between
/// `<tool_response>` and `</tool_response>` in those of the role `user`. Read are:
///
/// - with `pattern`, its matches: a result each, of the groups named `id`, `title`, `url` and `text`;
/// - JSON: a list of objects with a text each, such a list inside an object, or a list of those;
/// - numbered lists: `1. [title](url)` and the lines after it, of several queries with `=======` between them.
///
/// What is none of these is no block, and left alone.
#[must_use]
pub fn find(messages: &[Message<'_>], pattern: Option<&Regex>) -> Vec<Block> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut blocks = Vec::new();
    for (message, Message { role, text }) in messages.iter().enumerate() {
        let parts = match *role {
            "tool" | "function" => vec![inside(text, 0..text.len())],
            "user" => responses(text),
            _ => Vec::new(),
        };
        for bytes in parts {
            let part = &text[bytes.clone()];
            let Some(groups) = read(part, pattern) else { continue };
            let hash = content_hash(&[part]);
            let before = seen.entry(hash.clone()).or_default();
            *before += 1;
            let update = Update { id: format!("{hash}-{before}"), query: None, groups };
            blocks.push(Block { message, bytes, update });
        }
    }
    blocks
}

/// A tool's message may hold the marks, too; then what they enclose is meant.
fn inside(text: &str, whole: Range<usize>) -> Range<usize> {
    match responses(text).as_slice() {
        [one] => one.clone(),
        _ => whole,
    }
}

/// What stands between the marks. An answer that is not closed reaches to the end.
fn responses(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(open) = text[at..].find(OPEN) {
        let begin = at + open + OPEN.len();
        let end = text[begin..].find(CLOSE).map_or(text.len(), |close| begin + close);
        let trimmed = text[begin..end].trim();
        let begin = begin + (text[begin..end].len() - text[begin..end].trim_start().len());
        found.push(begin..begin + trimmed.len());
        at = (end + CLOSE.len()).min(text.len());
    }
    found
}

fn read(text: &str, pattern: Option<&Regex>) -> Option<Groups> {
    match pattern {
        Some(pattern) => by_pattern(text, pattern),
        None => json::read(text).or_else(|| list::read(text)),
    }
}

fn by_pattern(text: &str, pattern: &Regex) -> Option<Groups> {
    let result = |found: regex::Captures<'_>| {
        let part = |name: &str| Some(found.name(name)?.as_str().trim().to_owned());
        Some(Chunk { id: part("id"), title: part("title"), url: part("url"), text: part("text")? })
    };
    let results: Vec<Chunk> = pattern.captures_iter(text).filter_map(result).collect();
    (!results.is_empty()).then(|| vec![group(None, results)])
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"[{"url": "u", "text": "t"}]"#;
    const LIST: &str = "1. [a](u)\nsome text";

    fn message<'a>(role: &'a str, text: &'a str) -> Message<'a> {
        Message { role, text }
    }

    #[test]
    fn blocks_are_found_where_tools_answer_and_nowhere_else() {
        let hermes = format!("<tool_response>\n{JSON}\n</tool_response>\n<tool_response>{LIST}");
        let wrapped = format!("<tool_response>\n{JSON}\n</tool_response>");
        let messages = [
            message("system", JSON),
            message("user", JSON),
            message("assistant", LIST),
            message("tool", JSON),
            message("tool", "42"),
            message("user", &hermes),
            message("tool", &wrapped),
        ];
        let blocks = find(&messages, None);
        let places: Vec<(usize, &str)> =
            blocks.iter().map(|b| (b.message, &messages[b.message].text[b.bytes.clone()])).collect();
        assert_eq!(places, [(3, JSON), (5, JSON), (5, LIST), (6, JSON)]);
        // the same text again is another update, told by its number
        let ids: Vec<&str> = blocks.iter().map(|b| b.update.id.as_str()).collect();
        let hash = content_hash(&[JSON]);
        assert_eq!((ids[0], ids[1]), (&*format!("{hash}-1"), &*format!("{hash}-2")));
        assert_eq!(ids[3], format!("{hash}-3"));
        // a longer conversation has the same blocks at its beginning
        assert_eq!(find(&messages[..5], None), blocks[..1]);
    }

    #[test]
    fn a_pattern_takes_the_place_of_all_other_forms() {
        let pattern = Regex::new(r"(?ms)^DOC (?<id>\S+) \| (?<title>.*?)\n(?<text>.*?)\n--$").unwrap();
        let text = "DOC 1 | A b\nfirst\ntext\n--\nDOC 2 | C\nsecond\n--";
        let blocks = find(&[message("tool", text), message("tool", JSON)], Some(&pattern));
        assert_eq!(blocks.len(), 1);
        let results = &blocks[0].update.groups[0].results;
        let told: Vec<_> =
            results.iter().map(|c| (c.id.as_deref(), c.title.as_deref(), c.text.as_str())).collect();
        assert_eq!(told, [(Some("1"), Some("A b"), "first\ntext"), (Some("2"), Some("C"), "second")]);
    }
}
