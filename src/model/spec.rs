//! What distinguishes one dense decoder from another, as plain data.

use super::rope::Rope;

/// Everything the dense decoder needs to know about an architecture and its sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    /// Transformer blocks.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width inside the MLP.
    pub intermediate: usize,
    /// Query heads.
    pub n_heads: usize,
    /// KV heads; divides `n_heads` (GQA: query head `h` reads KV head `h / (n_heads / n_kv_heads)`).
    pub n_kv_heads: usize,
    /// Size of one head; `n_heads * head_dim` need not be `hidden`.
    pub head_dim: usize,
    /// Vocabulary entries in the embedding.
    pub vocab: usize,
    /// RMSNorm epsilon.
    pub norm_eps: f64,
    /// Rotary position embedding.
    pub rope: Rope,
    /// q, k and v projections carry a bias.
    pub qkv_bias: bool,
    /// The output projection carries a bias.
    pub o_bias: bool,
    /// RMSNorm over each head of q and k, before RoPE.
    pub qk_norm: bool,
    /// The output matrix is the embedding.
    pub tied: bool,
    /// Longest sequence the model was made for, in tokens.
    pub max_context: usize,
}

impl DecoderSpec {
    /// Checks that the sizes make sense together; the message names the two that do not.
    ///
    /// # Errors
    /// A sentence about the first size that cannot be.
    pub fn check(&self) -> Result<(), String> {
        let sizes = [
            ("layers", self.n_layers, 1 << 10),
            ("hidden size", self.hidden, 1 << 20),
            ("intermediate size", self.intermediate, 1 << 22),
            ("attention heads", self.n_heads, 1 << 12),
            ("KV heads", self.n_kv_heads, 1 << 12),
            ("head size", self.head_dim, 256),
            ("vocabulary", self.vocab, 1 << 24),
            ("context length", self.max_context, 1 << 30),
        ];
        if let Some((name, size, most)) = sizes.iter().find(|(_, size, most)| *size == 0 || size > most) {
            return Err(format!("the number of {name} is {size}, expected 1 to {most}"));
        }
        if !self.n_heads.is_multiple_of(self.n_kv_heads) {
            return Err(format!("{} heads cannot share {} KV heads evenly", self.n_heads, self.n_kv_heads));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(format!("rotary embedding needs an even head size, not {}", self.head_dim));
        }
        if !(self.norm_eps.is_finite() && self.norm_eps > 0.0) {
            return Err(format!("the norm epsilon is {}, expected a small positive number", self.norm_eps));
        }
        self.rope.check()
    }
}
