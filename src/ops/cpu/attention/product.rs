//! The micro-kernel: a tile of a few rows by 32 columns, the sums in registers over many rows of the right side.
//!
//! `C[r][j] (+)= Σ_i A[r][i] · B[i][j]` with `i` ascending, one fused multiply-add per term: cutting the sum in
//! several calls changes nothing, and neither does the number of rows.

use super::{
    lanes::{LANES, Lanes},
    number::KvNumber,
    strip::SEGMENT,
};
use crate::ops::cpu::{
    buffer::LINE,
    tile::{COLS, Start},
};

/// Values from one row of a left side to the next: a whole segment of weights, or as many values of a query, and one
/// vector more, so that rows lie in different cache sets. Fixed, so that it fits addressing modes.
pub(super) const ROW: usize = SEGMENT + LANES;

/// How many pages ahead of the sums memory is fetched into the L2 cache. Pages are scattered pieces of some KiB, too
/// short for the processor to see a stream in them: without this, decoding reads memory at half the rate.
pub(super) const AHEAD: usize = 2;

/// The right side: rows of 32 values, `page_rows` of them in each page; of these, rows `from..to` take part. The
/// [`AHEAD`] pages after the last one are only fetched.
#[derive(Clone, Copy)]
pub(super) struct Rhs<'a, T> {
    pub(super) pages: &'a [*const T],
    pub(super) page_rows: usize,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Where the product goes: row `r` is `data[r * stride..][..32]`.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) data: *mut f32,
    pub(super) stride: usize,
    pub(super) start: Start,
}

/// One tile of `rows` rows, 1 to `V::ROWS`; A has `b.to` terms per row, [`ROW`] apart.
///
/// # Safety
/// The processor has `V`; all rows of the three sides exist; nobody else touches the target.
#[inline(always)]
#[allow(unsafe_code)]
pub(super) unsafe fn product<V: Lanes, T: KvNumber>(rows: usize, a: *const f32, b: Rhs<'_, T>, c: Target) {
    macro_rules! rows {
        ($($r:literal)*) => {
            match rows {
                // a tile has no more than V::ROWS rows: the other arms are not even compiled
                $($r if $r <= V::ROWS => fixed::<V, T, $r>(a, b, c),)*
                _ => unreachable!("tile of {rows} rows: this is a bug"),
            }
        };
    }
    // SAFETY: the caller's promise.
    unsafe { rows!(1 2 3 4 5 6 7 8 9 10 11 12 13 14) }
}

/// # Safety
/// As [`product`], with `R` rows.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn fixed<V: Lanes, T: KvNumber, const R: usize>(a: *const f32, b: Rhs<'_, T>, c: Target) {
    // SAFETY: all addresses are inside what the caller promises.
    unsafe {
        for half in (0..2).step_by(V::VECS) {
            let out = c.data.add(half * LANES);
            let mut sum = [[V::splat(0.0); 2]; R];
            if c.start == Start::FromC {
                for (r, sum) in sum.iter_mut().enumerate() {
                    for (v, sum) in sum[..V::VECS].iter_mut().enumerate() {
                        *sum = V::load(out.add(r * c.stride + v * LANES));
                    }
                }
            }
            let mut row = b.from;
            while row < b.to {
                let (page, first) = (row / b.page_rows, row % b.page_rows);
                let end = row + (b.page_rows - first).min(b.to - row);
                let at = first * COLS + half * LANES;
                let mut from = b.pages.get_unchecked(page).add(at);
                let mut ahead = b.pages.get_unchecked(page + AHEAD).wrapping_add(at);
                for i in row..end {
                    let b = [T::load::<V>(from), T::load::<V>(from.add((V::VECS - 1) * LANES))];
                    for (r, sum) in sum.iter_mut().enumerate() {
                        let x = V::splat(*a.add(r * ROW + i));
                        for (sum, b) in sum[..V::VECS].iter_mut().zip(b) {
                            *sum = x.fma(b, *sum);
                        }
                    }
                    // a line at a time
                    for v in (0..V::VECS * LANES).step_by(LINE / size_of::<T>()) {
                        V::prefetch(ahead.wrapping_add(v));
                    }
                    from = from.add(COLS);
                    ahead = ahead.wrapping_add(COLS);
                }
                row = end;
            }
            for (r, sum) in sum.iter().enumerate() {
                for (v, sum) in sum[..V::VECS].iter().enumerate() {
                    sum.store(out.add(r * c.stride + v * LANES));
                }
            }
        }
    }
}
