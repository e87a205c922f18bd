//! How 32 rows of a block lie in memory: one after the other all that a kernel needs for them, so that a panel is read as
//! one stream.
//!
//! First, for each of the 32 outputs, the f16 that scales the block and, where there are minima, the f16 of its minimum.
//! Then the block's *tiles*, each 32 input features by 32 output features: its codes, and for the K formats the integers per
//! group that scales are multiplied with, `[groups][32]`, and the same for minima. Every part is a multiple of 64 bytes.
//!
//! The codes of a tile are 16 vectors of 64 bytes, vector `2s + h` holding inputs `4s .. 4s + 4` of outputs
//! `16h .. 16h + 16`, four bytes each: what an 8-bit dot-product instruction takes. Stored are their low four bits, two
//! vectors in one (`2s` and `2s + 2` in the low and high halves), then one plane per further bit, 64 bits per vector.
//! Eight-bit codes are stored as they are.
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
pub(super) const HALVES: usize = 2 * COLS;

/// Where the parts of a stored block are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Bytes before the first tile.
    pub(super) head: usize,
    /// Bytes of a tile's codes; factors follow.
    pub(super) codes: usize,
    /// Bytes from tile to tile.
    pub(super) tile: usize,
    /// Tiles of a block.
    pub(super) tiles: usize,
    /// Groups of a tile.
    per_tile: usize,
    mins: bool,
    factors: bool,
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
        let (kinds, per_tile) = (1 + usize::from(mins), TILE / group);
        let (head, codes) = (kinds * HALVES, TILE * COLS / 8 * bits);
        let tile = codes + if factors { kinds * per_tile * COLS } else { 0 };
        let tiles = BlockFormat::block_weights(factors) / TILE;
        Self { head, codes, tile, tiles, per_tile, mins, factors, bytes: head + tiles * tile }
    }

    /// Groups of a block.
    #[inline(always)]
    pub(super) fn groups(&self) -> usize {
        self.tiles * self.per_tile
    }

    /// What codes are multiplied with.
    #[inline(always)]
    pub(super) fn scales<'a>(&self, block: &'a [u8]) -> Numbers<'a> {
        self.numbers(block, 0)
    }

    /// What is added to each weight, in formats that have it.
    #[inline(always)]
    pub(super) fn mins<'a>(&self, block: &'a [u8]) -> Option<Numbers<'a>> {
        self.mins.then(|| self.numbers(block, 1))
    }

    #[inline(always)]
    fn numbers<'a>(&self, block: &'a [u8], kind: usize) -> Numbers<'a> {
        Numbers {
            halves: block[kind * HALVES..].first_chunk().expect("32 halves are stored: this is a bug"),
            tiles: &block[self.head..],
            first: self.factors.then_some(self.codes + kind * self.per_tile * COLS),
            tile: self.tile,
            per_tile: self.per_tile,
        }
    }

    /// The code of input `i` of the block, output `c`.
    pub(super) fn code(&self, block: &[u8], i: usize, c: usize) -> u8 {
        let tile = &block[self.head + i / TILE * self.tile..][..self.codes];
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
        let kinds = [(from.scale, &from.factors), (from.min, &from.min_factors)];
        for (kind, (number, integers)) in kinds.into_iter().enumerate().take(1 + usize::from(self.mins)) {
            block[kind * HALVES + 2 * c..][..2].copy_from_slice(&number.to_le_bytes());
            let tiles = block[self.head..].chunks_exact_mut(self.tile);
            for (tile, integers) in tiles.zip(integers.chunks_exact(self.per_tile)).filter(|_| self.factors) {
                for (part, &integer) in integers.iter().enumerate() {
                    tile[self.codes + (kind * self.per_tile + part) * COLS + c] = integer.cast_unsigned();
                }
            }
        }
    }
}

/// Where the codes of consecutive tiles are.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Tiles {
    start: *const u8,
    /// Bytes of a tile.
    tile: usize,
    /// Tiles that follow each other, and bytes until the next so many.
    run: (usize, usize),
}

#[cfg(target_arch = "x86_64")]
impl Tiles {
    /// As they are stored: `blocks` are whole blocks.
    pub(super) fn stored(layout: &Layout, blocks: &[u8]) -> Self {
        Self { start: blocks[layout.head..].as_ptr(), tile: layout.tile, run: (layout.tiles, layout.bytes) }
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
    /// The block's tiles.
    tiles: &'a [u8],
    /// Where a tile's factors are, if there are any.
    first: Option<usize>,
    /// Bytes from tile to tile.
    tile: usize,
    /// Groups of a tile.
    per_tile: usize,
}

impl<'a> Numbers<'a> {
    /// Signed bytes `[32 outputs]` to multiply the halves with for group `g`; none where the halves are the numbers.
    #[inline(always)]
    pub(super) fn factors(&self, g: usize) -> Option<&'a [u8; COLS]> {
        let at = self.first? + g / self.per_tile * self.tile + g % self.per_tile * COLS;
        Some(self.tiles[at..].first_chunk().expect("factors are stored for every group: this is a bug"))
    }

    /// The number of group `g`, output `c`.
    pub(super) fn get(&self, g: usize, c: usize) -> f32 {
        let factor = self.factors(g).map_or(1.0, |f| f32::from(f[c].cast_signed()));
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
