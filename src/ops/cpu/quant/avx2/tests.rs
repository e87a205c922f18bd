//! Every kernel against the plain formula, at the ends of every range.

use super::{FEW, Kernel, MADD, VNNI_512, dot_stored, expand, kernel, rows::pairs_in_16_bits};
use crate::ops::cpu::{
    quant::{
        QuantRows,
        dot::{Left, Out, Shape, dot},
        slice::{Expanded, SLICE},
        stored::{self, Layout, TILE, VECTOR, VECTORS},
    },
    tile::{COLS, Isa, Kind},
};

/// Two blocks of a K format.
const TILES: usize = 16;
const ROWS: usize = 13;

/// What formats look like: bits, groups of 16, minima, zero.
const SHAPES: [(usize, bool, bool, u8); 8] = [
    (4, false, false, 8),
    (4, false, true, 0),
    (4, true, false, 4),
    (4, true, true, 0),
    (5, false, false, 16),
    (5, false, true, 0),
    (6, true, false, 32),
    (8, false, false, 128),
];

#[repr(C, align(64))]
struct Tiles {
    codes: [[[u8; VECTOR]; VECTORS]; TILES],
    scales: [[f32; COLS]; 2 * SLICE],
    mins: [[f32; COLS]; 2 * SLICE],
}

fn random() -> impl FnMut() -> u32 {
    let mut x = 1u32;
    move || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        x >> 8
    }
}

/// Rows of codes that are all 127, all -127, both in turns of 1, 2 and 16, and any.
fn activations() -> QuantRows {
    let k = (TILES + 2) * TILE;
    let (mut rows, mut random) = (QuantRows::default(), random());
    rows.resize(1 + ROWS, k);
    let slots = rows.slots();
    for r in 0..=ROWS {
        let value = |i: usize| match r % 6 {
            1 => 1.5,
            2 => -1.5,
            3 => 1.5 - 3.0 * (i % 2) as f32,
            4 => 1.5 - 3.0 * (i / 2 % 2) as f32,
            5 => 1.5 - 3.0 * (i / 16 % 2) as f32,
            _ => random() as f32 / 1e6 - 8.0,
        };
        let row: Vec<f32> = (0..k).map(value).collect();
        // SAFETY: one row after the other.
        #[allow(unsafe_code)]
        unsafe {
            slots.fill(Isa::PORTABLE, r, &row);
        }
    }
    rows
}

/// Tiles as they are stored, all bits 0, all 1, any, and (codes of 8 bits) 0x80 to 0x7f: and expanded.
fn tiles(bits: usize) -> Vec<(Vec<u8>, Box<Tiles>)> {
    let mut random = random();
    let mut fill = |kind: usize| {
        let mut byte = || [0, 0xff, random() as u8, 0x7f + (random() & 1) as u8][kind];
        let stored: Vec<u8> = (0..TILES * TILE * COLS / 8 * bits).map(|_| byte()).collect();
        let mut number = || [[(); COLS]; 2 * SLICE].map(|row| row.map(|()| random() as f32 / 1e9 - 5e-3));
        let (scales, mins) = (number(), number());
        let mut tiles = Box::new(Tiles { codes: [[[0; VECTOR]; VECTORS]; TILES], scales, mins });
        for (stored, codes) in stored.chunks_exact(TILE * COLS / 8 * bits).zip(&mut tiles.codes) {
            if bits == 8 {
                codes.as_flattened_mut().copy_from_slice(stored);
            } else {
                // SAFETY: the processor has AVX2, or the test would not ask.
                #[allow(unsafe_code)]
                unsafe {
                    expand(stored, bits, codes);
                }
            }
        }
        (stored, tiles)
    };
    (0..4).map(&mut fill).collect()
}

/// Tiles in blocks, with other bytes between them.
fn blocks(layout: &Layout, stored: &[u8]) -> Vec<u8> {
    let mut blocks = vec![0x5a; stored.len() / layout.codes / layout.tiles * layout.bytes];
    let tiles = blocks
        .chunks_exact_mut(layout.bytes)
        .flat_map(|block| block[layout.head..].chunks_exact_mut(layout.tile));
    for (to, codes) in tiles.zip(stored.chunks_exact(layout.codes)) {
        to[..layout.codes].copy_from_slice(codes);
    }
    blocks
}

/// Bits of what `kernel` makes of rows `1 ..` of `x`, `rows` at a time; fewer than that are left over.
fn run(x: &QuantRows, rows: usize, kernel: impl Fn(Left<'_>, Out)) -> Vec<u32> {
    let mut y = vec![0.5f32; ROWS * COLS];
    for (i, y) in y.chunks_exact_mut(rows * COLS).enumerate() {
        let out = Out { to: y.as_mut_ptr(), stride: COLS };
        kernel(Left { x, row: 1 + i * rows, rows, tile: 1, tiles: TILES }, out);
    }
    y.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn every_kernel_gives_the_bits_of_the_formula_at_the_ends_of_every_range() {
    let Some(avx2) = Isa::available().into_iter().find(|isa| isa.kind() == Kind::Avx2) else {
        eprintln!("SKIPPED: no AVX2");
        return;
    };
    let vnni_512 = is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vl");
    let x = activations();
    for (bits, group16, mins, zero) in SHAPES {
        let shape = Shape { group16, mins, zero, bits };
        let mut kernels: Vec<(usize, bool, Kernel)> = vec![
            (1, false, kernel::<1, false, MADD>(shape)),
            (2, false, kernel::<2, false, MADD>(shape)),
            (1, true, kernel::<1, true, MADD>(shape)),
            (2, true, kernel::<2, true, MADD>(shape)),
        ];
        if vnni_512 {
            kernels.extend([
                (1, false, kernel::<1, false, VNNI_512>(shape)),
                (2, false, kernel::<2, false, VNNI_512>(shape)),
                (1, true, kernel::<1, true, VNNI_512>(shape)),
                (2, true, kernel::<2, true, VNNI_512>(shape)),
            ] as [(usize, bool, Kernel); 4]);
        }
        for (stored, tiles) in tiles(bits) {
            let b = Expanded { codes: &tiles.codes, scales: &tiles.scales, mins: &tiles.mins };
            // SAFETY: `run` has the rows, `b` and `stored` as many tiles as it asks for; the processor has the features.
            #[allow(unsafe_code)]
            unsafe {
                let want = run(&x, 1, |a, out| dot(Isa::PORTABLE, a, b, shape, out));
                let group = if group16 { 16 } else { 32 };
                let layouts = [false, true].map(|factors| Layout::new(bits, group, mins, factors));
                let stored = layouts.map(|layout| (layout, blocks(&layout, &stored)));
                let stored = || stored.iter().map(|(layout, blocks)| stored::Tiles::stored(layout, blocks));
                for (i, (rows, from_stored, kernel)) in kernels.iter().enumerate() {
                    let expanded = [stored::Tiles::expanded(b.codes)];
                    for codes in if *from_stored { stored().collect() } else { expanded.to_vec() } {
                        let got = run(&x, *rows, |a, out| kernel(a, codes, b, zero, out));
                        let n = (ROWS - ROWS % rows) * COLS;
                        assert_eq!(got[..n], want[..n], "{shape:?} kernel {i}");
                    }
                }
                for rows in [1, 3, 4] {
                    let got = run(&x, rows, |a, out| dot(avx2, a, b, shape, out));
                    let n = (ROWS - ROWS % rows) * COLS;
                    assert_eq!(got[..n], want[..n], "{shape:?} {rows} rows");
                }
                for (rows, codes) in (1..=FEW).flat_map(|rows| stored().map(move |codes| (rows, codes))) {
                    let got = run(&x, rows, |a, out| dot_stored(avx2, a, codes, b, shape, out));
                    let n = (ROWS - ROWS % rows) * COLS;
                    assert_eq!(got[..n], want[..n], "{shape:?} {rows} rows, stored");
                }
            }
        }
    }
}

#[test]
fn sums_of_16_bits_hold_what_is_added_to_them() {
    for bits in [4, 5, 6] {
        let most = 4 * pairs_in_16_bits(bits) * ((1 << bits) - 1) * 127;
        assert!(most <= i16::MAX as usize, "{bits} bits: {most}");
    }
    assert!(2 * 128 * 127 <= i16::MAX as usize);
}
