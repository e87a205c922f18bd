//! One strip of attention: the query rows of one GQA group over a few tokens, against the pages they see.
//!
//! A strip's rows are cut in tiles that fit the registers. Keys come in absolute segments of [`SEGMENT`]; each gives a
//! tile a *part* (maximum, lanes of the sum, weighted values), and parts are merged in order. So it makes no
//! difference who computes a part and when. How a part is computed: `part.rs`.

use super::{
    PageLayout, Pages,
    lanes::{LANES, Lanes},
    number::{KvFloat, KvNumber},
    part::Parts,
    product::ROW,
};
use crate::{ids::BlockId, ops::cpu::tile::COLS};

/// Keys of one softmax: 8 pages, so that the weights of a tile (14 KiB) stay in L1 and its keys and values in L2.
pub(super) const SEGMENT: usize = 256;
/// Most rows of a tile on any instruction set.
pub(super) const ROWS: usize = 14;
/// Tiles from which on it is less work to widen a segment once, into memory, than anew for each tile, in registers.
const WIDENED_FROM: usize = 3;

/// What a thread needs of memory for a strip: offsets in one buffer, in values.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    /// One tile's part: maxima `[16]`, lanes of sums `[14][16]`, values `[14][padded head size]`.
    pub(super) part: usize,
    /// Queries of one tile: `[head_dim / 256][14][ROW]`.
    pub(super) query: usize,
    /// K and V of a segment in f32, where they are widened at all.
    pub(super) widened: usize,
    /// Tiles of a strip.
    pub(super) tiles: usize,
}

impl Sizes {
    /// Of a strip of `tiles` tiles over pages of `T`.
    pub(super) fn new<T: KvNumber>(tiles: usize, layout: PageLayout) -> Self {
        let part = LANES + ROWS * (LANES + layout.padded_dim());
        let widens = T::FLOAT != KvFloat::F32 && tiles >= WIDENED_FROM;
        let widened = if widens { SEGMENT * (layout.head_dim + layout.padded_dim()) } else { 0 };
        Self { part, query: layout.head_dim.div_ceil(SEGMENT) * ROWS * ROW, widened, tiles }
    }

    /// Values of scratch memory.
    pub(super) fn scratch(self) -> usize {
        ROWS * ROW + self.tiles * (self.query + self.part) + self.part + self.widened
    }
}

/// The parts of the scratch memory.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    /// Scores, then weights, of one tile: `[14][ROW]`.
    pub(super) weights: *mut f32,
    /// See [`Sizes::query`], for every tile.
    pub(super) queries: *mut f32,
    /// Of one tile.
    part: *mut f32,
    /// The merged parts of every tile.
    states: *mut f32,
    /// See [`Sizes::widened`].
    pub(super) widened: *mut f32,
}

#[allow(unsafe_code)]
impl Memory {
    /// # Safety
    /// `at` points at [`Sizes::scratch`] values.
    #[inline(always)]
    unsafe fn at(at: *mut f32, sizes: Sizes) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let queries = at.add(ROWS * ROW);
            let part = queries.add(sizes.tiles * sizes.query);
            let states = part.add(sizes.part);
            Self { weights: at, queries, part, states, widened: states.add(sizes.tiles * sizes.part) }
        }
    }
}

/// One GQA group over a few tokens of one sequence.
#[derive(Clone, Copy)]
pub(super) struct Strip<'a, T> {
    pub(super) pages: Pages<'a, T>,
    pub(super) table: &'a [BlockId],
    pub(super) kv_head: usize,
    pub(super) group: usize,
    pub(super) tokens: usize,
    /// Of the first token.
    pub(super) position: usize,
    /// Values from one token to the next in Q and in the output.
    pub(super) token_stride: usize,
}

/// Rows `first..first + rows` of a strip.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) first: usize,
    pub(super) rows: usize,
}

/// A part or the merged parts of a tile: see [`Sizes::part`].
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) max: *mut f32,
    pub(super) sum: *mut f32,
    pub(super) values: *mut f32,
}

#[allow(unsafe_code)]
impl Part {
    /// # Safety
    /// `at` points at [`Sizes::part`] values.
    #[inline(always)]
    pub(super) unsafe fn at(at: *mut f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self { max: at, sum: at.add(LANES), values: at.add(LANES + ROWS * LANES) } }
    }
}

// SAFETY (all of this block): pointers come from the buffers of `run` and its siblings, which hold what `Sizes` says.
#[allow(unsafe_code)]
impl<T: KvNumber> Strip<'_, T> {
    /// Segments that the strip's last row sees.
    pub(super) fn segments(&self) -> usize {
        (self.position + self.tokens).div_ceil(SEGMENT)
    }

    /// Blocks of a segment that the strip's last row sees.
    pub(super) fn blocks(&self, segment: usize) -> usize {
        self.visible(self.tokens * self.group - 1, segment).div_ceil(COLS)
    }

    /// Tiles of `V`.
    pub(super) fn tiles(&self, rows: usize) -> usize {
        (self.tokens * self.group).div_ceil(rows)
    }

    /// All rows, from Q to the output.
    ///
    /// # Safety
    /// The processor has `V`. `q` and `out` point at the first row's first value, and every row of the strip exists in
    /// both; nobody else touches the output's. `scratch` holds [`Sizes::scratch`] values.
    #[inline(always)]
    pub(super) unsafe fn run<V: Lanes>(&self, sizes: Sizes, q: *const f32, out: *mut f32, scratch: *mut f32) {
        // SAFETY: as above.
        unsafe {
            let memory = Memory::at(scratch, sizes);
            self.gather::<V>(sizes, q, memory.queries);
            self.clear::<V>(sizes, memory.states);
            for segment in 0..self.segments() {
                let parts = Parts { first: memory.part, stride: 0, states: Some(memory.states) };
                self.parts::<V>(sizes, segment, memory, parts);
            }
            self.finish::<V>(sizes, memory.states, out);
        }
    }

    /// The parts of one segment, one per tile.
    ///
    /// # Safety
    /// As [`Strip::run`]; `parts` holds [`Sizes::part`] values per tile.
    #[inline(always)]
    pub(super) unsafe fn run_segment<V: Lanes>(
        &self,
        sizes: Sizes,
        segment: usize,
        q: *const f32,
        parts: *mut f32,
        scratch: *mut f32,
    ) {
        // SAFETY: as above.
        unsafe {
            let memory = Memory::at(scratch, sizes);
            self.gather::<V>(sizes, q, memory.queries);
            let parts = Parts { first: parts, stride: sizes.part, states: None };
            self.parts::<V>(sizes, segment, memory, parts);
        }
    }

    /// The output from the parts of all segments, `[segments][tiles]`.
    ///
    /// # Safety
    /// As [`Strip::run`]; `parts` holds what [`Strip::run_segment`] left there.
    #[inline(always)]
    pub(super) unsafe fn join<V: Lanes>(
        &self,
        sizes: Sizes,
        parts: *mut f32,
        out: *mut f32,
        scratch: *mut f32,
    ) {
        // SAFETY: as above.
        unsafe {
            let states = Memory::at(scratch, sizes).states;
            self.clear::<V>(sizes, states);
            for segment in 0..self.segments() {
                for t in 0..sizes.tiles {
                    let tile = self.tile(t, sizes.tiles);
                    let part = Part::at(parts.add((segment * sizes.tiles + t) * sizes.part));
                    let first = self.first_seeing(tile, segment);
                    self.merge::<V>(tile, first, part, Part::at(states.add(t * sizes.part)));
                }
            }
            self.finish::<V>(sizes, states, out);
        }
    }

    pub(super) fn tile(&self, t: usize, tiles: usize) -> Tile {
        let rows = self.tokens * self.group;
        let first = t * rows / tiles;
        Tile { first, rows: (t + 1) * rows / tiles - first }
    }

    /// Keys of a segment that row `row` of the strip sees.
    pub(super) fn visible(&self, row: usize, segment: usize) -> usize {
        (self.position + row / self.group + 1).saturating_sub(segment * SEGMENT).min(SEGMENT)
    }

    /// The first row of a tile, counted in the tile, that sees anything of a segment: later ones see no less.
    pub(super) fn first_seeing(&self, tile: Tile, segment: usize) -> usize {
        (0..tile.rows).position(|r| self.visible(tile.first + r, segment) > 0).unwrap_or(tile.rows)
    }

    /// Q of the strip in tiles, times what makes its scores exponents of 2.
    #[inline(always)]
    unsafe fn gather<V: Lanes>(&self, sizes: Sizes, q: *const f32, queries: *mut f32) {
        // what `Sizes` makes room for: a tile's rows, and a vector of their maxima
        const { assert!(V::ROWS <= ROWS && ROWS <= LANES) };
        let d = self.pages.layout.head_dim;
        let scale = std::f32::consts::LOG2_E / (d as f32).sqrt();
        for t in 0..sizes.tiles {
            let tile = self.tile(t, sizes.tiles);
            for r in 0..tile.rows {
                let row = tile.first + r;
                // SAFETY: as above.
                unsafe {
                    let from = q.add(row / self.group * self.token_stride + row % self.group * d);
                    let to = queries.add(t * sizes.query + r * ROW);
                    for slice in 0..d.div_ceil(SEGMENT) {
                        for i in 0..SEGMENT.min(d - slice * SEGMENT) {
                            *to.add(slice * ROWS * ROW + i) = *from.add(slice * SEGMENT + i) * scale;
                        }
                    }
                }
            }
        }
    }

    /// States of rows that have seen nothing.
    #[inline(always)]
    unsafe fn clear<V: Lanes>(&self, sizes: Sizes, states: *mut f32) {
        // SAFETY: as above.
        unsafe {
            for t in 0..sizes.tiles {
                let state = states.add(t * sizes.part);
                V::splat(f32::NEG_INFINITY).store(state);
                for at in (LANES..sizes.part).step_by(LANES) {
                    V::splat(0.0).store(state.add(at));
                }
            }
        }
    }

    /// Adds a part to a state, rows `first..`: both relative to the greater of their maxima.
    #[inline(always)]
    pub(super) unsafe fn merge<V: Lanes>(&self, tile: Tile, first: usize, part: Part, state: Part) {
        let dp = self.pages.layout.padded_dim();
        let (mut old, mut new) = ([0f32; LANES], [0f32; LANES]);
        // SAFETY: as above.
        unsafe {
            let (before, of_part) = (V::load(state.max), V::load(part.max));
            let max = before.max(of_part);
            before.sub(max).exp2().store(old.as_mut_ptr());
            of_part.sub(max).exp2().store(new.as_mut_ptr());
            let mut maxima = [0f32; LANES];
            max.store(maxima.as_mut_ptr());
            for r in first..tile.rows {
                *state.max.add(r) = maxima[r];
                let (old, new) = (V::splat(old[r]), V::splat(new[r]));
                let add = |to: *mut f32, from: *const f32| {
                    V::load(from).fma(new, V::load(to).mul(old)).store(to);
                };
                add(state.sum.add(r * LANES), part.sum.add(r * LANES));
                for i in (0..dp).step_by(LANES) {
                    add(state.values.add(r * dp + i), part.values.add(r * dp + i));
                }
            }
        }
    }

    /// Divides by the sums and writes the rows out.
    #[inline(always)]
    unsafe fn finish<V: Lanes>(&self, sizes: Sizes, states: *const f32, out: *mut f32) {
        let (d, dp) = (self.pages.layout.head_dim, self.pages.layout.padded_dim());
        for t in 0..sizes.tiles {
            let tile = self.tile(t, sizes.tiles);
            for r in 0..tile.rows {
                let row = tile.first + r;
                // SAFETY: as above.
                unsafe {
                    let state = Part::at(states.add(t * sizes.part).cast_mut());
                    let inverse = V::load(state.sum.add(r * LANES)).total().recip();
                    let to = out.add(row / self.group * self.token_stride + row % self.group * d);
                    for i in 0..d {
                        *to.add(i) = *state.values.add(r * dp + i) * inverse;
                    }
                }
            }
        }
    }
}
