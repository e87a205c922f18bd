//! The only door to kernels: public functions on tensors that check shapes and dtypes, then run.
//!
//! Knows no model, no request, no scheduler. Candle's custom ops are where another device would
//! come in: an op without a body for it answers with candle's typed error. Norms and rotary embeddings come from `candle_nn` as they are: they work row
//! by row already.

pub mod attn_rows;
pub mod cpu;
pub mod kv_store;
pub mod linear;
pub mod reference;
pub mod swiglu;

use candle_core::{CpuStorage, Layout, Result, bail};

pub use attn_rows::RowQuery;
pub use cpu::attention::{AttentionItem, PageLayout};
pub use kv_store::{KvStore, Slot};
pub use linear::Linear;
pub use swiglu::swiglu;

/// The f32 values behind a contiguous layout; an error that names the op otherwise.
fn f32_slice<'a>(storage: &'a CpuStorage, layout: &Layout, op: &str) -> Result<&'a [f32]> {
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!("{op}: an operand of shape {:?} is not contiguous", layout.shape());
    };
    match storage {
        CpuStorage::F32(data) => Ok(&data[start..end]),
        _ => bail!("{op}: operands are f32"),
    }
}

/// [`f32_slice`] for writing.
fn f32_slice_mut<'a>(storage: &'a mut CpuStorage, layout: &Layout, op: &str) -> Result<&'a mut [f32]> {
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!("{op}: an operand of shape {:?} is not contiguous", layout.shape());
    };
    match storage {
        CpuStorage::F32(data) => Ok(&mut data[start..end]),
        _ => bail!("{op}: operands are f32"),
    }
}
