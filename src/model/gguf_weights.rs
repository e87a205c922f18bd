//! A GGUF file as [`Weights`]: translates names, dequantises to f32, and undoes the row order of Llama's q and k.

use std::{collections::BTreeSet, sync::Mutex};

use candle_core::{Device, Tensor};

use super::{
    gguf::GgufFile,
    weights::{LoadError, Weights},
};
use crate::ops::Linear;

/// The tensors of a GGUF file by Hugging Face name.
pub struct GgufWeights<'a> {
    file: &'a GgufFile,
    /// Rows of one q or k head to put back in half-split order, where the file interleaves them.
    interleaved_head: Option<usize>,
    asked: Mutex<BTreeSet<String>>,
}

impl<'a> GgufWeights<'a> {
    /// `interleaved_head` is the head size where q and k rows are interleaved.
    #[must_use]
    pub fn new(file: &'a GgufFile, interleaved_head: Option<usize>) -> Self {
        Self { file, interleaved_head, asked: Mutex::default() }
    }

    /// The values of a tensor whose dimensions must be `shape`, row-major.
    fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let ours = gguf_name(name)
            .ok_or_else(|| LoadError::key(self.file.path(), name, "has no GGUF name: this is a bug"))?;
        self.asked.lock().expect("no panic while noting a name: this is a bug").insert(ours.clone());
        let tensor = self.file.tensor(&ours)?;
        if tensor.shape().dims() != shape {
            let reason =
                format!("has shape {:?}, the file's metadata calls for {shape:?}", tensor.shape().dims());
            return Err(LoadError::key(self.file.path(), ours, &reason));
        }
        let values = tensor.dequantize(&Device::Cpu).and_then(|t| t.flatten_all()?.to_vec1());
        let values: Vec<f32> = values.map_err(|e| LoadError::key(self.file.path(), &ours, &e))?;
        match self.interleaved_head {
            Some(head) if ours.contains(".attn_q.") || ours.contains(".attn_k.") => {
                Ok(split_halves(&values, shape[0], head))
            }
            _ => Ok(values),
        }
    }
}

/// Undoes the interleaving of q and k rows: GGUF row `2i` of a head is row `i`, row `2i + 1` is row `head / 2 + i`.
fn split_halves(values: &[f32], rows: usize, head: usize) -> Vec<f32> {
    let width = values.len() / rows;
    let mut out = vec![0f32; values.len()];
    for (r, row) in values.chunks_exact(width).enumerate() {
        let (start, i) = (r - r % head, r % head);
        let to = start + i / 2 + (i % 2) * (head / 2);
        out[to * width..][..width].copy_from_slice(row);
    }
    out
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
        Ok(Linear::new(&self.values(name, &[n, k])?, n, k))
    }

    fn vector(&self, name: &str, len: usize) -> Result<Tensor, LoadError> {
        let values = self.values(name, &[len])?;
        Tensor::from_vec(values, len, &Device::Cpu).map_err(|e| LoadError::key(self.file.path(), name, &e))
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
        // one head of size 6, two columns: half-split rows 0 1 2 | 3 4 5 are stored as 0 3 1 4 2 5
        let stored: Vec<f32> = [0, 3, 1, 4, 2, 5].iter().flat_map(|&r| [r as f32, r as f32 + 0.5]).collect();
        let want: Vec<f32> = (0..6).flat_map(|r| [r as f32, r as f32 + 0.5]).collect();
        assert_eq!(split_halves(&stored, 6, 6), want);
    }

    #[test]
    fn names_translate() {
        assert_eq!(gguf_name("model.layers.12.self_attn.q_proj.bias").unwrap(), "blk.12.attn_q.bias");
        assert_eq!(gguf_name("lm_head.weight").unwrap(), "output.weight");
        assert_eq!(gguf_name("model.layers.1.mlp.experts.weight"), None);
    }
}
