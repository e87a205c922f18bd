//! The `qrae` command as a user meets it: the built program, its output and its exit codes.
#![allow(clippy::unwrap_used)] // a helper that fails fails its test

#[path = "common/collector.rs"]
mod collector;
#[path = "common/program.rs"]
mod program;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use collector::Collector;
use program::{byte_level_tokenizer, failure, qrae, run, stdout};
use serde_json::{Value, json};

/// A model folder: a tiny golden model (320 tokens) and a tokenizer of one token per byte.
fn tiny_model(home: &Path) -> PathBuf {
    let folder = home.join("tiny");
    fs::create_dir(&folder).unwrap();
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/qwen3");
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden.join(file), folder.join(file)).unwrap();
    }
    fs::write(folder.join("tokenizer.json"), byte_level_tokenizer()).unwrap();
    folder
}

/// `qrae score` with the tiny model.
fn score(home: &Path, more: &[&str]) -> Command {
    let model = home.join("tiny").to_string_lossy().into_owned();
    let mut command = qrae(home);
    command.args(["score", "--model", &model, "--heads", "L1H0,L0H5", "--threads", "1"]).args(more);
    command
}

const REQUEST: &str = r#"{"query": "Who?", "chunks": [
    {"id": "a", "title": "T", "text": "She was born in Venlach."}, "The herring feast is in June.", ""]}"#;

#[test]
fn every_command_explains_itself() {
    let home = tempfile::tempdir().unwrap();
    let top = stdout(&run(qrae(home.path()).arg("--help"), ""));
    for name in ["demo", "score", "serve", "models", "Examples:", "RUST_LOG"] {
        assert!(top.contains(name), "{name} is missing in\n{top}");
    }
    for (command, says) in [
        (&["demo"][..], &["--model", "Fetches the model"][..]),
        (
            &["score"],
            &["--query", "--heads", "--explain", "--json", "Examples:", "QRAE_HEADS", "--kv-tokens"],
        ),
        (
            &["serve"],
            &[
                "--host",
                "--port",
                "--api-key",
                "--max-model-len",
                "--served-model-name",
                "--otlp-endpoint",
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                "--read-timeout",
                "QRAE_PORT",
            ],
        ),
        (&["models"], &["list", "pull"]),
        (&["models", "pull"], &["OWNER/NAME", "Examples:"]),
        (&["models", "list"], &["Usage: qrae models list"]),
    ] {
        let help = stdout(&run(qrae(home.path()).args(command).arg("--help"), ""));
        for word in says {
            assert!(help.contains(word), "{word} is missing in the help of {command:?}:\n{help}");
        }
    }
    let version = stdout(&run(qrae(home.path()).arg("--version"), ""));
    assert!(version.starts_with("qrae "), "{version}");
}

#[test]
fn usage_errors_end_with_2_and_name_the_flag() {
    let home = tempfile::tempdir().unwrap();
    for (args, says) in [
        (&[][..], "Usage: qrae"),
        (&["scroe"], "score"),
        (&["score", "--heads", "16"], "L16H7"),
        (&["score", "--statistic", "median"], "entropy, sum, breadth, scaled_sum"),
        (&["score", "--heads", "L0H0", "--head-set", "x"], "--head-set"),
        (
            &["score", "--rope-scaling", "{\"type\":\"yarn\",\"factor\":4}"],
            "original_max_position_embeddings",
        ),
        (&["score", "--threads", "0"], "--threads"),
        (&["serve", "--read-timeout", "0"], "--read-timeout"),
        (&["models", "pull"], "<NAME>"),
    ] {
        let said = failure(qrae(home.path()).args(args), "", 2);
        assert!(said.contains(says), "{args:?}: {said}");
    }
}

#[test]
fn failures_end_with_1_and_say_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let known = |args: &[&str], stdin| failure(qrae(home.path()).args(args), stdin, 1);
    let said = known(&["score", "--model", "no-such-card"], REQUEST);
    assert!(said.starts_with("error: no model card is called \"no-such-card\""), "{said}");
    assert!(said.contains("hint: `qrae models list`"), "{said}");

    let said = known(&["score", "absent.json"], "");
    assert!(said.starts_with("error: absent.json cannot be read\n  because: "), "{said}");

    let said = known(&["score"], "{\"query\": \"q\", \"chunks\": []}\n{\"query\": \"q\"}\n");
    assert!(said.starts_with("error: stdin, line 2: it has neither chunks"), "{said}");
    assert!(said.contains("hint: `qrae score --help`"), "{said}");

    for args in [&["score"][..], &["demo"], &["models", "pull", "smollm2-135m-instruct"]] {
        let output = run(qrae(home.path()).args(args), REQUEST);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("is in no local cache and downloads are off"), "{args:?}: {said}");
    }
}

#[test]
fn a_file_is_scored_in_every_form() {
    let home = tempfile::tempdir().unwrap();
    tiny_model(home.path());
    let file = home.path().join("request.json").to_string_lossy().into_owned();
    fs::write(&file, REQUEST).unwrap();
    let line = stdout(&run(&mut score(home.path(), &["--json", &file]), ""));
    let answer: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&answer["model"], &answer["head_set"]), (&json!("tiny"), &json!("custom:L0H5+L1H0")));
    assert_eq!(answer["heads"], json!(["L0H5", "L1H0"]));
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    assert_eq!((&results[0]["index"], &results[0]["id"]), (&json!(0), &json!("a")));
    assert_eq!(results[0]["tokens"], json!("T: She was born in Venlach.".len()));
    assert_eq!((&results[2]["score"], &results[2]["flags"]["empty"]), (&json!(0.0), &json!(true)));
    let mut ranks: Vec<u64> = results.iter().map(|r| r["rank"].as_u64().unwrap()).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, [1, 2, 3]);
    let heads = results[0]["heads"].as_array().unwrap();
    let mean = heads.iter().map(|h| h["score"].as_f64().unwrap()).sum::<f64>() / 2.0;
    assert!((results[0]["score"].as_f64().unwrap() - mean).abs() < 1e-12 && mean > 0.0, "{line}");

    // The same chunks as chunks for a query, from stdin, give the same results.
    let chunks = "{\"id\": \"a\", \"title\": \"T\", \"text\": \"She was born in Venlach.\"}\n\"The herring feast is in June.\"\n\"\"\n";
    let again = stdout(&run(&mut score(home.path(), &["--json", "--query", "Who?", "-"]), chunks));
    assert_eq!(serde_json::from_str::<Value>(&again).unwrap()["results"], answer["results"]);

    // Two requests are two lines; several queries are several lists.
    let both = "{\"queries\": [\"Who?\", \"When?\"], \"chunks\": [\"x y\"]}\n{\"query\": \"Who?\", \"chunks\": []}\n";
    let lines = stdout(&run(&mut score(home.path(), &["--json"]), both));
    let answers: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!((answers.len(), answers[0]["queries"].as_array().unwrap().len()), (2, 2));
    assert_eq!(answers[1]["results"], json!([]));
}

#[test]
fn flags_change_how_is_scored_and_what_is_shown() {
    let home = tempfile::tempdir().unwrap();
    tiny_model(home.path());
    let more = [
        "--json",
        "--statistic",
        "sum",
        "--control",
        "none",
        "--read",
        "query_mean",
        "--max-tokens-per-chunk",
        "4",
        "--explain",
    ];
    let answer: Value = serde_json::from_str(&stdout(&run(&mut score(home.path(), &more), REQUEST))).unwrap();
    assert_eq!(answer["method"], json!({"statistic": "sum", "control": "none", "read": "query_mean"}));
    let first = &answer["results"][0];
    assert_eq!((&first["tokens_scored"], &first["flags"]["truncated"]), (&json!(4), &json!(true)));
    let explained = first["explain"].as_array().unwrap();
    assert_eq!(explained.len(), 4);
    assert_eq!((&explained[3]["start"], &explained[3]["end"]), (&json!(0), &json!(1)), "T, colon, space, S");
    // Without control, the restricted rows sum to one over all chunks.
    let sum: f64 = answer["results"].as_array().unwrap().iter().map(|r| r["score"].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-6, "{sum}");

    let table = stdout(&run(&mut score(home.path(), &["--explain"]), REQUEST));
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows[0], "Who?");
    assert!(rows[1].contains("rank") && rows[1].contains("score"), "{table}");
    for row in [
        "T: She was born in Venlach.",
        "The herring feast is in June.",
        "(empty)",
        "Words that respond",
        "custom:L0H5+L1H0",
    ] {
        assert!(table.contains(row), "{row:?} is missing in\n{table}");
    }
    assert!(!table.contains('\x1b'), "no colours in a pipe");
    let scores: Vec<f64> =
        rows[2..5].iter().map(|r| r.split_whitespace().nth(1).unwrap().parse().unwrap()).collect();
    assert!(scores.is_sorted_by(|a, b| a >= b), "best first: {scores:?}");

    let said = failure(&mut score(home.path(), &["--max-model-len", "64"]), REQUEST, 1);
    assert!(said.contains("the limit is 64") && said.contains("--max-tokens-per-chunk"), "{said}");
}

#[test]
fn a_model_without_a_head_set_asks_for_heads() {
    let home = tempfile::tempdir().unwrap();
    let model = tiny_model(home.path()).to_string_lossy().into_owned();
    let said = failure(qrae(home.path()).args(["score", "--model", &model]), REQUEST, 1);
    assert!(said.contains("hint: `qrae localize` finds heads"), "{said}");
    assert!(said.contains("no default head set") && !said.contains("\"default\""), "{said}");
    let command = ["serve", "--port", "0", "--model", &model, "--head-set", "nobody"];
    let said = failure(qrae(home.path()).args(command), "", 1);
    assert!(said.contains("head_set: \"nobody\" does not exist"), "{said}");
    let said = failure(qrae(home.path()).args(["score", "--model", &model, "--heads", "L9H0"]), REQUEST, 1);
    assert!(said.contains("L9H0 does not exist"), "{said}");
}

/// Sends one request and closes; status and body.
fn http(address: &str, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(stream, "{head} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer key\r\nX-Request-Id: from-outside\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let status = response.split(' ').nth(1).unwrap().parse().unwrap();
    (status, response.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[cfg(unix)]
#[test]
fn serve_answers_as_score_prints_and_ends_on_a_signal() {
    let home = tempfile::tempdir().unwrap();
    let model = tiny_model(home.path()).to_string_lossy().into_owned();
    let mut server = qrae(home.path())
        .args(["serve", "--model", &model, "--port", "0", "--api-key", "other,key", "--threads", "1"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = BufReader::new(server.stderr.take().unwrap());
    let mut log = log.lines().map(|line| line.unwrap());
    let mut wait_for =
        |text: &str| log.find(|line| line.contains(text)).unwrap_or_else(|| panic!("no {text:?} in the log"));
    let line = wait_for("listening on http://");
    let address = line.split("http://").nth(1).unwrap().split(';').next().unwrap().to_owned();
    wait_for("serving tiny");
    // what is logged is a moment before what is served
    let ready = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        http(&address, "GET /health", "").0 == 200
    });
    assert!(ready, "never healthy");

    let mut body: Value = serde_json::from_str(REQUEST).unwrap();
    body["heads"] = json!(["L1H0", "L0H5"]);
    body["explain"] = json!(true);
    let (status, answer) = http(&address, "POST /v1/qrae/score", &body.to_string());
    assert_eq!(status, 200, "{answer}");
    let served: Value = serde_json::from_str(&answer).unwrap();
    let printed = stdout(&run(&mut score(home.path(), &["--json", "--explain"]), REQUEST));
    let printed: Value = serde_json::from_str(&printed).unwrap();
    for (key, value) in printed.as_object().unwrap() {
        if key != "timings" {
            assert_eq!(&served[key], value, "{key}: the command prints what the server answers");
        }
    }
    let names = |v: &Value| v["timings"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&printed), names(&served));

    let pid = server.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    wait_for("finishing the requests in progress");
    assert!(server.wait().unwrap().success());
}

#[cfg(unix)]
#[test]
fn serve_tells_every_request_in_its_log_and_sends_its_last_traces() {
    let home = tempfile::tempdir().unwrap();
    let model = tiny_model(home.path()).to_string_lossy().into_owned();
    let collector = Collector::start();
    let mut server = qrae(home.path())
        .args(["serve", "--model", &model, "--port", "0", "--threads", "1", "--log-format", "json"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)
        .env("OTEL_SERVICE_NAME", "scores")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(server.stderr.take().unwrap()).lines().map(|line| {
        let line = line.unwrap();
        serde_json::from_str::<Value>(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    });
    let message = |line: &Value| line["fields"]["message"].as_str().unwrap_or_default().to_owned();
    let listening =
        log.by_ref().map(|line| message(&line)).find(|m| m.contains("listening on http://")).unwrap();
    let address = listening.split("http://").nth(1).unwrap().split(';').next().unwrap().to_owned();
    log.by_ref().find(|line| message(line).contains("serving tiny")).unwrap();
    let ready = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        http(&address, "GET /health", "").0 == 200
    });
    assert!(ready, "never healthy");
    let mut body: Value = serde_json::from_str(REQUEST).unwrap();
    body["heads"] = json!(["L1H0"]);
    assert_eq!(http(&address, "POST /v1/qrae/score", &body.to_string()).0, 200);
    let pid = server.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let rest: Vec<Value> = log.collect();
    assert!(server.wait().unwrap().success());

    let told: Vec<&Value> = rest.iter().filter(|line| line["target"] == "qrae::request").collect();
    assert_eq!(told.len(), 1, "the score, and no probe: {rest:#?}");
    let fields = &told[0]["fields"];
    assert_eq!((&fields["request_id"], &fields["status"]), (&json!("from-outside"), &json!(200)));
    assert_eq!((&fields["chunks"], &fields["model"]), (&json!(3), &json!("tiny")));
    // the process has ended, and what it had to send has arrived
    let (sent, below) = collector.request("from-outside");
    assert_eq!(sent.resource["service.name"], "scores");
    assert_eq!(below.keys().collect::<Vec<_>>(), ["prefill", "queue"]);
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let home = tempfile::tempdir().unwrap();
    let said = |args: &[&str]| failure(qrae(home.path()).arg("serve").args(args), "", 1);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    assert!(said(&["--port", &port]).contains("error: cannot listen on 127.0.0.1:"));
    assert!(said(&["--port", "0"]).contains("is in no local cache"));
    assert!(said(&["--api-key-file", "absent"]).contains("the key file absent cannot be read"));
    let empty = home.path().join("keys").to_string_lossy().into_owned();
    fs::write(&empty, "\n").unwrap();
    assert!(said(&["--api-key-file", &empty]).contains("holds no key"));
    assert!(said(&["--api-key", ""]).contains("no lock"));
    let collector = said(&["--otlp-endpoint", "localhost:4318"]);
    assert!(collector.contains("--otlp-endpoint cannot be used") && collector.contains("http://HOST:PORT"));
}

#[test]
fn models_are_listed_without_any_and_with_some() {
    let home = tempfile::tempdir().unwrap();
    let empty = stdout(&run(qrae(home.path()).args(["models", "list"]), ""));
    let row =
        |list: &str, id: &str| list.lines().find(|l| l.trim_start().starts_with(id)).unwrap().to_owned();
    assert!(row(&empty, "qwen2.5-coder-0.5b-instruct").contains(" no "), "{empty}");
    assert!(row(&empty, "qwen2.5-coder-0.5b-instruct").contains("L16H0 L16H7 L9H13"), "{empty}");
    assert!(empty.contains("No other models in"), "{empty}");
    assert!(!home.path().join("models").exists(), "looking must not create anything");

    fs::create_dir(home.path().join("models")).unwrap();
    for (name, bytes) in [("smollm2-135m-instruct-q4_1.gguf", 2048), ("mine.gguf", 10)] {
        fs::write(home.path().join("models").join(name), vec![b'G'; bytes]).unwrap();
    }
    let some = stdout(&run(qrae(home.path()).args(["models", "list"]), ""));
    let smollm = row(&some, "smollm2-135m-instruct");
    assert!(
        smollm.contains("2.00 KiB") && smollm.contains(" yes ") && smollm.contains("L17H3 L18H7"),
        "{some}"
    );
    assert!(row(&some, "mine.gguf").contains("10 B"), "{some}");
    assert!(!some.contains("q4_1.gguf"), "a card's file is listed once: {some}");
}

/// The folder of real models, when the demo's is there.
fn real_models() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/qrae/models"));
    let folder = std::env::var_os("QRAE_MODELS").map(PathBuf::from).or_else(home)?;
    let file = folder.join("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
    if !file.is_file() {
        eprintln!(
            "SKIPPED: the demo needs {}; `qrae models pull qwen2.5-coder-0.5b-instruct`",
            file.display()
        );
        return None;
    }
    Some(folder)
}

#[test]
fn the_demo_ranks_and_answers_on_the_real_model() {
    let Some(models) = real_models() else { return };
    let home = tempfile::tempdir().unwrap();
    let shown = stdout(&run(qrae(home.path()).env("QRAE_MODELS", models).arg("demo"), ""));
    let kept = |title: &str| {
        let row = shown.lines().find(|l| l.contains('▇') && l.contains(title));
        row.unwrap_or_else(|| panic!("{title} is not ranked in\n{shown}")).contains('✓')
    };
    // Together these two give the answer; the third relevant result repeats the first.
    assert!(kept("● Halvorn lighthouse") && kept("● Mirela Tosk"), "{shown}");
    assert_eq!(shown.lines().filter(|l| l.contains('✓') && l.contains('▇')).count(), 5, "{shown}");
    let answer = |heading: &str| {
        let mut lines = shown.lines().skip_while(|l| !l.starts_with(heading));
        lines.nth(1).unwrap_or_else(|| panic!("{heading} is missing in\n{shown}")).to_owned()
    };
    assert!(answer("Answer from all 9 results").len() > 10, "{shown}");
    assert!(answer("Answer from the 5 kept results").contains("Venlach"), "{shown}");
    assert!(shown.contains("In short") && shown.contains("qrae serve"), "{shown}");
    let long: Vec<&str> = shown.lines().filter(|l| l.chars().count() > 80).collect();
    assert!(long.is_empty(), "wider than 80 columns: {long:#?}");
}
