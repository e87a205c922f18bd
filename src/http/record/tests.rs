//! A handler that panics, behind the layers that all routes have.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::Request,
    routing::get,
};
use serde_json::Value;
use tower::ServiceExt;

use crate::http::{AppState, ServerOptions, around};

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn broken() {
    panic!("a caller's words");
}

#[tokio::test]
async fn a_panic_is_answered_and_told_with_the_requests_id() {
    let buffer = Buffer::default();
    let made = buffer.clone();
    let logs = tracing_subscriber::fmt().json().with_max_level(tracing::Level::DEBUG);
    let _logs = tracing::subscriber::set_default(logs.with_writer(move || made.clone()).finish());

    // the one route that answers without a model
    let app = around(Router::new().route("/health", get(broken)), AppState::new(&ServerOptions::default()));
    let request = Request::get("/health").header("x-request-id", "panic-1").body(Body::empty()).unwrap();
    let response = app.oneshot(request).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["x-request-id"]),
        (500, &"panic-1".parse().unwrap())
    );
    to_bytes(response.into_body(), usize::MAX).await.unwrap();

    let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
    assert!(!text.contains("words"), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let error = lines.iter().find(|line| line["level"] == "ERROR").unwrap();
    assert_eq!((&error["span"]["request_id"], &error["fields"]["status"]), (&"panic-1".into(), &500.into()));
    let told: Vec<&Value> = lines.iter().filter(|line| line["target"] == "qrae::request").collect();
    assert_eq!(told.len(), 1, "{text}");
    let fields = &told[0]["fields"];
    assert_eq!((&fields["request_id"], &fields["route"]), (&"panic-1".into(), &"/health".into()));
    assert_eq!((&fields["status"], &fields["error"]), (&500.into(), &"server_error".into()));
    assert_eq!((&fields["cancelled"], &fields["message"]), (&false.into(), &"answered".into()));
}
