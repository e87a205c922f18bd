//! One segment of keys for the tiles of a strip: scores, softmax weights, weighted values.

use super::{
    Pages,
    lanes::{LANES, Lanes},
    number::{KvFloat, KvNumber},
    product::{AHEAD, ROW, Rhs, Target, product},
    strip::{Memory, Part, ROWS, SEGMENT, Sizes, Strip, Tile},
};
use crate::ops::cpu::{
    buffer::LINE,
    tile::{COLS, Start},
};

/// Pages of a segment.
const PAGES: usize = SEGMENT / COLS;
/// A segment's pages of K or V, and what is read after them.
type Side<T> = [*const T; PAGES + AHEAD];

/// K and V of one KV head in a segment, as far as the strip sees them.
#[derive(Clone, Copy)]
struct Segment<T> {
    index: usize,
    k: Side<T>,
    v: Side<T>,
}

/// Where parts go.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    /// Of the first tile.
    pub(super) first: *mut f32,
    /// Values from one tile's to the next's.
    pub(super) stride: usize,
    /// The states that each is merged into at once, if any.
    pub(super) states: Option<*mut f32>,
}

// SAFETY (all of this block): pointers come from the buffers of `Strip::run` and its siblings, which hold what `Sizes`
// says.
#[allow(unsafe_code)]
impl<T: KvNumber> Strip<'_, T> {
    /// The parts of one segment, tile by tile.
    #[inline(always)]
    pub(super) unsafe fn parts<V: Lanes>(&self, sizes: Sizes, segment: usize, memory: Memory, parts: Parts) {
        let segment = self.segment(segment);
        // SAFETY: as above.
        unsafe {
            if T::FLOAT == KvFloat::F32 || sizes.widened == 0 {
                self.parts_of::<V, T>(sizes, &segment, memory, parts);
            } else {
                let segment = self.widen::<V>(&segment, memory.widened);
                self.parts_of::<V, f32>(sizes, &segment, memory, parts);
            }
        }
    }

    #[inline(always)]
    unsafe fn parts_of<V: Lanes, B: KvNumber>(
        &self,
        sizes: Sizes,
        segment: &Segment<B>,
        memory: Memory,
        parts: Parts,
    ) {
        for t in 0..sizes.tiles {
            let tile = self.tile(t, sizes.tiles);
            // SAFETY: as above.
            unsafe {
                let part = Part::at(parts.first.add(t * parts.stride));
                let queries = memory.queries.add(t * sizes.query);
                let first = self.part::<V, B>(tile, segment, queries, memory.weights, part);
                if let Some(states) = parts.states {
                    self.merge::<V>(tile, first, part, Part::at(states.add(t * sizes.part)));
                }
            }
        }
    }

    /// One segment of one tile: scores, weights relative to the segment's maximum, weighted values. Returns the first
    /// row that sees anything; the part of rows before it is not written.
    #[inline(always)]
    unsafe fn part<V: Lanes, B: KvNumber>(
        &self,
        tile: Tile,
        segment: &Segment<B>,
        queries: *const f32,
        weights: *mut f32,
        part: Part,
    ) -> usize {
        let first = self.first_seeing(tile, segment.index);
        if first == tile.rows {
            return first;
        }
        let seen = self.visible(tile.first + tile.rows - 1, segment.index);
        let (k, rows) = (&segment.k, tile.rows - first);
        // SAFETY: as above; a page of a block holds what the layout says.
        unsafe {
            for b in 0..seen.div_ceil(COLS) {
                let scores = weights.add(first * ROW + b * COLS);
                self.scores::<V, B>(rows, queries.add(first * ROW), [k[b], k[b + 1], k[b + 2]], scores);
            }
            for r in first..tile.rows {
                let visible = self.visible(tile.first + r, segment.index);
                *part.max.add(r) = greatest::<V>(weights.add(r * ROW), visible);
            }
            for r in first..tile.rows {
                let visible = self.visible(tile.first + r, segment.index);
                let sum = weigh::<V>(weights.add(r * ROW), visible, *part.max.add(r));
                sum.store(part.sum.add(r * LANES));
            }
            self.add_values::<V, B>(tile, segment, weights, part.values);
        }
        first
    }

    /// A segment in the pages: V is read after K, and the next segment's K after V.
    #[inline(always)]
    fn segment(&self, index: usize) -> Segment<T> {
        let Pages { k, v, layout } = self.pages;
        let (k_of, v_of) = (
            |block| layout.k_of(k, block, self.kv_head).as_ptr(),
            |block| layout.v_of(v, block, self.kv_head).as_ptr(),
        );
        let mut segment =
            Segment { index, k: [std::ptr::null(); PAGES + AHEAD], v: [std::ptr::null(); PAGES + AHEAD] };
        // what the table holds behind the strip's own keys may not be ready to be named
        let blocks = &self.table[index * PAGES..(self.position + self.tokens).div_ceil(COLS)];
        let (own, after) = blocks.split_at(PAGES.min(blocks.len()));
        for (i, &block) in own.iter().enumerate() {
            (segment.k[i], segment.v[i]) = (k_of(block), v_of(block));
        }
        let (n, after) = (own.len(), if after.is_empty() { own } else { after });
        for i in 0..AHEAD {
            segment.k[n + i] = segment.v[i.min(n - 1)];
            segment.v[n + i] = k_of(after[i.min(after.len() - 1)]);
        }
        segment
    }

    /// The same, widened to f32 into `to`: what many tiles read is widened once.
    #[inline(always)]
    unsafe fn widen<V: Lanes>(&self, segment: &Segment<T>, to: *mut f32) -> Segment<f32> {
        let (k_page, v_page) = self.pages.layout.pages_of_a_head();
        let n = self.blocks(segment.index);
        // SAFETY: as above.
        let (mut k, mut v) = unsafe {
            let v = to.add(PAGES * k_page);
            (
                widen::<V, T>(&segment.k[..n + AHEAD], k_page, to),
                widen::<V, T>(&segment.v[..n + AHEAD], v_page, v),
            )
        };
        // after K a tile reads V, and the next tile K again
        for i in 0..AHEAD {
            (k[n + i], v[n + i]) = (v[i.min(n - 1)], k[i.min(n - 1)]);
        }
        Segment { index: segment.index, k, v }
    }

    /// Scores of some rows for the first of the pages.
    #[inline(always)]
    unsafe fn scores<V: Lanes, B: KvNumber>(
        &self,
        rows: usize,
        queries: *const f32,
        pages: [*const B; 1 + AHEAD],
        to: *mut f32,
    ) {
        let d = self.pages.layout.head_dim;
        for slice in 0..d.div_ceil(SEGMENT) {
            let start = if slice == 0 { Start::Zero } else { Start::FromC };
            let len = SEGMENT.min(d - slice * SEGMENT);
            // SAFETY: as above.
            unsafe {
                let k = pages.map(|page| page.wrapping_add(slice * SEGMENT * COLS));
                let k = Rhs { pages: &k, page_rows: len, from: 0, to: len };
                let c = Target { data: to, stride: ROW, start };
                product::<V, B>(rows, queries.add(slice * ROWS * ROW), k, c);
            }
        }
    }

    /// Weights times values. A row multiplies only the keys it sees: what lies behind them may belong to nobody, and a
    /// weight of 0 does not cancel a value that is no number. So rows leave as their keys end.
    #[inline(always)]
    unsafe fn add_values<V: Lanes, B: KvNumber>(
        &self,
        tile: Tile,
        segment: &Segment<B>,
        weights: *const f32,
        values: *mut f32,
    ) {
        let dp = self.pages.layout.padded_dim();
        let (mut first, mut from) = (self.first_seeing(tile, segment.index), 0);
        while first < tile.rows {
            let to = self.visible(tile.first + first, segment.index);
            let start = if from == 0 { Start::Zero } else { Start::FromC };
            let mut panels = segment.v;
            for panel in 0..dp / COLS {
                // SAFETY: as above.
                unsafe {
                    let a = weights.add(first * ROW);
                    let b = Rhs { pages: &panels, page_rows: COLS, from, to };
                    let c = Target { data: values.add(first * dp + panel * COLS), stride: dp, start };
                    product::<V, B>(tile.rows - first, a, b, c);
                    panels = panels.map(|page| page.wrapping_add(COLS * COLS));
                }
            }
            from = to;
            while first < tile.rows && self.visible(tile.first + first, segment.index) == to {
                first += 1;
            }
        }
    }
}

/// Pages of `page` values each, widened one after another into `to`; the last [`AHEAD`] are only fetched.
///
/// # Safety
/// The processor has `V`; the pages exist, and `to` has room for them.
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn widen<V: Lanes, T: KvNumber>(pages: &[*const T], page: usize, to: *mut f32) -> Side<f32> {
    let mut widened = [std::ptr::null(); PAGES + AHEAD];
    for (b, to_page) in widened[..pages.len() - AHEAD].iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            let (from, ahead, to) = (pages[b], pages[b + AHEAD], to.add(b * page));
            for i in (0..page).step_by(LANES) {
                T::load::<V>(from.add(i)).store(to.add(i));
                if i.is_multiple_of(LINE / size_of::<T>()) {
                    V::prefetch(ahead.wrapping_add(i));
                }
            }
            *to_page = to;
        }
    }
    widened
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
