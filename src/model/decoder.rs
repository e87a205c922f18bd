//! The dense decoder: Llama, Qwen2, Qwen3 and whatever else a [`DecoderSpec`] describes.
//!
//! Pre-norm blocks of paged causal attention (GQA, optional biases and qk-norm, RoPE) and a SwiGLU MLP. A layer runs
//! whole for the rows that go deeper, and computes only K (and Q at the read rows) for those that end in it.

use candle_core::{Device, IndexOp, Result, Tensor};
use candle_nn::{ops::rms_norm, rotary_emb::rope_thd};
use rayon::prelude::*;

use super::{
    Decoder, ForwardOutput,
    batch::Batch,
    capture::Capture,
    spec::DecoderSpec,
    weights::{LoadError, Weights},
};
use crate::ops::{AttentionItem, KvStore, Linear, Slot, swiglu};

/// A dense decoder with its weights.
pub struct DenseDecoder {
    spec: DecoderSpec,
    embedding: Linear,
    layers: Vec<Layer>,
    final_norm: Tensor,
    /// `None` when tied to the embedding.
    output: Option<Linear>,
    frequencies: Vec<f32>,
    cos_sin_factor: f32,
}

struct Layer {
    input_norm: Tensor,
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    q_norm: Option<Tensor>,
    k_norm: Option<Tensor>,
    mlp_norm: Tensor,
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// What every layer of a pass shares.
struct Pass<'a> {
    batch: &'a Batch,
    slots: Vec<Slot>,
    items: Vec<AttentionItem>,
    /// `[n_rows, head_dim / 2]`.
    cos: Tensor,
    sin: Tensor,
}

impl DenseDecoder {
    /// Loads every tensor that `spec` calls for.
    ///
    /// # Errors
    /// When one is missing or has another shape.
    pub fn load(spec: DecoderSpec, weights: &dyn Weights) -> std::result::Result<Self, LoadError> {
        let (hidden, vocab) = (spec.hidden, spec.vocab);
        let load_layers = || -> std::result::Result<Vec<_>, LoadError> {
            (0..spec.n_layers).into_par_iter().map(|i| Layer::load(i, &spec, weights)).collect()
        };
        let (embedding, layers) =
            rayon::join(|| weights.matrix("model.embed_tokens.weight", vocab, hidden), load_layers);
        let (embedding, layers) = (embedding?, layers?);
        let output = (!spec.tied).then(|| weights.matrix("lm_head.weight", vocab, hidden)).transpose()?;
        let final_norm = weights.vector("model.norm.weight", hidden)?;
        let (frequencies, cos_sin_factor) = spec.rope.frequencies(spec.head_dim);
        Ok(Self { spec, embedding, layers, final_norm, output, frequencies, cos_sin_factor })
    }

    /// cos and sin of every row's angles, f32: `[n_rows, head_dim / 2]` each.
    fn angles(&self, positions: &[u32]) -> Result<(Tensor, Tensor)> {
        let angles: Vec<f32> =
            positions.iter().flat_map(|&p| self.frequencies.iter().map(move |f| p as f32 * f)).collect();
        let table = |f: fn(f32) -> f32| {
            let values: Vec<f32> = angles.iter().map(|a| f(*a) * self.cos_sin_factor).collect();
            Tensor::from_vec(values, (positions.len(), self.frequencies.len()), &Device::Cpu)
        };
        Ok((table(f32::cos)?, table(f32::sin)?))
    }

    /// One layer for all rows that reach it; the hidden states of those that go on.
    fn layer(
        &self,
        l: usize,
        hidden: &Tensor,
        pass: &Pass<'_>,
        kv: &mut KvStore,
        capture: &mut Capture,
    ) -> Result<Tensor> {
        let (layer, batch) = (&self.layers[l], pass.batch);
        let (deeper, reaching) = (batch.items_deeper_than(l), batch.items_reaching(l));
        let (going_on, here) = (batch.rows_of_first(deeper), batch.rows_of_first(reaching));
        let x = self.norm(&hidden.narrow(0, 0, here)?, &layer.input_norm)?;
        let k = self.heads(&layer.k, &x, self.spec.n_kv_heads)?;
        let k = self.position(
            k,
            layer.k_norm.as_ref(),
            &pass.cos.narrow(0, 0, here)?,
            &pass.sin.narrow(0, 0, here)?,
        )?;
        kv.write_k(l, &pass.slots[..here], &k)?;
        for item in deeper..reaching {
            self.read_queries(l, item, &x, pass, capture)?;
        }
        if going_on == 0 {
            return hidden.narrow(0, 0, 0);
        }
        let (hidden, x) = (hidden.narrow(0, 0, going_on)?, x.narrow(0, 0, going_on)?);
        kv.write_v(l, &pass.slots[..going_on], &self.heads(&layer.v, &x, self.spec.n_kv_heads)?)?;
        let q = self.heads(&layer.q, &x, self.spec.n_heads)?;
        let q = self.position(
            q,
            layer.q_norm.as_ref(),
            &pass.cos.narrow(0, 0, going_on)?,
            &pass.sin.narrow(0, 0, going_on)?,
        )?;
        for item in 0..deeper {
            let rows = Capture::rows(batch, item, l);
            if !rows.is_empty() {
                capture.take(batch, item, l, &q.index_select(&Tensor::new(rows, q.device())?, 0)?)?;
            }
        }
        let attended = kv.attention(l, &q, &pass.items[..deeper])?.flatten_from(1)?;
        let hidden = (hidden + layer.o.forward(&attended)?)?;
        let x = self.norm(&hidden, &layer.mlp_norm)?;
        let inner = swiglu(&layer.gate.forward(&x)?, &layer.up.forward(&x)?)?;
        hidden + layer.down.forward(&inner)?
    }

    /// Q at the read rows of an item that ends in layer `l`.
    fn read_queries(
        &self,
        l: usize,
        item: usize,
        x: &Tensor,
        pass: &Pass<'_>,
        capture: &mut Capture,
    ) -> Result<()> {
        let rows = Capture::rows(pass.batch, item, l);
        if rows.is_empty() {
            return Ok(());
        }
        let rows = Tensor::new(rows, x.device())?;
        let pick = |t: &Tensor| t.index_select(&rows, 0);
        let q = self.heads(&self.layers[l].q, &pick(x)?, self.spec.n_heads)?;
        let q = self.position(q, self.layers[l].q_norm.as_ref(), &pick(&pass.cos)?, &pick(&pass.sin)?)?;
        capture.take(pass.batch, item, l, &q)
    }

    fn norm(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        rms_norm(x, weight, self.spec.norm_eps as f32)
    }

    /// `[n, hidden] -> [n, heads, head_dim]`.
    fn heads(&self, linear: &Linear, x: &Tensor, heads: usize) -> Result<Tensor> {
        linear.forward(x)?.reshape((x.dim(0)?, heads, self.spec.head_dim))
    }

    /// qk-norm, then RoPE, on `[n, heads, head_dim]`.
    fn position(&self, x: Tensor, norm: Option<&Tensor>, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
        let x = match norm {
            Some(weight) => self.norm(&x, weight)?,
            None => x,
        };
        rope_thd(&x.unsqueeze(0)?, cos, sin)?.squeeze(0)
    }
}

impl Layer {
    fn load(i: usize, spec: &DecoderSpec, weights: &dyn Weights) -> std::result::Result<Self, LoadError> {
        let name = |part: &str| format!("model.layers.{i}.{part}");
        let linear = |part: &str, n: usize, k: usize, bias: bool| {
            let matrix = weights.matrix(&name(&format!("{part}.weight")), n, k)?;
            let bias = bias.then(|| weights.vector(&name(&format!("{part}.bias")), n)).transpose()?;
            Ok::<_, LoadError>(matrix.with_bias(bias))
        };
        let norm = |part: &str, len: usize| weights.vector(&name(&format!("{part}.weight")), len);
        let qk_norm = |part: &str| spec.qk_norm.then(|| norm(part, spec.head_dim)).transpose();
        let (hidden, inner) = (spec.hidden, spec.intermediate);
        let (q_width, kv_width) = (spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim);
        Ok(Self {
            input_norm: norm("input_layernorm", hidden)?,
            q: linear("self_attn.q_proj", q_width, hidden, spec.qkv_bias)?,
            k: linear("self_attn.k_proj", kv_width, hidden, spec.qkv_bias)?,
            v: linear("self_attn.v_proj", kv_width, hidden, spec.qkv_bias)?,
            o: linear("self_attn.o_proj", hidden, q_width, spec.o_bias)?,
            q_norm: qk_norm("self_attn.q_norm")?,
            k_norm: qk_norm("self_attn.k_norm")?,
            mlp_norm: norm("post_attention_layernorm", hidden)?,
            gate: linear("mlp.gate_proj", inner, hidden, false)?,
            up: linear("mlp.up_proj", inner, hidden, false)?,
            down: linear("mlp.down_proj", hidden, inner, false)?,
        })
    }
}

impl Decoder for DenseDecoder {
    fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    fn forward(&self, batch: &Batch, kv: &mut KvStore) -> Result<ForwardOutput> {
        let mut hidden = self.embedding.rows(&batch.tokens(), &self.final_norm)?;
        let (cos, sin) = self.angles(&batch.positions())?;
        let pass = Pass { batch, slots: batch.slots(), items: batch.attention_items(), cos, sin };
        let mut capture = Capture::default();
        for l in 0..self.layers.len() {
            if batch.items_reaching(l) == 0 {
                break;
            }
            hidden = self.layer(l, &hidden, &pass, kv, &mut capture)?;
        }
        let rows = batch.logit_rows();
        let logits = if rows.is_empty() {
            Vec::new()
        } else {
            let last = hidden.index_select(&Tensor::new(rows, hidden.device())?, 0)?;
            let logits = self
                .output
                .as_ref()
                .unwrap_or(&self.embedding)
                .forward(&self.norm(&last, &self.final_norm)?)?;
            (0..logits.dim(0)?).map(|r| logits.i(r)?.to_vec1()).collect::<Result<_>>()?
        };
        Ok(ForwardOutput { logits, captured: capture.into_captured() })
    }
}
