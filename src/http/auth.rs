//! Keys. Everything but `/health` and the page's files is closed to requests without one, whatever their path.

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::Response,
};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::{ApiError, AppState, page};

/// The keys, as digests: comparing those takes the same time whatever was sent.
pub(super) struct Keys(Vec<[u8; 32]>);

impl Keys {
    pub(super) fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| digest(key.as_bytes())).collect())
    }

    /// Whether the headers hold a key, as `Authorization: Bearer KEY` or bare. An empty key opens nothing.
    fn open(&self, headers: &HeaderMap) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let Some(sent) = headers.get(header::AUTHORIZATION) else { return false };
        let sent = sent.as_bytes().trim_ascii();
        let bearer = sent.split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
        let token = bearer.map_or(sent, |(_, token)| token.trim_ascii());
        let sent = digest(token);
        let found = self.0.iter().fold(Choice::from(0), |found, key| found | key.ct_eq(&sent));
        bool::from(found) && !token.is_empty()
    }
}

fn digest(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// The layer around every route and the fallback.
pub(super) async fn check(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let path = request.uri().path();
    if path == "/health" || page::at(path).is_some() || state.keys().open(request.headers()) {
        return Ok(next.run(request).await);
    }
    let message = if request.headers().contains_key(header::AUTHORIZATION) {
        "the key in the Authorization header is not one of this server's"
    } else {
        "this server wants a key: send it in the header Authorization, after the word Bearer"
    };
    Err(ApiError::new(StatusCode::UNAUTHORIZED, "authentication_error", message).with_code("invalid_api_key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opens(keys: &[&str], sent: Option<&str>) -> bool {
        let keys: Vec<String> = keys.iter().map(|k| (*k).into()).collect();
        let mut headers = HeaderMap::new();
        if let Some(sent) = sent {
            headers.insert(header::AUTHORIZATION, sent.parse().unwrap());
        }
        Keys::new(&keys).open(&headers)
    }

    #[test]
    fn only_the_exact_key_opens() {
        for sent in ["Bearer Key1", "Key1", "bearer Key1", "BEARER  Key1 ", "Bearer k2", "k2"] {
            assert!(opens(&["Key1", "k2"], Some(sent)), "{sent}");
        }
        for sent in [
            "Bearer key1",
            "Bearer Key",
            "Bearer Key11",
            "Basic Key1",
            "Bearer",
            "Bearer ",
            "",
            "K",
            "BearerKey1",
        ] {
            assert!(!opens(&["Key1", "k2"], Some(sent)), "{sent}");
        }
        assert!(!opens(&["Key1"], None));
        assert!(opens(&[], None) && opens(&[], Some("anything")));
        assert!(!opens(&[""], Some("Bearer ")) && !opens(&[""], Some("")));
    }
}
