//! Attention rows of chosen heads at chosen read positions, restricted to the candidate tokens, from paged K.
//!
//! Reads nothing but query vectors and the K pool, so it does not care whether the keys were written in this
//! step, by an earlier prefill chunk, or long ago and found through the prefix cache.
//!
//! The whole attention row of a read position is its restricted row times the *share* of the attention that goes to the
//! candidates at all, so shares are all that is computed besides. Tests: `tests/ops.rs`, against `reference.rs`.

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
    /// Tokens that each read sees, its own included, where shares are wanted: `[n_reads]`.
    pub visible: Option<&'a [usize]>,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttentionRows {
    /// Rows restricted to the candidates, `[n_reads][heads][n_candidates]`; each sums to 1.
    pub rows: Vec<f32>,
    /// The share of each read's attention that goes to the candidates, `[n_reads][heads]`, in `[0, 1]`; empty where not
    /// wanted.
    pub shares: Vec<f32>,
}

/// `q [n_reads, heads, head_dim]` (after RoPE) → `â_h(p, t) = softmax over the candidates of q·k_t / sqrt(head_dim)`.
/// Tokens outside the candidates cancel in the restricted row, so they are read only where shares are wanted:
/// `Σ_{t∈C} exp(l_t) / Σ_{t≤p} exp(l_t)`. Scores in f32, exponentials and their sums in f64 with the maximum subtracted.
pub(super) fn read_rows<T: KvNumber>(
    cpu: &Cpu,
    q: &[f32],
    k_pool: &[T],
    layout: PageLayout,
    query: &RowQuery<'_>,
) -> AttentionRows {
    assert!(query.kv_heads.iter().all(|&h| h < layout.n_kv_heads), "a KV head too many: this is a bug");
    let heads = query.kv_heads.len();
    let candidates: usize = query.candidates.iter().map(|s| s.len()).sum();
    let rows = q.len() / layout.head_dim;
    let mut out = AttentionRows {
        rows: vec![0f32; rows * candidates],
        shares: vec![0f32; if query.visible.is_some() { rows } else { 0 }],
    };
    let (parts, shares) = (Disjoint::new(&mut out.rows), Disjoint::new(&mut out.shares));
    cpu.parallel(rows, |row| {
        // SAFETY: each row belongs to one task.
        #[allow(unsafe_code)]
        let out = unsafe { parts.part(row * candidates, candidates) };
        let keys = Keys {
            isa: cpu.isa(),
            q: &q[row * layout.head_dim..][..layout.head_dim],
            pool: k_pool,
            layout,
            kv_head: query.kv_heads[row % heads],
            table: query.table,
        };
        keys.logits(query.candidates.iter().flat_map(|s| s.range()), out);
        if let Some(visible) = query.visible {
            let of_candidates = log_sum_exp(out);
            let mut all = vec![0f32; visible[row / heads]];
            keys.logits(0..all.len(), &mut all);
            // SAFETY: likewise.
            #[allow(unsafe_code)]
            let share = unsafe { shares.part(row, 1) };
            let exact = (of_candidates - log_sum_exp(&all)).exp();
            // rounding may carry it past 1; a NaN stays one, for whoever checks the rows
            share[0] = if exact > 1.0 { 1.0 } else { exact as f32 };
        }
        softmax(out);
    });
    out
}

/// One query vector, and the keys it is held against.
struct Keys<'a, T> {
    isa: Isa,
    q: &'a [f32],
    pool: &'a [T],
    layout: PageLayout,
    kv_head: usize,
    table: &'a [BlockId],
}

impl<T: KvNumber> Keys<'_, T> {
    /// `q · k_t / sqrt(head_dim)` at every position, in order.
    fn logits(&self, positions: impl Iterator<Item = usize>, out: &mut [f32]) {
        let scale = (self.layout.head_dim as f32).sqrt().recip();
        let mut scores = [0f32; COLS];
        let (mut loaded, mut widened) = (usize::MAX, Vec::new());
        for (t, out) in positions.zip(out) {
            let block = t / BLOCK_SIZE;
            if block != loaded {
                let page = self.layout.k_of(self.pool, self.table[block], self.kv_head);
                let q = Lhs { data: self.q, stride: self.q.len(), rows: 1, len: self.q.len() };
                tile(self.isa, q, T::widened(page, &mut widened), &mut scores, COLS, Start::Zero);
                loaded = block;
            }
            *out = scores[t % BLOCK_SIZE] * scale;
        }
    }
}

/// `ln Σ exp(l)`; minus infinity for none.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&l| f64::from(l - max).exp()).sum();
    f64::from(max) + sum.ln()
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
