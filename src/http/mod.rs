//! HTTP: OpenAI's conventions for generation, a native API for scores, and what operators look at.
//!
//! Owns routes, request and response shapes, keys, limits, errors and metrics. Asks the service for everything else and
//! knows no tensor and no token but as a number. Tests: `tests/http.rs`, in process on a tiny model, and beside the parts.

mod auth;
mod chat;
mod completions;
mod deadline;
mod error;
mod gate;
mod layers;
mod metrics;
mod models;
mod openapi;
mod ops;
mod page;
mod rerank;
mod score;
mod sse;
mod state;
mod tokenize;
mod wire;

use std::future::Future;

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    middleware::{from_fn, from_fn_with_state},
    routing::{get, post},
};
use tokio::net::TcpListener;
use tower_http::catch_panic::CatchPanicLayer;

/// A header's value, as an origin is one.
pub use axum::http::HeaderValue;
pub use error::ApiError;
pub use state::{AppState, ServerOptions};
pub use wire::scored::score_json;

/// All routes. From outside in, a request passes: its id, the count of answers, the catching of panics, the key, and the
/// question whether the model is there; also a request for a route that does not exist.
pub fn router(state: AppState) -> Router {
    let cors = layers::cors(state.cors_origins());
    let routes = Router::new()
        .route("/v1/qrae/score", post(score::score))
        .route("/v1/gate", post(gate::gate))
        .route("/rerank", post(rerank::rerank))
        .route("/v1/rerank", post(rerank::rerank))
        .route("/v2/rerank", post(rerank::rerank))
        .route("/v1/chat/completions", post(chat::chat))
        .route("/v1/completions", post(completions::completions))
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
        .layer(from_fn_with_state(state.clone(), deadline::keep))
        .layer(from_fn_with_state(state.clone(), layers::ready))
        .layer(from_fn_with_state(state.clone(), auth::check))
        .layer(CatchPanicLayer::custom(error::of_panic))
        .layer(from_fn_with_state(state.clone(), layers::count))
        .layer(from_fn(layers::request_id))
        .with_state(state);
    match cors {
        Some(cors) => routes.layer(cors),
        None => routes,
    }
}

/// Serves until `shutdown` resolves and the requests in flight are answered. The model may be installed later.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    state: AppState,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    axum::serve(listener, router(state)).with_graceful_shutdown(shutdown).await
}

async fn no_route(request: Request) -> ApiError {
    let message =
        format!("there is no {}; GET /v1/models and the README name what there is", request.uri().path());
    ApiError::new(StatusCode::NOT_FOUND, "not_found_error", message)
}

async fn wrong_method(request: Request) -> ApiError {
    let message = format!("{} does not take {}", request.uri().path(), request.method());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message)
}
