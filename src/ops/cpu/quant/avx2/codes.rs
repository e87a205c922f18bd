//! Stored tiles and scales as the kernels with 256-bit vectors take them.
//!
//! Knows how a tile lies in memory (`stored.rs`), no matrices. Tests: `tests.rs` beside this, against the plain code of
//! `slice.rs`.

use std::arch::x86_64::{
    __m256i, _mm_loadl_epi64, _mm_loadu_si128, _mm256_and_si256, _mm256_cmpeq_epi8, _mm256_cvtepi8_epi32,
    _mm256_cvtepi32_ps, _mm256_cvtph_ps, _mm256_loadu_si256, _mm256_mul_ps, _mm256_or_si256,
    _mm256_set1_epi8, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setr_epi8, _mm256_shuffle_epi8,
    _mm256_srli_epi16, _mm256_store_si256, _mm256_storeu_ps,
};

use super::{QUARTER, QUARTERS};
use crate::ops::cpu::{
    quant::stored::{Numbers, TILE, VECTOR, VECTORS},
    tile::COLS,
};

/// # Safety
/// `at` points at 32 bytes.
#[inline]
#[target_feature(enable = "avx2")]
#[allow(unsafe_code)]
pub(super) unsafe fn load(at: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_loadu_si256(at.cast()) }
}

/// Quarter `q` of the codes of steps `2 pair` and `2 pair + 1` of a stored tile, one byte per code.
///
/// # Safety
/// `stored` points at a tile of `BITS` bits; `pair` and `q` are less than 4.
#[inline]
#[target_feature(enable = "avx2")]
#[allow(unsafe_code)]
pub(super) unsafe fn stored_quarters<const BITS: usize>(
    stored: *const u8,
    pair: usize,
    q: usize,
) -> [__m256i; 2] {
    // SAFETY: the caller's promise: 512 bytes of low bits and 128 per further bit, or 1024 bytes.
    unsafe {
        if BITS == 8 {
            let at = stored.add(pair * 8 * QUARTER + q * QUARTER);
            return [load(at), load(at.add(QUARTERS * QUARTER))];
        }
        let low = _mm256_set1_epi8(0xf);
        let both = load(stored.add((pair * QUARTERS + q) * QUARTER));
        let mut two = [_mm256_and_si256(both, low), _mm256_and_si256(_mm256_srli_epi16::<4>(both), low)];
        for (i, codes) in two.iter_mut().enumerate() {
            for bit in 4..BITS {
                // each of four bytes to eight lanes, which keep a bit each
                let plane = stored.add(512 + (bit - 4) * 128 + ((2 * pair + i) * QUARTERS + q) * 4);
                let plane = _mm256_set1_epi32(plane.cast::<i32>().read_unaligned());
                #[rustfmt::skip]
                let to_lanes = _mm256_setr_epi8(
                    0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3,
                );
                let one_each = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
                let bits = _mm256_and_si256(_mm256_shuffle_epi8(plane, to_lanes), one_each);
                let value = _mm256_and_si256(_mm256_cmpeq_epi8(bits, one_each), _mm256_set1_epi8(1 << bit));
                *codes = _mm256_or_si256(*codes, value);
            }
        }
        two
    }
}

/// The numbers of a block's groups as f32.
///
/// # Safety
/// The processor has AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
#[allow(unsafe_code)]
pub(in crate::ops::cpu::quant) unsafe fn numbers(from: Numbers<'_>, to: &mut [[f32; COLS]]) {
    for at in (0..COLS).step_by(8) {
        // SAFETY: always 8 of 32 numbers, from a multiple of 8 on.
        unsafe {
            let number = _mm256_cvtph_ps(_mm_loadu_si128(from.halves.as_ptr().add(2 * at).cast()));
            for (g, to) in to.iter_mut().enumerate() {
                let mut scaled = number;
                if let Some(factors) = from.factors(g) {
                    let factors = _mm256_cvtepi8_epi32(_mm_loadl_epi64(factors.as_ptr().add(at).cast()));
                    scaled = _mm256_mul_ps(number, _mm256_cvtepi32_ps(factors));
                }
                _mm256_storeu_ps(to.as_mut_ptr().add(at), scaled);
            }
        }
    }
}

/// Expands a stored tile of `bits` bits, fewer than 8, for the dot kernels.
///
/// # Safety
/// The processor has AVX2; `stored` holds such a tile.
#[allow(unsafe_code)]
pub(in crate::ops::cpu::quant) unsafe fn expand(
    stored: &[u8],
    bits: usize,
    codes: &mut [[u8; VECTOR]; VECTORS],
) {
    // SAFETY: the caller's promise.
    unsafe {
        match bits {
            4 => expand_bits::<4>(stored, codes),
            5 => expand_bits::<5>(stored, codes),
            _ => expand_bits::<6>(stored, codes),
        }
    }
}

/// # Safety
/// As [`expand`].
#[target_feature(enable = "avx2")]
#[allow(unsafe_code)]
unsafe fn expand_bits<const BITS: usize>(stored: &[u8], codes: &mut [[u8; VECTOR]; VECTORS]) {
    assert!(stored.len() == TILE * COLS / 8 * BITS, "{} bytes of {BITS} bits: this is a bug", stored.len());
    let to = codes.as_mut_ptr().cast::<u8>();
    for pair in 0..4 {
        for q in 0..QUARTERS {
            // SAFETY: the tile has the length; `codes` is 1024 bytes, aligned to 64 as a part of `Slice`.
            unsafe {
                let at = to.add(pair * 8 * QUARTER + q * QUARTER);
                let [first, second] = stored_quarters::<BITS>(stored.as_ptr(), pair, q);
                _mm256_store_si256(at.cast(), first);
                _mm256_store_si256(at.add(QUARTERS * QUARTER).cast(), second);
            }
        }
    }
}
