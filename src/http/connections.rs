//! Connections: taken in, answered, and let go. One that does not send its request in time is closed, so that nobody holds
//! a place by saying nothing; how long answers take is not bounded here. Tests: `tests/http/cancel.rs`, `tests/http/slow.rs`.

use std::{pin::pin, time::Duration};

use axum::{Router, serve::Listener};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use super::{AppState, router};

/// Serves until `shutdown` resolves and the requests in flight are answered, or have had as long as the options give them;
/// then the rest is cut off. The model may be installed later. Dropping the future cuts all off at once.
pub async fn serve(mut listener: TcpListener, state: AppState, shutdown: impl Future<Output = ()> + Send) {
    let app = router(state.clone());
    let (stop, stopped) = watch::channel(false);
    let mut open = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            (stream, _) = Listener::accept(&mut listener) => {
                open.spawn(converse(stream, app.clone(), state.read_timeout(), stopped.clone()));
            }
            Some(_) = open.join_next() => {}
            () = &mut shutdown => break,
        }
    }
    drop(listener);
    stop.send_replace(true);
    let all = async { while open.join_next().await.is_some() {} };
    let in_time = match state.shutdown_timeout() {
        Some(limit) => tokio::time::timeout(limit, all).await.is_ok(),
        None => {
            all.await;
            true
        }
    };
    if !in_time {
        tracing::warn!("{} connections were not done in time and are cut off", open.len());
        open.shutdown().await;
    }
}

/// Answers one connection's requests, the one in progress also when the server stops.
async fn converse(stream: TcpStream, app: Router, patience: Duration, mut stopped: watch::Receiver<bool>) {
    // tokens go out as they come; where that cannot be had, they are late
    let _ = stream.set_nodelay(true);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app)));
    // a sender that is gone means the same
    let stop = async { drop(stopped.wait_for(|stopped| *stopped).await) };
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stop => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}
