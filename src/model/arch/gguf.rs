//! The sizes that GGUF metadata gives for a dense decoder.
use crate::model::spec::{DecoderSpec, Rope, RopeScaling};

/// Sizes.
pub struct GgufSizes {
    pub(super) has_q_bias: bool,
    pub(super) has_o_bias: bool,
    spec: DecoderSpec,
}
impl GgufSizes {
    pub(super) fn plain_spec(&self) -> DecoderSpec {
        self.spec.clone()
    }
}
