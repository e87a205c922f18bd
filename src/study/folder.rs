//! A study's folder: one file per observed question, so that work can stop, go on, be split and be put together.
//!
//! ```text
//! FOLDER/study.toml                 what was observed: model, prompt, tokenizer, arithmetic
//! FOLDER/inputs/<hash>.safetensors  one question's observation; the hash is of everything the model was shown
//! ```
//!
//! An observation is complete or not there: it is written beside its place and moved. The files open in Python:
//! `safetensors.numpy.load_file`. Tests: below.

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
pub const FORMAT: u32 = 1;

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
        Judged::new(self.observation.n_heads, table.clone(), labels)
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
    let About { id, data, labels, chunk_lens } = serde_json::from_str(about).map_err(|e| e.to_string())?;
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
    Ok(Record { id, data, labels, observation })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{blank, noise};
    use super::*;
    use crate::prompt::layout::Chunk;

    fn identity() -> Identity {
        Identity {
            format: FORMAT,
            model: "planted".into(),
            n_layers: 2,
            n_heads: 3,
            prompt_hash: "sha256:p".into(),
            tokenizer_hash: "sha256:t".into(),
            compute: "f32".into(),
            methods: Identity::current_methods(),
        }
    }

    fn question(number: usize, labels: Option<&[u32]>) -> Question {
        let chunk = |text: &str| Chunk { text: text.to_owned(), ..Chunk::default() };
        Question {
            id: format!("q{number}"),
            query: format!("Who is number {number}?"),
            chunks: vec![chunk("one"), chunk("two")],
            labels: labels.map(<[u32]>::to_vec),
            ..Question::default()
        }
    }

    /// Every number another one, so that nothing can be mixed up.
    fn observation(seed: u32) -> Observation {
        let mut next = noise(seed);
        let mut seen = blank("", 6, 2, None).observation;
        let numbers = seen.tables.values_mut().flatten().chain(&mut seen.qr).chain(&mut seen.icr);
        numbers.for_each(|v| *v = next());
        seen.chunk_lens = vec![3, 4 + seed as usize];
        seen.answer_mass = seed.is_multiple_of(2).then(|| (0..6).map(|_| next()).collect());
        seen
    }

    /// A folder with three observations.
    fn filled(root: &Path) -> (Folder, Vec<Question>) {
        let folder = Folder::create(root, &identity()).unwrap();
        let questions = vec![question(0, Some(&[0, 2])), question(1, None), question(2, Some(&[1, 0]))];
        for (seed, question) in (0..).zip(&questions) {
            folder.keep(question, "d.json", &observation(seed)).unwrap();
        }
        (folder, questions)
    }

    fn first_file(folder: &Folder) -> PathBuf {
        folder.files().unwrap().remove(0)
    }

    #[test]
    fn what_was_kept_is_read_again_by_whoever_opens_the_folder() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("a/b");
        let (_, questions) = filled(&root);
        let folder = Folder::open(&root).unwrap();
        assert_eq!((folder.identity(), folder.root()), (&identity(), root.as_path()));
        for (seed, question) in (0..).zip(&questions) {
            assert!(folder.has(question));
            let found = folder.of(&[question]).unwrap();
            let want = Record {
                id: question.id.clone(),
                data: "d.json".into(),
                labels: question.labels.clone(),
                observation: observation(seed),
            };
            assert_eq!(found, [want]);
        }
        let all = folder.all().unwrap();
        assert_eq!(all.len(), 3);
        // whoever asks in whatever order, also twice, gets one order
        let asked: Vec<&Question> = questions.iter().rev().chain(&questions).collect();
        assert_eq!(folder.of(&asked).unwrap(), all);
        assert!(!folder.has(&question(3, None)));
        assert_eq!(folder.of(&[&question(3, None)]).unwrap(), []);
    }

    #[test]
    fn a_question_with_other_text_labels_or_answer_is_another_one() {
        let home = tempfile::tempdir().unwrap();
        let (folder, questions) = filled(home.path());
        let known = &questions[0];
        assert!(folder.has(&Question { id: "renamed".into(), ..known.clone() }), "the id is never shown");
        for other in [
            Question { query: "Who?".into(), ..known.clone() },
            Question { labels: Some(vec![1, 2]), ..known.clone() },
            Question { labels: None, ..known.clone() },
            Question { answer: Some("one".into()), ..known.clone() },
            Question { chunks: known.chunks.iter().rev().cloned().collect(), ..known.clone() },
        ] {
            assert!(!folder.has(&other), "{other:?}");
        }
    }

    #[test]
    fn work_goes_on_where_it_stopped_and_half_written_files_are_not_there() {
        let home = tempfile::tempdir().unwrap();
        let (folder, questions) = filled(home.path());
        let file = folder.file(&questions[1]);
        // as a run leaves it that dies while it writes
        fs::rename(&file, file.with_extension("4711.part")).unwrap();
        let again = Folder::create(home.path(), &identity()).unwrap();
        assert_eq!(questions.iter().map(|q| again.has(q)).collect::<Vec<_>>(), [true, false, true]);
        assert_eq!(again.all().unwrap().len(), 2);
        again.keep(&questions[1], "d.json", &observation(1)).unwrap();
        assert_eq!(again.all().unwrap().len(), 3);

        fs::remove_dir_all(home.path().join("inputs")).unwrap();
        let empty = Folder::create(home.path(), &identity()).unwrap();
        assert_eq!(empty.all().unwrap(), []);
        empty.keep(&questions[1], "d.json", &observation(1)).unwrap();
    }

    #[test]
    fn a_folder_of_another_model_is_refused_by_what_differs() {
        let home = tempfile::tempdir().unwrap();
        let (folder, _) = filled(home.path());
        let mine = identity;
        for (other, field, found, wanted) in [
            (Identity { model: "other".into(), ..mine() }, "model", "planted", "other"),
            (Identity { n_layers: 3, ..mine() }, "layers × heads", "2 × 3", "3 × 3"),
            (Identity { prompt_hash: "sha256:q".into(), ..mine() }, "prompt", "sha256:p", "sha256:q"),
            (Identity { tokenizer_hash: "x".into(), ..mine() }, "tokenizer", "sha256:t", "x"),
            (Identity { compute: "int8".into(), ..mine() }, "--compute", "f32", "int8"),
        ] {
            let error = Folder::create(home.path(), &other).unwrap_err();
            let told = error.to_string();
            let StudyError::Other { field: f, found: a, wanted: b, path } = error else { panic!("{told}") };
            assert_eq!((f, a.as_str(), b.as_str(), path.as_path()), (field, found, wanted, home.path()));
            assert!(told.contains(&format!("with {field} {found}, this run has {wanted}")), "{told}");
            assert!(told.contains("--out"), "{told}");
            assert!(folder.must_be(&other).is_err());
        }
        assert!(folder.must_be(&mine()).is_ok());
    }

    #[test]
    fn a_folder_of_another_version_is_refused_by_what_it_lacks() {
        let home = tempfile::tempdir().unwrap();
        let (_, questions) = filled(home.path());
        let rewrite = |identity: &Identity| {
            fs::write(home.path().join("study.toml"), toml::to_string(identity).unwrap()).unwrap();
            Folder::open(home.path()).unwrap_err().to_string()
        };
        let mut fewer = identity();
        let gone = fewer.methods.remove(2);
        assert!(rewrite(&fewer).contains(&format!("with methods fewer, this run has {gone};")));
        fewer.methods.push("last/none/colour".into());
        assert!(rewrite(&fewer).contains(&format!("with methods last/none/colour, this run has {gone};")));
        assert!(rewrite(&Identity { format: 2, ..identity() }).contains("with format 2, this run has 1"));
        for (n_layers, n_heads) in [(0, 3), (2, 0), (usize::MAX >> 1, 3)] {
            let said = rewrite(&Identity { n_layers, n_heads, ..identity() });
            assert!(said.contains("study.toml: no model has") && said.contains("remove it"), "{said}");
        }
        for text in ["", "format = 1\n", "{", "model = 3"] {
            fs::write(home.path().join("study.toml"), text).unwrap();
            let error = Folder::create(home.path(), &identity()).unwrap_err();
            assert!(matches!(error, StudyError::Broken { .. }), "{text:?}: {error}");
        }
        assert_eq!(questions.len(), 3, "and the observations stay");
        assert_eq!(fs::read_dir(home.path().join("inputs")).unwrap().count(), 3);
    }

    #[test]
    fn no_study_is_told_with_how_to_make_one() {
        let home = tempfile::tempdir().unwrap();
        let told = Folder::open(home.path()).unwrap_err().to_string();
        assert!(told.contains("no study is there; `qrae localize DATA --out"), "{told}");
        fs::write(home.path().join("file"), "x").unwrap();
        let error = Folder::create(&home.path().join("file"), &identity()).unwrap_err();
        assert!(matches!(error, StudyError::Io { .. }), "{error}");
    }

    /// The file of the first observation, its about and numbers changed, and what reading it says.
    fn tampered(change: impl FnOnce(&mut serde_json::Value, &mut Vec<(String, Numbers)>)) -> String {
        let home = tempfile::tempdir().unwrap();
        let (folder, _) = filled(home.path());
        let file = first_file(&folder);
        let bytes = fs::read(&file).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let about = header.metadata().as_ref().unwrap()["about"].clone();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let mut parts: Vec<(String, Numbers)> = tensors
            .iter()
            .map(|(n, t)| (n.to_owned(), Numbers(t.shape().to_vec(), t.data().to_vec())))
            .collect();
        let mut about: serde_json::Value = serde_json::from_str(&about).unwrap();
        change(&mut about, &mut parts);
        let about = HashMap::from([("about".to_owned(), about.to_string())]);
        fs::write(&file, serialize(parts, Some(about)).unwrap()).unwrap();
        match folder.all() {
            Ok(_) => String::new(),
            Err(error @ StudyError::Broken { .. }) => {
                let told = error.to_string();
                assert!(told.contains(&file.display().to_string()), "{told}");
                assert!(told.contains("remove it, and what it held is observed again"), "{told}");
                told
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn files_that_were_tampered_with_are_broken_and_name_what_is_wrong() {
        assert_eq!(tampered(|_, _| ()), "", "rewritten, and nothing changed");
        let said = tampered(|_, parts| parts.iter_mut().find(|p| p.0 == "qr").unwrap().1.1[3] = 0x7f);
        assert_eq!(said, "", "another number is a number");
        let nan = |_: &mut serde_json::Value, parts: &mut Vec<(String, Numbers)>| {
            let qr = parts.iter_mut().find(|p| p.0 == "qr").unwrap();
            qr.1.1[..4].copy_from_slice(&f32::NAN.to_le_bytes());
        };
        assert!(tampered(nan).contains("qr holds what is no number"));
        let without = |name: &'static str| tampered(move |_, parts| parts.retain(|p| p.0 != name));
        for name in ["qr", "icr", "last/none/sum"] {
            assert!(without(name).contains(name), "{name}");
        }
        let short = |_: &mut serde_json::Value, parts: &mut Vec<(String, Numbers)>| {
            let icr = parts.iter_mut().find(|p| p.0 == "icr").unwrap();
            icr.1 = Numbers(vec![1], vec![0; 4]);
        };
        assert!(tampered(short).contains("icr does not hold 2 numbers of 32 bits"));
        let labels = |about: &mut serde_json::Value, _: &mut Vec<_>| about["labels"] = [1, 0, 0].into();
        assert!(tampered(labels).contains("other than 2 labels"));
        let lens = |about: &mut serde_json::Value, _: &mut Vec<_>| about["chunk_lens"] = "many".into();
        assert!(tampered(lens).contains("invalid type"));
    }

    #[test]
    fn files_that_hold_something_else_are_broken() {
        let home = tempfile::tempdir().unwrap();
        let (folder, questions) = filled(home.path());
        let file = first_file(&folder);
        let whole = fs::read(&file).unwrap();
        let nobody = serialize(Vec::<(String, Numbers)>::new(), None).unwrap();
        for bytes in [vec![], b"text".to_vec(), whole[..whole.len() - 1].to_vec(), vec![0xff; 64], nobody] {
            fs::write(&file, &bytes).unwrap();
            let error = folder.all().unwrap_err();
            assert!(matches!(error, StudyError::Broken { .. }), "{error}");
        }
        // and doing what it says helps
        fs::remove_file(&file).unwrap();
        assert_eq!(questions.iter().filter(|q| folder.has(q)).count(), 2);
        assert_eq!(folder.all().unwrap().len(), 2);
    }

    #[test]
    fn parts_are_put_together_and_what_is_there_stays() {
        let home = tempfile::tempdir().unwrap();
        let (whole, questions) = filled(&home.path().join("whole"));
        let part = |name: &str, own: &[usize]| {
            let folder = Folder::create(&home.path().join(name), &identity()).unwrap();
            for &i in own {
                folder.keep(&questions[i], "d.json", &observation(i as u32)).unwrap();
            }
            folder
        };
        let (a, b) = (part("a", &[0, 1]), part("b", &[1, 2]));
        let merged = part("merged", &[]);
        assert_eq!((merged.take_from(&a).unwrap(), merged.take_from(&b).unwrap()), (2, 1));
        assert_eq!(merged.all().unwrap(), whole.all().unwrap());
        let bytes = |folder: &Folder| -> Vec<Vec<u8>> {
            folder.files().unwrap().iter().map(|f| fs::read(f).unwrap()).collect()
        };
        assert_eq!(bytes(&merged), bytes(&whole), "the same files, whoever wrote them");
        assert_eq!(merged.take_from(&merged).unwrap(), 0);

        let other = Identity { compute: "int8".into(), ..identity() };
        let other = Folder::create(&home.path().join("other"), &other).unwrap();
        let refused = merged.take_from(&other).unwrap_err();
        assert!(matches!(refused, StudyError::Other { field: "--compute", .. }), "{refused}");
    }

    #[test]
    fn records_know_their_scores() {
        let method = Method::default();
        let mut record = blank("q", 6, 2, Some(&[0, 1]));
        super::super::tests::set(&mut record, method, 4, &[0.5, 1.0]);
        super::super::tests::set(&mut record, method, 5, &[0.0, 0.5]);
        let heads = |names: &[&str]| names.iter().map(|h| h.parse().unwrap()).collect::<Vec<HeadRef>>();
        assert_eq!(record.scores(&heads(&["L1H1", "L1H2"]), method, 3).unwrap(), [0.25, 0.75]);
        assert!(matches!(
            record.scores(&heads(&["L2H0"]), method, 3),
            Err(JudgedError::NoSuchHead { head: 6, n_heads: 6 })
        ));
        assert_eq!(record.judged(method).unwrap().labels(), [0, 1]);
        assert_eq!(
            blank("q", 6, 2, None).judged(method).unwrap().labels(),
            [0, 0],
            "unknown is not relevant"
        );
    }
}
