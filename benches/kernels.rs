//! CPU kernels beside what the processor can do at most. `cargo bench --bench kernels`
//!
//! Products of 8-bit rows with quantised weights, on every instruction set the processor has: for many rows in operations,
//! for one in bytes of weights, of an MLP matrix that lies in a cache and of an output matrix that no cache holds.
//! Paged attention over f16 (the default) and f32, on one thread and on all, in multiply-adds counted twice (only keys a
//! row sees count), and for decode in bytes of K and V. `ceiling` holds the rates to compare with, measured in the same run (AVX-512 only): fused
//! multiply-adds on registers, and one pass over memory. Both move with the clock and with what else runs, so compare neighbours.

use std::hint::black_box;

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use half::f16;
use qrae::{
    ids::{BLOCK_SIZE, BlockId},
    ops::{
        Activations, Keep,
        cpu::{
            Cpu, Isa, Product, QuantMatrix, Weight,
            attention::{AttentionItem, KvNumber, PageLayout, Pages, attention},
            multiply,
            quant::BlockFormat,
        },
    },
};

/// Query heads, KV heads, head size.
const SHAPES: [(usize, usize, usize); 3] = [(14, 2, 64), (9, 3, 64), (12, 2, 128)];
/// Values that no cache holds: 256 MiB.
const FAR: usize = 1 << 26;

fn values(n: usize, mut x: u32) -> Vec<f32> {
    let mut next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 8) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// `sequences` of `len` tokens in scattered pages; the last `rows` tokens of each are queries.
struct Case<T> {
    n_heads: usize,
    layout: PageLayout,
    q: Vec<f32>,
    out: Vec<f32>,
    k: Vec<T>,
    v: Vec<T>,
    items: Vec<AttentionItem>,
}

/// The same in the numbers of pages.
fn stored<T: KvNumber>(x: &[f32]) -> Vec<T> {
    T::rounded(x, &mut Vec::new()).to_vec()
}

impl<T: KvNumber> Case<T> {
    fn new(
        (n_heads, n_kv_heads, head_dim): (usize, usize, usize),
        sequences: usize,
        len: usize,
        rows: usize,
    ) -> Self {
        let layout = PageLayout { n_kv_heads, head_dim };
        let blocks = len.div_ceil(BLOCK_SIZE);
        let pool = (sequences * blocks).next_power_of_two();
        let item = |s: usize| AttentionItem {
            first_row: s * rows,
            rows,
            first_position: len - rows,
            table: (0..blocks).map(|b| BlockId(((s * blocks + b) * 7 % pool) as u32)).collect(),
        };
        let q = values(sequences * rows * n_heads * head_dim, 1);
        Self {
            n_heads,
            layout,
            out: vec![0.0; q.len()],
            q,
            k: stored(&values(pool * layout.k_page(), 2)),
            v: stored(&values(pool * layout.v_page(), 3)),
            items: (0..sequences).map(item).collect(),
        }
    }

    /// Floating point operations that the result needs.
    fn operations(&self) -> u64 {
        let keys: usize =
            self.items.iter().map(|i| (1..=i.rows).map(|r| i.first_position + r).sum::<usize>()).sum();
        (4 * keys * self.n_heads * self.layout.head_dim) as u64
    }

    /// Bytes of K and V that the last rows see.
    fn bytes(&self) -> u64 {
        let keys: usize = self.items.iter().map(|i| i.first_position + i.rows).sum();
        (2 * keys * self.layout.n_kv_heads * self.layout.head_dim * size_of::<T>()) as u64
    }

    fn bench(&mut self, group: &mut BenchmarkGroup<'_, WallTime>, name: &str) {
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        for threads in [1, all] {
            let cpu = Cpu::new(threads);
            group.bench_function(format!("{name} on {threads}"), |b| {
                b.iter(|| {
                    let pages = Pages { k: &self.k, v: &self.v, layout: self.layout };
                    attention(&cpu, black_box(&self.q), self.n_heads, pages, &self.items, &mut self.out);
                });
            });
        }
    }
}

fn prefill(c: &mut Criterion) {
    prefill_over::<f16>(c, "attention prefill");
    prefill_over::<f32>(c, "attention prefill, f32");
}

fn prefill_over<T: KvNumber>(c: &mut Criterion, name: &str) {
    let mut group = c.benchmark_group(name);
    for shape in SHAPES {
        for len in [1024, 4096] {
            let mut case = Case::<T>::new(shape, 1, len, len);
            group.throughput(Throughput::Elements(case.operations()));
            group.sample_size(10);
            case.bench(&mut group, &format!("{shape:?} x {len}"));
        }
    }
    group.finish();
}

fn decode(c: &mut Criterion) {
    decode_over::<f16>(c, "attention decode");
    decode_over::<f32>(c, "attention decode, f32");
}

fn decode_over<T: KvNumber>(c: &mut Criterion, name: &str) {
    let mut group = c.benchmark_group(name);
    for shape in SHAPES {
        for (sequences, len) in [(1, 1024), (1, 16384), (16, 8192)] {
            let mut case = Case::<T>::new(shape, sequences, len, 1);
            group.throughput(Throughput::Bytes(case.bytes()));
            case.bench(&mut group, &format!("{shape:?} x {sequences} of {len}"));
        }
    }
    group.finish();
}

/// The MLP matrices of a model of half a billion parameters, and its output matrix.
fn products(c: &mut Criterion) {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let fastest = Isa::detect();
    let mlp = [(fastest, 1, 1), (fastest, 1, 8), (fastest, 1, 512), (fastest, all, 1), (fastest, all, 512)];
    let others = Isa::available().into_iter().filter(|isa| *isa != fastest && *isa != Isa::PORTABLE);
    let mlp: Vec<_> = mlp.into_iter().chain(others.flat_map(|isa| [(isa, 1, 1), (isa, 1, 512)])).collect();
    for (format, n, k) in [
        (BlockFormat::Q5_0, 4864, 896),
        (BlockFormat::Q8_0, 4864, 896),
        (BlockFormat::Q4K, 896, 4864),
        (BlockFormat::Q6K, 896, 4864),
    ] {
        product(c, (format, n, k), &mlp);
    }
    product(c, (BlockFormat::Q8_0, 151_936, 896), &[(fastest, 1, 1), (fastest, all, 1)]);
}

/// One matrix `[n, k]`; instruction set, threads and rows of each case.
fn product(c: &mut Criterion, (format, n, k): (BlockFormat, usize, usize), cases: &[(Isa, usize, usize)]) {
    let mut group = c.benchmark_group(format!("{format:?} {n} x {k}"));
    // scales of ordinary size, whatever the format: no byte has its high bits set
    let read = |_, to: &mut [u8]| {
        to.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7919 % 251) as u8 & 0x3f);
        Ok(())
    };
    let matrix = QuantMatrix::pack(format, (n, k), read).expect("a matrix of small numbers");
    let bytes = matrix.bytes() as u64;
    let weight = Weight::Quant(matrix);
    for &(isa, threads, rows) in cases {
        let cpu = Cpu::with_isa(isa, threads);
        let x = values(rows * k, 5);
        let mut codes = Activations::new(k, Keep::Codes);
        codes.fill(&cpu, rows, |r, row| row.copy_from_slice(&x[r * k..][..k]));
        let mut y = vec![0f32; rows * n];
        let operations = Throughput::Elements((2 * rows * n * k) as u64);
        group.throughput(if rows == 1 { Throughput::Bytes(bytes) } else { operations });
        let set = if isa == Isa::detect() { String::new() } else { format!(", {isa}") };
        group.bench_function(format!("{rows} rows on {threads}{set}"), |b| {
            b.iter(|| {
                let product = Product { weight: &weight, bias: None, onto: false, y: &mut y };
                multiply(&cpu, rows, codes.inputs(), &mut [product]);
            });
        });
    }
    group.finish();
}

#[cfg(not(target_arch = "x86_64"))]
fn ceiling(_: &mut Criterion) {}

#[cfg(target_arch = "x86_64")]
fn ceiling(c: &mut Criterion) {
    if !is_x86_feature_detected!("avx512f") {
        return;
    }
    let mut group = c.benchmark_group("ceiling, one thread");
    let far = values(FAR, 4);
    group.sample_size(10);
    group.throughput(Throughput::Bytes((FAR * size_of::<f32>()) as u64));
    // SAFETY: the processor has AVX-512F.
    #[allow(unsafe_code)]
    group.bench_function("memory read", |b| b.iter(|| unsafe { x86::read(black_box(&far)) }));
    let rounds = 20_000;
    group.throughput(Throughput::Elements((rounds * x86::SUMS * 16 * 2) as u64));
    // SAFETY: as above.
    #[allow(unsafe_code)]
    group.bench_function("multiply-add", |b| b.iter(|| unsafe { x86::multiply_add(black_box(rounds)) }));
    group.finish();
}

/// Loops that do one thing as fast as AVX-512 can.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// Sums in registers: enough to hide the latency of a multiply-add.
    pub(super) const SUMS: usize = 12;

    #[target_feature(enable = "avx512f")]
    pub(super) fn multiply_add(rounds: usize) -> f32 {
        let mut sums: [__m512; SUMS] = std::array::from_fn(|i| _mm512_set1_ps(i as f32));
        let (x, y) = (_mm512_set1_ps(0.999), _mm512_set1_ps(0.001));
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, x, y);
            }
        }
        sums.iter().map(|sum| _mm512_reduce_add_ps(*sum)).sum()
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn read(far: &[f32]) -> f32 {
        let mut most = [_mm512_setzero_ps(); 4];
        for line in far.chunks_exact(4 * 16) {
            for (most, x) in most.iter_mut().zip(line.chunks_exact(16)) {
                // SAFETY: 16 values.
                #[allow(unsafe_code)]
                let x = unsafe { _mm512_loadu_ps(x.as_ptr()) };
                *most = _mm512_max_ps(*most, x);
            }
        }
        most.iter().map(|most| _mm512_reduce_max_ps(*most)).sum()
    }
}

criterion_group!(benches, ceiling, products, prefill, decode);
criterion_main!(benches);
