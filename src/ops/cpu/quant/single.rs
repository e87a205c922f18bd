//! One row against one panel, with AVX-512 VNNI: decoding a sequence alone.
//!
//! Every weight is used once, so there is nothing to gain from expanding a slice for later: codes go from memory through
//! registers into the dot product. The arithmetic is that of `dot.rs`, bit for bit.

use std::arch::x86_64::{
    __m512, __m512i, _mm_cvtsi32_si128, _mm_loadu_si128, _mm256_loadu_si256, _mm512_add_epi32,
    _mm512_and_si512, _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtph_ps, _mm512_dpbusd_epi32,
    _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_load_si512, _mm512_loadu_ps, _mm512_mask_add_epi8,
    _mm512_mul_ps, _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps, _mm512_sll_epi32, _mm512_srli_epi16,
    _mm512_storeu_ps,
};

use super::{
    BlockFormat, QuantMatrix,
    matrix::{GroupNumbers, TILE, VECTOR, VECTORS, tile_bytes},
    rows::{QuantRows, SUM},
};

/// Adds row `row` of `x` times panel `p` to 32 values.
///
/// # Safety
/// Needs AVX-512 F, BW and VNNI. `c` points at 32 values that no other thread touches; the row exists and is as long as
/// the matrix is wide.
#[allow(unsafe_code)]
pub(super) unsafe fn add_row(m: &QuantMatrix, x: &QuantRows, row: usize, p: usize, c: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        match m.format() {
            BlockFormat::Q4_0 => panel::<4, false, false>(m, x, row, p, c),
            BlockFormat::Q4_1 | BlockFormat::Q4K => panel::<4, false, true>(m, x, row, p, c),
            BlockFormat::Q5_0 => panel::<5, false, false>(m, x, row, p, c),
            BlockFormat::Q5_1 | BlockFormat::Q5K => panel::<5, false, true>(m, x, row, p, c),
            BlockFormat::Q8_0 => panel::<8, false, false>(m, x, row, p, c),
            BlockFormat::Q2K => panel::<4, true, true>(m, x, row, p, c),
            BlockFormat::Q3K => panel::<4, true, false>(m, x, row, p, c),
            BlockFormat::Q6K => panel::<6, true, false>(m, x, row, p, c),
        }
    }
}

/// # Safety
/// As [`add_row`], with the format's bits, groups of 16 or 32, and minima or none.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[allow(unsafe_code)]
unsafe fn panel<const BITS: usize, const GROUP16: bool, const MINS: bool>(
    m: &QuantMatrix,
    x: &QuantRows,
    row: usize,
    p: usize,
    c: *mut f32,
) {
    let (codes, scales, minus_sums) = x.row(row);
    let per_tile = if GROUP16 { 2 } else { 1 };
    let groups = 0..codes.len() / TILE * per_tile;
    let (of_scales, of_mins) = (m.scales(p, groups.clone()), m.mins(p, groups));
    let zero = m.format().zero();
    // shifting by 32 gives 0
    let zero_shift = _mm_cvtsi32_si128(if zero == 0 { 32 } else { zero.trailing_zeros() as i32 });
    let stored = m.tiles(p, 0);
    let bytes = tile_bytes(m.format());
    // SAFETY: addresses are inside the panel, the row and the 32 outputs: the panel has a tile for every 32 codes of the row.
    unsafe {
        let mut y = [_mm512_loadu_ps(c), _mm512_loadu_ps(c.add(16))];
        let codes = codes.as_ptr().cast::<i32>();
        for (tile, stored) in stored.chunks_exact(bytes).enumerate() {
            let x_scale = _mm512_set1_ps(scales[tile]);
            for part in 0..per_tile {
                let g = tile * per_tile + part;
                let mut minus_sum = _mm512_set1_epi32(minus_sums[g * (TILE / SUM / per_tile)]);
                if !GROUP16 {
                    minus_sum = _mm512_add_epi32(minus_sum, _mm512_set1_epi32(minus_sums[g * 2 + 1]));
                }
                let mut t = [_mm512_sll_epi32(minus_sum, zero_shift); 2];
                // pairs of steps share vectors of low bits
                let pairs = VECTORS / 4 / per_tile;
                for pair in part * pairs..(part + 1) * pairs {
                    let at = codes.add(tile * (TILE / 4) + pair * 2);
                    let steps = [at, at.add(1)].map(|at| _mm512_set1_epi32(at.read_unaligned()));
                    for (half, t) in t.iter_mut().enumerate() {
                        let vectors = two_vectors::<BITS>(stored.as_ptr(), pair * 4 + half);
                        *t = _mm512_dpbusd_epi32(*t, vectors[0], steps[0]);
                        *t = _mm512_dpbusd_epi32(*t, vectors[1], steps[1]);
                    }
                }
                for (half, (y, t)) in y.iter_mut().zip(t).enumerate() {
                    let s = _mm512_mul_ps(number(of_scales, g, half), x_scale);
                    *y = _mm512_fmadd_ps(_mm512_cvtepi32_ps(t), s, *y);
                    if let Some(mins) = of_mins.filter(|_| MINS) {
                        let minus = _mm512_mul_ps(_mm512_cvtepi32_ps(minus_sum), x_scale);
                        *y = _mm512_fnmadd_ps(number(mins, g, half), minus, *y);
                    }
                }
            }
        }
        _mm512_storeu_ps(c, y[0]);
        _mm512_storeu_ps(c.add(16), y[1]);
    }
}

/// Vectors `v` and `v + 2` of a stored tile, one byte per code.
///
/// # Safety
/// `stored` points at a tile of `BITS` bits, aligned to 64 bytes; `v % 4 < 2`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
#[allow(unsafe_code)]
unsafe fn two_vectors<const BITS: usize>(stored: *const u8, v: usize) -> [__m512i; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        if BITS == 8 {
            return [v, v + 2].map(|v| _mm512_load_si512(stored.add(v * VECTOR).cast()));
        }
        let low = _mm512_set1_epi8(0xf);
        let both = _mm512_load_si512(stored.add((v / 4 * 2 + v % 2) * VECTOR).cast());
        let mut two = [_mm512_and_si512(both, low), _mm512_and_si512(_mm512_srli_epi16::<4>(both), low)];
        for bit in 4..BITS {
            let plane = stored.add(512 + (bit - 4) * 128).cast::<u64>();
            let value = _mm512_set1_epi8(1 << bit);
            for (i, vector) in two.iter_mut().enumerate() {
                *vector = _mm512_mask_add_epi8(*vector, *plane.add(v + 2 * i), *vector, value);
            }
        }
        two
    }
}

/// The numbers of group `g` for outputs `half * 16 ..`.
#[inline]
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
unsafe fn number(of: GroupNumbers<'_>, g: usize, half: usize) -> __m512 {
    let block = &of.blocks[g / of.groups_per_block];
    // SAFETY: 16 of 32 numbers from `half * 16` on.
    unsafe {
        let number = _mm512_cvtph_ps(_mm256_loadu_si256(block.as_ptr().add(half * 16).cast()));
        match of.factors.get(g) {
            Some(factors) => {
                let factors = _mm_loadu_si128(factors.as_ptr().add(half * 16).cast());
                _mm512_mul_ps(number, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(factors)))
            }
            None => number,
        }
    }
}
