//! Pure code under load. `cargo bench --bench pure`
//!
//! Scoring: 16 heads × 32 768 candidate tokens in 64 chunks of 512, with control: far above what a
//! batch of 10 chunks needs, so that the arithmetic is seen to be no cost beside a prefill.
//!
//! Choosing heads: the whole search of `qrae localize --search`, over 24 methods, the 336 heads of a small model and 60
//! questions of 10 chunks.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use qrae::{
    eval::{
        judged::Judged,
        select::{Plan, search},
    },
    score::{Rows, ScoreInput, Statistic, responses, score},
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const HEADS: usize = 16;
const CHUNKS: usize = 64;
const CHUNK_TOKENS: usize = 512;

fn random_rows(seed: u64) -> Rows {
    let n = CHUNKS * CHUNK_TOKENS;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut data = Vec::with_capacity(HEADS * n);
    for _ in 0..HEADS {
        let row: Vec<f64> = (0..n).map(|_| rng.random::<f64>()).collect();
        let sum: f64 = row.iter().sum();
        data.extend(row.iter().map(|x| x / sum));
    }
    Rows::new(HEADS, n, data).expect("normalised rows are shares")
}

fn scoring(c: &mut Criterion) {
    let (conditioned, control) = (random_rows(1), random_rows(2));
    let lens = [CHUNK_TOKENS; CHUNKS];
    let mut group = c.benchmark_group("score 16x32k");
    group.throughput(Throughput::Elements((HEADS * CHUNKS * CHUNK_TOKENS) as u64));
    let input = |statistic| ScoreInput {
        chunk_lens: &lens,
        conditioned: &conditioned,
        control: Some(&control),
        statistic,
    };
    for &statistic in Statistic::ALL {
        group.bench_function(statistic.to_string(), |b| b.iter(|| score(black_box(&input(statistic)))));
    }
    group.bench_function("responses", |b| b.iter(|| responses(black_box(&input(Statistic::Sum)))));
    group.finish();
}

/// Noise, with two relevant chunks a question: what is found does not matter to the time.
fn judged(seed: u64) -> Vec<Judged> {
    const HEADS: usize = 336;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut question = |_| {
        let scores = (0..HEADS * 10).map(|_| rng.random::<f32>()).collect();
        Judged::new(HEADS, scores, vec![0, 1, 0, 0, 0, 1, 0, 0, 0, 0]).expect("a score per head and chunk")
    };
    (0..60).map(&mut question).collect()
}

fn choosing(c: &mut Criterion) {
    let methods: Vec<(u64, Vec<Judged>)> = (0..24).map(|method| (method, judged(method))).collect();
    let mut group = c.benchmark_group("select 24x336x60x10");
    group.sample_size(10);
    let plan = Plan::default();
    group.bench_function("search", |b| b.iter(|| search(black_box(&methods), &plan)));
    group.finish();
}

criterion_group!(benches, scoring, choosing);
criterion_main!(benches);
