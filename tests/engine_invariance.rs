//! The numerics contract: the same rows and the same tokens, bit for bit, whatever the cache, the prefill chunking, the
//! batch, the threads, evictions and preemptions were; and one pass equals two.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use proptest::prelude::*;
use qrae::{
    engine::{EngineConfig, Over, RowsRequest, Sampling, Tail, TailRead},
    ids::{Span, TokenId},
    kv::Salt,
    model::Compute,
    sched::SchedConfig,
};

const FOLDERS: [&str; 4] = ["llama", "llama-bias", "qwen2", "qwen3"];

/// Every model in 8 bits (of qwen3 all matrices but o, whose rows are no multiple of 32) and in f32.
fn models() -> impl Iterator<Item = Model<'static>> {
    FOLDERS.into_iter().flat_map(both)
}

fn chunked(max_batched_tokens: usize, prefill_chunk: usize) -> EngineConfig {
    let sched = SchedConfig {
        max_batched_tokens,
        prefill_chunk,
        prefill_beside_decode: prefill_chunk,
        max_sequences: 16,
    };
    EngineConfig { sched, ..roomy() }
}

/// What every variation must reproduce.
fn truth(model: Model<'_>, request: &RowsRequest) -> Vec<Vec<u64>> {
    let plain = EngineConfig { prefix_cache: false, early_exit: false, threads: 1, ..roomy() };
    numbers(&rows(&start(model, &plain), request).unwrap())
}

#[test]
fn engine_rows_give_the_reference_entropies() {
    for model in FOLDERS {
        let case: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(golden(model).join("case.json")).unwrap()).unwrap();
        let ids: Vec<TokenId> = serde_json::from_value(case["ids"].clone()).unwrap();
        let p0 = case["p0"].as_u64().unwrap() as usize;
        let engine = start((model, Compute::F32), &chunked(50, 13));
        let spec = engine.spec();
        let (n_layers, n_heads) = (spec.n_layers, spec.n_heads);
        let spans: Vec<[usize; 2]> = serde_json::from_value(case["spans"].clone()).unwrap();
        let candidates: Vec<_> = spans.iter().map(|s| qrae::ids::Span::new(s[0], s[1])).collect();
        let names: Vec<String> =
            (0..n_layers).flat_map(|l| (0..n_heads).map(move |h| format!("L{l}H{h}"))).collect();
        let request = RowsRequest {
            prefix: ids[..=p0].to_vec(),
            tails: vec![Tail::read_last(ids[p0 + 1..].to_vec(), 1)],
            control: true,
            heads: heads(&names.iter().map(String::as_str).collect::<Vec<_>>()),
            candidates: candidates.clone(),
            salt: Salt::none(),
        };
        let out = rows(&engine, &request).unwrap();
        let lens: Vec<usize> = candidates.iter().map(|s| s.len()).collect();
        let scores = qrae::score::score(&qrae::score::ScoreInput {
            chunk_lens: &lens,
            conditioned: &out.tails[0][0],
            control: out.control.as_ref(),
            statistic: qrae::score::Statistic::Entropy,
        })
        .unwrap();
        let want: Vec<Vec<Vec<f64>>> = serde_json::from_value(case["entropy_scores"].clone()).unwrap();
        for (chunk, score) in scores.iter().enumerate() {
            for (head, got) in score.heads.iter().enumerate() {
                let want = want[head / n_heads][head % n_heads][chunk];
                assert!(
                    (got.score - want).abs() < 1e-4,
                    "{model} {} chunk {chunk}: {got:?} {want}",
                    names[head]
                );
            }
        }
    }
}

#[test]
fn cold_warm_and_evicted_caches_give_the_same_rows() {
    for model in models() {
        let request = rows_request(1, &[(13, 13), (5, 1)], true);
        let truth = truth(model, &request);
        let engine = start(model, &EngineConfig { kv_blocks: 12, ..roomy() });
        let cold = rows(&engine, &request).unwrap();
        assert_eq!(numbers(&cold), truth, "{model:?} cold");
        // the second tail shares the first one's prefix, so only its own 5 tokens are computed
        assert_eq!((cold.cached_tokens, cold.computed_tokens), (0, 90 + 13 + 5), "{model:?} cold");
        let warm = rows(&engine, &request).unwrap();
        assert_eq!(numbers(&warm), truth, "{model:?} warm");
        // two full blocks before p0 = 89
        assert_eq!((warm.cached_tokens, warm.computed_tokens), (64, 39 + 5), "{model:?} warm");
        for other in 2..8 {
            rows(&engine, &rows_request(other, &[(40, 3)], false)).unwrap();
        }
        let evicted = rows(&engine, &request).unwrap();
        assert_eq!(evicted.cached_tokens, 0, "{model:?}: nothing was evicted, so this proves nothing");
        assert_eq!(numbers(&evicted), truth, "{model:?} evicted");
        assert_idle(&engine);
    }
}

#[test]
fn a_scoring_pass_and_a_chat_may_not_share_kv_that_is_too_shallow() {
    for model in both("qwen3") {
        let engine = start(model, &roomy());
        let request = rows_request(3, &[(6, 1)], true);
        let prompt: Vec<TokenId> = [request.prefix.clone(), tokens(9, 77)].concat();
        let alone = generate(&start(model, &roomy()), &generate_request(prompt.clone(), 12)).unwrap();
        rows(&engine, &request).unwrap();
        let after_scoring = generate(&engine, &generate_request(prompt.clone(), 12)).unwrap();
        assert_eq!(after_scoring[0].cached_tokens, 0, "blocks of a shallow pass were taken for deep ones");
        assert_eq!(ids(&after_scoring), ids(&alone));
        // deep blocks serve both
        let again = generate(&engine, &generate_request(prompt, 12)).unwrap();
        assert_eq!((again[0].cached_tokens, ids(&again)), (96, ids(&alone)));
        let warm = rows(&engine, &request).unwrap();
        assert_eq!(warm.cached_tokens, 64);
        assert_eq!(numbers(&warm), truth(model, &request));
    }
}

#[test]
fn prefill_chunks_threads_and_early_exit_change_nothing() {
    for model in models() {
        let request = rows_request(4, &[(17, 17), (3, 3), (8, 1)], true);
        let truth = truth(model, &request);
        for (budget, chunk) in [(1, 1), (7, 7), (64, 64), (40, 7), (4096, 4096)] {
            for early_exit in [true, false] {
                for threads in [1, 2] {
                    let config = EngineConfig { early_exit, threads, ..chunked(budget, chunk) };
                    let got = rows(&start(model, &config), &request).unwrap();
                    assert_eq!(numbers(&got), truth, "{model:?} {config:?}");
                }
            }
        }
    }
}

#[test]
fn one_pass_with_two_read_positions_is_two_passes() {
    for model in models() {
        let both = rows_request(5, &[(11, 1), (4, 4)], true);
        let engine = start(model, &EngineConfig { prefix_cache: false, ..roomy() });
        let one = numbers(&rows(&engine, &both).unwrap());
        // the control as the paper computes it: an input of its own that ends with the candidates
        let (last, prefix) = both.prefix.split_last().unwrap();
        let control = RowsRequest {
            prefix: prefix.to_vec(),
            tails: vec![Tail::read_last(vec![*last], 1)],
            control: false,
            ..both.clone()
        };
        let mut separate = numbers(&rows(&engine, &control).unwrap());
        for tail in &both.tails {
            let alone = RowsRequest { tails: vec![tail.clone()], control: false, ..both.clone() };
            separate.extend(numbers(&rows(&engine, &alone).unwrap()));
        }
        assert_eq!(one, separate, "{model:?}");
    }
}

/// Several reads of one tail, some over all visible tokens, are what sequences of their own would read.
#[test]
fn reads_of_one_tail_do_not_disturb_each_other() {
    let read = |start, end, over| TailRead { tokens: Span::new(start, end), over };
    for model in models() {
        let mut request = rows_request(8, &[(11, 1), (4, 4)], true);
        request.tails[0].reads = vec![
            read(10, 11, Over::Candidates),
            read(0, 11, Over::Candidates),
            read(0, 11, Over::Visible),
            read(2, 7, Over::Visible),
        ];
        request.tails[1].reads.push(read(3, 4, Over::Visible));
        let engine = start(model, &roomy());
        let out = rows(&engine, &request).unwrap();
        let mut separate = vec![];
        for tail in &request.tails {
            for &one in &tail.reads {
                let alone = Tail { reads: vec![one], ..tail.clone() };
                let alone = RowsRequest { tails: vec![alone], control: false, ..request.clone() };
                separate.extend(numbers(&rows(&engine, &alone).unwrap()));
            }
        }
        assert_eq!(numbers(&out)[1..], separate, "{model:?}");
        for (budget, chunk) in [(1, 1), (7, 7), (40, 7)] {
            let got = rows(&start(model, &chunked(budget, chunk)), &request).unwrap();
            assert_eq!(numbers(&got), numbers(&out), "{model:?} in chunks of {chunk}");
        }
        // over all visible tokens a row is its restricted self, only smaller
        let (last, whole) = (&out.tails[1][0], &out.tails[1][1]);
        let alone = RowsRequest {
            tails: vec![Tail::read_last(request.tails[1].tokens.clone(), 1)],
            ..request.clone()
        };
        let restricted = &rows(&engine, &alone).unwrap().tails[0][0];
        for head in 0..last.n_heads() {
            let share: f64 = whole.row(head).iter().sum();
            assert!(share > 0.01 && share < 0.999, "{model:?}: a share of {share}");
            for (whole, restricted) in whole.row(head).iter().zip(restricted.row(head)) {
                assert!((whole - share * restricted).abs() < 1e-6, "{model:?}: {whole} {restricted}");
            }
        }
    }
}

#[test]
fn salts_keep_caches_apart() {
    let engine = start(("qwen2", Compute::Int8), &roomy());
    let mine = RowsRequest { salt: Salt::new("mine"), ..rows_request(6, &[(7, 1)], true) };
    let theirs = RowsRequest { salt: Salt::new("theirs"), ..mine.clone() };
    assert_eq!(rows(&engine, &mine).unwrap().cached_tokens, 0);
    assert_eq!(rows(&engine, &theirs).unwrap().cached_tokens, 0);
    assert_eq!(rows(&engine, &mine).unwrap().cached_tokens, 64);
    engine.clear_cache().blocking_recv().unwrap();
    assert_eq!(rows(&engine, &mine).unwrap().cached_tokens, 0);
}

#[test]
fn eight_mixed_requests_at_once_are_each_alone() {
    for model in both("qwen3") {
        let sampled = |seed| Sampling { temperature: 0.9, top_p: 0.9, seed, ..Sampling::default() };
        for config in [chunked(4096, 4096), chunked(24, 9), EngineConfig { kv_blocks: 9, ..chunked(64, 32) }]
        {
            let chats: Vec<_> = (0..6)
                .map(|i| {
                    let shared = tokens(40, 500);
                    let prompt = [shared, tokens(5 + 7 * i as usize, 600 + i)].concat();
                    let sampling = if i % 2 == 0 { Sampling::default() } else { sampled(u64::from(i)) };
                    qrae::engine::GenerateRequest { sampling, ..generate_request(prompt, 90 + i as usize) }
                })
                .collect();
            let scores = [rows_request(7, &[(9, 9)], true), rows_request(8, &[(3, 1), (3, 2)], false)];
            let alone = start(model, &EngineConfig { prefix_cache: false, ..roomy() });
            let want_chats: Vec<_> = chats.iter().map(|c| ids(&generate(&alone, c).unwrap())).collect();
            let want_scores: Vec<_> = scores.iter().map(|s| numbers(&rows(&alone, s).unwrap())).collect();
            let engine = start(model, &config);
            for _ in 0..2 {
                let mut streams: Vec<_> = chats.iter().flat_map(|c| engine.generate(c.clone())).collect();
                let pending: Vec<_> = scores.iter().map(|s| engine.rows(s.clone())).collect();
                let got: Vec<_> = streams.iter_mut().map(|s| ids(&collect(s).unwrap())).collect();
                assert_eq!(got, want_chats, "{config:?}");
                let got: Vec<_> =
                    pending.into_iter().map(|p| numbers(&p.blocking_recv().unwrap().unwrap())).collect();
                assert_eq!(got, want_scores, "{config:?}");
            }
            if config.kv_blocks == 9 {
                assert!(
                    engine.stats().preemptions > 0,
                    "the small pool never preempted, so this proves nothing"
                );
            }
            assert_idle(&engine);
        }
    }
}

#[test]
fn rows_read_before_a_preemption_are_read_again() {
    for model in both("llama") {
        // a chat that was there first grows into the blocks of a scoring request that has already read its control and
        // some of its tail
        let sched = SchedConfig {
            max_batched_tokens: 64,
            prefill_chunk: 64,
            prefill_beside_decode: 1,
            max_sequences: 4,
        };
        let engine = start(model, &EngineConfig { kv_blocks: 8, sched, ..roomy() });
        // whether the two meet depends on the machine, so until they do
        for attempt in 0..100 {
            let request = rows_request(11 + attempt, &[(100, 100)], true);
            let mut chat = engine.generate(generate_request(tokens(30, 1200 + attempt), 200));
            // at once, so that the chat is not over before the request comes
            let pending = engine.rows(request.clone());
            assert_eq!(collect(&mut chat[0]).unwrap().len(), 200);
            assert_eq!(numbers(&pending.blocking_recv().unwrap().unwrap()), truth(model, &request));
            if engine.stats().preemptions > 0 {
                break;
            }
        }
        assert!(engine.stats().preemptions > 0, "nothing was ever preempted, so this proves nothing");
        assert_idle(&engine);
    }
}

#[test]
fn several_continuations_share_the_prompt_and_differ_by_seed() {
    let engine = start(("llama", Compute::Int8), &roomy());
    let sampling = Sampling { temperature: 1.0, seed: 40, ..Sampling::default() };
    let request = qrae::engine::GenerateRequest { sampling, n: 3, ..generate_request(tokens(50, 9), 8) };
    let mut streams = engine.generate(request.clone());
    let together: Vec<_> = streams.iter_mut().map(|s| collect(s).unwrap()).collect();
    assert_eq!(together[1][0].cached_tokens, 49);
    assert_eq!(engine.stats().prefill_tokens, 50 + 1 + 1);
    for (i, tokens) in together.iter().enumerate() {
        let sampling = Sampling { seed: 40 + i as u64, ..request.sampling.clone() };
        let alone =
            generate(&engine, &qrae::engine::GenerateRequest { sampling, ..request.clone() }).unwrap();
        assert_eq!(ids(tokens), ids(&alone), "continuation {i}");
    }
    assert_ne!(ids(&together[0]), ids(&together[1]));
}

/// Attention reads a long prefix in several segments, one after another or side by side.
#[test]
fn a_prefix_of_several_segments_changes_nothing() {
    for model in both("qwen3") {
        let request = RowsRequest {
            prefix: tokens(600, 21),
            candidates: vec![Span::new(3, 70), Span::new(250, 262), Span::new(400, 598)],
            ..rows_request(21, &[(17, 17), (5, 1)], true)
        };
        let truth = truth(model, &request);
        for (budget, chunk, threads) in
            [(4096, 4096, 2), (4096, 4096, 3), (300, 300, 1), (64, 64, 2), (40, 7, 2)]
        {
            let engine = start(model, &EngineConfig { threads, ..chunked(budget, chunk) });
            for state in ["cold", "warm"] {
                let got = rows(&engine, &request).unwrap();
                assert_eq!(numbers(&got), truth, "{model:?} {state}, {threads} threads, chunks of {chunk}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Any mix of shared and unshared requests on any small engine.
    #[test]
    fn any_mix_on_any_engine_gives_each_its_own_rows(
        budget in 1usize..80, chunk in 1usize..80, kv_blocks in 8usize..24, early_exit: bool, prefix_cache: bool,
        compute in proptest::sample::select(vec![Compute::Int8, Compute::F32]),
        seeds in proptest::collection::vec((0u32..3, 1usize..40, any::<bool>()), 1..6),
    ) {
        let sched = SchedConfig { max_batched_tokens: budget, prefill_chunk: chunk, prefill_beside_decode: 3, max_sequences: 4 };
        let model = ("qwen2", compute);
        let engine = start(model, &EngineConfig { kv_blocks, sched, threads: 2, prefix_cache, early_exit });
        let requests: Vec<_> = seeds.iter().map(|&(seed, reads, control)| {
            rows_request(seed, &[(reads + 2, reads), (1, 1)], control)
        }).collect();
        let pending: Vec<_> = requests.iter().map(|r| engine.rows(r.clone())).collect();
        for (request, pending) in requests.iter().zip(pending) {
            let got = pending.blocking_recv().unwrap().unwrap();
            prop_assert_eq!(numbers(&got), truth(model, request));
        }
        assert_idle(&engine);
    }
}
