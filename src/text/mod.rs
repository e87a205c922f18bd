//! Text and tokens: building the model's own tokenizer, encoding with offsets, streaming back.
//!
//! Owns everything that names the `tokenizers` crate. Must not know a model, a device, a weight file or HTTP:
//! a GGUF file reaches it as a [`TokenizerSpec`], plain data. Tests are beside the code and, against golden
//! files of the original tokenizers, in `tests/tokenizer_conformance.rs`.

mod build;
mod error;
mod folder;
mod least;
mod shown;
mod spec;
mod stop;
mod stream;
mod tokenizer;

pub use error::TokenizerError;
pub use shown::{shown, shown_sentence};
pub use spec::{TokenType, TokenizerSpec};
pub use stop::{StopMatcher, StopStep};
pub use stream::TokenStream;
pub use tokenizer::Tokenizer;
