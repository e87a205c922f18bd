//! Keys. Everything but `/health` and the page's files is closed to requests without one, whatever their path.

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::Response,
};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::kv::Salt;

use super::{ApiError, AppState, page};

/// The keys, as digests: comparing those takes the same time whatever was sent.
pub(super) struct Keys(Vec<[u8; 32]>);

impl Keys {
    pub(super) fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| digest(key.as_bytes())).collect())
    }

    /// Who calls, if the headers hold a key, as `Authorization: Bearer KEY` or bare; anybody where there are no keys. An
    /// empty key opens nothing.
    fn open(&self, headers: &HeaderMap) -> Option<Caller> {
        if self.0.is_empty() {
            return Some(Caller(None));
        }
        let sent = headers.get(header::AUTHORIZATION)?;
        let sent = sent.as_bytes().trim_ascii();
        let bearer = sent.split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
        let token = bearer.map_or(sent, |(_, token)| token.trim_ascii());
        let sent = digest(token);
        let found = self.0.iter().fold(Choice::from(0), |found, key| found | key.ct_eq(&sent));
        (bool::from(found) && !token.is_empty()).then_some(Caller(Some(sent)))
    }
}

/// Whose key a request carries, as its digest; nobody's where the server has no keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller(Option<[u8; 32]>);

impl Caller {
    /// The caller's own part of the prefix cache: what one key's requests left there is no news to another key's, not even
    /// by how long an answer takes.
    pub(super) fn salt(self, asked: &Salt) -> Salt {
        self.0.map_or_else(|| asked.clone(), |key| asked.of(&hex(&key)))
    }

    /// What the caller's contexts are stored under: nothing that a key could be told from, and empty without one.
    pub(super) fn owner(self) -> String {
        self.0.map_or_else(String::new, |key| hex(&digest(&key)))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// The layer around every route and the fallback.
pub(super) async fn check(
    State(state): State<AppState>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let path = request.uri().path();
    if path == "/health" || page::at(path).is_some() {
        return Ok(next.run(request).await);
    }
    if let Some(caller) = state.keys().open(request.headers()) {
        request.extensions_mut().insert(caller);
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
        Keys::new(&keys).open(&headers).is_some()
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

    #[test]
    fn each_key_has_its_own_part_of_the_cache() {
        let keys = Keys::new(&["a".into(), "b".into()]);
        let caller = |key: &str| {
            keys.open(&HeaderMap::from_iter([(header::AUTHORIZATION, key.parse().unwrap())])).unwrap()
        };
        let (a, b) = (caller("a"), caller("Bearer b"));
        let salts = [Salt::none(), Salt::new(""), Salt::new("x")];
        let of = |caller: Caller| salts.each_ref().map(|salt| caller.salt(salt));
        let all: std::collections::HashSet<Salt> =
            of(a).into_iter().chain(of(b)).chain(salts.clone()).collect();
        assert_eq!(all.len(), 9);
        assert_eq!(of(a), of(caller("Bearer a")));
        let anybody = Keys::new(&[]).open(&HeaderMap::new()).unwrap();
        assert_eq!(of(anybody), salts);
    }
}
