//! A small collector of traces: takes OTLP over HTTP and keeps the spans it is sent.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value as Any},
    trace::v1::Span,
};
use prost::Message;
use serde_json::{Value, json};

/// A span, and who sent it.
#[derive(Clone, Debug)]
pub struct Sent {
    pub span: Span,
    pub resource: Attributes,
}

pub type Attributes = BTreeMap<String, Value>;

/// Listens until the process ends.
#[derive(Clone)]
pub struct Collector {
    pub url: String,
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl Collector {
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let collector = Self { url, sent: Arc::default() };
        let app = Router::new().route("/v1/traces", post(take)).with_state(collector.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                axum::serve(tokio::net::TcpListener::from_std(listener).unwrap(), app).await.unwrap();
            });
        });
        collector
    }

    /// All spans so far.
    pub fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    /// Those with a request's id, of which there must be one, and the spans below it by name.
    pub fn request(&self, id: &str) -> (Sent, BTreeMap<String, Vec<Span>>) {
        let all = self.sent();
        let of_it: Vec<&Sent> = all
            .iter()
            .filter(|s| attributes(&s.span.attributes).get("qrae.request_id") == Some(&json!(id)))
            .collect();
        assert_eq!(of_it.len(), 1, "{id}: {all:#?}");
        let request = of_it[0].clone();
        let mut below: BTreeMap<String, Vec<Span>> = BTreeMap::new();
        for Sent { span, .. } in all {
            if span.parent_span_id == request.span.span_id {
                assert_eq!(span.trace_id, request.span.trace_id);
                below.entry(span.name.clone()).or_default().push(span);
            }
        }
        (request, below)
    }
}

async fn take(State(collector): State<Collector>, headers: HeaderMap, body: Bytes) -> StatusCode {
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    for resource_spans in request.resource_spans {
        let resource = attributes(&resource_spans.resource.unwrap().attributes);
        let spans = resource_spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
        let sent = spans.map(|span| Sent { span, resource: resource.clone() });
        collector.sent.lock().unwrap().extend(sent);
    }
    StatusCode::OK
}

/// By name.
pub fn attributes(list: &[KeyValue]) -> Attributes {
    list.iter()
        .map(|a| (a.key.clone(), a.value.as_ref().map_or(Value::Null, |v| value(v.value.as_ref()))))
        .collect()
}

fn value(any: Option<&Any>) -> Value {
    match any {
        Some(Any::StringValue(text)) => json!(text),
        Some(Any::BoolValue(yes)) => json!(yes),
        Some(Any::IntValue(n)) => json!(n),
        Some(Any::DoubleValue(x)) => json!(x),
        Some(Any::ArrayValue(list)) => list.values.iter().map(|v| value(v.value.as_ref())).collect(),
        other => panic!("{other:?}"),
    }
}
