//! What is asked of the model: the scoring prompt, laid out piece by piece, and chat templates.
//!
//! Pure: the encoder is passed in, so nothing here knows a tokenizer, a file or a device.

pub mod layout;
pub mod template;

use crate::ids::{Span, TokenId};

/// Token ids of one piece of text, with the characters each token came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// Token ids.
    pub ids: Vec<TokenId>,
    /// For each token, the half-open range of Unicode scalar values of the input it covers.
    /// Tokens that split one character all name that character.
    pub offsets: Vec<Span>,
}

/// Whether text may produce special tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// Template text: `<|im_end|>` is the control token.
    Parse,
    /// Text from outside (queries, chunks, instructions): `<|im_end|>` is ten characters.
    Plain,
}

/// Turns one piece of text into tokens, on its own, adding nothing (no BOS, no EOS).
pub trait PieceEncoder {
    /// Encodes `text`. Fails only when the tokenizer itself fails; the message says how.
    fn encode(&self, text: &str, specials: Specials) -> Result<Encoded, EncodeError>;
}

/// The tokenizer refused a piece of text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tokenizer failed on a text of {chars} characters: {reason}")]
pub struct EncodeError {
    /// Length of the text in Unicode scalar values.
    pub chars: usize,
    /// What the tokenizer said.
    pub reason: String,
}
