//! A GGUF file as [`Weights`]: translates names, packs quantised matrices or dequantises them, and undoes the row order of
//! Llama's q and k.

use std::{collections::BTreeSet, sync::Mutex};

use candle_core::{Device, quantized::GgmlDType};

use super::{
    gguf::{GgufError, GgufFile, TensorInfo},
    weights::{Compute, LoadError, Weights},
};
use crate::ops::{
    Linear,
    cpu::quant::{BlockFormat, QuantMatrix},
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

    /// The values of a tensor, row-major.
    fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let (ours, _) = self.find(name, shape)?;
        let tensor = self.file.tensor(&ours)?;
        let values = tensor.dequantize(&Device::Cpu).and_then(|t| t.flatten_all()?.to_vec1());
        let values: Vec<f32> = values.map_err(|e| LoadError::key(self.file.path(), &ours, &e))?;
        let Some(head) = self.interleaved(&ours) else { return Ok(values) };
        let width = values.len() / shape[0];
        let row = |r| &values[stored_row(r, head) * width..][..width];
        Ok((0..shape[0]).flat_map(row).copied().collect())
    }
}

/// Where row `r` of q or k is stored: of a head of size `head`, row `i` is stored as `2i`, row `head / 2 + i` as `2i + 1`.
fn stored_row(r: usize, head: usize) -> usize {
    let (start, i) = (r - r % head, r % head);
    start + i % (head / 2) * 2 + i / (head / 2)
}

/// The formats that are multiplied as they are.
fn block_format(dtype: GgmlDType) -> Option<BlockFormat> {
    Some(match dtype {
        GgmlDType::Q4_0 => BlockFormat::Q4_0,
        GgmlDType::Q4_1 => BlockFormat::Q4_1,
        GgmlDType::Q5_0 => BlockFormat::Q5_0,
        GgmlDType::Q5_1 => BlockFormat::Q5_1,
        GgmlDType::Q8_0 => BlockFormat::Q8_0,
        GgmlDType::Q2K => BlockFormat::Q2K,
        GgmlDType::Q3K => BlockFormat::Q3K,
        GgmlDType::Q4K => BlockFormat::Q4K,
        GgmlDType::Q5K => BlockFormat::Q5K,
        GgmlDType::Q6K => BlockFormat::Q6K,
        GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16 | GgmlDType::Q8_1 | GgmlDType::Q8K => return None,
    })
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
        let format = block_format(info.dtype).filter(|_| self.compute == Compute::Int8);
        let Some(format) = format else {
            let plain = Linear::new(&self.values(name, &[n, k])?, n, k);
            return plain.map_err(|e| LoadError::key(self.file.path(), ours, &e));
        };
        let row_bytes = k / format.weights() * format.bytes();
        // panel by panel, so that the file is never in memory a second time
        let packed = QuantMatrix::pack(format, (n, k), |rows, to| match self.interleaved(&ours) {
            None => self.file.read_part(info, rows.start * row_bytes, to),
            Some(head) => rows
                .zip(to.chunks_exact_mut(row_bytes))
                .try_for_each(|(r, to)| self.file.read_part(info, stored_row(r, head) * row_bytes, to)),
        });
        Ok(Linear::quantised(packed.map_err(|e| LoadError::key(self.file.path(), &ours, &e))?))
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        self.values(name, &[len])
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
