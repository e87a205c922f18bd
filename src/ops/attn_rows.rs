//! Attention rows of chosen heads at chosen read positions, restricted to the candidate tokens, from paged K.
//!
//! Reads nothing but query vectors and the K pool, so it does not care whether the keys were written in this
//! step, by an earlier prefill chunk, or long ago and found through the prefix cache.

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};

use super::{
    cpu::{
        Isa,
        attention::PageLayout,
        tile::{COLS, Lhs, Start, tile},
    },
    f32_slice,
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
pub(super) fn read_rows(
    q: &Tensor,
    k_pool: &Tensor,
    layout: PageLayout,
    query: &RowQuery<'_>,
) -> Result<Vec<f32>> {
    let (_, heads, head_dim) = q.dims3()?;
    if heads != query.kv_heads.len()
        || head_dim != layout.head_dim
        || query.kv_heads.iter().any(|&h| h >= layout.n_kv_heads)
    {
        bail!("attention rows: q {:?}, KV heads {:?} of {layout:?}", q.shape(), query.kv_heads);
    }
    q.apply_op2_no_bwd(k_pool, &ReadRows { layout, query })?.flatten_all()?.to_vec1()
}

struct ReadRows<'a> {
    layout: PageLayout,
    query: &'a RowQuery<'a>,
}

impl CustomOp2 for ReadRows<'_> {
    fn name(&self) -> &'static str {
        "attention rows"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        q_layout: &Layout,
        k: &CpuStorage,
        k_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (q, k) = (f32_slice(q, q_layout, self.name())?, f32_slice(k, k_layout, self.name())?);
        let (reads, heads) = (q_layout.dims()[0], self.query.kv_heads.len());
        let candidates: usize = self.query.candidates.iter().map(|s| s.len()).sum();
        let mut out = Vec::with_capacity(reads * heads * candidates);
        for (row, q) in q.chunks_exact(self.layout.head_dim).enumerate() {
            let logits = self.logits(q, k, self.query.kv_heads[row % heads]);
            out.extend(softmax(&logits));
        }
        Ok((CpuStorage::F32(out), Shape::from((reads, heads, candidates))))
    }
}

impl ReadRows<'_> {
    /// `q · k_t / sqrt(head_dim)` at every candidate position, in order.
    fn logits(&self, q: &[f32], pool: &[f32], kv_head: usize) -> Vec<f32> {
        let scale = (self.layout.head_dim as f32).sqrt().recip();
        let mut logits = Vec::new();
        let mut scores = [0f32; COLS];
        let mut loaded = usize::MAX;
        for span in self.query.candidates {
            for t in span.range() {
                let block = t / BLOCK_SIZE;
                if block != loaded {
                    let page = self.layout.k_of(pool, self.query.table[block], kv_head);
                    let q = Lhs { data: q, stride: q.len(), rows: 1, len: q.len() };
                    tile(Isa::detect(), q, page, &mut scores, COLS, Start::Zero);
                    loaded = block;
                }
                logits.push(scores[t % BLOCK_SIZE] * scale);
            }
        }
        logits
    }
}

fn softmax(logits: &[f32]) -> impl Iterator<Item = f32> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exps: Vec<f64> = logits.iter().map(|&l| f64::from(l - max).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.into_iter().map(move |e| (e / sum) as f32)
}
