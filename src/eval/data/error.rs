//! What can be wrong with data, where it is, and what to do about it. Tests: `data/tests.rs`.

use std::fmt;

use crate::ids::counted;

/// A text that cannot be read as labelled data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{at}: {problem}")]
pub struct DataError {
    /// The name the text was given with.
    pub file: String,
    /// Where in it.
    pub at: At,
    /// What is wrong.
    pub problem: Problem,
}

impl DataError {
    pub(super) fn new(file: &str, at: At, problem: Problem) -> Self {
        Self { file: file.to_owned(), at, problem }
    }
}

/// A place in a file, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The file as a whole.
    File,
    /// The line a record begins on.
    Line(usize),
    /// An element of the file's JSON array.
    Record(usize),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => Ok(()),
            Self::Line(n) => write!(f, ", line {n}"),
            Self::Record(n) => write!(f, ", record {n}"),
        }
    }
}

/// What is wrong with a file or one of its records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Not a character but blanks.
    #[error("there is nothing in it; a download may have failed")]
    Empty,
    /// Broken JSON.
    #[error(
        "not JSON: {reason} (line {line}, column {column}); a file is a JSON array of records, or has one record a line"
    )]
    NotJson {
        /// What the parser met.
        reason: String,
        /// Counted from 1.
        line: usize,
        /// In bytes, counted from 1; 0 before the first.
        column: usize,
    },
    /// A record that has no fields at all.
    #[error("{expected}, and here is {found}")]
    NotAnObject {
        /// What a record is in this form.
        expected: &'static str,
        /// What this one is.
        found: String,
    },
    /// A field that has to be there is not, or is null.
    #[error("{field} is missing; {expected}, and this record has {has}")]
    Missing {
        /// The field, and of which chunk.
        field: String,
        /// What a record is in this form.
        expected: &'static str,
        /// The fields that are there.
        has: String,
    },
    /// A field holds another kind of value.
    #[error("{field} has to be {expected}, and is {found}")]
    WrongType {
        /// The field, and of which chunk.
        field: String,
        /// What it has to be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// A blank query.
    #[error("the query is empty; say what is asked, or leave this record out")]
    EmptyQuery,
    /// A question without chunks.
    #[error("the question has no chunks; give at least one, or leave this record out")]
    NoChunks,
    /// Labels and chunks do not correspond.
    #[error("it has {} for {}; give one for each, in their order", counted(*labels, "label"), counted(*chunks, "chunk"))]
    LabelCount {
        /// Number of labels.
        labels: usize,
        /// Number of chunks.
        chunks: usize,
    },
    /// Labels in two places.
    #[error("it has `labels` and a `label` in its chunks as well; keep one of them")]
    LabelledTwice,
    /// Columns of HotpotQA's table form do not correspond.
    #[error("`context` has {} and {} of sentences; it needs a list for each title", counted(*titles, "title"), counted(*lists, "list"))]
    Uneven {
        /// Number of titles.
        titles: usize,
        /// Number of lists.
        lists: usize,
    },
    /// Two records with one id.
    #[error("the id {id:?} is also that of{}; give each record its own", first.to_string().trim_start_matches(','))]
    DuplicateId {
        /// The id.
        id: String,
        /// Who had it first.
        first: At,
    },
    /// A line of relevance judgements that is none.
    #[error(
        "{found:?} is not a judgement; a line is query-id, corpus-id and a whole number up to {most}, separated by tabs, \
         without the second column of TREC's form"
    )]
    NotAJudgement {
        /// The line, or its beginning.
        found: String,
        /// Highest grade.
        most: u32,
    },
    /// Two judgements that disagree.
    #[error("query {query:?} and document {document:?} have a judgement already, and another one; keep one")]
    JudgedTwice {
        /// Id of the query.
        query: String,
        /// Id of the document.
        document: String,
    },
    /// A file without a single record, or judgements that meet no query and document.
    #[error("there are no questions in it; {hint}")]
    NoQuestions {
        /// What to look at.
        hint: &'static str,
    },
    /// None of the forms.
    #[error(
        "its first record, with {has}, is of no known form; known are HotpotQA {{_id, question, answer, \
         supporting_facts, context}}, trajectories {{query, chunks, answer, trajectory_id}} and labelled chunks \
         {{query, chunks, labels}}"
    )]
    UnknownForm {
        /// The fields that are there.
        has: String,
    },
}
