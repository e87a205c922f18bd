//! Finding the reference answer in chunk text, and which questions are of use for that.
//!
//! Case is ignored by comparing *letters*: the lowercase mapping of each character on its own (`İ` becomes two
//! letters), with `ς` taken for `σ`, since which of the two a capital `Σ` becomes depends on its neighbours. Each letter
//! remembers its character, so positions are those of the text as given. Knows no token. Tests: at the end of this file.

use super::question::Question;
use crate::ids::Span;

/// Whether heads can be localized with a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Usability {
    /// Its answer occurs in the text of at least one chunk.
    Usable,
    /// The answer is yes or no: where these words stand says nothing.
    YesNo,
    /// No answer is given, or a blank one.
    NoAnswer,
    /// The answer occurs in no chunk.
    NotInText,
}

/// Says whether and why not a question can be used for localization. The text of a chunk is its serialised form, so
/// an answer in a title counts.
#[must_use]
pub fn usability(question: &Question) -> Usability {
    let answer = question.answer.as_deref().unwrap_or("").trim();
    if answer.is_empty() {
        return Usability::NoAnswer;
    }
    if ["yes", "no"].iter().any(|word| answer.eq_ignore_ascii_case(word)) {
        return Usability::YesNo;
    }
    let holds = question.chunks.iter().any(|chunk| !answer_spans(&chunk.serialise().0, answer).is_empty());
    if holds { Usability::Usable } else { Usability::NotInText }
}

/// Where `answer` occurs in `text`: every occurrence, also overlapping ones, in ascending order, as ranges of
/// characters (Unicode scalar values) of `text`. Case is ignored and the answer trimmed; a blank one occurs nowhere.
/// An occurrence consists of whole characters: `i` is not found in `İ`, whose lowercase is `i` and a dot above.
#[must_use]
pub fn answer_spans(text: &str, answer: &str) -> Vec<Span> {
    let wanted: Vec<char> = answer.trim().chars().flat_map(letters_of).collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    let letters = letters(text);
    let borders = borders(&wanted);
    let mut spans = Vec::new();
    let mut matched = 0; // letters of `wanted` that end here (Knuth, Morris, Pratt)
    for (at, last) in letters.iter().enumerate() {
        matched = extend(&wanted, &borders, matched, last.letter);
        if matched == wanted.len() {
            let first = letters[at + 1 - matched];
            if first.opens && last.closes {
                spans.push(Span::new(first.char_idx, last.char_idx + 1));
            }
            matched = borders[matched - 1];
        }
    }
    spans
}

/// One letter of a text's lowercase form.
#[derive(Clone, Copy)]
struct Letter {
    letter: char,
    /// The character of the text it comes from.
    char_idx: usize,
    /// Whether it is the first letter of that character.
    opens: bool,
    /// Whether it is the last one.
    closes: bool,
}

fn letters(text: &str) -> Vec<Letter> {
    let mut all = Vec::with_capacity(text.len());
    for (char_idx, c) in text.chars().enumerate() {
        let mut opens = true;
        let mut own = letters_of(c).peekable();
        while let Some(letter) = own.next() {
            all.push(Letter { letter, char_idx, opens, closes: own.peek().is_none() });
            opens = false;
        }
    }
    all
}

/// The letters of one character; at least one.
fn letters_of(c: char) -> impl Iterator<Item = char> {
    c.to_lowercase().map(|letter| if letter == 'ς' { 'σ' } else { letter })
}

/// For each prefix of `wanted`, by its length minus one: the length of its longest proper prefix that it also ends with.
fn borders(wanted: &[char]) -> Vec<usize> {
    let mut borders = vec![0; wanted.len()];
    for end in 1..wanted.len() {
        borders[end] = extend(wanted, &borders, borders[end - 1], wanted[end]);
    }
    borders
}

/// The longest prefix of `wanted` that ends with `next`, after one of `matched < wanted.len()` letters.
fn extend(wanted: &[char], borders: &[usize], mut matched: usize, next: char) -> usize {
    while matched > 0 && wanted[matched] != next {
        matched = borders[matched - 1];
    }
    matched + usize::from(wanted[matched] == next)
}

#[cfg(test)]
mod tests {
    use proptest::{
        collection::vec,
        prelude::*,
        sample::{Index, select},
    };

    use super::*;
    use crate::prompt::layout::Chunk;

    fn found(text: &str, answer: &str) -> Vec<(usize, usize)> {
        answer_spans(text, answer).into_iter().map(|s| (s.start, s.end)).collect()
    }

    /// Lowercase of whole characters, as the module's head says it.
    fn lower(chars: &[char]) -> String {
        chars.iter().flat_map(|c| c.to_lowercase()).collect::<String>().replace('ς', "σ")
    }

    /// Compares every piece of the text with the answer.
    fn twin(text: &str, answer: &str) -> Vec<Span> {
        let chars: Vec<char> = text.chars().collect();
        let wanted = lower(&answer.trim().chars().collect::<Vec<_>>());
        let pieces = (0..chars.len()).flat_map(|a| (a + 1..=chars.len()).map(move |b| (a, b)));
        pieces.filter(|&(a, b)| lower(&chars[a..b]) == wanted).map(|(a, b)| Span::new(a, b)).collect()
    }

    #[test]
    fn every_occurrence_is_found_whatever_its_case() {
        assert_eq!(found("Paris is paris, not PARIS.", "paris"), [(0, 5), (9, 14), (20, 25)]);
        assert_eq!(found("aaAa", "aa"), [(0, 2), (1, 3), (2, 4)]);
        assert_eq!(found("abababx", "ABAB"), [(0, 4), (2, 6)]);
        assert_eq!(found("a", "ab"), []);
        assert_eq!(found("", "a"), []);
    }

    #[test]
    fn answers_are_trimmed_and_blank_ones_occur_nowhere() {
        assert_eq!(found("in Rome", " rome\n"), [(3, 7)]);
        for blank in ["", " ", "\t\u{a0}\u{3000}\n"] {
            assert_eq!(found(" a \t\u{a0}\u{3000}\n", blank), []);
        }
    }

    #[test]
    fn no_character_shifts_the_ones_after_it() {
        for before in ["İİ ", "ßẞ ", "Σς ", "e\u{301} ", "😀😀 ", "漢字 ", "\u{212a}K ", "ŉǰ ", "\u{0} \r\n"]
        {
            let n = before.chars().count();
            assert_eq!(found(&format!("{before}Oslo"), "oSLO"), [(n, n + 4)], "after {before:?}");
        }
    }

    #[test]
    fn case_is_that_of_unicode() {
        assert_eq!(found("STRAẞE straße STRASSE", "Straße"), [(0, 6), (7, 13)]);
        assert_eq!(found("ΟΔΟΣ οδος Οδοσ", "οδός".replace('ό', "ο").as_str()), [(0, 4), (5, 9), (10, 14)]);
        assert_eq!(found("ÉTÉ été", "Été"), [(0, 3), (4, 7)]);
        assert_eq!(found("ПУШКИН", "Пушкин"), [(0, 6)]);
        assert_eq!(found("300 \u{212a}elvin", "kelvin"), [(4, 10)]);
    }

    #[test]
    fn an_occurrence_is_made_of_whole_characters() {
        let dotted = "İstanbul"; // lowercase: i, U+0307, stanbul
        assert_eq!(found(dotted, "i\u{307}stanbul"), [(0, 8)]);
        assert_eq!(found("i\u{307}stanbul", dotted), [(0, 9)]);
        assert_eq!(found(dotted, "i"), [], "would end inside of İ");
        assert_eq!(found(dotted, "\u{307}stanbul"), [], "would begin inside of İ");
        assert_eq!(found("i\u{307}", "i"), [(0, 1)], "two characters");
    }

    fn question(answer: Option<&str>, title: &str) -> Question {
        let chunk =
            |text: &str| Chunk { title: Some(title.to_owned()), text: text.to_owned(), ..Chunk::default() };
        Question {
            chunks: vec![chunk("no matter"), chunk("Yes, by Ada.")],
            answer: answer.map(str::to_owned),
            ..Question::default()
        }
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        for (answer, want) in [
            (Some("ada"), Usability::Usable),
            (Some("Byron"), Usability::Usable),
            (Some("Byron: no"), Usability::Usable),
            (Some("Lovelace"), Usability::NotInText),
            (Some("Yes"), Usability::YesNo),
            (Some(" NO "), Usability::YesNo),
            (Some("no matter"), Usability::Usable),
            (Some(" \n"), Usability::NoAnswer),
            (None, Usability::NoAnswer),
        ] {
            assert_eq!(usability(&question(answer, "Byron")), want, "{answer:?}");
        }
        assert_eq!(
            usability(&Question { answer: Some("a".into()), ..Question::default() }),
            Usability::NotInText
        );
    }

    /// Few characters, so that answers do occur; most of them odd.
    fn odd_text(most: usize) -> impl Strategy<Value = String> {
        let alphabet = "aaAiİI\u{307}ßẞΣσςée\u{301}kK\u{212a}😀漢 ".chars().collect::<Vec<_>>();
        vec(select(alphabet), 0..most).prop_map(|chars| chars.into_iter().collect())
    }

    fn any_text(most: usize) -> impl Strategy<Value = String> {
        vec(any::<char>(), 0..most).prop_map(|chars| chars.into_iter().collect())
    }

    proptest! {
        #[test]
        fn spans_are_those_of_the_slow_twin(text in odd_text(24), answer in odd_text(4)) {
            prop_assert_eq!(answer_spans(&text, &answer), twin(&text, &answer));
        }

        #[test]
        fn pieces_of_a_text_are_found_in_it(
            text in prop_oneof![odd_text(30), any_text(30)], from in any::<Index>(), to in any::<Index>(),
        ) {
            let chars: Vec<char> = text.chars().collect();
            let (a, b) = (from.index(chars.len() + 1), to.index(chars.len() + 1));
            let (a, b) = (a.min(b), a.max(b));
            let answer: String = chars[a..b].iter().collect();
            let spans = answer_spans(&text, &answer);
            prop_assert_eq!(&spans, &twin(&text, &answer));
            prop_assert_eq!(&spans, &answer_spans(&text, &lower(&chars[a..b])));
            if answer.trim() == answer && !answer.is_empty() {
                prop_assert!(spans.contains(&Span::new(a, b)), "{:?} not at {}..{}", answer, a, b);
            }
        }
    }
}
