//! Rebuilds a byte-level BPE tokenizer from plain data: same splits, same merges, same ids as the original.
//!
//! Owns the table of pre-tokenizers. One that is not in the table is refused: a near miss would give a model
//! token ids it was not trained on. Tests: here and in `tests/tokenizer_conformance.rs`.

use tokenizers::{
    AddedToken, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer as HfTokenizer,
    models::bpe::{BPE, Vocab},
    normalizers::unicode::NFC,
    pre_tokenizers::{
        byte_level::ByteLevel,
        digits::Digits,
        sequence::Sequence,
        split::{Split, SplitPattern},
    },
};

use super::{TokenType, TokenizerError, TokenizerSpec, shown};
/// The pre-tokenizers that can be rebuilt, by their GGUF names.
pub(super) const SUPPORTED_PRE: [&str; 7] =
    ["gpt-2", "default", "smollm", "qwen2", "llama-bpe", "llama3", "llama-v3"];

/// How text is cut into words before merging. `digits` is the longest run of digits kept together.
fn cl100k_style(digits: &str) -> String {
    format!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
}

/// What a pre-tokenizer's name stands for.
struct Pipeline {
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: PreTokenizerWrapper,
    /// A word that is a vocabulary entry is that entry, whatever the merges say.
    ignore_merges: bool,
    /// Whether BOS is added when the file does not say.
    adds_bos: bool,
}

fn pipeline(pre: Option<&str>) -> Result<Pipeline, TokenizerError> {
    let split = |pattern: String| {
        let split = Split::new(SplitPattern::Regex(pattern), SplitDelimiterBehavior::Isolated, false)
            .expect("the patterns of this module compile: this is a bug");
        let bytes = ByteLevel::new(false, false, false);
        PreTokenizerWrapper::from(Sequence::new(vec![split.into(), bytes.into()]))
    };
    let gpt2 = || PreTokenizerWrapper::from(ByteLevel::new(false, false, true));
    let plain =
        |pre_tokenizer| Pipeline { normalizer: None, pre_tokenizer, ignore_merges: false, adds_bos: false };
    Ok(match pre {
        Some("gpt-2" | "default") => plain(gpt2()),
        Some("smollm") => {
            let digits = PreTokenizerWrapper::from(Digits::new(true));
            plain(Sequence::new(vec![digits, gpt2()]).into())
        }
        Some("qwen2") => Pipeline { normalizer: Some(NFC.into()), ..plain(split(cl100k_style(r"\p{N}"))) },
        Some("llama-bpe" | "llama3" | "llama-v3") => {
            Pipeline { ignore_merges: true, adds_bos: true, ..plain(split(cl100k_style(r"\p{N}{1,3}"))) }
        }
        other => {
            return Err(TokenizerError::PreTokenizer { pre: other.map(|p| format!("\"{}\"", shown(p))) });
        }
    })
}

/// A rebuilt tokenizer and what the data said beside it.
pub(super) struct Built {
    pub(super) tokenizer: HfTokenizer,
    pub(super) adds_bos: bool,
}

pub(super) fn build(spec: &TokenizerSpec) -> Result<Built, TokenizerError> {
    if spec.model != "gpt2" {
        return Err(TokenizerError::Model { model: shown(&spec.model) });
    }
    let pipeline = pipeline(spec.pre.as_deref())?;
    let types = token_types(spec)?;
    let vocabulary = vocabulary(spec, &types)?;
    let merges = merges(spec, &vocabulary)?;
    let model = BPE::builder()
        .vocab_and_merges(vocabulary, merges)
        .ignore_merges(pipeline.ignore_merges)
        .build()
        .map_err(|e| data(format!("the merges do not fit the vocabulary: {}", shown(&e.to_string()))))?;
    let mut tokenizer = HfTokenizer::new(model);
    tokenizer.with_normalizer(pipeline.normalizer).map_err(|e| data(e.to_string()))?;
    tokenizer.with_pre_tokenizer(Some(pipeline.pre_tokenizer));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    let added = spec.tokens.iter().zip(&types).filter_map(|(text, kind)| match kind {
        TokenType::Control => Some(AddedToken::from(text.clone(), true)),
        // Matched before normalisation, as the originals declare them.
        TokenType::UserDefined => Some(AddedToken::from(text.clone(), false).normalized(false)),
        TokenType::Normal | TokenType::Unused => None,
    });
    tokenizer.add_tokens(added).map_err(|e| data(e.to_string()))?;
    Ok(Built { tokenizer, adds_bos: spec.add_bos.unwrap_or(pipeline.adds_bos && spec.bos.is_some()) })
}

fn data(reason: String) -> TokenizerError {
    TokenizerError::Data { reason }
}

/// The types by id, with the named start and end tokens made control tokens whatever their type says.
fn token_types(spec: &TokenizerSpec) -> Result<Vec<TokenType>, TokenizerError> {
    if spec.token_types.len() != spec.tokens.len() {
        let (types, tokens) = (spec.token_types.len(), spec.tokens.len());
        return Err(data(format!("{types} token types for {tokens} tokens")));
    }
    let mut types = spec
        .token_types
        .iter()
        .enumerate()
        .map(|(id, &code)| {
            TokenType::from_gguf(code).ok_or_else(|| data(format!("token {id} has the unknown type {code}")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    for &id in spec.bos.iter().chain(&spec.eos) {
        let kind = types.get_mut(id as usize);
        *kind.ok_or_else(|| {
            data(format!("token {id} is named, but the vocabulary has {} tokens", spec.tokens.len()))
        })? = TokenType::Control;
    }
    Ok(types)
}

fn vocabulary(spec: &TokenizerSpec, types: &[TokenType]) -> Result<Vocab, TokenizerError> {
    let mut vocabulary = Vocab::with_capacity(spec.tokens.len());
    for (id, text) in (0..).zip(&spec.tokens).filter(|(id, _)| types[*id as usize] != TokenType::Unused) {
        if let Some(first) = vocabulary.insert(text.clone(), id) {
            return Err(data(format!("tokens {first} and {id} are both \"{}\"", shown(text))));
        }
    }
    // The original library drops bytes without a token, and real vocabularies lack some control characters.
    // One that lacks readable text is none of this kind.
    let missing =
        (b' '..=b'~').chain([b'\n']).map(byte_to_char).find(|c| !vocabulary.contains_key(&c.to_string()));
    match missing {
        None => Ok(vocabulary),
        Some(c) => Err(data(format!("no token for {c:?} of the byte alphabet: text would be lost"))),
    }
}

/// The merges as pairs. What a merge makes must be in the vocabulary: the library says so too, but panics where that is
/// longer than all there is.
fn merges(spec: &TokenizerSpec, vocabulary: &Vocab) -> Result<Vec<(String, String)>, TokenizerError> {
    let longest = vocabulary.keys().map(String::len).max().unwrap_or(0);
    let pair = |(rank, merge): (usize, &String)| match merge.split_once(' ') {
        Some((a, b)) if !a.is_empty() && !b.is_empty() && !b.contains(' ') => {
            if a.len() + b.len() > longest {
                return Err(data(format!(
                    "merge {rank}, \"{}\", makes a token that is not in the vocabulary",
                    shown(merge)
                )));
            }
            Ok((a.into(), b.into()))
        }
        _ => {
            Err(data(format!("merge {rank}, \"{}\", is not two tokens with one space between", shown(merge))))
        }
    };
    spec.merges.iter().enumerate().map(pair).collect()
}

/// GPT-2's alphabet, which writes every byte as one printable character: printable bytes stand for
/// themselves, the others for the characters from U+0100 on, in order.
pub(super) fn byte_to_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        byte.into()
    } else {
        let before = (0..byte).filter(|&b| !printable(b)).count() as u32;
        char::from_u32(0x100 + before).expect("U+0100 to U+01FF are characters: this is a bug")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// A vocabulary of all bytes, the given merges' results, and the given added tokens.
    fn spec(pre: &str, merges: &[&str], added: &[(&str, u32)]) -> TokenizerSpec {
        let mut tokens: Vec<String> = (0..=0xFF).map(|b| byte_to_char(b).to_string()).collect();
        tokens.extend(merges.iter().map(|m| m.replace(' ', "")));
        let mut token_types = vec![1; tokens.len()];
        for (text, kind) in added {
            tokens.push((*text).into());
            token_types.push(*kind);
        }
        TokenizerSpec {
            model: "gpt2".into(),
            pre: Some(pre.into()),
            tokens,
            token_types,
            merges: merges.iter().map(|m| (*m).into()).collect(),
            ..TokenizerSpec::default()
        }
    }

    fn words(pre: &str, text: &str) -> Vec<String> {
        use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};
        let mut cut = PreTokenizedString::from(text);
        pipeline(Some(pre)).unwrap().pre_tokenizer.pre_tokenize(&mut cut).unwrap();
        let splits = cut.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(_, (a, b), _)| text[a..b].to_string()).collect()
    }

    #[test]
    fn every_pre_tokenizer_cuts_as_its_original() {
        let text = "I'LL pay 12345 €\u{200b}now!!\r\n\n  ok";
        let cut = |pre| words(pre, text).join("|");
        assert_eq!(cut("gpt-2"), "I|'|LL| pay| 12345| €\u{200b}|now|!!|\r\n\n | ok");
        assert_eq!(cut("smollm"), "I|'|LL| pay| |1|2|3|4|5| €\u{200b}|now|!!|\r\n\n | ok");
        assert_eq!(cut("qwen2"), "I|'LL| pay| |1|2|3|4|5| €\u{200b}|now|!!\r\n\n| | ok");
        assert_eq!(cut("llama-bpe"), "I|'LL| pay| |123|45| €\u{200b}|now|!!\r\n\n| | ok");
    }

    /// As long as the longest run of white space that `Tokenizer` lets through; other runs have no limit.
    #[test]
    fn very_long_runs_are_cut_right() {
        for pre in ["gpt-2", "smollm", "qwen2", "llama-bpe"] {
            for (run, times) in
                [(" ", 500_000), ("\n", 500_000), (" \n", 250_000), ("!", 1 << 21), ("a", 1 << 21)]
            {
                let text = run.repeat(times) + "q x";
                let cut = words(pre, &text);
                assert_eq!(cut.concat(), text);
                assert_eq!(cut.last().unwrap(), " x", "{pre} did not reach the end of a long run of {run:?}");
            }
        }
    }

    #[test]
    fn llama_takes_whole_words_before_merges() {
        let mut spec = spec("llama-bpe", &["a b"], &[("abc", 1)]);
        let ids = |spec: &TokenizerSpec, text: &str| {
            build(spec).unwrap().tokenizer.encode(text, false).unwrap().get_ids().to_vec()
        };
        assert_eq!(ids(&spec, "abc"), [257], "the word abc is in the vocabulary");
        assert_eq!(ids(&spec, "abcd").len(), 3, "the word abcd is not");
        spec.pre = Some("gpt-2".into());
        assert_eq!(ids(&spec, "abc").len(), 2, "GPT-2 has only merges");
    }

    #[test]
    fn what_cannot_be_rebuilt_is_refused_with_a_way_out() {
        let error = |spec: &TokenizerSpec| build(spec).err().unwrap().to_string();
        let good = spec("qwen2", &["a b"], &[("<|x|>", 3)]);
        assert!(build(&good).is_ok());

        let other = TokenizerSpec { model: "llama".into(), ..good.clone() };
        assert!(error(&other).contains("tokenizer.json"), "{}", error(&other));
        for pre in [None, Some("tekken".to_string()), Some(String::new())] {
            let said = error(&TokenizerSpec { pre: pre.clone(), ..good.clone() });
            assert!(
                said.contains("qwen2") && said.contains("smollm") && said.contains("tokenizer.json"),
                "{said}"
            );
            assert!(pre.is_none_or(|p| said.contains(&p)));
        }
        let mut broken = good.clone();
        broken.token_types.pop();
        assert!(error(&broken).contains("256") || error(&broken).contains("257"), "{}", error(&broken));
        let mut broken = good.clone();
        broken.token_types[3] = 9;
        assert!(error(&broken).contains("token 3"));
        let broken = TokenizerSpec { eos: vec![9999], ..good.clone() };
        assert!(error(&broken).contains("9999"));
        for merge in ["ab", "a  b", "a b c", " b", "a ", "q zz"] {
            let broken = TokenizerSpec { merges: vec![merge.into()], ..good.clone() };
            assert!(matches!(build(&broken), Err(TokenizerError::Data { .. })), "{merge:?} was accepted");
        }
        // the library would panic at this one
        let said = error(&TokenizerSpec { merges: vec!["<|x|> <|x|>".into()], ..good.clone() });
        assert!(
            said.contains("merge 0, \"<|x|> <|x|>\"") && said.contains("not in the vocabulary"),
            "{said}"
        );
        let mut broken = good.clone();
        broken.tokens[5] = broken.tokens[6].clone();
        assert!(error(&broken).contains("tokens 5 and 6"));
        let mut broken = good;
        broken.token_types[usize::from(b'e')] = 5;
        assert!(error(&broken).contains("no token for 'e'"), "{}", error(&broken));
    }

    #[test]
    fn a_control_character_without_a_token_is_dropped_as_in_the_original() {
        let mut lacking = spec("smollm", &[], &[]);
        lacking.token_types[4] = 5;
        let encoding = build(&lacking).unwrap().tokenizer.encode("a\u{4}b", false).unwrap();
        assert_eq!((encoding.get_ids(), encoding.get_offsets()), (&[97, 98][..], &[(0, 1), (2, 3)][..]));
    }

    #[test]
    fn the_byte_alphabet_is_gpt2s() {
        let alphabet: HashSet<char> = (0..=0xFF).map(byte_to_char).collect();
        assert_eq!(alphabet, ByteLevel::alphabet().into_iter().collect());
        assert_eq!((byte_to_char(b' '), byte_to_char(b'\n'), byte_to_char(b'A')), ('Ġ', 'Ċ', 'A'));
    }
}
