//! Requests as they arrive: from bytes to a JSON object to typed fields, each failure with its place.

pub(super) mod chat;
pub(super) mod common;
pub(super) mod completions;
pub(super) mod contexts;
pub(super) mod gate;
pub(super) mod managing;
pub(super) mod rerank;
pub(super) mod score;
pub(super) mod scored;
pub(super) mod settings;
mod tools;

use std::{collections::HashMap, time::Duration};

use axum::{
    extract::{FromRequest, Request},
    http::{HeaderMap, StatusCode, header},
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, error::Category};

use super::{ApiError, AppState};
use crate::text::shown_sentence;

/// Fields that a request has and a type does not know.
pub(super) type Rest = HashMap<String, IgnoredAny>;

/// A request's body: a JSON object.
pub(super) struct Body(pub(super) Value);

impl FromRequest<AppState> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        check_type(request.headers())?;
        let limit = state.max_body_bytes();
        let length =
            request.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > limit as u64) {
            return Err(too_large(limit));
        }
        let patience = state.read_timeout();
        let bytes = axum::body::to_bytes(request.into_body(), limit);
        let bytes = tokio::time::timeout(patience, bytes).await.map_err(|_| stalled(patience))?;
        let bytes = bytes.map_err(|e| {
            let over = std::error::Error::source(&e).is_some_and(|s| s.to_string().contains("length limit"));
            if over {
                too_large(limit)
            } else {
                ApiError::bad_request(format!("the body did not arrive: {e}"))
            }
        })?;
        parse(&bytes).map(Self)
    }
}

/// Other types are refused: a web page could send them without asking. No type at all is taken for JSON. Bodies that are
/// compressed are refused, too.
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let unsupported =
        |message| Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", message));
    if headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return unsupported("the body must not be compressed; send it without the header Content-Encoding");
    }
    let Some(sent) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let name =
        sent.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if name == "application/json" || name.starts_with("application/") && name.ends_with("+json") {
        return Ok(());
    }
    unsupported("the body must be JSON; send it with the header Content-Type: application/json")
}

fn stalled(patience: Duration) -> ApiError {
    let message =
        format!("the body had not arrived after {} s; --read-timeout sets the limit", patience.as_secs_f64());
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout_error", message).with_code("request_timeout")
}

fn too_large(limit: usize) -> ApiError {
    let message =
        format!("the body is larger than {limit} bytes; the server's --max-body-bytes sets the limit");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message).with_code("body_too_large")
}

fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    let value: Value = serde_json::from_slice(bytes).map_err(|e| {
        let what = if e.classify() == Category::Eof { "ends too early" } else { "is not valid JSON" };
        ApiError::bad_request(format!("the body {what}: {e}")).with_code("invalid_json")
    })?;
    if value.is_object() { Ok(value) } else { Err(ApiError::bad_request("the body must be a JSON object")) }
}

/// Reads typed fields out of a body; a wrong one is named by its path.
pub(super) fn typed<'a, T: Deserialize<'a>>(body: &'a Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(body).map_err(|e| {
        let path = e.path().to_string();
        let reason = in_json(&e.into_inner().to_string());
        if path == "." { ApiError::bad_request(reason) } else { ApiError::invalid(path, &reason) }
    })
}

/// What types are called here, and in JSON.
const TYPES: [(&str, &str); 11] = [
    ("expected a nonzero usize", "expected an integer above 0"),
    ("expected usize", "expected an integer of at least 0"),
    ("expected u64", "expected an integer of at least 0"),
    ("expected u32", "expected an integer from 0 to 4294967295"),
    ("expected i64", "expected an integer"),
    ("expected i32", "expected an integer of at most 32 bits"),
    ("expected f64", "expected a number"),
    ("expected f32", "expected a number"),
    ("expected a sequence", "expected a list"),
    ("expected a map", "expected an object"),
    ("expected a borrowed string", "expected a string"),
];

/// A reason that names types by their names in JSON; what it quotes is cut.
fn in_json(reason: &str) -> String {
    let named = TYPES.iter().fold(reason.to_owned(), |text, (rust, json)| text.replace(rust, json));
    let begin = named.find("expected struct ");
    shown_sentence(&begin.map_or_else(|| named.clone(), |at| format!("{}expected an object", &named[..at])))
}

/// Token ids in a JSON list.
pub(super) fn token_ids(value: &Value, field: &str) -> Result<Vec<u32>, ApiError> {
    let list = value.as_array().ok_or_else(|| ApiError::invalid(field, "must be a list of token ids"))?;
    let id = |(i, v): (usize, &Value)| {
        let id = v.as_u64().and_then(|v| u32::try_from(v).ok());
        id.ok_or_else(|| ApiError::invalid(format!("{field}[{i}]"), "must be a token id"))
    };
    list.iter().enumerate().map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Probe {
        n: Option<i64>,
        list: Option<Vec<Inner>>,
        #[serde(flatten)]
        rest: Rest,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Inner {
        x: f64,
    }

    #[test]
    fn wrong_fields_are_named_by_their_path() {
        let message = |json: &str| {
            typed::<Probe>(&parse(json.as_bytes()).unwrap()).unwrap_err().body()["error"].clone()
        };
        assert_eq!(message(r#"{"n": "3"}"#)["param"], "n");
        assert_eq!(message(r#"{"n": 3.5}"#)["param"], "n");
        assert_eq!(message(r#"{"list": [{"x": 1}, {"x": "a"}], "y": 1}"#)["param"], "list[1].x");
        assert!(message(r#"{"list": [{}]}"#)["message"].as_str().unwrap().contains("missing field `x`"));
        let text = |json| message(json)["message"].as_str().unwrap().to_owned();
        assert!(text(r#"{"n": "3"}"#).ends_with("expected an integer"), "{}", text(r#"{"n": "3"}"#));
        assert!(text(r#"{"list": [7]}"#).ends_with("expected an object"), "{}", text(r#"{"list": [7]}"#));
        assert!(text(&format!(r#"{{"n": "{}"}}"#, "x".repeat(9000))).len() < 700);
        let probe: Probe = typed(&parse(br#"{"n": null, "other": [1]}"#).unwrap()).unwrap();
        assert_eq!(probe.rest.keys().collect::<Vec<_>>(), ["other"]);
    }
}
