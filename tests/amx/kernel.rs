//! Products on tiles, on the instruction sets there are, and on plain code.

use candle_core::{
    Device, Tensor,
    quantized::{GgmlDType, QTensor},
};
use qrae::ops::{
    Activations, Cpu, Keep,
    cpu::{Isa, Product, QuantMatrix, Weight, multiply, quant::BlockFormat},
};

use super::emulator::{self, Mode};

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
/// Fewest rows that tiles are used for.
const FEWEST: usize = 9;

/// AMX, emulated where it has to be. None (said loudly) without AVX-512 VNNI.
fn amx() -> Option<Isa> {
    if !is_x86_feature_detected!("avx512vnni") || !is_x86_feature_detected!("avx512bw") {
        eprintln!("SKIPPED: the AMX kernel needs AVX-512 VNNI, which this processor does not have");
        return None;
    }
    let mode = emulator::install();
    eprintln!("tile instructions are executed by: {mode:?}");
    // SAFETY: after `install` they are executed, in every thread.
    #[allow(unsafe_code)]
    let isa = unsafe { Isa::assume_amx() };
    Some(isa.expect("tiles compute what plain code computes"))
}

/// Values in the range that activations and weights have, some of them far out.
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

fn weight((format, dtype): (BlockFormat, GgmlDType), n: usize, k: usize) -> Weight {
    let w = Tensor::from_vec(values(n * k, 7), (n, k), &Device::Cpu).unwrap();
    let blocks = QTensor::quantize(&w, dtype).unwrap();
    Weight::Quant(pack(format, &blocks.data().unwrap(), (n, k)))
}

fn pack(format: BlockFormat, blocks: &[u8], (n, k): (usize, usize)) -> QuantMatrix {
    let row_bytes = blocks.len() / n;
    let read = |rows: std::ops::Range<usize>, to: &mut [u8]| {
        to.copy_from_slice(&blocks[rows.start * row_bytes..][..to.len()]);
        Ok(())
    };
    QuantMatrix::pack(format, (n, k), read).unwrap()
}

/// Plain code: the last in the list.
fn plain() -> Cpu {
    Cpu::with_isa(*Isa::available().last().unwrap(), 1)
}

/// `x · Wᵀ` added to `y` that is not zero, as bits.
fn product(cpu: &Cpu, weight: &Weight, x: &[f32]) -> Vec<u32> {
    let m = x.len() / weight.k();
    let mut rows = Activations::new(weight.k(), Keep::Codes);
    rows.fill(cpu, m, |r, row| row.copy_from_slice(&x[r * weight.k()..][..weight.k()]));
    let mut y = values(m * weight.n(), 5);
    multiply(cpu, m, rows.inputs(), &mut [Product { weight, bias: None, onto: true, y: &mut y }]);
    y.into_iter().map(f32::to_bits).collect()
}

/// The product on one thread, with what it must have executed if it is emulated.
fn product_on_tiles(isa: Isa, weight: &Weight, x: &[f32]) -> Vec<u32> {
    let before = emulator::executed();
    let y = product(&Cpu::with_isa(isa, 1), weight, x);
    let executed = emulator::executed() - before;
    if emulator::install() == Mode::Emulated {
        let (m, Weight::Quant(matrix)) = (x.len() / weight.k(), weight) else { panic!("not quantised") };
        let groups = weight.k() / matrix.format().group();
        // per group: zero, multiply and store each tile of sums, and load factors
        let strip = |rows: usize| if rows > 16 { 4 * 3 + 4 } else { 2 * 3 + 3 };
        let strips = m.div_ceil(32);
        let per_group: usize = (0..strips).map(|s| strip((s + 1) * m / strips - s * m / strips)).sum();
        let expected = if m < FEWEST { 0 } else { weight.n().div_ceil(32) * (2 + groups * per_group) };
        assert_eq!(executed, expected as u64, "{m} rows of {groups} groups");
    }
    assert!(!emulator::configured(), "tiles are still configured");
    y
}

#[test]
fn amx_is_found_where_the_processor_has_it() {
    let Some(amx) = amx() else { return };
    match emulator::install() {
        Mode::Native => assert_eq!(Isa::available()[0], amx),
        Mode::Emulated => assert!(!Isa::available().contains(&amx)),
    }
    assert_eq!(Isa::detect(), Isa::available()[0]);
}

#[test]
fn every_format_and_number_of_rows_gives_the_bits_of_the_other_instruction_sets() {
    let Some(amx) = amx() else { return };
    // neither a whole number of panels, nor (the second) of slices of 512
    for (n, k) in [(33, 512), (70, 768)] {
        for format in FORMATS {
            let weight = weight(format, n, k);
            let x = values(65 * k, 3);
            let isas = Isa::available().into_iter().filter(|&isa| isa != amx);
            let wants: Vec<_> = isas.map(|isa| (isa, product(&Cpu::with_isa(isa, 1), &weight, &x))).collect();
            for rows in [1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 65] {
                let got = product_on_tiles(amx, &weight, &x[..rows * k]);
                for (isa, want) in &wants {
                    assert!(got == want[..rows * n], "{:?} {rows} rows of {n} x {k}: {isa:?}", format.0);
                }
            }
        }
    }
}

#[test]
fn widths_that_end_in_the_middle_of_a_slice_or_of_two_groups() {
    let Some(amx) = amx() else { return };
    for k in [32, 96, 544, 992] {
        for format in FORMATS.into_iter().filter(|f| f.0.weights() == 32) {
            let weight = weight(format, 31, k);
            let x = values(21 * k, 3);
            let want = product(&plain(), &weight, &x);
            assert!(product_on_tiles(amx, &weight, &x) == want, "{:?} {k}", format.0);
        }
    }
}

#[test]
fn extreme_codes_and_activations() {
    let Some(amx) = amx() else { return };
    let k = 256;
    // blocks of one byte repeated: every code, scale factor and minimum factor at once as large as it gets
    for (format, _) in FORMATS {
        for byte in [0x00, 0x3b, 0x7f, 0x80, 0xff] {
            let mut blocks = vec![byte; 32 * k / format.weights() * format.bytes()];
            for block in blocks.chunks_exact_mut(format.bytes()) {
                // finite f16 numbers, wherever the format has them
                let (scale, last) = (0x2e66_u16.to_le_bytes(), format.bytes() - 2);
                match format {
                    BlockFormat::Q3K | BlockFormat::Q6K => block[last..].copy_from_slice(&scale),
                    BlockFormat::Q2K => {
                        block[80..82].copy_from_slice(&scale);
                        block[82..].copy_from_slice(&scale);
                    }
                    _ => {
                        block[..2].copy_from_slice(&scale);
                        block[2..4].copy_from_slice(&scale);
                    }
                }
            }
            let weight = Weight::Quant(pack(format, &blocks, (32, k)));
            for x in [vec![-2.0; 20 * k], vec![2.0; 20 * k]] {
                let want = product(&plain(), &weight, &x);
                assert!(product_on_tiles(amx, &weight, &x) == want, "{format:?} {byte:#x} {}", x[0]);
            }
        }
    }
}

#[test]
fn what_is_no_number_stays_so_in_its_row_only() {
    let Some(amx) = amx() else { return };
    for format in FORMATS {
        let (m, n, k) = (19, 40, 256);
        let weight = weight(format, n, k);
        for (row, bad) in [(0, f32::NAN), (7, f32::INFINITY), (15, -f32::NAN), (18, f32::NEG_INFINITY)] {
            let mut x = values(m * k, 3);
            x[row * k + 70] = bad;
            let got = product_on_tiles(amx, &weight, &x);
            for (r, y) in got.chunks_exact(n).enumerate() {
                let nan = y.iter().filter(|y| f32::from_bits(**y).is_nan()).count();
                assert_eq!(nan, if r == row { n } else { 0 }, "{:?} row {r}, {bad} in row {row}", format.0);
            }
            let want = product(&plain(), &weight, &x);
            for (got, want) in got.into_iter().zip(want) {
                let both_nan = f32::from_bits(got).is_nan() && f32::from_bits(want).is_nan();
                assert!(got == want || both_nan, "{:?}", format.0);
            }
        }
    }
}

#[test]
fn threads_change_nothing() {
    let Some(amx) = amx() else { return };
    let (m, n, k) = (205, 100, 768);
    for format in [FORMATS[4], FORMATS[7], FORMATS[9]] {
        let weight = weight(format, n, k);
        let x = values(m * k, 3);
        let whole = product(&Cpu::with_isa(amx, 1), &weight, &x);
        for threads in [2, 3] {
            assert!(product(&Cpu::with_isa(amx, threads), &weight, &x) == whole, "{threads} threads");
        }
    }
}
