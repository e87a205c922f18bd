//! What makes two results the same chunk.

use std::{fmt, sync::Arc};

use icu_normalizer::ComposingNormalizer;
use serde::{Deserialize, Serialize};

use super::page::page;
use crate::prompt::layout::{Chunk, content_hash};

/// Two results with equal keys are one chunk.
///
/// The key is of the address where there is one: two texts of one page are one chunk (the first one seen), and one text
/// at two addresses is two. In JSON `{"page": …}`, `{"name": …}` or `{"text": …}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    /// The page's address in one spelling, as in `en.wikipedia.org/wiki/Mercury_(planet)`: what counts as one page is in
    /// the table of `page.rs`.
    Page(Arc<str>),
    /// A `url` that names no web page (a document's number, a path, `doi:…`), trimmed. Case counts.
    Name(Arc<str>),
    /// There is no `url`, or a blank one: `sha256:` and 64 hex digits, the [`content_hash`] of title and text, each in
    /// Unicode's composed form (NFC) with every run of white space as one space and none at the ends. Case counts, and so
    /// does the title; no title is an empty one. The caller's `id` does not count.
    Text(Arc<str>),
}

impl Key {
    /// The key of a result.
    #[must_use]
    pub fn of(chunk: &Chunk) -> Self {
        match chunk.url.as_deref().map(str::trim).filter(|url| !url.is_empty()) {
            Some(url) => page(url).map_or_else(|| Self::Name(url.into()), |page| Self::Page(page.into())),
            None => {
                let title = even(chunk.title.as_deref().unwrap_or_default());
                Self::Text(content_hash(&[&title, &even(&chunk.text)]).into())
            }
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Page(key) | Self::Name(key) | Self::Text(key)) = self;
        f.write_str(key)
    }
}

/// `text` without differences that no reader sees.
fn even(text: &str) -> String {
    let composed = ComposingNormalizer::new_nfc().normalize(text);
    let mut even = String::with_capacity(composed.len());
    for word in composed.split_whitespace() {
        if !even.is_empty() {
            even.push(' ');
        }
        even.push_str(word);
    }
    even
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(url: Option<&str>, title: Option<&str>, text: &str) -> Chunk {
        let own = |s: Option<&str>| s.map(str::to_owned);
        Chunk { id: None, url: own(url), title: own(title), text: text.to_owned() }
    }

    fn key(url: Option<&str>, title: Option<&str>, text: &str) -> Key {
        Key::of(&chunk(url, title, text))
    }

    #[test]
    fn the_address_decides_where_there_is_one() {
        let page = key(Some(" https://www.a.org/x/ "), Some("t"), "one");
        assert_eq!(page, Key::Page("a.org/x".into()));
        assert_eq!(page, key(Some("http://a.org/x"), None, "two"));
        assert_ne!(page, key(Some("http://a.org/y"), Some("t"), "one"));
        assert_ne!(page, key(Some("a.org/x"), Some("t"), "one"), "no address is guessed");
        assert_eq!(key(Some(" doc 17\n"), None, "x"), Key::Name("doc 17".into()));
        assert_ne!(key(Some("doc-17"), None, "x"), key(Some("DOC-17"), None, "x"));
    }

    #[test]
    fn without_address_title_and_text_decide() {
        let one = key(None, Some("Café"), "a b\u{a0}c");
        assert!(matches!(&one, Key::Text(hash) if hash.starts_with("sha256:") && hash.len() == 71));
        assert_eq!(one, key(Some(" \t"), Some(" Cafe\u{301}"), "\r\n a\u{2003}b\t\tc "));
        assert_eq!(one, Key::of(&Chunk { id: Some("7".into()), ..chunk(None, Some("Café"), "a b c") }));
        assert_eq!(key(None, None, "x"), key(None, Some(" "), "x"));
        for (title, text) in
            [("Café", "a bc"), ("Café", "A b c"), ("Cafe", "a b c"), ("", "Café a b c"), ("Café a", "b c")]
        {
            assert_ne!(one, key(None, Some(title), text), "{title:?} {text:?}");
        }
        // composed means the same letters, not similar ones
        assert_ne!(key(None, None, "x²"), key(None, None, "x2"));
        assert_eq!(key(None, None, ""), key(None, None, " \n"));
    }

    #[test]
    fn keys_are_readable_in_json() {
        for (key, json) in [
            (key(Some("https://a.org/x"), None, ""), r#"{"page":"a.org/x"}"#),
            (key(Some("doc-17"), None, ""), r#"{"name":"doc-17"}"#),
        ] {
            assert_eq!(serde_json::to_string(&key).unwrap(), json);
            assert_eq!(serde_json::from_str::<Key>(json).unwrap(), key);
        }
    }
}
