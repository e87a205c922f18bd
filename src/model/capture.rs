//! Keeps the query vectors of chosen heads at chosen rows while a forward pass runs.
//!
//! The attention kernel is left alone: a layer hands over its (post-norm, post-RoPE) queries, a few rows are copied
//! out, and the attention rows are read from the paged K after the pass (`ops::attn_rows`).

use super::batch::{Batch, Output};

/// Query vectors of one item in one layer.
#[derive(Debug)]
pub struct Captured {
    /// The item in the batch.
    pub item: usize,
    /// The layer.
    pub layer: usize,
    /// Indices into the item's `heads`, for the ones in this layer.
    pub heads: Vec<usize>,
    /// `[reads, heads, head_dim]`, reads in the item's order.
    pub queries: Vec<f32>,
}

/// What a pass has captured so far.
#[derive(Debug, Default)]
pub struct Capture {
    captured: Vec<Captured>,
}

impl Capture {
    /// The heads that item `i` wants from `layer`: indices into its list, and head numbers.
    fn wanted(batch: &Batch, i: usize, layer: usize) -> Option<(&[usize], Vec<usize>, Vec<usize>)> {
        let Output::Queries { reads, heads } = &batch.items()[i].output else { return None };
        let here = heads.iter().enumerate().filter(|(_, h)| usize::from(h.layer) == layer);
        let (indices, numbers): (Vec<usize>, Vec<usize>) =
            here.map(|(i, h)| (i, usize::from(h.head))).unzip();
        (!indices.is_empty() && !reads.is_empty()).then_some((reads, indices, numbers))
    }

    /// Rows of the batch whose queries are wanted of item `i` in `layer`.
    #[must_use]
    pub fn rows(batch: &Batch, i: usize, layer: usize) -> Vec<usize> {
        let start = batch.rows(i).start;
        Self::wanted(batch, i, layer)
            .map_or_else(Vec::new, |(reads, ..)| reads.iter().map(|r| start + r).collect())
    }

    /// Takes what item `i` wants from its read rows in this layer; `row(r)` is `[n_heads, head_dim]` of read `r`.
    pub fn take<'a>(
        &mut self,
        batch: &Batch,
        i: usize,
        layer: usize,
        head_dim: usize,
        row: impl Fn(usize) -> &'a [f32],
    ) {
        if let Some((reads, heads, numbers)) = Self::wanted(batch, i, layer) {
            let mut queries = Vec::with_capacity(reads.len() * heads.len() * head_dim);
            for r in 0..reads.len() {
                for head in &numbers {
                    queries.extend_from_slice(&row(r)[head * head_dim..][..head_dim]);
                }
            }
            self.captured.push(Captured { item: i, layer, heads, queries });
        }
    }

    /// Everything captured.
    #[must_use]
    pub fn into_captured(self) -> Vec<Captured> {
        self.captured
    }
}
