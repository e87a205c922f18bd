//! What goes wrong in one request stays in that request: panics, failures, cancellations; and KV never leaks.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use proptest::prelude::*;
use qrae::{
    engine::{EngineConfig, EngineError, EngineHandle, Sampling, Tail},
    ids::TokenId,
    model::{Batch, Compute, Decoder, DecoderSpec, ForwardOutput},
    ops::{Cpu, KvFloat, KvStore, OpError},
    sched::SchedConfig,
};

/// Panics on one token, fails on a second, gives a NaN logit after a third and an infinite one after a fourth, and
/// leaves NaN in every layer's K and V on a fifth.
struct Faulty(Box<dyn Decoder>);

const QWEN3: Model<'_> = ("qwen3", Compute::Int8);

const PANIC: TokenId = 0;
const FAIL: TokenId = 1;
const NAN: TokenId = 2;
const INFINITE: TokenId = 318;
const POISON: TokenId = 319;

impl Decoder for Faulty {
    fn spec(&self) -> &DecoderSpec {
        self.0.spec()
    }

    fn kv_float(&self) -> KvFloat {
        self.0.kv_float()
    }

    fn forward(&mut self, cpu: &Cpu, batch: &Batch, kv: &mut KvStore) -> Result<ForwardOutput, OpError> {
        // in prompts only: a generated token may be any
        let prompts: Vec<_> = batch.items().iter().filter(|i| i.tokens.len() > 1).collect();
        let tokens: Vec<TokenId> = prompts.iter().flat_map(|i| i.tokens.clone()).collect();
        assert!(!tokens.contains(&PANIC), "planted panic");
        if tokens.contains(&FAIL) {
            return Err(OpError::Token { token: FAIL, vocab: 0 });
        }
        let mut out = self.0.forward(cpu, batch, kv)?;
        if tokens.contains(&NAN) {
            out.logits.iter_mut().for_each(|l| l[7] = f32::NAN);
        }
        if tokens.contains(&INFINITE) {
            out.logits.iter_mut().for_each(|l| l[7] = f32::INFINITY);
        }
        if tokens.contains(&POISON) {
            let (spec, slots) = (self.0.spec(), batch.slots());
            let nan = vec![f32::NAN; slots.len() * spec.n_kv_heads * spec.head_dim];
            for layer in 0..spec.n_layers {
                kv.write_k(layer, &slots, &nan)?;
                kv.write_v(layer, &slots, &nan)?;
            }
            out.logits.iter_mut().for_each(|l| l.fill(f32::NAN));
        }
        Ok(out)
    }
}

fn faulty(config: &EngineConfig) -> EngineHandle {
    EngineHandle::start(Box::new(Faulty(tiny(QWEN3))), config).unwrap()
}

fn with(token: TokenId, at: usize, n: usize) -> Vec<TokenId> {
    let mut prompt = tokens(n, 31);
    prompt[at] = token;
    prompt
}

fn reason(error: EngineError) -> String {
    match error {
        EngineError::Failed { reason } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_panic_fails_its_own_request_and_nobody_elses() {
    let small = SchedConfig {
        max_batched_tokens: 64,
        prefill_chunk: 16,
        prefill_beside_decode: 20,
        max_sequences: 16,
    };
    for config in [roomy(), EngineConfig { sched: small, ..roomy() }] {
        let engine = faulty(&config);
        let good = generate_request(tokens(40, 1), 20);
        let score = rows_request(2, &[(5, 5), (3, 1)], true);
        let clean = start(QWEN3, &roomy());
        let (want, want_rows) =
            (ids(&generate(&clean, &good).unwrap()), numbers(&rows(&clean, &score).unwrap()));
        let mut running = engine.generate(good.clone());
        let mut bad: Vec<_> =
            [PANIC, FAIL].iter().map(|&t| engine.generate(generate_request(with(t, 33, 50), 9))).collect();
        let pending = engine.rows(score.clone());
        let mut bad_score = rows_request(3, &[(5, 1), (4, 1), (6, 6)], true);
        bad_score.tails[1] = Tail::read_last(with(PANIC, 2, 6), 1);
        let pending_bad = engine.rows(bad_score);
        assert!(reason(collect(&mut bad[0][0]).unwrap_err()).contains("planted panic"));
        assert!(reason(collect(&mut bad[1][0]).unwrap_err()).contains("token 1 of a vocabulary of 0"));
        assert!(reason(pending_bad.blocking_recv().unwrap().unwrap_err()).contains("planted panic"));
        assert_eq!(ids(&collect(&mut running[0]).unwrap()), want);
        assert_eq!(numbers(&pending.blocking_recv().unwrap().unwrap()), want_rows);
        // and the engine lives on
        assert_eq!(ids(&generate(&engine, &good).unwrap()), want);
        assert_idle(&engine);
    }
}

#[test]
fn logits_that_are_not_numbers_are_an_error_not_a_token() {
    let engine = faulty(&roomy());
    let hot = Sampling { temperature: 1.0, ..Sampling::default() };
    for (token, word) in [(NAN, "NaN"), (INFINITE, "inf")] {
        for sampling in [Sampling::default(), hot.clone()] {
            let bad = qrae::engine::GenerateRequest { sampling, ..generate_request(with(token, 39, 40), 5) };
            let error = reason(generate(&engine, &bad).unwrap_err());
            assert!(error.contains("token 7") && error.contains(word), "{error}");
        }
    }
    assert_eq!(generate(&engine, &generate_request(tokens(40, 1), 5)).unwrap().len(), 5);
    assert!(engine.is_alive());
    assert_idle(&engine);
}

#[test]
fn numbers_that_are_none_in_a_freed_block_hurt_nobody() {
    let engine = faulty(&EngineConfig { kv_blocks: 8, ..roomy() });
    let clean = start(QWEN3, &roomy());
    assert!(generate(&engine, &generate_request(with(POISON, 5, 60), 5)).is_err());
    for seed in 0..4 {
        let good = generate_request(tokens(37 + seed as usize, seed), 9);
        assert_eq!(ids(&generate(&engine, &good).unwrap()), ids(&generate(&clean, &good).unwrap()));
        let score = rows_request(seed, &[(4, 2)], true);
        assert_eq!(numbers(&rows(&engine, &score).unwrap()), numbers(&rows(&clean, &score).unwrap()));
    }
    assert_idle(&engine);
}

#[test]
fn what_can_never_fit_is_refused_with_both_numbers() {
    let engine = start(QWEN3, &EngineConfig { kv_blocks: 3, ..roomy() });
    let error = generate(&engine, &generate_request(tokens(90, 1), 20)).unwrap_err();
    assert_eq!(error, EngineError::TooLong { needed: 128, capacity: 96 });
    let error = rows(&engine, &rows_request(1, &[(2, 1), (40, 1)], true)).unwrap_err();
    assert_eq!(error, EngineError::TooLong { needed: 160, capacity: 96 });
    // a request that just fits still runs
    assert_eq!(generate(&engine, &generate_request(tokens(90, 1), 6)).unwrap().len(), 6);
    assert_idle(&engine);
}

#[test]
fn dropping_the_receiver_frees_the_kv_at_the_next_step() {
    let engine = start(("qwen2", Compute::Int8), &roomy());
    let mut streams = engine.generate(generate_request(tokens(20, 1), 480));
    for _ in 0..3 {
        streams[0].blocking_recv().unwrap().unwrap();
    }
    assert!(engine.stats().kv.in_use > 0);
    drop(streams);
    let pending = engine.rows(rows_request(9, &[(300, 300)], true));
    drop(pending);
    assert_idle(&engine);
    assert!(engine.stats().generated_tokens < 400, "the sequence ran on: {:?}", engine.stats());
}

#[test]
fn a_continuation_that_is_dropped_leaves_its_siblings_alone() {
    let engine = start(("llama", Compute::Int8), &roomy());
    let sampling = Sampling { temperature: 1.0, seed: 5, ..Sampling::default() };
    let request = qrae::engine::GenerateRequest { sampling, n: 3, ..generate_request(tokens(33, 2), 40) };
    let whole: Vec<_> =
        engine.generate(request.clone()).iter_mut().map(|s| ids(&collect(s).unwrap())).collect();
    let mut streams = engine.generate(request);
    drop(streams.remove(0)); // the one that computes the prompt
    let rest: Vec<_> = streams.iter_mut().map(|s| ids(&collect(s).unwrap())).collect();
    assert_eq!(rest, whole[1..]);
    assert_idle(&engine);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    /// After any mix of finished, cancelled and failed requests, free + cached = total.
    #[test]
    fn the_pool_never_leaks(
        kv_blocks in 6usize..20, budget in 1usize..64,
        mix in proptest::collection::vec((0u32..6, 1usize..60, 0usize..12, any::<bool>()), 1..10),
    ) {
        let sched = SchedConfig { max_batched_tokens: budget, prefill_chunk: 24, prefill_beside_decode: 5, max_sequences: 5 };
        let engine = faulty(&EngineConfig { kv_blocks, sched, ..roomy() });
        let mut streams = Vec::new();
        let mut scores = Vec::new();
        for (kind, len, read, keep) in mix {
            match kind {
                0 => scores.push((engine.rows(rows_request(len as u32 % 3, &[(4, 4), (2, 1)], true)), keep)),
                1 => streams.extend(engine.generate(generate_request(with(PANIC, len - 1, len), 20)).into_iter().map(|s| (s, read, keep))),
                2 => {
                    let request = qrae::engine::GenerateRequest { n: 3, ..generate_request(tokens(len, 4), 30) };
                    streams.extend(engine.generate(request).into_iter().map(|s| (s, read, keep)));
                }
                _ => streams.extend(engine.generate(generate_request(tokens(len, kind % 2), 50)).into_iter().map(|s| (s, read, keep))),
            }
        }
        for (mut stream, read, keep) in streams {
            if keep {
                let _ = collect(&mut stream);
            } else {
                (0..read).for_each(|_| drop(stream.blocking_recv()));
            }
        }
        for (pending, keep) in scores {
            if keep {
                let _ = pending.blocking_recv().unwrap();
            }
        }
        assert_idle(&engine);
    }
}
