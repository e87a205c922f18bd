//! Reads what the user typed as the name of a model or dataset.
//!
//! Looks at the file system (a path that exists wins over a name) but never at the network and never
//! at the cards: which ids exist is the resolver's question. Tests: `tests/hub.rs`.

use std::{
    fmt,
    fs::File,
    io::Read,
    path::{Component, Path, PathBuf},
};

use super::HubError;

/// Where a model is to come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// A GGUF file on this machine.
    Gguf(PathBuf),
    /// A folder on this machine with `config.json`, `tokenizer.json` and safetensors.
    Folder(PathBuf),
    /// The id of a shipped model card.
    Card(String),
    /// A repository on the hub.
    Hub(HubName),
}

/// A repository on the hub, written `OWNER/NAME[:FILE][@REVISION]`: a model or a dataset, as whoever reads it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubName {
    /// Owner and name, as in `owner/name`.
    pub repository: String,
    /// The file inside. Of a model a GGUF file; `None` for the safetensors folder or a repository's only GGUF file. Of a
    /// dataset a file of records; `None` where nobody said which.
    pub file: Option<String>,
    /// Branch, tag or commit; `None` for the default branch.
    pub revision: Option<String>,
}

impl fmt::Display for HubName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repository)?;
        if let Some(file) = &self.file {
            write!(f, ":{file}")?;
        }
        if let Some(revision) = &self.revision {
            write!(f, "@{revision}")?;
        }
        Ok(())
    }
}

impl ModelSource {
    /// Reads `typed`: an existing path first, then a hub name (it has a `/`), else a card's id.
    ///
    /// Fails when a path was evidently meant and is not there, when a file is not GGUF or a folder no
    /// model, and when the text has none of the accepted forms.
    pub fn parse(typed: &str) -> Result<Self, HubError> {
        let path = Path::new(typed);
        if path.is_file() {
            return check_gguf(path).map(|()| Self::Gguf(path.to_owned()));
        }
        if path.is_dir() {
            let named_as_path = typed.contains(['/', '\\']) || typed.starts_with('.');
            match path.join("config.json").is_file() {
                true => return Ok(Self::Folder(path.to_owned())),
                // A bare word may be a card's id beside an unrelated folder of that name.
                false if named_as_path => {
                    return Err(HubError::IncompleteFolder {
                        path: path.to_owned(),
                        missing: "config.json".into(),
                    });
                }
                false => {}
            }
        }
        let only_a_path = typed.starts_with(['/', '.', '~', '\\'])
            || typed.contains('\\')
            || (is_gguf(typed) && !typed.contains(':'));
        if only_a_path {
            return Err(HubError::NoSuchPath { path: path.to_owned() });
        }
        if typed.contains(['/', ':', '@']) {
            return HubName::parse(typed).map(Self::Hub);
        }
        if is_word(typed) {
            return Ok(Self::Card(typed.to_owned()));
        }
        Err(bad(typed, "an id has letters, digits, '.', '_' and '-' only"))
    }
}

impl HubName {
    /// Reads a model's name, `OWNER/NAME[:FILE.gguf][@REVISION]`. Fails on any other form, and on parts such as `..`
    /// that would leave a folder when joined to a path.
    pub fn parse(typed: &str) -> Result<Self, HubError> {
        let name = Self::split(typed).map_err(|reason| bad(typed, reason))?;
        match &name.file {
            Some(file) if !is_gguf(file) => {
                Err(bad(typed, "after ':' comes a .gguf file inside the repository"))
            }
            _ => Ok(name),
        }
    }

    /// Reads a dataset's name, `OWNER/NAME[:FILE][@REVISION]` with a .parquet, .json or .jsonl file. Fails as
    /// [`HubName::parse`] does.
    pub fn parse_dataset(typed: &str) -> Result<Self, HubError> {
        let bad = |reason| HubError::BadDatasetName { typed: typed.to_owned(), reason };
        let name = Self::split(typed).map_err(bad)?;
        match &name.file {
            Some(file) if !is_data_file(file) => {
                Err(bad("after ':' comes the path of a .parquet, .json or .jsonl file inside the repository"))
            }
            _ => Ok(name),
        }
    }

    /// What holds for the names of models and datasets; else what is wrong.
    fn split(typed: &str) -> Result<Self, &'static str> {
        let (rest, revision) = match typed.rsplit_once('@') {
            Some((rest, revision)) => (rest, Some(revision)),
            None => (typed, None),
        };
        let (repository, file) = match rest.split_once(':') {
            Some((repository, file)) => (repository, Some(file)),
            None => (rest, None),
        };
        let owner_and_name = repository.split('/').collect::<Vec<_>>();
        if owner_and_name.len() != 2 || !owner_and_name.iter().all(|part| is_word(part)) {
            return Err("a repository is OWNER/NAME of letters, digits, '.', '_' and '-'");
        }
        if file.is_some_and(|file| !stays_inside(file)) {
            return Err("after ':' comes the path of a file inside the repository");
        }
        if revision.is_some_and(|revision| !revision.split('/').all(is_word)) {
            return Err("after '@', at the end, comes a branch, tag or commit");
        }
        Ok(Self {
            repository: repository.to_owned(),
            file: file.map(str::to_owned),
            revision: revision.map(str::to_owned),
        })
    }
}

fn bad(typed: &str, reason: &'static str) -> HubError {
    HubError::BadName { typed: typed.to_owned(), reason }
}

/// Whether a file name ends in `.gguf`, in any case.
pub(super) fn is_gguf(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// Whether a file name ends as a dataset's files do: in .parquet, .json or .jsonl, in any case.
#[must_use]
pub fn is_data_file(name: &str) -> bool {
    let extension = Path::new(name).extension().unwrap_or_default();
    ["parquet", "json", "jsonl"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Whether a relative name, joined to a folder, stays inside it.
pub(super) fn stays_inside(name: &str) -> bool {
    !name.is_empty()
        && !name.contains('\\')
        && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// One path part of a hub name, or an id.
fn is_word(word: &str) -> bool {
    !word.is_empty()
        && !word.starts_with('.')
        && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

/// Reads the first four bytes: a renamed file, a pointer file or a saved error page is told at once.
fn check_gguf(path: &Path) -> Result<(), HubError> {
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(16).read_to_end(&mut start))
        .map_err(HubError::io("read", path))?;
    if start.starts_with(b"GGUF") {
        return Ok(());
    }
    Err(HubError::NotGguf { path: path.to_owned(), start: String::from_utf8_lossy(&start).into_owned() })
}
