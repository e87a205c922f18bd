//! Our forward pass and attention rows against PyTorch's, on the tiny checkpoints of `tests/golden`: every head of
//! every layer, and the logits; in f32, and what 8 bits cost.

#![allow(clippy::unwrap_used)]

mod common;
mod plain;

use std::{collections::HashMap, fs, path::PathBuf};

use candle_core::{Device, Tensor};
use common::worse;
use qrae::{
    ids::{BlockId, Depth, HeadRef, Span, TokenId},
    model::{
        Batch, BatchItem, Compute, Decoder, Output,
        arch::HfConfig,
        decoder::DenseDecoder,
        rope::{Rope, RopeScaling},
        safetensors,
        weights::Weights,
    },
    ops::{Cpu, KvStore, PageLayout, RowQuery},
};
use serde::Deserialize;
use sha2::{Digest, Sha256};

const FOLDERS: [&str; 4] = ["llama", "llama-bias", "qwen2", "qwen3"];

fn golden_folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

#[derive(Deserialize)]
struct Case {
    ids: Vec<TokenId>,
    p0: usize,
    pq: usize,
}

struct Golden {
    case: Case,
    decoder: DenseDecoder,
    expected: HashMap<String, Tensor>,
}

fn load(folder: &str, compute: Compute) -> Golden {
    let dir = golden_folder(folder);
    let case = serde_json::from_str(&fs::read_to_string(dir.join("case.json")).unwrap()).unwrap();
    let spec = safetensors::read_spec(&dir).unwrap();
    let weights = safetensors::SafetensorsFolder::open(&dir, compute).unwrap();
    let decoder = DenseDecoder::load(spec, &weights).unwrap();
    assert_eq!(qrae::model::weights::Weights::unused(&weights), Vec::<String>::new(), "{folder}");
    let expected = candle_core::safetensors::load(dir.join("expected.safetensors"), &Device::Cpu).unwrap();
    Golden { case, decoder, expected }
}

fn store(decoder: &DenseDecoder, blocks: usize) -> KvStore {
    let spec = decoder.spec();
    let layout = PageLayout { n_kv_heads: spec.n_kv_heads, head_dim: spec.head_dim };
    KvStore::new(spec.n_layers, blocks, layout, decoder.kv_float()).unwrap()
}

fn all_heads(decoder: &DenseDecoder) -> Vec<HeadRef> {
    let spec = decoder.spec();
    let layer = |l| (0..spec.n_heads).map(move |h| HeadRef { layer: l as u16, head: h as u16 });
    (0..spec.n_layers).flat_map(layer).collect()
}

#[test]
fn the_files_are_the_ones_that_were_made() {
    let sums = fs::read_to_string(golden_folder("SHA256SUMS")).unwrap();
    assert!(sums.lines().count() >= 4 * FOLDERS.len());
    for line in sums.lines() {
        let (want, name) = line.split_once("  ").unwrap();
        let digest = Sha256::digest(fs::read(golden_folder(name)).unwrap());
        let got: String = digest.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(got, want, "{name}");
    }
}

/// Logits after each token, computed token by token: each step attends to what earlier steps wrote.
fn logits(decoder: &mut DenseDecoder, case: &Case) -> Vec<Vec<f32>> {
    let depth = Depth(decoder.spec().n_layers as u16);
    let mut kv = store(decoder, 8);
    let table: Vec<BlockId> = [5, 0, 7, 2].map(BlockId).into();
    let mut after = |(p, &token): (usize, &TokenId)| {
        let item = BatchItem {
            tokens: vec![token],
            first_position: p,
            table: table.clone(),
            depth,
            output: Output::Logits,
        };
        decoder.forward(&Cpu::new(2), &Batch::new(vec![item]), &mut kv).unwrap().logits.remove(0)
    };
    case.ids.iter().enumerate().map(&mut after).collect()
}

#[test]
fn logits_equal_the_reference_at_every_position() {
    for folder in FOLDERS {
        let Golden { case, mut decoder, expected } = load(folder, Compute::F32);
        let expected = expected["logits"].to_vec2::<f32>().unwrap();
        let [worst, _] = apart(&logits(&mut decoder, &case), &expected);
        println!("{folder}: logits within {worst:e}");
        assert!(worst < 2e-4, "{folder}: {worst}");
    }
}

/// Attention of every head at `p0` and `pq`: `[layer][head][read]`, each a whole row, zero where it does not see.
fn rows(decoder: &mut DenseDecoder, case: &Case) -> Vec<Vec<f32>> {
    let spec = decoder.spec().clone();
    let heads = all_heads(decoder);
    let mut kv = store(decoder, 4);
    let table: Vec<BlockId> = [3, 1, 0, 2].map(BlockId).into();
    let item = BatchItem {
        tokens: case.ids.clone(),
        first_position: 0,
        table: table.clone(),
        // the deepest head is in the last layer, which is left early
        depth: Depth(spec.n_layers as u16 - 1),
        output: Output::Queries { reads: vec![case.p0, case.pq], heads: heads.clone() },
    };
    let out = decoder.forward(&Cpu::new(2), &Batch::new(vec![item]), &mut kv).unwrap();
    let mut all = vec![vec![]; 2 * heads.len()];
    for captured in &out.captured {
        let group = spec.n_heads / spec.n_kv_heads;
        let kv_heads: Vec<usize> =
            captured.heads.iter().map(|&h| usize::from(heads[h].head) / group).collect();
        for (read, p) in [case.p0, case.pq].into_iter().enumerate() {
            // all visible positions are candidates: the restricted row is then the whole attention row
            let query = RowQuery {
                kv_heads: &kv_heads,
                table: &table,
                candidates: &[Span::new(0, p + 1)],
                visible: None,
            };
            let rows =
                kv.attention_rows(&Cpu::new(1), captured.layer, &captured.queries, &query).unwrap().rows;
            let rows = rows.chunks_exact(p + 1).skip(read * kv_heads.len());
            for (row, &h) in rows.zip(&captured.heads) {
                all[2 * h + read] = row.to_vec();
                all[2 * h + read].resize(case.ids.len(), 0.0);
            }
        }
    }
    assert!(all.iter().all(|row| !row.is_empty()), "some head was not captured");
    all
}

/// PyTorch's, in the same order.
fn expected_rows(golden: &Golden) -> Vec<Vec<f32>> {
    let rows = golden.expected["rows"].to_dtype(candle_core::DType::F32).unwrap();
    rows.flatten_to(2).unwrap().to_vec2().unwrap()
}

/// The largest and the mean difference; NaN when one is.
fn apart<'a>(got: impl IntoIterator<Item = &'a Vec<f32>>, want: &[Vec<f32>]) -> [f64; 2] {
    let got: Vec<f32> = got.into_iter().flatten().copied().collect();
    let want: Vec<f32> = want.iter().flatten().copied().collect();
    assert_eq!(got.len(), want.len());
    let each = || got.iter().zip(&want).map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs());
    [each().fold(0.0, worse), each().sum::<f64>() / got.len() as f64]
}

#[test]
fn rows_of_every_head_equal_the_reference() {
    for folder in FOLDERS {
        let mut golden = load(folder, Compute::F32);
        let rows = rows(&mut golden.decoder, &golden.case);
        let [worst, _] = apart(&rows, &expected_rows(&golden));
        println!("{folder}: rows within {worst:e}");
        assert!(worst < 1e-4, "{folder}: {worst}");
    }
}

/// Rows and logits of the slow twin, in the same order.
fn plain(folder: &str, golden: &Golden, eight_bits: bool) -> [Vec<Vec<f32>>; 2] {
    let twin = plain::Plain::load(&golden_folder(folder), golden.decoder.spec().clone(), eight_bits);
    let pass = twin.pass(&golden.case.ids);
    let heads = pass.attention.iter().flatten();
    let rows = heads.flat_map(|head| [golden.case.p0, golden.case.pq].map(|p| &head[p]));
    let narrow = |row: &Vec<f64>| row.iter().map(|v| *v as f32).collect();
    let whole = |row: &Vec<f64>| {
        let mut row: Vec<f32> = narrow(row);
        row.resize(golden.case.ids.len(), 0.0);
        row
    };
    [rows.map(whole).collect(), pass.logits.iter().map(narrow).collect()]
}

/// 8 bits made of a bf16 checkpoint: no more than twice the error of the plainest 8-bit arithmetic, which rounds weights and
/// inputs of each matrix in groups of 32 and computes all else in f64. The twin itself is exact without the rounding.
#[test]
fn eight_bits_cost_no_more_than_twice_what_plain_eight_bits_do() {
    for folder in FOLDERS {
        let mut golden = load(folder, Compute::Int8);
        let want = [expected_rows(&golden), golden.expected["logits"].to_vec2::<f32>().unwrap()];
        let ours = [rows(&mut golden.decoder, &golden.case), logits(&mut golden.decoder, &golden.case)];
        let (exact, rounded) = (plain(folder, &golden, false), plain(folder, &golden, true));
        for (i, what) in ["rows", "logits"].into_iter().enumerate() {
            let [exact, ..] = apart(&exact[i], &want[i]);
            assert!(exact < 2e-4, "{folder}: the twin's {what} are {exact} off");
            let (ours, plain) = (apart(&ours[i], &want[i]), apart(&rounded[i], &want[i]));
            println!(
                "{folder}: 8-bit {what} within {:.1e}, {:.1e} on average; plain 8-bit {:.1e}, {:.1e}",
                ours[0], ours[1], plain[0], plain[1]
            );
            for (ours, plain) in ours.into_iter().zip(plain) {
                assert!(ours <= 2.0 * plain, "{folder} {what}: {ours} beside {plain}");
                assert!(ours > 0.0, "{folder} {what}: nothing was rounded, so this proves nothing");
            }
        }
    }
}

#[test]
fn rotary_frequencies_equal_the_reference() {
    #[derive(Deserialize)]
    struct File {
        cases: Vec<RopeCase>,
    }
    #[derive(Deserialize)]
    struct RopeCase {
        head_dim: usize,
        rope_theta: f64,
        rope_parameters: serde_json::Value,
        inv_freq: Vec<f32>,
        attention_factor: f32,
    }
    let file: File = serde_json::from_str(&fs::read_to_string(golden_folder("rope.json")).unwrap()).unwrap();
    assert_eq!(file.cases.len(), 7);
    for case in file.cases {
        let scaling = RopeScaling::from_json(&case.rope_parameters, 4096).unwrap();
        let (got, factor) = Rope { theta: case.rope_theta, scaling }.frequencies(case.head_dim);
        assert!((factor - case.attention_factor).abs() < 1e-6, "{}", case.rope_parameters);
        assert_eq!(got.len(), case.inv_freq.len());
        for (got, want) in got.iter().zip(&case.inv_freq) {
            assert!((got - want).abs() <= 2e-6 * want, "{}: {got} {want}", case.rope_parameters);
        }
    }
}

/// Splits a golden folder's weights over two files and an index, as large models come.
fn shard(folder: &str, to: &std::path::Path) {
    fs::copy(golden_folder(folder).join("config.json"), to.join("config.json")).unwrap();
    let tensors =
        candle_core::safetensors::load(golden_folder(folder).join("model.safetensors"), &Device::Cpu)
            .unwrap();
    let mut names: Vec<&String> = tensors.keys().collect();
    names.sort();
    let mut map = serde_json::Map::new();
    for (i, part) in names.chunks(names.len().div_ceil(2)).enumerate() {
        let file = format!("model-0000{}-of-00002.safetensors", i + 1);
        let part: HashMap<&str, Tensor> = part.iter().map(|n| (n.as_str(), tensors[*n].clone())).collect();
        candle_core::safetensors::save(&part, to.join(&file)).unwrap();
        map.extend(part.keys().map(|n| ((*n).to_owned(), file.clone().into())));
    }
    let index = serde_json::json!({ "metadata": {}, "weight_map": map });
    fs::write(to.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

#[test]
fn sharded_weights_are_the_same_weights() {
    let dir = tempfile::tempdir().unwrap();
    shard("qwen3", dir.path());
    let weights = safetensors::SafetensorsFolder::open(dir.path(), Compute::F32).unwrap();
    let mut sharded = DenseDecoder::load(safetensors::read_spec(dir.path()).unwrap(), &weights).unwrap();
    let Golden { case, mut decoder, .. } = load("qwen3", Compute::F32);
    let logits = |decoder: &mut DenseDecoder| {
        let item = BatchItem {
            tokens: case.ids.clone(),
            first_position: 0,
            table: (0..4).map(BlockId).collect(),
            depth: Depth(3),
            output: Output::Logits,
        };
        let mut kv = store(decoder, 4);
        decoder.forward(&Cpu::new(2), &Batch::new(vec![item]), &mut kv).unwrap().logits
    };
    assert_eq!(logits(&mut sharded), logits(&mut decoder));
    // a shard that is not there, an index that is none, a path that leads out of the folder
    let open = || safetensors::SafetensorsFolder::open(dir.path(), Compute::F32).err().unwrap().to_string();
    fs::remove_file(dir.path().join("model-00002-of-00002.safetensors")).unwrap();
    assert!(open().contains("model-00002-of-00002"));
    for (index, want) in [
        ("[]", "weight_map"),
        ("{\"weight_map\": {\"a\": \"../x\"}}", "plain file name"),
        ("{", "index.json"),
    ] {
        fs::write(dir.path().join("model.safetensors.index.json"), index).unwrap();
        assert!(open().contains(want), "{}", open());
    }
}

/// A safetensors file of this header and so many bytes of data.
fn file_of(header: &serde_json::Value, data: usize) -> Vec<u8> {
    let header = header.to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; data]].concat()
}

#[test]
fn a_safetensors_file_that_is_not_right_says_what_is_wrong_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let check = |bytes: &[u8], want: &str| {
        fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
        let error = safetensors::SafetensorsFolder::open(dir.path(), Compute::F32).err();
        let error = error.expect("opening should have failed").to_string();
        assert!(error.contains("model.safetensors: ") && error.contains(want), "{error:?}: not {want:?}");
    };
    check(b"", "it is empty");
    check(b"abc", "it starts with \"abc\"");
    check(b"<!DOCTYPE html><html>", "it starts with \"<!DOCTYPE html><html>\"");
    check(b"version 1 of git-lfs\noid sha256:00\n", "run git lfs pull");
    let weights = fs::read(golden_folder("qwen2").join("model.safetensors")).unwrap();
    check(&[&weights[..], b"abc"].concat(), "3 bytes too long");
    check(&weights[..weights.len() - 1], "truncated");
    check(&[&9u64.to_le_bytes()[..], b"not JSON!"].concat(), "its header is broken");
    let tensor = |dtype: &str, shape: &[u64], at: [u64; 2]| serde_json::json!({ "dtype": dtype, "shape": shape, "data_offsets": at });
    let good = tensor("F32", &[2, 3], [0, 24]);
    for (bad, want) in [
        (
            tensor("F32", &[1 << 40, 1 << 40], [24, 28]),
            "tensor b: shape [1099511627776, 1099511627776] of F32 is too many",
        ),
        (tensor("F32", &[2], [24, 28]), "tensor b: shape [2] of F32 is 8 bytes, 4 are there"),
        (tensor("F32", &[1], [28, 32]), "tensor b: lies at bytes 28 to 32, not from 24 on"),
        (tensor("F32", &[1], [20, 24]), "tensor b: lies at bytes 20 to 24, not from 24 on"),
        (tensor("F32", &[1], [28, 24]), "tensor b: lies at bytes 28 to 24"),
        (tensor("F31", &[1], [24, 28]), "tensor b: unknown variant `F31`"),
        (serde_json::json!({ "dtype": "F32" }), "tensor b: missing field"),
    ] {
        check(&file_of(&serde_json::json!({ "a": good, "b": bad }), 28), want);
    }
}

#[test]
fn a_tensor_in_two_shards_is_the_one_that_the_index_says() {
    let dir = tempfile::tempdir().unwrap();
    shard("qwen3", dir.path());
    let [first, second] = [1, 2].map(|i| dir.path().join(format!("model-0000{i}-of-00002.safetensors")));
    let norms = || {
        let weights = safetensors::SafetensorsFolder::open(dir.path(), Compute::F32)?;
        let norm = |layer: usize| format!("model.layers.{layer}.input_layernorm.weight");
        (0..3).map(|layer| weights.vector(&norm(layer), 64)).collect::<Result<Vec<_>, _>>()
    };
    let want = norms().unwrap();
    // each file gets the other's tensors besides, with other values
    let [a, b] = [&first, &second].map(|file| candle_core::safetensors::load(file, &Device::Cpu).unwrap());
    for (file, own, other) in [(&first, &a, &b), (&second, &b, &a)] {
        let zeros = other.iter().map(|(name, t)| (name.clone(), t.zeros_like().unwrap()));
        let all: HashMap<String, Tensor> = own.clone().into_iter().chain(zeros).collect();
        candle_core::safetensors::save(&all, file).unwrap();
    }
    assert_eq!(norms().unwrap(), want);
    // where the index is silent, nobody knows
    let index = dir.path().join("model.safetensors.index.json");
    let name = "model.layers.0.input_layernorm.weight";
    fs::write(&index, fs::read_to_string(&index).unwrap().replace(name, "another")).unwrap();
    let error = norms().err().unwrap().to_string();
    assert!(error.starts_with(&format!("{}: {name}: ", second.display())), "{error}");
    assert!(error.ends_with(&format!("also in {}", first.display())), "{error}");
}

#[test]
fn names_from_a_folder_are_bounded_and_harmless_in_messages() {
    let dir = tempfile::tempdir().unwrap();
    let evil = format!("\u{1b}[2J{}", "x".repeat(5000));
    let tensor =
        |dtype: &str, at: [u64; 2]| serde_json::json!({ "dtype": dtype, "shape": [1], "data_offsets": at });
    let config = fs::read_to_string(golden_folder("qwen3").join("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    let mut said = vec![];
    for header in [
        serde_json::json!({ "a": tensor(&evil, [0, 4]) }),
        serde_json::json!({ &evil: tensor("F32", [4, 8]) }),
        serde_json::json!({ &evil: tensor("F32", [0, 8]) }),
        serde_json::json!({ &evil: {} }),
        serde_json::json!({ "__metadata__": evil }),
    ] {
        fs::write(dir.path().join("model.safetensors"), file_of(&header, 8)).unwrap();
        let opened = safetensors::SafetensorsFolder::open(dir.path(), Compute::F32);
        said.push(opened.err().unwrap().to_string());
    }
    for (key, value) in [
        ("hidden_act", serde_json::json!(evil)),
        ("hidden_size", serde_json::json!(evil)),
        ("architectures", serde_json::json!([evil])),
        ("rope_parameters", serde_json::json!({ "rope_type": evil })),
        ("rope_parameters", serde_json::json!({ "rope_type": "linear", "factor": evil })),
    ] {
        let mut config = config.clone();
        config[key] = value;
        fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
        said.push(safetensors::read_spec(dir.path()).err().unwrap().to_string());
    }
    for said in said {
        assert!(said.len() < 600 && !said.contains('\u{1b}') && said.contains("xxxx"), "{said}");
    }
}

#[test]
fn a_file_that_became_shorter_names_the_tensor() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::copy(golden_folder("qwen2").join(name), dir.path().join(name)).unwrap();
    }
    let weights = safetensors::SafetensorsFolder::open(dir.path(), Compute::Int8).unwrap();
    fs::File::options()
        .write(true)
        .open(dir.path().join("model.safetensors"))
        .unwrap()
        .set_len(9000)
        .unwrap();
    let spec = safetensors::read_spec(dir.path()).unwrap();
    let error = DenseDecoder::load(spec, &weights).err().unwrap().to_string();
    assert!(error.contains("model.embed_tokens.weight") && error.contains("became shorter"), "{error}");
}

#[test]
fn a_folder_that_is_not_right_says_what_is_wrong_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let source = golden_folder("qwen2");
    let check = |want: &str| {
        let error = safetensors::read_spec(dir.path())
            .and_then(|spec| {
                DenseDecoder::load(spec, &safetensors::SafetensorsFolder::open(dir.path(), Compute::Int8)?)
            })
            .err()
            .expect("loading should have failed")
            .to_string();
        assert!(error.contains(want), "{error:?} does not speak of {want:?}");
    };
    check("config.json");
    let config = fs::read_to_string(source.join("config.json")).unwrap();
    let put = |text: &str| fs::write(dir.path().join("config.json"), text).unwrap();
    put("{");
    check("config.json");
    put(&config.replace("Qwen2ForCausalLM", "MambaForCausalLM"));
    check("MambaForCausalLM");
    put(&config.replace("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 4"));
    check("6 heads cannot share 4 KV heads");
    put(&config);
    check("model.safetensors");
    let weights = fs::read(source.join("model.safetensors")).unwrap();
    for cut in [0, 4, 8, 100, weights.len() / 2, weights.len() - 1] {
        fs::write(dir.path().join("model.safetensors"), &weights[..cut]).unwrap();
        check("model.safetensors");
    }
    fs::write(dir.path().join("model.safetensors"), &weights).unwrap();
    put(&config.replace("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4"));
    check("model.layers.3.");
    put(&config.replace("\"intermediate_size\": 96", "\"intermediate_size\": 80"));
    check("has shape [96, 96], config.json calls for [80, 96]");
    let _: HfConfig = serde_json::from_str(&config).unwrap();
}
