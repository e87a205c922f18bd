//! A text as JSON records with their places: the elements of one array, or values one after another (JSON Lines).
//!
//! One record is taken apart at a time, so a large file costs little more than its questions. Knows no field.
//! Tests: at the end of this file.

use serde_json::{Deserializer, Value};

use super::error::{At, DataError, Problem};

/// The records of a text, each with its place. Ends after the first error.
pub(super) struct Records<'a> {
    file: &'a str,
    text: &'a str,
    /// Bytes read.
    byte: usize,
    /// The line of the next byte, from 1.
    line: usize,
    /// Records read.
    n_read: usize,
    in_array: bool,
    over: bool,
}

impl<'a> Records<'a> {
    /// Fails when the text is blank.
    pub(super) fn new(file: &'a str, text: &'a str) -> Result<Self, DataError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut records = Self { file, text, byte: 0, line: 1, n_read: 0, in_array: false, over: false };
        records.skip_blank();
        if records.rest().is_empty() {
            return Err(DataError::new(file, At::File, Problem::Empty));
        }
        records.in_array = records.skip_mark('[');
        Ok(records)
    }

    fn rest(&self) -> &'a str {
        &self.text[self.byte..]
    }

    fn advance(&mut self, n_bytes: usize) {
        self.line += self.rest()[..n_bytes].matches('\n').count();
        self.byte += n_bytes;
    }

    /// Skips what JSON calls white space.
    fn skip_blank(&mut self) {
        let after = self.rest().trim_start_matches([' ', '\t', '\r', '\n']);
        self.advance(self.rest().len() - after.len());
    }

    fn skip_mark(&mut self, mark: char) -> bool {
        let there = self.rest().starts_with(mark);
        if there {
            self.advance(mark.len_utf8());
        }
        there
    }

    fn not_json(&self, reason: &str, lines_on: usize, column: usize) -> DataError {
        let before = &self.text[..self.byte];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = if lines_on == 0 { self.byte - line_start + column } else { column };
        let problem = Problem::NotJson { reason: reason.to_owned(), line: self.line + lines_on, column };
        let at = if self.in_array { At::Record(self.n_read + 1) } else { At::Line(self.line) };
        DataError::new(self.file, at, problem)
    }

    /// Whether the array goes on; stands before the next element then, and else behind all.
    fn array_goes_on(&mut self) -> Result<bool, DataError> {
        if self.skip_mark(']') {
            self.skip_blank();
            return match self.rest() {
                "" => Ok(false),
                _ => Err(self.not_json("something follows the array", 0, 1)),
            };
        }
        if self.n_read > 0 && !self.skip_mark(',') {
            return Err(self.not_json("expected `,` or `]`", 0, 1));
        }
        self.skip_blank();
        Ok(true)
    }

    fn read(&mut self) -> Result<Option<(At, Value)>, DataError> {
        self.skip_blank();
        let goes_on = if self.in_array { self.array_goes_on()? } else { !self.rest().is_empty() };
        if !goes_on {
            return Ok(None);
        }
        let at = if self.in_array { At::Record(self.n_read + 1) } else { At::Line(self.line) };
        let mut values = Deserializer::from_str(self.rest()).into_iter::<Value>();
        let value = match values.next() {
            Some(Ok(value)) => value,
            Some(Err(e)) => {
                let told = e.to_string();
                let reason = told.rsplit_once(" at line ").map_or(told.as_str(), |(reason, _)| reason);
                return Err(self.not_json(reason, e.line().saturating_sub(1), e.column()));
            }
            None => return Err(self.not_json("the array has no end", 0, 0)),
        };
        self.advance(values.byte_offset());
        self.n_read += 1;
        Ok(Some((at, value)))
    }
}

impl Iterator for Records<'_> {
    type Item = Result<(At, Value), DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let read = self.read().transpose();
        self.over = !matches!(read, Some(Ok(_)));
        read
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn all(text: &str) -> Result<Vec<(At, Value)>, DataError> {
        Records::new("f", text)?.collect()
    }

    #[test]
    fn arrays_count_records_and_lines_count_lines() {
        for text in ["[1, {\"a\": [2]}]", "\u{feff} \n[1,\n\n{\"a\":[2]} ] \r\n"] {
            assert_eq!(all(text).unwrap(), [(At::Record(1), json!(1)), (At::Record(2), json!({"a": [2]}))]);
        }
        let lines = "\n{\"a\": 1}\r\n\n{\n\"b\": 2\n}\n{\"c\": 3}";
        let places: Vec<At> = all(lines).unwrap().into_iter().map(|(at, _)| at).collect();
        assert_eq!(places, [At::Line(2), At::Line(4), At::Line(7)]);
        assert_eq!(all("[]").unwrap(), []);
    }

    #[test]
    fn broken_json_is_told_with_record_line_and_column() {
        for (text, at, place, says) in [
            ("[1, 2", At::Record(3), (1, 6), "expected `,` or `]`"),
            ("[1,", At::Record(2), (1, 3), "no end"),
            ("[", At::Record(1), (1, 1), "no end"),
            ("[1,]", At::Record(2), (1, 4), "expected value"),
            ("[1 2]", At::Record(2), (1, 4), "expected `,` or `]`"),
            ("[1]\n 2", At::Record(2), (2, 2), "follows"),
            ("[1,\n {\"a\":\n  x}]", At::Record(2), (3, 3), "expected value"),
            ("{}\n  nonsense", At::Line(2), (2, 4), "expected ident"),
            ("{},{}", At::Line(1), (1, 3), "expected value"),
            ("{\"a\": 1}\n{\"a\": \"\\ud800\"}", At::Line(2), (2, 14), "hex escape"),
        ] {
            let error = all(text).unwrap_err();
            let Problem::NotJson { reason, line, column } = &error.problem else { panic!("{error}") };
            assert!(error.at == at && reason.contains(says), "{text}: {error}");
            assert_eq!((*line, *column), place, "{text}: {error}");
            assert!(!reason.contains(" at line "), "{reason}");
        }
        for blank in ["", "\u{feff}", " \n\t\r\n"] {
            assert_eq!(all(blank).unwrap_err().problem, Problem::Empty);
        }
    }

    #[test]
    fn reading_ends_with_the_first_error() {
        let mut records = Records::new("f", "{} x {}").unwrap();
        assert!(records.next().unwrap().is_ok());
        assert!(records.next().unwrap().is_err());
        assert!(records.next().is_none());
    }

    #[test]
    fn nesting_without_end_is_an_error_and_no_overflow() {
        assert!(all(&"[".repeat(100_000)).is_err());
        assert!(all(&"{\"a\":".repeat(100_000)).is_err());
    }
}
