//! The quantised block formats of GGUF files, read block by block into codes, scales and minima.
//!
//! Every format says `w = scale · (code - zero) + min`, with `code` an unsigned integer of at most 8 bits and a scale
//! (and, in some, a minimum) per group of 16 or 32 weights. The "K" formats keep one f16 per 256 weights and an
//! integer per group to multiply it with. Layouts: ggml's `ggml-common.h` and `dequantize_row_*`.

use half::f16;

/// A quantised block format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum BlockFormat {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
}

/// One block, decoded. Only the first [`BlockFormat::weights`] codes, and a factor per [`BlockFormat::group`] of them, mean
/// something.
#[derive(Clone, Debug)]
pub struct Block {
    /// The codes, in order.
    pub codes: [u8; 256],
    /// What scales the block.
    pub scale: f16,
    /// Per group, what `scale` is multiplied with (the K formats).
    pub factors: [i8; 16],
    /// What is added to each weight (times `min_factors`), in formats that have it.
    pub min: f16,
    /// Per group, what `min` is multiplied with (the K formats).
    pub min_factors: [i8; 16],
}

impl Block {
    /// Nothing yet.
    #[must_use]
    pub fn empty() -> Self {
        Self { codes: [0; 256], scale: f16::ZERO, factors: [0; 16], min: f16::ZERO, min_factors: [0; 16] }
    }
}

impl BlockFormat {
    /// Weights in a block.
    #[must_use]
    pub const fn weights(self) -> usize {
        Self::block_weights(self.has_factors())
    }

    /// Weights in a block of a format with or without [factors](Self::has_factors).
    #[inline]
    pub(super) const fn block_weights(factors: bool) -> usize {
        if factors { 256 } else { 32 }
    }

    /// Bytes of a block in the file.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Bits that every code fits in, of those that are stored: 4, 5, 6 or 8.
    #[must_use]
    pub fn bits(self) -> usize {
        match self {
            Self::Q2K | Self::Q3K | Self::Q4_0 | Self::Q4_1 | Self::Q4K => 4,
            Self::Q5_0 | Self::Q5_1 | Self::Q5K => 5,
            Self::Q6K => 6,
            Self::Q8_0 => 8,
        }
    }

    /// Weights that share a scale: 16 or 32.
    #[must_use]
    pub fn group(self) -> usize {
        if matches!(self, Self::Q2K | Self::Q3K | Self::Q6K) { 16 } else { 32 }
    }

    /// A block has one f16 scale and integer factors per group; otherwise the f16 is the scale.
    #[must_use]
    pub const fn has_factors(self) -> bool {
        matches!(self, Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K)
    }

    /// Weights have a minimum.
    #[must_use]
    pub fn has_min(self) -> bool {
        matches!(self, Self::Q4_1 | Self::Q5_1 | Self::Q2K | Self::Q4K | Self::Q5K)
    }

    /// The code of a weight of 0: a power of two, or 0 where there is a minimum.
    #[must_use]
    pub fn zero(self) -> u8 {
        match self {
            Self::Q4_0 => 8,
            Self::Q5_0 => 16,
            Self::Q8_0 => 128,
            Self::Q3K => 4,
            Self::Q6K => 32,
            Self::Q4_1 | Self::Q5_1 | Self::Q2K | Self::Q4K | Self::Q5K => 0,
        }
    }

    /// Decodes the block in `bytes` ([`Self::bytes`] of them).
    pub fn read(self, bytes: &[u8], block: &mut Block) {
        match self {
            Self::Q4_0 => {
                block.scale = half_at(bytes, 0);
                nibbles(&bytes[2..18], &mut block.codes);
            }
            Self::Q4_1 => {
                (block.scale, block.min) = (half_at(bytes, 0), half_at(bytes, 2));
                nibbles(&bytes[4..20], &mut block.codes);
            }
            Self::Q5_0 => {
                block.scale = half_at(bytes, 0);
                nibbles(&bytes[6..22], &mut block.codes);
                fifth_bits(&bytes[2..6], &mut block.codes);
            }
            Self::Q5_1 => {
                (block.scale, block.min) = (half_at(bytes, 0), half_at(bytes, 2));
                nibbles(&bytes[8..24], &mut block.codes);
                fifth_bits(&bytes[4..8], &mut block.codes);
            }
            Self::Q8_0 => {
                block.scale = half_at(bytes, 0);
                for (code, &byte) in block.codes.iter_mut().zip(&bytes[2..34]) {
                    *code = byte ^ 0x80;
                }
            }
            Self::Q2K => q2_k(bytes, block),
            Self::Q3K => q3_k(bytes, block),
            Self::Q4K => q4_k(bytes, block),
            Self::Q5K => q5_k(bytes, block),
            Self::Q6K => q6_k(bytes, block),
        }
    }
}

fn half_at(bytes: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// `n` bytes → `2n` codes: all low nibbles, then all high ones.
fn nibbles(bytes: &[u8], codes: &mut [u8]) {
    let (low, high) = codes[..2 * bytes.len()].split_at_mut(bytes.len());
    for ((l, h), &byte) in low.iter_mut().zip(high).zip(bytes) {
        (*l, *h) = (byte & 0xf, byte >> 4);
    }
}

fn fifth_bits(bytes: &[u8], codes: &mut [u8]) {
    for (codes, &byte) in codes.as_chunks_mut::<8>().0.iter_mut().zip(bytes) {
        *codes = (u64::from_le_bytes(*codes) | spread(byte) << 4).to_le_bytes();
    }
}

/// Bit `i` of `byte` as bit 0 of byte `i`.
#[inline(always)]
pub(super) fn spread(byte: u8) -> u64 {
    let one_each = (u64::from(byte) * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    (((one_each + 0x7f7f_7f7f_7f7f_7f7f) | one_each) >> 7) & 0x0101_0101_0101_0101
}

/// `scales[16], codes of 2 bits[64], scale, min`.
fn q2_k(bytes: &[u8], block: &mut Block) {
    for (i, byte) in bytes[..16].iter().enumerate() {
        (block.factors[i], block.min_factors[i]) = ((byte & 0xf) as i8, (byte >> 4) as i8);
    }
    two_bits(&bytes[16..80], &mut block.codes);
    // the file subtracts the minimum
    (block.scale, block.min) = (half_at(bytes, 80), -half_at(bytes, 82));
}

/// Each half of 128 codes lies in 32 bytes: bits 0-1 the first 32 codes, bits 2-3 the next, and so on.
fn two_bits(bytes: &[u8], codes: &mut [u8; 256]) {
    for (i, code) in codes.iter_mut().enumerate() {
        *code = bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    }
}

/// `third bits[32], low bits[64], scales of 6 bits[12], scale`.
fn q3_k(bytes: &[u8], block: &mut Block) {
    two_bits(&bytes[32..96], &mut block.codes);
    for (i, code) in block.codes.iter_mut().enumerate() {
        *code |= (bytes[i % 32] >> (i / 32) & 1) << 2;
    }
    let packed = &bytes[96..108];
    for (i, factor) in block.factors.iter_mut().enumerate() {
        let low = packed[i % 8] >> (i / 8 * 4) & 0xf;
        let high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
        *factor = (low | high << 4) as i8 - 32;
    }
    block.scale = half_at(bytes, 108);
}

/// Eight scales and eight minima of six bits in twelve bytes.
fn six_bit_factors(packed: &[u8], block: &mut Block) {
    for i in 0..4 {
        block.factors[i] = (packed[i] & 63) as i8;
        block.min_factors[i] = (packed[4 + i] & 63) as i8;
        block.factors[4 + i] = (packed[8 + i] & 0xf | packed[i] >> 6 << 4) as i8;
        block.min_factors[4 + i] = (packed[8 + i] >> 4 | packed[4 + i] >> 6 << 4) as i8;
    }
}

/// `scale, min, six-bit factors[12], codes[128]`: 32 bytes hold 64 codes, low nibbles first.
fn q4_k(bytes: &[u8], block: &mut Block) {
    (block.scale, block.min) = (half_at(bytes, 0), -half_at(bytes, 2));
    six_bit_factors(&bytes[4..16], block);
    for (from, to) in bytes[16..144].chunks_exact(32).zip(block.codes.chunks_exact_mut(64)) {
        nibbles(from, to);
    }
}

/// As [`q4_k`] with a fifth bit: bit `g` of byte `i` belongs to code `i` of group `g`.
fn q5_k(bytes: &[u8], block: &mut Block) {
    (block.scale, block.min) = (half_at(bytes, 0), -half_at(bytes, 2));
    six_bit_factors(&bytes[4..16], block);
    for (from, to) in bytes[48..176].chunks_exact(32).zip(block.codes.chunks_exact_mut(64)) {
        nibbles(from, to);
    }
    for (i, code) in block.codes.iter_mut().enumerate() {
        *code |= (bytes[16 + i % 32] >> (i / 32) & 1) << 4;
    }
}

/// `low nibbles[128], high bits[64], factors[16], scale`: each half of 128 codes is four runs of 32.
fn q6_k(bytes: &[u8], block: &mut Block) {
    for (i, code) in block.codes.iter_mut().enumerate() {
        let (half, run, j) = (i / 128, i % 128 / 32, i % 32);
        let low = bytes[half * 64 + run % 2 * 32 + j] >> (run / 2 * 4) & 0xf;
        let high = bytes[128 + half * 32 + j] >> (run * 2) & 3;
        *code = low | high << 4;
    }
    for (factor, &byte) in block.factors.iter_mut().zip(&bytes[192..208]) {
        *factor = byte as i8;
    }
    block.scale = half_at(bytes, 208);
}
