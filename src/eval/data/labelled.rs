//! Labelled chunks: any query with chunks of which it is known how relevant they are.
//!
//! `{id?, query, chunks: [text or {id?, title?, url?, text, label?}, …], labels?: [0, 1, …], answer?, trajectory_id?}`,
//! where labels stand in one of the two places. Tests: at the end of this file.

use super::{
    chunked::{self, Unnamed},
    error::DataError,
    read_questions,
};
use crate::eval::question::Question;

pub(super) const EXPECTED: &str = "a labelled record is {query, chunks, labels}";

/// Reads JSON Lines or a JSON array. Every question has labels, one per chunk. A question without an id is named after
/// its trajectory, if it has one, or else by its number in the file (`#3`).
///
/// # Errors
/// When the text is not of this form; the message says where and why.
pub fn parse(file: &str, text: &str) -> Result<Vec<Question>, DataError> {
    let mut unnamed = Unnamed::new();
    read_questions(file, text, EXPECTED, |fields, number| {
        let question = chunked::question(fields, number, &mut unnamed)?;
        if question.labels.is_none() {
            return Err(fields.missing("labels"));
        }
        Ok(question)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{eval::data::At, prompt::layout::Chunk};

    fn labels(text: &str) -> Vec<u32> {
        parse("f", text).unwrap().remove(0).labels.unwrap()
    }

    #[test]
    fn labels_stand_beside_the_chunks_or_in_them() {
        assert_eq!(
            labels(r#"{"query": "q", "chunks": ["x", {"text": "y"}, "z"], "labels": [0, 31, 1]}"#),
            [0, 31, 1]
        );
        assert_eq!(labels(r#"{"query": "q", "chunks": ["x", "y"], "labels": [true, false]}"#), [1, 0]);
        assert_eq!(
            labels(r#"{"query": "q", "chunks": [{"text": "x", "label": 2}, {"text": "y", "label": false}]}"#),
            [2, 0]
        );
    }

    #[test]
    fn chunks_keep_what_they_are_given_with() {
        let line = r#"{"id": 5, "query": "q", "chunks": [{"id": 9, "title": "t", "url": "u", "text": "x", "rank": 1}, ""],
            "labels": [1, 0], "answer": "x", "trajectory_id": "run", "more": {}}"#;
        let question = parse("f", line).unwrap().remove(0);
        let chunk =
            Chunk { id: Some("9".into()), title: Some("t".into()), url: Some("u".into()), text: "x".into() };
        assert_eq!(question.chunks, [chunk, Chunk::default()]);
        assert_eq!((question.id.as_str(), question.answer.as_deref()), ("5", Some("x")));
        assert_eq!(question.trajectory.as_deref(), Some("run"));
    }

    #[test]
    fn questions_without_an_id_are_named() {
        let text = "{\"query\": \"q\", \"chunks\": [\"x\"], \"labels\": [1]}\n\n{\"query\": \"q\", \"chunks\": [\"x\"], \"labels\": [0]}\n\
            {\"query\": \"q\", \"chunks\": [\"x\"], \"labels\": [0], \"trajectory_id\": \"t\"}";
        let ids: Vec<String> = parse("f", text).unwrap().into_iter().map(|q| q.id).collect();
        assert_eq!(ids, ["#1", "#2", "t/1"]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_field() {
        let good = r#"{"id": "a", "query": "q", "chunks": ["x"], "labels": [1]}"#;
        for (bad, says) in [
            (
                r#"{"query": "q", "chunks": ["x"]}"#,
                "`labels` is missing; a labelled record is {query, chunks, labels}, and this record has query, chunks",
            ),
            (r#"{"query": "q", "chunks": ["x"], "labels": null}"#, "`labels` is missing"),
            (r#"{"query": "q", "chunks": ["x"], "labels": [1, 0]}"#, "it has 2 labels for 1 chunk; give"),
            (r#"{"query": "q", "chunks": ["x"], "labels": []}"#, "0 labels for 1 chunk;"),
            (
                r#"{"query": "q", "chunks": ["x"], "labels": [-1]}"#,
                "number 1 of `labels` has to be a label: 0 for not relevant",
            ),
            (r#"{"query": "q", "chunks": ["x"], "labels": [0.5]}"#, "and is 0.5"),
            (
                r#"{"query": "q", "chunks": ["x"], "labels": [32]}"#,
                "number 1 of `labels` has to be a label: 0 for not relevant, 1 to 31 for relevant, or true and false, and is 32",
            ),
            (
                r#"{"query": "q", "chunks": [{"text": "x", "label": 32}]}"#,
                "`label` of chunk 1 has to be a label",
            ),
            (r#"{"query": "q", "chunks": ["x"], "labels": [4294967296]}"#, "and is 4294967296"),
            (r#"{"query": "q", "chunks": ["x"], "labels": [99999999999999999999]}"#, "and is 1e"),
            (r#"{"query": "q", "chunks": ["x"], "labels": ["1"]}"#, "and is a text"),
            (r#"{"query": "q", "chunks": ["x"], "labels": 1}"#, "`labels` has to be an array"),
            (
                r#"{"query": "q", "chunks": [{"text": "x", "label": 1}, {"text": "y"}]}"#,
                "`label` of chunk 2 is missing",
            ),
            (
                r#"{"query": "q", "chunks": [{"text": "x", "label": 1}, "y"]}"#,
                "`label` of chunk 2 is missing",
            ),
            (r#"{"query": "q", "chunks": [{"text": "x", "label": []}]}"#, "`label` of chunk 1 has to be"),
            (r#"{"query": "q", "chunks": [{"text": "x", "label": 1}], "labels": [1]}"#, "keep one"),
            (r#"{"query": "q", "chunks": [], "labels": []}"#, "no chunks"),
            (
                r#"{"query": "q", "chunks": ["x", {"title": "t"}], "labels": [1, 0]}"#,
                "`text` of chunk 2 is missing; a chunk is",
            ),
            (r#"{"query": "q", "chunks": [{"text": null}], "labels": [1]}"#, "`text` of chunk 1 is missing"),
            (r#"{"query": "q", "chunks": [7], "labels": [1]}"#, "a chunk is a text, or an object"),
            (r#"{"query": "q", "chunks": "x", "labels": [1]}"#, "`chunks` has to be an array"),
            (r#"{"query": "q", "labels": [1]}"#, "`chunks` is missing"),
            (r#"{"query": "", "chunks": ["x"], "labels": [1]}"#, "query is empty"),
            (r#"{"chunks": ["x"], "labels": [1]}"#, "`query` is missing"),
            (
                r#"{"id": "a", "query": "q", "chunks": ["x"], "labels": [1]}"#,
                "the id \"a\" is also that of line 1; give",
            ),
            ("[1]", "a labelled record is {query, chunks, labels}, and here is an array"),
            ("null", "and here is null"),
        ] {
            let error = parse("l.jsonl", &format!("{good}\n\n{bad}\n")).unwrap_err();
            assert_eq!(error.at, At::Line(3), "{bad}: {error}");
            assert!(error.to_string().starts_with("l.jsonl, line 3: "), "{bad}: {error}");
            assert!(error.to_string().contains(says), "{bad}: {error}");
        }
    }
}
