//! Qwen2 and Qwen2.5: Llama with a bias on q, k and v, none on o.
//!
//! Qwen team, 2024; `Qwen2ForCausalLM` in transformers, where the biases are not configurable.

use super::{Architecture, GgufSizes, HfConfig};
use crate::model::spec::DecoderSpec;

pub(super) const ARCHITECTURE: Architecture = Architecture {
    hf_name: "Qwen2ForCausalLM",
    model_type: "qwen2",
    gguf_interleaves_qk: false,
    from_config,
    from_gguf,
};

fn from_config(c: &HfConfig) -> Result<DecoderSpec, String> {
    c.refuse_sliding_window()?;
    Ok(DecoderSpec { qkv_bias: true, ..c.plain_spec()? })
}

fn from_gguf(s: &GgufSizes) -> DecoderSpec {
    DecoderSpec { qkv_bias: true, ..s.plain_spec() }
}
