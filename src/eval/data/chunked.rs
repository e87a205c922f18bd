//! What trajectory and labelled records have in common: a query and chunks, with answer, labels and ids where known.
//!
//! Which of these a form demands is said in its own file. Tests: there, and in `data/tests.rs`.

use std::collections::HashMap;

use serde_json::Value;

use super::{
    error::Problem,
    fields::{Fields, kind},
};
use crate::{
    eval::{judged::Judged, question::Question},
    prompt::layout::Chunk,
};

const CHUNK: &str = "a chunk is a text, or an object with a text and perhaps id, title, url and label";
/// Names [`Judged::MOST_LABEL`].
const LABEL: &str = "a label: 0 for not relevant, 1 to 31 for relevant, or true and false";

/// How many questions without an id each trajectory has had.
pub(super) type Unnamed = HashMap<String, usize>;

/// Reads one record. A question without an id is called `trajectory/n`, the n-th of its trajectory that has none, or
/// else `#number`; `number` counts the records of the file from 1.
pub(super) fn question(
    fields: &mut Fields,
    number: usize,
    unnamed: &mut Unnamed,
) -> Result<Question, Problem> {
    let trajectory = fields.id("trajectory_id")?;
    let id = fields.id("id")?.unwrap_or_else(|| match &trajectory {
        None => format!("#{number}"),
        Some(name) => {
            let n = unnamed.entry(name.clone()).or_default();
            *n += 1;
            format!("{name}/{n}")
        }
    });
    let query = fields.required_text("query")?;
    let answer = fields.text("answer")?;
    let (chunks, own_labels) = chunks(fields)?;
    let labels = match (labels(fields)?, own_labels) {
        (Some(_), Some(_)) => return Err(Problem::LabelledTwice),
        (labels, own) => labels.or(own),
    };
    Ok(Question { id, query, chunks, labels, answer, trajectory })
}

/// Whether a chunk, as it stands in a file, has a label of its own.
pub(super) fn has_label(chunk: &Value) -> bool {
    chunk.get("label").is_some_and(|label| !label.is_null())
}

/// The chunks, and their own labels when they have some: all of them then.
fn chunks(fields: &mut Fields) -> Result<(Vec<Chunk>, Option<Vec<u32>>), Problem> {
    let values = fields.array("chunks")?.ok_or_else(|| fields.missing("chunks"))?;
    let labelled = values.iter().any(has_label);
    let mut labels = labelled.then(Vec::new);
    let mut chunks = Vec::with_capacity(values.len());
    for (number, value) in (1..).zip(values) {
        let mut fields = match value {
            Value::String(text) if !labelled => {
                chunks.push(Chunk { text, ..Chunk::default() });
                continue;
            }
            // as an object, so that its missing label is told
            Value::String(text) => {
                let object = [("text".to_owned(), Value::String(text))].into_iter().collect();
                Fields::new(Value::Object(object), CHUNK, Some(number))?
            }
            other => Fields::new(other, CHUNK, Some(number))?,
        };
        chunks.push(Chunk {
            id: fields.id("id")?,
            title: fields.text("title")?,
            url: fields.text("url")?,
            text: fields.required_text("text")?,
        });
        if let Some(labels) = &mut labels {
            let value = fields.required("label")?;
            labels.push(label(&value).ok_or_else(|| fields.wrong("label", LABEL, &value))?);
        }
    }
    Ok((chunks, labels))
}

fn labels(fields: &mut Fields) -> Result<Option<Vec<u32>>, Problem> {
    let Some(values) = fields.array("labels")? else { return Ok(None) };
    let wrong = |n: usize, value: &Value| Problem::WrongType {
        field: format!("number {n} of `labels`"),
        expected: LABEL,
        found: kind(value),
    };
    let labels = (1..).zip(&values).map(|(n, value)| label(value).ok_or_else(|| wrong(n, value)));
    labels.collect::<Result<_, _>>().map(Some)
}

fn label(value: &Value) -> Option<u32> {
    let label = match value {
        Value::Bool(relevant) => u32::from(*relevant),
        Value::Number(grade) => grade.as_u64()?.try_into().ok()?,
        _ => return None,
    };
    (label <= Judged::MOST_LABEL).then_some(label)
}
