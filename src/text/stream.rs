//! Text from tokens, one token at a time: never half a character, and in sum exactly the text of all tokens.

use super::{Tokenizer, build::byte_to_char};
use crate::ids::TokenId;

/// Turns a growing sequence of tokens into text as early as it is certain.
#[derive(Debug)]
pub struct TokenStream {
    tokenizer: Tokenizer,
    skip_special: bool,
    held: Held,
}

/// What was pushed and not yet given out.
#[derive(Debug)]
enum Held {
    /// Byte-level vocabularies: the bytes of an unfinished character.
    Bytes(Vec<u8>),
    /// Others, whose decoders look at neighbours: the last tokens. `shown` of them are already given out and
    /// stay as context for the others.
    Tokens { ids: Vec<TokenId>, shown: usize },
}

impl TokenStream {
    /// A stream from scratch. With `skip_special`, control tokens become nothing.
    #[must_use]
    pub fn new(tokenizer: &Tokenizer, skip_special: bool) -> Self {
        let held = if tokenizer.is_byte_level() {
            Held::Bytes(Vec::new())
        } else {
            Held::Tokens { ids: Vec::new(), shown: 0 }
        };
        Self { tokenizer: tokenizer.clone(), skip_special, held }
    }

    /// The text that `id` completes, or `None` while a character, or for some vocabularies a run of byte
    /// tokens, is unfinished. Never an empty text.
    pub fn push(&mut self, id: TokenId) -> Option<String> {
        let token = self.tokenizer.id_to_token(id)?;
        if self.skip_special && self.tokenizer.is_control(id) {
            return None;
        }
        let text = match &mut self.held {
            Held::Bytes(bytes) => {
                bytes.extend(token_bytes(&token));
                take_finished(bytes)
            }
            Held::Tokens { ids, shown } => {
                ids.push(id);
                let text = self.tokenizer.decode(ids, false);
                if text.ends_with(char::REPLACEMENT_CHARACTER) || is_byte_token(&token) {
                    return None;
                }
                let before = self.tokenizer.decode(&ids[..*shown], false).len();
                let new = text[before..].to_string();
                // The next round needs some text before its own, for decoders that strip a first space.
                if !self.tokenizer.decode(&ids[*shown..], false).is_empty() {
                    ids.drain(..*shown);
                }
                *shown = ids.len();
                new
            }
        };
        (!text.is_empty()).then_some(text)
    }

    /// What is still held when no token follows: unfinished characters as U+FFFD.
    #[must_use]
    pub fn finish(self) -> String {
        match self.held {
            Held::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Held::Tokens { ids, shown } => {
                let before = self.tokenizer.decode(&ids[..shown], false).len();
                self.tokenizer.decode(&ids, false)[before..].to_string()
            }
        }
    }
}

/// The bytes of a byte-level token; a token with characters outside the alphabet stands for itself.
pub(super) fn token_bytes(token: &str) -> Vec<u8> {
    let byte = |c: char| match c as u32 {
        code @ 0..=0xFF if byte_to_char(code as u8) == c => Some(code as u8),
        0x100..=0x1FF => (0..=0xFF).find(|&b| byte_to_char(b) == c),
        _ => None,
    };
    token.chars().map(byte).collect::<Option<_>>().unwrap_or_else(|| token.as_bytes().to_vec())
}

/// Takes everything but an unfinished last character out of `bytes`; what can never become a character
/// turns into U+FFFD exactly as in `String::from_utf8_lossy`.
fn take_finished(bytes: &mut Vec<u8>) -> String {
    let unfinished = match bytes.utf8_chunks().last().map(|chunk| chunk.invalid()) {
        Some(tail) if std::str::from_utf8(tail).is_err_and(|e| e.error_len().is_none()) => tail.len(),
        _ => 0,
    };
    let rest = bytes.split_off(bytes.len() - unfinished);
    String::from_utf8_lossy(&std::mem::replace(bytes, rest)).into_owned()
}

/// Whether a token is a single byte, `<0x0A>`. Decoders look at whole runs of them.
fn is_byte_token(token: &str) -> bool {
    let hex = token.strip_prefix("<0x").and_then(|t| t.strip_suffix('>'));
    hex.is_some_and(|h| h.len() == 2 && u8::from_str_radix(h, 16).is_ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::TokenizerSpec;

    /// All bytes, some pieces of characters, an ordinary and a control token.
    fn byte_level() -> Tokenizer {
        let spell = |bytes: &[u8]| bytes.iter().map(|&b| byte_to_char(b)).collect::<String>();
        let mut tokens: Vec<String> = (0..=0xFF).map(|b| spell(&[b])).collect();
        tokens.extend(["é", " 語", "👩"].map(|t| spell(t.as_bytes())));
        tokens.push(spell(&[b'x', 0xF0, 0x9F])); // a token may end inside a character
        let mut token_types = vec![1; tokens.len()];
        for (text, kind) in [("<tool>", 4), ("<|x|>", 3), ("<end é>", 3), ("[PAD]", 5)] {
            tokens.push(text.into());
            token_types.push(kind);
        }
        let (model, pre) = ("gpt2".into(), Some("gpt-2".into()));
        Tokenizer::from_spec(&TokenizerSpec { model, pre, tokens, token_types, ..Default::default() })
            .unwrap()
    }

    /// A sentencepiece-like vocabulary, whose decoder looks at runs of byte tokens and strips a first space.
    fn sentencepiece() -> Tokenizer {
        let mut vocab: Vec<String> = (0..=0xFFu32).map(|b| format!("<0x{b:02X}>")).collect();
        vocab.extend(["▁", "▁▁", "▁a", "b", "é", "語", "\u{fffd}", "▁the"].map(Into::into));
        let vocab: serde_json::Map<_, _> =
            vocab.into_iter().zip(0u32..).map(|(t, id)| (t, id.into())).collect();
        let json = serde_json::json!({
            "version": "1.0",
            "added_tokens": [{"id": 264, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                              "normalized": false, "special": true}],
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "byte_fallback": true, "vocab": vocab, "merges": []},
        });
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        std::fs::write(&path, json.to_string()).unwrap();
        Tokenizer::from_json_file(&path).unwrap()
    }

    fn pushes(tokenizer: &Tokenizer, ids: &[TokenId], skip_special: bool) -> (Vec<Option<String>>, String) {
        let mut stream = TokenStream::new(tokenizer, skip_special);
        (ids.iter().map(|&id| stream.push(id)).collect(), stream.finish())
    }

    fn whole(tokenizer: &Tokenizer, ids: &[TokenId], skip_special: bool) -> String {
        let (parts, rest) = pushes(tokenizer, ids, skip_special);
        assert!(parts.iter().all(|p| p.as_deref() != Some("")), "an empty text is None");
        parts.into_iter().flatten().chain([rest]).collect()
    }

    #[test]
    fn a_character_comes_with_its_last_byte() {
        let t = byte_level();
        let bytes: Vec<_> = "a語".bytes().map(TokenId::from).collect();
        let (parts, rest) = pushes(&t, &bytes, false);
        assert_eq!(parts, [Some("a".into()), None, None, Some("語".into())]);
        assert_eq!(rest, "");
        let (parts, rest) = pushes(&t, &bytes[..3], false);
        assert_eq!(
            (parts.into_iter().flatten().collect::<String>(), rest.as_str()),
            ("a".into(), "\u{fffd}")
        );
    }

    #[test]
    fn what_can_never_become_a_character_is_not_held() {
        let (parts, rest) = pushes(&byte_level(), &[0xE8, 0xE8, b'a'.into(), 0xFF], false);
        let bad = "\u{fffd}";
        assert_eq!(parts, [None, Some(bad.into()), Some(format!("{bad}a")), Some(bad.into())]);
        assert_eq!(rest, "");
    }

    #[test]
    fn control_tokens_show_or_not_as_asked() {
        let t = byte_level();
        let ids: Vec<_> =
            ["<tool>", "<|x|>", "<end é>", "a"].iter().map(|x| t.token_to_id(x).unwrap()).collect();
        assert_eq!(whole(&t, &ids, true), "<tool>a");
        assert_eq!(whole(&t, &ids, false), "<tool><|x|><end é>a");
        assert_eq!(
            whole(&t, &[9_999_999, 97, t.vocab_size() as u32 - 1], false),
            "a<end é>".replace("<end é>", &t.decode(&[t.vocab_size() as u32 - 1], false))
        );
    }

    #[test]
    fn spaces_of_sentencepiece_tokens_survive() {
        let t = sentencepiece();
        let ids: Vec<_> =
            ["▁the", "▁a", "<s>", "▁the", "<0x0A>", "b"].iter().map(|x| t.token_to_id(x).unwrap()).collect();
        let (parts, _) = pushes(&t, &ids, true);
        assert_eq!(
            parts.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>(),
            ["the", " a", "", " the", "", "\nb"]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]
        #[test]
        fn pushes_add_up_to_the_whole_text(
            picks in prop::collection::vec((0u32..300, any::<bool>()), 0..24),
            high in prop::collection::vec(0x80u32..0x100, 0..6),
            skip_special: bool,
        ) {
            for t in [byte_level_once(), sentencepiece_once()] {
                let size = t.vocab_size() as u32;
                // Half of the tokens from the end of the vocabulary, where the longer ones are.
                let mut ids: Vec<_> = picks.iter().map(|&(n, late)| if late { size - 1 - n % 12 } else { n }).collect();
                ids.extend(&high);
                prop_assert_eq!(whole(t, &ids, skip_special), t.decode(&ids, skip_special), "{:?}", ids);
            }
        }
    }

    fn byte_level_once() -> &'static Tokenizer {
        static ONCE: std::sync::OnceLock<Tokenizer> = std::sync::OnceLock::new();
        ONCE.get_or_init(byte_level)
    }

    fn sentencepiece_once() -> &'static Tokenizer {
        static ONCE: std::sync::OnceLock<Tokenizer> = std::sync::OnceLock::new();
        ONCE.get_or_init(sentencepiece)
    }
}
