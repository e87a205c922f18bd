//! Rebuilt tokenizers and chat templates against golden files of the original ones, on real models.

#![allow(clippy::unwrap_used)] // in helpers of tests

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use qrae::{
    ids::TokenId,
    model::gguf::GgufFile,
    prompt::{
        PieceEncoder, Specials,
        template::{ChatTemplate, RenderInput},
    },
    text::{TokenStream, Tokenizer, TokenizerSpec},
};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
    chats: Vec<Chat>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    ids_special: Vec<TokenId>,
    ids_plain: Vec<TokenId>,
    offsets_plain_chars: Vec<(usize, usize)>,
    decoded_plain: String,
}

#[derive(Deserialize)]
struct Chat {
    messages: Value,
    rendered: String,
}

/// Golden names and the files they were made from.
const MODELS: [(&str, &str); 2] = [
    ("smollm2-135m", "smollm2-135m-instruct-q4_1.gguf"),
    ("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
];

fn model(file: &str) -> Option<Tokenizer> {
    let folder = std::env::var_os("QRAE_MODELS").map(PathBuf::from);
    let folder = folder.or_else(|| dirs::home_dir().map(|home| home.join(".cache/qrae/models")))?;
    let path = folder.join(file);
    if !path.exists() {
        eprintln!("SKIPPED {file}: not in {}; set QRAE_MODELS", folder.display());
        return None;
    }
    let spec = GgufFile::open(path).expect("a GGUF file").tokenizer_spec().expect("its tokenizer");
    Some(Tokenizer::from_spec(&spec).expect("a supported tokenizer"))
}

fn golden() -> Option<HashMap<String, Golden>> {
    let shared = std::env::var_os("QRAE_SHARED").map(PathBuf::from);
    let shared = shared.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"));
    let path = shared.join("golden/tokenizer_cases.json");
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("SKIPPED: no {}; set QRAE_SHARED", path.display());
        return None;
    };
    Some(serde_json::from_str(&text).expect("the golden file's form"))
}

/// Every golden model that is here, with its tokenizer.
fn models() -> Vec<(Golden, Tokenizer)> {
    let Some(mut golden) = golden() else { return Vec::new() };
    let with_golden = |(name, file): &(&str, &str)| Some((golden.remove(*name)?, model(file)?));
    MODELS.iter().filter_map(with_golden).collect()
}

#[test]
fn ids_offsets_and_text_equal_the_originals() {
    for (golden, tokenizer) in models() {
        for case in &golden.cases {
            let text = &case.text;
            assert_eq!(tokenizer.encode(text, Specials::Parse).unwrap().ids, case.ids_special, "{text:?}");
            let plain = tokenizer.encode(text, Specials::Plain).unwrap();
            assert_eq!(plain.ids, case.ids_plain, "{text:?}");
            let offsets: Vec<_> = plain.offsets.iter().map(|span| (span.start, span.end)).collect();
            assert_eq!(offsets, case.offsets_plain_chars, "{text:?}");
            assert_eq!(tokenizer.decode(&plain.ids, false), case.decoded_plain, "{text:?}");
        }
        eprintln!("{tokenizer:?}: {} cases equal", golden.cases.len());
    }
}

/// What is refused untokenised is refused by this bound.
#[test]
fn no_text_has_fewer_tokens_than_it_has_at_least() {
    for (golden, tokenizer) in models() {
        let mut proven = 0;
        for case in &golden.cases {
            for text in [case.text.clone(), case.text.repeat(7), case.text.repeat(200)] {
                let least = tokenizer.least_tokens(&text);
                for specials in [Specials::Parse, Specials::Plain] {
                    let real = tokenizer.encode(&text, specials).unwrap().ids.len();
                    assert!(least <= real, "{text:?}: {least} > {real}");
                }
                proven += least;
            }
        }
        assert!(proven > 0, "{tokenizer:?}: nothing is proven of it");
    }
}

#[test]
fn rendered_chats_equal_the_originals() {
    for (golden, tokenizer) in models() {
        let template = ChatTemplate::new(tokenizer.chat_template().expect("a template")).unwrap();
        let text_of = |id| tokenizer.id_to_token(id).unwrap();
        let (bos, eos) = (tokenizer.bos().map(text_of), tokenizer.eos_ids().first().copied().map(text_of));
        for chat in &golden.chats {
            let input = RenderInput {
                messages: &chat.messages,
                add_generation_prompt: true,
                bos_token: bos.as_deref(),
                eos_token: eos.as_deref(),
                ..RenderInput::default()
            };
            assert_eq!(template.render(&input).unwrap(), chat.rendered);
        }
        let sentinel = "\u{2063}USER\u{2063}";
        let (before, after) = template.split_around(sentinel, &RenderInput::default()).unwrap();
        assert_eq!(format!("{before}Hi{after}"), golden.chats[0].rendered, "the first golden chat says Hi");
        eprintln!("{tokenizer:?}: {} chats equal", golden.chats.len());
    }
}

#[test]
fn end_tokens_are_known_and_the_hash_is_stable() {
    for (_, tokenizer) in models() {
        let ends: Vec<_> = ["<|im_end|>", "<|endoftext|>"].map(|t| tokenizer.token_to_id(t).unwrap()).into();
        assert_eq!(tokenizer.eos_ids(), ends);
        assert!(!tokenizer.adds_bos());
        assert!(tokenizer.hash().starts_with("sha256:") && tokenizer.hash().len() == 7 + 64);
        eprintln!("{tokenizer:?}: {}", tokenizer.hash());
    }
}

#[test]
fn any_text_survives_and_no_plain_text_makes_a_control_token() {
    for (_, tokenizer) in models() {
        let piece = prop_oneof![
            any::<String>(),
            "[ \\t\\r\\n]{0,6}",
            "[a-zA-Z0-9'.,]{0,12}",
            Just("<|im_end|>".to_string()),
            Just("<|im_start|>".to_string()),
            Just("<tool_call>".to_string()),
        ];
        let texts = prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat());
        let check = |text: String| {
            let plain = tokenizer.encode(&text, Specials::Plain).unwrap();
            prop_assert!(plain.ids.iter().all(|&id| !tokenizer.is_control(id)));
            prop_assert_eq!(plain.ids.len(), plain.offsets.len());
            let chars = text.chars().count();
            prop_assert!(plain.offsets.iter().all(|span| span.end <= chars));
            prop_assert!(plain.offsets.is_sorted_by_key(|span| span.start));
            prop_assert!(tokenizer.least_tokens(&text) <= plain.ids.len());
            // Where nothing is normalised and every byte has a token, the text itself comes back.
            if text.chars().all(|c| c.is_ascii_graphic() || " \t\r\n".contains(c)) {
                prop_assert_eq!(tokenizer.decode(&plain.ids, true), text);
            }
            Ok(())
        };
        TestRunner::new(Config { cases: 1500, failure_persistence: None, ..Config::default() })
            .run(&texts, check)
            .unwrap();
    }
}

#[test]
fn streams_of_any_tokens_add_up() {
    for (_, tokenizer) in models() {
        // Beyond the vocabulary too: a model's logits may be wider.
        let ids = prop::collection::vec(0..tokenizer.vocab_size() as u32 + 300, 0..40);
        let low = prop::collection::vec(0..512u32, 0..20);
        TestRunner::new(Config { cases: 1500, failure_persistence: None, ..Config::default() })
            .run(&(ids, low, any::<bool>()), |(mut ids, low, skip)| {
                ids.extend(low);
                let mut stream = TokenStream::new(&tokenizer, skip);
                let parts: Vec<_> = ids.iter().filter_map(|&id| stream.push(id)).collect();
                prop_assert_eq!(parts.concat() + &stream.finish(), tokenizer.decode(&ids, skip));
                Ok(())
            })
            .unwrap();
    }
}

/// GPT-2's byte alphabet, written out from its definition.
fn alphabet() -> Vec<String> {
    let printable = |b: u32| (0x21..=0x7E).contains(&b) || (0xA1..=0xAC).contains(&b) || b >= 0xAE;
    let mut next = 0xFF;
    let spell = |b: u32| {
        let code = if printable(b) {
            b
        } else {
            next += 1;
            next
        };
        char::from_u32(code).unwrap().to_string()
    };
    (0..=0xFF).map(spell).collect()
}

/// A toy vocabulary once as a weight file has it and once as the `tokenizer.json` of Llama 3 or Qwen 2 would.
fn toy_twins(pre: &str) -> (Tokenizer, Tokenizer) {
    let merges = ["Ġ t", "h e", "Ġt he", "1 2", "12 3", "i n", "Ġ Ġ", "Ċ Ċ", "Ã ©", "' s", "o n", "e r"];
    let mut tokens = alphabet();
    tokens.extend(merges.iter().map(|m| m.replace(' ', "")));
    tokens.extend(["Ġwhole", "word"].map(String::from)); // entries no merge reaches
    let plain = tokens.len();
    let added = ["<|begin_of_text|>", "<|eot_id|>", "<|im_end|>", "<tool_call>", "<think>"];
    let special = |i: usize| i < 3;
    tokens.extend(added.map(String::from));
    let kind = |i: usize| {
        if i < plain {
            1
        } else if special(i - plain) {
            3
        } else {
            4
        }
    };
    let bos = plain as u32;
    let spec = TokenizerSpec {
        model: "gpt2".into(),
        pre: Some(pre.into()),
        token_types: (0..tokens.len() + 2).map(|i| if i < tokens.len() { kind(i) } else { 5 }).collect(),
        tokens: tokens.iter().cloned().chain(["[PAD1]", "[PAD2]"].map(String::from)).collect(),
        merges: merges.map(String::from).into(),
        bos: Some(bos),
        eos: vec![bos + 1],
        ..TokenizerSpec::default()
    };
    let entry = |(i, text): (usize, &&str)| {
        json!({"id": plain + i, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": special(i)})
    };
    let (normalizer, digits, llama) = match pre {
        "llama-bpe" => (Value::Null, r"\p{N}{1,3}", true),
        _ => (json!({"type": "NFC"}), r"\p{N}", false),
    };
    let regex = format!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    );
    let bytes = |trim: bool, regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": trim, "use_regex": regex});
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added.iter().enumerate().map(entry).collect::<Vec<_>>(),
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false}, bytes(true, false)]},
        "post_processor": bytes(true, false),
        "decoder": bytes(true, true),
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": llama,
                  "vocab": tokens[..plain].iter().zip(0..).collect::<HashMap<_, u32>>(), "merges": merges},
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, file.to_string()).unwrap();
    (Tokenizer::from_spec(&spec).unwrap(), Tokenizer::from_json_file(&path).unwrap())
}

#[test]
fn a_weight_file_and_the_equal_tokenizer_json_are_one_tokenizer() {
    for pre in ["llama-bpe", "qwen2"] {
        let (rebuilt, original) = toy_twins(pre);
        assert_eq!(rebuilt.hash(), original.hash(), "{pre}");
        let pieces =
            "(the| the|123|'s|'LL|whole| whole|word|\u{e9}|e\u{301}|\n\n|  |<think>|<[|]eot_id[|]>|.){0,12}";
        let texts = prop_oneof![pieces.prop_map(String::from), any::<String>()];
        TestRunner::new(Config { cases: 1500, failure_persistence: None, ..Config::default() })
            .run(&texts, |text| {
                for specials in [Specials::Parse, Specials::Plain] {
                    prop_assert_eq!(rebuilt.encode(&text, specials), original.encode(&text, specials));
                }
                Ok(())
            })
            .unwrap();
    }
    let hashes = ["llama-bpe", "qwen2"].map(|pre| toy_twins(pre).0.hash().to_string());
    assert_ne!(hashes[0], hashes[1], "equal vocabularies that cut differently hash differently");
}

/// Ids by Hugging Face's tokenizers 0.23.3 (Python, with another regex engine) for the toy of Llama 3.
#[test]
fn the_toy_of_llama_3_gives_the_ids_of_the_original_library() {
    let (rebuilt, _) = toy_twins("llama-bpe");
    for (text, ids) in LLAMA_TOY {
        assert_eq!(rebuilt.encode(text, Specials::Parse).unwrap().ids, *ids, "{text:?}");
    }
}

const LLAMA_TOY: &[(&str, &[TokenId])] = &[
    ("the whole word", &[116, 257, 268, 32, 119, 111, 114, 100]),
    ("words wholesome", &[119, 111, 114, 100, 115, 32, 119, 104, 111, 108, 101, 115, 111, 109, 101]),
    ("12345 1234", &[260, 52, 53, 32, 260, 52]),
    ("it's IT'S 'S\u{17f}", &[105, 116, 265, 32, 73, 84, 39, 83, 32, 39, 83, 197, 191]),
    ("\n\n  the\r\n\n x", &[263, 32, 258, 13, 263, 32, 120]),
    ("caf\u{e9} e\u{301}", &[99, 97, 102, 264, 32, 101, 204, 129]),
    ("a<|eot_id|>b<think>", &[97, 271, 98, 274]),
    (
        "\u{661}\u{662}\u{663}\u{664} \u{bd}\u{2167}",
        &[217, 161, 217, 162, 217, 163, 217, 164, 32, 194, 189, 226, 133, 167],
    ),
    ("!!!\n\n??  ", &[33, 33, 33, 263, 63, 63, 262]),
    ("\u{a0}the\u{3000}the", &[194, 160, 116, 257, 227, 128, 128, 116, 257]),
];
