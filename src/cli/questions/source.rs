//! What the user typed as DATA → a path on this machine, fetched from the hub if need be.
//!
//! Owns the table of datasets that need no file named. Must not know what is in the files.
//! Tests: at the end of this file; fetching in `tests/hub.rs`.

use std::path::{Path, PathBuf};

use crate::hub::{HubError, HubName, Resolver, is_data_file};

/// Datasets on the hub whose one file is meant where none is named: repository, file.
const KNOWN: &[(&str, &str)] = &[("hotpotqa/hotpot_qa", "distractor/validation-00000-of-00001.parquet")];

/// The path that `data` is, or the file of the dataset that it names. What lies on this machine wins, and what can only
/// be a path stays one, so that whoever reads it says that it is missing. `resolver` is asked for where the hub's cache or
/// the hub is needed.
///
/// # Errors
/// When a dataset is named wrongly, or its file is neither here nor to be had.
pub(super) fn locate(
    data: &Path,
    resolver: impl FnOnce() -> Result<Resolver, HubError>,
) -> Result<PathBuf, HubError> {
    let Some(typed) = dataset(data) else { return Ok(data.to_owned()) };
    let mut name = HubName::parse_dataset(typed)?;
    if name.file.is_none() {
        let known = KNOWN.iter().find(|(repository, _)| *repository == name.repository);
        name.file = known.map(|(_, file)| (*file).to_owned());
    }
    if name.file.is_none() {
        return Err(HubError::NoFileNamed { repository: name.repository });
    }
    resolver()?.data_file(&name)
}

/// What was typed, where it may name a dataset of the hub and no path.
pub(super) fn dataset(data: &Path) -> Option<&str> {
    data.to_str().filter(|typed| !data.exists() && may_be_name(typed))
}

/// Whether a hub name may be meant by what is no path on this machine. `data/hotpot.json` is a mistyped path, not a
/// repository.
fn may_be_name(typed: &str) -> bool {
    let only_a_path = typed.starts_with(['/', '.', '~']) || typed.ends_with('/') || typed.contains('\\');
    let names_more = typed.contains([':', '@']);
    let two_words = typed.split('/').count() == 2 && !is_data_file(typed);
    typed.contains('/') && !only_a_path && (names_more || two_words)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Without a network, in an empty cache.
    fn offline(home: &Path) -> Resolver {
        let home = home.to_owned();
        let var = move |name: &str| {
            ["QRAE_MODELS", "HF_HOME"].contains(&name).then(|| home.join(name).into_os_string())
        };
        Resolver::from_vars(true, false, var).unwrap()
    }

    fn not_asked() -> Result<Resolver, HubError> {
        panic!("no resolver is needed for a path")
    }

    #[test]
    fn paths_stay_paths() {
        let home = tempfile::tempdir().unwrap();
        let there = home.path().join("owner:name@x.json");
        fs::write(&there, "").unwrap();
        assert_eq!(locate(&there, not_asked).unwrap(), there);
        for absent in [
            "hotpot.json",
            "folder/",
            "a/folder/",
            "data/hotpot.json",
            "a/b/hotpot.jsonl",
            "a/b/c",
            "./a/b",
            "/a/b",
            "~/a",
            "a\\b/c",
        ] {
            assert_eq!(locate(Path::new(absent), not_asked).unwrap(), Path::new(absent));
        }
    }

    #[test]
    fn a_known_dataset_needs_no_file() {
        let home = tempfile::tempdir().unwrap();
        for (typed, meant) in [
            ("hotpotqa/hotpot_qa", "hotpotqa/hotpot_qa:distractor/validation-00000-of-00001.parquet"),
            ("hotpotqa/hotpot_qa@v1", "hotpotqa/hotpot_qa:distractor/validation-00000-of-00001.parquet@v1"),
            ("hotpotqa/hotpot_qa:a/b.jsonl", "hotpotqa/hotpot_qa:a/b.jsonl"),
        ] {
            match locate(Path::new(typed), || Ok(offline(home.path()))) {
                Err(HubError::Offline { what, looked }) => {
                    assert_eq!((what.as_str(), looked), (meant, vec![home.path().join("HF_HOME/hub")]));
                }
                other => panic!("{typed}: {other:?}"),
            }
        }
    }

    #[test]
    fn an_unknown_dataset_asks_for_a_file() {
        let said = |typed: &str| locate(Path::new(typed), not_asked).unwrap_err().to_string();
        let unknown = said("owner/name");
        assert!(unknown.contains("owner/name is no file or folder here"), "{unknown}");
        assert!(unknown.contains("owner/name:FILE"), "{unknown}");
        for wrong in [
            "owner/name:weights.gguf",
            "owner/name:../x.json",
            "o/n/x:a.json",
            "owner/name:x.json@",
            "own er/n",
        ] {
            let said = said(wrong);
            assert!(
                said.contains("is no dataset's name") && said.contains("OWNER/NAME:FILE[@REVISION]"),
                "{said}"
            );
        }
    }
}
