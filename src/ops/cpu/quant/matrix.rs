//! A quantised weight matrix, laid out for the kernels once at load, with as many bits per code as the file has (4 for
//! formats of 2 and 3 bits).
//!
//! Panels of 32 output features; a panel is a row of blocks, each as `stored.rs` says.

use std::{io, ops::Range};

use rayon::prelude::*;

use super::{
    blocks::{Block, BlockFormat},
    stored::{Layout, TILE, store_tile},
};
use crate::ops::cpu::{buffer::Buffer, tile::COLS};

/// A weight matrix `[n, k]` in one of the formats of GGUF.
pub struct QuantMatrix {
    n: usize,
    k: usize,
    format: BlockFormat,
    /// `[panels][k / block]` stored blocks.
    blocks: Buffer<u8>,
}

/// Why there is no matrix.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// `k` is no multiple of the block length.
    #[error("rows of {k} weights cannot be made of {format:?} blocks of {}", format.weights())]
    Width {
        /// Weights of a row.
        k: usize,
        /// The format.
        format: BlockFormat,
    },
    /// Its rows could not be read.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// There is no memory for it.
    #[error("{0}")]
    Memory(io::Error),
    /// A scale or minimum that is infinite or no number.
    #[error("row {row} has a scale that is not finite; the file is damaged")]
    NotFinite {
        /// Row of the matrix.
        row: usize,
    },
}

impl QuantMatrix {
    /// Packs an `[n, k]` matrix panel by panel; `read` writes the blocks of some rows, in order.
    ///
    /// # Errors
    /// When a row is not a whole number of blocks, when reading fails or there is no memory, or a scale is not finite.
    pub fn pack(
        format: BlockFormat,
        (n, k): (usize, usize),
        read: impl Fn(Range<usize>, &mut [u8]) -> io::Result<()> + Sync,
    ) -> Result<Self, PackError> {
        if !k.is_multiple_of(format.weights()) {
            return Err(PackError::Width { k, format });
        }
        let row_bytes = k / format.weights() * format.bytes();
        let panel_bytes = k / format.weights() * Layout::of(format).bytes;
        let mut blocks = Buffer::try_zeros(n.div_ceil(COLS) * panel_bytes).map_err(PackError::Memory)?;
        let panels = blocks.par_chunks_exact_mut(panel_bytes.max(1)).enumerate();
        panels.try_for_each_init(Vec::new, |bytes, (p, panel)| {
            let rows = p * COLS..n.min((p + 1) * COLS);
            bytes.resize(rows.len() * row_bytes, 0);
            read(rows.clone(), bytes)?;
            fill(panel, format, bytes, row_bytes)
                .map_err(|row| PackError::NotFinite { row: rows.start + row })
        })?;
        Ok(Self { n, k, format, blocks })
    }

    /// Output features.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }

    /// Input features.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// What the weights were stored as.
    #[must_use]
    pub fn format(&self) -> BlockFormat {
        self.format
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks.len()
    }

    /// Stored blocks `from ..` of panel `p`.
    pub(super) fn panel(&self, p: usize, from: usize) -> &[u8] {
        let (bytes, blocks) = (Layout::of(self.format).bytes, self.k / self.format.weights());
        &self.blocks[(p * blocks + from) * bytes..][..(blocks - from) * bytes]
    }

    /// Writes the weights of row `row` to `out` (`k` values): an embedding look-up, and the slow twin of the kernels.
    ///
    /// # Panics
    /// When there is no such row, or `out` has another length: a bug in the caller.
    pub fn copy_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.n && out.len() == self.k, "row {row} of {}: this is a bug", self.n);
        let (p, c) = (row / COLS, row % COLS);
        let (layout, zero) = (Layout::of(self.format), i32::from(self.format.zero()));
        let blocks = self.panel(p, 0).chunks_exact(layout.bytes);
        for (block, out) in blocks.zip(out.chunks_exact_mut(self.format.weights())) {
            let (scales, mins) = (layout.scales(block), layout.mins(block));
            for (i, w) in out.iter_mut().enumerate() {
                let g = i / self.format.group();
                let min = mins.map_or(0.0, |mins| mins.get(g, c));
                *w = scales.get(g, c) * (i32::from(layout.code(block, i, c)) - zero) as f32 + min;
            }
        }
    }
}

/// Fills a panel from the rows in `bytes`; what is left over stays zero. An error is the row of a scale that is not
/// finite.
fn fill(panel: &mut [u8], format: BlockFormat, bytes: &[u8], row_bytes: usize) -> Result<(), usize> {
    let layout = Layout::of(format);
    let mut block = Block::empty();
    let mut words = vec![[[0u32; COLS]; TILE / 4]; layout.tiles];
    for (b, stored) in panel.chunks_exact_mut(layout.bytes).enumerate() {
        for (c, row) in bytes.chunks_exact(row_bytes).enumerate() {
            format.read(&row[b * format.bytes()..][..format.bytes()], &mut block);
            if !(block.scale.is_finite() && block.min.is_finite()) {
                return Err(c);
            }
            for (tile, codes) in words.iter_mut().zip(block.codes.as_chunks::<TILE>().0) {
                for (step, four) in tile.iter_mut().zip(codes.as_chunks::<4>().0) {
                    step[c] = u32::from_le_bytes(*four);
                }
            }
            layout.set_numbers(stored, c, &block);
        }
        for (words, tile) in words.iter().zip(stored[layout.head..].chunks_exact_mut(layout.tile)) {
            store_tile(words.as_flattened(), format.bits(), &mut tile[..layout.codes]);
        }
    }
    Ok(())
}
