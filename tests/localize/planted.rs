//! A model of three layers of four heads whose weights are written here, so that one head looks for answers.
//!
//! Tokens are bytes. Every embedding has a constant feature; `Z`, `K`, `X` and the first byte of `Ж` have a mark, and answers
//! are written with them; `?` has a feature too. L0H0 finds a `?` and says so to later layers; L1H2 looks for marks once a
//! question was asked, and everywhere alike before. All other weights are small and random.

use std::{collections::BTreeMap, fs, path::Path};

use safetensors::{Dtype, tensor::TensorView};
use serde_json::json;

use super::program::byte_level_tokenizer;

/// The head that looks for answers.
pub const PLANTED: &str = "L1H2";

const LAYERS: usize = 3;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 16;
const HIDDEN: usize = HEADS * HEAD_DIM;
const INTERMEDIATE: usize = 32;
const VOCAB: usize = 320;

/// Features of the residual stream; those from here on are random.
const CONSTANT: usize = 0;
const MARK: usize = 1;
const QUESTION_MARK: usize = 2;
const ASKED: usize = 3;
const FIRST_RANDOM: usize = 4;

/// The first of a pair of dimensions that rotates slowest: by theta^(-7/8), with this theta not at all.
const STILL: usize = HEAD_DIM / 2 - 1;
const THETA: f64 = 1e12;

/// Weight of query and key on their features: after the norm these are about 3.7, so the logit is about 8.
const SHARP: f32 = 1.5;

/// A matrix `[rows, columns]`.
struct Matrix {
    shape: [usize; 2],
    values: Vec<f32>,
}

impl Matrix {
    fn at(&mut self, row: usize, column: usize) -> &mut f32 {
        &mut self.values[row * self.shape[1] + column]
    }

    fn clear_row(&mut self, row: usize) {
        let columns = self.shape[1];
        self.values[row * columns..][..columns].fill(0.0);
    }
}

/// Even draws from `-size..size`.
struct Noise(u64);

impl Noise {
    fn next(&mut self, size: f32) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 40) as f32 / 8_388_608.0 - 1.0) * size
    }

    fn matrix(&mut self, rows: usize, columns: usize) -> Matrix {
        Matrix { shape: [rows, columns], values: (0..rows * columns).map(|_| self.next(0.1)).collect() }
    }
}

/// Writes the model's folder.
pub fn write(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "vocab_size": VOCAB, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 2048, "rope_theta": THETA, "tie_word_embeddings": true,
    });
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    fs::write(folder.join("tokenizer.json"), byte_level_tokenizer()).unwrap();
    let tokenizer: serde_json::Value = serde_json::from_str(&byte_level_tokenizer()).unwrap();
    // bytes that are printable as characters of their number stand for themselves
    let token = |byte: u8| {
        let id = tokenizer["model"]["vocab"][char::from(byte).to_string()].as_u64();
        usize::try_from(id.unwrap()).unwrap()
    };
    let mut noise = Noise(1);
    let mut tensors = BTreeMap::new();
    tensors.insert("model.embed_tokens.weight".to_owned(), embeddings(&mut noise, token));
    for layer in 0..LAYERS {
        for (name, matrix) in layer_weights(&mut noise, layer) {
            tensors.insert(format!("model.layers.{layer}.{name}.weight"), matrix);
        }
    }
    let ones = |name: String| (name, vec![HIDDEN], vec![1.0_f32; HIDDEN]);
    let norms = (0..LAYERS).flat_map(|l| {
        ["input_layernorm", "post_attention_layernorm"].map(|n| format!("model.layers.{l}.{n}.weight"))
    });
    let all = tensors.into_iter().map(|(name, m)| (name, m.shape.to_vec(), m.values));
    let all = all.chain(norms.chain(["model.norm.weight".to_owned()]).map(ones));
    let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = all
        .map(|(name, shape, values)| (name, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect()))
        .collect();
    let views = bytes.iter().map(|(n, s, b)| (n, TensorView::new(Dtype::F32, s.clone(), b).unwrap()));
    fs::write(folder.join("model.safetensors"), safetensors::tensor::serialize(views, None).unwrap())
        .unwrap();
}

fn embeddings(noise: &mut Noise, token: impl Fn(u8) -> usize) -> Matrix {
    let mut table = Matrix { shape: [VOCAB, HIDDEN], values: vec![0.0; VOCAB * HIDDEN] };
    for row in 0..VOCAB {
        *table.at(row, CONSTANT) = 1.0;
        (FIRST_RANDOM..HIDDEN).for_each(|c| *table.at(row, c) = noise.next(0.35));
    }
    for byte in [b'Z', b'K', b'X', "Ж".as_bytes()[0]] {
        *table.at(token(byte), MARK) = 1.0;
    }
    *table.at(token(b'?'), QUESTION_MARK) = 1.0;
    table
}

fn layer_weights(noise: &mut Noise, layer: usize) -> Vec<(&'static str, Matrix)> {
    let kv = KV_HEADS * HEAD_DIM;
    let mut query = noise.matrix(HIDDEN, HIDDEN);
    let mut key = noise.matrix(kv, HIDDEN);
    let mut value = noise.matrix(kv, HIDDEN);
    let mut output = noise.matrix(HIDDEN, HIDDEN);
    let mut down = noise.matrix(HIDDEN, INTERMEDIATE);
    output.clear_row(ASKED);
    down.clear_row(ASKED);
    let mut attend = |head: usize, from: usize, to: usize| {
        let (q, k) = (head * HEAD_DIM, head / (HEADS / KV_HEADS) * HEAD_DIM);
        (q..q + HEAD_DIM).for_each(|row| query.clear_row(row));
        // both halves of the pair
        key.clear_row(k + STILL);
        key.clear_row(k + STILL + HEAD_DIM / 2);
        *query.at(q + STILL, from) = SHARP;
        *key.at(k + STILL, to) = SHARP;
    };
    match layer {
        0 => {
            attend(0, CONSTANT, QUESTION_MARK);
            value.clear_row(0);
            *value.at(0, QUESTION_MARK) = 1.0;
            *output.at(ASKED, 0) = 0.3;
        }
        1 => attend(2, ASKED, MARK),
        _ => {}
    }
    vec![
        ("self_attn.q_proj", query),
        ("self_attn.k_proj", key),
        ("self_attn.v_proj", value),
        ("self_attn.o_proj", output),
        ("mlp.gate_proj", noise.matrix(INTERMEDIATE, HIDDEN)),
        ("mlp.up_proj", noise.matrix(INTERMEDIATE, HIDDEN)),
        ("mlp.down_proj", down),
    ]
}
