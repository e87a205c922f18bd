//! A folder of observations: one file per observed question, so that work can stop, go on, be split and be put together.
//!
//! ```text
//! FOLDER/study.toml                 what was observed and for what: model, prompt, tokenizer, arithmetic
//! FOLDER/inputs/<hash>.safetensors  one question's observation; the hash is of everything the model was shown
//! FOLDER/runs/<hash>-I-of-N.json    of a study: a part of a draw of inputs that was observed to its end
//! ```
//!
//! A file is complete or not there: it is written beside its place and moved. Whatever else lies in a folder without
//! `study.toml` is somebody's, and nothing is written there. The files open in Python: `safetensors.numpy.load_file`.
//! In `folder/`: what a folder's observations share (`identity`), an observation in a file (`record`), finished runs
//! (`run`), putting folders together (`merge`). Tests: `folder/tests.rs`.

mod error;
mod identity;
mod merge;
mod record;
mod run;

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    eval::{observation::Observation, question::Question},
    prompt::layout::content_hash,
};

pub use error::StudyError;
pub use identity::{FORMAT, Identity, Kind};
pub use record::Record;
pub use run::Run;

use record::{decode, encode};

/// What to do about a folder that another program version made.
const NEW: &str = "this version cannot use it: make a new one in another folder";

/// What to do about a folder that was made with something else.
const OUT: &str = "choose another folder with --out";

/// A folder of observations.
#[derive(Clone, Debug)]
pub struct Folder {
    root: PathBuf,
    identity: Identity,
}

impl Folder {
    /// Opens `root`, or makes it. What is there must have been made with the same `identity`.
    ///
    /// # Errors
    /// When it was made with another one, holds somebody's files, or cannot be read or written.
    pub fn create(root: &Path, identity: &Identity) -> Result<Self, StudyError> {
        let folder = match Self::open(root, identity.kind) {
            Ok(found) => {
                found.must_be(identity, OUT)?;
                found
            }
            Err(StudyError::Missing { .. }) => {
                vacant(root)?;
                fs::create_dir_all(root).map_err(StudyError::io(root))?;
                let text = toml::to_string(identity).expect("plain values are TOML: this is a bug");
                write_whole(&root.join("study.toml"), text.as_bytes())?;
                Self { root: root.to_owned(), identity: identity.clone() }
            }
            Err(other) => return Err(other),
        };
        let inputs = folder.inputs();
        fs::create_dir_all(&inputs).map_err(StudyError::io(&inputs))?; // whoever removed them wants them anew
        Ok(folder)
    }

    /// Checks, as far as that can be told without a model, that `root` is a folder of this kind or can be made one.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn may_be(root: &Path, kind: Kind) -> Result<(), StudyError> {
        match Self::open(root, kind) {
            Ok(_) => Ok(()),
            Err(StudyError::Missing { .. }) => vacant(root),
            Err(other) => Err(other),
        }
    }

    /// Opens the folder `root`.
    ///
    /// # Errors
    /// When there is none, it is of another kind, it cannot be read, or this version observes something else than the one
    /// that made it.
    pub fn open(root: &Path, kind: Kind) -> Result<Self, StudyError> {
        let file = root.join("study.toml");
        let text = match fs::read_to_string(&file) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(StudyError::Missing { path: root.to_owned() });
            }
            text => text.map_err(StudyError::io(&file))?,
        };
        let identity: Identity =
            toml::from_str(&text).map_err(|e| StudyError::unreadable(&file, e.message()))?;
        let heads = 1..=usize::from(u16::MAX);
        if !heads.contains(&identity.n_layers) || !heads.contains(&identity.n_heads) {
            let reason = format!("no model has {} × {} heads", identity.n_layers, identity.n_heads);
            return Err(StudyError::unreadable(&file, &reason));
        }
        if identity.kind != kind {
            return Err(StudyError::OtherKind { path: root.to_owned(), found: identity.kind, wanted: kind });
        }
        let ours = Identity { format: FORMAT, methods: Identity::current_methods(), ..identity.clone() };
        let folder = Self { root: root.to_owned(), identity };
        folder.must_be(&ours, NEW)?;
        Ok(folder)
    }

    /// What its observations have in common.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The folder's path.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Checks that the folder was made with `wanted`, their kinds aside; `advice` says what to do when it was not.
    ///
    /// # Errors
    /// Names the first thing that differs.
    pub fn must_be(&self, wanted: &Identity, advice: &'static str) -> Result<(), StudyError> {
        match self.identity.differs(wanted) {
            None => Ok(()),
            Some(difference) => Err(StudyError::other(&self.root, &difference, advice)),
        }
    }

    fn inputs(&self) -> PathBuf {
        self.root.join("inputs")
    }

    fn file(&self, question_hash: &str) -> PathBuf {
        let hash = content_hash(&["input 1", question_hash]);
        let digits = hash.trim_start_matches("sha256:");
        self.inputs().join(format!("{}.safetensors", &digits[..24]))
    }

    /// Names of the observations of these questions, as far as there are any, ascending.
    #[must_use]
    pub fn observed(&self, questions: &[&Question]) -> Vec<String> {
        let there = questions.iter().map(|q| self.file(&q.content_hash())).filter(|file| file.is_file());
        let names = there.filter_map(|file| Some(file.file_name()?.to_string_lossy().into_owned()));
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether the question has been observed.
    #[must_use]
    pub fn has(&self, question: &Question) -> bool {
        self.file(&question.content_hash()).is_file()
    }

    /// Keeps the observation of a question.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn keep(&self, question: &Question, observation: &Observation) -> Result<(), StudyError> {
        let hash = question.content_hash();
        let file = self.file(&hash);
        let record = Record {
            id: question.id.clone(),
            query: question.query.clone(),
            labels: question.labels.clone(),
            observation: observation.clone(),
        };
        let bytes = encode(&record, &hash).map_err(|reason| StudyError::broken(&file, &reason))?;
        write_whole(&file, &bytes)
    }

    /// The observations of these questions, as far as there are any, in the order of [`Self::all`].
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn of(&self, questions: &[&Question]) -> Result<Vec<Record>, StudyError> {
        let mut files: Vec<PathBuf> =
            questions.iter().map(|q| self.file(&q.content_hash())).filter(|f| f.is_file()).collect();
        files.sort();
        files.dedup();
        files.iter().map(|file| self.read(file)).collect()
    }

    /// Every observation, in the order of the file names, which do not depend on who observed what when.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn all(&self) -> Result<Vec<Record>, StudyError> {
        self.files()?.iter().map(|file| self.read(file)).collect()
    }

    fn files(&self) -> Result<Vec<PathBuf>, StudyError> {
        files_in(&self.inputs(), "safetensors")
    }

    /// Notes that a run came to its end.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn finish(&self, run: &Run) -> Result<(), StudyError> {
        let runs = self.root.join("runs");
        fs::create_dir_all(&runs).map_err(StudyError::io(&runs))?;
        let text = serde_json::to_string(run).expect("a run is plain values: this is a bug");
        write_whole(&runs.join(run.file_name()), text.as_bytes())
    }

    /// The runs that came to their end.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn runs(&self) -> Result<Vec<Run>, StudyError> {
        let parse = |file: &PathBuf| {
            let bytes = fs::read(file).map_err(StudyError::io(file))?;
            Run::parse(&bytes).map_err(|reason| StudyError::broken(file, &reason))
        };
        files_in(&self.root.join("runs"), "json")?.iter().map(parse).collect()
    }

    fn read(&self, file: &Path) -> Result<Record, StudyError> {
        let bytes = fs::read(file).map_err(StudyError::io(file))?;
        let n_heads = self.identity.n_layers * self.identity.n_heads;
        let broken = |reason: &str| StudyError::broken(file, reason);
        let (record, question) =
            decode(&bytes, n_heads, &self.identity.methods).map_err(|reason| broken(&reason))?;
        if self.file(&question).file_name() != file.file_name() {
            return Err(broken("its name is not that of the question in it"));
        }
        Ok(record)
    }
}

/// The files of a folder with this extension, by name; none when the folder does not exist.
fn files_in(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, StudyError> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(StudyError::io(folder))?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(StudyError::io(folder))?.path();
        if path.extension().is_some_and(|e| e == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Checks that nothing lies in `root`, where there is no `study.toml`; a file that a run was writing when it died is nothing.
fn vacant(root: &Path) -> Result<(), StudyError> {
    let entries = match fs::read_dir(root) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && root.is_symlink() => {
            return Err(StudyError::Nowhere { path: root.to_owned() });
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(StudyError::io(root))?,
    };
    for entry in entries {
        let name = entry.map_err(StudyError::io(root))?.file_name().to_string_lossy().into_owned();
        if !name.ends_with(".part") {
            return Err(StudyError::Foreign { path: root.to_owned(), inside: name });
        }
    }
    Ok(())
}

/// Writes beside the place, then moves: a reader sees all of it or what was there before, and a link is replaced, not
/// followed. What cannot be finished is removed.
///
/// # Errors
/// When it cannot be written.
pub fn write_whole(file: &Path, bytes: &[u8]) -> Result<(), StudyError> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let beside = file.with_file_name(format!("{name}.{}.part", std::process::id()));
    let written = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, file));
    written.map_err(|error| {
        let _ = fs::remove_file(&beside); // the first error says more
        StudyError::io(file)(error)
    })
}

#[cfg(test)]
mod tests;
