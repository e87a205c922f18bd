//! Head sets: which heads a model is scored with, as files say it and as checked against the loaded model.
//!
//! Two stages: [`RawHeadSet`] is what a TOML file holds, [`HeadSet`] is one that fits the model at hand.
//! Must not know where files lie or what a tensor is. Tests: below, and `tests/data_files.rs`.

mod error;
mod raw;
#[cfg(test)]
mod tests;

pub use error::{HeadSetError, HeadSetProblem};
pub use raw::{Provenance, RawHeadSet};
use serde::{Deserialize, Serialize};

use super::Method;
use crate::{ids::HeadRef, prompt::layout::content_hash};

/// What a head set is checked against: the loaded model and its prompt.
#[derive(Clone, Copy, Debug)]
pub struct HeadTarget<'a> {
    /// Id of the model card.
    pub model: &'a str,
    /// Query heads per layer.
    pub n_heads: usize,
    /// Per layer, counted from 0: whether a query there sees every earlier position, so that its attention
    /// row can be read. False for sliding windows and for layers without attention. `[n_layers]`
    pub full_rows: &'a [bool],
    /// Hash of the scoring prompt in use.
    pub prompt_hash: &'a str,
    /// Hash of the tokenizer in use.
    pub tokenizer_hash: &'a str,
}

/// How firmly a head set is tied to the model it is used with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Found with this model, prompt and tokenizer: all hashes are in the file and match.
    Bound,
    /// Found with this model, but the file does not (yet) prove prompt and tokenizer.
    Provisional,
    /// Taken from a publication; not reproduced here.
    Published,
}

/// Heads that fit the loaded model.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadSet {
    name: String,
    heads: Vec<HeadRef>,
    method: Option<Method>,
    standing: Standing,
    provenance: Provenance,
    hash: String,
}

impl HeadSet {
    /// The name it was loaded under: the file's name without `.toml`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The heads, ascending by layer, then head; unique, in range, at least one. Rows keep this order.
    #[must_use]
    pub fn heads(&self) -> &[HeadRef] {
        &self.heads
    }

    /// The method the file names.
    #[must_use]
    pub fn method(&self) -> Option<Method> {
        self.method
    }

    /// The method of a request that names none: the file's, else the paper's.
    #[must_use]
    pub fn default_method(&self) -> Method {
        self.method.unwrap_or_default()
    }

    /// How firmly it is tied to the model.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Where it comes from.
    #[must_use]
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// Hash of what decides the scores: model, prompt in use, heads, method; `sha256:` and 64 hex digits.
    /// Name, provenance and standing are not in it, so recording a prompt hash later changes nothing.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// `name@` and the first 12 digits of the hash: how responses name the set.
    #[must_use]
    pub fn label(&self) -> String {
        let digits = self.hash.trim_start_matches("sha256:");
        format!("{}@{}", self.name, &digits[..12])
    }
}

impl RawHeadSet {
    /// Checks the set against the loaded model. Refuses another model, shape, prompt or tokenizer, heads
    /// that don't exist, repeat or have no full attention rows, and claims the file cannot back.
    pub fn check(self, target: &HeadTarget<'_>) -> Result<HeadSet, HeadSetError> {
        match self.problem(target) {
            Some(problem) => Err(HeadSetError { set: self.name, problem }),
            None => Ok(self.into_head_set(target)),
        }
    }

    fn problem(&self, target: &HeadTarget<'_>) -> Option<HeadSetProblem> {
        self.own_problem().or_else(|| self.binding_problem(target)).or_else(|| {
            let without_rows = |h: &&HeadRef| !target.full_rows[usize::from(h.layer)];
            self.heads.iter().find(without_rows).map(|&head| HeadSetProblem::NoFullRows { head })
        })
    }

    /// Everything the file names must be what is loaded.
    fn binding_problem(&self, target: &HeadTarget<'_>) -> Option<HeadSetProblem> {
        let differs = |named: &Option<String>, loaded: &str| {
            named.as_ref().filter(|n| *n != loaded).map(|n| (n.clone(), loaded.to_owned()))
        };
        if let Some((found_with, loaded)) = differs(&self.model, target.model) {
            return Some(HeadSetProblem::OtherModel { found_with, loaded });
        }
        let (named, loaded) = ((self.n_layers, self.n_heads), (target.full_rows.len(), target.n_heads));
        if named != loaded {
            return Some(HeadSetProblem::OtherShape { named, loaded });
        }
        if let Some((found_with, loaded)) = differs(&self.prompt_hash, target.prompt_hash) {
            return Some(HeadSetProblem::OtherPrompt { found_with, loaded });
        }
        let (found_with, loaded) = differs(&self.tokenizer_hash, target.tokenizer_hash)?;
        Some(HeadSetProblem::OtherTokenizer { found_with, loaded })
    }

    fn into_head_set(self, target: &HeadTarget<'_>) -> HeadSet {
        let standing = self.standing();
        let mut heads = self.heads;
        heads.sort_unstable();
        let written: Vec<String> = heads.iter().map(HeadRef::to_string).collect();
        let method = self.method.map_or_else(String::new, |m| m.to_string());
        let hash =
            content_hash(&["head set 1", target.model, target.prompt_hash, &written.join(" "), &method]);
        HeadSet { name: self.name, heads, method: self.method, standing, provenance: self.provenance, hash }
    }
}
