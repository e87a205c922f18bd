//! The sizes that GGUF metadata and tensors give for a dense decoder.

use crate::model::{
    gguf::{FromValue, GgufError, GgufFile},
    weights::LoadError,
    {
        rope::{Rope, RopeScaling, Yarn},
        spec::DecoderSpec,
    },
};
use crate::text::shown;

/// Sizes common to all dense decoders, and which optional tensors there are.
pub struct GgufSizes {
    pub(super) has_q_bias: bool,
    pub(super) has_o_bias: bool,
    spec: DecoderSpec,
}

impl From<GgufError> for LoadError {
    fn from(e: GgufError) -> Self {
        Self::Gguf(Box::new(e))
    }
}

impl GgufSizes {
    /// Reads `{architecture}.*`.
    ///
    /// # Errors
    /// When a key is missing, of the wrong kind, or means something that is not supported.
    pub fn read(file: &GgufFile) -> Result<Self, LoadError> {
        let key = |suffix: &str| file.arch_key(suffix);
        let size = |suffix: &str| Ok::<_, LoadError>(file.get::<u64>(&key(suffix)?)? as usize);
        let size_or = |suffix: &str, default: usize| {
            Ok::<_, LoadError>(optional::<u64>(file, suffix)?.map_or(default, |v| v as usize))
        };
        let (hidden, n_heads) = (size("embedding_length")?, size("attention.head_count")?);
        let head_dim = size_or("attention.key_length", hidden / n_heads.max(1))?;
        for (suffix, what) in
            [("attention.value_length", "value heads"), ("rope.dimension_count", "rotary dimensions")]
        {
            let found = size_or(suffix, head_dim)?;
            if found != head_dim {
                let reason = format!("{found} {what} with heads of size {head_dim} are not supported");
                return Err(LoadError::key(file.path(), key(suffix)?, &reason));
            }
        }
        let vocab = file.tensor_info("token_embd.weight").and_then(|t| t.shape.first().copied());
        let spec = DecoderSpec {
            n_layers: size("block_count")?,
            hidden,
            intermediate: size("feed_forward_length")?,
            n_heads,
            n_kv_heads: size_or("attention.head_count_kv", n_heads)?,
            head_dim,
            vocab: vocab
                .ok_or_else(|| LoadError::key(file.path(), "token_embd.weight", "the tensor is missing"))?,
            norm_eps: f64::from(file.get::<f32>(&key("attention.layer_norm_rms_epsilon")?)?),
            rope: Rope {
                theta: optional::<f32>(file, "rope.freq_base")?.map_or(10_000.0, f64::from),
                scaling: scaling(file, head_dim)?,
            },
            qkv_bias: false,
            o_bias: false,
            qk_norm: false,
            tied: file.tensor_info("output.weight").is_none(),
            max_context: size("context_length")?,
        };
        let has = |tensor: &str| file.tensor_info(tensor).is_some();
        Ok(Self { has_q_bias: has("blk.0.attn_q.bias"), has_o_bias: has("blk.0.attn_output.bias"), spec })
    }

    /// The spec of a decoder without biases or qk-norm.
    pub(super) fn plain_spec(&self) -> DecoderSpec {
        self.spec.clone()
    }
}

fn optional<'a, T: FromValue<'a>>(file: &'a GgufFile, suffix: &str) -> Result<Option<T>, LoadError> {
    Ok(file.get_opt(&file.arch_key(suffix)?)?)
}

/// Llama 3 files carry the divisor of each frequency as a tensor; others name a kind and its numbers.
fn scaling(file: &GgufFile, head_dim: usize) -> Result<RopeScaling, LoadError> {
    if file.tensor_info("rope_freqs.weight").is_some() {
        let tensor = file.tensor("rope_freqs.weight")?.dequantize(&candle_core::Device::Cpu);
        let divisors = tensor.and_then(|t| t.flatten_all()?.to_vec1::<f32>());
        let divisors = divisors.map_err(|e| LoadError::key(file.path(), "rope_freqs.weight", &e))?;
        if divisors.len() != head_dim / 2 {
            let reason = format!("has {} values for heads of size {head_dim}", divisors.len());
            return Err(LoadError::key(file.path(), "rope_freqs.weight", &reason));
        }
        return Ok(RopeScaling::Divisors { divisors });
    }
    let number = |suffix: &str| Ok::<_, LoadError>(optional::<f32>(file, suffix)?.map(f64::from));
    let kind = optional::<&str>(file, "rope.scaling.type")?;
    let factor = || number("rope.scaling.factor").map(|f| f.unwrap_or(1.0));
    match kind {
        None | Some("none") => Ok(RopeScaling::Default),
        Some("linear") => Ok(RopeScaling::Linear { factor: factor()? }),
        Some("yarn") => {
            let factor = factor()?;
            let original = optional::<u64>(file, "rope.scaling.original_context_length")?;
            let context = file.get::<u64>(&file.arch_key("context_length")?)?;
            let usual = if factor <= 1.0 { 1.0 } else { 0.1 * factor.ln() + 1.0 };
            Ok(RopeScaling::Yarn(Yarn {
                factor,
                original_max_position_embeddings: original.unwrap_or(context) as usize,
                beta_fast: number("rope.scaling.yarn_beta_fast")?,
                beta_slow: number("rope.scaling.yarn_beta_slow")?,
                // the file's factor multiplies the usual one
                attention_factor: number("rope.scaling.attn_factor")?.map(|f| f * usual),
                mscale: None,
                mscale_all_dim: None,
                truncate: None,
            }))
        }
        Some(other) => {
            let reason = format!("\"{}\" is not supported; supported are none, linear, yarn", shown(other));
            Err(LoadError::key(file.path(), file.arch_key("rope.scaling.type")?, &reason))
        }
    }
}
