//! Search results in JSON, whatever the tool calls its fields.

use serde_json::{Map, Value};

use super::{Groups, group};
use crate::prompt::layout::Chunk;

/// What a result's text is called; the first that there is counts.
const TEXTS: [&str; 9] =
    ["text", "snippet", "content", "contents", "passage", "body", "page_content", "description", "summary"];
const IDS: [&str; 4] = ["docid", "doc_id", "document_id", "id"];
/// Those ids that name a document, and not a place in one list.
const NAMES: [&str; 3] = ["docid", "doc_id", "document_id"];
const TITLES: [&str; 2] = ["title", "name"];
const URLS: [&str; 4] = ["url", "link", "href", "source"];

/// What a list of results is called inside an object.
const LISTS: [&str; 9] =
    ["results", "result", "documents", "docs", "chunks", "hits", "organic", "items", "data"];

/// What was searched for.
const QUERIES: [&str; 3] = ["query", "search", "q"];

/// The results in `text`, if it is JSON that holds some and nothing else in their place.
pub(super) fn read(text: &str) -> Option<Groups> {
    let text = text.trim();
    if !text.starts_with(['[', '{']) {
        return None;
    }
    let groups = groups(&serde_json::from_str(text).ok()?)?;
    groups.iter().any(|group| !group.results.is_empty()).then_some(groups)
}

fn groups(value: &Value) -> Option<Groups> {
    match value {
        Value::Object(object) => of_object(object).map(|one| vec![one]),
        Value::Array(list) if list.iter().all(|item| result(item).is_some()) => {
            Some(vec![group(None, list.iter().filter_map(result).collect())])
        }
        // one list for each query
        Value::Array(list) => list
            .iter()
            .map(|item| match item {
                Value::Object(object) => of_object(object),
                Value::Array(results) => {
                    let all: Option<Vec<Chunk>> = results.iter().map(result).collect();
                    all.map(|results| group(None, results))
                }
                _ => None,
            })
            .collect(),
        _ => None,
    }
}

/// A list inside an object, perhaps with what was searched for.
fn of_object(object: &Map<String, Value>) -> Option<crate::context::Group> {
    let list = LISTS.iter().find_map(|name| object.get(*name)?.as_array())?;
    let results: Option<Vec<Chunk>> = list.iter().map(result).collect();
    Some(group(first(object, &QUERIES), results?))
}

fn result(value: &Value) -> Option<Chunk> {
    let object = value.as_object()?;
    let text = first(object, &TEXTS)?;
    let url = first(object, &URLS).or_else(|| first(object, &NAMES));
    Some(Chunk { id: first(object, &IDS), title: first(object, &TITLES), url, text })
}

/// The first of these fields that is a string, or a number.
fn first(object: &Map<String, Value>, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| match object.get(*name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(json: &str) -> Option<Vec<Vec<String>>> {
        let texts = |g: &crate::context::Group| g.results.iter().map(|c| c.text.clone()).collect();
        Some(read(json)?.iter().map(texts).collect())
    }

    #[test]
    fn lists_of_many_tools_are_read() {
        for json in [
            r#"[{"text": "a"}, {"text": "b"}]"#,
            r#"{"results": [{"snippet": "a", "link": "u"}, {"content": "b"}]}"#,
            r#"{"searchParameters": {"q": "x"}, "organic": [{"title": "t", "snippet": "a"}, {"snippet": "b"}]}"#,
            r#"[{"docid": "1", "score": 0.5, "snippet": "a"}, {"docid": 2, "score": 0.1, "text": "b"}]"#,
        ] {
            assert_eq!(texts(json).unwrap(), [["a", "b"]], "{json}");
        }
        let two = r#"[{"query": "x", "results": [{"text": "a"}]}, {"query": "y", "results": []}]"#;
        let groups = read(two).unwrap();
        assert_eq!((groups[0].search.as_deref(), groups[1].results.len()), (Some("x"), 0));
        assert_eq!(texts(r#"[[{"text": "a"}], [{"text": "b"}]]"#).unwrap(), [["a"], ["b"]]);
        let named = read(r#"[{"docid": "d7", "text": "a"}, {"id": 1, "text": "b"}]"#).unwrap();
        let urls: Vec<_> = named[0].results.iter().map(|c| c.url.as_deref()).collect();
        assert_eq!(urls, [Some("d7"), None], "a document's id is its name, a place in a list is none");
        let chunk = &read(r#"{"docs": [{"doc_id": 7, "name": "n", "href": "h", "body": "b"}]}"#).unwrap()[0]
            .results[0];
        let told = (chunk.id.as_deref(), chunk.title.as_deref(), chunk.url.as_deref(), &*chunk.text);
        assert_eq!(told, (Some("7"), Some("n"), Some("h"), "b"));
    }

    #[test]
    fn what_holds_no_results_is_left_alone() {
        for text in [
            "",
            "42",
            "[]",
            "{}",
            "[1, 2]",
            r#"{"results": []}"#,
            r#"{"results": [{"title": "no text"}]}"#,
            r#"{"temperature": 20, "text": "sunny"}"#,
            r#"[{"text": "a"}, {"error": "b"}]"#,
            r#"[{"text": "a"}] and more"#,
            "[not json",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
