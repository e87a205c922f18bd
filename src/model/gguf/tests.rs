//! Small files written by candle, then bent in every way a download or an attacker may bend them.

use std::fs;

use candle_core::{Tensor, quantized::gguf_file};
use gguf_file::Value as V;

use super::*;
use crate::text::Tokenizer;

fn quantized(rows: usize, columns: usize, dtype: GgmlDType) -> QTensor {
    let values: Vec<f32> = (0..rows * columns).map(|i| (i as f32 * 0.37).sin()).collect();
    let tensor = Tensor::from_vec(values, (rows, columns), &Device::Cpu).unwrap();
    QTensor::quantize(&tensor, dtype).unwrap()
}

/// A file with one value of every kind and three tensors.
fn sample() -> Vec<u8> {
    sample_of(&["a", "Ġb", "<|x|>"], &["Ġ b"])
}

/// The same with this vocabulary, the last two tokens of which end a turn.
fn sample_of(tokens: &[&str], merges: &[&str]) -> Vec<u8> {
    let last = tokens.len() as u32 - 1;
    let types =
        tokens.iter().enumerate().map(|(i, _)| V::I32(if i as u32 == last { 3 } else { 1 })).collect();
    let texts = |all: &[&str]| V::Array(all.iter().map(|t| V::String((*t).into())).collect());
    let metadata = [
        ("general.architecture", V::String("llama".into())),
        ("llama.block_count", V::U32(30)),
        ("llama.signed", V::I32(-1)),
        ("llama.wide", V::U64(u64::MAX)),
        ("llama.eps", V::F32(1e-5)),
        ("llama.double", V::F64(0.5)),
        ("llama.yes", V::Bool(true)),
        ("llama.bytes", V::Array(vec![V::U8(1), V::U8(255)])),
        ("llama.negative", V::Array(vec![V::I32(1), V::I32(-255)])),
        ("llama.flags", V::Array(vec![V::Bool(true), V::Bool(false)])),
        ("llama.factors", V::Array(vec![V::F32(0.5), V::F32(2.0)])),
        ("llama.none", V::Array(vec![])),
        ("tokenizer.ggml.model", V::String("gpt2".into())),
        ("tokenizer.ggml.pre", V::String("smollm".into())),
        ("tokenizer.ggml.tokens", texts(tokens)),
        ("tokenizer.ggml.token_type", V::Array(types)),
        ("tokenizer.ggml.merges", texts(merges)),
        ("tokenizer.ggml.eos_token_id", V::U32(last)),
        ("tokenizer.ggml.eot_token_id", V::U32(last - 1)),
        ("tokenizer.ggml.padding_token_id", V::I32(-1)), // as some files have it; nothing reads it
        ("tokenizer.ggml.add_bos_token", V::Bool(false)),
        ("tokenizer.chat_template", V::String("{{ messages }}".into())),
    ];
    let tensors = [
        ("token_embd.weight", quantized(3, 32, GgmlDType::Q4_1)),
        ("norm.weight", quantized(1, 5, GgmlDType::F32)),
        ("blk.0.attn_q.weight", quantized(2, 256, GgmlDType::Q6K)),
    ];
    let metadata: Vec<_> = metadata.iter().map(|(k, v)| (*k, v)).collect();
    let tensors: Vec<_> = tensors.iter().map(|(k, v)| (*k, v)).collect();
    let mut out = std::io::Cursor::new(Vec::new());
    gguf_file::write(&mut out, &metadata, &tensors).unwrap();
    out.into_inner()
}

fn open(bytes: &[u8]) -> Result<GgufFile, GgufError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    fs::write(&path, bytes).unwrap();
    GgufFile::open(&path)
}

fn said(bytes: &[u8]) -> String {
    let text = open(bytes).expect_err("a broken file was accepted").to_string();
    assert!(text.contains("model.gguf"), "no file in {text:?}");
    text
}

/// A header with the given counts, then the given bytes.
fn header(tensors: u64, keys: u64, rest: &[&[u8]]) -> Vec<u8> {
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend(tensors.to_le_bytes());
    out.extend(keys.to_le_bytes());
    out.extend(rest.concat());
    out
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// A directory entry for one tensor.
fn entry(dims: &[u64], code: u32, offset: u64) -> Vec<u8> {
    let dims_le: Vec<u8> = dims.iter().flat_map(|d| d.to_le_bytes()).collect();
    let parts = [&text("w")[..], &(dims.len() as u32).to_le_bytes(), &dims_le, &code.to_le_bytes()];
    [&parts.concat()[..], &offset.to_le_bytes()].concat()
}

#[test]
fn values_are_read_by_kind_and_any_width_that_fits() {
    let file = open(&sample()).unwrap();
    assert_eq!(file.architecture().unwrap(), "llama");
    assert_eq!(file.arch_key("block_count").unwrap(), "llama.block_count");
    assert_eq!(file.get::<u32>("llama.block_count").unwrap(), 30);
    assert_eq!(file.get::<usize>("llama.block_count").unwrap(), 30);
    assert_eq!(file.get::<u64>("llama.wide").unwrap(), u64::MAX);
    assert_eq!(file.get::<f32>("llama.eps").unwrap(), 1e-5);
    assert_eq!(file.get::<f32>("llama.double").unwrap(), 0.5);
    assert!(file.get::<bool>("llama.yes").unwrap());
    assert_eq!(file.get::<Vec<u32>>("llama.bytes").unwrap(), [1, 255]);
    assert_eq!(file.get::<Vec<u32>>("llama.flags").unwrap(), [1, 0]);
    assert_eq!(file.get::<Vec<u32>>("llama.none").unwrap(), [0; 0]);
    assert_eq!(file.get::<&[f32]>("llama.factors").unwrap(), [0.5, 2.0]);
    assert_eq!(file.get::<&[String]>("tokenizer.ggml.tokens").unwrap()[1], "Ġb");
    assert_eq!(file.get_opt::<u32>("llama.absent").unwrap(), None);
}

#[test]
fn a_wrong_key_is_named_with_what_was_expected_and_found() {
    let file = open(&sample()).unwrap();
    let said = |r: Result<(), GgufError>| r.unwrap_err().to_string();
    for key in ["llama.signed", "llama.wide", "llama.eps", "llama.yes", "llama.bytes", "general.architecture"]
    {
        let text = said(file.get::<u32>(key).map(drop));
        assert!(text.contains(key) && text.contains("expected an unsigned 32-bit integer"), "{text}");
        assert!(file.get_opt::<u32>(key).is_err(), "{key}: optional does not mean anything goes");
    }
    assert!(said(file.get::<Vec<u32>>("llama.negative").map(drop)).contains("array of unsigned"));
    assert!(said(file.get::<&str>("llama.block_count").map(drop)).contains("the integer 30"));
    assert!(said(file.get::<f32>("llama.absent").map(drop)).contains("llama.absent is missing"));
    assert!(said(file.tensor("absent.weight").map(drop)).contains("absent.weight is missing"));
}

#[test]
fn tensors_come_back_as_they_were_written() {
    let file = open(&sample()).unwrap();
    let names: Vec<_> = file.tensors().map(|(name, _)| name).collect();
    assert_eq!(names, ["blk.0.attn_q.weight", "norm.weight", "token_embd.weight"]);
    for (name, written) in [
        ("token_embd.weight", quantized(3, 32, GgmlDType::Q4_1)),
        ("norm.weight", quantized(1, 5, GgmlDType::F32)),
        ("blk.0.attn_q.weight", quantized(2, 256, GgmlDType::Q6K)),
    ] {
        let info = file.tensor_info(name).unwrap();
        assert_eq!((info.shape.as_slice(), info.dtype), (written.shape().dims(), written.dtype()), "{name}");
        let read = file.tensor(name).unwrap();
        assert_eq!(read.data().unwrap(), written.data().unwrap(), "{name}");
        assert_eq!(read.shape(), written.shape());
    }
}

#[test]
fn the_tokenizer_comes_out_as_plain_data() {
    let spec = open(&sample()).unwrap().tokenizer_spec().unwrap();
    let expected = TokenizerSpec {
        model: "gpt2".into(),
        pre: Some("smollm".into()),
        tokens: ["a", "Ġb", "<|x|>"].map(Into::into).into(),
        token_types: vec![1, 1, 3],
        merges: vec!["Ġ b".into()],
        bos: None,
        eos: vec![2, 1],
        add_bos: Some(false),
        chat_template: Some("{{ messages }}".into()),
    };
    assert_eq!(spec, expected);
    let bare = open(&header(0, 0, &[])).unwrap();
    assert!(bare.tokenizer_spec().unwrap_err().to_string().contains("tokenizer.ggml.model is missing"));
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = sample();
    // The last bytes are padding behind the last tensor.
    let end = whole.len() - (32 - quantized(2, 256, GgmlDType::Q6K).storage_size_in_bytes() % 32);
    for cut in 0..end {
        let text = said(&whole[..cut]);
        assert!(text.contains("truncated") || cut < 4, "cut at {cut}: {text}");
    }
    assert!(open(&whole[..end]).is_ok());
    assert!(said(&whole[..end - 1]).contains("blk.0.attn_q.weight"), "the cut tensor is named");
}

#[test]
fn every_changed_header_byte_gives_a_file_or_an_error() {
    // every readable byte, so that the tokenizer can be built
    let letters: Vec<String> = ('!'..='~').chain(['Ġ', 'Ċ']).map(String::from).collect();
    let tokens: Vec<&str> = letters.iter().map(String::as_str).chain(["Ġb", "Ġbc", "<|x|>"]).collect();
    let whole = sample_of(&tokens, &["Ġ b", "Ġb c"]);
    let good = open(&whole).unwrap();
    assert!(Tokenizer::from_spec(&good.tokenizer_spec().unwrap()).is_ok());
    let data = good.tensors().map(|(_, info)| info.offset as usize).min().unwrap();
    for at in 0..data {
        let mut bent = whole.clone();
        bent[at] ^= [0x01, 0x80, 0xFF][at % 3];
        if let Ok(file) = open(&bent) {
            for (name, info) in file.tensors() {
                assert!(file.tensor(name).is_ok(), "byte {at}: {name} {info:?} passed the check");
            }
            let _ = file.tokenizer_spec().map(|spec| Tokenizer::from_spec(&spec));
        }
    }
}

#[test]
fn a_part_of_a_split_model_is_refused_with_what_to_do() {
    let parts = |n: u16| {
        let key = [&text("split.count")[..], &2u32.to_le_bytes(), &n.to_le_bytes()].concat();
        header(0, 1, &[&key])
    };
    let said = said(&parts(3));
    assert!(said.contains("one of 3 parts") && said.contains("llama-gguf-split --merge"), "{said}");
    for whole in [0, 1] {
        assert!(open(&parts(whole)).is_ok());
    }
}

#[test]
fn what_is_not_a_gguf_file_is_said_to_be_none() {
    assert!(said(b"").contains("empty"));
    assert!(said(b"PK\x03\x04 and more").contains("PK\\x03\\x04"));
    assert!(said(b"GG").contains("not a GGUF file"));
    assert!(said(b"<!doctype html>").contains("not a GGUF file"));
    assert!(said(b"GGUF\x01\0\0\0").contains("version 1"));
    assert!(said(b"GGUF\0\0\0\x03").contains("little-endian"));
    let dir = tempfile::tempdir().unwrap();
    assert!(GgufFile::open(dir.path()).unwrap_err().to_string().contains("regular file"));
    let absent = GgufFile::open(dir.path().join("absent.gguf")).unwrap_err().to_string();
    assert!(absent.contains("absent.gguf") && absent.contains("cannot be read"), "{absent}");
}

#[test]
fn lengths_are_not_believed() {
    let huge = u64::MAX.to_le_bytes();
    let array = |kind: u32, len: u64| {
        [&text("k")[..], &9u32.to_le_bytes(), &kind.to_le_bytes(), &len.to_le_bytes()].concat()
    };
    assert!(said(&header(u64::MAX, 0, &[])).contains("truncated"));
    assert!(said(&header(0, u64::MAX, &[])).contains("truncated"));
    assert!(said(&header(0, 1, &[&huge])).contains("truncated"));
    for kind in [0, 4, 6, 7, 8, 12] {
        for len in [u64::MAX, 1 << 62, 1 << 40, 2] {
            assert!(said(&header(0, 1, &[&array(kind, len)])).contains("key k"), "kind {kind}, {len} long");
        }
    }
    let nested = array(9, 1);
    assert!(said(&header(0, 1, &[&nested, &[0; 64]])).contains("array of arrays"));
    assert!(said(&header(0, 1, &[&array(13, 0)])).contains("value type 13"));
    assert!(said(&header(0, 1, &[&text("k"), &99u32.to_le_bytes()])).contains("value type 99"));
    assert!(said(&header(0, 1, &[&text("k"), &7u32.to_le_bytes(), &[2]])).contains("truth value"));
    let twice = [&text("k")[..], &0u32.to_le_bytes(), &[1]].concat();
    assert!(said(&header(0, 2, &[&twice, &twice])).contains("twice"));
}

#[test]
fn impossible_tensors_are_refused_by_name() {
    let one = |dims: &[u64], code, offset| header(1, 0, &[&entry(dims, code, offset), &[0; 160]]);
    assert!(open(&one(&[32], 0, 0)).is_ok());
    for dims in [&[][..], &[0], &[1; 5], &[1 << 32, 1 << 32], &[u64::MAX], &[u64::MAX, u64::MAX, 4]] {
        assert!(said(&one(dims, 0, 0)).contains("tensor w"), "{dims:?} was accepted");
    }
    assert!(said(&one(&[33], 2, 0)).contains("blocks of 32"));
    assert!(said(&one(&[16, 2], 2, 0)).contains("blocks of 32"), "blocks do not cross rows");
    assert!(said(&one(&[32], 0, u64::MAX - 31)).contains("truncated"));
    for alignment in [0u32, u32::MAX] {
        let key = [&text("general.alignment")[..], &4u32.to_le_bytes(), &alignment.to_le_bytes()].concat();
        assert!(said(&header(0, 1, &[&key])).contains("general.alignment"));
    }
}

#[test]
fn unsupported_tensor_types_are_named_and_the_supported_ones_listed() {
    for (code, name) in [(20, "IQ4_NL"), (39, "MXFP4"), (9, "Q8_1"), (4, "number 4"), (4000, "number 4000")] {
        let text = said(&header(1, 0, &[&entry(&[32], code, 0), &[0; 256]]));
        assert!(text.contains(name) && text.contains("tensor w"), "{text}");
        for supported in ["F32", "BF16", "Q4_0", "Q5_1", "Q8_0", "Q2_K", "Q6_K"] {
            assert!(text.contains(supported), "{text}");
        }
    }
}

#[test]
fn tensors_lie_apart_aligned_and_the_file_ends_with_them() {
    let named = |name: &str, offset: u64| [&text(name)[..], &entry(&[32], 0, offset)[9..]].concat();
    let two = |a: u64, b: u64, data: usize| {
        let directory = header(2, 0, &[&named("first", a), &named("second", b)]);
        let padded = directory.len().next_multiple_of(32);
        [directory, vec![0; data + padded]].concat()[..padded + data].to_vec()
    };
    for (a, b) in [(0, 128), (128, 0), (0, 1024)] {
        let end = (a.max(b) + 128) as usize;
        assert!(open(&two(a, b, end)).is_ok(), "{a} {b}");
        assert!(open(&two(a, b, end + 32)).is_ok(), "padding at the end");
        let said = said(&two(a, b, end + 33));
        assert!(said.contains("33 bytes follow it"), "{said}");
    }
    for (a, b) in [(0, 0), (0, 96), (96, 0)] {
        let said = said(&two(a, b, 224));
        assert!(said.contains("tensor first") && said.contains("tensor second"), "{said}");
    }
    let said = said(&two(0, 130, 288));
    assert!(
        said.contains("tensor second") && said.contains("130 is no multiple of the alignment 32"),
        "{said}"
    );
}

#[test]
fn names_from_the_file_are_bounded_and_harmless_in_messages() {
    let evil = format!("\u{1b}[2J{}", "x".repeat(5000));
    let tensor = [&text(&evil)[..], &entry(&[32], 4000, 0)[9..]].concat();
    let string = |key: &str, value: &str| [&text(key)[..], &8u32.to_le_bytes(), &text(value)].concat();
    let architecture = open(&header(0, 1, &[&string("general.architecture", &evil)])).unwrap();
    let mut all = vec![
        said(&header(0, 1, &[&text(&evil), &99u32.to_le_bytes()])),
        said(&header(1, 0, &[&tensor, &[0; 256]])),
        architecture.get::<u32>("general.architecture").unwrap_err().to_string(),
        architecture.get::<u32>(&architecture.arch_key("x").unwrap()).unwrap_err().to_string(),
    ];
    let load = |file: &GgufFile| crate::model::load::gguf(file, None, crate::model::Compute::F32);
    all.push(load(&architecture).err().unwrap().to_string());
    all.push(load(&scaled(&evil)).err().unwrap().to_string());
    for said in all {
        assert!(said.len() < 600 && !said.contains('\u{1b}') && said.contains("xxxx… ("), "{said}");
    }
}

/// A file whose rotary scaling is of this kind.
fn scaled(kind: &str) -> GgufFile {
    let size = |key: &str, n: u32| {
        [&text(&format!("llama.{key}"))[..], &4u32.to_le_bytes(), &n.to_le_bytes()].concat()
    };
    let string = |key: &str, value: &str| [&text(key)[..], &8u32.to_le_bytes(), &text(value)].concat();
    let eps =
        [&text("llama.attention.layer_norm_rms_epsilon")[..], &6u32.to_le_bytes(), &1e-5f32.to_le_bytes()];
    let keys = [
        string("general.architecture", "llama"),
        string("llama.rope.scaling.type", kind),
        size("embedding_length", 32),
        size("attention.head_count", 1),
        size("block_count", 1),
        size("feed_forward_length", 32),
        size("context_length", 32),
        eps.concat(),
    ];
    let tensor = [&text("token_embd.weight")[..], &entry(&[32], 0, 0)[9..]].concat();
    let parts: Vec<&[u8]> = keys.iter().chain([&tensor]).map(Vec::as_slice).collect();
    let directory = header(1, keys.len() as u64, &parts);
    let data = directory.len().next_multiple_of(32);
    let mut whole = directory;
    whole.resize(data + 128, 0);
    open(&whole).unwrap()
}

/// Candle's own reader is the slow twin on real files.
#[test]
fn real_files_read_as_candle_reads_them() {
    let models = std::env::var_os("QRAE_MODELS")
        .map(PathBuf::from)
        .or_else(|| dirs::home_dir().map(|h| h.join(".cache/qrae/models")));
    let files: Vec<_> = models
        .and_then(|dir| fs::read_dir(dir).ok())
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "gguf"))
        .collect();
    if files.is_empty() {
        eprintln!("SKIPPED real_files_read_as_candle_reads_them: no model folder; set QRAE_MODELS");
    }
    for path in files {
        let ours = GgufFile::open(&path).unwrap();
        let mut reader = std::io::BufReader::new(File::open(&path).unwrap());
        let theirs = gguf_file::Content::read(&mut reader).unwrap();
        assert_eq!(ours.metadata().count(), theirs.metadata.len());
        for (key, value) in ours.metadata() {
            assert!(same(value, &theirs.metadata[key]), "{}: {key}", path.display());
        }
        assert_eq!(ours.tensors().count(), theirs.tensor_infos.len());
        for (n, (name, info)) in ours.tensors().enumerate() {
            let twin = &theirs.tensor_infos[name];
            assert_eq!((info.shape.as_slice(), info.dtype), (twin.shape.dims(), twin.ggml_dtype), "{name}");
            assert_eq!(info.offset, twin.offset + theirs.tensor_data_offset, "{name}");
            if n % 40 == 0 {
                let twin = theirs.tensor(&mut reader, name, &Device::Cpu).unwrap();
                assert!(ours.tensor(name).unwrap().data().unwrap() == twin.data().unwrap(), "{name}");
            }
        }
        eprintln!(
            "{}: {} keys, {} tensors",
            path.display(),
            theirs.metadata.len(),
            theirs.tensor_infos.len()
        );
    }
}

fn same(ours: &Value, theirs: &V) -> bool {
    match (ours, theirs) {
        (Value::Text(a), V::String(b)) => a == b,
        (Value::Bool(a), V::Bool(b)) => a == b,
        (Value::Float(a), V::F32(b)) => *a == f64::from(*b),
        (Value::Int(a), b) => b.to_u64().is_ok_and(|b| *a == b.into()),
        (Value::Texts(a), V::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| b.to_string().is_ok_and(|b| a == b))
        }
        (Value::Ints(a), V::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| b.to_i32().is_ok_and(|b| *a == i64::from(b)))
        }
        _ => false,
    }
}
