//! Why a schema is not taken, in words for who wrote it. The library's own tell of its parts and options.

use crate::text::shown_sentence;

/// What the library's words mean, and what begins or holds them.
const MEANINGS: [(&str, &str); 15] = [
    ("items; max is", "too many properties or branches may come next in it"),
    ("Too many items", "too many properties or branches may come next in it"),
    ("NoExtension", "nothing can follow it"),
    ("schema too large", "it is too large"),
    ("too big", "it is too large"),
    ("fuel", "its patterns take too long"),
    ("too many expressions", "its patterns take too long"),
    ("too many states", "its patterns take too long"),
    ("Unable to determine if regex is empty", "its patterns are too much together"),
    ("not disjoint", "two of its patternProperties may mean the same property"),
    ("oneOf constraints", "oneOf is followed where its branches exclude each other by a constant; use anyOf"),
    ("for integer range", "a limit of an integer is out of range (64 bits)"),
    ("for float range", "a limit of a number is out of range"),
    ("Only absolute $ref", "a $ref leads out of the schema; those that begin with #/ are followed"),
    ("invalid multiple of", "multipleOf must be above 0"),
];

/// `words` of the library, for a caller.
pub(super) fn plain(words: &str) -> String {
    if words.starts_with("regex parse error") {
        let error = words.lines().rev().find_map(|line| line.strip_prefix("error: "));
        return format!("a pattern in it cannot be read: {}", error.unwrap_or("it is no regular expression"));
    }
    if let Some(keys) = words.strip_prefix("Unimplemented keys: ") {
        return format!("these keywords are not followed: {}", shown_sentence(keys.trim_matches(['[', ']'])));
    }
    match MEANINGS.iter().find(|(part, _)| words.contains(part)) {
        Some((_, meaning)) => (*meaning).to_owned(),
        None => shown_sentence(words.lines().next().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_librarys_words_are_said_in_the_callers() {
        let table = [
            (
                "regex parse error:\n    (\n    ^\nerror: unclosed group",
                "a pattern in it cannot be read: unclosed group",
            ),
            (r#"Unimplemented keys: ["not", "if"]"#, r#"these keywords are not followed: "not", "if""#),
            ("NoExtensionBias\n<non-verbose/>", "nothing can follow it"),
            ("Invalid type: strange", "Invalid type: strange"),
            ("Parser Error: Current row has 2007 items; max is 2000; consider", MEANINGS[0].1),
        ];
        for (words, meaning) in table {
            assert_eq!(plain(words), meaning);
        }
        assert!(plain(&"ä".repeat(3000)).chars().count() < 450);
    }
}
