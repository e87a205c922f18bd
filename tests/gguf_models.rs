//! GGUF files: every tensor type dequantises as the reference does, and a model means the same in GGUF as in its folder,
//! and the same bits on every instruction set.
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
    ids::{BlockId, Depth, HeadRef, Span},
    model::{Batch, BatchItem, Compute, Decoder, Output, gguf::GgufFile, load, safetensors},
    ops::{Cpu, KvStore, PageLayout, RowQuery, cpu::Isa},
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

/// The tensors of a folder, in f32.
fn read(folder: &Path) -> HashMap<String, Tensor> {
    let tensors = candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu).unwrap();
    tensors.into_iter().map(|(name, t)| (name, t.to_dtype(DType::F32).unwrap())).collect()
}

/// A matrix in `dtype`, or where blocks do not fit in BF16, which loses nothing; a vector in F32.
fn quantise(tensor: &Tensor, dtype: GgmlDType) -> QTensor {
    let fits = tensor.dim(1).is_ok_and(|k| k.is_multiple_of(dtype.block_size()));
    let dtype = match tensor.rank() {
        1 => GgmlDType::F32,
        _ if fits => dtype,
        _ => GgmlDType::BF16,
    };
    QTensor::quantize(tensor, dtype).unwrap()
}

/// Writes the folder `dir` as GGUF with matrices in `dtype`, vectors in F32.
fn convert((dir, arch): (&Path, &str), dtype: GgmlDType, to: &Path, extra: &[(&str, Value)]) {
    let spec = safetensors::read_spec(dir).unwrap();
    let quantised: Vec<(String, QTensor)> = read(dir)
        .iter()
        .map(|(name, tensor)| {
            let heads = match name {
                name if name.contains("q_proj") => spec.n_heads,
                name if name.contains("k_proj") => spec.n_kv_heads,
                _ => 0,
            };
            let turned = arch == "llama" && heads > 0;
            let tensor = if turned { interleave(tensor, heads) } else { tensor.clone() };
            (gguf_name(name), quantise(&tensor, dtype))
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

/// Writes a folder like `dir` with what its matrices are once they were in `dtype`.
fn rounded(dir: &Path, dtype: GgmlDType, to: &Path) {
    std::fs::copy(dir.join("config.json"), to.join("config.json")).unwrap();
    let tensors = read(dir);
    let rounded = tensors.iter().map(|(n, t)| (n, quantise(t, dtype).dequantize(&Device::Cpu).unwrap()));
    let rounded: HashMap<&String, Tensor> = rounded.collect();
    candle_core::safetensors::save(&rounded, to.join("model.safetensors")).unwrap();
}

/// Writes a Llama whose rows are whole blocks of 256, which no golden folder's are: weights of no training.
fn wide(to: &Path) {
    let mut config: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(golden("llama").join("config.json")).unwrap()).unwrap();
    let sizes = [
        ("hidden_size", 256),
        ("intermediate_size", 768),
        ("num_attention_heads", 4),
        ("num_key_value_heads", 2),
        ("head_dim", 64),
        ("num_hidden_layers", 2),
    ];
    sizes.iter().for_each(|(key, size)| config[key] = (*size).into());
    std::fs::write(to.join("config.json"), config.to_string()).unwrap();
    let mut tensors = HashMap::new();
    let mut put = |name: String, shape: &[usize]| {
        let (n, seed) = (shape.iter().product(), tensors.len() as u32);
        let value = |t: u32| (t as f32 - 159.0) / 1500.0 + if shape.len() == 1 { 1.0 } else { 0.0 };
        let values: Vec<f32> = tokens(n, seed).into_iter().map(value).collect();
        tensors.insert(name, Tensor::from_vec(values, shape, &Device::Cpu).unwrap());
    };
    put("model.embed_tokens.weight".into(), &[320, 256]);
    put("model.norm.weight".into(), &[256]);
    for l in 0..2 {
        let mut part = |name: &str, shape: &[usize]| put(format!("model.layers.{l}.{name}.weight"), shape);
        part("input_layernorm", &[256]);
        part("post_attention_layernorm", &[256]);
        part("self_attn.q_proj", &[256, 256]);
        part("self_attn.k_proj", &[128, 256]);
        part("self_attn.v_proj", &[128, 256]);
        part("self_attn.o_proj", &[256, 256]);
        part("mlp.gate_proj", &[768, 256]);
        part("mlp.up_proj", &[768, 256]);
        part("mlp.down_proj", &[256, 768]);
    }
    candle_core::safetensors::save(&tensors, to.join("model.safetensors")).unwrap();
}

/// The largest difference of two rows of logits; NaN when one is.
fn apart(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs()).fold(0.0, worse)
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
            convert((&golden(name), arch), dtype, &path, &[]);
            let file = GgufFile::open(&path).unwrap();
            for (name, compute) in both(name) {
                let mut from_gguf = load::gguf(&file, None, compute).unwrap();
                let mut from_folder = tiny((name, compute));
                let (mut a, b) = (from_gguf.spec().clone(), from_folder.spec().clone());
                a.norm_eps = b.norm_eps; // f32 in GGUF
                assert_eq!(a, b, "{name}");
                let (got, want) = (logits(from_gguf.as_mut()), logits(from_folder.as_mut()));
                let worst = apart(&got, &want);
                println!("{name} {dtype:?} {compute:?}: {worst:e}");
                let limit = match (dtype, compute) {
                    // f16 has no bits left for the smallest weights
                    (GgmlDType::F16, _) => 1e-2,
                    // a file in 8 bits has lost what the folder in f32 still has: see the next test
                    (GgmlDType::Q8_0, Compute::F32) => continue,
                    // a folder in 8 bits is a Q8_0 file
                    _ => 0.0,
                };
                assert!(worst <= limit, "{name} {dtype:?} {compute:?}: {worst}");
            }
        }
    }
}

#[test]
fn quantised_weights_in_f32_are_the_same_in_gguf_and_in_a_folder_of_what_they_stand_for() {
    use GgmlDType::{Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
    let [dir, whole, folder] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    wide(whole.path());
    let path = dir.path().join("model.gguf");
    let small = ["llama", "llama-bias", "qwen2", "qwen3"].map(golden);
    let blocks_of_32 =
        small.iter().map(std::path::PathBuf::as_path).zip(["llama", "llama", "qwen2", "qwen3"]);
    let cases = blocks_of_32
        .map(|model| (model, &[Q4_0, Q4_1, Q5_0, Q5_1, Q8_0][..]))
        .chain([((whole.path(), "llama"), &[Q2K, Q3K, Q4K, Q5K, Q6K, Q8_0][..])]);
    for ((model, arch), dtypes) in cases {
        let before = logits(load::folder(model, None, Compute::F32).unwrap().as_mut());
        for &dtype in dtypes {
            convert((model, arch), dtype, &path, &[]);
            rounded(model, dtype, folder.path());
            let mut from_gguf = load::gguf(&GgufFile::open(&path).unwrap(), None, Compute::F32).unwrap();
            let mut from_folder = load::folder(folder.path(), None, Compute::F32).unwrap();
            let (got, want) = (logits(from_gguf.as_mut()), logits(from_folder.as_mut()));
            assert!(apart(&got, &want) == 0.0, "{} {dtype:?}: {}", model.display(), apart(&got, &want));
            assert!(apart(&want, &before) > 0.0, "{dtype:?}: nothing was rounded, so this proves nothing");
        }
    }
}

/// What a decoder computes on `cpu`, as bits: a prefill of `prompt` tokens beside a scoring pass of 50, then a token more;
/// logits of both steps, and attention rows of the heads of the last layer at five positions.
fn bits(decoder: &mut dyn Decoder, cpu: &Cpu, prompt: usize) -> Vec<u32> {
    let spec = decoder.spec().clone();
    let layout = PageLayout { n_kv_heads: spec.n_kv_heads, head_dim: spec.head_dim };
    let mut kv = KvStore::new(spec.n_layers, 20, layout, decoder.kv_float()).unwrap();
    let deepest = spec.n_layers as u16 - 1;
    let heads = (0..spec.n_heads as u16).map(|head| HeadRef { layer: deepest, head }).collect();
    let chat = BatchItem {
        tokens: tokens(prompt, 3),
        first_position: 0,
        table: (0..18).rev().map(BlockId).collect(),
        depth: Depth(spec.n_layers as u16),
        output: Output::Logits,
    };
    let scoring = BatchItem {
        tokens: tokens(50, 4),
        table: vec![BlockId(19), BlockId(18)],
        depth: Depth(deepest),
        output: Output::Queries { reads: (45..50).collect(), heads },
        ..chat.clone()
    };
    let more = BatchItem { tokens: tokens(1, 5), first_position: prompt, ..chat.clone() };
    let table = scoring.table.clone();
    let first = decoder.forward(cpu, &Batch::new(vec![chat, scoring]), &mut kv).unwrap();
    let second = decoder.forward(cpu, &Batch::new(vec![more]), &mut kv).unwrap();
    let mut all = [first.logits.concat(), second.logits.concat()].concat();
    for captured in &first.captured {
        let group = spec.n_heads / spec.n_kv_heads;
        let kv_heads: Vec<usize> = captured.heads.iter().map(|h| h / group).collect();
        let query =
            RowQuery { kv_heads: &kv_heads, table: &table, candidates: &[Span::new(3, 40)], visible: None };
        all.extend(kv.attention_rows(cpu, captured.layer, &captured.queries, &query).unwrap().rows);
    }
    assert_eq!(all.len(), 2 * spec.vocab + 5 * spec.n_heads * 37);
    assert!(all.iter().all(|v| v.is_finite()));
    all.into_iter().map(f32::to_bits).collect()
}

#[test]
fn logits_and_rows_are_the_same_bits_on_every_instruction_set() {
    let [dir, whole] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    wide(whole.path());
    let check = |what: &str, mut decoder: Box<dyn Decoder>, prompt: usize| {
        let want = bits(decoder.as_mut(), &Cpu::with_isa(Isa::PORTABLE, 1), prompt);
        for isa in Isa::available() {
            for threads in [1, 2] {
                let got = bits(decoder.as_mut(), &Cpu::with_isa(isa, threads), prompt);
                assert!(got == want, "{what}: other bits with {isa} on {threads} threads");
            }
        }
    };
    for compute in [Compute::Int8, Compute::F32] {
        for name in ["llama", "llama-bias", "qwen2", "qwen3"] {
            // attention reads this in three segments
            check(&format!("{name} {compute}"), tiny((name, compute)), 550);
        }
        for dtype in [GgmlDType::Q4K, GgmlDType::Q6K, GgmlDType::Q4_0, GgmlDType::F16] {
            let path = dir.path().join("model.gguf");
            convert((whole.path(), "llama"), dtype, &path, &[]);
            let file = GgufFile::open(&path).unwrap();
            check(&format!("{dtype:?} {compute}"), load::gguf(&file, None, compute).unwrap(), 40);
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
        convert((&golden("qwen2"), "qwen2"), GgmlDType::F32, &path, &[extra]);
        let error = GgufFile::open(&path)
            .map_err(Into::into)
            .and_then(|f| load::gguf(&f, None, Compute::default()))
            .err();
        let error = error.expect("loading should have failed").to_string();
        assert!(error.contains(want) && error.contains("model.gguf"), "{error:?} does not say {want:?}");
    }
}
