//! A quantised weight matrix, laid out for the kernels once at load, with as many bits per weight as the file has (4 for
//! formats of 2 and 3 bits).
//!
//! Panels of 32 output features; a panel is a row of *tiles*, each 32 input features by 32 output features. The codes of a
//! tile are 16 vectors of 64 bytes, vector `2s + h` holding inputs `4s .. 4s + 4` of outputs `16h .. 16h + 16`, four
//! bytes each: what an 8-bit dot-product instruction takes. Stored are their low four bits, two vectors in one (`2s`
//! and `2s + 2` in the low and high halves), then one plane per further bit, 64 bits per vector. Eight-bit codes are stored as they are.

use std::{io, ops::Range};

use half::f16;
use rayon::prelude::*;

use super::blocks::{Block, BlockFormat};
use crate::ops::cpu::{buffer::Buffer, tile::COLS};

/// Input features of a tile.
pub const TILE: usize = 32;
/// Bytes of one vector of codes.
pub const VECTOR: usize = 64;
/// Vectors of a tile.
pub const VECTORS: usize = TILE * COLS / VECTOR;

/// A weight matrix `[n, k]` in one of the formats of GGUF.
pub struct QuantMatrix {
    n: usize,
    k: usize,
    format: BlockFormat,
    /// `[panels][tiles]` of [`tile_bytes`] each.
    codes: Buffer<u8>,
    scales: Factors,
    mins: Option<Factors>,
}

/// A number per group of weights: an f16 per block, times an integer per group in the K formats.
struct Factors {
    /// `[panels][k / block][32]`.
    block: Buffer<f16>,
    /// `[panels][k / group][32]`; empty when the block's number is the group's.
    group: Buffer<i8>,
}

/// Bytes that a tile of `format` takes.
#[must_use]
pub fn tile_bytes(format: BlockFormat) -> usize {
    TILE * COLS / 8 * format.bits()
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
    Read(#[from] std::io::Error),
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
    /// When a row is not a whole number of blocks, when reading fails, or a scale is not finite.
    pub fn pack(
        format: BlockFormat,
        (n, k): (usize, usize),
        read: impl Fn(Range<usize>, &mut [u8]) -> io::Result<()> + Sync,
    ) -> Result<Self, PackError> {
        if !k.is_multiple_of(format.weights()) {
            return Err(PackError::Width { k, format });
        }
        let row_bytes = k / format.weights() * format.bytes();
        let panels = n.div_ceil(COLS);
        let (blocks, groups) = (k / format.weights(), k / format.group());
        let factors = || -> io::Result<Factors> {
            let group = if format.has_factors() { panels * groups * COLS } else { 0 };
            Ok(Factors {
                block: Buffer::try_zeros(panels * blocks * COLS)?,
                group: Buffer::try_zeros(group)?,
            })
        };
        let mut packed = Self {
            n,
            k,
            format,
            codes: Buffer::try_zeros(panels * (k / TILE) * tile_bytes(format))?,
            scales: factors()?,
            mins: format.has_min().then(factors).transpose()?,
        };
        let panels = packed.panels_mut().into_par_iter().enumerate();
        panels.try_for_each_init(Vec::new, |bytes, (p, mut panel)| {
            let rows = p * COLS..n.min((p + 1) * COLS);
            bytes.resize(rows.len() * row_bytes, 0);
            read(rows.clone(), bytes)?;
            let row = panel.fill(format, bytes, row_bytes);
            row.map_err(|row| PackError::NotFinite { row: rows.start + row })
        })?;
        Ok(packed)
    }

    fn panels_mut(&mut self) -> Vec<PanelMut<'_>> {
        let (blocks, groups) = (self.k / self.format.weights(), self.k / self.format.group());
        let mut panels: Vec<PanelMut<'_>> = self
            .codes
            .chunks_exact_mut((self.k / TILE * tile_bytes(self.format)).max(1))
            .map(|codes| PanelMut { codes, scales: FactorsMut::default(), mins: None })
            .collect();
        for (panel, scales) in panels.iter_mut().zip(self.scales.panels_mut(blocks, groups)) {
            panel.scales = scales;
        }
        if let Some(mins) = &mut self.mins {
            for (panel, mins) in panels.iter_mut().zip(mins.panels_mut(blocks, groups)) {
                panel.mins = Some(mins);
            }
        }
        panels
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
        let factors = |f: &Factors| f.block.len() * 2 + f.group.len();
        self.codes.len() + factors(&self.scales) + self.mins.as_ref().map_or(0, factors)
    }

    /// Codes of tiles `from ..` of panel `p`.
    #[must_use]
    pub(super) fn tiles(&self, p: usize, from: usize) -> &[u8] {
        let (bytes, tiles) = (tile_bytes(self.format), self.k / TILE);
        &self.codes[(p * tiles + from) * bytes..][..(tiles - from) * bytes]
    }

    /// Scales of `groups` (whole blocks) of panel `p`.
    #[must_use]
    pub(super) fn scales(&self, p: usize, groups: Range<usize>) -> GroupNumbers<'_> {
        self.scales.of(p, groups, self)
    }

    /// As [`Self::scales`] for the minima, in formats that have them.
    #[must_use]
    pub(super) fn mins(&self, p: usize, groups: Range<usize>) -> Option<GroupNumbers<'_>> {
        self.mins.as_ref().map(|mins| mins.of(p, groups, self))
    }

    /// Writes the weights of row `row` to `out` (`k` values): an embedding look-up, and the slow twin of the kernels.
    ///
    /// # Panics
    /// When there is no such row, or `out` has another length: a bug in the caller.
    pub fn copy_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.n && out.len() == self.k, "row {row} of {}: this is a bug", self.n);
        let (p, c) = (row / COLS, row % COLS);
        let (group, zero) = (self.format.group(), i32::from(self.format.zero()));
        let all = 0..self.k / group;
        let (scales, mins) = (self.scales(p, all.clone()), self.mins(p, all));
        for (g, out) in out.chunks_exact_mut(group).enumerate() {
            let scale = scales.number(g, c);
            let min = mins.as_ref().map_or(0.0, |mins| mins.number(g, c));
            for (i, w) in out.iter_mut().enumerate() {
                let i = g * group + i;
                let code =
                    code(&self.tiles(p, i / TILE)[..tile_bytes(self.format)], self.format, i % TILE, c);
                *w = scale * (i32::from(code) - zero) as f32 + min;
            }
        }
    }
}

/// A number per group and output, for a run of groups.
#[derive(Clone, Copy)]
pub(super) struct GroupNumbers<'a> {
    /// `[blocks][32 outputs]`.
    pub(super) blocks: &'a [[f16; COLS]],
    /// `[groups][32 outputs]` to multiply the block's number with; empty when that is the group's.
    pub(super) factors: &'a [[i8; COLS]],
    /// Groups of a block.
    pub(super) groups_per_block: usize,
}

impl GroupNumbers<'_> {
    /// The number of group `g`, output `c`.
    fn number(&self, g: usize, c: usize) -> f32 {
        let factor = self.factors.get(g).map_or(1.0, |f| f32::from(f[c]));
        self.blocks[g / self.groups_per_block][c].to_f32() * factor
    }
}

impl Factors {
    fn of(&self, p: usize, groups: Range<usize>, m: &QuantMatrix) -> GroupNumbers<'_> {
        let (n_blocks, n_groups, groups_per_block) =
            (m.k / m.format.weights(), m.k / m.format.group(), m.format.groups());
        let blocks = groups.start / groups_per_block..groups.end.div_ceil(groups_per_block);
        let factors = self.group.as_chunks().0;
        GroupNumbers {
            blocks: &self.block.as_chunks().0[p * n_blocks..][blocks],
            factors: if factors.is_empty() { factors } else { &factors[p * n_groups..][groups] },
            groups_per_block,
        }
    }

    fn panels_mut(&mut self, blocks: usize, groups: usize) -> Vec<FactorsMut<'_>> {
        let mut group = self.group.chunks_exact_mut((groups * COLS).max(1));
        let block = self.block.chunks_exact_mut((blocks * COLS).max(1));
        block.map(|block| FactorsMut { block, group: group.next().unwrap_or_default() }).collect()
    }
}

/// The code of input `i`, output `c` of a stored tile.
fn code(tile: &[u8], format: BlockFormat, i: usize, c: usize) -> u8 {
    let (vector, byte) = (i / 4 * 2 + c / 16, c % 16 * 4 + i % 4);
    if format.bits() == 8 {
        return tile[vector * VECTOR + byte];
    }
    let (step, half) = (vector / 2, vector % 2);
    let mut code = tile[(step / 2 * 2 + half) * VECTOR + byte] >> (step % 2 * 4) & 0xf;
    for bit in 4..format.bits() {
        let plane = &tile[512 + (bit - 4) * 128..][..128];
        code |= (plane[vector * 8 + byte / 8] >> (byte % 8) & 1) << bit;
    }
    code
}

#[derive(Default)]
struct FactorsMut<'a> {
    block: &'a mut [f16],
    group: &'a mut [i8],
}

impl FactorsMut<'_> {
    fn set(&mut self, b: usize, c: usize, number: f16, factors: &[i8]) {
        self.block[b * COLS + c] = number;
        if !self.group.is_empty() {
            for (g, &factor) in factors.iter().enumerate() {
                self.group[(b * factors.len() + g) * COLS + c] = factor;
            }
        }
    }
}

struct PanelMut<'a> {
    codes: &'a mut [u8],
    scales: FactorsMut<'a>,
    mins: Option<FactorsMut<'a>>,
}

impl PanelMut<'_> {
    /// Fills the panel from the rows in `bytes`; what is left over stays zero. An error is the row of a scale that is not
    /// finite.
    fn fill(&mut self, format: BlockFormat, bytes: &[u8], row_bytes: usize) -> Result<(), usize> {
        let (groups, tiles) = (format.groups(), format.weights() / TILE);
        let mut block = Block::empty();
        let mut words = vec![[[0u32; COLS]; TILE / 4]; tiles];
        for (b, stored) in self.codes.chunks_exact_mut(tiles * tile_bytes(format)).enumerate() {
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
                self.scales.set(b, c, block.scale, &block.factors[..groups]);
                if let Some(mins) = &mut self.mins {
                    mins.set(b, c, block.min, &block.min_factors[..groups]);
                }
            }
            for (words, stored) in words.iter().zip(stored.chunks_exact_mut(tile_bytes(format))) {
                store_tile(words.as_flattened(), format.bits(), stored);
            }
        }
        Ok(())
    }
}

/// Writes a tile's codes, `[8 steps][32 outputs]` words of four codes, the way they are kept.
fn store_tile(words: &[u32], bits: usize, to: &mut [u8]) {
    let vectors = words.as_chunks::<16>().0;
    if bits == 8 {
        for (word, to) in words.iter().zip(to.as_chunks_mut::<4>().0) {
            *to = word.to_le_bytes();
        }
        return;
    }
    let (low, planes) = to.split_at_mut(512);
    for (v, to) in low.as_chunks_mut::<VECTOR>().0.iter_mut().enumerate() {
        let first = v / 2 * 4 + v % 2;
        for ((a, b), to) in vectors[first].iter().zip(&vectors[first + 2]).zip(to.as_chunks_mut::<4>().0) {
            *to = (a & 0x0f0f_0f0f | (b & 0x0f0f_0f0f) << 4).to_le_bytes();
        }
    }
    for (bit, plane) in (4..bits).zip(planes.chunks_exact_mut(128)) {
        for (vector, plane) in vectors.iter().zip(plane.as_chunks_mut::<8>().0) {
            let mut set = 0u64;
            for (lane, word) in vector.iter().enumerate() {
                // the four bits move next to each other in the top byte
                let four = (word >> bit & 0x0101_0101).wrapping_mul(0x0102_0408) >> 24 & 0xf;
                set |= u64::from(four) << (lane * 4);
            }
            *plane = set.to_le_bytes();
        }
    }
}
