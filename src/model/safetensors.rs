//! Hugging Face model folders: `config.json` and (sharded) safetensors.
//!
//! Matrices are read panel by panel into the form that is multiplied, so that a weight is in memory once. Tests are in
//! `tests/model_golden.rs`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Mutex,
};

use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::{
    arch::{ARCHITECTURES, HfConfig, supported},
    reader::Reader,
    spec::DecoderSpec,
    weights::{Compute, LoadError, Weights, finite},
};
use crate::ops::{Linear, cpu::FloatType};
use crate::text::{shown, shown_sentence};

/// Longest header that is read: what the format's own library allows.
const MAX_HEADER: u64 = 100_000_000;

/// Bytes that are looked at, and shown where they start no safetensors file.
const START: u64 = 40;

/// A folder's tensors.
pub struct SafetensorsFolder {
    folder: PathBuf,
    compute: Compute,
    shards: Vec<Shard>,
    /// Which shard holds a tensor.
    place: BTreeMap<String, usize>,
    asked: Mutex<BTreeSet<String>>,
}

struct Shard {
    file: PathBuf,
    reader: Reader,
    metadata: Metadata,
    /// Where tensor data starts in the file.
    data: u64,
}

/// A tensor and where it lies.
struct Found<'a> {
    shard: &'a Shard,
    info: &'a TensorInfo,
    float: FloatType,
}

/// Reads `config.json` of `folder`.
///
/// # Errors
/// When it is absent, is not JSON, lacks a key, or describes something that is not supported.
pub fn read_spec(folder: &Path) -> Result<DecoderSpec, LoadError> {
    let file = folder.join("config.json");
    let text = read(&file)?;
    let config: HfConfig = serde_json::from_str(&text).map_err(|e| LoadError::key(&file, "config", &e))?;
    let found = config.name().to_owned();
    let arch = ARCHITECTURES.iter().find(|a| a.hf_name == found || a.model_type == found);
    let arch = arch.ok_or_else(|| LoadError::Architecture {
        file: file.clone(),
        found: shown(&found),
        supported: supported(),
    })?;
    let spec = (arch.from_config)(&config).map_err(|e| LoadError::key(&file, "config", &e))?;
    spec.check().map_err(|e| LoadError::key(&file, "config", &e))?;
    Ok(spec)
}

fn read(file: &Path) -> Result<String, LoadError> {
    fs::read_to_string(file).map_err(|e| LoadError::Unreadable { file: file.into(), reason: e.to_string() })
}

impl SafetensorsFolder {
    /// Opens `model.safetensors`, or the shards that `model.safetensors.index.json` names.
    ///
    /// # Errors
    /// When a file is absent, truncated or no safetensors file.
    pub fn open(folder: &Path, compute: Compute) -> Result<Self, LoadError> {
        let index = folder.join("model.safetensors.index.json");
        let (files, map) = if index.is_file() {
            shards(folder, &index)?
        } else {
            (vec![folder.join("model.safetensors")], BTreeMap::new())
        };
        let shards = files.into_iter().map(Shard::open).collect::<Result<Vec<_>, _>>()?;
        let place = places(&shards, &map)?;
        Ok(Self { folder: folder.into(), compute, shards, place, asked: Mutex::default() })
    }

    /// Tensor `name`, which must have `shape`.
    fn find(&self, name: &str, shape: &[usize]) -> Result<Found<'_>, LoadError> {
        let Some(&shard) = self.place.get(name) else {
            return Err(LoadError::key(&self.folder, name, "no such tensor in the safetensors files"));
        };
        self.asked.lock().expect("no panic while noting a name: this is a bug").insert(name.into());
        self.shards[shard].find(name, shape)
    }
}

impl Shard {
    fn open(file: PathBuf) -> Result<Self, LoadError> {
        Self::read(&file).map_err(|reason| LoadError::Unreadable { file, reason: shown_sentence(&reason) })
    }

    fn read(file: &Path) -> Result<Self, String> {
        let open = File::open(file).map_err(|e| e.to_string())?;
        let len = open.metadata().map_err(|e| e.to_string())?.len();
        let reader = Reader::new(open);
        let part = |at: u64, bytes: u64| {
            let mut part = vec![0; bytes as usize];
            reader.read_at(at, &mut part).map(|()| part).map_err(|e| e.to_string())
        };
        let short = |whole: u64| format!("truncated: {len} bytes, its header speaks of {whole}");
        let start = part(0, len.min(START))?;
        let header = match start.first_chunk() {
            Some(size) if u64::from_le_bytes(*size) <= MAX_HEADER => u64::from_le_bytes(*size),
            _ => return Err(no_header(&start)),
        };
        let data = 8 + header;
        if len < data {
            return Err(short(data));
        }
        let header = part(8, header)?;
        let metadata: Metadata = serde_json::from_slice(&header)
            .map_err(|e| at_fault(&header).unwrap_or_else(|| format!("its header is broken: {e}")))?;
        let whole = data.saturating_add(metadata.data_len() as u64);
        if len != whole {
            return Err(if len < whole { short(whole) } else { format!("{} bytes too long", len - whole) });
        }
        Ok(Self { file: file.into(), reader, metadata, data })
    }

    fn find(&self, name: &str, shape: &[usize]) -> Result<Found<'_>, LoadError> {
        let info = self.metadata.info(name).expect("`place` lists what the header lists: this is a bug");
        let wrong = |reason: String| Err(LoadError::key(&self.file, name, &reason));
        if info.shape != shape {
            return wrong(format!("has shape {:?}, config.json calls for {shape:?}", info.shape));
        }
        let float = match info.dtype {
            Dtype::F32 => FloatType::F32,
            Dtype::F16 => FloatType::F16,
            Dtype::BF16 => FloatType::BF16,
            other => return wrong(format!("has dtype {other:?}; supported are F32, F16, BF16")),
        };
        Ok(Found { shard: self, info, float })
    }
}

/// What to say of a file that starts with no length of a header.
fn no_header(start: &[u8]) -> String {
    if start.is_empty() {
        return "it is empty: fetch it again".into();
    }
    let shown = start.escape_ascii();
    if start.starts_with(b"version ") && start.windows(7).any(|w| w == b"git-lfs") {
        return format!(
            "it is a Git LFS pointer, not the weights (it starts with \"{shown}\"): run git lfs pull"
        );
    }
    format!("no safetensors file: it starts with \"{shown}\"; fetch it again")
}

/// Which tensor a header that the format's library refuses is wrong about, and how; none where no tensor is to blame.
fn at_fault(header: &[u8]) -> Option<String> {
    let mut tensors: BTreeMap<String, serde_json::Value> = serde_json::from_slice(header).ok()?;
    tensors.remove("__metadata__");
    let mut all = vec![];
    for (name, info) in tensors {
        match serde_json::from_value::<TensorInfo>(info) {
            Ok(info) => all.push((name, info)),
            Err(e) => return Some(format!("tensor {}: {e}", shown(&name))),
        }
    }
    all.sort_by_key(|(_, info)| info.data_offsets);
    let mut next = 0;
    for (name, TensorInfo { dtype, shape, data_offsets: (from, to) }) in all {
        if from != next || to < from {
            return Some(format!(
                "tensor {}: lies at bytes {from} to {to}, not from {next} on",
                shown(&name)
            ));
        }
        let bits = shape.iter().try_fold(dtype.bitsize(), |bits, n| bits.checked_mul(*n));
        if bits != (to - from).checked_mul(8) {
            let size = bits.map_or("too many".into(), |bits| bits.div_ceil(8).to_string());
            let lies = to - from;
            return Some(format!(
                "tensor {}: shape {shape:?} of {dtype:?} is {size} bytes, {lies} are there",
                shown(&name)
            ));
        }
        next = to;
    }
    None
}

impl Found<'_> {
    /// Reads bytes `from ..` of the tensor, as many as `to` holds.
    fn read(&self, from: usize, to: &mut [u8]) -> io::Result<()> {
        let (start, end) = self.info.data_offsets;
        assert!(from + to.len() <= end - start, "bytes past a tensor's end: this is a bug");
        self.shard.reader.read_at(self.shard.data + (start + from) as u64, to)
    }
}

/// The files an index names, each once, and which of them it says a tensor is in.
fn shards(folder: &Path, index: &Path) -> Result<(Vec<PathBuf>, BTreeMap<String, PathBuf>), LoadError> {
    let json: serde_json::Value =
        serde_json::from_str(&read(index)?).map_err(|e| LoadError::key(index, "weight_map", &e))?;
    let map = json["weight_map"]
        .as_object()
        .ok_or_else(|| LoadError::key(index, "weight_map", "is not an object"))?;
    let mut said = BTreeMap::new();
    for (tensor, file) in map {
        let file =
            file.as_str().ok_or_else(|| LoadError::key(index, "weight_map", "a value is not a file name"))?;
        if file.contains(['/', '\\']) || file.starts_with("..") {
            let reason = format!("\"{}\" is not a plain file name", shown(file));
            return Err(LoadError::key(index, "weight_map", &reason));
        }
        said.insert(tensor.clone(), folder.join(file));
    }
    let files: BTreeSet<PathBuf> = said.values().cloned().collect();
    Ok((files.into_iter().collect(), said))
}

/// Which shard each tensor is read from. One that lies in several is read from the one that the index says.
fn places(shards: &[Shard], said: &BTreeMap<String, PathBuf>) -> Result<BTreeMap<String, usize>, LoadError> {
    let mut place = BTreeMap::new();
    for (i, shard) in shards.iter().enumerate() {
        for name in shard.metadata.tensors().into_keys() {
            let holds = |s: &Shard| said.get(&name) == Some(&s.file) && s.metadata.info(&name).is_some();
            let meant = shards.iter().position(holds);
            if let (Some(first), None) = (place.insert(name.clone(), meant.unwrap_or(i)), meant) {
                let reason = format!("also in {}", shards[first].file.display());
                return Err(LoadError::key(&shard.file, name, &reason));
            }
        }
    }
    Ok(place)
}

impl Weights for SafetensorsFolder {
    fn matrix(&self, name: &str, n: usize, k: usize) -> Result<Linear, LoadError> {
        let found = self.find(name, &[n, k])?;
        let row_bytes = k * found.float.bytes();
        let read = |rows: Range<usize>, to: &mut [u8]| found.read(rows.start * row_bytes, to);
        self.compute.matrix((&found.shard.file, name), found.float, (n, k), read)
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        let found = self.find(name, &[len])?;
        let mut bytes = vec![0; len * found.float.bytes()];
        found.read(0, &mut bytes).map_err(|e| LoadError::key(&found.shard.file, name, &e))?;
        finite(&found.shard.file, name, found.float.values(&bytes))
    }

    fn compute(&self) -> Compute {
        self.compute
    }

    fn unused(&self) -> Vec<String> {
        let asked = self.asked.lock().expect("no panic while noting a name: this is a bug");
        let useless = |name: &str| name.ends_with("rotary_emb.inv_freq") || name == "lm_head.weight";
        self.place.keys().filter(|n| !asked.contains(*n) && !useless(n)).cloned().collect()
    }
}
