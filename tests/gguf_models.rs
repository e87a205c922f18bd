//! GGUF files: every tensor type dequantises as the reference does, and a model means the same in GGUF as in its folder.
#![allow(clippy::unwrap_used)]

mod common;

use std::{collections::HashMap, path::Path};

use candle_core::{
    DType, Device, Tensor,
    quantized::{
        GgmlDType, QTensor,
        gguf_file::{self, Value},
    },
};
use common::*;
use qrae::{
    ids::{BlockId, Depth},
    model::{Batch, BatchItem, Compute, Decoder, Output, gguf::GgufFile, load, safetensors},
    ops::{Cpu, KvStore, PageLayout},
};

#[test]
fn every_tensor_type_dequantises_as_the_reference_does() {
    let file = GgufFile::open(golden("types.gguf")).unwrap();
    let types: Vec<&str> = file.tensors().map(|(n, _)| n).filter(|n| !n.ends_with(".expected")).collect();
    assert_eq!(types.len(), 13);
    let values = |name: &str| -> Vec<f32> {
        let tensor = file.tensor(name).unwrap().dequantize(&Device::Cpu).unwrap();
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    };
    for name in types {
        let (got, want) = (values(name), values(&format!("{name}.expected")));
        assert!(want.iter().any(|v| v.abs() > 0.01), "{name}: the expected values are all tiny");
        for (got, want) in got.iter().zip(&want) {
            assert!((got - want).abs() <= 1e-6 * want.abs().max(0.1), "{name}: {got} {want}");
        }
    }
}

/// `model.layers.3.self_attn.q_proj.weight` → `blk.3.attn_q.weight`; written apart from the loader's own table.
fn gguf_name(name: &str) -> String {
    let pairs = [
        ("model.layers.", "blk."),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
    ];
    pairs.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

/// The row order of Llama's q and k in GGUF: the halves of each head interleaved.
fn interleave(tensor: &Tensor, heads: usize) -> Tensor {
    let dims = tensor.dims().to_vec();
    let half = dims[0] / heads / 2;
    let split = tensor.reshape((heads, 2, half, dims.get(1).copied().unwrap_or(1))).unwrap();
    split.transpose(1, 2).unwrap().contiguous().unwrap().reshape(dims).unwrap()
}

/// Writes the golden folder `name` as GGUF with matrices in `dtype`, vectors in F32.
fn convert((name, arch): (&str, &str), dtype: GgmlDType, to: &Path, extra: &[(&str, Value)]) {
    let dir = golden(name);
    let spec = safetensors::read_spec(&dir).unwrap();
    let tensors: HashMap<String, Tensor> =
        candle_core::safetensors::load(dir.join("model.safetensors"), &Device::Cpu).unwrap();
    let quantised: Vec<(String, QTensor)> = tensors
        .iter()
        .map(|(name, tensor)| {
            let mut tensor = tensor.to_dtype(DType::F32).unwrap();
            if arch == "llama" && (name.contains("q_proj") || name.contains("k_proj")) {
                let heads = if name.contains("q_proj") { spec.n_heads } else { spec.n_kv_heads };
                tensor = interleave(&tensor, heads);
            }
            // where blocks do not fit, BF16, which loses nothing
            let fits = tensor.dim(1).is_ok_and(|k| k.is_multiple_of(dtype.block_size()));
            let dtype = match tensor.rank() {
                1 => GgmlDType::F32,
                _ => {
                    if fits {
                        dtype
                    } else {
                        GgmlDType::BF16
                    }
                }
            };
            (gguf_name(name), QTensor::quantize(&tensor, dtype).unwrap())
        })
        .collect();
    let key = |suffix: &str| format!("{arch}.{suffix}");
    let size = |n: usize| Value::U32(n as u32);
    let mut metadata = vec![
        ("general.architecture".to_owned(), Value::String(arch.into())),
        (key("block_count"), size(spec.n_layers)),
        (key("context_length"), size(spec.max_context)),
        (key("embedding_length"), size(spec.hidden)),
        (key("feed_forward_length"), size(spec.intermediate)),
        (key("attention.head_count"), size(spec.n_heads)),
        (key("attention.head_count_kv"), size(spec.n_kv_heads)),
        (key("attention.key_length"), size(spec.head_dim)),
        (key("attention.value_length"), size(spec.head_dim)),
        (key("attention.layer_norm_rms_epsilon"), Value::F32(spec.norm_eps as f32)),
        (key("rope.freq_base"), Value::F32(spec.rope.theta as f32)),
    ];
    for (suffix, value) in extra {
        let name = if suffix.starts_with("general") { (*suffix).to_owned() } else { key(suffix) };
        metadata.retain(|(k, _)| *k != name);
        metadata.push((name, value.clone()));
    }
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let tensors: Vec<(&str, &QTensor)> = quantised.iter().map(|(k, v)| (k.as_str(), v)).collect();
    gguf_file::write(&mut std::fs::File::create(to).unwrap(), &metadata, &tensors).unwrap();
}

/// Logits after 40 tokens.
fn logits(decoder: &mut dyn Decoder) -> Vec<f32> {
    let spec = decoder.spec().clone();
    let layout = PageLayout { n_kv_heads: spec.n_kv_heads, head_dim: spec.head_dim };
    let mut kv = KvStore::new(spec.n_layers, 2, layout, decoder.kv_float()).unwrap();
    let item = BatchItem {
        tokens: tokens(40, 3),
        first_position: 0,
        table: vec![BlockId(1), BlockId(0)],
        depth: Depth(spec.n_layers as u16),
        output: Output::Logits,
    };
    decoder.forward(&Cpu::new(2), &Batch::new(vec![item]), &mut kv).unwrap().logits.remove(0)
}

#[test]
fn a_model_is_the_same_in_gguf_and_in_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    for (name, arch) in [("llama", "llama"), ("llama-bias", "llama"), ("qwen2", "qwen2"), ("qwen3", "qwen3")]
    {
        for dtype in [GgmlDType::F32, GgmlDType::BF16, GgmlDType::F16, GgmlDType::Q8_0] {
            let path = dir.path().join(format!("{name}.gguf"));
            convert((name, arch), dtype, &path, &[]);
            let file = GgufFile::open(&path).unwrap();
            for (name, compute) in both(name) {
                let mut from_gguf = load::gguf(&file, None, compute).unwrap();
                let mut from_folder = tiny((name, compute));
                let (mut a, b) = (from_gguf.spec().clone(), from_folder.spec().clone());
                a.norm_eps = b.norm_eps; // f32 in GGUF
                assert_eq!(a, b, "{name}");
                let (got, want) = (logits(from_gguf.as_mut()), logits(from_folder.as_mut()));
                let worst = got.iter().zip(&want).fold(0f32, |w, (a, b)| w.max((a - b).abs()));
                println!("{name} {dtype:?} {compute:?}: {worst:e}");
                let limit = match (dtype, compute) {
                    // f16 has no bits left for the smallest weights
                    (GgmlDType::F16, _) => 1e-2,
                    // a file in 8 bits has lost what the folder in f32 still has
                    (GgmlDType::Q8_0, Compute::F32) => f32::INFINITY,
                    // a folder in 8 bits is a Q8_0 file
                    _ => 0.0,
                };
                assert!(worst <= limit, "{name} {dtype:?} {compute:?}: {worst}");
            }
        }
    }
}

#[test]
fn a_gguf_model_that_is_not_right_says_what_is_wrong_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let text = |v: &str| Value::String(v.into());
    for (extra, want) in [
        (("general.architecture", text("mamba")), "architecture \"mamba\" is not supported"),
        (("attention.head_count_kv", Value::U32(4)), "6 heads cannot share 4 KV heads"),
        (("rope.dimension_count", Value::U32(8)), "8 rotary dimensions with heads of size 16"),
        (("rope.scaling.type", text("longrope")), "qwen2.rope.scaling.type: \"longrope\" is not supported"),
        (("block_count", text("three")), "qwen2.block_count is"),
        (("block_count", Value::U32(4)), "blk.3."),
        (("block_count", Value::U32(2)), "tensors that this architecture does not have"),
        (
            ("feed_forward_length", Value::U32(80)),
            "has shape [96, 96], the file's metadata calls for [80, 96]",
        ),
        (("context_length", Value::U32(0)), "context length"),
    ] {
        convert(("qwen2", "qwen2"), GgmlDType::F32, &path, &[extra]);
        let error = GgufFile::open(&path)
            .map_err(Into::into)
            .and_then(|f| load::gguf(&f, None, Compute::default()))
            .err();
        let error = error.expect("loading should have failed").to_string();
        assert!(error.contains(want) && error.contains("model.gguf"), "{error:?} does not say {want:?}");
    }
}
