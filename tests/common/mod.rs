//! Shared by the tests that run an engine: the tiny golden models, and a small vocabulary of requests.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::path::PathBuf;

use qrae::{
    engine::{
        EngineConfig, EngineError, EngineHandle, GenerateRequest, RowsOutput, RowsRequest, Sampling, Tail,
        Token,
    },
    ids::{HeadRef, Span, TokenId},
    kv::Salt,
    model::{Compute, Decoder, load},
    sched::SchedConfig,
};

/// A folder of `tests/golden`.
pub fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// The larger difference, to fold with. What is no number wins and stays, where `max` would drop it: a test then fails.
pub fn worse(worst: f64, next: f64) -> f64 {
    if worst.is_nan() || worst >= next { worst } else { next }
}

/// One of the tiny golden decoders, and its arithmetic.
pub type Model<'a> = (&'a str, Compute);

pub fn tiny((folder, compute): Model<'_>) -> Box<dyn Decoder> {
    load::folder(&golden(folder), None, compute).unwrap()
}

/// A golden decoder in 8 bits and in f32.
pub fn both(folder: &str) -> [Model<'_>; 2] {
    [Compute::Int8, Compute::F32].map(|compute| (folder, compute))
}

/// Plenty of everything: one prompt is one step.
pub fn roomy() -> EngineConfig {
    EngineConfig {
        kv_blocks: 256,
        sched: SchedConfig {
            max_batched_tokens: 4096,
            prefill_chunk: 4096,
            prefill_beside_decode: 4096,
            max_sequences: 64,
        },
        threads: 2,
        prefix_cache: true,
        early_exit: true,
    }
}

pub fn start(model: Model<'_>, config: &EngineConfig) -> EngineHandle {
    EngineHandle::start(tiny(model), config).unwrap()
}

/// Deterministic token ids from 3 to 315; tests plant the others.
pub fn tokens(n: usize, seed: u32) -> Vec<TokenId> {
    let mut x = seed.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    (0..n)
        .map(|_| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            3 + (x >> 9) % 313
        })
        .collect()
}

pub fn heads(names: &[&str]) -> Vec<HeadRef> {
    names.iter().map(|h| h.parse().unwrap()).collect()
}

/// A scoring request of three chunks in a prefix of 90 tokens, and tails whose last `reads` tokens are read.
pub fn rows_request(seed: u32, tails: &[(usize, usize)], control: bool) -> RowsRequest {
    RowsRequest {
        prefix: tokens(90, seed),
        tails: (1..)
            .zip(tails)
            .map(|(i, &(len, reads))| Tail::read_last(tokens(len, seed + 1000 * i), reads))
            .collect(),
        control,
        heads: heads(&["L0H5", "L1H0", "L1H3"]),
        candidates: vec![Span::new(6, 31), Span::new(33, 34), Span::new(36, 88)],
        salt: Salt::none(),
    }
}

pub fn generate_request(prompt: Vec<TokenId>, max_new: usize) -> GenerateRequest {
    GenerateRequest {
        prompt,
        sampling: Sampling::default(),
        max_new,
        stop_tokens: vec![],
        logprobs: None,
        n: 1,
        salt: Salt::none(),
    }
}

pub fn rows(engine: &EngineHandle, request: &RowsRequest) -> Result<RowsOutput, EngineError> {
    engine.rows(request.clone()).blocking_recv().unwrap_or(Err(EngineError::Stopped))
}

/// The numbers of an answer, without timings and counts.
pub fn numbers(output: &RowsOutput) -> Vec<Vec<u64>> {
    let all = output.control.iter().chain(output.tails.iter().flatten());
    all.map(|rows| (0..rows.n_heads()).flat_map(|h| rows.row(h).iter().map(|v| v.to_bits())).collect())
        .collect()
}

/// Runs one continuation to its end.
pub fn generate(engine: &EngineHandle, request: &GenerateRequest) -> Result<Vec<Token>, EngineError> {
    let mut streams = engine.generate(GenerateRequest { n: 1, ..request.clone() });
    collect(&mut streams[0])
}

pub fn collect(stream: &mut qrae::engine::Tokens) -> Result<Vec<Token>, EngineError> {
    let mut tokens = Vec::new();
    while let Some(token) = stream.blocking_recv() {
        let token = token?;
        let done = token.finish.is_some();
        tokens.push(token);
        if done {
            return Ok(tokens);
        }
    }
    Err(EngineError::Stopped)
}

pub fn ids(tokens: &[Token]) -> Vec<TokenId> {
    tokens.iter().map(|t| t.id).collect()
}

/// Waits until the engine has nothing to do, then checks that no KV block is held.
pub fn assert_idle(engine: &EngineHandle) {
    for _ in 0..2000 {
        let stats = engine.stats();
        if stats.running == 0 && stats.waiting == 0 {
            let kv = stats.kv;
            assert_eq!(kv.in_use, 0, "{kv:?}");
            assert_eq!(kv.free + kv.cached, kv.total, "{kv:?}");
            assert_eq!(stats.leaks, 0);
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("the engine never became idle: {:?}", engine.stats());
}
