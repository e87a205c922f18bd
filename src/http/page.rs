//! The page at `/`: a question and chunks in the browser, their scores word by word, and answers beside each other.
//!
//! Owns the files of `web/`, which are part of the program, and the headers they go out with. They hold no data, so they
//! are sent without a key and before the model is there; what the page shows it asks the other routes for. Knows no
//! model and no score. Tests: `tests/http/page.rs`, and `tests/page` in a real browser.

use std::sync::LazyLock;

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use sha2::{Digest, Sha256};

use super::{ApiError, no_route};

/// One file of the page.
pub(super) struct File {
    name: &'static str,
    text: &'static str,
}

/// The page itself, at `/`.
const INDEX: File = File { name: "index.html", text: include_str!("../../web/index.html") };

/// The page of the API's description, at `/docs`. It holds no data: its script asks for `/openapi.json`.
const DOCS: File = File { name: "docs.html", text: include_str!("../../web/docs.html") };

/// Declares the files below `/web/` that lie in the folder of that name.
macro_rules! files {
    ($($name:literal)+) => {
        &[$(File { name: $name, text: include_str!(concat!("../../web/", $name)) },)+ EXAMPLE]
    };
}

/// The demo's question and search results.
const EXAMPLE: File = File { name: "example.json", text: include_str!("../cli/demo/snippets.json") };

const FILES: &[File] = files!(
    "answers.js" "api.js" "app.js" "ask.js" "base.css" "chunk.js" "chunks.js" "cost.js" "dialogs.js" "docs.css" "docs.js" "dom.js"
    "icon.svg" "inspector.js" "keys.js" "method.js" "page.css" "problem.js" "ranking.js" "spans.js" "state.js"
    "theme.js"
);

/// What the browser may do on the page: load its own files and ask its own server. Scripts cannot put a text into the
/// page as HTML.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
     trusted-types 'none'";

const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    // asked again each time, and answered 304 while the program is the same
    (header::CACHE_CONTROL, "no-cache"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The file at a path, exactly as it is written: what is found here is sent to everybody.
pub(super) fn at(path: &str) -> Option<&'static File> {
    match path.strip_prefix("/web/") {
        Some(name) => FILES.iter().find(|file| file.name == name),
        None => match path {
            "/" => Some(&INDEX),
            "/docs" => Some(&DOCS),
            _ => None,
        },
    }
}

/// `/`, `/docs` and `/web/{file}`.
pub(super) async fn file(request: Request) -> Result<Response, ApiError> {
    match at(request.uri().path()) {
        Some(file) => Ok(file.answer(request.headers())),
        None => Err(no_route(request).await),
    }
}

impl File {
    fn answer(&self, asked: &HeaderMap) -> Response {
        let tag = Self::tag();
        let mut response = if asked.get(header::IF_NONE_MATCH).is_some_and(|known| names(known, &tag)) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            ([(header::CONTENT_TYPE, self.content_type())], self.text).into_response()
        };
        let headers = response.headers_mut();
        headers.insert(header::ETAG, tag);
        for (name, value) in HEADERS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }

    fn content_type(&self) -> &'static str {
        match self.name.rsplit_once('.') {
            Some((_, "html")) => "text/html; charset=utf-8",
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "js")) => "text/javascript; charset=utf-8",
            Some((_, "json")) => "application/json",
            Some((_, "svg")) => "image/svg+xml",
            _ => "text/plain; charset=utf-8",
        }
    }

    /// The same for all files, as they change together: with the program.
    fn tag() -> HeaderValue {
        static TAG: LazyLock<HeaderValue> = LazyLock::new(|| {
            let mut hash = Sha256::new();
            for file in FILES.iter().chain([&INDEX, &DOCS]) {
                hash.update(file.name);
                hash.update(file.text);
            }
            let digits: String = hash.finalize()[..12].iter().map(|byte| format!("{byte:02x}")).collect();
            HeaderValue::try_from(format!("\"{digits}\""))
                .expect("hexadecimal digits are a header value: this is a bug")
        });
        TAG.clone()
    }
}

/// Whether `If-None-Match` lists the tag, weak or strong.
fn names(known: &HeaderValue, tag: &HeaderValue) -> bool {
    let (Ok(known), Ok(tag)) = (known.to_str(), tag.to_str()) else { return false };
    known.split(',').map(str::trim).any(|one| one == "*" || one.trim_start_matches("W/") == tag)
}
