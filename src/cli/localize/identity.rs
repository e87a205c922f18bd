//! What tells observations of one model from another's: everything a number in them depends on.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use anyhow::Context;
use sha2::{Digest, Sha256};

use super::super::load::Ready;
use crate::{
    hub::ModelFiles,
    study::folder::{FORMAT, Identity, Kind},
};

/// Files up to this size are hashed whole: configurations, small models.
const WHOLE: u64 = 16 << 20;

/// Of larger ones, the first [`SAMPLE`] bytes of every stretch this long: some of every matrix, at a sixteenth of the time.
const STRETCH: u64 = 64 << 10;
const SAMPLE: u64 = 4 << 10;

/// What belongs to the observations of this model.
///
/// # Errors
/// When its files cannot be read any more.
pub(in super::super) fn identity(ready: &Ready, kind: Kind) -> anyhow::Result<Identity> {
    let model = &ready.model;
    let spec = model.engine.spec();
    Ok(Identity {
        format: FORMAT,
        kind,
        model: ready.card.as_ref().map_or(&model.id, |card| &card.id).clone(),
        weights: digest(&files(&ready.files)?)?,
        n_layers: spec.n_layers,
        n_heads: spec.n_heads,
        rope: format!("theta {} {}", spec.rope.theta, serde_json::to_string(&spec.rope.scaling)?),
        prompt_hash: model.prompt_hash.clone(),
        tokenizer_hash: model.tokenizer.hash().to_owned(),
        compute: model.compute.to_string(),
        methods: Identity::current_methods(),
    })
}

/// The files that say what the model computes, the tokenizer's aside. Their names do not matter, but for their order.
fn files(model: &ModelFiles) -> anyhow::Result<Vec<PathBuf>> {
    let folder = match model {
        ModelFiles::Gguf(file) => return Ok(vec![file.clone()]),
        ModelFiles::Folder(folder) => folder,
    };
    let entries = fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.map(|e| Ok(e?.path())).collect::<io::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|e| e == "safetensors"));
    files.push(folder.join("config.json"));
    files.sort();
    Ok(files)
}

/// Digest of the files' sizes and (of large ones a sample of) their bytes: `sha256:` and 64 hex digits.
fn digest(files: &[PathBuf]) -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    for file in files {
        add(&mut hash, file).with_context(|| format!("{} cannot be read", file.display()))?;
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("sha256:{hex}"))
}

fn add(hash: &mut Sha256, path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    hash.update(size.to_le_bytes());
    let sample = if size <= WHOLE { STRETCH } else { SAMPLE };
    let mut bytes = Vec::new();
    for start in (0..size).step_by(STRETCH as usize) {
        file.seek(SeekFrom::Start(start))?;
        bytes.clear();
        file.by_ref().take(sample).read_to_end(&mut bytes)?;
        hash.update(&bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_changes_with_what_the_model_computes() {
        let home = tempfile::tempdir().unwrap();
        let of = |name: &str, bytes: &[u8]| {
            let file = home.path().join(name);
            fs::write(&file, bytes).unwrap();
            digest(&[file]).unwrap()
        };
        let small = vec![1_u8; 100_000];
        let mut other = small.clone();
        other[99_999] = 2;
        assert_eq!(of("a.gguf", &small), of("b.gguf", &small), "whatever it is called");
        assert_ne!(of("a.gguf", &small), of("a.gguf", &other), "each byte of a small file counts");
        assert_ne!(of("a.gguf", &small), of("a.gguf", &small[..99_999]));

        let large = vec![1_u8; WHOLE as usize + 200_000];
        let mut tuned = large.clone();
        tuned[5_000_000..5_100_000].fill(2); // one matrix of a hundred
        assert_ne!(of("a.gguf", &large), of("a.gguf", &tuned));
        assert_ne!(of("a.gguf", &large), of("a.gguf", &large[1..]), "and the size");
        assert!(digest(&[home.path().join("gone")]).unwrap_err().to_string().contains("gone cannot be read"));
    }

    #[test]
    fn a_folders_configuration_and_weights_count() {
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(home.path().join(name), text).unwrap();
        let of = || digest(&files(&ModelFiles::Folder(home.path().to_owned())).unwrap()).unwrap();
        write("config.json", "{}");
        write("model-1.safetensors", "a");
        write("model-2.safetensors", "b");
        let first = of();
        write("README.md", "other words");
        assert_eq!(of(), first);
        write("model-2.safetensors", "c");
        let second = of();
        write("config.json", "[]");
        assert!(first != second && second != of() && first != of());
    }
}
