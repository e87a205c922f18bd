//! A few tiles of a quantised panel, expanded for the dot kernels: one byte per code, f32 scales and minima.
//!
//! A slice stays in the L1 cache while every row of the activations passes over it, so the price of expanding it is
//! paid once per pass. A few rows are not worth it: `few.rs`.

use half::f16;

#[cfg(target_arch = "x86_64")]
use super::avx2;
use super::blocks::spread;
use super::matrix::QuantMatrix;
use super::stored::{Layout, Numbers, VECTOR, VECTORS};
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
    /// `[tiles][16 vectors][64]`; vector `2s + h` of a tile: inputs `4s ..`, outputs `16h ..`.
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
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    pub(super) fn fill_with(&mut self, mut random: impl FnMut() -> u32) {
        self.codes.as_flattened_mut().as_flattened_mut().iter_mut().for_each(|c| *c = random() as u8);
        for number in self.scales.as_flattened_mut().iter_mut().chain(self.mins.as_flattened_mut()) {
            *number = random() as f32 / 1e9 - 5e-3;
        }
    }

    /// What is in it.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    pub(super) fn expanded(&self) -> Expanded<'_> {
        Expanded { codes: &self.codes, scales: &self.scales, mins: &self.mins }
    }

    /// Expands tiles `from .. from + tiles` (whole blocks) of panel `p`.
    pub(super) fn expand(
        &mut self,
        isa: Isa,
        m: &QuantMatrix,
        p: usize,
        from: usize,
        tiles: usize,
    ) -> Expanded<'_> {
        let (layout, bits) = (Layout::of(m.format()), m.format().bits());
        let (_, blocks) = self.numbers(isa, m, p, from, tiles);
        for (block, codes) in blocks.chunks_exact(layout.bytes).zip(self.codes.chunks_exact_mut(layout.tiles))
        {
            for (tile, codes) in block[layout.head..].chunks_exact(layout.tile).zip(codes) {
                expand_tile(isa, &tile[..layout.codes], bits, codes);
            }
        }
        Expanded { codes: &self.codes[..tiles], scales: &self.scales, mins: &self.mins }
    }

    /// As [`Self::expand`], but codes stay in the blocks.
    pub(super) fn numbers<'a>(
        &mut self,
        isa: Isa,
        m: &'a QuantMatrix,
        p: usize,
        from: usize,
        tiles: usize,
    ) -> (Expanded<'_>, &'a [u8]) {
        let layout = Layout::of(m.format());
        let groups = layout.groups();
        let blocks = &m.panel(p, from / layout.tiles)[..tiles / layout.tiles * layout.bytes];
        for (b, block) in blocks.chunks_exact(layout.bytes).enumerate() {
            numbers(isa, layout.scales(block), &mut self.scales[b * groups..][..groups]);
            if let Some(mins) = layout.mins(block) {
                numbers(isa, mins, &mut self.mins[b * groups..][..groups]);
            }
        }
        (Expanded { codes: &[], scales: &self.scales, mins: &self.mins }, blocks)
    }
}

/// The codes of a stored tile of `bits` bits, one byte each.
fn expand_tile(isa: Isa, stored: &[u8], bits: usize, codes: &mut [[u8; VECTOR]; VECTORS]) {
    if bits == 8 {
        codes.as_flattened_mut().copy_from_slice(stored);
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if isa.has_avx512() {
        // SAFETY: the processor has the features; a stored tile of `bits` bits is what the function takes.
        #[allow(unsafe_code)]
        unsafe {
            expand_avx512(stored, bits, codes);
        }
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if isa.has_avx2() {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe {
            avx2::expand(stored, bits, codes);
        }
        return;
    }
    isa.run(Codes { stored, bits, codes });
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

/// The numbers of a block's groups as f32.
fn numbers(isa: Isa, from: Numbers<'_>, to: &mut [[f32; COLS]]) {
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
    isa.run(AllNumbers { from, to });
}

struct AllNumbers<'a> {
    from: Numbers<'a>,
    to: &'a mut [[f32; COLS]],
}

impl Vectorised for AllNumbers<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { from, to } = self;
        let mut halves = [0f32; COLS];
        for (c, half) in halves.iter_mut().enumerate() {
            *half = finite_f16(from.half(c));
        }
        for (g, to) in to.iter_mut().enumerate() {
            *to = halves;
            for (to, factor) in to.iter_mut().zip(from.factors(g).into_iter().flatten()) {
                *to *= f32::from(factor.cast_signed());
            }
        }
    }
}

/// # Safety
/// Needs AVX-512F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
unsafe fn numbers_avx512(from: Numbers<'_>, to: &mut [[f32; COLS]]) {
    use std::arch::x86_64::{
        _mm_loadu_si128, _mm256_loadu_si256, _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtph_ps,
        _mm512_mul_ps, _mm512_storeu_ps,
    };
    for half in 0..2 {
        // SAFETY: 16 of the 32 numbers from `half * 16` on.
        let number =
            unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.halves.as_ptr().add(half * 32).cast())) };
        for (g, to) in to.iter_mut().enumerate() {
            let scaled = match from.factors(g) {
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
