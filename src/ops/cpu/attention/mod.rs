//! Causal attention over paged KV on the CPU, prefill and decode.
//!
//! A page holds, per KV head, K as `[head_dim][32 keys]` and V as panels `[head_dim / 32][32 keys][32]`
//! ([`PageLayout`]), so both products of attention are calls of one micro-kernel (`product.rs`). The query rows of one
//! GQA group over a few tokens form a *strip* (`strip.rs`), so a page is read once for all of them.
//!
//! A row's softmax runs over absolute segments of 256 keys, each relative to its own maximum, and the segments are
//! merged in order; nothing behind the row's position is read. So a row's bits do not depend on the other rows, on
//! prefill chunking, on which pages hold its keys, on threads, or on whether the segments of a long sequence were
//! computed one after another or side by side.
//!
//! Pages hold f32 or f16 (`number.rs`); arithmetic is f32. What few rows read is widened in registers; where many tiles of
//! rows read a segment, it is widened once, into memory that stays in the L2 cache (`part.rs`). The bits are the same.
//!
//! Slow twin: [`crate::ops::reference::attention`]. Tests: `tests.rs`.

mod lanes;
mod layout;
mod number;
mod part;
mod product;
mod strip;

use std::cell::RefCell;

#[cfg(target_arch = "x86_64")]
use self::lanes::{Avx2, Avx512};
use self::{
    lanes::{LANES, Lanes, Plain},
    strip::{Sizes, Strip},
};
use super::{
    Cpu,
    tile::{COLS, Kind},
};
use crate::ids::BlockId;

pub use layout::PageLayout;
pub use number::{KvFloat, KvNumber};

/// Most query rows of a strip: the more, the more often a page is used while it is in the L2 cache.
const STRIP_ROWS: usize = 112;
/// Most query rows of a strip when there are too few of the long ones for the threads.
const SHORT_ROWS: usize = 14;
/// Strips that a thread should have to choose from, so that all end at about the same time.
const STRIPS_PER_THREAD: usize = 6;

/// A run of query rows of one sequence.
#[derive(Clone, Debug)]
pub struct AttentionItem {
    /// First row in Q.
    pub first_row: usize,
    /// Number of rows; row `i` is at position `first_position + i` and sees positions up to its own.
    pub rows: usize,
    /// Position of the first row.
    pub first_position: usize,
    /// The sequence's blocks, in order.
    pub table: Vec<BlockId>,
}

/// The K and V pool of one layer.
#[derive(Clone, Copy)]
pub struct Pages<'a, T> {
    /// K pool, `[n_blocks][n_kv_heads][head_dim][32]`.
    pub k: &'a [T],
    /// V pool, `[n_blocks][n_kv_heads][head_dim / 32][32][32]`.
    pub v: &'a [T],
    /// Sizes.
    pub layout: PageLayout,
}

/// Some tokens of an item and one KV head.
#[derive(Clone, Copy)]
struct Task {
    item: usize,
    first: usize,
    tokens: usize,
    kv_head: usize,
    /// Tokens times the last position: how long it takes.
    cost: usize,
    /// Number of the first segment's part where segments are computed side by side.
    parts: usize,
}

/// Memory in whole cache lines.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LANES]);

/// What a call needs besides its arguments, kept from call to call.
#[derive(Default)]
struct Plan {
    tasks: Vec<Task>,
    /// `(task, segment)` where segments are computed side by side.
    pieces: Vec<(usize, usize)>,
    parts: Vec<Line>,
}

thread_local! {
    static PLAN: RefCell<Plan> = RefCell::default();
    static SCRATCH: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// `q [n_rows, n_heads, head_dim]` → attention output `out` of the same shape, scores scaled by `1/sqrt(head_dim)`.
/// Rows that no item names are left as they are. Allocates only while its thread-private buffers grow.
///
/// # Panics
/// When items are not in order or share rows, an item's rows are not in `q`, or its table does not cover its positions: that is a bug in the caller.
pub fn attention<T: KvNumber>(
    cpu: &Cpu,
    q: &[f32],
    n_heads: usize,
    pages: Pages<'_, T>,
    items: &[AttentionItem],
    out: &mut [f32],
) {
    let width = n_heads * pages.layout.head_dim;
    let n_kv_heads = pages.layout.n_kv_heads;
    assert!(
        n_heads >= n_kv_heads && n_heads.is_multiple_of(n_kv_heads),
        "{n_heads} heads over {n_kv_heads}: this is a bug"
    );
    let end = |item: &AttentionItem| item.first_row.checked_add(item.rows);
    let apart = |w: &[AttentionItem]| end(&w[0]).is_some_and(|end| end <= w[1].first_row);
    assert!(items.windows(2).all(apart), "items that share rows or are out of order: this is a bug");
    assert!(q.len() == out.len() && q.len().is_multiple_of(width), "q and out differ: this is a bug");
    for item in items {
        assert!(end(item).is_some_and(|end| end <= q.len() / width), "rows outside q: this is a bug");
        let seen = item.first_position.checked_add(item.rows).map(|seen| seen.div_ceil(COLS));
        assert!(seen.is_some_and(|seen| seen <= item.table.len()), "short block table: this is a bug");
    }
    let mut plan = PLAN.take();
    let call = Call { cpu, q, n_heads, pages, items, out: Shared(out.as_mut_ptr()) };
    call.run(&mut plan);
    PLAN.set(plan);
}

/// The arguments of [`attention`], checked.
struct Call<'a, T> {
    cpu: &'a Cpu,
    q: &'a [f32],
    n_heads: usize,
    pages: Pages<'a, T>,
    items: &'a [AttentionItem],
    out: Shared,
}

impl<T: KvNumber> Call<'_, T> {
    fn run(&self, plan: &mut Plan) {
        let enough = self.cpu.threads() * STRIPS_PER_THREAD;
        self.cut(STRIP_ROWS, &mut plan.tasks);
        if plan.tasks.len() < enough {
            self.cut(SHORT_ROWS, &mut plan.tasks);
        }
        // the longest first: what is handed out last ends about when the others do
        plan.tasks.sort_unstable_by_key(|t| std::cmp::Reverse(t.cost));
        if plan.tasks.len() < enough && self.cpu.threads() > 1 && self.side_by_side(plan) {
            let parts = Shared(plan.parts.as_mut_ptr().cast());
            let (tasks, pieces) = (&plan.tasks, &plan.pieces);
            self.cpu.parallel(pieces.len(), |i| {
                let (task, segment) = pieces[i];
                self.work(&tasks[task], Step::Part(segment, parts));
            });
            self.cpu.parallel(tasks.len(), |i| self.work(&tasks[i], Step::Join(parts)));
        } else {
            self.cpu.parallel(plan.tasks.len(), |i| self.work(&plan.tasks[i], Step::All));
        }
    }

    fn group(&self) -> usize {
        self.n_heads / self.pages.layout.n_kv_heads
    }

    /// Tasks of up to `rows` query rows each, at least one token.
    fn cut(&self, rows: usize, tasks: &mut Vec<Task>) {
        let most = (rows / self.group()).max(1);
        tasks.clear();
        for (i, item) in self.items.iter().enumerate() {
            for first in (0..item.rows).step_by(most) {
                let tokens = most.min(item.rows - first);
                let cost = tokens * (item.first_position + first + tokens);
                let task = |kv_head| Task { item: i, first, tokens, kv_head, cost, parts: 0 };
                tasks.extend((0..self.pages.layout.n_kv_heads).map(task));
            }
        }
    }

    /// Plans one piece per segment of every task; false when no task has several.
    fn side_by_side(&self, plan: &mut Plan) -> bool {
        plan.pieces.clear();
        let mut parts = 0;
        for (i, task) in plan.tasks.iter_mut().enumerate() {
            let strip = self.strip(task);
            task.parts = parts;
            parts += strip.segments() * self.sizes(&strip).tiles;
            plan.pieces.extend((0..strip.segments()).map(|segment| (i, segment)));
        }
        let values = parts * Sizes::new::<T>(1, self.pages.layout).part;
        plan.parts.resize(plan.parts.len().max(values.div_ceil(LANES)), Line([0.0; LANES]));
        plan.pieces.len() > plan.tasks.len()
    }

    fn strip(&self, task: &Task) -> Strip<'_, T> {
        let item = &self.items[task.item];
        Strip {
            pages: self.pages,
            table: &item.table,
            kv_head: task.kv_head,
            group: self.group(),
            tokens: task.tokens,
            position: item.first_position + task.first,
            token_stride: self.n_heads * self.pages.layout.head_dim,
        }
    }

    fn sizes(&self, strip: &Strip<'_, T>) -> Sizes {
        let rows = match self.cpu.isa().kind() {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Vnni | Kind::Avx512 => Avx512::ROWS,
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => Avx2::ROWS,
            Kind::Portable => Plain::ROWS,
        };
        Sizes::new::<T>(strip.tiles(rows), self.pages.layout)
    }

    fn work(&self, task: &Task, step: Step) {
        let strip = self.strip(task);
        let sizes = self.sizes(&strip);
        let at = (self.items[task.item].first_row + task.first) * strip.token_stride
            + task.kv_head * strip.group * self.pages.layout.head_dim;
        SCRATCH.with_borrow_mut(|scratch| {
            let lines = sizes.scratch().div_ceil(LANES);
            scratch.resize(scratch.len().max(lines), Line([0.0; LANES]));
            // SAFETY: an `Isa` is only made for what the processor has. `attention` checked that the task's rows are
            // in q and out, and a row and KV head belong to one task. Parts were laid out by `side_by_side`.
            #[allow(unsafe_code)]
            unsafe {
                let work = Work {
                    strip,
                    sizes,
                    step: step.of(task, sizes),
                    q: self.q.as_ptr().add(at),
                    out: self.out.0.add(at),
                    scratch: scratch.as_mut_ptr().cast(),
                };
                match self.cpu.isa().kind() {
                    #[cfg(target_arch = "x86_64")]
                    Kind::Avx512Vnni | Kind::Avx512 => work_avx512(&work),
                    #[cfg(target_arch = "x86_64")]
                    Kind::Avx2 => work_avx2(&work),
                    Kind::Portable => work.run::<Plain>(),
                }
            }
        });
    }
}

/// How much of a task is to be done.
#[derive(Clone, Copy)]
enum Step {
    /// From Q to the output.
    All,
    /// The parts of one segment.
    Part(usize, Shared),
    /// The output from the parts of all segments.
    Join(Shared),
}

impl Step {
    /// With the parts of `task` instead of all parts.
    fn of(self, task: &Task, sizes: Sizes) -> Self {
        // SAFETY: `side_by_side` made room for the parts it numbered.
        #[allow(unsafe_code)]
        let part = |parts: Shared, n: usize| unsafe { Shared(parts.0.add(n * sizes.part)) };
        match self {
            Self::All => Self::All,
            Self::Part(segment, parts) => {
                Self::Part(segment, part(parts, task.parts + segment * sizes.tiles))
            }
            Self::Join(parts) => Self::Join(part(parts, task.parts)),
        }
    }
}

/// A step of a task with its memory.
struct Work<'a, T> {
    strip: Strip<'a, T>,
    sizes: Sizes,
    step: Step,
    q: *const f32,
    out: *mut f32,
    scratch: *mut f32,
}

#[allow(unsafe_code)]
impl<T: KvNumber> Work<'_, T> {
    /// # Safety
    /// As [`Strip::run`].
    #[inline(always)]
    unsafe fn run<V: Lanes>(&self) {
        let Self { strip, sizes, step, q, out, scratch } = self;
        // SAFETY: the caller's promise.
        unsafe {
            match *step {
                Step::All => strip.run::<V>(*sizes, *q, *out, *scratch),
                Step::Part(segment, parts) => {
                    strip.run_segment::<V>(*sizes, segment, *q, parts.0, *scratch);
                }
                Step::Join(parts) => strip.join::<V>(*sizes, parts.0, *out, *scratch),
            }
        }
    }
}

/// # Safety
/// As [`Work::run`], on a processor with AVX-512F and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,fma")]
#[allow(unsafe_code)]
unsafe fn work_avx512<T: KvNumber>(work: &Work<'_, T>) {
    // SAFETY: the caller's promise.
    unsafe { work.run::<Avx512>() }
}

/// # Safety
/// As [`Work::run`], on a processor with AVX2, FMA and F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
#[allow(unsafe_code)]
unsafe fn work_avx2<T: KvNumber>(work: &Work<'_, T>) {
    // SAFETY: the caller's promise.
    unsafe { work.run::<Avx2>() }
}

/// A pointer that threads may share because each task writes its own rows or parts.
#[derive(Clone, Copy)]
struct Shared(*mut f32);

// SAFETY: a row and KV head of the output belong to one task, a part to one task and segment.
#[allow(unsafe_code)]
unsafe impl Send for Shared {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Shared {}

#[cfg(test)]
mod tests;
