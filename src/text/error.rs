//! Why a tokenizer cannot be built.

use std::path::PathBuf;

use super::build::SUPPORTED_PRE;

/// Why a tokenizer cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A tokenizer model that cannot be rebuilt from a weight file.
    #[error(
        "the tokenizer model \"{model}\" cannot be rebuilt from a GGUF file (only \"gpt2\", byte-level BPE, can); \
         use a model folder with its tokenizer.json"
    )]
    Model {
        /// `tokenizer.ggml.model`.
        model: String,
    },
    /// A pre-tokenizer that is unknown, so that ids would be silently wrong.
    #[error(
        "the pre-tokenizer {} is not supported (supported: {}); use a model folder with its tokenizer.json",
        pre.as_deref().unwrap_or("is not named in the file, and an unnamed one"),
        SUPPORTED_PRE.join(", ")
    )]
    PreTokenizer {
        /// `tokenizer.ggml.pre`, if any.
        pre: Option<String>,
    },
    /// The tokenizer's data contradicts itself.
    #[error("the tokenizer's data is broken: {reason}")]
    Data {
        /// What is wrong.
        reason: String,
    },
    /// A file of a model folder cannot be read or understood.
    #[error("{}: {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}
