//! Plain numbers to eight bits at load: GGUF's Q8_0, made of weights that a file holds in f32, f16 or bf16.
//!
//! Blocks of 32 weights: `scale = max |w| / 127`, `code = w / scale` rounded half away from zero, the scale kept as f16: what ggml's
//! `quantize_row_q8_0_ref` writes, so a folder computes what a Q8_0 file made of it does. Tests are beside the code.

use std::{io, ops::Range};

use half::f16;

use super::{BlockFormat, QuantMatrix, matrix::PackError};
use crate::ops::cpu::{
    exp::ROUND,
    floats::FloatType,
    tile::{Isa, Vectorised},
};

/// Weights of a block.
const WEIGHTS: usize = BlockFormat::Q8_0.weights();
/// Its bytes: the scale, then the codes.
const BYTES: usize = BlockFormat::Q8_0.bytes();

impl QuantMatrix {
    /// Quantises an `[n, k]` matrix of plain numbers panel by panel; `read` writes the bytes of some rows, in order.
    ///
    /// # Errors
    /// When `k` is no multiple of 32 or reading fails; [`PackError::NotFinite`] where a weight is infinite, no number, or
    /// so large (over 8.3 million) that its scale is.
    pub fn quantise(
        float: FloatType,
        (n, k): (usize, usize),
        read: impl Fn(Range<usize>, &mut [u8]) -> io::Result<()> + Sync,
    ) -> Result<Self, PackError> {
        let isa = Isa::detect();
        Self::pack(BlockFormat::Q8_0, (n, k), |rows, to| {
            let mut bytes = vec![0; rows.len() * k * float.bytes()];
            read(rows, &mut bytes)?;
            let mut row = vec![0f32; k];
            let from = bytes.chunks_exact((k * float.bytes()).max(1));
            for (bytes, to) in from.zip(to.chunks_exact_mut((k / WEIGHTS * BYTES).max(1))) {
                float.widen(isa, bytes, &mut row);
                isa.run(Quantise { row: &row, to });
            }
            Ok(())
        })
    }
}

/// A row to its blocks.
struct Quantise<'a> {
    row: &'a [f32],
    to: &'a mut [u8],
}

impl Vectorised for Quantise<'_> {
    #[inline(always)]
    fn run(self) {
        let blocks = self.to.as_chunks_mut::<BYTES>().0;
        for (w, to) in self.row.as_chunks::<WEIGHTS>().0.iter().zip(blocks) {
            block(w, to);
        }
    }
}

#[inline(always)]
fn block(w: &[f32; WEIGHTS], to: &mut [u8; BYTES]) {
    // the magnitude bits of floats order like integers, with infinities and NaNs at the end: one of these makes the scale
    // no finite number, which the matrix refuses
    let mut top = 0u32;
    for v in w {
        top = top.max(v.to_bits() & 0x7fff_ffff);
    }
    let exact = f32::from_bits(top) / 127.0;
    let scale = f16::from_f32(exact);
    // weights so small that f16 has no scale for them are zeros
    let inverse = if scale == f16::ZERO { 0.0 } else { 1.0 / exact };
    to[..2].copy_from_slice(&scale.to_le_bytes());
    for (code, v) in to[2..].iter_mut().zip(w) {
        *code = ((v * inverse).round() + ROUND).to_bits().wrapping_sub(ROUND.to_bits()) as u8;
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{
        Device, Tensor,
        quantized::{GgmlDType, QTensor},
    };

    use super::*;

    fn blocks(isa: Isa, w: &[f32]) -> Vec<u8> {
        let mut to = vec![0xee; w.len() / WEIGHTS * BYTES];
        isa.run(Quantise { row: w, to: &mut to });
        to
    }

    /// Scale and codes of one block.
    fn parts(block: &[u8]) -> (f16, Vec<i8>) {
        (f16::from_le_bytes([block[0], block[1]]), block[2..].iter().map(|&b| b as i8).collect())
    }

    fn values(n: usize, seed: u64) -> Vec<f32> {
        let mut x = seed;
        (0..n)
            .map(|i| {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let v = (x >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
                v * [0.02, 1e-4, 3.0, 4e4][i / WEIGHTS % 4]
            })
            .collect()
    }

    #[test]
    fn codes_are_the_nearest_and_blocks_are_ggml_s() {
        let w = values(64 * WEIGHTS, 3);
        let tensor = Tensor::from_vec(w.clone(), (64, WEIGHTS), &Device::Cpu).unwrap();
        let candle = QTensor::quantize(&tensor, GgmlDType::Q8_0).unwrap();
        for isa in Isa::available() {
            let got = blocks(isa, &w);
            for (w, got) in w.chunks_exact(WEIGHTS).zip(got.chunks_exact(BYTES)) {
                let (scale, codes) = parts(got);
                let max = w.iter().fold(0f64, |m, v| m.max(f64::from(*v).abs()));
                let exact = max / 127.0;
                // half a step of f16, or of its smallest numbers
                assert!(
                    (scale.to_f64() - exact).abs() <= (exact * 2f64.powi(-11)).max(2f64.powi(-25)) * 1.001
                );
                for (code, v) in codes.iter().zip(w) {
                    let off = f64::from(*code) - f64::from(*v) / exact;
                    assert!(off.abs() <= 0.5 + 1e-4, "{isa:?} {v}: {code} x {exact}");
                }
            }
            assert_eq!(got, *candle.data().unwrap(), "{isa:?}");
        }
    }

    #[test]
    fn the_largest_weight_has_the_largest_code_whatever_its_sign() {
        for isa in Isa::available() {
            for largest in [2.5f32, -2.5] {
                let mut w = [0.1f32; WEIGHTS];
                w[7] = largest;
                let (scale, codes) = parts(&blocks(isa, &w));
                assert_eq!(scale, f16::from_f32(2.5 / 127.0));
                assert_eq!(codes[7], if largest > 0.0 { 127 } else { -127 });
                assert_eq!(codes[8], 5);
            }
        }
    }

    #[test]
    fn halves_round_away_from_zero() {
        // a scale of exactly 1
        let mut w = [0f32; WEIGHTS];
        w[..9].copy_from_slice(&[127.0, 0.5, -0.5, 1.5, -1.5, 2.5, -126.5, 0.49999997, -0.49999997]);
        for isa in Isa::available() {
            let (scale, codes) = parts(&blocks(isa, &w));
            assert_eq!(scale, f16::ONE);
            assert_eq!(codes[..10], [127, 1, -1, 2, -2, 3, -127, 0, 0, 0], "{isa:?}");
        }
    }

    #[test]
    fn nothing_and_next_to_nothing_are_nothing() {
        for isa in Isa::available() {
            // zeros; subnormals; less than f16 has a scale for
            for small in [0.0f32, -0.0, f32::from_bits(1), 1e-40, f32::MIN_POSITIVE, 3e-6] {
                let (scale, codes) = parts(&blocks(isa, &[small; WEIGHTS]));
                assert_eq!((scale.to_bits(), codes), (0, vec![0; WEIGHTS]), "{small}");
            }
            // the smallest scale there is
            let (scale, codes) = parts(&blocks(isa, &[127.0 * 2f32.powi(-24); WEIGHTS]));
            assert_eq!((scale.to_bits(), codes[0]), (1, 127));
        }
    }

    /// Quantises rows of 64 weights.
    fn matrix(float: FloatType, n: usize, bytes: &[u8]) -> Result<QuantMatrix, PackError> {
        let width = 64 * float.bytes();
        QuantMatrix::quantise(float, (n, 64), |rows, to| {
            to.copy_from_slice(&bytes[rows.start * width..rows.end * width]);
            Ok(())
        })
    }

    #[test]
    fn matrices_of_every_type_hold_their_rows() {
        let w: Vec<f32> =
            values(40 * 64, 9).iter().map(|v| half::bf16::from_f32(v.clamp(-9.0, 9.0)).to_f32()).collect();
        let as_bf16: Vec<u8> = w.iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect();
        let as_f16: Vec<u8> = w.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect();
        let as_f32: Vec<u8> = w.iter().flat_map(|v| v.to_le_bytes()).collect();
        for (float, bytes) in [(FloatType::BF16, as_bf16), (FloatType::F16, as_f16), (FloatType::F32, as_f32)]
        {
            let matrix = matrix(float, 40, &bytes).unwrap();
            assert_eq!(matrix.bytes(), 64 * 64 * 34 / 32, "two panels of 1.0625 bytes a weight");
            let mut row = [0f32; 64];
            for (r, w) in w.chunks_exact(64).enumerate() {
                matrix.copy_row(r, &mut row);
                for (got, w) in row.chunks_exact(WEIGHTS).zip(w.chunks_exact(WEIGHTS)) {
                    let max = w.iter().fold(0f32, |m, v| m.max(v.abs()));
                    // half a step of the codes, and what f16 makes of the scale
                    let limit = max / 127.0 * 0.57 + 127.0 * 2f32.powi(-25);
                    assert!(got.iter().zip(w).all(|(a, b)| (a - b).abs() <= limit), "{float:?} row {r}");
                }
            }
        }
    }

    #[test]
    fn what_has_no_scale_is_refused_by_row() {
        for (bad, refused) in [
            (f32::NAN, true),
            (f32::INFINITY, true),
            (f32::NEG_INFINITY, true),
            (f32::MAX, true),
            (-8.4e6, true),
            (8.3e6, false),
        ] {
            let mut w = vec![1f32; 40 * 64];
            w[35 * 64 + 50] = bad;
            let bytes: Vec<u8> = w.iter().flat_map(|v| v.to_le_bytes()).collect();
            let got = matrix(FloatType::F32, 40, &bytes).map(drop);
            assert_eq!(matches!(got, Err(PackError::NotFinite { row: 35 })), refused, "{bad}: {got:?}");
            assert_eq!(got.is_err(), refused, "{bad}");
        }
        let narrow = QuantMatrix::quantise(FloatType::F16, (3, 48), |_, _| Ok(()));
        assert!(matches!(narrow.map(drop), Err(PackError::Width { k: 48, .. })));
        let gone = QuantMatrix::quantise(FloatType::F16, (3, 64), |_, _| Err(io::Error::other("gone")));
        assert_eq!(gone.map(drop).unwrap_err().to_string(), "cannot be read: gone");
    }
}
