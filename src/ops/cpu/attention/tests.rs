//! Against the slow twin, against what others left in the pages, and bit by bit over chunkings, companions, threads and
//! instruction sets; each over pages of f32 and of f16.

use half::f16;

use super::*;
use crate::ops::{
    cpu::{Isa, exp, tile::COLS},
    reference,
};

/// Sequences in pages in scrambled order; all rows are queries. `k` and `v` are what the pages hold.
struct Case<T> {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    n_heads: usize,
    layout: PageLayout,
    items: Vec<AttentionItem>,
    k_pool: Vec<T>,
    v_pool: Vec<T>,
}

fn values(n: usize, mut x: u32) -> Vec<f32> {
    let mut next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 8) as f32 / (1u32 << 22) as f32 - 2.0
    };
    (0..n).map(|_| next()).collect()
}

/// As pages hold it.
fn stored<T: KvNumber>(x: &[f32]) -> Vec<T> {
    T::rounded(x, &mut Vec::new()).to_vec()
}

/// What nobody wrote is NaN. With `spike`, one key in the middle outweighs all before it.
fn case<T: KvNumber>(lens: &[usize], n_heads: usize, layout: PageLayout, spike: bool) -> Case<T> {
    let (width, rows) = (layout.n_kv_heads * layout.head_dim, lens.iter().sum::<usize>());
    let q = values(rows * n_heads * layout.head_dim, 7);
    let (mut k, v) = (values(rows * width, 8), values(rows * width, 9));
    let total: usize = lens.iter().map(|len| len.div_ceil(COLS)).sum();
    let pool = (total + 1).next_power_of_two();
    let mut scrambled = (0..total).map(|b| BlockId(((b * 7 + 3) % pool) as u32));
    let (mut k_pool, mut v_pool) = (
        vec![stored::<T>(&[f32::NAN])[0]; pool * layout.k_page()],
        vec![stored::<T>(&[f32::NAN])[0]; pool * layout.v_page()],
    );
    let (mut items, mut first_row) = (Vec::new(), 0);
    for &len in lens {
        if spike {
            k[(first_row + len / 2) * width..][..width].iter_mut().for_each(|x| *x *= 50.0);
        }
        let table: Vec<BlockId> = scrambled.by_ref().take(len.div_ceil(COLS)).collect();
        let (k, v) = (stored::<T>(&k), stored::<T>(&v));
        for t in 0..len {
            let at = (first_row + t) * width;
            layout.write_k(&mut k_pool, table[t / COLS], t % COLS, &k[at..][..width]);
            layout.write_v(&mut v_pool, table[t / COLS], t % COLS, &v[at..][..width]);
        }
        items.push(AttentionItem { first_row, rows: len, first_position: 0, table });
        first_row += len;
    }
    let [k, v] = [k, v].map(|x| T::widened(&stored::<T>(&x), &mut Vec::new()).to_vec());
    Case { q, k, v, n_heads, layout, items, k_pool, v_pool }
}

fn run<T: KvNumber>(c: &Case<T>, cpu: &Cpu, items: &[AttentionItem]) -> Vec<f32> {
    let pages = Pages { k: &c.k_pool, v: &c.v_pool, layout: c.layout };
    let mut out = vec![f32::NAN; c.q.len()];
    attention(cpu, &c.q, c.n_heads, pages, items, &mut out);
    out
}

fn one_thread() -> Cpu {
    Cpu::new(1)
}

/// Group sizes 1 to 16, head sizes that fill panels and that do not, within one segment and over several.
fn cases<T: KvNumber>() -> Vec<Case<T>> {
    let layout = |n_kv_heads, head_dim| PageLayout { n_kv_heads, head_dim };
    vec![
        case(&[1], 1, layout(1, 16), false),
        case(&[31], 6, layout(2, 24), false),
        case(&[32], 4, layout(1, 64), true),
        case(&[33], 16, layout(1, 80), false),
        case(&[100], 14, layout(2, 64), true),
        case(&[65], 8, layout(8, 128), false),
        case(&[40], 2, layout(1, 288), false),
        case(&[70], 4, layout(2, 256), false),
        case(&[257], 3, layout(3, 64), true),
        case(&[300], 6, layout(1, 128), true),
        case(&[620], 7, layout(1, 16), true),
        case(&[3, 290], 16, layout(1, 16), false),
        case(&[1, 700, 31, 256], 2, layout(2, 24), true),
    ]
}

/// `items` cut in runs of up to `rows` rows.
fn cut(items: &[AttentionItem], rows: usize) -> Vec<AttentionItem> {
    let pieces = |item: &AttentionItem| {
        let item = item.clone();
        (0..item.rows).step_by(rows).map(move |at| AttentionItem {
            first_row: item.first_row + at,
            rows: rows.min(item.rows - at),
            first_position: item.first_position + at,
            table: item.table.clone(),
        })
    };
    items.iter().flat_map(pieces).collect()
}

#[test]
fn it_equals_the_slow_attention() {
    equals_the_slow_attention::<f32>();
    equals_the_slow_attention::<f16>();
}

fn equals_the_slow_attention<T: KvNumber>() {
    for c in cases::<T>() {
        let PageLayout { n_kv_heads, head_dim } = c.layout;
        let mut truth = Vec::new();
        for item in &c.items {
            let rows = |x: &[f32], heads: usize| {
                x[item.first_row * heads * head_dim..][..item.rows * heads * head_dim].to_vec()
            };
            let (q, k, v) = (rows(&c.q, c.n_heads), rows(&c.k, n_kv_heads), rows(&c.v, n_kv_heads));
            truth.extend(reference::attention(&q, &k, &v, c.n_heads, n_kv_heads, head_dim));
        }
        for isa in Isa::available() {
            let out = run(&c, &Cpu::with_isa(isa, 1), &c.items);
            for (i, (got, want)) in out.iter().zip(&truth).enumerate() {
                assert!((f64::from(*got) - want).abs() < 2e-5, "{isa:?} {:?} [{i}] {got} {want}", c.layout);
            }
        }
    }
}

#[test]
fn what_a_row_does_not_see_is_not_read() {
    reads_what_rows_see::<f32>();
    reads_what_rows_see::<f16>();
}

fn reads_what_rows_see<T: KvNumber>() {
    for mut c in cases::<T>() {
        let clean = run(&c, &one_thread(), &c.items);
        assert!(clean.iter().all(|x| x.is_finite()));
        // later tokens that are no numbers do not reach back
        let item = c.items.iter().max_by_key(|i| i.rows).unwrap().clone();
        let nan = stored::<T>(&vec![f32::NAN; c.layout.n_kv_heads * c.layout.head_dim]);
        for cut in [item.rows - 1, item.rows * 2 / 3] {
            for t in cut..item.rows {
                c.layout.write_k(&mut c.k_pool, item.table[t / COLS], t % COLS, &nan);
                c.layout.write_v(&mut c.v_pool, item.table[t / COLS], t % COLS, &nan);
            }
            let width = c.n_heads * c.layout.head_dim;
            let seen = item.first_row * width..(item.first_row + cut) * width;
            for isa in Isa::available() {
                let out = run(&c, &Cpu::with_isa(isa, 1), &c.items);
                assert_eq!(out[seen.clone()], clean[seen.clone()], "{isa:?} {:?}", c.layout);
                assert!(out[seen.end..][..width].iter().all(|x| x.is_nan()), "the token's own row is lost");
            }
        }
    }
}

#[test]
fn a_row_is_the_same_bits_however_the_prefill_is_cut() {
    cut_anyhow::<f32>();
    cut_anyhow::<f16>();
}

fn cut_anyhow<T: KvNumber>() {
    for c in cases::<T>() {
        let whole = run(&c, &one_thread(), &c.items);
        for isa in Isa::available() {
            for chunk in [1, 7, 50, 300] {
                let cut = cut(&c.items, chunk);
                assert_eq!(run(&c, &Cpu::with_isa(isa, 1), &cut), whole, "{isa:?}, chunks of {chunk}");
            }
        }
    }
}

#[test]
fn a_row_is_the_same_bits_on_any_instruction_set_and_number_of_threads_and_alone() {
    on_any_threads::<f32>();
    on_any_threads::<f16>();
}

fn on_any_threads<T: KvNumber>() {
    for c in cases::<T>() {
        let whole = run(&c, &one_thread(), &c.items);
        let width = c.n_heads * c.layout.head_dim;
        for (isa, threads) in Isa::available().into_iter().flat_map(|isa| [1, 2, 3].map(|n| (isa, n))) {
            let cpu = Cpu::with_isa(isa, threads);
            let on = format!("{isa:?}, {threads} threads");
            assert_eq!(run(&c, &cpu, &c.items), whole, "{on}");
            assert_eq!(run(&c, &cpu, &cut(&c.items, 9)), whole, "{on}, many items");
            for item in &c.items {
                // one row of a long sequence: its segments are computed side by side
                for row in [0, item.rows / 2, item.rows - 1] {
                    let alone = AttentionItem {
                        first_row: item.first_row + row,
                        rows: 1,
                        first_position: row,
                        table: item.table.clone(),
                    };
                    let out = run(&c, &cpu, std::slice::from_ref(&alone));
                    let at = alone.first_row * width..(alone.first_row + 1) * width;
                    assert_eq!(out[at.clone()], whole[at.clone()], "{on}, row {row} alone");
                    assert!(out[at.end..].iter().all(|x| x.is_nan()), "rows of nobody are left alone");
                }
            }
        }
    }
}

#[test]
fn the_vector_exponential_is_the_scalar_one() {
    let x: Vec<f32> = (0..4000).map(|i| i as f32 * -0.033).chain([f32::NEG_INFINITY; 16]).collect();
    for x in x.chunks_exact(LANES) {
        let mut y = [0f32; LANES];
        // SAFETY: both arrays hold 16 values, and plain loops run anywhere.
        #[allow(unsafe_code)]
        unsafe {
            Plain::load(x.as_ptr()).exp2().store(y.as_mut_ptr());
        }
        assert_eq!(y.map(f32::to_bits), std::array::from_fn(|i| exp::exp2(x[i]).to_bits()), "{x:?}");
    }
}
