//! From files to a decoder.

use std::path::Path;

use super::{
    Decoder, LoadError,
    arch::{ARCHITECTURES, GgufSizes, supported},
    decoder::DenseDecoder,
    gguf::GgufFile,
    gguf_weights::GgufWeights,
    rope::RopeScaling,
    safetensors::{SafetensorsFolder, read_spec},
    spec::DecoderSpec,
    weights::{Compute, Weights},
};
use crate::text::shown;

/// Loads the decoder of a GGUF file. `rope` overrides the file's scaling; `compute` says how its matrices multiply.
///
/// # Errors
/// When the file is not a usable model; says which key or tensor.
pub fn gguf(
    file: &GgufFile,
    rope: Option<RopeScaling>,
    compute: Compute,
) -> Result<Box<dyn Decoder>, LoadError> {
    let found = file.architecture()?;
    let arch = ARCHITECTURES.iter().find(|a| a.model_type == found);
    let arch = arch.ok_or_else(|| LoadError::Architecture {
        file: file.path().into(),
        found: shown(found),
        supported: supported(),
    })?;
    let spec = with_rope((arch.from_gguf)(&GgufSizes::read(file)?), rope);
    let head = arch.gguf_interleaves_qk.then_some(spec.head_dim);
    decoder(file.path(), spec, &GgufWeights::new(file, head, compute))
}

/// Loads the decoder of a Hugging Face folder. `rope` overrides the config's scaling; `compute` says how its matrices
/// multiply.
///
/// # Errors
/// When the folder is not a usable model; says which file, key or tensor.
pub fn folder(
    folder: &Path,
    rope: Option<RopeScaling>,
    compute: Compute,
) -> Result<Box<dyn Decoder>, LoadError> {
    let spec = with_rope(read_spec(folder)?, rope);
    decoder(folder, spec, &SafetensorsFolder::open(folder, compute)?)
}

fn with_rope(mut spec: DecoderSpec, rope: Option<RopeScaling>) -> DecoderSpec {
    if let Some(scaling) = rope {
        spec.rope.scaling = scaling;
    }
    spec
}

fn decoder(path: &Path, spec: DecoderSpec, weights: &dyn Weights) -> Result<Box<dyn Decoder>, LoadError> {
    spec.check().map_err(|e| LoadError::key(path, "sizes", &e))?;
    let decoder = DenseDecoder::load(spec, weights)?;
    let unused = weights.unused();
    if !unused.is_empty() {
        let few: Vec<String> = unused.iter().take(3).map(|name| shown(name)).collect();
        let reason =
            format!("{} tensors that this architecture does not have ({} …)", unused.len(), few.join(", "));
        return Err(LoadError::key(path, "tensors", &reason));
    }
    Ok(Box::new(decoder))
}
