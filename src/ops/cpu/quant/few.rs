//! A few rows against one panel, with AVX-512 VNNI: decoding.
//!
//! Every weight is used by a few rows only, so expanding a slice for them would cost more than it saves: codes go from
//! memory through registers into the dot products of all rows. The arithmetic is that of `dot.rs`, bit for bit.
//!
//! What bounds it is memory. The processor runs ahead of these instructions by less than two tiles, too few
//! cache lines to cover the latency of memory, so lines are asked for some KiB [`ahead`], into the L2
//! cache: twice the bytes a second of one thread on a Zen 4 (into L1 it was slower than not at all).

use std::{
    arch::x86_64::{
        __m512, __m512i, _MM_HINT_T1, _mm_cvtsi32_si128, _mm_loadu_si128, _mm_prefetch, _mm256_loadu_si256,
        _mm512_and_si512, _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtph_ps, _mm512_dpbusd_epi32,
        _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_add_epi8,
        _mm512_mul_ps, _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps,
        _mm512_setzero_si512, _mm512_sll_epi32, _mm512_srli_epi16, _mm512_storeu_ps,
    },
    ops::Range,
};

use super::{
    BlockFormat, QuantMatrix, QuantRows,
    rows::Group,
    stored::{HALVES, Layout, TILE, VECTOR, VECTORS},
};
use crate::ops::cpu::tile::COLS;

/// Rows up to which this is faster than expanding slices.
pub(super) const FEW: usize = 8;
/// Rows of one pass over a panel: 4 × 2 integer and 4 × 2 float sums leave registers for the weights. More rows pass again,
/// over what the first pass left in the cache.
const PASS: usize = 4;

/// How early a line is asked for, in bytes: measured on a Zen 4, where codes of 8 bits, which take the least work, want it
/// shorter (28 against 19 GiB/s on one thread), and the K formats longer (32 steps a second against 27).
const fn ahead(bits: usize) -> usize {
    if bits == 8 { 4096 } else { 8192 }
}

/// Adds `n` rows of `x` from `first` on times panel `p` to as many rows of 32 values.
///
/// # Safety
/// Needs AVX-512 F, BW and VNNI. `c` points at `n` rows of 32 values that no other thread touches; the rows exist
/// and are as long as the matrix is wide.
#[allow(unsafe_code)]
pub(super) unsafe fn add_rows(
    m: &QuantMatrix,
    x: &QuantRows,
    (first, n): (usize, usize),
    p: usize,
    c: *mut f32,
) {
    use BlockFormat as F;
    for done in (0..n).step_by(PASS) {
        let rows = first + done..first + n.min(done + PASS);
        // SAFETY: the caller's promise.
        unsafe {
            let c = c.add(done * COLS);
            match m.format() {
                F::Q4_0 => with::<4, false, false, false>(m, x, rows, p, c),
                F::Q4_1 => with::<4, false, true, false>(m, x, rows, p, c),
                F::Q5_0 => with::<5, false, false, false>(m, x, rows, p, c),
                F::Q5_1 => with::<5, false, true, false>(m, x, rows, p, c),
                F::Q8_0 => with::<8, false, false, false>(m, x, rows, p, c),
                F::Q2K => with::<4, true, true, true>(m, x, rows, p, c),
                F::Q3K => with::<4, true, false, true>(m, x, rows, p, c),
                F::Q4K => with::<4, false, true, true>(m, x, rows, p, c),
                F::Q5K => with::<5, false, true, true>(m, x, rows, p, c),
                F::Q6K => with::<6, true, false, true>(m, x, rows, p, c),
            }
        }
    }
}

/// # Safety
/// As [`add_rows`], with what the matrix's format has: its bits, groups of 16 or 32, minima or none, factors or none.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[allow(unsafe_code)]
unsafe fn with<const BITS: usize, const GROUP16: bool, const MINS: bool, const FACTORS: bool>(
    m: &QuantMatrix,
    x: &QuantRows,
    rows: Range<usize>,
    p: usize,
    c: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match rows.len() {
            1 => pass::<1, BITS, GROUP16, MINS, FACTORS>(m, x, rows.start, p, c),
            2 => pass::<2, BITS, GROUP16, MINS, FACTORS>(m, x, rows.start, p, c),
            3 => pass::<3, BITS, GROUP16, MINS, FACTORS>(m, x, rows.start, p, c),
            _ => pass::<4, BITS, GROUP16, MINS, FACTORS>(m, x, rows.start, p, c),
        }
    }
}

/// `R` rows.
///
/// # Safety
/// As [`with`].
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[allow(unsafe_code)]
unsafe fn pass<
    const R: usize,
    const BITS: usize,
    const GROUP16: bool,
    const MINS: bool,
    const FACTORS: bool,
>(
    m: &QuantMatrix,
    x: &QuantRows,
    first: usize,
    p: usize,
    c: *mut f32,
) {
    let per_tile = if GROUP16 { 2 } else { 1 };
    let k = x.k();
    let zero_shift = _mm_cvtsi32_si128(m.format().zero().trailing_zeros() as i32);
    let layout = Layout::new(BITS, if GROUP16 { 16 } else { 32 }, MINS, FACTORS);
    assert!(
        layout.bytes == Layout::of(m.format()).bytes,
        "{:?} is not {layout:?}: this is a bug",
        m.format()
    );
    let (codes, groups) = x.some_rows(first, R);
    let (codes, groups) = (codes.as_ptr().cast::<i32>(), groups.as_ptr());
    // SAFETY: addresses are inside the panel, the rows and the 32 outputs of each: blocks being as long as the format's, the
    // panel has a tile for every 32 codes of a row. Prefetching reads nothing.
    unsafe {
        let mut y = [[_mm512_setzero_ps(); 2]; R];
        for (r, y) in y.iter_mut().enumerate() {
            *y = [_mm512_loadu_ps(c.add(r * COLS)), _mm512_loadu_ps(c.add(r * COLS + 16))];
        }
        for (b, block) in m.panel(p, 0).chunks_exact(layout.bytes).enumerate() {
            prefetch::<BITS>(&block[..layout.head]);
            // by address from here on: the checks of slices cost more than the arithmetic
            let block = block.as_ptr();
            let scale = halves(block);
            let min = if MINS { halves(block.add(HALVES)) } else { scale };
            for tile in 0..layout.tiles {
                let stored = block.add(layout.head + tile * layout.tile);
                prefetch::<BITS>(std::slice::from_raw_parts(stored, layout.tile));
                let at = b * layout.tiles + tile;
                let group = |r: usize| groups.add(r * (k / TILE) + at);
                for part in 0..per_tile {
                    let mut t = [[_mm512_setzero_si512(); 2]; R];
                    // where there are minima, the code of 0 is 0
                    if !MINS {
                        for (r, t) in t.iter_mut().enumerate() {
                            let group = group(r);
                            let minus = if GROUP16 { (*group).minus_sums[part] } else { (*group).minus_sum };
                            *t = [_mm512_sll_epi32(_mm512_set1_epi32(minus), zero_shift); 2];
                        }
                    }
                    // pairs of steps share vectors of low bits
                    let pairs = VECTORS / 4 / per_tile;
                    for pair in part * pairs..(part + 1) * pairs {
                        for half in 0..2 {
                            let w = two_vectors::<BITS>(stored, pair * 4 + half);
                            for (r, t) in t.iter_mut().enumerate() {
                                let at = codes.add(r * (k / 4) + at * (TILE / 4) + pair * 2);
                                let steps = [at, at.add(1)].map(|at| _mm512_set1_epi32(at.read_unaligned()));
                                t[half] = _mm512_dpbusd_epi32(t[half], w[0], steps[0]);
                                t[half] = _mm512_dpbusd_epi32(t[half], w[1], steps[1]);
                            }
                        }
                    }
                    let factors = stored.add(layout.codes + part * COLS);
                    let s = if FACTORS { numbers(scale, factors) } else { scale };
                    for (r, (y, t)) in y.iter_mut().zip(&t).enumerate() {
                        let x_scale = _mm512_set1_ps((*group(r)).scale);
                        for ((y, t), s) in y.iter_mut().zip(t).zip(s) {
                            *y = _mm512_fmadd_ps(_mm512_cvtepi32_ps(*t), _mm512_mul_ps(s, x_scale), *y);
                        }
                    }
                    if !MINS {
                        continue;
                    }
                    let min = if FACTORS { numbers(min, factors.add(per_tile * COLS)) } else { min };
                    for (r, y) in y.iter_mut().enumerate() {
                        let Group { scale, minus_sums, minus, .. } = &*group(r);
                        let minus = if GROUP16 {
                            let sum = _mm512_cvtepi32_ps(_mm512_set1_epi32(minus_sums[part]));
                            _mm512_mul_ps(sum, _mm512_set1_ps(*scale))
                        } else {
                            _mm512_set1_ps(*minus)
                        };
                        for (y, min) in y.iter_mut().zip(min) {
                            *y = _mm512_fnmadd_ps(min, minus, *y);
                        }
                    }
                }
            }
        }
        for (r, y) in y.iter().enumerate() {
            _mm512_storeu_ps(c.add(r * COLS), y[0]);
            _mm512_storeu_ps(c.add(r * COLS + 16), y[1]);
        }
    }
}

/// Asks for what lies [`ahead`] of `bytes`, in this panel or the next.
#[inline(always)]
#[allow(unsafe_code)]
fn prefetch<const BITS: usize>(bytes: &[u8]) {
    for line in (0..bytes.len()).step_by(64) {
        // SAFETY: a prefetch touches no memory that the program sees, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(bytes.as_ptr().wrapping_add(ahead(BITS) + line).cast()) };
    }
}

/// Vectors `v` and `v + 2` of a stored tile, one byte per code.
///
/// # Safety
/// `stored` points at a tile of `BITS` bits; `v % 4 < 2`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
#[allow(unsafe_code)]
unsafe fn two_vectors<const BITS: usize>(stored: *const u8, v: usize) -> [__m512i; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        if BITS == 8 {
            return [v, v + 2].map(|v| _mm512_loadu_si512(stored.add(v * VECTOR).cast()));
        }
        let low = _mm512_set1_epi8(0xf);
        let both = _mm512_loadu_si512(stored.add((v / 4 * 2 + v % 2) * VECTOR).cast());
        let mut two = [_mm512_and_si512(both, low), _mm512_and_si512(_mm512_srli_epi16::<4>(both), low)];
        for bit in 4..BITS {
            let plane = stored.add(512 + (bit - 4) * 128).cast::<u64>();
            let value = _mm512_set1_epi8(1 << bit);
            for (i, vector) in two.iter_mut().enumerate() {
                let set = plane.add(v + 2 * i).read_unaligned();
                *vector = _mm512_mask_add_epi8(*vector, set, *vector, value);
            }
        }
        two
    }
}

/// 32 halves as f32.
///
/// # Safety
/// `from` points at them.
#[inline]
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
unsafe fn halves(from: *const u8) -> [__m512; 2] {
    // SAFETY: the caller's promise.
    unsafe { [0, 32].map(|at| _mm512_cvtph_ps(_mm256_loadu_si256(from.add(at).cast()))) }
}

/// `numbers` times 32 signed bytes.
///
/// # Safety
/// `factors` points at these.
#[inline]
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
unsafe fn numbers(numbers: [__m512; 2], factors: *const u8) -> [__m512; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let factors = [0, 16].map(|at| _mm512_cvtepi8_epi32(_mm_loadu_si128(factors.add(at).cast())));
        [0, 1].map(|half| _mm512_mul_ps(numbers[half], _mm512_cvtepi32_ps(factors[half])))
    }
}
