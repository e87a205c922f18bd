//! Which words of a chunk respond to the query, and how that is shown. The arithmetic is pure.

use std::io::{self, Write};

use super::terminal::{Flow, Screen, harmless};
use crate::service::score::{QueryScores, TokenResponse};

/// A word and its strongest response: of any of its tokens, in any head.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Word<'a> {
    text: &'a str,
    response: f64,
}

/// How strongly a word is marked: 0 (not at all) to 3.
type Level = usize;

/// Responses from which a level begins, in noise floors ([`floor`]). Level 1 is what the `breadth` statistic counts.
const LEVELS: [f64; 3] = [1.0, 2.0, 4.0];

/// Backgrounds from pale to strong with black letters, legible on light and dark terminals (256 colours).
const COLOURS: [&str; 3] = ["38;5;16;48;5;230", "38;5;16;48;5;222", "1;38;5;16;48;5;214"];

/// The words of `text`, each with the strongest response of its tokens. `tokens` carry characters of `text`; a token
/// over the border of two words counts for the one it ends in.
pub(super) fn words<'a>(text: &'a str, tokens: &[TokenResponse]) -> Vec<Word<'a>> {
    let mut words = Vec::new();
    let mut ends = Vec::new(); // of the words, in characters
    let mut at = 0;
    for piece in text.split_inclusive(char::is_whitespace) {
        at += piece.chars().count();
        let word = piece.trim_end();
        if !word.is_empty() {
            words.push(Word { text: word, response: 0.0 });
            ends.push(at);
        }
    }
    for token in tokens {
        let Some(span) = token.span.filter(|span| !span.is_empty()) else { continue };
        let index = ends.partition_point(|&end| end < span.end);
        if let Some(word) = words.get_mut(index) {
            word.response = token.per_head.iter().copied().fold(word.response, f64::max);
        }
    }
    words
}

/// The noise floor `2 / |C|` of a query's chunks: twice what a token would get of evenly spread attention.
pub(super) fn floor(query: &QueryScores) -> f64 {
    let candidates: usize = query.chunks.iter().map(|c| c.score.n_tokens).sum();
    2.0 / candidates.max(1) as f64
}

/// The level of a word over a noise floor.
fn level(response: f64, floor: f64) -> Level {
    LEVELS.iter().filter(|&&from| response > from * floor).count()
}

/// How a chunk's text is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) screen: Screen,
    /// Columns left of the text.
    pub(super) indent: usize,
    /// Words without a mark are faint.
    pub(super) faint: bool,
}

/// Prints a chunk's words, those that respond above the noise floor marked: by colour, or in brackets where there is
/// none.
pub(super) fn print(out: &mut impl Write, look: Look, words: &[Word<'_>], floor: f64) -> io::Result<()> {
    let mut flow = Flow::new(out, look.screen.width, look.indent);
    for word in words {
        let text = harmless(word.text);
        match level(word.response, floor) {
            0 if look.faint => flow.word(&look.screen.dim(&text))?,
            level => flow.word(&mark(look.screen, &text, level))?,
        }
    }
    flow.finish()
}

/// What the marks mean, in one line.
pub(super) fn legend(screen: Screen) -> String {
    if screen.colour {
        let words = ["a little", "more", "most"];
        (1..).zip(words).map(|(level, word)| mark(screen, word, level)).collect::<Vec<_>>().join(" ")
    } else {
        "[some] [[most]]".to_owned()
    }
}

/// One pair of brackets, two for the strongest.
fn mark(screen: Screen, word: &str, level: Level) -> String {
    match (screen.colour, level) {
        (_, 0) => word.to_owned(),
        (true, _) => screen.styled(word, COLOURS[level - 1]),
        (false, 3) => format!("[[{word}]]"),
        (false, _) => format!("[{word}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Span;

    fn token(start: usize, end: usize, response: f64) -> TokenResponse {
        TokenResponse {
            span: Some(Span::new(start, end)),
            in_title: false,
            response,
            per_head: vec![response],
        }
    }

    #[test]
    fn a_word_responds_as_its_strongest_token() {
        // "Née  in Venlach." as tokens N|ée|␣|␣in|␣Ven|lach|.
        let text = "Née  in Venlach.";
        let mut tokens = vec![
            token(0, 1, 0.1),
            token(1, 3, 0.2),
            token(3, 4, 0.0),
            token(4, 7, 0.4),
            token(7, 11, 1.0),
            token(11, 15, 2.0),
            token(15, 16, 4.0),
        ];
        tokens
            .insert(0, TokenResponse { span: None, in_title: true, response: 100.0, per_head: vec![100.0] });
        let words = words(text, &tokens);
        let shown: Vec<(&str, f64)> = words.iter().map(|w| (w.text, w.response)).collect();
        assert_eq!(shown.iter().map(|w| w.0).collect::<Vec<_>>(), ["Née", "in", "Venlach."]);
        for ((_, found), expected) in shown.iter().zip([0.2, 0.4, 4.0]) {
            assert!((found - expected).abs() < 1e-12, "{shown:?}");
        }
    }

    #[test]
    fn levels_grow_and_nothing_responds_to_nothing() {
        let levels: Vec<Level> = [0.0, 0.1, 0.11, 0.3, 0.5].map(|r| level(r, 0.1)).into();
        assert_eq!(levels, [0, 0, 1, 2, 3]);
    }

    #[test]
    fn without_colour_brackets_show_the_level() {
        let plain = Screen { width: 40, colour: false };
        let colour = Screen { width: 40, colour: true };
        let marked: Vec<String> = (0..4).map(|level| mark(plain, "a", level)).collect();
        assert_eq!(marked, ["a", "[a]", "[a]", "[[a]]"]);
        assert_eq!(mark(colour, "a", 0), "a");
        assert!(mark(colour, "a", 3).contains("48;5;214"));
    }
}
