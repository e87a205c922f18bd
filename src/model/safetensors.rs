//! Hugging Face model folders: `config.json` and (sharded) safetensors.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
};

use half::{bf16, f16};
use memmap2::Mmap;
use safetensors::{
    SafeTensors,
    tensor::{Dtype, Metadata},
};

use super::{
    arch::{ARCHITECTURES, HfConfig, supported},
    mapped::map,
    spec::DecoderSpec,
    weights::{LoadError, Weights},
};
use crate::ops::Linear;

/// A folder's tensors, mapped into memory.
pub struct SafetensorsFolder {
    folder: PathBuf,
    shards: Vec<Shard>,
    /// Which shard holds a tensor.
    place: BTreeMap<String, usize>,
    asked: Mutex<BTreeSet<String>>,
}

struct Shard {
    file: PathBuf,
    map: Mmap,
    metadata: Metadata,
    /// Where tensor data starts in the file.
    data: usize,
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
    let arch =
        arch.ok_or_else(|| LoadError::Architecture { file: file.clone(), found, supported: supported() })?;
    let spec = (arch.from_config)(&config).map_err(|e| LoadError::key(&file, "config", &e))?;
    spec.check().map_err(|e| LoadError::key(&file, "config", &e))?;
    Ok(spec)
}

fn read(file: &Path) -> Result<String, LoadError> {
    fs::read_to_string(file).map_err(|e| LoadError::Unreadable { file: file.into(), reason: e.to_string() })
}

impl SafetensorsFolder {
    /// Maps `model.safetensors`, or the shards that `model.safetensors.index.json` names.
    ///
    /// # Errors
    /// When a file is absent, truncated or no safetensors file.
    pub fn open(folder: &Path) -> Result<Self, LoadError> {
        let index = folder.join("model.safetensors.index.json");
        let files =
            if index.is_file() { shards(folder, &index)? } else { vec![folder.join("model.safetensors")] };
        let shards = files.into_iter().map(Shard::open).collect::<Result<Vec<_>, _>>()?;
        let mut place = BTreeMap::new();
        for (i, shard) in shards.iter().enumerate() {
            for name in shard.metadata.tensors().into_keys() {
                if let Some(first) = place.insert(name.clone(), i) {
                    let reason = format!("also in {}", shards[first].file.display());
                    return Err(LoadError::key(&shard.file, name, &reason));
                }
            }
        }
        Ok(Self { folder: folder.into(), shards, place, asked: Mutex::default() })
    }

    /// The values of tensor `name`, which must have `shape`.
    fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let Some(&shard) = self.place.get(name) else {
            return Err(LoadError::key(&self.folder, name, "no such tensor in the safetensors files"));
        };
        self.asked.lock().expect("no panic while noting a name: this is a bug").insert(name.into());
        self.shards[shard].values(name, shape)
    }
}

impl Shard {
    fn open(file: PathBuf) -> Result<Self, LoadError> {
        let map = map(&file)?;
        let header = SafeTensors::read_metadata(&map);
        let (length, metadata) =
            header.map_err(|e| LoadError::Unreadable { file: file.clone(), reason: e.to_string() })?;
        let data = size_of::<u64>() + length;
        let whole = data + metadata.data_len();
        if map.len() < whole {
            let reason = format!("truncated: {} bytes, its header speaks of {whole}", map.len());
            return Err(LoadError::Unreadable { file, reason });
        }
        Ok(Self { file, map, metadata, data })
    }

    fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let info = self.metadata.info(name).expect("`place` lists what the header lists: this is a bug");
        let wrong = |reason: String| Err(LoadError::key(&self.file, name, &reason));
        if info.shape != shape {
            return wrong(format!("has shape {:?}, config.json calls for {shape:?}", info.shape));
        }
        let bytes = &self.map[self.data + info.data_offsets.0..self.data + info.data_offsets.1];
        let halves = || bytes.chunks_exact(2).map(|b| [b[0], b[1]]);
        Ok(match info.dtype {
            Dtype::F32 => {
                bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
            }
            Dtype::F16 => halves().map(|b| f16::from_le_bytes(b).to_f32()).collect(),
            Dtype::BF16 => halves().map(|b| bf16::from_le_bytes(b).to_f32()).collect(),
            other => return wrong(format!("has dtype {other:?}; supported are F32, F16, BF16")),
        })
    }
}

/// The files an index names, each once.
fn shards(folder: &Path, index: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let json: serde_json::Value =
        serde_json::from_str(&read(index)?).map_err(|e| LoadError::key(index, "weight_map", &e))?;
    let map = json["weight_map"]
        .as_object()
        .ok_or_else(|| LoadError::key(index, "weight_map", "is not an object"))?;
    let names: Option<BTreeSet<&str>> = map.values().map(|v| v.as_str()).collect();
    let names = names.ok_or_else(|| LoadError::key(index, "weight_map", "a value is not a file name"))?;
    if let Some(name) = names.iter().find(|n| n.contains(['/', '\\']) || n.starts_with("..")) {
        return Err(LoadError::key(index, "weight_map", &format!("{name:?} is not a plain file name")));
    }
    Ok(names.iter().map(|n| folder.join(n)).collect())
}

impl Weights for SafetensorsFolder {
    fn matrix(&self, name: &str, n: usize, k: usize) -> Result<Linear, LoadError> {
        Linear::new(&self.values(name, &[n, k])?, n, k).map_err(|e| LoadError::key(&self.folder, name, &e))
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        self.values(name, &[len])
    }

    fn unused(&self) -> Vec<String> {
        let asked = self.asked.lock().expect("no panic while noting a name: this is a bug");
        let useless = |name: &str| name.ends_with("rotary_emb.inv_freq") || name == "lm_head.weight";
        self.place.keys().filter(|n| !asked.contains(*n) && !useless(n)).cloned().collect()
    }
}
