//! Shared by the tests that run the built program.
#![allow(unreachable_pub, clippy::unwrap_used)]

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

/// The program without the caller's settings, with empty caches in `home`.
pub fn qrae(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qrae"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("QRAE_")
            || name.starts_with("HF_")
            || name.starts_with("OTEL_")
            || name == "RUST_LOG"
        {
            command.env_remove(name);
        }
    }
    command.env("QRAE_MODELS", home.join("models")).env("HF_HOME", home.join("hf")).env("QRAE_OFFLINE", "1");
    command.stdin(Stdio::null());
    command
}

pub fn run(command: &mut Command, stdin: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // a program that fails before it reads closes the pipe
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    child.wait_with_output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {said}", output.status);
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Runs the command, which must fail with this code; what it wrote to stderr.
pub fn failure(command: &mut Command, stdin: &str, code: i32) -> String {
    let output = run(command, stdin);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(output.stdout.is_empty(), "a failure prints no result: {:?}", String::from_utf8(output.stdout));
    said
}

/// `tokenizer.json` of one token per byte (0 to 255), and two special ones.
pub fn byte_level_tokenizer() -> String {
    let mut alphabet: Vec<char> = ByteLevel::alphabet().into_iter().collect();
    alphabet.sort_unstable();
    let vocab: serde_json::Map<String, Value> =
        (0..).zip(alphabet).map(|(id, c)| (c.to_string(), json!(id))).collect();
    let byte_level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true});
    let special = |(id, text): (u32, &str)| {
        json!({"id": id, "content": text, "special": true, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false})
    };
    let added = [(256, "<|im_start|>"), (257, "<|im_end|>")].map(special);
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    });
    tokenizer.to_string()
}
