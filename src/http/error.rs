//! Errors as OpenAI's clients read them: `{"error": {"message", "type", "param", "code"}}`.

use std::any::Any;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use crate::{engine::EngineError, service::ServiceError};

/// Goes with an answer that is an error: its [`name`](ApiError::name).
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure(pub(super) &'static str);

/// A request that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    pub(super) status: StatusCode,
    kind: &'static str,
    message: String,
    param: Option<String>,
    code: Option<&'static str>,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into(), param: None, code: None }
    }

    /// A field of the request is wrong. The message begins with the field.
    pub(super) fn invalid(param: impl Into<String>, reason: &(impl ToString + ?Sized)) -> Self {
        ServiceError::invalid(param, reason).into()
    }

    /// The request as a whole is wrong.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// The same of a field inside `field`.
    pub(super) fn inside(self, field: &str) -> Self {
        match &self.param {
            Some(param) => Self {
                message: format!("{field}.{}", self.message),
                param: Some(format!("{field}.{param}")),
                ..self
            },
            None => Self { message: format!("{field}: {}", self.message), param: Some(field.into()), ..self },
        }
    }

    pub(super) fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    /// What went wrong, in a word of this program.
    pub(super) fn name(&self) -> &'static str {
        self.code.unwrap_or(self.kind)
    }

    /// Puts a fault of the server into the log.
    pub(super) fn report(&self) {
        // a model that is still being loaded is no fault, and probes ask often; nor is a time limit that somebody set
        if self.status.is_server_error() && !matches!(self.code, Some("loading" | "deadline_exceeded")) {
            tracing::error!(status = self.status.as_u16(), "{}", self.message);
        }
    }

    /// The body, also sent inside a stream that has begun.
    pub(super) fn body(&self) -> Value {
        let Self { message, kind, param, code, .. } = self;
        json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
    }
}

impl ApiError {
    /// The same as clients of text-embeddings-inference read it: `{"error", "error_type"}`, with its statuses.
    pub(super) fn into_tei(self) -> Response {
        let (status, kind) = match self.status {
            StatusCode::BAD_REQUEST => (StatusCode::UNPROCESSABLE_ENTITY, "Validation"),
            StatusCode::TOO_MANY_REQUESTS => (self.status, "Overloaded"),
            StatusCode::INTERNAL_SERVER_ERROR => (StatusCode::FAILED_DEPENDENCY, "Backend"),
            StatusCode::SERVICE_UNAVAILABLE => (self.status, "Unhealthy"),
            other => (other, "Validation"),
        };
        let body = json!({"error": self.message, "error_type": kind});
        let mut response = self.into_response();
        *response.status_mut() = status;
        let (mut parts, _) = response.into_parts();
        parts.headers.remove(header::CONTENT_LENGTH); // of the body that is replaced
        Response::from_parts(parts, axum::body::Body::from(body.to_string()))
    }
}

impl From<ServiceError> for ApiError {
    fn from(error: ServiceError) -> Self {
        let message = error.to_string();
        let (status, kind, param, code) = match error {
            ServiceError::Invalid { field, .. } => {
                (StatusCode::BAD_REQUEST, "invalid_request_error", Some(field), None)
            }
            ServiceError::TooLong { field, .. } | ServiceError::TextTooLong { field, .. } => {
                let code = "context_length_exceeded";
                (StatusCode::BAD_REQUEST, "invalid_request_error", Some(field), Some(code))
            }
            ServiceError::Unknown { field, .. } => {
                let code = if field == "model" { "model_not_found" } else { "not_found" };
                (StatusCode::NOT_FOUND, "not_found_error", Some(field), Some(code))
            }
            ServiceError::NoHeadSet { .. } => {
                (StatusCode::NOT_FOUND, "not_found_error", Some("head_set".into()), Some("not_found"))
            }
            ServiceError::NoContext { .. } => {
                (StatusCode::NOT_FOUND, "not_found_error", Some("context".into()), Some("context_not_found"))
            }
            ServiceError::Conflict { field, .. } => {
                (StatusCode::CONFLICT, "conflict_error", Some(field), Some("conflict"))
            }
            ServiceError::Storage { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "server_error", None, Some("storage_failed"))
            }
            ServiceError::Overloaded { .. } => {
                (StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", None, Some("overloaded"))
            }
            ServiceError::Engine(EngineError::TooLong { .. }) => {
                let code = "context_length_exceeded";
                (StatusCode::BAD_REQUEST, "invalid_request_error", None, Some(code))
            }
            ServiceError::Engine(EngineError::Mask { .. }) => {
                (StatusCode::BAD_REQUEST, "invalid_request_error", None, None)
            }
            ServiceError::Engine(EngineError::Failed { .. }) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "server_error", None, None)
            }
            ServiceError::Engine(EngineError::Stopped) => {
                (StatusCode::SERVICE_UNAVAILABLE, "server_error", None, Some("stopped"))
            }
        };
        Self { status, kind, message, param, code }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.report();
        let mut response = (self.status, axum::Json(self.body())).into_response();
        response.extensions_mut().insert(Failure(self.name()));
        let headers = response.headers_mut();
        match self.status {
            // the rest of its body may still come, and would be taken for a request
            StatusCode::REQUEST_TIMEOUT => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

/// The answer to a request whose handler panicked; the panic itself has been reported by the hook.
#[allow(clippy::needless_pass_by_value)] // the layer's signature
pub(super) fn of_panic(_: Box<dyn Any + Send>) -> Response {
    let message = "the server failed on this request; this is a bug, please report it with the log";
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_its_status() {
        let field = || "f".to_owned();
        let cases = [
            (ServiceError::invalid("f", "x"), 400),
            (ServiceError::TooLong { field: field(), prompt: 9, new: 1, limit: 5 }, 400),
            (ServiceError::TextTooLong { field: field(), bytes: 99, least: 9, limit: 5 }, 400),
            (ServiceError::Unknown { field: field(), name: field(), known: field() }, 404),
            (ServiceError::NoHeadSet { sets: field() }, 404),
            (ServiceError::NoContext { id: field() }, 404),
            (ServiceError::Conflict { field: field(), reason: field() }, 409),
            (ServiceError::Storage { reason: field() }, 503),
            (ServiceError::Overloaded { limit: 3 }, 429),
            (EngineError::TooLong { needed: 9, capacity: 5 }.into(), 400),
            (EngineError::Mask { reason: field() }.into(), 400),
            (EngineError::Failed { reason: field() }.into(), 500),
            (EngineError::Stopped.into(), 503),
        ];
        for (error, status) in cases {
            let response = ApiError::from(error.clone()).into_response();
            assert_eq!(response.status(), status, "{error}");
            assert_eq!(response.headers().contains_key("retry-after"), status == 429);
        }
    }

    #[test]
    fn a_panic_says_nothing_about_itself() {
        assert_eq!(of_panic(Box::new("secret")).status(), 500);
    }
}
