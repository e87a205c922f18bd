//! What is already on this machine. Looks at names and sizes only; opens no file but small indexes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{folder::missing_in, source::is_gguf};

/// The two forms models come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CachedKind {
    /// One GGUF file.
    Gguf,
    /// A folder of safetensors.
    Folder,
}

/// A whole model on this machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CachedModel {
    /// The file's name in the model folder, or a hub name that can be typed to use it.
    pub name: String,
    /// The file or folder.
    pub path: PathBuf,
    /// Size of the file, or of all files of the folder.
    pub bytes: u64,
    /// File or folder.
    pub kind: CachedKind,
}

/// The models in `models` (a flat folder) and in `hub` (a hub cache), sorted by name. Unreadable places hold none.
pub(super) fn list_cached(models: &Path, hub: &Path) -> Vec<CachedModel> {
    let mut found = ggufs_in(models, str::to_owned);
    for repository in entries(hub) {
        let folder = file_name(&repository);
        // owner--name; a further -- belongs to the name
        let Some(name) = folder.strip_prefix("models--").map(|name| name.replacen("--", "/", 1)) else {
            continue;
        };
        let branch = fs::read_to_string(repository.join("refs/main")).unwrap_or_default();
        for snapshot in entries(&repository.join("snapshots")) {
            let commit = file_name(&snapshot);
            let revision = if commit == branch.trim() { String::new() } else { format!("@{commit}") };
            found.extend(ggufs_in(&snapshot, |file| format!("{name}:{file}{revision}")));
            if missing_in(&snapshot).is_none() {
                let bytes = entries(&snapshot).iter().map(|path| size(path)).sum();
                let name = format!("{name}{revision}");
                found.push(CachedModel { name, path: snapshot, bytes, kind: CachedKind::Folder });
            }
        }
    }
    found.sort();
    found
}

fn ggufs_in(dir: &Path, name: impl Fn(&str) -> String) -> Vec<CachedModel> {
    let ggufs = entries(dir).into_iter().filter(|path| path.is_file() && is_gguf(&file_name(path)));
    ggufs
        .map(|path| CachedModel {
            name: name(&file_name(&path)),
            bytes: size(&path),
            path,
            kind: CachedKind::Gguf,
        })
        .collect()
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Links count as what they point to: snapshots are links to blobs.
fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |meta| if meta.is_file() { meta.len() } else { 0 })
}
