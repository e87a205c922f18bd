//! Rows times codes in registers, by either instruction.

use std::arch::{
    asm,
    x86_64::{
        __m256i, _mm_cvtsi32_si128, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32, _mm256_cvtepi32_ps,
        _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_load_ps, _mm256_loadu_ps, _mm256_madd_epi16,
        _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32,
        _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256, _mm256_sign_epi8, _mm256_sll_epi32,
        _mm256_storeu_ps, _mm256_xor_si256,
    },
};

use super::{
    MADD, QUARTER, QUARTERS, VNNI,
    codes::{load, stored_quarters},
};
use crate::ops::cpu::{
    quant::{
        dot::{Left, Out},
        rows::Group,
        slice::Expanded,
        stored::{TILE, Tiles},
    },
    tile::COLS,
};

/// Bytes of all codes of a step, expanded.
const STEP: usize = QUARTERS * QUARTER;

/// Pairs of steps (eight inputs) whose products of `bits` bits and activations in -127..=127 can be summed in 16 bits,
/// two inputs of four to a lane: `2 · 2 · pairs · (2^bits - 1) · 127 <= 32767`.
///
/// That is 30480 for 4 pairs of 4 bits, 31496 for 2 of 5 bits, 32004 for 1 of 6 bits. Of 8 bits not even a step fits,
/// but magnitudes of at most 128 do: `2 · 128 · 127 = 32512`.
pub(super) const fn pairs_in_16_bits(bits: usize) -> usize {
    match bits {
        4 => 4,
        5 => 2,
        _ => 1,
    }
}

/// # Safety
/// As [`super::dot`], with `a.rows == R` and `a.tiles` tiles of codes, expanded or stored.
#[target_feature(enable = "avx2,fma")]
#[allow(unsafe_code)]
pub(super) unsafe fn rows<
    const R: usize,
    const BITS: usize,
    const GROUP16: bool,
    const MINS: bool,
    const STORED: bool,
    const DOT: u8,
>(
    a: Left<'_>,
    codes: Tiles,
    b: Expanded<'_>,
    zero: u8,
    out: Out,
) {
    let (x, groups) = a.x.some_rows(a.row, R);
    let k = a.x.k();
    let per_tile = if GROUP16 { 2 } else { 1 };
    // formats with minima have a zero of 0, and signs have taken it from 8 bits
    let has_zero = !MINS && (BITS < 8 || DOT != MADD);
    let zero_shift = _mm_cvtsi32_si128(zero.trailing_zeros() as i32);
    // SAFETY: all addresses are inside the rows, the tiles, the slice and the output rows that the caller promises.
    unsafe {
        let x = x.as_ptr().add(a.tile * TILE);
        let groups = groups.as_ptr().add(a.tile);
        let (of_scales, of_mins) = (b.scales.as_ptr().cast::<f32>(), b.mins.as_ptr().cast::<f32>());
        let mut y = [[_mm256_setzero_ps(); QUARTERS]; R];
        for (i, y) in y.as_flattened_mut().iter_mut().enumerate() {
            *y = _mm256_loadu_ps(out.to.add(i / QUARTERS * out.stride + i % QUARTERS * 8));
        }
        for g in 0..a.tiles * per_tile {
            let (tile, part) = (g / per_tile, g % per_tile);
            let group = |r: usize| &*groups.add(r * (k / TILE) + tile);
            let mut t = [[_mm256_setzero_si256(); QUARTERS]; R];
            if has_zero {
                for (r, t) in t.iter_mut().enumerate() {
                    let Group { minus_sum, minus_sums, .. } = group(r);
                    let minus = _mm256_set1_epi32(if GROUP16 { minus_sums[part] } else { *minus_sum });
                    *t = [_mm256_sll_epi32(minus, zero_shift); QUARTERS];
                }
            }
            multiply::<R, BITS, GROUP16, STORED, DOT>(&mut t, codes.at(tile), x.add(tile * TILE), k, part);
            for (r, (y, t)) in y.iter_mut().zip(t).enumerate() {
                let Group { scale, minus_sums, minus, .. } = group(r);
                let minus = if GROUP16 { minus_sums[part] as f32 * scale } else { *minus };
                let (scale, minus) = (_mm256_set1_ps(*scale), _mm256_set1_ps(minus));
                for (q, (y, t)) in y.iter_mut().zip(t).enumerate() {
                    let at = g * COLS + q * 8;
                    let s = _mm256_mul_ps(_mm256_load_ps(of_scales.add(at)), scale);
                    *y = _mm256_fmadd_ps(_mm256_cvtepi32_ps(t), s, *y);
                    if MINS {
                        *y = _mm256_fnmadd_ps(_mm256_load_ps(of_mins.add(at)), minus, *y);
                    }
                }
            }
        }
        for (i, y) in y.as_flattened().iter().enumerate() {
            _mm256_storeu_ps(out.to.add(i / QUARTERS * out.stride + i % QUARTERS * 8), *y);
        }
    }
}

/// Adds codes times activations to `t`, for group `part` of a tile; rows of `x` are `k` apart.
///
/// `t` is to stay in registers: so this must not become a call (the language does not let it name the features of its
/// caller, then), and loops go by index, which the compiler unrolls before it gives up on arrays.
///
/// # Safety
/// For callers with AVX2. `codes` and `x` point at a tile of codes, expanded or stored, and `R` rows of activations; the tile
/// has the group. The processor has what `DOT` names.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn multiply<
    const R: usize,
    const BITS: usize,
    const GROUP16: bool,
    const STORED: bool,
    const DOT: u8,
>(
    t: &mut [[__m256i; QUARTERS]; R],
    codes: *const u8,
    x: *const i8,
    k: usize,
    part: usize,
) {
    let pairs = if GROUP16 { 2 } else { 4 };
    for from in (0..pairs).step_by(pairs_in_16_bits(BITS)) {
        // SAFETY: the caller's promise: pairs of the tile, and of the rows.
        unsafe {
            let mut sums = [[_mm256_setzero_si256(); QUARTERS]; R];
            for pair in from..pairs.min(from + pairs_in_16_bits(BITS)) {
                let pair = part * pairs + pair;
                let x = std::array::from_fn::<_, R, _>(|r| {
                    let x = x.add(r * k + pair * 8).cast::<i32>();
                    [_mm256_set1_epi32(x.read_unaligned()), _mm256_set1_epi32(x.add(1).read_unaligned())]
                });
                for q in 0..QUARTERS {
                    let two = if STORED {
                        stored_quarters::<BITS>(codes, pair, q)
                    } else {
                        let at = codes.add(2 * pair * STEP + q * QUARTER);
                        [load(at), load(at.add(STEP))]
                    };
                    for (step, w) in two.into_iter().enumerate() {
                        if DOT != MADD {
                            for r in 0..R {
                                t[r][q] = dot_product::<DOT>(t[r][q], w, x[r][step]);
                            }
                        } else if BITS == 8 {
                            for r in 0..R {
                                t[r][q] = in_order(_mm256_add_epi32(t[r][q], signed_products(w, x[r][step])));
                            }
                        } else {
                            for r in 0..R {
                                let products = _mm256_maddubs_epi16(w, x[r][step]);
                                sums[r][q] = in_order(_mm256_add_epi16(sums[r][q], products));
                            }
                        }
                    }
                }
            }
            if DOT == MADD && BITS < 8 {
                for (t, sums) in t.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
                    *t = _mm256_add_epi32(*t, _mm256_madd_epi16(*sums, _mm256_set1_epi16(1)));
                }
            }
        }
    }
}

/// `(codes - 128) · x`, four to a lane, for `x` in -127..=127.
#[inline]
#[target_feature(enable = "avx2")]
fn signed_products(codes: __m256i, x: __m256i) -> __m256i {
    let signed = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
    // the magnitude of -128 is 128 as an unsigned byte
    let two = _mm256_maddubs_epi16(_mm256_abs_epi8(signed), _mm256_sign_epi8(x, signed));
    _mm256_madd_epi16(two, _mm256_set1_epi16(1))
}

/// `sum`, as it is. Without this the compiler turns chains of integer additions into trees, whose many terms do not fit the
/// sixteen registers: a third of the speed.
#[inline]
#[target_feature(enable = "avx2")]
fn in_order(mut sum: __m256i) -> __m256i {
    // SAFETY: no instruction.
    #[allow(unsafe_code)]
    unsafe {
        asm!("/* {0} */", inout(ymm_reg) sum, options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// `sum + codes · x`, four to a lane, by `vpdpbusd`.
///
/// # Safety
/// The processor has AVX-VNNI ([`VNNI`]), or AVX-512 VL and VNNI.
#[inline]
#[target_feature(enable = "avx2")]
#[allow(unsafe_code)]
unsafe fn dot_product<const DOT: u8>(mut sum: __m256i, codes: __m256i, x: __m256i) -> __m256i {
    // not the compiler's functions: those want their features in every function on the way
    // SAFETY: the caller's promise; no memory.
    unsafe {
        if DOT == VNNI {
            asm!(
                "{{vex}} vpdpbusd {0}, {1}, {2}", inout(ymm_reg) sum, in(ymm_reg) codes, in(ymm_reg) x,
                options(pure, nomem, nostack, preserves_flags),
            );
        } else {
            asm!(
                "{{evex}} vpdpbusd {0}, {1}, {2}", inout(ymm_reg) sum, in(ymm_reg) codes, in(ymm_reg) x,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
    }
    sum
}
