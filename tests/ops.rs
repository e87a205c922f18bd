//! The ops against their slow twins: writes, copies and attention rows over scrambled pages of f32 and f16, and refusals.
#![allow(clippy::unwrap_used)]

use half::f16;
use qrae::{
    ids::{BLOCK_SIZE, BlockId, Span},
    ops::{
        AttentionItem, AttentionRows, Cpu, KvFloat, KvStore, OpError, PageLayout, RowQuery, Slot, reference,
    },
};

fn values(n: usize, seed: u32) -> Vec<f32> {
    let mut x = seed.wrapping_mul(747_796_405).wrapping_add(1);
    (0..n)
        .map(|i| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let v = (x >> 8) as f32 / (1u32 << 22) as f32 - 2.0;
            if i % 53 == 7 { v * 6.0 } else { v }
        })
        .collect()
}

const BOTH: [KvFloat; 2] = [KvFloat::F32, KvFloat::F16];

/// A sequence of `len` tokens in scrambled pages of a pool that is full of what others left. `k` and `v` are what the
/// pages hold of it.
struct Case {
    kv: KvStore,
    layout: PageLayout,
    k: Vec<f32>,
    v: Vec<f32>,
    table: Vec<BlockId>,
}

/// What pages of `float` hold of `x`.
fn held(float: KvFloat, x: &[f32]) -> Vec<f32> {
    let half = |x: &f32| f16::from_f32(x.clamp(-65504.0, 65504.0)).to_f32();
    if float == KvFloat::F16 { x.iter().map(half).collect() } else { x.to_vec() }
}

fn case(float: KvFloat, len: usize, n_kv_heads: usize, head_dim: usize) -> Case {
    case_times(float, len, n_kv_heads, head_dim, 1.0)
}

/// With some values `times` as great.
fn case_times(float: KvFloat, len: usize, n_kv_heads: usize, head_dim: usize, times: f32) -> Case {
    let layout = PageLayout { n_kv_heads, head_dim };
    let blocks = len.div_ceil(BLOCK_SIZE);
    let mut kv = KvStore::new(2, blocks + 3, layout, float).unwrap();
    let width = n_kv_heads * head_dim;
    for block in 0..blocks + 3 {
        let slots: Vec<Slot> =
            (0..BLOCK_SIZE).map(|slot| Slot { block: BlockId(block as u32), slot }).collect();
        let left = vec![f32::NAN; BLOCK_SIZE * width];
        kv.write_k(1, &slots, &left).unwrap();
        kv.write_v(1, &slots, &left).unwrap();
    }
    let table: Vec<BlockId> = (0..blocks).rev().map(|b| BlockId(b as u32 + 2)).collect();
    let slots: Vec<Slot> =
        (0..len).map(|p| Slot { block: table[p / BLOCK_SIZE], slot: p % BLOCK_SIZE }).collect();
    let (mut k, mut v) = (values(len * width, 1), values(len * width, 2));
    k.iter_mut().chain(&mut v).step_by(91).for_each(|x| *x *= times);
    kv.write_k(1, &slots, &k).unwrap();
    kv.write_v(1, &slots, &v).unwrap();
    let (k, v) = (held(float, &k), held(float, &v));
    Case { kv, layout, k, v, table }
}

#[test]
fn attention_rows_equal_the_slow_rows() {
    let shapes = [(1, 1, 1, 16), (33, 2, 3, 24), (100, 2, 7, 64), (97, 1, 16, 80)];
    for (float, (len, n_kv_heads, group, head_dim)) in BOTH.into_iter().flat_map(|f| shapes.map(|s| (f, s))) {
        let c = case(float, len, n_kv_heads, head_dim);
        let spans = match len {
            1 => vec![Span::new(0, 1)],
            33 => vec![Span::new(0, 1), Span::new(30, 33)],
            _ => vec![Span::new(3, 4), Span::new(31, 64), Span::new(65, 96)],
        };
        let positions: Vec<usize> = spans.iter().flat_map(|s| s.range()).collect();
        let heads: Vec<usize> = (0..n_kv_heads * group).collect();
        let kv_heads: Vec<usize> = heads.iter().map(|h| h / group).collect();
        let q = values(2 * heads.len() * head_dim, 3);
        let alone = RowQuery { kv_heads: &kv_heads, table: &c.table, candidates: &spans, visible: None };
        let visible = [len, positions[positions.len() - 1] + 1];
        let query = RowQuery { visible: Some(&visible), ..alone.clone() };
        let got = c.kv.attention_rows(&Cpu::new(2), 1, &q, &query).unwrap();
        assert_eq!((got.rows.len(), got.shares.len()), (2 * heads.len() * positions.len(), 2 * heads.len()));
        let rows_alone = c.kv.attention_rows(&Cpu::new(1), 1, &q, &alone).unwrap();
        assert_eq!((rows_alone.rows, rows_alone.shares), (got.rows.clone(), vec![]), "shares change no row");
        for (i, row) in got.rows.chunks_exact(positions.len()).enumerate() {
            let q = &q[i * head_dim..][..head_dim];
            let want = reference::attention_row(q, &c.k, kv_heads[i % heads.len()], n_kv_heads, &positions);
            assert!((row.iter().map(|&a| f64::from(a)).sum::<f64>() - 1.0).abs() < 1e-5);
            for (got, want) in row.iter().zip(&want) {
                assert!((f64::from(*got) - want).abs() < 2e-6, "{len} {head_dim} row {i}: {got} {want}");
            }
            let seen: Vec<usize> = (0..visible[i / heads.len()]).collect();
            let whole = reference::attention_row(q, &c.k, kv_heads[i % heads.len()], n_kv_heads, &seen);
            let want: f64 = positions.iter().map(|&t| whole[t]).sum();
            let share = f64::from(got.shares[i]);
            assert!((share - want).abs() < 2e-6, "{len} {head_dim} row {i}: share {share} {want}");
        }
    }
}

#[test]
fn attention_reads_only_what_the_sequence_wrote_and_copies_are_copies() {
    BOTH.into_iter().for_each(attention_over);
}

fn attention_over(float: KvFloat) {
    let mut c = case(float, 70, 2, 32);
    let q = values(70 * 6 * 32, 4);
    let truth = reference::attention(&q, &c.k, &c.v, 6, 2, 32);
    let run = |c: &Case, table: &[BlockId]| -> Vec<f32> {
        let item = AttentionItem { first_row: 0, rows: 70, first_position: 0, table: table.to_vec() };
        let mut out = vec![f32::NAN; q.len()];
        c.kv.attention(&Cpu::new(2), 1, (&q, 6), &[item], &mut out).unwrap();
        out
    };
    let out = run(&c, &c.table);
    for (got, want) in out.iter().zip(&truth) {
        assert!((f64::from(*got) - want).abs() < 2e-5, "{got} {want}");
    }
    // the last block, copied over one that was full of nothing, serves as well
    let mut forked = c.table.clone();
    c.kv.copy_block(forked[2], BlockId(0)).unwrap();
    forked[2] = BlockId(0);
    assert_eq!(run(&c, &forked), out);
}

/// In pages of f16 what is too great for them becomes the greatest they hold, and weighs as that.
#[test]
fn great_keys_and_values_stay_finite() {
    for (float, times) in [(KvFloat::F16, 1e7), (KvFloat::F32, 1e7)] {
        let c = case_times(float, 70, 2, 64, times);
        let q = values(70 * 6 * 64, 4);
        let truth = reference::attention(&q, &c.k, &c.v, 6, 2, 64);
        let item = AttentionItem { first_row: 0, rows: 70, first_position: 0, table: c.table.clone() };
        let mut out = vec![f32::NAN; q.len()];
        c.kv.attention(&Cpu::new(2), 1, (&q, 6), &[item], &mut out).unwrap();
        let most = c.v.iter().fold(0f32, |m, v| m.max(v.abs()));
        assert_eq!(most > 65504.0, float == KvFloat::F32, "{most}");
        for (i, (got, want)) in out.iter().zip(&truth).enumerate() {
            // an output is a mean of its own column of V: three heads read one of two. Its weights are as exact as
            // scores of some 30,000 are, which f32 holds in steps of 1/500
            let column = c.v[i / 64 % 6 / 3 * 64 + i % 64..].iter().step_by(2 * 64);
            let most = f64::from(column.fold(0f32, |m, v| m.max(v.abs())));
            assert!(
                (f64::from(*got) - want).abs() <= 2e-3 * most,
                "{float:?} [{i}]: {got} {want}, of {most}"
            );
        }
        let query = RowQuery {
            kv_heads: &[0],
            table: &c.table,
            candidates: &[Span::new(0, 70)],
            visible: Some(&[70]),
        };
        let AttentionRows { rows: row, shares } =
            c.kv.attention_rows(&Cpu::new(1), 1, &q[..64], &query).unwrap();
        assert_eq!(shares, [1.0], "{float:?}: everything is a candidate");
        assert!((row.iter().map(|&a| f64::from(a)).sum::<f64>() - 1.0).abs() < 1e-5, "{float:?}");
    }
}

/// A key that is no number, outside the candidates: the restricted row never reads it, and the share does not hide it.
#[test]
fn a_share_over_a_broken_key_is_no_number() {
    let mut c = case(KvFloat::F32, 40, 1, 16);
    let slot = Slot { block: c.table[0], slot: 1 };
    c.kv.write_k(1, &[slot], &[f32::NAN; 16]).unwrap();
    let query =
        RowQuery { kv_heads: &[0], table: &c.table, candidates: &[Span::new(2, 40)], visible: Some(&[40]) };
    let got = c.kv.attention_rows(&Cpu::new(1), 1, &values(16, 3), &query).unwrap();
    assert!(got.rows.iter().all(|a| a.is_finite()) && got.shares[0].is_nan(), "{:?}", got.shares);
}

#[test]
fn pages_of_f16_take_half_the_memory() {
    let layout = PageLayout { n_kv_heads: 2, head_dim: 64 };
    let bytes = BOTH.map(|float| KvStore::block_bytes(24, layout, float));
    // K and V of 32 tokens
    assert_eq!(bytes[0], 24 * 2 * 32 * 2 * 64 * 4);
    assert_eq!(bytes[1] * 2, bytes[0]);
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let mut c = case(KvFloat::F16, 40, 2, 16);
    let zeros = |n: usize| vec![0f32; n * 2 * 16];
    let slot = |block, slot| Slot { block: BlockId(block), slot };
    let error = |r: Result<(), OpError>| r.unwrap_err().to_string();
    assert!(error(c.kv.write_k(0, &[slot(99, 0)], &zeros(1))).contains("kv write"));
    assert!(error(c.kv.write_v(0, &[slot(0, 32)], &zeros(1))).contains("kv write"));
    assert!(error(c.kv.write_k(0, &[slot(0, 0)], &zeros(2))).contains("kv write"));
    let rows = |table: &[BlockId], end, visible| {
        let query = RowQuery { kv_heads: &[0, 1], table, candidates: &[Span::new(0, end)], visible };
        c.kv.attention_rows(&Cpu::new(1), 1, &zeros(1), &query).map(drop)
    };
    assert!(rows(&c.table, 40, None).is_ok() && rows(&c.table, 40, Some(&[40])).is_ok());
    assert!(error(rows(&c.table, 65, None)).contains("attention rows"));
    assert!(error(rows(&c.table, 40, Some(&[65]))).contains("attention rows"));
    assert!(error(rows(&c.table, 40, Some(&[40, 40]))).contains("attention rows"));
    assert!(error(rows(&[BlockId(99)], 5, None)).contains("attention rows"));
    let item = |rows, table: Vec<BlockId>| AttentionItem { first_row: 0, rows, first_position: 39, table };
    let attend = |item| c.kv.attention(&Cpu::new(1), 1, (&zeros(1), 2), &[item], &mut zeros(1));
    assert!(attend(item(1, c.table.clone())).is_ok());
    assert!(error(attend(item(2, c.table.clone()))).contains("attention"));
    assert!(error(attend(item(1, c.table[..1].to_vec()))).contains("attention"));
    // sums and products that would wrap
    for (first_row, rows, first_position) in [(1 << 59, 1, 0), (usize::MAX, 1, 0), (0, 1, usize::MAX)] {
        let wraps = AttentionItem { first_row, rows, first_position, table: c.table.clone() };
        assert!(error(attend(wraps)).contains("attention"), "{first_row} {first_position}");
    }
    assert!(c.layout.k_page() > 0);
}
