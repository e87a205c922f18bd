//! Against the slow twin, against what others left, and bit by bit over chunkings, threads and instruction sets.

use super::*;
use crate::ops::{
    cpu::{Isa, tile::COLS},
    reference,
};

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
    let (q, mut k, v) = (values(len * n_heads * layout.head_dim), values(len * width), values(len * width));
    if spike {
        k[(len / 2) * width..][..width].iter_mut().for_each(|x| *x *= 50.0);
    }
    let n_blocks = len.div_ceil(COLS);
    let table: Vec<BlockId> = (0..n_blocks).map(|b| BlockId(((b * 7 + 3) % (n_blocks + 8)) as u32)).collect();
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
    let mut out = vec![f32::NAN; c.q.len()];
    attention(&Cpu::with_isa(isa, 1), &c.q, c.n_heads, pages, items, &mut out);
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
                assert!((f64::from(*got) - want).abs() < 2e-5, "{isa:?} {len} {layout:?} [{i}] {got} {want}");
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
