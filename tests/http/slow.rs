//! Callers that take their time, on real sockets: a request must arrive; an answer may take as long as it does.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use qrae::http::{AppState, ServerOptions, serve};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

use crate::{log, support::*};

/// A server with these limits.
async fn start(options: &ServerOptions) -> (SocketAddr, oneshot::Sender<()>, JoinHandle<()>) {
    let state = AppState::new(options);
    assert!(state.install(model()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    (address, stop, tokio::spawn(serve(listener, state, async { drop(stopped.await) })))
}

/// A connection on which this is said; reading from it ends sometime, whatever the server does.
fn say(address: SocketAddr, text: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.write_all(text.as_bytes()).unwrap();
    socket
}

/// All that is answered until the server closes the connection, also where it closes it on something it did not read.
fn rest(socket: &mut TcpStream) -> String {
    let mut text = Vec::new();
    match socket.read_to_end(&mut text) {
        Err(e) if e.kind() != ErrorKind::ConnectionReset => panic!("{e}"),
        _ => String::from_utf8(text).unwrap(),
    }
}

fn head(id: &str, length: usize) -> String {
    format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nx-request-id: {id}\r\n\
         content-length: {length}\r\n\r\n"
    )
}

const QUICK: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_request_is_not_waited_for() {
    log::keep_log();
    let (address, stop, server) =
        start(&ServerOptions { read_timeout: QUICK, ..ServerOptions::default() }).await;
    let mut silent = say(address, "");
    let mut half_head = say(address, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n");
    let mut half_body = say(address, &(head("slow-body", 100) + "{\"messages\": "));
    assert_eq!(rest(&mut silent), "", "closed, with nothing to say");
    assert_eq!(rest(&mut half_head), "");
    let answer = rest(&mut half_body);
    let (top, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(top.starts_with("HTTP/1.1 408 ") && top.to_lowercase().contains("connection: close"), "{top}");
    let error = serde_json::from_str::<Value>(body).unwrap()["error"].take();
    assert_eq!((&error["type"], &error["code"]), (&json!("timeout_error"), &json!("request_timeout")));
    assert!(error["message"].as_str().unwrap().contains("0.3 s"), "{error}");
    let told = log::fields("slow-body");
    assert_eq!((&told["status"], &told["error"]), (&json!(408), &json!("request_timeout")));
    // drop by drop is no faster
    let mut dripping = say(address, &head("slow-drops", 100));
    dripping.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    while dripping.write_all(b" ").is_ok() && dripping.peek(&mut [0]).is_err() {}
    assert!(rest(&mut dripping).starts_with("HTTP/1.1 408 "));
    stop.send(()).unwrap();
    server.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_gets_its_whole_answer() {
    let (address, stop, server) =
        start(&ServerOptions { read_timeout: QUICK, ..ServerOptions::default() }).await;
    let body = chat("read slowly", &json!({"max_tokens": 300, "ignore_eos": true, "stream": true, "n": 4}));
    let body = body.to_string();
    let mut socket = say(address, &(head("slow-reader", body.len()) + &body));
    let mut first = [0; 64];
    socket.read_exact(&mut first).unwrap();
    tokio::time::sleep(3 * QUICK).await;
    let text = rest(&mut socket);
    assert!(text.contains("data: [DONE]") && text.matches("\"finish_reason\":\"length\"").count() == 4);
    stop.send(()).unwrap();
    server.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_waits_so_long_and_then_tells_what_it_cut() {
    log::keep_log();
    let options =
        ServerOptions { shutdown_timeout: Some(Duration::from_millis(20)), ..ServerOptions::default() };
    let (address, stop, server) = start(&options).await;
    let body =
        chat("cut at the end", &json!({"max_tokens": 450, "ignore_eos": true, "stream": true, "n": 16}));
    let body = body.to_string();
    let mut socket = say(address, &(head("slow-end", body.len()) + &body));
    socket.read_exact(&mut [0; 64]).unwrap();
    stop.send(()).unwrap();
    server.await.unwrap();
    let told = log::fields("slow-end");
    assert_eq!((&told["cancelled"], &told["status"]), (&json!(true), &json!(200)));
    assert!(told["completion_tokens"].as_u64().unwrap() < 16 * 450, "{told}");
}
