//! Where K and V of a token are in the pages of a layer.

use crate::{
    ids::{BLOCK_SIZE, BlockId},
    ops::cpu::tile::COLS,
};

// a page of the kernels is a block of the scheduler
const _: () = assert!(BLOCK_SIZE == COLS);

/// Where things are inside the K and the V pool of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    /// KV heads.
    pub n_kv_heads: usize,
    /// Size of one head.
    pub head_dim: usize,
}

impl PageLayout {
    /// Head size rounded up to whole panels.
    #[must_use]
    pub fn padded_dim(self) -> usize {
        self.head_dim.next_multiple_of(COLS)
    }

    /// Values of one K page and one V page of one head.
    #[must_use]
    pub fn pages_of_a_head(self) -> (usize, usize) {
        (self.head_dim * COLS, self.padded_dim() * COLS)
    }

    /// Values of one K page over all heads.
    #[must_use]
    pub fn k_page(self) -> usize {
        self.n_kv_heads * self.head_dim * COLS
    }

    /// Values of one V page over all heads.
    #[must_use]
    pub fn v_page(self) -> usize {
        self.n_kv_heads * self.padded_dim() * COLS
    }

    /// K of one head in one page: `[head_dim][32]`.
    #[must_use]
    pub fn k_of<T>(self, pool: &[T], block: BlockId, kv_head: usize) -> &[T] {
        let len = self.head_dim * COLS;
        &pool[block.0 as usize * self.k_page() + kv_head * len..][..len]
    }

    /// V of one head in one page: panels of `[32 keys][32]`.
    #[must_use]
    pub fn v_of<T>(self, pool: &[T], block: BlockId, kv_head: usize) -> &[T] {
        let len = self.padded_dim() * COLS;
        &pool[block.0 as usize * self.v_page() + kv_head * len..][..len]
    }

    /// Writes one token's K `[n_kv_heads, head_dim]` to slot `slot` of `block`.
    pub fn write_k<T: Copy>(self, pool: &mut [T], block: BlockId, slot: usize, k: &[T]) {
        let page = &mut pool[block.0 as usize * self.k_page()..][..self.k_page()];
        for (value, column) in k.iter().zip(page[slot..].iter_mut().step_by(COLS)) {
            *column = *value;
        }
    }

    /// Writes one token's V `[n_kv_heads, head_dim]` to slot `slot` of `block`.
    pub fn write_v<T: Copy>(self, pool: &mut [T], block: BlockId, slot: usize, v: &[T]) {
        let page = &mut pool[block.0 as usize * self.v_page()..][..self.v_page()];
        for (head, head_page) in
            v.chunks_exact(self.head_dim).zip(page.chunks_exact_mut(self.padded_dim() * COLS))
        {
            for (part, panel) in head.chunks(COLS).zip(head_page.chunks_exact_mut(COLS * COLS)) {
                panel[slot * COLS..][..part.len()].copy_from_slice(part);
            }
        }
    }
}
