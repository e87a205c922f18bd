//! One segment of keys for one tile of query rows: scores, softmax weights, weighted values.

use super::{
    Pages,
    lanes::{LANES, Lanes},
    product::{AHEAD, ROW, Rhs, Target, product},
    strip::{Part, ROWS, SEGMENT, Strip, Tile},
};
use crate::ops::cpu::tile::{COLS, Start};

/// Pages of a segment.
const PAGES: usize = SEGMENT / COLS;
/// A segment's pages of K or V, and what is read after them.
type SegmentPages = [*const f32; PAGES + AHEAD];

// SAFETY (all of this block): pointers come from the buffers of `Strip::run` and its siblings, which hold what `Sizes`
// says.
#[allow(unsafe_code)]
impl Strip<'_> {
    /// One segment of one tile: scores, weights relative to the segment's maximum, weighted values. Returns the first
    /// row that sees anything; the part of rows before it is not written.
    #[inline(always)]
    pub(super) unsafe fn part<V: Lanes>(
        &self,
        tile: Tile,
        segment: usize,
        queries: *const f32,
        weights: *mut f32,
        part: *mut f32,
    ) -> usize {
        let first = self.first_seeing(tile, segment);
        if first == tile.rows {
            return first;
        }
        let seen = self.visible(tile.first + tile.rows - 1, segment);
        let n = seen.div_ceil(COLS);
        let (k, v) = self.segment_pages(segment, n);
        // SAFETY: as above; a page of a block holds what the layout says.
        unsafe {
            let part = Part::at(part);
            let rows = tile.rows - first;
            for b in 0..n {
                let scores = weights.add(first * ROW + b * COLS);
                self.scores::<V>(rows, queries.add(first * ROW), [k[b], k[b + 1], k[b + 2]], scores);
            }
            for r in first..tile.rows {
                let visible = self.visible(tile.first + r, segment);
                *part.max.add(r) = greatest::<V>(weights.add(r * ROW), visible);
            }
            for r in first..tile.rows {
                let visible = self.visible(tile.first + r, segment);
                let sum = weigh::<V>(weights.add(r * ROW), visible, *part.max.add(r));
                sum.store(part.sum.add(r * LANES));
            }
            self.add_values::<V>(tile, segment, &v[..n + AHEAD], weights, part.values);
        }
        first
    }

    /// K and V of the first `n` blocks of a segment; V is read after K, and the next segment's K after V.
    #[inline(always)]
    fn segment_pages(&self, segment: usize, n: usize) -> (SegmentPages, SegmentPages) {
        let Pages { k, v, layout } = self.pages;
        let (mut k_pages, mut v_pages) =
            ([std::ptr::null(); PAGES + AHEAD], [std::ptr::null(); PAGES + AHEAD]);
        // what the table holds behind the strip's own keys may not be ready to be named
        let blocks = &self.table[segment * PAGES..(self.position + self.tokens).div_ceil(COLS)];
        for (i, &block) in blocks[..n].iter().enumerate() {
            k_pages[i] = layout.k_of(k, block, self.kv_head).as_ptr();
            v_pages[i] = layout.v_of(v, block, self.kv_head).as_ptr();
        }
        k_pages[n] = v_pages[0];
        k_pages[n + 1] = v_pages[1.min(n - 1)];
        let after = if segment + 1 < self.segments() { &blocks[n..] } else { blocks };
        v_pages[n] = layout.k_of(k, after[0], self.kv_head).as_ptr();
        v_pages[n + 1] = layout.k_of(k, after[1.min(after.len() - 1)], self.kv_head).as_ptr();
        (k_pages, v_pages)
    }

    /// Scores of some rows for the first of the pages.
    #[inline(always)]
    unsafe fn scores<V: Lanes>(
        &self,
        rows: usize,
        queries: *const f32,
        pages: [*const f32; 1 + AHEAD],
        to: *mut f32,
    ) {
        let d = self.pages.layout.head_dim;
        for slice in 0..d.div_ceil(SEGMENT) {
            let start = if slice == 0 { Start::Zero } else { Start::FromC };
            let len = SEGMENT.min(d - slice * SEGMENT);
            // SAFETY: as above.
            unsafe {
                let k = pages.map(|page| page.add(slice * SEGMENT * COLS));
                let k = Rhs { pages: &k, page_rows: len, from: 0, to: len };
                let c = Target { data: to, stride: ROW, start };
                product::<V>(rows, queries.add(slice * ROWS * ROW), k, c);
            }
        }
    }

    /// Weights times values. A row multiplies only the keys it sees: what lies behind them may belong to nobody, and a
    /// weight of 0 does not cancel a value that is no number. So rows leave as their keys end.
    #[inline(always)]
    unsafe fn add_values<V: Lanes>(
        &self,
        tile: Tile,
        segment: usize,
        pages: &[*const f32],
        weights: *const f32,
        values: *mut f32,
    ) {
        let dp = self.pages.layout.padded_dim();
        let (mut first, mut from) = (self.first_seeing(tile, segment), 0);
        while first < tile.rows {
            let to = self.visible(tile.first + first, segment);
            let start = if from == 0 { Start::Zero } else { Start::FromC };
            let mut panels = [std::ptr::null(); PAGES + AHEAD];
            panels[..pages.len()].copy_from_slice(pages);
            for panel in 0..dp / COLS {
                // SAFETY: as above.
                unsafe {
                    let a = weights.add(first * ROW);
                    let b = Rhs { pages: &panels[..pages.len()], page_rows: COLS, from, to };
                    let c = Target { data: values.add(first * dp + panel * COLS), stride: dp, start };
                    product::<V>(tile.rows - first, a, b, c);
                    panels = panels.map(|page| page.wrapping_add(COLS * COLS));
                }
            }
            from = to;
            while first < tile.rows && self.visible(tile.first + first, segment) == to {
                first += 1;
            }
        }
    }
}

/// The greatest of `visible` scores. The rest of their last vector becomes -∞, which weighs nothing.
///
/// # Safety
/// The processor has `V`; `s` points at a row of weights, `visible` is 1 to [`SEGMENT`].
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn greatest<V: Lanes>(s: *mut f32, visible: usize) -> f32 {
    // SAFETY: a row has room for whole vectors.
    unsafe {
        for i in visible..visible.next_multiple_of(LANES) {
            *s.add(i) = f32::NEG_INFINITY;
        }
        let mut max = [V::load(s); 2];
        for i in (0..visible).step_by(2 * LANES) {
            max[0] = max[0].max(V::load(s.add(i)));
            if i + LANES < visible {
                max[1] = max[1].max(V::load(s.add(i + LANES)));
            }
        }
        max[0].max(max[1]).greatest()
    }
}

/// Scores become weights `2^(s - max)`; returns their sum, lane by lane.
///
/// # Safety
/// As [`greatest`].
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn weigh<V: Lanes>(s: *mut f32, visible: usize, max: f32) -> V {
    // SAFETY: a row has room for whole vectors.
    unsafe {
        let (mut sum, max) = (V::splat(0.0), V::splat(max));
        for i in (0..visible).step_by(LANES) {
            let weight = V::load(s.add(i)).sub(max).exp2();
            weight.store(s.add(i));
            sum = sum.add(weight);
        }
        sum
    }
}
