//! A few tiles of a quantised panel, expanded for the dot kernels: one byte per code, f32 scales and minima.
//!
//! A slice stays in the L1 cache while every row of the activations passes over it, so the price of expanding it is
//! paid once per pass; at one row it is what decoding costs beside reading the weights.

use half::f16;

#[cfg(target_arch = "x86_64")]
use super::avx2;
use super::blocks::spread;
use super::matrix::{GroupNumbers, QuantMatrix, TILE, VECTOR, VECTORS, tile_bytes};
use crate::ops::cpu::tile::{COLS, Isa, Vectorised};

/// Tiles of a slice: 512 inputs of 32 outputs, 16 KiB of codes.
pub(super) const SLICE: usize = 16;

/// Memory for one.
#[repr(C, align(64))]
pub(super) struct Slice {
    codes: [[[u8; VECTOR]; VECTORS]; SLICE],
    scales: [[f32; COLS]; 2 * SLICE],
    mins: [[f32; COLS]; 2 * SLICE],
}

/// What the dot kernels read; all of it aligned to 64 bytes.
#[derive(Clone, Copy)]
pub(super) struct Expanded<'a> {
    /// `[tiles][16 vectors][64]`; vector `2s + h` of a tile: inputs `4s ..`, outputs `16h ..`. Codes of 8 bits are read
    /// where the matrix has them.
    pub(super) codes: &'a [[[u8; VECTOR]; VECTORS]],
    /// `[groups][32 outputs]`: two groups per tile where groups are of 16 inputs, else one.
    pub(super) scales: &'a [[f32; COLS]; 2 * SLICE],
    /// As `scales`; only for formats that have minima.
    pub(super) mins: &'a [[f32; COLS]; 2 * SLICE],
}

impl Slice {
    pub(super) fn boxed() -> Box<Self> {
        Box::new(Self {
            codes: [[[0; VECTOR]; VECTORS]; SLICE],
            scales: [[0.0; COLS]; 2 * SLICE],
            mins: [[0.0; COLS]; 2 * SLICE],
        })
    }

    /// Fills everything with numbers of 24 bits, for a kernel to try itself on.
    pub(super) fn fill_with(&mut self, mut random: impl FnMut() -> u32) {
        self.codes.as_flattened_mut().as_flattened_mut().iter_mut().for_each(|c| *c = random() as u8);
        for number in self.scales.as_flattened_mut().iter_mut().chain(self.mins.as_flattened_mut()) {
            *number = random() as f32 / 1e9 - 5e-3;
        }
    }

    /// What is in it.
    pub(super) fn expanded(&self) -> Expanded<'_> {
        Expanded { codes: &self.codes, scales: &self.scales, mins: &self.mins }
    }

    /// Expands tiles `from .. from + tiles` of panel `p`.
    pub(super) fn expand<'a>(
        &'a mut self,
        isa: Isa,
        m: &'a QuantMatrix,
        p: usize,
        from: usize,
        tiles: usize,
    ) -> Expanded<'a> {
        self.numbers(isa, m, p, from, tiles);
        let bytes = tile_bytes(m.format());
        let stored = &m.tiles(p, from)[..tiles * bytes];
        let codes = if m.format().bits() == 8 {
            stored.as_chunks::<VECTOR>().0.as_chunks().0
        } else {
            self.codes(isa, stored, m.format().bits());
            &self.codes[..tiles]
        };
        Expanded { codes, scales: &self.scales, mins: &self.mins }
    }

    /// As [`Self::expand`], without codes.
    pub(super) fn numbers(
        &mut self,
        isa: Isa,
        m: &QuantMatrix,
        p: usize,
        from: usize,
        tiles: usize,
    ) -> Expanded<'_> {
        let per_tile = TILE / m.format().group();
        let groups = from * per_tile..(from + tiles) * per_tile;
        numbers(isa, m.scales(p, groups.clone()), &mut self.scales);
        if let Some(mins) = m.mins(p, groups) {
            numbers(isa, mins, &mut self.mins);
        }
        Expanded { codes: &[], scales: &self.scales, mins: &self.mins }
    }

    fn codes(&mut self, isa: Isa, stored: &[u8], bits: usize) {
        let bytes = TILE * COLS / 8 * bits;
        for (stored, codes) in stored.chunks_exact(bytes).zip(&mut self.codes) {
            #[cfg(target_arch = "x86_64")]
            if isa.has_avx512() {
                // SAFETY: the processor has the features; a stored tile of `bits` bits is what the function takes.
                #[allow(unsafe_code)]
                unsafe {
                    expand_avx512(stored, bits, codes);
                }
                continue;
            }
            #[cfg(target_arch = "x86_64")]
            if isa.has_avx2() {
                // SAFETY: as above.
                #[allow(unsafe_code)]
                unsafe {
                    avx2::expand(stored, bits, codes);
                }
                continue;
            }
            isa.run(Codes { stored, bits, codes });
        }
    }
}

/// Plain code for one tile.
struct Codes<'a> {
    stored: &'a [u8],
    bits: usize,
    codes: &'a mut [[u8; VECTOR]; VECTORS],
}

impl Vectorised for Codes<'_> {
    #[inline(always)]
    fn run(self) {
        let stored = self.stored.as_chunks::<VECTOR>().0;
        for (v, to) in self.codes.iter_mut().enumerate() {
            let (from, high) = (&stored[v / 4 * 2 + v % 2], v % 4 >= 2);
            for (to, from) in to.iter_mut().zip(from) {
                *to = if high { from >> 4 } else { from & 0xf };
            }
        }
        for (bit, plane) in (4..self.bits).zip(self.stored[512..].as_chunks::<128>().0) {
            for (codes, plane) in self.codes.as_flattened_mut().as_chunks_mut::<8>().0.iter_mut().zip(plane) {
                *codes = (u64::from_le_bytes(*codes) | spread(*plane) << bit).to_le_bytes();
            }
        }
    }
}

/// The numbers of consecutive groups as f32.
fn numbers(isa: Isa, from: GroupNumbers<'_>, to: &mut [[f32; COLS]]) {
    #[cfg(target_arch = "x86_64")]
    if isa.has_avx512() {
        // SAFETY: the processor has the features.
        #[allow(unsafe_code)]
        unsafe {
            numbers_avx512(from, to);
        }
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if isa.has_avx2() {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe {
            avx2::numbers(from, to);
        }
        return;
    }
    isa.run(Numbers { from, to });
}

struct Numbers<'a> {
    from: GroupNumbers<'a>,
    to: &'a mut [[f32; COLS]],
}

impl Vectorised for Numbers<'_> {
    #[inline(always)]
    fn run(self) {
        let GroupNumbers { blocks, factors, groups_per_block } = self.from;
        for (block, to) in blocks.iter().zip(self.to.chunks_mut(groups_per_block)) {
            for to in to {
                for (to, from) in to.iter_mut().zip(block) {
                    *to = finite_f16(*from);
                }
            }
        }
        for (to, factors) in self.to.iter_mut().zip(factors) {
            for (to, factor) in to.iter_mut().zip(factors) {
                *to *= f32::from(*factor);
            }
        }
    }
}

/// # Safety
/// Needs AVX-512F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
unsafe fn numbers_avx512(from: GroupNumbers<'_>, to: &mut [[f32; COLS]]) {
    use std::arch::x86_64::{
        _mm_loadu_si128, _mm256_loadu_si256, _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtph_ps,
        _mm512_mul_ps, _mm512_storeu_ps,
    };
    let mut factors = from.factors.iter();
    for (block, to) in from.blocks.iter().zip(to.chunks_mut(from.groups_per_block)) {
        for half in 0..2 {
            // SAFETY: 16 of the 32 numbers from `half * 16` on.
            let number = unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(block.as_ptr().add(half * 16).cast())) };
            let mut factors = factors.clone();
            for to in to.iter_mut() {
                let scaled = match factors.next() {
                    // SAFETY: as above.
                    Some(factors) => unsafe {
                        let factors = _mm_loadu_si128(factors.as_ptr().add(half * 16).cast());
                        _mm512_mul_ps(number, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(factors)))
                    },
                    None => number,
                };
                // SAFETY: as above.
                unsafe { _mm512_storeu_ps(to.as_mut_ptr().add(half * 16), scaled) };
            }
        }
        for _ in 0..to.len() {
            factors.next();
        }
    }
}

/// A finite f16 as f32, in operations that vectorise: exact, subnormals included.
#[inline(always)]
fn finite_f16(x: f16) -> f32 {
    let bits = u32::from(x.to_bits());
    const TWO_POW_112: f32 = f32::from_bits(0x7780_0000);
    let magnitude = f32::from_bits((bits & 0x7fff) << 13) * TWO_POW_112;
    f32::from_bits(magnitude.to_bits() | (bits & 0x8000) << 16)
}

/// One tile with 512-bit vectors: the further bits of a code are masks of byte lanes.
///
/// # Safety
/// Needs AVX-512F and BW; `stored` holds a tile of `bits` bits, fewer than 8.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
#[allow(unsafe_code)]
unsafe fn expand_avx512(stored: &[u8], bits: usize, codes: &mut [[u8; VECTOR]; VECTORS]) {
    use std::arch::x86_64::{
        _mm512_and_si512, _mm512_loadu_si512, _mm512_mask_add_epi8, _mm512_set1_epi8, _mm512_srli_epi16,
        _mm512_store_si512,
    };
    // SAFETY: a tile is 512 bytes of low bits and 128 per further bit; `codes` is 1024 bytes, aligned
    // to 64 as a part of `Slice`.
    unsafe {
        let from = stored.as_ptr();
        let to = codes.as_mut_ptr();
        let low = _mm512_set1_epi8(0xf);
        let planes = from.add(512).cast::<u64>();
        for v in 0..VECTORS / 2 {
            let both = _mm512_loadu_si512(from.add(v * VECTOR).cast());
            let first = v / 2 * 4 + v % 2;
            let mut a = _mm512_and_si512(both, low);
            let mut b = _mm512_and_si512(_mm512_srli_epi16::<4>(both), low);
            for bit in 4..bits {
                let (plane, add) = (planes.add((bit - 4) * VECTORS), _mm512_set1_epi8(1 << bit));
                a = _mm512_mask_add_epi8(a, plane.add(first).read_unaligned(), a, add);
                b = _mm512_mask_add_epi8(b, plane.add(first + 2).read_unaligned(), b, add);
            }
            _mm512_store_si512(to.add(first).cast(), a);
            _mm512_store_si512(to.add(first + 2).cast(), b);
        }
    }
}
