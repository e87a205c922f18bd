//! HTTP: OpenAI's conventions for generation, a native API for scores, and what operators look at.
//!
//! Owns connections, routes, request and response shapes, keys, limits, errors, metrics, the log of requests and traces. Asks the service for everything else and
//! knows no tensor and no token but as a number. Tests: `tests/http.rs`, in process on a tiny model, and beside the parts.

mod auth;
mod chat;
mod completions;
mod connections;
mod contexts;
mod deadline;
mod error;
mod gate;
mod layers;
mod metrics;
mod models;
mod openapi;
mod ops;
mod page;
mod record;
mod rerank;
mod score;
mod scoring;
mod sse;
mod state;
mod tokenize;
mod traces;
mod wire;

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    middleware::from_fn_with_state,
    routing::{get, post},
};
use tower_http::catch_panic::CatchPanicLayer;

/// A header's value, as an origin is one.
pub use axum::http::HeaderValue;
pub use connections::serve;
pub use error::ApiError;
pub use state::{AppState, ServerOptions};
pub use traces::{Traces, TracesError};
pub use wire::scored::score_json;

use crate::text::shown;

/// All routes. From outside in, a request passes: its record, the count of answers, the catching of panics, the key, and the
/// question whether the model is there; also a request for a route that does not exist.
pub fn router(state: AppState) -> Router {
    around(routes(), state)
}

fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/qrae/score", post(score::score))
        .route("/v1/gate", post(gate::gate))
        .route("/rerank", post(rerank::rerank))
        .route("/v1/rerank", post(rerank::rerank))
        .route("/v2/rerank", post(rerank::rerank))
        .route("/v1/chat/completions", post(chat::chat))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/contexts", get(contexts::list).post(contexts::create))
        .route("/v1/contexts/{id}", get(contexts::read).delete(contexts::delete))
        .route("/v1/contexts/{id}/results", post(contexts::update))
        .route("/v1/contexts/{id}/events", get(contexts::events))
        .route("/v1/contexts/{id}/export", get(contexts::export))
        .route("/v1/contexts/{id}/fork", post(contexts::fork))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::one))
        .route("/v1/head_sets", get(models::head_sets))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/v1/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/v1/detokenize", post(tokenize::detokenize))
        .route("/health", get(ops::health))
        .route("/metrics", get(ops::metrics))
        .route("/openapi.json", get(openapi::description))
        .route("/docs", get(page::file))
        .route("/", get(page::file))
        .route("/web/{file}", get(page::file))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
}

/// The layers around all routes.
fn around(routes: Router<AppState>, state: AppState) -> Router {
    let routes = routes
        .layer(from_fn_with_state(state.clone(), deadline::keep))
        .layer(from_fn_with_state(state.clone(), layers::ready))
        .layer(from_fn_with_state(state.clone(), auth::check))
        .layer(CatchPanicLayer::custom(error::of_panic));
    let routes = match layers::cors(state.cors_origins()) {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes
        .layer(from_fn_with_state(state.clone(), layers::count))
        .layer(from_fn_with_state(state.clone(), record::keep))
        .with_state(state)
}

async fn no_route(request: Request) -> ApiError {
    let message =
        format!("there is no {}; /openapi.json and /docs name what there is", shown(request.uri().path()));
    ApiError::new(StatusCode::NOT_FOUND, "not_found_error", message)
}

async fn wrong_method(request: Request) -> ApiError {
    let message =
        format!("{} does not take {}", shown(request.uri().path()), shown(request.method().as_str()));
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message)
}
