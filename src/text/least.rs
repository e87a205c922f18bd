//! How many tokens a text has at least, told in one pass over its bytes: a text that cannot fit is refused before
//! tokenising takes some hundred times its size in memory.
//!
//! No token holds more than so many of a byte, nor more than so many bytes in all; so a text with `c` of some byte has at
//! least `c / most` tokens. That is proven for byte-level BPE without a normaliser or with NFC, whose pre-tokenizer
//! drops nothing, whose tokens spell what they stand for, and whose added tokens are in NFC; for every other tokenizer
//! the bound is 0. Tests are here, and on real vocabularies in `tests/tokenizer_conformance.rs`.

use std::collections::HashMap;

use serde_json::Value;
use tokenizers::{
    DecoderWrapper, Model, ModelWrapper, NormalizedString, Normalizer, Tokenizer as HfTokenizer,
};

use super::{build::byte_to_char, stream::token_bytes};

/// What tokens of a vocabulary can hold at most.
pub(super) struct Least {
    /// Per byte: how often it is in any one token. 0 for bytes without a token of their own, which the library drops.
    most: [usize; 256],
    /// How many bytes that have a token are in any one token.
    whole: usize,
}

impl Least {
    /// The bounds of a tokenizer; `None` where nothing is proven.
    pub(super) fn of(tokenizer: &HfTokenizer, vocabulary: &HashMap<String, u32>) -> Option<Self> {
        let json = |part: Option<Value>| part.unwrap_or(Value::Null);
        let normalizer = json(tokenizer.get_normalizer().and_then(|n| serde_json::to_value(n).ok()));
        let cuts = json(tokenizer.get_pre_tokenizer().and_then(|p| serde_json::to_value(p).ok()));
        let ModelWrapper::BPE(bpe) = tokenizer.get_model() else { return None };
        let spelled = bpe.continuing_subword_prefix.is_none() && bpe.end_of_word_suffix.is_none();
        let byte_level = matches!(tokenizer.get_decoder(), Some(DecoderWrapper::ByteLevel(_)));
        if !spelled || !byte_level || !keeps_text(&normalizer) || !ends_in_bytes(&cuts) {
            return None;
        }
        // one that trims stands for more than its text, one that is normalised for another
        let added = tokenizer.get_added_tokens_decoder();
        if added.values().any(|t| t.lstrip || t.rstrip || t.normalized && !is_normal(tokenizer, &t.content)) {
            return None;
        }
        let mut single = [false; 256];
        for (byte, single) in (0..=u8::MAX).zip(&mut single) {
            *single = bpe.token_to_id(byte_to_char(byte).encode_utf8(&mut [0; 4])).is_some();
        }
        let (mut least, mut counts) = (Self { most: [0; 256], whole: 0 }, [0; 256]);
        for token in vocabulary.keys() {
            // an added token stands for itself, a normal one for the bytes it spells
            for bytes in [token.as_bytes(), &token_bytes(token)] {
                least.note(bytes, &single, &mut counts);
            }
        }
        Some(least)
    }

    /// Takes a token's bytes into account; `counts` is all zero before and after.
    fn note(&mut self, bytes: &[u8], single: &[bool; 256], counts: &mut [usize; 256]) {
        let held = bytes.iter().map(|b| usize::from(*b)).filter(|b| single[*b]);
        self.whole = self.whole.max(held.clone().count());
        for b in held.clone() {
            counts[b] += 1;
            self.most[b] = self.most[b].max(counts[b]);
        }
        // not the whole table: there are some hundred thousand tokens, of a few bytes each
        held.for_each(|b| counts[b] = 0);
    }

    /// A number of tokens that `text` is sure to have.
    pub(super) fn tokens(&self, text: &str) -> usize {
        let mut counts = [0usize; 256];
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let next = chars.peek();
            // what follows could be composed with it
            if is_settled(c) && next.is_none_or(|(_, next)| is_settled(*next)) {
                let end = next.map_or(text.len(), |(end, _)| *end);
                text.as_bytes()[at..end].iter().for_each(|b| counts[usize::from(*b)] += 1);
            }
        }
        let known = counts.iter().zip(self.most).filter(|(_, most)| *most > 0);
        let each = known.clone().map(|(n, most)| n.div_ceil(most)).max().unwrap_or(0);
        let all: usize = known.map(|(n, _)| n).sum();
        each.max(all.div_ceil(self.whole.max(1)))
    }
}

/// Whether the normaliser leaves `text` as it is.
fn is_normal(tokenizer: &HfTokenizer, text: &str) -> bool {
    let mut normal = NormalizedString::from(text);
    let done = tokenizer.get_normalizer().is_none_or(|n| n.normalize(&mut normal).is_ok());
    done && normal.get() == text
}

/// Nothing, or NFC.
fn keeps_text(normalizer: &Value) -> bool {
    match normalizer["type"].as_str() {
        None => normalizer.is_null(),
        Some("Sequence") => {
            normalizer["normalizers"].as_array().is_some_and(|all| all.iter().all(keeps_text))
        }
        Some(kind) => kind == "NFC",
    }
}

/// Cuts that drop nothing, the last of them to GPT-2's byte alphabet.
fn ends_in_bytes(cuts: &Value) -> bool {
    let keeps = |cut: &Value| match cut["type"].as_str() {
        Some("Split") => cut["behavior"].as_str().is_some_and(|b| b != "Removed"),
        Some(kind) => ["ByteLevel", "Digits"].contains(&kind),
        None => false,
    };
    let is_bytes = |cut: &Value| cut["type"] == "ByteLevel";
    match cuts["pretokenizers"].as_array() {
        Some(all) => all.iter().all(keeps) && all.iter().any(is_bytes),
        None => is_bytes(cuts),
    }
}

/// Characters that NFC leaves as they are when another of them, or nothing, follows: starters that are no second part of
/// a composition, in ranges without any exception (Unicode's `DerivedNormalizationProps`).
fn is_settled(c: char) -> bool {
    matches!(c,
        '\0'..='\u{2ff}' | '\u{400}'..='\u{482}' | '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fa}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{
        prompt::{PieceEncoder, Specials},
        text::{Tokenizer, TokenizerSpec, build::byte_to_char},
    };

    fn tokenizer(pre: &str, merges: &[&str]) -> Tokenizer {
        let mut tokens: Vec<String> = (0..=0xFF).map(|b| byte_to_char(b).to_string()).collect();
        tokens.extend(merges.iter().map(|m| m.replace(' ', "")));
        tokens.push("<|end|>".into());
        let mut token_types = vec![1; tokens.len()];
        token_types[tokens.len() - 1] = 3;
        token_types[7] = 5; // a byte that no token holds
        let merges = merges.iter().map(|m| (*m).into()).collect();
        let (model, pre) = ("gpt2".into(), Some(pre.into()));
        Tokenizer::from_spec(&TokenizerSpec {
            model,
            pre,
            tokens,
            token_types,
            merges,
            ..TokenizerSpec::default()
        })
        .unwrap()
    }

    #[test]
    fn no_text_has_fewer_tokens_than_the_bound() {
        let texts = [
            "the cat <|end|><|end|> ate the thethe",
            "e\u{301}e\u{301}\u{212a}\u{212a}\u{1100}\u{1161}\u{11a8} \u{3b9}\u{308}\u{301}",
            "\u{7}\u{7}\u{7}\u{7}",
            "日本語 Привет \u{438}\u{306} 각\u{11a8} が か\u{3099}",
            "aaaaaaaa    \n\n\n\t",
            "",
        ];
        for pre in ["gpt-2", "smollm", "qwen2", "llama-bpe"] {
            let tokenizer = tokenizer(pre, &["t h", "th e", "Ġ the", "a a", "aa aa", "Ġ Ġ"]);
            for text in texts.map(|t| t.repeat(3)) {
                for specials in [Specials::Plain, Specials::Parse] {
                    let real = tokenizer.encode(&text, specials).unwrap().ids.len();
                    let least = tokenizer.least_tokens(&text);
                    assert!(least <= real, "{pre} {text:?}: {least} > {real}");
                }
            }
        }
    }

    /// A byte-level `tokenizer.json` with parts of it replaced.
    fn folder(changes: &[(&str, serde_json::Value)]) -> Tokenizer {
        let vocab: serde_json::Map<_, _> =
            (0..=255u8).map(|b| (byte_to_char(b).to_string(), b.into())).collect();
        let level =
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true});
        let mut file = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": level, "post_processor": null, "decoder": level,
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                      "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab,
                      "merges": []},
        });
        for (at, value) in changes {
            *file.pointer_mut(at).unwrap() = value.clone();
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("tokenizer.json"), file.to_string()).unwrap();
        Tokenizer::from_json_file(dir.path().join("tokenizer.json")).unwrap()
    }

    #[test]
    fn where_tokens_do_not_spell_what_they_stand_for_nothing_is_said() {
        let word = json!({"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]"});
        let added = |content: &str| {
            json!([{"id": 256, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": true, "special": false}])
        };
        let nfc = ("/normalizer", json!({"type": "NFC"}));
        let text = "é and so on ".repeat(300);
        for (changes, says) in [
            (vec![], true),
            (vec![("/model", word)], false),
            (vec![("/model/end_of_word_suffix", json!("</w>"))], false),
            (vec![("/model/continuing_subword_prefix", json!("##"))], false),
            (vec![nfc.clone(), ("/added_tokens", added("e\u{301}e\u{301}"))], false),
            (vec![nfc, ("/added_tokens", added("\u{e9}\u{e9}"))], true),
            (vec![("/added_tokens", added("e\u{301}e\u{301}"))], true),
        ] {
            let tokenizer = folder(&changes);
            let (least, real) =
                (tokenizer.least_tokens(&text), tokenizer.encode(&text, Specials::Plain).unwrap().ids.len());
            assert!(least <= real, "{changes:?}: {least} > {real}");
            assert_eq!(least > 0, says, "{changes:?}");
        }
    }

    #[test]
    fn a_byte_that_only_an_added_token_spells_is_not_counted() {
        // the library drops it
        let others = (0..=255u8).filter(|b| *b != b'q').map(|b| byte_to_char(b).to_string());
        let vocab: serde_json::Map<_, _> = others.zip((0..255).map(serde_json::Value::from)).collect();
        let added = json!([{"id": 255, "content": "q", "single_word": true, "lstrip": false, "rstrip": false,
                            "normalized": false, "special": true}]);
        let tokenizer = folder(&[("/model/vocab", vocab.into()), ("/added_tokens", added)]);
        let text = "q".repeat(500);
        assert_eq!(tokenizer.encode(&text, Specials::Plain).unwrap().ids.len(), 0);
        assert_eq!(tokenizer.least_tokens(&text), 0);
    }

    #[test]
    fn the_bound_is_worth_something() {
        for pre in ["gpt-2", "qwen2"] {
            let tokenizer = tokenizer(pre, &["t h", "th e"]);
            assert_eq!(tokenizer.least_tokens(&"x".repeat(1000)), 1000);
            assert_eq!(tokenizer.least_tokens(&"the".repeat(1000)), 1000);
            assert!(tokenizer.least_tokens(&"日本".repeat(1000)) >= 857, "six bytes in seven at least");
        }
    }
}
