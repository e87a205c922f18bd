//! What stdout is, text that fits it, and lines on stderr.

use std::{
    borrow::Cow,
    fmt::Display,
    io::{self, Write},
};

use console::{Term, measure_text_width};

/// Widest lines, however wide the terminal: longer ones are hard to read.
const WIDEST: usize = 100;
const NARROWEST: usize = 40;

/// A space at which [`Flow`] does not wrap; shown as any other.
pub(super) const NO_BREAK: char = '\u{a0}';

/// The form output takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Screen {
    /// Columns to fill.
    pub(super) width: usize,
    /// Whether colours and bold are shown.
    pub(super) colour: bool,
}

impl Screen {
    /// Stdout as it is: a terminal with its width, or a file or pipe with 80 columns and no colour.
    pub(super) fn stdout() -> Self {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let columns = Term::stdout().size_checked().map_or(80, |(_, columns)| usize::from(columns));
        Self { width: columns.clamp(NARROWEST, WIDEST), colour: console::colors_enabled() && !no_colour }
    }

    /// Bold where that is shown.
    pub(super) fn bold(self, text: &str) -> String {
        self.styled(text, "1")
    }

    /// Faint where that is shown.
    pub(super) fn dim(self, text: &str) -> String {
        self.styled(text, "2")
    }

    /// Green where that is shown.
    pub(super) fn green(self, text: &str) -> String {
        self.styled(text, "32")
    }

    /// Text with a select-graphic-rendition code (ECMA-48, 8.3.117) around it.
    pub(super) fn styled(self, text: &str, code: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// A line on stderr. Where it cannot be written, there is nobody to tell, and the work goes on: `eprintln!` would panic.
pub(super) fn tell(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Fills lines with words: wraps at the width, indents every line, and takes text as it comes.
pub(super) struct Flow<W> {
    out: W,
    width: usize,
    indent: usize,
    column: usize,
    /// The word whose end has not come yet.
    pending: String,
}

impl<W: Write> Flow<W> {
    pub(super) fn new(out: W, width: usize, indent: usize) -> Self {
        Self { out, width, indent, column: 0, pending: String::new() }
    }

    /// Takes text that may end inside a word; the words before are printed at once.
    pub(super) fn push(&mut self, text: &str) -> io::Result<()> {
        for c in text.chars() {
            if !c.is_whitespace() || c == NO_BREAK {
                self.pending.push(c);
            } else if c == '\n' {
                self.end_word()?;
                self.end_line()?;
            } else {
                self.end_word()?;
            }
        }
        self.out.flush()
    }

    /// Takes one whole word, which may carry colours.
    pub(super) fn word(&mut self, word: &str) -> io::Result<()> {
        let wide = measure_text_width(word);
        if self.column > 0 && self.column + 1 + wide > self.width {
            self.end_line()?;
        }
        if self.column == 0 {
            write!(self.out, "{:1$}", "", self.indent)?;
            self.column = self.indent;
        } else {
            write!(self.out, " ")?;
            self.column += 1;
        }
        self.column += wide;
        write!(self.out, "{}", word.replace(NO_BREAK, " "))
    }

    /// Prints what is pending and ends the line.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.end_word()?;
        self.end_line()?;
        self.out.flush()
    }

    fn end_word(&mut self) -> io::Result<()> {
        let word = std::mem::take(&mut self.pending);
        if word.is_empty() { Ok(()) } else { self.word(&word) }
    }

    fn end_line(&mut self) -> io::Result<()> {
        if self.column > 0 {
            writeln!(self.out)?;
        }
        self.column = 0;
        Ok(())
    }
}

/// `text` with what would command a terminal made visible: control characters, and marks that turn the direction of
/// writing. Retrieved texts may hold anything.
pub(super) fn harmless(text: &str) -> Cow<'_, str> {
    let commands = |c: char| {
        let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        c.is_control() || turns
    };
    if text.contains(commands) { text.replace(commands, "\u{fffd}").into() } else { text.into() }
}

/// `1 input`, `1,234 inputs`: a number with what it counts, in its plural by an s unless it is 1.
pub(super) fn count(n: usize, what: &str) -> String {
    format!("{} {what}{}", thousands(n), if n == 1 { "" } else { "s" })
}

/// `text` as a shell takes it: as it is where it is plain, else quoted. What would command a terminal is made visible.
pub(super) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:@+=,%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", harmless(text).replace('\'', "'\\''"))
    }
}

/// `1,234` for 1234.
pub(super) fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|g| std::str::from_utf8(g).unwrap_or_default()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn flowed(pieces: &[&str], width: usize, indent: usize) -> String {
        let mut out = Vec::new();
        let mut flow = Flow::new(&mut out, width, indent);
        pieces.iter().for_each(|p| flow.push(p).unwrap());
        flow.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn words_cut_by_pieces_stay_whole() {
        assert_eq!(
            flowed(&["She was bo", "rn in Ven", "lach", "."], 14, 2),
            "  She was born\n  in Venlach.\n"
        );
        assert_eq!(flowed(&["one\n\ntwo "], 40, 0), "one\ntwo\n");
        assert_eq!(flowed(&["averyveryverylongword x"], 5, 1), " averyveryverylongword\n x\n");
        assert_eq!(flowed(&["took 5.4\u{a0}s"], 9, 0), "took\n5.4 s\n");
        assert_eq!(flowed(&[], 40, 2), "");
    }

    #[test]
    fn colours_take_no_room() {
        let screen = Screen { width: 12, colour: true };
        let mut out = Vec::new();
        let mut flow = Flow::new(&mut out, 12, 0);
        for word in ["aaaa", "bbbbbbb", "c"] {
            flow.word(&screen.bold(word)).unwrap();
        }
        flow.finish().unwrap();
        let lines = String::from_utf8(out).unwrap();
        assert_eq!(lines.lines().count(), 2, "{lines:?}");
        assert_eq!(Screen { width: 12, colour: false }.bold("x"), "x");
    }

    #[test]
    fn texts_command_no_terminal() {
        assert_eq!(
            harmless("a\u{1b}[31m\u{7}\u{9b}\u{202e}b\0"),
            "a\u{fffd}[31m\u{fffd}\u{fffd}\u{fffd}b\u{fffd}"
        );
        assert!(matches!(harmless("é語 👩"), Cow::Borrowed(_)));
    }

    #[test]
    fn one_is_not_many_and_commands_can_be_pasted() {
        assert_eq!(
            [0, 1, 2, 1500].map(|n| count(n, "input")),
            ["0 inputs", "1 input", "2 inputs", "1,500 inputs"]
        );
        for plain in ["study/qwen2.5", "a:b@c", "日本"] {
            assert_eq!(quoted(plain), plain);
        }
        assert_eq!([quoted("a b"), quoted("it's"), quoted("")], ["'a b'", "'it'\\''s'", "''"]);
        assert!(!quoted("\u{1b}[31m").contains('\u{1b}'));
    }

    #[test]
    fn numbers_are_grouped() {
        let shown: Vec<String> = [0, 999, 1000, 1_234_567].map(thousands).into();
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_lines_fit(words in prop::collection::vec("[a-zé語]{1,8}", 0..40), cut in 1_usize..9) {
            let text = words.join(" ");
            let chars: Vec<char> = text.chars().collect();
            let pieces: Vec<String> = chars.chunks(cut).map(|c| c.iter().collect()).collect();
            let shown = flowed(&pieces.iter().map(String::as_str).collect::<Vec<_>>(), 24, 3);
            prop_assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), words);
            prop_assert!(shown.lines().all(|l| measure_text_width(l) <= 24));
        }
    }
}
