//! A few tiles of a quantised panel, expanded for the dot kernels: one byte per code, f32 scales and minima.
//!
//! A slice stays in the L1 cache while every row of the activations passes over it, so the price of expanding it is
//! paid once per pass; at one row it is what decoding costs beside reading the weights.

use half::f16;

use super::matrix::{QuantMatrix, TILE, VECTOR, VECTORS, tile_bytes};
use crate::ops::cpu::tile::{COLS, Isa, Vectorised};

/// Tiles of a slice: 512 inputs of 32 outputs, 16 KiB of codes.
pub(super) const SLICE: usize = 16;

/// See the module.
#[repr(C, align(64))]
pub(super) struct Slice {
    /// `[tiles][16 vectors][64]`; vector `2s + h` of a tile: inputs `4s ..`, outputs `16h ..`.
    pub(super) codes: [[[u8; VECTOR]; VECTORS]; SLICE],
    /// `[groups][32 outputs]`: two groups per tile where groups are of 16 inputs, else one.
    pub(super) scales: [[f32; COLS]; 2 * SLICE],
    /// As `scales`; only for formats that have minima.
    pub(super) mins: [[f32; COLS]; 2 * SLICE],
}

impl Slice {
    pub(super) fn boxed() -> Box<Self> {
        Box::new(Self {
            codes: [[[0; VECTOR]; VECTORS]; SLICE],
            scales: [[0.0; COLS]; 2 * SLICE],
            mins: [[0.0; COLS]; 2 * SLICE],
        })
    }

    /// Expands tiles `from .. from + tiles` of panel `p`.
    pub(super) fn expand(&mut self, isa: Isa, m: &QuantMatrix, p: usize, from: usize, tiles: usize) {
        let (bytes, bits) = (tile_bytes(m.format()), m.format().bits());
        let stored = &m.tiles(p, from)[..tiles * bytes];
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
            isa.run(Codes { stored, bits, codes });
        }
        let per_tile = TILE / m.format().group();
        for g in 0..tiles * per_tile {
            let at = from * per_tile + g;
            isa.run(Numbers { from: m.scales(p, at), to: &mut self.scales[g] });
            if let Some(from) = m.mins(p, at) {
                isa.run(Numbers { from, to: &mut self.mins[g] });
            }
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
        if self.bits == 8 {
            self.codes.copy_from_slice(stored);
            return;
        }
        for (v, to) in self.codes.iter_mut().enumerate() {
            let (from, high) = (&stored[v / 4 * 2 + v % 2], v % 4 >= 2);
            for (to, from) in to.iter_mut().zip(from) {
                *to = if high { from >> 4 } else { from & 0xf };
            }
        }
        for (bit, plane) in (4..self.bits).zip(self.stored[512..].as_chunks::<128>().0) {
            for (codes, plane) in self.codes.as_flattened_mut().as_chunks_mut::<8>().0.iter_mut().zip(plane) {
                // bit i of the plane's byte becomes bit 0 of byte i
                let spread = (u64::from(*plane) * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
                let ones = ((spread + 0x7f7f_7f7f_7f7f_7f7f | spread) >> 7) & 0x0101_0101_0101_0101;
                *codes = (u64::from_le_bytes(*codes) | ones << bit).to_le_bytes();
            }
        }
    }
}

/// One group's numbers as f32.
struct Numbers<'a> {
    from: (&'a [f16; COLS], Option<&'a [i8; COLS]>),
    to: &'a mut [f32; COLS],
}

impl Vectorised for Numbers<'_> {
    #[inline(always)]
    fn run(self) {
        for (to, from) in self.to.iter_mut().zip(self.from.0) {
            *to = finite_f16(*from);
        }
        if let Some(factors) = self.from.1 {
            for (to, factor) in self.to.iter_mut().zip(factors) {
                *to *= f32::from(*factor);
            }
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
/// Needs AVX-512F and BW; `stored` holds a tile of `bits` bits.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
#[allow(unsafe_code)]
unsafe fn expand_avx512(stored: &[u8], bits: usize, codes: &mut [[u8; VECTOR]; VECTORS]) {
    use std::arch::x86_64::{
        _mm512_and_si512, _mm512_loadu_si512, _mm512_mask_add_epi8, _mm512_set1_epi8, _mm512_srli_epi16,
        _mm512_store_si512,
    };
    // SAFETY: a tile is 512 bytes of low bits and 128 per further bit, or 1024 bytes; `codes` is 1024 bytes, aligned
    // to 64 as a part of `Slice`.
    unsafe {
        let from = stored.as_ptr();
        let to = codes.as_mut_ptr();
        if bits == 8 {
            for v in 0..VECTORS {
                _mm512_store_si512(to.add(v).cast(), _mm512_loadu_si512(from.add(v * VECTOR).cast()));
            }
            return;
        }
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
