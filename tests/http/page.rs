//! The page's files: what they go out as, to whom, and that nothing but they does.

use std::{collections::BTreeSet, fs, path::Path};

use axum::{Router, body::Body, http::Request};
use qrae::http::{AppState, ServerOptions, router};

use crate::support::*;

const LOCKED: &str = "a key that nobody sends";

/// A server that wants a key.
fn locked() -> Router {
    app_with(&ServerOptions { api_keys: vec![LOCKED.into()], ..ServerOptions::default() })
}

/// The paths of the page's files, from the folder they lie in.
fn paths() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("web");
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let names: BTreeSet<String> = fs::read_dir(folder).unwrap().map(|entry| name(entry.unwrap())).collect();
    assert!(names.contains("index.html") && names.contains("app.js"), "{names:?}");
    let pages = ["index.html", "docs.html"];
    let below =
        names.iter().filter(|name| !pages.contains(&name.as_str())).map(|name| format!("/web/{name}"));
    ["/".to_owned(), "/docs".to_owned(), "/web/example.json".to_owned()].into_iter().chain(below).collect()
}

fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, end)| end) {
        None => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some(other) => panic!("{path}: what type has .{other}?"),
    }
}

#[tokio::test]
async fn every_file_goes_out_without_a_key_as_what_it_is() {
    let app = locked();
    for path in paths() {
        let answer = get(&app, &path).await;
        assert_eq!(answer.status, 200, "{path} is not one of src/http/page.rs");
        let header = |name: &str| answer.headers[name].to_str().unwrap().to_owned();
        assert_eq!(header("content-type"), kind(&path), "{path}");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("cache-control"), "no-cache");
        assert_eq!(header("referrer-policy"), "no-referrer");
        let policy = header("content-security-policy");
        let rules: Vec<&str> = policy.split(';').map(str::trim).collect();
        for rule in ["default-src 'none'", "script-src 'self'", "connect-src 'self'", "base-uri 'none'"] {
            assert!(rules.contains(&rule), "{rule}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*') && !policy.contains("http"), "{policy}");
        assert!(!answer.text.contains(LOCKED) && !answer.text.contains(MODEL), "{path} holds data");
        // the example's addresses and the names of SVG's and the web's schemes are no requests
        if path.ends_with(".css") || !path.contains('.') {
            assert!(!answer.text.contains("//"), "{path} names something outside");
        }
        if path.ends_with(".js") {
            let banned =
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "srcdoc"];
            assert!(!banned.iter().any(|word| answer.text.contains(word)), "{path} makes HTML of texts");
        }
    }
}

#[tokio::test]
async fn nothing_but_the_files_is_exempt() {
    let app = locked();
    for path in [
        "/web",
        "/web/",
        "/web/index.html",
        "/web/none.js",
        "/web/app.js/",
        "/web/%61pp.js",
        "/web/APP.JS",
        "/web//app.js",
        "/web/../metrics",
        "/web/app.js/../../metrics",
        "//",
        "/index.html",
        "/v1/models",
        "/metrics",
        "/openapi.json",
        "/docs/",
        "/docs.html",
        "/web/docs.html",
    ] {
        assert_eq!(get(&app, path).await.status, 401, "{path}");
    }
    let open = app_with(&ServerOptions::default());
    for path in ["/web/none.js", "/web/index.html", "/web/%2e%2e/metrics"] {
        assert_eq!(get(&open, path).await.status, 404, "{path}");
    }
    let answer = post(&app, "/", &serde_json::json!({})).await;
    assert_eq!(answer.status, 405, "the page takes nothing");
}

#[tokio::test]
async fn the_page_is_there_before_the_model() {
    let app = router(AppState::new(&ServerOptions::default()));
    for path in ["/", "/web/app.js", "/web/page.css"] {
        assert_eq!(get(&app, path).await.status, 200, "{path}");
    }
    assert_eq!(get(&app, "/v1/models").await.status, 503);
    assert_eq!(get(&app, "/web/none.js").await.status, 503);
}

#[tokio::test]
async fn a_known_file_is_not_sent_again() {
    let app = app_with(&ServerOptions::default());
    let tag = get(&app, "/web/app.js").await.headers["etag"].to_str().unwrap().to_owned();
    let asked = async |known: &str| {
        let request = Request::get("/web/app.js").header("if-none-match", known);
        send(&app, request.body(Body::empty()).unwrap()).await
    };
    for known in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".into()] {
        let answer = asked(&known).await;
        assert_eq!((answer.status.as_u16(), answer.text.len()), (304, 0), "{known}");
        assert_eq!(answer.headers["etag"], tag.as_str());
        assert!(answer.headers.contains_key("content-security-policy"));
    }
    for other in ["\"x\"", "", "x"] {
        assert_eq!(asked(other).await.status, 200, "{other}");
    }
}
