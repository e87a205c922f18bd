//! Where a decoder's weights come from: one trait, so that a model file never knows its file format.
//!
//! Names are the Hugging Face ones (`model.layers.3.self_attn.q_proj.weight`); other formats translate.

use std::path::PathBuf;

use crate::ops::Linear;

/// A model file that cannot be used, with what and why.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file could not be opened or read.
    #[error("{}: cannot be read: {reason}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A key or tensor is missing, of the wrong kind, or out of range.
    #[error("{}: {key}: {reason}", file.display())]
    Key {
        /// The file.
        file: PathBuf,
        /// Metadata key or tensor name.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A GGUF file, key or tensor.
    #[error(transparent)]
    Gguf(Box<super::gguf::GgufError>),
    /// The architecture is not one of ours.
    #[error("{}: architecture {found:?} is not supported; supported are {supported}", file.display())]
    Architecture {
        /// The file.
        file: PathBuf,
        /// What the file says.
        found: String,
        /// The ones there are.
        supported: String,
    },
}

impl LoadError {
    /// A [`LoadError::Key`].
    pub fn key(file: impl Into<PathBuf>, key: impl Into<String>, reason: &(impl ToString + ?Sized)) -> Self {
        Self::Key { file: file.into(), key: key.into(), reason: reason.to_string() }
    }
}

/// The arithmetic of the linear layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compute {
    /// Matrices that a file holds quantised stay so and multiply activations of 8 bits; others run in f32.
    #[default]
    Int8,
    /// Everything dequantised at load and run in f32: the reference, slower and four bytes a weight.
    F32,
}

/// Tensors by Hugging Face name.
pub trait Weights: Sync {
    /// The `[n, k]` matrix `name`, packed.
    ///
    /// # Errors
    /// When it is missing or of another shape.
    fn matrix(&self, name: &str, n: usize, k: usize) -> Result<Linear, LoadError>;

    /// The vector `name` of `len` values, f32.
    ///
    /// # Errors
    /// When it is missing or of another length.
    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, LoadError>;

    /// Names of tensors that nobody asked for, except those known to be useless.
    fn unused(&self) -> Vec<String>;
}
