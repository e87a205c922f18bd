//! A request as a span of OpenTelemetry: a server's, with the attributes that its conventions for HTTP and for generative
//! models name, `qrae.…` for what they do not, and below it a span for each phase: `queue`, `prefill`, `decode`.
//!
//! <https://opentelemetry.io/docs/specs/semconv/http/http-spans/#http-server>

use std::time::{Instant, SystemTime};

use axum::{
    extract::{MatchedPath, Request},
    http::{Version, header},
};
use opentelemetry::{
    Array, Context, KeyValue, StringValue, Value,
    propagation::TextMapPropagator,
    trace::{Span as _, SpanKind, Status, TraceContextExt, Tracer},
};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::{
    propagation::TraceContextPropagator,
    trace::{SdkTracer, Span},
};

use super::{Facts, LONGEST_PATH, Telling, finish};

/// The span of a request in progress.
pub(super) struct ServerSpan {
    span: Span,
    tracer: SdkTracer,
    /// One moment on both clocks.
    begin: (Instant, SystemTime),
}

impl ServerSpan {
    /// From now on; below the caller's span where the headers name one.
    pub(super) fn begin(tracer: &SdkTracer, telling: &Telling, request: &Request) -> Self {
        let begin = (telling.begin, SystemTime::now());
        let parent = TraceContextPropagator::new()
            .extract_with_context(&Context::new(), &HeaderExtractor(request.headers()));
        let route = telling.route.as_ref().map(MatchedPath::as_str);
        let name = route.map_or_else(|| telling.method.into(), |route| format!("{} {route}", telling.method));
        let protocol = match request.version() {
            Version::HTTP_10 => "1.0",
            Version::HTTP_2 => "2",
            _ => "1.1",
        };
        let mut attributes = vec![
            KeyValue::new("http.request.method", telling.method),
            KeyValue::new("url.scheme", "http"),
            KeyValue::new("url.path", telling.path.clone()),
            KeyValue::new("network.protocol.version", protocol),
            KeyValue::new("qrae.request_id", telling.id().to_owned()),
        ];
        attributes.extend(route.map(|route| KeyValue::new("http.route", route.to_owned())));
        let agent = request.headers().get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        let agent = agent.map(|agent| agent.chars().take(LONGEST_PATH).collect::<String>());
        attributes.extend(agent.map(|agent| KeyValue::new("user_agent.original", agent)));
        let builder = tracer.span_builder(name).with_kind(SpanKind::Server);
        let builder = builder.with_start_time(begin.1).with_attributes(attributes);
        Self { span: tracer.build_with_context(builder, &parent), tracer: tracer.clone(), begin }
    }

    pub(super) fn trace_id(&self) -> String {
        self.span.span_context().trace_id().to_string()
    }

    /// The request is over.
    pub(super) fn end(mut self, telling: &Telling, facts: &Facts) {
        if !self.span.is_recording() {
            return;
        }
        self.phases(facts);
        self.span.set_attributes(attributes(telling, facts));
        if let Some(error) = error(telling, facts) {
            self.span.set_attribute(KeyValue::new("error.type", error));
            self.span.set_status(Status::error(""));
        }
        self.span.end();
    }

    /// The spans of the phases, all at once: each is over by now.
    fn phases(&self, facts: &Facts) {
        let parent = Context::new().with_remote_span_context(self.span.span_context().clone());
        let at = |time: Instant| self.begin.1 + time.saturating_duration_since(self.begin.0);
        let child = |name: &'static str, from: Instant, to: Instant| {
            let builder = self.tracer.span_builder(name).with_start_time(at(from));
            self.tracer.build_with_context(builder, &parent).end_with_timestamp(at(to));
        };
        for phases in &facts.phases {
            child("queue", phases.submitted, phases.started);
            child("prefill", phases.started, phases.prefilled);
        }
        if let (Some(phases), Some(last)) = (facts.phases.first(), facts.last_token) {
            child("decode", phases.prefilled, last.max(phases.prefilled));
        }
    }
}

/// Why the server did not do what it was asked to, by no fault of the caller's request.
fn error(telling: &Telling, facts: &Facts) -> Option<&'static str> {
    if !telling.whole {
        return Some("cancelled");
    }
    let refused = telling.status.is_some_and(|status| status.is_client_error());
    facts.error.filter(|_| !refused)
}

fn attributes(telling: &Telling, facts: &Facts) -> Vec<KeyValue> {
    let number = |key, n: Option<usize>| n.map(|n| KeyValue::new(key, i64::try_from(n).unwrap_or(i64::MAX)));
    let text = |key, text: Option<&str>| text.map(|text| KeyValue::new(key, text.to_owned()));
    let seconds = |key, time: Option<std::time::Duration>| time.map(|t| KeyValue::new(key, t.as_secs_f64()));
    let finishes: Vec<StringValue> = facts.finishes.iter().map(|reason| finish(*reason).into()).collect();
    let finishes = (!finishes.is_empty()).then_some(Value::Array(Array::String(finishes)));
    let model = facts.model.as_deref();
    let known = [
        number("http.response.status_code", telling.status.map(|status| status.as_u16().into())),
        text("gen_ai.operation.name", facts.operation),
        text("gen_ai.provider.name", facts.operation.map(|_| "qrae")),
        text("gen_ai.request.model", model),
        text("gen_ai.response.model", model),
        facts.stream.map(|stream| KeyValue::new("gen_ai.request.stream", stream)),
        number("gen_ai.usage.input_tokens", facts.prompt_tokens),
        number("gen_ai.usage.cache_read.input_tokens", facts.cached_tokens),
        number("gen_ai.usage.output_tokens", facts.completion_tokens),
        finishes.map(|reasons| KeyValue::new("gen_ai.response.finish_reasons", reasons)),
        number("qrae.queries", facts.queries),
        number("qrae.chunks", facts.chunks),
        number("qrae.computed_tokens", facts.computed_tokens),
        seconds("qrae.queue_seconds", facts.queue()),
        seconds("qrae.prefill_seconds", facts.prefill()),
    ];
    known.into_iter().flatten().collect()
}
