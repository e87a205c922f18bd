//! What the engine does with a real model: prefill and decode rates, what capture costs, what early exit and the prefix
//! cache save. Prints a table; times nothing that a test depends on.
//!
//! `cargo bench --bench serve [-- MODEL.gguf]`; the default is the cached Qwen2.5-Coder-0.5B.
#![allow(clippy::unwrap_used)]

use std::{path::PathBuf, time::Instant};

use qrae::{
    engine::{EngineConfig, EngineHandle, GenerateRequest, RowsRequest, Sampling, Tail},
    ids::{HeadRef, Span, TokenId},
    kv::Salt,
    model::{Compute, gguf::GgufFile, load},
    sched::SchedConfig,
};

const REPEATS: usize = 3;

fn tokens(n: usize, seed: u32) -> Vec<TokenId> {
    (0..n as u32).map(|i| 1000 + (i * 7919 + seed * 104_729) % 40_000).collect()
}

fn start(file: &PathBuf, prefix_cache: bool, early_exit: bool) -> EngineHandle {
    let decoder = load::gguf(&GgufFile::open(file).unwrap(), None, Compute::default()).unwrap();
    let threads = std::thread::available_parallelism().unwrap().get();
    let sched = SchedConfig {
        max_batched_tokens: 1024,
        prefill_chunk: 512,
        prefill_beside_decode: 64,
        max_sequences: 16,
    };
    let config = EngineConfig { kv_blocks: 512, sched, threads, prefix_cache, early_exit };
    EngineHandle::start(decoder, &config).unwrap()
}

/// Median seconds of `REPEATS` runs.
fn median(mut run: impl FnMut(u32)) -> f64 {
    let mut seconds: Vec<f64> = (0..REPEATS as u32)
        .map(|i| {
            let begin = Instant::now();
            run(i);
            begin.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[REPEATS / 2]
}

fn generate(engine: &EngineHandle, prompts: &[Vec<TokenId>], max_new: usize) {
    let request = |prompt: &Vec<TokenId>| GenerateRequest {
        prompt: prompt.clone(),
        sampling: Sampling::default(),
        max_new,
        stop_tokens: vec![],
        logprobs: None,
        n: 1,
        salt: Salt::none(),
    };
    let mut streams: Vec<_> = prompts.iter().flat_map(|p| engine.generate(request(p))).collect();
    for stream in &mut streams {
        while stream.blocking_recv().transpose().unwrap().is_some() {}
    }
}

/// Five chunks of 512 tokens, the heads of the 0.5B model's provisional set, read over a tail of 25 tokens.
fn scored(seed: u32, tail: u32, control: bool, null: bool) -> RowsRequest {
    let heads: Vec<HeadRef> = ["L13H13", "L16H7"].map(|h| h.parse().unwrap()).into();
    let read = |seed| Tail { tokens: tokens(25, seed), reads: 25 };
    let tails = if null { vec![read(tail), read(9999)] } else { vec![read(tail)] };
    let candidates = (0..5).map(|i| Span::new(40 + i * 516, 40 + i * 516 + 512)).collect();
    RowsRequest { prefix: tokens(40 + 5 * 516, seed), tails, control, heads, candidates, salt: Salt::none() }
}

fn rows(engine: &EngineHandle, request: RowsRequest) {
    engine.rows(request).blocking_recv().unwrap().unwrap();
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
    println!("{}: loaded in {:.2} s", file.display(), load.elapsed().as_secs_f64());
    let row = |what: &str, seconds: f64, note: String| println!("{what:<46} {seconds:>8.3} s   {note}");
    let rate = |n: usize, s: f64| format!("{:.1} tokens/s", n as f64 / s);
    for n in [1024, 4096] {
        let s = median(|i| generate(&engine, &[tokens(n, i)], 1));
        row(&format!("prefill {n}"), s, rate(n, s));
    }
    for batch in [1usize, 8] {
        let prompts: Vec<_> = (0..batch as u32).map(|i| tokens(32, 50 + i)).collect();
        let (short, long) =
            (median(|_| generate(&engine, &prompts, 2)), median(|_| generate(&engine, &prompts, 34)));
        row(&format!("decode, batch {batch}, 32 tokens each"), long - short, rate(32 * batch, long - short));
    }
    let whole = start(&file, false, false);
    let n = 40 + 5 * 516 + 25;
    let plain = median(|i| generate(&whole, &[tokens(n, 70 + i)], 1));
    row(&format!("plain prefill of {n}"), plain, rate(n, plain));
    let captured = median(|i| rows(&whole, scored(70 + i, 1, true, false)));
    row(
        "… with capture, every layer",
        captured,
        format!("{:+.1} % over plain", 100.0 * (captured / plain - 1.0)),
    );
    let early = median(|i| rows(&engine, scored(70 + i, 1, true, false)));
    row("… with capture and early exit (layer 16 of 24)", early, format!("{:.2} x plain", early / plain));
    drop((engine, whole));
    let cached = start(&file, true, true);
    let cold = median(|i| rows(&cached, scored(200 + i, 1, false, true)));
    row("scored batch 5 x 512, null query, cold", cold, rate(n, cold));
    let mut next = 0;
    let warm = median(|_| {
        next += 1;
        rows(&cached, scored(200, 300 + next, false, true));
    });
    row("second query over the same chunks", warm, format!("{:.1} % of cold", 100.0 * warm / cold));
}
