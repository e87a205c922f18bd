//! Causal attention over paged KV on the CPU: flash-style, one pass over the blocks of a sequence.
//!
//! A page holds, per KV head, K as `[head_dim][32 keys]` and V as panels `[head_dim / 32][32 keys][32]`
//! ([`PageLayout`]), so both products of attention are calls of the one micro-kernel. The query rows of one GQA
//! group over a few tokens form a tile, so a page is read once for all of them.
//!
//! A row's softmax runs over absolute blocks in order, and a block beyond the row's position changes nothing,
//! so a row's bits do not depend on the other rows, on prefill chunking, or on which pages hold its keys.

use super::{
    Cpu,
    exp::exp,
    tile::{COLS, Isa, Lhs, ROWS, Start, Vectorised, tile},
};
use crate::ids::BlockId;

/// Query rows of one task: enough to keep the multiply-add units busy while a page is in cache.
const TASK_ROWS: usize = 48;

/// Where things are inside the K and the V pool of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    /// KV heads.
    pub n_kv_heads: usize,
    /// Size of one head.
    pub head_dim: usize,
}

impl PageLayout {
    /// Head size rounded up to whole panels.
    #[must_use]
    pub fn padded_dim(self) -> usize {
        self.head_dim.next_multiple_of(COLS)
    }

    /// Values of one K page over all heads.
    #[must_use]
    pub fn k_page(self) -> usize {
        self.n_kv_heads * self.head_dim * COLS
    }

    /// Values of one V page over all heads.
    #[must_use]
    pub fn v_page(self) -> usize {
        self.n_kv_heads * self.padded_dim() * COLS
    }

    /// K of one head in one page: `[head_dim][32]`.
    #[must_use]
    pub fn k_of(self, pool: &[f32], block: BlockId, kv_head: usize) -> &[f32] {
        let len = self.head_dim * COLS;
        &pool[block.0 as usize * self.k_page() + kv_head * len..][..len]
    }

    /// V of one head in one page: panels of `[32 keys][32]`.
    #[must_use]
    pub fn v_of(self, pool: &[f32], block: BlockId, kv_head: usize) -> &[f32] {
        let len = self.padded_dim() * COLS;
        &pool[block.0 as usize * self.v_page() + kv_head * len..][..len]
    }

    /// Writes one token's K `[n_kv_heads, head_dim]` to slot `slot` of `block`.
    pub fn write_k(self, pool: &mut [f32], block: BlockId, slot: usize, k: &[f32]) {
        let page = &mut pool[block.0 as usize * self.k_page()..][..self.k_page()];
        for (value, column) in k.iter().zip(page[slot..].iter_mut().step_by(COLS)) {
            *column = *value;
        }
    }

    /// Writes one token's V `[n_kv_heads, head_dim]` to slot `slot` of `block`.
    pub fn write_v(self, pool: &mut [f32], block: BlockId, slot: usize, v: &[f32]) {
        let page = &mut pool[block.0 as usize * self.v_page()..][..self.v_page()];
        for (head, head_page) in
            v.chunks_exact(self.head_dim).zip(page.chunks_exact_mut(self.padded_dim() * COLS))
        {
            for (part, panel) in head.chunks(COLS).zip(head_page.chunks_exact_mut(COLS * COLS)) {
                panel[slot * COLS..][..part.len()].copy_from_slice(part);
            }
        }
    }
}

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
pub struct Pages<'a> {
    /// K pool, `[n_blocks][n_kv_heads][head_dim][32]`.
    pub k: &'a [f32],
    /// V pool, `[n_blocks][n_kv_heads][head_dim / 32][32][32]`.
    pub v: &'a [f32],
    /// Sizes.
    pub layout: PageLayout,
}

/// `q [n_rows, n_heads, head_dim]` → attention output of the same shape, scores scaled by `1/sqrt(head_dim)`.
/// Rows that no item names come out as zeros.
pub fn attention(
    cpu: &Cpu,
    q: &[f32],
    n_heads: usize,
    pages: Pages<'_>,
    items: &[AttentionItem],
    out: &mut [f32],
) {
    let PageLayout { n_kv_heads, head_dim } = pages.layout;
    let group = n_heads / n_kv_heads;
    let tokens_per_task = (TASK_ROWS / group).max(1);
    let mut tasks = Vec::new();
    for item in items {
        for first in (0..item.rows).step_by(tokens_per_task) {
            for kv_head in 0..n_kv_heads {
                tasks.push((item, first, tokens_per_task.min(item.rows - first), kv_head));
            }
        }
    }
    let parts = super::disjoint::Disjoint::new(out);
    cpu.parallel(tasks.len(), |i| {
        let (item, first, tokens, kv_head) = tasks[i];
        let task = Task {
            isa: cpu.isa(),
            pages,
            table: &item.table,
            kv_head,
            group,
            tokens,
            position: item.first_position + first,
        };
        let rows = gather(q, item.first_row + first, &task, n_heads);
        let rows = task.run(&rows);
        for t in 0..tokens {
            let to = ((item.first_row + first + t) * n_heads + kv_head * group) * head_dim;
            // SAFETY: each task has its own rows.
            #[allow(unsafe_code)]
            unsafe { parts.part(to, group * head_dim) }
                .copy_from_slice(&rows[t * group * head_dim..][..group * head_dim]);
        }
    });
}

/// The query rows of a task, `[tokens][group][head_dim]`.
fn gather(q: &[f32], first_row: usize, task: &Task<'_>, n_heads: usize) -> Vec<f32> {
    let head_dim = task.pages.layout.head_dim;
    let mut rows = Vec::with_capacity(task.tokens * task.group * head_dim);
    for t in 0..task.tokens {
        let from = ((first_row + t) * n_heads + task.kv_head * task.group) * head_dim;
        rows.extend_from_slice(&q[from..from + task.group * head_dim]);
    }
    rows
}

/// One GQA group over a few tokens of one sequence.
struct Task<'a> {
    isa: Isa,
    pages: Pages<'a>,
    table: &'a [BlockId],
    kv_head: usize,
    group: usize,
    tokens: usize,
    position: usize,
}

impl Task<'_> {
    fn run(&self, q: &[f32]) -> Vec<f32> {
        let layout = self.pages.layout;
        let (d, dp) = (layout.head_dim, layout.padded_dim());
        let scale = (d as f32).sqrt().recip();
        let rows = self.tokens * self.group;
        let mut s = vec![0f32; rows * COLS];
        let mut o = vec![0f32; rows * dp];
        let mut state = vec![RowState { max: f32::NEG_INFINITY, sum: 0.0 }; rows];
        let n_blocks = (self.position + self.tokens).div_ceil(COLS);
        for (b, &block) in self.table[..n_blocks].iter().enumerate() {
            let k = layout.k_of(self.pages.k, block, self.kv_head);
            for first in (0..rows).step_by(ROWS) {
                let a = Lhs { data: &q[first * d..], stride: d, rows: ROWS.min(rows - first), len: d };
                tile(self.isa, a, k, &mut s[first * COLS..], COLS, Start::Zero);
            }
            for (r, state) in state.iter_mut().enumerate() {
                let visible = (self.position + r / self.group + 1).saturating_sub(b * COLS).min(COLS);
                let weights: &mut [f32; COLS] =
                    (&mut s[r * COLS..][..COLS]).try_into().expect("a row of 32: this is a bug");
                state.absorb(self.isa, weights, visible, scale, &mut o[r * dp..][..dp]);
            }
            self.add_values(b, layout.v_of(self.pages.v, block, self.kv_head), &s, &mut o);
        }
        let mut out = vec![0f32; rows * d];
        for (r, state) in state.iter().enumerate() {
            let inverse = state.sum.recip();
            for (to, from) in out[r * d..][..d].iter_mut().zip(&o[r * dp..]) {
                *to = from * inverse;
            }
        }
        out
    }

    /// Adds weights `s [rows][32]` times the values of block `b` to `o`. A row multiplies only the keys it sees: what
    /// lies behind them may belong to nobody, and a weight of 0 does not cancel a value that is no number.
    fn add_values(&self, b: usize, v: &[f32], s: &[f32], o: &mut [f32]) {
        let (rows, dp) = (self.tokens * self.group, self.pages.layout.padded_dim());
        let whole = self.position + 1 >= (b + 1) * COLS;
        let mut first = 0;
        while first < rows {
            let token = first / self.group;
            let end = if whole { rows } else { (token + 1) * self.group };
            let len = (self.position + token + 1).saturating_sub(b * COLS).min(COLS);
            let a = Lhs { data: &s[first * COLS..], stride: COLS, rows: ROWS.min(end - first), len };
            for (panel, v) in v.chunks_exact(COLS * COLS).enumerate() {
                tile(self.isa, a, v, &mut o[first * dp + panel * COLS..], dp, Start::FromC);
            }
            first += a.rows;
        }
    }
}

/// Running maximum and sum of a row's softmax.
#[derive(Clone, Copy)]
struct RowState {
    max: f32,
    sum: f32,
}

impl RowState {
    /// Turns the raw scores of one block into softmax weights relative to the running maximum and rescales
    /// what was summed before. Keys from `visible` on weigh exactly 0.
    fn absorb(&mut self, isa: Isa, s: &mut [f32; COLS], visible: usize, scale: f32, o: &mut [f32]) {
        if visible == 0 {
            s.fill(0.0);
            return;
        }
        isa.run(Absorb { state: self, s, visible, scale, o });
    }

    #[inline(always)]
    fn absorb_any(&mut self, s: &mut [f32; COLS], visible: usize, scale: f32, o: &mut [f32]) {
        let mut max = self.max;
        for v in s.iter_mut() {
            *v *= scale;
        }
        for &v in &s[..visible] {
            max = max.max(v);
        }
        for v in s.iter_mut() {
            *v = exp(*v - max);
        }
        s[visible..].fill(0.0);
        // a fixed tree: 32 → 16 → … → 1
        let mut tree = *s;
        for half in [16, 8, 4, 2, 1] {
            for i in 0..half {
                tree[i] += tree[i + half];
            }
        }
        if max > self.max {
            let rescale = exp(self.max - max);
            self.sum *= rescale;
            for v in o.iter_mut() {
                *v *= rescale;
            }
            self.max = max;
        }
        self.sum += tree[0];
    }
}

/// [`RowState::absorb`] for one row, to be compiled for wide vectors.
struct Absorb<'a> {
    state: &'a mut RowState,
    s: &'a mut [f32; COLS],
    visible: usize,
    scale: f32,
    o: &'a mut [f32],
}

impl Vectorised for Absorb<'_> {
    #[inline(always)]
    fn run(self) {
        self.state.absorb_any(self.s, self.visible, self.scale, self.o);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::reference;

    struct Case {
        q: Vec<f32>,
        k: Vec<f32>,
        v: Vec<f32>,
        n_heads: usize,
        layout: PageLayout,
        items: Vec<AttentionItem>,
        k_pool: Vec<f32>,
        v_pool: Vec<f32>,
    }

    /// `len` tokens of one sequence in pages in scrambled order; all rows are queries.
    fn case(len: usize, n_heads: usize, layout: PageLayout, spike: bool) -> Case {
        let mut x = 7u32;
        let mut values = |n: usize| -> Vec<f32> {
            (0..n)
                .map(|_| {
                    x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (x >> 8) as f32 / (1u32 << 22) as f32 - 2.0
                })
                .collect()
        };
        let width = layout.n_kv_heads * layout.head_dim;
        let (q, mut k, v) =
            (values(len * n_heads * layout.head_dim), values(len * width), values(len * width));
        if spike {
            k[(len / 2) * width..][..width].iter_mut().for_each(|x| *x *= 50.0);
        }
        let n_blocks = len.div_ceil(COLS);
        let table: Vec<BlockId> =
            (0..n_blocks).map(|b| BlockId(((b * 7 + 3) % (n_blocks + 8)) as u32)).collect();
        let mut k_pool = vec![0f32; (n_blocks + 8) * layout.k_page()];
        let mut v_pool = vec![0f32; (n_blocks + 8) * layout.v_page()];
        for t in 0..len {
            layout.write_k(&mut k_pool, table[t / COLS], t % COLS, &k[t * width..][..width]);
            layout.write_v(&mut v_pool, table[t / COLS], t % COLS, &v[t * width..][..width]);
        }
        let items = vec![AttentionItem { first_row: 0, rows: len, first_position: 0, table }];
        Case { q, k, v, n_heads, layout, items, k_pool, v_pool }
    }

    fn run(c: &Case, isa: Isa, items: &[AttentionItem]) -> Vec<f32> {
        let pages = Pages { k: &c.k_pool, v: &c.v_pool, layout: c.layout };
        let mut out = vec![0f32; c.q.len()];
        attention(&Cpu::with_isa(isa, 2), &c.q, c.n_heads, pages, items, &mut out);
        out
    }

    fn shapes() -> Vec<(usize, usize, PageLayout, bool)> {
        let layout = |n_kv_heads, head_dim| PageLayout { n_kv_heads, head_dim };
        vec![
            (1, 1, layout(1, 16), false),
            (31, 6, layout(2, 24), false),
            (32, 4, layout(1, 64), true),
            (33, 16, layout(1, 80), false),
            (100, 14, layout(2, 64), true),
            (65, 8, layout(8, 128), false),
        ]
    }

    #[test]
    fn it_equals_the_slow_attention() {
        for (len, n_heads, layout, spike) in shapes() {
            let c = case(len, n_heads, layout, spike);
            let truth = reference::attention(&c.q, &c.k, &c.v, n_heads, layout.n_kv_heads, layout.head_dim);
            for isa in Isa::available() {
                for (i, (got, want)) in run(&c, isa, &c.items).iter().zip(&truth).enumerate() {
                    assert!(
                        (f64::from(*got) - want).abs() < 2e-5,
                        "{isa:?} {len} {layout:?} [{i}] {got} {want}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_others_left_in_a_page_is_not_seen() {
        for (len, n_heads, layout, spike) in shapes() {
            let mut c = case(len, n_heads, layout, spike);
            let clean = run(&c, Isa::detect(), &c.items);
            let last = c.items[0].table[(len - 1) / COLS];
            let nan = vec![f32::NAN; layout.n_kv_heads * layout.head_dim];
            for slot in (len - 1) % COLS + 1..COLS {
                layout.write_k(&mut c.k_pool, last, slot, &nan);
                layout.write_v(&mut c.v_pool, last, slot, &nan);
            }
            assert_eq!(run(&c, Isa::detect(), &c.items), clean, "{len} {layout:?}");
            // a later token that is no number does not reach back either
            layout.write_v(&mut c.v_pool, last, (len - 1) % COLS, &nan);
            let until = (len - 1) * n_heads * layout.head_dim;
            assert_eq!(run(&c, Isa::detect(), &c.items)[..until], clean[..until], "{len} {layout:?}");
        }
    }

    #[test]
    fn a_row_is_the_same_bits_however_the_prefill_is_cut() {
        for (len, n_heads, layout, spike) in shapes() {
            let c = case(len, n_heads, layout, spike);
            let whole = run(&c, Isa::detect(), &c.items);
            for isa in Isa::available() {
                for chunk in [1, 7, 32, 50] {
                    let cut: Vec<AttentionItem> = (0..len)
                        .step_by(chunk)
                        .map(|at| AttentionItem {
                            first_row: at,
                            rows: chunk.min(len - at),
                            first_position: at,
                            table: c.items[0].table.clone(),
                        })
                        .collect();
                    assert_eq!(run(&c, isa, &cut), whole, "{isa:?}, chunks of {chunk}");
                }
            }
        }
    }
}
