//! Pictures as lines of a terminal: columns, colours, blocks.

use console::measure_text_width;

use super::{
    colour::{Colour, is_light},
    words::{clean, finite},
};

/// How a piece of a line looks; without colour it is plain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Paint {
    front: Option<u8>,
    back: Option<u8>,
    bold: bool,
    dim: bool,
}

/// As the terminal writes.
pub(super) const PLAIN: Paint = Paint { front: None, back: None, bold: false, dim: false };
pub(super) const BOLD: Paint = Paint { bold: true, ..PLAIN };
pub(super) const DIM: Paint = Paint { dim: true, ..PLAIN };

/// In a colour.
pub(super) fn front(colour: Colour) -> Paint {
    Paint { front: Some(colour.brighter().terminal()), ..PLAIN }
}

/// On a colour of the terminal, in black or white.
pub(super) fn on(index: u8) -> Paint {
    let text = if is_light(index) { 16 } else { 231 };
    Paint { front: Some(text), back: Some(index), ..PLAIN }
}

impl Paint {
    /// Its codes (ECMA-48 8.3.117, with the usual extension to 256 colours), joined by semicolons.
    fn codes(self) -> String {
        let mut codes = Vec::new();
        codes.extend(self.bold.then(|| "1".to_owned()));
        codes.extend(self.dim.then(|| "2".to_owned()));
        codes.extend(self.front.map(|c| format!("38;5;{c}")));
        codes.extend(self.back.map(|c| format!("48;5;{c}")));
        codes.join(";")
    }
}

/// Columns a text takes.
pub(super) fn columns(text: &str) -> usize {
    measure_text_width(text)
}

/// `text` in exactly `width` columns: filled with spaces, or cut before "…".
pub(super) fn pad(text: &str, width: usize) -> String {
    let mut text = clean(text);
    if columns(&text) > width {
        let mut kept = String::new();
        let mut used = 1;
        for c in text.chars() {
            used += columns(c.encode_utf8(&mut [0; 4]));
            if used > width {
                break;
            }
            kept.push(c);
        }
        text = if width == 0 { String::new() } else { kept + "…" };
    }
    let spaces = width.saturating_sub(columns(&text));
    text + &" ".repeat(spaces)
}

/// `text` at the right end of `width` columns.
pub(super) fn pad_left(text: &str, width: usize) -> String {
    let text = clean(text);
    let spaces = width.saturating_sub(columns(&text));
    " ".repeat(spaces) + &text
}

/// Lines no wider than a terminal.
pub(super) struct Lines {
    width: usize,
    colour: bool,
    done: String,
    /// The line being written, with its colours.
    line: String,
    used: usize,
}

impl Lines {
    pub(super) fn new(width: usize, colour: bool) -> Self {
        Self { width, colour, done: String::new(), line: String::new(), used: 0 }
    }

    /// Columns of a line.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn colour(&self) -> bool {
        self.colour
    }

    /// Adds to the line what fits.
    pub(super) fn put(&mut self, text: &str, paint: Paint) {
        let mut kept = String::new();
        for c in clean(text).chars() {
            let wide = columns(c.encode_utf8(&mut [0; 4]));
            if self.used + wide > self.width {
                self.used = self.width;
                break;
            }
            self.used += wide;
            kept.push(c);
        }
        let codes = paint.codes();
        if self.colour && !codes.is_empty() && !kept.is_empty() {
            self.line += &format!("\x1b[{codes}m{kept}\x1b[0m");
        } else {
            self.line += &kept;
        }
    }

    /// Ends the line.
    pub(super) fn end(&mut self) {
        self.done += self.line.trim_end();
        self.done.push('\n');
        self.line.clear();
        self.used = 0;
    }

    /// One whole line.
    pub(super) fn row(&mut self, text: &str, paint: Paint) {
        self.put(text, paint);
        self.end();
    }

    /// A title, cut if it is too long; nothing for an empty one.
    pub(super) fn title(&mut self, text: &str) {
        if !text.is_empty() {
            let text = pad(text, self.width);
            self.row(text.trim_end(), BOLD);
        }
    }

    /// Sentences over as many lines as they take.
    pub(super) fn paragraph(&mut self, text: &str, paint: Paint) {
        let mut line = String::new();
        for word in clean(text).split_whitespace() {
            if !line.is_empty() && columns(&line) + 1 + columns(word) > self.width {
                self.row(&line, paint);
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line += word;
        }
        if !line.is_empty() {
            self.row(&line, paint);
        }
    }

    pub(super) fn finish(self) -> String {
        self.done
    }
}

/// A bar over a share of `width` columns, in eighths of a column; filled up with spaces.
pub(super) fn bar(share: f64, width: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (finite(share).unwrap_or(0.0).clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    pad(&("█".repeat(eighths / 8) + PARTS[eighths % 8]), width)
}

/// A column's block for a share of its height, in eighths: ' ' to '█'.
pub(super) fn block(share: f64) -> char {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    BLOCKS[(finite(share).unwrap_or(0.0).clamp(0.0, 1.0) * 8.0).round() as usize]
}

/// The column of `width` that a share of the way lies in.
pub(super) fn column(share: f64, width: usize) -> usize {
    ((share * width as f64) as usize).min(width.saturating_sub(1))
}

/// A value with its interval as `├──●──┤` over `width` columns. All are shares of the way.
pub(super) fn whisker(value: f64, interval: Option<(f64, f64)>, width: usize) -> String {
    let mut cells = vec![' '; width];
    if let Some((low, high)) = interval {
        let (from, to) = (column(low, width), column(high, width));
        cells.iter_mut().take(to + 1).skip(from).for_each(|c| *c = '─');
        if from < to && width > 0 {
            (cells[from], cells[to]) = ('├', '┤');
        }
    }
    if let Some(cell) = cells.get_mut(column(value, width)) {
        *cell = '●';
    }
    cells.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::colour::STRONG;

    #[test]
    fn texts_are_padded_and_cut_to_columns() {
        assert_eq!(
            [pad("ab", 4), pad("abcdef", 4), pad("語語語", 4), pad("a", 0)],
            ["ab  ", "abc…", "語… ", ""]
        );
        assert_eq!(pad_left("7", 3), "  7");
        assert_eq!(pad("a\u{1b}b", 3), "a\u{fffd}b");
    }

    #[test]
    fn bars_and_whiskers_show_shares() {
        assert_eq!([bar(1.0, 2), bar(0.0, 2), bar(0.5, 3), bar(7.0, 2)], ["██", "  ", "█▌ ", "██"]);
        assert_eq!(whisker(0.5, Some((0.1, 0.95)), 10), " ├───●───┤");
        assert_eq!(whisker(0.0, None, 3), "●  ");
        assert_eq!(whisker(0.0, Some((0.0, 1.0)), 0), "");
        assert_eq!([block(0.0), block(0.5), block(2.0)], [' ', '▄', '█']);
    }

    #[test]
    fn colours_take_no_columns_and_are_left_out_where_there_are_none() {
        let written = |colour| {
            let mut lines = Lines::new(5, colour);
            lines.put("ab", front(STRONG));
            lines.put("cdefg", on(25));
            lines.put("h", PLAIN);
            lines.end();
            lines.finish()
        };
        assert_eq!(written(false), "abcde\n");
        assert_eq!(written(true), "\x1b[38;5;67mab\x1b[0m\x1b[38;5;231;48;5;25mcde\x1b[0m\n");
    }

    #[test]
    fn paragraphs_wrap() {
        let mut lines = Lines::new(9, false);
        lines.paragraph("one two three  four", DIM);
        lines.title("a title too long");
        assert_eq!(lines.finish(), "one two\nthree\nfour\na title …\n");
    }
}
