//! The forms a file of queries and chunks may have, read with line numbers. Pure.
//!
//! A file is JSON values, one after another, on one line each or over many. A value is a *request* (an object with
//! `chunks`), or chunks for the query of the command line: an object with `text`, a string, or an array of these.

use std::{fmt, num::NonZeroUsize};

use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor, value::MapAccessDeserializer},
};

use crate::{
    ids::HeadRef,
    prompt::layout::Chunk,
    score::{Control, Read, Statistic},
    service::score::Orders,
};

/// A file that cannot be read as queries and chunks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {reason}")]
pub(in crate::cli) struct InputError {
    /// The file's name, or `stdin`.
    pub(in crate::cli) file: String,
    /// Counted from 1.
    pub(in crate::cli) line: usize,
    /// What is wrong and what would be right.
    pub(in crate::cli) reason: String,
}

/// One thing to score.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Request {
    /// The line it begins on.
    pub(super) line: usize,
    /// At least one.
    pub(super) queries: Vec<String>,
    pub(super) chunks: Vec<Chunk>,
    pub(super) heads: Option<Vec<HeadRef>>,
    pub(super) head_set: Option<String>,
    pub(super) statistic: Option<Statistic>,
    pub(super) control: Option<Control>,
    pub(super) read: Option<Read>,
    pub(super) orders: Option<Orders>,
    pub(super) max_tokens_per_chunk: Option<NonZeroUsize>,
    pub(super) explain: bool,
}

/// An object: the fields of a request and of a chunk, told apart by which are there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    #[serde(rename = "model")]
    _model: Option<String>,
    /// Means something to a server only.
    #[serde(rename = "cache_salt")]
    _cache_salt: Option<String>,
    query: Option<String>,
    queries: Option<Vec<String>>,
    chunks: Option<Vec<AnyChunk>>,
    heads: Option<Vec<HeadRef>>,
    head_set: Option<String>,
    statistic: Option<Statistic>,
    control: Option<Control>,
    read: Option<Read>,
    orders: Option<Orders>,
    max_tokens_per_chunk: Option<NonZeroUsize>,
    #[serde(default)]
    explain: bool,
    id: Option<String>,
    title: Option<String>,
    url: Option<String>,
    text: Option<String>,
}

/// A chunk in full, or its text alone.
#[derive(Debug)]
struct AnyChunk(Chunk);

/// One value of a file.
#[derive(Debug)]
enum Item {
    Object(Box<Object>),
    Chunks(Vec<AnyChunk>),
}

/// Reads a file. `query` replaces the queries inside, and is what chunks without a request are scored for.
pub(super) fn parse(file: &str, text: &str, query: Option<&str>) -> Result<Vec<Request>, InputError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let fail = |line: usize, reason: String| InputError { file: file.to_owned(), line, reason };
    let mut requests = Vec::new();
    let mut loose: Option<Request> = None;
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Item>();
    loop {
        let line = line_of_next(text, values.byte_offset());
        let Some(item) = values.next() else { break };
        let item = item.map_err(|e| fail(e.line().max(1), reason(&e)))?;
        let chunks = match item {
            Item::Object(object) if object.text.is_none() => {
                requests.push(object.request(line, query).map_err(|reason| fail(line, reason))?);
                continue;
            }
            Item::Object(object) => vec![object.chunk().map_err(|reason| fail(line, reason))?],
            Item::Chunks(chunks) => chunks.into_iter().map(|chunk| chunk.0).collect(),
        };
        loose.get_or_insert_with(|| Request { line, ..Request::default() }).chunks.extend(chunks);
    }
    match (loose, query) {
        (None, _) if requests.is_empty() => Err(fail(1, "there is nothing in it".into())),
        (None, _) => Ok(requests),
        (Some(chunks), _) if !requests.is_empty() => Err(fail(
            chunks.line,
            "here is a chunk, elsewhere a whole request; a file has one kind of them".into(),
        )),
        (Some(chunks), None) => {
            Err(fail(chunks.line, "here are chunks without a query; say it with --query".into()))
        }
        (Some(chunks), Some(query)) => Ok(vec![Request { queries: vec![query.to_owned()], ..chunks }]),
    }
}

impl Object {
    fn request(self, line: usize, query: Option<&str>) -> Result<Request, String> {
        if let Some((name, _)) =
            [("id", &self.id), ("title", &self.title), ("url", &self.url)].iter().find(|(_, v)| v.is_some())
        {
            return Err(format!("an object with {name} is a chunk and needs a text"));
        }
        let queries = match (query, self.query, self.queries) {
            (Some(query), ..) => vec![query.to_owned()],
            (None, Some(_), Some(_)) => return Err("it has both query and queries; keep one".into()),
            (None, Some(query), None) => vec![query],
            (None, None, Some(queries)) if !queries.is_empty() => queries,
            (None, None, _) => return Err("it has no query; add one, or say it with --query".into()),
        };
        let chunks = self.chunks.ok_or("it has neither chunks (a request) nor a text (a chunk)")?;
        Ok(Request {
            line,
            queries,
            chunks: chunks.into_iter().map(|chunk| chunk.0).collect(),
            heads: self.heads,
            head_set: self.head_set,
            statistic: self.statistic,
            control: self.control,
            read: self.read,
            orders: self.orders,
            max_tokens_per_chunk: self.max_tokens_per_chunk,
            explain: self.explain,
        })
    }

    fn chunk(self) -> Result<Chunk, String> {
        let of_request = self.query.is_some() || self.queries.is_some() || self.chunks.is_some();
        match self.text {
            Some(text) if !of_request => Ok(Chunk { id: self.id, title: self.title, url: self.url, text }),
            _ => Err("it has a text (a chunk) and a query or chunks (a request); keep one kind".into()),
        }
    }
}

/// The parser's words without their position: line numbers stand in front.
fn reason(error: &serde_json::Error) -> String {
    let told = error.to_string();
    told.rsplit_once(" at line ").map_or(told.clone(), |(reason, at)| {
        let column = at.rsplit_once("column ").map_or("", |(_, column)| column);
        format!("{reason} (column {column})")
    })
}

/// The line of the first character after `offset` that is not blank.
fn line_of_next(text: &str, offset: usize) -> usize {
    let blank = text[offset..].len() - text[offset..].trim_start().len();
    1 + text[..offset + blank].matches('\n').count()
}

impl<'de> Deserialize<'de> for AnyChunk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Chunk;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a chunk: a text, or an object with a text and perhaps id, title, url")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Chunk, E> {
                Ok(Chunk { text: text.to_owned(), ..Chunk::default() })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Chunk, A::Error> {
                Chunk::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_any(Either).map(Self)
    }
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Item;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with chunks and a query, or chunks")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Item, E> {
                Ok(Item::Chunks(vec![AnyChunk(Chunk { text: text.to_owned(), ..Chunk::default() })]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Item, A::Error> {
                let mut chunks = Vec::new();
                while let Some(chunk) = seq.next_element()? {
                    chunks.push(chunk);
                }
                Ok(Item::Chunks(chunks))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Item, A::Error> {
                Object::deserialize(MapAccessDeserializer::new(map)).map(|o| Item::Object(Box::new(o)))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(request: &Request) -> Vec<&str> {
        request.chunks.iter().map(|c| c.text.as_str()).collect()
    }

    fn error(text: &str, query: Option<&str>) -> (usize, String) {
        let error = parse("f.json", text, query).unwrap_err();
        assert!(error.to_string().starts_with(&format!("f.json, line {}: ", error.line)));
        (error.line, error.reason)
    }

    #[test]
    fn a_request_may_take_many_lines_or_one() {
        let pretty = "{\n \"query\": \"q\",\n \"chunks\": [{\"id\": \"a\", \"text\": \"x\"}, \"y\"],\n \"statistic\": \"sum\",\n \"heads\": [\"L1H2\"], \"model\": \"m\"}\n";
        let one = parse("f", pretty, None).unwrap();
        assert_eq!(
            (one.len(), &one[0].queries[..], texts(&one[0])),
            (1, &["q".to_owned()][..], vec!["x", "y"])
        );
        assert_eq!(one[0].chunks[0].id.as_deref(), Some("a"));
        assert_eq!(one[0].statistic, Some(Statistic::Sum));
        assert_eq!(one[0].heads, Some(vec!["L1H2".parse().unwrap()]));

        let lines = "{\"queries\": [\"a\", \"b\"], \"chunks\": []}\n\n{\"query\": \"c\", \"chunks\": [\"z\"], \"explain\": true}\n";
        let two = parse("f", lines, None).unwrap();
        assert_eq!(
            two.iter().map(|r| (r.line, r.queries.len(), r.explain)).collect::<Vec<_>>(),
            [(1, 2, false), (3, 1, true)]
        );
        assert_eq!(parse("f", lines, Some("all")).unwrap()[0].queries, ["all"]);
    }

    #[test]
    fn chunks_alone_take_the_query_of_the_command_line() {
        for text in [
            "[\"x\", {\"text\": \"y\"}]",
            "{\"text\": \"x\", \"title\": \"t\"}\n{\"text\": \"y\"}",
            "\"x\"\n\"y\"",
        ] {
            let one = parse("f", text, Some("q")).unwrap();
            assert_eq!((one.len(), texts(&one[0])), (1, vec!["x", "y"]), "{text}");
            assert_eq!(one[0].queries, ["q"]);
            assert!(error(text, None).1.contains("--query"));
        }
        assert_eq!(texts(&parse("f", "[]", Some("q")).unwrap()[0]), Vec::<&str>::new());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let good = "{\"query\": \"q\", \"chunks\": []}\n";
        for (text, line, says) in [
            (String::new(), 1, "nothing in it"),
            (format!("{good}{{\"query\": \"q\", \"chunks\": ["), 2, "EOF"),
            (format!("{good}\n{{\"query\": \"q\", \"chunks\": [{{}}]}}"), 3, "missing field `text`"),
            (format!("{good}{{\"query\": \"q\", \"chunks\": [7]}}"), 2, "expected a chunk: a text"),
            (format!("{good}{{\"chunks\": []}}"), 2, "no query"),
            (format!("{good}{{\"query\": \"q\"}}"), 2, "neither chunks"),
            (format!("{good}{{\"title\": \"q\"}}"), 2, "needs a text"),
            (
                format!("{good}{{\"query\": \"q\", \"queries\": [], \"chunks\": []}}"),
                2,
                "both query and queries",
            ),
            (format!("{good}{{\"text\": \"t\", \"query\": \"q\"}}"), 2, "keep one kind"),
            (format!("{good}{{\"text\": \"t\"}}"), 2, "one kind"),
            (
                "{\n\"query\": \"q\",\n\"chunks\": [],\n\"max_tokens\": 3}".into(),
                4,
                "unknown field `max_tokens`",
            ),
            ("{\"query\": \"q\", \"chunks\": [], \"statistic\": \"median\"}".into(), 1, "entropy"),
            ("{\"query\": \"q\", \"chunks\": [], \"heads\": [\"16\"]}".into(), 1, "L16H7"),
            ("title,text\n".into(), 1, "expected"),
        ] {
            let (at, reason) = error(&text, None);
            assert!(at == line && reason.contains(says), "{text}: line {at}: {reason}");
            assert!(!reason.contains(" at line "), "{reason}");
        }
    }
}
