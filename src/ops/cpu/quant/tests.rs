//! Every format against candle's reading of it, and the kernels against plain sums, on every instruction set.

use std::ops::Range;

use candle_core::{
    Device, Tensor,
    quantized::{GgmlDType, QTensor},
};

use super::{BlockFormat, QuantMatrix, QuantRows, matrix::PackError};
use crate::ops::cpu::{Cpu, Inputs, Isa, Product, Weight, multiply};

const FORMATS: [(BlockFormat, GgmlDType); 10] = [
    (BlockFormat::Q4_0, GgmlDType::Q4_0),
    (BlockFormat::Q4_1, GgmlDType::Q4_1),
    (BlockFormat::Q5_0, GgmlDType::Q5_0),
    (BlockFormat::Q5_1, GgmlDType::Q5_1),
    (BlockFormat::Q8_0, GgmlDType::Q8_0),
    (BlockFormat::Q2K, GgmlDType::Q2K),
    (BlockFormat::Q3K, GgmlDType::Q3K),
    (BlockFormat::Q4K, GgmlDType::Q4K),
    (BlockFormat::Q5K, GgmlDType::Q5K),
    (BlockFormat::Q6K, GgmlDType::Q6K),
];

fn values(n: usize, seed: u64) -> Vec<f32> {
    let mut x = seed;
    (0..n)
        .map(|i| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let v = (x >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
            if i % 97 == 3 { v * 9.0 } else { v }
        })
        .collect()
}

/// A matrix in `dtype`, as blocks, and what candle reads in them.
fn blocks(dtype: GgmlDType, n: usize, k: usize) -> (Vec<u8>, Vec<f32>) {
    let w = Tensor::from_vec(values(n * k, 7), (n, k), &Device::Cpu).unwrap();
    let quantised = QTensor::quantize(&w, dtype).unwrap();
    let read = quantised.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap();
    (quantised.data().unwrap().to_vec(), read)
}

/// Packs blocks; row `r` of the matrix is row `row(r)` of `bytes`.
fn pack(
    format: BlockFormat,
    bytes: &[u8],
    (n, k): (usize, usize),
    row: impl Fn(usize) -> usize + Sync,
) -> QuantMatrix {
    let row_bytes = bytes.len() / n;
    let read = |rows: Range<usize>, to: &mut [u8]| {
        for (r, to) in rows.zip(to.chunks_exact_mut(row_bytes)) {
            to.copy_from_slice(&bytes[row(r) * row_bytes..][..row_bytes]);
        }
        Ok(())
    };
    QuantMatrix::pack(format, (n, k), read).unwrap()
}

fn quantise(isa: Isa, x: &[f32], k: usize) -> QuantRows {
    let mut rows = QuantRows::default();
    rows.resize(x.len() / k, k);
    let slots = rows.slots();
    for (r, x) in x.chunks_exact(k).enumerate() {
        // SAFETY: one row after the other.
        #[allow(unsafe_code)]
        unsafe {
            slots.fill(isa, r, x);
        }
    }
    rows
}

fn product(cpu: &Cpu, weight: &Weight, x: &[f32]) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.len() / weight.k() * weight.n()];
    product_to(cpu, weight, x, (None, false), &mut y);
    y
}

fn product_to(cpu: &Cpu, weight: &Weight, x: &[f32], (bias, onto): (Option<&[f32]>, bool), y: &mut [f32]) {
    let (m, quant) = (x.len() / weight.k(), quantise(cpu.isa(), x, weight.k()));
    let inputs = Inputs { rows: x, quant: Some(&quant) };
    multiply(cpu, m, inputs, &mut [Product { weight, bias, onto, y }]);
}

#[test]
fn every_format_reads_as_candle_reads_it() {
    for (format, dtype) in FORMATS {
        let (n, k) = (37, 768);
        let (bytes, want) = blocks(dtype, n, k);
        // rows in another order, as Llama's q and k need
        let matrix = pack(format, &bytes, (n, k), |r| (r + 5) % n);
        let mut row = vec![0f32; k];
        for r in 0..n {
            matrix.copy_row(r, &mut row);
            for (got, want) in row.iter().zip(&want[(r + 5) % n * k..]) {
                assert!((got - want).abs() <= 2e-6 * want.abs().max(0.1), "{format:?} row {r}: {got} {want}");
            }
        }
        // two panels of 32 rows
        assert_eq!(matrix.bytes(), 64 * k / 256 * bytes_of_256(format), "{format:?}");
    }
}

/// Bytes in memory of 256 weights: codes, f16 scales, f16 minima, then the K formats' factors of both.
fn bytes_of_256(format: BlockFormat) -> usize {
    match format {
        BlockFormat::Q4_0 => 128 + 8 * 2,
        BlockFormat::Q4_1 => 128 + 8 * (2 + 2),
        BlockFormat::Q5_0 => 160 + 8 * 2,
        BlockFormat::Q5_1 => 160 + 8 * (2 + 2),
        BlockFormat::Q8_0 => 256 + 8 * 2,
        BlockFormat::Q2K => 128 + 2 + 2 + 16 + 16,
        BlockFormat::Q3K => 128 + 2 + 16,
        BlockFormat::Q4K => 128 + 2 + 2 + 8 + 8,
        BlockFormat::Q5K => 160 + 2 + 2 + 8 + 8,
        BlockFormat::Q6K => 192 + 2 + 16,
    }
}

#[test]
fn products_equal_plain_sums() {
    for (format, dtype) in FORMATS {
        for (m, n, k) in [(1, 32, 256), (7, 70, 768), (13, 5, 1280)] {
            let (bytes, _) = blocks(dtype, n, k);
            let matrix = pack(format, &bytes, (n, k), |r| r);
            let (x, bias) = (values(m * k, 3), values(n, 4));
            let rows = quantise(Isa::PORTABLE, &x, k);
            let mut weights = vec![0f32; n * k];
            weights.chunks_exact_mut(k).enumerate().for_each(|(r, w)| matrix.copy_row(r, w));
            let weight = Weight::Quant(matrix);
            let before = values(m * n, 5);
            for (isa, added) in
                Isa::available().into_iter().flat_map(|isa| (0..4).map(move |added| (isa, added)))
            {
                let (bias, onto) = ((added & 1 > 0).then_some(&bias[..]), added & 2 > 0);
                let mut y = before.clone();
                product_to(&Cpu::with_isa(isa, 1), &weight, &x, (bias, onto), &mut y);
                for (i, got) in y.iter().enumerate() {
                    let (codes, groups) = rows.row(i / n);
                    let term = |j: usize| {
                        f64::from(codes[j])
                            * f64::from(groups[j / 32].scale)
                            * f64::from(weights[i % n * k + j])
                    };
                    let add = bias.map_or(0.0, |b| f64::from(b[i % n]))
                        + if onto { f64::from(before[i]) } else { 0.0 };
                    let want = add + (0..k).map(term).sum::<f64>();
                    let size = (0..k).map(|j| term(j).abs()).sum::<f64>();
                    assert!(
                        (f64::from(*got) - want).abs() < 1e-6 * size,
                        "{isa:?} {format:?} {added} [{i}]: {got} {want}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_row_is_the_same_bits_alone_in_company_on_any_threads_and_any_isa() {
    for (format, dtype) in FORMATS {
        let (m, n, k) = (205, 100, 768);
        let (bytes, _) = blocks(dtype, n, k);
        let weight = Weight::Quant(pack(format, &bytes, (n, k), |r| r));
        let x = values(m * k, 3);
        let whole = product(&Cpu::new(1), &weight, &x);
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(isa, 1);
            for r in [0, 5, 6, 204] {
                assert_eq!(
                    product(&cpu, &weight, &x[r * k..][..k]),
                    whole[r * n..][..n],
                    "{isa:?} {format:?}"
                );
            }
        }
        for threads in [2, 3] {
            assert_eq!(product(&Cpu::new(threads), &weight, &x), whole, "{format:?} {threads} threads");
        }
    }
}

/// Bytes of a block that are scales of 16 bits.
fn scales_of(format: BlockFormat) -> Range<usize> {
    match format {
        BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 => 0..2,
        BlockFormat::Q4_1 | BlockFormat::Q5_1 | BlockFormat::Q4K | BlockFormat::Q5K => 0..4,
        BlockFormat::Q2K => 80..84,
        BlockFormat::Q3K => 108..110,
        BlockFormat::Q6K => 208..210,
    }
}

#[test]
fn every_isa_gives_the_same_bits_for_few_rows_and_the_largest_and_smallest_codes() {
    for (format, dtype) in FORMATS {
        let (m, n, k) = (13, 40, 1280);
        let (any, _) = blocks(dtype, n, k);
        let fill = |byte: u8| {
            let mut bytes = any.clone();
            for block in bytes.chunks_exact_mut(format.bytes()) {
                let scales = block[scales_of(format)].to_vec();
                block.fill(byte);
                block[scales_of(format)].copy_from_slice(&scales);
            }
            bytes
        };
        // rows of codes that are all 127, all -127, and both
        let mut x = values(m * k, 3);
        for (i, x) in x.iter_mut().enumerate() {
            match i / k % 4 {
                0 => *x = 2.5,
                1 => *x = -2.5,
                2 => *x = if i % 2 == 0 { 2.5 } else { -2.5 },
                _ => {}
            }
        }
        for bytes in [any.clone(), fill(0), fill(0xff), fill(0x7f), fill(0x80)] {
            let weight = Weight::Quant(pack(format, &bytes, (n, k), |r| r));
            let want = product(&Cpu::with_isa(Isa::PORTABLE, 1), &weight, &x);
            for isa in Isa::available() {
                let cpu = Cpu::with_isa(isa, 1);
                for rows in 1..=m {
                    let first = (m - rows) / 2;
                    let got = product(&cpu, &weight, &x[first * k..][..rows * k]);
                    assert_eq!(got, want[first * n..][..rows * n], "{isa:?} {format:?} {rows} rows");
                }
            }
        }
    }
}

/// Bits, with one NaN for all: which one it is, no instruction set promises.
fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|v| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() }).collect()
}

#[test]
fn every_isa_adds_to_the_same_bits_for_one_block_one_slice_and_rows_that_are_no_numbers() {
    const ROWS: usize = 9;
    for (format, dtype) in FORMATS {
        for k in [format.weights(), 512] {
            let n = 40;
            let (bytes, _) = blocks(dtype, n, k);
            let weight = Weight::Quant(pack(format, &bytes, (n, k), |r| r));
            let (mut x, bias, before) = (values(ROWS * k, 3), values(n, 4), values(ROWS * n, 5));
            (x[2 * k + 7], x[5 * k + k - 1], x[6 * k]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
            for added in 0..4 {
                let added = ((added & 1 > 0).then_some(&bias[..]), added & 2 > 0);
                let run = |isa, rows: Range<usize>| {
                    let mut y = before[rows.start * n..rows.end * n].to_vec();
                    let x = &x[rows.start * k..rows.end * k];
                    product_to(&Cpu::with_isa(isa, 1), &weight, x, added, &mut y);
                    bits(&y)
                };
                let want = run(Isa::PORTABLE, 0..ROWS);
                let no_number = |r: usize| want[r * n..][..n].iter().all(|v| f32::from_bits(*v).is_nan());
                assert!((0..ROWS).all(|r| no_number(r) == [2, 5, 6].contains(&r)), "{format:?}");
                for isa in Isa::available() {
                    for rows in (1..=ROWS).flat_map(|len| [0..len, ROWS - len..ROWS]) {
                        let want = &want[rows.start * n..rows.end * n];
                        let onto = added.1;
                        assert_eq!(
                            run(isa, rows.clone()),
                            want,
                            "{isa:?} {format:?} k {k} rows {rows:?} onto {onto}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_no_number_stays_so_in_its_row_only() {
    let (bytes, _) = blocks(GgmlDType::Q5_0, 40, 64);
    let weight = Weight::Quant(pack(BlockFormat::Q5_0, &bytes, (40, 64), |r| r));
    let mut x = values(3 * 64, 3);
    x[64 + 40] = f32::INFINITY;
    for isa in Isa::available() {
        let y = product(&Cpu::with_isa(isa, 1), &weight, &x);
        assert!(y[40..80].iter().all(|v| v.is_nan()), "{isa:?}");
        assert!(y[..40].iter().chain(&y[80..]).all(|v| v.is_finite()), "{isa:?}");
    }
}

#[test]
fn bytes_that_are_no_matrix_are_refused() {
    let none = |format, n, k| QuantMatrix::pack(format, (n, k), |_, _| Ok(())).map(drop).unwrap_err();
    let width = none(BlockFormat::Q4K, 3, 96).to_string();
    assert_eq!(width, "rows of 96 weights cannot be made of Q4K blocks of 256");
    let (mut bytes, _) = blocks(GgmlDType::Q8_0, 40, 64);
    let fill = |bytes: &[u8]| {
        let read = |rows: Range<usize>, to: &mut [u8]| {
            to.copy_from_slice(&bytes[rows.start * 68..][..to.len()]);
            Ok(())
        };
        QuantMatrix::pack(BlockFormat::Q8_0, (40, 64), read).map(drop)
    };
    assert!(fill(&bytes).is_ok());
    bytes[35 * 68 + 34..][..2].copy_from_slice(&half::f16::INFINITY.to_le_bytes());
    assert!(matches!(fill(&bytes), Err(PackError::NotFinite { row: 35 })));
    let refused = QuantMatrix::pack(BlockFormat::Q8_0, (40, 64), |_, _| Err(std::io::Error::other("gone")));
    assert_eq!(refused.map(drop).unwrap_err().to_string(), "cannot be read: gone");
}
