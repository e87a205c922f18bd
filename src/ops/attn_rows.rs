//! Attention rows of chosen heads at chosen read positions, restricted to the candidate tokens, from paged K.
//!
//! Reads nothing but query vectors and the K pool, so it does not care whether the keys were written in this
//! step, by an earlier prefill chunk, or long ago and found through the prefix cache.

use super::cpu::{
    Cpu, Isa,
    attention::{KvNumber, PageLayout},
    disjoint::Disjoint,
    tile::{COLS, Lhs, Start, tile},
};
use crate::ids::{BLOCK_SIZE, BlockId, Span};

/// What to read.
#[derive(Clone, Debug)]
pub struct RowQuery<'a> {
    /// KV head that each captured query head reads.
    pub kv_heads: &'a [usize],
    /// The sequence's blocks.
    pub table: &'a [BlockId],
    /// Token positions of the candidates: ascending, disjoint, all visible to every read position.
    pub candidates: &'a [Span],
}

/// `q [n_reads, heads, head_dim]` (after RoPE) → `â_h(p, t) = softmax over the candidates of q·k_t / sqrt(head_dim)`,
/// flat `[n_reads][heads][n_candidates]`. Tokens outside the candidates cancel in the restricted row, so they are
/// never read. Scores in f32, exponentials and their sum in f64 with the maximum subtracted.
pub(super) fn read_rows<T: KvNumber>(
    cpu: &Cpu,
    q: &[f32],
    k_pool: &[T],
    layout: PageLayout,
    query: &RowQuery<'_>,
) -> Vec<f32> {
    assert!(query.kv_heads.iter().all(|&h| h < layout.n_kv_heads), "a KV head too many: this is a bug");
    let heads = query.kv_heads.len();
    let candidates: usize = query.candidates.iter().map(|s| s.len()).sum();
    let rows = q.len() / layout.head_dim;
    let mut out = vec![0f32; rows * candidates];
    let parts = Disjoint::new(&mut out);
    cpu.parallel(rows, |row| {
        // SAFETY: each row belongs to one task.
        #[allow(unsafe_code)]
        let out = unsafe { parts.part(row * candidates, candidates) };
        let q = &q[row * layout.head_dim..][..layout.head_dim];
        logits(cpu.isa(), q, (k_pool, layout), query.kv_heads[row % heads], query, out);
        softmax(out);
    });
    out
}

/// `q · k_t / sqrt(head_dim)` at every candidate position, in order.
fn logits<T: KvNumber>(
    isa: Isa,
    q: &[f32],
    (pool, layout): (&[T], PageLayout),
    kv_head: usize,
    query: &RowQuery<'_>,
    out: &mut [f32],
) {
    let scale = (layout.head_dim as f32).sqrt().recip();
    let mut scores = [0f32; COLS];
    let (mut loaded, mut widened) = (usize::MAX, Vec::new());
    let positions = query.candidates.iter().flat_map(|s| s.range());
    for (t, out) in positions.zip(out) {
        let block = t / BLOCK_SIZE;
        if block != loaded {
            let page = T::widened(layout.k_of(pool, query.table[block], kv_head), &mut widened);
            let q = Lhs { data: q, stride: q.len(), rows: 1, len: q.len() };
            tile(isa, q, page, &mut scores, COLS, Start::Zero);
            loaded = block;
        }
        *out = scores[t % BLOCK_SIZE] * scale;
    }
}

/// Softmax in place.
fn softmax(row: &mut [f32]) {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exp = |l: f32| f64::from(l - max).exp();
    let sum: f64 = row.iter().map(|&l| exp(l)).sum();
    for l in row {
        *l = (exp(*l) / sum) as f32;
    }
}
