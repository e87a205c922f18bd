//! Qwen3 (dense): RMSNorm over each head of q and k before RoPE, heads wider than `hidden / n_heads`, usually no bias.
//!
//! Qwen team, 2025; `Qwen3ForCausalLM` in transformers. `attention_bias` puts a bias on q, k, v and o.

use super::{Architecture, GgufSizes, HfConfig};
use crate::model::spec::DecoderSpec;

pub(super) const ARCHITECTURE: Architecture = Architecture {
    hf_name: "Qwen3ForCausalLM",
    model_type: "qwen3",
    gguf_interleaves_qk: false,
    from_config,
    from_gguf,
};

fn from_config(c: &HfConfig) -> Result<DecoderSpec, String> {
    c.refuse_sliding_window()?;
    let bias = c.attention_bias;
    Ok(DecoderSpec { qkv_bias: bias, o_bias: bias, qk_norm: true, ..c.plain_spec()? })
}

fn from_gguf(s: &GgufSizes) -> DecoderSpec {
    DecoderSpec { qkv_bias: s.has_q_bias, o_bias: s.has_o_bias, qk_norm: true, ..s.plain_spec() }
}
