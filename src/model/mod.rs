//! (being written)

pub mod gguf;
