//! The header of a GGUF file: metadata and tensor directory (format: ggml's `docs/gguf.md`, versions 2, 3).
//!
//! Trusts nothing: every length is compared with what is left of the file before anything is allocated, so
//! memory stays within a small multiple of the file's size. Tests are in `gguf/tests.rs`.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufReader, Read},
    path::Path,
};

use super::{GgufError, TENSOR_TYPES, TensorInfo, Value};
use crate::text::shown;

/// Data of a file that names no alignment starts at a multiple of this.
const DEFAULT_ALIGNMENT: u64 = 32;
/// The format's limit.
const MAX_DIMS: u32 = 4;
/// Longest text read, in bytes. Chat templates are the longest real ones, at some ten thousand.
const MAX_TEXT: u64 = 1 << 26;
/// Names of type codes that exist but cannot be loaded.
const OTHER_TENSOR_TYPES: [(u32, &str); 21] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
    (41, "Q1_0"),
];

pub(super) struct Header {
    pub(super) metadata: BTreeMap<String, Value>,
    pub(super) tensors: BTreeMap<String, TensorInfo>,
}

/// Reads the header of `file`, which is `len` bytes long and stands at its start.
pub(super) fn read(file: &File, len: u64, path: &Path) -> Result<Header, GgufError> {
    let mut reader = Reader { inner: BufReader::with_capacity(1 << 20, file), path, at: 0, len };
    reader.check_magic()?;
    let tensor_count = reader.u64("the tensor count")?;
    let key_count = reader.u64("the metadata count")?;
    let mut metadata = BTreeMap::new();
    for n in 0..key_count {
        let key = reader.text(&format!("the name of metadata entry {n} of {key_count}"))?;
        let value = reader.value(&key)?;
        if metadata.insert(key.clone(), value).is_some() {
            return Err(reader.malformed(&format!("key {}", shown(&key)), "it appears twice"));
        }
    }
    let mut tensors = BTreeMap::new();
    for n in 0..tensor_count {
        let name = reader.text(&format!("the name of tensor {n} of {tensor_count}"))?;
        let info = reader.tensor_info(&name)?;
        if tensors.insert(name.clone(), info).is_some() {
            return Err(reader.malformed(&format!("tensor {}", shown(&name)), "it appears twice"));
        }
    }
    place(&reader, &metadata, &mut tensors)?;
    Ok(Header { metadata, tensors })
}

/// Turns offsets within the data section into offsets within the file and checks that all data is there.
fn place(
    reader: &Reader<'_>,
    metadata: &BTreeMap<String, Value>,
    tensors: &mut BTreeMap<String, TensorInfo>,
) -> Result<(), GgufError> {
    let alignment = match metadata.get("general.alignment") {
        None => DEFAULT_ALIGNMENT,
        Some(&Value::Int(v)) if (1..=1 << 20).contains(&v) => v as u64,
        Some(other) => {
            let reason = format!("it is {}, expected an integer from 1 to 1048576", other.describe());
            return Err(reader.malformed("key general.alignment", &reason));
        }
    };
    let data_start = reader.at.next_multiple_of(alignment);
    for (name, info) in tensors.iter_mut() {
        let what = format!("tensor {}", shown(name));
        if !info.offset.is_multiple_of(alignment) {
            let reason = format!("its offset {} is no multiple of the alignment {alignment}", info.offset);
            return Err(reader.malformed(&what, &reason));
        }
        info.offset = info.offset.saturating_add(data_start);
        let have = reader.len.saturating_sub(info.offset);
        if info.bytes as u64 > have {
            return Err(reader.truncated(&what, info.bytes as u64, have));
        }
    }
    check_apart(reader, tensors, alignment)
}

/// Refuses tensors that share bytes, and bytes behind the last one: both are signs of a directory that belongs to other
/// data. Gaps between tensors are padding.
fn check_apart(
    reader: &Reader<'_>,
    tensors: &BTreeMap<String, TensorInfo>,
    alignment: u64,
) -> Result<(), GgufError> {
    let end = |info: &TensorInfo| info.offset + info.bytes as u64;
    let mut order: Vec<(&String, &TensorInfo)> = tensors.iter().collect();
    order.sort_by_key(|(_, info)| info.offset);
    for pair in order.windows(2) {
        let [(first, before), (second, after)] = [pair[0], pair[1]];
        if after.offset < end(before) {
            let reason = format!(
                "it begins at byte {}, inside tensor {}, which ends at {}",
                after.offset,
                shown(first),
                end(before)
            );
            return Err(reader.malformed(&format!("tensor {}", shown(second)), &reason));
        }
    }
    let Some((last, info)) = order.last() else { return Ok(()) };
    let rest = reader.len - end(info);
    if rest > alignment {
        let reason = format!(
            "{rest} bytes follow it, the last one, where at most {alignment} are padding; fetch the file again"
        );
        return Err(reader.malformed(&format!("tensor {}", shown(last)), &reason));
    }
    Ok(())
}

/// A bounded reader: knows how much of the file is left.
struct Reader<'a> {
    inner: BufReader<&'a File>,
    path: &'a Path,
    at: u64,
    len: u64,
}

impl Reader<'_> {
    fn malformed(&self, what: &str, reason: &str) -> GgufError {
        GgufError::Malformed { file: self.path.into(), what: what.into(), reason: reason.into() }
    }

    fn truncated(&self, what: &str, need: u64, have: u64) -> GgufError {
        GgufError::Truncated { file: self.path.into(), what: what.into(), need, have }
    }

    fn need(&self, bytes: u64, what: &str) -> Result<(), GgufError> {
        let have = self.len - self.at;
        if bytes > have { Err(self.truncated(what, bytes, have)) } else { Ok(()) }
    }

    fn fill(&mut self, into: &mut [u8], what: &str) -> Result<(), GgufError> {
        self.need(into.len() as u64, what)?;
        self.inner
            .read_exact(into)
            .map_err(|e| GgufError::Io { file: self.path.into(), reason: format!("{what}: {e}") })?;
        self.at += into.len() as u64;
        Ok(())
    }

    fn bytes<const N: usize>(&mut self, what: &str) -> Result<[u8; N], GgufError> {
        let mut raw = [0; N];
        self.fill(&mut raw, what)?;
        Ok(raw)
    }

    fn u32(&mut self, what: &str) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.bytes(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.bytes(what)?))
    }

    fn text(&mut self, what: &str) -> Result<String, GgufError> {
        let len = self.u64(what)?;
        self.need(len, what)?;
        if len > MAX_TEXT {
            return Err(self.malformed(what, &format!("a text of {len} bytes, at most {MAX_TEXT} are read")));
        }
        let mut raw = vec![0; len as usize];
        self.fill(&mut raw, what)?;
        Ok(String::from_utf8(raw).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
    }

    fn check_magic(&mut self) -> Result<(), GgufError> {
        let head = self.len.min(4) as usize;
        let mut magic = [0; 4];
        self.fill(&mut magic[..head], "the first bytes")?;
        if &magic[..head] != b"GGUF" {
            let found = match head {
                0 => "nothing (it is empty)".into(),
                _ => format!("\"{}\"", magic[..head].escape_ascii()),
            };
            return Err(GgufError::NotGguf { file: self.path.into(), found });
        }
        let version = self.u32("the version")?;
        if !(2..=3).contains(&version) {
            return Err(GgufError::Version { file: self.path.into(), version });
        }
        Ok(())
    }

    fn value(&mut self, key: &str) -> Result<Value, GgufError> {
        let what = format!("key {}", shown(key));
        match self.u32(&what)? {
            9 => self.array(&what),
            kind => self.scalar(kind, &what),
        }
    }

    fn scalar(&mut self, kind: u32, what: &str) -> Result<Value, GgufError> {
        Ok(match kind {
            0 => Value::Int(u8::from_le_bytes(self.bytes(what)?).into()),
            1 => Value::Int(i8::from_le_bytes(self.bytes(what)?).into()),
            2 => Value::Int(u16::from_le_bytes(self.bytes(what)?).into()),
            3 => Value::Int(i16::from_le_bytes(self.bytes(what)?).into()),
            4 => Value::Int(u32::from_le_bytes(self.bytes(what)?).into()),
            5 => Value::Int(i32::from_le_bytes(self.bytes(what)?).into()),
            6 => Value::Float(f32::from_le_bytes(self.bytes(what)?).into()),
            7 => match self.bytes::<1>(what)? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                [other] => {
                    return Err(self.malformed(what, &format!("the truth value is {other}, not 0 or 1")));
                }
            },
            8 => Value::Text(self.text(what)?),
            10 => Value::Int(u64::from_le_bytes(self.bytes(what)?).into()),
            11 => Value::Int(i64::from_le_bytes(self.bytes(what)?).into()),
            12 => Value::Float(f64::from_le_bytes(self.bytes(what)?)),
            other => return Err(self.malformed(what, &format!("value type {other} does not exist"))),
        })
    }

    fn array(&mut self, what: &str) -> Result<Value, GgufError> {
        let kind = self.u32(what)?;
        let len = self.u64(what)?;
        let least = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            8 | 10..=12 => 8,
            9 => return Err(self.malformed(what, "an array of arrays, which no known model has")),
            other => return Err(self.malformed(what, &format!("value type {other} does not exist"))),
        };
        self.need(len.saturating_mul(least), what)?;
        // Longer arrays grow as they are read: a sparse file may claim any length.
        let first = len.min(1 << 20) as usize;
        let mut ints = Vec::new();
        let mut floats = Vec::new();
        let mut texts = Vec::new();
        match kind {
            6 | 12 => floats.reserve(first),
            8 => texts.reserve(first),
            _ => ints.reserve(first),
        }
        for _ in 0..len {
            match self.scalar(kind, what)? {
                Value::Float(v) => floats.push(v as f32),
                Value::Text(v) => texts.push(v),
                Value::Bool(v) => ints.push(v.into()),
                Value::Int(v) => ints
                    .push(v.try_into().map_err(|_| self.malformed(what, &format!("{v} is over 63 bits")))?),
                _ => unreachable!("a scalar is not an array: this is a bug"),
            }
        }
        Ok(match kind {
            6 | 12 => Value::Floats(floats),
            8 => Value::Texts(texts),
            _ => Value::Ints(ints),
        })
    }

    fn tensor_info(&mut self, name: &str) -> Result<TensorInfo, GgufError> {
        let what = format!("tensor {}", shown(name));
        let n_dims = self.u32(&what)?;
        if !(1..=MAX_DIMS).contains(&n_dims) {
            return Err(self.malformed(&what, &format!("{n_dims} dimensions, expected 1 to {MAX_DIMS}")));
        }
        let mut dims = (0..n_dims).map(|_| self.u64(&what)).collect::<Result<Vec<_>, _>>()?;
        dims.reverse(); // stored innermost first
        let code = self.u32(&what)?;
        let Some(&(_, _, dtype)) = TENSOR_TYPES.iter().find(|(c, ..)| *c == code) else {
            let named = OTHER_TENSOR_TYPES.iter().find(|(c, _)| *c == code);
            let found = named.map_or_else(|| format!("number {code}"), |(_, n)| (*n).into());
            return Err(GgufError::TensorType { file: self.path.into(), tensor: shown(name), found });
        };
        let offset = self.u64(&what)?;
        let block = dtype.block_size() as u64;
        let elements = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d)).unwrap_or(0);
        if elements == 0 || dims.last().is_none_or(|d| d % block != 0) {
            let reason = format!("shape {dims:?} is impossible for {dtype:?}, stored in blocks of {block}");
            return Err(self.malformed(&what, &reason));
        }
        let bytes = (elements / block).saturating_mul(dtype.type_size() as u64);
        let narrow = |n: u64| usize::try_from(n).map_err(|_| self.truncated(&what, n, self.len));
        Ok(TensorInfo {
            shape: dims.iter().map(|&d| narrow(d)).collect::<Result<_, _>>()?,
            dtype,
            offset,
            bytes: narrow(bytes)?,
        })
    }
}
