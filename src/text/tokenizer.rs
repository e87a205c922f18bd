//! The tokenizer the rest of the server holds: encode with offsets, decode, end tokens, identity.

use std::{
    collections::HashSet,
    fmt,
    path::Path,
    sync::{Arc, OnceLock},
};

use sha2::{Digest, Sha256};
use tokenizers::{DecoderWrapper, Tokenizer as HfTokenizer};

use super::{TokenizerError, TokenizerSpec, build, error::guarded, folder, least::Least};
use crate::{
    ids::{Span, TokenId},
    prompt::{EncodeError, Encoded, PieceEncoder, Specials},
};

/// Control tokens that end a turn in every model that has them.
const END_TOKENS: [&str; 6] =
    ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>"];

/// Longest run of white space encoded, in characters. From 999,999 on the regex engine gives up and the library
/// keeps all that follows as one word, with other ids than the original's.
const MAX_WHITESPACE: usize = 500_000;

/// Text whose ids tell tokenizers with equal vocabularies apart: case, digits, runs of spaces and newlines,
/// contractions, normalisation, symbols, control tokens.
const PROBE: &str = "Hello  World\t12345 3.14\r\n\n\n   it's I'LL\u{a0}x e\u{301} \u{1100}\u{1161}\u{11a8} \u{fb01} ½\
    日本語 Привет مرحبا 👩‍👧 \u{feff}\u{200d} !!?... a_b-c <|im_end|><|endoftext|><tool_call><think></s> \n";

/// A model's own tokenizer. Cheap to clone; shared between threads.
#[derive(Clone)]
pub struct Tokenizer(Arc<Inner>);

struct Inner {
    /// Control tokens in the text are parsed.
    parse: HfTokenizer,
    /// Control tokens in the text are characters.
    plain: HfTokenizer,
    control: HashSet<TokenId>,
    bos: Option<TokenId>,
    eos: Vec<TokenId>,
    adds_bos: bool,
    chat_template: Option<String>,
    vocab_size: usize,
    least: Option<Least>,
    hash: OnceLock<String>,
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Rebuilds the tokenizer a weight file describes. Fails for a model or pre-tokenizer that is not in the
    /// table of `build`, and for data that contradicts itself.
    pub fn from_spec(spec: &TokenizerSpec) -> Result<Self, TokenizerError> {
        let load = || {
            let built = build::build(spec)?;
            Ok(Self::new(folder::Folder {
                tokenizer: built.tokenizer,
                bos: spec.bos,
                eos: spec.eos.clone(),
                adds_bos: built.adds_bos,
                chat_template: spec.chat_template.clone(),
            }))
        };
        guarded(load, |reason| TokenizerError::Data { reason })
    }

    /// Reads a Hugging Face `tokenizer.json` and the configuration files beside it (see `folder`). Its
    /// truncation, padding and post-processing are left out: text is encoded whole and nothing is added.
    pub fn from_json_file(path: impl AsRef<Path>) -> Result<Self, TokenizerError> {
        let path = path.as_ref();
        let failed = |reason| TokenizerError::File { file: path.into(), reason };
        guarded(|| Ok(Self::new(folder::read(path)?)), failed)
    }

    fn new(from: folder::Folder) -> Self {
        let folder::Folder { tokenizer: parse, bos, mut eos, adds_bos, chat_template } = from;
        let added = parse.get_added_tokens_decoder();
        let control: HashSet<_> = added.iter().filter(|(_, t)| t.special).map(|(&id, _)| id).collect();
        let known = END_TOKENS.iter().filter_map(|text| parse.token_to_id(text));
        eos.extend(known.filter(|id| control.contains(id)));
        let mut seen = HashSet::new();
        eos.retain(|&id| seen.insert(id));
        let vocabulary = parse.get_vocab(true);
        let least = Least::of(&parse, &vocabulary);
        let vocab_size = vocabulary.values().max().map_or(0, |&id| id as usize + 1);
        let mut plain = parse.clone();
        plain.set_encode_special_tokens(true);
        let hash = OnceLock::new();
        Self(Arc::new(Inner {
            parse,
            plain,
            control,
            bos,
            eos,
            adds_bos,
            chat_template,
            vocab_size,
            least,
            hash,
        }))
    }

    /// The text of `ids`. Bytes that are not UTF-8 become U+FFFD, ids outside the vocabulary nothing.
    /// With `skip_special`, control tokens become nothing.
    #[must_use]
    pub fn decode(&self, ids: &[TokenId], skip_special: bool) -> String {
        let shown: Vec<_> =
            ids.iter().copied().filter(|&id| !(skip_special && self.is_control(id))).collect();
        self.0.parse.decode(&shown, false).expect("the library's decoders never fail: this is a bug")
    }

    /// The vocabulary entry of `id`: control tokens as they are written, others in the model's own alphabet.
    #[must_use]
    pub fn id_to_token(&self, id: TokenId) -> Option<String> {
        self.0.parse.id_to_token(id)
    }

    /// The bytes that `id` stands for in a text: with byte-level vocabularies perhaps a part of a character. Control
    /// tokens are as they are written.
    #[must_use]
    pub fn token_bytes(&self, id: TokenId) -> Vec<u8> {
        match self.id_to_token(id) {
            Some(token) if self.is_byte_level() => super::stream::token_bytes(&token),
            _ => self.decode(&[id], false).into_bytes(),
        }
    }

    /// A number of tokens that `text` has at least, without tokenising it; 0 where that is not known. Also holds for a
    /// text that is cut in pieces and encoded piece by piece.
    #[must_use]
    pub fn least_tokens(&self, text: &str) -> usize {
        self.0.least.as_ref().map_or(0, |least| least.tokens(text))
    }

    /// The id of a vocabulary entry.
    #[must_use]
    pub fn token_to_id(&self, token: &str) -> Option<TokenId> {
        self.0.parse.token_to_id(token)
    }

    /// One more than the largest id with a token. A model's logits may be wider, never narrower.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.0.vocab_size
    }

    /// Whether `id` is a control token, which only template text may produce.
    #[must_use]
    pub fn is_control(&self, id: TokenId) -> bool {
        self.0.control.contains(&id)
    }

    /// The beginning-of-sequence token.
    #[must_use]
    pub fn bos(&self) -> Option<TokenId> {
        self.0.bos
    }

    /// Every token that ends a generation, the model's main one first.
    #[must_use]
    pub fn eos_ids(&self) -> &[TokenId] {
        &self.0.eos
    }

    /// Whether the model's sequences start with [`bos`](Self::bos). Encoding never adds it: who lays out the
    /// prompt does, unless the template's text already has it.
    #[must_use]
    pub fn adds_bos(&self) -> bool {
        self.0.adds_bos
    }

    /// The source of the model's chat template.
    #[must_use]
    pub fn chat_template(&self) -> Option<&str> {
        self.0.chat_template.as_deref()
    }

    /// `sha256:` and 64 hexadecimal digits, bound to behaviour: every id with its token, and the ids of an
    /// awkward text in both modes. A weight file and the equal `tokenizer.json` hash alike.
    #[must_use]
    pub fn hash(&self) -> &str {
        self.0.hash.get_or_init(|| {
            let mut vocabulary: Vec<_> = self.0.parse.get_vocab(true).into_iter().collect();
            vocabulary.sort_unstable_by_key(|(_, id)| *id);
            let mut sha = Sha256::new();
            for (token, id) in vocabulary {
                sha.update(id.to_le_bytes());
                sha.update((token.len() as u64).to_le_bytes());
                sha.update(token);
            }
            for specials in [Specials::Parse, Specials::Plain] {
                // An encoder that refuses the probe is a behaviour too.
                let ids = self.encode(PROBE, specials).map_or_else(|_| Vec::new(), |e| e.ids);
                sha.update((ids.len() as u64).to_le_bytes());
                ids.iter().for_each(|id| sha.update(id.to_le_bytes()));
            }
            sha.finalize().iter().fold("sha256:".into(), |hex, byte| hex + &format!("{byte:02x}"))
        })
    }

    /// Whether decoding is byte by byte in GPT-2's alphabet, so that [`token_bytes`](Self::token_bytes) says exactly what
    /// a token adds to any text.
    #[must_use]
    pub fn is_byte_level(&self) -> bool {
        matches!(self.0.parse.get_decoder(), Some(DecoderWrapper::ByteLevel(_)))
    }
}

/// Ids and offsets are those of the original library, which drops bytes the vocabulary has no token for (some
/// control characters in SmolLM2's) and normalises first where the model does (Qwen 2: NFC).
impl PieceEncoder for Tokenizer {
    fn encode(&self, text: &str, specials: Specials) -> Result<Encoded, EncodeError> {
        let error = |reason: String| EncodeError { chars: text.chars().count(), reason };
        if has_endless_whitespace(text) {
            return Err(error(format!(
                "more than {MAX_WHITESPACE} characters of white space in a row; shorten them"
            )));
        }
        let tokenizer = match specials {
            Specials::Parse => &self.0.parse,
            Specials::Plain => &self.0.plain,
        };
        let encoding = tokenizer.encode_char_offsets(text, false).map_err(|e| error(e.to_string()))?;
        let ids = encoding.get_ids().to_vec();
        if specials == Specials::Plain
            && let Some(&id) = ids.iter().find(|id| self.is_control(**id))
        {
            // A vocabulary whose merges spell a control token; none is known, and none may pass unseen.
            let token = self.id_to_token(id).unwrap_or_default();
            return Err(error(format!("plain text would become the control token {token:?}")));
        }
        let offsets = encoding.get_offsets().iter().map(|&(start, end)| Span::new(start, end)).collect();
        Ok(Encoded { ids, offsets })
    }
}

fn has_endless_whitespace(text: &str) -> bool {
    let mut run = 0;
    text.len() > MAX_WHITESPACE
        && text.chars().any(|c| {
            run = if c.is_whitespace() { run + 1 } else { 0 };
            run > MAX_WHITESPACE
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::build::byte_to_char;

    #[test]
    fn white_space_the_regex_engine_cannot_take_is_refused() {
        for pre in ["gpt-2", "qwen2"] {
            let tokens: Vec<_> = (0..=0xFF).map(|b| byte_to_char(b).to_string()).collect();
            let (model, pre, token_types) = ("gpt2".into(), Some(pre.into()), vec![1; tokens.len()]);
            let spec = TokenizerSpec { model, pre, tokens, token_types, ..TokenizerSpec::default() };
            let tokenizer = Tokenizer::from_spec(&spec).unwrap();
            let run = |n: usize| tokenizer.encode(&format!("a{}b", " \n".repeat(n / 2)), Specials::Plain);
            assert_eq!(run(MAX_WHITESPACE).unwrap().ids.len(), MAX_WHITESPACE + 2);
            let error = run(MAX_WHITESPACE + 2).unwrap_err();
            assert!(error.to_string().contains("white space in a row"), "{error}");
        }
    }
}
