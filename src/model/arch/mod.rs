//! The architectures there are: one file each, one line each in [`ARCHITECTURES`].
//!
//! A new dense architecture says how its `config.json` and its GGUF metadata become a [`DecoderSpec`]; nothing in
//! `engine`, `ops` or `sched` changes.

mod config;
mod gguf;
mod llama;
mod qwen2;
mod qwen3;

pub use config::HfConfig;
pub use gguf::GgufSizes;

use super::spec::DecoderSpec;

/// How one family of models becomes a spec.
pub struct Architecture {
    /// Name in `config.json`, `architectures[0]`.
    pub hf_name: &'static str,
    /// Name in GGUF, `general.architecture`, and in `config.json`, `model_type`.
    pub model_type: &'static str,
    /// Hugging Face projections keep the halves of a head apart; this family's GGUF files interleave the rows of
    /// q and k, which loading has to undo.
    pub gguf_interleaves_qk: bool,
    /// From `config.json`. The error is a sentence about a key.
    pub from_config: fn(&HfConfig) -> Result<DecoderSpec, String>,
    /// From GGUF metadata.
    pub from_gguf: fn(&GgufSizes) -> DecoderSpec,
}

/// All of them.
pub const ARCHITECTURES: &[Architecture] = &[llama::ARCHITECTURE, qwen2::ARCHITECTURE, qwen3::ARCHITECTURE];

/// The Hugging Face and GGUF names, for error messages.
#[must_use]
pub fn supported() -> String {
    ARCHITECTURES.iter().map(|a| format!("{} ({})", a.hf_name, a.model_type)).collect::<Vec<_>>().join(", ")
}
