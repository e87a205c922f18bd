//! Models: a decoder built from a spec and weights, and what it hands back.
//!
//! Knows tensors, layers and files of weights; knows no request, no sampling, no paging policy, no text.

pub mod arch;
pub mod batch;
pub mod capture;
pub mod card;
pub mod decoder;
pub mod gguf;
pub mod gguf_weights;
pub mod load;
mod reader;
pub mod rope;
pub mod safetensors;
pub mod spec;
pub mod weights;
mod workspace;

pub use batch::{Batch, BatchItem, Output};
pub use capture::Captured;
pub use spec::DecoderSpec;
pub use weights::{Compute, LoadError};

use crate::ops::{Cpu, KvFloat, KvStore, OpError};

/// What a forward pass hands back.
#[derive(Debug)]
pub struct ForwardOutput {
    /// `[vocab]` logits for each item that wanted them, in item order.
    pub logits: Vec<Vec<f32>>,
    /// Query vectors of the items that wanted them.
    pub captured: Vec<Captured>,
}

/// A language model. Chosen once at load; nobody asks again which one it is.
pub trait Decoder: Send + Sync {
    /// Its sizes.
    fn spec(&self) -> &DecoderSpec;

    /// What the pages of its K and V are to hold.
    fn kv_float(&self) -> KvFloat;

    /// Runs `batch` on `cpu`, writing K and V to `kv`. Each item's positions before its first must already be there.
    ///
    /// # Errors
    /// An id outside the vocabulary, a block outside the pool.
    fn forward(&mut self, cpu: &Cpu, batch: &Batch, kv: &mut KvStore) -> Result<ForwardOutput, OpError>;
}
