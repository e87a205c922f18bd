//! What the benchmarks that need a real model share: starting an engine, and the work it is given.
//!
//! Token ids are made by a formula, so that other programs (`peers/`) can compute the same tokens. [`start`] is the one
//! place that knows how a file becomes an engine.

use std::{path::Path, sync::Barrier, time::Instant};

use qrae::{
    engine::{EngineConfig, EngineHandle, GenerateRequest, RowsRequest, Sampling, Tail},
    ids::{HeadRef, Span, TokenId},
    kv::{Salt, blocks_for},
    model::{Compute, gguf::GgufFile, load},
    sched::SchedConfig,
};

/// Tokens of a prompt that is only there to be continued.
pub(crate) const SHORT: usize = 32;

/// Most prefill tokens of a step in which something decodes, as `qrae serve` has it.
pub(crate) const BESIDE_DECODE: usize = 64;

/// How an engine is started; what is not here is as `qrae serve` has it.
pub(crate) struct Options {
    pub(crate) threads: usize,
    pub(crate) kv_tokens: usize,
    pub(crate) prefix_cache: bool,
    pub(crate) early_exit: bool,
}

/// What products of weights and activations are computed in, by [`start`].
pub(crate) const COMPUTES: &str =
    "int8: weights as in the file, 8-bit activations, exact integer sums; f32 attention, f16 KV";

/// Loads `file` and starts an engine on it.
pub(crate) fn start(file: &Path, options: &Options) -> EngineHandle {
    let decoder = load::gguf(&GgufFile::open(file).unwrap(), None, Compute::Int8).unwrap();
    let sched = SchedConfig {
        max_batched_tokens: 1024,
        prefill_chunk: 512,
        prefill_beside_decode: BESIDE_DECODE,
        max_sequences: 16,
    };
    let config = EngineConfig {
        kv_blocks: blocks_for(options.kv_tokens),
        sched,
        threads: options.threads,
        prefix_cache: options.prefix_cache,
        early_exit: options.early_exit,
    };
    EngineHandle::start(decoder, &config).unwrap()
}

/// Tokens 0 to `n` of the sequence `seed`. Sequences of different seeds below 40,000 differ in their first token.
pub(crate) fn tokens(n: usize, seed: u64) -> Vec<TokenId> {
    (0..n as u64).map(|i| 1000 + ((i * 7919 + seed * 104_729) % 40_000) as TokenId).collect()
}

/// `prompt`, continued greedily by `max_new` tokens.
pub(crate) fn continuation(prompt: Vec<TokenId>, max_new: usize) -> GenerateRequest {
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

/// Computes `prompt`; returns the token after it.
pub(crate) fn prefill(engine: &EngineHandle, prompt: Vec<TokenId>) -> TokenId {
    let mut stream = engine.generate(continuation(prompt, 1)).remove(0);
    stream.blocking_recv().unwrap().unwrap().id
}

/// Continues `batch` prompts of `context` tokens by `new` tokens each, all together. Returns (seconds, tokens) of the
/// time in which all of them decode: from when the last one has its first token to when the first one ends.
pub(crate) fn decode(
    engine: &EngineHandle,
    batch: usize,
    context: usize,
    new: usize,
    seed: u64,
) -> (f64, usize) {
    let together = Barrier::new(batch);
    let one = |i: usize| {
        together.wait();
        let prompt = tokens(context, seed + i as u64);
        let mut stream = engine.generate(continuation(prompt, new + 1)).remove(0);
        let mut times = Vec::with_capacity(new + 1);
        while let Some(token) = stream.blocking_recv() {
            token.unwrap();
            times.push(Instant::now());
        }
        times
    };
    let times: Vec<Vec<Instant>> = std::thread::scope(|scope| {
        let one = &one;
        let running: Vec<_> = (0..batch).map(|i| scope.spawn(move || one(i))).collect();
        running.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let begin = *times.iter().map(|t| &t[0]).max().unwrap();
    let end = *times.iter().map(|t| t.last().unwrap()).min().unwrap();
    let counted = times.iter().flatten().filter(|t| **t > begin && **t <= end).count();
    ((end - begin).as_secs_f64(), counted)
}

/// What a scored batch subtracts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// The row at the end of the prefix.
    QueryFree,
    /// A second tail.
    NullQuery,
}

/// A scored batch: a head of 40 tokens, `chunks` chunks of `n` tokens with 4 more each as marker and separator, a tail
/// of 25 tokens that is read at all of them.
pub(crate) fn scored(
    chunks: usize,
    n: usize,
    seed: u64,
    tail: u64,
    control: Control,
    heads: &[HeadRef],
) -> RowsRequest {
    let (first, stride) = (40, n + 4);
    let read = |seed| Tail::read_last(tokens(25, seed), 25);
    let null = control == Control::NullQuery;
    RowsRequest {
        prefix: tokens(first + chunks * stride, seed),
        tails: if null { vec![read(tail), read(9999)] } else { vec![read(tail)] },
        control: !null,
        heads: heads.to_vec(),
        candidates: (0..chunks)
            .map(|i| {
                let begin = first + i * stride;
                Span::new(begin, begin + n)
            })
            .collect(),
        salt: Salt::none(),
    }
}

/// Runs it; returns the tokens of prefix and first tail.
pub(crate) fn score(engine: &EngineHandle, request: RowsRequest) -> usize {
    let n = request.prefix.len() + request.tails[0].tokens.len();
    engine.rows(request).blocking_recv().unwrap().unwrap();
    n
}
