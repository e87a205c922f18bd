//! Callers that go away, on real sockets: their work stops and their KV is free.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use qrae::{
    http::{AppState, ServerOptions, serve},
    service::ServedModel,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::oneshot};

use crate::support::*;

async fn start(model: &ServedModel) -> (SocketAddr, oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let state = AppState::new(&ServerOptions::default());
    assert!(state.install(model.clone()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(async move { serve(listener, state, async { drop(stopped.await) }).await });
    (address, stop, server)
}

/// Blocks, which is fine: the server runs on other threads.
fn connect(address: SocketAddr, path: &str, body: &Value) -> TcpStream {
    let body = body.to_string();
    let mut socket = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes()).unwrap();
    socket
}

/// Starts `body`, cuts the connection once the engine works on it, and says how many tokens it took in all.
async fn cut(model: &ServedModel, path: &str, body: &Value, read_first: bool) -> u64 {
    let (address, stop, server) = start(model).await;
    let tokens =
        |model: &ServedModel| model.engine.stats().generated_tokens + model.engine.stats().prefill_tokens;
    let before = tokens(model);
    let mut socket = connect(address, path, body);
    if read_first {
        let mut seen = String::new();
        while seen.matches("data: ").count() < 3 {
            let mut buffer = [0; 512];
            let n = socket.read(&mut buffer).unwrap();
            assert!(n > 0, "{seen}");
            seen += &String::from_utf8_lossy(&buffer[..n]);
        }
    }
    soon("the engine starts", || tokens(model) > before).await;
    drop(socket);
    soon("the engine stops", || model.engine.stats().running + model.engine.stats().waiting == 0).await;
    assert_eq!(model.engine.stats().kv.in_use, 0);
    stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(5), server).await.expect("the server shuts down").unwrap();
    tokens(model) - before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_cancels_whatever_it_asked_for() {
    let model = load(false);
    let chat = chat("cut", &json!({"max_tokens": 450, "n": 16, "ignore_eos": true}));
    let all = 16 * 450;
    let streamed = cut(&model, CHAT, &merged(chat.clone(), &json!({"stream": true})), true).await;
    let whole = cut(&model, CHAT, &chat, false).await;
    assert!(streamed < all && whole < all, "{streamed} and {whole} of {all}");
    let queries: Vec<String> = (0..400).map(|i| format!("query number {i} about the long list")).collect();
    let score =
        json!({"queries": queries, "chunks": ["word ".repeat(60)], "heads": HEADS, "read": "query_mean"});
    let alone =
        post(&app(), "/tokenize", &json!({"prompt": queries[0]})).await.ok()["count"].as_u64().unwrap();
    let scored = cut(&model, SCORE, &score, false).await;
    assert!(scored < 400 * alone, "{scored} of more than {}", 400 * alone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_lets_running_answers_end() {
    let model = load(false);
    let (address, stop, server) = start(&model).await;
    let body = chat("end", &json!({"max_tokens": 200, "ignore_eos": true, "stream": true}));
    let mut socket = connect(address, CHAT, &body);
    let mut first = [0; 64];
    assert!(socket.read(&mut first).unwrap() > 0);
    stop.send(()).unwrap();
    let mut rest = String::new();
    socket.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"), "{rest}");
    server.await.unwrap();
    assert!(TcpStream::connect(address).is_err());
}
