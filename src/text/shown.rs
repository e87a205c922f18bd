//! Texts out of files, made fit for a message: short, on one line, without commands to the terminal.

/// Most characters that are shown.
const MOST: usize = 80;

/// `text` as a message may hold it: control and other invisible characters escaped, cut after 80 characters with the
/// number of all of them.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(MOST) {
        match c {
            '"' | '\'' | '\\' => out.push(c),
            _ => out.extend(c.escape_debug()),
        }
    }
    match text.chars().count() {
        0..=MOST => out,
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
    }
}
