//! What a folder of safetensors must hold, and whether one holds it. Reads nothing but the shard index.
//!
//! Tests: `tests/hub.rs`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::source::{is_gguf, stays_inside};

pub(super) const INDEX: &str = "model.safetensors.index.json";
pub(super) const SINGLE: &str = "model.safetensors";
/// What a folder needs beside the weights, and what is taken along when the repository has it.
pub(super) const NEEDED: [&str; 2] = ["config.json", "tokenizer.json"];
pub(super) const OPTIONAL: [&str; 3] =
    ["tokenizer_config.json", "generation_config.json", "chat_template.jinja"];

/// The first file that keeps `folder` from being a whole model; `None` when nothing is missing.
pub(super) fn missing_in(folder: &Path) -> Option<String> {
    let absent = |name: &str| !folder.join(name).is_file();
    if let Some(name) = NEEDED.into_iter().find(|name| absent(name)) {
        return Some(name.to_owned());
    }
    if absent(INDEX) {
        return absent(SINGLE).then(|| SINGLE.to_owned());
    }
    match shards(&folder.join(INDEX)) {
        Ok(shards) => shards.into_iter().find(|shard| absent(shard)),
        Err(_) => Some(format!("readable {INDEX}")),
    }
}

/// The one GGUF file at the top of `folder`.
pub(super) fn only_gguf_in(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let ggufs = entries.filter(|path| path.is_file() && is_gguf(&path.to_string_lossy())).collect::<Vec<_>>();
    <[PathBuf; 1]>::try_from(ggufs).ok().map(|[only]| only)
}

/// The weight files that an index names, each once; all of them inside the folder.
pub(super) fn shards(index: &Path) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(index).map_err(|error| error.to_string())?;
    let json: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let map = json.get("weight_map").and_then(Value::as_object).ok_or("it has no weight_map")?;
    let mut shards = map
        .values()
        .map(|shard| match shard.as_str() {
            Some(name) if stays_inside(name) => Ok(name.to_owned()),
            _ => Err(format!("it names {shard}, which is no file inside the folder")),
        })
        .collect::<Result<Vec<_>, _>>()?;
    shards.sort_unstable();
    shards.dedup();
    Ok(shards)
}
