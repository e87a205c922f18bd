//! Measures qrae for `peers/run`, which runs it in turn with other programs: loads one model, then answers one command a
//! line on standard input with one JSON line.
//!
//! ```text
//! peer_cases MODEL.gguf THREADS KV_TOKENS HEADS early|whole token|score
//!
//! prefill N SEED                        one prompt, first token
//! decode BATCH CONTEXT NEW SEED         BATCH sequences of CONTEXT tokens, continued by NEW each
//! score CHUNKS N SEED TAIL null|free    a scored batch; null query or query-free control
//! mixed CHATS ALONE BATCHES CHUNKS N SEED
//!                                       CHATS sequences decode, ALONE tokens each before scored batches come
//! ```
//!
//! HEADS is a list as in `L13H13,L16H7`; `whole` computes every layer in scoring passes. The line printed first has the
//! time from start to the first `token` or `score` of 64 tokens.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/mixed.rs"]
mod mixed;

use std::{
    io::{BufRead, Write},
    path::PathBuf,
    time::Instant,
};

use common::{COMPUTES, Control, Options};
use qrae::{
    engine::{EngineHandle, Tail},
    ids::HeadRef,
};
use serde_json::{Value, json};

const USAGE: &str = "peer_cases MODEL.gguf THREADS KV_TOKENS HEADS early|whole token|score (see peers/run)";

fn number<T: std::str::FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("{word:?} is not a number"))
}

fn timed<T>(run: impl FnOnce() -> T) -> (f64, T) {
    let begin = Instant::now();
    let value = run();
    (begin.elapsed().as_secs_f64(), value)
}

fn answer(engine: &EngineHandle, heads: &[HeadRef], line: &str) -> Value {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["prefill", n, seed] => {
            let prompt = common::tokens(number(n), number(seed));
            let tokens = prompt.len();
            let (seconds, next) = timed(|| common::prefill(engine, prompt));
            json!({"seconds": seconds, "tokens": tokens, "next": next})
        }
        ["decode", batch, context, new, seed] => {
            let (seconds, tokens) =
                common::decode(engine, number(batch), number(context), number(new), number(seed));
            json!({"seconds": seconds, "tokens": tokens})
        }
        ["score", chunks, n, seed, tail, control] => {
            let control = if control == "null" { Control::NullQuery } else { Control::QueryFree };
            let request =
                common::scored(number(chunks), number(n), number(seed), number(tail), control, heads);
            let (seconds, tokens) = timed(|| common::score(engine, request));
            json!({"seconds": seconds, "tokens": tokens})
        }
        ["mixed", chats, alone, batches, chunks, n, seed] => {
            let load = mixed::Load {
                chats: number(chats),
                alone: number(alone),
                batches: number(batches),
                chunks: number(chunks),
                n: number(n),
                seed: number(seed),
            };
            mixed::run(engine, &load, heads)
        }
        _ => panic!("unknown command {line:?}; {USAGE}"),
    }
}

fn say(value: &Value) {
    println!("{value}");
    std::io::stdout().flush().unwrap();
}

fn main() {
    let begin = Instant::now();
    let words: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let [file, threads, kv_tokens, heads, depth, first] = &words[..] else {
        // what `cargo bench` without a filter gets
        return eprintln!("SKIPPED: {USAGE}");
    };
    let heads: Vec<HeadRef> = heads.split(',').map(|h| h.parse().unwrap()).collect();
    let options = Options {
        threads: number(threads),
        kv_tokens: number(kv_tokens),
        prefix_cache: true,
        early_exit: depth == "early",
    };
    let engine = common::start(&PathBuf::from(file), &options);
    if first == "score" {
        // 40 of head, a chunk of 19 with its separators, one of tail
        let mut request = common::scored(1, 19, 1, 2, Control::QueryFree, &heads);
        request.tails[0] = Tail::read_last(vec![request.tails[0].tokens[0]], 1);
        common::score(&engine, request);
    } else {
        common::prefill(&engine, common::tokens(64, 1));
    }
    say(&json!({"first_s": begin.elapsed().as_secs_f64(), "computes": COMPUTES}));
    for line in std::io::stdin().lock().lines() {
        say(&answer(&engine, &heads, &line.unwrap()));
    }
}
