//! How 32 rows of a block lie in memory: one after the other all that a kernel needs for them, so that a panel is read as
//! one stream.
//!
//! First the block's *tiles*, each 32 input features by 32 output features. The codes of a tile are 16 vectors of 64
//! bytes, vector `2s + h` holding inputs `4s .. 4s + 4` of outputs `16h .. 16h + 16`, four bytes each: what an 8-bit
//! dot-product instruction takes. Stored are their low four bits, two vectors in one (`2s` and `2s + 2` in the low and
//! high halves), then one plane per further bit, 64 bits per vector. Eight-bit codes are stored as they are.
//!
//! Then, for each of the 32 outputs, the f16 that scales the block, the f16 of its minimum, and for the K formats the
//! integers per group that these are multiplied with: `[groups][32]` for scales, the same for minima. Every part is a multiple
//! of 64 bytes.
//!
//! Knows no matrix. Tests: `tests.rs`.

use half::f16;

use super::blocks::{Block, BlockFormat};
use crate::ops::cpu::tile::COLS;

/// Input features of a tile.
pub(super) const TILE: usize = 32;
/// Bytes of one vector of codes.
pub(super) const VECTOR: usize = 64;
/// Vectors of a tile.
pub(super) const VECTORS: usize = TILE * COLS / VECTOR;
/// Bytes of an f16 per output.
const HALVES: usize = 2 * COLS;

/// Where the parts of a stored block are, in bytes from its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Bytes of a tile.
    pub(super) tile: usize,
    /// Tiles of a block.
    pub(super) tiles: usize,
    /// Groups of a block.
    groups: usize,
    /// The block's minimum, where the format has minima.
    min: Option<usize>,
    /// Factors of the scales, in the K formats.
    factors: Option<usize>,
    /// Bytes of all.
    pub(super) bytes: usize,
}

impl Layout {
    pub(super) fn of(format: BlockFormat) -> Self {
        Self::new(format.bits(), format.group(), format.has_min(), format.has_factors())
    }

    /// Of a format with these bits per code, weights per group, minima or none, factors or none.
    #[inline(always)]
    pub(super) fn new(bits: usize, group: usize, mins: bool, factors: bool) -> Self {
        let (tile, weights) = (TILE * COLS / 8 * bits, BlockFormat::block_weights(factors));
        let (tiles, groups) = (weights / TILE, weights / group);
        let halves = tile * tiles;
        let min = mins.then_some(halves + HALVES);
        let integers = min.unwrap_or(halves) + HALVES;
        let kinds = if mins { 2 } else { 1 };
        let (factors, bytes) = match factors {
            true => (Some(integers), integers + kinds * groups * COLS),
            false => (None, integers),
        };
        Self { tile, tiles, groups, min, factors, bytes }
    }

    /// What codes are multiplied with.
    #[inline(always)]
    pub(super) fn scales<'a>(&self, block: &'a [u8]) -> Numbers<'a> {
        self.numbers(block, self.tile * self.tiles, self.factors)
    }

    /// What is added to each weight, in formats that have it.
    #[inline(always)]
    pub(super) fn mins<'a>(&self, block: &'a [u8]) -> Option<Numbers<'a>> {
        let factors = self.factors.map(|at| at + self.groups * COLS);
        self.min.map(|at| self.numbers(block, at, factors))
    }

    #[inline(always)]
    fn numbers<'a>(&self, block: &'a [u8], halves: usize, factors: Option<usize>) -> Numbers<'a> {
        Numbers {
            halves: block[halves..].first_chunk().expect("32 halves are stored: this is a bug"),
            factors: factors.map_or(&[], |at| block[at..][..self.groups * COLS].as_chunks().0),
        }
    }

    /// The code of input `i` of the block, output `c`.
    pub(super) fn code(&self, block: &[u8], i: usize, c: usize) -> u8 {
        let tile = &block[i / TILE * self.tile..][..self.tile];
        let i = i % TILE;
        let (vector, byte) = (i / 4 * 2 + c / 16, c % 16 * 4 + i % 4);
        if tile.len() == VECTORS * VECTOR {
            return tile[vector * VECTOR + byte];
        }
        let (step, half) = (vector / 2, vector % 2);
        let mut code = tile[(step / 2 * 2 + half) * VECTOR + byte] >> (step % 2 * 4) & 0xf;
        for (bit, plane) in (4..).zip(tile[512..].as_chunks::<128>().0) {
            code |= (plane[vector * 8 + byte / 8] >> (byte % 8) & 1) << bit;
        }
        code
    }

    /// Stores the numbers of output `c`; its codes are [`store_tile`]'s.
    pub(super) fn set_numbers(&self, block: &mut [u8], c: usize, from: &Block) {
        let mut put = |halves: usize, factors: Option<usize>, number: f16, integers: &[i8]| {
            block[halves + 2 * c..][..2].copy_from_slice(&number.to_le_bytes());
            if let Some(at) = factors {
                for (g, &factor) in integers[..self.groups].iter().enumerate() {
                    block[at + g * COLS + c] = factor.cast_unsigned();
                }
            }
        };
        put(self.tile * self.tiles, self.factors, from.scale, &from.factors);
        if let Some(min) = self.min {
            put(min, self.factors.map(|at| at + self.groups * COLS), from.min, &from.min_factors);
        }
    }
}

/// Where the codes of consecutive tiles are.
#[derive(Clone, Copy)]
pub(super) struct Tiles {
    start: *const u8,
    /// Bytes of a tile.
    tile: usize,
    /// Tiles that follow each other, and bytes until the next so many.
    run: (usize, usize),
}

impl Tiles {
    /// As they are stored: `blocks` are whole blocks.
    pub(super) fn stored(layout: &Layout, blocks: &[u8]) -> Self {
        Self { start: blocks.as_ptr(), tile: layout.tile, run: (layout.tiles, layout.bytes) }
    }

    /// Expanded, one byte per code.
    pub(super) fn expanded(codes: &[[[u8; VECTOR]; VECTORS]]) -> Self {
        Self { start: codes.as_ptr().cast(), tile: VECTORS * VECTOR, run: (codes.len().max(1), 0) }
    }

    /// Codes of tile `i`, if there are so many: to be read by who knows that.
    #[inline(always)]
    pub(super) fn at(self, i: usize) -> *const u8 {
        let (tiles, bytes) = self.run;
        self.start.wrapping_add(i / tiles * bytes + i % tiles * self.tile)
    }
}

/// A number per output for each group of a block.
#[derive(Clone, Copy)]
pub(super) struct Numbers<'a> {
    /// `[32 outputs]` f16, little endian.
    pub(super) halves: &'a [u8; HALVES],
    /// `[groups][32 outputs]` signed bytes to multiply the half with; empty when that is the group's number.
    pub(super) factors: &'a [[u8; COLS]],
}

impl Numbers<'_> {
    /// The number of group `g`, output `c`.
    pub(super) fn get(&self, g: usize, c: usize) -> f32 {
        let factor = self.factors.get(g).map_or(1.0, |f| f32::from(f[c].cast_signed()));
        self.half(c).to_f32() * factor
    }

    /// The half of output `c`.
    #[inline(always)]
    pub(super) fn half(&self, c: usize) -> f16 {
        f16::from_le_bytes([self.halves[2 * c], self.halves[2 * c + 1]])
    }
}

/// Writes a tile's codes, `[8 steps][32 outputs]` words of four codes, the way they are kept.
pub(super) fn store_tile(words: &[u32], bits: usize, to: &mut [u8]) {
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
