//! A chunk as the caller gives it, and as it lies in the prompt; from tokens back to the caller's characters.

use serde::{Deserialize, Serialize};

use crate::ids::Span;

/// One piece of retrieved text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chunk {
    /// The caller's name for it; never shown to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Shown before the text; an empty one counts as none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Where it came from; never shown to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The text itself.
    pub text: String,
}

impl Chunk {
    /// The serialised text, `title: text` or `text`, and how many characters of it come before `text`.
    #[must_use]
    pub fn serialise(&self) -> (String, usize) {
        match self.title.as_deref() {
            Some(title) if !title.is_empty() => {
                (format!("{title}: {}", self.text), title.chars().count() + 2)
            }
            _ => (self.text.clone(), 0),
        }
    }
}

/// Where one chunk lies in a scoring prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkSpan {
    /// Positions of the scored tokens inside the prefix: every token that overlaps the serialised text,
    /// up to the cut.
    pub span: Span,
    /// For each scored token, the characters (Unicode scalar values) of `text` it covers.
    pub offsets: Vec<Span>,
    /// Tokens before the cut.
    pub tokens: usize,
    /// Whether the chunk was cut.
    pub truncated: bool,
    /// The whole serialised text, also the part that was cut.
    pub text: String,
    /// Characters of `text` that come before the caller's own text: the title and `: `.
    pub title_chars: usize,
}

/// What a range of the serialised text is in the caller's own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Whether the range begins in the title (or in the `: ` after it).
    pub in_title: bool,
    /// The part of the range that lies in the caller's `text` field, in characters; none when it lies in
    /// the title alone.
    pub text: Option<Span>,
}

impl ChunkSpan {
    /// Maps a range of characters of the serialised text to the caller's fields.
    #[must_use]
    pub fn place(&self, chars: Span) -> Place {
        let in_title = chars.start < self.title_chars;
        let reaches_text = !in_title || chars.end > self.title_chars;
        let from_title = |at: usize| at.saturating_sub(self.title_chars);
        Place {
            in_title,
            text: reaches_text.then(|| Span::new(from_title(chars.start), from_title(chars.end))),
        }
    }

    /// The characters of the serialised text that a range of scored tokens covers (token indices counted
    /// from the chunk's first). None for an empty range. Panics when the range leaves the chunk.
    #[must_use]
    pub fn chars(&self, tokens: Span) -> Option<Span> {
        let offsets = &self.offsets[tokens.range()];
        let start = offsets.iter().map(|o| o.start).min()?;
        let end = offsets.iter().map(|o| o.end).max()?;
        Some(Span::new(start, end))
    }

    /// Both steps at once: from scored tokens to the caller's fields.
    #[must_use]
    pub fn place_of_tokens(&self, tokens: Span) -> Option<Place> {
        self.chars(tokens).map(|chars| self.place(chars))
    }
}

/// Turns a range of characters of `text` into the same range in bytes of its UTF-8 form. None when the
/// text is shorter.
#[must_use]
pub fn byte_span(text: &str, chars: Span) -> Option<Span> {
    let mut borders = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    let start = borders.nth(chars.start)?;
    match chars.len().checked_sub(1) {
        None => Some(Span::new(start, start)),
        Some(skipped) => Some(Span::new(start, borders.nth(skipped)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(title: &str, text: &str) -> ChunkSpan {
        let chunk = Chunk { title: Some(title.to_owned()), text: text.to_owned(), ..Chunk::default() };
        let (text, title_chars) = chunk.serialise();
        let offsets: Vec<Span> = (0..text.chars().count()).map(|i| Span::new(i, i + 1)).collect();
        ChunkSpan {
            span: Span::new(0, offsets.len()),
            tokens: offsets.len(),
            truncated: false,
            offsets,
            text,
            title_chars,
        }
    }

    #[test]
    fn ranges_go_back_to_the_field_they_came_from() {
        let chunk = span("Ünï", "né😀w"); // serialised: "Ünï: né😀w", the text starts at 5
        assert_eq!((chunk.text.as_str(), chunk.title_chars), ("Ünï: né😀w", 5));
        assert_eq!(chunk.place(Span::new(0, 3)), Place { in_title: true, text: None });
        assert_eq!(chunk.place(Span::new(3, 5)), Place { in_title: true, text: None });
        assert_eq!(chunk.place(Span::new(2, 7)), Place { in_title: true, text: Some(Span::new(0, 2)) });
        assert_eq!(chunk.place(Span::new(7, 9)), Place { in_title: false, text: Some(Span::new(2, 4)) });
        assert_eq!(chunk.place(Span::new(5, 5)), Place { in_title: false, text: Some(Span::new(0, 0)) });
        assert_eq!(chunk.place_of_tokens(Span::new(6, 8)).and_then(|p| p.text), Some(Span::new(1, 3)));
        assert_eq!(chunk.chars(Span::new(4, 4)), None);
    }

    #[test]
    fn an_empty_title_is_none() {
        let chunk = span("", "x");
        assert_eq!((chunk.text.as_str(), chunk.title_chars), ("x", 0));
        assert_eq!(chunk.place(Span::new(0, 1)), Place { in_title: false, text: Some(Span::new(0, 1)) });
    }

    #[test]
    fn bytes_cut_the_text_where_characters_do() {
        let text = "aé😀\r\nש";
        let n = text.chars().count();
        for start in 0..=n {
            for end in start..=n {
                let want: String = text.chars().skip(start).take(end - start).collect();
                let bytes = byte_span(text, Span::new(start, end)).expect("inside the text");
                assert_eq!(&text[bytes.range()], want);
            }
        }
        assert_eq!(byte_span(text, Span::new(0, n + 1)), None);
        assert_eq!(byte_span(text, Span::new(n + 1, n + 1)), None);
    }
}
