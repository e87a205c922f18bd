//! The hub: its shared cache on this machine, and downloads into it through hf-hub.
//!
//! hf-hub sets no time limits and does not compare hashes, so both happen here: a connection is tried
//! first, every transfer runs on its own thread and is given up when nothing has arrived for a while, and
//! what arrived is compared with the announced size and, for large files, the sha256 that names the blob.
//! A broken transfer leaves hf-hub's `.part` file, from which the next one goes on. Tests: `tests/hub.rs`.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use hf_hub::{
    Cache, Repo, RepoType,
    api::sync::{Api, ApiBuilder, ApiError, ApiRepo},
};

use super::{
    HubError, HubName, HubSettings, ModelFiles,
    folder::{INDEX, NEEDED, OPTIONAL, SINGLE, missing_in, only_gguf_in, shards},
    report::Reporter,
    source::{is_gguf, stays_inside},
    store::sha256_of,
    watch::{self, Watch},
};

/// A transfer that breaks off is taken up again this often, as long as each try brought bytes.
const RESUMES: usize = 4;
/// hf-hub waits five seconds for another process's lock; this many times that is ten minutes.
const LOCK_TRIES: usize = 120;

/// The hub as one set of settings sees it.
#[derive(Debug)]
pub(super) struct Remote<'a> {
    pub(super) settings: &'a HubSettings,
    pub(super) say: Reporter,
}

/// One repository at one revision.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    kind: RepoType,
    repository: &'a str,
    revision: &'a str,
}

impl<'a> Wanted<'a> {
    fn new(kind: RepoType, name: &'a HubName) -> Self {
        Self { kind, repository: &name.repository, revision: name.revision.as_deref().unwrap_or("main") }
    }

    fn repo(&self) -> Repo {
        Repo::with_revision(self.repository.to_owned(), self.kind, self.revision.to_owned())
    }
}

impl fmt::Display for Wanted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if matches!(self.kind, RepoType::Dataset) { "the dataset " } else { "" };
        write!(f, "{kind}{} at {}", self.repository, self.revision)
    }
}

impl Remote<'_> {
    /// The files of `name` as far as this machine has them, complete; no network.
    pub(super) fn cached(&self, name: &HubName) -> Option<ModelFiles> {
        let snapshot = self.snapshot(Wanted::new(RepoType::Model, name))?;
        match &name.file {
            Some(file) => Some(snapshot.join(file)).filter(|path| path.is_file()).map(ModelFiles::Gguf),
            None => match missing_in(&snapshot) {
                None => Some(ModelFiles::Folder(snapshot)),
                // Of a repository with many GGUF files, the one that is here is the one that was meant.
                Some(_) => only_gguf_in(&snapshot).map(ModelFiles::Gguf),
            },
        }
    }

    /// Downloads what is missing of `name`.
    pub(super) fn fetch(&self, name: &HubName) -> Result<ModelFiles, HubError> {
        let wanted = Wanted::new(RepoType::Model, name);
        let (api, listing) = self.open(&wanted, name)?;
        // One commit for every file, even when the branch moves meanwhile.
        let at_commit = Wanted { revision: &listing.commit, ..wanted };
        let files = match &name.file {
            Some(file) if !listing.files.contains(file) => return Err(not_found(&wanted, file)),
            Some(file) => ModelFiles::Gguf(self.file(&api, &at_commit, file)?),
            None if listing.has(SINGLE) || listing.has(INDEX) => {
                ModelFiles::Folder(self.folder(&api, &at_commit, &listing)?)
            }
            None => ModelFiles::Gguf(self.file(&api, &at_commit, listing.only_gguf(&wanted)?)?),
        };
        // Only now does the branch name this commit: a half-fetched folder is never taken for whole.
        self.remember(&wanted, &listing)?;
        Ok(files)
    }

    /// One file of a dataset as this machine has it; no network.
    pub(super) fn cached_data(&self, name: &HubName, file: &str) -> Option<PathBuf> {
        let path = self.snapshot(Wanted::new(RepoType::Dataset, name))?.join(file);
        path.is_file().then_some(path)
    }

    /// Downloads one file of a dataset.
    pub(super) fn fetch_data(&self, name: &HubName, file: &str) -> Result<PathBuf, HubError> {
        let wanted = Wanted::new(RepoType::Dataset, name);
        let (api, listing) = self.open(&wanted, name)?;
        if !listing.has(file) {
            return Err(not_found(&wanted, file));
        }
        let path = self.file(&api, &Wanted { revision: &listing.commit, ..wanted }, file)?;
        self.remember(&wanted, &listing)?;
        Ok(path)
    }

    /// Connects, and asks what there is.
    fn open(&self, wanted: &Wanted<'_>, name: &HubName) -> Result<(Api, Listing), HubError> {
        let api = self.api()?;
        self.say.note(&format!("trying the hub for {name}"));
        watch::connect(&api.repo(wanted.repo()).url(""), self.settings)?;
        let listing = self.listing(&api, wanted)?;
        Ok((api, listing))
    }

    /// Notes in the cache which commit the revision meant.
    fn remember(&self, wanted: &Wanted<'_>, listing: &Listing) -> Result<(), HubError> {
        let repo = self.cache().repo(wanted.repo());
        repo.create_ref(&listing.commit).map_err(HubError::io("write", self.cache().path()))
    }

    fn cache(&self) -> Cache {
        Cache::new(self.settings.cache_dir.clone())
    }

    fn api(&self) -> Result<Api, HubError> {
        let mut builder = ApiBuilder::from_cache(self.cache()).with_progress(false);
        if let Some(endpoint) = &self.settings.endpoint {
            builder = builder.with_endpoint(endpoint.clone());
        }
        if let Some(token) = &self.settings.token {
            builder = builder.with_token(Some(token.clone()));
        }
        builder.build().map_err(|error| HubError::Unreachable {
            address: "the hub".into(),
            reason: format!("the client could not be set up: {error}"),
        })
    }

    /// The folder of the cached commit that is wanted: by branch or tag, or a commit's own name.
    fn snapshot(&self, wanted: Wanted<'_>) -> Option<PathBuf> {
        let repo = wanted.repo();
        let by_name = self.settings.cache_dir.join(repo.folder_name()).join("refs").join(wanted.revision);
        let commit = fs::read_to_string(by_name).unwrap_or_else(|_| wanted.revision.to_owned());
        let commit = commit.trim();
        if !stays_inside(commit) {
            return None;
        }
        Some(self.cache().repo(repo).pointer_path(commit)).filter(|dir| dir.is_dir())
    }

    fn listing(&self, api: &Api, wanted: &Wanted<'_>) -> Result<Listing, HubError> {
        let repo = api.repo(wanted.repo());
        let what = "the file list";
        let info =
            watch::run(self.settings, &self.say.spinner(&format!("asking for {what}")), move |_| repo.info())
                .map_err(|silence| transfer(wanted, what, silence.to_string()))?
                .map_err(|error| match self.classify(wanted, what, &error) {
                    HubError::NotFound { .. } => HubError::NotFound { what: wanted.to_string() },
                    other => other,
                })?;
        let files = info.siblings.into_iter().map(|sibling| sibling.rfilename).collect::<Vec<_>>();
        if !stays_inside(&info.sha) {
            return Err(HubError::UnsafeName { repository: wanted.repository.into(), name: info.sha });
        }
        Ok(Listing { commit: info.sha, files })
    }

    /// Gives the hub's refusals their own error.
    fn classify(&self, wanted: &Wanted<'_>, file: &str, error: &ApiError) -> HubError {
        match (status(error), error) {
            (Some(status @ (401 | 403)), _) => {
                HubError::Refused { repository: wanted.repository.into(), status }
            }
            (Some(404), _) => not_found(wanted, file),
            // What an earlier run left is as long as the file, or longer: there is nothing to go on from.
            (Some(416), _) | (_, ApiError::InvalidResume) => {
                let folder = self.settings.cache_dir.join(wanted.repo().folder_name());
                let reason = format!("a part file does not fit, delete {}/blobs/*.part", folder.display());
                transfer(wanted, file, reason)
            }
            _ => transfer(wanted, file, error.to_string()),
        }
    }

    /// Every file of a model folder; the folder's path.
    fn folder(&self, api: &Api, wanted: &Wanted<'_>, listing: &Listing) -> Result<PathBuf, HubError> {
        for file in NEEDED {
            if !listing.has(file) {
                return Err(not_found(wanted, file));
            }
            self.file(api, wanted, file)?;
        }
        for file in OPTIONAL.into_iter().filter(|file| listing.has(file)) {
            self.file(api, wanted, file)?;
        }
        let folder = if listing.has(INDEX) {
            let index = self.file(api, wanted, INDEX)?;
            let shards = shards(&index).map_err(|reason| transfer(wanted, INDEX, reason))?;
            for shard in &shards {
                if !listing.files.contains(shard) {
                    return Err(not_found(wanted, shard));
                }
                self.file(api, wanted, shard)?;
            }
            index
        } else {
            self.file(api, wanted, SINGLE)?
        };
        let folder = folder.parent().expect("a file in a snapshot has a parent: this is a bug").to_owned();
        match missing_in(&folder) {
            None => Ok(folder),
            Some(missing) => Err(HubError::IncompleteFolder { path: folder, missing }),
        }
    }

    /// One file: from the cache when it is there, else downloaded, taken up again where it broke off, and checked.
    fn file(&self, api: &Api, wanted: &Wanted<'_>, file: &str) -> Result<PathBuf, HubError> {
        if !stays_inside(file) {
            return Err(HubError::UnsafeName { repository: wanted.repository.into(), name: file.into() });
        }
        let repo = wanted.repo();
        let in_cache = self.cache().repo(repo.clone()).pointer_path(wanted.revision).join(file);
        let bar = self.say.bytes_bar(file);
        let (mut resumes, mut waits) = (0, 0);
        let (path, size) = loop {
            // Asked again after every wait: the process that held the lock may have finished the file.
            if in_cache.is_file() {
                return Ok(in_cache);
            }
            let repo: ApiRepo = api.repo(repo.clone());
            let name = file.to_owned();
            let before = bar.position();
            let outcome = watch::run(self.settings, &bar, move |progress| download(&repo, &name, progress))
                .map_err(|silence| transfer(wanted, file, silence.to_string()))?;
            match outcome {
                Ok(done) => break done,
                Err(ApiError::LockAcquisition(_)) if waits < LOCK_TRIES => {
                    if waits == 0 {
                        self.say.note(&format!("another process is fetching {file}, waiting for it"));
                    }
                    waits += 1;
                }
                Err(error) if bar.position() > before && resumes < RESUMES => {
                    resumes += 1;
                    self.say.note(&format!("{file} broke off ({error}), going on from there"));
                }
                Err(error) => return Err(self.classify(wanted, file, &error)),
            }
        };
        bar.finish_and_clear();
        check(wanted, file, &path, size)?;
        Ok(path)
    }
}

/// Downloads one file; its path and the size the hub announced.
fn download(repo: &ApiRepo, file: &str, progress: Watch) -> Result<(PathBuf, Option<u64>), ApiError> {
    let announced = progress.announced();
    let path = repo.download_with_progress(file, progress)?;
    let size = announced.lock().map_or(None, |size| *size);
    Ok((path, size))
}

/// The commit behind a revision, and the files there.
struct Listing {
    commit: String,
    files: Vec<String>,
}

impl Listing {
    fn has(&self, file: &str) -> bool {
        self.files.iter().any(|name| name == file)
    }

    fn only_gguf(&self, wanted: &Wanted<'_>) -> Result<&str, HubError> {
        let ggufs = self.files.iter().filter(|name| is_gguf(name)).collect::<Vec<_>>();
        match ggufs.as_slice() {
            [only] => Ok(only),
            all => Err(HubError::WhichFile {
                repository: wanted.repository.into(),
                files: all.iter().map(|name| (*name).clone()).collect(),
            }),
        }
    }
}

/// Compares a fresh download with what was announced, and removes it when it differs.
fn check(wanted: &Wanted<'_>, file: &str, path: &Path, size: Option<u64>) -> Result<(), HubError> {
    let blob = path.canonicalize().map_err(HubError::io("read", path))?;
    let length = fs::metadata(&blob).map_err(HubError::io("read", &blob))?.len();
    let failure = if size.is_some_and(|size| size != length) {
        Some(transfer(wanted, file, format!("{length} bytes arrived, {} were announced", size.unwrap_or(0))))
    } else {
        // The hub names large files by their sha256, small ones by a git hash.
        let name = blob.file_name().unwrap_or_default().to_string_lossy();
        let is_sha256 = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let found =
            if is_sha256 { Some(sha256_of(&blob).map_err(HubError::io("read", &blob))?) } else { None };
        found.filter(|found| !name.eq_ignore_ascii_case(found)).map(|found| HubError::WrongHash {
            what: format!("{file} of {}", wanted.repository),
            expected: name.into_owned(),
            found,
        })
    };
    let Some(failure) = failure else { return Ok(()) };
    for path in [path, &blob] {
        fs::remove_file(path).map_err(HubError::io("remove", path))?;
    }
    Err(failure)
}

fn not_found(wanted: &Wanted<'_>, file: &str) -> HubError {
    HubError::NotFound { what: format!("{file} in {wanted}") }
}

fn transfer(wanted: &Wanted<'_>, file: &str, reason: String) -> HubError {
    HubError::Transfer { repository: wanted.repository.into(), file: file.into(), reason }
}

/// The HTTP status behind an error. The HTTP client's error type is not ours to name, its text is.
fn status(error: &ApiError) -> Option<u16> {
    match error {
        ApiError::RequestError(inner) => inner.to_string().strip_prefix("http status: ")?.parse().ok(),
        ApiError::TooManyRetries(inner) => status(inner),
        _ => None,
    }
}
