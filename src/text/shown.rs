//! Texts out of files, made fit for a message: short, on one line, without commands to the terminal.

/// Most characters of a name.
const NAME: usize = 80;

/// Most characters of a sentence.
const SENTENCE: usize = 400;

/// `text` as a message may hold it: control and other invisible characters escaped, cut after 80 characters with the
/// number of all of them.
#[must_use]
pub fn shown(text: &str) -> String {
    cut(text, NAME)
}

/// The same for a whole sentence that may quote a file, such as what a parser said of it: cut after 400 characters.
#[must_use]
pub fn shown_sentence(text: &str) -> String {
    cut(text, SENTENCE)
}

fn cut(text: &str, most: usize) -> String {
    let mut out = String::new();
    for c in text.chars().take(most) {
        match c {
            '"' | '\'' | '\\' => out.push(c),
            _ => out.extend(c.escape_debug()),
        }
    }
    match text.chars().count() {
        all if all <= most => out,
        all => out + &format!("… ({all} characters)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_as_they_are_and_nothing_else_gets_through() {
        for name in ["blk.0.attn_q.weight", "Ġthe \"x\" it's \\", "日本", ""] {
            assert_eq!(shown(name), name);
        }
        assert_eq!(shown("a\u{1b}[31m\n\u{202e}"), "a\\u{1b}[31m\\n\\u{202e}");
        assert_eq!(shown(&"x".repeat(80)), "x".repeat(80));
        assert_eq!(shown(&"é".repeat(81)), "é".repeat(80) + "… (81 characters)");
        assert_eq!(shown_sentence(&"x".repeat(400)), "x".repeat(400));
        assert_eq!(shown_sentence(&"\n".repeat(401)), "\\n".repeat(400) + "… (401 characters)");
    }
}
