//! What every request passes through: other origins' pages, the count of its answer, and the question whether the model is
//! there.

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderValue, Method, header},
    middleware::Next,
    response::Response,
};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::{ApiError, AppState, page, record::REQUEST_ID};

/// Lets pages of these origins ask and read the answer. Outside of the keys, as a browser asks first, without one; inside of
/// what counts and tells of requests. None for no origins: then a page of another origin gets nothing.
pub(super) fn cors(origins: &[HeaderValue]) -> Option<CorsLayer> {
    let allowed = match origins {
        [] => return None,
        some if some.iter().any(|origin| origin == "*") => AllowOrigin::any(),
        some => AllowOrigin::list(some.iter().cloned()),
    };
    // a page that may ask may ask with any header: clients send their own
    let cors = CorsLayer::new().allow_origin(allowed).allow_headers(AllowHeaders::mirror_request());
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
