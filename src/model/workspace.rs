//! The rows of a pass between its kernels, kept from pass to pass so that a layer allocates nothing.

use super::spec::DecoderSpec;
use crate::ops::{Activations, Keep};

/// Buffers of one decoder. Names say what is in them after the step of the layer that writes them.
pub(super) struct Workspace {
    /// The residual stream, `[rows, hidden]`.
    pub(super) hidden: Vec<f32>,
    /// Per row, cos then sin of its angles: `[rows, 2, head_dim / 2]`.
    pub(super) cos_sin: Vec<f32>,
    /// Input of q, k and v.
    pub(super) normed: Activations,
    pub(super) q: Vec<f32>,
    pub(super) k: Vec<f32>,
    pub(super) v: Vec<f32>,
    /// Output of attention, input of o.
    pub(super) attended: Activations,
    /// Input of gate and up.
    pub(super) mlp_normed: Activations,
    /// Input of down.
    pub(super) inner: Activations,
    /// Input of the output matrix.
    pub(super) last: Activations,
    pub(super) logits: Vec<f32>,
}

impl Default for Workspace {
    fn default() -> Self {
        let none = || Activations::new(1, Keep::Rows);
        Self {
            hidden: Vec::new(),
            cos_sin: Vec::new(),
            normed: none(),
            q: Vec::new(),
            k: Vec::new(),
            v: Vec::new(),
            attended: none(),
            mlp_normed: none(),
            inner: none(),
            last: none(),
            logits: Vec::new(),
        }
    }
}

/// The rotary angles of a model.
pub(super) struct Angles {
    frequencies: Vec<f32>,
    /// What cos and sin are multiplied with (YaRN).
    factor: f32,
}

impl Angles {
    pub(super) fn new(spec: &DecoderSpec) -> Self {
        let (frequencies, factor) = spec.rope.frequencies(spec.head_dim);
        Self { frequencies, factor }
    }

    /// cos and sin of every row's angles.
    pub(super) fn fill(&self, positions: &[u32], cos_sin: &mut Vec<f32>) {
        cos_sin.clear();
        for &p in positions {
            for f in [f32::cos, f32::sin] {
                cos_sin
                    .extend(self.frequencies.iter().map(|frequency| f(p as f32 * frequency) * self.factor));
            }
        }
    }
}
