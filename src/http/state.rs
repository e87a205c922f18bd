//! What all handlers share: keys, limits, and the model once it is there.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::http::{HeaderValue, StatusCode};
use opentelemetry_sdk::trace::SdkTracer;
use serde_json::Value;

use super::{ApiError, Traces, auth::Keys, metrics::Metrics};
use crate::service::{Admission, Permit, ServedModel, ServiceError, contexts::Contexts};

/// How the server is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// Keys that open every route; none leaves them open to everybody.
    pub api_keys: Vec<String>,
    /// Longest request body, in bytes.
    pub max_body_bytes: usize,
    /// Requests served at once, counting those that wait for the engine; more get 429.
    pub max_requests: usize,
    /// Take `chat_template` from requests. A template is a program: one that builds huge values can take the server's
    /// memory, so only for callers who are trusted.
    pub trust_request_chat_template: bool,
    /// Origins whose pages may ask, as `https://example.org`; `*` is any. None by default.
    pub cors_origins: Vec<HeaderValue>,
    /// How long a request may take; a caller may ask for less. Any time by default.
    pub request_timeout: Option<Duration>,
    /// How long a request's head may take to arrive, and then its body. A connection without a request is closed after it.
    pub read_timeout: Duration,
    /// How long requests in flight get at the end. Any time by default.
    pub shutdown_timeout: Option<Duration>,
}

impl Default for ServerOptions {
    /// Open, bodies up to 4 MiB, 256 requests, no templates from requests, a minute to send one.
    fn default() -> Self {
        Self {
            api_keys: Vec::new(),
            max_body_bytes: 4 << 20,
            max_requests: 256,
            trust_request_chat_template: false,
            cors_origins: Vec::new(),
            request_timeout: None,
            read_timeout: Duration::from_secs(60),
            shutdown_timeout: None,
        }
    }
}

/// Shared state of the server; cheap to clone. Starts without a model, so that the listener answers from the beginning.
#[derive(Clone)]
pub struct AppState(Arc<Inner>);

struct Inner {
    keys: Keys,
    max_body_bytes: usize,
    admission: Admission,
    trusts_templates: bool,
    cors_origins: Vec<HeaderValue>,
    request_timeout: Option<Duration>,
    read_timeout: Duration,
    shutdown_timeout: Option<Duration>,
    tracer: Option<SdkTracer>,
    served: OnceLock<Arc<Served>>,
    contexts: OnceLock<Contexts>,
}

/// The model, and what belongs to it alone.
pub(super) struct Served {
    pub(super) model: Arc<ServedModel>,
    pub(super) metrics: Metrics,
    /// When it was installed, in seconds since 1970.
    pub(super) created: u64,
}

impl AppState {
    /// A server without a model.
    #[must_use]
    pub fn new(options: &ServerOptions) -> Self {
        Self::traced(options, None)
    }

    /// The same, which sends a span of every request.
    #[must_use]
    pub fn traced(options: &ServerOptions, traces: Option<&Traces>) -> Self {
        Self(Arc::new(Inner {
            keys: Keys::new(&options.api_keys),
            max_body_bytes: options.max_body_bytes,
            admission: Admission::new(options.max_requests),
            trusts_templates: options.trust_request_chat_template,
            cors_origins: options.cors_origins.clone(),
            request_timeout: options.request_timeout,
            read_timeout: options.read_timeout,
            shutdown_timeout: options.shutdown_timeout,
            tracer: traces.map(Traces::tracer),
            served: OnceLock::new(),
            contexts: OnceLock::new(),
        }))
    }

    /// Puts the model in; from now on it is served. False when there is one already: that one stays.
    pub fn install(&self, model: ServedModel) -> bool {
        let metrics = Metrics::new(&model.id, &model.head_sets);
        let served = Served { model: Arc::new(model), metrics, created: now() };
        self.0.served.set(Arc::new(served)).is_ok()
    }

    /// The model, or the 503 of a server that has none yet.
    pub(super) fn served(&self) -> Result<Arc<Served>, ApiError> {
        self.0.served.get().cloned().ok_or_else(|| {
            let message = "the model is still being loaded; try again shortly";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message).with_code("loading")
        })
    }

    /// From now on contexts are kept there. False when they are kept already: that stays.
    pub fn keep_contexts(&self, contexts: Contexts) -> bool {
        self.0.contexts.set(contexts).is_ok()
    }

    /// The contexts, or the 503 of a server that keeps none.
    pub(super) fn contexts(&self) -> Result<&Contexts, ApiError> {
        self.0.contexts.get().ok_or_else(|| {
            let message = "this server keeps no contexts; its --contexts says where they are kept";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message).with_code("contexts_off")
        })
    }

    /// Refuses a template that comes with a request, unless this server trusts them.
    pub(super) fn check_template(&self, body: &Value) -> Result<(), ApiError> {
        if body["chat_template"].is_null() || self.0.trusts_templates {
            return Ok(());
        }
        let reason = "is not taken from requests here; start the server with --trust-request-chat-template";
        Err(ApiError::invalid("chat_template", reason))
    }

    pub(super) fn enter(&self) -> Result<Permit, ServiceError> {
        self.0.admission.enter()
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.0.keys
    }

    pub(super) fn request_timeout(&self) -> Option<Duration> {
        self.0.request_timeout
    }

    pub(super) fn read_timeout(&self) -> Duration {
        self.0.read_timeout
    }

    pub(super) fn shutdown_timeout(&self) -> Option<Duration> {
        self.0.shutdown_timeout
    }

    pub(super) fn tracer(&self) -> Option<&SdkTracer> {
        self.0.tracer.as_ref()
    }

    pub(super) fn cors_origins(&self) -> &[HeaderValue] {
        &self.0.cors_origins
    }

    pub(super) fn max_body_bytes(&self) -> usize {
        self.0.max_body_bytes
    }
}

impl Served {
    /// Refuses a request for another model. Absent or null means this one.
    pub(super) fn check_model(&self, body: &Value) -> Result<(), ApiError> {
        match &body["model"] {
            Value::Null => Ok(()),
            Value::String(name) if *name == self.model.id => Ok(()),
            Value::String(name) => {
                let (field, known) = ("model".into(), self.model.id.clone());
                Err(ServiceError::Unknown { field, name: name.clone(), known }.into())
            }
            _ => Err(ApiError::invalid("model", "must be a string")),
        }
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
