//! Rotary position embedding: the frequencies, and how they are stretched for longer contexts.
//!
//! After the functions of the same names in transformers' `modeling_rope_utils`; golden values in `tests/golden/rope.json`.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

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
    /// YaRN, applied at every length.
    Yarn(Yarn),
    /// Divisors of each frequency given by the file (GGUF `rope_freqs`), `head_dim / 2` of them.
    Divisors {
        /// One divisor per frequency.
        divisors: Vec<f32>,
    },
}

/// YaRN (Peng et al., 2023).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Yarn {
    /// Stretch.
    pub factor: f64,
    /// Context length before stretching.
    pub original_max_position_embeddings: usize,
    /// Rotations above which a frequency is kept; 32 when absent.
    pub beta_fast: Option<f64>,
    /// Rotations below which it is fully stretched; 1 when absent.
    pub beta_slow: Option<f64>,
    /// Factor on cos and sin. When absent: the ratio of `0.1 m ln(factor) + 1` for m = `mscale` and `mscale_all_dim`
    /// where both are given and not 0, else `0.1 ln(factor) + 1`.
    pub attention_factor: Option<f64>,
    /// See `attention_factor`.
    pub mscale: Option<f64>,
    /// See `attention_factor`.
    pub mscale_all_dim: Option<f64>,
    /// Whether the ends of the ramp are rounded outward to whole frequencies; true when absent.
    pub truncate: Option<bool>,
}

fn positive(name: &str, v: f64) -> Result<(), String> {
    let fine = v.is_finite() && v > 0.0;
    fine.then_some(()).ok_or_else(|| format!("rope {name} is {v}, expected a positive number"))
}

impl RopeScaling {
    /// The context length that a model made for `context` tokens has with this scaling.
    #[must_use]
    pub fn stretched(&self, context: usize) -> usize {
        let times = |original: usize, factor: f64| ((original as f64 * factor) as usize).max(context);
        match self {
            Self::Default | Self::Divisors { .. } => context,
            Self::Linear { factor } => times(context, *factor),
            Self::Llama3 { factor, original_max_position_embeddings, .. }
            | Self::Yarn(Yarn { factor, original_max_position_embeddings, .. }) => {
                times(*original_max_position_embeddings, *factor)
            }
        }
    }
}

impl Rope {
    /// Checks that every number makes sense.
    pub(super) fn check(&self) -> Result<(), String> {
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
            RopeScaling::Yarn(yarn) => yarn.check(),
            RopeScaling::Divisors { divisors } => {
                divisors.iter().try_for_each(|&d| positive("divisor", f64::from(d)))
            }
        }
    }

    /// Angular frequency of each pair of a head of size `head_dim`, and the factor on cos and sin.
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
                    let rotations = original * f / (2.0 * PI);
                    let kept = ((rotations - low_freq_factor) / (high_freq_factor - low_freq_factor))
                        .clamp(0.0, 1.0);
                    ((1.0 - kept) * f / factor + kept * f) as f32
                };
                (plain.iter().map(stretch).collect(), 1.0)
            }
            RopeScaling::Yarn(yarn) => (yarn.stretch(&plain, self.theta), yarn.cos_sin_factor() as f32),
            RopeScaling::Divisors { divisors } => {
                (plain.iter().zip(divisors).map(|(f, d)| f / d).collect(), 1.0)
            }
        }
    }
}

impl Yarn {
    fn betas(&self) -> (f64, f64) {
        (self.beta_fast.unwrap_or(32.0), self.beta_slow.unwrap_or(1.0))
    }

    fn check(&self) -> Result<(), String> {
        let (fast, slow) = self.betas();
        positive("factor", self.factor)?;
        positive("beta_fast", fast)?;
        positive("beta_slow", slow)?;
        positive("attention_factor", self.cos_sin_factor())?;
        positive("original_max_position_embeddings", self.original_max_position_embeddings as f64)
    }

    fn cos_sin_factor(&self) -> f64 {
        let scale = |m: f64| if self.factor <= 1.0 { 1.0 } else { 0.1 * m * self.factor.ln() + 1.0 };
        let given = |m: Option<f64>| m.filter(|m| *m != 0.0);
        match (self.attention_factor, given(self.mscale), given(self.mscale_all_dim)) {
            (Some(factor), ..) => factor,
            (None, Some(m), Some(all)) => scale(m) / scale(all),
            _ => scale(1.0),
        }
    }

    fn stretch(&self, plain: &[f32], theta: f64) -> Vec<f32> {
        let head_dim = 2 * plain.len();
        // the (fractional) pair that turns `rotations` times over the original context
        let pair = |rotations: f64| {
            let original = self.original_max_position_embeddings as f64;
            head_dim as f64 * (original / (rotations * 2.0 * PI)).ln() / (2.0 * theta.ln())
        };
        let (fast, slow) = self.betas();
        let (mut low, mut high) = (pair(fast), pair(slow));
        if self.truncate.unwrap_or(true) {
            (low, high) = (low.floor(), high.ceil());
        }
        let (low, mut high) = (low.max(0.0), high.min((head_dim - 1) as f64));
        if low == high {
            high += 0.001;
        }
        let stretch = |(i, &f): (usize, &f32)| {
            let stretched = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
            let f = f64::from(f);
            (f / self.factor * stretched + f * (1.0 - stretched)) as f32
        };
        plain.iter().enumerate().map(stretch).collect()
    }
}
