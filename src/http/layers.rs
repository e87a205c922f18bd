//! What every request passes through: its id, the count of its answer, and the question whether the model is there.

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderName, HeaderValue, Method, header},
    middleware::Next,
    response::Response,
};
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::{ApiError, AppState, page};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Takes over the caller's `X-Request-Id` where it is 1 to 128 visible ASCII characters, else makes one up; the answer
/// carries it.
pub(super) async fn request_id(request: Request, next: Next) -> Response {
    let visible =
        |v: &HeaderValue| (1..=128).contains(&v.len()) && v.as_bytes().iter().all(u8::is_ascii_graphic);
    let sent = request.headers().get(&REQUEST_ID).filter(|v| visible(v)).cloned();
    let id = sent.unwrap_or_else(|| {
        let id = uuid::Uuid::new_v4().simple().to_string();
        HeaderValue::try_from(id).expect("hexadecimal digits are a header value: this is a bug")
    });
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut response = next.run(request).await;
    tracing::debug!(%method, path, status = response.status().as_u16(), id = ?id, "answered");
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// Lets pages of these origins ask and read the answer, outside of everything: a browser asks first, without a key. None
/// for no origins: then a page of another origin gets nothing.
pub(super) fn cors(origins: &[HeaderValue]) -> Option<CorsLayer> {
    let allowed = match origins {
        [] => return None,
        some if some.iter().any(|origin| origin == "*") => AllowOrigin::any(),
        some => AllowOrigin::list(some.iter().cloned()),
    };
    let headers = [header::AUTHORIZATION, header::CONTENT_TYPE, REQUEST_ID];
    let cors = CorsLayer::new().allow_origin(allowed).allow_headers(headers);
    Some(cors.allow_methods([Method::GET, Method::POST]).expose_headers([REQUEST_ID, header::RETRY_AFTER]))
}

/// Counts answers by route pattern and status; never by what the caller wrote.
pub(super) async fn count(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    if let Ok(served) = state.served() {
        let route = route.as_ref().map_or("unmatched", MatchedPath::as_str);
        served.metrics.count_answer(route, response.status());
    }
    response
}

/// Until the model is there, everything but the page's files and `/health`, which says so itself, answers 503.
pub(super) async fn ready(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let path = request.uri().path();
    if path != "/health" && page::at(path).is_none() {
        state.served()?;
    }
    Ok(next.run(request).await)
}
