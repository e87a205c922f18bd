//! The house rules that code can check: file sizes, import directions, where features and unsafe code may appear,
//! a purpose at the top of every file.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Most lines of a source file without its tests.
const MOST_LINES: usize = 500;

/// For each module: what of ours it may import, and which outside names it must not contain. Directions are
/// drawn in ARCHITECTURE.md.
const LAYERS: &[(&str, &[&str], &[&str])] = &[
    ("ids", &[], PURE),
    ("kv", &["ids"], PURE),
    ("score", &["ids", "prompt"], PURE),
    ("prompt", &["ids"], PURE),
    ("sched", &["ids", "kv"], PURE),
    ("gate", &["ids"], PURE),
    // its chunks are those of the prompt
    ("context", &["ids", "prompt"], PURE),
    // what it finds are a context's updates
    ("transcript", &["context", "prompt"], PURE),
    // draws are seeded by the caller, so they are plain arithmetic here
    ("eval", &["ids", "prompt", "score"], PURE_BUT_SEEDED),
    ("ops", &["ids"], &["tokio", "axum", "tokenizers", "hf_hub"]),
    // the card is plain data about a model, and the tokenizer's plain data lies in its weight file
    ("model", &["ids", "ops", "prompt", "score", "text"], &["tokio", "axum", "tokenizers::", "hf_hub"]),
    ("text", &["ids", "prompt"], &["candle", "tokio", "axum", "hf_hub"]),
    ("hub", &[], &["candle", "axum", "tokenizers"]),
    ("plot", &["ids"], &["candle", "tokio", "axum", "tokenizers", "hf_hub", "std::fs"]),
    (
        "engine",
        &["ids", "kv", "model", "ops", "sched", "score"],
        &["axum", "tokenizers", "hf_hub", "std::fs"],
    ),
    // the logs it stores are the contexts'
    ("store", &["context"], &["candle", "axum", "tokenizers", "hf_hub"]),
    (
        "service",
        &[
            "context",
            "engine",
            "eval",
            "hub",
            "ids",
            "kv",
            "model",
            "ops",
            "prompt",
            "sched",
            "score",
            "store",
            "text",
            "transcript",
        ],
        &["Tensor", "axum", "hf_hub", "sqlx"],
    ),
    (
        "study",
        // texts of files are made fit for messages there
        &["eval", "ids", "prompt", "score", "text"],
        &["candle", "tokio", "axum", "tokenizers", "hf_hub", "println!", "eprintln!"],
    ),
    (
        "cli",
        &[
            "context", "engine", "eval", "http", "hub", "ids", "kv", "model", "plot", "prompt", "score",
            "service", "store", "study", "text",
        ],
        &["candle", "axum", "tokenizers::", "hf_hub"],
    ),
    (
        "http",
        &[
            "context",
            "engine",
            "gate",
            "ids",
            "kv",
            "prompt",
            "score",
            "service",
            "store",
            "text",
            "transcript",
        ],
        &["candle", "tokenizers::", "hf_hub"],
    ),
];

/// What a pure module must not name: devices, clocks, files, threads' runtimes, randomness, the network.
const PURE: &[&str] = &[
    "candle",
    "tokio",
    "axum",
    "std::fs",
    "std::time",
    "std::net",
    "rand::",
    "rand_chacha",
    "tokenizers",
    "hf_hub",
    "async fn",
];

/// What a module must not name that is pure but for random draws from a seed it is given.
const PURE_BUT_SEEDED: &[&str] =
    &["candle", "tokio", "axum", "std::fs", "std::time", "std::net", "tokenizers", "hf_hub", "async fn"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// Every source file with its path from the root, and its text without the tests at its end.
fn sources() -> Vec<(String, String)> {
    let mut all = Vec::new();
    files(&root().join("src"), &mut all);
    assert!(all.len() > 50, "only {} source files found", all.len());
    let text = |path: &PathBuf| {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    all.iter()
        .map(text)
        .filter(|(name, _)| !is_test(name))
        .map(|(n, t)| (n, before_tests(&t).into()))
        .collect()
}

fn is_test(name: &str) -> bool {
    name.ends_with("tests.rs") || name.ends_with("twin.rs") || name.contains("/tests/")
}

fn before_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

/// Code without comments, so that a rule may be talked about.
fn code(text: &str) -> String {
    text.lines().map(|l| l.split("//").next().unwrap_or(l)).collect::<Vec<_>>().join("\n")
}

/// The entries inside `use crate::{ … };`, one per line as rustfmt leaves them, each ending after its module's name.
fn grouped(code: &str) -> impl Iterator<Item = &str> {
    let groups = code.split("use crate::{").skip(1).map(|rest| rest.split("};").next().unwrap_or(rest));
    groups.flat_map(|group| group.split([',', '\n', '{'])).map(|entry| entry.trim())
}

fn report(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn files_stay_small_and_say_what_they_are() {
    let mut problems = Vec::new();
    for (name, text) in sources() {
        let lines = text.lines().count();
        if lines > MOST_LINES {
            problems
                .push(format!("{name}: {lines} lines without tests, at most {MOST_LINES}: cut it in two"));
        }
        if !text.starts_with("//!") {
            problems.push(format!("{name}: does not start with //! and what it owns"));
        }
    }
    report(&problems);
}

#[test]
fn imports_go_downward_only() {
    let mut problems = Vec::new();
    for (module, allowed, forbidden) in LAYERS {
        let mut seen = 0;
        for (name, text) in sources() {
            let inside = name == format!("src/{module}.rs") || name.starts_with(&format!("src/{module}/"));
            if !inside {
                continue;
            }
            seen += 1;
            let code = code(&text);
            for (other, ..) in LAYERS.iter().filter(|(other, ..)| other != module && !allowed.contains(other))
            {
                let named = [format!("crate::{other}::"), format!("crate::{other};")];
                if named.iter().any(|n| code.contains(n))
                    || grouped(&code).any(|line| line.split("::").next() == Some(other))
                {
                    problems.push(format!("{name}: imports {other}, which is not below {module}"));
                }
            }
            for word in forbidden.iter().filter(|word| code.contains(**word)) {
                problems.push(format!("{name}: names {word}, which {module} must not know"));
            }
        }
        assert!(seen > 0, "no files of module {module}");
    }
    report(&problems);
}

#[test]
fn features_and_unsafe_code_stay_in_their_rooms() {
    let mut problems = Vec::new();
    for (name, text) in sources() {
        let code = code(&text);
        if code.contains("cfg(feature") && !name.starts_with("src/ops/") {
            problems.push(format!("{name}: cfg(feature) belongs under src/ops"));
        }
        if code.contains("unsafe") && !name.starts_with("src/ops/") {
            problems.push(format!("{name}: unsafe code belongs under src/ops"));
        }
        for word in ["todo!(", "unimplemented!(", "dbg!(", "#[ignore"] {
            if code.contains(word) {
                problems.push(format!("{name}: {word} left behind"));
            }
        }
    }
    report(&problems);
}

#[test]
fn the_map_names_every_room() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    assert!(map.lines().count() <= 250, "ARCHITECTURE.md has {} lines, at most 250", map.lines().count());
    let mut problems = Vec::new();
    for entry in fs::read_dir(root().join("src")).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        if !map.contains(&format!("`{}`", name.trim_end_matches(".rs")))
            && !map.contains(&format!("src/{name}"))
        {
            problems.push(format!("ARCHITECTURE.md does not mention src/{name}"));
        }
    }
    report(&problems);
}
