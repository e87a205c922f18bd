//! HotpotQA's distractor form: a question, its answer, and paragraphs of which some are supporting.
//!
//! Two layouts are read, the original one and that of tables turned to JSON, whose `context` and `supporting_facts` are
//! columns. Chunks are those of the reference implementation to the character. Tests: at the end of this file.

use serde::Deserialize;
use serde_json::Value;

use super::{
    error::{DataError, Problem},
    fields::Fields,
    read_questions,
};
use crate::{eval::question::Question, prompt::layout::Chunk};

pub(super) const EXPECTED: &str = "a HotpotQA record is {_id, question, answer, supporting_facts, context}";

const CONTEXT: &str = "[[title, [sentence, …]], …], or {title: [title, …], sentences: [[sentence, …], …]}";
const FACTS: &str = "[[title, number], …], or {title: [title, …], sent_id: [number, …]}";

/// Reads a JSON array or JSON Lines. A chunk is relevant (1) when its title is supporting; a file without supporting
/// facts or answers, such as a test set, gives questions without labels or answers.
///
/// # Errors
/// When the text is not of this form; the message says where and why.
pub fn parse(file: &str, text: &str) -> Result<Vec<Question>, DataError> {
    read_questions(file, text, EXPECTED, |fields, _| question(fields))
}

fn question(fields: &mut Fields) -> Result<Question, Problem> {
    let id = match fields.id("_id")? {
        None => fields.id("id")?,
        id => id,
    };
    let id = id.ok_or_else(|| fields.missing("_id"))?;
    let query = fields.required_text("question")?;
    let answer = fields.text("answer")?;
    let paragraphs = paragraphs(fields)?;
    let labels = supporting(fields)?
        .map(|titles| paragraphs.iter().map(|(title, _)| u32::from(titles.contains(title))).collect());
    let chunks = paragraphs.into_iter().map(|(title, sentences)| chunk(title, &sentences)).collect();
    Ok(Question { id, query, chunks, labels, answer, trajectory: None })
}

fn chunk(title: String, sentences: &[String]) -> Chunk {
    let joined = sentences.concat();
    // what Python strips: also the separators that Unicode does not count as white space
    let text = joined.trim_matches(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c));
    Chunk { title: Some(title), text: text.to_owned(), ..Chunk::default() }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Context {
    Rows(Vec<(String, Vec<String>)>),
    Columns { title: Vec<String>, sentences: Vec<Vec<String>> },
}

fn paragraphs(fields: &mut Fields) -> Result<Vec<(String, Vec<String>)>, Problem> {
    let value = fields.required("context")?;
    match Context::deserialize(&value) {
        Ok(Context::Rows(rows)) => Ok(rows),
        Ok(Context::Columns { title, sentences }) if title.len() == sentences.len() => {
            Ok(title.into_iter().zip(sentences).collect())
        }
        Ok(Context::Columns { title, sentences }) => {
            Err(Problem::Uneven { titles: title.len(), lists: sentences.len() })
        }
        Err(_) => Err(fields.wrong("context", CONTEXT, &value)),
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Facts {
    Rows(Vec<(String, Value)>),
    Columns { title: Vec<String> },
}

/// The supporting titles, if any are told.
fn supporting(fields: &mut Fields) -> Result<Option<Vec<String>>, Problem> {
    if let Some(value) = fields.take("supporting_titles") {
        let titles = Vec::<String>::deserialize(&value);
        return titles.map(Some).map_err(|_| fields.wrong("supporting_titles", "an array of titles", &value));
    }
    let Some(value) = fields.take("supporting_facts") else { return Ok(None) };
    match Facts::deserialize(&value) {
        Ok(Facts::Rows(rows)) => Ok(Some(rows.into_iter().map(|(title, _)| title).collect())),
        Ok(Facts::Columns { title }) => Ok(Some(title)),
        Err(_) => Err(fields.wrong("supporting_facts", FACTS, &value)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::eval::data::At;

    fn rows() -> Value {
        json!({"_id": "a1", "question": "Who?", "answer": "Ada", "type": "bridge",
            "supporting_facts": [["B", 0], ["C", 1], ["B", 2]],
            "context": [["A", [" One.", " Two. "]], ["B", ["Ada."]], ["C", []]]})
    }

    fn columns() -> Value {
        json!({"id": "a1", "question": "Who?", "answer": "Ada",
            "supporting_facts": {"title": ["B", "C", "B"], "sent_id": [0, 1, 2]},
            "context": {"title": ["A", "B", "C"], "sentences": [[" One.", " Two. "], ["Ada."], []]}})
    }

    fn titles() -> Value {
        let mut titles = rows();
        titles["supporting_facts"] = Value::Null;
        titles["supporting_titles"] = json!(["C", "B"]);
        titles
    }

    #[test]
    fn all_layouts_give_the_same_questions() {
        let chunk = |title: &str, text: &str| Chunk {
            title: Some(title.to_owned()),
            text: text.to_owned(),
            ..Chunk::default()
        };
        let want = Question {
            id: "a1".into(),
            query: "Who?".into(),
            chunks: vec![chunk("A", "One. Two."), chunk("B", "Ada."), chunk("C", "")],
            labels: Some(vec![0, 1, 1]),
            answer: Some("Ada".into()),
            trajectory: None,
        };
        for record in [rows(), columns(), titles()] {
            for text in [format!("[{record}]"), format!("{record}\n"), format!("{record:#}")] {
                assert_eq!(parse("f", &text).unwrap(), std::slice::from_ref(&want), "{text}");
            }
        }
    }

    #[test]
    fn texts_are_trimmed_as_the_reference_does() {
        let text = |sentences: &[&str]| {
            chunk("t".into(), &sentences.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()).text
        };
        assert_eq!(text(&["\u{1c}\u{a0} a ", "\u{85}b\t\u{1f}\u{3000}"]), "a \u{85}b");
        assert_eq!(text(&["\u{200b}a"]), "\u{200b}a", "no white space for either");
    }

    #[test]
    fn a_test_set_has_neither_answers_nor_labels() {
        let record = json!({"_id": 7, "question": "Who?", "context": [["A", ["x"]]]});
        let question = &parse("f", &record.to_string()).unwrap()[0];
        assert_eq!((question.id.as_str(), &question.labels, &question.answer), ("7", &None, &None));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_record_and_field() {
        for (field, value, says) in [
            ("_id", Value::Null, "`_id` is missing; a HotpotQA record is {"),
            ("_id", json!(1.5), "`_id` has to be a text or a whole number, and is 1.5"),
            ("question", Value::Null, "`question` is missing"),
            ("question", json!(" \n"), "the query is empty"),
            ("question", json!(["Who?"]), "`question` has to be a text, and is an array"),
            ("answer", json!(7), "`answer` has to be a text"),
            ("context", Value::Null, "`context` is missing"),
            ("context", json!([]), "no chunks"),
            ("context", json!({"title": [], "sentences": []}), "no chunks"),
            ("context", json!({"title": ["A"], "sentences": []}), "has 1 title and 0 lists of sentences"),
            ("context", json!([["A", "x"]]), "`context` has to be [[title, [sentence, …]], …]"),
            ("context", json!([["A", ["x"], 3]]), "`context` has to be"),
            ("context", json!("x"), "and is a text"),
            ("supporting_facts", json!(["B"]), "`supporting_facts` has to be [[title, number], …]"),
            ("supporting_titles", json!([["B", 0]]), "`supporting_titles` has to be an array of titles"),
        ] {
            let mut broken = rows();
            broken[field] = value;
            broken["x"] = json!(0);
            let error = parse("h.json", &json!([columns(), broken]).to_string()).unwrap_err();
            assert_eq!(error.at, At::Record(2), "{error}");
            assert!(error.to_string().starts_with("h.json, record 2: "), "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
