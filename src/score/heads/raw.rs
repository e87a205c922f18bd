//! A head set as its TOML file holds it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{HeadSetError, HeadSetProblem, Standing};
use crate::{ids::HeadRef, score::Method};

/// The file format this version reads and writes.
const FORMAT: u32 = 1;

/// The content of `heads/<model>[.<variant>].toml`, parsed but not checked against a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawHeadSet {
    /// The file's name without `.toml`; not in the file.
    #[serde(skip)]
    pub name: String,
    /// Version of the file format: 1.
    pub format: u32,
    /// Id of the model card the heads were found with. Only a published set may leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Layers of that model, counting those without attention.
    pub n_layers: usize,
    /// Query heads per layer.
    pub n_heads: usize,
    /// The heads, in any order: `["L16H7"]`, layer and query head counted from 0.
    pub heads: Vec<HeadRef>,
    /// The heads come from a publication and were not reproduced here.
    #[serde(default, skip_serializing_if = "is_false")]
    pub published: bool,
    /// The heads were found here, but with a prompt or tokenizer whose hash is not recorded.
    #[serde(default, skip_serializing_if = "is_false")]
    pub provisional: bool,
    /// Hash of the scoring prompt they were found with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_hash: Option<String>,
    /// Hash of the tokenizer they were found with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer_hash: Option<String>,
    /// The method they were chosen for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// Where they come from.
    pub provenance: Provenance,
}

/// Where a head set comes from. Nothing here changes a score.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// What the heads were chosen on, in words, or the publication they were taken from.
    pub data: String,
    /// How they were chosen: `answer_mass`, `qrhead`, `auroc`.
    pub criterion: String,
    /// Number of inputs that counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u32>,
    /// Seed of the draw of inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Day of the run, `2026-01-31`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// Area under the ROC curve on the inputs they were chosen on, in `[0, 1]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auroc: Option<f64>,
    /// The same on inputs that had no part in the choice (nested cross-validation), in `[0, 1]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out_auroc: Option<f64>,
    /// Arithmetic they were found with: `int8` or `f32`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<String>,
    /// Anything else a reader should know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Mean of what the criterion looks at, per head: attention mass on the answer, QRHead's score or AUROC. May also
    /// name heads that were not chosen.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<HeadRef, f64>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl RawHeadSet {
    /// Reads a file's text. `name` is the file's name without `.toml`. Refuses unknown fields, another
    /// format, and everything that is wrong whatever model is loaded.
    pub fn parse(name: &str, text: &str) -> Result<Self, HeadSetError> {
        let fail = |problem| HeadSetError { set: name.to_owned(), problem };
        let toml = |e: toml::de::Error| fail(HeadSetProblem::NotToml { reason: e.to_string() });
        // The format comes first: a newer file should say so, not complain about its new fields.
        #[derive(Deserialize)]
        struct FormatOnly {
            format: u32,
        }
        let FormatOnly { format } = toml::from_str(text).map_err(toml)?;
        if format != FORMAT {
            return Err(fail(HeadSetProblem::OtherFormat { found: format, known: FORMAT }));
        }
        let mut raw: Self = toml::from_str(text).map_err(toml)?;
        raw.name = name.to_owned();
        match raw.own_problem() {
            Some(problem) => Err(fail(problem)),
            None => Ok(raw),
        }
    }

    /// The text of its file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a head set is plain tables and values: this is a bug")
    }

    /// What the file claims to be.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match (self.published, self.provisional) {
            (true, _) => Standing::Published,
            (false, true) => Standing::Provisional,
            (false, false) => Standing::Bound,
        }
    }

    /// What is wrong whatever model is loaded.
    pub(super) fn own_problem(&self) -> Option<HeadSetProblem> {
        if self.format != FORMAT {
            return Some(HeadSetProblem::OtherFormat { found: self.format, known: FORMAT });
        }
        if self.published && self.provisional {
            return Some(HeadSetProblem::TwoStandings);
        }
        let missing = |field, present: bool| (!present).then_some(HeadSetProblem::Unbound { field });
        let standing = self.standing();
        missing("model", self.model.is_some() || standing == Standing::Published)
            .or_else(|| missing("prompt_hash", self.prompt_hash.is_some() || standing != Standing::Bound))
            .or_else(|| {
                missing("tokenizer_hash", self.tokenizer_hash.is_some() || standing != Standing::Bound)
            })
            .or_else(|| self.needless_provision())
            .or_else(|| self.heads_problem())
    }

    /// A set with both hashes is bound; calling it provisional would hide that they must match.
    fn needless_provision(&self) -> Option<HeadSetProblem> {
        let both = self.prompt_hash.is_some() && self.tokenizer_hash.is_some();
        (self.provisional && both).then_some(HeadSetProblem::NotProvisional)
    }

    fn heads_problem(&self) -> Option<HeadSetProblem> {
        if self.heads.is_empty() {
            return Some(HeadSetProblem::NoHeads);
        }
        let fits = |h: &HeadRef| usize::from(h.layer) < self.n_layers && usize::from(h.head) < self.n_heads;
        if let Some(&head) = self.heads.iter().chain(self.provenance.values.keys()).find(|h| !fits(h)) {
            let (n_layers, n_heads) = (self.n_layers, self.n_heads);
            return Some(HeadSetProblem::OutOfRange { head, n_layers, n_heads });
        }
        let mut sorted = self.heads.clone();
        sorted.sort_unstable();
        sorted.windows(2).find(|w| w[0] == w[1]).map(|w| HeadSetProblem::Repeated { head: w[0] })
    }
}
