//! What the engine does with a real model: prefill and decode rates, what capture costs, what early exit and the prefix
//! cache save. Prints a table; times nothing that a test depends on. Beside other programs: `peers/run`.
//!
//! `cargo bench --bench serve [-- MODEL.gguf]`; the default is the cached Qwen2.5-Coder-0.5B.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use common::{Control, Options, SHORT, decode, prefill, score, tokens};
use qrae::{
    engine::{EngineHandle, RowsRequest},
    ids::HeadRef,
};

const REPEATS: usize = 3;

fn start(file: &Path, prefix_cache: bool, early_exit: bool) -> EngineHandle {
    let threads = std::thread::available_parallelism().unwrap().get();
    common::start(file, &Options { threads, kv_tokens: 16_384, prefix_cache, early_exit })
}

/// Five chunks of 512 tokens, the heads of the 0.5B model's provisional set.
fn scored(seed: u64, tail: u64, control: Control) -> RowsRequest {
    let heads: Vec<HeadRef> = ["L13H13", "L16H7"].map(|h| h.parse().unwrap()).into();
    common::scored(5, 512, seed, tail, control, &heads)
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Median seconds of `REPEATS` runs.
fn median<T>(mut run: impl FnMut(u64) -> T) -> f64 {
    let time = |i| {
        let begin = Instant::now();
        run(i);
        begin.elapsed().as_secs_f64()
    };
    middle((0..REPEATS as u64).map(time).collect())
}

fn row(what: &str, seconds: f64, note: &str) {
    println!("{what:<46} {seconds:>8.3} s   {note}");
}

fn rate(n: usize, seconds: f64) -> String {
    format!("{:.1} tokens/s", n as f64 / seconds)
}

fn generation(engine: &EngineHandle) {
    for n in [1024, 4096] {
        let s = median(|i| prefill(engine, tokens(n, i)));
        row(&format!("prefill {n}"), s, &rate(n, s));
    }
    for batch in [1, 8] {
        let times = (0..REPEATS).map(|_| decode(engine, batch, SHORT, 32, 50)).map(|(s, n)| s / n as f64);
        let s = middle(times.collect()) * (32 * batch) as f64;
        row(&format!("decode, batch {batch}, 32 tokens each"), s, &rate(32 * batch, s));
    }
}

fn capture(engine: &EngineHandle, file: &Path) {
    let whole = start(file, false, false);
    let run = |engine, i| score(engine, scored(70 + i, 1, Control::QueryFree));
    let n = run(&whole, 0);
    let plain = median(|i| prefill(&whole, tokens(n, 70 + i)));
    row(&format!("plain prefill of {n}"), plain, &rate(n, plain));
    let captured = median(|i| run(&whole, i));
    row(
        "… with capture, every layer",
        captured,
        &format!("{:+.1} % over plain", 100.0 * (captured / plain - 1.0)),
    );
    let early = median(|i| run(engine, i));
    row("… with capture and early exit (layer 16 of 24)", early, &format!("{:.2} x plain", early / plain));
}

fn scoring(file: &Path) {
    let cached = start(file, true, true);
    let run = |seed, tail| score(&cached, scored(seed, tail, Control::NullQuery));
    let mut n = 0;
    let cold = median(|i| n = run(200 + i, 1));
    row("scored batch 5 x 512, null query, cold", cold, &rate(n, cold));
    let warm = median(|i| run(200, 300 + i));
    row("second query over the same chunks", warm, &format!("{:.1} % of cold", 100.0 * warm / cold));
}

fn main() {
    let argument = std::env::args().skip(1).find(|a| !a.starts_with('-')).map(PathBuf::from);
    let file = argument
        .or_else(|| Some(dirs::cache_dir()?.join("qrae/models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")));
    let Some(file) = file.filter(|f| f.is_file()) else {
        return eprintln!(
            "SKIPPED: no model file; name one, or `qrae models pull qwen2.5-coder-0.5b-instruct`"
        );
    };
    let load = Instant::now();
    let engine = start(&file, false, true);
    println!("{}: loaded in {:.2} s; {}", file.display(), load.elapsed().as_secs_f64(), common::COMPUTES);
    generation(&engine);
    capture(&engine, &file);
    drop(engine);
    scoring(&file);
}
