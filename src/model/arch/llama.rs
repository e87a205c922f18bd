//! Llama (and SmolLM2, and any model that is Llama with or without attention biases).
//!
//! Touvron et al., 2023; `LlamaForCausalLM` in transformers. `attention_bias` puts a bias on q, k, v and o.

use super::{Architecture, GgufSizes, HfConfig};
use crate::model::spec::DecoderSpec;

pub(super) const ARCHITECTURE: Architecture = Architecture {
    hf_name: "LlamaForCausalLM",
    model_type: "llama",
    gguf_interleaves_qk: true,
    from_config,
    from_gguf,
};

fn from_config(c: &HfConfig) -> Result<DecoderSpec, String> {
    if c.mlp_bias {
        return Err("mlp_bias: true is not supported".into());
    }
    Ok(DecoderSpec { qkv_bias: c.attention_bias, o_bias: c.attention_bias, ..c.plain_spec()? })
}

fn from_gguf(s: &GgufSizes) -> DecoderSpec {
    DecoderSpec { qkv_bias: s.has_q_bias, o_bias: s.has_o_bias, ..s.plain_spec() }
}
