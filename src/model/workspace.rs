//! The rows of a pass between its kernels, kept from pass to pass so that a layer allocates nothing.

use super::spec::DecoderSpec;
use crate::ops::{Activations, Keep, Scratch};

/// Buffers of one decoder. Names say what is in them after the step of the layer that writes them.
pub(super) struct Workspace {
    /// The residual stream, `[rows, hidden]`.
    pub(super) hidden: Scratch<f32>,
    /// Per row, cos then sin of its angles: `[rows, 2, head_dim / 2]`.
    pub(super) cos_sin: Scratch<f32>,
    /// Input of q, k and v.
    pub(super) normed: Activations,
    /// Of `normed`, the rows that are read in the layer where they end.
    pub(super) read: Activations,
    pub(super) q: Scratch<f32>,
    pub(super) k: Scratch<f32>,
    pub(super) v: Scratch<f32>,
    /// Output of attention, input of o.
    pub(super) attended: Activations,
    /// Input of gate and up.
    pub(super) mlp_normed: Activations,
    /// Input of down.
    pub(super) inner: Activations,
    /// Input of the output matrix.
    pub(super) last: Activations,
    pub(super) logits: Scratch<f32>,
}

impl Default for Workspace {
    fn default() -> Self {
        let none = || Activations::new(1, Keep::Rows);
        Self {
            hidden: Scratch::default(),
            cos_sin: Scratch::default(),
            normed: none(),
            read: none(),
            q: Scratch::default(),
            k: Scratch::default(),
            v: Scratch::default(),
            attended: none(),
            mlp_normed: none(),
            inner: none(),
            last: none(),
            logits: Scratch::default(),
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
    pub(super) fn fill(&self, positions: &[u32], cos_sin: &mut Scratch<f32>) {
        let half = self.frequencies.len();
        cos_sin.resize(positions.len() * 2 * half);
        for (&p, row) in positions.iter().zip(cos_sin.chunks_exact_mut(2 * half)) {
            let (cos, sin) = row.split_at_mut(half);
            for ((cos, sin), frequency) in cos.iter_mut().zip(sin).zip(&self.frequencies) {
                let angle = p as f32 * frequency;
                (*cos, *sin) = (angle.cos() * self.factor, angle.sin() * self.factor);
            }
        }
    }
}
