//! How long a request may take: as long as the server allows, or less where the caller asks for it in `X-Request-Timeout`
//! (seconds). When the time is up the work is dropped, and what it held is free at the engine's next step.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::Response,
};
use futures::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};

use super::{ApiError, AppState, record::Record};

/// The layer. An answer that has not begun becomes a 504; a stream that has begun ends with an error event.
pub(super) async fn keep(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let asked = asked(request.headers())?;
    let Some(limit) = asked.into_iter().chain(state.request_timeout()).min() else {
        return Ok(next.run(request).await);
    };
    let end = Instant::now() + limit;
    let record = request.extensions().get::<Record>().cloned().unwrap_or_default();
    let response = timeout_at(end, next.run(request)).await.map_err(|_| late(limit))?;
    let events = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
    Ok(if events { response.map(|body| until(end, limit, body, record)) } else { response })
}

/// Less than this many seconds is no time, more is no limit anybody would wait for.
const LEAST: f64 = 1e-3;
const MOST: f64 = 1e6;

fn asked(headers: &HeaderMap) -> Result<Option<Duration>, ApiError> {
    let mut sent = headers.get_all("x-request-timeout").iter();
    let Some(first) = sent.next() else { return Ok(None) };
    if sent.next().is_some() {
        return Err(ApiError::invalid("X-Request-Timeout", "is there twice"));
    }
    let seconds = first.to_str().ok().and_then(|text| text.trim().parse::<f64>().ok());
    match seconds.filter(|seconds| *seconds >= LEAST) {
        Some(seconds) => Ok(Some(Duration::from_secs_f64(seconds.min(MOST)))),
        None => {
            let reason = format!("must be a number of seconds, at least {LEAST}");
            Err(ApiError::invalid("X-Request-Timeout", &reason))
        }
    }
}

fn late(limit: Duration) -> ApiError {
    let message = format!("the request was not done after {} s and was dropped", limit.as_secs_f64());
    ApiError::new(StatusCode::GATEWAY_TIMEOUT, "timeout_error", message).with_code("deadline_exceeded")
}

/// The stream's pieces until its time is up, and then one event that says so.
fn until(end: Instant, limit: Duration, body: Body, record: Record) -> Body {
    let pieces = stream::unfold(Some((body.into_data_stream(), record)), move |left| async move {
        let (mut pieces, record) = left?;
        match timeout_at(end, pieces.next()).await {
            Ok(piece) => piece.map(|piece| (piece, Some((pieces, record)))),
            Err(_) => {
                record.failed(&late(limit));
                let event = format!("data: {}\n\n", late(limit).body());
                Some((Ok(Bytes::from(event)), None))
            }
        }
    });
    Body::from_stream(pieces)
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;

    #[test]
    fn seconds_are_read_and_nonsense_is_refused() {
        let of = |text: &str| {
            asked(&HeaderMap::from_iter([("x-request-timeout".parse().unwrap(), text.parse().unwrap())]))
        };
        assert_eq!(of("2.5").unwrap(), Some(Duration::from_millis(2500)));
        assert_eq!(of("1e300").unwrap(), Some(Duration::from_secs(1_000_000)));
        assert_eq!(asked(&HeaderMap::new()).unwrap(), None);
        for text in ["0", "-1", "soon", "NaN", ""] {
            assert_eq!(of(text).unwrap_err().body()["error"]["param"], "X-Request-Timeout", "{text}");
        }
        assert_eq!(late(Duration::from_millis(1500)).into_response().status(), 504);
    }
}
