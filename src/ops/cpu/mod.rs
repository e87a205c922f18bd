//! CPU kernels: plain slices in, plain slices out; no tensor, no model.
//!
//! **Every output element is reduced in a fixed order**: one chain of fused multiply-adds; for quantised weights one link per
//! group, whose integers are exact; for attention, segments of keys merged in order. So a result never depends on how
//! many rows were computed together, on the number of threads, or on the instruction set: AMX, AVX-512, AVX2 and the
//! portable path agree bit for bit. That is what carries the numerics contract (scores are the same whatever the
//! batch, the prefill chunking or the prefix cache did).
//!
//! Slow twins: [`super::reference`]. Tests: beside each kernel; `tests/ops.rs`, `tests/amx/`.

pub mod attention;
pub mod buffer;
pub mod context;
pub(crate) mod disjoint;
pub mod exp;
pub mod floats;
pub mod gemm;
mod pool;
pub mod product;
pub mod quant;
pub mod tile;

pub use context::Cpu;
pub use floats::FloatType;
pub use gemm::PackedMatrix;
pub use product::{Inputs, Product, Weight, gated, multiply};
pub use quant::{QuantMatrix, QuantRows};
pub use tile::Isa;
