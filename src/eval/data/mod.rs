//! Texts of labelled data → questions: HotpotQA, agent trajectories, labelled chunks, BEIR collections.
//!
//! A format each; `records` and `fields` are what they share. All but BEIR are read from one text, as a JSON array or as
//! JSON Lines, and told apart by their fields. Must not know: files, models, what questions are for.
//! Tests: beside each format, and `data/tests.rs`.

pub mod beir;
mod chunked;
mod error;
mod fields;
pub mod hotpot;
pub mod labelled;
mod records;
#[cfg(test)]
mod tests;
pub mod trajectory;

pub use error::{At, DataError, Problem};
use fields::{Fields, Ids};
use records::Records;
use serde_json::Value;

use super::question::Question;

/// The forms that a single text may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// HotpotQA, distractor setting.
    Hotpot,
    /// Searches of agent runs.
    Trajectory,
    /// Chunks with labels.
    Labelled,
}

/// Recognises the form of a text by the fields of its first record; the others are not looked at.
///
/// # Errors
/// When there is no first record, or it fits no form.
pub fn detect(file: &str, text: &str) -> Result<Form, DataError> {
    let (at, value) = Records::new(file, text)?.next().unwrap_or_else(|| Err(no_questions(file)))?;
    form_of(value).map_err(|problem| DataError::new(file, at, problem))
}

fn form_of(value: Value) -> Result<Form, Problem> {
    let chunk_labels = value["chunks"].as_array().is_some_and(|chunks| chunks.iter().any(chunked::has_label));
    let fields = Fields::new(value, "a record is an object with fields", None)?;
    if fields.has("context") && fields.has("question") {
        Ok(Form::Hotpot)
    } else if !fields.has("chunks") {
        Err(Problem::UnknownForm { has: fields.names() })
    } else if chunk_labels || fields.has("labels") {
        Ok(Form::Labelled)
    } else if fields.has("answer") || fields.has("trajectory_id") {
        Ok(Form::Trajectory)
    } else {
        Err(Problem::UnknownForm { has: fields.names() })
    }
}

/// Reads a text of any of the three forms; all its records have the form of the first.
///
/// # Errors
/// When it has none of the forms or is not right in it; the message says where and why.
pub fn parse_any(file: &str, text: &str) -> Result<Vec<Question>, DataError> {
    match detect(file, text)? {
        Form::Hotpot => hotpot::parse(file, text),
        Form::Trajectory => trajectory::parse(file, text),
        Form::Labelled => labelled::parse(file, text),
    }
}

/// Makes a question of each record with `to_question`, which is also told the record's number, from 1; and sees to what
/// holds in every form: queries that ask something, chunks, as many labels as chunks, an id once.
fn read_questions(
    file: &str,
    text: &str,
    expected: &'static str,
    mut to_question: impl FnMut(&mut Fields, usize) -> Result<Question, Problem>,
) -> Result<Vec<Question>, DataError> {
    let mut ids = Ids::default();
    let mut questions = Vec::new();
    for (number, record) in (1..).zip(Records::new(file, text)?) {
        let (at, value) = record?;
        let question = Fields::new(value, expected, None)
            .and_then(|mut fields| to_question(&mut fields, number))
            .and_then(checked)
            .and_then(|question| ids.add(&question.id, at).map(|()| question));
        questions.push(question.map_err(|problem| DataError::new(file, at, problem))?);
    }
    if questions.is_empty() { Err(no_questions(file)) } else { Ok(questions) }
}

fn checked(question: Question) -> Result<Question, Problem> {
    if question.query.trim().is_empty() {
        return Err(Problem::EmptyQuery);
    }
    if question.chunks.is_empty() {
        return Err(Problem::NoChunks);
    }
    match &question.labels {
        Some(labels) if labels.len() != question.chunks.len() => {
            Err(Problem::LabelCount { labels: labels.len(), chunks: question.chunks.len() })
        }
        _ => Ok(question),
    }
}

fn no_questions(file: &str) -> DataError {
    let hint = "its array is empty, so choose another file";
    DataError::new(file, At::File, Problem::NoQuestions { hint })
}
