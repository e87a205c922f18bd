//! A tokenizer as plain data, the way a weight file carries it.

use crate::ids::TokenId;

/// The role of one vocabulary entry, by GGUF's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenType {
    /// Made by merges from text.
    Normal,
    /// Control token: only template text may produce it, and it is never shown.
    Control,
    /// Added by the model's makers and found in any text, such as `<tool_call>`.
    UserDefined,
    /// A hole in the vocabulary: never produced, never shown.
    Unused,
}

impl TokenType {
    /// From GGUF's numbers: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    /// The unknown token counts as control (no text spells it), a byte as normal.
    #[must_use]
    pub fn from_gguf(code: u32) -> Option<Self> {
        match code {
            1 | 6 => Some(Self::Normal),
            2 | 3 => Some(Self::Control),
            4 => Some(Self::UserDefined),
            5 => Some(Self::Unused),
            _ => None,
        }
    }
}

/// A tokenizer as plain data: of what GGUF metadata holds, what is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenizerSpec {
    /// The kind of tokenizer; `gpt2` is byte-level BPE.
    pub model: String,
    /// The pre-tokenizer's name, such as `qwen2`.
    pub pre: Option<String>,
    /// Token texts by id; normal tokens in GPT-2's byte alphabet, the others as they are written.
    pub tokens: Vec<String>,
    /// GGUF token types by id (see [`TokenType::from_gguf`]); as long as `tokens`.
    pub token_types: Vec<u32>,
    /// Merges in rank order, each two token texts with one space between.
    pub merges: Vec<String>,
    /// Beginning-of-sequence token.
    pub bos: Option<TokenId>,
    /// The end tokens the file names, the main one first.
    pub eos: Vec<TokenId>,
    /// Whether sequences start with `bos`, if stated.
    pub add_bos: Option<bool>,
    /// The chat template's source.
    pub chat_template: Option<String>,
}
