//! Why a tokenizer cannot be built.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

use super::{build::SUPPORTED_PRE, shown_sentence};

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

/// Runs `load`, in which the library reads data that may be broken: where it panics over them, that is an error, which
/// `failed` makes of what it said.
pub(super) fn guarded<T>(
    load: impl FnOnce() -> Result<T, TokenizerError>,
    failed: impl FnOnce(String) -> TokenizerError,
) -> Result<T, TokenizerError> {
    catch_unwind(AssertUnwindSafe(load)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().copied();
        let said = said.or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("nothing");
        Err(failed(format!("the tokenizer library failed on it; it said: {}", shown_sentence(said))))
    })
}
