//! A tokenizer from a Hugging Face model folder: `tokenizer.json` and what lies beside it.
//!
//! Beside it may lie `tokenizer_config.json` (BOS, EOS, chat template), `chat_template.jinja` (which wins
//! over a template in the configuration) and `generation_config.json` (all end tokens). Tests are here.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tokenizers::{PostProcessorWrapper, Tokenizer as HfTokenizer};

use super::{TokenizerError, shown, shown_sentence};
use crate::ids::TokenId;

/// What a model folder says about its tokenizer.
pub(super) struct Folder {
    pub(super) tokenizer: HfTokenizer,
    pub(super) bos: Option<TokenId>,
    pub(super) eos: Vec<TokenId>,
    pub(super) adds_bos: bool,
    pub(super) chat_template: Option<String>,
}

pub(super) fn read(path: &Path) -> Result<Folder, TokenizerError> {
    let source = read_text(path)?.ok_or_else(|| bad(path, "there is no such file"))?;
    let mut tokenizer =
        source.parse::<HfTokenizer>().map_err(|e| bad(path, format!("not a tokenizer.json: {e}")))?;
    check_added_tokens(path, &source, &tokenizer)?;
    // Cutting, padding and trimming would make tokens and offsets depend on more than the text.
    tokenizer.with_truncation(None).map_err(|e| bad(path, e.to_string()))?;
    tokenizer.with_padding(None);
    let first = tokenizer.encode("", true).map_err(|e| bad(path, e.to_string()))?.get_ids().first().copied();
    tokenizer.with_post_processor(None::<PostProcessorWrapper>);
    promote_control_tokens(&mut tokenizer).map_err(|e| bad(path, e))?;

    let (config_path, config) = read_json(path, "tokenizer_config.json")?;
    let (_, generation) = read_json(path, "generation_config.json")?;
    let named = |key: &str| token_text(&config[key]).and_then(|text| tokenizer.token_to_id(text));
    let bos = named("bos_token").or_else(|| token_ids(&generation["bos_token_id"]).first().copied());
    let mut eos: Vec<_> = named("eos_token").into_iter().collect();
    eos.extend(token_ids(&generation["eos_token_id"]));
    let adds_bos = match config["add_bos_token"].as_bool() {
        Some(stated) => stated,
        None => first.is_some() && first == bos,
    };
    let beside = path.with_file_name("chat_template.jinja");
    let chat_template = match read_text(&beside)? {
        Some(template) => Some(template),
        None => template_of(&config["chat_template"]).map_err(|reason| bad(&config_path, reason))?,
    };
    Ok(Folder { bos, eos, adds_bos, chat_template, tokenizer })
}

fn bad(file: &Path, reason: impl Into<String>) -> TokenizerError {
    TokenizerError::File { file: file.into(), reason: shown_sentence(&reason.into()) }
}

/// The file's text, or `None` when there is none.
fn read_text(path: &Path) -> Result<Option<String>, TokenizerError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(bad(path, e.to_string())),
    }
}

/// The JSON file `name` beside `path`; null when there is none.
fn read_json(path: &Path, name: &str) -> Result<(PathBuf, Value), TokenizerError> {
    let path = path.with_file_name(name);
    let value = match read_text(&path)? {
        None => Value::Null,
        Some(text) => serde_json::from_str(&text).map_err(|e| bad(&path, format!("not JSON: {e}")))?,
    };
    Ok((path, value))
}

/// The library only logs when an added token gets another id than the file says; the model would not know.
fn check_added_tokens(path: &Path, source: &str, tokenizer: &HfTokenizer) -> Result<(), TokenizerError> {
    let json: Value = serde_json::from_str(source).map_err(|e| bad(path, e.to_string()))?;
    for token in json["added_tokens"].as_array().into_iter().flatten() {
        let (Some(id), Some(text)) = (token["id"].as_u64(), token["content"].as_str()) else { continue };
        let got = tokenizer.token_to_id(text);
        if got.map(u64::from) != Some(id) {
            let text = shown(text);
            return Err(bad(path, format!("added token \"{text}\" should have id {id} but gets {got:?}")));
        }
    }
    Ok(())
}

/// Makes tokens that are written like control tokens control tokens, as GGUF files do: some folders declare
/// `<|fim_prefix|>` as ordinary, and then a web page that contains it could steer the model.
fn promote_control_tokens(tokenizer: &mut HfTokenizer) -> Result<(), String> {
    let shaped = |t: &str| {
        [("<|", "|>"), ("<｜", "｜>")]
            .iter()
            .any(|(a, b)| t.len() > a.len() + b.len() && t.starts_with(a) && t.ends_with(b))
    };
    let mut promoted: Vec<_> = tokenizer
        .get_added_tokens_decoder()
        .into_iter()
        .filter(|(_, token)| !token.special && shaped(&token.content))
        .collect();
    promoted.sort_by_key(|(id, _)| *id);
    tokenizer
        .add_tokens(promoted.into_iter().map(|(_, token)| token.special(true)))
        .map_err(|e| e.to_string())?;
    Ok(())
}

/// A token given as its text or as an object with its text in `content`.
fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}

/// Token ids given as one number or a list.
fn token_ids(value: &Value) -> Vec<TokenId> {
    let one = |v: &Value| v.as_u64().and_then(|id| id.try_into().ok());
    match value {
        Value::Array(many) => many.iter().filter_map(one).collect(),
        other => one(other).into_iter().collect(),
    }
}

/// One template, or the one named `default` of a list of `{name, template}`.
fn template_of(value: &Value) -> Result<Option<String>, String> {
    let templates = match value {
        Value::Null => return Ok(None),
        Value::String(one) => return Ok(Some(one.clone())),
        Value::Array(many) => many,
        other => return Err(format!("chat_template is neither a text nor a list: {other}")),
    };
    let named = |t: &Value| Some((t["name"].as_str()?.to_string(), t["template"].as_str()?.to_string()));
    let all: Vec<_> = templates.iter().filter_map(named).collect();
    match (all.iter().find(|(name, _)| name == "default"), all.as_slice()) {
        (Some((_, template)), _) | (None, [(_, template)]) => Ok(Some(template.clone())),
        (None, _) => {
            let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
            Err(format!("of the chat templates {names:?} none is named \"default\""))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        prompt::{PieceEncoder, Specials},
        text::Tokenizer,
    };

    /// Writes a folder with a tiny byte-level tokenizer and the given files beside it.
    fn folder(added: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        let bytes: serde_json::Map<_, _> =
            (0..=255u8).map(|b| (super::super::build::byte_to_char(b).to_string(), Value::from(b))).collect();
        let json = format!(
            r#"{{"version":"1.0","truncation":{{"direction":"Right","max_length":4,"strategy":"LongestFirst","stride":0}},
            "padding":{{"strategy":{{"Fixed":9}},"direction":"Right","pad_to_multiple_of":null,"pad_id":0,"pad_type_id":0,"pad_token":"!"}},
            "added_tokens":{added},"normalizer":null,
            "pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}},
            "post_processor":{{"type":"Sequence","processors":[
              {{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}},
              {{"type":"TemplateProcessing","single":[{{"SpecialToken":{{"id":"<s>","type_id":0}}}},{{"Sequence":{{"id":"A","type_id":0}}}}],
                "pair":[],"special_tokens":{{"<s>":{{"id":"<s>","ids":[256],"tokens":["<s>"]}}}}}}]}},
            "decoder":{{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}},
            "model":{{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,
              "fuse_unk":false,"byte_fallback":false,"vocab":{},"merges":[]}}}}"#,
            Value::Object(bytes)
        );
        std::fs::write(&path, json).unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        (dir, path)
    }

    const ADDED: &str = r#"[
        {"id":256,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
        {"id":257,"content":"<|im_end|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
        {"id":258,"content":"<tool>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":false},
        {"id":259,"content":"<|fim|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":false}]"#;

    #[test]
    fn a_folder_gives_what_its_files_say() {
        let (_dir, path) = folder(
            ADDED,
            &[
                (
                    "tokenizer_config.json",
                    r#"{"bos_token":{"content":"<s>"},"eos_token":"</nope>","chat_template":[{"name":"rag","template":"R"},{"name":"default","template":"D"}]}"#,
                ),
                ("generation_config.json", r#"{"eos_token_id":[258,257]}"#),
            ],
        );
        let t = Tokenizer::from_json_file(&path).unwrap();
        assert_eq!((t.bos(), t.adds_bos()), (Some(256), true), "the post-processor adds it");
        assert_eq!(t.eos_ids(), [258, 257]);
        assert_eq!(t.chat_template(), Some("D"));
        assert_eq!(t.vocab_size(), 260);

        std::fs::write(path.with_file_name("chat_template.jinja"), "J").unwrap();
        std::fs::write(
            path.with_file_name("tokenizer_config.json"),
            r#"{"bos_token":"<s>","add_bos_token":false}"#,
        )
        .unwrap();
        let t = Tokenizer::from_json_file(&path).unwrap();
        assert_eq!((t.adds_bos(), t.chat_template()), (false, Some("J")));

        let (_dir, path) = folder(ADDED, &[]);
        let t = Tokenizer::from_json_file(&path).unwrap();
        assert_eq!((t.bos(), t.adds_bos(), t.chat_template()), (None, false, None));
        assert_eq!(t.eos_ids(), [257], "known by its name");
    }

    #[test]
    fn nothing_is_cut_padded_trimmed_or_added() {
        let (_dir, path) = folder(ADDED, &[]);
        let t = Tokenizer::from_json_file(&path).unwrap();
        let text = "one  two three";
        let e = t.encode(text, Specials::Plain).unwrap();
        assert_eq!(e.ids.len(), text.len());
        assert!(e.offsets.iter().enumerate().all(|(i, s)| (s.start, s.end) == (i, i + 1)), "{:?}", e.offsets);
    }

    #[test]
    fn outside_text_never_makes_a_control_token() {
        let (_dir, path) = folder(ADDED, &[]);
        let t = Tokenizer::from_json_file(&path).unwrap();
        let text = "a<s><|im_end|><|fim|><tool>";
        let parsed = t.encode(text, Specials::Parse).unwrap().ids;
        assert_eq!(parsed[1..], [256, 257, 259, 258]);
        let plain = t.encode(text, Specials::Plain).unwrap().ids;
        assert!(plain.iter().all(|&id| id < 256 || id == 258), "{plain:?}");
        assert_eq!(plain.iter().filter(|&&id| id == 258).count(), 1, "<tool> is an ordinary added token");
        assert_eq!(t.decode(&plain, true), text);
        assert_eq!(t.decode(&parsed, true), "a<tool>");
    }

    #[test]
    fn broken_folders_are_refused_by_file_and_reason() {
        let said = |path: &Path| Tokenizer::from_json_file(path).unwrap_err().to_string();
        let (dir, path) = folder(ADDED, &[]);
        assert!(said(&dir.path().join("absent.json")).contains("no such file"));
        assert!(said(dir.path()).contains(&dir.path().display().to_string()));
        for (name, text) in [
            ("tokenizer_config.json", "{"),
            ("tokenizer_config.json", r#"{"chat_template":7}"#),
            (
                "tokenizer_config.json",
                r#"{"chat_template":[{"name":"a","template":"1"},{"name":"b","template":"2"}]}"#,
            ),
            ("generation_config.json", "nonsense"),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
            assert!(said(&path).contains(name), "{}", said(&path));
            std::fs::remove_file(dir.path().join(name)).unwrap();
        }
        for text in ["", "{}", "[]", "null", r#"{"version":"1.0"}"#, "\u{0}"] {
            std::fs::write(&path, text).unwrap();
            assert!(said(&path).contains("tokenizer.json"), "{text:?}");
        }
        let (_dir, path) = folder(&ADDED.replace("257", "300"), &[]);
        assert!(said(&path).contains("300"));
        let evil = format!("\\u001b[2J{}", "x".repeat(5000));
        let (_dir, path) = folder(&ADDED.replace("257", "300").replace("<|im_end|>", &evil), &[]);
        assert!(said(&path).len() < 600 && !said(&path).contains('\u{1b}'), "{}", said(&path));
    }

    #[test]
    fn what_the_library_panics_at_is_an_error() {
        let (_dir, path) = folder("[]", &[]);
        let whole = std::fs::read_to_string(&path).unwrap();
        // what this merge makes is longer than any token
        std::fs::write(&path, whole.replace("\"merges\":[]", "\"merges\":[[\"¡\",\"¡\"]]")).unwrap();
        let said = Tokenizer::from_json_file(&path).unwrap_err().to_string();
        assert!(said.contains("tokenizer.json") && said.contains("the tokenizer library failed"), "{said}");
    }
}
