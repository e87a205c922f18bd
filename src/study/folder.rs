//! A study's folder: one file per observed question, so that work can stop, go on, be split and be put together.
//!
//! ```text
//! FOLDER/study.toml                 what was observed: model, prompt, tokenizer, arithmetic
//! FOLDER/inputs/<hash>.safetensors  one question's observation; the hash is of everything the model was shown
//! ```
//!
//! An observation is complete or not there: it is written beside its place and moved. The files open in Python:
//! `safetensors.numpy.load_file`. Tests: `folder/tests.rs`.

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    path::{Path, PathBuf},
};

use safetensors::{Dtype, SafeTensors, View, tensor::serialize};
use serde::{Deserialize, Serialize};

use crate::{
    eval::{
        judged::{Judged, JudgedError},
        observation::{HeadTable, Observation, methods},
        question::Question,
    },
    ids::HeadRef,
    prompt::layout::content_hash,
    score::Method,
};

/// What observations of one folder have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Version of the folder's format.
    pub format: u32,
    /// Id of the model's card, or its name.
    pub model: String,
    /// Layers of the model.
    pub n_layers: usize,
    /// Query heads per layer.
    pub n_heads: usize,
    /// Hash of the scoring prompt.
    pub prompt_hash: String,
    /// Hash of the tokenizer.
    pub tokenizer_hash: String,
    /// Arithmetic of the linear layers.
    pub compute: String,
    /// The methods each observation has a table of.
    pub methods: Vec<String>,
}

/// The folder format this version reads and writes.
pub const FORMAT: u32 = 2;

impl Identity {
    /// The methods that this version observes.
    #[must_use]
    pub fn current_methods() -> Vec<String> {
        methods().map(|m| m.to_string()).collect()
    }
}

/// A folder that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A file or folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file holds something else.
    #[error("{}: {reason}; remove it, and what it held is observed again", path.display())]
    Broken {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The folder belongs to another model, prompt or program version.
    #[error(
        "{}: it was made with {field} {found}, this run has {wanted}; choose another folder with --out, or remove this one",
        path.display()
    )]
    Other {
        /// The folder.
        path: PathBuf,
        /// What differs.
        field: &'static str,
        /// There.
        found: String,
        /// Here.
        wanted: String,
    },
    /// No study there.
    #[error("{}: no study is there; `qrae localize DATA --out {}` makes one", path.display(), path.display())]
    Missing {
        /// The folder.
        path: PathBuf,
    },
}

/// A study's folder.
#[derive(Clone, Debug)]
pub struct Folder {
    root: PathBuf,
    identity: Identity,
}

/// A question's observation with what it is judged by.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The question's id.
    pub id: String,
    /// Name of the file or folder the question came from.
    pub data: String,
    /// What is asked.
    pub query: String,
    /// Per chunk, where the data says it: 0 is not relevant.
    pub labels: Option<Vec<u32>>,
    /// What every head showed.
    pub observation: Observation,
}

impl Record {
    /// Scores of one method by all heads, with the labels.
    ///
    /// # Errors
    /// When numbers and labels do not fit together: then the file was tampered with.
    pub fn judged(&self, method: Method) -> Result<Judged, JudgedError> {
        let table = self.observation.tables.get(&method.to_string());
        self.judged_by(table.expect("every observation has every method: this is a bug"))
    }

    /// The same of another table of heads and chunks.
    ///
    /// # Errors
    /// Likewise.
    pub fn judged_by(&self, table: &HeadTable) -> Result<Judged, JudgedError> {
        let unknown = || vec![0; self.observation.n_chunks()];
        let labels = self.labels.clone().unwrap_or_else(unknown);
        Ok(Judged::new(self.observation.n_heads, table.clone(), labels)?.asking(&self.query))
    }

    /// Scores of the chunks by a head set, `n_heads` being those of a layer.
    ///
    /// # Errors
    /// Likewise, or when a head does not exist.
    pub fn scores(&self, heads: &[HeadRef], method: Method, n_heads: usize) -> Result<Vec<f64>, JudgedError> {
        let index = |h: &HeadRef| usize::from(h.layer) * n_heads + usize::from(h.head);
        self.judged(method)?.set_score(&heads.iter().map(index).collect::<Vec<_>>())
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> StudyError {
    let path = path.to_owned();
    move |source| StudyError::Io { path, source }
}

impl Folder {
    /// Opens `root`, or makes it. What is there must have been made with the same `identity`.
    ///
    /// # Errors
    /// When it was made with another one, or cannot be read or written.
    pub fn create(root: &Path, identity: &Identity) -> Result<Self, StudyError> {
        let inputs = root.join("inputs");
        match Self::open(root) {
            Ok(found) => {
                found.must_be(identity)?;
                fs::create_dir_all(&inputs).map_err(io_error(&inputs))?; // whoever removed them wants them anew
                Ok(found)
            }
            Err(StudyError::Missing { .. }) => {
                let file = root.join("study.toml");
                fs::create_dir_all(&inputs).map_err(io_error(&inputs))?;
                let text = toml::to_string(identity).expect("plain values are TOML: this is a bug");
                write_whole(&file, text.as_bytes())?;
                Ok(Self { root: root.to_owned(), identity: identity.clone() })
            }
            Err(other) => Err(other),
        }
    }

    /// Opens the study in `root`.
    ///
    /// # Errors
    /// When there is none, it cannot be read, or this version observes something else than the one that made it.
    pub fn open(root: &Path) -> Result<Self, StudyError> {
        let file = root.join("study.toml");
        let text = match fs::read_to_string(&file) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(StudyError::Missing { path: root.to_owned() });
            }
            text => text.map_err(io_error(&file))?,
        };
        let identity: Identity = toml::from_str(&text)
            .map_err(|e| StudyError::Broken { path: file.clone(), reason: e.message().to_owned() })?;
        let heads = 1..=usize::from(u16::MAX);
        if !heads.contains(&identity.n_layers) || !heads.contains(&identity.n_heads) {
            let reason = format!("no model has {} × {} heads", identity.n_layers, identity.n_heads);
            return Err(StudyError::Broken { path: file, reason });
        }
        let ours = Identity { format: FORMAT, methods: Identity::current_methods(), ..identity.clone() };
        let folder = Self { root: root.to_owned(), identity };
        folder.must_be(&ours)?;
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

    /// Checks that the folder was made with `wanted`.
    ///
    /// # Errors
    /// Names the first thing that differs.
    pub fn must_be(&self, wanted: &Identity) -> Result<(), StudyError> {
        let fields = |i: &Identity| {
            [
                ("format", i.format.to_string()),
                ("model", i.model.clone()),
                ("layers × heads", format!("{} × {}", i.n_layers, i.n_heads)),
                ("prompt", i.prompt_hash.clone()),
                ("tokenizer", i.tokenizer_hash.clone()),
                ("--compute", i.compute.clone()),
                ("methods", i.methods.join(" ")),
            ]
        };
        // dozens of methods: those that are on one side only say enough
        let besides = |these: &[String], those: &[String]| {
            let only: Vec<&str> = these.iter().filter(|m| !those.contains(m)).map(String::as_str).collect();
            if only.is_empty() { "fewer".to_owned() } else { only.join(" ") }
        };
        let methods = (&self.identity.methods, &wanted.methods);
        let differs = fields(&self.identity).into_iter().zip(fields(wanted)).find(|(a, b)| a != b);
        match differs {
            None => Ok(()),
            Some((("methods", _), _)) => Err(StudyError::Other {
                path: self.root.clone(),
                field: "methods",
                found: besides(methods.0, methods.1),
                wanted: besides(methods.1, methods.0),
            }),
            Some(((field, found), (_, wanted))) => {
                Err(StudyError::Other { path: self.root.clone(), field, found, wanted })
            }
        }
    }

    fn file(&self, question: &Question) -> PathBuf {
        let hash = content_hash(&["input 1", &question.content_hash()]);
        let digits = hash.trim_start_matches("sha256:");
        self.root.join("inputs").join(format!("{}.safetensors", &digits[..24]))
    }

    /// Whether the question has been observed.
    #[must_use]
    pub fn has(&self, question: &Question) -> bool {
        self.file(question).is_file()
    }

    /// Keeps the observation of a question of `data`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn keep(&self, question: &Question, data: &str, observation: &Observation) -> Result<(), StudyError> {
        let file = self.file(question);
        let record = Record {
            id: question.id.clone(),
            data: data.to_owned(),
            query: question.query.clone(),
            labels: question.labels.clone(),
            observation: observation.clone(),
        };
        let bytes = encode(&record).map_err(|reason| StudyError::Broken { path: file.clone(), reason })?;
        write_whole(&file, &bytes)
    }

    /// The observations of these questions, as far as there are any, in the order of [`Self::all`].
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn of(&self, questions: &[&Question]) -> Result<Vec<Record>, StudyError> {
        let mut files: Vec<PathBuf> =
            questions.iter().map(|q| self.file(q)).filter(|f| f.is_file()).collect();
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
        let inputs = self.root.join("inputs");
        let entries = fs::read_dir(&inputs).map_err(io_error(&inputs))?;
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(io_error(&inputs))?.path();
            if path.extension().is_some_and(|e| e == "safetensors") {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// Takes over the observations of `other`, which must have been made likewise; those that are here already stay.
    ///
    /// # Errors
    /// When it was not, or a file cannot be copied.
    pub fn take_from(&self, other: &Self) -> Result<usize, StudyError> {
        other.must_be(&self.identity)?;
        let mut taken = 0;
        for file in other.files()? {
            let to = self.root.join("inputs").join(file.file_name().unwrap_or_default());
            if !to.is_file() {
                write_whole(&to, &fs::read(&file).map_err(io_error(&file))?)?;
                taken += 1;
            }
        }
        Ok(taken)
    }

    fn read(&self, file: &Path) -> Result<Record, StudyError> {
        let bytes = fs::read(file).map_err(io_error(file))?;
        let n_heads = self.identity.n_layers * self.identity.n_heads;
        decode(&bytes, n_heads, &self.identity.methods)
            .map_err(|reason| StudyError::Broken { path: file.to_owned(), reason })
    }
}

/// Writes beside the place, then moves: a reader sees all of it or nothing.
fn write_whole(file: &Path, bytes: &[u8]) -> Result<(), StudyError> {
    let beside = file.with_extension(format!("{}.part", std::process::id()));
    fs::write(&beside, bytes).map_err(io_error(&beside))?;
    fs::rename(&beside, file).map_err(io_error(file))
}

/// Numbers on their way into a file.
struct Numbers(Vec<usize>, Vec<u8>);

impl View for Numbers {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }
    fn shape(&self) -> &[usize] {
        &self.0
    }
    fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        (&self.1).into()
    }
    fn data_len(&self) -> usize {
        self.1.len()
    }
}

/// What is no number of a head.
#[derive(Serialize, Deserialize)]
struct About {
    id: String,
    data: String,
    query: String,
    labels: Option<Vec<u32>>,
    chunk_lens: Vec<usize>,
}

fn encode(record: &Record) -> Result<Vec<u8>, String> {
    let seen = &record.observation;
    let bytes = |x: &[f32]| x.iter().flat_map(|v| v.to_le_bytes()).collect();
    let table = vec![seen.n_heads, seen.n_chunks()];
    let mut tensors: Vec<(&str, Numbers)> =
        seen.tables.iter().map(|(name, t)| (name.as_str(), Numbers(table.clone(), bytes(t)))).collect();
    tensors.push(("qr", Numbers(table, bytes(&seen.qr))));
    tensors.push(("icr", Numbers(vec![seen.n_chunks()], bytes(&seen.icr))));
    if let Some(mass) = &seen.answer_mass {
        tensors.push(("answer_mass", Numbers(vec![seen.n_heads], bytes(mass))));
    }
    let about = About {
        id: record.id.clone(),
        data: record.data.clone(),
        query: record.query.clone(),
        labels: record.labels.clone(),
        chunk_lens: seen.chunk_lens.clone(),
    };
    let about = serde_json::to_string(&about).map_err(|e| e.to_string())?;
    serialize(tensors, Some(HashMap::from([("about".to_owned(), about)]))).map_err(|e| e.to_string())
}

fn decode(bytes: &[u8], n_heads: usize, methods: &[String]) -> Result<Record, String> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| e.to_string())?;
    let about =
        header.metadata().as_ref().and_then(|m| m.get("about")).ok_or("it does not say what it is")?;
    let About { id, data, query, labels, chunk_lens } =
        serde_json::from_str(about).map_err(|e| e.to_string())?;
    let file = SafeTensors::deserialize(bytes).map_err(|e| e.to_string())?;
    let read = |name: &str, n: usize| -> Result<Vec<f32>, String> {
        let tensor = file.tensor(name).map_err(|e| e.to_string())?;
        if tensor.dtype() != Dtype::F32 || tensor.data().len() != 4 * n {
            return Err(format!("{name} does not hold {n} numbers of 32 bits"));
        }
        let number = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let numbers: Vec<f32> = tensor.data().chunks_exact(4).map(number).collect();
        let finite = numbers.iter().all(|v| v.is_finite());
        finite.then_some(numbers).ok_or_else(|| format!("{name} holds what is no number"))
    };
    let n_chunks = chunk_lens.len();
    if labels.as_ref().is_some_and(|l| l.len() != n_chunks) {
        return Err(format!("it has other than {n_chunks} labels"));
    }
    let tables: Result<BTreeMap<_, _>, String> =
        methods.iter().map(|m| Ok((m.clone(), read(m, n_heads * n_chunks)?))).collect();
    let answered = file.names().contains(&"answer_mass");
    let observation = Observation {
        n_heads,
        answer_mass: if answered { Some(read("answer_mass", n_heads)?) } else { None },
        tables: tables?,
        qr: read("qr", n_heads * n_chunks)?,
        icr: read("icr", n_chunks)?,
        chunk_lens,
    };
    Ok(Record { id, data, query, labels, observation })
}

#[cfg(test)]
mod tests;
