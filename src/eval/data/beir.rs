//! Retrieval collections in BEIR's three files: a corpus, queries, and judgements of how relevant documents are.
//!
//! Which documents become a query's chunks is up to a first-stage ranking that the caller passes in; nothing here
//! ranks. Tests: at the end of this file.

use std::collections::HashMap;

use super::{
    error::{At, DataError, Problem},
    fields::{Fields, Ids, shown},
    records::Records,
};
use crate::{
    eval::{judged::Judged, question::Question},
    prompt::layout::Chunk,
};

const DOCUMENT: &str = "a line of a corpus is {_id, title, text}";
const QUERY: &str = "a line of queries is {_id, text}";

/// A text with the name it has in messages.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The file's name.
    pub name: &'a str,
    /// What is in it.
    pub text: &'a str,
}

/// A collection.
#[derive(Clone, Debug)]
pub struct Beir {
    documents: Vec<Chunk>,
    queries: Vec<Query>,
    unmatched_judgements: usize,
}

#[derive(Clone, Debug)]
struct Query {
    id: String,
    text: String,
    /// Document to grade; empty when the judgements are of other queries.
    grades: HashMap<usize, u32>,
}

/// What is not in the questions, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Queries no document of the corpus was judged for: mostly those of another split.
    pub unjudged: usize,
    /// Judged queries without a relevant document among their candidates.
    pub nothing_relevant: usize,
    /// Judgements that name a query or a document which is not there.
    pub unmatched_judgements: usize,
    /// Documents judged relevant, counted for each query.
    pub relevant: usize,
    /// Those of them that are among no query's candidates; no metric of the questions counts them.
    pub not_retrieved: usize,
}

/// Reads the three files: `corpus.jsonl`, `queries.jsonl`, and judgements as tab-separated values, with a header or
/// without. Negative grades (some collections mark junk with -1) count as 0; the highest is [`Judged::MOST_LABEL`].
///
/// # Errors
/// When a file is not of its form, or no judgement matches; the message says where and why.
pub fn parse(corpus: Source<'_>, queries: Source<'_>, qrels: Source<'_>) -> Result<Beir, DataError> {
    let mut documents = Vec::new();
    let document_ids = read(corpus, DOCUMENT, |fields, id| {
        let title = fields.text("title")?.filter(|title| !title.is_empty());
        documents.push(Chunk { id: Some(id), title, url: None, text: fields.required_text("text")? });
        Ok(())
    })?;
    let mut asked = Vec::new();
    let query_ids = read(queries, QUERY, |fields, id| {
        let text = fields.required_text("text")?;
        if text.trim().is_empty() {
            return Err(Problem::EmptyQuery);
        }
        asked.push(Query { id, text, grades: HashMap::new() });
        Ok(())
    })?;
    let mut collection = Beir { documents, queries: asked, unmatched_judgements: 0 };
    collection.judge(qrels, &document_ids, &query_ids)?;
    Ok(collection)
}

/// Reads the records of one file and numbers their ids.
fn read(
    source: Source<'_>,
    expected: &'static str,
    mut add: impl FnMut(&mut Fields, String) -> Result<(), Problem>,
) -> Result<Ids, DataError> {
    let mut ids = Ids::default();
    let mut one = |at, value| {
        let mut fields = Fields::new(value, expected, None)?;
        let id = fields.id("_id")?.ok_or_else(|| fields.missing("_id"))?;
        ids.add(&id, at)?;
        add(&mut fields, id)
    };
    for record in Records::new(source.name, source.text)? {
        let (at, value) = record?;
        one(at, value).map_err(|problem| DataError::new(source.name, at, problem))?;
    }
    Ok(ids)
}

impl Beir {
    /// The corpus, in the order of its file: what a first-stage ranking is made of.
    #[must_use]
    pub fn documents(&self) -> &[Chunk] {
        &self.documents
    }

    /// Makes questions: the chunks of a query are the first `per_query` documents of its ranking, in that order, with
    /// their grades as labels (0 where none was given). `rank` takes a query's text and returns distinct indices into
    /// [`Self::documents`], best first; it is asked for judged queries only. Panics when it names no document.
    pub fn questions(
        &self,
        per_query: usize,
        mut rank: impl FnMut(&str) -> Vec<usize>,
    ) -> (Vec<Question>, Skipped) {
        let mut skipped = Skipped { unmatched_judgements: self.unmatched_judgements, ..Skipped::default() };
        let mut questions = Vec::new();
        for query in &self.queries {
            if query.grades.is_empty() {
                skipped.unjudged += 1;
                continue;
            }
            let mut candidates = rank(&query.text);
            candidates.truncate(per_query);
            let grade = |document| query.grades.get(document).copied().unwrap_or(0);
            let labels: Vec<u32> = candidates.iter().map(grade).collect();
            let relevant = query.grades.values().filter(|&&grade| grade > 0).count();
            skipped.relevant += relevant;
            skipped.not_retrieved += relevant - labels.iter().filter(|&&label| label > 0).count();
            if labels.iter().all(|&label| label == 0) {
                skipped.nothing_relevant += 1;
                continue;
            }
            questions.push(Question {
                id: query.id.clone(),
                query: query.text.clone(),
                chunks: candidates.iter().map(|&document| self.documents[document].clone()).collect(),
                labels: Some(labels),
                ..Question::default()
            });
        }
        (questions, skipped)
    }

    /// Gives the queries their grades.
    fn judge(&mut self, qrels: Source<'_>, documents: &Ids, queries: &Ids) -> Result<(), DataError> {
        let fail = |at, problem| Err(DataError::new(qrels.name, at, problem));
        let text = qrels.text.strip_prefix('\u{feff}').unwrap_or(qrels.text);
        if text.trim().is_empty() {
            return fail(At::File, Problem::Empty);
        }
        let mut matched = false;
        let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        for (i, (number, line)) in lines.enumerate() {
            if i == 0 && is_header(line) {
                continue;
            }
            let Some((query, document, grade)) = judgement(line) else {
                let problem = Problem::NotAJudgement { found: shown(line), most: Judged::MOST_LABEL };
                return fail(At::Line(number), problem);
            };
            let (Some(q), Some(d)) = (queries.number(query), documents.number(document)) else {
                self.unmatched_judgements += 1;
                continue;
            };
            matched = true;
            if self.queries[q].grades.insert(d, grade).is_some_and(|before| before != grade) {
                let (query, document) = (shown(query), shown(document));
                return fail(At::Line(number), Problem::JudgedTwice { query, document });
            }
        }
        if !matched {
            let hint = "no judgement names a query and a document that are there; are the three files of one collection?";
            return fail(At::File, Problem::NoQuestions { hint });
        }
        Ok(())
    }
}

/// Whether the last word is no number, as that of a judgement is, be it a right one or not.
fn is_header(line: &str) -> bool {
    line.split_whitespace().next_back().is_none_or(|last| last.parse::<f64>().is_err())
}

/// Query, document and grade of a line; none when it is wrong.
fn judgement(line: &str) -> Option<(&str, &str, u32)> {
    let mut columns = line.split('\t');
    let (query, document, grade) = (columns.next()?, columns.next()?, columns.next()?);
    let grade: i64 = grade.trim().parse().ok()?;
    let grade = u32::try_from(grade.max(0)).ok().filter(|&grade| grade <= Judged::MOST_LABEL)?;
    columns.next().is_none().then_some((query.trim(), document.trim(), grade))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORPUS: &str = "{\"_id\": \"d0\", \"title\": \"T\", \"text\": \"zero\", \"metadata\": {}}\n\
        {\"_id\": \"d1\", \"title\": \"\", \"text\": \"one\"}\n{\"_id\": \"d2\", \"text\": \"two\"}\n";
    const QUERIES: &str = "{\"_id\": \"q0\", \"text\": \"a?\"}\n{\"_id\": \"q1\", \"text\": \"b?\"}\n\
        {\"_id\": \"q2\", \"text\": \"c?\"}\n{\"_id\": \"q3\", \"text\": \"d?\"}\n";
    const QRELS: &str = "query-id\tcorpus-id\tscore\nq0\td1\t2\nq0\td0\t0\nq1\td2\t1\nq1\td0\t-1\r\nq3\tgone\t1\n\
        gone\td1\t1\n";

    fn read(corpus: &str, queries: &str, qrels: &str) -> Result<Beir, DataError> {
        let source = |name, text| Source { name, text };
        parse(source("corpus", corpus), source("queries", queries), source("qrels", qrels))
    }

    #[test]
    fn candidates_come_in_retrieval_order_with_their_grades() {
        let beir = read(CORPUS, QUERIES, QRELS).unwrap();
        assert_eq!(beir.documents()[0].title.as_deref(), Some("T"));
        assert_eq!((&beir.documents()[1].title, &beir.documents()[2].title), (&None, &None));
        let mut asked = Vec::new();
        let (questions, skipped) = beir.questions(2, |query| {
            asked.push(query.to_owned());
            vec![1, 0, 2]
        });
        assert_eq!(asked, ["a?", "b?"], "only judged queries are ranked for");
        let want = Skipped {
            unjudged: 2,
            nothing_relevant: 1,
            unmatched_judgements: 2,
            relevant: 2,
            not_retrieved: 1,
        };
        assert_eq!(skipped, want);
        assert_eq!(questions.len(), 1);
        assert_eq!((questions[0].id.as_str(), questions[0].query.as_str()), ("q0", "a?"));
        assert_eq!(questions[0].chunks, [beir.documents()[1].clone(), beir.documents()[0].clone()]);
        assert_eq!(questions[0].labels, Some(vec![2, 0]));

        let (questions, skipped) = beir.questions(9, |_| vec![2, 0, 1]);
        assert_eq!(
            questions.iter().map(|q| q.labels.clone().unwrap()).collect::<Vec<_>>(),
            [[0, 0, 2], [1, 0, 0]]
        );
        assert_eq!((skipped.nothing_relevant, skipped.relevant, skipped.not_retrieved), (0, 2, 0));
        assert_eq!(beir.questions(0, |_| vec![2, 0, 1]).1.nothing_relevant, 2);
        assert_eq!(beir.questions(5, |_| vec![]).1.nothing_relevant, 2);
    }

    #[test]
    fn judgements_need_no_header_and_may_repeat_themselves() {
        let beir = read(CORPUS, QUERIES, "q0\td1\t2\nq0\td1\t2\n\n").unwrap();
        assert_eq!(beir.questions(1, |_| vec![1]).0[0].labels, Some(vec![2]));
        let beir = read(CORPUS, QUERIES, "\n\nquery-id\tcorpus-id\tscore\nq0\td1\t31\n").unwrap();
        assert_eq!(beir.questions(1, |_| vec![1]).0[0].labels, Some(vec![31]));
    }

    #[test]
    fn a_first_judgement_of_another_form_is_no_header() {
        for first in ["q0 0 d1 1", "q0\t0\td1\t1", "q0\td1\t1.5", "q0\td1\t32", "q0 d1 1"] {
            let error = read(CORPUS, QUERIES, &format!("{first}\nq0\td1\t1\n")).unwrap_err();
            assert_eq!(error.at, At::Line(1), "{error}");
            let told = error.to_string();
            assert!(
                told.ends_with(
                    "is not a judgement; a line is query-id, corpus-id and a whole number up to 31, separated by \
                     tabs, without the second column of TREC's form"
                ),
                "{told}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_file_and_line() {
        let twice = format!("{CORPUS}{{\"_id\": \"d1\", \"text\": \"x\"}}");
        let blank = format!("{QUERIES}{{\"_id\": \"q9\", \"text\": \" \"}}");
        let nameless = format!("{QUERIES}{{\"text\": \"x\"}}");
        let textless = format!("{CORPUS}{{\"_id\": \"d9\", \"title\": \"x\"}}");
        for (corpus, queries, qrels, says) in [
            (twice.as_str(), QUERIES, QRELS, "corpus, line 4: the id \"d1\" is also that of line 2"),
            (
                &textless,
                QUERIES,
                QRELS,
                "corpus, line 4: `text` is missing; a line of a corpus is {_id, title, text}",
            ),
            ("", QUERIES, QRELS, "corpus: there is nothing in it"),
            (CORPUS, &blank, QRELS, "queries, line 5: the query is empty"),
            (CORPUS, &nameless, QRELS, "queries, line 5: `_id` is missing; a line of queries is {_id, text}"),
            (CORPUS, "x", QRELS, "queries, line 1: not JSON"),
            (CORPUS, QUERIES, " \n", "qrels: there is nothing in it"),
            (CORPUS, QUERIES, "h\nq0 d1 1", "qrels, line 2: \"q0 d1 1\" is not a judgement"),
            (CORPUS, QUERIES, "h\nq0\td1\t1.5", "is not a judgement"),
            (CORPUS, QUERIES, "h\nq0\t0\td1\t1", "is not a judgement"),
            (CORPUS, QUERIES, "h\nq0\td1\t1\t1", "is not a judgement"),
            (
                CORPUS,
                QUERIES,
                "h\nq0\td1\t1\nq0\td1\t2",
                "qrels, line 3: query \"q0\" and document \"d1\" have a judgement already",
            ),
            (CORPUS, QUERIES, "h\nx\td1\t1", "qrels: there are no questions in it; no judgement names"),
            (CORPUS, QUERIES, "query-id\tcorpus-id\tscore\n", "no questions"),
        ] {
            let error = read(corpus, queries, qrels).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
