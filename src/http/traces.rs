//! Spans on their way to a collector: OTLP over HTTP, in batches, from a thread of their own. A collector that is down or
//! slow costs spans and nothing else: the log says so once a minute.
//!
//! What is sent: `record`. The usual variables hold: `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`,
//! `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_…`. Tests: `tests/http/traces.rs`, `tests/cli.rs`.

use std::{
    fmt,
    pin::Pin,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    body::Bytes,
    http::{Request, Response, Uri},
};
use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    resource::{EnvResourceDetector, TelemetryResourceDetector},
    trace::{SdkTracer, SdkTracerProvider},
};

/// Longest wait for a collector's answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the log says that spans do not arrive.
const REMINDER: Duration = Duration::from_secs(60);

/// Longest answer of a collector that is read, in bytes.
const LONGEST_ANSWER: u64 = 1 << 20;

/// The way to one collector.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

/// Traces cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TracesError {
    /// The collector's URL is none.
    #[error(
        "the collector's URL for traces {reason}; it is http://HOST:PORT or https://…, where OTLP over HTTP is taken \
         (usually port 4318; port 4317 is usually gRPC, which is not spoken here), and /v1/traces is added to it"
    )]
    Url {
        /// What is wrong with it.
        reason: String,
    },
    /// The exporter could not be made, for what its variables say.
    #[error("traces cannot be sent: {reason}")]
    Exporter {
        /// What it said.
        reason: String,
    },
}

impl Traces {
    /// Will send to the collector at `url`, as `OTEL_EXPORTER_OTLP_ENDPOINT` has it: without `/v1/traces`. Does not ask
    /// whether it is there.
    ///
    /// # Errors
    /// When this is no URL of a collector, or a variable is set to what cannot be done.
    pub fn to(url: &str) -> Result<Self, TracesError> {
        let url = endpoint(url)?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Client::new(&url))
            .with_endpoint(url.to_string())
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(PATIENCE)
            .build()
            .map_err(|e| TracesError::Exporter { reason: e.to_string() })?;
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource());
        Ok(Self(provider.build()))
    }

    /// What makes spans.
    pub(super) fn tracer(&self) -> SdkTracer {
        self.0.tracer("qrae")
    }

    /// Sends what has not been sent yet, and no more after that. Blocks, at most for `within`; false when that was too
    /// short.
    #[must_use]
    pub fn finish(&self, within: Duration) -> bool {
        self.0.shutdown_with_timeout(within).is_ok()
    }
}

/// `url` with the path where traces are taken.
fn endpoint(url: &str) -> Result<Uri, TracesError> {
    let wrong = |reason: &dyn fmt::Display| TracesError::Url { reason: reason.to_string() };
    let whole = format!("{}/v1/traces", url.trim_end_matches('/'));
    let url: Uri = whole.parse().map_err(|e| wrong(&format!("is not valid ({e})")))?;
    match (url.scheme_str(), url.query()) {
        (Some("http" | "https"), None) => Ok(url),
        (Some("http" | "https"), Some(_)) => Err(wrong(&"has a query")),
        (Some(other), _) => Err(wrong(&format!("begins with {other}://"))),
        (None, _) => Err(wrong(&"does not begin with http:// or https://")),
    }
}

/// Who sends: `qrae`, where the variables do not say otherwise.
fn resource() -> Resource {
    let ours = Resource::builder_empty()
        .with_service_name("qrae")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    let all =
        ours.with_detectors(&[Box::new(TelemetryResourceDetector), Box::new(EnvResourceDetector::new())]);
    let named = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    match named {
        Some(name) => all.with_service_name(name).build(),
        None => all.build(),
    }
}

/// What the exporter sends with, on its own thread, so that it may block; and who says how that goes.
#[derive(Debug)]
struct Client {
    agent: ureq::Agent,
    /// The collector, without a name or password that its URL may hold.
    place: String,
    failing: Mutex<Failing>,
}

#[derive(Debug, Default)]
struct Failing {
    now: bool,
    told: Option<Instant>,
}

impl Client {
    fn new(url: &Uri) -> Self {
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE));
        let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
        let place =
            format!("{}://{}{port}", url.scheme_str().unwrap_or_default(), url.host().unwrap_or_default());
        Self { agent: config.build().into(), place, failing: Mutex::default() }
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let response = self.agent.run(request.map(|body| body.to_vec()))?;
        let (parts, mut body) = response.into_parts();
        let body = body.with_config().limit(LONGEST_ANSWER).read_to_vec()?;
        Ok(Response::from_parts(parts, body.into()))
    }

    fn note(&self, failed: Option<&str>) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let was = std::mem::replace(&mut failing.now, failed.is_some());
        match failed {
            Some(reason) if failing.told.is_none_or(|told| told.elapsed() >= REMINDER) => {
                failing.told = Some(Instant::now());
                tracing::warn!("traces do not reach {}, and some may be lost: {reason}", self.place);
            }
            None if was => tracing::info!("traces reach {} again", self.place),
            _ => {}
        }
    }
}

impl HttpClient for Client {
    fn send_bytes<'client, 'sent>(
        &'client self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'sent>>
    where
        'client: 'sent,
        Self: 'sent,
    {
        let sent = self.send(request);
        let failed = match &sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("the answer is {}", response.status())),
            Err(error) => Some(error.to_string()),
        };
        self.note(failed.as_deref());
        Box::pin(std::future::ready(sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collectors_url_is_completed_or_refused() {
        let of = |url| endpoint(url).map(|url| url.to_string());
        assert_eq!(of("http://localhost:4318").unwrap(), "http://localhost:4318/v1/traces");
        assert_eq!(of("https://o.example/otlp/").unwrap(), "https://o.example/otlp/v1/traces");
        for (url, says) in [
            ("localhost:4318", "http://HOST:PORT"),
            ("grpc://a:4317", "begins with grpc://"),
            ("http://", "not valid"),
            ("http://a b", "not valid"),
            ("/v1/traces", "does not begin with http://"),
            ("http://a/?token=s3cret", "has a query"),
        ] {
            let said = of(url).unwrap_err().to_string();
            assert!(said.contains(says) && said.contains("4318"), "{url}: {said}");
            assert!(!said.contains("s3cret"), "{said}");
        }
    }

    #[test]
    fn a_password_in_the_url_is_no_part_of_the_place() {
        let client = Client::new(&endpoint("https://me:s3cret@o.example:4318/x").unwrap());
        assert_eq!(client.place, "https://o.example:4318");
    }
}
