//! A GGUF file as [`Weights`]: translates names, packs matrices as they are or dequantises them, and undoes the row order of
//! Llama's q and k. Matrices are read panel by panel, so that a weight is in memory once.

use std::{collections::BTreeSet, io, ops::Range, sync::Mutex};

use candle_core::{
    Device,
    quantized::{GgmlDType, QStorage, QTensor},
};

use super::{
    gguf::{GgufError, GgufFile, TensorInfo},
    weights::{Compute, LoadError, Weights, finite},
};
use crate::ops::{
    Linear,
    cpu::{FloatType, QuantMatrix, quant::BlockFormat},
};

/// The tensors of a GGUF file by Hugging Face name.
pub struct GgufWeights<'a> {
    file: &'a GgufFile,
    /// Rows of one q or k head to put back in half-split order, where the file interleaves them.
    interleaved_head: Option<usize>,
    compute: Compute,
    asked: Mutex<BTreeSet<String>>,
}

impl<'a> GgufWeights<'a> {
    /// `interleaved_head` is the head size where q and k rows are interleaved.
    #[must_use]
    pub fn new(file: &'a GgufFile, interleaved_head: Option<usize>, compute: Compute) -> Self {
        Self { file, interleaved_head, compute, asked: Mutex::default() }
    }

    /// A tensor's name in the file and its place; its dimensions must be `shape`.
    fn find(&self, name: &str, shape: &[usize]) -> Result<(String, &TensorInfo), LoadError> {
        let ours = gguf_name(name)
            .ok_or_else(|| LoadError::key(self.file.path(), name, "has no GGUF name: this is a bug"))?;
        self.asked.lock().expect("no panic while noting a name: this is a bug").insert(ours.clone());
        let info = self.file.tensor_info(&ours);
        let info = info.ok_or_else(|| GgufError::MissingTensor {
            file: self.file.path().into(),
            tensor: ours.clone(),
        })?;
        if info.shape != shape {
            let reason = format!("has shape {:?}, the file's metadata calls for {shape:?}", info.shape);
            return Err(LoadError::key(self.file.path(), ours, &reason));
        }
        Ok((ours, info))
    }

    /// The size of a head whose rows are interleaved in the tensor `ours`.
    fn interleaved(&self, ours: &str) -> Option<usize> {
        self.interleaved_head.filter(|_| ours.contains(".attn_q.") || ours.contains(".attn_k."))
    }

    /// Reads stored rows `rows` of the tensor `ours` of `n` rows, in the order that we want.
    fn read_rows(
        &self,
        (ours, info): (&str, &TensorInfo),
        n: usize,
        rows: Range<usize>,
        to: &mut [u8],
    ) -> io::Result<()> {
        let row_bytes = info.bytes / n;
        match self.interleaved(ours) {
            None => self.file.read_part(info, rows.start * row_bytes, to),
            Some(head) => rows
                .zip(to.chunks_exact_mut(row_bytes))
                .try_for_each(|(r, to)| self.file.read_part(info, stored_row(r, head) * row_bytes, to)),
        }
    }
}

/// The values of whole blocks.
fn dequantise(dtype: GgmlDType, n_values: usize, bytes: Vec<u8>) -> candle_core::Result<Vec<f32>> {
    let storage = QStorage::from_data(bytes.into(), &Device::Cpu, dtype)?;
    QTensor::new(storage, n_values)?.dequantize(&Device::Cpu)?.to_vec1()
}

/// Where row `r` of q or k is stored: of a head of size `head`, row `i` is stored as `2i`, row `head / 2 + i` as `2i + 1`.
fn stored_row(r: usize, head: usize) -> usize {
    let (start, i) = (r - r % head, r % head);
    start + i % (head / 2) * 2 + i / (head / 2)
}

/// What a tensor's elements are to us.
enum Stored {
    Plain(FloatType),
    Blocks(BlockFormat),
}

impl Stored {
    /// `None` for the two types that no file holds.
    fn of(dtype: GgmlDType) -> Option<Self> {
        Some(match dtype {
            GgmlDType::F32 => Self::Plain(FloatType::F32),
            GgmlDType::F16 => Self::Plain(FloatType::F16),
            GgmlDType::BF16 => Self::Plain(FloatType::BF16),
            GgmlDType::Q4_0 => Self::Blocks(BlockFormat::Q4_0),
            GgmlDType::Q4_1 => Self::Blocks(BlockFormat::Q4_1),
            GgmlDType::Q5_0 => Self::Blocks(BlockFormat::Q5_0),
            GgmlDType::Q5_1 => Self::Blocks(BlockFormat::Q5_1),
            GgmlDType::Q8_0 => Self::Blocks(BlockFormat::Q8_0),
            GgmlDType::Q2K => Self::Blocks(BlockFormat::Q2K),
            GgmlDType::Q3K => Self::Blocks(BlockFormat::Q3K),
            GgmlDType::Q4K => Self::Blocks(BlockFormat::Q4K),
            GgmlDType::Q5K => Self::Blocks(BlockFormat::Q5K),
            GgmlDType::Q6K => Self::Blocks(BlockFormat::Q6K),
            GgmlDType::Q8_1 | GgmlDType::Q8K => return None,
        })
    }
}

/// `model.layers.3.self_attn.q_proj.weight` → `blk.3.attn_q.weight`.
fn gguf_name(name: &str) -> Option<String> {
    let whole = match name {
        "model.embed_tokens.weight" => Some("token_embd.weight"),
        "model.norm.weight" => Some("output_norm.weight"),
        "lm_head.weight" => Some("output.weight"),
        _ => None,
    };
    if let Some(whole) = whole {
        return Some(whole.into());
    }
    let (layer, part) = name.strip_prefix("model.layers.")?.split_once('.')?;
    let (part, kind) = part.rsplit_once('.')?;
    let part = match part {
        "input_layernorm" => "attn_norm",
        "post_attention_layernorm" => "ffn_norm",
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.o_proj" => "attn_output",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        _ => return None,
    };
    Some(format!("blk.{layer}.{part}.{kind}"))
}

impl Weights for GgufWeights<'_> {
    fn matrix(&self, name: &str, n: usize, k: usize) -> Result<Linear, LoadError> {
        let (ours, info) = self.find(name, &[n, k])?;
        let at = (self.file.path(), ours.as_str());
        let read = |rows: Range<usize>, to: &mut [u8]| self.read_rows((&ours, info), n, rows, to);
        match (Stored::of(info.dtype), self.compute) {
            (Some(Stored::Plain(float)), compute) => compute.matrix(at, float, (n, k), read),
            (Some(Stored::Blocks(format)), Compute::Int8) => {
                let packed = QuantMatrix::pack(format, (n, k), read);
                Ok(Linear::quantised(packed.map_err(|e| LoadError::key(at.0, at.1, &e))?))
            }
            (_, compute) => compute.matrix(at, FloatType::F32, (n, k), |rows, to| {
                let mut blocks = vec![0; rows.len() * (info.bytes / n)];
                let n_values = rows.len() * k;
                read(rows, &mut blocks)?;
                let values = dequantise(info.dtype, n_values, blocks).map_err(io::Error::other)?;
                values.iter().zip(to.as_chunks_mut().0).for_each(|(v, to)| *to = v.to_le_bytes());
                Ok(())
            }),
        }
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        let (ours, _) = self.find(name, &[len])?;
        let values = self.file.tensor(&ours)?.dequantize(&Device::Cpu).and_then(|t| t.to_vec1());
        let values: Vec<f32> = values.map_err(|e| LoadError::key(self.file.path(), &ours, &e))?;
        let values = finite(self.file.path(), &ours, values)?;
        let Some(head) = self.interleaved(&ours) else { return Ok(values) };
        Ok((0..len).map(|r| values[stored_row(r, head)]).collect())
    }

    fn compute(&self) -> Compute {
        self.compute
    }

    fn unused(&self) -> Vec<String> {
        let asked = self.asked.lock().expect("no panic while noting a name: this is a bug");
        let useless = |name: &str| name == "rope_freqs.weight";
        self.file
            .tensors()
            .map(|(n, _)| n)
            .filter(|n| !asked.contains(*n) && !useless(n))
            .map(String::from)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_rows_go_back_to_their_halves() {
        // heads of size 6: half-split rows 0 1 2 | 3 4 5 are stored as 0 3 1 4 2 5
        let stored = [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11];
        for r in 0..12 {
            assert_eq!(stored[stored_row(r, 6)], r);
        }
    }

    #[test]
    fn names_translate() {
        assert_eq!(gguf_name("model.layers.12.self_attn.q_proj.bias").unwrap(), "blk.12.attn_q.bias");
        assert_eq!(gguf_name("lm_head.weight").unwrap(), "output.weight");
        assert_eq!(gguf_name("model.layers.1.mlp.experts.weight"), None);
    }
}
