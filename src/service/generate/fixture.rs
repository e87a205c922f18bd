//! A tokenizer for tests.
#![allow(clippy::unwrap_used)]

use crate::text::{Tokenizer, TokenizerSpec};

/// Every byte is a token; 256 is a control token.
pub(super) fn tokenizer() -> Tokenizer {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut others = 256u32..;
    let alphabet = (0..=255u8).map(|b| {
        let code = if printable(b) { u32::from(b) } else { others.next().unwrap() };
        char::from_u32(code).unwrap().to_string()
    });
    let mut tokens: Vec<String> = alphabet.collect();
    tokens.push("<|end|>".into());
    let token_types = [vec![1; 256], vec![3]].concat();
    let (model, pre) = ("gpt2".into(), Some("gpt-2".into()));
    Tokenizer::from_spec(&TokenizerSpec { model, pre, tokens, token_types, ..Default::default() }).unwrap()
}
