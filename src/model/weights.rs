//! Where a decoder's weights come from: one trait, so that a model file never knows its file format.
//!
//! Names are the Hugging Face ones (`model.layers.3.self_attn.q_proj.weight`); other formats translate.

use std::{
    fmt, io,
    ops::Range,
    path::{Path, PathBuf},
};

use crate::ops::{
    KvFloat, Linear,
    cpu::{
        FloatType, PackedMatrix, QuantMatrix,
        quant::{BlockFormat, matrix::PackError},
    },
};
use crate::text::{shown, shown_sentence};

/// A model file that cannot be used, with what and why.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file could not be opened or read.
    #[error("{}: cannot be read: {reason}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A key or tensor is missing, of the wrong kind, or out of range.
    #[error("{}: {key}: {reason}", file.display())]
    Key {
        /// The file.
        file: PathBuf,
        /// Metadata key or tensor name.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A GGUF file, key or tensor.
    #[error(transparent)]
    Gguf(Box<super::gguf::GgufError>),
    /// The architecture is not one of ours.
    #[error("{}: architecture {found:?} is not supported; supported are {supported}", file.display())]
    Architecture {
        /// The file.
        file: PathBuf,
        /// What the file says.
        found: String,
        /// The ones there are.
        supported: String,
    },
}

impl LoadError {
    /// A [`LoadError::Key`].
    pub fn key(file: impl Into<PathBuf>, key: impl Into<String>, reason: &(impl ToString + ?Sized)) -> Self {
        Self::Key { file: file.into(), key: shown(&key.into()), reason: shown_sentence(&reason.to_string()) }
    }
}

/// The arithmetic of the linear layers, and with it how exactly K and V are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compute {
    /// Weights and activations of 8 bits. Matrices that a file holds quantised keep their codes and scales, in as much
    /// memory as in the file but for Q2_K (1.95 times), Q3_K (1.33 times), Q4_K and Q5_K (2 to 3 % more), whose codes or
    /// factors lie wider. Those in f32, f16 or bf16 are quantised at load, to a byte a weight and a scale per 32 (GGUF's
    /// Q8_0). Matrices whose rows are no multiple of 32 run as under [`Compute::F32`].
    /// K and V are kept in f16, finer than the activations around them.
    #[default]
    Int8,
    /// Everything in f32, slower: the reference. Weights in f32, f16 or bf16 stay as they are and are widened, exactly,
    /// where they are multiplied; quantised ones are dequantised at load, to four bytes a weight. K and V are kept in f32.
    F32,
}

impl fmt::Display for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Int8 => "int8",
            Self::F32 => "f32",
        })
    }
}

impl Compute {
    /// What KV pages hold.
    #[must_use]
    pub fn kv_float(self) -> KvFloat {
        match self {
            Self::Int8 => KvFloat::F16,
            Self::F32 => KvFloat::F32,
        }
    }

    /// The `[n, k]` matrix of plain numbers that `tensor` of `file` holds; `read` writes the bytes of some rows, in order.
    ///
    /// # Errors
    /// When it cannot be read, or a row has a weight that is not finite or, in 8 bits, cannot be scaled.
    pub(super) fn matrix(
        self,
        (file, tensor): (&Path, &str),
        float: FloatType,
        (n, k): (usize, usize),
        read: impl Fn(Range<usize>, &mut [u8]) -> io::Result<()> + Sync,
    ) -> Result<Linear, LoadError> {
        if self == Self::F32 || !k.is_multiple_of(BlockFormat::Q8_0.weights()) {
            let packed = PackedMatrix::pack(float, (n, k), |rows, to| {
                read(rows.clone(), to)?;
                finite_rows(float, rows.start, k, to)
            });
            return Ok(Linear::plain(packed.map_err(|e| LoadError::key(file, tensor, &e))?));
        }
        let quantised = QuantMatrix::quantise(float, (n, k), read).map_err(|e| match e {
            PackError::NotFinite { row } => {
                let reason = format!(
                    "row {row} has a weight that is infinite, not a number, or too large for 8 bits (over 8.3 million): \
                     fetch the file again; only where all weights are finite, --compute f32 takes them"
                );
                LoadError::key(file, tensor, &reason)
            }
            other => LoadError::key(file, tensor, &other),
        });
        Ok(Linear::quantised(quantised?))
    }
}

/// Refuses rows of `k` weights, the first of them row `first`, that are not all finite.
fn finite_rows(float: FloatType, first: usize, k: usize, bytes: &[u8]) -> io::Result<()> {
    match bytes.chunks_exact((k * float.bytes()).max(1)).position(|row| !float.all_finite(row)) {
        None => Ok(()),
        Some(row) => Err(io::Error::other(format!(
            "row {} has a weight that is infinite or not a number: fetch the file again",
            first + row
        ))),
    }
}

/// The values of a norm or bias, which must be finite.
///
/// # Errors
/// With file, tensor and place when one is not.
pub(super) fn finite(file: &Path, tensor: &str, values: Vec<f32>) -> Result<Vec<f32>, LoadError> {
    match values.iter().position(|v| !v.is_finite()) {
        None => Ok(values),
        Some(at) => {
            let reason = format!("value {at} is infinite or not a number: fetch the file again");
            Err(LoadError::key(file, tensor, &reason))
        }
    }
}

/// Tensors by Hugging Face name.
pub trait Weights: Sync {
    /// The `[n, k]` matrix `name`, packed.
    ///
    /// # Errors
    /// When it is missing, of another shape, or not finite.
    fn matrix(&self, name: &str, n: usize, k: usize) -> Result<Linear, LoadError>;

    /// The vector `name` of `len` values, f32.
    ///
    /// # Errors
    /// When it is missing, of another length, or not finite.
    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, LoadError>;

    /// What the decoder is to compute in.
    fn compute(&self) -> Compute;

    /// Names of tensors that nobody asked for, except those known to be useless.
    fn unused(&self) -> Vec<String>;
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    /// A matrix of 70 x `k` small bf16 weights, one of them replaced.
    fn matrix(compute: Compute, k: usize, planted: Option<(usize, bf16)>) -> Result<Linear, LoadError> {
        let weight = |i: usize| match planted {
            Some((at, planted)) if i == at => planted,
            _ => bf16::from_f32((i * 37 % 101) as f32 / 50.0 - 1.0),
        };
        let read = |rows: Range<usize>, to: &mut [u8]| {
            let all = rows.start * k..rows.end * k;
            all.zip(to.as_chunks_mut().0).for_each(|(i, to)| *to = weight(i).to_le_bytes());
            Ok(())
        };
        compute.matrix((Path::new("model.safetensors"), "blk.w"), FloatType::BF16, (70, k), read)
    }

    #[test]
    fn a_matrix_that_finds_no_memory_is_named_with_the_bytes() {
        for (compute, bytes) in [(Compute::Int8, 272 << 50), (Compute::F32, 512u64 << 50)] {
            let read = |_: Range<usize>, _: &mut [u8]| Ok(());
            let at = (Path::new("model.safetensors"), "blk.w");
            let error = compute.matrix(at, FloatType::BF16, (1 << 50, 256), read).err().unwrap().to_string();
            let want = format!("model.safetensors: blk.w: no memory for {bytes} bytes: ");
            assert!(error.starts_with(&want), "{error}");
        }
    }

    #[test]
    fn the_reference_keeps_k_and_v_as_they_were_computed() {
        assert_eq!(Compute::F32.kv_float(), KvFloat::F32);
        assert_eq!(Compute::default().kv_float(), KvFloat::F16);
    }

    #[test]
    fn weights_take_no_more_memory_than_in_the_file() {
        // three panels of 32 rows
        let int8 = matrix(Compute::Int8, 64, None).unwrap();
        assert!(int8.is_quantised());
        assert_eq!(int8.bytes() as f64, 1.0625 * 96.0 * 64.0);
        let f32 = matrix(Compute::F32, 64, None).unwrap();
        assert!(!f32.is_quantised());
        assert_eq!(f32.bytes(), 2 * 96 * 64);
        let odd = matrix(Compute::Int8, 72, None).unwrap();
        assert!(!odd.is_quantised(), "rows that are no whole number of blocks");
        assert_eq!(odd.bytes(), 2 * 96 * 72);
    }

    #[test]
    fn a_weight_that_eight_bits_cannot_hold_is_refused_with_tensor_and_row() {
        for bad in [bf16::NAN, bf16::INFINITY, bf16::NEG_INFINITY, bf16::MAX] {
            let error = matrix(Compute::Int8, 64, Some((41 * 64 + 3, bad))).err().unwrap().to_string();
            assert!(error.starts_with("model.safetensors: blk.w: row 41 has a weight"), "{error}");
            assert_eq!(matrix(Compute::F32, 64, Some((41 * 64 + 3, bad))).is_ok(), bad.is_finite());
            // rows of 72 weights are multiplied in f32 in any case
            assert_eq!(matrix(Compute::Int8, 72, Some((41 * 72 + 3, bad))).is_ok(), bad.is_finite());
        }
        let error = matrix(Compute::F32, 64, Some((69 * 64, bf16::NAN))).err().unwrap().to_string();
        assert!(
            error.starts_with("model.safetensors: blk.w: row 69 has a weight that is infinite or"),
            "{error}"
        );
        let error = finite(Path::new("m"), "norm", vec![0.0, f32::NAN]).unwrap_err().to_string();
        assert!(error.starts_with("m: norm: value 1 is infinite or not a number"), "{error}");
        assert_eq!(finite(Path::new("m"), "norm", vec![0.0, f32::MAX]).unwrap(), [0.0, f32::MAX]);
        assert!(matrix(Compute::Int8, 64, Some((3, bf16::from_f32(8e6)))).is_ok());
        // what no f16 scale reaches is 0, as in every Q8_0 file
        assert!(
            matrix(Compute::Int8, 64, Some((3, bf16::from_f32(f16::MIN_POSITIVE.to_f32() / 1e6)))).is_ok()
        );
    }
}
