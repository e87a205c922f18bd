//! Keeps the query vectors of chosen heads at chosen rows while a forward pass runs.
//!
//! The attention kernel is left alone: a layer hands over its (post-norm, post-RoPE) queries, a few rows are copied
//! out, and the attention rows are read from the paged K after the pass (`ops::attn_rows`).

use candle_core::{Result, Tensor};

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
    pub queries: Tensor,
}

/// What a pass has captured so far.
#[derive(Debug, Default)]
pub struct Capture {
    captured: Vec<Captured>,
}

impl Capture {
    /// The heads that item `i` wants from `layer`: indices into its list, and head numbers.
    fn wanted(batch: &Batch, i: usize, layer: usize) -> Option<(&[usize], Vec<usize>, Vec<u32>)> {
        let Output::Queries { reads, heads } = &batch.items()[i].output else { return None };
        let here = heads.iter().enumerate().filter(|(_, h)| usize::from(h.layer) == layer);
        let (indices, numbers): (Vec<usize>, Vec<u32>) = here.map(|(i, h)| (i, u32::from(h.head))).unzip();
        (!indices.is_empty() && !reads.is_empty()).then_some((reads, indices, numbers))
    }

    /// Rows of the batch whose queries are wanted of item `i` in `layer`.
    #[must_use]
    pub fn rows(batch: &Batch, i: usize, layer: usize) -> Vec<u32> {
        let start = batch.rows(i).start;
        Self::wanted(batch, i, layer)
            .map_or_else(Vec::new, |(reads, ..)| reads.iter().map(|r| (start + r) as u32).collect())
    }

    /// Takes what item `i` wants from `queries [reads, n_heads, head_dim]`, its read rows in this layer.
    pub fn take(&mut self, batch: &Batch, i: usize, layer: usize, queries: &Tensor) -> Result<()> {
        if let Some((_, heads, numbers)) = Self::wanted(batch, i, layer) {
            let numbers = Tensor::new(numbers, queries.device())?;
            let queries = queries.index_select(&numbers, 1)?.contiguous()?;
            self.captured.push(Captured { item: i, layer, heads, queries });
        }
        Ok(())
    }

    /// Everything captured.
    #[must_use]
    pub fn into_captured(self) -> Vec<Captured> {
        self.captured
    }
}
