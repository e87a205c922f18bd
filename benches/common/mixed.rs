//! Scores beside chats: sequences decode without end while scored batches arrive one after another.
//!
//! `serve.rs` measures either alone. Only `peer_cases.rs` uses this, so it is not a part of `mod.rs`. A token's time is
//! when its receiver has it, so it includes what the operating system takes to wake a waiting thread.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Instant,
};

use qrae::{
    engine::{EngineHandle, RowsRequest},
    ids::{HeadRef, TokenId},
};
use serde_json::{Value, json};

use crate::common::{self, Control, SHORT};

/// What a chat generates at most. It is stopped long before.
const WITHOUT_END: usize = 2048;

/// What is run at once.
pub(crate) struct Load {
    /// Sequences that decode, each after a prompt of [`SHORT`] tokens.
    pub(crate) chats: usize,
    /// Tokens that each chat gets before the first scored batch arrives.
    pub(crate) alone: usize,
    /// Scored batches, each sent when the one before is done, with a null query.
    pub(crate) batches: usize,
    /// Chunks of a batch.
    pub(crate) chunks: usize,
    /// Tokens of a chunk.
    pub(crate) n: usize,
    /// Of the first sequence; `chats + 2 * batches` seeds are used.
    pub(crate) seed: u64,
}

/// The batches alone, then the chats alone, then both: what `peers/report.py` shows of it, times in seconds.
pub(crate) fn run(engine: &EngineHandle, load: &Load, heads: &[HeadRef]) -> Value {
    let batch = |seed| common::scored(load.chunks, load.n, seed, 1, Control::NullQuery, heads);
    let first = load.seed + load.chats as u64;
    let batches = |at| (0..load.batches as u64).map(move |i| batch(first + at + i));
    let scored_alone = score_all(engine, batches(0));
    let (stop, (ready, waits)) = (AtomicBool::new(false), mpsc::channel());
    let (begin, end, scored_beside, times) = std::thread::scope(|scope| {
        let running: Vec<_> = (0..load.chats as u64)
            .map(|i| {
                let (ready, stop, prompt) = (ready.clone(), &stop, common::tokens(SHORT, load.seed + i));
                scope.spawn(move || chat(engine, prompt, stop, || ready.send(()).unwrap(), load.alone))
            })
            .collect();
        waits.iter().take(load.chats).for_each(drop);
        let begin = Instant::now();
        let scored = score_all(engine, batches(load.batches as u64));
        let end = Instant::now();
        stop.store(true, Ordering::Relaxed);
        let times: Vec<Vec<Instant>> = running.into_iter().map(|t| t.join().unwrap()).collect();
        (begin, end, scored, times)
    });
    let all_decode = *times.iter().map(|t| &t[0]).max().unwrap();
    json!({
        "prefill_beside_decode": common::BESIDE_DECODE,
        "scored_alone": scored_alone,
        "scored_beside": scored_beside,
        "chats_alone": chats_between(&times, all_decode, begin),
        "chats_beside": chats_between(&times, begin, end),
    })
}

/// Seconds of each, one after another.
fn score_all(engine: &EngineHandle, batches: impl Iterator<Item = RowsRequest>) -> Vec<f64> {
    let seconds = |batch| {
        let begin = Instant::now();
        common::score(engine, batch);
        begin.elapsed().as_secs_f64()
    };
    batches.map(seconds).collect()
}

/// Decodes until `stop`; the time of each token. Calls `ready` when it has `alone` of them.
fn chat(
    engine: &EngineHandle,
    prompt: Vec<TokenId>,
    stop: &AtomicBool,
    ready: impl Fn(),
    alone: usize,
) -> Vec<Instant> {
    let mut stream = engine.generate(common::continuation(prompt, WITHOUT_END)).remove(0);
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let token = stream.blocking_recv().unwrap().unwrap();
        assert!(token.finish.is_none(), "a chat ended before the scored batches did; ask for fewer");
        times.push(Instant::now());
        if times.len() == alone {
            ready();
        }
    }
    times
}

/// Of the tokens between two moments: the times between two tokens of a chat, and the rate of all chats together.
fn chats_between(times: &[Vec<Instant>], begin: Instant, end: Instant) -> Value {
    let inside = |t: &Instant| begin <= *t && *t <= end;
    let pairs = times.iter().flat_map(|chat| chat.windows(2));
    let mut gaps: Vec<f64> =
        pairs.filter(|pair| pair.iter().all(inside)).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    gaps.sort_by(f64::total_cmp);
    let at = |share: f64| gaps[((gaps.len() - 1) as f64 * share).round() as usize];
    let tokens = times.iter().flatten().filter(|t| **t > begin && **t <= end).count();
    json!({
        "seconds": (end - begin).as_secs_f64(),
        "tokens": tokens,
        "median": at(0.5),
        "p95": at(0.95),
        "max": at(1.0),
    })
}
