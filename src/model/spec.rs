//! What distinguishes one dense decoder from another, as plain data.

use serde::{Deserialize, Serialize};

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

/// Rotary position embedding of the half-split (NeoX) kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// How frequencies are stretched for longer contexts.
    pub scaling: RopeScaling,
}

/// Stretching of rotary frequencies, after the Hugging Face `rope_scaling` entries of the same names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rope_type", rename_all = "lowercase")]
pub enum RopeScaling {
    /// None.
    #[default]
    Default,
    /// All frequencies divided by `factor`.
    Linear {
        /// Stretch.
        factor: f64,
    },
    /// Llama 3: low frequencies divided by `factor`, high ones kept, a ramp between.
    Llama3 {
        /// Stretch of the low frequencies.
        factor: f64,
        /// Wavelengths above `original / this` are stretched.
        low_freq_factor: f64,
        /// Wavelengths below `original / this` are kept.
        high_freq_factor: f64,
        /// Context length before stretching.
        original_max_position_embeddings: usize,
    },
    /// YaRN (Peng et al., 2023), applied at every length.
    Yarn {
        /// Stretch.
        factor: f64,
        /// Context length before stretching.
        original_max_position_embeddings: usize,
        /// Rotations above which a frequency is kept.
        #[serde(default = "beta_fast")]
        beta_fast: f64,
        /// Rotations below which it is fully stretched.
        #[serde(default = "beta_slow")]
        beta_slow: f64,
        /// Factor on cos and sin; `0.1 ln(factor) + 1` when absent.
        #[serde(default)]
        attention_factor: Option<f64>,
    },
    /// Divisors of each frequency given by the file (GGUF `rope_freqs`), `head_dim / 2` of them.
    Divisors {
        /// One divisor per frequency.
        divisors: Vec<f32>,
    },
}

fn beta_fast() -> f64 {
    32.0
}

fn beta_slow() -> f64 {
    1.0
}

impl Rope {
    fn check(&self) -> Result<(), String> {
        let positive = |name: &str, v: f64| {
            (v.is_finite() && v > 0.0)
                .then_some(())
                .ok_or(format!("rope {name} is {v}, expected a positive number"))
        };
        positive("theta", self.theta)?;
        match &self.scaling {
            RopeScaling::Default => Ok(()),
            RopeScaling::Linear { factor } => positive("factor", *factor),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position_embeddings,
            } => {
                positive("factor", *factor)?;
                positive("low_freq_factor", *low_freq_factor)?;
                positive("high_freq_factor - low_freq_factor", high_freq_factor - low_freq_factor)?;
                positive("original_max_position_embeddings", *original_max_position_embeddings as f64)
            }
            RopeScaling::Yarn {
                factor,
                original_max_position_embeddings,
                beta_fast,
                beta_slow,
                attention_factor,
            } => {
                positive("factor", *factor)?;
                positive("beta_fast", *beta_fast)?;
                positive("beta_slow", *beta_slow)?;
                positive("attention_factor", attention_factor.unwrap_or(1.0))?;
                positive("original_max_position_embeddings", *original_max_position_embeddings as f64)
            }
            RopeScaling::Divisors { divisors } => {
                divisors.iter().try_for_each(|&d| positive("divisor", f64::from(d)))
            }
        }
    }

    /// Angular frequency of each pair of a head of size `head_dim`, and the factor on cos and sin.
    /// f32 throughout, in the order of operations of the original implementations.
    #[must_use]
    pub fn frequencies(&self, head_dim: usize) -> (Vec<f32>, f32) {
        let plain: Vec<f32> = (0..head_dim / 2)
            .map(|i| 1.0 / (self.theta as f32).powf((2 * i) as f32 / head_dim as f32))
            .collect();
        match &self.scaling {
            RopeScaling::Default => (plain, 1.0),
            RopeScaling::Linear { factor } => (plain.iter().map(|f| f / *factor as f32).collect(), 1.0),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position_embeddings,
            } => {
                let original = *original_max_position_embeddings as f64;
                let stretch = |&f: &f32| {
                    let f = f64::from(f);
                    let wavelength = 2.0 * std::f64::consts::PI / f;
                    let ramp =
                        (original / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
                    let kept = ramp.clamp(0.0, 1.0);
                    ((1.0 - kept) * f / factor + kept * f) as f32
                };
                (plain.iter().map(stretch).collect(), 1.0)
            }
            RopeScaling::Yarn {
                factor,
                original_max_position_embeddings,
                beta_fast,
                beta_slow,
                attention_factor,
            } => {
                let pair_with = |rotations: f64| {
                    let original = *original_max_position_embeddings as f64;
                    head_dim as f64 * (original / (rotations * 2.0 * std::f64::consts::PI)).ln()
                        / (2.0 * self.theta.ln())
                };
                let most = (head_dim - 1) as f64;
                let low = pair_with(*beta_fast).floor().max(0.0);
                let high = pair_with(*beta_slow).ceil().min(most);
                let high = if low == high { high + 0.001 } else { high };
                let stretch = |(i, &f): (usize, &f32)| {
                    let stretched = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    let f = f64::from(f);
                    (f / factor * stretched + f * (1.0 - stretched)) as f32
                };
                let on_cos =
                    attention_factor.unwrap_or(if *factor <= 1.0 { 1.0 } else { 0.1 * factor.ln() + 1.0 });
                (plain.iter().enumerate().map(stretch).collect(), on_cos as f32)
            }
            RopeScaling::Divisors { divisors } => {
                (plain.iter().zip(divisors).map(|(f, d)| f / d).collect(), 1.0)
            }
        }
    }
}
