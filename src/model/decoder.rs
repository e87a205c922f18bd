//! The dense decoder: Llama, Qwen2, Qwen3 and whatever else a [`DecoderSpec`] describes.
//!
//! Pre-norm blocks of paged causal attention (GQA, optional biases and qk-norm, RoPE) and a SwiGLU MLP. A layer runs
//! whole for the rows that go deeper, and computes only K (and Q at the read rows) for those that end in it.
//! Rows live in a workspace that is kept from pass to pass.

use rayon::prelude::*;

use super::{
    Decoder, ForwardOutput,
    batch::Batch,
    capture::Capture,
    spec::DecoderSpec,
    weights::{LoadError, Weights},
    workspace::{Angles, Workspace},
};
use crate::ops::{
    Activations, AttentionItem, Cpu, Keep, KvFloat, KvStore, Linear, OpError, Slot,
    linear::{Output, forward},
    norm::{rms_norm, rms_norm_in_place},
    rope::rotate,
};

/// A dense decoder with its weights.
pub struct DenseDecoder {
    net: Net,
    kv_float: KvFloat,
    workspace: Workspace,
}

struct Net {
    spec: DecoderSpec,
    embedding: Linear,
    layers: Vec<Layer>,
    final_norm: Vec<f32>,
    /// `None` when tied to the embedding.
    output: Option<Linear>,
    angles: Angles,
}

struct Layer {
    input_norm: Vec<f32>,
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    q_norm: Option<Vec<f32>>,
    k_norm: Option<Vec<f32>>,
    mlp_norm: Vec<f32>,
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// What every layer of a pass shares.
struct Pass<'a> {
    cpu: &'a Cpu,
    batch: &'a Batch,
    slots: Vec<Slot>,
    items: Vec<AttentionItem>,
}

impl DenseDecoder {
    /// Loads every tensor that `spec` calls for.
    ///
    /// # Errors
    /// When one is missing or has another shape.
    pub fn load(spec: DecoderSpec, weights: &dyn Weights) -> Result<Self, LoadError> {
        let (hidden, vocab) = (spec.hidden, spec.vocab);
        let load_layers = || -> Result<Vec<_>, LoadError> {
            (0..spec.n_layers).into_par_iter().map(|i| Layer::load(i, &spec, weights)).collect()
        };
        let (embedding, layers) =
            rayon::join(|| weights.matrix("model.embed_tokens.weight", vocab, hidden), load_layers);
        let (embedding, layers) = (embedding?, layers?);
        let output = (!spec.tied).then(|| weights.matrix("lm_head.weight", vocab, hidden)).transpose()?;
        let final_norm = weights.vector("model.norm.weight", hidden)?;
        let angles = Angles::new(&spec);
        let keep_for = |pick: fn(&Layer) -> &Linear| Keep::for_maps(layers.iter().map(pick));
        let qkv = Keep::for_maps(layers.iter().flat_map(|l| [&l.q, &l.k, &l.v]));
        let gate_up = Keep::for_maps(layers.iter().flat_map(|l| [&l.gate, &l.up]));
        let workspace = Workspace {
            // the read rows of a layer are picked from it
            normed: Activations::new(hidden, qkv.and_rows()),
            read: Activations::new(hidden, keep_for(|l| &l.q)),
            // attention writes it as a whole
            attended: Activations::new(spec.n_heads * spec.head_dim, keep_for(|l| &l.o).and_rows()),
            mlp_normed: Activations::new(hidden, gate_up),
            inner: Activations::new(spec.intermediate, keep_for(|l| &l.down)),
            last: Activations::new(hidden, Keep::for_maps([output.as_ref().unwrap_or(&embedding)])),
            ..Workspace::default()
        };
        let net = Net { spec, embedding, layers, final_norm, output, angles };
        Ok(Self { net, kv_float: weights.compute().kv_float(), workspace })
    }
}

impl Net {
    /// One layer for all rows that reach it; leaves the hidden states of those that go on.
    fn layer(
        &self,
        l: usize,
        ws: &mut Workspace,
        pass: &Pass<'_>,
        kv: &mut KvStore,
        capture: &mut Capture,
    ) -> Result<(), OpError> {
        let (layer, batch, cpu) = (&self.layers[l], pass.batch, pass.cpu);
        let DecoderSpec { n_heads, n_kv_heads, head_dim, .. } = self.spec;
        let (deeper, reaching) = (batch.items_deeper_than(l), batch.items_reaching(l));
        let (going_on, here) = (batch.rows_of_first(deeper), batch.rows_of_first(reaching));
        self.norm(cpu, &ws.hidden, here, &layer.input_norm, &mut ws.normed);
        let all_go_on = going_on == here;
        if all_go_on {
            let qkv = [
                Output::set(&layer.q, &mut ws.q),
                Output::set(&layer.k, &mut ws.k),
                Output::set(&layer.v, &mut ws.v),
            ];
            forward(cpu, &ws.normed, qkv);
        } else {
            forward(cpu, &ws.normed, [Output::set(&layer.k, &mut ws.k)]);
        }
        self.position(cpu, layer.k_norm.as_deref(), (&mut ws.k, n_kv_heads), &ws.cos_sin);
        kv.write_k(l, &pass.slots[..here], &ws.k)?;
        if !all_go_on {
            // rows that end here need nothing but K, and Q where they are read
            for item in deeper..reaching {
                self.read_queries(l, item, ws, pass, capture);
            }
            if going_on == 0 {
                ws.hidden.resize(0);
                return Ok(());
            }
            ws.hidden.resize(going_on * self.spec.hidden);
            ws.normed.truncate(going_on);
            forward(cpu, &ws.normed, [Output::set(&layer.q, &mut ws.q), Output::set(&layer.v, &mut ws.v)]);
        }
        kv.write_v(l, &pass.slots[..going_on], &ws.v)?;
        self.position(cpu, layer.q_norm.as_deref(), (&mut ws.q, n_heads), &ws.cos_sin);
        let width = n_heads * head_dim;
        for item in 0..deeper {
            let rows = Capture::rows(batch, item, l);
            capture.take(batch, item, l, head_dim, |r| &ws.q[rows[r] * width..][..width]);
        }
        let q = (&ws.q[..], n_heads);
        ws.attended.fill_whole(cpu, going_on, |out| kv.attention(cpu, l, q, &pass.items[..deeper], out))?;
        forward(cpu, &ws.attended, [Output { linear: &layer.o, y: &mut ws.hidden, onto: true }]);
        self.mlp(layer, ws, cpu, going_on);
        Ok(())
    }

    fn mlp(&self, layer: &Layer, ws: &mut Workspace, cpu: &Cpu, rows: usize) {
        self.norm(cpu, &ws.hidden, rows, &layer.mlp_norm, &mut ws.mlp_normed);
        ws.inner.fill_gated(cpu, &ws.mlp_normed, &layer.gate, &layer.up);
        forward(cpu, &ws.inner, [Output { linear: &layer.down, y: &mut ws.hidden, onto: true }]);
    }

    /// Q at the read rows of an item that ends in layer `l`.
    fn read_queries(
        &self,
        l: usize,
        item: usize,
        ws: &mut Workspace,
        pass: &Pass<'_>,
        capture: &mut Capture,
    ) {
        let rows = Capture::rows(pass.batch, item, l);
        if rows.is_empty() {
            return;
        }
        let (layer, hidden, head_dim) = (&self.layers[l], self.spec.hidden, self.spec.head_dim);
        let from = ws.normed.rows();
        ws.read.fill(pass.cpu, rows.len(), |r, row| row.copy_from_slice(&from[rows[r] * hidden..][..hidden]));
        forward(pass.cpu, &ws.read, [Output::set(&layer.q, &mut ws.q)]);
        let angles: Vec<f32> =
            rows.iter().flat_map(|&r| &ws.cos_sin[r * head_dim..][..head_dim]).copied().collect();
        self.position(pass.cpu, layer.q_norm.as_deref(), (&mut ws.q, self.spec.n_heads), &angles);
        let (q, width) = (&ws.q, self.spec.n_heads * head_dim);
        capture.take(pass.batch, item, l, head_dim, |r| &q[r * width..][..width]);
    }

    fn norm(&self, cpu: &Cpu, x: &[f32], rows: usize, weight: &[f32], out: &mut Activations) {
        let (n, eps) = (self.spec.hidden, self.spec.norm_eps as f32);
        out.fill(cpu, rows, |r, row| rms_norm(cpu.isa(), &x[r * n..][..n], weight, eps, row));
    }

    /// qk-norm, then RoPE, on rows of `heads` heads; `cos_sin` as in [`Workspace`], at least as many rows.
    fn position(&self, cpu: &Cpu, norm: Option<&[f32]>, (x, heads): (&mut [f32], usize), cos_sin: &[f32]) {
        let (head_dim, eps) = (self.spec.head_dim, self.spec.norm_eps as f32);
        cpu.rows(x, heads * head_dim, |r, row| {
            if let Some(weight) = norm {
                for head in row.chunks_exact_mut(head_dim) {
                    rms_norm_in_place(cpu.isa(), head, weight, eps);
                }
            }
            let (cos, sin) = cos_sin[r * head_dim..][..head_dim].split_at(head_dim / 2);
            rotate(cpu.isa(), row, cos, sin);
        });
    }

    /// Logits of the rows that want them, `[vocab]` each.
    fn logits(&self, cpu: &Cpu, rows: &[usize], ws: &mut Workspace) -> Vec<Vec<f32>> {
        if rows.is_empty() {
            return Vec::new();
        }
        let (n, eps, hidden) = (self.spec.hidden, self.spec.norm_eps as f32, &ws.hidden);
        ws.last.fill(cpu, rows.len(), |r, row| {
            rms_norm(cpu.isa(), &hidden[rows[r] * n..][..n], &self.final_norm, eps, row);
        });
        let output = self.output.as_ref().unwrap_or(&self.embedding);
        forward(cpu, &ws.last, [Output::set(output, &mut ws.logits)]);
        ws.logits.chunks_exact(self.spec.vocab).map(<[f32]>::to_vec).collect()
    }
}

impl Layer {
    fn load(i: usize, spec: &DecoderSpec, weights: &dyn Weights) -> Result<Self, LoadError> {
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
        &self.net.spec
    }

    fn kv_float(&self) -> KvFloat {
        self.kv_float
    }

    fn forward(&mut self, cpu: &Cpu, batch: &Batch, kv: &mut KvStore) -> Result<ForwardOutput, OpError> {
        let (net, ws) = (&self.net, &mut self.workspace);
        net.embedding.rows(cpu, &batch.tokens(), &mut ws.hidden)?;
        net.angles.fill(&batch.positions(), &mut ws.cos_sin);
        let pass = Pass { cpu, batch, slots: batch.slots(), items: batch.attention_items() };
        let mut capture = Capture::default();
        for l in 0..net.layers.len() {
            if batch.items_reaching(l) == 0 {
                break;
            }
            net.layer(l, ws, &pass, kv, &mut capture)?;
        }
        let logits = net.logits(cpu, &batch.logit_rows(), ws);
        Ok(ForwardOutput { logits, captured: capture.into_captured() })
    }
}
