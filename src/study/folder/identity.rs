//! What everything in one folder has in common.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::eval::observation::methods;

/// The folder format this version reads and writes.
pub const FORMAT: u32 = 2;

/// What a folder is for. Questions that are measured on must not get among those that heads are chosen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Heads are chosen on it.
    Study,
    /// It is measured on; holds questions with their chunks in several orders.
    Evaluation,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Study => "a study",
            Self::Evaluation => "an evaluation",
        })
    }
}

/// What observations of one folder have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Version of the folder's format.
    pub format: u32,
    /// What the folder is for.
    pub kind: Kind,
    /// Id of the model's card, or its name.
    pub model: String,
    /// Digest of the model's files.
    pub weights: String,
    /// Layers of the model.
    pub n_layers: usize,
    /// Query heads per layer.
    pub n_heads: usize,
    /// Rotary embedding as it is used, which `--rope-scaling` may have changed.
    pub rope: String,
    /// Hash of the scoring prompt.
    pub prompt_hash: String,
    /// Hash of the tokenizer.
    pub tokenizer_hash: String,
    /// Arithmetic of the linear layers.
    pub compute: String,
    /// The methods each observation has a table of.
    pub methods: Vec<String>,
}

/// The first thing in which two identities differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) field: &'static str,
    pub(super) found: String,
    pub(super) wanted: String,
}

impl Identity {
    /// The methods that this version observes.
    #[must_use]
    pub fn current_methods() -> Vec<String> {
        methods().map(|m| m.to_string()).collect()
    }

    /// In what `self` is not `wanted`; their kinds aside.
    pub(super) fn differs(&self, wanted: &Self) -> Option<Difference> {
        let fields = |i: &Self| {
            [
                ("format", i.format.to_string()),
                ("model", i.model.clone()),
                ("weights", i.weights.clone()),
                ("layers × heads", format!("{} × {}", i.n_layers, i.n_heads)),
                ("rotary embedding", i.rope.clone()),
                ("prompt", i.prompt_hash.clone()),
                ("tokenizer", i.tokenizer_hash.clone()),
                ("--compute", i.compute.clone()),
            ]
        };
        let differing = fields(self).into_iter().zip(fields(wanted)).find(|(a, b)| a != b);
        if let Some(((field, found), (_, wanted))) = differing {
            return Some(Difference { field, found, wanted });
        }
        // dozens of methods: those that are on one side only say enough
        let besides = |these: &[String], those: &[String]| {
            let only: Vec<&str> = these.iter().filter(|m| !those.contains(m)).map(String::as_str).collect();
            if only.is_empty() { "fewer".to_owned() } else { only.join(" ") }
        };
        let (found, wanted) = (&self.methods, &wanted.methods);
        let difference =
            || Difference { field: "methods", found: besides(found, wanted), wanted: besides(wanted, found) };
        (found != wanted).then(difference)
    }
}
