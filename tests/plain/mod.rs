//! A dense decoder written as plainly as its formulas, in f64 and one sequence at a time: the slow twin of a whole pass,
//! exact or with the weights and inputs of every matrix rounded to 8 bits.
#![allow(clippy::unwrap_used, unreachable_pub)]

use std::{collections::HashMap, path::Path};

use candle_core::{DType, Device};
use qrae::{ids::TokenId, model::DecoderSpec};

type Matrix = Vec<Vec<f64>>;

/// The decoder.
pub struct Plain {
    pub spec: DecoderSpec,
    tensors: HashMap<String, Matrix>,
    pub eight_bits: bool,
}

/// What a pass gives.
pub struct Pass {
    /// `[layer][head][position][key]`.
    pub attention: Vec<Vec<Matrix>>,
    /// `[position][vocab]`.
    pub logits: Matrix,
}

impl Plain {
    /// The checkpoint in `folder`.
    pub fn load(folder: &Path, spec: DecoderSpec, eight_bits: bool) -> Self {
        let tensors = candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu).unwrap();
        let read = |t: &candle_core::Tensor| -> Matrix {
            let t = t.to_dtype(DType::F64).unwrap();
            if t.rank() == 1 { vec![t.to_vec1().unwrap()] } else { t.to_vec2().unwrap() }
        };
        let tensors = tensors.iter().map(|(name, t)| (name.clone(), read(t))).collect();
        Self { spec, tensors, eight_bits }
    }

    fn vector(&self, name: &str) -> Option<&[f64]> {
        Some(&self.tensors.get(name)?[0])
    }

    /// A row as a matrix sees it: in 8 bits where rows are whole groups of 32.
    fn seen(&self, row: &[f64]) -> Vec<f64> {
        if !self.eight_bits || !row.len().is_multiple_of(32) {
            return row.to_vec();
        }
        let group = |x: &[f64]| {
            let scale = x.iter().fold(0f64, |m, v| m.max(v.abs())) / 127.0;
            x.iter().map(|v| if scale == 0.0 { *v } else { (v / scale).round() * scale }).collect::<Vec<_>>()
        };
        row.chunks(32).flat_map(group).collect()
    }

    fn linear(&self, name: &str, x: &Matrix) -> Matrix {
        let weight: Matrix =
            self.tensors[&format!("{name}.weight")].iter().map(|row| self.seen(row)).collect();
        let bias = self.vector(&format!("{name}.bias"));
        let dot = |x: &[f64], w: &[f64]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>();
        x.iter()
            .map(|x| {
                let x = self.seen(x);
                weight.iter().enumerate().map(|(i, w)| dot(&x, w) + bias.map_or(0.0, |b| b[i])).collect()
            })
            .collect()
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let weight = self.vector(&format!("{name}.weight")).unwrap();
        let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
        x.iter().zip(weight).map(|(v, w)| v / (mean + self.spec.norm_eps).sqrt() * w).collect()
    }

    /// The heads of a row of q or k, normed where the model does so, and turned by their position.
    fn heads(&self, row: &[f64], position: usize, norm: &str) -> Matrix {
        let (frequencies, factor) = self.spec.rope.frequencies(self.spec.head_dim);
        row.chunks(self.spec.head_dim)
            .map(|head| {
                let head = if self.spec.qk_norm { self.norm(norm, head) } else { head.to_vec() };
                let (a, b) = head.split_at(head.len() / 2);
                let angle = |i: usize| position as f64 * f64::from(frequencies[i]);
                let turn =
                    |i: usize, x: f64, y: f64| f64::from(factor) * (x * angle(i).cos() + y * angle(i).sin());
                let first = (0..a.len()).map(|i| turn(i, a[i], -b[i]));
                first.chain((0..a.len()).map(|i| turn(i, b[i], a[i]))).collect()
            })
            .collect()
    }

    /// Attention of one layer: the rows of every head, and what they gather.
    fn attend(&self, at: &str, x: &Matrix) -> (Vec<Matrix>, Matrix) {
        let turned = |part: &str| -> Vec<Matrix> {
            let rows = self.linear(&format!("{at}.{part}_proj"), x);
            let norm = format!("{at}.{part}_norm");
            rows.iter().enumerate().map(|(p, row)| self.heads(row, p, &norm)).collect()
        };
        let (q, k, v) = (turned("q"), turned("k"), self.linear(&format!("{at}.v_proj"), x));
        let (size, group) = (self.spec.head_dim, self.spec.n_heads / self.spec.n_kv_heads);
        let mut gathered = vec![vec![]; x.len()];
        let rows = (0..self.spec.n_heads)
            .map(|h| {
                (0..x.len())
                    .map(|p| {
                        let score = |t: usize| {
                            let products = q[p][h].iter().zip(&k[t][h / group]).map(|(a, b)| a * b);
                            products.sum::<f64>() / (size as f64).sqrt()
                        };
                        let row = softmax((0..=p).map(score).collect());
                        let values =
                            |i: usize| (0..=p).map(|t| row[t] * v[t][h / group * size + i]).sum::<f64>();
                        gathered[p].extend((0..size).map(values));
                        row
                    })
                    .collect()
            })
            .collect();
        (rows, gathered)
    }

    /// Runs `ids` through every layer.
    pub fn pass(&self, ids: &[TokenId]) -> Pass {
        let embedding = &self.tensors["model.embed_tokens.weight"];
        let mut x: Matrix = ids.iter().map(|&id| self.seen(&embedding[id as usize])).collect();
        let normed = |name: &str, x: &Matrix| x.iter().map(|row| self.norm(name, row)).collect::<Matrix>();
        let add = |x: &mut Matrix, y: Matrix| {
            x.iter_mut().flatten().zip(y.into_iter().flatten()).for_each(|(x, y)| *x += y);
        };
        let mut attention = vec![];
        for l in 0..self.spec.n_layers {
            let at = format!("model.layers.{l}");
            let (rows, gathered) =
                self.attend(&format!("{at}.self_attn"), &normed(&format!("{at}.input_layernorm"), &x));
            attention.push(rows);
            add(&mut x, self.linear(&format!("{at}.self_attn.o_proj"), &gathered));
            let inside = normed(&format!("{at}.post_attention_layernorm"), &x);
            let mut gate = self.linear(&format!("{at}.mlp.gate_proj"), &inside);
            let up = self.linear(&format!("{at}.mlp.up_proj"), &inside);
            for (g, u) in gate.iter_mut().flatten().zip(up.iter().flatten()) {
                *g = *g / (1.0 + (-*g).exp()) * u;
            }
            add(&mut x, self.linear(&format!("{at}.mlp.down_proj"), &gate));
        }
        let output = if self.spec.tied { "model.embed_tokens" } else { "lm_head" };
        Pass { attention, logits: self.linear(output, &normed("model.norm", &x)) }
    }
}

fn softmax(mut row: Vec<f64>) -> Vec<f64> {
    let max = row.iter().fold(f64::NEG_INFINITY, |m, v| m.max(*v));
    row.iter_mut().for_each(|v| *v = (*v - max).exp());
    let sum: f64 = row.iter().sum();
    row.iter().map(|v| v / sum).collect()
}
