//! One question's observation in a file, and back.

use std::collections::{BTreeMap, HashMap};

use safetensors::{Dtype, SafeTensors, View, tensor::serialize};
use serde::{Deserialize, Serialize};

use crate::{
    eval::{
        judged::{Judged, JudgedError},
        observation::{HeadTable, Observation},
    },
    ids::HeadRef,
    score::Method,
};

/// A question's observation with what it is judged by.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The question's id.
    pub id: String,
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

/// Numbers on their way into a file.
pub(super) struct Numbers(pub(super) Vec<usize>, pub(super) Vec<u8>);

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
    /// Content hash of the question, which the file is named after.
    question: String,
    id: String,
    query: String,
    labels: Option<Vec<u32>>,
    chunk_lens: Vec<usize>,
}

/// The file of a record; `question` is the question's content hash.
pub(super) fn encode(record: &Record, question: &str) -> Result<Vec<u8>, String> {
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
        question: question.to_owned(),
        id: record.id.clone(),
        query: record.query.clone(),
        labels: record.labels.clone(),
        chunk_lens: seen.chunk_lens.clone(),
    };
    let about = serde_json::to_string(&about).map_err(|e| e.to_string())?;
    serialize(tensors, Some(HashMap::from([("about".to_owned(), about)]))).map_err(|e| e.to_string())
}

/// The record in a file, and the content hash of its question.
pub(super) fn decode(bytes: &[u8], n_heads: usize, methods: &[String]) -> Result<(Record, String), String> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| e.to_string())?;
    let about =
        header.metadata().as_ref().and_then(|m| m.get("about")).ok_or("it does not say what it is")?;
    let About { question, id, query, labels, chunk_lens } =
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
    Ok((Record { id, query, labels, observation }, question))
}
