//! The 8-bit dot kernels: rows of quantised activations against an [`Expanded`] slice of a panel.
//!
//! Every output element is one chain over the groups of the weights, in order: with `t` the exact integer
//! `Σ (code - zero) · activation` of a group, `s = scale · activation scale` and, where there is a minimum,
//! `u = activation scale · Σ activations`,
//!
//! ```text
//! y = fma(t, s, y);  y = fma(min, u, y)
//! ```
//!
//! Integers are exact whatever the order, so all instruction sets agree bit for bit and rows do not know each other.
//! The same on tile registers, for many rows: `amx.rs`.

#[cfg(target_arch = "x86_64")]
use super::{avx2, stored::VECTORS};
use super::{
    rows::{Group, QuantRows},
    slice::Expanded,
    stored::TILE,
};
use crate::ops::cpu::tile::{COLS, Isa, Vectorised};

/// Most rows of one call: 6 × 2 integer and 6 × 2 float accumulators fit the 32 vector registers.
pub(super) const ROWS: usize = 6;

/// What distinguishes the formats once they are expanded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Groups are of 16 inputs instead of 32.
    pub(super) group16: bool,
    /// There are minima.
    pub(super) mins: bool,
    /// Code of a weight of 0: a power of two, or 0 where there are minima.
    pub(super) zero: u8,
    /// Bits that every code fits in; plain code does not ask.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(super) bits: usize,
}

impl Shape {
    /// Groups of a tile.
    pub(super) fn per_tile(self) -> usize {
        if self.group16 { 2 } else { 1 }
    }
}

/// A few rows of activations, from input `tile * 32` on, `tiles` tiles long.
#[derive(Clone, Copy)]
pub(super) struct Left<'a> {
    pub(super) x: &'a QuantRows,
    pub(super) row: usize,
    pub(super) rows: usize,
    pub(super) tile: usize,
    pub(super) tiles: usize,
}

/// Output rows of 32 values, `stride` apart, that no other thread touches; what they hold is added to.
#[derive(Clone, Copy)]
pub(super) struct Out {
    pub(super) to: *mut f32,
    pub(super) stride: usize,
}

/// # Safety
/// `out` is as it says for `a.rows` rows; `a` names rows and tiles that exist, at most [`ROWS`] rows and as many
/// tiles as `b` holds.
#[allow(unsafe_code)]
pub(super) unsafe fn dot(isa: Isa, a: Left<'_>, b: Expanded<'_>, shape: Shape, out: Out) {
    #[cfg(target_arch = "x86_64")]
    if isa.has_vnni() {
        macro_rules! rows {
            ($g:literal, $m:literal) => {
                match a.rows {
                    1 => avx512::<1, $g, $m>(a, b, shape.zero, out),
                    2 => avx512::<2, $g, $m>(a, b, shape.zero, out),
                    3 => avx512::<3, $g, $m>(a, b, shape.zero, out),
                    4 => avx512::<4, $g, $m>(a, b, shape.zero, out),
                    5 => avx512::<5, $g, $m>(a, b, shape.zero, out),
                    _ => avx512::<6, $g, $m>(a, b, shape.zero, out),
                }
            };
        }
        // SAFETY: the caller's promise, and the processor has the features.
        unsafe {
            match (shape.group16, shape.mins) {
                (false, false) => rows!(false, false),
                (false, true) => rows!(false, true),
                (true, false) => rows!(true, false),
                (true, true) => rows!(true, true),
            }
        }
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if isa.has_avx2() {
        // SAFETY: the caller's promise, and the processor has the features.
        unsafe { avx2::dot(isa, a, b, shape, out) };
        return;
    }
    for r in 0..a.rows {
        // SAFETY: the caller's promise; row `r` of `out` is 32 values.
        let y = unsafe { &mut *out.to.add(r * out.stride).cast::<[f32; COLS]>() };
        isa.run(OneRow { a: Left { row: a.row + r, rows: 1, ..a }, b, shape, y });
    }
}

/// The formula, one row at a time.
struct OneRow<'a> {
    a: Left<'a>,
    b: Expanded<'a>,
    shape: Shape,
    y: &'a mut [f32; COLS],
}

impl Vectorised for OneRow<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { a, b, shape, y } = self;
        let (codes, groups) = a.x.row(a.row);
        let codes = &codes[a.tile * TILE..][..a.tiles * TILE];
        let per_tile = shape.per_tile();
        let steps = TILE / 4 / per_tile;
        for g in 0..a.tiles * per_tile {
            let tile = g / per_tile;
            let Group { scale, minus_sum, minus_sums, .. } = groups[a.tile + tile];
            let minus_sum = if shape.group16 { minus_sums[g % 2] } else { minus_sum };
            let mut t = [minus_sum * i32::from(shape.zero); COLS];
            for step in 0..steps {
                let x: [i8; 4] =
                    codes[(g * steps + step) * 4..][..4].try_into().expect("four codes: this is a bug");
                let first = (g % per_tile * steps + step) * 2;
                let vectors = b.codes[tile][first..first + 2].as_flattened().as_chunks::<4>().0;
                for (t, w) in t.iter_mut().zip(vectors) {
                    for (w, x) in w.iter().zip(x) {
                        *t += i32::from(*w) * i32::from(x);
                    }
                }
            }
            for ((y, t), s) in y.iter_mut().zip(t).zip(b.scales[g]) {
                *y = (t as f32).mul_add(s * scale, *y);
            }
            if shape.mins {
                let minus = minus_sum as f32 * scale;
                for (y, min) in y.iter_mut().zip(b.mins[g]) {
                    *y = (-min).mul_add(minus, *y);
                }
            }
        }
    }
}

/// # Safety
/// As [`dot`], with `a.rows == R`, AVX-512F and VNNI.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vnni")]
#[allow(unsafe_code)]
unsafe fn avx512<const R: usize, const GROUP16: bool, const MINS: bool>(
    a: Left<'_>,
    b: Expanded<'_>,
    zero: u8,
    out: Out,
) {
    use std::arch::x86_64::{
        __m512, __m512i, _mm_cvtsi32_si128, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps,
        _mm512_fnmadd_ps, _mm512_load_ps, _mm512_load_si512, _mm512_loadu_ps, _mm512_mul_ps,
        _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_sll_epi32,
        _mm512_storeu_ps,
    };
    let (codes, groups) = a.x.some_rows(a.row, R);
    let k = a.x.k();
    let per_tile = if GROUP16 { 2 } else { 1 };
    let zero_shift = _mm_cvtsi32_si128(zero.trailing_zeros() as i32);
    // SAFETY: all addresses are inside the rows, the slice and the output rows that the caller promises.
    unsafe {
        let codes = codes.as_ptr().add(a.tile * TILE).cast::<i32>();
        let groups = groups.as_ptr().add(a.tile);
        // no bounds are checked inside: a way out of the loop keeps the compiler from holding sums in place
        let all = b.codes.as_ptr();
        let mut y = [[_mm512_setzero_ps(); 2]; R];
        for (r, y) in y.iter_mut().enumerate() {
            let row = out.to.add(r * out.stride);
            *y = [_mm512_loadu_ps(row), _mm512_loadu_ps(row.add(16))];
        }
        for g in 0..a.tiles * per_tile {
            let tile = g / per_tile;
            let group = |r: usize| groups.add(r * (k / TILE) + tile);
            let mut t = [[_mm512_setzero_si512(); 2]; R];
            // where there are minima, the code of 0 is 0
            if !MINS {
                for (r, t) in t.iter_mut().enumerate() {
                    let group = group(r);
                    let minus = if GROUP16 { (*group).minus_sums[g % 2] } else { (*group).minus_sum };
                    *t = [_mm512_sll_epi32(_mm512_set1_epi32(minus), zero_shift); 2];
                }
            }
            let steps = VECTORS / 2 / per_tile;
            let vectors = all.add(tile).cast::<__m512i>().add(g % per_tile * steps * 2);
            for step in 0..steps {
                let w0 = _mm512_load_si512(vectors.add(step * 2));
                let w1 = _mm512_load_si512(vectors.add(step * 2 + 1));
                for (r, t) in t.iter_mut().enumerate() {
                    let x = _mm512_set1_epi32(codes.add(r * (k / 4) + g * steps + step).read_unaligned());
                    t[0] = _mm512_dpbusd_epi32(t[0], w0, x);
                    t[1] = _mm512_dpbusd_epi32(t[1], w1, x);
                }
            }
            let factors = |of: *const f32| -> [__m512; 2] {
                let of = of.add(g * COLS);
                [_mm512_load_ps(of), _mm512_load_ps(of.add(16))]
            };
            let s = factors(b.scales.as_ptr().cast());
            for (r, (y, t)) in y.iter_mut().zip(&t).enumerate() {
                let x = _mm512_set1_ps((*group(r)).scale);
                y[0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(t[0]), _mm512_mul_ps(s[0], x), y[0]);
                y[1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(t[1]), _mm512_mul_ps(s[1], x), y[1]);
            }
            if MINS {
                let min = factors(b.mins.as_ptr().cast());
                for (r, y) in y.iter_mut().enumerate() {
                    let Group { scale, minus_sums, minus, .. } = &*group(r);
                    let minus = if GROUP16 {
                        let sum = _mm512_cvtepi32_ps(_mm512_set1_epi32(minus_sums[g % 2]));
                        _mm512_mul_ps(sum, _mm512_set1_ps(*scale))
                    } else {
                        _mm512_set1_ps(*minus)
                    };
                    y[0] = _mm512_fnmadd_ps(min[0], minus, y[0]);
                    y[1] = _mm512_fnmadd_ps(min[1], minus, y[1]);
                }
            }
        }
        for (r, y) in y.iter().enumerate() {
            let row = out.to.add(r * out.stride);
            _mm512_storeu_ps(row, y[0]);
            _mm512_storeu_ps(row.add(16), y[1]);
        }
    }
}
