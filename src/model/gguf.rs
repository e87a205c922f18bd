//! Reading GGUF files: typed metadata, tensor directory, tensors, and the tokenizer's plain data.
//!
//! Owns the mapping from GGUF keys and type codes to Rust values, and the words in which a bad file is
//! refused. Must not know what a tensor means to a model, nor build a tokenizer. The header is read by
//! `header`, not by candle's reader, because a file is untrusted input: candle's panics on an alignment of
//! zero, turns a byte array into 32 times its size, and cannot say which tensor has a type it lacks.
//! Tests are beside the code, with candle's reader as the twin on real files.

mod header;

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
};

use candle_core::{
    Device,
    quantized::{GgmlDType, QStorage, QTensor},
};

use super::reader::Reader;
use crate::text::{TokenizerSpec, shown};

/// The tensor types that can be loaded, with their GGUF code: (code, name, candle's type).
const TENSOR_TYPES: [(u32, &str, GgmlDType); 13] = [
    (0, "F32", GgmlDType::F32),
    (1, "F16", GgmlDType::F16),
    (30, "BF16", GgmlDType::BF16),
    (2, "Q4_0", GgmlDType::Q4_0),
    (3, "Q4_1", GgmlDType::Q4_1),
    (6, "Q5_0", GgmlDType::Q5_0),
    (7, "Q5_1", GgmlDType::Q5_1),
    (8, "Q8_0", GgmlDType::Q8_0),
    (10, "Q2_K", GgmlDType::Q2K),
    (11, "Q3_K", GgmlDType::Q3K),
    (12, "Q4_K", GgmlDType::Q4K),
    (13, "Q5_K", GgmlDType::Q5K),
    (14, "Q6_K", GgmlDType::Q6K),
];

/// Why a GGUF file, one of its keys or one of its tensors cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The file cannot be opened or read.
    #[error("{}: cannot be read: {reason}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The file does not start like a GGUF file.
    #[error("{}: not a GGUF file: it starts with {found}, not with \"GGUF\"; give a model in GGUF form", file.display())]
    NotGguf {
        /// The file.
        file: PathBuf,
        /// The first bytes, escaped.
        found: String,
    },
    /// A GGUF version this reader does not know.
    #[error("{}: GGUF version {version} is not supported; versions 2 and 3, little-endian, are", file.display())]
    Version {
        /// The file.
        file: PathBuf,
        /// The version found.
        version: u32,
    },
    /// One part of a model that is split over several files.
    #[error(
        "{}: it is one of {parts} parts of a model; merge them into one file with llama-gguf-split --merge \
         FIRST_PART WHOLE.gguf, or use a model in one file",
        file.display()
    )]
    Split {
        /// The file.
        file: PathBuf,
        /// Parts there are.
        parts: u64,
    },
    /// The file ends before something it announces.
    #[error("{}: truncated: {what} needs {need} bytes, {have} are left; fetch the file again", file.display())]
    Truncated {
        /// The file.
        file: PathBuf,
        /// What was being read.
        what: String,
        /// Bytes needed.
        need: u64,
        /// Bytes left.
        have: u64,
    },
    /// The file contradicts the format.
    #[error("{}: broken: {what}: {reason}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The key, tensor or part.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A required metadata key is absent.
    #[error("{}: key {key} is missing", file.display())]
    MissingKey {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
    },
    /// A metadata key holds a value of another kind.
    #[error("{}: key {key} is {found}, expected {expected}", file.display())]
    WrongType {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
        /// The kind asked for.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// There is no tensor of that name.
    #[error("{}: tensor {tensor} is missing", file.display())]
    MissingTensor {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A tensor is stored in a type that cannot be loaded.
    #[error(
        "{}: tensor {tensor} has type {found}, which is not supported; supported are {}: \
         use another quantisation of the model, such as Q4_K_M or Q8_0",
        file.display(),
        supported_types()
    )]
    TensorType {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// The type's name, or its number when unknown.
        found: String,
    },
}

fn supported_types() -> String {
    TENSOR_TYPES.map(|(_, name, _)| name).join(" ")
}

/// A metadata value, with numbers widened so that a getter can accept every width that fits.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Any integer.
    Int(i128),
    /// f32 or f64.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text; bytes that are not UTF-8 are replaced by U+FFFD.
    Text(String),
    /// An array of integers or truth values (0 and 1).
    Ints(Vec<i64>),
    /// An array of f32 or f64.
    Floats(Vec<f32>),
    /// An array of texts.
    Texts(Vec<String>),
}

impl Value {
    fn describe(&self) -> String {
        match self {
            Self::Int(v) => format!("the integer {v}"),
            Self::Float(v) => format!("the number {v}"),
            Self::Bool(v) => format!("the truth value {v}"),
            Self::Text(v) => format!("the text \"{}\"", shown(v)),
            Self::Ints(v) => format!("an array of {} integers", v.len()),
            Self::Floats(v) => format!("an array of {} numbers", v.len()),
            Self::Texts(v) => format!("an array of {} texts", v.len()),
        }
    }
}

/// A Rust type that a metadata value can be read as.
pub trait FromValue<'a>: Sized {
    /// The kind in words, for error messages.
    const EXPECTED: &'static str;
    /// The value, or `None` when it is of another kind or does not fit.
    fn from_value(value: &'a Value) -> Option<Self>;
}

macro_rules! from_value {
    ($type:ty, $expected:literal, $pattern:pat => $read:expr) => {
        impl<'a> FromValue<'a> for $type {
            const EXPECTED: &'static str = $expected;
            fn from_value(value: &'a Value) -> Option<Self> {
                match value {
                    $pattern => $read,
                    _ => None,
                }
            }
        }
    };
}

from_value!(u32, "an unsigned 32-bit integer", Value::Int(v) => u32::try_from(*v).ok());
from_value!(u64, "an unsigned 64-bit integer", Value::Int(v) => u64::try_from(*v).ok());
from_value!(usize, "an unsigned integer", Value::Int(v) => usize::try_from(*v).ok());
from_value!(f32, "a floating-point number", Value::Float(v) => Some(*v as f32));
from_value!(bool, "a truth value", Value::Bool(v) => Some(*v));
from_value!(&'a str, "a text", Value::Text(v) => Some(v));
from_value!(&'a [String], "an array of texts", Value::Texts(v) => Some(v));
from_value!(&'a [f32], "an array of numbers", Value::Floats(v) => Some(v));
from_value!(Vec<u32>, "an array of unsigned integers",
    Value::Ints(v) => v.iter().map(|&n| u32::try_from(n).ok()).collect());

/// Where a tensor lies and what it looks like.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// Dimensions, outermost first: a linear layer is `[outputs, inputs]`. One to four, none zero.
    pub shape: Vec<usize>,
    /// How the elements are stored.
    pub dtype: GgmlDType,
    /// First byte in the file.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: usize,
}

/// An open GGUF file whose header was read and whose tensors all lie inside the file.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    reader: Reader,
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl GgufFile {
    /// Opens `path` and reads its header. Fails with the file, the part and the reason when it is not a
    /// complete GGUF file of supported tensor types.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, GgufError> {
        let path = path.as_ref();
        let io = |e: std::io::Error| GgufError::Io { file: path.into(), reason: e.to_string() };
        let file = File::open(path).map_err(io)?;
        let about = file.metadata().map_err(io)?;
        if !about.is_file() {
            return Err(GgufError::Io { file: path.into(), reason: "it is not a regular file".into() });
        }
        let header = header::read(&file, about.len(), path)?;
        let open = Self {
            path: path.into(),
            reader: Reader::new(file),
            metadata: header.metadata,
            tensors: header.tensors,
        };
        match open.get_opt::<u64>("split.count")? {
            Some(parts @ 2..) => Err(GgufError::Split { file: open.path, parts }),
            _ => Ok(open),
        }
    }

    /// The path it was opened from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The metadata value of `key` as a `T`: `u32`, `u64`, `usize`, `f32`, `bool`, `&str`, `&[String]`,
    /// `Vec<u32>` or `&[f32]`. Integers of any stored width are accepted when they fit.
    pub fn get<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, GgufError> {
        self.get_opt(key)?.ok_or_else(|| GgufError::MissingKey { file: self.path.clone(), key: shown(key) })
    }

    /// Like [`get`](Self::get), but a missing key is `None`. A value of another kind is still an error.
    pub fn get_opt<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, GgufError> {
        let Some(value) = self.metadata.get(key) else { return Ok(None) };
        T::from_value(value).map(Some).ok_or_else(|| GgufError::WrongType {
            file: self.path.clone(),
            key: shown(key),
            expected: T::EXPECTED,
            found: value.describe(),
        })
    }

    /// All metadata, in key order.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.metadata.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// `general.architecture`, such as `llama` or `qwen2`.
    pub fn architecture(&self) -> Result<&str, GgufError> {
        self.get("general.architecture")
    }

    /// The full name of an architecture's key: `block_count` becomes `llama.block_count`.
    pub fn arch_key(&self, suffix: &str) -> Result<String, GgufError> {
        Ok(format!("{}.{suffix}", self.architecture()?))
    }

    /// Names and places of all tensors, in name order.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorInfo)> {
        self.tensors.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// The place of one tensor, or `None` (an optional tensor, such as the output matrix of a tied model).
    #[must_use]
    pub fn tensor_info(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    /// Loads one tensor to the CPU, in the type it is stored in.
    pub fn tensor(&self, name: &str) -> Result<QTensor, GgufError> {
        let info = self
            .tensor_info(name)
            .ok_or_else(|| GgufError::MissingTensor { file: self.path.clone(), tensor: name.into() })?;
        let data = self
            .bytes_at(info)
            .map_err(|e| GgufError::Io { file: self.path.clone(), reason: format!("tensor {name}: {e}") })?;
        QStorage::from_data(data.into(), &Device::Cpu, info.dtype)
            .and_then(|storage| QTensor::new(storage, info.shape.as_slice()))
            .map_err(|e| GgufError::Malformed {
                file: self.path.clone(),
                what: format!("tensor {name}"),
                reason: e.to_string(),
            })
    }

    fn bytes_at(&self, info: &TensorInfo) -> std::io::Result<Vec<u8>> {
        let mut data = vec![0; info.bytes];
        self.read_part(info, 0, &mut data)?;
        Ok(data)
    }

    /// Reads bytes `from ..` of a tensor, as many as `to` holds.
    pub(super) fn read_part(&self, info: &TensorInfo, from: usize, to: &mut [u8]) -> std::io::Result<()> {
        self.reader.read_at(info.offset + from as u64, to)
    }

    /// The tokenizer as plain data, ready for [`Tokenizer::from_spec`](crate::text::Tokenizer::from_spec).
    pub fn tokenizer_spec(&self) -> Result<TokenizerSpec, GgufError> {
        let ggml = |suffix: &str| format!("tokenizer.ggml.{suffix}");
        let ends = ["eos_token_id", "eot_token_id", "eom_token_id"];
        let eos = ends.iter().map(|key| self.get_opt::<u32>(&ggml(key))).collect::<Result<Vec<_>, _>>()?;
        Ok(TokenizerSpec {
            model: self.get::<&str>(&ggml("model"))?.into(),
            pre: self.get_opt::<&str>(&ggml("pre"))?.map(Into::into),
            tokens: self.get::<&[String]>(&ggml("tokens"))?.to_vec(),
            token_types: self.get(&ggml("token_type"))?,
            merges: self.get_opt::<&[String]>(&ggml("merges"))?.unwrap_or_default().to_vec(),
            bos: self.get_opt(&ggml("bos_token_id"))?,
            eos: eos.into_iter().flatten().collect(),
            add_bos: self.get_opt(&ggml("add_bos_token"))?,
            chat_template: self.get_opt::<&str>("tokenizer.chat_template")?.map(Into::into),
        })
    }
}

#[cfg(test)]
mod tests;
